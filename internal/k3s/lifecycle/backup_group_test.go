package lifecycle_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
)

const backupGroup = "/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/backups"

// backedUp is a cluster.yaml with spec.backup; "" copies nothing.
func backedUp(keep int, region string) string {
	if region != "" {
		region = ", region: " + region
	}
	return strings.Replace(file, "  pools:", fmt.Sprintf("  backup: {group: backups, keep: %d%s}\n  pools:", keep, region), 1)
}

// other is the file of another cluster, in a region.
func other(text, region string) string {
	return strings.NewReplacer("{name: demo}", "{name: other}", "demo1234567", "other1234567", "location: westeurope", "location: "+region,
		", region: northeurope", "").Replace(text)
}

func twoRegions(s *azsim.Server) {
	s.Locations = []azsim.Location{{Name: "westeurope"}, {Name: "northeurope"}}
}

// inGroup are the names of the snapshots in the backup group; those whose copy is under way
// or failed are marked.
func (x *site) inGroup() (names []string) {
	x.Helper()
	var list struct {
		Value []struct {
			Name       string
			Properties struct {
				CompletionPercent   *float64
				CopyCompletionError *struct{ ErrorCode string }
			}
		}
	}
	x.read(backupGroup+"/providers/Microsoft.Compute/snapshots", &list)
	for _, s := range list.Value {
		if p := s.Properties.CompletionPercent; p != nil && *p < 100 || s.Properties.CopyCompletionError != nil {
			s.Name += " incomplete"
		}
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return names
}

func (x *site) backUpToGroup(text string) *lifecycle.GroupBackup {
	x.Helper()
	b, err := x.manager(text).BackupToGroup(x.ctx)
	if err != nil {
		x.Fatal(err)
	}
	return b
}

// put makes a snapshot of the state disk by hand.
func (x *site) put(name string, tags object) {
	x.Helper()
	x.send(http.MethodPut, backupGroup+"/providers/Microsoft.Compute/snapshots/"+name, "2023-10-02", object{"location": "westeurope", "tags": tags, "sku": object{"name": "Standard_LRS"},
		"properties": object{"incremental": true, "creationData": object{"createOption": "Copy", "sourceResourceId": stateDisk}}})
}

// What is over keep is deleted, with its copy, once the new backup is complete; what others
// made stays, with the same tags or a name like ours, and all stays after down --all.
func TestOutcomeBackupsOverKeepAreDeleted(t *testing.T) {
	play(t, twoRegions, func(x *site) {
		go x.boot()
		text := backedUp(2, "northeurope")
		x.up(text)
		first := x.backUpToGroup(text)
		tags := object{recipe.TagCluster: "demo", recipe.TagRole: recipe.RoleBackup}
		x.put("theirs", tags)
		x.put("demo-20200101-000000", object{recipe.TagCluster: "other", recipe.TagRole: recipe.RoleBackup})
		x.put("demo-20200102-000000", object{recipe.TagCluster: "demo"})
		// Of another cluster of that name, by its disk.
		x.send(http.MethodPut, backupGroup+"/providers/Microsoft.Compute/snapshots/demo-19990101-000000", "2023-10-02", object{"location": "westeurope", "tags": tags,
			"sku": object{"name": "Standard_LRS"}, "properties": object{"diskSizeGB": 8, "creationData": object{"createOption": "Empty"}}})
		want := []string{"demo-19990101-000000", "demo-20200101-000000", "demo-20200102-000000", "theirs"}
		for range 2 {
			time.Sleep(24 * time.Hour)
			first.Deleted = nil
			b := x.backUpToGroup(text)
			want = append(want, b.Name, b.Name+"-northeurope")
			if first.Deleted = b.Deleted; b.State != "Succeeded" || string(b.Copy) != backupGroup+"/providers/Microsoft.Compute/snapshots/"+b.Name+"-northeurope" {
				x.Errorf("%+v", b)
			}
		}
		if !slices.Equal(first.Deleted, []string{first.Name + "-northeurope", first.Name}) {
			x.Errorf("deleted %q, not %q and its copy", first.Deleted, first.Name)
		}
		if slices.Sort(want); !slices.Equal(x.inGroup(), want) {
			x.Errorf("group has\n%q, want\n%q", x.inGroup(), want)
		}
		if r, err := x.manager(text).Down(x.ctx, []string{lifecycle.RoleCompute, lifecycle.RoleStorage}); err != nil || !strings.Contains(strings.Join(r.Kept, ""), "backups in group backups") {
			x.Fatalf("down --all: %v %+v", err, r)
		}
		if !slices.Equal(x.inGroup(), want) {
			x.Errorf("after down --all the group has %q", x.inGroup())
		}
	})
}

// Interrupted at any time, the same command completes the backup, and makes no other one.
func TestBackupToGroupInterrupted(t *testing.T) {
	text := backedUp(2, "northeurope")
	done := false
	for after := time.Duration(0); !done && !t.Failed(); after += 397 * time.Second {
		play(t, twoRegions, func(x *site) {
			go x.boot()
			x.up(text)
			old := x.backUpToGroup(text)
			time.Sleep(24 * time.Hour)
			ctx, cancel := context.WithTimeout(x.ctx, after+time.Second)
			defer cancel()
			_, err := x.manager(text).BackupToGroup(ctx)
			if done = err == nil; !done && workflow.ExitCode(err) != workflow.ExitInterrupted {
				x.Fatalf("after %s: exit code %d: %v", after, workflow.ExitCode(err), err)
			}
			if !done {
				if names := x.inGroup(); !slices.Contains(names, old.Name) || !slices.Contains(names, old.Name+"-northeurope") {
					x.Errorf("after %s the old backup is deleted before the new one is complete: %q", after, names)
				}
				x.backUpToGroup(text)
			}
			if names := x.inGroup(); len(names) != 4 || names[0] != old.Name || names[2]+"-northeurope" != names[3] {
				x.Errorf("after %s the group has %q", after, names)
			}
		})
	}
}

// Two at once make backups that are complete, and delete no other's.
func TestTwoBackupsToGroupAtOnce(t *testing.T) {
	for _, apart := range []time.Duration{0, time.Second, time.Minute} {
		play(t, twoRegions, func(x *site) {
			go x.boot()
			text := backedUp(2, "northeurope")
			x.up(text)
			var both sync.WaitGroup
			for i := range 2 {
				both.Go(func() {
					time.Sleep(time.Duration(i) * apart)
					if _, err := x.manager(text).BackupToGroup(x.ctx); err != nil {
						x.Errorf("%s apart: %v", apart, err)
					}
				})
			}
			both.Wait()
			names := x.inGroup()
			if len(names) != 2 || strings.Contains(fmt.Sprint(names), "incomplete") {
				x.Errorf("%s apart the group has %q", apart, names)
			}
		})
	}
}

// A copy that fails ends the command, nothing is deleted, and the next one copies again.
func TestBackupWhoseCopyFails(t *testing.T) {
	play(t, twoRegions, func(x *site) {
		go x.boot()
		text := backedUp(1, "northeurope")
		x.up(text)
		if err := x.s.AddFault(azsim.Fault{Method: http.MethodPut, Path: "-northeurope$", Count: 1, Effect: "error", Status: 403, Code: "RequestDisallowedByPolicy", Message: "no snapshots in northeurope"}); err != nil {
			x.Fatal(err)
		}
		if _, err := x.manager(text).BackupToGroup(x.ctx); err == nil || !strings.Contains(err.Error(), "no snapshots in northeurope") {
			x.Errorf("refused copy: %v", err)
		}
		s, err := x.manager(text).Status(x.ctx)
		const none = "group backups has no complete backup of the cluster; ortet cluster backup makes one"
		if err != nil || s.LastBackup != nil || !slices.Contains(s.Notes, none) {
			x.Errorf("status: %v, last backup %v, notes %q", err, s.LastBackup, s.Notes)
		}
		first := x.backUpToGroup(text) // of the snapshot that is there
		if s, err = x.manager(text).Status(x.ctx); err != nil || s.LastBackup == nil || x.warned(s) {
			x.Errorf("status: %v, last backup %v, notes %q", err, s.LastBackup, s.Notes)
		}
		time.Sleep(27 * time.Hour)
		if s, err = x.manager(text).Status(x.ctx); err != nil || !s.LastBackup.Equal(first.Created.Truncate(time.Second)) || !x.warned(s) {
			x.Errorf("status a day later: %v, last backup %v, not %v, notes %q", err, s.LastBackup, first.Created, s.Notes)
		}
		// Somebody deletes the source while it is copied.
		go func() {
			time.Sleep(2 * time.Minute)
			for _, name := range x.inGroup() {
				if name != first.Name && !strings.Contains(name, "-northeurope") {
					_, _ = x.arm.Send(x.ctx, "delete", http.MethodDelete, fleet.ResourceID(backupGroup+"/providers/Microsoft.Compute/snapshots/"+name), "2023-10-02", nil)
				}
			}
		}()
		if _, err := x.manager(text).BackupToGroup(x.ctx); err == nil || !strings.Contains(err.Error(), "CopySourceNotFound") {
			x.Errorf("copy without its source: %v", err)
		}
		if names := x.inGroup(); !slices.Contains(names, first.Name) || !slices.Contains(names, first.Name+"-northeurope") {
			x.Errorf("group has %q", names)
		}
	})
}

// A snapshot of others that has the copy's name is no copy of it.
func TestBackupIsNotCopiedToASnapshotOfOthers(t *testing.T) {
	play(t, twoRegions, func(x *site) {
		go x.boot()
		x.up(file)
		b := x.backUpToGroup(backedUp(1, ""))
		x.put(b.Name+"-northeurope", object{recipe.TagCluster: "demo", recipe.TagRole: recipe.RoleBackup})
		for range 2 {
			if b, err := x.manager(backedUp(1, "northeurope")).BackupToGroup(x.ctx); err == nil || !strings.Contains(err.Error(), "exists and is no copy of it; delete that snapshot") {
				x.Errorf("%v %+v", err, b)
			}
		}
		if want := []string{b.Name, b.Name + "-northeurope"}; !slices.Equal(x.inGroup(), want) {
			x.Errorf("group has %q, want %q", x.inGroup(), want)
		}
	})
}

func (x *site) warned(s *lifecycle.Status) bool {
	return slices.Contains(s.Notes, "last backup in group backups is older than a day; ortet cluster backup makes one")
}

// Groups that down deletes are refused, in the file and by Azure's tags; so are keep 0 and
// the cluster's own region.
func TestBackupGroupRefuses(t *testing.T) {
	for value, want := range map[string]string{
		`{"group": "Demo-Storage"}`:                       "is the same group as spec.groups.storage, which ortet cluster down deletes",
		`{"group": "demo-compute"}`:                       "is the same group as spec.groups.compute, which ortet cluster down deletes",
		`{"group": "backups", "keep": 0}`:                 "spec.backup.keep",
		`{"group": "backups", "region": "westeurope"}`:    "is the same region as spec.location",
		`{"keep": 3}`:                                     "group",
		`{"group": "backups", "region": "Europe, North"}`: "use a region's short name",
	} {
		if _, err := k3s.Parse("cluster.yaml", []byte(edited(t, file, map[string]string{"spec.backup": value}))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", value, err, want)
		}
	}
	play(t, twoRegions, func(x *site) {
		go x.boot()
		text := backedUp(1, "")
		x.up(text)
		x.send(http.MethodPut, backupGroup, "2021-04-01", object{"location": "westeurope", "tags": object{recipe.TagCluster: "another", recipe.TagRole: lifecycle.RoleStorage}})
		if _, err := x.manager(text).BackupToGroup(x.ctx); workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), "group is the storage group of cluster another, and ortet cluster down deletes it") {
			x.Errorf("group of another cluster: %v", err)
		}
		// A group that its owner made is used.
		x.send(http.MethodPut, backupGroup, "2021-04-01", object{"location": "westeurope", "tags": object{"team": "vault"}})
		x.backUpToGroup(text)
		if x.tags(backupGroup)["team"] != "vault" {
			x.Error("the group's tags changed")
		}
	})
}

