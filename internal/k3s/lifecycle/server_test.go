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
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
)

const stateDisk = storageGroup + "/providers/Microsoft.Compute/disks/state"

// machine is what Azure has as the server: its size, power state and state disk's size.
func (x *site) machine() string {
	x.Helper()
	var vm struct {
		Properties struct {
			HardwareProfile struct{ VMSize string }
			InstanceView    struct{ Statuses []struct{ Code string } }
		}
	}
	var disk struct{ Properties struct{ DiskSizeGB int } }
	if err := x.arm.Get(x.ctx, serverVM, "2024-07-01", &vm, "$expand", "instanceView"); err != nil {
		x.Fatal(err)
	}
	if err := x.arm.Get(x.ctx, stateDisk, "2023-10-02", &disk); err != nil {
		x.Fatal(err)
	}
	power := ""
	for _, s := range vm.Properties.InstanceView.Statuses {
		if p, ok := strings.CutPrefix(s.Code, "PowerState/"); ok {
			power = p
		}
	}
	return fmt.Sprintf("%s %s %d GB", vm.Properties.HardwareProfile.VMSize, power, disk.Properties.DiskSizeGB)
}

func withState(text string, gb int, size string) string {
	return strings.Replace(text, "  pools:", fmt.Sprintf("  server: {size: %s, stateGB: %d}\n  pools:", size, gb), 1)
}

// A change that Azure refuses leaves the server running, also where it was deallocated
// for the change.
func TestRefusedChangeLeavesTheServerRunning(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		before := x.machine()
		for name, text := range map[string]string{"temporary disk": withServer(file, "Standard_D2ds_v5"), "disk": withState(file, 16, "Standard_D2s_v5")} {
			if err := x.s.AddFault(azsim.Fault{Name: name, Method: http.MethodPatch, Path: "disks/state$", Effect: "error", Status: 409, Code: "Refused"}); err != nil {
				x.Fatal(err)
			}
			for range 2 {
				_, err := x.manager(text).Up(x.ctx, lifecycle.UpOptions{})
				if now := x.machine(); err == nil || now != before {
					x.Errorf("%s: %v, the server is %s, want %s", name, err, now, before)
				}
			}
			x.s.RemoveFault(name)
		}
		if err := x.s.AddFault(azsim.Fault{Name: "size", Method: http.MethodPatch, Path: "virtualMachines/server$", Effect: "error", Status: 409, Code: "OperationNotAllowed"}); err != nil {
			x.Fatal(err)
		}
		if _, err := x.manager(withServer(file, "Standard_D4s_v5")).Up(x.ctx, lifecycle.UpOptions{}); err == nil || x.machine() != before {
			x.Errorf("size: %v, the server is %s, want %s", err, x.machine(), before)
		}
		x.s.RemoveFault("size")
		x.up(file)
	})
}

// Ctrl-C at any time of a change, and the same up again.
func TestInterruptedChange(t *testing.T) {
	text := strings.ReplaceAll(withState(file, 16, "Standard_D4s_v5"), "ea5647", "0b5647")
	for after := time.Second; ; after += 37 * time.Second {
		done := false
		play(t, nil, func(x *site) {
			go x.boot()
			x.up(file)
			ctx, cancel := context.WithTimeout(x.ctx, after)
			defer cancel()
			_, err := x.manager(text).Up(ctx, lifecycle.UpOptions{})
			if done = err == nil; !done && workflow.ExitCode(err) != workflow.ExitInterrupted {
				x.Errorf("after %s: exit code %d: %v", after, workflow.ExitCode(err), err)
			}
			was := x.machine()
			if _, err := x.manager(text).Up(x.ctx, lifecycle.UpOptions{}); err != nil || x.machine() != "Standard_D4s_v5 running 16 GB" {
				x.Errorf("after %s, with %s: %v: %s", after, was, err, x.machine())
			}
		})
		if done {
			return
		}
	}
}

