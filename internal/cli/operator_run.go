package cli

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/operator"
	operatorkube "github.com/ortet/ortet/internal/operator/kube"
	"github.com/ortet/ortet/internal/operator/notify"
)

// runOperator works whenever it leads, until ctx ends and its runs have ended.
func (o *options) runOperator(ctx context.Context, f operatorFlags) error {
	config := operatorkube.Config{Lease: f.lease}
	var err error
	if config.REST, err = o.kubernetes(); err != nil {
		return err
	}
	if config.Groups, err = groups(f.groups); err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	err = errors.Join(registry.Register(collectors.NewGoCollector()),
		registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})))
	if err != nil {
		return err
	}
	if config.Metrics, err = operator.NewMetrics(registry); err != nil {
		return err
	}
	w := work{pools: f.groups, lease: f.capture.lease, rules: kube.Rules(kube.Everything(o.namespace))}
	w.image, w.pullSecret = f.capture.image, f.capture.pullSecret
	c, err := o.open(ctx, w)
	if err != nil {
		return err
	}
	config.Capture, config.Identify = c.config, c.identify
	config.Capture.Holder = localHolder()
	config.OtherPools, config.MaxRuns = f.capture.request.OtherPools, f.maxRuns
	ready := &atomic.Bool{}
	group, ctx := errgroup.WithContext(ctx)
	if f.notify.URL != "" {
		f.notify.Log = o.log
		config.Notify = notify.New(f.notify)
		group.Go(func() error { config.Notify.Run(ctx); return nil })
	}
	for _, s := range []side{
		{"metrics", f.metrics, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil},
		{"health", f.health, healthHandler(ready), nil},
	} {
		if s.address == "" || s.address == "0" {
			continue
		}
		if s.listener, err = o.listenOn(ctx, s.what, s.address); err != nil {
			return err
		}
		group.Go(func() error { return s.serve(ctx) })
	}
	group.Go(func() error { return operatorkube.Run(ctx, config) })
	ready.Store(true)
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
