package verdict

import "strings"

// ofPod reports whether a line in lower case is of a pod's own affairs: its containers,
// probes, volumes and objects, and what a webhook answers. Nodes come up without.
func ofPod(s string) bool {
	return hasAny(s, `pod="`, "mirror pod", "probe failed", "probetype=", "no relationship found between node", "podsandboxmetadata", "pod_workers.go", "prober.go",
		"startcontainer", "imagepullbackoff", "mountvolume", "failed calling webhook", "logger=\"kubernetes.io/kubelet-serving", "kubernetes.io/kubelet-serving:",
		"metrics.k8s.io", "standard_init_linux.go", "could not process manifest file")
}

// needed reports whether a line of a pod is of what the node needs of pods: a network, and
// the sandbox that every pod is in.
func needed(s string) bool {
	return nodeImage(s) && hasAny(s, "pull") || hasAny(s, "no space left on device") && hasAny(s, nodePaths[:]...) || !hasAny(s, "mirror pod", "probe failed", "probetype=", "no relationship found", "mountvolume", "webhook") &&
		hasAny(s, "sandbox", "failed to find plugin", "system error: mountpoint for", "cgroupspath", `exec: "runc"`, `exec: \"runc\"`, `exec: \\\"runc\\\"`)
}

// ofOthers reports whether a line in lower case is of what the API server denies to another
// client, of what the node does without, or of a request by way of the cluster's own
// service, as only pods make them.
func ofOthers(s string) bool {
	return hasAny(s, `user "system:serviceaccount:`, `user \"system:serviceaccount:`, `user "system:kube-`, `user \"system:kube-`, "events is forbidden", "server rejected event", "unable to decode an event from the watch stream",
		"https://kubernetes.default", "https://10.96.0.1:443", "https://10.43.0.1:443") ||
		strings.Contains(s, "system:node:") && hasAny(s, "serviceaccounts/token", `resource "secrets`, `resource \"secrets`, `resource "configmaps`, `resource \"configmaps`, "persistentvolume")
}

// nodePaths are where what a node needs is written.
var nodePaths = [...]string{
	"/var/lib/kubelet", "/var/lib/containerd", "/var/lib/rancher", "/var/lib/docker", "/var/lib/cloud", "/var/lib/dpkg", "/var/lib/apt", "/var/lib/rpm", "/var/lib/dnf",
	"/var/lib/waagent", "/var/lib/etcd", "/var/cache/", "/var/log/", "/var/tmp", "/etc/", "/run/", "/usr/", "/opt/", "/tmp/", "/root/", "/boot/",
}

// nodesDisk reports whether a full disk, in a line in lower case, is one that the node
// needs: by the path that is named, by the program where none is.
func nodesDisk(s string, k kind) bool {
	switch {
	case hasAny(s, "/volumes/kubernetes.io", "/dev/shm", "/proc/", "/sys/"):
		return false
	case hasAny(s, nodePaths[:]...):
		return true
	case hasAny(s, " /", `"/`, "'/", ":/", "=/") && !hasAny(s, "://"):
		return false
	}
	return k&(kubelet|k3s|runtime|cloudInit|output|provision) != 0 || hasAny(s, "systemd", "dpkg", "dracut", "apt[")
}

// passing is the later text that shows that a finding was recovered from.
type passing uint8

const (
	tillData  passing = 1 << iota // cloud-init found its data
	tillLease                     // the node got an address
	tillApt                       // apt had its lock, and a mirror
	tillEnd                       // cloud-init came to its end, and no module failed
	lasting   passing = 0
)

func passingOf(reason string, of rank, w when, k kind) passing {
	switch {
	case reason == "DHCPFailed":
		return tillData | tillLease
	case w == early:
		return tillData
	case reason == "PackageManagerBusy", reason == "PackageRepositoryUnreachable", reason == "DNSFailed" && k&scripts != 0:
		return tillApt
	case of == rankStep && k&scripts != 0:
		return tillEnd
	}
	return lasting
}

// overcome is what a line in lower case shows to be got over.
func overcome(s string) passing {
	switch {
	case strings.Contains(s, "cloud-init v. "):
		switch {
		case strings.Contains(s, "running 'modules:"):
			return tillData
		case strings.Contains(s, " finished at "):
			return tillEnd
		}
	case strings.Contains(s, `"extended_status": "degraded`):
		return tillData
	case hasAny(s, "obtained dhcp lease on interface ", "received dhcp lease on ", ": dhcpv4 address "), strings.Contains(s, "bound to ") && strings.Contains(s, " -- renewal in "):
		return tillLease
	case s == "complete!", strings.HasSuffix(s, ": complete!"), strings.Contains(s, "setting up ") && strings.HasSuffix(s, ") ..."), strings.Contains(s, "unpacking ") && strings.HasSuffix(s, ") ..."),
		strings.Contains(s, "fetched ") && strings.HasSuffix(s, "b/s)"):
		return tillApt
	}
	return lasting
}

// moduleFailed reports whether a line in lower case is of a failed module of cloud-init: it
// comes to its end all the same.
func moduleFailed(s string) bool {
	return hasAny(s, "failed to run module ", "failed running /var/lib/cloud/", "running module ") && hasAny(s, "fail")
}
