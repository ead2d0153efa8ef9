package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/workflow"
)

// Push brings the configuration to the pool's model and nodes, or goes on with a push of
// the same content. What is refused before anything changed is *workflow.Refused; a push
// that ctx ended is a *workflow.Outcome with ExitInterrupted. The result is never nil and
// says what was reached whatever the error.
func (r *Rollout) Push(ctx context.Context, pool fleet.ResourceID, o PushOptions) (*Result, error) {
	began := r.Now()
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Minute
	}
	p := &push{Rollout: r, o: o, pool: pool, members: map[string]member{}, left: map[string]Node{}, step: "preflight", perNode: assumedTime}
	err := p.run(ctx)
	result := &Result{Pool: p.pool, Generation: p.generation, ContentOf: p.contentOf, Nodes: []Node{}, Took: r.Now().Sub(began)}
	reached := 0
	for _, name := range slices.Sorted(maps.Keys(p.members)) {
		m := p.members[name]
		result.Nodes = append(result.Nodes, m.Node)
		switch id := keyOf(m.id); {
		case p.generation == 0: // refused
		case m.has(p.generation):
			reached++
			delete(p.left, id)
		case err != nil && p.left[id].Message == "" && m.about < p.generation:
			left := m.Node
			left.Message = "not reached: the push stopped before"
			if m.Wanted == p.generation {
				left.Message = "no answer yet"
			}
			p.left[id] = left
		}
	}
	for _, id := range slices.Sorted(maps.Keys(p.left)) {
		result.Left = append(result.Left, p.left[id])
	}
	var refused *workflow.Refused
	if err != nil && ctx.Err() != nil && !errors.As(err, &refused) {
		at := "nothing was changed"
		if p.generation > 0 {
			at = fmt.Sprintf("%d of %d nodes have generation %d", reached, len(p.members), p.generation)
		}
		err = &workflow.Outcome{Exit: workflow.ExitInterrupted, Step: p.step, Left: []string{at}, Err: ctx.Err()}
	}
	return result, err
}

// A push is one call of Push.
type push struct {
	*Rollout
	o          PushOptions
	pool       fleet.ResourceID
	generation int64
	contentOf  int64 // of a rollback: the generation with the same content
	userData   string
	modelHas   bool // the model has userData already
	atOnce     int  // nodes
	step       string
	perNode    time.Duration // that the last wave needed

	mu      sync.Mutex
	members map[string]member // by Node name, as last read
	left    map[string]Node   // by instance id: not awaited
}

func (p *push) run(ctx context.Context) error {
	o, canary, err := p.prepare(ctx)
	if err != nil {
		return err
	}
	reached := 0
	for _, m := range o.members {
		if m.has(p.generation) {
			reached++
		}
	}
	if p.modelHas && reached == len(o.members) && len(o.without) == 0 {
		p.report("nothing to do: generation %d is in the model and on %s", p.generation, nodes(reached))
		return nil
	}
	p.step = "canary"
	switch {
	case reached > 0:
		p.report("no canary: generation %d is on %s already", p.generation, nodes(reached))
	case canary == nil:
		p.report("no canary: the pool has no Ready Node, so only userData is changed, and no answer is awaited")
	default:
		p.report("canary %s: begin generation %d", canary, p.generation)
		out := p.reach(ctx, *canary)
		if out.err != nil {
			return p.stopped(ctx, []outcome{out}, "the model was not changed, and no other node")
		}
		if !out.m.has(p.generation) {
			return &fleet.Error{Op: "push to canary " + canary.String(), Kind: fleet.KindNotFound, Err: errors.New("it was deleted, or is not Ready any more; the model was not changed"), Remedy: "push again, which chooses another canary"}
		}
		p.perNode = max(out.took, time.Second)
		p.report("canary %s: generation %d applied after %s", canary, p.generation, took(out.took))
	}
	p.step = "model"
	if err := p.overtaken(ctx); err != nil {
		return err
	}
	if !p.modelHas {
		if err := p.setModel(ctx); err != nil {
			return err
		}
		p.report("model: new machines get generation %d", p.generation)
	}
	p.step = "waves"
	return p.waves(ctx, o)
}

