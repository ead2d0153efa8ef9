package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/manifest"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/kubesim"
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

// What is asked for is not there, not whole or not what its version says: the answer names it, and a
// way out; nothing is on standard output.
func TestVersionsContentsThatAreNotThere(t *testing.T) {
	definition := string(theVersion.Parent())
	image := definition + "/versions/"
	kept := map[string][]byte{}
	tags := map[string]string{}
	keep := func(version string, data, tagged []byte) {
		sum := sha256.Sum256(tagged)
		tags[version] = hex.EncodeToString(sum[:])
		kept["manifest-"+tags[version][:16]] = data
	}
	whole, _ := contentsOf("x", nil).Manifest.Pack()
	large, _ := contentsOf("x", func(m *wire.Manifest) { m.Units = append(m.Units, strings.Repeat("a", 1000)) }).Manifest.Pack()
	keep("1.0.0", whole, whole)
	keep("1.0.1", whole[:len(whole)/2], whole[:len(whole)/2])
	keep("1.0.2", []byte("changed"), append(whole, 'x'))
	keep("1.0.3", make([]byte, wire.MaxManifest+1), make([]byte, wire.MaxManifest+1))
	keep("1.0.4", large, large)
	tags["1.0.5"] = ""                       // kamino's
	tags["1.0.6"] = strings.Repeat("0", 64)  // kept elsewhere
	tags["1.0.7"] = "../secrets/other"       // not a hash
	tags["1.0.8"] = strings.Repeat("é", 100) // nor this
	keep("1.0.9", []byte("not gzip"), []byte("not gzip"))

	k := &kubesim.Server{Users: map[string][]kubesim.Grant{"t": {kubesim.Administrator()}}}
	k.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NodeSpec{ProviderID: "azure://" + somePool + "/virtualMachines/0"}})
	k.Put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: kube.SavedName(somePool), Namespace: "ortet-system"}, Data: kept})
	api := httptest.NewTLSServer(k)
	t.Cleanup(api.Close)
	version := func(id string) map[string]any {
		name := id[strings.LastIndexByte(id, '/')+1:]
		return map[string]any{"id": id, "name": name, "location": "eastus", "tags": map[string]string{fleet.TagManifest: tags[name]}, "properties": map[string]any{"provisioningState": "Succeeded"}}
	}
	azure := fakeAzure(t, func(path string) (int, any) {
		name := path[strings.LastIndexByte(path, '/')+1:]
		switch _, there := tags[name]; {
		case strings.HasSuffix(path, "/images"):
			return 200, map[string]any{"value": []any{map[string]any{"id": definition, "name": theVersion.Parent().Name(), "properties": map[string]any{}}}}
		case path == definition+"/versions":
			all := []any{}
			for name := range tags {
				all = append(all, version(image+name))
			}
			return 200, map[string]any{"value": all}
		case there:
			return 200, version(path)
		}
		return 404, nil
	})
	for args, c := range map[string]struct {
		code int
		says string
	}{
		"diff POOL 1.0.0 1.0.0":             {0, "Packages: no difference"},
		"diff POOL 1.0.0 IMAGE1.0.0/":       {0, "Packages: no difference"},
		"sbom IMAGE1.0.0 -o cyclonedx-json": {0, "CycloneDX"},
		"diff POOL 1.0.0 2.0.0":             {refused, "scale set k8s-pool1-12345678-vmss: there is no image version 2.0.0 -> ortet versions lists"},
		"diff POOL 2.0.0 1.0.0":             {refused, "there is no image version 2.0.0 -> ortet versions lists"},
		"sbom IMAGE2.0.0":                   {refused, "there is no image version 2.0.0 -> ortet versions lists"},
		"sbom nosuch 1.0.0":                 {refused, "scale set nosuch: the Nodes of this cluster are instances of k8s-pool1-12345678-vmss -> "},
		"sbom POOL 1.0.5":                   {refused, "image version 1.0.5: what is in this version was not listed -> name a version with the tag ortet.io_manifest"},
		"diff IMAGE1.0.0 IMAGE1.0.5":        {refused, "image version 1.0.5: what is in this version was not listed -> name a version with the tag ortet.io_manifest"},
		"sbom POOL 1.0.6":                   {refused, "is not kept in namespace ortet-system of this cluster -> use the cluster and --namespace from which it was captured; if these are right, it was dropped"},
		"sbom POOL 1.0.0 --namespace other": {refused, "is not kept in namespace other of this cluster -> use the cluster and --namespace"},
		"sbom POOL 1.0.7":                   {refused, "image version 1.0.7: its tag ortet.io_manifest is no SHA-256 in hexadecimal -> name another version"},
		"sbom POOL 1.0.8":                   {refused, "image version 1.0.8: its tag ortet.io_manifest is no SHA-256 in hexadecimal -> name another version"},
		"sbom POOL 1.0.1 -o spdx-json":      {failed, "versions/1.0.1): a manifest that is cut, or no gzip: unexpected EOF; the capture kept it like this: name another version"},
		"diff POOL 1.0.0 1.0.9":             {failed, "versions/1.0.9): a manifest that is cut, or no gzip: "},
		"sbom POOL 1.0.2 -o json":           {failed, "somebody else changed it: inspect it"},
		"sbom POOL 1.0.3":                   {failed, "a manifest of 65537 bytes, more than 65536; the capture kept it like this"},
		"sbom POOL 1.0.4":                   {failed, "a manifest with a text that is no printable ASCII of at most 256 bytes; the capture kept it like this"},
		"sbom /subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/galleries/SIG_g/images/other/versions/1.0.0": {refused,
			"does not say of which scale set it is -> give the scale set's name or ARM id, and the version's name"},
	} {
		t.Run(args, func(t *testing.T) {
			line := strings.NewReplacer("IMAGE", image, "POOL", pool1.Name()).Replace(args)
			code, out, said := runIn(t, azure, "versions "+line+" --kubeconfig "+kubeconfigOf(t, api, true))
			said = strings.Join(strings.Fields(said), " ")
			if code != c.code || !strings.Contains(strings.Join(strings.Fields(out), " ")+said, c.says) || code != 0 && out != "" {
				t.Errorf("code %d, want %d and %q:\n%s%s", code, c.code, c.says, out, said)
			}
		})
	}
}
