//go:build !windows

package bootstrap

import "strings"

// unitName is the name of a unit that systemd knows.
func unitName(name string) string {
	if !strings.Contains(name, ".") {
		name += ".service"
	}
	return name
}

// kubeletUnits run a kubelet, in the order in which they are looked for.
func kubeletUnits() []string {
	return []string{"kubelet.service", "k3s.service", "k3s-agent.service", "rke2-server.service", "rke2-agent.service"}
}

// cloudInitUnits are cloud-init's, by the names of 20 to 26. After these nothing
// of it runs.
func cloudInitUnits() []string { return []string{"cloud-final.service"} }

// runtimeUnits run containers.
func runtimeUnits() []string { return []string{"containerd.service"} }

// logFiles are those whose ends are evidence, besides the journal.
func logFiles() []string {
	return append([]string{"/var/log/cloud-init-output.log", "/var/log/cloud-init.log", provisionLog}, kubeletLogs()...)
}

// kubeletLogs are files that a kubelet writes in place of its unit's journal: those
// of RKE2, which go on over boots. k3s writes to its unit's journal. Source:
// rancher/rke2 pkg/podexecutor.
func kubeletLogs() []string { return []string{"/var/lib/rancher/rke2/agent/logs/kubelet.log"} }
