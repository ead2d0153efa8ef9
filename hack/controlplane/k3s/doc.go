// Package k3s is a stand-in for k3s in the lab, where k3s itself is not to be had:
// Kubernetes' own components behind k3s's command line, files and supervisor
// protocol, as far as a joining node and an operator meet them. One process is the
// API server with the supervisor's paths before it; etcd, the other components and
// containerd are its children. A child that ends, ends the process; systemd
// restarts it.
//
// Facts about k3s are from docs.k3s.io (cli/server, cli/agent, cli/token,
// installation/configuration) and k3s-io/k3s (pkg/server/handlers,
// pkg/nodepassword, pkg/clientaccess, pkg/agent/config).
package k3s