// twice does the same two times, apart from each other; both have to end well.
func (x *site) twice(apart time.Duration, do func() error) {
	x.Helper()
	ends := make(chan error)
	for i := range 2 {
		go func() {
			time.Sleep(time.Duration(i) * apart)
			ends <- do()
		}()
	}
	for range 2 {
		if err := <-ends; err != nil {
			x.Errorf("%s apart: %v", apart, err)
		}
	}
}

// Two ups with one change wait for each other.
func TestTwoChanges(t *testing.T) {
	text := strings.ReplaceAll(withState(file, 16, "Standard_D4s_v5"), "ea5647", "0b5647")
	for apart := time.Duration(0); apart < 3*time.Minute; apart += 41 * time.Second {
		play(t, nil, func(x *site) {
			go x.boot()
			x.up(file)
			x.twice(apart, func() error { _, err := x.manager(text).Up(x.ctx, lifecycle.UpOptions{}); return err })
			if now := x.machine(); now != "Standard_D4s_v5 running 16 GB" {
				x.Errorf("%s apart: %s", apart, now)
			}
		})
	}
}

// A server that somebody stopped or deallocated, or is about to, runs after up.
func TestUpStartsTheServer(t *testing.T) {
	for _, do := range []string{"deallocate", "powerOff"} {
		for wait := range 2 {
			play(t, nil, func(x *site) {
				go x.boot()
				x.up(file)
				op, err := x.arm.Send(x.ctx, do, http.MethodPost, fleet.ResourceID(serverVM+"/"+do), "2024-07-01", nil)
				if err == nil && wait == 1 {
					_, err = op.Wait(x.ctx)
				}
				if err != nil {
					x.Fatal(err)
				}
				if _, err := x.manager(file).Up(x.ctx, lifecycle.UpOptions{}); err != nil || x.machine() != "Standard_D2s_v5 running 8 GB" {
					x.Errorf("%s %d: %v: %s", do, wait, err, x.machine())
				}
			})
		}
	}
}

// At the same moment one of them is refused, for the other's backup.
func TestTwoReplaceServers(t *testing.T) {
	for apart := 3 * time.Second; apart < 3*time.Minute; apart += 57 * time.Second {
		play(t, nil, func(x *site) {
			go x.boot()
			x.up(file)
			x.twice(apart, func() error { _, err := x.manager(file).ReplaceServer(x.ctx, lifecycle.UpOptions{}); return err })
		})
	}
}

// A server that could not be made again is not deleted.
func TestReplaceServerIsRefusedBefore(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		m := x.manager(file)
		m.Cloud = restricting{m.Cloud}
		if _, err := m.ReplaceServer(x.ctx, lifecycle.UpOptions{}); workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), "spec.server.size: size Standard_D2s_v5 is not offered") {
			x.Errorf("replace server: %v", err)
		}
		x.machine()
		// The size that up cannot give it, replace server does.
		if _, err := x.manager(withServer(file, "Standard_D2ds_v5")).ReplaceServer(x.ctx, lifecycle.UpOptions{}); err != nil || x.machine() != "Standard_D2ds_v5 running 8 GB" {
			x.Errorf("replace server: %v", err)
		}
	})
}

// What refuses another server does so while the one that is there still serves.
func TestOutcomeServerThatCannotBeMadeAgainStays(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		x.backup("good")
		before := x.machine()
		refused := func(when string, err error, want string) {
			x.Helper()
			if workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), want) || x.machine() != before || x.tags(storageGroup)[recipe.TagRestore] != "" {
				x.Errorf("%s: %v; the server is %s", when, err, x.machine())
			}
		}
		m := x.manager(file)
		m.Cloud = restricting{m.Cloud}
		_, err := m.Restore(x.ctx, "good")
		refused("restore", err, "spec.server.size: size Standard_D2s_v5 is not offered")
		if err := x.s.AddFault(azsim.Fault{Name: "invalid", Method: http.MethodPost, Path: "deployments/ortet/validate$", Effect: "error", Status: 400, Code: "InvalidTemplate"}); err != nil {
			x.Fatal(err)
		}
		_, err = x.manager(file).ReplaceServer(x.ctx, lifecycle.UpOptions{})
		refused("replace server", err, "InvalidTemplate")
		x.s.RemoveFault("invalid")
		r, err := x.manager(file).ReplaceServer(x.ctx, lifecycle.UpOptions{})
		if all := x.backups("before replace server"); err != nil || !r.Ready || len(all) != 1 || r.Backup != all[0] {
			x.Errorf("replace server: %v %+v, backups %q", err, r, all)
		}
	})
}

