package push

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

// Push brings the configuration to the pool's model and nodes, or goes on with a push of
// the same content. What is refused before anything changed is *workflow.Refused; a push
// that ctx ended is a *workflow.Outcome with ExitInterrupted, one that failed after it changed
// the pool one with ExitNeedsPerson, which says what is left. The result is never nil and says what was reached whatever the error.
func (r *Rollout) Push(ctx context.Context, pool fleet.ResourceID, o Request) (*Result, error) {
	began := r.Now()
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Minute
	}
	p := &push{Rollout: r, o: o, pool: pool, skipped: map[string]bool{}, members: map[string]member{}, left: map[string]Node{}, step: "preflight", perNode: assumedTime}
	err := p.run(ctx)
	result := &Result{Pool: p.pool, Generation: p.generation, ContentOf: p.contentOf, Nodes: []Node{}, Took: r.Now().Sub(began)}
	reached, begun := 0, false
	for _, name := range slices.Sorted(maps.Keys(p.members)) {
		m := p.members[name]
		result.Nodes = append(result.Nodes, m.Node)
		begun = begun || p.generation > 0 && m.Wanted == p.generation // also by a push before, which this one resumes
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
	at := "nothing was changed"
	if p.generation > 0 {
		at = fmt.Sprintf("%d of %d nodes have generation %d", reached, len(p.members), p.generation)
	}
	switch {
	case err == nil || errors.As(err, &refused):
	case ctx.Err() != nil:
		err = &workflow.Outcome{Exit: workflow.ExitInterrupted, Step: p.step, Left: []string{at}, Err: ctx.Err()}
	case reached > 0 || begun || p.changed.Load() || p.generation > 0 && p.modelHas:
		has := map[bool]string{false: "does not have it", true: "has it"}[p.modelHas]
		left := []string{at + ", and the model " + has + "; instances that were written keep its userData in Azure until the next push"}
		if !fleet.Is(err, fleet.KindHeld) { // by another push
			again := "push again once the cause is mended"
			if p.generation > 1 {
				again += ", or go back: ortet config rollback " + p.pool.Name()
			}
			left = append(left, again)
		}
		err = &workflow.Outcome{Exit: workflow.ExitNeedsPerson, Step: p.step, Err: err, Left: left}
	}
	return result, err
}