// disaster makes a cluster with a backup, deletes both groups, and has test go on. It returns
// nothing of the time before.
func disaster(t *testing.T, text string, test func(x *site, backup string)) {
	t.Helper()
	play(t, twoRegions, func(x *site) {
		x.k3s = "v1.36.3+k3s1"
		ctx, gone := context.WithCancel(x.ctx)
		go (&site{T: x.T, s: x.s, arm: x.arm, cloud: x.cloud, ctx: ctx, k3s: x.k3s}).boot()
		x.up(text)
		began := time.Now()
		b := x.backUpToGroup(text)
		x.Logf("backup: %s", time.Since(began).Round(time.Second))
		gone()
		for _, id := range []string{computeGroup, storageGroup} {
			x.send(http.MethodDelete, id, "2021-04-01", nil)
		}
		test(x, b.Name)
	})
}

// With both groups lost, another name and another region have the state again; interrupted
// at any time, the same command or up goes on.
func TestOutcomeRestoreAfterADisaster(t *testing.T) {
	for name, c := range map[string]struct{ copied, region, disk string }{
		"same region":    {"", "westeurope", ""},
		"another region": {"northeurope", "northeurope", "-northeurope"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			done := false
			for run := 0; !done && !t.Failed(); run++ {
				first, after := run == 0, time.Hour
				if !first {
					after = time.Duration(run)*61*time.Second - time.Minute
				}
				disaster(t, backedUp(1, c.copied), func(x *site, backup string) {
					text := other(backedUp(1, c.copied), c.region)
					o := &site{T: x.T, s: x.s, arm: x.arm, cloud: x.cloud, ctx: x.ctx, k3s: x.k3s}
					go o.bootAt(strings.Replace(serverVM, "demo-", "other-", 1))
					ctx, cancel := context.WithTimeout(x.ctx, after)
					defer cancel()
					began := time.Now()
					r, err := x.manager(text).Restore(ctx, backup)
					if done = err == nil && !first; !first && err != nil {
						if workflow.ExitCode(err) != workflow.ExitInterrupted {
							x.Fatalf("after %s: exit code %d: %v", after, workflow.ExitCode(err), err)
						}
						if run%2 == 0 {
							r, err = x.manager(text).Restore(x.ctx, backup)
						} else if r, err = x.manager(text).Up(x.ctx, lifecycle.UpOptions{}); err == nil && x.tags(strings.Replace(stateDisk, "demo-", "other-", 1))[recipe.TagRestoreBefore] == "" {
							r, err = x.manager(text).Restore(x.ctx, backup) // nothing had begun
							if workflow.ExitCode(err) == workflow.ExitRefused {
								return // up made a blank cluster, which is not replaced
							}
						}
					}
					if err != nil || !r.Ready {
						x.Fatalf("after %s: %v %+v", after, err, r)
					}
					x.Logf("restore: %s", time.Since(began).Round(time.Second))
					d, _ := x.thing(strings.Replace(stateDisk, "demo-", "other-", 1))
					if !strings.HasSuffix(d.Properties.CreationData.SourceResourceID, "/snapshots/"+backup+c.disk) || d.Tags[recipe.TagCluster] != "other" || d.Tags[recipe.TagK3s] != "v1.36.3+k3s1" {
						x.Errorf("after %s the state disk is %+v", after, d)
					}
					if tags := x.tags(strings.Replace(storageGroup, "demo-", "other-", 1)); tags[recipe.TagRestore]+tags[recipe.TagRestoreBefore] != "" || tags[recipe.TagCluster] != "other" {
						x.Errorf("after %s the storage group has %v", after, tags)
					}
					if first && !strings.Contains(strings.Join(r.Notes, "\n"), "Nodes of agents of cluster demo are in it") {
						x.Errorf("notes %q", r.Notes)
					}
				})
			}
		})
	}
}

