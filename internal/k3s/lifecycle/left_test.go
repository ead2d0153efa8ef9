package lifecycle_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
)

// retag merges tags of a resource, by another hand.
func (x *site) retag(id string, tags object) {
	x.Helper()
	x.send(http.MethodPatch, id+"/providers/Microsoft.Resources/tags/default", "2021-04-01", object{"operation": "Merge", "properties": object{"tags": tags}})
}

// isRefused wants exit 3 and a sentence.
func (x *site) isRefused(what string, err error, wants ...string) {
	x.Helper()
	for _, want := range wants {
		if workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(fmt.Sprint(err), want) {
			x.Errorf("%s: exit code %d, %v; want %q", what, workflow.ExitCode(err), err, want)
		}
	}
}

// The same restore after another k3s has written the restored disk begins again: no file's k3s is
// put on what a newer one wrote.
func TestOutcomeRestoreAfterAnotherK3sBeginsAgain(t *testing.T) {
	play(t, nil, func(x *site) {
		ctx, hangs := context.WithCancel(x.ctx)
		boots := *x
		boots.ctx = ctx
		go boots.boot()
		x.up(file)
		x.backup("good")
		newer := strings.ReplaceAll(file, "ea5647", "0b5647")
		within, cancel := context.WithCancel(x.ctx)
		go func() {
			for d := (disk{}); within.Err() == nil; time.Sleep(time.Second) {
				if x.read(stateDisk, &d) && d.Properties.CreationData.CreateOption == "Copy" {
					cancel()
				}
			}
		}()
		_ = restore("good")(within, x.manager(file))
		time.Sleep(time.Minute)
		first, _ := x.thing(stateDisk)
		if first.Properties.CreationData.CreateOption != "Copy" || x.tags(storageGroup)[recipe.TagRestore] == "" {
			x.Fatalf("the restore did not get as far as the disk: %+v, %v", first, x.tags(storageGroup))
		}
		time.Sleep(10 * time.Minute)
		hangs() // the newer k3s does not come up
		time.Sleep(time.Minute)
		m := x.manager(newer)
		m.Ready = 5 * time.Minute
		if _, err := m.Up(x.ctx, lifecycle.UpOptions{}); workflow.ExitCode(err) != workflow.ExitNeedsPerson {
			x.Fatalf("up with the newer k3s: %v", err)
		}
		go x.boot()
		r, err := x.manager(file).Restore(x.ctx, "good")
		now, _ := x.thing(stateDisk)
		if err != nil || !r.Ready || now.Properties.TimeCreated == first.Properties.TimeCreated || !strings.HasSuffix(now.Properties.CreationData.SourceResourceID, "/good") {
			x.Errorf("restore again: %v; the disk is of %s, as before the other k3s: %t", err, now.Properties.TimeCreated, now.Properties.TimeCreated == first.Properties.TimeCreated)
		}
	})
}

// A backup has the version of k3s that runs, also where the disk has an older one: the server wrote
// it since the last up.
func TestOutcomeBackupIsOfTheVersionThatRuns(t *testing.T) {
	play(t, nil, func(x *site) {
		x.k3s = "v1.36.3+k3s1"
		go x.boot()
		x.up(withVersion(x.k3s))
		if tags := x.tags(stateDisk); tags[recipe.TagK3s] != x.k3s {
			x.Errorf("after up the disk has tags %v", tags)
		}
		x.retag(serverVM, object{recipe.TagK3s: "v1.36.9+k3s1"})
		x.backup("mine")
		all, err := x.manager(file).Backups(x.ctx)
		if err != nil || len(all) != 1 || all[0].K3s != "v1.36.9+k3s1" {
			x.Errorf("%v %+v", err, all)
		}
		x.isRefused("restore by the older k3s", x.manager(withVersion(x.k3s)).CheckRestore(x.ctx, "mine"), "backup mine is of v1.36.9+k3s1; k3s cannot go back")
	})
}

