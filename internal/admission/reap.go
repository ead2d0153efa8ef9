package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

// A Fate is what the reaper makes of what the cluster holds of a machine.
type Fate string

// Fates. All but the last two leave everything as it is.
const (
	// FateForeign is not of a scale set that is admitted here, or of an unknown one.
	FateForeign Fate = "Foreign"
	// FateExists is of a machine that Azure has, in any power state: it may restart, be
	// deallocated, be updated, or have trouble of its own. None of these deletes it.
	FateExists Fate = "Exists"
	// FateAlive is of a Node whose kubelet renewed its Lease just now. Whatever Azure
	// answers, the machine exists.
	FateAlive Fate = "Alive"
	// FateJoins is of a machine that was admitted just now, whose kubelet has not reported
	// since, and that Azure does not show. Its proof shows that it exists.
	FateJoins Fate = "Joins"
	// FateUnknown is of a machine that Azure could not be asked for, or not wholly.
	FateUnknown Fate = "Unknown"
	// FateWaits is of a machine that has to be asked for by itself before more is said.
	FateWaits Fate = "Waits"
	// FateGone is of a machine that Azure does not have any more.
	FateGone Fate = "InstanceGone"
	// FateReplaced is of a machine in whose place, under the same instance id, Azure
	// has another one.
	FateReplaced Fate = "InstanceReplaced"
)

func (f Fate) dead() bool { return f == FateGone || f == FateReplaced }

// joinsFor is how long an admitted machine may take to its kubelet's first report, where
// the token's lifetime is unknown.
const joinsFor = 10 * time.Minute

// leaseFresh is how long after its renewal a Lease shows that a kubelet lives: more than
// the 50 s after which Kubernetes itself takes a node for lost
// (--node-monitor-grace-period), so that Ready and a fresh Lease rarely differ.
const leaseFresh = time.Minute

// A poolSeen is what a round saw of an admitted scale set.
type poolSeen struct {
	// listed means that members is complete. Without it, and without gone, nothing is
	// known.
	listed  bool
	members map[string]fleet.Member // by instance, lower case
	// gone counts the rounds, this one included, in which two requests found no such scale
	// set. One answer is not enough.
	gone int
}

// roundsGone is how many of them it takes.
const roundsGone = 2

// A look is the result of reading one instance.
type look struct {
	member fleet.Member
	err    error
}

// decideReap returns what becomes of a node, before (l is nil) and after its instance was
// read by itself. pool is that of place(node); it is nil for one that is not admitted here.
// read is when the node was read, or before. joins is a token's lifetime.
//
// A Node is deleted for one reason: its machine does not exist, by an answer about that
// machine alone that was requested after the Node was read. The list of the scale set only
// selects which instances to read.
//
// Uniform scale sets reuse an instance id that counts up, and with it the computer name, so
// that the Node of the new machine has the name and the provider id of the old one's; the
// vmId separates them. If it is not the admitted one, the old machine's Node is stale: no
// kubelet updates it, its pods run nowhere, and its capacity, taints and addresses are
// another machine's. If it stayed, the new machine's kubelet would take it over with all of
// that, and its pods would seem to run. So it is deleted with its token and its admission,
// like that of a deleted machine, and the new machine joins as a first one. A renewed Lease
// forbids that too: another process uses the old machine's identity, and deleting the Node
// would only let it register again; it is reported in the log (FateAlive). A reimaged
// machine keeps its vmId, and so its Node.
//
// Between its proof and its kubelet's first report a machine has no sign of life, and
// Azure's answers are most outdated for new instances. For its token's lifetime it is left
// alone where Azure merely does not show it, but not where Azure shows another machine in
// its place.
func decideReap(node AdmittedNode, pool *poolSeen, l *look, read time.Time, joins time.Duration) Fate {
	if pool == nil {
		return FateForeign
	}
	instance, _ := place(node)
	other := l != nil && l.err == nil // another machine has its place
	if l == nil {
		switch {
		case pool.gone >= roundsGone:
		case !pool.listed:
			return FateUnknown
		default:
			m, there := pool.members[keyOf(instance)]
			if there && !replaced(node, m) {
				return FateExists
			}
			other = there
		}
	} else {
		switch {
		case l.err == nil && !replaced(node, l.member):
			return FateExists
		case l.err != nil && !fleet.Is(l.err, fleet.KindNotFound):
			return FateUnknown
		}
	}
	heard := node.heard()
	if read.Sub(heard) < leaseFresh {
		return FateAlive
	}
	switch {
	case !other && !heard.After(node.Admitted) && read.Sub(node.Admitted) < joins:
		return FateJoins
	case l == nil:
		return FateWaits
	case l.err == nil:
		return FateReplaced
	}
	return FateGone
}