// A push is one call of Push.
type push struct {
	*Rollout
	o          Request
	pool       fleet.ResourceID
	generation int64
	contentOf  int64 // of a rollback: the generation with the same content
	userData   string
	keys       []nodeconfig.PublicKey // whose documents are believed
	modelHas   bool                   // the model has userData
	changed    atomic.Bool            // a write of userData may have had an effect
	atOnce     int                    // nodes
	step       string
	perNode    time.Duration // that the last wave needed

	mu      sync.Mutex
	skipped map[string]bool   // ids of instances
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
		p.modelHas = true
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
	p.pool, o.reset, o.seen = o.pool, p.o.ResetGeneration, p.o.AfterGeneration
	keyProblems := o.believe(publicOf(p.o.Key), p.o.Keys, p.o.ReplaceUserData)
	problems := append(o.problems(), keyProblems...)
	p.keys = o.keys
	for _, e := range o.history.others {
		p.report("ignore generation %d of the history: no accepted key signed it", e.Generation)
	}
	problems = append(problems, p.skip(o)...)
	if p.o.rollback {
		e, err := o.earlier(p.o.to)
		if err == nil {
			p.o.Config, err = e.config(o.pool, o.keys)
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
	if o.foreign != "" && !p.o.ReplaceUserData {
		problems = append(problems, foreignProblem(string(o.pool), o.foreign))
	}
	if len(o.members) == 0 && len(o.nobodies) > 0 { // else the push would go to all at once, and await no answer
		problems = append(problems, fleet.Problem{On: string(o.pool), Code: "NoNodeOfThePool", What: o.nobodies[0],
			WayOut: fleet.RegisterByHostName})
	}
	canary, canaryProblems := p.canary(o)
	nodeProblems, err := p.check(ctx, o, p.o.Config)
	if err != nil {
		return nil, nil, err
	}
	foreign, err := p.inspect(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	problems = slices.Concat(problems, canaryProblems, nodeProblems, foreign)
	a, err := p.allocate(o)
	var refused *workflow.Refused
	switch {
	case len(keyProblems) > 0: // without the model's document no generation is known
	case errors.As(err, &refused):
		problems = slices.Concat(problems, refused.Problems, o.reportProblems())
	case err != nil:
		return nil, nil, err
	default:
		problems = append(problems, o.reportProblems()...)
	}
	if len(problems) > 0 {
		return nil, nil, &workflow.Refused{Problems: problems}
	}
	return o, canary, p.begin(ctx, o, a)
}

// skip takes out of what was listed what the push leaves as it is.
func (p *push) skip(o *observation) (problems []fleet.Problem) {
	for _, name := range p.o.SkipNodes {
		i := slices.IndexFunc(o.members, func(m member) bool { return m.Name == name })
		if i < 0 {
			problems = append(problems, fleet.Problem{On: "node " + name, Code: "BadSkip", What: "the pool has no such Node", WayOut: "name a Node of the pool with --skip-node, or leave it out"})
			continue
		}
		left := o.members[i].Node
		left.Message = "left out by --skip-node"
		key := keyOf(o.members[i].id)
		p.mu.Lock()
		p.skipped[key], p.left[key] = true, left
		p.mu.Unlock()
		o.members = slices.Delete(o.members, i, i+1)
	}
	// Its instance may outlive its Node.
	o.without = slices.DeleteFunc(o.without, func(i instance) bool { return p.skipped[keyOf(i.ID)] })
	return problems
}

// inspect reads the userData of the instances that the push would change. It names those
// that a push must not replace, and takes in the generations of documents that are believed.
func (p *push) inspect(ctx context.Context, o *observation) ([]fleet.Problem, error) {
	if !o.uniform() {
		return nil, nil // it is refused, and its machines are read otherwise
	}
	done := map[string]bool{}
	foreign := map[string][]string{} // instances, by what their userData is
	var mu sync.Mutex
	for newest := int64(-1); newest != o.newest(); {
		newest = o.newest()
		a, _ := p.allocate(o) // its error is reported where it is used
		var all errgroup.Group
		all.SetLimit(maxQuiet)
		read := func(id fleet.ResourceID, name string) {
			if done[keyOf(id)] {
				return
			}
			done[keyOf(id)] = true
			all.Go(func() error {
				now, what, err := p.userDataOf(ctx, id)
				mu.Lock()
				defer mu.Unlock()
				if what != "" && what != o.foreign { // the model's is reported
					foreign[what] = append(foreign[what], name)
				}
				if d, signed, _ := parse(now.Properties.UserData, p.pool); d != nil {
					if _, err := signed.Verify(o.keys); err == nil {
						o.seen = max(o.seen, o.counted(d.Generation))
					}
				}
				return err
			})
		}
		for _, m := range o.members {
			if !a.present || !m.has(a.generation) {
				read(m.id, m.Instance)
			}
		}
		for _, i := range o.without {
			read(i.ID, i.Name)
		}
		if err := all.Wait(); err != nil {
			return nil, err
		}
	}
	var problems []fleet.Problem
	for _, what := range slices.Sorted(maps.Keys(foreign)) {
		slices.Sort(foreign[what])
		problems = append(problems, foreignProblem(on("instance", foreign[what]), what))
	}
	return problems, nil
}

// canary chooses the first node.
func (p *push) canary(o *observation) (*member, []fleet.Problem) {
	i := slices.IndexFunc(o.members, func(m member) bool { return m.Ready && (m.Name == p.o.Canary || p.o.Canary == "") })
	switch {
	case i >= 0:
		return &o.members[i], nil
	case p.o.Canary != "":
		return nil, []fleet.Problem{{On: "node " + p.o.Canary, Code: "BadCanary", What: "the pool has no such Node that is Ready", WayOut: "name a Ready Node of the pool with --canary, or leave it out"}}
	}
	return nil, nil
}

// An allocation is the generation that a push takes.
type allocation struct {
	generation int64
	userData   string
	digest     string
	present    bool  // it is recorded already
	tried      int64 // generation with the same content that nodes failed or refused; 0 for none
}

// allocate goes on with the newest generation where it is the same content, or else takes
// the next one.
func (p *push) allocate(o *observation) (a allocation, err error) {
	newest := o.newest()
	document := nodeconfig.Document{Pool: strings.ToLower(string(o.pool)), Generation: newest, Keys: p.o.Keys, ResetGeneration: p.o.ResetGeneration, Config: p.o.Config}
	if len(document.Keys) == 0 && o.document != nil {
		document.Keys = o.document.Keys
	}
	if a.digest, err = p.o.Config.Digest(); err != nil {
		return a, err
	}
	// The same document and key give the same userData.
	model, present := o.set.Properties.Profile.UserData, document
	if d := o.documentOf(newest); d != nil {
		present.ResetGeneration = present.ResetGeneration || d.ResetGeneration
	}
	if userData, err := present.Sign(p.o.Key); err == nil && newest <= nodeconfig.MaxGeneration && (userData == model || userData == o.history.newest().UserData) {
		failed, refusedBy := o.failed(newest)
		if len(failed) > 0 && !p.o.Retry {
			wayOut := "correct the configuration; or push with --retry, which tries it again as a new generation"
			if !slices.ContainsFunc(o.members, func(m member) bool {
				return m.failed(newest) && m.State == string(wire.ConfigurationFailed) && !m.interrupted()
			}) {
				wayOut = "run the same command with --retry, which tries it again as a new generation"
			}
			return a, refused(o.pool, "FailedEarlier", fmt.Sprintf("generation %d has this configuration, and %s failed it: %s", newest, nodes(len(failed)), strings.Join(failed[:min(len(failed), maxShown)], "; ")), wayOut)
		}
		// What refused a generation may be prepared by now, but tries it again only when a
		// newer one is wanted.
		if len(failed) == 0 && !refusedBy {
			a.generation, a.userData, a.present = newest, userData, true
			return a, nil
		}
		a.tried = newest
	}
	if a.generation, err = o.next(); err != nil {
		return a, err
	}
	document.Generation = a.generation
	if a.userData, err = document.Sign(p.o.Key); err != nil {
		return a, refused(o.pool, "CannotSign", err.Error(), "make the configuration smaller, or the keys those that the message asks for")
	}
	return a, nil
}

// documentOf is the believed document of a generation, of the model or the history.
func (o *observation) documentOf(generation int64) *nodeconfig.Document {
	if o.document != nil && o.document.Generation == generation {
		return o.document
	}
	if e := o.history.newest(); e.Generation == generation {
		return e.document
	}
	return nil
}

// begin records what was allocated.
func (p *push) begin(ctx context.Context, o *observation, a allocation) error {
	if a.present {
		p.modelHas = a.userData == o.set.Properties.Profile.UserData
		p.report("going on with generation %d, which has this configuration", a.generation)
	} else if err := p.record(ctx, o.pool, o.history, entry{Entry: Entry{a.generation, a.digest, p.By, p.Now().UTC(), p.contentOf}, UserData: a.userData}, p.keys); err != nil {
		return err
	}
	p.generation, p.userData = a.generation, a.userData
	if a.tried > 0 {
		p.report("generation %d has this configuration, and a node failed or refused it: it is tried again as generation %d", a.tried, p.generation)
	}
	return nil
}

// overtaken fails where another push allocated a newer generation.
func (p *push) overtaken(ctx context.Context) error {
	h, err := p.readHistory(ctx, p.pool)
	if err != nil {
		return err
	}
	h.believe(p.pool, p.keys, p.o.ResetGeneration)
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

// setModel gives the model the userData, unless that became another program's since it was
// read.
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
		p.changed.Store(true)
		return fleet.SetModelUserData{Pool: p.pool, UserData: p.userData, Etag: now.set.Etag}
	}, func(ctx context.Context, _ fleet.Pool) (bool, error) {
		err := p.readModel(ctx, now)
		return now.set.Properties.Profile.UserData == p.userData, err
	})
	return cmp.Or(refuse, err)
}

// atOnce is how many of n nodes "3" or "25%" allows at once, 1 at least.
func atOnce(text string, n int) (int, error) {
	v := intstr.Parse(cmp.Or(text, "1"))
	size, err := intstr.GetScaledValueFromIntOrPercent(&v, n, false)
	return max(1, size), err
}

// took prints a duration for a person: "1m12s".
func took(d time.Duration) string { return d.Round(time.Second).String() }
