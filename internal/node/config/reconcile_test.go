package config_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/node/config"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/wire"
)

func short(a wire.ConfigurationAnswer) string {
	if a.State == "" {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %d/%d", a.State, a.Reason, a.Generation, a.Wanted))
}

// expect reads the userData once.
func (w *world) expect(what, want string, applied ...int64) {
	w.t.Helper()
	if got := short(w.boot()); got != want || !slices.Equal(w.applied, applied) {
		w.t.Errorf("%s: %s, applied %v; want %s, %v", what, got, w.applied, want, applied)
	}
}

func TestDocumentIsAppliedOnce(t *testing.T) {
	w := newWorld(t, 'a')
	w.expect("no userData", "")
	w.push(document(7), 'a')
	w.expect("a first document", "Applied  7/7", 7)
	w.expect("the same again", "Applied  7/7", 7)
	w.push(document(8), 'a')
	w.expect("a newer one", "Applied  8/8", 7, 8)
	w.push(document(7), 'a')
	w.expect("a replayed one", "Refused GenerationOlder 8/7", 7, 8)
	w.userData = base64.StdEncoding.EncodeToString([]byte("#!/bin/sh\n"))
	w.expect("others' userData", "Applied  8/8", 7, 8)
	w.userData = strings.Repeat("A", nodeconfig.MaxUserData+1)
	w.expect("64 KiB and a byte", "Refused DocumentInvalid 8/0", 7, 8)
}

func TestForeignDocumentsAreRefused(t *testing.T) {
	w := newWorld(t, 'a')
	w.push(document(3), 'b')
	w.expect("another's key", "Refused SignatureInvalid 0/3")
	d := document(3)
	d.Pool = strings.Replace(pool, "/p", "/q", 1)
	w.push(d, 'a')
	w.expect("another pool's", "Refused OtherPool 0/3")
	for what, text := range map[string]string{"no keys": `{"keys":[]}`, "a misspelt member": `{"kyes":[]}`, "not JSON": `keys`} {
		w := newWorld(t, 'a')
		w.push(document(3), 'a')
		if err := os.WriteFile(filepath.Join(w.root, config.SettingsFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		w.expect(what, "Refused NoTrustedKeys 0/3")
	}
	w = newWorld(t)
	w.push(document(3), 'a')
	w.expect("no settings", "Refused NoTrustedKeys 0/3")
}

func TestKeysAreRotated(t *testing.T) {
	w := newWorld(t, 'a')
	both := document(1)
	both.Keys = public('a', 'b')
	w.push(both, 'a')
	w.expect("the old key brings the new one", "Applied  1/1", 1)
	w.push(document(2), 'b')
	w.expect("the new key's document would lock it out", "Refused SignatureInvalid 1/2", 1)
	only := document(3)
	only.Keys = public('b')
	w.push(only, 'b')
	w.expect("the new key alone", "Applied  3/3", 1, 3)
	w.push(document(4), 'a')
	w.expect("the old key", "Refused SignatureInvalid 3/4", 1, 3)
}

func TestFailedGenerationIsNotTriedAgain(t *testing.T) {
	w := newWorld(t, 'a')
	w.push(document(1), 'a')
	w.boot()
	w.outcome = wire.ConfigurationAnswer{State: wire.ConfigurationFailed, Reason: wire.ReasonUnhealthy, Message: "kubelet.service failed"}
	w.push(document(2), 'a')
	w.expect("it fails", "Failed Unhealthy 1/2", 1, 2)
	w.expect("again", "Failed FailedEarlier 1/2", 1, 2)
	if a := w.boot(); a.Message != "Unhealthy: kubelet.service failed" {
		t.Error(a.Message)
	}
	w.outcome = wire.ConfigurationAnswer{}
	w.push(document(1), 'a')
	w.expect("back to what it has", "Applied  1/1", 1, 2)
	again := document(2)
	again.Generation = 3
	w.push(again, 'a')
	w.expect("a new generation", "Applied  3/3", 1, 2, 3)
}

// What is not prepared or not Ready is tried again by itself.
func TestRefusedGenerationIsTriedAgain(t *testing.T) {
	w := newWorld(t, 'a')
	w.push(document(1), 'a')
	w.outcome = wire.ConfigurationAnswer{State: wire.ConfigurationRefused, Reason: wire.ReasonNotPrepared, Message: strings.Repeat("ü<", 2<<10)}
	w.expect("not prepared", "Refused NotPrepared 0/1", 1)
	if a := w.boot(); len(a.Message) > 1<<10 {
		t.Errorf("a message of %d bytes", len(a.Message))
	}
	w.outcome = wire.ConfigurationAnswer{}
	w.expect("prepared", "Applied  1/1", 1, 1, 1)
}

// The image of another pool's node brings its files, and no generation.
func TestCloneOfAnotherPool(t *testing.T) {
	w := newWorld(t, 'a')
	w.push(document(9), 'a')
	w.boot()
	w.pool = strings.Replace(pool, "/p", "/q", 1)
	d := document(1)
	d.Pool = w.pool
	w.push(d, 'a')
	w.expect("in its own pool", "Applied  1/1", 9, 1)
	if !w.forgot {
		t.Error("the baselines of the other pool are kept")
	}
}

// A machine that stops while a generation is applied does not try it at the next boot.
func TestInterruptedGenerationIsNotTriedAgain(t *testing.T) {
	w := newWorld(t, 'a')
	w.outcome = wire.ConfigurationAnswer{State: wire.ConfigurationApplying}
	w.push(document(5), 'a')
	w.expect("before the agents' start", "Applying  0/5", 5)
	show := func(want string) {
		t.Helper()
		a, err := config.Show(w.options(""))
		if err != nil || short(a) != want {
			t.Errorf("show: %s, %v; want %s", short(a), err, want)
		}
	}
	show("Applying  0/5")
	if _, _, err := config.Boot(t.Context(), w.options("http://127.0.0.1:1")); err == nil || !strings.Contains(err.Error(), "recover") {
		t.Errorf("boot over an open application: %v", err)
	}
	w.recovers, w.outcome = true, wire.ConfigurationAnswer{}
	if restored, err := config.Recover(t.Context(), w.root, w, w); !restored || err != nil {
		t.Errorf("%v, %v", restored, err)
	}
	w.pending = false
	w.expect("after the power cut", "Failed FailedEarlier 0/5", 5)
	show("Failed Interrupted 0/5")
	w.recovers = false
	if restored, err := config.Recover(t.Context(), w.root, w, w); restored || err != nil {
		t.Errorf("without a journal: %v, %v", restored, err)
	}
}

// Without its floor a node would accept an older document.
func TestUnreadableStateStopsTheAgent(t *testing.T) {
	w := newWorld(t, 'a')
	if err := os.WriteFile(filepath.Join(w.root, config.StateFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.push(document(5), 'a')
	w.expect("a broken state", "Failed ApplyFailed 0/5")
}

// A node that knows a generation beyond those that count accepts a document that resets
// it, and neither an older one nor what it had.
func TestHole01ResetGeneration(t *testing.T) {
	const end = 1<<63 - 1
	reset := func(generation int64) nodeconfig.Document {
		d := document(generation)
		d.ResetGeneration = true
		return d
	}
	for how, knows := range map[string]func(w *world){
		"in force": func(w *world) {
			text, err := document(end).Sign(key('a'))
			if err != nil {
				w.t.Fatal(err)
			}
			w.record = []byte(text)
		},
		"failed": func(w *world) {
			if err := (config.State{Pool: pool, Generation: end, Reason: wire.ReasonUnhealthy}).Save(w.root); err != nil {
				w.t.Fatal(err)
			}
		},
	} {
		w := newWorld(t, 'a')
		knows(w)
		has := "0"
		if w.record != nil {
			has = fmt.Sprint(int64(end))
		}
		w.push(document(11), 'a')
		w.expect(how+": an old document", "Refused GenerationOlder "+has+"/11")
		w.push(reset(12), 'b')
		w.expect(how+": another's reset", "Refused SignatureInvalid "+has+"/12")
		w.push(reset(12), 'a')
		w.expect(how+": the reset", "Applied  12/12", 12)
		w.push(document(end), 'a')
		w.expect(how+": what it had", "Refused DocumentInvalid 12/0", 12)
		w.push(document(11), 'a')
		w.expect(how+": an old document after the reset", "Refused GenerationOlder 12/11", 12)
		w.push(reset(11), 'a')
		w.expect(how+": an old reset", "Refused GenerationOlder 12/11", 12)
		w.push(document(13), 'a')
		w.expect(how+": the next document", "Applied  13/13", 12, 13)
		w.push(reset(12), 'a')
		w.expect(how+": the reset again", "Refused GenerationOlder 13/12", 12, 13)
	}

	// A reset that fails leaves what it was tried on, and what is below it refused.
	w := newWorld(t, 'a')
	w.push(document(5), 'a')
	w.expect("a first document", "Applied  5/5", 5)
	if err := (config.State{Pool: pool, Generation: end, Reason: wire.ReasonUnhealthy}).Save(w.root); err != nil {
		t.Fatal(err)
	}
	w.push(reset(4), 'a')
	w.expect("a reset to less than the node has", "Refused GenerationOlder 5/4", 5)
	w.outcome = wire.ConfigurationAnswer{State: wire.ConfigurationFailed, Reason: wire.ReasonUnhealthy}
	w.push(reset(12), 'a')
	w.expect("a reset that fails", "Failed Unhealthy 5/12", 5, 12)
	w.outcome = wire.ConfigurationAnswer{}
	w.push(document(11), 'a')
	w.expect("an old document after it", "Refused GenerationOlder 5/11", 5, 12)
	w.push(document(13), 'a')
	w.expect("a corrected document", "Applied  13/13", 5, 12, 13)
}

// An annotation beyond the generations that count asks for nothing, and a node that knows
// one is signalled by its reset.
func TestHole01SignalOfAReset(t *testing.T) {
	play(t, func(w *world) {
		text, err := document(1<<63 - 1).Sign(key('a'))
		if err != nil {
			t.Fatal(err)
		}
		w.record, w.userData, w.wanted = []byte(text), text, fmt.Sprint(int64(1<<63-1))
	}, func(t *testing.T, w *world) {
		pass(5 * time.Minute)
		w.signal(func() { w.wanted = "12" })
		pass(30 * time.Second) // the metadata service is late
		d := document(12)
		d.ResetGeneration = true
		w.push(d, 'a')
		pass(5 * time.Second)
		w.answered("Applied  12/12")
	})
}