// Killed after each of its writes, a restore under another name goes on.
func TestRestoreAfterADisasterKilledAfterEachWrite(t *testing.T) {
	disaster(t, backedUp(1, "northeurope"), func(x *site, backup string) {
		go x.bootAt(strings.Replace(serverVM, "demo-", "other-", 1))
		w := &world{site: x, happens: killAfter, met: map[string]bool{}}
		for runs := 1; ; runs++ {
			p := w.process()
			m := p.manager(other(backedUp(1, ""), "northeurope"))
			r, err := m.Restore(p.ctx, backup)
			if workflow.ExitCode(err) == workflow.ExitRefused && strings.Contains(err.Error(), "was made of this backup already; ortet cluster up goes on") {
				r, err = m.Up(p.ctx, lifecycle.UpOptions{})
			}
			if err == nil {
				if d, _ := x.thing(strings.Replace(stateDisk, "demo-", "other-", 1)); !r.Ready || runs < 6 || !strings.HasSuffix(d.Properties.CreationData.SourceResourceID, backup+"-northeurope") {
					x.Errorf("after %d runs: %+v, %+v", runs, r, d)
				}
				return
			}
			if workflow.ExitCode(err) != workflow.ExitInterrupted || runs > 40 {
				x.Fatalf("run %d: %v\n%s", runs, err, strings.Join(w.trace, "\n"))
			}
		}
	})
}

