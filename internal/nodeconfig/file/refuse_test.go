package file_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/nodeconfig/file"
)

// What would end Ortet on a node, cut the node off, or take its identity, by each of its
// spellings.
func TestHole04RefusedPaths(t *testing.T) {
	for cause, paths := range map[string][]string{
		"Ortet's own": {"/usr/local/bin/ortet-node", "/usr/local/bin/ortet", "/usr/local/lib/ortet/boot.py", "/etc/ortet/config.json", "/var/lib/ortet", "/var/lib/ortet/config/current.json",
			"/etc/default/ortet-boot", "/etc/rancher/k3s/config.yaml.d/90-ortet.yaml"},
		"spec.units": {"/etc/systemd/system/ortet-config.service", "/etc/systemd/system/ortet-config.service.d/x.conf", "/usr/lib/systemd/system/kubelet.service", "/lib/systemd/system/ortet-config.service",
			"/usr/local/lib/systemd/system/x.service"},
		"spec.kubelet":     {"/etc/kubernetes/kubelet.conf.d/99-last.conf", "/var/lib/kubelet/config.yaml"},
		"may log in":       {"/etc/shadow", "/etc/passwd", "/etc/group", "/etc/gshadow", "/etc/sudoers"},
		"machine boots":    {"/etc/fstab", "/etc/crypttab", "/boot/grub/grub.cfg"},
		"image's packages": {"/usr/bin/kubelet", "/bin/kubelet", "/usr/sbin/nft", "/sbin/nft", "/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/os-release", "/lib64/ld-linux-x86-64.so.2"},
		"runs the node's":  {"/usr/local/bin/kubelet", "/usr/local/bin/k3s", "/usr/local/bin/containerd-shim-runc-v2"},
		"credentials": {"/etc/kubernetes/azure.json", "/etc/kubernetes/kubelet.conf", "/etc/kubernetes/pki/ca.crt", "/var/lib/kubelet/pki/kubelet-client-current.pem", "/var/lib/kubelet/bootstrap-kubeconfig",
			"/root/.kube/config", "/home/azureuser/.kube/config", "/etc/rancher/k3s/k3s.yaml", "/var/lib/rancher/k3s/server/token"},
		"identity":         {"/etc/machine-id", "/var/lib/dbus/machine-id", "/etc/ssh/ssh_host_ed25519_key", "/etc/hostname", "/var/lib/cloud/data/instance-id", "/var/lib/waagent/ovf-env.xml"},
		"use a DaemonSet":  {"/etc/kubernetes/manifests/x.yaml"},
		"the kernel's":     {"/proc/sys/vm/swappiness", "/sys/x", "/dev/sda", "/run/ortet/joined", "/var/run/ortet/joined", "/var/lock/x"},
		"not a clean path": {"//etc/shadow", "/etc//shadow", "/etc/./shadow", "/usr/local/bin/../bin/ortet-node", "/etc/shadow/"},
	} {
		for _, path := range paths {
			if got := problems(t, head+"  files:\n  - {path: \""+path+"\", content: \"\"}"); !strings.Contains(got, cause) {
				t.Errorf("%s: %q; want a refusal with %q", path, got, cause)
			}
		}
	}
}

func TestHole04RefusedUnitsAndKubeletFields(t *testing.T) {
	const unit = "  units:\n  - name: "
	for _, c := range []struct{ text, want string }{
		{unit + "ortet-config.service\n    dropIns: [{name: 10-x.conf, content: x}]", "Ortet's own"},
		{unit + "ortet-.service\n    dropIns: [{name: 10-x.conf, content: x}]", "Ortet's own"},
		{unit + "app.service\n    enabled: true\n    content: |\n      [Install]\n      Alias=ortet-config.service", "content: Alias= names ortet-config.service"},
		{unit + "app.service\n    enabled: false\n    content: |\n      [Install]\n      Also = x.service kubelet.service", "content: Also= names kubelet.service"},
		{unit + "kubelet.service\n    content: |\n      [Service]\n      ExecStart=/bin/true", "kubelet.service runs the node's pods"},
		{unit + "kubelet.service\n    dropIns: [{name: 99-x.conf, content: \"[Service]\\nExecStart=\\nExecStart=/bin/true\"}]", "dropIns[0].content: ExecStart= of kubelet.service"},
		{unit + "k3s-agent.service\n    dropIns: [{name: 20-ortet.conf, content: \"[Service]\"}]", "dropIns[0].name: 20-ortet.conf"},
		{unit + "kubelet.service\n    enabled: false", "the Node needs kubelet.service"},
		{unit + "containerd.service\n    started: false", "the Node needs containerd.service"},
		{"  kubelet: {staticPodURL: \"https://pods.example\"}", "spec.kubelet.staticPodURL: starts pods"},
		{"  kubelet: {staticPodPath: /etc/pods}", "spec.kubelet.staticPodPath: starts pods"},
		{"  kubelet: {staticPodURLHeader: {A: [b]}}", "spec.kubelet.staticPodURLHeader: starts pods"},
		{"  files:\n  - {path: /etc/a, content: x, restart: [ortet-config.service]}", "Ortet's own"},
	} {
		if got := problems(t, head+c.text); !strings.Contains(got, c.want) {
			t.Errorf("%s\n got %q\nwant %q", c.text, got, c.want)
		}
	}
}

// What people configure stays possible.
func TestHole04AcceptedPathsAndUnits(t *testing.T) {
	for _, path := range []string{"/etc/motd", "/etc/hosts", "/etc/sudoers.d/ops", "/etc/ssh/sshd_config.d/10-hardening.conf", "/etc/sysctl.d/91-app.conf", "/etc/default/kubelet", "/etc/modprobe.d/x.conf",
		"/usr/local/bin/backup", "/usr/share/keyrings/app.gpg", "/opt/app/bin/app", "/home/app/.ssh/authorized_keys", "/var/lib/app/conf.d/x.conf", "/var/lib/kubelet/seccomp/app.json", "/etc/containerd/config.toml", "/var/lib/rancher/k3s/agent/etc/containerd/config.toml.tmpl", "/etc/bin/x", "/library/x"} {
		if got := problems(t, head+"  files:\n  - {path: "+path+", content: x}"); got != "" {
			t.Errorf("%s", got)
		}
	}
	if got := problems(t, head+"  units:\n  - name: kubelet.service\n    started: true\n    dropIns: [{name: 10-x.conf, content: \"[Service]\\nMemoryMin=1G\\nExecStartPre=/bin/true\"}]"); got != "" {
		t.Error(got)
	}
}

// Each example of the documentation is accepted.
func TestHole04ExamplesOfTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../../docs/how-to/config.md")
	if err != nil {
		t.Fatal(err)
	}
	whole := ""
	for _, m := range regexp.MustCompile(`(?s)nodeconfig\.yaml <<'END'[^\n]*\n(.*?)\nEND\n`).FindAllStringSubmatch(string(text), -1) {
		whole += m[1] + "\n"
	}
	files := regexp.MustCompile("(?s)```yaml\nspec:\n(.*?)```").FindStringSubmatch(string(text))
	if !strings.Contains(whole, "registryMirrors") || !strings.Contains(whole, "systemReserved") || files == nil {
		t.Fatalf("examples were not found: %q", whole)
	}
	for _, example := range []string{whole, head + files[1]} {
		if _, err := file.ParseAt("n.yaml", []byte(example), now); err != nil {
			t.Errorf("%s\n%v", example, err)
		}
	}
}
