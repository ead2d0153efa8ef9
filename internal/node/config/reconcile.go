package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/wire"
)

// An Applier makes the machine as a document says: apply.Applier.
type Applier interface {
	// Apply changes, activates and judges; record is kept with the files. Before the
	// agents' start, at boot, it answers Applying and leaves the health to Settle.
	Apply(ctx context.Context, d nodeconfig.Document, record string) wire.ConfigurationAnswer
	// Recover puts the files back that a journal names; restored is false without one.
	Recover(ctx context.Context) (restored bool, err error)
	// Settle ends what a journal left open: it judges the health of what boot applied,
	// and undoes what was interrupted. settled is false without a journal.
	Settle(ctx context.Context) (answer wire.ConfigurationAnswer, settled bool)
}

// Options are what the agent works with. All but Ready and Random are required.
type Options struct {
	Root       string // "" is this system's
	Metadata   string // address of the metadata service
	Store      Store
	Applier    Applier
	Kubernetes Kubernetes
	Now        func() time.Time
	Random     func() float64 // in [0, 1), of pauses; nil is math/rand
	Log        *slog.Logger
	Ready      func() // called when the agent begins
}

// A reconciler compares what the metadata service and the disk say.
type reconciler struct {
	Options
	// applying is called before a document is applied.
	applying func(ctx context.Context, a wire.ConfigurationAnswer)
}

// reconcile has the document of m applied where it is not in force. wanted is the
// generation that the Node's annotation asks for, 0 for none. ok is false where there is
// nothing to answer.
func (r *reconciler) reconcile(ctx context.Context, m machine, wanted int64) (answer wire.ConfigurationAnswer, ok bool) {
	answer.Wanted = max(wanted, m.generation())
	state, current, err := r.load(m.pool)
	if err != nil {
		return r.say(answer, wire.ConfigurationFailed, wire.ReasonApply, err.Error()), true
	}
	if current != nil {
		answer.Generation = current.Generation
		if answer.Digest, err = current.Config.Digest(); err != nil {
			return r.say(answer, wire.ConfigurationFailed, wire.ReasonApply, err.Error()), true
		}
	}
	signed, err := nodeconfig.Read(m.userData)
	switch {
	case errors.Is(err, nodeconfig.ErrNotOurs) && wanted > nodeconfig.Counted(answer.Generation):
		return r.say(answer, wire.ConfigurationRefused, wire.ReasonNoDocument, err.Error()), true
	case errors.Is(err, nodeconfig.ErrNotOurs):
		answer.Wanted = answer.Generation
		return r.applied(answer), current != nil
	case err != nil:
		return r.say(answer, wire.ConfigurationRefused, wire.ReasonDocument, err.Error()), true
	}
	d, reason, err := r.accept(signed, m, state, current)
	if err != nil {
		if wanted > m.generation() {
			return r.old(answer, m.generation()), true
		}
		return r.say(answer, wire.ConfigurationRefused, reason, err.Error()), true
	}
	switch {
	case current != nil && reflect.DeepEqual(*current, d):
		answer = r.applied(answer)
	case state.Generation == d.Generation:
		answer = r.say(answer, wire.ConfigurationFailed, wire.ReasonFailedEarlier, state.Reason+": "+state.Message)
	default:
		if state.Generation > nodeconfig.MaxGeneration {
			// What is below the document stays refused, whether or not it can be applied.
			before := State{d.Pool, d.Generation - 1, wire.ReasonOlder, fmt.Sprintf("generation %d reset this node's", d.Generation)}
			if err := before.Save(r.Root); err != nil {
				return r.say(answer, wire.ConfigurationFailed, wire.ReasonApply, err.Error()), true
			}
		}
		answer.Wanted = d.Generation
		answer = r.apply(ctx, answer, d, m.userData)
	}
	if wanted > nodeconfig.Counted(d.Generation) {
		answer = r.old(answer, d.Generation)
	}
	return answer, true
}

// load reads the state and the document in force. Those of another pool came with the
// image: they are forgotten, and the files stay.
func (r *reconciler) load(pool string) (State, *nodeconfig.Document, error) {
	state, err := LoadState(r.Root)
	if err != nil {
		return state, nil, err
	}
	current, err := Current(r.Store)
	if err != nil {
		return state, nil, err
	}
	if state.Pool != pool {
		state = State{}
	}
	if current != nil && current.Pool != pool {
		r.Log.Info("forgetting the configuration of another pool; its files stay", "pool", current.Pool)
		if err := r.Store.Forget(); err != nil {
			return state, nil, fmt.Errorf("forget the configuration of pool %s: %w", current.Pool, err)
		}
		current = nil
	}
	return state, current, nil
}

