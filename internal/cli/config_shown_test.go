package cli

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/nodeconfig/push"
)

// configNodes are nodes of pool1 in all states.
func configNodes() []push.Node {
	node := func(n int, generation, wanted int64, state, reason, message string) push.Node {
		return push.Node{Name: fmt.Sprintf("k8s-pool1-12345678-vmss00000%d", n), Instance: string(pool1.Child("virtualMachines", fmt.Sprint(n))), Ready: true,
			Generation: generation, Wanted: wanted, State: state, Reason: reason, Message: message, At: noon.Add(-time.Duration(n+1) * time.Minute)}
	}
	all := []push.Node{
		node(0, 7, 7, "Applied", "", "generation 7 is applied"),
		node(1, 6, 7, "Failed", "Unhealthy", "kubelet.service: exited with 1 within 4s of its restart: failed to parse kubelet flag; the node has generation 6 again"),
		node(2, 6, 7, "Waiting", "MetadataUnreadable", "the metadata service does not answer"),
		node(3, 0, 7, "Refused", "NoTrustedKeys", "/etc/ortet/config.json is missing; ortet config keygen prints its content"),
		node(4, 0, 0, "", "", ""),
	}
	all[0].Drift = []string{"/etc/systemd/system/kubelet.service.d/10-memory.conf", "/etc/sysctl.d/90-ortet.conf"}
	all[2].Ready, all[4].At = false, time.Time{}
	return all
}

func TestConfigShown(t *testing.T) {
	history := []push.Entry{
		{Generation: 7, Digest: "sha256:" + strings.Repeat("1b", 32), By: "system-administrator@a-computer-with-a-long-name.example.com", At: noon.Add(-time.Hour)},
		{Generation: 6, Digest: "sha256:" + strings.Repeat("0a", 32), By: "jane@workstation", At: noon.Add(-26 * time.Hour)},
	}
	changes := []nodeconfig.Change{
		{Kind: "registry mirror", Name: "docker.io", What: "added"},
		{Kind: "kubelet", Name: "systemReserved", What: "changed", Restarts: []string{"kubelet"}},
		{Kind: "CA certificate", Name: "corp", What: "added", Restarts: []string{"containerd", "kubelet"}},
		{Kind: "file", Name: "/etc/systemd/system/a-service-with-a-long-name.service.d/environment.conf", What: "removed", Restarts: []string{"a-service-with-a-rather-long-name.service"}},
	}
	first := push.Plan{Pool: pool1, Generation: 1, Changes: changes[:1], Nodes: configNodes()[4:], Expected: 40 * time.Second}
	next := push.Plan{Pool: pool1, Generation: 8, From: 7, Changes: changes, Restarts: []string{"containerd", "kubelet"}, Nodes: configNodes()[:1], Expected: 8 * time.Minute,
		Notes: []string{"1 instance has no Node; it gets the configuration when it boots"}}
	same := push.Plan{Pool: pool1, Generation: 8, From: 7, Nodes: configNodes()[:1]}
	left := configNodes()[0]
	left.Name, left.Drift, left.Generation, left.Wanted, left.Message = "k8s-pool1-12345678-vmss00000c", nil, 6, 6, "not reached: the push stopped before"
	behind := same
	behind.Nodes = configNodes()[:2]
	for name, show := range map[string]func(io.Writer){
		"config-plan-first":   func(w io.Writer) { writeConfigPlan(w, &first, noon) },
		"config-plan":         func(w io.Writer) { writeConfigPlan(w, &next, noon) },
		"config-plan-nothing": func(w io.Writer) { writeConfigPlan(w, &same, noon) },
		"config-plan-behind":  func(w io.Writer) { writeConfigPlan(w, &behind, noon) },
		"config-push": func(w io.Writer) {
			writePushed(w, &push.Result{Pool: pool1, Generation: 7, Nodes: append(configNodes()[:3], left), Left: append(configNodes()[4:], left), Took: 6 * time.Minute}, noon)
		},
		"config-status": func(w io.Writer) {
			writeConfigStatus(w, &push.Status{Pool: pool1, Model: 7, Nodes: configNodes(), Without: []string{"8", "9"}, History: history}, noon)
		},
		"config-status-fresh":   func(w io.Writer) { writeConfigStatus(w, &push.Status{Pool: pool1, Nodes: configNodes()[4:]}, noon) },
		"config-status-foreign": func(w io.Writer) { writeConfigStatus(w, &push.Status{Pool: pool1, ModelForeign: true}, noon) },
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			show(&b)
			golden(t, name, b.String())
			for l := range strings.Lines(b.String()) {
				if n := len([]rune(strings.TrimSuffix(l, "\n"))); n > resultWidth {
					t.Errorf("%d columns: %s", n, l)
				}
			}
		})
	}
}
