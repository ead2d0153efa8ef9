package join

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/node/generalize"
	"github.com/ortet/ortet/internal/node/tree"
	"github.com/ortet/ortet/internal/wire"
)

// errHere is an error of this machine's own, as a disk that is full: somebody has to
// mend it, so it is tried again rarely.
var errHere = errors.New("on this machine")

func here(err error) error { return fmt.Errorf("%w: %w", errHere, err) }

// Join makes a node of this machine and returns once what its agent joins with is on the
// disk. A node that has joined before and can go on is done at once, without a request.
// Otherwise it asks for as long as ctx lasts, or once. It may be interrupted anywhere, and
// is idempotent.
func (c *Client) Join(ctx context.Context, once bool) error {
	t, err := tree.Open(root(c.options.Root))
	if err != nil {
		return err
	}
	defer func() { _ = t.Close() }() // what was written was synced
	a := attempt{Client: c, t: t}
	defer a.unlock()
	_, a.firmware, _ = bootstrap.Identify(c.options.Root)
	for failed := 1; ; failed++ {
		err := a.try(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("joining was ended: %w; the last try: %w", context.Cause(ctx), err)
		case once:
			return err
		}
		if why := reason(err); why != a.told {
			a.told = why
			c.options.Log.Warn("cannot join yet; asking again for as long as it takes", "reason", why, "error", err)
		}
		if ended := c.options.wait(ctx, pause(failed, err, rand.Float64())); ended != nil {
			if cause := context.Cause(ctx); cause != nil {
				ended = cause
			}
			return fmt.Errorf("joining was ended: %w; the last try: %w", ended, err)
		}
	}
}

func root(dir string) string {
	if dir == "" {
		return bootstrap.DefaultRoot()
	}
	return dir
}

// attempt is what is kept from try to try.
type attempt struct {
	*Client
	t        *tree.Tree
	lock     *os.File // locked since the first try that got it; nil until then
	firmware string
	cleared  bool // the disk holds no identity any more
	told     string
}

// try goes as far as it can. Whose identity is on the disk is settled first, also
// while the server is away: nothing may start with another machine's.
func (a *attempt) try(ctx context.Context) error {
	if a.lock == nil {
		f, err := alone(a.t)
		if errors.Is(err, errNotAlone) {
			return err
		}
		if err != nil {
			return here(err)
		}
		a.lock = f
	}
	if err := a.held(); err != nil {
		if again, problem := a.mayStartAgain(); again || problem != nil {
			return problem
		}
		return err
	}
	var m *Machine
	if !a.cleared {
		own, machine, err := a.settle(ctx)
		if err != nil || own {
			return err
		}
		m = machine
	}
	if m == nil {
		machine, err := whoAmI(ctx, a.options.metadata())
		if err != nil {
			return err
		}
		m = &machine
	}
	granted, err := a.admit(ctx, *m)
	if err != nil {
		return err
	}
	if err := a.held(); err != nil {
		return err
	}
	if a.settings.Distribution == wire.Kubelet {
		if err := a.writeClientCA(a.t, granted.CA); err != nil {
			return here(err)
		}
	}
	if err := write(a.t, configuration(a.settings, granted, dropInsExist(a.t))); err != nil {
		return here(err)
	}
	if err := writeRecord(a.t, recordOf(granted, a.settings.Distribution, a.firmware, a.options.now())); err != nil {
		return here(err)
	}
	if err := a.ready(); err != nil {
		return err
	}
	if name, err := os.Hostname(); err == nil && !strings.EqualFold(name, granted.NodeName) {
		a.options.Log.Warn("this machine's host name is not its Node's", "hostName", name, "node", granted.NodeName)
	}
	a.options.Log.Info("admitted", "node", granted.NodeName, "server", granted.Server, "tokenExpires", granted.Expires)
	return nil
}

// settle finds out whose identity is on the disk, and removes one that is not this
// machine's or does not serve. own means that nothing is left to do. The machine is
// returned where Azure was asked.
func (a *attempt) settle(ctx context.Context) (own bool, m *Machine, err error) {
	record, err := readRecord(a.t)
	if err != nil {
		return false, nil, here(err)
	}
	held, err := a.readLogin(a.t)
	if err != nil {
		return false, nil, here(err)
	}
	found, why := judge(record, held, a.firmware, nil, a.options.now())
	if found == isUnknown && record != nil {
		// A restart of an agent, in a boot in which Azure has confirmed that the record is
		// this machine's, does not wait for Azure.
		looked, err := a.t.Exists(ReadyFile)
		if err != nil {
			return false, nil, here(err)
		}
		if f, _ := judge(record, held, a.firmware, &Machine{VMID: record.VMID}, a.options.now()); looked && f == isOwn {
			found = f
		} else if looked && f == isForeign {
			// Nothing starts with it while Azure does not answer.
			if _, err := a.t.Remove(ReadyFile); err != nil {
				return false, nil, here(err)
			}
		}
	}
	if found == isUnknown {
		machine, err := whoAmI(ctx, a.options.metadata())
		if err != nil {
			return false, nil, err
		}
		m = &machine
		found, why = judge(record, held, a.firmware, m, a.options.now())
	}
	if found == isUsedUp && held == nil {
		under, err := a.underWay(record)
		if err != nil || under {
			return under, m, err
		}
	}
	if found == isOwn && record == nil && a.settings.Distribution != wire.Kubelet {
		// Joined by us: its agent wants a token, whose CA only the record knew.
		switch _, err := a.t.Stat(rancher(a.settings.Distribution) + rancherDrop); {
		case err == nil:
			found, why = isUsedUp, "what was recorded of its join is lost"
		case !errors.Is(err, fs.ErrNotExist):
			return false, nil, here(err)
		}
	}
	if found != isOwn {
		if _, err := a.t.Remove(ReadyFile); err != nil {
			return false, nil, here(err)
		}
	}
	if found == isOwn {
		return true, m, a.goOn(record, held, m)
	}
	scope := generalize.Everything
	switch found {
	case isUsedUp:
		scope = generalize.Credentials
	case isForeign:
		a.options.Log.Warn("the identity on this disk is not this machine's; it is removed", "why", why)
		// Said first, so that whoever goes on after a crash knows what is half done.
		mark := Record{State: Discarding, VMID: unknownVM, At: a.options.now().UTC().Truncate(time.Second)}
		if err := writeRecord(a.t, mark); err != nil {
			return false, nil, here(err)
		}
	}
	if err := a.discard(ctx, a.t, scope); err != nil {
		return false, nil, here(err)
	}
	if left, err := a.readLogin(a.t); err != nil || left != nil {
		if err == nil {
			err = fmt.Errorf("the certificate for the Node %q could not be removed: take it away, with the kubeconfig that names it, and join again", left.node)
		}
		return false, nil, here(err)
	}
	a.options.Log.Info("joining anew", "why", why)
	a.cleared = true
	return false, m, nil
}

