package bootstrap

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

// kept is what the verdict's file holds: the verdict, and what is to be known of
// it later.
type kept struct {
	wire.Verdict
	// Question is what it answers, by Options.question.
	Question string `json:"question,omitempty"`
	// CameUp means that the machine came up in an earlier boot.
	CameUp bool `json:"cameUpBefore,omitempty"`
}

// load reads a kept verdict.
func load(path string) (kept, error) {
	text, err := readWhole(path)
	if err != nil {
		return kept{}, err
	}
	var k kept
	if err := json.Unmarshal(text, &k); err != nil {
		return kept{}, fmt.Errorf("reading a verdict: %w", err)
	}
	return k, k.Validate()
}

// answers reports whether the verdict, of this boot, answers the same question again.
// TimedOut does not: it is about the caller's patience.
func (k kept) answers(question string, after, now time.Time) bool {
	if k.Question != question || k.Outcome == wire.TimedOut {
		return false
	}
	// One of the future was given before the clock was set back.
	return k.Outcome == wire.Succeeded || after.IsZero() || !k.At.Before(after) && !k.At.After(now)
}

// recall returns what was stored: the newest verdict of this boot, preferring one that
// answers the question, and whether the machine came up in an earlier boot.
func recall(o Options, me whoAmI, now time.Time, log *slog.Logger) (before kept, answered, cameUp bool) {
	question := o.question()
	// Where there was no room for the first the second is newer.
	for _, path := range []string{o.State, o.under(spareState)} {
		k, err := load(path)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				log.Warn("cannot use a verdict that was kept", "path", path, "error", err)
			}
			continue
		}
		same := sameBoot(k.Verdict, me, now, Uptime(o.Root))
		if me.vmID != "" && k.VMID == me.vmID {
			cameUp = cameUp || k.CameUp || !same && (k.Outcome == wire.Succeeded || k.Outcome == wire.Degraded)
		}
		answers := same && k.answers(question, o.After, now)
		if same && answers == answered && k.Uptime >= before.Uptime || answers && !answered {
			before, answered = k, answers
		}
	}
	return before, answered, cameUp
}

// sameBoot reports whether a stored verdict is of this boot. Where boots have no ids
// (Windows) their beginnings are compared, by a clock that may have been set: a false
// mismatch only waits again.
func sameBoot(v wire.Verdict, me whoAmI, now time.Time, up time.Duration) bool {
	if v.BootID != "" || me.bootID != "" {
		return v.BootID == me.bootID
	}
	if v.Uptime == 0 || up == 0 || v.Uptime > up.Milliseconds() {
		return false
	}
	apart := now.Add(-up).Sub(v.At.Add(-time.Duration(v.Uptime) * time.Millisecond))
	return apart.Abs() < time.Minute
}

// encode is the verdict's JSON, limited to wire.MaxVerdict: each excerpt is halved from its
// beginning until all fit, since what matters is written last.
func encode(v kept) ([]byte, error) {
	for {
		text, err := json.MarshalIndent(v, "", " ")
		if err != nil || len(text) < wire.MaxVerdict {
			return append(text, '\n'), err
		}
		evidence, left := append([]wire.Excerpt(nil), v.Evidence...), false
		for i := range evidence {
			if e := &evidence[i]; len(e.Lines) > 0 {
				e.Lines, e.Cut, left = e.Lines[(len(e.Lines)+1)/2:], true, true
			}
		}
		if !left {
			v.Evidence, v.Stages, v.Ignored = nil, nil, nil
			text, err = json.MarshalIndent(v, "", " ")
			return append(text, '\n'), err
		}
		v.Evidence = evidence
	}
}

// Keep replaces a file, of mode 0600, in folders that it makes, and returns when it is on
// the disk. It is visible before, since a sync may be slow on a booting node: a power cut
// in between leaves an invalid verdict, and the next boot waits again.
func Keep(path string, text []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := Replace(path, text, 0o600); err != nil {
		return err
	}
	if err := flush(path, os.O_WRONLY); err != nil {
		return err
	}
	_ = flush(dir, os.O_RDONLY) // not every file system can; the file itself is on the disk
	return nil
}

func flush(path string, flag int) error {
	f, err := os.OpenFile(path, flag, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Replace writes a file that others find there wholly or not at all, with this mode
// whatever the umask is. It may not be on the disk yet.
func Replace(path string, text []byte, perm fs.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".ortet-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(perm), f.Close()); err == nil {
		err = os.Rename(f.Name(), path) // closed: Windows renames no open file
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Kept is the verdict of this boot; ok is false while there is none. state "" is
// the default below root.
func Kept(root, state, bootID string) (v wire.Verdict, ok bool) {
	o := rooted(root)
	state = cmp.Or(state, o.under(defaultState))
	k, err := load(state)
	if err != nil {
		k, err = load(o.under(spareState))
	}
	return k.Verdict, err == nil && k.Outcome != "" && (bootID == "" || strings.EqualFold(k.BootID, bootID))
}
