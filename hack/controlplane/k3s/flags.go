package k3s

import "strings"

// Documented flags of k3s, by what they take. Source: docs.k3s.io/cli/server and
// cli/agent. A server takes an agent's flags too.
const (
	agentValues = `config v vmodule log token token-file server data-dir node-name
		image-credential-provider-bin-dir image-credential-provider-config lb-server-port
		container-runtime-endpoint default-runtime image-service-endpoint pause-image snapshotter
		private-registry bind-address resolv-conf flannel-iface flannel-conf flannel-cni-conf
		vpn-auth vpn-auth-file cluster-secret`
	agentLists = `node-label node-taint node-ip node-external-ip node-internal-dns node-external-dns
		kubelet-arg kube-proxy-arg`
	agentSwitches = `debug alsologtostderr with-node-id selinux protect-kernel-defaults
		disable-default-registry-endpoint nonroot-devices enable-pprof rootless prefer-bundled-bin
		docker disable-apiserver-lb no-flannel`
	serverValues = `https-listen-port advertise-address advertise-port service-node-port-range
		cluster-domain flannel-backend egress-selector-mode servicelb-namespace write-kubeconfig
		write-kubeconfig-mode write-kubeconfig-group helm-job-image agent-token agent-token-file
		cluster-reset-restore-path datastore-endpoint datastore-cafile datastore-certfile
		datastore-keyfile etcd-snapshot-name etcd-snapshot-schedule-cron etcd-snapshot-retention
		etcd-snapshot-dir etcd-s3-endpoint etcd-s3-endpoint-ca etcd-s3-access-key etcd-s3-secret-key
		etcd-s3-bucket etcd-s3-region etcd-s3-folder etcd-s3-proxy etcd-s3-config-secret
		etcd-s3-timeout default-local-storage-path secrets-encryption-provider system-default-registry`
	serverLists = `tls-san cluster-cidr service-cidr cluster-dns disable no-deploy kube-apiserver-arg
		etcd-arg kube-controller-manager-arg kube-scheduler-arg kube-cloud-controller-manager-arg`
	serverSwitches = `tls-san-security flannel-ipv6-masq flannel-external-ip cluster-init
		cluster-reset etcd-expose-metrics etcd-disable-snapshots etcd-snapshot-compress etcd-s3
		etcd-s3-skip-ssl-verify etcd-s3-insecure disable-scheduler disable-cloud-controller
		disable-kube-proxy disable-network-policy disable-helm-controller disable-agent
		embedded-registry supervisor-metrics secrets-encryption`
)

// honoured are the flags that do something here; others are accepted and logged.
const honoured = `config token token-file server data-dir node-name node-label node-taint node-ip
	kubelet-arg kube-proxy-arg pause-image private-registry resolv-conf agent-token agent-token-file
	advertise-address https-listen-port tls-san cluster-cidr service-cidr cluster-dns cluster-domain
	kube-apiserver-arg kube-controller-manager-arg kube-scheduler-arg etcd-arg write-kubeconfig
	write-kubeconfig-mode disable disable-cloud-controller disable-kube-proxy disable-agent
	service-node-port-range`

type kind int

const (
	value kind = iota + 1
	list
	toggle
)

// flagsOf returns the flags of k3s's command of that name.
func flagsOf(command string) map[string]kind {
	all := map[string]kind{}
	add := func(k kind, names string) {
		for _, n := range strings.Fields(names) {
			all[n] = k
		}
	}
	add(value, agentValues)
	add(list, agentLists)
	add(toggle, agentSwitches)
	if command == "server" {
		add(value, serverValues)
		add(list, serverLists)
		add(toggle, serverSwitches)
	}
	return all
}

var aliases = map[string]string{"t": "token", "s": "server", "d": "data-dir", "i": "node-ip", "o": "write-kubeconfig", "c": "config", "l": "log"}

var environment = map[string]string{
	"K3S_CONFIG_FILE": "config", "K3S_TOKEN": "token", "K3S_TOKEN_FILE": "token-file", "K3S_URL": "server",
	"K3S_NODE_NAME": "node-name", "K3S_DATA_DIR": "data-dir", "K3S_AGENT_TOKEN": "agent-token",
	"K3S_AGENT_TOKEN_FILE": "agent-token-file", "K3S_KUBECONFIG_OUTPUT": "write-kubeconfig", "K3S_KUBECONFIG_MODE": "write-kubeconfig-mode",
}