// prepare runs the preflight checks and allocates the generation, or finds the one to go
// on with.
func (p *push) prepare(ctx context.Context) (*observation, *member, error) {
	o, err := p.observe(ctx, p.pool)
	if err != nil {
		return nil, nil, err
	}
	p.pool = o.pool
	if p.o.rollback {
		e, err := o.earlier(p.o.to)
		if err == nil {
			p.o.Config, err = e.config(o.pool, p.o.Key)
		}
		if err != nil {
			return nil, nil, err
		}
		p.contentOf = e.Generation
		if p.o.to == 0 && e.ContentOf > 0 {
			p.contentOf = e.ContentOf
		}
		p.report("pushing the content of generation %d to %s", p.contentOf, o.pool.Name())
	}
	if p.atOnce, err = atOnce(p.o.MaxUnavailable, len(o.members)); err != nil {
		return nil, nil, &fleet.Error{Op: "read the limit of unavailable nodes", Kind: fleet.KindInvalid, Err: err}
	}
	for _, m := range o.members {
		p.members[m.Name] = m
	}
	problems := append(o.problems(), o.keyProblems(publicOf(p.o.Key))...)
	if o.foreign != "" && !p.o.ReplaceUserData {
		problems = append(problems, foreignProblem(string(o.pool), o.foreign))
	}
	canary, canaryProblems, err := p.canary(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	nodeProblems, err := p.check(ctx, o, p.o.Config)
	if err != nil {
		return nil, nil, err
	}
	if problems = append(append(problems, canaryProblems...), nodeProblems...); len(problems) > 0 {
		return nil, nil, &workflow.Refused{Problems: problems}
	}
	return o, canary, p.allocate(ctx, o)
}

// canary chooses the first node, and sees whose its userData is.
func (p *push) canary(ctx context.Context, o *observation) (*member, []fleet.Problem, error) {
	i := slices.IndexFunc(o.members, func(m member) bool { return m.Ready && (m.Name == p.o.Canary || p.o.Canary == "") })
	if i < 0 && p.o.Canary != "" {
		return nil, []fleet.Problem{{On: "node " + p.o.Canary, Code: "BadCanary", What: "the pool has no such Node that is Ready", WayOut: "name a Ready Node of the pool with --canary, or leave it out"}}, nil
	}
	if i < 0 {
		return nil, nil, nil
	}
	chosen := &o.members[i]
	_, foreign, err := p.userDataOf(ctx, chosen.id)
	if err != nil {
		return nil, nil, err
	}
	if foreign != "" && o.foreign == "" {
		return nil, []fleet.Problem{foreignProblem("instance "+chosen.Instance, foreign)}, nil
	}
	return chosen, nil, nil
}

// userDataOf reads an instance's userData. foreign describes what a push must not replace.
func (p *push) userDataOf(ctx context.Context, id fleet.ResourceID) (userData, foreign string, err error) {
	var now instance
	err = p.ARM.Get(ctx, id, computeVersion, &now, "$expand", "userData")
	if err != nil && !fleet.Is(err, fleet.KindNotFound) {
		return "", "", err
	}
	userData = now.Properties.UserData
	if !p.o.ReplaceUserData {
		_, _, foreign = parse(userData, p.pool)
	}
	return userData, foreign, nil
}

// allocate goes on with the newest generation where it is the same content, or else
// records a new one.
func (p *push) allocate(ctx context.Context, o *observation) error {
	newest := o.newest()
	document := nodeconfig.Document{Pool: strings.ToLower(string(o.pool)), Generation: newest + 1, Keys: p.o.Keys, Config: p.o.Config}
	if len(document.Keys) == 0 && o.document != nil {
		document.Keys = o.document.Keys
	}
	digest, err := p.o.Config.Digest()
	if err != nil {
		return err
	}
	// The same document and key give the same userData.
	present, tried := document, false
	present.Generation = newest
	model := o.set.Properties.Profile.UserData
	if userData, err := present.Sign(p.o.Key); err == nil && (userData == model || userData == o.history.newest().UserData) {
		failed, refusedBy := o.failed(newest)
		if len(failed) > 0 && !p.o.Retry {
			return refused(o.pool, "FailedEarlier", fmt.Sprintf("generation %d has this configuration, and %s failed it: %s", newest, nodes(len(failed)), strings.Join(failed[:min(len(failed), maxShown)], "; ")),
				"correct the configuration; or push with --retry, which tries it again as a new generation")
		}
		// What refused a generation may be prepared by now, but tries it again only when a
		// newer one is wanted.
		if len(failed) == 0 && !refusedBy {
			p.generation, p.userData, p.modelHas = newest, userData, userData == model
			p.report("going on with generation %d, which has this configuration", newest)
			return nil
		}
		tried = true
	}
	userData, err := document.Sign(p.o.Key)
	if err != nil {
		return refused(o.pool, "CannotSign", err.Error(), "make the configuration smaller, or the keys those that the message asks for")
	}
	if err := p.record(ctx, o.pool, o.history, entry{Entry{document.Generation, digest, p.By, p.Now().UTC(), p.contentOf}, userData}); err != nil {
		return err
	}
	p.generation, p.userData = document.Generation, userData
	if tried {
		p.report("generation %d has this configuration, and a node failed or refused it: it is tried again as generation %d", newest, p.generation)
	}
	return nil
}

// overtaken fails where another push allocated a newer generation.
func (p *push) overtaken(ctx context.Context) error {
	h, err := p.readHistory(ctx, p.pool)
	if err != nil {
		return err
	}
	if e := h.newest(); e.Generation > p.generation {
		what, wayOut := overtaken(e)
		return &fleet.Error{Op: fmt.Sprintf("push generation %d", p.generation), Resource: string(p.pool), Kind: fleet.KindHeld, Err: errors.New(what), Remedy: wayOut}
	}
	return nil
}

// writer is how the scale set and its instances are changed.
func (p *push) writer() azure.Writer {
	return azure.Writer{Cloud: p.Cloud, Now: p.Now, Within: p.o.Timeout, Report: p.report}
}

// setModel gives the model the userData, unless that became another program's, or a newer
// push's, since it was read.
func (p *push) setModel(ctx context.Context) error {
	var refuse error
	now := &observation{pool: p.pool}
	_, err := p.writer().ScaleSet(ctx, p.pool, func(fleet.Pool) fleet.Change {
		if refuse = p.readModel(ctx, now); refuse == nil {
			refuse = p.mayReplace(now)
		}
		if refuse != nil || now.set.Properties.Profile.UserData == p.userData {
			return nil
		}
		return fleet.SetModelUserData{Pool: p.pool, UserData: p.userData, Etag: now.set.Etag}
	}, func(ctx context.Context, _ fleet.Pool) (bool, error) {
		err := p.readModel(ctx, now)
		return now.set.Properties.Profile.UserData == p.userData, err
	})
	return cmp.Or(refuse, err)
}

// mayReplace says why the model's userData must stay.
func (p *push) mayReplace(now *observation) error {
	if now.foreign == "" || p.o.ReplaceUserData {
		return nil
	}
	problem := foreignProblem(string(p.pool), now.foreign)
	return &fleet.Error{Op: "set the model's userData", Resource: string(p.pool), Kind: fleet.KindBlocked, Err: errors.New(problem.What), Remedy: problem.WayOut}
}

// maxMissing is how often an instance has to be missing until it counts as deleted:
// Resource Manager may lack one for seconds that was made just now.
const (
	maxMissing   = 3
	missingPause = 5 * time.Second
)

// setUserData gives an instance the userData in place of what it had at etag. gone says
// that Azure has the instance no longer.
func (p *push) setUserData(ctx context.Context, id fleet.ResourceID, etag string) (gone bool, err error) {
	for missing := 1; ; missing++ {
		err := p.writer().Do(ctx, fleet.SetUserData{Instance: id, UserData: p.userData, Etag: etag})
		if !fleet.Is(err, fleet.KindNotFound) || missing == maxMissing {
			return fleet.Is(err, fleet.KindNotFound), fleet.IgnoreNotFound(err)
		}
		select {
		case <-time.After(missingPause):
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// atOnce is how many of n nodes "3" or "25%" allows at once, 1 at least.
func atOnce(text string, n int) (int, error) {
	v := intstr.Parse(cmp.Or(text, "1"))
	size, err := intstr.GetScaledValueFromIntOrPercent(&v, n, false)
	return max(1, size), err
}

// took prints a duration for a person: "1m12s".
func took(d time.Duration) string { return d.Round(time.Second).String() }
