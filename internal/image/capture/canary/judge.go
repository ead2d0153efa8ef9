package canary

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/clones"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/prove"
	"github.com/ortet/ortet/internal/workflow"
)

const (
	judgeEvery  = 10 * time.Second // from one judgement of the clones to the next
	lookEvery   = 2 * time.Second  // from one look for Nodes of clones to the next
	outageAfter = time.Minute      // without an answer of the cluster
)

// A judging is what one process knows of a canary.
type judging struct {
	clones   []fleet.Instance // as listed last
	listed   time.Time
	isolated map[string]bool          // clones, by host name
	answered time.Time                // when the cluster answered last
	outage   time.Time                // when it answered again, by its own clock
	final    prove.Judgement          // its Result is "" until there is one
	tested   map[string]prove.Finding // by clone whose test was started
	boots    map[string]prove.Boot    // by clone of a tuned version
}

// judge compares the clones with the pool's nodes. A version whose clones fail is tagged before
// the step fails: nothing makes it live again by itself.
func (c *Canary) judge(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	v, s := c.Of(), c.Outcome.Get()
	version := v.ID
	if s.NoCanary != "" {
		return done, nil
	}
	if s.Quarantine == "" {
		base, err := workflow.Before(ctx, p, func() (prove.Baseline, error) { return c.baseline(ctx) })
		if err != nil {
			return done, err
		}
		w, err := c.look(ctx, base, p.Since())
		if err != nil || w.RequeueAfter > 0 {
			return w, err
		}
		switch j := c.judging.final; j.Result {
		case prove.Passed:
			c.Outcome.Set(func(o *Outcome) { o.Proved = true })
			p.Note("%s: %s", version.Name(), j.Why)
			for _, f := range j.Findings {
				if f.Why != "" { // what could not be checked
					p.Note("%s", f.Why)
				}
			}
			return done, nil
		case prove.NoResult:
			return done, fmt.Errorf("the clones say nothing of %s: %s; run the same command again%s, which makes others", version.Name(), j.Why,
				workflow.SkipIf(v.Request.Again, " without --again"))
		default:
			s.Quarantine = j.Gate + ": " + j.Why + v.tunings("; tuned with ")
			c.Outcome.Set(func(now *Outcome) { now.Quarantine = s.Quarantine })
		}
	}
	w, err := p.Ensure(ctx, fleet.TagVersion{ID: version, Tags: plan.Quarantine(c.Cloud.Now(), s.Quarantine)}, func(ctx context.Context) (bool, error) {
		v, err := c.Cloud.Version(ctx, version)
		return err == nil && v.ProvisioningState == plan.Succeeded && v.Tags[fleet.TagQuarantine] != "" && plan.RolledBack(v), err
	})
	switch {
	case err == nil && w.RequeueAfter == 0:
		err = fmt.Errorf("%s is quarantined: %s; mend the donor and capture it with --again, or capture another node%s",
			version.Name(), s.Quarantine, workflow.SkipIf(len(v.Tuned) > 0, ", or leave --tune out"))
	case err != nil:
		err = fmt.Errorf("tag %s as quarantined, which failed %s: %w", version.Name(), s.Quarantine, err)
	}
	return w, err
}

// baseline is the pool as it is: no clone is in its scale set.
func (c *Canary) baseline(ctx context.Context) (b prove.Baseline, err error) {
	v := c.Of()
	others, err := clones.Pair(ctx, c.Cloud, c.Cluster, v.Pool)
	if err == nil {
		err = clones.Pods(ctx, c.Cluster, others, clones.MaxSiblings, nil)
	}
	o := prove.Observation{Others: others, Now: c.Cluster.Now(), AzureNow: c.Cloud.Now()}
	b = prove.NewBaseline(o, v.Tags)
	if b.Tuned = v.Tuned; len(v.Tuned) > 0 && err == nil {
		c.readDonor(ctx)
		b.DonorBoot = *c.Outcome.Get().DonorBoot
	}
	return b, err
}

