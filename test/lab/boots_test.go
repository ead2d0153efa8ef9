//go:build e2e && linux

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/azsim/machine"
	rootfs "github.com/ortet/ortet/hack/lab"
	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/azsimserver"
	"github.com/ortet/ortet/test/controlplane"
)

// hangDeadline is how long the machine that hangs waits for its boot to end; the
// others wait as long as ever, since how fast they are is this host's matter.
const hangDeadline = 30 * time.Second

// side is how many machines boot side by side: two processors are all that is
// promised, and eight boots at once would tell more of them than of boots.
const side = 2

// A boot is one machine, in a pool of its own, and what has to be found out about
// it.
type boot struct {
	pool      string
	endpoint  string            // "" is the API server's
	token     string            // "" is one that the cluster knows
	pre, post []string          // kubeadm's commands before and after, as in a KubeadmConfig
	files     map[string]string // more files
	event     string            // a script that prints when it happened, in seconds since 1970
	want      want
}

type want struct {
	outcome  wire.Outcome
	reason   string
	owner    wire.Owner
	evidence string // what has to be in the lines that are shown
	joined   bool   // it became a Node
}

// Scripts for boot.event.
const (
	whenKubeadmEnded   = "cat /run/kubeadm-ended"
	whenSentinelCame   = "stat -c %.9Y /run/cluster-api/bootstrap-success.complete"
	whenThirdRestart   = "journalctl -b -o short-unix -u kubelet | sed -n 's/^\\([0-9.]*\\) .*Main process exited.*/\\1/p' | sed -n 3p"
	whenDeadlinePassed = "date -d \"$(systemctl show -P ActiveEnterTimestamp ortet-wait) +30 seconds\" +%s.%N"
)

// impatient has a machine give up a question for a name after a second. By default it asks for
// longer than kubeadm waits, which then says only that it had no connection.
var impatient = []string{"rm /etc/resolv.conf", "printf 'nameserver 168.63.129.16\noptions timeout:1 attempts:1\n' >/etc/resolv.conf"}

// boots are the ways in which a node comes up, or does not.
func boots() []boot {
	return []boot{
		// First, because it takes its whole deadline.
		{pool: "hangs", pre: []string{"systemctl daemon-reload", "systemctl restart --no-block ortet-wait.service", "sleep infinity"}, event: whenDeadlinePassed,
			files: map[string]string{"/etc/systemd/system/ortet-wait.service.d/deadline.conf": fmt.Sprintf("[Service]\nExecStart=\nExecStart=/usr/local/bin/ortet-node wait --deadline %s\n", hangDeadline)},
			want:  want{outcome: wire.TimedOut, reason: "CloudInitHung", evidence: "scripts_user"}},
		{pool: "good", event: whenSentinelCame,
			want: want{outcome: wire.Succeeded, joined: true}},
		// What a disk holds that was captured from a node and not cleaned.
		{pool: "preflight", pre: []string{"install -D /dev/null /etc/kubernetes/kubelet.conf"}, event: whenKubeadmEnded,
			want: want{outcome: wire.Failed, reason: "NodeNotClean", owner: wire.OwnerImage, evidence: "/etc/kubernetes/kubelet.conf already exists"}},
		{pool: "token", token: "abcdef.0123456789abcdef", event: whenKubeadmEnded,
			want: want{outcome: wire.Failed, reason: "BootstrapTokenUnknown", owner: wire.OwnerUser, evidence: "abcdef"}},
		{pool: "apiserver", endpoint: "10.96.0.1:6443", event: whenKubeadmEnded,
			want: want{outcome: wire.Failed, reason: "APIServerRefused", owner: wire.OwnerNetwork, evidence: "10.96.0.1:6443"}},
		{pool: "dns", pre: impatient, endpoint: "api.mine.example:6443", event: whenKubeadmEnded,
			want: want{outcome: wire.Failed, reason: "DNSFailed", owner: wire.OwnerNetwork, evidence: "lookup api.mine.example"}},
		{pool: "crashloop", event: whenThirdRestart,
			// A command after kubeadm that breaks what kubeadm made, once the node is there.
			post:  []string{"until kubectl --kubeconfig /etc/kubernetes/kubelet.conf get node $(hostname); do sleep 0.2; done", "echo 'maxPods: -1' >>/var/lib/kubelet/config.yaml", "systemctl restart kubelet"},
			files: map[string]string{"/etc/systemd/system/kubelet.service.d/20-restart.conf": "[Service]\nRestartSec=1\n"},
			want:  want{outcome: wire.Failed, reason: "KubeletConfigInvalid", owner: wire.OwnerUser, evidence: "maxPods", joined: true}},
		{pool: "containerd", pre: []string{"rm /usr/bin/containerd", "systemctl restart containerd"}, event: whenKubeadmEnded,
			want: want{outcome: wire.Failed, reason: "ContainerdMissing", owner: wire.OwnerImage, evidence: "containerd"}},
	}
}

