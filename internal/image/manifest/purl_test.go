package manifest

import (
	"testing"

	"github.com/ortet/ortet/internal/wire"
)

// The cases "build" of purl-spec's tests/types/deb-test.json, rpm-test.json, oci-test.json and golang-test.json (2026-08-21).
func TestPackageURLsOfTheSpecification(t *testing.T) {
	for want, got := range map[string]string{
		"pkg:deb/debian/curl@7.50.3-1?arch=i386&distro=jessie":                                                  purl(wire.Deb, "debian/curl", "7.50.3-1", "arch", "i386", "distro", "jessie"),
		"pkg:deb/debian/dpkg@1.19.0.4?arch=amd64&distro=stretch":                                                purl(wire.Deb, "debian/dpkg", "1.19.0.4", "arch", "amd64", "distro", "stretch"),
		"pkg:deb/ubuntu/dpkg@1.19.0.4?arch=amd64":                                                               purl(wire.Deb, "ubuntu/dpkg", "1.19.0.4", "arch", "amd64", "distro", ""),
		"pkg:deb/debian/attr@1:2.4.47-2?arch=source":                                                            purl(wire.Deb, "debian/attr", "1:2.4.47-2", "arch", "source"),
		"pkg:deb/debian/attr@1:2.4.47-2%2Bb1?arch=amd64":                                                        purl(wire.Deb, "debian/attr", "1:2.4.47-2+b1", "arch", "amd64"),
		"pkg:rpm/fedora/curl@7.50.3-1.fc25?arch=i386&distro=fedora-25":                                          purl(wire.RPM, "fedora/curl", "7.50.3-1.fc25", "arch", "i386", "distro", "fedora-25"),
		"pkg:golang/github.com/gorilla/context@234fd47e07d1004f0aed9c":                                          purl("golang", "github.com/gorilla/context", "234fd47e07d1004f0aed9c"),
		"pkg:oci/hello-wasm@sha256:244fd47e07d10?tag=v1":                                                        purl("oci", "hello-wasm", "sha256:244fd47e07d10", "tag", "v1"),
		"pkg:rpm/fedora/centerim@4.22.10-1.el6?arch=i686&distro=fedora-25&epoch=1":                              packageOf(wire.Package{Type: wire.RPM, Name: "centerim", Version: "1:4.22.10-1.el6", Arch: "i686"}, wire.OperatingSystem{ID: "fedora", Version: "25"}, "fedora").purl,
		"pkg:rpm/opensuse/curl@7.56.1-1.1.?arch=i386&distro=opensuse-tumbleweed":                                ofSystem("opensuse-tumbleweed", ""),
		"pkg:rpm/suse/curl@7.56.1-1.1.?arch=i386&distro=sles-15.5":                                              ofSystem("sles", "15.5"), // as Trivy has it
		"pkg:oci/static@sha256:244fd47e07d10?repository_url=gcr.io%2Fdistroless%2Fstatic&tag=latest":            purl("oci", "static", "sha256:244fd47e07d10", "repository_url", "gcr.io/distroless/static", "tag", "latest"),
		"pkg:oci/debian@sha256:244fd47e07d10?arch=amd64&repository_url=docker.io%2Flibrary%2Fdebian&tag=latest": purl("oci", "debian", "sha256:244fd47e07d10", "arch", "amd64", "repository_url", "docker.io/library/debian", "tag", "latest"),
		"pkg:oci/static?tag=latest":                                                                             purl("oci", "static", "", "repository_url", "", "tag", "latest"),
	} {
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func ofSystem(id, version string) string {
	p := wire.Package{Type: wire.RPM, Name: "curl", Version: "7.56.1-1.1.", Arch: "i386"}
	return packageOf(p, wire.OperatingSystem{ID: id, Version: version}, vendorOf(id)).purl
}
