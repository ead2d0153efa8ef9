package verdict

import "strings"

const lowers = "abcdefghijklmnopqrstuvwxyz0123456789"

// phaseOf finds the phase in "error execution phase NAME: …" of a line in lower
// case.
func phaseOf(s string) string {
	const mark = "error execution phase "
	_, rest, ok := strings.Cut(s, mark)
	if !ok {
		return ""
	}
	return rest[:len(rest)-len(strings.TrimLeft(rest, lowers+"-/"))]
}

// phaseReason is the reason of a failed phase where the output has no more. Source of fact:
// kubeadm 1.36, kubernetes/cmd/kubeadm/app/cmd/phases.
func phaseReason(phase string) string {
	switch phase {
	case "preflight":
		return "KubeadmPreflight"
	case "kubelet-wait-bootstrap":
		return "KubeletStartTimeout"
	case "check-etcd", "etcd-join", "control-plane-join/etcd":
		return "EtcdJoinFailed"
	case "wait-control-plane":
		return "ControlPlaneNotHealthy"
	}
	return "KubeadmFailed"
}

// check finds what a preflight check found: "[ERROR NAME]: …" of a line in lower case.
// leftover means that an earlier try leaves the same.
func check(s string) (reason string, leftover bool) {
	_, rest, ok := strings.Cut(s, "[error ")
	if !ok {
		return "", false
	}
	name, said, ok := strings.Cut(rest, "]: ")
	if !ok {
		return "", false
	}
	has := func(begin string) bool { return strings.HasPrefix(name, begin) }
	switch {
	case has("port-"):
		return "PortInUse", true
	case has("fileavailable-"), has("diravailable-"):
		return "NodeNotClean", true
	case name == "swap":
		return "SwapOn", false
	case has("fileexisting-") && strings.Contains(said, "not found in system path"):
		return "BinaryMissing", false
	case has("filecontent-"):
		return "KernelSettingMissing", false
	case name == "systemverification":
		if hasAny(said, "cgroup v1", "cgroups v1") {
			return "CgroupV1Refused", false
		}
		return "KernelUnsupported", false
	case name == "numcpu", name == "mem":
		return "MachineTooSmall", false
	case name == "cri", name == "containerruntimeversion", has("service-") && strings.Contains(said, "service is not active") && !has("service-kubelet"):
		return runtimeReason(said), false
	case name == "kubeletversion":
		if hasAny(said, "executable file not found", "cannot execute 'kubelet") {
			return "KubeletMissing", false
		}
		return "VersionSkew", false
	case name == "kubernetesversion": // that it is too new is a warning
		return "KubeadmConfigInvalid", false
	case name == "imagepull":
		return pullReason(s), false
	case name == "isprivilegeduser":
		return "NotRoot", false
	}
	return "KubeadmPreflight", false
}

func runtimeReason(s string) string {
	if hasAny(s, "unknown service runtime", "runtime api is not implemented") {
		return "ContainerRuntimeDisabled"
	}
	return "ContainerRuntimeUnavailable"
}
