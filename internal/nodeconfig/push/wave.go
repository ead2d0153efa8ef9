package push

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/wire"
)

// maxShown is how many nodes an error names; the result has all.
const maxShown = 5

// maxQuiet is how many instances get userData at once whose answers are not awaited.
const maxQuiet = 8

// waves changes all nodes that lack the generation, and those that appear meanwhile. It
// stops after the first wave in which a node failed.
func (p *push) waves(ctx context.Context, o *observation) error {
	passed := map[string]bool{} // instances that are not awaited, or are gone
	begun := false
	for {
		if err := p.list(ctx, o); err != nil {
			return err
		}
		p.skip(o) // a Node that was deleted meanwhile is no problem
		p.see(o)
		var ready, quiet []member
		for _, m := range o.members {
			key := keyOf(m.id)
			switch {
			case m.has(p.generation) || passed[key]:
			case m.Ready:
				ready = append(ready, m)
			default:
				passed[key] = true
				quiet = append(quiet, m)
			}
		}
		for _, i := range o.without {
			// Its Node may join later, and is awaited then.
			if key := "without " + keyOf(i.ID); !passed[key] {
				passed[key] = true
				quiet = append(quiet, member{Node: Node{Instance: i.Name}, id: i.ID})
			}
		}
		if len(ready)+len(quiet) == 0 {
			return nil
		}
		if len(ready) > 0 && !begun {
			p.report("%s, %d at once: about %s", nodes(len(ready)), p.atOnce, took(Expected(len(ready), p.atOnce, p.perNode)))
		}
		begun = true
		for len(ready) > 0 {
			if err := p.overtaken(ctx); err != nil {
				return err
			}
			wave := ready[:min(p.atOnce, len(ready))]
			ready = ready[len(wave):]
			outcomes := p.each(ctx, wave, p.atOnce, p.reach)
			for _, out := range outcomes {
				if out.gone || !out.m.Ready {
					passed[keyOf(out.m.id)] = true
				}
			}
			if err := p.stopped(ctx, outcomes, "no more nodes are changed"); err != nil {
				return err
			}
		}
		if err := p.stopped(ctx, p.each(ctx, quiet, maxQuiet, p.notify), "no more nodes are changed"); err != nil {
			return err
		}
	}
}

// keyOf is an id as a key: Azure ignores its letter case.
func keyOf(id fleet.ResourceID) string { return strings.ToLower(string(id)) }

// see takes over what was listed.
func (p *push) see(o *observation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.members)
	for _, m := range o.members {
		p.members[m.Name] = m
	}
}

// An outcome is what became of one node.
type outcome struct {
	m    member
	gone bool // the Node or its instance does not exist any more
	took time.Duration
	err  error
}

// each does something with all members, some at once, to the end whatever fails.
func (p *push) each(ctx context.Context, members []member, parallel int, do func(context.Context, member) outcome) []outcome {
	out := make([]outcome, len(members))
	var all errgroup.Group
	all.SetLimit(parallel)
	for i, m := range members {
		all.Go(func() error {
			o := do(ctx, m)
			if out[i] = o; p.step == "waves" && o.err == nil && !o.gone && o.took > 0 {
				p.report("%s: generation %d applied after %s", o.m, p.generation, took(o.took))
			}
			return nil
		})
	}
	_ = all.Wait() // outcomes have the errors
	return out
}

// stopped is the error of nodes that failed, if any, and says what was left as it is.
func (p *push) stopped(ctx context.Context, outcomes []outcome, rest string) error {
	var errs []error
	overtaken := false
	for _, o := range outcomes {
		if o.err != nil {
			errs = append(errs, o.err)
			if ctx.Err() == nil {
				p.report("%s", o.err)
			}
		}
		overtaken = overtaken || fleet.Is(o.err, fleet.KindHeld)
	}
	if len(errs) == 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	kind := fleet.KindOf(errs[0])
	if n := len(errs) - maxShown; n > 1 {
		errs = append(errs[:maxShown], fmt.Errorf("and %d more nodes", n))
	}
	is := func(state wire.ConfigurationState) bool {
		return slices.ContainsFunc(outcomes, func(o outcome) bool {
			return o.m.State == string(state) && o.m.failed(p.generation) && !o.m.interrupted()
		})
	}
	interrupted := slices.ContainsFunc(outcomes, func(o outcome) bool { return o.m.failed(p.generation) && o.m.interrupted() })
	remedy := rest
	switch {
	case overtaken:
		remedy += "; see ortet config status"
	case is(wire.ConfigurationFailed) && p.step == "waves" && p.generation > 1:
		remedy += "; correct the configuration and push it, or go back with ortet config rollback"
	case is(wire.ConfigurationFailed):
		remedy += "; correct the configuration and push it"
	case is(wire.ConfigurationRefused):
		remedy += "; correct what the node reports, then run the same command"
	case interrupted:
		remedy += "; run the same command with --retry"
	default:
		remedy += "; run the same command to go on"
	}
	return &fleet.Error{Op: fmt.Sprintf("push generation %d to pool %s", p.generation, p.pool.Name()), Kind: kind, Err: errors.Join(errs...), Remedy: remedy}
}

