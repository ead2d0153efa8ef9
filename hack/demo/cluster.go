package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/test/controlplane"
	"github.com/ortet/ortet/test/kubesim/serve"
)

// A cluster is what the story needs of one.
type cluster struct {
	kubeconfig, caFile string
	kubectl            string // a user's, as a command of the shell; "" is their own
	client             func() (*rest.Config, error)
	bootstrap          func(context.Context, time.Time) ([]byte, error)
	stop               func(context.Context) error
}

// startCluster starts the cluster that CONTROLPLANE names: "" is the API server in
// memory, "real" etcd and Kubernetes' own programs.
func startCluster(ctx context.Context, out io.Writer, dir, kind string) (cluster, error) {
	dir = filepath.Join(dir, "cluster")
	switch kind {
	case "":
		say(out, "Starting a Kubernetes API server in memory")
		c, err := serve.Start(dir)
		if err != nil {
			return cluster{}, err
		}
		return cluster{
			kubeconfig: c.Kubeconfig, caFile: c.CAFile,
			client: c.RESTConfig, bootstrap: c.BootstrapKubeconfig, stop: c.Stop,
		}, nil
	case "real":
		say(out, "Starting Kubernetes: etcd, API server, controller manager, scheduler")
		binary, err := controlplane.Binary(ctx)
		if err != nil {
			return cluster{}, err
		}
		cp, err := controlplane.Start(ctx, controlplane.Config{Dir: dir, Binary: binary})
		if err != nil {
			return cluster{}, err
		}
		return cluster{
			kubeconfig: cp.Kubeconfig, caFile: cp.CAFile, kubectl: binary + " kubectl", client: cp.RESTConfig,
			bootstrap: func(ctx context.Context, expiry time.Time) ([]byte, error) {
				return cp.BootstrapKubeconfig(ctx, cp.Server, expiry)
			},
			stop: cp.Stop,
		}, nil
	}
	return cluster{}, fmt.Errorf("unknown control plane %q: leave CONTROLPLANE empty, or set it to real", kind)
}
