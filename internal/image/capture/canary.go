package capture

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/clones"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

const (
	canaryLife = 24 * time.Hour
	emptyFor   = time.Minute      // of the drains of all clones at the end
	evictFor   = 20 * time.Second // of one, when it is cordoned
	maxSetName = 64               // of a scale set of Linux machines
)

// judged returns why the version needs no canary.
func (v view) judged(q Request, s state) string {
	return cmp.Or(
		workflow.SkipIf(q.Canary == 0, "not requested"),
		workflow.SkipIf(s.NoCanary != "", "it cannot be made"),
		workflow.SkipIf(v.published() && s.ModelChanged, "the model uses the version"),
		workflow.SkipIf(v.published() && v.resume.Version.Tags[fleet.TagCanary] != "" && !plan.IsUnjudged(*v.resume.Version), "clones of it came up"))
}

// canary creates the scale set. If it is optional and Azure refuses it for good, as by a
// policy, it is left out.
func (c *capture) canary(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	if c.get().NoCanary != "" {
		return done, nil
	}
	w, err := c.makeCanary(ctx, p)
	if c.req.CanaryIfPossible && fleet.Is(err, fleet.KindDenied, fleet.KindInvalid, fleet.KindUnsupported) {
		c.leaveOut(err.Error(), p.Note)
		return done, nil
	}
	return w, err
}

// makeCanary does not wait for Azure's operation, which ends once each machine has reported: an
// image that does not boot would hold up its deletion.
func (c *capture) makeCanary(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	id := fleet.CanaryOf(s.Pool)
	set, err := c.Cloud.Pool(ctx, id)
	_, _, ours := set.Canary()
	deletes := fleet.DeleteScaleSet{Pool: id, Force: true}
	switch {
	case fleet.IgnoreNotFound(err) != nil:
		return done, err
	case err == nil && !ours:
		return done, fleet.Invalid("create canary", string(id), "rename or delete it", "a scale set of this name exists that Ortet did not make")
	case err == nil && set.Tags[fleet.TagCapture] == c.name && set.ProvisioningState != plan.Deleting:
		return done, nil
	case err == nil: // another capture left it
		return workflow.GoOn(p.Ensure(ctx, deletes, workflow.Gone(c.Cloud.Pool, id, nil)))
	}
	change, err := c.newCanary(ctx, p, id)
	if err != nil {
		return done, err
	}
	return p.Ensure(ctx, change, func(ctx context.Context) (bool, error) {
		set, err := c.Cloud.Pool(ctx, id)
		return err == nil && set.Tags[fleet.TagCapture] == c.name, fleet.IgnoreNotFound(err)
	})
}

// newCanary makes clones of what new nodes will be.
func (c *capture) newCanary(ctx context.Context, p *workflow.Pass, id fleet.ResourceID) (change fleet.CreateCanary, err error) {
	s := c.get()
	pool, err := c.Cloud.Pool(ctx, s.Pool)
	if err != nil {
		return change, err
	}
	if problems := c.uncloned(pool, c.knowsCustomData(), nil); len(problems) > 0 {
		return change, fleet.Invalid("create canary", string(id), problems[0].WayOut, "%s", problems[0].What)
	}
	now := c.Cloud.Now().UTC()
	host := regexp.MustCompile(`[^a-z0-9-]+`).ReplaceAllString(strings.ToLower(s.Pool.Name()), "-")
	change = fleet.CreateCanary{
		ID: id, Pool: s.Pool, Image: s.Names.Version, Instances: c.req.Canary,
		HostPrefix: host[:min(len(host), 40)] + now.Format("-c0102150405"), // a Node's name is never used twice
		Protected:  map[string]fleet.Secret{},
		Tags:       c.tags(map[string]string{fleet.TagCanary: now.Add(canaryLife).Format(time.RFC3339)}),
	}
	if sha := c.clonesCustomData(); sha != "" {
		data, err := CustomData(ctx, c.Cluster, s.Pool, sha)
		if err != nil {
			return change, err
		}
		change.CustomData = &data
	}
	deleted, _ := c.req.Extensions.ToDelete(pool.Model.Extensions)
	change.Without = fleet.Each(deleted, func(e fleet.Extension) string { return e.Name })
	for _, e := range pool.Model.Extensions {
		sha := c.protectedSettings(e)
		switch {
		case slices.Contains(change.Without, e.Name):
		case strings.HasPrefix(strings.ToLower(e.Type), "applicationhealth"): // it is for repairs and upgrades
			change.Without = append(change.Without, e.Name)
		case sha == plan.NoSettings:
		case sha == "":
			change.Without = append(change.Without, e.Name)
			p.Note("clones are made without extension %s, whose protected settings Azure does not show", e.Name)
		default:
			kept, err := c.Cluster.GetSecret(ctx, s.Pool, string(wire.ProtectedSettings), sha)
			if err != nil {
				return change, err
			}
			change.Protected[e.Name] = kept.Data
		}
	}
	return change, nil
}

