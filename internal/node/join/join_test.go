package join

import (
	"os"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ortet/ortet/internal/wire"
)

func TestJoinWritesWhatAKubeletJoinsWith(t *testing.T) {
	w := newWorld(t)
	w.settings.NodeLabels = map[string]string{"pool": "blue", "app.example.com/x": "y"}
	w.settings.NodeTaints = []string{"spot=true:NoSchedule"}
	w.mustJoin()
	var kubeconfig struct {
		Clusters []struct {
			Cluster struct {
				Server string `yaml:"server"`
				CA     string `yaml:"certificate-authority-data"`
			} `yaml:"cluster"`
		} `yaml:"clusters"`
		Users []struct {
			User struct {
				Token string `yaml:"token"`
			} `yaml:"user"`
		} `yaml:"users"`
	}
	if err := yaml.Unmarshal([]byte(w.read(bootstrapKubeconfig)), &kubeconfig); err != nil {
		t.Fatal(err)
	}
	if c := kubeconfig.Clusters[0].Cluster; c.Server != apiServer || c.CA != encoded(w) || kubeconfig.Users[0].User.Token != goodToken {
		t.Errorf("the bootstrap kubeconfig: %+v", kubeconfig)
	}
	for _, name := range []string{bootstrapKubeconfig, clientCA, KubeletArguments, RecordFile, ReadyFile} {
		if info, err := os.Stat(w.path(name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if got := w.read(KubeletArguments); !strings.Contains(got, "\nORTET_KUBELET_ARGS=--hostname-override="+ourName+" --provider-id=azure://"+ourID+" --node-labels=app.example.com/x=y,pool=blue --register-with-taints=spot=true:NoSchedule\n") {
		t.Errorf("the kubelet's arguments: %s", got)
	}
	if r := w.record(); r.State != Joined || r.VMID != ourVM || r.NodeName != ourName {
		t.Errorf("the record: %+v", r)
	}
	if strings.Contains(w.said(), "0123456789abcdef") || strings.Contains(w.read(RecordFile), "0123456789abcdef") {
		t.Error("the token is told")
	}
}

// The kubelet is given the folder of its drop-ins where it exists, at the first start and
// at each later one.
func TestKubeletDropInFolder(t *testing.T) {
	w := newWorld(t)
	w.mustJoin()
	if got := w.read(KubeletArguments); strings.Contains(got, "--config-dir") {
		t.Errorf("without the folder: %s", got)
	}
	w = newWorld(t)
	w.write("/etc/kubernetes/kubelet.conf.d/README", "")
	w.mustJoin()
	first := w.read(KubeletArguments)
	if !strings.HasSuffix(first, " --config-dir=/etc/kubernetes/kubelet.conf.d\n") {
		t.Errorf("with the folder: %s", first)
	}
	w.write(KubeletArguments, "")
	w.kubelet(ourName, time.Now().Add(time.Hour)) // it has joined
	w.mustJoin()
	if again := w.read(KubeletArguments); again != first {
		t.Errorf("at the next start: %q, want %q", again, first)
	}
}

// The kubelet reads the kubeconfig by this code.
func TestTheBootstrapKubeconfigIsOne(t *testing.T) {
	w := newWorld(t)
	w.mustJoin()
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(w.read(bootstrapKubeconfig)))
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != apiServer || config.BearerToken != goodToken || string(config.CAData) != string(w.ca.pem()) || config.Insecure {
		t.Errorf("%+v", config)
	}
}

// A restart depends on nobody.
func TestANodeThatHasJoinedAsksNobody(t *testing.T) {
	w := newWorld(t)
	w.mustJoin()
	w.kubelet(ourName, time.Now().Add(time.Hour))
	if err := os.RemoveAll(w.path("/run")); err != nil {
		t.Fatal(err)
	}
	w.server.Close()
	w.mustJoin()
	if w.joins != 1 || len(w.waits) != 0 || !w.there(ReadyFile) {
		t.Errorf("%d joins, %d pauses", w.joins, len(w.waits))
	}
	if !strings.Contains(w.read(KubeletArguments), "--provider-id=azure://"+ourID) {
		t.Error("the kubelet's arguments are not written again")
	}
	if w.read(bootstrapKubeconfig) != "" {
		t.Error("the token that was used up is on the disk still")
	}
	if w.read("/var/lib/kubelet/pods/uid/volumes/x") == "" {
		t.Error("its pods' volumes are gone")
	}
}

func TestJoinWritesWhatK3sJoinsWith(t *testing.T) {
	for _, distribution := range []string{wire.K3s, wire.RKE2} {
		t.Run(distribution, func(t *testing.T) {
			w := newWorld(t)
			w.settings.Distribution = distribution
			w.settings.Registries = "mirrors: {}\n"
			w.settings.NodeLabels = map[string]string{"pool": "blue"}
			w.mustJoin()
			want := "# Written by ortet-node join.\nserver: \"" + apiServer + "\"\ntoken-file: \"/run/ortet/token\"\nnode-name: \"" + ourName + "\"\nkubelet-arg+:\n- \"provider-id=azure://" + ourID + "\"\nnode-label+:\n- \"pool=blue\"\n"
			if got := w.read("/etc/rancher/" + distribution + "/config.yaml.d/50-ortet.yaml"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if got := w.read(RancherToken); got != pinOfCA+"::"+goodToken+"\n" {
				t.Errorf("the token: %q", got)
			}
			if got := w.read("/etc/rancher/" + distribution + "/registries.yaml"); got != "mirrors: {}\n" {
				t.Errorf("the registries: %q", got)
			}
		})
	}
}

// An agent that is started again in the same boot waits for nobody, where only Azure
// tells who this machine is, too; in another boot it does.
func TestAStartInTheSameBootAsksNobody(t *testing.T) {
	w := newWorld(t)
	w.mustJoin()
	w.kubelet(ourName, time.Now().Add(time.Hour))
	w.mustJoin()
	w.azure.Close()
	w.server.Close()
	if err := w.client().Join(t.Context(), true); err != nil || !w.started() {
		t.Errorf("%v; an agent may start: %v", err, w.started())
	}
	// What is not this machine's is not taken for its own.
	w.kubelet("pool1000001", time.Now().Add(time.Hour))
	if err := w.client().Join(t.Context(), true); err == nil || w.started() {
		t.Error("another machine's certificate is taken")
	}
	w.kubelet(ourName, time.Now().Add(time.Hour))
	if err := os.RemoveAll(w.path("/run")); err != nil {
		t.Fatal(err)
	}
	if err := w.client().Join(t.Context(), true); err == nil || w.started() {
		t.Errorf("in another boot: %v; an agent may start: %v", err, w.started())
	}
}