// A backup of another cluster replaces no state; a newer k3s, another region and a copy that
// is not complete are refused, before anything is made.
func TestRestoreOfAnotherClusterRefuses(t *testing.T) {
	disaster(t, backedUp(1, "northeurope"), func(x *site, backup string) {
		refuses := func(text, from, want string) {
			x.Helper()
			_, err := x.manager(text).Restore(x.ctx, from)
			if workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), want) {
				x.Errorf("%v, want %q", err, want)
			}
		}
		version := func(text, v string) string {
			return strings.Replace(text, "artifacts:", "artifacts:\n    version: "+v, 1)
		}
		there := other(backedUp(1, ""), "northeurope")
		refuses(version(there, "v1.36.2+k3s1"), backup, "backup "+backup+"-northeurope is of v1.36.3+k3s1; k3s cannot go back")
		refuses(there, backupGroup+"/providers/Microsoft.Compute/snapshots/"+backup, "is in westeurope, but spec.location is northeurope")
		refuses(there, backup+"x", "cluster has no backup")
		refuses(there, "/x", "cluster has no backup")
		if err := x.arm.Get(x.ctx, fleet.ResourceID(strings.Replace(storageGroup, "demo-", "other-", 1)), "2021-04-01", &object{}); !fleet.Is(err, fleet.KindNotFound) {
			x.Errorf("something was made: %v", err)
		}
		go x.bootAt(strings.Replace(serverVM, "demo-", "other-", 1))
		here := other(backedUp(1, ""), "westeurope")
		x.up(here)
		refuses(here, backup, "backup is of cluster demo, and cluster other has a state of its own")
		// Who writes tags of the storage group names a snapshot elsewhere.
		elsewhere := strings.Replace(backupGroup, "backups", "mallory", 1)
		x.send(http.MethodPut, elsewhere, "2021-04-01", object{"location": "westeurope"})
		id := elsewhere + "/providers/Microsoft.Compute/snapshots/evil"
		x.send(http.MethodPut, id, "2023-10-02", object{"location": "westeurope", "tags": object{recipe.TagCluster: "other", recipe.TagRole: recipe.RoleBackup}, "sku": object{"name": "Standard_LRS"},
			"properties": object{"incremental": true, "creationData": object{"createOption": "Copy", "sourceResourceId": strings.Replace(stateDisk, "demo-", "other-", 1)}}})
		x.send(http.MethodPatch, strings.Replace(storageGroup, "demo-", "other-", 1)+"/providers/Microsoft.Resources/tags/default", "2021-04-01",
			object{"operation": "Merge", "properties": object{"tags": object{recipe.TagRestore: id, recipe.TagRestoreBefore: "before-x"}}})
		if _, err := x.manager(here).Up(x.ctx, lifecycle.UpOptions{}); workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), "unfinished restore is of a backup in another group") {
			x.Errorf("up: %v", err)
		}
	})
}

