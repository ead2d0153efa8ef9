package extension

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/wire"
)

// heartbeatEvery is how often a waiter renews the heartbeat, where the manifest
// promises one: the agent gives up after 600 s, so one may be late.
const heartbeatEvery = 4 * time.Minute

// Options are what the handler works with.
type Options struct {
	Dir     string // the handler's folder, absolute
	Program string // our own, which is left behind to wait; absolute
	Root    string // the node's root, for tests; "" is this system's
	// SystemdRun is the program that has systemd run another; "" where there is no
	// systemd.
	SystemdRun string
	Now        func() time.Time
	// Wait waits until it is known whether the node came up: bootstrap.Wait.
	Wait func(context.Context, bootstrap.Options, *slog.Logger) (wire.Verdict, error)
	// ExitCode is the code that a verdict has everywhere.
	ExitCode func(wire.Verdict) int
}

// Handler carries out the agent's commands. They can be repeated, and killed at any
// point: the next run goes on from what is on the disk.
type Handler struct {
	o   Options
	dir string
	env Environment
	log *slog.Logger
}

// Open reads the handler's environment, and makes the folders in it that are
// missing. It says nothing to anybody until UseLogger.
func Open(o Options) (*Handler, error) {
	var err error
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, fmt.Errorf("the handler's folder %q: %w", o.Dir, err)
	}
	env, err := readEnvironment(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("the handler's environment: %w", err)
	}
	for _, dir := range []string{env.Status, env.Log} {
		// There may be no room; what is written there says so then.
		_ = os.MkdirAll(dir, 0o700)
	}
	return &Handler{o: o, dir: o.Dir, env: env, log: slog.New(slog.DiscardHandler)}, nil
}

// UseLogger has the handler say to log what it says from now on.
func (h *Handler) UseLogger(log *slog.Logger) { h.log = log }

func (h *Handler) now() time.Time { return h.o.Now() }

// UsageError says that the operator's settings, or what the agent called us with,
// are wrong. The same call fails again.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *UsageError) Unwrap() error { return e.Err }

// Install checks that the handler can do its work: that it may write where the agent
// reads. An update runs it too, so it takes nothing away.
func (h *Handler) Install() error {
	probe := filepath.Join(h.env.Status, ".ortet-probe")
	if err := bootstrap.Replace(probe, nil, 0o600); err != nil {
		return fmt.Errorf("the folder of statuses cannot be written: %w", err)
	}
	return os.Remove(probe)
}

// Enable has the boot waited for, and returns at once. name is of the instance, ""
// for none; sequence is the agent's number, "" where it says none. A *UsageError
// has been told in the status.
func (h *Handler) Enable(ctx context.Context, name, sequence string) error {
	c, err := h.call(name, sequence)
	if err != nil {
		return &UsageError{err}
	}
	s, err := h.readSettings(c)
	if err != nil {
		told := h.tell(c, status{State: failure, Code: usageCode, Message: say("Nothing is waited for, since the settings are wrong: " + head(err.Error(), 2<<10))})
		return &UsageError{errors.Join(err, told)}
	}
	last, known, err := h.last(name)
	if err != nil {
		h.log.Warn("it is not known what was taken up last", "error", err)
	}
	w, wanted := h.waiterOf(name)
	cut := !wanted && h.state(c) == transitioning // it was disabled before there was a verdict
	wanted = wanted && w.Sequence == c.Sequence
	runs := wanted && w.runs()
	switch next(known && last == c.Sequence, h.state(c), runs) {
	case nothing:
		h.log.Info("nothing to do", "sequence", c.Sequence, "status", h.state(c), "waiting", runs)
		return nil
	case waitAnew:
		if err := h.stop(ctx, name); err != nil {
			return err
		}
	}
	if spent := h.now().Sub(w.Begun); !wanted || spent < 0 || spent > bootstrap.Uptime(h.o.Root) {
		// Another configuration, or another boot. Who changes the configuration asks
		// anew, also where this boot was judged already; and what was asked before
		// disable is still to be answered.
		w = waiter{Begun: h.now(), Again: known && (last != c.Sequence || cut)}
	}
	w = waiter{Sequence: c.Sequence, Begun: w.Begun, Again: w.Again}
	var problems []error
	until := h.now().Add(s.options("", h.now().Sub(w.Begun)).Deadline).UTC().Format("15:04 MST")
	text := "Waiting, until " + until + " at most, until it is known whether the node came up." + h.note(s)
	problems = append(problems, h.tell(c, status{State: transitioning, Message: say(text)}))
	if h.beats() {
		problems = append(problems, h.beat(text))
	}
	if err := errors.Join(problems...); err != nil {
		// The agent holds a missing status for a transitioning one, and there may be
		// room again when there is more to say.
		h.log.Error("cannot say that it is waited for", "error", err)
	}
	if err := h.launch(ctx, c, w); err != nil {
		told := h.tell(c, status{State: failure, Code: 1, Message: say("Nothing is waited for: " + head(err.Error(), 2<<10))})
		return errors.Join(err, told)
	}
	if err := h.take(c); err != nil {
		h.log.Error("the next enable may have it waited for once more", "error", err)
	}
	return nil
}