// What a backup cannot be made of, or under which name, is refused, and nothing is made.
func TestOutcomeBackupIsRefused(t *testing.T) {
	play(t, nil, func(x *site) {
		backup := func(name string) error { _, err := x.manager(file).Backup(x.ctx, name, ""); return err }
		x.isRefused("without a cluster", backup("a"), "cluster has no state disk", "ortet cluster up makes one")
		x.isRefused("deletion without a backup", x.manager(file).DeleteBackup(x.ctx, "a"), "cluster has no backup")
		go x.boot()
		x.up(file)
		x.backup("a")
		before, _ := x.thing(snapshots + "/a")
		x.isRefused("a name in use", backup("a"), "a snapshot of that name exists", "ortet cluster backup --delete a")
		if now, _ := x.thing(snapshots + "/a"); now.Properties.TimeCreated != before.Properties.TimeCreated {
			x.Error("the backup of that name was made again")
		}
		x.isRefused("deletion of another", x.manager(file).DeleteBackup(x.ctx, "b"), "cluster has no such backup, only a")
		if err := x.s.AddFault(azsim.Fault{Name: "read", Method: http.MethodGet, Path: "snapshots/c$", Effect: "error", Status: 403, Code: "AuthorizationFailed"}); err != nil {
			x.Fatal(err)
		}
		if err := backup("c"); err == nil || !strings.Contains(err.Error(), "AuthorizationFailed") {
			x.Errorf("of a name that may not be read: %v", err)
		}
		x.s.RemoveFault("read")
		x.retag(stateDisk, object{recipe.TagCluster: "other"})
		x.isRefused("of the disk of another cluster", backup("d"), "disk was not made by ortet cluster for demo")
		if all := x.snapshotsNow(); len(all) != 1 {
			x.Errorf("snapshots %+v", all)
		}
	})
}

// A backup group that is being deleted takes no backup, which would go with it.
func TestOutcomeBackupGroupThatIsDeleted(t *testing.T) {
	play(t, twoRegions, func(x *site) {
		go x.boot()
		text := backedUp(1, "")
		x.up(text)
		x.backUpToGroup(text)
		op, err := x.arm.Send(x.ctx, "delete", http.MethodDelete, backupGroup, "2021-04-01", nil)
		if err != nil {
			x.Fatal(err)
		}
		_, err = x.manager(text).BackupToGroup(x.ctx)
		x.isRefused("backup", err, "group is being deleted", "choose another name in spec.backup.group")
		if _, err := op.Wait(x.ctx); err != nil {
			x.Fatal(err)
		}
		x.backUpToGroup(text)
	})
}

// Azure copies one snapshot of a disk at a time: a copy waits for one that another run began.
func TestOutcomeCopyWaitsForTheOneBefore(t *testing.T) {
	play(t, func(s *azsim.Server) {
		s.Locations = []azsim.Location{{Name: "westeurope"}, {Name: "northeurope"}, {Name: "francecentral"}}
	}, func(x *site) {
		go x.boot()
		x.up(file)
		ctx, cancel := context.WithCancel(x.ctx)
		defer cancel()
		first := x.manager(backedUp(1, "northeurope"))
		first.Report = func(e workflow.Event) {
			if e.Message == "copying to northeurope" {
				cancel()
			}
		}
		if _, err := first.BackupToGroup(ctx); workflow.ExitCode(err) != workflow.ExitInterrupted {
			x.Fatal(err)
		}
		waited, begun := false, ""
		m := x.manager(backedUp(1, "francecentral"))
		m.Report = func(e workflow.Event) {
			waited = waited || e.Message == "waiting until the copy before is done"
			if e.Message == "copying to francecentral" {
				begun = fmt.Sprint(x.inGroup())
			}
		}
		if b, err := m.BackupToGroup(x.ctx); err != nil || !waited || strings.Contains(begun, "northeurope incomplete") || b.Region != "francecentral" {
			x.Errorf("%v; it waited %t, and beside its begin the group had %s", err, waited, begun)
		}
	})
}

