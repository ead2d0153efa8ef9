package nodeconfig

// A Change is one difference between two configurations.
type Change struct {
	Kind     string   `json:"kind"`               // "file", "unit", "drop-in", "sysctl", "kubelet", "registry mirror", "CA certificate"
	Name     string   `json:"name"`               // "/etc/motd", "backup.timer", "net.core.somaxconn"
	What     string   `json:"what"`               // "added", "changed", "removed"
	Restarts []string `json:"restarts,omitempty"` // names of units, "kubelet", "containerd"
}
