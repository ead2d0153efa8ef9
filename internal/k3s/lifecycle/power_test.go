package lifecycle_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
)

// A disk is what the tests read of the state disk.
type disk struct {
	Tags       map[string]string
	Properties struct {
		TimeCreated  string
		CreationData struct{ CreateOption, SourceResourceID string }
		DiskSizeGB   int
	}
}

// read reads a resource; false is missing.
func (x *site) read(id string, into any, query ...string) bool {
	x.Helper()
	version := "2024-07-01"
	switch {
	case !strings.Contains(id, "/providers/"):
		version = "2021-04-01"
	case strings.Contains(id, "/disks/"), strings.Contains(id, "/snapshots"):
		version = "2023-10-02"
	case strings.Contains(id, "/autoscaleSettings/"):
		version = "2022-10-01"
	case strings.Contains(id, "/roleAssignments"):
		version = "2022-04-01"
	}
	err := x.arm.Get(x.ctx, fleet.ResourceID(id), version, into, query...)
	if err != nil && !fleet.Is(err, fleet.KindNotFound) && x.ctx.Err() == nil {
		x.Error(err)
	}
	return err == nil
}

func (x *site) tags(id string) map[string]string {
	x.Helper()
	var r struct{ Tags map[string]string }
	if !x.read(id, &r) {
		x.Errorf("%s is missing", id)
	}
	return r.Tags
}

// powers are the power states of the server and of the agents of a pool.
func (x *site) powers(name string) (server string, agents []fleet.PowerState) {
	x.Helper()
	var vm struct {
		Properties struct {
			InstanceView struct{ Statuses []struct{ Code string } }
		}
	}
	if x.read(serverVM, &vm, "$expand", "instanceView") {
		for _, s := range vm.Properties.InstanceView.Statuses {
			if power, is := strings.CutPrefix(s.Code, "PowerState/"); is {
				server = power
			}
		}
	}
	list, err := x.cloud.Instances(x.ctx, fleet.ResourceID(strings.TrimSuffix(pool, "agents")+name))
	if err != nil {
		x.Error(err)
	}
	for _, i := range list {
		agents = append(agents, i.Power)
	}
	return server, agents
}

func (x *site) wants(when, wantServer, name string, wantAgents ...fleet.PowerState) {
	x.Helper()
	if server, agents := x.powers(name); server != wantServer || !slices.Equal(agents, wantAgents) {
		x.Errorf("%s: server %s, agents of %s %v; want %s, %v", when, server, name, agents, wantServer, wantAgents)
	}
}

// interrupt gives a command that ends at each time of a run of it, and then again.
func interrupt(t *testing.T, step time.Duration, prepare func(x *site), do func(ctx context.Context, m *lifecycle.Manager) error, test func(x *site)) {
	t.Helper()
	n := 0
	for after := time.Second; ; after += step {
		n++
		done := false
		t.Run(after.String(), func(t *testing.T) {
			play(t, nil, func(x *site) {
				x.k3s = "v1.36.3+k3s1"
				go x.boot()
				x.up(twoPools)
				prepare(x)
				ctx, cancel := context.WithTimeout(x.ctx, after)
				defer cancel()
				err := do(ctx, x.manager(twoPools))
				if done = err == nil; !done && workflow.ExitCode(err) != workflow.ExitInterrupted {
					x.Fatalf("exit code %d: %v", workflow.ExitCode(err), err)
				}
				if !done {
					if err := do(x.ctx, x.manager(twoPools)); err != nil {
						x.Fatalf("again: %v", err)
					}
				}
				test(x)
			})
		})
		if done || t.Failed() {
			t.Logf("%d runs, the last of %s", n, after)
			return
		}
	}
}

func (x *site) backup(name string) {
	x.Helper()
	if _, err := x.manager(twoPools).Backup(x.ctx, name, ""); err != nil {
		x.Fatal(err)
	}
}