// usageCode is the status code of wrong settings, as the exit code elsewhere.
const usageCode = 64

// action is what enable does.
type action int

const (
	nothing action = iota
	waitAnew
)

// next says what enable has to do for a call, from whether its number was taken up
// last, what its status says and whether its waiter runs.
func next(taken bool, state string, runs bool) action {
	if runs {
		return nothing
	}
	if taken && (state == success || state == failure) {
		return nothing
	}
	return waitAnew
}

// note is what an operator has to know of the settings besides.
func (h *Handler) note(s Settings) string {
	if s.Protected {
		return " The protected settings are not used; they were neither decrypted nor read."
	}
	return ""
}

func (h *Handler) beats() bool { return h.env.Heartbeat != "" && reportsHeartbeat(h.dir) }

// Update takes over from the version before, which the agent names, what the agent
// does not copy.
func (h *Handler) Update(from string) error { return h.inherit(from) }

// Disable ends the waiter of an instance. The status stays, and says transitioning
// where there was no verdict yet: the next enable waits anew.
func (h *Handler) Disable(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return &UsageError{err}
	}
	return h.stop(ctx, name)
}

// Uninstall ends all waiters and removes what we wrote in the handler's folder. The
// rest of it is the agent's, the log is for whoever asks why, and the verdict is
// the node's.
func (h *Handler) Uninstall(ctx context.Context) error {
	entries, err := os.ReadDir(h.dir)
	if err != nil {
		return fmt.Errorf("looking for what to remove: %w", err)
	}
	var problems []error
	for _, e := range entries {
		name := e.Name()
		switch {
		case name == waiterFile || strings.HasSuffix(name, "."+waiterFile):
			problems = append(problems, h.stop(ctx, strings.TrimSuffix(strings.TrimSuffix(name, waiterFile), ".")))
		case name == mrseq || strings.HasSuffix(name, "."+mrseq) || strings.HasPrefix(name, ".ortet-"):
			problems = append(problems, os.Remove(filepath.Join(h.dir, name)))
		}
	}
	if h.beats() {
		if err := os.Remove(h.env.Heartbeat); !errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// Wait is what Enable leaves behind: it waits for the verdict and makes it the
// call's status. unrecorded says that there was no room to record that it is
// wanted. It returns nil where it is not the one that is wanted, and where ctx
// ends: the status stays transitioning then. An error says that the status could
// not be written; it is worth another try.
func (h *Handler) Wait(ctx context.Context, name, sequence string, unrecorded bool) error {
	c, err := h.call(name, sequence)
	if err != nil {
		return &UsageError{err}
	}
	w, ok := h.claim(c, unrecorded)
	if !ok {
		h.log.Info("waiter superseded or disabled; exiting", "sequence", c.Sequence)
		return nil
	}
	s, err := h.readSettings(c)
	if err != nil {
		h.log.Error("the settings are not what they were when it began", "error", err)
		return h.tell(c, status{State: failure, Code: usageCode, Message: say(head(err.Error(), 2<<10))})
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	beating := make(chan struct{})
	go func() {
		defer close(beating)
		if h.beats() {
			h.keepBeating(ctx)
		}
	}()
	o := s.options(h.o.Root, h.now().Sub(w.Begun))
	if w.Again {
		o.After = w.Begun
	}
	v, err := h.o.Wait(ctx, o, h.log)
	interrupted := ctx.Err() != nil
	stop()
	<-beating
	if err != nil && interrupted {
		h.log.Info("ended before it was known whether the node came up", "sequence", c.Sequence)
		return nil
	}
	if now, ok := h.waiterOf(c.Name); !ok && !unrecorded || ok && (now.Sequence != c.Sequence || now.PID != 0 && now.PID != os.Getpid()) {
		h.log.Info("another waits meanwhile, or nobody is to", "sequence", c.Sequence)
		return nil
	}
	result := status{State: failure, Code: 1}
	if err != nil {
		h.log.Error("there is no verdict", "error", err)
		result.Message = say("There is no verdict: " + head(err.Error(), 2<<10))
	} else {
		result = report(v, h.o.ExitCode(v), strings.TrimSpace(h.note(s)))
	}
	if err := h.tell(c, result); err != nil {
		return err
	}
	if h.beats() {
		if beat := h.beat(result.Message.Text); beat != nil {
			h.log.Warn("cannot renew the heartbeat", "error", beat)
		}
	}
	h.log.Info("the status is final", "sequence", c.Sequence, "status", result.State, "code", result.Code)
	if err := os.Remove(h.waiterPath(c.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.log.Warn("cannot say that nobody waits any more", "error", err)
	}
	return nil
}

// keepBeating renews the heartbeat until ctx ends.
func (h *Handler) keepBeating(ctx context.Context) {
	every := time.NewTicker(heartbeatEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			if err := h.beat("Waiting until it is known whether the node came up."); err != nil {
				h.log.Warn("cannot renew the heartbeat", "error", err)
			}
		}
	}
}
