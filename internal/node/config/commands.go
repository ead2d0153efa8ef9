package config

import (
	"context"
	"errors"

	"github.com/ortet/ortet/internal/wire"
)

// Recover is the early unit's part: it puts the files back that an interrupted
// application changed, and records that this generation failed.
func Recover(ctx context.Context, root string, store Store, applier Applier) (restored bool, err error) {
	d, problem := pending(store)
	restored, err = applier.Recover(ctx)
	if restored && d != nil {
		problem = State{d.Pool, d.Generation, wire.ReasonInterrupted,
			"the machine stopped while this generation was applied; the files are as they were before"}.Save(root)
	}
	return restored, errors.Join(err, problem)
}

// Boot is the part before the agents' start: one reading of the userData, and its
// application. ok is false where there is nothing to say.
func Boot(ctx context.Context, o Options) (answer wire.ConfigurationAnswer, ok bool, err error) {
	_, open, err := o.Store.Pending()
	if err == nil && open {
		err = errors.New("an application is open; 'ortet-node config recover' or the daemon ends it")
	}
	if err != nil {
		return answer, false, err
	}
	m, err := readMetadata(ctx, o.Metadata)
	if err != nil {
		return answer, false, err
	}
	answer, ok = (&reconciler{Options: o}).reconcile(ctx, m, 0)
	return answer, ok, nil
}

// Show is what the files of the node say, without network.
func Show(o Options) (wire.ConfigurationAnswer, error) {
	r := &reconciler{Options: o}
	var answer wire.ConfigurationAnswer
	state, err := LoadState(o.Root)
	if err != nil {
		return answer, err
	}
	current, err := Current(o.Store)
	if err != nil {
		return answer, err
	}
	if current != nil {
		answer.Generation, answer.Wanted = current.Generation, current.Generation
		if answer.Digest, err = current.Config.Digest(); err != nil {
			return answer, err
		}
	}
	if answer = r.applied(answer); current == nil {
		answer = r.say(answer, wire.ConfigurationWaiting, wire.ReasonNoDocument, "no configuration was applied yet")
	}
	if state.Generation > answer.Generation {
		answer.Wanted = state.Generation
		answer = r.say(answer, wire.ConfigurationFailed, state.Reason, state.Message)
	}
	open, err := pending(o.Store)
	if open != nil {
		answer.Wanted = open.Generation
		answer = r.say(answer, wire.ConfigurationApplying, "", "")
	}
	return answer, err
}
