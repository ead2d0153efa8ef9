// Command controlplane is etcd, the Kubernetes control plane, the kubelet,
// kube-proxy, kubeadm and the lab's stand-in for k3s in one binary, which acts as
// the component that its first argument or its own file name says. One binary links
// once, which is most of what building the components apart would cost.
//
// It is the upstream components, unchanged: tests, demo and lab run against
// what users run. It has a module of its own, so that depending on Ortet does
// not mean depending on Kubernetes' own components.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ortet/ortet/hack/controlplane/k3s"
	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app"
	kubeadmerrors "k8s.io/kubernetes/cmd/kubeadm/app/util/errors"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	os.Exit(run(os.Args))
}

// run acts as the component named by the file name or the first argument.
func run(args []string) int {
	name := filepath.Base(args[0])
	if command := component(name); command == nil && !standalone(name) && len(args) > 1 {
		name, args = args[1], args[1:]
	}
	switch name {
	case "etcd":
		etcdmain.Main(args) // exits by itself
		return 0
	case "k3s":
		if len(args) > 1 && args[1] == "kubectl" {
			if os.Getenv("KUBECONFIG") == "" {
				_ = os.Setenv("KUBECONFIG", k3s.Kubeconfig) // fails for other names alone
			}
			return run(args[1:])
		}
		return k3s.Run(args)
	case "kubeadm":
		os.Args = args
		kubeadmerrors.HandleError(kubeadm.Run()) // exits by itself where it failed
		return 0
	}
	command := component(name)
	if command == nil {
		fmt.Fprintln(os.Stderr, "controlplane: want etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kube-proxy, kubeadm, kubectl or k3s as file name or first argument")
		return 64
	}
	os.Args = args // the components read flags from here
	return cli.Run(command)
}

// standalone are the components that are no cobra command of Kubernetes' own
// kind.
func standalone(name string) bool { return name == "etcd" || name == "kubeadm" || name == "k3s" }

func component(name string) *cobra.Command {
	switch name {
	case "kube-apiserver":
		return apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		return controllermanager.NewControllerManagerCommand()
	case "kube-scheduler":
		return scheduler.NewSchedulerCommand()
	case "kubelet":
		return kubelet.NewKubeletCommand(context.Background())
	case "kube-proxy":
		return proxy.NewProxyCommand()
	case "kubectl":
		return kubectl.NewDefaultKubectlCommand()
	}
	return nil
}