// backups are the names of the backups that Ortet made by itself for a reason.
func (x *site) backups(why string) (names []string) {
	x.Helper()
	all, err := x.manager(twoPools).Backups(x.ctx)
	if err != nil {
		x.Error(err)
	}
	for _, b := range all {
		if b.Why == why && b.State == "Succeeded" {
			names = append(names, b.Name)
		}
	}
	return names
}

// watchState fails the test when another blank state disk is made, or one of a backup that does not
// say, from its first moment, which k3s and which networks its datastore has.
func (x *site) watchState() {
	var first disk
	x.read(stateDisk, &first)
	go func() {
		for x.ctx.Err() == nil {
			var d disk
			if x.read(stateDisk, &d) && d.Properties.CreationData.CreateOption == "Empty" && d.Properties.TimeCreated != first.Properties.TimeCreated {
				x.Error("a blank state disk was made")
				return
			} else if d.Properties.CreationData.CreateOption == "Copy" && (d.Tags[recipe.TagK3s] != first.Tags[recipe.TagK3s] || d.Tags[recipe.TagRanges] != first.Tags[recipe.TagRanges]) {
				x.Errorf("the state disk of a backup has tags %v", d.Tags)
				return
			}
			select {
			case <-x.ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
}

// isRestored: the state disk is of the backup, what was before is backed up, and nothing
// says that a restore is unfinished.
func (x *site) isRestored(name string) {
	x.Helper()
	var d disk
	if !x.read(stateDisk, &d) || d.Properties.CreationData.CreateOption != "Copy" || !strings.HasSuffix(d.Properties.CreationData.SourceResourceID, "/snapshots/"+name) {
		x.Errorf("state disk: %+v", d)
	}
	if d.Tags[recipe.TagCluster] != "demo" || d.Tags[recipe.TagRole] != lifecycle.RoleState || d.Tags[recipe.TagRanges] != "10.42.0.0/16,10.43.0.0/16" || d.Tags[recipe.TagK3s] != "v1.36.3+k3s1" {
		x.Errorf("tags of the state disk: %v", d.Tags)
	}
	if tags := x.tags(storageGroup); tags[recipe.TagRestore]+tags[recipe.TagRestoreBefore] != "" {
		x.Errorf("tags of the storage group: %v", tags)
	}
	if all := x.backups("before restore"); len(all) != 1 || d.Tags[recipe.TagRestoreBefore] != all[0] {
		x.Errorf("backups before the restore: %v", all)
	}
	x.wants("restored", "running", "agents", "running", "running")
	if p, err := x.manager(twoPools).Plan(x.ctx); err != nil || len(p.Changes)+len(p.Notes) > 0 {
		x.Errorf("plan: %v %+v", err, p)
	}
}

func restore(name string) func(context.Context, *lifecycle.Manager) error {
	return func(ctx context.Context, m *lifecycle.Manager) error {
		_, err := m.Restore(ctx, name)
		return err
	}
}

func TestRestoreInterrupted(t *testing.T) {
	interrupt(t, 43*time.Second, func(x *site) { x.backup("good"); x.watchState() }, restore("good"), func(x *site) { x.isRestored("good") })
}

// A restore that was interrupted once the disk is made lets no older k3s at its datastore, and one
// that was forgotten is of the version that the backup has.
func TestOutcomeRestoredDiskHasTheVersionOfItsBackup(t *testing.T) {
	play(t, nil, func(x *site) {
		x.k3s = "v1.36.3+k3s1"
		go x.boot()
		x.up(withVersion(x.k3s))
		x.backup("good")
		ctx, cancel := context.WithCancel(x.ctx)
		go func() {
			for d := (disk{}); ctx.Err() == nil; time.Sleep(time.Second) {
				if x.read(stateDisk, &d) && d.Properties.CreationData.CreateOption == "Copy" {
					cancel()
				}
			}
		}()
		if err := restore("good")(ctx, x.manager(withVersion(x.k3s))); workflow.ExitCode(err) != workflow.ExitInterrupted {
			x.Fatal(err)
		}
		time.Sleep(time.Minute)
		_, up := x.manager(withVersion("v1.36.2+k3s1")).Up(x.ctx, lifecycle.UpOptions{})
		if workflow.ExitCode(up) != workflow.ExitRefused || !strings.Contains(fmt.Sprint(up), "k3s cannot go back") {
			x.Errorf("an older k3s on the restored disk: exit %d, %v", workflow.ExitCode(up), up)
		}
		if tags := x.tags(stateDisk); tags[recipe.TagK3s] != x.k3s {
			x.Errorf("tags of the restored disk: %v", tags)
		}
	})
}

// Every command that makes a server goes on with a restore.
func TestOthersGoOnWithARestore(t *testing.T) {
	for name, do := range map[string]func(*lifecycle.Manager, context.Context) error{
		"up": func(m *lifecycle.Manager, ctx context.Context) error {
			_, err := m.Up(ctx, lifecycle.UpOptions{})
			return err
		},
		"replace server": func(m *lifecycle.Manager, ctx context.Context) error {
			_, err := m.ReplaceServer(ctx, lifecycle.UpOptions{})
			return err
		},
		"start": func(m *lifecycle.Manager, ctx context.Context) error { _, err := m.Start(ctx); return err },
	} {
		for _, after := range []time.Duration{15 * time.Second, time.Minute, 90 * time.Second, 2 * time.Minute} {
			t.Run(fmt.Sprint(name, after), func(t *testing.T) {
				play(t, nil, func(x *site) {
					x.k3s = "v1.36.3+k3s1"
					go x.boot()
					x.up(twoPools)
					x.backup("good")
					x.watchState()
					ctx, cancel := context.WithTimeout(x.ctx, after)
					defer cancel()
					if err := restore("good")(ctx, x.manager(twoPools)); workflow.ExitCode(err) != workflow.ExitInterrupted {
						x.Fatal(err)
					}
					const note = "restore of backup good is unfinished; ortet cluster up goes on with it"
					if s, err := x.manager(twoPools).Status(x.ctx); err != nil || !slices.Contains(s.Notes, note) {
						x.Errorf("status: %v %+v", err, s)
					}
					if p, err := x.manager(twoPools).Plan(x.ctx); err != nil || !slices.Contains(p.Notes, note) {
						x.Errorf("plan: %v %+v", err, p)
					}
					if err := x.manager(twoPools).DeleteBackup(x.ctx, "good"); workflow.ExitCode(err) != workflow.ExitRefused {
						x.Errorf("deletion of the backup: %v", err)
					}
					if err := do(x.manager(twoPools), x.ctx); err != nil {
						x.Fatal(err)
					}
					x.isRestored("good")
				})
			})
		}
	}
}

// The way back after an upgrade: the server and its disk say the newer version.
func TestRestoreRefuses(t *testing.T) {
	play(t, nil, func(x *site) {
		x.k3s = "v1.36.3+k3s1"
		go x.boot()
		x.up(withVersion("v1.36.3+k3s1"))
		for _, name := range []string{"1", "2", "3"} { // of the kind that is pruned
			if _, err := x.manager(file).Backup(x.ctx, name, "before another k3s"); err != nil {
				x.Fatal(err)
			}
		}
		for _, id := range []string{serverVM, stateDisk} {
			x.send(http.MethodPatch, id+"/providers/Microsoft.Resources/tags/default", "2021-04-01",
				object{"operation": "Merge", "properties": object{"tags": object{recipe.TagK3s: "v1.37.0+k3s1"}}})
		}
		refuses := func(text, name, want string) {
			x.Helper()
			check := x.manager(text).CheckRestore(x.ctx, name)
			_, err := x.manager(text).Restore(x.ctx, name)
			if check == nil || err == nil || check.Error() != err.Error() {
				x.Errorf("before it asks: %v; restore: %v", check, err)
			}
			if workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), want) {
				x.Errorf("exit code %d, %v; want %q", workflow.ExitCode(err), err, want)
			}
			if tags := x.tags(storageGroup); tags[recipe.TagRestore] != "" || len(x.backups("before restore")) > 0 {
				x.Errorf("something was changed: %v", tags)
			}
		}
		refuses(file, "0", "cluster has no such backup, only 1, 2, 3")
		refuses(withVersion("v1.36.2+k3s1"), "1", "but backup 1 is of v1.36.3+k3s1; k3s cannot go back")
		refuses(withVersion("v1.38.0+k3s1"), "1", "but backup 1 is of v1.36.3+k3s1; Kubernetes upgrades by one")
		refuses(withNetwork("{pods: 10.52.0.0/16}"), "1", "but backup 1 has 10.42.0.0/16")
		if _, err := x.manager(withVersion("v1.36.3+k3s1")).Up(x.ctx, lifecycle.UpOptions{}); workflow.ExitCode(err) != workflow.ExitRefused ||
			!strings.Contains(err.Error(), "then ortet cluster restore NAME") {
			x.Errorf("up with the older k3s: %v", err)
		}
		if err := x.manager(withVersion("v1.36.3+k3s1")).CheckRestore(x.ctx, "1"); err != nil || x.tags(storageGroup)[recipe.TagRestore] != "" {
			x.Errorf("check of a restore: %v, %v", err, x.tags(storageGroup))
		}
		r, err := x.manager(withVersion("v1.36.3+k3s1")).Restore(x.ctx, "1")
		if err != nil || !r.Ready || !strings.HasPrefix(r.Backup, "before-restore-") {
			x.Fatalf("%v %+v", err, r)
		}
		// The oldest of four is not pruned while it is restored.
		if all := append(x.backups("before another k3s"), x.backups("before restore")...); !slices.Equal(all, []string{"1", "2", "3", r.Backup}) {
			x.Errorf("backups: %v", all)
		}
		if tags := x.tags(stateDisk); tags[recipe.TagK3s] != "v1.36.3+k3s1" {
			x.Errorf("tags of the state disk: %v", tags)
		}
	})
}

// The backup that is restored is not pruned by the one that is made before, however it is
// named: by its ARM id, or in other letters, which are the same to Azure.
func TestOutcomeRestoredBackupIsKept(t *testing.T) {
	for _, from := range []string{storageGroup + "/providers/Microsoft.Compute/snapshots/old", "OLD"} {
		play(t, nil, func(x *site) {
			go x.boot()
			x.up(file)
			for _, name := range []string{"old", "2", "3"} {
				if _, err := x.manager(file).Backup(x.ctx, name, "before another k3s"); err != nil {
					x.Fatal(err)
				}
			}
			if r, err := x.manager(file).Restore(x.ctx, from); err != nil || !r.Ready {
				x.Errorf("restore %s: %v %+v", from, err, r)
			}
			if all := x.backups("before another k3s"); !slices.Equal(all, []string{"old", "2", "3"}) {
				x.Errorf("backups after restore %s: %q", from, all)
			}
		})
	}
}

// Of two restores of different backups at once, the one that is not what the state is of says so.
func TestOutcomeTwoRestoresAtOnce(t *testing.T) {
	for after := time.Second; after < 5*time.Minute; after += 17 * time.Second {
		play(t, nil, func(x *site) {
			go x.boot()
			x.up(file)
			x.backup("first")
			x.backup("second")
			ended := make(chan error)
			go func() { ended <- restore("first")(x.ctx, x.manager(file)) }()
			time.Sleep(after)
			errs := map[string]error{"second": restore("second")(x.ctx, x.manager(file))}
			errs["first"] = <-ended
			d, _ := x.thing(stateDisk)
			for name, err := range errs {
				is := strings.HasSuffix(d.Properties.CreationData.SourceResourceID, "/snapshots/"+name)
				if other := workflow.ExitCode(err) == workflow.ExitNeedsPerson; !is && err == nil && !(name == "first" && after > 3*time.Minute) || is && other {
					x.Errorf("second restore after %s: the state is of %s, and restore %s ended with %v", after, d.Properties.CreationData.SourceResourceID, name, err)
				}
			}
		})
	}
}

// A restore whose backup was deleted by hand ends by another restore, or by a new cluster.
func TestRestoreWithoutItsBackup(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		x.backup("good")
		x.backup("other")
		x.send(http.MethodPatch, storageGroup+"/providers/Microsoft.Resources/tags/default", "2021-04-01",
			object{"operation": "Merge", "properties": object{"tags": object{recipe.TagRestore: "lost", recipe.TagRestoreBefore: "before-lost"}}})
		if _, err := x.manager(file).Up(x.ctx, lifecycle.UpOptions{}); workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), "ortet cluster down --state") {
			x.Errorf("up: %v", err)
		}
		if _, err := x.manager(file).Restore(x.ctx, "other"); err != nil {
			x.Error(err)
		}
		x.send(http.MethodPatch, storageGroup+"/providers/Microsoft.Resources/tags/default", "2021-04-01",
			object{"operation": "Merge", "properties": object{"tags": object{recipe.TagRestore: "lost", recipe.TagRestoreBefore: "before-lost"}}})
		if _, err := x.manager(file).Down(x.ctx, []string{lifecycle.RoleCompute, lifecycle.RoleState}); err != nil {
			x.Fatal(err)
		}
		x.up(file)
		var d disk
		if x.read(stateDisk, &d); d.Properties.CreationData.CreateOption != "Empty" {
			x.Errorf("state disk after down --state: %+v", d)
		}
	})
}