// Attempts at a server that does not get ready keep the backups of when it was.
func TestBackupOfAReadyServerStays(t *testing.T) {
	play(t, nil, func(x *site) {
		good := *x
		ctx, cancel := context.WithCancel(x.ctx)
		good.ctx = ctx
		go good.boot()
		x.up(file)
		replace := func() error {
			_, err := x.manager(file).ReplaceServer(x.ctx, lifecycle.UpOptions{})
			return err
		}
		backups := func() (names []string) {
			all, err := x.manager(file).Backups(x.ctx)
			if err != nil {
				x.Fatal(err)
			}
			for _, b := range all {
				names = append(names, b.Name)
			}
			return names
		}
		for range 4 {
			if err := replace(); err != nil {
				x.Fatal(err)
			}
		}
		before := backups()
		if len(before) != 3 {
			x.Errorf("backups of a ready server: %q", before)
		}
		cancel()
		time.Sleep(time.Minute)
		for range 5 { // the first one of a ready server
			if err := replace(); workflow.ExitCode(err) != workflow.ExitNeedsPerson {
				x.Fatal(err)
			}
		}
		if after := backups(); !slices.Contains(after, before[2]) || len(after) < 3 {
			x.Errorf("before %q, after %q", before, after)
		}
	})
}

// Of the group of an existing account, down --all leaves what is not the cluster's alone.
func TestDownOfAnExistingAccount(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.send(http.MethodPut, storageGroup, "2021-04-01", object{"location": "westeurope"})
		x.send(http.MethodPut, storageGroup+"/providers/Microsoft.Storage/storageAccounts/demo1234567", "2023-05-01",
			object{"location": "westeurope", "kind": "StorageV2", "sku": object{"name": "Standard_LRS"}})
		existing := strings.Replace(file, "account: demo1234567", "account: demo1234567, existing: true", 1)
		x.up(existing)
		r, err := x.manager(existing).Down(x.ctx, []string{lifecycle.RoleCompute, lifecycle.RoleStorage})
		if err != nil || len(r.Kept) != 1 || !slices.Contains(r.Deleted, "disk state") {
			x.Errorf("%v %+v", err, r)
		}
		s, err := x.manager(existing).Status(x.ctx)
		if err != nil || !s.Groups[0].Exists || s.Groups[0].Resources != 1 {
			x.Errorf("%v %+v", err, s)
		}
	})
}

