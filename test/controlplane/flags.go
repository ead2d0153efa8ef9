package controlplane

import (
	"fmt"

	"github.com/ortet/ortet/test/access"
)

// etcdFlags has etcd on loopback, for holders of its own CA's certificates only.
func (l *layout) etcdFlags(client, peer string) []string {
	return []string{
		"--name=default",
		"--data-dir=" + l.dir + "/etcd",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=default=" + peer,
		"--client-cert-auth", "--trusted-ca-file=" + l.etcdCA.CertFile(),
		"--cert-file=" + l.pki("etcd.crt"), "--key-file=" + l.pki("etcd.key"),
		"--peer-client-cert-auth", "--peer-trusted-ca-file=" + l.etcdCA.CertFile(),
		"--peer-cert-file=" + l.pki("etcd.crt"), "--peer-key-file=" + l.pki("etcd.key"),
		"--unsafe-no-fsync", // nothing here has to survive a power cut
		"--log-level=warn",
	}
}

func (l *layout) apiserverFlags(config Config, etcd string, port int) []string {
	flags := []string{
		"--bind-address=" + config.Listen,
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + l.pki("apiserver.crt"), "--tls-private-key-file=" + l.pki("apiserver.key"),
		"--client-ca-file=" + l.ca.CertFile(),
		"--etcd-servers=" + etcd,
		"--etcd-cafile=" + l.etcdCA.CertFile(),
		"--etcd-certfile=" + l.pki("apiserver-etcd-client.crt"), "--etcd-keyfile=" + l.pki("apiserver-etcd-client.key"),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--enable-bootstrap-token-auth",
		"--allow-privileged",
		"--kubelet-client-certificate=" + l.pki("apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + l.pki("apiserver-kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--requestheader-client-ca-file=" + l.front.CertFile(),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + l.pki("front-proxy-client.crt"),
		"--proxy-client-key-file=" + l.pki("front-proxy-client.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + l.pki("sa.key"),
		"--service-account-signing-key-file=" + l.pki("sa.key"),
		"--service-cluster-ip-range=" + serviceCIDR,
		"--profiling=false",
	}
	if config.Advertise == "" {
		// An endpoint must not be a loopback address; without one there is
		// nothing to reconcile.
		return append(flags, "--advertise-address="+loopback, "--endpoint-reconciler-type=none")
	}
	return append(flags, "--advertise-address="+config.Advertise)
}

func (l *layout) controllerManagerFlags(config Config) []string {
	flags := []string{
		"--kubeconfig=" + l.kubeconfig("controller-manager"),
		"--controllers=*,bootstrapsigner,tokencleaner",
		"--use-service-account-credentials",
		"--root-ca-file=" + l.ca.CertFile(),
		"--service-account-private-key-file=" + l.pki("sa.key"),
		"--cluster-signing-cert-file=" + l.ca.CertFile(), "--cluster-signing-key-file=" + l.ca.KeyFile(),
		"--cluster-signing-duration=" + access.Validity.String(),
		"--service-cluster-ip-range=" + serviceCIDR,
		"--leader-elect=false", "--secure-port=0", "--profiling=false",
		"--kube-api-qps=200", "--kube-api-burst=400",
		"--concurrent-deployment-syncs=10", "--concurrent-replicaset-syncs=10",
	}
	if config.PodCIDR != "" {
		flags = append(flags, "--allocate-node-cidrs", "--cluster-cidr="+config.PodCIDR)
	}
	if config.NodeMonitorGracePeriod > 0 {
		flags = append(flags, "--node-monitor-grace-period="+config.NodeMonitorGracePeriod.String())
		// Looking every 5 s, as by default, would make a shorter grace a lie.
		flags = append(flags, "--node-monitor-period="+(config.NodeMonitorGracePeriod/4).String())
	}
	return flags
}
