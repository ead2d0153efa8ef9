package lifecycle

import (
	"context"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

// A StopResult is what Stop was to stop.
type StopResult struct {
	Cluster string   `json:"cluster"`
	Stopped []string `json:"stopped"` // "pool agents", "server": what ran, also where it could not be stopped
}

// Stop deallocates the cluster's agents, without a drain, since no machine is left to take
// their pods, then its server. What it stops has a tag before, by which Start knows it.
// After an interruption the same call goes on.
func (m *Manager) Stop(ctx context.Context) (*StopResult, error) {
	r := &StopResult{Cluster: m.name(), Stopped: []string{}}
	return r, interrupted(ctx, "stop", "Azure goes on with what it has accepted", m.stop(ctx, r))
}

func (m *Manager) stop(ctx context.Context, r *StopResult) error {
	err := m.awaitDeployments(ctx)
	if err == nil {
		_, err = m.restingServer(ctx)
	}
	if err != nil {
		return err
	}
	o, err := m.observe(ctx)
	if err != nil {
		return err
	}
	var p problems
	if o.groups[RoleCompute] == nil {
		p.add("ClusterDown", m.group(RoleCompute), "cluster has no machines", "ortet cluster up makes them")
	} else if m.checkGroups(o, &p); o.server != nil && !m.ours(o.server) {
		p.add("ResourceForeign", o.server.ID, "server was not made by ortet cluster for "+m.name(), "correct spec.groups.compute")
	}
	if err := p.err(); err != nil {
		return err
	}
	agents, err := m.agents(ctx, o)
	if err != nil {
		return err
	}
	stop := func(what string, tagged *resource, do func() error) error {
		c := m.begin("stop "+what, "Stop "+what)
		err := m.tag(ctx, tagged.ID, map[string]string{recipe.TagStopped: recipe.Stopped})
		if err == nil {
			err = do()
		}
		c.end(err)
		return err
	}
	g, parallel := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for _, name := range sorted(o.sets) {
		set := o.sets[name]
		if !runs(agents[name]) {
			continue
		}
		r.Stopped = append(r.Stopped, "pool "+name)
		g.Go(func() error {
			return stop("pool "+name, &set, func() error { return m.powerPool(parallel, fleet.DeallocateScaleSet{Pool: set.ID}) })
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if o.server == nil || o.server.power() == "deallocated" {
		return nil
	}
	r.Stopped = append(r.Stopped, recipe.ServerName)
	return stop("server", o.server, func() error { return m.power(ctx, "deallocate") })
}

// Start starts the server, waits until it is ready by the settings that it has, and starts
// the pools that Stop stopped. Where a restore is unfinished it has Up go on with that
// first. After an interruption the same call goes on.
func (m *Manager) Start(ctx context.Context) (*Result, error) {
	r := m.result()
	o, err := m.observe(ctx)
	if err != nil {
		return r, interrupted(ctx, "start", "nothing was changed", err)
	}
	if o.restore != "" {
		if r, err = m.Up(ctx, UpOptions{}); err != nil {
			return r, err
		}
		r.Notes = nil // of pools that are started now
	}
	return r, interrupted(ctx, "start", "Azure goes on with what it has accepted", m.start(ctx, r))
}

func (m *Manager) start(ctx context.Context, r *Result) error {
	o, err := m.observe(ctx)
	if err != nil {
		return err
	}
	var p problems
	if m.checkGroups(o, &p); !m.ours(o.server) {
		p.add("ServerMissing", m.serverID(), "cluster has no server", "ortet cluster up makes it")
	}
	if err := p.err(); err != nil {
		return err
	}
	if err := m.startServer(ctx); err != nil {
		return err
	}
	if r.Boot, err = m.awaitSettings(ctx); err != nil {
		return err
	}
	r.Ready = true
	agents, err := m.agents(ctx, o)
	if err != nil {
		return err
	}
	g, parallel := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for _, name := range sorted(o.sets) {
		set := o.sets[name]
		switch {
		case set.Tags[recipe.TagStopped] != "":
			g.Go(func() error {
				c := m.begin("start pool "+name, "Start pool "+name)
				err := m.powerPool(parallel, fleet.StartScaleSet{Pool: set.ID})
				if err == nil {
					err = m.untag(parallel, &set, recipe.TagStopped)
				}
				c.end(err)
				return err
			})
		case len(agents[name]) > 0 && !runs(agents[name]):
			r.Notes = append(r.Notes, "pool "+name+" was not stopped by ortet cluster stop without POOL, and stays stopped; ortet cluster start "+name+" starts it")
		}
	}
	return g.Wait()
}

// startServer starts the server's VM, unless it runs.
func (m *Manager) startServer(ctx context.Context) (err error) {
	c := m.begin("start server", "Start the server")
	defer func() { c.end(err) }()
	vm, err := m.restingServer(ctx)
	if vm == nil || err != nil {
		return err
	}
	if vm.power() != "running" {
		// What it said of itself before is not waited for.
		if err = m.tag(ctx, vm.ID, map[string]string{recipe.TagBoot: "waiting for the server"}); err != nil {
			return err
		}
		if err = m.power(ctx, "start"); err != nil {
			return err
		}
	}
	return m.untag(ctx, vm, recipe.TagStopped)
}

// awaitSettings waits until the server is ready by the settings that its VM has, which may
// be older than cluster.yaml.
func (m *Manager) awaitSettings(ctx context.Context) (boot string, err error) {
	vm, err := m.get(ctx, m.serverID(), computeVersion, "$expand", "userData")
	if err != nil {
		return "", err
	}
	return m.awaitServer(ctx, recipe.Digest(vm.settings()), "")
}

func (m *Manager) powerPool(ctx context.Context, change fleet.Change) error {
	_, err := azure.Writer{Cloud: m.Cloud, Now: m.Now, Within: m.Ready}.ScaleSet(ctx, change.Target(), func(fleet.Pool) fleet.Change { return change }, nil)
	return err
}

// runs reports whether Azure bills a machine of a pool.
func runs(agents []fleet.Instance) bool {
	for _, i := range agents {
		if i.Power != fleet.PowerDeallocated {
			return true
		}
	}
	return false
}

// stoppedServer reports whether Stop stopped the server, and it was not started since.
func stoppedServer(o *observation) bool {
	return o.server != nil && o.server.Tags[recipe.TagStopped] != "" && o.server.power() != "running"
}

func stoppedPool(set resource, agents []fleet.Instance) bool {
	return set.Tags[recipe.TagStopped] != "" && len(agents) > 0 && !runs(agents)
}

// stoppedNotes name the pools that Stop stopped, which Up leaves so.
func stoppedNotes(o *observation, agents map[string][]fleet.Instance) []string {
	var names []string
	for _, name := range sorted(o.sets) {
		if stoppedPool(o.sets[name], agents[name]) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []string{"ortet cluster stop stopped pool " + strings.Join(names, ", ") + "; up leaves that so, ortet cluster start starts it"}
}