// What down must not delete it refuses by its roles: what machines still use, and what others made.
func TestOutcomeDownRefuses(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		down := func(roles ...string) error { _, err := x.manager(file).Down(x.ctx, roles); return err }
		x.isRefused("the state of a server", down(lifecycle.RoleState), "compute group demo-compute still uses what is in it")
		x.retag(computeGroup, object{recipe.TagCluster: "other"})
		x.isRefused("group of another cluster", down(lifecycle.RoleCompute), "group belongs to cluster other", "correct spec.groups.compute")
		if _, there := x.thing(serverVM); !there || !x.read(stateDisk, &object{}) {
			x.Error("something was deleted")
		}
		x.retag(computeGroup, object{recipe.TagCluster: "demo"})
		x.retag(serverVM, object{recipe.TagCluster: "other"})
		x.isRefused("stop of another cluster's server", stop(x.ctx, x.manager(file)), "server was not made by ortet cluster for demo")
		x.isRefused("start of another cluster's server", start(x.ctx, x.manager(file)), "cluster has no server")
		x.wants("refused", "running", "agents", "running", "running")
	})
}

// Of the group of an existing account the cluster's rights go with it: Azure refuses others by
// their names.
func TestOutcomeRightsOnAnExistingAccountEnd(t *testing.T) {
	play(t, nil, func(x *site) {
		existing := strings.Replace(file, "account: demo1234567", "account: demo1234567, existing: true", 1)
		up := func() error { _, err := x.manager(existing).Up(x.ctx, lifecycle.UpOptions{}); return err }
		x.isRefused("without the group", up(), "group of the existing storage account does not exist", "correct spec.groups.storage")
		x.send(http.MethodPut, storageGroup, "2021-04-01", object{"location": "westeurope"})
		x.isRefused("without the account", up(), "storage account demo1234567 does not exist", "correct spec.storage.account and spec.groups.storage")
		x.send(http.MethodPut, storageGroup+"/providers/Microsoft.Storage/storageAccounts/demo1234567", "2023-05-01",
			object{"location": "westeurope", "kind": "StorageV2", "sku": object{"name": "Standard_LRS"}})
		go x.boot()
		x.up(existing)
		there := func() (n int) {
			for _, id := range recipe.Assignments(storageGroup, "demo1234567") {
				if x.read(id, &object{}) {
					n++
				}
			}
			return n
		}
		before := there()
		if _, err := x.manager(existing).Down(x.ctx, []string{lifecycle.RoleCompute, lifecycle.RoleStorage}); err != nil || before == 0 || there() != 0 {
			x.Errorf("down: %v; %d of %d rights stay", err, there(), before)
		}
	})
}

// A server that Azure could not change is repaired by the next up, which otherwise leaves a VM as
// it is.
func TestOutcomeFailedServerIsRepaired(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		if err := x.s.AddFault(azsim.Fault{Method: http.MethodPatch, Path: "virtualMachines/server$", Count: 1, Effect: azsim.EffectFailAtEnd}); err != nil {
			x.Fatal(err)
		}
		op, err := x.arm.Send(x.ctx, "change", http.MethodPatch, serverVM, "2024-07-01", object{"properties": object{"hardwareProfile": object{"vmSize": "Standard_D4s_v5"}}})
		if err == nil {
			_, err = op.Wait(x.ctx)
		}
		before, _ := x.thing(serverVM)
		x.up(file)
		now, _ := x.thing(serverVM)
		if err == nil || before.Properties.ProvisioningState != "Failed" || now.Properties.ProvisioningState != "Succeeded" || now.Properties.VMID != before.Properties.VMID {
			x.Errorf("%v; the server was %s and is %s", err, before.Properties.ProvisioningState, now.Properties.ProvisioningState)
		}
	})
}

