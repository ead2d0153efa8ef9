package k3s

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// runNode starts containerd, the kubelet and kube-proxy, and keeps routes. It
// returns when they run.
func (a *agent) runNode(ctx context.Context, p *processes) error {
	if err := a.startContainerd(ctx, p); err != nil {
		return err
	}
	if err := writeFile(a.dir("etc", "kubelet.yaml"), fmt.Appendf(nil, kubeletConfig,
		a.dir("client-ca.crt"), a.dir("serving-kubelet.crt"), a.dir("serving-kubelet.key"), containerdSocket, a.settings.ClusterDNS, a.settings.ClusterDomain), 0o600); err != nil {
		return err
	}
	flags := []string{
		"--config=" + a.dir("etc", "kubelet.yaml"), "--kubeconfig=" + a.dir("kubelet.kubeconfig"),
		"--hostname-override=" + a.node, "--node-ip=" + a.address,
	}
	if !a.settings.DisableCloudController {
		// k3s's cloud controller gives this id to nodes without another.
		flags = append(flags, "--provider-id=k3s://"+a.node)
	}
	if labels := a.config["node-label"]; len(labels) > 0 {
		flags = append(flags, "--node-labels="+strings.Join(labels, ","))
	}
	if taints := a.config["node-taint"]; len(taints) > 0 {
		flags = append(flags, "--register-with-taints="+strings.Join(taints, ","))
	}
	if file := a.config.one("resolv-conf"); file != "" {
		flags = append(flags, "--resolv-conf="+file)
	}
	if err := p.start("kubelet", "", override(flags, a.config["kubelet-arg"])...); err != nil {
		return err
	}
	if err := p.await(ctx, "for the kubelet", 500*time.Millisecond, kubeletHealthy); err != nil {
		return err
	}
	if !a.settings.DisableKubeProxy {
		if err := p.start("kube-proxy", "", override([]string{
			"--kubeconfig=" + a.dir("kubeproxy.kubeconfig"), "--hostname-override=" + a.node, "--cluster-cidr=" + a.settings.ClusterCIDR,
			"--proxy-mode=iptables", "--healthz-bind-address=127.0.0.1",
			// The kernel's table is the host's, which a machine may not resize.
			"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s",
		}, a.config["kube-proxy-arg"])...); err != nil {
			return err
		}
	}
	if err := a.watchNetwork(ctx); err != nil {
		return err
	}
	notifyReady()
	return nil
}

func kubeletHealthy(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10248/healthz", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// kubeletConfig is for a machine that is a container: control groups of version 1
// are its host's, and what is not on its disk cannot be pulled again.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %q}
authorization: {mode: Webhook}
tlsCertFile: %q
tlsPrivateKeyFile: %q
containerRuntimeEndpoint: unix://%s
clusterDNS: [%q]
clusterDomain: %q
failSwapOn: false
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 50Mi, nodefs.available: 1%%}
nodeStatusUpdateFrequency: 5s
`

func (a *agent) startContainerd(ctx context.Context, p *processes) error {
	certs := a.dir("etc", "containerd", "certs.d")
	var private registries
	file := a.config.or("private-registry", "/etc/rancher/k3s/registries.yaml")
	if text, err := os.ReadFile(file); err == nil {
		if err := yaml.Unmarshal(text, &private); err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := private.writeHosts(certs); err != nil {
		return err
	}
	config := a.dir("etc", "containerd", "config.toml")
	if err := writeFile(config, fmt.Appendf(nil, `version = 2
root = %q
state = "/run/k3s/containerd"
[grpc]
  address = %q