// accept returns the document where it may be applied, or why not.
func (r *reconciler) accept(signed nodeconfig.Signed, m machine, state State, current *nodeconfig.Document) (d nodeconfig.Document, reason string, err error) {
	settings, err := LoadSettings(r.Root)
	keys := settings.Keys
	if current != nil && len(current.Keys) > 0 {
		keys, err = current.Keys, nil
	}
	if err != nil {
		return d, wire.ReasonNoTrustedKeys, err
	}
	if len(keys) == 0 {
		return d, wire.ReasonNoTrustedKeys, errors.New(SettingsFile + " names no public key; add the one of 'ortet config keygen' to keys")
	}
	newest, counted := state.Generation, nodeconfig.Counted(state.Generation)
	if current != nil {
		newest, counted = max(newest, current.Generation), max(counted, nodeconfig.Counted(current.Generation))
	}
	d, err = signed.Verify(keys)
	switch {
	case errors.Is(err, nodeconfig.ErrSignature):
		return d, wire.ReasonSignature, err
	case err != nil:
		return d, wire.ReasonDocument, err
	case d.Pool != m.pool:
		return d, wire.ReasonOtherPool, fmt.Errorf("the document is signed for pool %.300s, this machine is of %.300s", d.Pool, m.pool)
	case current != nil && reflect.DeepEqual(*current, d):
		return d, "", nil
	case d.Generation > nodeconfig.MaxGeneration:
		return d, wire.ReasonDocument, fmt.Errorf("the document has generation %d, the highest that counts is %d; push with --reset-generation", d.Generation, int64(nodeconfig.MaxGeneration))
	case newest > nodeconfig.MaxGeneration && d.ResetGeneration && d.Generation >= counted:
	case newest > nodeconfig.MaxGeneration && d.Generation >= counted:
		return d, wire.ReasonOlder, fmt.Errorf("the document has generation %d, this node knows %d, which does not count any more; push with --reset-generation", d.Generation, newest)
	case d.Generation < newest:
		return d, wire.ReasonOlder, fmt.Errorf("the document has generation %d, this node knows %d", d.Generation, newest)
	}
	if len(d.Keys) == 0 && !slices.Contains(settings.Keys, signed.Key()) {
		// Without keys of its own the settings' count again, and lock the signer out.
		return d, wire.ReasonSignature, fmt.Errorf("the document lists no accepted keys, and its signer's is not in %s; list them in the document", SettingsFile)
	}
	return d, "", nil
}

// apply tries a document. Where the context ended meanwhile it was restored, or is pending:
// that is no fault of the document.
func (r *reconciler) apply(ctx context.Context, before wire.ConfigurationAnswer, d nodeconfig.Document, record string) wire.ConfigurationAnswer {
	if r.applying != nil {
		r.applying(ctx, r.say(before, wire.ConfigurationApplying, "", ""))
	}
	return r.ended(d, r.Applier.Apply(ctx, d, record), ctx.Err() == nil)
}

// ended takes in how the application of a document ended. One that fails is not tried
// again.
func (r *reconciler) ended(d nodeconfig.Document, answer wire.ConfigurationAnswer, final bool) wire.ConfigurationAnswer {
	answer.Wanted = d.Generation
	answer = r.say(answer, answer.State, answer.Reason, answer.Message)
	if answer.State == wire.ConfigurationFailed && final {
		if err := (State{d.Pool, d.Generation, answer.Reason, answer.Message}).Save(r.Root); err != nil {
			r.Log.Error("a generation that failed may be tried again", "error", err)
		}
	}
	return answer
}

// applied is the answer of a node that has what it should have.
func (r *reconciler) applied(answer wire.ConfigurationAnswer) wire.ConfigurationAnswer {
	drift, err := r.Store.Drift()
	if err != nil {
		r.Log.Warn("cannot compare the files with the configuration", "error", err)
	}
	answer.Drift = drift
	return r.say(answer, wire.ConfigurationApplied, "", "")
}

func (r *reconciler) old(answer wire.ConfigurationAnswer, has int64) wire.ConfigurationAnswer {
	return r.say(answer, wire.ConfigurationWaiting, wire.ReasonUserDataOld, fmt.Sprintf("the metadata service has generation %d", has))
}

// say completes an answer within its bounds.
func (r *reconciler) say(answer wire.ConfigurationAnswer, state wire.ConfigurationState, reason, message string) wire.ConfigurationAnswer {
	answer.State, answer.Reason, answer.Message = state, reason, clip(message)
	answer.At = r.Now().UTC().Truncate(time.Second)
	answer.Drift = answer.Drift[:min(len(answer.Drift), maxDrift)]
	for ; len(answer.Drift) > 0; answer.Drift = answer.Drift[:len(answer.Drift)-1] {
		size := 0
		for _, path := range answer.Drift {
			size += len(path)
		}
		if size <= 1<<10 {
			break
		}
	}
	return answer
}

const (
	maxMessage = 1 << 10
	maxDrift   = 20
)

// clip bounds a message, in bytes. What JSON spells longer than it is becomes a blank.
func clip(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' || r == '<' || r == '>' || r == '&' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	return strings.ToValidUTF8(s[:min(len(s), maxMessage)], "")
}