// clonesCustomData is the SHA-256 of the customData that new nodes of the version will have.
func (c *capture) clonesCustomData() string {
	s := c.get()
	if c.req.Bakes() {
		return plan.NoopSHA256
	}
	return cmp.Or(s.CustomData, s.LastCustomData)
}

func (c *capture) knowsCustomData() bool { return c.clonesCustomData() != "" || c.get().NoCustomData }

// protectedSettings is the SHA-256 of an extension's protected settings; plan.NoSettings if it
// needs none to be given, "" if they are not known.
func (c *capture) protectedSettings(e fleet.Extension) string {
	if !e.HasProtectedSettings || e.KeyVault != nil {
		return plan.NoSettings
	}
	if o := c.get().Original; o != nil {
		return plan.OriginalExtensions([]fleet.Extension{e}, o.Extensions)[0].ProtectedSHA256
	}
	return ""
}

// uncloned returns what of new nodes no clone can be given, since Azure does not show it. saved
// are the handlers whose protected settings are about to be kept.
func (c *capture) uncloned(pool fleet.Pool, customData bool, saved []string) (p plan.Problems) {
	on, without := string(pool.ID), workflow.SkipIf(c.req.PublishOnly, "capture without --canary")
	p.Refuse(!customData, "CanaryCannotBoot", on, "which customData its new nodes get is not known: Azure does not show it, and the donor's disk does not have it",
		cmp.Or(without, "capture with --bootstrap baked, or without --canary"))
	deleted, _ := c.req.Extensions.ToDelete(pool.Model.Extensions)
	for _, e := range pool.Model.Extensions {
		goes := slices.ContainsFunc(deleted, func(d fleet.Extension) bool { return d.Name == e.Name })
		handler := plan.OriginalExtension{Extension: e}.Handler()
		known := c.protectedSettings(e) != "" || slices.ContainsFunc(saved, func(name string) bool {
			return strings.EqualFold(name, handler) || strings.EqualFold(name, handler+"/"+e.Name)
		})
		p.Refuse(plan.Bootstraps(e) && !goes && !known, "CanaryNeedsExtension", on,
			"its extension "+e.Name+" bootstraps new nodes, and its protected settings are not known: Azure does not show them",
			cmp.Or(without, "let the capture delete it (--extensions), or capture without --canary"))
	}
	return p
}

