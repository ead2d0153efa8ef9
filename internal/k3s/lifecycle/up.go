package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
)

// UpOptions are the choices of Up.
type UpOptions struct {
	// NoWait returns when Azure has accepted the compute deployment.
	NoWait bool
	// Prune deletes the scale sets of pools that are not in cluster.yaml.
	Prune bool
	// Login gives the key of a login to the tailnet to the server; nil leaves the login as it is.
	Login func(context.Context) error

	replace bool // the server's VM
}

// A Result is what Up did.
type Result struct {
	Cluster  string            `json:"cluster"`
	Groups   map[string]string `json:"groups"`             // role to the group's name
	Ready    bool              `json:"ready"`              // the server has booted and admits agents
	Boot     string            `json:"boot,omitempty"`     // what the server reported last
	Backup   string            `json:"backup,omitempty"`   // of the state disk, made before another k3s
	Failures []Failure         `json:"failures,omitempty"` // what could not be made
	Notes    []string          `json:"notes,omitempty"`    // what was left as it is, and why
}

func (m *Manager) result() *Result {
	return &Result{Cluster: m.name(), Groups: map[string]string{RoleStorage: m.group(RoleStorage).Name(), RoleCompute: m.group(RoleCompute).Name()}}
}

// Up makes the cluster what cluster.yaml says. What it refuses is *workflow.Refused, and
// nothing was made then. A deployment that failed halfway is a *workflow.Outcome with
// ExitNeedsPerson, and the failures are in the result; the same call repairs. When ctx
// ends, Azure goes on with what it has accepted: ExitInterrupted.
func (m *Manager) Up(ctx context.Context, options UpOptions) (*Result, error) {
	r := m.result()
	defer func() {
		if r.Backup != "" {
			r.Notes = append(r.Notes, fmt.Sprintf("backup %s has the state of before this change; ortet cluster restore %[1]s goes back to it", r.Backup))
		}
	}()
	if err := m.protected().err(); options.Prune && err != nil {
		return r, err
	}
	o, d, err := m.preflight(ctx, options.replace)
	if err != nil {
		return r, interrupted(ctx, "preflight", "no deployment was begun", err)
	}
	if err := m.checkDrains(ctx, o, d, options); err != nil {
		return r, err
	}
	before := o
	if o.restore != "" || o.replace {
		if r.Backup, err = m.remake(ctx, o); err == nil {
			o, err = m.observe(ctx)
		}
		if err == nil {
			d, err = m.documents(ctx, o)
		}
		if err != nil {
			return r, interrupted(ctx, "server", "the server is still there, or is being made again; the same command goes on", err)
		}
	}
	r.Notes = append(m.notes(o, d, options.Prune), m.lockedOut()...)
	if err := m.endFormerScalers(ctx, o, options.Prune); err != nil {
		return r, interrupted(ctx, "autoscale", "nothing scales these pools now; the same command goes on", err)
	}
	for _, role := range roles() {
		if role == RoleCompute && len(o.sets) > 0 {
			if o, d, err = m.atRest(ctx); err != nil {
				return r, interrupted(ctx, role, "the "+role+" group was not deployed", err)
			}
		}
		if err := m.deploy(ctx, role, document(d, role), role == RoleStorage || !options.NoWait, func() error { return m.unchanged(ctx, before, d) }); err != nil {
			return r, m.deployFailed(ctx, role, r, err)
		}
	}
	if err := m.endAutoscale(ctx, options.Prune); err != nil {
		return r, interrupted(ctx, "autoscale", "Azure goes on to scale pools by CPU; the same command goes on", err)
	}
	backup, err := m.changeServer(ctx, before, d)
	if r.Backup = cmp.Or(backup, r.Backup); err != nil {
		return r, interrupted(ctx, "server", "the server was not changed wholly", err)
	}
	if options.NoWait {
		for _, name := range sorted(d.Lowered) {
			r.Notes = append(r.Notes, "pool "+name+" keeps its agents, since the server drains them: run ortet cluster up without --no-wait")
		}
		if former := m.formerPorts(o, k3s.ToServers); len(former) > 0 {
			r.Notes = append(r.Notes, "port "+strings.Join(former, ", ")+" of SSH stays open: run ortet cluster up without --no-wait to close it")
		}
		if m.withoutAddress() && (o.nic == nil || o.nic.hasAddress()) {
			r.Notes = append(r.Notes, "the server keeps its public address: run ortet cluster up without --no-wait to give it up")
		}
		return r, nil
	}
	agents, unread := m.agents(ctx, o)
	_, behind := m.behind(ctx, agents)
	defer func() { // without those that were drained or renewed, and with what was evicted meanwhile
		now, err := m.observe(ctx)
		if err == nil {
			d, err = m.documents(ctx, now)
		}
		if err == nil {
			agents, err = m.agents(ctx, now)
		}
		if err == nil {
			_, behind = m.behind(ctx, agents)
			r.Notes = append(r.Notes, missing(now, d, agents)...)
		}
		r.Notes = append(r.Notes, behind...)
	}()
	if r.Notes = append(r.Notes, stoppedNotes(o, agents)...); unread != nil {
		r.Notes = append(r.Notes, "cannot count agents behind their pool's model: "+unread.Error())
	}
	wayBack := ""
	if r.Backup != "" {
		wayBack = "to have the cluster as it was before: write the former artifacts into cluster.yaml, then ortet cluster restore " + r.Backup
	}
	if r.Boot, err = m.awaitServer(ctx, d.SettingsDigest, wayBack); err != nil {
		return r, interrupted(ctx, "server", "the server goes on booting", err)
	}
	r.Ready = true
	note, err := m.joinTailnet(ctx, options.Login)
	if err != nil {
		return r, interrupted(ctx, "tailnet", "the server is ready; the same command logs it in", err)
	}
	if note != "" {
		r.Notes = append(r.Notes, note)
	}
	note, err = m.closePorts(ctx, unread != nil || len(behind) > 0)
	if err != nil {
		return r, interrupted(ctx, "access", "the server is ready; the same command closes the former port of SSH", err)
	}
	if note != "" {
		r.Notes = append(r.Notes, note)
	}
	if err := m.closeFormerWay(ctx); err != nil {
		return r, interrupted(ctx, "access", "the server is ready; the same command closes the former way to it", err)
	}
	if o.restore != "" {
		if err := m.endRestore(ctx); err != nil {
			return r, interrupted(ctx, "restore", "the server is ready", err)
		}
		if r.Notes = append(r.Notes, backupOr("", o)+" is restored"); o.backup != nil && !m.ours(o.backup) {
			r.Notes = append(r.Notes, "Nodes of agents of cluster "+o.backup.Tags[recipe.TagCluster]+" are in it: kubectl delete node deletes them")
		} else if len(o.sets) > 0 {
			r.Notes = append(r.Notes, "agents that joined after the backup have no Ready Node (ortet cluster agents); "+
				"ortet cluster reimage POOL has a pool's agents join again, ortet cluster replace NODE one")
		}
	}
	note, err = m.renewAgents(ctx)
	if note != "" {
		r.Notes = append(r.Notes, note)
	}
	if err == nil {
		err = m.keepVersion(ctx)
	}
	if err == nil {
		err = m.shrink(ctx, o, d, options.Prune)
	}
	return r, interrupted(ctx, "agents", "the server is ready", err)
}

