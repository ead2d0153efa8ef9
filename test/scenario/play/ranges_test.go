package play_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ortet/ortet/test/scenario/play"
)

var (
	state  = flag.String("state", "", "keep in this folder which ranges are played, by the content of this program, and play them once")
	within = flag.Duration("within", 0, "begin no seed after so long; 0: no bound")
	totals = flag.Bool("totals", false, "add up the ranges that are kept, and play nothing")
)

// rangeSize is how many seeds are kept together. Ranges begin at its multiples, and
// one; what is beyond them at both ends is played each time.
const rangeSize = 250

// A tally is what came of a range.
type tally struct {
	From, Done uint64
	Stats      play.Stats
	Took, CPU  time.Duration
}

func (t *tally) add(o tally) {
	t.Done += o.Done
	t.Took += o.Took
	t.CPU += o.CPU
	t.Stats.Add(o.Stats)
}

// kept is the folder of this very program: a change to what is played, or plays, begins
// from nothing. "" where nothing is kept.
func keptRanges() (string, error) {
	if *state == "" {
		return "", nil
	}
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	f, err := os.Open(program)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it is read alone
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	dir := filepath.Join(*state, hex.EncodeToString(sum.Sum(nil))[:16])
	return dir, os.MkdirAll(dir, 0o755)
}

func rangeFile(dir string, from uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%020d.json", from))
}

func readRange(file string) (t tally, ok bool) {
	text, err := os.ReadFile(file)
	return t, err == nil && json.Unmarshal(text, &t) == nil
}

// keep writes a range at once or not at all.
func (t tally) keep(dir string) error {
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	file := rangeFile(dir, t.From)
	if err := os.WriteFile(file+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// simulateRanges plays seeds range by range, those that are kept not again.
func simulateRanges(t *testing.T, first, count uint64) (all tally, failed []uint64) {
	t.Helper()
	dir, err := keptRanges()
	if err != nil {
		t.Fatal(err)
	}
	all.From = first
	begun, again := time.Now(), uint64(0)
	for at := first; at < first+count && len(failed) < *fails; {
		n := min(rangeSize-(at-1)%rangeSize, first+count-at)
		if dir == "" {
			n = count
		}
		if one, ok := readRange(rangeFile(dir, at)); ok && dir != "" && n == rangeSize {
			all.add(one)
			again += n
			at += n
			continue
		}
		if *within > 0 && time.Since(begun) >= *within {
			break
		}
		began, used := time.Now(), cpuTime()
		stats, done, broke := simulate(t, at, n, begun)
		one := tally{From: at, Done: done, Stats: stats, Took: time.Since(began), CPU: cpuTime() - used}
		all.add(one)
		failed = append(failed, broke...)
		if done < n {
			break
		}
		if dir != "" && n == rangeSize && len(broke) == 0 {
			if err := one.keep(dir); err != nil {
				t.Fatal(err)
			}
		}
		at += n
	}
	if again > 0 {
		fmt.Printf("%d of the seeds were played before by this very program\n", again)
	}
	return all, failed
}

// printTotals adds up what is kept.
func printTotals(t *testing.T) {
	t.Helper()
	dir, err := keptRanges()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all, run tally
	line := func() {
		if run.Done > 0 {
			fmt.Printf("seeds %d to %d\n", run.From, run.From+run.Done-1)
		}
	}
	for _, file := range files { // by their first seeds
		one, ok := readRange(file)
		if !ok {
			t.Fatalf("%s is no range: delete it", file)
		}
		all.add(one)
		if run.Done > 0 && run.From+run.Done == one.From {
			run.Done += one.Done
			continue
		}
		line()
		run = tally{From: one.From, Done: one.Done}
	}
	line()
	report(all, nil)
}
