package lifecycle_test

import (
	"bytes"
	"cmp"
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

const (
	morePool  = computeGroup + "/providers/Microsoft.Compute/virtualMachineScaleSets/more"
	theirPool = computeGroup + "/providers/Microsoft.Compute/virtualMachineScaleSets/theirs"
	snapshots = storageGroup + "/providers/Microsoft.Compute/snapshots"
)

// A thing is what is read of a resource.
type thing struct {
	Name       string
	Tags       map[string]string
	SKU        struct{ Capacity int }
	Properties struct {
		VMID, TimeCreated, ProvisioningState string
		UserData                             []byte
		DiskSizeGB                           int
		HardwareProfile                      struct{ VMSize string }
		CreationData                         struct{ CreateOption, SourceResourceID string }
		InstanceView                         struct{ Statuses []struct{ Code string } }
	}
}

func (x *site) thing(id string, query ...string) (t thing, there bool) {
	there = x.read(id, &t, query...)
	return t, there
}

func (t thing) power() string {
	for _, s := range t.Properties.InstanceView.Statuses {
		if power, is := strings.CutPrefix(s.Code, "PowerState/"); is {
			return power
		}
	}
	return ""
}

// snapshotsNow are the snapshots of the storage group.
func (x *site) snapshotsNow() (all []thing) {
	var list struct{ Value []thing }
	x.read(snapshots, &list)
	return list.Value
}

// was is the cluster before the command.
type was struct{ server, disk thing }

// clusterTells is the cluster by how it differs from what it was.
func (w *world) clusterTells(before was) string {
	text := "server"
	add := func(is bool, format string, args ...any) {
		if is {
			text += " " + fmt.Sprintf(format, args...)
		}
	}
	vm, there := w.thing(serverVM, "$expand", "instanceView")
	switch {
	case !there:
		text += " missing"
	default:
		add(true, "%s", vm.power())
		add(vm.Properties.VMID != before.server.Properties.VMID, "new")
		add(vm.Tags[recipe.TagStopped] != "", "tagged stopped")
		add(vm.Tags[recipe.TagBoot] != recipe.BootReady && vm.power() == "running", "not ready")
		add(vm.Properties.HardwareProfile.VMSize != before.server.Properties.HardwareProfile.VMSize, "%s", vm.Properties.HardwareProfile.VMSize)
	}
	for _, id := range []string{pool, morePool, theirPool} {
		set, there := w.thing(id)
		if !there {
			continue
		}
		text += fmt.Sprintf("; %s %d", set.Name, set.SKU.Capacity)
		list, err := w.cloud.Instances(w.ctx, fleet.ResourceID(id))
		add(err != nil, "%v", err)
		states := map[fleet.PowerState]int{}
		for _, i := range list {
			states[i.Power]++
		}
		add(states["deallocated"] > 0, "deallocated %d", states["deallocated"])
		add(states["stopped"] > 0, "billed while stopped %d", states["stopped"])
		add(set.Tags[recipe.TagStopped] != "", "tagged stopped")
		add(set.Tags[recipe.TagScaled] != "", "tagged as scaled")
		add(set.Tags["person"] == "", "without a person's tag")
	}
	disk, there := w.thing(stateDisk)
	text += "; disk"
	add(!there, "missing")
	if there {
		_, source, _ := strings.Cut(disk.Properties.CreationData.SourceResourceID, "/snapshots/")
		add(disk.Properties.TimeCreated != before.disk.Properties.TimeCreated, "%s of %s", disk.Properties.CreationData.CreateOption, cmp.Or(source, "nothing"))
		add(disk.Properties.DiskSizeGB != before.disk.Properties.DiskSizeGB, "%d GB", disk.Properties.DiskSizeGB)
		add(disk.Tags[recipe.TagK3s] != w.k3s, "of k3s %q", disk.Tags[recipe.TagK3s])
		add(disk.Tags[recipe.TagRenew] != "", "with agents to renew")
		add(disk.Tags[recipe.TagCluster] != "demo" || disk.Tags[recipe.TagRole] != lifecycle.RoleState || disk.Tags[recipe.TagRanges] == "", "without its tags")
	}
	if group, there := w.thing(storageGroup); there {
		add(group.Tags[recipe.TagRestore]+group.Tags[recipe.TagRestoreBefore] != "", "restoring")
	}
	count, order := map[string]int{}, []string{}
	for _, s := range w.snapshotsNow() {
		why := s.Name
		if s.Tags[recipe.TagWhy] != "" {
			why = "own"
		}
		if stamp.MatchString(why) {
			why = "made up"
		}
		if count[why]++; !slices.Contains(order, why) {
			order = append(order, why)
		}
	}
	slices.Sort(order)
	for _, why := range order {
		if why == "own" && len(w.interrupted) > 0 {
			count[why] = min(count[why], 3) // the next backup deletes what an interrupted one left
		}
		text += fmt.Sprintf("; %s %d", why, count[why])
	}
	for _, name := range w.inGroup() {
		text += "; " + stamp.ReplaceAllString(name, "TIME")
	}
	if r, there := w.thing(computeGroup + "/providers/Microsoft.Insights/autoscaleSettings/more"); there {
		text += "; autoscale " + r.Name
	}
	return text
}

// guardCluster judges a write to Azure before it is made.
func guardCluster(w *world, p *process, r *http.Request, body []byte) {
	path := r.URL.Path
	is := func(method, id string) bool { return r.Method == method && strings.EqualFold(path, id) }
	vm, _ := w.thing(serverVM, "$expand", "instanceView")
	saved := func() bool { // what the disk has now
		disk, there := w.thing(stateDisk)
		return !there || disk.Properties.ProvisioningState == "Failed" || slices.ContainsFunc(w.snapshotsNow(), func(s thing) bool {
			return s.Properties.ProvisioningState == "Succeeded" && s.Properties.TimeCreated > w.from && strings.EqualFold(s.Properties.CreationData.SourceResourceID, stateDisk)
		})
	}
	destroys := strings.HasPrefix(w.story.name, "down")
	switch {
	case is(http.MethodDelete, serverVM) && vm.power() == "running":
		w.wrong("the server is deleted while it runs")
	case is(http.MethodDelete, serverVM) && !saved(), is(http.MethodDelete, stateDisk) && !destroys && !saved():
		w.wrong("%s is deleted without a backup of the state", path)
	case is(http.MethodDelete, stateDisk) && destroys && w.story.name != "down --state" && w.story.name != "down --all":
		w.wrong("the state disk is deleted")
	case is(http.MethodDelete, theirPool):
		w.wrong("the scale set of others is deleted")
	case strings.Contains(path, "/snapshots/mine") && r.Method == http.MethodDelete:
		w.wrong("the person's backup is deleted")
	case is(http.MethodPost, serverVM+"/start") && w.story.name == "start" && vm.Tags[recipe.TagBoot] == recipe.BootReady:
		w.wrong("the server is started with the tag that says that it is ready")
	case is(http.MethodPost, serverVM+"/deallocate") && w.story.name == "stop" && vm.Tags[recipe.TagStopped] == "":
		w.wrong("the server is stopped without the tag that start goes by")
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/deallocate") && strings.Contains(path, "ScaleSets"):
		if set, _ := w.thing(strings.TrimSuffix(path, "/deallocate")); set.Tags[recipe.TagStopped] == "" {
			w.wrong("pool %s is stopped without the tag that start goes by", set.Name)
		}
	case is(http.MethodPatch, serverVM) && bytes.Contains(body, []byte(`"userData"`)):
		if w.story.name == "up with another k3s" && !saved() {
			w.wrong("another k3s is written without a backup of the state")
		}
		if r.Header.Get("If-Match") == "" {
			w.wrong("the server's userData is written without an ETag: others' writes would be lost")
		}
	}
}

// clusterStories are of a cluster with the pools agents and more, scale sets and snapshots of others, and backups of a person's.
func clusterStories() []story {
	autoscaled := strings.Replace(file, "count: 2}", "count: 2}, {name: more, min: 1, max: 2}", 1)
	up := func(text string, o lifecycle.UpOptions) func(*world, *process) (any, error) {
		return func(w *world, p *process) (any, error) { return p.less(text).Up(p.ctx, o) }
	}
	down := func(roles ...string) func(*world, *process) (any, error) {
		return func(w *world, p *process) (any, error) { return p.less(twoPools).Down(p.ctx, roles) }
	}
	ready := func(notes ...string) func(any) string {
		return func(result any) string {
			r, is := result.(*lifecycle.Result)
			if !is || !r.Ready || len(r.Failures) > 0 {
				return "not that it is ready"
			}
			for _, want := range notes {
				if !strings.Contains(strings.Join(append(r.Notes, "backup "+r.Backup), "\n"), want) {
					return "not " + want
				}
			}
			return ""
		}
	}
	const rest = "; agents 2; more 1; theirs 1; disk"
	const saved = "; mine 1; own 3"
	return []story{
		{name: "up", dear: true, prepare: func(w *world) { w.send(http.MethodDelete, pool, "2024-07-01", nil) }, do: up(twoPools, lifecycle.UpOptions{}),
			ends: "server running; agents 2 without a person's tag; more 1; theirs 1; disk" + saved, says: ready()},
		{name: "up with another k3s", dear: true, prepare: func(w *world) { w.k3s = "v1.36.4+k3s1" },
			do:   up(strings.NewReplacer("ea5647", "0b5647", "  pools:", "  server: {size: Standard_D4s_v5, stateGB: 16}\n  pools:").Replace(twoPools), lifecycle.UpOptions{}),
			ends: "server running Standard_D4s_v5" + rest + " 16 GB" + saved, says: ready("backup state-")},
		{name: "up with fewer agents", dear: true, prepare: func(w *world) {
			w.send(http.MethodPatch, pool+"/providers/Microsoft.Resources/tags/default", "2021-04-01", object{"operation": "Merge", "properties": object{"tags": object{recipe.TagScaled: "2"}}})
		}, do: up(strings.Replace(twoPools, "count: 2", "count: 1", 1), lifecycle.UpOptions{}),
			ends: "server running; agents 1; more 1; theirs 1; disk" + saved, says: ready()},
		{name: "up --prune", dear: true, prepare: func(w *world) { w.up(autoscaled) }, do: up(file, lifecycle.UpOptions{Prune: true}),
			ends: "server running; agents 2; theirs 1; disk" + saved, says: ready()},
		{name: "up without a pool that scales by itself", prepare: func(w *world) { w.up(autoscaled) }, do: up(file, lifecycle.UpOptions{}),
			ends: "server running; agents 2; more 1; theirs 1; disk" + saved + "; autoscale more", says: ready("pool more is not in cluster.yaml"), without: []string{killBefore, killAfter, refused, conflicts, lost, passing}},
		{name: "up without its state disk", dear: true, prepare: func(w *world) {
			w.send(http.MethodDelete, serverVM, "2024-07-01", nil)
			w.send(http.MethodDelete, stateDisk, "2023-10-02", nil)
		}, do: up(twoPools, lifecycle.UpOptions{}), ends: "server running new" + rest + " Empty of nothing" + saved, says: nil},
		{name: "stop", do: func(w *world, p *process) (any, error) { return p.less(twoPools).Stop(p.ctx) },
			ends: "server deallocated tagged stopped; agents 2 deallocated 2 tagged stopped; more 1 deallocated 1 tagged stopped; theirs 1; disk" + saved},
		{name: "stop with machines that are powered off", dear: true, prepare: func(w *world) { w.send(http.MethodPost, morePool+"/powerOff", "2024-07-01", nil) },
			do:   func(w *world, p *process) (any, error) { return p.less(twoPools).Stop(p.ctx) },
			ends: "server deallocated tagged stopped; agents 2 deallocated 2 tagged stopped; more 1 deallocated 1 tagged stopped; theirs 1; disk" + saved, without: []string{killBefore, lost, passing, refused, conflicts}},
		{name: "stop with a server that is powered off", prepare: func(w *world) { w.send(http.MethodPost, serverVM+"/powerOff", "2024-07-01", nil) },
			do:   func(w *world, p *process) (any, error) { return p.less(twoPools).Stop(p.ctx) },
			ends: "server deallocated tagged stopped; agents 2 deallocated 2 tagged stopped; more 1 deallocated 1 tagged stopped; theirs 1; disk" + saved, without: []string{killBefore, killAfter, refused, conflicts, lost, passing}},
		{name: "start", prepare: func(w *world) {
			w.send(http.MethodPost, morePool+"/deallocate", "2024-07-01", nil) // by a person, without the tag
			if _, err := w.process().less(twoPools).Stop(w.ctx); err != nil {
				w.Fatal(err)
			}
		}, do: func(w *world, p *process) (any, error) { return p.less(twoPools).Start(p.ctx) },
			ends: "server running; agents 2; more 1 deallocated 1; theirs 1; disk" + saved, says: ready("pool more was not stopped by ortet cluster stop")},
		{name: "replace server", dear: true, do: func(w *world, p *process) (any, error) {
			return p.less(twoPools).ReplaceServer(p.ctx, lifecycle.UpOptions{})
		}, ends: "server running new" + rest + saved, says: ready()},
		{name: "restore", do: func(w *world, p *process) (any, error) { return p.less(twoPools).Restore(p.ctx, "mine") },
			ends: "server running new" + rest + " Copy of mine" + saved, says: ready("backup mine is restored", "backup before-restore-", "agents that joined after the backup have no Ready Node")},
		{name: "backup", dear: true, do: func(w *world, p *process) (any, error) { return p.less(twoPools).Backup(p.ctx, "", "") },
			ends: "server running" + rest + "; made up 1" + saved, meets: map[string]string{killAfter: "server running" + rest + "; made up 2" + saved}},
		{name: "backup to a group", do: func(w *world, p *process) (any, error) {
			return p.less(backedUp(1, "northeurope")).BackupToGroup(p.ctx)
		}, prepare: func(w *world) {
			w.backUpToGroup(backedUp(1, "northeurope"))
		}, ends: "server running" + rest + saved + "; demo-TIME; demo-TIME-northeurope"},
		{name: "down", do: down(lifecycle.RoleCompute), prepare: func(w *world) {
			w.noTheirs()
			w.k3s = "v1.36.9+k3s1"
			w.send(http.MethodPatch, serverVM+"/providers/Microsoft.Resources/tags/default", "2021-04-01", object{"operation": "Merge", "properties": object{"tags": object{recipe.TagK3s: w.k3s}}})
		},
			ends: "server missing; disk" + saved, says: func(result any) string {
				if r := result.(*lifecycle.DownResult); len(r.Deleted)+len(r.Missing) != 1 || !strings.HasPrefix(strings.Join(r.Kept, ""), "disk state in demo-storage") {
					return "not what was deleted and kept"
				}
				return ""
			}},
		{name: "down --state", dear: true, do: down(lifecycle.RoleCompute, lifecycle.RoleState), prepare: (*world).noTheirs, ends: "server missing; disk missing" + saved},
		{name: "down --all", dear: true, do: down(lifecycle.RoleCompute, lifecycle.RoleStorage), prepare: (*world).noTheirs, ends: "server missing; disk missing"},
	}
}

func (w *world) noTheirs() { w.send(http.MethodDelete, theirPool, "2024-07-01", nil) }

// less is a manager that looks less often at Azure, which saves half of the time.
func (p *process) less(text string) *lifecycle.Manager {
	m := p.manager(text)
	m.Poll = 20 * time.Second
	return m
}

// TestClusterStories plays commands of a cluster, while each of their writes goes wrong.
func TestClusterStories(t *testing.T) {
	stories(t, clusterStories(), func(t *testing.T, s story, happens string) {
		play(t, twoRegions, func(x *site) {
			x.k3s = "v1.36.3+k3s1"
			w := &world{site: x, story: s, happens: nothing, met: map[string]bool{}}
			go x.boot()
			if _, err := w.process().less(twoPools).Up(x.ctx, lifecycle.UpOptions{}); err != nil {
				t.Fatal(err)
			}
			for i, why := range []string{"", "before another k3s", "before replace server", "before replace server"} {
				if _, err := x.manager(twoPools).Backup(x.ctx, fmt.Sprint([]string{"mine", "a", "b", "c"}[i]), why); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
			}
			x.send(http.MethodPut, theirPool, "2024-07-01", object{"location": "westeurope", "tags": object{recipe.TagCluster: "other", "person": "keeps"}, "sku": object{"name": "Standard_D2s_v5", "capacity": 1}, "properties": object{
				"overprovision": false, "upgradePolicy": object{"mode": "Manual"}, "virtualMachineProfile": object{
					"osProfile":      object{"computerNamePrefix": "theirs", "adminUsername": "ortet", "adminPassword": "Corr3ct-horse"},
					"storageProfile": object{"imageReference": object{"publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": "server", "version": "latest"}}}}})
			for _, id := range []string{pool, morePool} {
				x.send(http.MethodPatch, id+"/providers/Microsoft.Resources/tags/default", "2021-04-01", object{"operation": "Merge", "properties": object{"tags": object{"person": "keeps"}}})
			}
			var before was
			before.server, _ = w.thing(serverVM, "$expand", "instanceView")
			before.disk, _ = w.thing(stateDisk)
			if s.prepare != nil {
				s.prepare(w)
			}
			w.happens, w.guard, w.met, w.trace = happens, guardCluster, map[string]bool{}, nil
			time.Sleep(time.Minute)
			w.from = time.Now().UTC().Format("2006-01-02T15:04:05")
			interruption := workflow.ExitInterrupted
			if s.name == "backup" {
				interruption = workflow.ExitFailed // which the command line turns into an interruption
			}
			w.tell(interruption)
			if want := cmp.Or(s.meets[happens], s.ends); !t.Failed() {
				if got := w.clusterTells(before); got != want {
					w.wrong("in the end\n%s, want\n%s", got, want)
				}
			}
		})
	})
}
