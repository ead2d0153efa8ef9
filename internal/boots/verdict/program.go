package verdict

import "strings"

// identifiers are the names by which programs of a boot write to the journal and the
// console. Those with a dash at their end are the beginning of one.
var identifiers = [...]struct {
	name string
	kind kind
}{
	{"kernel", kernel}, {"kubelet", kubelet}, {"kubelet-wrapper", kubelet}, {"hyperkube", kubelet}, {"microk8s.daemon-kubelite", kubelet}, {"microk8s.daemon-kubelet", kubelet}, {"atomic-openshift-node", kubelet}, {"origin-node", kubelet}, {"k3s", k3s}, {"k3s-", k3s}, {"rke2", k3s}, {"rke2-", k3s},
	{"containerd", runtime}, {"microk8s.daemon-containerd", runtime}, {"crio", runtime}, {"dockerd", runtime}, {"cri-dockerd", runtime},
	{"cloud-init", output}, {"cloud-init-", output}, {"cloud-config", output}, {"cloud-final", output}, {"kubeadm", output}, {"nodeup", output}, {"nodeadm", output},
	// What these write has nothing to do with the boot.
	{"sshd", foreign}, {"sshd-", foreign}, {"snapd", foreign}, {"chronyd", foreign}, {"ntpd", foreign}, {"systemd-timesyncd", foreign}, {"systemd-resolved", foreign},
	{"cron", foreign}, {"crond", foreign}, {"multipathd", foreign}, {"polkitd", foreign}, {"dbus-", foreign}, {"fwupdmgr", foreign}, {"apt-", foreign},
	{"unattended-", foreign}, {"sudo", foreign}, {"audit", foreign}, {"auditd", foreign}, {"telegraf", foreign}, {"fluent-", foreign}, {"fluentd", foreign},
	{"mdsd", foreign}, {"omsagent", foreign}, {"prometheus-", foreign}, {"node_exporter", foreign}, {"motd-", foreign}, {"esm_cache.py", foreign}, {"gpg-", foreign},
}

// kubeadmFiles are klog's files of kubeadm and kubectl; other ones are the kubelet's.
// Source: kubernetes/cmd/kubeadm/app, kubernetes/staging/src/k8s.io/client-go/discovery/cached/memory.
var kubeadmFiles = [...]string{
	"checks.go:", "joinconfiguration.go:", "initconfiguration.go:", "configset.go:", "strict.go:", "common.go:", "token.go:", "join.go:", "init.go:",
	"waitcontrolplane.go:", "preflight.go:", "memcache.go:", "utils.go:", "warnings.go:", "cleanupnode.go:", "reset.go:",
}

// programOf returns which program wrote a line, in lower case, by the line's own head;
// hint, whose log it stands in, where the head does not name it.
func programOf(s string, hint kind) kind {
	s = strings.TrimLeft(s, " >|`*") // as it is quoted
	head := s[:min(len(s), 160)]
	if id, rest, ok := strings.Cut(head, ": "); ok {
		name := strings.TrimRight(strings.TrimSuffix(id, "]"), "0123456789")
		pid := strings.HasSuffix(id, "]") && strings.HasSuffix(name, "[")
		name = strings.TrimSuffix(name, "[")
		name = strings.TrimSuffix(name[strings.LastIndexByte(name, ' ')+1:], ".service") // journalctl -o with-unit
		if k := identified(name, s); k != 0 && (pid || k == kernel || strings.Count(id, ":") > 1) && (k != foreign || hint == elsewhere) {
			return k
		} else if pid || strings.Count(id, ":") > 1 && !strings.ContainsAny(id, `"]`) { // some journals give no number
			head = rest // systemd, a script, a program that nobody knows
		}
	}
	if hint != elsewhere {
		return hint
	}
	switch {
	case strings.HasPrefix(head, "time=\"") && strings.Contains(head, " level="), strings.Contains(head[:min(len(head), 20)], " msg=") && strings.IndexByte(head, '=') < strings.IndexByte(head, ' '):
		if len(head) > 26 && head[25] == '.' { // containerd's library sets this form for all that use it, k3s among them
			return runtime | k3s
		}
		if !strings.HasPrefix(head, "time=") { // cut off, as a paste begins
			return runtime | k3s
		}
		return k3s
	case strings.HasPrefix(head, "warning ") && hasAny(head, " kubelet ", " kubelet, ") || strings.Contains(head, " failedcreatepodsandbox "): // an Event of the kubelet's
		return kubelet
	case klog(head):
		for _, file := range kubeadmFiles {
			if strings.Contains(head, " "+file) {
				return output
			}
		}
		return kubelet
	case strings.Contains(head, " - ") && hasAny(head, ".py[debug]: ", ".py[info]: ", ".py[warning]: ", ".py[error]: ", ".py[critical]: "), strings.Contains(head, " cloudbaseinit."):
		return cloudInit
	case uptime(head):
		return kernel
	case hasAny(head, "[preflight] ", "[kubelet-start] ", "[kubelet-check] ", "[discovery] ", "[check-etcd] ", "[error ", "error execution phase "):
		return output
	}
	for i := range ownWords {
		if len(head) == min(len(s), 160) && hasAny(s, ownWords[i].words...) {
			return ownWords[i].kind
		}
	}
	return hint
}

