package play

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/node/generalize/program"
	"github.com/ortet/ortet/test/scenario"
)

// copied has the generalised copy hold what the agent's own code leaves of the donor's disk,
// but for a change.
func copied(change func(w *world, files map[string]entry)) func(*world) {
	return func(w *world) {
		c := w.contentOfNode(w.node(0))
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ortet-generalize"}, Spec: corev1.PodSpec{NodeName: w.node(1)}}
		ask := w.story.Asks[0]
		command := []string{"ortet-node", "generalize", "--host", "/host", "--lun", "3", "--capture", "c1", "--donor", w.node(0), "--at", "2000-01-01T00:00:00Z", "--donor-address", nodeAddress}
		if ask.Bake {
			command = append(command, "--bootstrap", "baked")
		}
		if ask.Accept {
			command = append(command, "--accept-pool-credentials")
		}
		if ask.RemoveSecrets {
			command = append(command, "--remove-secrets")
		}
		for _, at := range w.acceptedPaths(ask) {
			command = append(command, "--accept-secret", at)
		}
		did := w.agent(pod, command, c, 0)
		if did.code != program.ExitGeneralized {
			w.broken("the copy is not generalised: %s", did.said)
		}
		files := maps.Clone(did.left)
		if change != nil {
			change(w, files)
		}
		w.disks[volume(w.names.Generalized)] = &disk{generalized: true, content: c.with(files)}
	}
}

// published judges the version that is about to be made of it, with customData of that sum.
func published(sum string) func(*world, *process) {
	return func(w *world, p *process) {
		ask := p.ask
		bootstrap := "keep"
		if ask.Bake {
			bootstrap = "baked"
		}
		text, err := json.Marshal(allowed{AcceptPoolCredentials: ask.Accept, RemoveSecrets: ask.RemoveSecrets, AcceptSecrets: w.acceptedPaths(ask), Bootstrap: bootstrap})
		if err != nil {
			panic(err)
		}
		w.judgeImage(p, open{Record: journal.Record{Request: text}}, "2000.01.01", w.names.Generalized, map[string]*string{fleet.TagCustomData: &sum})
	}
}

// firstOf gives what the world planted on the donor: of a class, at a path that begins so.
func firstOf(w *world, of class, at string) plant {
	c := w.contentOfNode(w.node(0))
	i := slices.IndexFunc(c.plants, func(p plant) bool { return p.class == of && strings.HasPrefix(p.path, at) })
	if i < 0 {
		panic("the donor has no " + string(of) + " at " + at)
	}
	return c.plants[i]
}

