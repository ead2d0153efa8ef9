package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/node/config/files"
	"github.com/ortet/ortet/internal/node/tree"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/redact"
	"github.com/ortet/ortet/internal/wire"
)

// Store keeps sets of files: *files.Store.
type Store interface {
	Current() (files.Set, []byte, error)
	Pending() (record []byte, pending bool, err error)
	Changes(next files.Set) ([]string, error)
	Begin(next files.Set, record []byte) ([]string, error)
	Keep() error
	Restore() ([]string, error)
	Discard() error
}

// Options are of an Applier. Files, System, Now and Log are needed.
type Options struct {
	Root   string // a folder in tests; "/" where empty
	Files  Store
	System System
	// KubeletConfigDir is the folder of the kubelet's --config-dir; DefaultKubeletConfigDir
	// where empty. k3s and RKE2 have their own.
	KubeletConfigDir string
	// Heartbeat is of the machine's own Node: whether it is Ready, and when the kubelet
	// last said so. nil where there is no cluster to ask.
	Heartbeat func(ctx context.Context) (ready bool, at time.Time, err error)
	Now       func() time.Time
	Log       *slog.Logger
	// Boot says that containerd and kubelet have not started yet: they are not restarted,
	// and Settle judges their health.
	Boot     bool
	Deadline time.Duration // for health; DefaultDeadline where 0
}

// An Applier makes one machine as a document says. Its methods are called one at a time.
type Applier struct{ o Options }

// New makes an Applier; it reads nothing yet.
func New(o Options) *Applier {
	o.Root = cmp.Or(o.Root, "/")
	o.Deadline = cmp.Or(o.Deadline, DefaultDeadline)
	return &Applier{o}
}

// A session is one call of an Applier.
type session struct {
	a       *Applier
	t       *tree.Tree
	h       host
	m       memory
	current files.Set
	from    *plan
	done    []string  // units that were started, stopped or restarted
	since   time.Time // the kubelet was restarted
}

func (a *Applier) begin(boot bool) (*session, error) {
	t, err := tree.Open(a.o.Root)
	if err != nil {
		return nil, err
	}
	r := &session{a: a, t: t}
	if r.h, err = readHost(t, a.o.KubeletConfigDir, boot); err == nil {
		err = r.readCurrent()
	}
	var damaged error
	if r.m, damaged = readMemory(t); damaged != nil {
		a.o.Log.Warn("sysctls and units have no baselines", "error", damaged)
	}
	if err != nil {
		r.end()
		return nil, err
	}
	return r, nil
}

func (r *session) end() { _ = r.t.Close() } // all writes were synced

func (r *session) readCurrent() (err error) {
	set, record, err := r.a.o.Files.Current()
	d := nodeconfig.Document{}
	if err == nil && len(record) > 0 {
		d, err = nodeconfig.ReadUnverified(string(record))
	}
	r.current, r.from = set, effects(d)
	return err
}

// answer is of the document that the machine has.
func (r *session) answer(wanted int64, state wire.ConfigurationState, reason string, err error) wire.ConfigurationAnswer {
	w := wire.ConfigurationAnswer{Generation: r.from.doc.Generation, Wanted: wanted, State: state, Reason: reason, At: r.a.o.Now()}
	if w.Generation > 0 {
		if digest, err := r.from.doc.Config.Digest(); err == nil {
			w.Digest = digest
		}
	}
	if err != nil {
		w.Message = message(err)
	}
	return w
}

// message is an error as one line of at most 1 KiB, without secrets.
func message(err error) string {
	lines := redact.Lines(strings.FieldsFunc(strings.ReplaceAll(err.Error(), " | ", "\n"), func(c rune) bool { return c == '\n' }))
	return redact.Cut(strings.Join(lines, " | "))
}

// broken is an answer where not even the machine's state could be read.
func (a *Applier) broken(wanted int64, err error) wire.ConfigurationAnswer {
	return wire.ConfigurationAnswer{Wanted: wanted, State: wire.ConfigurationFailed, Reason: wire.ReasonApply, Message: message(err), At: a.o.Now()}
}