func TestReplaceServerInterrupted(t *testing.T) {
	interrupt(t, 31*time.Second, (*site).watchState, func(ctx context.Context, m *lifecycle.Manager) error {
		_, err := m.ReplaceServer(ctx, lifecycle.UpOptions{})
		return err
	}, func(x *site) {
		x.wants("replaced", "running", "agents", "running", "running")
		if len(x.backups("before replace server")) == 0 {
			x.Error("no backup")
		}
		if p, err := x.manager(twoPools).Plan(x.ctx); err != nil || len(p.Changes) > 0 {
			x.Errorf("plan: %v %+v", err, p)
		}
	})
}

// stopped: all that ran has the tag, and nothing runs.
func (x *site) stopped() {
	x.Helper()
	x.wants("stopped", "deallocated", "agents", "deallocated", "deallocated")
	x.wants("stopped", "deallocated", "more", "deallocated")
	for _, id := range []string{serverVM, pool, strings.Replace(pool, "agents", "more", 1)} {
		if tags := x.tags(id); tags[recipe.TagStopped] != recipe.Stopped {
			x.Errorf("tags of %s: %v", id, tags)
		}
	}
}

func (x *site) started() {
	x.Helper()
	x.wants("started", "running", "agents", "running", "running")
	x.wants("started", "running", "more", "running")
	for _, id := range []string{serverVM, pool, strings.Replace(pool, "agents", "more", 1)} {
		if tags := x.tags(id); tags[recipe.TagStopped] != "" {
			x.Errorf("tags of %s: %v", id, tags)
		}
	}
	if p, err := x.manager(twoPools).Plan(x.ctx); err != nil || len(p.Changes)+len(p.Notes) > 0 {
		x.Errorf("plan: %v %+v", err, p)
	}
}