// In a group that others use, their resources stay, also those that have the cluster's tags.
func TestHoleDownDeletesWhatOthersTagged(t *testing.T) {
	for _, roles := range [][]string{{lifecycle.RoleCompute, lifecycle.RoleStorage}, {lifecycle.RoleStorage}} {
		play(t, nil, func(x *site) {
			go x.boot()
			x.send(http.MethodPut, storageGroup, "2021-04-01", object{"location": "westeurope"})
			x.send(http.MethodPut, storageGroup+"/providers/Microsoft.Storage/storageAccounts/demo1234567", "2023-05-01",
				object{"location": "westeurope", "kind": "StorageV2", "sku": object{"name": "Standard_LRS"}})
			tags := object{recipe.TagCluster: "demo", recipe.TagRole: recipe.RoleBackup}
			disk := storageGroup + "/providers/Microsoft.Compute/disks/data"
			theirs := map[string]string{disk: "2023-10-02", storageGroup + "/providers/Microsoft.Compute/snapshots/weekly": "2023-10-02",
				storageGroup + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/app": "2023-01-31"}
			x.send(http.MethodPut, disk, "2023-10-02", object{"location": "westeurope", "tags": tags, "sku": object{"name": "Standard_LRS"},
				"properties": object{"diskSizeGB": 4, "creationData": object{"createOption": "Empty"}}})
			x.send(http.MethodPut, storageGroup+"/providers/Microsoft.Compute/snapshots/weekly", "2023-10-02", object{"location": "westeurope", "tags": tags,
				"sku": object{"name": "Standard_LRS"}, "properties": object{"creationData": object{"createOption": "Copy", "sourceResourceId": disk}}})
			x.send(http.MethodPut, storageGroup+"/providers/Microsoft.ManagedIdentity/userAssignedIdentities/app", "2023-01-31", object{"location": "westeurope", "tags": tags})
			existing := strings.Replace(file, "account: demo1234567", "account: demo1234567, existing: true", 1)
			x.up(existing)
			m := x.manager(existing)
			if _, err := m.Backup(x.ctx, "mine", ""); err != nil {
				x.Fatal(err)
			}
			if len(roles) == 1 {
				if _, err := m.Down(x.ctx, []string{lifecycle.RoleCompute}); err != nil {
					x.Fatal(err)
				}
			}
			r, err := m.Down(x.ctx, roles)
			if err != nil {
				x.Fatal(err)
			}
			for id, version := range theirs {
				if err := x.arm.Get(x.ctx, fleet.ResourceID(id), version, &object{}); err != nil {
					x.Errorf("%s of others: %v", id, err)
				}
				name := id[strings.LastIndexByte(id, '/')+1:]
				if !slices.ContainsFunc(r.Kept, func(k string) bool { return strings.Contains(k, " "+name+": has tag") }) {
					x.Errorf("%s is not named: %q", name, r.Kept)
				}
			}
			for _, want := range []string{"disk state", "snapshot mine", "identity " + recipe.ServerIdentity, "identity " + recipe.AgentIdentity} {
				if !slices.Contains(r.Deleted, want) {
					x.Errorf("%s stays: %q", want, r.Deleted)
				}
			}
		})
	}
}

// Names that Azure refuses, or that are no name of a snapshot but a path to something else.
func TestBackupNames(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		for _, name := range []string{"../../x", "a/b", "a b", "a?b", "ä", ".a", "-a", "a.", "a-", strings.Repeat("a", 81)} {
			if _, err := x.manager(file).Backup(x.ctx, name, ""); workflow.ExitCode(err) != workflow.ExitRefused {
				x.Errorf("%q: %v", name, err)
			}
		}
		for _, name := range []string{"a", "1_", strings.Repeat("a", 80), "before-1.36_x"} {
			if b, err := x.manager(file).Backup(x.ctx, name, ""); err != nil || b.Name != name {
				x.Errorf("%q: %v %+v", name, err, b)
			}
		}
		if all, err := x.manager(file).Backups(x.ctx); err != nil || len(all) != 4 {
			x.Errorf("%v %+v", err, all)
		}
	})
}

// A cluster that lost its state disk has all agents of before reimaged, once. The names of
// as many pools as there may be fit into a tag.
func TestLostStateDisk(t *testing.T) {
	pools := "pools: ["
	for i := range 19 {
		pools += fmt.Sprintf("{name: apool%03d, count: 0}, ", i)
	}
	text := strings.Replace(file, "pools: [", pools, 1)
	text = strings.Replace(text, "count: 2}", "count: 1}", 1)
	reimaged := 0
	play(t, func(s *azsim.Server) {
		s.OnRequest = func(r azsim.Request) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.Path, "/reimage") {
				reimaged++
			}
		}
	}, func(x *site) {
		go x.boot()
		x.up(text)
		x.send(http.MethodDelete, serverVM, "2024-07-01", nil)
		x.send(http.MethodDelete, stateDisk, "2023-10-02", nil)
		if r := x.up(text); reimaged != 1 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "the state disk was lost") {
			x.Errorf("%d agents reimaged: %q", reimaged, r.Notes)
		}
		if r := x.up(text); reimaged != 1 || len(r.Notes) != 0 {
			x.Errorf("again: %d agents reimaged: %q", reimaged, r.Notes)
		}
	})
}