// Apply makes the machine as the document says; nothing is pending. record is the userData
// that carries it. State of the answer is Applied, Failed, Refused or Waiting; it is
// Applying where health is still to be judged by Settle: at boot, and where the context
// ends meanwhile.
func (a *Applier) Apply(ctx context.Context, d nodeconfig.Document, record string) wire.ConfigurationAnswer {
	r, err := a.begin(a.o.Boot)
	if err != nil {
		return a.broken(d.Generation, err)
	}
	defer r.end()
	if r.from.doc.Generation == 0 {
		// Nothing is kept, or the store forgot another pool's: its baselines are no longer ours.
		r.m = newMemory()
	}
	to, changed, reason, err := r.prepare(ctx, d)
	switch {
	case errors.Is(err, errNotPrepared):
		return r.answer(d.Generation, wire.ConfigurationRefused, wire.ReasonNotPrepared, err)
	case err != nil:
		return r.answer(d.Generation, wire.ConfigurationFailed, reason, err)
	}
	acts, err := r.decide(ctx, r.from, to, changed, nil)
	if err != nil {
		return r.answer(d.Generation, wire.ConfigurationFailed, wire.ReasonApply, err)
	}
	idle := len(changed) == 0 && len(acts.jobs) == 0 && len(acts.sysctls) == 0
	if !idle && !a.o.Boot && a.o.Heartbeat != nil {
		ready, _, err := a.o.Heartbeat(ctx)
		if err == nil && !ready {
			err = errors.New("the Node is not Ready; the configuration waits until it is")
		}
		if err != nil {
			return r.answer(d.Generation, wire.ConfigurationWaiting, wire.ReasonNodeNotReady, err)
		}
	}
	r.m.Activated, r.m.Judge = false, nil // of an application that was killed after it was kept
	if err = r.m.save(r.t); err == nil {
		changed, err = a.o.Files.Begin(to.set(), []byte(record))
	}
	if err != nil {
		return r.answer(d.Generation, wire.ConfigurationFailed, wire.ReasonApply, err)
	}
	return r.carryOut(ctx, to, changed)
}

// prepare renders and validates, and changes nothing.
func (r *session) prepare(ctx context.Context, d nodeconfig.Document) (to *plan, changed []string, reason string, err error) {
	var args []string
	if len(d.Config.Kubelet) > 0 && !r.h.boot && r.h.rancher == "" {
		if args, err = r.a.o.System.Command(ctx, r.h.kubelet); err != nil {
			return nil, nil, wire.ReasonApply, err
		}
	}
	if to, err = render(r.h, d, r.current, args); err != nil {
		return nil, nil, wire.ReasonInvalid, err
	}
	if changed, err = r.a.o.Files.Changes(to.set()); errors.Is(err, files.ErrUnsafe) {
		return nil, nil, wire.ReasonInvalid, err
	} else if err != nil {
		return nil, nil, wire.ReasonApply, err
	}
	if err = r.verify(ctx, to, changed); err == nil {
		err = r.remember(ctx, to)
	}
	return to, changed, wire.ReasonInvalid, err
}

// remember takes baselines of sysctls and units that the document is the first to touch.
func (r *session) remember(ctx context.Context, to *plan) error {
	for key := range to.doc.Config.Sysctls {
		if _, ok := r.m.Sysctls[key]; ok {
			continue
		}
		value, err := r.a.o.System.Sysctl(key)
		if r.h.boot && errors.Is(err, fs.ErrNotExist) {
			continue // its module is loaded later; Settle sets it
		}
		if err != nil {
			return fmt.Errorf("sysctl %s: cannot be read: %w", key, err)
		}
		r.m.Sysctls[key] = value
	}
	for name, u := range to.units {
		if _, ok := r.m.Running[name]; ok || u.Started == nil {
			continue
		}
		s, err := r.a.o.System.Unit(ctx, name)
		if err != nil {
			return err
		}
		r.m.Running[name] = !s.down()
	}
	return nil
}

// carryOut activates what Begin changed, judges it, and keeps or restores.
func (r *session) carryOut(ctx context.Context, to *plan, changed []string) wire.ConfigurationAnswer {
	r.done = []string{}
	acts, err := r.decide(ctx, r.from, to, changed, nil)
	if err == nil {
		err = r.activate(ctx, acts)
	}
	if err != nil {
		return r.goBack(ctx, to, wire.ReasonApply, err)
	}
	if len(acts.judge) == 0 && !acts.late {
		return r.keep(to)
	}
	r.m.Activated, r.m.Judge = true, acts.judge
	if err := r.m.save(r.t); err != nil {
		return r.goBack(ctx, to, wire.ReasonApply, err)
	}
	if r.h.boot {
		return r.answer(to.doc.Generation, wire.ConfigurationApplying, "", nil)
	}
	return r.judge(ctx, to)
}

// judge awaits health, and keeps or restores.
func (r *session) judge(ctx context.Context, to *plan) wire.ConfigurationAnswer {
	err := r.healthy(ctx, to, r.m.Judge)
	switch {
	case err != nil && ctx.Err() != nil:
		return r.answer(to.doc.Generation, wire.ConfigurationApplying, "", nil)
	case err != nil:
		return r.goBack(ctx, to, wire.ReasonUnhealthy, err)
	}
	return r.keep(to)
}

