package extension

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/node/bootstrap"
)

const waiterFile = "waiter.json"

const (
	startTimeout = 20 * time.Second       // for systemd to begin a service
	stopTimeout  = 5 * time.Second        // for a waiter to end by itself
	stopLook     = 20 * time.Millisecond  // between looks whether it has
	lastStop     = 500 * time.Millisecond // for one to be gone that was killed
)

// waiter is what is recorded of the one that waits for an instance: that it is
// wanted, and, once it runs, which process it is.
type waiter struct {
	Sequence uint64    `json:"sequence"`
	Begun    time.Time `json:"begun"`           // when its deadline began to run
	Again    bool      `json:"again,omitempty"` // what was judged before that does not count
	PID      int       `json:"pid,omitempty"`
	Started  string    `json:"started,omitempty"` // of the process, in the system's own measure
	Boot     string    `json:"boot,omitempty"`    // the boot's id where Started is of this boot only
	Unit     string    `json:"unit,omitempty"`    // of systemd's
}

func (h *Handler) waiterPath(name string) string {
	return filepath.Join(h.dir, named(name, waiterFile))
}

// waiterOf reads the record; false where none is wanted. A damaged one is none.
func (h *Handler) waiterOf(name string) (waiter, bool) {
	text, err := readBounded(h.waiterPath(name))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			h.log.Warn("cannot read which process waits", "error", err)
		}
		return waiter{}, false
	}
	var w waiter
	if err := json.Unmarshal(text, &w); err != nil {
		h.log.Warn("the record of the process that waits is damaged", "error", err)
		return waiter{}, false
	}
	return w, true
}