// heard is when the Node's kubelet last reported, as far as it is known: a kubelet
// registers its Node some seconds before it has a Lease, and a machine that is deleted
// meanwhile never has one.
func (n AdmittedNode) heard() time.Time {
	if !n.Exists {
		return time.Time{}
	}
	if registered := n.Created.Add(time.Second); n.Renewed.Before(registered) && !n.Created.IsZero() {
		return registered // it has no fraction of a second
	}
	return n.Renewed
}

// replaced reports whether a member is another machine than the node's. Where one of
// the two is not known, it is not.
func replaced(node AdmittedNode, m fleet.Member) bool {
	return node.VMID != "" && m.VMID != "" && !strings.EqualFold(node.VMID, m.VMID)
}

// place returns a node's instance and its scale set; both are "" where unknown. The
// admission has them, and otherwise the provider id, for Uniform scale sets only: the id of
// a virtual machine does not name its scale set, and a deleted machine cannot be read.
func place(node AdmittedNode) (instance, pool fleet.ResourceID) {
	path, azures := strings.CutPrefix(node.ProviderID, "azure://")
	switch {
	case node.Instance != "" && azures && !node.Instance.Equal(fleet.ResourceID(path)):
		return "", "" // a Node of the admitted name that is another instance's
	case node.Instance != "":
		return node.Instance, node.Pool
	case !azures:
		return "", ""
	}
	instance, err := fleet.ParseProviderID(node.ProviderID)
	if err != nil {
		return "", ""
	}
	return instance, instance.UniformPool()
}

// ReaperConfig configures garbage collection.
type ReaperConfig struct {
	Admissions Admissions
	// Members is asked with azure.LimitMembers about it, if it is to stay within
	// Azure's limits.
	Members azure.Members
	// Pools are the scale sets whose instances are admitted; no other's Nodes are
	// touched, but for those of their canaries.
	Pools []fleet.ResourceID
	// Interval is from the end of a round to the begin of the next; 0 is DefaultReapInterval.
	Interval time.Duration
	// Joins is how long a machine may take from its admission to its kubelet's first
	// report: its token's lifetime; 0 is 10 minutes.
	Joins time.Duration
	// Lead calls run while this process is the one that reaps, and ends its context
	// when it is not any more; nil is always. Two that reap at once do no harm.
	Lead    func(ctx context.Context, run func(context.Context)) error
	Log     *slog.Logger
	Audit   *slog.Logger          // of deletions; nil is Log
	Metrics prometheus.Registerer // nil registers nowhere
	Now     func() time.Time      // nil is time.Now
}

// DefaultReapInterval is --reap-interval's default.
const DefaultReapInterval = time.Minute

// maxLooks is how many instances a round asks for by themselves: what is left waits
// for the next round, so that a scale set of a thousand that went away does not take
// all that Azure lets the subscription ask.
const maxLooks = 200

// A Reaper garbage-collects nodes that left without a report: see decideReap.
type Reaper struct {
	config ReaperConfig
	gone   map[string]int // rounds in which a scale set was not found, by key
	reaped *prometheus.CounterVec
	rounds *prometheus.CounterVec
	known  *prometheus.GaugeVec
}

// alone leads where no other replica runs.
func alone(ctx context.Context, run func(context.Context)) error {
	run(ctx)
	return ctx.Err()
}

// NewReaper makes a garbage collector.
func NewReaper(c ReaperConfig) (*Reaper, error) {
	if c.Admissions == nil || c.Members == nil || len(c.Pools) == 0 {
		return nil, &fleet.Error{Op: "start the reaper", Kind: fleet.KindInvalid, Err: errors.New("no admissions, members or scale set")}
	}
	for _, pool := range c.Pools {
		c.Pools = append(slices.Clip(c.Pools), fleet.CanaryOf(pool))
	}
	if c.Interval <= 0 {
		c.Interval = DefaultReapInterval
	}
	if c.Joins <= 0 {
		c.Joins = joinsFor
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Audit = cmp.Or(c.Audit, c.Log)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Lead == nil {
		c.Lead = alone
	}
	r := &Reaper{config: c, gone: map[string]int{},
		reaped: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ortet_admission_reaped_total", Help: "What machines left behind and was deleted, by why: InstanceGone or InstanceReplaced."}, []string{"reason"}),
		rounds: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ortet_admission_reaper_rounds_total", Help: "Rounds of the reaper by how they went: ok or failed, where something could not be found out."}, []string{"outcome"}),
		known:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "ortet_admission_machines", Help: "Machines that the cluster holds something of, as the last round of the reaper found them: by fate."}, []string{"fate"}),
	}
	if err := register(c.Metrics, r.reaped, r.rounds, r.known); err != nil {
		return nil, fmt.Errorf("register the reaper's metrics: %w", err)
	}
	return r, nil
}

