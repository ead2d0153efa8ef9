package canary

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

const maxSetName = 64 // of a scale set of Linux machines

// uncloned returns what of new nodes no clone can be given, since Azure does not show it. saved
// are the handlers whose protected settings are about to be kept.
func (v Version) uncloned(pool fleet.Pool, customData bool, saved []string) (p plan.Problems) {
	on, without := string(pool.ID), workflow.SkipIf(v.Request.PublishOnly, "capture "+v.Request.WithoutCanary())
	p.Refuse(!customData, "CanaryCannotBoot", on, "which customData its new nodes get is not known: Azure does not show it, and the donor's disk does not have it",
		cmp.Or(without, "capture with --bootstrap baked, or "+v.Request.WithoutCanary()))
	deleted, _ := v.Request.Extensions.ToDelete(pool.Model.Extensions)
	for _, e := range pool.Model.Extensions {
		goes := slices.ContainsFunc(deleted, func(d fleet.Extension) bool { return d.Name == e.Name })
		handler := plan.OriginalExtension{Extension: e}.Handler()
		known := v.protectedSettings(e) != "" || slices.ContainsFunc(saved, func(name string) bool {
			return strings.EqualFold(name, handler) || strings.EqualFold(name, handler+"/"+e.Name)
		})
		p.Refuse(plan.Bootstraps(e) && !goes && !known, "CanaryNeedsExtension", on,
			"its extension "+e.Name+" bootstraps new nodes, and its protected settings are not known: Azure does not show them",
			cmp.Or(without, "let the capture delete it (--extensions), or capture "+v.Request.WithoutCanary()))
	}
	return p
}

// Problems are the reasons why a canary cannot be made, as far as they can be known before
// the donor is touched. What could not be read is none: it may be read the next time.
func (c *Canary) Problems(ctx context.Context, pool fleet.Pool, resume plan.ResumePlan, note func(format string, args ...any)) (p plan.Problems) {
	v, unread := c.Of(), plan.Problems{}
	unreadable := func(on string, err error) {
		if fleet.Is(err, fleet.KindDenied) {
			p.Unreadable(on, err)
		} else {
			unread.Unreadable(on, err)
		}
	}
	on, id := string(pool.ID), fleet.CanaryOf(pool.ID)
	n, soak, without := v.Request.Canary, v.Request.CanarySoak, v.Request.WithoutCanary()
	p.Refuse(n < 0 || n > fleet.MaxCanary, "BadNumber", "--canary", fleet.Count(int(n), "clone"), fmt.Sprintf("give 0 to %d", fleet.MaxCanary))
	p.Refuse(soak < 0 || soak > plan.MaxSoak, "BadNumber", "--canary-soak", soak.String(), "give at most "+plan.MaxSoak.String())
	p.Refuse(len(id.Name()) > maxSetName, "CanaryName", on, fmt.Sprintf("the name of its canary, %s, is longer than %d characters", id.Name(), maxSetName),
		"capture "+without)
	set, err := c.Cloud.Pool(ctx, id)
	_, _, ours := set.Canary()
	unreadable(string(id), err)
	p.Refuse(err == nil && !ours, "ForeignScaleSet", string(id), "a scale set with the name of the canary exists that Ortet did not make",
		"rename or delete it, or capture "+without)
	assigned := slices.ContainsFunc(pool.Joins, func(j fleet.Join) bool { return j.Action == azure.AssignIdentity })
	p.Refuse(pool.SystemIdentity && !assigned, "CanaryIdentity", on, "its nodes have a system-assigned identity only: a canary's would be another, without roles",
		"give the pool a user-assigned identity, or capture "+without)
	denied, err := c.Cloud.Denied(ctx, pool.ID.Group(), azure.ActionsIn(pool, azure.CanaryChanges()))
	unreadable("what "+string(pool.ID.Group())+" allows", err)
	p.Denied(pool.ID.Group(), denied, nil)
	for _, j := range pool.Joins {
		denied, err := c.Cloud.Denied(ctx, j.Resource, []string{j.Action})
		unreadable("what "+string(j.Resource)+" allows", err)
		p.Refuse(len(denied) > 0, plan.CodeAzureDenied, string(j.Resource), "these credentials may not do "+j.Action+", which making a clone needs",
			"grant them a role with this action on it, or capture "+without)
	}
	cost, fits := c.quota(ctx, pool)
	p.Refuse(!fits, "CanaryQuota", on, "its canary has no room in the quota: "+cost, "raise the subscription's quota, or capture "+without)
	if resume.From >= plan.AtGeneralized {
		p = append(p, v.uncloned(pool, v.knowsCustomData(), nil)...)
	}
	if sha := v.CustomData; sha != "" {
		_, err := c.CustomData(ctx, sha)
		lost := fleet.Is(err, fleet.KindNotFound) && resume.From >= plan.AtGeneralized
		p.Refuse(lost, "CanaryCannotBoot", on, "the customData that its new nodes get is not kept (SHA-256 "+sha+")",
			"capture with --bootstrap baked, or "+without)
		unreadable("the customData of new nodes", err)
	}
	more, unreadTest := c.testProblems(ctx)
	p, unread = append(p, more...), append(unread, unreadTest...)
	if len(p) == 0 {
		note("%s", cost)
	}
	if len(p) == 0 && pool.SystemIdentity {
		note("the clones have the pool's user-assigned identities, and not its system-assigned one")
	}
	return append(unread, c.mayClone(p, note)...)
}