[plugins."io.containerd.internal.v1.opt"]
  path = %q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  # A machine lacks CAP_SYS_RESOURCE.
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "10010"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = %q
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = %q
`, a.dir("containerd"), containerdSocket, a.dir("containerd", "opt"), a.config.or("pause-image", "docker.io/rancher/mirrored-pause:3.6"), a.dir("etc", "cni", "net.d"), certs), 0o600); err != nil {
		return err
	}
	if err := os.MkdirAll(a.dir("etc", "cni", "net.d"), 0o755); err != nil {
		return err
	}
	if err := p.start("/usr/bin/containerd", a.dir("containerd", "containerd.log"), "--config", config); err != nil {
		return err
	}
	ctr := func(ctx context.Context, args ...string) error {
		return command(ctx, "/usr/bin/ctr", append([]string{"--address", containerdSocket, "--namespace", "k8s.io"}, args...)...)
	}
	if err := p.await(ctx, "for containerd startup", 200*time.Millisecond, func(ctx context.Context) error { return ctr(ctx, "version") }); err != nil {
		return err
	}
	images, err := os.ReadDir(a.dir("images"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, image := range images {
		if !slices.ContainsFunc([]string{".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst"}, func(end string) bool { return strings.HasSuffix(image.Name(), end) }) {
			continue
		}
		if err := ctr(ctx, "images", "import", "--digests=true", a.dir("images", image.Name())); err != nil {
			logrus.Errorf("Unable to import images from %s: %v", image.Name(), err)
			continue
		}
		logrus.Infof("Imported images from %s", filepath.Join(a.dir("images"), image.Name()))
	}
	return nil
}

// watchNetwork does what flannel's host-gw does: the Node's range of pod addresses
// is a bridge's, and other Nodes' are behind their addresses, until ctx ends.
func (a *agent) watchNetwork(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", a.dir("k3scontroller.kubeconfig"))
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return err
	}
	// Pods keep their address towards pods, and have the node's beyond.
	cluster := a.settings.ClusterCIDR
	masquerade := []string{"POSTROUTING", "-s", cluster, "!", "-d", cluster, "-m", "comment", "--comment", "pods to elsewhere", "-j", "MASQUERADE"}
	if command(ctx, "iptables", append([]string{"-w", "-t", "nat", "-C"}, masquerade...)...) != nil {
		if err := command(ctx, "iptables", append([]string{"-w", "-t", "nat", "-A"}, masquerade...)...); err != nil {
			return err
		}
	}
	factory := informers.NewSharedInformerFactory(client, 30*time.Second)
	_, err = factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { a.follow(ctx, o) },
		UpdateFunc: func(_, o any) { a.follow(ctx, o) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if node, ok := o.(*corev1.Node); ok && node.Name != a.node && node.Spec.PodCIDR != "" {
				if err := command(ctx, "ip", "route", "del", node.Spec.PodCIDR); err != nil {
					logrus.Warnf("Unable to remove the route to %s: %v", node.Name, err)
				}
			}
		},
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	return nil
}

// follow makes the bridge's configuration for the own Node, and a route to another.
func (a *agent) follow(ctx context.Context, object any) {
	node, ok := object.(*corev1.Node)
	if !ok || node.Spec.PodCIDR == "" {
		return
	}
	var err error
	if node.Name == a.node {
		file, text := a.dir("etc", "cni", "net.d", "10-flannel.conflist"), fmt.Sprintf(bridge, node.Spec.PodCIDR)
		if there, _ := os.ReadFile(file); string(there) == text {
			return
		}
		logrus.Infof("Pods of this node have %s", node.Spec.PodCIDR)
		err = writeFile(file, []byte(text), 0o600)
	} else {
		for _, address := range node.Status.Addresses {
			if address.Type == corev1.NodeInternalIP {
				var device string
				if device, err = deviceOf(a.address); err == nil {
					err = command(ctx, "ip", "route", "replace", node.Spec.PodCIDR, "via", address.Address, "dev", device, "onlink")
				}
				break
			}
		}
	}
	if err != nil {
		logrus.Errorf("Unable to make the network to %s: %v", node.Name, err)
	}
}

const bridge = `{
  "cniVersion": "0.4.0",
  "name": "cbr0",
  "plugins": [
    {"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "hairpinMode": true, "ipMasq": false,
     "ipam": {"type": "host-local", "subnet": %q}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`