// look isolates the Nodes of clones as soon as they exist, and judges the clones now and then. It
// waits until there is a final judgement. since is the time since the clones were requested.
func (c *Canary) look(ctx context.Context, base prove.Baseline, since time.Duration) (workflow.Wait, error) {
	v := c.Of()
	j, now, want := &c.judging, c.Now(), int(v.Request.Canary)
	if j.isolated == nil {
		*j = judging{isolated: map[string]bool{}, tested: map[string]prove.Finding{}, boots: map[string]prove.Boot{}, answered: now}
	}
	judges := len(j.clones) < want || now.Sub(j.listed) >= judgeEvery
	if judges {
		clones, err := c.Cloud.Instances(ctx, fleet.CanaryOf(v.Pool))
		switch {
		case fleet.Is(err, fleet.KindNotFound):
			j.final.Finding = prove.Finding{Result: prove.NoResult, Why: "others deleted their scale set"}
			return done, nil
		case err != nil:
			return done, err
		}
		j.clones, j.listed = clones, now
	}
	if err := c.isolate(ctx); err != nil {
		return done, err
	}
	if !judges {
		return workflow.In(lookEvery, "%s", j.final.Why), nil
	}
	nodes, err := clones.Nodes(ctx, c.Cluster)
	if err != nil {
		return done, err
	}
	o := prove.Observation{Clones: prove.Pair(j.clones, nodes), Soak: v.Request.CanarySoak, Now: c.Cluster.Now(), AzureNow: c.Cloud.Now()}
	o.Begun = o.AzureNow.Add(-since)
	if answered := c.Now(); answered.Sub(j.answered) > outageAfter {
		j.outage = o.Now
	}
	j.answered, o.Outage = c.Now(), j.outage
	for _, x := range o.Clones { // whose Node was registered again
		if x.Node != nil && !x.Node.Unschedulable {
			if err := clones.SetAside(ctx, c.Cluster, c.Log, *x.Node, evictFor); fleet.IgnoreNotFound(err) != nil {
				return done, err
			}
		}
	}
	if err := clones.Pods(ctx, c.Cluster, o.Clones, fleet.MaxCanary, nil); err != nil {
		return done, err
	}
	c.readBoots(ctx, o)
	verdict := prove.Judge(o, base, want)
	if verdict.Result == prove.Failed { // is it the image, or the cluster?
		if o.Others, err = clones.Pair(ctx, c.Cloud, c.Cluster, v.Pool); err == nil {
			err = clones.Pods(ctx, c.Cluster, o.Others, clones.MaxSiblings, nil)
		}
		if err != nil {
			return done, err
		}
		verdict = prove.Judge(o, base, want)
	}
	if verdict, err = c.test(ctx, o.Clones, verdict); err != nil {
		return done, err
	}
	c.Findings = verdict.Findings
	if j.final.Why = verdict.Why; verdict.Result != prove.Waits {
		j.final = verdict
		return done, nil
	}
	pause := lookEvery
	if len(j.isolated) >= want {
		pause = judgeEvery
	}
	return workflow.In(pause, "%s", verdict.Why), nil
}

// isolate finds Nodes by the clones' host names, which are known before they boot. Kubernetes
// keeps pods off a Node that is not Ready, as each is for a second or more.
func (c *Canary) isolate(ctx context.Context) error {
	for _, i := range c.judging.clones {
		name := strings.ToLower(i.HostName)
		if c.judging.isolated[name] || name == "" {
			continue
		}
		n, err := c.Cluster.Node(ctx, name)
		switch {
		case fleet.Is(err, fleet.KindNotFound):
			continue
		case err == nil && n.Claim().Is(i.Computer()) != nil: // an earlier canary's
			continue
		case err == nil:
			err = clones.SetAside(ctx, c.Cluster, c.Log, n, evictFor)
		}
		if fleet.IgnoreNotFound(err) != nil {
			return err
		}
		c.judging.isolated[name] = err == nil
	}
	return nil
}
