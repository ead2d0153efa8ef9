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

// What is backed up before a change stays as it was where Azure does not complete the backup; the
// same command ends well when Azure does, and leaves no backup that failed.
func TestOutcomeFailedBackupEndsTheChange(t *testing.T) {
	for name, do := range map[string]func(x *site) error{
		"restore": func(x *site) error { return restore("good")(x.ctx, x.manager(file)) },
		"replace server": func(x *site) error {
			_, err := x.manager(file).ReplaceServer(x.ctx, lifecycle.UpOptions{})
			return err
		},
		"up with another k3s": func(x *site) error {
			_, err := x.manager(strings.ReplaceAll(file, "ea5647", "0b5647")).Up(x.ctx, lifecycle.UpOptions{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, func(x *site) {
				go x.boot()
				x.up(file)
				x.backup("good")
				vm, _ := x.thing(serverVM, "$expand", "userData")
				state, _ := x.thing(stateDisk)
				x.fails("/snapshots/")
				err := do(x)
				now, _ := x.thing(serverVM, "$expand", "userData")
				disk, _ := x.thing(stateDisk)
				if err == nil || x.machine() != "Standard_D2s_v5 running 8 GB" || string(now.Properties.UserData) != string(vm.Properties.UserData) || disk.Properties.TimeCreated != state.Properties.TimeCreated {
					x.Fatalf("%v; the server is %s, its disk %+v", err, x.machine(), disk)
				}
				if err := do(x); err != nil {
					x.Error(err)
				}
				all, err := x.manager(file).Backups(x.ctx)
				if err != nil || len(all) != 2 && !slices.ContainsFunc(all, func(b lifecycle.Backup) bool { return b.State == "Failed" }) {
					x.Errorf("backups: %v %+v", err, all)
				}
			})
		})
	}
}

// fails has Azure accept the first PUT of a path, and not complete it.
func (x *site) fails(path string) {
	x.Helper()
	if err := x.s.AddFault(azsim.Fault{Method: http.MethodPut, Path: path, Count: 1, Effect: azsim.EffectFailAtEnd}); err != nil {
		x.Fatal(err)
	}
}

// killed gives a command again after each of its writes, and until it ends well.
func (x *site) killed(do func(p *process) error) {
	x.Helper()
	w := &world{site: x, happens: killAfter, met: map[string]bool{}}
	for runs := 1; ; runs++ {
		p := w.process()
		hours := time.AfterFunc(4*time.Hour, p.kill)
		err := do(p)
		if p.kill(); err == nil {
			return
		}
		if !hours.Stop() || runs > 40 {
			x.Fatalf("run %d: %v\n%s", runs, err, strings.Join(w.trace, "\n"))
		}
		if workflow.ExitCode(err) != workflow.ExitInterrupted { // after which the next run is at once
			time.Sleep(2 * time.Second)
		}
	}
}

// A restore that is killed after each of its writes goes on with what Azure has completed alone:
// neither a backup of before nor a state disk that failed afterwards counts as made.
func TestOutcomeKilledRestoreUsesNothingFailed(t *testing.T) {
	for _, path := range []string{"/snapshots/before-", "/disks/state$"} {
		play(t, nil, func(x *site) {
			x.k3s = "v1.36.3+k3s1"
			go x.boot()
			x.up(twoPools)
			x.backup("good")
			x.fails(path)
			x.killed(func(p *process) error { return restore("good")(p.ctx, p.manager(twoPools)) })
			x.isRestored("good")
			if d, _ := x.thing(stateDisk); d.Properties.ProvisioningState != "Succeeded" {
				x.Errorf("%s: the state disk is %+v", path, d)
			}
		})
	}
}

// A backup to a group whose snapshot or copy fails in Azure after the command was killed is not
// reported as made, and the same command makes it in the end.
func TestOutcomeKilledBackupIsComplete(t *testing.T) {
	for path, region := range map[string]string{"backups/.*/snapshots/": "", "-northeurope$": "northeurope"} {
		play(t, twoRegions, func(x *site) {
			go x.boot()
			text := backedUp(1, region)
			x.up(text)
			x.fails(path)
			var b *lifecycle.GroupBackup
			x.killed(func(p *process) (err error) { b, err = p.manager(text).BackupToGroup(p.ctx); return err })
			if s, err := x.manager(text).Status(x.ctx); err != nil || s.LastBackup == nil || !s.LastBackup.Equal(b.Created.Truncate(time.Second)) {
				x.Errorf("%s: %v: the last complete backup is of %v, and the command made %+v; the group has %q", path, err, s.LastBackup, b, x.inGroup())
			}
		})
	}
}

// Within an hour the same command completes the snapshot of a run that was killed, and later it
// makes another.
func TestOutcomeUnfinishedBackupIsCompletedForAnHour(t *testing.T) {
	for after, same := range map[time.Duration]bool{50 * time.Minute: true, 61 * time.Minute: false} {
		play(t, twoRegions, func(x *site) {
			go x.boot()
			text := backedUp(1, "northeurope")
			x.up(text)
			w := &world{site: x, happens: killAfter, met: map[string]bool{}}
			for len(x.inGroup()) == 0 {
				p := w.process()
				_, _ = p.manager(text).BackupToGroup(p.ctx)
			}
			first := x.inGroup()[0]
			time.Sleep(after)
			if b := x.backUpToGroup(text); (b.Name == first) != same {
				x.Errorf("%s after %s the command made %s", after, first, b.Name)
			}
		})
	}
}

// With another region, backups without a copy there stay until enough newer ones have it.
func TestOutcomeBackupsWithoutACopyStay(t *testing.T) {
	play(t, twoRegions, func(x *site) {
		go x.boot()
		x.up(file)
		var want []string
		for _, region := range []string{"", "", "northeurope", "northeurope"} {
			time.Sleep(2 * time.Hour) // later than an unfinished one is completed
			b := x.backUpToGroup(backedUp(2, region))
			if want = append(want, b.Name); region != "" {
				want = append(want, b.Name+"-"+region)
			}
			if len(want) == 6 { // two that have it
				want = want[2:]
			}
			if !slices.Equal(x.inGroup(), want) {
				x.Errorf("after %s the group has %q, want %q", b.Name, x.inGroup(), want)
			}
		}
	})
}
