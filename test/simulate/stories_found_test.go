package simulate

import "time"

// slow is a capture at whose request Azure's operation takes ten minutes and the process is killed.
func slow(at string, n int) Story {
	return Story{Name: "slow, and killed: " + at, Seed: 1, Pool: usual, Asks: []Ask{{Do: "capture", Grow: 1, History: 2}},
		Happen: []Event{{At: at, N: n, What: "slow"}, {At: at, N: n, What: "kill after"}}}
}

const (
	instance0  = "virtualMachineScaleSets/pool1/virtualMachines/0"
	definition = "galleries/SIG_azsim/images/kamino-pool1-prototype"
	powerOff   = "azure POST " + instance0 + "/powerOff"
	longer     = 30 * day
)

// failures are n operations of a request that fail.
func failures(n int, at string) (events []Event) {
	for i := range n {
		events = append(events, Event{At: at, N: i + 1, What: "operation fails"})
	}
	return events
}

// found are stories of planted bugs that no other story and no single event shows.
var found = []Story{
	{Name: "budget that allows evictions after ten minutes", Seed: 40, Pool: with(func(p *Pool) { p.Tight = 10 * time.Minute }), Asks: []Ask{{Do: "capture"}}},
	{Name: "budget that allows no eviction", Seed: 41, Pool: with(func(p *Pool) { p.Tight = longer }), Asks: []Ask{{Do: "capture", Exit: 1}}, Cannot: "the drain's deadline"},
	{Name: "budget that allows no eviction, forced", Seed: 41, Pool: with(func(p *Pool) { p.Tight = longer }), Asks: []Ask{{Do: "capture", Force: true}}},
	{Name: "donor that is Ready from before its stop while it boots", Seed: 42, Pool: with(func(p *Pool) { p.SlowBoot = 4 * time.Minute }), Asks: []Ask{{Do: "capture"}}},
	{Name: "forward to a version that was rolled back", Seed: 43, Pool: usual, Asks: []Ask{
		{Do: "capture"}, {Do: "rollback"}, {Do: "rollback", To: "2000.01.01"}, {Do: "capture"}}},
	{Name: "rollback past a version that was rolled back", Seed: 54, Pool: usual, Asks: []Ask{
		{Do: "capture"}, {Do: "rollback"}, {Do: "wait", For: day}, {Do: "capture", Node: 1}, {Do: "rollback"}}},
	{Name: "history after rollbacks", Seed: 44, Pool: with(func(p *Pool) { p.Versions = 5 }), Asks: []Ask{
		{Do: "rollback"}, {Do: "rollback"}, {Do: "rollback"}, {Do: "capture", History: 2}, {Do: "wait", For: day}, {Do: "capture", History: 2}}},
	{Name: "rollback from a version with customData of its own", Seed: 45, Pool: Pool{Instances: 3}, Asks: []Ask{
		{Do: "capture"}, {Do: "wait", For: day}, {Do: "capture", Baked: true}, {Do: "rollback"}, {Do: "rollback", To: "2000.01.02"}, {Do: "scale out", N: 1}}},
	{Name: "Node of the stopped donor deleted, and killed", Seed: 46, Pool: usual, Asks: []Ask{{Do: "capture"}}, Happen: []Event{
		{At: "azure PUT snapshots/snapshot_pool1", What: "node deleted", Target: "donor"}, {At: "azure PUT snapshots/snapshot_pool1", What: "kill after"}}},
	{Name: "autoscaler while the donor is empty", Seed: 47, Pool: usual, Asks: []Ask{{Do: "capture"}}, Happen: []Event{
		{At: "azure PUT snapshots/snapshot_pool1", What: "autoscaler deletes empty nodes"}}},
	{Name: "autoscaler deletes nodes when the version is built", Seed: 1, Pool: usual, Asks: []Ask{{Do: "capture", Grow: 1}}, Happen: []Event{
		{At: "azure GET operation-of-PUT-" + definition + "/versions/2000.01.01", N: 9, What: "autoscaler deletes empty nodes"}}},
	{Name: "donor started while its disk is copied", Seed: 48, Pool: usual, Asks: []Ask{{Do: "capture"}}, Happen: []Event{
		{At: "azure PUT snapshots/snapshot_pool1", What: "slow"}, {At: "azure PUT snapshots/snapshot_pool1", What: "instance started", Target: "donor"}}},
	slow("azure POST "+instance0+"/powerOff", 1), slow("azure PUT snapshots/snapshot_pool1", 1), slow("azure POST "+instance0+"/start", 1),
	slow("azure PUT disks/disk_pool1_work", 1), slow("azure PUT "+definition+"/versions/2000.01.01", 1),
	slow("azure PATCH virtualMachineScaleSets/pool1", 1), slow("azure PATCH virtualMachineScaleSets/pool1", 2),
	{Name: "capacity asked for, answer lost, and an autoscaler", Seed: 49, Pool: usual, Asks: []Ask{{Do: "capture", Grow: 1}}, Happen: []Event{
		{At: "azure PATCH virtualMachineScaleSets/pool1", N: 2, What: "lost answer"}, {At: "azure PATCH virtualMachineScaleSets/pool1", N: 3, What: "autoscaler adds a node"}}},
	{Name: "killed with a snapshot, and another donor is named", Seed: 50, Pool: usual, Asks: []Ask{{Do: "capture", Once: true}, {Do: "capture", Node: 2}}, Happen: []Event{
		{At: "azure POST virtualMachineScaleSets/pool1/virtualMachines/0/start", What: "kill before"}}},
	{Name: "interrupted while the pod works", Seed: 51, Pool: usual, Asks: []Ask{{Do: "capture"}}, Happen: []Event{
		{At: "kube GET ortet-system/pods/ortet-generalize-pool1-1", N: 3, What: "interrupt"}}},
	{Name: "autoscaler preempts the model's change", Seed: 1, Pool: usual, Asks: []Ask{{Do: "capture", Grow: 1, History: 2}}, Happen: []Event{
		{At: "azure DELETE snapshots/snapshot_pool1_generalized", What: "autoscaler adds a node"}}},
	{Name: "Node of the donor deleted, and its instance stopped", Seed: 0x465, Pool: usual, Asks: []Ask{{Do: "capture"}}, Happen: []Event{
		{At: "kube PATCH default/machines/pool1000000", What: "node deleted", Target: "donor"},
		{At: "kube DELETE ortet-system/leases/ortet-pool1-fd34c415d62c", What: "instance stopped", Target: "donor"}}},
	{Name: "killed after the cordon", Seed: 60, Pool: usual, Asks: []Ask{{Do: "capture"}}, Happen: []Event{
		{At: "kube PATCH nodes/pool1000000", N: 2, What: "kill after"}}},
	{Name: "killed after the workbench is annotated", Seed: 61, Pool: usual, Asks: []Ask{{Do: "capture"}}, Happen: []Event{
		{At: "kube PATCH nodes/pool1000001", What: "kill after"}}},
	{Name: "killed with kured's lock, and another donor is named", Seed: 62, Pool: usual, Asks: []Ask{{Do: "capture", Once: true}, {Do: "capture", Node: 2}}, Happen: []Event{
		{At: "kube PATCH kube-system/daemonsets/kured", What: "kill after"}}},
	{Name: "killed with a complete version, and another donor is named", Seed: 63, Pool: usual, Asks: []Ask{{Do: "capture", Once: true}, {Do: "capture", Node: 2}}, Happen: []Event{
		{At: "azure PATCH virtualMachineScaleSets/pool1", What: "kill before"}}},
	{Name: "interrupted with a snapshot, which the next process uses", Seed: 64, Pool: usual, Asks: []Ask{{Do: "capture"}}, Single: powerOff, Happen: []Event{
		{At: "azure PUT " + definition + "/versions/2000.01.01", What: "interrupt"}}},
	{Name: "workbench stopped while the pod works, and replaced", Seed: 65, Pool: usual, Asks: []Ask{{Do: "capture"}}, Single: powerOff, Happen: []Event{
		{At: "kube GET ortet-system/pods/ortet-generalize-pool1-1", N: 2, What: "instance stopped", Target: "workbench"}}},
	{Name: "API server away while the version is built", Seed: 66, Pool: usual, Asks: []Ask{{Do: "capture"}}, Single: powerOff, Happen: []Event{
		{At: "kube PUT ortet-system/leases/ortet-pool1-fd34c415d62c", N: 3, What: "away for 20 minutes"}}},
	{Name: "extension that is deleted at the eleventh time", Seed: 67, Pool: usual, Asks: []Ask{{Do: "capture"}}, Happen: failures(10, "azure DELETE virtualMachineScaleSets/pool1/extensions/vmssCSE")},
	{Name: "laptop that sleeps while another process locks the pool", Seed: 1, Pool: usual, Asks: []Ask{{Do: "capture", Grow: 1, History: 2}}, Happen: []Event{
		{At: "kube GET default/machines/pool1000000", N: 2, What: "laptop sleeps and another ortet begins", For: 303 * time.Second}}},
	{Name: "donor that its owner stops when the capture does", Seed: 70, Pool: usual, Asks: []Ask{{Do: "capture"}}, Happen: []Event{
		{At: "azure GET " + instance0, N: 6, What: "instance stopped", Target: "donor"}}},
	{Name: "conflict at the model's change", Seed: 71, Pool: usual, Asks: []Ask{{Do: "capture"}}, Happen: []Event{
		{At: "azure PATCH virtualMachineScaleSets/pool1", What: "conflict"}}},
	{Name: "deletion that is preempted while the version is built", Seed: 69, Pool: usual, Asks: []Ask{{Do: "capture"}}, Happen: []Event{
		{At: "azure PUT " + definition + "/versions/2000.01.01", What: "autoscaler adds a node while it deletes one"}}},
	{Name: "baked, and a node added before the model has its customData", Seed: 68, Pool: with(func(p *Pool) { p.Latest = true }), Asks: []Ask{{Do: "capture", Baked: true}}, Happen: []Event{
		{At: "azure PATCH virtualMachineScaleSets/pool1", What: "autoscaler adds a node"}}},
}
