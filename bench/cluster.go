package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/ortet/ortet/test/controlplane"
)

const forever = 24 * time.Hour

// A benchCluster is a real control plane in a folder of its own.
type benchCluster struct {
	dir    string
	cp     *controlplane.ControlPlane
	client kubernetes.Interface
	undo   []func() error // in reverse order
}

// start makes the folder and starts the control plane; after an error, too, close undoes it.
// Nodes stay Ready for so long though no kubelet runs.
func (c *benchCluster) start(ctx context.Context, ready time.Duration) (err error) {
	if c.dir, err = os.MkdirTemp("", "ortet-bench-"); err != nil {
		return err
	}
	c.undo = append(c.undo, func() error { return os.RemoveAll(c.dir) })
	binary, err := controlplane.Binary(ctx)
	if err != nil {
		return err
	}
	if c.cp, err = controlplane.Start(ctx, controlplane.Config{Dir: filepath.Join(c.dir, "controlplane"), Binary: binary, NodeMonitorGracePeriod: ready}); err != nil {
		return err
	}
	c.undo = append(c.undo, func() error {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		return c.cp.Stop(stop)
	})
	login, err := c.cp.RESTConfig()
	if err != nil {
		return err
	}
	c.client, err = kubernetes.NewForConfig(login)
	return err
}

func (c *benchCluster) close() error {
	var errs error
	for i := len(c.undo) - 1; i >= 0; i-- {
		errs = errors.Join(errs, c.undo[i]())
	}
	c.undo = nil
	return errs
}

// wait returns after d, or the context's error.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
