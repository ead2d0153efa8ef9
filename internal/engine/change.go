package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
)

// maxTries is how often a change is begun whose operation fails, or is said to
// have worked and has not.
const maxTries = 5

// An operation that the donor's return waits for is polled each half second for as long
// as closely: longer than they take, and not until our own limit of requests is used up.
const (
	closely = 4 * time.Minute
	often   = 500 * time.Millisecond
)

// A check looks whether the world is as a change wants it.
type check func(ctx context.Context) (bool, error)

// change makes a change true. It looks first and last, so a change that is
// there is not made again, one that was begun by a process that died is waited
// for, an answer of success without effect is not believed, and neither is a
// failure with one. key names the intent in the journal.
func (t *task) change(ctx context.Context, key string, c fleet.Change, done check) error {
	err := t.makeTrue(ctx, key, c, done)
	if err == nil {
		t.r.spend(key)
	}
	return err
}

func (t *task) makeTrue(ctx context.Context, key string, c fleet.Change, done check) error {
	var last error
	spent := "" // the token that has been waited for
	for tries, pause := 0, 0; ; {
		ok, err := done(ctx)
		if err != nil {
			return err
		}
		if ok {
			return nil
		}
		token := t.r.token(key, c)
		fresh := false // begun by this very call
		if token == "" || token == spent {
			if tries == maxTries {
				return t.unchanged(c, last)
			}
			if tries > 0 {
				// Effects may show late: look once more before repeating.
				if err := t.backoff(ctx, tries-1, last); err != nil {
					return t.ended(ctx, c, last)
				}
				if ok, err := done(ctx); err != nil || ok {
					return err
				}
			}
			token, err = t.begin(ctx, key, c)
			if err != nil {
				last = err
				switch {
				case ctx.Err() != nil:
					return t.ended(ctx, c, err)
				case passing(err) || t.patient(err, pause):
					if t.backoff(ctx, pause, err) != nil {
						return t.ended(ctx, c, err)
					}
					pause++
					continue
				case fleet.KindOf(err) == fleet.KindUnknown, fleet.Is(err, fleet.KindNotFound):
					// Nobody knows what it means, or something is said not to be there,
					// though the look above was answered: tried again, but not for ever.
					if tries++; tries < maxTries {
						continue
					}
				}
				// The effect may be there all the same.
				if ok, lookErr := done(ctx); lookErr == nil && ok {
					return nil
				}
				return err
			}
			tries++
			fresh = true
			if token == "" {
				// Complete at once, or already under way by one whose token died
				// with its process.
				last = nil
				if err := t.watch(ctx, done); err != nil {
					return t.ended(ctx, c, err)
				}
				continue
			}
		}
		spent = token
		last = t.poll(ctx, c, fleet.Token(token), done)
		switch {
		case last == nil, fleet.Is(last, fleet.KindNotFound):
		case ctx.Err() != nil:
			return t.ended(ctx, c, last)
		case !fresh: // an earlier process's: what kept that may be gone
		case fleet.Is(last, fleet.KindUnsupported), fleet.Is(last, fleet.KindInvalid), fleet.Is(last, fleet.KindDenied):
			if ok, err := done(ctx); err == nil && ok {
				return nil
			}
			return last
		}
	}
}

// anew repeats what is computed from the pool and sent on the condition that the
// pool is as it was, for as long as somebody else is quicker.
func (t *task) anew(ctx context.Context, act func() error) error {
	for n := 0; ; n++ {
		err := act()
		if !fleet.Is(err, fleet.KindStale) {
			return err
		}
		if t.backoff(ctx, n, err) != nil {
			return t.timedOut(ctx, t.step.ID, string(t.r.get().Pool), err)
		}
	}
}

// watch looks until the world is as it should be, for a few times as long as
// that usually takes.
func (t *task) watch(ctx context.Context, done check) error {
	begun, limit := t.r.e.now(), max(3*t.step.Usual, 30*time.Second)
	for pause := time.Second; ; pause = min(2*pause, 15*time.Second) {
		ok, err := done(ctx)
		if err != nil || ok || t.r.e.now().Sub(begun) >= limit {
			return err
		}
		if err := t.wait(ctx, pause, forOwn); err != nil {
			return err
		}
	}
}

