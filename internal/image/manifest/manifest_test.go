package manifest_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/ortet/ortet/internal/image/manifest"
	"github.com/ortet/ortet/internal/wire"
)

var update = flag.Bool("update", false, "write the golden files anew")

func debian() wire.Manifest {
	return wire.Manifest{
		OS:      wire.OperatingSystem{ID: "debian", Version: "12", Name: "Debian GNU/Linux 12 (bookworm)"},
		Kernels: []string{"6.1.0-28-cloud-amd64"}, Kubelet: "v1.31.2", Containerd: "1.7.24-1",
		Packages: []wire.Package{
			{Type: wire.Deb, Name: "containerd.io", Version: "1.7.24-1", Arch: "amd64"},
			{Type: wire.Deb, Name: "libgcc-s1", Version: "12.2.0-14+deb12u1", Arch: "amd64", Source: "gcc-12", SourceVersion: "12.2.0-14"},
			{Type: wire.Deb, Name: "libssl3", Version: "1:3.0.15-1~deb12u1", Arch: "amd64", Source: "openssl"},
		},
		Images: []wire.ContainerImage{{Name: "registry.k8s.io/pause:3.10", Digest: "sha256:7031c1b283388d2c2e09b57badb803c05ebed362dc88d84b480cc47f72a21097"},
			{Name: "localhost:5000/a", Digest: "sha256:2e09b57badb803c05ebed362dc88d84b480cc47f72a210977031c1b283388d2c"}},
		Units: []string{"kubelet.service"}, Bytes: map[string]int64{"/usr": 3 << 30, "/var": 1 << 30},
	}
}

func azureLinux() wire.Manifest {
	return wire.Manifest{
		OS: wire.OperatingSystem{ID: "rhel", Version: "9.4"}, Kernels: []string{"5.14.0-427.el9.x86_64"},
		Packages: []wire.Package{{Type: wire.RPM, Name: "bind-libs", Version: "32:9.16.23-18.el9", Arch: "x86_64", Source: "bind-9.16.23-18.el9.src.rpm"}},
		NotRead:  []string{"packages: incomplete: /var/lib/rpm/rpmdb.sqlite: it is cut"},
	}
}

func bom(m wire.Manifest) manifest.BOM {
	return manifest.BOM{Manifest: m, Version: "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/galleries/SIG_g/images/kamino-p-prototype/versions/2026.11.21",
		Name: "kamino-p-prototype-2026.11.21", Created: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), Ortet: "0.1.0"}
}

