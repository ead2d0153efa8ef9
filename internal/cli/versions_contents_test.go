package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/manifest"
	"github.com/ortet/ortet/internal/wire"
)

func contentsOf(name string, change func(*wire.Manifest)) capture.Contents {
	c := capture.Contents{Version: fleet.ImageVersion{ID: theVersion.Parent().Child("versions", name), Name: name, Published: noon.Add(-time.Hour)}, Manifest: wire.Manifest{
		OS:      wire.OperatingSystem{ID: "debian", Version: "12", Name: "Debian GNU/Linux 12 (bookworm)"},
		Kernels: []string{"6.1.0-27-cloud-amd64"}, Kubelet: "v1.31.2", Containerd: "1.7.24-1",
		Packages: []wire.Package{{Type: wire.Deb, Name: "curl", Version: "7.88.1-10+deb12u8", Arch: "amd64"}, {Type: wire.Deb, Name: "nano", Version: "7.2-1", Arch: "amd64"}},
		Images:   []wire.ContainerImage{{Name: "registry.k8s.io/pause:3.9", Digest: "sha256:7031c1b283388d2c2e09b57badb803c0"}},
		Units:    []string{"kubelet.service"}, Bytes: map[string]int64{"/usr": 2 << 30},
	}}
	if change != nil {
		change(&c.Manifest)
	}
	return c
}

func TestVersionsContents(t *testing.T) {
	a, b := contentsOf("2026.11.20", nil), contentsOf("2026.11.21", func(m *wire.Manifest) {
		m.Kernels = append(m.Kernels, "6.1.0-28-cloud-amd64")
		m.Containerd = ""
		m.Packages[0].Version, m.Packages[1].Name = "7.88.1-10+deb12u9", "vim"
		m.Images = append(m.Images, wire.ContainerImage{Name: "registry.k8s.io/pause:3.10", Digest: "sha256:ee6521f290b2168b6e0935a181d4cff9"})
		m.Units, m.Bytes = nil, map[string]int64{"/usr": 5 << 29}
		m.NotRead = []string{"containerd: /usr/bin/containerd does not say its version"}
	})
	for name, write := range map[string]func(o *options) error{
		"versions-diff": func(o *options) error {
			writeVersionsDiff(o.process.Out, versionsDiff{a.Version.ID, b.Version.ID, manifest.Compare(a.Manifest, b.Manifest)})
			writeVersionsDiff(o.process.Out, versionsDiff{a.Version.ID, a.Version.ID, manifest.Compare(a.Manifest, a.Manifest)})
			return nil
		},
		"versions-diff-json": func(o *options) error {
			o.output = "json"
			return o.print(versionsDiff{a.Version.ID, b.Version.ID, manifest.Compare(a.Manifest, b.Manifest)}, nil)
		},
		"versions-sbom":           func(o *options) error { return o.printSBOM(b) },
		"versions-sbom-spdx":      func(o *options) error { o.output = spdxForm; return o.printSBOM(a) },
		"versions-sbom-cyclonedx": func(o *options) error { o.output = cycloneDXForm; return o.printSBOM(b) },
	} {
		t.Run(name, func(t *testing.T) {
			var out, stderr strings.Builder
			o := &options{output: "table", process: Process{Out: &out, Err: &stderr, Version: "0.1.0"}}
			if err := write(o); err != nil {
				t.Fatal(err)
			}
			golden(t, name, out.String()+stderr.String())
		})
	}
}

// Wrong arguments are refused before anything is asked.
func TestVersionsContentsUsage(t *testing.T) {
	for args, want := range map[string]string{
		"versions diff":                                   "want POOL A B; the ARM id of a version stands for POOL and its name",
		"versions diff pool1 2026.11.20":                  "want POOL A B",
		"versions diff pool1 a b c":                       "want POOL A B",
		"versions sbom pool1":                             "want POOL VERSION",
		"versions sbom pool1 " + string(theVersion):       "want POOL VERSION",
		"versions sbom pool/1 2026.11.20":                 "neither the name of a scale set nor its ARM id",
		"versions sbom /subscriptions/s/versions/1":       "is not the ARM id of an image version",
		"versions sbom pool1 2026.11.20 -o spdx":          "-o spdx: want table, json, yaml, spdx-json or cyclonedx-json",
		"versions sbom " + string(theVersion) + " -o svg": "-o svg: want",
	} {
		if code, out, err := run(t, strings.Fields(args)...); code != ExitUsage || out != "" || !strings.Contains(err, want) {
			t.Errorf("ortet %s: code %d, %s%s", args, code, out, err)
		}
	}
}