// customData is what Cluster API's kubeadm provider gives a machine, in the parts
// that matter here; the JoinConfiguration is that of docs/how-to/kubeadm.md.
func (b boot) customData(c kubeadmCluster) string {
	token, endpoint := c.token, rootfs.APIServerFrontend
	if b.token != "" {
		token = b.token
	}
	if b.endpoint != "" {
		endpoint = b.endpoint
	}
	files := map[string][]byte{
		"/run/cluster-api/placeholder": []byte("keeps the folder\n"),
		"/run/kubeadm/kubeadm-join-config.yaml": []byte(strings.NewReplacer("10.0.0.4:6443", endpoint, "TOKEN", token, "HASH", c.caHash).Replace(c.join) + `
  # A machine is a container: its kernel is the host's.
  ignorePreflightErrors: [SystemVerification]
timeouts: {discovery: 6s, tlsBootstrap: 20s, kubernetesAPICall: 5s, kubeletHealthCheck: 30s}
`),
		"/etc/containerd/config.toml": []byte(`version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + rootfs.PauseImage + `"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/run/cni"
`),
	}
	for path, content := range b.files {
		files[path] = []byte(content)
	}
	quoted := func(commands []string) (all []string) {
		for _, c := range commands {
			all = append(all, strconv.Quote(c))
		}
		return all
	}
	commands := slices.Concat(
		quoted([]string{"systemctl enable --now containerd.service"}),
		quoted(b.pre),
		quoted([]string{"kubeadm join --config /run/kubeadm/kubeadm-join-config.yaml  && echo success > /run/cluster-api/bootstrap-success.complete"}),
		quoted(b.post),
	)
	return azsimserver.CloudConfig(files, commands...)
}

// bakeAgent makes the image on which ortet-node is, as docs/how-to/extension.md says.
func bakeAgent(ctx context.Context, t *testing.T) func(l *lab, disk string) map[string]string {
	return func(l *lab, disk string) map[string]string {
		t.Helper()
		units := filepath.Join(l.checkout, "deploy", "systemd")
		wait, err := os.ReadFile(filepath.Join(units, "ortet-wait.service"))
		if err != nil {
			t.Fatal(err)
		}
		report, err := os.ReadFile(filepath.Join(units, "ortet-report.service"))
		if err != nil {
			t.Fatal(err)
		}
		agent, err := os.ReadFile(filepath.Join(l.bin, "ortet-node"))
		if err != nil {
			t.Fatal(err)
		}
		tree := filepath.Join(l.dir, "tree")
		for path, f := range map[string]struct {
			content []byte
			mode    os.FileMode
		}{
			"usr/local/bin/ortet-node":                    {agent, 0o755},
			"usr/lib/systemd/system/ortet-wait.service":   {wait, 0o644},
			"usr/lib/systemd/system/ortet-report.service": {report, 0o644},
			// Nothing of the host's hardware tells a machine that it is Azure's.
			"etc/systemd/system/ortet-report.service.d/metadata.conf": {[]byte("[Service]\nExecStart=\nExecStart=/usr/local/bin/ortet-node report --wait 21m --annotate --metadata yes\n"), 0o644},
			// As on every node's image; kubeadm insists.
			"etc/sysctl.d/90-kubernetes.conf": {[]byte("net.ipv4.ip_forward = 1\n"), 0o644},
			// Tells when kubeadm ended, which nothing else does to the millisecond.
			"usr/local/sbin/kubeadm": {[]byte("#!/bin/sh\n/usr/local/bin/kubeadm \"$@\"\nstatus=$?\ndate +%s.%N >/run/kubeadm-ended\nexit $status\n"), 0o755},
		} {
			path = filepath.Join(tree, path)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, f.content, f.mode)); err != nil {
				t.Fatal(err)
			}
		}
		wants := filepath.Join(tree, "etc/systemd/system/multi-user.target.wants")
		if err := os.MkdirAll(wants, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, unit := range []string{"ortet-wait.service", "ortet-report.service"} {
			if err := os.Symlink("/usr/lib/systemd/system/"+unit, filepath.Join(wants, unit)); err != nil {
				t.Fatal(err)
			}
		}
		out := filepath.Join(l.dir, "disk.raw")
		if err := rootfs.Overlay(ctx, l.checkout, disk, tree, out); err != nil {
			t.Fatal(err)
		}
		return map[string]string{"*": out}
	}
}

// story is what of `ortet nodes -o json` is looked at.
type story struct {
	HostName string        `json:"hostName"`
	Node     string        `json:"node"`
	State    string        `json:"state"`
	Source   string        `json:"source"`
	Verdict  *wire.Verdict `json:"verdict"`
}

// silent has a lab's machines without a name server that answers.
func silent(bake func(l *lab, disk string) map[string]string) func(l *lab, disk string) map[string]string {
	return func(l *lab, disk string) map[string]string {
		l.nameServer = machine.NamesSilent
		return bake(l, disk)
	}
}

// TestBootsOnRealMachines boots machines that come up and machines that do not,
// and asks ortet nodes of each whether it did, and why not. Nothing but the serial
// console tells of those that never reached the API server.
func TestBootsOnRealMachines(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	line := newTimeline(t)
	l := newLab(ctx, t, line, "boots", silent(bakeAgent(ctx, t)))
	line.begin("kubeadm prepares the cluster")
	binary, err := controlplane.Binary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cluster := l.prepareKubeadm(ctx, t, binary)

	all := boots()
	line.begin(fmt.Sprintf("%d machines boot, %d at a time", len(all), side))
	stories := l.bootAll(ctx, t, cluster, all)
	nodes, err := l.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	line.begin("what is told of them")
	var figures strings.Builder
	for _, b := range all {
		t.Run(b.pool, func(t *testing.T) { l.checkBoot(ctx, t, b, cluster, stories[b.host()], nodes.Items, &figures) })
	}
	table := l.ortet(ctx, t, "nodes", "--resource-group", l.group())
	t.Run("the table has all", func(t *testing.T) {
		for _, b := range all {
			i := strings.Index(table, "\n"+b.host())
			if i < 0 {
				t.Errorf("%s is missing", b.host())
				continue
			}
			row, _, _ := strings.Cut(table[i+1:], "\n")
			for _, word := range []string{string(b.want.outcome), b.want.reason, string(b.want.owner)} {
				if !strings.Contains(row, word) {
					t.Errorf("%q is not in %q", word, row)
				}
			}
			if star := strings.HasPrefix(row, b.host()+"*"); star == b.want.joined {
				t.Errorf("%q: marked as having no Node: %v", row, star)
			}
		}
	})
	t.Logf("$ ortet nodes\n%s", table)
	line.begin("where the boot time of the good one went")
	t.Run("where the time went", func(t *testing.T) {
		l.checkBootShown(ctx, t, all[slices.IndexFunc(all, func(b boot) bool { return b.pool == "good" })])
	})
	t.Logf("From what happened until the verdict was given, by the machine's clock:\n%s", figures.String())
	line.print()
}

func (b boot) host() string { return b.pool + "000000" }

func (l *lab) group() string {
	return "/subscriptions/" + l.azure.Endpoint.Subscription + "/resourceGroups/" + l.azure.Endpoint.ResourceGroup
}

// ortet runs ortet as an operator outside the cluster does.
func (l *lab) ortet(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	argv := append([]string{"env", "SSL_CERT_FILE=" + l.azure.Endpoint.CAFile, filepath.Join(l.bin, "ortet")}, args...)
	return l.run(ctx, t, append(argv, "--azure-config="+l.azure.Endpoint.AzureConfig, "--kubeconfig="+l.cp.Kubeconfig)...)
}

// stories asks of all instances, by host name.
func (l *lab) stories(ctx context.Context, t *testing.T) map[string]story {
	t.Helper()
	var told struct {
		Nodes []story
		Notes []string
	}
	if err := json.Unmarshal([]byte(l.ortet(ctx, t, "nodes", "-o", "json", "--resource-group", l.group())), &told); err != nil {
		t.Fatal(err)
	}
	if len(told.Notes) > 0 {
		t.Fatalf("ortet nodes could not see all: %q", told.Notes)
	}
	all := map[string]story{}
	for _, s := range told.Nodes {
		all[s.HostName] = s
	}
	return all
}

// bootAll makes a pool of each boot, and returns when all have a verdict.
func (l *lab) bootAll(ctx context.Context, t *testing.T, c kubeadmCluster, all []boot) map[string]story {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 8*time.Minute)
	defer cancel()
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	var stories map[string]story
	begun, told := 0, 0
	defer func() {
		if told == len(all) {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		t.Logf("$ ortet nodes\n%s", l.ortet(ctx, t, "nodes", "--resource-group", l.group()))
		for _, b := range all[:begun] {
			t.Logf("%s: %+v\n%s", b.pool, stories[b.host()], l.machines.sh(ctx, t, b.host(), "systemctl status --no-pager ortet-wait kubelet; tail -20 /var/log/cloud-init-output.log; head -20 /var/lib/ortet/verdict.json; true"))
		}
	}()
	poll(ctx, t, "every machine's verdict", 8*time.Minute, func(ctx context.Context) (bool, error) {
		stories, told = l.stories(ctx, t), 0
		for _, s := range stories {
			// Of a Node that is Ready more can be told than that: what it says itself.
			if s.Verdict != nil && s.Source == string(assess.FromConsole) {
				told++
			}
		}
		// The first one does nothing but wait.
		for ; begun < len(all) && begun-told < side+1; begun++ {
			b := all[begun]
			group.Go(func() {
				// Azure says that it has made a machine once everything on it has started,
				// which some of these never do.
				if err := l.azure.Create(ctx, azsimserver.Pool{Name: b.pool, Capacity: 1, CustomData: b.customData(c)}); err != nil && ctx.Err() == nil {
					t.Errorf("create the pool %s: %v", b.pool, err)
				}
			})
		}
		return told == len(all), nil
	})
	return stories
}

func (l *lab) checkBoot(ctx context.Context, t *testing.T, b boot, c kubeadmCluster, s story, nodes []corev1.Node, figures *strings.Builder) {
	t.Helper()
	text := l.ortet(ctx, t, "nodes", b.host(), "--resource-group", l.group())
	if s.Verdict == nil {
		t.Fatalf("there is no verdict: %s", text)
	}
	v := *s.Verdict
	if v.Outcome != b.want.outcome || v.Reason != b.want.reason || v.Owner != b.want.owner {
		t.Errorf("%s, reason %q, owner %q; want %s, %q, %q", v.Outcome, v.Reason, v.Owner, b.want.outcome, b.want.reason, b.want.owner)
	}
	if !strings.Contains(text, b.want.evidence) {
		t.Errorf("what is told does not say %q", b.want.evidence)
	}
	if joined := slices.ContainsFunc(nodes, func(n corev1.Node) bool { return n.Name == b.host() }); joined != b.want.joined {
		t.Errorf("there is a Node: %v", joined)
	}
	for _, token := range []string{c.token, b.token} {
		if _, secret, ok := strings.Cut(token, "."); ok && strings.Contains(text, secret) {
			t.Errorf("what is told holds the secret of token %s", token[:6])
		}
	}
	if t.Failed() {
		t.Logf("$ ortet nodes %s\n%s", b.host(), text)
		t.Logf("cloud-init's output:\n%s", l.machines.sh(ctx, t, b.host(), "tail -40 /var/log/cloud-init-output.log; journalctl -b -u ortet-wait -u kubelet --no-pager | tail -40"))
	}
	when, err := strconv.ParseFloat(l.machines.sh(ctx, t, b.host(), b.event), 64)
	if err != nil {
		t.Fatalf("when it happened: %v", err)
	}
	at := float64(v.At.UnixNano()) / 1e9
	fmt.Fprintf(figures, "  %-10s %7.3f s  %s %s\n", b.pool, at-when, v.Outcome, v.Reason)
}