func TestRulesOfImages(t *testing.T) {
	const needed = "0123" // any customData but the no-op
	put := func(at string, data func(w *world) string) func(*world) {
		return copied(func(w *world, files map[string]entry) { files[at] = entry{data: data(w), mode: 0o644} })
	}
	value := func(of class, from string) func(w *world) string {
		return func(w *world) string { return "x" + firstOf(w, of, from).value + "y" }
	}
	without := func(at string) func(*world) {
		return copied(func(_ *world, files map[string]entry) { delete(files, at) })
	}
	const kubeadm, k3s, aks = "donor kind=kubeadm\ncapture\n", "donor kind=k3s disk=secrets\ncapture accept\n", "donor kind=aks disk=secrets\ncapture bake accept\n"
	var rulings []ruling
	for _, r := range []struct {
		name, story, sum string
		bad              func(*world)
		want             string
	}{
		{"the kubelet's key, elsewhere", kubeadm, needed, put("opt/x", value(identity, kubeletPKI+"kubelet-client")), "has the donor's identity: the kubelet's client key"},
		{"the SSH host key", kubeadm, needed, put("srv/key", value(identity, "etc/ssh")), "has the donor's identity: the SSH host key"},
		{"k3s' node password", k3s, needed, put("opt/x", value(identity, "etc/rancher/node")), "has the donor's identity: the node password"},
		{"a pod's token", kubeadm, needed, put("opt/x", value(identity, "var/lib/kubelet/pods")), "has the donor's identity: a pod's token"},
		{"the kubelet's key in the swap file", kubeadm, needed, copied(func(w *world, files map[string]entry) {
			files["swapfile"] = w.contentOfNode(w.node(0)).files["swapfile"]
		}), "has the donor's identity: the kubelet's client key, at /swapfile"},
		{"the token that the donor was given", "donor kind=admission\ncapture\n", needed, put(bootstrapKubelet, value(identity, bootstrapKubelet)), "has the donor's identity: the token"},
		{"the machine-id", kubeadm, needed, put("etc/x", value(trace, "etc/machine-id")), "names the donor: the machine-id"},
		{"the host name", kubeadm, needed, put("var/lib/x", value(trace, "etc/hostname")), "names the donor: the host name"},
		{"the address", kubeadm, needed, put("etc/x", value(trace, "etc/hosts")), "names the donor: the address"},
		{"no machine-id", kubeadm, needed, without("etc/machine-id"), "no first boot"},
		{"cloud-init's instance", kubeadm, needed, put("var/lib/cloud/instance", func(*world) string { return "" }), "takes for the donor's: cloud-init's instance"},
		{"an extension that ran", kubeadm, needed, put(settingsFolder+"mrseq", func(*world) string { return "0" }), "takes for the donor's"},
		{"what kubeadm join refuses", kubeadm, needed, put("etc/kubernetes/pki/ca.crt", func(*world) string { return "" }), "clones cannot join: a file for which kubeadm"},
		{"a credential of the pool", kubeadm, needed, put("opt/x", value(shared, bootstrapKubelet)), "not accepted: the bootstrap token"},
		{"a file of nobody's", kubeadm, needed, without("etc/ssh/sshd_config"), "lacks what is nobody's"},
		{"the line of localhost", kubeadm, needed, put("etc/hosts", func(*world) string { return "" }), "the line of localhost, at /etc/hosts"},
		{"k3s' token, without customData", k3s, noopSum(), without("etc/systemd/system/k3s-agent.service.env"), "no clone joins"},
		{"AKS's bootstrap kubeconfig, baked", aks, noopSum(), without("var/lib/kubelet/bootstrap-kubeconfig"), "no clone joins"},
		{"the unit that asks for admission, baked", "donor kind=admission\ncapture bake\n", noopSum(), without(joinUnit), "no clone joins"},
		{"the host name is kept", kubeadm, needed, func(w *world) { w.disks[volume(w.names.Generalized)].content.preserve = true }, "keeps the donor's name"},
	} {
		rulings = append(rulings, ruling{name: r.name, story: r.story, good: copied(nil), bad: r.bad, act: published(r.sum), want: r.want})
	}
	judged(t, rulings)
}

// A secret of others may be in an image at a path that was accepted, and nowhere else; one
// that --remove-secrets deletes is gone.
func TestOtherSecretsOfImages(t *testing.T) {
	const story = "donor kind=k3s others=9\ncapture accept acceptsecrets=9 removesecrets\n"
	moved := copied(func(w *world, files map[string]entry) {
		p := firstOf(w, private, "")
		files["srv/elsewhere"] = files[p.path]
	})
	judged(t, []ruling{{name: "accepted elsewhere", story: story, good: copied(nil), bad: moved, act: published("0123"), want: "a secret that was not accepted"}})
	synctest.Test(t, func(t *testing.T) {
		s, err := scenario.Parse("seed 1\ndonor kind=kubeadm others=9\ncapture accept removesecrets\n")
		if err != nil {
			t.Fatal(err)
		}
		w, err := newWorld(s)
		if err != nil {
			t.Fatal(err)
		}
		defer w.close()
		if codes, _ := w.diskReasons(s.Asks[0]); !slices.Equal(codes, []string{"OtherSecrets"}) {
			t.Errorf("reasons %q, want OtherSecrets of what may not be removed", codes)
		}
		if ask := s.Asks[0]; len(w.contentOfNode(w.node(0)).some(private)) != 7 || len(w.acceptedPaths(ask)) > 0 {
			t.Errorf("the donor has %d secrets of others", len(w.contentOfNode(w.node(0)).some(private)))
		}
	})
}

