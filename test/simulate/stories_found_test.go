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
	longer     = 30 * day
)

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
	{Name: "killed at the stop, and another donor is named", Seed: 53, Pool: usual, Asks: []Ask{{Do: "capture", Once: true}, {Do: "capture", Node: 2}}, Happen: []Event{
		{At: "azure POST virtualMachineScaleSets/pool1/virtualMachines/0/powerOff", What: "kill after"}}},
	{Name: "interrupted while the pod works", Seed: 51, Pool: usual, Asks: []Ask{{Do: "capture"}}, Happen: []Event{
		{At: "kube GET ortet-system/pods/ortet-generalize-pool1-CAPTURE-1", N: 3, What: "interrupt"}}},
	{Name: "autoscaler preempts the model's change", Seed: 1, Pool: usual, Asks: []Ask{{Do: "capture", Grow: 1, History: 2}}, Happen: []Event{
		{At: "azure DELETE snapshots/snapshot_pool1_generalized", What: "autoscaler adds a node"}}},
	{Name: "API server away while the disk is inspected", Seed: 1, Pool: usual, Asks: []Ask{{Do: "capture", Grow: 1, History: 2}}, Happen: []Event{
		{At: "kube GET ortet-system/pods/ortet-generalize-pool1-look", N: 2, What: "away for 20 minutes"}}},
	{Name: "snapshot not found for 30 s after it was made", Seed: 2247, Pool: usual, Asks: []Ask{{Do: "capture", Deallocate: true}}, Happen: []Event{
		{At: "azure GET snapshots/snapshot_pool1_generalized", N: 4, What: "not found yet"}}},
}