// keepVersion copies the version of k3s from the server to its state disk, which outlives
// it: an older k3s cannot read the datastore of a newer one.
func (m *Manager) keepVersion(ctx context.Context) error {
	r := &reads{m: m}
	server, disk := r.get(ctx, m.serverID(), computeVersion), r.get(ctx, m.stateID(), diskVersion)
	if r.err != nil || server == nil || disk == nil || server.Tags[recipe.TagK3s] == "" || server.Tags[recipe.TagK3s] == disk.Tags[recipe.TagK3s] {
		return r.err
	}
	return m.tag(ctx, m.stateID(), map[string]string{recipe.TagK3s: server.Tags[recipe.TagK3s]})
}

// deployFailed turns the end of a deployment into the command's.
func (m *Manager) deployFailed(ctx context.Context, role string, r *Result, err error) error {
	if ctx.Err() != nil {
		return interrupted(ctx, role, "Azure goes on with what it has accepted", err)
	}
	var failed *deploymentError
	if !errors.As(err, &failed) {
		return err
	}
	r.Failures = failed.failures
	left := "what was made stays; correct the cause, then run the same command again"
	if failed.canceled {
		left = "after ortet cluster down has ended, the same command makes the cluster again; if none runs, what was made stays"
	}
	return &workflow.Outcome{Exit: workflow.ExitNeedsPerson, Step: role, Err: err, Left: []string{left}}
}

