package lab_test

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/hack/lab"
)

func TestCustomDataIsCloudConfig(t *testing.T) {
	data, err := lab.CustomData(lab.Pool{
		BootstrapKubeconfig: []byte("kubeconfig"),
		CA:                  []byte("ca"),
		Files:               []lab.File{{Path: "/etc/kubernetes/azure.json", Mode: "0600", Content: []byte(`{"cloud":"x"}`)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(data), "#cloud-config\n") {
		t.Errorf("no cloud-config: %.40q", data)
	}
	var doc struct {
		WriteFiles []struct{ Path, Content, Encoding, Permissions string } `json:"write_files"`
		RunCmd     [][]string                                              `json:"runcmd"`
	}
	if err := yaml.UnmarshalStrict(data, &doc); err != nil {
		t.Fatal(err)
	}
	last := doc.WriteFiles[len(doc.WriteFiles)-1]
	if last.Path != "/etc/kubernetes/azure.json" || last.Permissions != "0600" || last.Content != "eyJjbG91ZCI6IngifQ==" || last.Encoding != "b64" {
		t.Errorf("the pool's own file became %+v", last)
	}
	// Live configuration needs the folders that the kubelet and containerd read.
	for path, want := range map[string]string{
		"/etc/kubernetes/kubelet.conf.d/00-lab.conf": "kind: KubeletConfiguration",
		"/etc/default/kubelet":                       "--config-dir=/etc/kubernetes/kubelet.conf.d",
		"/etc/containerd/config.toml":                `[plugins."io.containerd.grpc.v1.cri".registry] config_path = "/etc/containerd/certs.d"`,
	} {
		found := false
		for _, f := range doc.WriteFiles {
			found = found || f.Path == path && strings.Contains(strings.Join(strings.Fields(f.Content), " "), want)
		}
		if !found {
			t.Errorf("%s lacks %q", path, want)
		}
	}
}

// A pool whose nodes are admitted has no token in its custom data.
func TestCustomDataOfNodesThatAreAdmitted(t *testing.T) {
	data, err := lab.CustomData(lab.Pool{BootstrapKubeconfig: []byte("kubeconfig"), CA: []byte("ca"), Join: []byte(`{"servers":[]}`)})
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		WriteFiles []struct{ Path, Content string } `json:"write_files"`
		RunCmd     [][]string                       `json:"runcmd"`
	}
	if err := yaml.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range doc.WriteFiles {
		files[f.Path] = f.Content
	}
	if files["/etc/ortet/join.json"] != "eyJzZXJ2ZXJzIjpbXX0=" || files["/etc/kubernetes/bootstrap-kubelet.conf"] != "" || files["/etc/kubernetes/pki/ca.crt"] != "" {
		t.Errorf("files: %v", files)
	}
	if !strings.Contains(files["/var/lib/kubelet/config.yaml"], "\nserverTLSBootstrap: true\n") || !strings.Contains(files["/etc/systemd/system/kubelet.service.d/20-ortet.conf"], "$ORTET_KUBELET_ARGS\n") {
		t.Errorf("the kubelet's: %v", files)
	}
	if files["/etc/default/kubelet"] != "" {
		t.Errorf("the kubelet has the folder twice: %v", files["/etc/default/kubelet"])
	}
	if len(doc.RunCmd) != 1 || !slices.Contains(doc.RunCmd[0], "ortet-join.service") {
		t.Errorf("commands: %v", doc.RunCmd)
	}
}
