package verdict

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/wire"
)

// noise is what every kubelet writes in a pod's first second.
const noise = `W1121 06:58:30.100112    1402 reflector.go:561] object-"kube-system"/"kube-root-ca.crt": failed to list *v1.ConfigMap: configmaps "kube-root-ca.crt" is forbidden: User "system:node:pool1000003" cannot list resource "configmaps" in API group "" in the namespace "kube-system": no relationship found between node 'pool1000003' and this object`

// kubeletText is a kubelet's journal of seconds after it registered its node, with a
// line every five seconds.
func kubeletText(head string, seconds int, last ...string) []string {
	lines := []string{head + `I1121 06:58:30.000000    1402 kubelet_node_status.go:79] "Successfully registered node" node="pool1000003"`, head + noise}
	for i := 0; i < seconds; i += 5 {
		lines = append(lines, fmt.Sprintf(`%sE1121 06:59:%02d.000000    1402 kubelet.go:2917] "Container runtime network not ready" networkReady="NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized"`, head, i%60), head+noise)
	}
	return append(lines, last...)
}

// A text of which nothing is known but its words is judged by the program of each line,
// the same bare, in a journal and on a console.
func TestText(t *testing.T) {
	const forbidden = `E1121 06:58:30.100112    1402 kubelet_node_status.go:113] "Unable to register node with API server" err="Unauthorized" node="pool1000003"`
	for name, c := range map[string]struct {
		lines  func(head string) []string
		reason string
		also   string
	}{
		"no network to the end, among noise": {func(h string) []string { return kubeletText(h, 120) }, "CNINotReady", ""},
		"a network that is not there yet":    {func(h string) []string { return kubeletText(h, 15) }, wire.ReasonUnknown, ""},
		"a network that came": {func(h string) []string {
			return kubeletText(h, 120, h+`I1121 07:00:31.000000    1402 kubelet_node_status.go:501] "Fast updating node status as it just became ready"`)
		}, wire.ReasonUnknown, ""},
		"refused, and registered later": {func(h string) []string { return append([]string{h + forbidden}, kubeletText(h, 5)...) }, wire.ReasonUnknown, ""},
		"two causes": {func(h string) []string {
			return []string{h + `E1121 06:58:30.100112    1402 run.go:72] "command failed" err="failed to parse kubelet flag: unknown flag: --network-plugin"`,
				h + `E1121 06:58:31.100112    1402 run.go:72] "command failed" err="failed to run Kubelet: running with swap on is not supported"`}
		}, "KubeletFlagUnknown", "SwapOn"},
		"two boots": {func(h string) []string {
			return []string{"[    0.000000] Linux version 6.8.0", h + forbidden, "[    0.000000] Linux version 6.8.0", h + noise}
		}, wire.ReasonUnknown, ""},
		"nothing": {func(string) []string { return nil }, wire.ReasonUnknown, ""},
	} {
		for _, head := range []string{"", "Nov 21 06:58:31 pool1000003 kubelet[1402]: ", "2026-11-21T06:58:31+00:00 pool1000003 kubelet[1402]: ", "[   31.310021] kubelet[1402]: "} {
			text := Log{Lines: c.lines(head)}
			j := judgeText([]Log{text})
			if j.Reason != c.reason || !strings.Contains(j.Message, c.also) {
				t.Errorf("%s after %q: %s: %s", name, head, j.Reason, j.Message)
			}
			read := newLog("", kindOf(""), text.Lines, false)
			for i, k := range read.of {
				if k != kubelet && !strings.Contains(read.lines[i], "Linux version") {
					t.Errorf("%s after %q: %q is of %d", name, head, read.lines[i], k)
				}
			}
		}
	}
}

// Who wrote a line is known by its own head, whatever file it is in.
func TestPrograms(t *testing.T) {
	text := []string{
		`[   12.310021] EXT4-fs (sda1): mounted filesystem`,
		`[   13.310021] cloud-init[812]: + kubeadm join`,
		`2026-11-21 06:58:05,331 - util.py[DEBUG]: Reading from /etc/os-release`,
		`time="2026-11-21T06:58:12.346337112Z" level=info msg="containerd successfully booted in 0.094s"`, // or k3s's
		`time="2026-11-21T06:58:12Z" level=info msg="Starting k3s agent"`,
		`I1121 06:58:12.346337    1800 checks.go:577] validating Kubernetes and kubeadm version`,
		`I1121 06:58:12.346337    1402 server.go:529] "Kubelet version"`,
		`Nov 21 06:58:31 pool1000003 sshd[33]: Connection closed`,
		`a line of prose`,
	}
	want := []kind{kernel, output, cloudInit, runtime | k3s, k3s, output, kubelet, foreign, elsewhere}
	if got := newLog("notes.txt", kindOf("notes.txt"), text, false).of; !slices.Equal(got, want) {
		t.Errorf("the programs are %b, not %b", got, want)
	}
}

// judgeText judges texts as a person pastes them, of which nothing else is known.
func judgeText(texts []Log) Judgement { return Judge(Facts{Outside: true, Logs: texts}) }