// ownWords are words that no other program writes: a line that was pasted without its head
// is known by them.
var ownWords = [...]struct {
	kind  kind
	words []string
}{
	{kubelet, []string{"failed to load kubelet ", "failed to validate kubelet configuration", "failed to merge kubelet configs", "failed to parse kubelet flag", "failed to run kubelet",
		"kubelet cgroup driver", "eviction manager: must evict", "unable to load bootstrap kubeconfig", "existing bootstrap client certificate", "specified with --node-labels", "bad --node-ip",
		"not found in the host's network interfaces", "unable to load client ca file", "unable to register node "}},
	{k3s, []string{"127.0.0.1:6444/", "/v1-k3s/", "/v1-rke2/", "failed to normalize token", "failed to retrieve agent config", "token does not match the server "}},
	{runtime, []string{"containerd: failed to load toml", "invalid plugin config"}},
}

// levels are logrus's on a terminal, and in a log.
var levels = [...][2]string{{"debu", "debug"}, {"info", "info"}, {"warn", "warning"}, {"erro", "error"}, {"fata", "fatal"}, {"pani", "panic"}}

// logged gives a line that logrus wrote to a terminal, as "fata[0000] x", a log's form.
func logged(s string) string {
	end := strings.IndexByte(s, ']')
	if end <= 5 || s[4] != '[' || strings.Trim(s[5:end], "0123456789-:.tz+") != "" {
		return s
	}
	for _, l := range levels {
		if s[:4] == l[0] {
			return `time="` + s[5:end] + `" level=` + l[1] + ` msg="` + strings.TrimLeft(s[end+1:], " ")
		}
	}
	return s
}

// identified is the program of a line by its identifier, 0 where it is not known.
func identified(name, s string) kind {
	for i := range identifiers {
		id := &identifiers[i]
		if name != id.name && !(strings.HasSuffix(id.name, "-") && strings.HasPrefix(name, id.name)) {
			continue
		}
		if id.name == "cloud-init" && hasAny(s, ".py[debug]: ", ".py[info]: ", ".py[warning]: ", ".py[error]: ", ".py[critical]: ") {
			return cloudInit
		}
		return id.kind
	}
	return 0
}

// klog says whether a line begins as klog's do: "e1121 06:58:30.1 ".
func klog(s string) bool {
	return len(s) > 12 && strings.IndexByte("iwef", s[0]) >= 0 && strings.Trim(s[1:5], "0123456789") == "" && s[5] == ' ' && s[8] == ':'
}

// uptime says whether a line begins as the kernel's do: "[   12.310021] ".
func uptime(s string) bool {
	end := strings.IndexByte(s, ']')
	return end > 2 && s[0] == '[' && strings.Contains(s[:end], ".") && strings.Trim(s[1:end], " 0123456789.") == ""
}