func schema(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	for _, file := range []string{"spdx-2.3", "bom-1.5", "spdx", "jsf-0.82"} {
		text, err := os.ReadFile(filepath.Join("testdata", "schema", file+".schema.json"))
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err == nil {
			err = c.AddResource("http://cyclonedx.org/schema/"+file+".schema.json", doc)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := c.Compile("http://cyclonedx.org/schema/" + name + ".schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Both forms are what their published schemas say.
func TestBillsOfMaterials(t *testing.T) {
	hostile := debian()
	for n := range 0x7f - ' ' {
		word := string(' '+n) + "%/?#&=@:+ x"
		hostile.Packages = append(hostile.Packages, wire.Package{Type: wire.RPM, Name: word, Version: word, Arch: word, Source: word})
		hostile.Images = append(hostile.Images, wire.ContainerImage{Name: word})
	}
	for name, m := range map[string]wire.Manifest{"debian": debian(), "rhel": azureLinux(), "nothing": {}, "hostile": hostile} {
		b := bom(m)
		for form, bill := range map[string]any{"spdx-2.3": b.SPDX(), "bom-1.5": b.CycloneDX()} {
			text, err := json.MarshalIndent(bill, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
			if err == nil {
				err = schema(t, form).Validate(doc)
			}
			if err != nil {
				t.Errorf("%s of %s: %v", form, name, err)
			}
			if name == "nothing" || name == "hostile" {
				continue
			}
			at := filepath.Join("testdata", name+"-"+form+".json")
			if *update {
				if err := os.WriteFile(at, append(text, '\n'), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if want, err := os.ReadFile(at); err != nil || string(want) != string(text)+"\n" {
				t.Errorf("%v; %s is now\n%s", err, at, text)
			}
		}
	}
}

// The package URLs are those that scanners read: purl-spec's types deb, rpm, oci and golang.
func TestPackageURLs(t *testing.T) {
	for _, m := range []wire.Manifest{debian(), azureLinux()} {
		text, err := json.Marshal(bom(m).CycloneDX())
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Components []struct{ PURL string }
		}
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		var urls []string
		for _, c := range got.Components {
			urls = append(urls, c.PURL)
		}
		want := []string{"", "pkg:rpm/redhat/bind-libs@9.16.23-18.el9?arch=x86_64&distro=rhel-9.4&epoch=32&upstream=bind-9.16.23-18.el9.src.rpm"}
		if m.OS.ID == "debian" {
			want = []string{"", "pkg:golang/k8s.io/kubernetes@v1.31.2",
				"pkg:deb/debian/containerd.io@1.7.24-1?arch=amd64&distro=debian-12",
				"pkg:deb/debian/libgcc-s1@12.2.0-14%2Bdeb12u1?arch=amd64&distro=debian-12&upstream=gcc-12%4012.2.0-14",
				"pkg:deb/debian/libssl3@1:3.0.15-1~deb12u1?arch=amd64&distro=debian-12&upstream=openssl",
				"pkg:oci/pause@sha256:7031c1b283388d2c2e09b57badb803c05ebed362dc88d84b480cc47f72a21097?repository_url=registry.k8s.io%2Fpause&tag=3.10",
				"pkg:oci/a@sha256:2e09b57badb803c05ebed362dc88d84b480cc47f72a210977031c1b283388d2c?repository_url=localhost:5000%2Fa"}
		}
		if !slices.Equal(urls, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(urls, "\n"), strings.Join(want, "\n"))
		}
	}
}

// What has no counterpart in the other version is added or removed; several versions of a name are
// compared as a set.
func TestCompare(t *testing.T) {
	from, to := debian(), debian()
	from.Packages = append(from.Packages, wire.Package{Type: wire.RPM, Name: "kernel", Version: "1"}, wire.Package{Type: wire.RPM, Name: "kernel", Version: "2"})
	to.Packages = append(to.Packages[1:], wire.Package{Type: wire.RPM, Name: "kernel", Version: "2"}, wire.Package{Type: wire.RPM, Name: "kernel", Version: "3"})
	to.Kubelet, to.Units, to.NotRead = "v1.31.3", []string{"containerd.service", "kubelet.service"}, []string{"x"}
	to.Images = []wire.ContainerImage{{Name: "registry.k8s.io/pause:3.10", Digest: "sha256:00"}, to.Images[1]}
	got, err := json.Marshal(manifest.Compare(from, to))
	const want = `{"kernel":{"from":"6.1.0-28-cloud-amd64","to":"6.1.0-28-cloud-amd64"},"kubelet":{"from":"v1.31.2","to":"v1.31.3"},` +
		`"containerd":{"from":"1.7.24-1","to":"1.7.24-1"},"packages":[{"name":"containerd.io amd64","from":"1.7.24-1","to":""},{"name":"kernel","from":"1","to":"3"}],` +
		`"images":[{"name":"registry.k8s.io/pause","from":"3.10@7031c1b28338","to":"3.10@00"}],"units":[{"name":"containerd.service","from":"","to":"enabled"}],` +
		`"bytes":{"from":4294967296,"to":4294967296},"notRead":{"to":["x"]}}`
	if err != nil || string(got) != want {
		t.Errorf("%v\ngot  %s\nwant %s", err, got, want)
	}
}