func stop(ctx context.Context, m *lifecycle.Manager) error {
	_, err := m.Stop(ctx)
	return err
}

func start(ctx context.Context, m *lifecycle.Manager) error {
	_, err := m.Start(ctx)
	return err
}

func TestStopInterrupted(t *testing.T) {
	interrupt(t, 23*time.Second, func(*site) {}, stop, (*site).stopped)
}

func TestStartInterrupted(t *testing.T) {
	interrupt(t, 13*time.Second, func(x *site) {
		if err := stop(x.ctx, x.manager(twoPools)); err != nil {
			x.Fatal(err)
		}
	}, start, (*site).started)
}

// A stop that was interrupted is undone by start.
func TestStartAfterAnInterruptedStop(t *testing.T) {
	for after := time.Second; after < 2*time.Minute; after += 19 * time.Second {
		play(t, nil, func(x *site) {
			go x.boot()
			x.up(twoPools)
			ctx, cancel := context.WithTimeout(x.ctx, after)
			defer cancel()
			_ = stop(ctx, x.manager(twoPools)) // at any time
			if err := start(x.ctx, x.manager(twoPools)); err != nil {
				x.Fatalf("after %s: %v", after, err)
			}
			x.started()
		})
	}
}

// What was stopped by hand is not started, but for the server; up leaves stopped pools.
func TestStoppedCluster(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(twoPools)
		x.send(http.MethodPost, pool+"/deallocate", "2024-07-01", nil) // by hand
		if r, err := x.manager(twoPools).Stop(x.ctx); err != nil || !slices.Equal(r.Stopped, []string{"pool more", "server"}) {
			x.Fatalf("stop: %v %+v", err, r)
		}
		if r, err := x.manager(twoPools).Stop(x.ctx); err != nil || len(r.Stopped) > 0 {
			x.Errorf("stop again: %v %+v", err, r)
		}
		const pools = "ortet cluster stop stopped pool more; up leaves that so, ortet cluster start starts it"
		notes := []string{"cluster is stopped; ortet cluster start starts it", pools}
		s, err := x.manager(twoPools).Status(x.ctx)
		if err != nil || !slices.Equal(s.Notes, notes) || !s.Server.Stopped || s.Server.Ready || s.Pools[0].Stopped || !s.Pools[1].Stopped {
			x.Errorf("status: %v %+v", err, s)
		}
		p, err := x.manager(twoPools).Plan(x.ctx)
		if err != nil || !slices.Equal(p.Notes, notes) || len(p.Changes) != 1 || !slices.Equal(p.Changes[0].What, []string{"power: started"}) {
			x.Errorf("plan: %v %+v", err, p)
		}
		if r := x.up(twoPools); !slices.Contains(r.Notes, pools) {
			x.Errorf("up: %+v", r)
		}
		x.wants("after up", "running", "more", "deallocated")
		if p, err := x.manager(twoPools).Plan(x.ctx); err != nil || len(p.Changes) > 0 {
			x.Errorf("plan after up: %v %+v", err, p)
		}
		// Stopped by hand, without a tag.
		x.send(http.MethodPost, serverVM+"/deallocate", "2024-07-01", nil)
		r, err := x.manager(twoPools).Start(x.ctx)
		if err != nil || !r.Ready || len(r.Notes) != 1 || !strings.HasPrefix(r.Notes[0], "pool agents was not stopped by ortet cluster stop") {
			x.Errorf("start: %v %+v", err, r)
		}
		x.wants("started", "running", "more", "running")
		x.wants("started", "running", "agents", "deallocated", "deallocated")
		// A server that is stopped has no clean end to wait for.
		if err := stop(x.ctx, x.manager(twoPools)); err != nil {
			x.Fatal(err)
		}
		if _, err := x.manager(twoPools).ReplaceServer(x.ctx, lifecycle.UpOptions{}); err != nil {
			x.Error(err)
		}
		if _, err := x.manager(twoPools).Down(x.ctx, []string{lifecycle.RoleCompute}); err != nil {
			x.Error(err)
		}
		for _, do := range []func(context.Context, *lifecycle.Manager) error{stop, start} {
			if err := do(x.ctx, x.manager(twoPools)); workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), "ortet cluster up") {
				x.Errorf("without machines: %v", err)
			}
		}
	})
}
