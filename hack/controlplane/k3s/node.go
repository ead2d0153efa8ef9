package k3s

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/kubeconfig"
	"sigs.k8s.io/yaml"
)

// containerdSocket is where k3s's containerd listens.
const containerdSocket = "/run/k3s/containerd/containerd.sock"

// runNode starts containerd, the kubelet and kube-proxy, and keeps routes. It
// returns when they run.
func (a *agent) runNode(ctx context.Context, p *processes) error {
	if err := errors.Join(os.MkdirAll(a.Dir("agent", "etc", "cni", "net.d"), 0o755), os.MkdirAll(a.Dir("agent", "containerd"), 0o711),
		a.writeMirrors(), writeRendered(a.Dir("agent", "etc", "kubelet.yaml"), "kubelet.yaml", a)); err != nil {
		return err
	}
	if err := a.startContainerd(ctx, p); err != nil {
		return err
	}
	for _, name := range []string{"kubelet", "kube-proxy"} {
		if err := p.component(ctx, name, a, a.Config[name+"-arg"]); err != nil {
			return err
		}
	}
	return a.watchNodes(ctx)
}

// writeMirrors writes containerd's hosts.toml for each registry that registries.yaml
// has mirrors of.
func (a *agent) writeMirrors() error {
	text, err := os.ReadFile("/etc/rancher/k3s/registries.yaml")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var registries struct {
		Mirrors map[string]struct{ Endpoint []string }
	}
	if err := yaml.Unmarshal(text, &registries); err != nil {
		return fmt.Errorf("read registries.yaml: %w", err)
	}
	dir := a.Dir("agent", "etc", "containerd", "certs.d")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for registry, mirror := range registries.Mirrors {
		if err := writeRendered(filepath.Join(dir, registry, "hosts.toml"), "hosts.toml", mirror.Endpoint); err != nil {
			return err
		}
	}
	return nil
}

// NVIDIARuntime is the path of NVIDIA's container runtime, "" without one. Like k3s it looks in
// PATH when it starts, and not again (pkg/agent/containerd/runtimes.go).
func (a *agent) NVIDIARuntime() string {
	file, err := exec.LookPath("nvidia-container-runtime")
	if err != nil {
		return ""
	}
	logrus.Infof("Found nvidia container runtime at %s", file)
	return file
}

func (a *agent) startContainerd(ctx context.Context, p *processes) error {
	config := a.Dir("agent", "etc", "containerd", "config.toml")
	if err := writeRendered(config, "containerd.toml", a); err != nil {
		return err
	}
	log := a.Dir("agent", "containerd", "containerd.log")
	if err := p.start(ctx, "/bin/sh", "sh", "-c", "exec containerd --config "+config+" >>"+log+" 2>&1"); err != nil {
		return err
	}
	ctr := func(args ...string) error {
		return command(ctx, "ctr", append([]string{"--address", containerdSocket, "--namespace", "k8s.io"}, args...)...)
	}
	if err := await(ctx, "for containerd startup", 200*time.Millisecond, func() error { return ctr("version") }); err != nil {
		return err
	}
	images, err := filepath.Glob(a.Dir("agent", "images", "*"))
	for _, image := range images {
		if err := ctr("images", "import", "--digests=true", image); err != nil {
			logrus.Errorf("Unable to import images from %s: %v", image, err)
			continue
		}
		logrus.Infof("Imported images from %s", image)
	}
	return err
}

// watchNodes does what flannel's host-gw does: the Node's range of pod addresses is a
// bridge's, and other Nodes' are behind their addresses, until ctx ends.
func (a *agent) watchNodes(ctx context.Context) error {
	client, err := kubeconfig.ClientSetFromFile(a.Dir("agent", "kubeproxy.kubeconfig"))
	if err != nil {
		return err
	}
	// Pods keep their address towards pods, and have the node's beyond.
	rule := fmt.Sprintf("POSTROUTING -s %[1]s ! -d %[1]s -m comment --comment pods -j MASQUERADE", a.Settings.ClusterCIDR)
	if err := command(ctx, "sh", "-c", "iptables -w -t nat -C "+rule+" || iptables -w -t nat -A "+rule); err != nil {
		return err
	}
	follow := func(object any) {
		node, ok := object.(*corev1.Node)
		if !ok || node.Spec.PodCIDR == "" {
			return
		}
		if err := a.follow(ctx, node); err != nil {
			logrus.Errorf("Unable to make the network to %s: %v", node.Name, err)
		}
	}
	factory := informers.NewSharedInformerFactory(client, 30*time.Second)
	_, err = factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    follow,
		UpdateFunc: func(_, object any) { follow(object) },
		DeleteFunc: func(object any) {
			if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
				a.gone(name)
			}
			if node, ok := object.(*corev1.Node); ok && node.Name != a.Node {
				if err := command(ctx, "ip", "route", "del", node.Spec.PodCIDR); err != nil {
					logrus.Warnf("Unable to remove the route to %s: %v", node.Name, err)
				}
			}
		},
	})
	factory.Start(ctx.Done())
	return err
}

// follow makes the bridge's configuration for the own Node, and a route to another.
func (a *agent) follow(ctx context.Context, node *corev1.Node) error {
	if node.Name == a.Node {
		file := a.Dir("agent", "etc", "cni", "net.d", "10-flannel.conflist")
		text, err := render("bridge.conflist", node.Spec.PodCIDR)
		if there, _ := os.ReadFile(file); err != nil || bytes.Equal(there, text) {
			return err
		}
		logrus.Infof("Pods of this node have %s", node.Spec.PodCIDR)
		return writeFile(file, text)
	}
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return command(ctx, "ip", "route", "replace", node.Spec.PodCIDR, "via", address.Address)
		}
	}
	return nil
}