// up --no-wait says what it leaves: agents that the server would drain, and the former port of SSH.
func TestOutcomeNoWaitNamesWhatItLeaves(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(twoPools)
		less := edited(t, strings.Replace(twoPools, "count: 2", "count: 1", 1), map[string]string{"spec.access.sshPort": "2222"})
		r, err := x.manager(less).Up(x.ctx, lifecycle.UpOptions{NoWait: true})
		for _, want := range []string{"pool agents keeps its agents, since the server drains them: run ortet cluster up without --no-wait",
			"port 22 of SSH stays open: run ortet cluster up without --no-wait to close it"} {
			if err != nil || r.Ready || !slices.Contains(r.Notes, want) {
				x.Errorf("%v, ready %t, notes %q; want %q", err, r.Ready, r.Notes, want)
			}
		}
		if set, _ := x.thing(pool); set.SKU.Capacity != 2 || !slices.Contains(x.sshOpen("servers"), "22") {
			x.Errorf("%d agents, ports %q", set.SKU.Capacity, x.sshOpen("servers"))
		}
		time.Sleep(10 * time.Minute)
		r = x.up(less)
		if set, _ := x.thing(pool); strings.Contains(fmt.Sprint(r.Notes), "--no-wait") || set.SKU.Capacity != 1 {
			x.Errorf("without --no-wait: %d agents, notes %q", set.SKU.Capacity, r.Notes)
		}
		r, err = x.manager(less).Up(x.ctx, lifecycle.UpOptions{NoWait: true})
		if err != nil || strings.Contains(fmt.Sprint(r.Notes), "--no-wait") {
			x.Errorf("--no-wait of what is there: %v, notes %q", err, r.Notes)
		}
	})
}

// Agents that Azure deallocated are named with what starts them, unless stop did it.
func TestOutcomeDeallocatedAgentsAreNamed(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		text := withPool("evictionPolicy: Deallocate")
		x.up(text)
		const note = "pool agents: 1 of 2 agents deallocated, by an eviction or a stop; ortet cluster start agents starts them"
		says := func(when string, want bool) {
			x.Helper()
			s, err := x.manager(text).Status(x.ctx)
			p, planErr := x.manager(text).Plan(x.ctx)
			if all := fmt.Sprint(s.Notes, p.Notes); err != nil || planErr != nil || slices.Contains(s.Notes, note) != want || slices.Contains(p.Notes, note) != want || strings.Contains(all, "deallocated, by") != want {
				x.Errorf("%s: %v %v, status %q, plan %q", when, err, planErr, s.Notes, p.Notes)
			}
		}
		says("running", false)
		x.send(http.MethodPost, pool+"/virtualMachines/0/deallocate", "2024-07-01", nil)
		says("evicted", true)
		x.retag(pool, object{recipe.TagStopped: recipe.Stopped})
		says("stopped by stop", false)
	})
}

// A file without the pools that pods scale leaves cluster-autoscaler its right on them, until --prune.
func TestOutcomeRemovedPoolKeepsItsScaler(t *testing.T) {
	scaled := edited(t, strings.Replace(twoPools, "count: 1", "min: 1, max: 2, scaleBy: pods", 1), map[string]string{"spec.options.clusterAutoscaler": autoscaler})
	without := edited(t, file, map[string]string{"spec.options.clusterAutoscaler": autoscaler})
	grants := recipe.Assignments(computeGroup, "", "more")
	right := grants[len(grants)-1]
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(scaled)
		if _, there := x.thing(right); !there {
			x.Fatal("cluster-autoscaler has no right")
		}
		x.up(without)
		if _, there := x.thing(right); !there {
			x.Error("the pool stays, and cluster-autoscaler has no right on it")
		}
		if _, err := x.manager(without).Up(x.ctx, lifecycle.UpOptions{Prune: true}); err != nil {
			x.Error(err)
		}
		if _, there := x.thing(right); there {
			x.Error("the pool is deleted, and the right on it stays")
		}
	})
}

// Azure answers for some seconds that a group which was made just now does not exist.
func TestOutcomeNewGroupIsNotFoundAtFirst(t *testing.T) {
	play(t, nil, func(x *site) {
		for _, f := range []azsim.Fault{{Method: http.MethodPost, Path: "/validate$", Count: 2}, {Method: http.MethodPut, Path: "deployments/ortet$", Count: 2}} {
			f.Effect, f.Status, f.Code = "error", 404, "ResourceGroupNotFound"
			if err := x.s.AddFault(f); err != nil {
				x.Fatal(err)
			}
		}
		go x.boot()
		if r := x.up(file); !r.Ready {
			x.Errorf("%+v", r)
		}
	})
}
