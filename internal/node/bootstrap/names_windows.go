package bootstrap

import "strings"

// unitName is a service's name for comparison: Windows ignores its case, and one setting
// may serve pools of Linux too.
func unitName(name string) string {
	return strings.ToLower(strings.TrimSuffix(name, ".service"))
}

// kubeletUnits run a kubelet, in the order in which they are looked for.
func kubeletUnits() []string { return []string{"kubelet", "rke2"} }

// cloudInitUnits are those after which nothing of the user's commands runs.
func cloudInitUnits() []string { return []string{cloudbaseInit} }

// runtimeUnits run containers.
func runtimeUnits() []string { return []string{"containerd"} }

// kubeletLogs are files that hold more boots than one: none that is known.
func kubeletLogs() []string { return nil }

// logFiles are those whose ends are evidence. The kubelet and containerd have no journal
// there: their service wrappers define where they log. The event log is not read. Sources:
// kubernetes-sigs/image-builder (nssm.yml, cloudbase-init.conf),
// kubernetes-sigs/sig-windows-tools (PrepareNode.ps1), cluster-api-provider-azure
// (azure_logcollector.go), Azure/AgentBaker (kubeletfunc.ps1, containerdfunc.ps1,
// collect-windows-logs.ps1).
func logFiles() []string {
	return []string{
		"/Program Files/Cloudbase Solutions/Cloudbase-Init/log/cloudbase-init.log",
		"/Program Files/Cloudbase Solutions/Cloudbase-Init/log/cloudbase-init-unattend.log",
		"/AzureData/CustomDataSetupScript.log", "/AzureData/CSEResult.log",
		"/var/log/kubelet/kubelet.err.log", "/var/log/kubelet/kubelet.log", "/var/log/kubelet/kubelet.out.log",
		"/var/log/kubelet/kubelet.exe.ERROR", "/var/log/kubelet/kubelet.exe.INFO",
		"/k/kubelet.err.log", "/k/kubelet.log",
		"/k/containerd.err.log", "/k/containerd.log", "/ProgramData/containerd/root/panic.log",
	}
}