// Run does a round at every interval until ctx ends, and returns its error then.
func (r *Reaper) Run(ctx context.Context) error {
	return r.config.Lead(ctx, func(ctx context.Context) {
		for ctx.Err() == nil {
			if err := r.Round(ctx); err != nil && ctx.Err() == nil {
				r.config.Log.WarnContext(ctx, "the reaper left something alone that it could not find out about", "error", err)
			}
			t := time.NewTimer(r.config.Interval)
			select {
			case <-t.C:
			case <-ctx.Done():
			}
			t.Stop()
		}
	})
}

// Round reads all that was admitted once, and deletes what is left of deleted machines. An
// error lists what could not be read or deleted; the rest was done. It is for one goroutine
// at a time.
func (r *Reaper) Round(ctx context.Context) (err error) {
	defer func() {
		outcome := "ok"
		if err != nil {
			outcome = "failed"
		}
		r.rounds.WithLabelValues(outcome).Inc()
	}()
	// Leases are as old as this, also at the end of a long round.
	read := r.config.Now()
	nodes, err := r.config.Admissions.Admitted(ctx)
	if err != nil {
		return fmt.Errorf("reap: %w", err)
	}
	pools, errs := r.see(ctx, nodes)
	fates := map[Fate]int{}
	looks := 0
	for _, node := range nodes {
		instance, of := place(node)
		pool := pools[keyOf(of)]
		fate := decideReap(node, pool, nil, read, r.config.Joins)
		if fate == FateAlive {
			r.config.Log.InfoContext(ctx, "a Node is alive whose machine Azure does not have under its instance id", "node", node.Name, "instance", string(instance), "vmId", node.VMID)
		}
		if fate == FateWaits && looks < maxLooks && ctx.Err() == nil {
			looks++
			m, err := r.config.Members.Member(ctx, instance)
			if fate = decideReap(node, pool, &look{m, err}, read, r.config.Joins); fate == FateUnknown {
				errs = append(errs, err)
			}
			if fate.dead() {
				if err := r.reap(ctx, node, instance, fate); err != nil {
					errs = append(errs, err)
				}
			}
		}
		fates[fate]++
	}
	for _, f := range []Fate{FateForeign, FateExists, FateAlive, FateJoins, FateUnknown, FateWaits, FateGone, FateReplaced} {
		r.known.WithLabelValues(string(f)).Set(float64(fates[f]))
	}
	return errors.Join(errs...)
}

// see lists the admitted scale sets that there is something to reap of. Power states are
// not asked for, since a machine in any of them exists, and Azure counts the instance
// views in a list one by one (Microsoft.Compute/VMScaleSetVMViews3Min).
func (r *Reaper) see(ctx context.Context, nodes []AdmittedNode) (map[string]*poolSeen, []error) {
	seen := map[string]*poolSeen{}
	var errs []error
	for _, pool := range r.config.Pools {
		key := keyOf(pool)
		if seen[key] != nil {
			continue
		}
		s := &poolSeen{members: map[string]fleet.Member{}}
		seen[key] = s
		if !slices.ContainsFunc(nodes, func(n AdmittedNode) bool { _, of := place(n); return pool.Equal(of) }) {
			delete(r.gone, key)
			continue // nothing is decided about it
		}
		list, err := r.config.Members.Members(ctx, pool, false)
		if fleet.Is(err, fleet.KindNotFound) {
			list, err = r.config.Members.Members(ctx, pool, false)
		}
		switch {
		case err == nil:
			s.listed = true
			for _, m := range list {
				s.members[keyOf(m.Instance)] = m
			}
			delete(r.gone, key)
		case fleet.Is(err, fleet.KindNotFound):
			r.gone[key]++
			s.gone = r.gone[key]
		default:
			delete(r.gone, key)
			errs = append(errs, err)
		}
	}
	return seen, errs
}

// reap deletes, unless something changed since the node was read, and writes the audit
// log's line.
func (r *Reaper) reap(ctx context.Context, node AdmittedNode, instance fleet.ResourceID, fate Fate) error {
	deleted, err := r.config.Admissions.Reap(ctx, node)
	attributes := []slog.Attr{
		slog.String("operation", "reap"), slog.String("decision", "deleted"), slog.String("reason", string(fate)),
		slog.String("node", node.Name), slog.String("instance", string(instance)), slog.String("vmId", node.VMID), slog.Bool("registered", node.Exists),
	}
	level := slog.LevelInfo
	switch {
	case err != nil:
		level, attributes[1] = slog.LevelWarn, slog.String("decision", "failed")
		attributes = append(attributes, slog.String("cause", err.Error()))
	case !deleted: // it changed meanwhile: the next round reads it again
		attributes[1] = slog.String("decision", "changed")
	default:
		r.reaped.WithLabelValues(string(fate)).Inc()
	}
	r.config.Audit.LogAttrs(ctx, level, "admission", attributes...)
	return err
}
