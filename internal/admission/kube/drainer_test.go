//go:build e2e

package kube_test

import (
	"context"
	"sync"

	"github.com/ortet/ortet/internal/cluster"
)

// drainer keeps what it was asked, and answers err.
type drainer struct {
	mu    sync.Mutex
	asked []cluster.DrainOptions
	err   error
}

func (d *drainer) Drain(_ context.Context, _ string, options cluster.DrainOptions, _ func(cluster.DrainEvent)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, options)
	return d.err
}