// checkDrains refuses, before anything is changed, to lower or delete pools whose agents
// cannot be drained.
func (m *Manager) checkDrains(ctx context.Context, o *observation, d *recipe.Documents, options UpOptions) error {
	if goes := len(d.Lowered) > 0 || options.Prune && len(m.removed(o)) > 0; !goes || options.NoWait && !options.Prune || !o.serverStays() || o.server.power() != "running" {
		return nil
	}
	if err := m.Agents.Reach(ctx); err != nil {
		var p problems
		p.add("ClusterUnreachable", m.serverID(), "agents are to be drained and deleted, and the cluster's API server is not reached: "+err.Error(),
			"get its kubeconfig with ortet cluster kubeconfig, or write the present counts and pools into cluster.yaml")
		return p.err()
	}
	return nil
}

// endAutoscale deletes the autoscale settings of pools that have count by now, and with prune
// of those that are to be deleted.
func (m *Manager) endAutoscale(ctx context.Context, prune bool) error {
	all, err := m.list(ctx, m.in(RoleCompute, "Microsoft.Insights", "autoscaleSettings"), autoscaleVersion)
	for _, s := range all {
		p := m.pool(s.Name)
		if err == nil && m.ours(&s) && (p == nil && prune || p != nil && p.Count != nil) {
			err = m.delete(ctx, "the autoscale setting", m.in(RoleCompute, "Microsoft.Insights/autoscaleSettings", s.Name), autoscaleVersion)
		}
	}
	return err
}

// shrink drains and deletes the agents that pools have more than cluster.yaml says, and with
// prune the pools that it does not have. A pool's tag has the lower count when that is done.
func (m *Manager) shrink(ctx context.Context, o *observation, d *recipe.Documents, prune bool) error {
	for _, name := range sorted(d.Lowered) {
		n := d.Lowered[name]
		if err := m.lower(ctx, name, n); err != nil {
			return err
		}
		set, err := m.get(ctx, o.sets[name].ID, computeVersion)
		if err != nil || set == nil {
			return err
		}
		_, rest, _ := strings.Cut(set.Tags[recipe.TagApplied], " ")
		if err := m.tag(ctx, set.ID, map[string]string{recipe.TagApplied: fmt.Sprintf("count=%d %s", n, rest)}); err != nil {
			return err
		}
		if err := m.untag(ctx, set, recipe.TagScaled); err != nil {
			return err
		}
	}
	for _, name := range m.removed(o) {
		if !prune {
			break
		}
		if err := m.lower(ctx, name, 0); fleet.IgnoreNotFound(err) != nil {
			return err
		}
		if err := m.prune(ctx, o.sets[name].ID); err != nil {
			return err
		}
	}
	return nil
}

// lower drains and deletes agents of a pool until it has n.
func (m *Manager) lower(ctx context.Context, name string, n int) (err error) {
	c := m.begin("drain "+name, fmt.Sprintf("Lower pool %s to %s", name, fleet.Count(n, "agent")))
	defer func() { c.end(err) }()
	if err = m.Agents.Lower(ctx, name, int64(n), func(text string) { c.report(workflow.EventProgress, text) }); err == nil || ctx.Err() != nil || fleet.Is(err, fleet.KindNotFound) {
		return err
	}
	return &workflow.Outcome{Exit: workflow.ExitNeedsPerson, Step: "drain " + name, Err: err, Left: []string{
		"pool " + name + " keeps agents that could not be drained, and all else is as cluster.yaml says; the same command goes on",
		fmt.Sprintf("to delete their pods past PodDisruptionBudgets: ortet cluster scale %s %d --force, then the same command", name, n)}}
}

