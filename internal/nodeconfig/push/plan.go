package push

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/workflow"
)

// Plan says what a push would do, and changes nothing. Where a push would be refused, the
// error is *workflow.Refused, and the plan is given all the same.
func (r *Rollout) Plan(ctx context.Context, pool fleet.ResourceID, c nodeconfig.Config) (*Plan, error) {
	o, err := r.observe(ctx, pool)
	if err != nil {
		return nil, err
	}
	digest, err := c.Digest()
	if err != nil {
		return nil, err
	}
	o.believeSigners()
	next, tooHigh := o.next()
	p := &Plan{Pool: o.pool, Generation: next, Nodes: nodesOf(o.members), Changes: []nodeconfig.Change{}}
	note := func(format string, args ...any) { p.Notes = append(p.Notes, fmt.Sprintf(format, args...)) }
	var old nodeconfig.Config
	if o.document != nil {
		old, p.From = o.document.Config, o.document.Generation
	}
	p.Changes = append(p.Changes, nodeconfig.Changes(old, c)...)
	for _, change := range p.Changes {
		p.Restarts = append(p.Restarts, change.Restarts...)
	}
	slices.Sort(p.Restarts)
	p.Restarts = slices.Compact(p.Restarts)
	if o.foreign != "" {
		note("the model's userData is not Ortet's (%s): a push is refused without --replace-user-data", o.foreign)
	}
	h, reached, notReady := o.history.newest(), 0, 0
	for _, m := range o.members {
		if m.has(h.Generation) {
			reached++
		}
		if !m.Ready {
			notReady++
		}
	}
	if h.Digest == digest && h.Generation == o.newest() {
		switch failed, refused := o.failed(h.Generation); {
		case len(failed) > 0:
			note("generation %d has this configuration, and %s failed it: a push needs --retry", h.Generation, nodes(len(failed)))
		case !refused:
			p.Generation = h.Generation
			if reached < len(o.members) {
				note("generation %d has this configuration, and %d of %s have it: a push goes on with it", h.Generation, reached, nodes(len(o.members)))
			}
		}
	}
	if notReady > 0 {
		note("%d node(s) are not Ready: their agents apply the configuration once they run", notReady)
	}
	for _, why := range o.nobodies[:min(len(o.nobodies), maxShown)] {
		note("%s: it counts as no node of the pool", why)
	}
	if len(o.without) > 0 {
		note("%d instance(s) have no Node: they get the userData, and no answer is awaited", len(o.without))
	}
	for _, problem := range o.reportProblems() {
		note("%s: %s; a push is refused, unless the userData of its instance has such a document", problem.On, problem.What)
	}
	n := len(o.members)
	p.Expected = Expected(n, 1, assumedTime)
	if n > 4 {
		note("with --max-unavailable 25%%: about %s", took(Expected(n, n/4, assumedTime)))
	}
	problems, err := r.check(ctx, o, c)
	if err != nil {
		return nil, err
	}
	var refused *workflow.Refused
	if errors.As(tooHigh, &refused) {
		problems = append(problems, refused.Problems...)
	}
	if problems = append(o.problems(), problems...); len(problems) > 0 {
		return p, &workflow.Refused{Problems: problems}
	}
	return p, nil
}