// Tags of a scale set that others set stay, as that of a reimage that was interrupted.
func TestUpKeepsTagsOfOthers(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		others := map[string]string{"ortet.io_reimage": "20260101T000000Z", "note": "[none]"}
		x.send(http.MethodPatch, pool+"/providers/Microsoft.Resources/tags/default", "2021-04-01",
			object{"operation": "Merge", "properties": object{"tags": others}})
		x.up(strings.Replace(file, "count: 2", "count: 1", 1))
		var set struct{ Tags map[string]string }
		if err := x.arm.Get(x.ctx, pool, "2024-07-01", &set); err != nil {
			x.Fatal(err)
		}
		for name, want := range others {
			if set.Tags[name] != want {
				x.Errorf("tag %s is %q, want %q", name, set.Tags[name], want)
			}
		}
		if !strings.HasPrefix(set.Tags[recipe.TagApplied], "count=1 ") {
			x.Errorf("tags %v", set.Tags)
		}
	})
}

// An upgrade, restore and replace server name the backup that they made, in text and in JSON.
func TestOutcomeBackupIsNamed(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		x.backup("good")
		named := func(why string, r *lifecycle.Result, err error) {
			x.Helper()
			if err != nil || r.Backup == "" || !strings.Contains(strings.Join(r.Notes, "\n"), "backup "+r.Backup+" has the state of before this change; ortet cluster restore "+r.Backup) {
				x.Errorf("%s: %v, backup %q, notes %q", why, err, r.Backup, r.Notes)
			}
		}
		newer := x.manager(strings.ReplaceAll(file, "ea5647", "0b5647"))
		r, err := newer.Up(x.ctx, lifecycle.UpOptions{})
		named("another k3s", r, err)
		r, err = newer.ReplaceServer(x.ctx, lifecycle.UpOptions{})
		named("replace server", r, err)
		r, err = newer.Restore(x.ctx, "good")
		named("restore", r, err)
	})
}

// Of a cluster of an earlier version, whose server has no state disk, plan and status name
// only what replace server does not refuse.
func TestOutcomePlanOfAServerWithoutStateDisk(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		earlier := x.manager(file)
		earlier.Render = func(c *k3s.Cluster, f recipe.Facts) (*recipe.Documents, error) {
			d, err := recipe.Render(c, f)
			if err != nil {
				return nil, err
			}
			for _, one := range d.Compute.Template["resources"].([]any) {
				if r := one.(object); r["type"] == "Microsoft.Compute/virtualMachines" {
					delete(r["properties"].(object)["storageProfile"].(object), "dataDisks")
					r["tags"].(object)[recipe.TagRecipe] = "earlier"
				}
			}
			return d, nil
		}
		if _, err := earlier.Up(x.ctx, lifecycle.UpOptions{}); err != nil {
			x.Fatal(err)
		}
		other := edited(t, file, map[string]string{"spec.server.diskGB": "64"})
		p, err := x.manager(other).Plan(x.ctx)
		if err != nil || strings.Contains(lines(p), "ortet cluster replace server makes it again") || strings.Contains(lines(p), "after up: ortet cluster replace server") ||
			!strings.Contains(lines(p), "so ortet cluster replace server refuses it; ortet cluster down, then ortet cluster up make another cluster") {
			x.Errorf("plan: %v\n%s", err, lines(p))
		}
		if _, err := x.manager(other).ReplaceServer(x.ctx, lifecycle.UpOptions{}); workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), "NoStateDisk") && !strings.Contains(err.Error(), "all of it would be lost") {
			x.Errorf("replace server: %v", err)
		}
	})
}