// notify gives a machine the userData, and its Node, if there is one, the generation. No
// answer is awaited.
func (p *push) notify(ctx context.Context, m member) outcome {
	out := outcome{m: m}
	out.gone, out.err = p.change(ctx, m)
	if out.err != nil || out.gone {
		return out
	}
	left := m.Node
	left.Message = "has no Node yet; its userData has the generation"
	if m.Name != "" {
		left.Message = "is not Ready; its agent applies the generation once it runs"
	}
	p.report("%s: userData has generation %d; it %s", m, p.generation, left.Message)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left[keyOf(m.id)] = left
	return out
}

// change gives an instance the userData, and then annotates its Node: an agent that reads
// its userData earlier would find the old one.
func (p *push) change(ctx context.Context, m member) (gone bool, err error) {
	if gone, err = p.setUserData(ctx, m); err != nil || gone {
		return gone, err
	}
	if m.Name == "" {
		return false, nil
	}
	patch := fmt.Appendf(nil, `{"metadata": {"annotations": {%q: "%d"}}}`, wire.ConfigurationWanted, p.generation)
	_, err = p.Kube.CoreV1().Nodes().Patch(ctx, m.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, kubeError(ctx, "annotate Node", m.Name, err, "patch on nodes")
	}
	return false, nil
}

// reach brings one node to the generation and awaits its answer.
func (p *push) reach(ctx context.Context, m member) outcome {
	now, gone, err := p.read(ctx, m)
	switch {
	case err != nil || gone:
		return outcome{m: now, gone: gone, err: err}
	case now.has(p.generation):
		p.set(now)
		return outcome{m: now}
	}
	if err := p.newer(ctx, now); err != nil {
		return outcome{m: now, err: err}
	}
	if !now.Ready {
		return p.notify(ctx, now)
	}
	began := p.Now()
	if gone, err := p.change(ctx, now); err != nil || gone {
		return outcome{m: now, gone: gone, err: err}
	}
	return p.await(ctx, now, began)
}

func (p *push) set(m member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.members[m.Name] = m
}

// newer fails where a node has a newer generation, or is to have one. Whether another push
// took over is read in the history: a node reports what it likes.
func (p *push) newer(ctx context.Context, m member) error {
	generation := m.Generation
	if p.o.ResetGeneration {
		generation = nodeconfig.Counted(generation)
	}
	if max(generation, m.Wanted) <= p.generation {
		return nil
	}
	if err := p.overtaken(ctx); err != nil || generation <= p.generation {
		return err
	}
	return &fleet.Error{Op: "push to node " + m.Name, Err: fmt.Errorf("node reports generation %d, of which no accepted key signed a document", generation),
		Remedy: "push again with --skip-node " + m.Name + ", and replace the node"}
}

// pollInterval is how often a Node is read of which an answer is awaited. The client's own
// limit slows the reads of a large wave.
const pollInterval = 2 * time.Second

// await waits for a node's answer to the generation.
func (p *push) await(ctx context.Context, m member, began time.Time) outcome {
	o := outcome{m: m}
	cause := "its Node was not read: the client's own limit of requests delays it"
	// Where the context had a deadline, the client's limiter would fail a read before it.
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(p.o.Timeout, cancel).Stop()
	err := wait.PollUntilContextCancel(limited, pollInterval, true, func(ctx context.Context) (done bool, err error) {
		now, gone, err := p.read(ctx, m)
		if err == nil && !gone {
			o.m = now
			p.set(now)
			err = p.newer(ctx, now)
		}
		if err != nil && ctx.Err() != nil || fleet.Is(err, fleet.KindTransient, fleet.KindThrottled) {
			if ctx.Err() == nil { // not by the time limit itself
				cause = err.Error()
			}
			return false, nil
		}
		if o.gone = gone; err != nil || gone {
			return true, err
		}
		if now.failed(p.generation) {
			return true, &fleet.Error{Op: "apply on node " + m.Name, Err: errors.New(now.brief())}
		}
		if cause = "last answer: " + now.brief(); now.State == "" {
			cause = "it has never answered: its image may lack ortet-node's unit ortet-config.service"
		} else if now.about != p.generation {
			cause = fmt.Sprintf("its last answer is to generation %d: ortet-config.service may not run", now.about)
		}
		return now.has(p.generation), nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		err = &fleet.Error{Op: "wait for node " + m.Name, Kind: fleet.KindTimedOut, Err: fmt.Errorf("no result after %s; %s", took(p.o.Timeout), cause),
			Remedy: "see journalctl -u ortet-config on the node"}
	}
	o.took, o.err = p.Now().Sub(began), err
	return o
}