// A backup that a restore names stays over keep, and a copy is restored once all of it is there;
// the group is made in the region that is to be there when the other is not.
func TestOutcomeBackupsBesideARestore(t *testing.T) {
	play(t, twoRegions, func(x *site) {
		go x.boot()
		text := backedUp(1, "northeurope")
		x.up(text)
		go func() {
			time.Sleep(3 * time.Minute)
			for _, name := range x.inGroup() {
				id := strings.TrimSuffix(backupGroup+"/providers/Microsoft.Compute/snapshots/"+name, " incomplete")
				if err := x.manager(other(backedUp(1, ""), "northeurope")).CheckRestore(x.ctx, id); strings.HasSuffix(name, " incomplete") && !strings.Contains(fmt.Sprint(err), "backup is in state copied to ") {
					x.Errorf("restore of %s: %v", name, err)
				}
			}
		}()
		first := x.backUpToGroup(text)
		var group struct{ Location string }
		if x.read(backupGroup, &group); group.Location != "northeurope" {
			x.Errorf("the group is in %q", group.Location)
		}
		x.send(http.MethodPatch, storageGroup+"/providers/Microsoft.Resources/tags/default", "2021-04-01",
			object{"operation": "Merge", "properties": object{"tags": object{recipe.TagRestore: string(first.ID), recipe.TagRestoreBefore: "before-x"}}})
		time.Sleep(2 * time.Hour)
		second := x.backUpToGroup(text)
		if want := []string{first.Name, second.Name, second.Name + "-northeurope"}; !slices.Equal(x.inGroup(), want) {
			x.Errorf("beside a restore of %s the group has %q, want %q", first.Name, x.inGroup(), want)
		}
	})
}