// underWay reports that this machine was admitted in this boot, and that its agent has yet
// to get its certificate with a token that is still valid: another request would revoke
// that token.
func (a *attempt) underWay(r *Record) (bool, error) {
	now := a.options.now()
	// By a clock that was set since, it is not.
	if r.State != Joined || now.Before(r.At) || !now.Before(r.TokenEnds) {
		return false, nil
	}
	token := RancherToken
	if a.settings.Distribution == wire.Kubelet {
		token = a.settings.Kubelet.BootstrapKubeconfig
	}
	for _, p := range []string{ReadyFile, token} {
		there, err := a.t.Exists(p)
		if err != nil {
			return false, here(err)
		}
		if !there {
			return false, nil
		}
	}
	a.options.Log.Info("this machine was admitted before, and its agent has yet to get a certificate", "node", r.NodeName, "asksAgainFrom", r.TokenEnds)
	return true, nil
}

// unknownVM is no machine's id.
const unknownVM = "00000000-0000-0000-0000-000000000000"

// goOn writes what a start of a node that has joined needs.
func (a *attempt) goOn(record *Record, held *login, m *Machine) error {
	if record == nil {
		adopted := Record{State: Joined, VMID: m.VMID, Firmware: a.firmware, Distribution: a.settings.Distribution, NodeName: held.node, At: a.options.now().UTC().Truncate(time.Second)}
		record = &adopted
		if err := writeRecord(a.t, adopted); err != nil {
			// On a full disk its kubelet is what makes room.
			a.options.Log.Warn("whose identity is on the disk cannot be recorded; it is looked at anew at the next start", "error", err)
		}
	}
	if err := write(a.t, again(a.settings, *record, dropInsExist(a.t))); err != nil {
		return here(err)
	}
	// The token in it is used up; the kubelet has what it got for it.
	if a.settings.Distribution == wire.Kubelet && record.ProviderID != "" {
		if _, err := a.t.Remove(a.settings.Kubelet.BootstrapKubeconfig); err != nil {
			return here(err)
		}
	}
	if err := a.ready(); err != nil {
		return err
	}
	a.options.Log.Info("this machine has joined before", "node", record.NodeName, "certificateEnds", held.expires)
	return nil
}

// ready lets an agent start, unless this machine has begun to leave: who has it leave
// holds it first and takes this file away after, so one of the two sees the other.
func (a *attempt) ready() error {
	if err := put(a.t, ReadyFile, nil); err != nil {
		return here(err)
	}
	err := a.held()
	if err == nil {
		return nil
	}
	if _, problem := a.t.Remove(ReadyFile); problem != nil {
		return here(errors.Join(err, problem))
	}
	return err
}

// unlock lets others join.
func (a *attempt) unlock() {
	if a.lock != nil {
		_ = a.lock.Close() // there is nothing in it
	}
}

// admit asks one server after the other, answering their callback meanwhile.
func (a *attempt) admit(ctx context.Context, m Machine) (wire.Join, error) {
	body, err := json.Marshal(wire.JoinRequest{Distribution: a.settings.Distribution, CallbackPort: a.settings.CallbackPort})
	if err != nil {
		return wire.Join{}, err
	}
	back, err := a.key.answer(ctx, a.settings.CallbackPort)
	if err != nil {
		return wire.Join{}, err
	}
	defer back.close()
	var problems []error
	for _, server := range a.servers {
		text, err := a.proven(ctx, server, m, wire.JoinPath, body, joinTimeout)
		if err == nil {
			granted, err := wire.ParseAnswer[wire.Join](text)
			if err == nil {
				err = checkJoin(granted, m, a.settings.Distribution)
			}
			return granted, err
		}
		problems = append(problems, err)
		if refused := (*RefusedError)(nil); errors.As(err, &refused) && !refused.own() || ctx.Err() != nil {
			return wire.Join{}, err // another replica would answer the same
		}
	}
	return wire.Join{}, errors.Join(problems...)
}

func (o Options) now() time.Time {
	if o.Now == nil {
		return time.Now()
	}
	return o.Now()
}

func (o Options) wait(ctx context.Context, d time.Duration) error {
	if o.Wait != nil {
		return o.Wait(ctx, d)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// logger is never nil.
func (o Options) logger() *slog.Logger {
	if o.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Log
}