// quota says what the clones take of which quota, and whether there is room.
func (c *Canary) quota(ctx context.Context, pool fleet.Pool) (cost string, fits bool) {
	v := c.Of()
	n, names := v.Request.Canary, pool.NewSizes()
	usages, err := c.Cloud.Usages(ctx, pool.ID.Segment("subscriptions"), pool.Location)
	cost, fits = plan.Quota(pool, n, c.Sizes(ctx, pool, names...), usages, err)
	minutes := math.Ceil((3*time.Minute + v.Request.CanarySoak).Minutes())
	return fmt.Sprintf("the canary takes %d × %s for about %.0f minutes", n, strings.Join(names, " or "), minutes) + cost, fits
}

// mayClone refuses a canary that cannot be made, or leaves it out if it is optional.
func (c *Canary) mayClone(problems plan.Problems, note func(format string, args ...any)) plan.Problems {
	if len(problems) == 0 || !c.Of().Request.CanaryIfPossible {
		return problems
	}
	c.leaveOut(problems[0].What, note)
	return nil
}

func (c *Canary) leaveOut(why string, note func(format string, args ...any)) {
	c.Outcome.Set(func(o *Outcome) { o.NoCanary = "no canary: " + why })
	note("no canary: %s", why)
}

// Inspected adds what the inspection of the donor's disk says of its clones. Protected
// settings on it are learned only as the original's.
func (c *Canary) Inspected(ctx context.Context, report wire.GeneralizeReport) (p plan.Problems, err error) {
	v := c.Of()
	if v.Request.Canary == 0 || c.Outcome.Get().NoCanary != "" {
		return nil, nil
	}
	if len(v.Request.Tune) > 0 {
		c.readDonor(ctx)
	}
	pool, err := c.Cloud.Pool(ctx, v.Pool)
	if err != nil {
		return nil, err
	}
	saved, unread := slices.Clone(report.NoProtected), false
	for _, i := range report.Lacks() {
		if i.Readable && i.Kind == wire.ProtectedSettings {
			saved = append(saved, i.Name)
		}
		unread = unread || !i.Readable && i.Kind == wire.CustomData
	}
	if !v.LearnsOriginal {
		saved = nil
	}
	return c.mayClone(v.uncloned(pool, !unread || v.knowsCustomData(), saved), c.Note), nil
}
