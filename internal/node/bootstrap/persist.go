package bootstrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
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

// keep writes a file that others find there wholly or not at all, at once, and
// that is on the disk when keep returns. It is seen before it is on the disk,
// since that may take long on a node that boots: a power cut in between leaves a
// file that is no verdict, and the next boot is waited for anew in any case.
func keep(path string, text []byte) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".verdict-*") // mode 0600
	if err != nil {
		return err
	}
	name := f.Name()
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("keeping the verdict: %w", err), os.Remove(name))
		}
	}()
	if _, err := f.Write(text); err != nil {
		return errors.Join(err, f.Close())
	}
	if runtime.GOOS == "windows" {
		// An open file cannot be renamed there.
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
		return os.Rename(name, path)
	}
	if err := os.Rename(name, path); err != nil {
		return errors.Join(err, f.Close())
	}
	name = path
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if d, openErr := os.Open(dir); openErr == nil {
		// Not every file system can; the file itself is on the disk.
		_ = d.Sync()
		_ = d.Close()
	}
	return nil
}