// canaryProblems are the reasons why a canary cannot be made, as far as they can be known before
// the donor is touched. What could not be read is none: it may be read the next time.
func (c *capture) canaryProblems(ctx context.Context, pool fleet.Pool, resume plan.ResumePlan, note func(format string, args ...any)) (p, unread plan.Problems) {
	unreadable := func(on string, err error) {
		if fleet.Is(err, fleet.KindDenied) {
			p.Unreadable(on, err)
		} else {
			unread.Unreadable(on, err)
		}
	}
	on, id := string(pool.ID), fleet.CanaryOf(pool.ID)
	n, soak := c.req.Canary, c.req.CanarySoak
	p.Refuse(n < 0 || n > fleet.MaxCanary, "BadNumber", "--canary", fleet.Count(int(n), "clone"), fmt.Sprintf("give 0 to %d", fleet.MaxCanary))
	p.Refuse(soak < 0 || soak > plan.MaxSoak, "BadNumber", "--canary-soak", soak.String(), "give at most "+plan.MaxSoak.String())
	p.Refuse(len(id.Name()) > maxSetName, "CanaryName", on, fmt.Sprintf("the name of its canary, %s, is longer than %d characters", id.Name(), maxSetName),
		"capture without --canary")
	set, err := c.Cloud.Pool(ctx, id)
	_, _, ours := set.Canary()
	unreadable(string(id), err)
	p.Refuse(err == nil && !ours, "ForeignScaleSet", string(id), "a scale set with the name of the canary exists that Ortet did not make",
		"rename or delete it, or capture without --canary")
	assigned := slices.ContainsFunc(pool.Joins, func(j fleet.Join) bool { return j.Action == azure.AssignIdentity })
	p.Refuse(pool.SystemIdentity && !assigned, "CanaryIdentity", on, "its nodes have a system-assigned identity only: a canary's would be another, without roles",
		"give the pool a user-assigned identity, or capture without --canary")
	denied, err := c.Cloud.Denied(ctx, pool.ID.Group(), azure.ActionsIn(pool, azure.CanaryChanges()))
	unreadable("what "+string(pool.ID.Group())+" allows", err)
	p.Denied(pool.ID.Group(), denied, nil)
	for _, j := range pool.Joins {
		denied, err := c.Cloud.Denied(ctx, j.Resource, []string{j.Action})
		unreadable("what "+string(j.Resource)+" allows", err)
		p.Refuse(len(denied) > 0, "AzureDenied", string(j.Resource), "these credentials may not do "+j.Action+", which making a clone needs",
			"grant them a role with this action on it, or capture without --canary")
	}
	cost, fits := c.quota(ctx, pool)
	p.Refuse(!fits, "CanaryQuota", on, "its canary has no room in the quota: "+cost, "raise the subscription's quota, or capture without --canary")
	if resume.From >= plan.AtGeneralized {
		p = append(p, c.uncloned(pool, c.knowsCustomData(), nil)...)
	}
	if sha := c.clonesCustomData(); sha != "" {
		_, err := CustomData(ctx, c.Cluster, pool.ID, sha)
		lost := fleet.Is(err, fleet.KindNotFound) && resume.From >= plan.AtGeneralized
		p.Refuse(lost, "CanaryCannotBoot", on, "the customData that its new nodes get is not kept (SHA-256 "+sha+")",
			"capture with --bootstrap baked, or without --canary")
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
	return p, unread
}

// quota says what the clones take of which quota, and whether there is room: of an instance mix,
// for clones of one of the sizes (inferred). What cannot be read is no reason to refuse: sizes
// and usages need rights on the subscription.
func (c *capture) quota(ctx context.Context, pool fleet.Pool) (cost string, fits bool) {
	n, subscription, names := c.req.Canary, pool.ID.Segment("subscriptions"), pool.NewSizes()
	cost = fmt.Sprintf("the canary takes %d × %s for about %.0f minutes", n, strings.Join(names, " or "), math.Ceil((3*time.Minute + c.req.CanarySoak).Minutes()))
	sizes := c.lookUp(ctx, pool, names...)
	usages, err := c.Cloud.Usages(ctx, subscription, pool.Location)
	var needs, used []string
	for _, name := range names {
		size := sizes[strings.ToLower(name)]
		if err != nil || size.VCPUs == 0 {
			return cost + "; whether the quota of vCPUs has room could not be read", true
		}
		quotas := []string{size.Family, "cores"}
		if pool.Spot {
			quotas = []string{"lowPriorityCores"}
		}
		room := true
		for _, quota := range quotas {
			if u, known := usages[strings.ToLower(quota)]; known {
				if text := fmt.Sprintf("%d of %d %s", u.Used, u.Limit, quota); !slices.Contains(used, text) {
					used = append(used, text)
				}
				room = room && u.Used+n*size.VCPUs <= u.Limit
			}
		}
		needs, fits = append(needs, fmt.Sprint(n*size.VCPUs)), fits || room
	}
	return fmt.Sprintf("%s, %s vCPUs; in use are %s", cost, strings.Join(slices.Compact(needs), " or "), strings.Join(used, " and ")), fits
}

// mayClone refuses a canary that cannot be made, or leaves it out if it is optional.
func (c *capture) mayClone(problems plan.Problems, note func(format string, args ...any)) plan.Problems {
	if len(problems) == 0 || !c.req.CanaryIfPossible {
		return problems
	}
	c.leaveOut(problems[0].What, note)
	return nil
}

func (c *capture) leaveOut(why string, note func(format string, args ...any)) {
	c.set(func(s *state) { s.NoCanary = "no canary: " + why })
	note("no canary: %s", why)
}

// inspectedForCanary adds what the inspection of the donor's disk says of its clones. Protected
// settings on it are learned only as the original's.
func (c *capture) inspectedForCanary(ctx context.Context, report wire.GeneralizeReport) (p plan.Problems, err error) {
	if c.req.Canary == 0 || c.get().NoCanary != "" {
		return nil, nil
	}
	pool, err := c.Cloud.Pool(ctx, c.get().Pool)
	if err != nil {
		return nil, err
	}
	saved, unread := slices.Clone(report.NoProtected), false
	for _, text := range report.Unsaved {
		what, readable := strings.CutSuffix(text, ": "+wire.NoSealKey)
		kind, name, _ := strings.Cut(what, " ")
		if readable && kind == string(wire.ProtectedSettings) {
			saved = append(saved, name)
		}
		unread = unread || !readable && strings.HasPrefix(text, string(wire.CustomData))
	}
	if !c.get().LearnsOriginal {
		saved = nil
	}
	return c.mayClone(c.uncloned(pool, !unread || c.knowsCustomData(), saved), c.Note), nil
}

func (c *capture) deleteCanary(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	w, err := c.deleteClones(ctx, p)
	if err == nil && w.RequeueAfter == 0 {
		err = c.deleteTests(ctx)
	}
	return w, err
}

// deleteClones deletes the scale set once what was scheduled there before its nodes were cordoned
// has left.
func (c *capture) deleteClones(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	id := fleet.CanaryOf(c.get().Pool)
	deletes := fleet.DeleteScaleSet{Pool: id, Force: true}
	set, err := c.Cloud.Pool(ctx, id)
	switch {
	case err == nil && set.Tags[fleet.TagCapture] != c.name:
		return done, nil
	case err == nil && set.ProvisioningState != plan.Deleting:
		if c.emptyCanary(ctx, id); ctx.Err() != nil {
			return done, context.Cause(ctx)
		}
		p.Preempts(deletes)
	}
	return p.Ensure(ctx, deletes, workflow.Gone(c.Cloud.Pool, id, nil))
}

// emptyCanary evicts pods from the clones. What fails is no reason to leave them there.
func (c *capture) emptyCanary(ctx context.Context, id fleet.ResourceID) {
	end := c.Now().Add(emptyFor)
	all, _ := clones.Pair(ctx, c.Cloud, c.Cluster, id)
	for _, x := range all {
		if left := end.Sub(c.Now()); x.Node != nil && left > 0 {
			if err := clones.SetAside(ctx, c.Cluster, c.Log, *x.Node, left); err != nil {
				c.Log.Debug("cannot cordon a clone", "node", x.Node.Name, "error", err)
			}
		}
	}
}

// publish tags the version, and includes it in the definition's latest unless the request
// excludes it.
func (c *capture) publish(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	id, value := s.Names.Version, ""
	if s.Proved {
		value = c.Cloud.Now().UTC().Format(time.RFC3339)
	}
	v, err := c.Cloud.Version(ctx, id)
	if err != nil {
		return done, err
	}
	tags := map[string]string{}
	judged := s.Proved || plan.IsUnjudged(v) // else an earlier capture decided on proof and latest
	if judged {
		tags[fleet.TagCanary] = value
	}
	if !c.req.PublishOnly {
		maps.Copy(tags, plan.WentLive())
	}
	latest := judged && !c.req.ExcludeFromLatest && !plan.AgainNamed(id.Name()) && !s.Excluded
	var change fleet.Change = fleet.TagVersion{ID: id, Tags: tags}
	if latest && v.ExcludeFromLatest {
		change = fleet.PublishVersion{ID: id, Tags: tags}
	}
	return p.Ensure(ctx, change, func(ctx context.Context) (bool, error) {
		v, err := c.Cloud.Version(ctx, id)
		return err == nil && v.ProvisioningState == plan.Succeeded && !plan.IsUnjudged(v) && (c.req.PublishOnly || !plan.IsMarked(v)) &&
			(!judged || (v.Tags[fleet.TagCanary] != "") == s.Proved) && !(latest && v.ExcludeFromLatest), err
	})
}