// begin writes the intent down, begins, and writes the token down.
func (t *task) begin(ctx context.Context, key string, c fleet.Change) (string, error) {
	if err := t.r.fence(ctx); err != nil {
		return "", err
	}
	err := t.r.write(func(rec *journal.Record, _ *facts) {
		old := rec.Intents[key]
		rec.Intents[key] = journal.Intent{
			Verb: c.Verb(), Target: string(c.Target()), At: t.r.e.now(), Tries: old.Tries + 1, Note: old.Note,
		}
	})
	if err != nil {
		return "", err
	}
	token, err := t.r.e.cloud.Begin(ctx, c)
	switch fleet.KindOf(err) {
	case fleet.KindUnknown, fleet.KindTransient, fleet.KindTimedOut: // nil among them
		t.asked = true
		t.begins++
	}
	if err != nil || token == "" {
		return "", err
	}
	t.r.e.log.Debug("begun", "step", t.step.ID, "change", c.Verb(), "target", c.Target())
	err = t.r.write(func(rec *journal.Record, _ *facts) {
		intent := rec.Intents[key]
		intent.Token = string(token)
		rec.Intents[key] = intent
	})
	if err != nil {
		// What was begun goes on; without its token it is found by looking.
		t.r.e.log.Warn("cannot write the resume token down", "step", t.step.ID, "error", err)
		if fleet.Is(err, fleet.KindHeld) {
			return "", err
		}
	}
	return string(token), nil
}

// token gives the token of an intent for the same change, or "".
func (r *run) token(key string, c fleet.Change) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	intent := r.record.Intents[key]
	if intent.Verb == c.Verb() && fleet.ResourceID(intent.Target).Equal(c.Target()) {
		return intent.Token
	}
	return ""
}

// spend has the next write leave out the token of a change that was seen done:
// nobody will ask after its operation again, and a token is a kilobyte and a half
// in each write of all that follow.
func (r *run) spend(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if token := r.record.Intents[key].Token; token != "" {
		if r.spent == nil {
			r.spent = map[string]string{}
		}
		r.spent[key] = token
	}
}

// intended reports whether a change was ever about to be begun under the key.
func (r *run) intended(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record.Intents[key].Tries > 0
}

// forget takes intents out of the journal, so that they can be made anew.
func (r *run) forget(keys ...string) error {
	return r.amend(func(rec *journal.Record, _ *facts) {
		for _, k := range keys {
			delete(rec.Intents, k)
		}
	})
}

// poll waits for an operation's end. An operation that says for long that it
// goes on is not believed either: the world is looked at from time to time.
func (t *task) poll(ctx context.Context, c fleet.Change, token fleet.Token, done check) error {
	begun, looked := t.r.e.now(), 0
	doubt := max(3*t.step.Usual, 5*time.Minute)
	for n := 0; ; {
		p, err := t.r.e.cloud.Poll(ctx, token)
		if err == nil && p.Percent < 0 && t.percent != nil {
			p.Percent = t.percent(ctx)
		}
		switch {
		case err == nil:
			n = 0
		case !passing(err) && !t.patient(err, n), fleet.Is(err, fleet.KindConflict):
			return err // the operation's own end
		case n == maxTries:
			// Either the cloud cannot be asked, or this is how the operation
			// ended: looking at the world tells.
			return err
		default:
			if t.backoff(ctx, n, err) != nil {
				return err
			}
			n++
			continue
		}
		if p.Done {
			return nil
		}
		t.progress(p.Percent, "Azure: %s: %s", c.Verb(), p.Status)
		if t.r.e.now().Sub(begun) > doubt {
			if looked++; looked%5 == 1 {
				if ok, err := done(ctx); err == nil && ok {
					return nil
				}
			}
		}
		who, d := forCloud, p.Wait
		if d <= 0 {
			who, d = forOwn, 2*time.Second
		}
		if t.donorWaits() && t.r.e.now().Sub(begun) < closely {
			d = min(d, often)
		}
		if err := t.wait(ctx, d, who); err != nil {
			return err
		}
	}
}

// unchanged is the error of a change that does not come true.
func (t *task) unchanged(c fleet.Change, last error) error {
	if last == nil || fleet.Is(last, fleet.KindNotFound) {
		last = fmt.Errorf("it was said %d times to be done, and it is not", maxTries)
	}
	kind := fleet.KindOf(last)
	if kind == fleet.KindUnknown || passing(last) {
		kind = fleet.KindInvalid
	}
	return &fleet.Error{Op: c.Verb(), Resource: string(c.Target()), Kind: kind, Err: last}
}

// ended is the error of a change that ctx's end cut off.
func (t *task) ended(ctx context.Context, c fleet.Change, last error) error {
	return t.timedOut(ctx, c.Verb(), string(c.Target()), last)
}

// late is an error, or timedOut's where it is nothing but ctx's end.
func (t *task) late(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && fleet.KindOf(err) == fleet.KindUnknown {
		return t.timedOut(ctx, t.step.ID, "", err)
	}
	return err
}

// timedOut names what was being waited for when ctx ended, or else what kept failing
// until then.
func (t *task) timedOut(ctx context.Context, op, on string, last error) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return last
	}
	if last == nil || errors.Is(last, context.DeadlineExceeded) || errors.Is(last, azure.ErrTurn) {
		last = t.troubled(nil)
	}
	err := fmt.Errorf("not done within %s", t.step.Deadline)
	if last != nil && !errors.Is(last, context.DeadlineExceeded) {
		err = fmt.Errorf("%w; at last: %w", err, last)
	}
	return &fleet.Error{Op: op, Resource: on, Kind: fleet.KindTimedOut, Err: err}
}