func (r *session) keep(to *plan) wire.ConfigurationAnswer {
	if err := r.a.o.Files.Keep(); err != nil {
		return r.goBack(context.Background(), to, wire.ReasonApply, err)
	}
	r.from = to
	r.m.forget(to)
	if err := r.m.save(r.t); err != nil { // what it has too much does no harm
		r.a.o.Log.Warn("cannot save baselines", "error", err)
	}
	return r.answer(to.doc.Generation, wire.ConfigurationApplied, "", nil)
}

// goBack restores what the machine had, and says why.
func (r *session) goBack(ctx context.Context, to *plan, reason string, why error) wire.ConfigurationAnswer {
	if ctx.Err() != nil {
		reason = wire.ReasonInterrupted
	}
	r.a.o.Log.Warn("restore configuration", "generation", to.doc.Generation, "reason", reason, "error", message(why))
	if err := r.restore(context.WithoutCancel(ctx), to); err != nil {
		return r.answer(to.doc.Generation, wire.ConfigurationFailed, wire.ReasonRestoreFailed, fmt.Errorf("cannot restore: %w; after: %w", err, why))
	}
	return r.answer(to.doc.Generation, wire.ConfigurationFailed, reason, why)
}

func (r *session) restore(ctx context.Context, to *plan) error {
	only := r.done
	if r.m.Activated {
		// An agent that is killed from here on has to go on restoring.
		r.m.Activated = false
		if err := r.m.save(r.t); err != nil {
			r.a.o.Log.Warn("cannot save that a restore began", "error", err)
		}
	}
	changed, err := r.a.o.Files.Restore()
	if err != nil {
		return err
	}
	acts, err := r.decide(ctx, to, r.from, changed, only)
	if err == nil {
		err = r.activate(ctx, acts)
	}
	// What comes now fails for good: it is not undone by another try.
	if problem := r.a.o.Files.Discard(); problem != nil {
		return errors.Join(err, problem)
	}
	if err == nil && !r.h.boot {
		err = r.healthy(ctx, r.from, acts.judge)
	}
	r.m.forget(r.from)
	return errors.Join(err, r.m.save(r.t))
}

// Settle ends what is pending of an earlier Apply: of boot's, or of an agent that ended. It
// waits until kubelet and units have started, and judges; an Apply that was cut before all
// was activated is restored. pending is false where there was none.
func (a *Applier) Settle(ctx context.Context) (answer wire.ConfigurationAnswer, pending bool) {
	record, pending, err := a.o.Files.Pending()
	if err == nil && !pending {
		return answer, false
	}
	if err != nil {
		return a.broken(0, err), true
	}
	r, err := a.begin(false)
	if err != nil {
		return a.broken(0, err), true
	}
	defer r.end()
	d, err := nodeconfig.ReadUnverified(string(record))
	to := effects(d)
	if err == nil && !r.m.Activated {
		err = errors.New("the agent stopped, or could not restore, while the configuration changed")
	}
	if err != nil {
		return r.goBack(ctx, to, wire.ReasonInterrupted, err), true
	}
	r.done = append([]string{}, r.m.Judge...)
	if slices.Contains(r.done, r.h.kubelet) {
		if r.since, err = r.awaitKubelet(ctx); err != nil {
			return r.answer(d.Generation, wire.ConfigurationApplying, "", nil), true
		}
	}
	return r.judge(ctx, to), true
}

// Recover goes back to the files of before where an Apply was cut: early at a start, before
// what reads them, systemd-sysctl too. It starts and stops no unit. restored is false where
// nothing was pending.
func (a *Applier) Recover(ctx context.Context) (restored bool, err error) {
	_, pending, err := a.o.Files.Pending()
	if err != nil || !pending {
		return false, err
	}
	changed, err := a.o.Files.Restore()
	if err != nil {
		return false, err
	}
	r, err := a.begin(false)
	if err != nil {
		return false, err
	}
	defer r.end()
	// What is derived from files was not restored with them.
	if slices.ContainsFunc(changed, func(c string) bool { return path.Dir(c) == certificateDir }) {
		if err := a.o.System.UpdateCACertificates(ctx); err != nil {
			a.o.Log.Warn("cannot update CA certificates", "error", err)
		}
	}
	if slices.ContainsFunc(changed, func(c string) bool { return unitOf(c) != "" }) {
		err = a.o.System.Reload(ctx)
	}
	r.m.forget(r.from)
	return true, errors.Join(err, a.o.Files.Discard(), r.m.save(r.t))
}