// prune deletes a scale set.
func (m *Manager) prune(ctx context.Context, set fleet.ResourceID) (err error) {
	c := m.begin("prune "+set.Name(), "Delete the scale set")
	defer func() { c.end(err) }()
	return azure.Writer{Cloud: m.Cloud, Now: m.Now, Within: m.Ready}.Do(ctx, fleet.DeleteScaleSet{Pool: set})
}

// atRest waits until no scale set of the cluster is updating, since a deployment writes
// them without an ETag, and renders the templates again by what they are then.
func (m *Manager) atRest(ctx context.Context) (o *observation, d *recipe.Documents, err error) {
	c := m.begin("rest", "Wait until no scale set is updating")
	defer func() { c.end(err) }()
	reported, deadline := "", m.Now().Add(azure.RestFor)
	err = m.poll(ctx, func() (bool, error) {
		if o, err = m.observe(ctx); err != nil {
			return false, err
		}
		updating := ""
		for _, name := range sorted(o.sets) {
			if azure.Busy(o.sets[name].Properties.ProvisioningState) {
				updating = name
			}
		}
		if updating == "" || m.Now().After(deadline) {
			return true, nil
		}
		// Its own deployment is followed, not waited for.
		if running, err := m.get(ctx, m.deploymentID(RoleCompute), resourcesVersion); err != nil || running.underWay() {
			return err == nil, err
		}
		if updating != reported {
			reported = updating
			c.report(workflow.EventProgress, "scale set "+updating+" is updating")
		}
		return false, nil
	})
	if err == nil {
		d, err = m.documents(ctx, o)
	}
	return o, d, err
}

// missing names Spot pools that have fewer agents than they are to have.
func missing(o *observation, d *recipe.Documents, agents map[string][]fleet.Instance) (notes []string) {
	for _, name := range sorted(o.sets) {
		if n, has := d.Evicted[name], o.sets[name].SKU.Capacity; n > 0 {
			notes = append(notes, fmt.Sprintf("pool %s has %d of %s: %d evicted; ortet cluster up makes them again", name, has, fleet.Count(has+n, "agent"), n))
		}
		off := 0
		for _, i := range agents[name] {
			if i.Power == fleet.PowerDeallocated {
				off++
			}
		}
		if off > 0 && o.sets[name].Properties.Profile.EvictionPolicy == k3s.Deallocate && o.sets[name].Tags[recipe.TagStopped] == "" {
			notes = append(notes, fmt.Sprintf("pool %s: %d of %s deallocated, by an eviction or a stop; ortet cluster start %[1]s starts them", name, off, fleet.Count(len(agents[name]), "agent")))
		}
	}
	return notes
}

// notes say what Up leaves as it is.
func (m *Manager) notes(o *observation, d *recipe.Documents, prune bool) []string {
	var notes []string
	if s := o.server; s != nil && s.Tags[recipe.TagRecipe] != d.ServerRecipe {
		way := "ortet cluster replace server makes it again, with its state"
		if !m.stateStays(o) {
			way = "it does not keep its state on disk " + recipe.StateDisk + ", so ortet cluster replace server refuses it; " + anotherCluster + ", without the objects of this one"
		}
		notes = append(notes, "server was made by another recipe and stays as it is; ortet cluster plan names the fields, "+way)
	}
	if d := o.state; d != nil && d.Properties.DiskSizeGB > m.Cluster.Spec.Server.StateGB {
		notes = append(notes, fmt.Sprintf("state disk has %d GiB and keeps them; write stateGB: %[1]d", d.Properties.DiskSizeGB))
	}
	for _, name := range sorted(o.sets) {
		switch {
		case m.pool(name) == nil && prune:
		case m.pool(name) == nil:
			notes = append(notes, "pool "+name+" is not in cluster.yaml and stays as it is; ortet cluster up --prune deletes it")
		case len(d.Kept[name]) > 0:
			notes = append(notes, "pool "+name+" keeps "+strings.Join(d.Kept[name], " and ")+
				", set since cluster.yaml was last applied (ortet capture, ortet cluster resize, or by hand), until cluster.yaml changes it")
		}
	}
	return notes
}
