package operator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/api/v1alpha1"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/donors"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/renew"
	"github.com/ortet/ortet/internal/image/watch"
	"github.com/ortet/ortet/internal/schedule"
	"github.com/ortet/ortet/internal/wire"
)

// A stall is why nothing goes on for an object, with the way out.
type stall struct{ reason, message string }

// wanted is a Want with all that its runs ask for.
type wanted struct {
	Want
	pool    fleet.ResourceID
	policy  donors.Policy
	request plan.Request
	fresh   bool // donors are raised
	watch   watch.Request
	rollout renew.Request // without Window
	windows []schedule.Window
}

// days is a day of maxImageAge.
const days = 24 * time.Hour

// want reads a spec. What the API server checks is not checked again, but for what it cannot read.
func (c Config) want(p v1alpha1.ScaleSetPool) (w wanted, stalls *stall) {
	s := p.Spec
	w.pool, w.Suspend = fleet.ResourceID(s.ScaleSet), s.Suspend || p.DeletionTimestamp != nil
	rolls := s.Rollout.Mode == v1alpha1.RolloutProven
	w.Watches, w.Observes = s.Watch != nil, s.Capture == nil && s.Watch == nil && !rolls
	d := s.Donors
	w.policy = donors.Policy{
		PatchAnnotation: d.PatchAnnotation, RebootAnnotation: d.RebootAnnotation, MinReady: d.MinReady.Duration,
		MinCandidates: int(d.MinCandidates), IgnoreNodes: d.IgnoreNodes, IgnoreAnnotations: d.IgnoreAnnotations,
		Off: d.SkipRules, Self: c.Capture.SelfNode,
	}
	w.request = plan.Request{
		AllowRolling: s.AllowRolling, AllowOwned: s.AllowOwned, TakeUnjudged: true, OtherPools: c.OtherPools,
		Canary: int64(s.Canary.Clones), CanarySoak: s.Canary.Soak.Duration, CanaryIfPossible: !s.Canary.Required,
	}
	if x := s.Watch; x != nil {
		w.watch = watch.Request{
			Pool: w.pool, For: cmp.Or(x.Duration.Duration, watch.DefaultFor), Nodes: int(cmp.Or(x.Nodes, watch.DefaultNodes)),
			BadNodes: cmp.Or(strings.ToLower(string(x.BadNodes)), watch.Cordon), RestoreLearned: x.RestoreLearned,
			AllowRolling: s.AllowRolling, AllowOwned: s.AllowOwned,
		}
		w.request.RestoreLearned = x.RestoreLearned
	}
	if x := s.Capture; x != nil {
		w.policy.MaxImageAge = int(x.MaxImageAge.Duration / days)
		q := &w.request
		if w.fresh = x.Fresh; x.Patch && x.Fresh {
			q.Prepare = &plan.Preparation{}
		}
		q.Bootstrap, q.History, q.Replicas = strings.ToLower(string(x.Bootstrap)), int(x.History), x.Replicas
		q.ExcludeFromLatest = x.ExcludeFromLatest
		q.Online, q.Deallocate, q.GracePeriod, q.ForceDrain = x.Online, x.Deallocate, x.GracePeriod.Duration, x.ForceDrain
		q.AcceptPoolCredentials, q.AcceptSecrets = x.AcceptPoolCredentials, x.AcceptSecrets
		q.RemoveSecrets, q.ScanImages = x.RemoveSecrets, x.ScanImages
		tune, tuneErr := wire.ParseTunings(fleet.Each(x.Tune, func(t v1alpha1.Tuning) string { return string(t) }))
		q.Tune = tune
		q.Extensions = plan.ExtensionRule{Keep: x.Extensions.Keep,
			None: x.Extensions.Delete == v1alpha1.DeletedNone, All: x.Extensions.Delete == v1alpha1.DeletedAll}
		at, err := schedule.Parse(string(x.Schedule), cmp.Or(x.Window.Duration, 4*time.Hour), string(x.TimeZone))
		if err = cmp.Or(err, tuneErr, wire.CheckTunings(tune, q.Bootstrap == plan.BootstrapBaked), q.Extensions.Check()); err != nil {
			return w, &stall{v1alpha1.ReasonScheduleInvalid, fmt.Sprintf("spec.capture: %v", err)}
		}
		w.Capture = at
	}
	if rolls {
		w.rollout = renew.Request{
			Pool: w.pool, MaxUnavailable: s.Rollout.MaxUnavailable.String(), Soak: s.Rollout.Soak.Duration,
			DrainTimeout: cmp.Or(s.Rollout.DrainTimeout.Duration, renew.DefaultDrainTimeout),
		}
		if w.rollout.MaxUnavailable == "0" { // absent, where no CRD sets defaults
			w.rollout.MaxUnavailable = renew.DefaultMaxUnavailable
		}
		if _, err := schedule.ParseBudget(w.rollout.MaxUnavailable); err != nil {
			return w, &stall{v1alpha1.ReasonScheduleInvalid, fmt.Sprintf("spec.rollout.maxUnavailable: %v", err)}
		}
		for i, x := range s.Rollout.Windows {
			at, err := schedule.Parse(string(x.Schedule), x.Duration.Duration, string(x.TimeZone))
			if err != nil {
				return w, &stall{v1alpha1.ReasonScheduleInvalid, fmt.Sprintf("spec.rollout.windows[%d]: %v", i, err)}
			}
			w.windows = append(w.windows, at)
		}
		if len(w.windows) == 0 {
			w.windows = []schedule.Window{{}}
		}
		for _, at := range w.windows {
			w.Rollout = append(w.Rollout, at)
		}
	}
	if err := w.policy.Check(); err != nil {
		return w, &stall{"DonorsInvalid", fmt.Sprintf("spec.donors: %v", err)}
	}
	return w, nil
}

// open is the window that is open for the longest; where none is, a closed one.
func (w wanted) open(now time.Time) (longest schedule.Window) {
	last := now
	longest = w.windows[0]
	for _, at := range w.windows {
		if until, open := at.Open(now); open && (until.IsZero() || until.After(last)) {
			if longest, last = at, until; until.IsZero() {
				return longest
			}
		}
	}
	return longest
}

// standing returns why an object does not count: an older one has its scale set, or that lies outside.
func (c Config) standing(p v1alpha1.ScaleSetPool, all []v1alpha1.ScaleSetPool) *stall {
	id := fleet.ResourceID(p.Spec.ScaleSet)
	if !slices.ContainsFunc(c.Groups, id.Group().Equal) {
		return &stall{v1alpha1.ReasonOutside, "resource group " + id.Group().Name() + " is not the operator's: add it to " +
			"--resource-group (operator.resourceGroups of the chart), or delete this object"}
	}
	for _, o := range all {
		older := o.CreationTimestamp.Compare(p.CreationTimestamp.Time)
		if o.Name != p.Name && id.Equal(fleet.ResourceID(o.Spec.ScaleSet)) && (older < 0 || older == 0 && o.Name < p.Name) {
			return &stall{v1alpha1.ReasonDuplicate, "ScaleSetPool " + o.Name + " is older and has the same scale set: " +
				"delete one of them (kubectl delete ssp " + p.Name + ")"}
		}
	}
	return nil
}
