package lifecycle_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/workflow"
)

// An up of another file that begins and ends inside this one, just before any of its writes, has
// the last word: its settings stay, and this one ends with 3 unless its settings came before.
func TestOutcomeSettingsOfAnotherUpStay(t *testing.T) {
	mine := edited(t, strings.ReplaceAll(file, "ea5647", "0b5647"), map[string]string{"spec.options.timeZone": `"Europe/Berlin"`})
	theirs := edited(t, file, map[string]string{"spec.options.timeZone": `"Asia/Tokyo"`})
	refused := 0
	for before, done := 1, false; !done && !t.Failed(); before++ {
		play(t, nil, func(x *site) {
			go x.boot()
			x.up(file)
			w := &world{site: x, happens: nothing, met: map[string]bool{}}
			writes, what := 0, ""
			w.guard = func(_ *world, _ *process, r *http.Request, _ []byte) {
				if writes++; writes == before {
					what = r.Method + " " + r.URL.Path
					x.up(theirs)
				}
			}
			p := w.process()
			_, err := p.manager(mine).Up(p.ctx, lifecycle.UpOptions{})
			if done = what == ""; done {
				return
			}
			if workflow.ExitCode(err) == workflow.ExitRefused {
				refused++
			} else if err != nil {
				x.Errorf("before %s: %v", what, err)
			}
			vm, _ := x.thing(serverVM, "$expand", "userData")
			if settings := string(vm.Properties.UserData); !strings.Contains(settings, "Asia/Tokyo") || strings.Contains(settings, "Europe/Berlin") {
				x.Errorf("the other up ended before %s, this one with %v, and the server has the settings of this one", what, err)
			}
		})
	}
	if refused < 4 {
		t.Errorf("refused %d times", refused)
	}
}

// A backup that is slower than one that began after it deletes neither of them.
func TestOutcomeSlowerBackupDeletesNone(t *testing.T) {
	play(t, twoRegions, func(x *site) {
		go x.boot()
		text := backedUp(1, "")
		x.up(text)
		if err := x.s.AddFault(azsim.Fault{Method: http.MethodPut, Path: "backups/.*/snapshots/", Count: 1, Effect: azsim.EffectThrottle, RetryAfterSeconds: 60}); err != nil {
			x.Fatal(err)
		}
		slow := make(chan *lifecycle.GroupBackup)
		go func() { slow <- x.backUpToGroup(text) }()
		time.Sleep(10 * time.Second)
		fast := x.backUpToGroup(text)
		first := <-slow
		if want := []string{first.Name, fast.Name}; len(first.Deleted)+len(fast.Deleted) > 0 || !slices.Equal(x.inGroup(), want) {
			x.Errorf("the slower one deleted %q, the other %q; the group has %q, want %q", first.Deleted, fast.Deleted, x.inGroup(), want)
		}
	})
}