func (h *Handler) recordWaiter(name string, w waiter) error {
	text, err := json.Marshal(w)
	if err == nil {
		err = bootstrap.Replace(h.waiterPath(name), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("recording which process waits: %w", err)
	}
	return nil
}

// runs says whether the process is there, and is not another that got its number
// since.
func (w waiter) runs() bool {
	if w.PID <= 0 || w.Boot != bootID() {
		return false
	}
	started, err := startOf(w.PID)
	return err == nil && started == w.Started
}

// claim makes this process the one that waits for a call; false where nobody is
// to, or another does. It holds the lock, so that who ends the waiter in the same
// moment does so before it, and it finds no record, or after it, and finds us.
func (h *Handler) claim(c Call, unrecorded bool) (waiter, bool) {
	defer h.lock()()
	w, ok := h.waiterOf(c.Name)
	if !ok && unrecorded {
		w = waiter{Sequence: c.Sequence, Begun: h.now()}
	} else if !ok || w.Sequence != c.Sequence || w.runs() && w.PID != os.Getpid() {
		return w, false
	}
	var err error
	if w.Started, err = startOf(os.Getpid()); err != nil {
		h.log.Warn("cannot look at ourselves", "error", err)
	}
	w.PID, w.Boot = os.Getpid(), bootID()
	if err := h.recordWaiter(c.Name, w); err != nil {
		// On a full disk one that cannot be stopped is better than none.
		h.log.Warn("cannot say which process waits", "error", err)
	}
	return w, true
}

// lock keeps other processes from changing who waits, until what it returns is
// called. The system gives it back where a process ends.
func (h *Handler) lock() (unlock func()) {
	unlock, err := lock(h.dir)
	if err != nil {
		h.log.Warn("going on without a lock", "error", err)
		return func() {}
	}
	return unlock
}

// dismiss takes the record away, so that nobody is to wait, and gives what it said.
func (h *Handler) dismiss(name string) (waiter, bool, error) {
	defer h.lock()()
	w, ok := h.waiterOf(name)
	// Without the record it is not wanted: one that is being begun, or that systemd
	// begins again, ends by itself.
	if err := os.Remove(h.waiterPath(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return w, ok, fmt.Errorf("recording that nobody waits: %w", err)
	}
	return w, ok, nil
}

// launch leaves a waiter behind that neither the agent's time limit nor its control
// groups end. w is what it goes by.
func (h *Handler) launch(ctx context.Context, c Call, w waiter) error {
	args := []string{"extension", "wait", "--dir", h.dir, "--sequence", strconv.FormatUint(c.Sequence, 10)}
	if c.Name != "" {
		args = append(args, "--name", c.Name)
	}
	if h.o.Root != "" {
		args = append(args, "--root", h.o.Root)
	}
	if h.o.SystemdRun != "" {
		w.Unit = h.unit(c)
		args := h.record(c, w, args)
		err := h.service(ctx, w.Unit, args)
		if err == nil {
			h.log.Info("a service waits", "unit", w.Unit, "sequence", c.Sequence)
			return nil
		}
		h.log.Warn("systemd began no service; a process of its own session waits instead", "unit", w.Unit, "error", err)
		w.Unit = ""
	}
	cmd := exec.Command(h.o.Program, h.record(c, w, args)...)
	cmd.Dir = filepath.VolumeName(h.dir) + string(filepath.Separator)
	if err := startDetached(cmd); err != nil {
		return fmt.Errorf("leaving %s behind: %w", h.o.Program, err)
	}
	h.log.Info("a process waits", "pid", cmd.Process.Pid, "sequence", c.Sequence)
	return cmd.Process.Release()
}

// record records that a waiter is wanted. Where there is no room for it the waiter
// is told to do without.
func (h *Handler) record(c Call, w waiter, args []string) []string {
	if err := h.recordWaiter(c.Name, w); err != nil {
		h.log.Warn("the one that waits cannot be stopped before it ends", "error", err)
		return append(args, "--unrecorded")
	}
	return args
}

// unit names the service of a call.
func (h *Handler) unit(c Call) string {
	return "ortet-extension-" + named(c.Name, strconv.FormatUint(c.Sequence, 10)) + ".service"
}

// service has systemd run the program. It fails where systemd is too old to say
// whether the program was begun (before 240), or may not run it where it lies
// (SELinux).
func (h *Handler) service(ctx context.Context, unit string, args []string) error {
	ctx, stop := context.WithTimeout(ctx, startTimeout)
	defer stop()
	run := []string{
		"--quiet", "--collect", "--unit=" + unit, "--description=Ortet waits until it is known whether this node came up",
		"--property=Type=exec", "--property=Restart=on-failure", "--property=RestartSec=10", "--", h.o.Program,
	}
	out, err := exec.CommandContext(ctx, h.o.SystemdRun, append(run, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %.500q", filepath.Base(h.o.SystemdRun), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// stop ends the waiter of an instance, if there is one, and sees to it that none
// begins.
func (h *Handler) stop(ctx context.Context, name string) error {
	w, ok, err := h.dismiss(name)
	if err != nil || !ok || !w.runs() {
		return err
	}
	h.log.Info("ending the one that waits", "pid", w.PID, "sequence", w.Sequence)
	for _, how := range []struct {
		end  func(*os.Process) error
		wait time.Duration
	}{{askToEnd, stopTimeout}, {(*os.Process).Kill, lastStop}} {
		p, err := os.FindProcess(w.PID)
		if !w.runs() {
			return nil // it has just ended
		}
		if err != nil {
			return fmt.Errorf("process %d, which waits: %w", w.PID, err)
		}
		// On Linux p holds the process itself, so its number cannot have passed to
		// another since it was looked at.
		if err := how.end(p); err != nil && !errors.Is(err, os.ErrProcessDone) {
			h.log.Warn("cannot end the one that waits", "pid", w.PID, "error", err)
		}
		_ = p.Release() // it is not our child
		if w.ends(ctx, how.wait) {
			return nil
		}
	}
	return fmt.Errorf("process %d, which waits, does not end", w.PID)
}

// ends looks until the process has ended, for at most so long.
func (w waiter) ends(ctx context.Context, limit time.Duration) bool {
	late := time.NewTimer(limit)
	defer late.Stop()
	look := time.NewTicker(stopLook)
	defer look.Stop()
	for {
		if !w.runs() {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-late.C:
			return !w.runs()
		case <-look.C:
		}
	}
}
