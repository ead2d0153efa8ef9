package k3s

import (
	"bytes"
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
	if err := a.writeFilled("kubelet.yaml", a.Dir("agent", "etc", "kubelet.yaml")); err != nil {
		return err
	}
	if err := p.startComponent("kubelet", a, a.Config["kubelet-arg"]); err != nil {
		return err
	}
	if err := p.await(ctx, "for the kubelet", 500*time.Millisecond, kubeletHealthy); err != nil {
		return err
	}
	if !a.Settings.DisableKubeProxy {
		if err := p.startComponent("kube-proxy", a, a.Config["kube-proxy-arg"]); err != nil {
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

func (a *agent) writeFilled(name, path string) error {
	text, err := render(name, a)
	if err != nil {
		return err
	}
	return writeFile(path, text, 0o600)
}

func (a *agent) startContainerd(ctx context.Context, p *processes) error {
	certs := a.Dir("agent", "etc", "containerd", "certs.d")
	var private registries
	file := a.Or("private-registry", "/etc/rancher/k3s/registries.yaml")
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
	config := a.Dir("agent", "etc", "containerd", "config.toml")
	if err := a.writeFilled("containerd.toml", config); err != nil {
		return err
	}
	if err := os.MkdirAll(a.Dir("agent", "etc", "cni", "net.d"), 0o755); err != nil {
		return err
	}
	if err := p.start("/usr/bin/containerd", a.Dir("agent", "containerd", "containerd.log"), "--config", config); err != nil {
		return err
	}
	ctr := func(ctx context.Context, args ...string) error {
		return command(ctx, "/usr/bin/ctr", append([]string{"--address", containerdSocket, "--namespace", "k8s.io"}, args...)...)
	}
	if err := p.await(ctx, "for containerd startup", 200*time.Millisecond, func(ctx context.Context) error { return ctr(ctx, "version") }); err != nil {
		return err
	}
	images, err := os.ReadDir(a.Dir("agent", "images"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, image := range images {
		if !slices.ContainsFunc([]string{".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst"}, func(end string) bool { return strings.HasSuffix(image.Name(), end) }) {
			continue
		}
		if err := ctr(ctx, "images", "import", "--digests=true", a.Dir("agent", "images", image.Name())); err != nil {
			logrus.Errorf("Unable to import images from %s: %v", image.Name(), err)
			continue
		}
		logrus.Infof("Imported images from %s", filepath.Join(a.Dir("agent", "images"), image.Name()))
	}
	return nil
}

// watchNetwork does what flannel's host-gw does: the Node's range of pod addresses
// is a bridge's, and other Nodes' are behind their addresses, until ctx ends.
func (a *agent) watchNetwork(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", a.Dir("agent", "k3scontroller.kubeconfig"))
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
	cluster := a.Settings.ClusterCIDR
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
			if node, ok := o.(*corev1.Node); ok && node.Name != a.Node && node.Spec.PodCIDR != "" {
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
	if node.Name == a.Node {
		file, text := a.Dir("agent", "etc", "cni", "net.d", "10-flannel.conflist"), []byte(nil)
		if text, err = render("bridge.conflist", node.Spec.PodCIDR); err != nil {
			logrus.Error(err)
			return
		}
		if there, _ := os.ReadFile(file); bytes.Equal(there, text) {
			return
		}
		logrus.Infof("Pods of this node have %s", node.Spec.PodCIDR)
		err = writeFile(file, text, 0o600)
	} else {
		for _, address := range node.Status.Addresses {
			if address.Type == corev1.NodeInternalIP {
				var device string
				if device, err = deviceOf(a.Address); err == nil {
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
