package bootstrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

// load reads a kept verdict.
func load(path string) (wire.Verdict, error) {
	text, err := readWhole(path)
	if err != nil {
		return wire.Verdict{}, err
	}
	return wire.ParseVerdict(text)
}

// sameBoot says whether a kept verdict is of this boot. Where boots have no ids
// (Windows) their beginnings are compared, by a clock that may have been set:
// then it is waited anew, which does no harm.
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

// encode is the verdict's JSON, at most wire.MaxVerdict of it: each excerpt is halved
// from its beginning until all fit, since what matters is written last.
func encode(v wire.Verdict) ([]byte, error) {
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

// keep writes a file so that after a crash it is there wholly or not at all.
func keep(path string, text []byte) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".verdict-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("keeping the verdict: %w", err), os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	if d, openErr := os.Open(dir); openErr == nil {
		// Not every file system can; the rename itself is done.
		_ = d.Sync()
		_ = d.Close()
	}
	return nil
}