// What the agent's own code does shows in the judgement: a command line that it does not
// take, and an inspection that writes.
func TestAgentOfPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := scenario.Parse("seed 1\ndonor kind=kubeadm strays=6\ncapture\n")
		if err != nil {
			t.Fatal(err)
		}
		w, err := newWorld(s)
		if err != nil {
			t.Fatal(err)
		}
		defer w.close()
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ortet-look"}, Spec: corev1.PodSpec{NodeName: w.node(0)}}
		c := w.contentOfNode(w.node(0))
		inspect := []string{"ortet-node", "generalize", "--root", "/host", "--inspect", "--capture", "inspection", "--donor", w.node(0), "--at", "2000-01-01T00:00:00Z", "--bootstrap", "keep"}
		for _, r := range []struct {
			name    string
			command []string
			on      *content
			code    int32
			says    string
		}{
			{"strays", inspect, c, program.ExitSecretsFound, "NodeIdentity"},
			{"a flag that it does not know", append(slices.Clone(inspect), "--wipe"), c, 64, "wipe"},
			{"no disk at the LUN", []string{"ortet-node", "generalize", "--host", "/host", "--lun", "3", "--capture", "c1", "--donor", w.node(0), "--at", "2000-01-01T00:00:00Z"}, nil, program.ExitDiskRefused, "LUN 3"},
		} {
			did := w.agent(pod, r.command, r.on, 0)
			if did.code != r.code || !strings.Contains(string(did.said), r.says) {
				t.Errorf("%s: exit %d, %s; want %d and %q", r.name, did.code, did.said, r.code, r.says)
			}
			if r.on == nil {
				continue
			}
			if w.judgeInspected(pod.Name, c, did.left); len(w.violations) > 0 {
				t.Errorf("%s: %q", r.name, w.violations)
			}
		}
		changed, made, lost := maps.Clone(c.files), maps.Clone(c.files), maps.Clone(c.files)
		changed["etc/hosts"], made["tmp/new"] = entry{data: "x", mode: 0o644}, entry{}
		delete(lost, "var/lib/dbus/machine-id")
		for _, after := range []map[string]entry{changed, made, lost} {
			w.violations = nil
			if w.judgeInspected(pod.Name, c, after); len(w.violations) != 1 {
				t.Errorf("an inspection that changes the donor's disk: %q, want one violation", w.violations)
			}
		}
	})
}

// A pod that is killed leaves a copy that is neither the donor's nor generalised, at some
// point, and the agent goes on from each.
func TestAgentKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := scenario.Parse("seed 1\ndonor kind=kubeadm\ncapture\n")
		if err != nil {
			t.Fatal(err)
		}
		w, err := newWorld(s)
		if err != nil {
			t.Fatal(err)
		}
		defer w.close()
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ortet-generalize"}, Spec: corev1.PodSpec{NodeName: w.node(1)}}
		command := []string{"ortet-node", "generalize", "--host", "/host", "--lun", "3", "--capture", "c1", "--donor", w.node(0), "--at", "2000-01-01T00:00:00Z", "--donor-address", nodeAddress}
		c := w.contentOfNode(w.node(0))
		begun := 0
		for point := 1; point <= mostWritten; point++ {
			did := w.agent(pod, command, c, point)
			if !maps.Equal(did.left, c.files) {
				begun++
			}
			again := w.agent(pod, command, c.with(did.left), 0)
			if again.code != program.ExitGeneralized {
				t.Fatalf("killed at line %d, then exit %d: %s", point, again.code, again.said)
			}
			for _, wrong := range c.with(again.left).wrongInImage(allowed{Bootstrap: "keep"}, true) {
				t.Errorf("killed at line %d: a disk %s", point, wrong)
			}
		}
		if begun < mostWritten/2 {
			t.Errorf("%d of %d killed pods had changed anything", begun, mostWritten)
		}
	})
}
