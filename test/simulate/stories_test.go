package simulate

import "time"

const (
	instance0   = "virtualMachineScaleSets/pool1/virtualMachines/0"
	definition  = "galleries/SIG_azsim/images/kamino-pool1-prototype"
	powerOff    = "azure POST " + instance0 + "/powerOff"
	start       = "azure POST " + instance0 + "/start"
	putSnapshot = "azure PUT snapshots/snapshot_pool1"
	putVersion  = "azure PUT " + definition + "/versions/2000.01.01"
	patchModel  = "azure PATCH virtualMachineScaleSets/pool1"
	getPod      = "kube GET ortet-system/pods/ortet-generalize-pool1"
	putJournal  = "kube PUT ortet-system/secrets/ortet-journal-pool1-fd34c415d62c"
	firstImage  = "ubuntu-24_04-lts:latest"
	otherImage  = "ubuntu-24_04-lts:24.04.202510010"
)

var (
	// usual is a pool in which each part of a capture has something to do.
	usual    = Pool{Instances: 4, Versions: 3, Kured: true, Machines: true, Extensions: []string{"monitor", "cse"}, Pods: 1, Budgeted: 1, Daemons: 1}
	fresh    = Pool{Instances: 3} // without versions
	rolling  = with(func(p *Pool) { p.Mode, p.Extensions = "Rolling", []string{"health", "cse"} })
	latest   = with(func(p *Pool) { p.Latest = true })
	aCapture = []Ask{{Do: "capture"}}
)

func with(change func(*Pool)) Pool {
	p := usual
	change(&p)
	return p
}

// bootstrapped is a pool that boots by two extensions.
func bootstrapped(protected string) Pool {
	return Pool{Instances: 3, Pods: 1, Extensions: []string{"monitor", "cse", "bootstrap"}, Settings: protected}
}

// at is an event at the n-th request of a name.
func at(request string, n int, what string) []Event {
	return []Event{{At: request, N: n, What: what}}
}

// slow is a capture at whose request Azure's operation takes ten minutes and the process is killed.
func slow(request string, n int) Story {
	return Story{Name: "slow, and killed: " + request, Seed: 1, Pool: usual, Asks: []Ask{{Do: "capture", Grow: 1, History: 2}},
		Happen: append(at(request, n, "slow"), at(request, n, "kill after")...)}
}

// unheard is a rollback that changes customData alone, whose first requests have no effect, and
// an autoscaler that changes the set before the next.
func unheard(what string, n int) Story {
	return Story{Name: "rollback of customData without effect, and an autoscaler: " + what, Seed: 74, Pool: fresh,
		Asks:   afterBaked(firstImage, Ask{Do: "rollback", To: "original"}),
		Happen: append(each(3, 2+n, patchModel, what), at("azure GET virtualMachineScaleSets/pool1", 12, "autoscaler adds a node")...)}
}

// each is the same event at the requests of a name from the first to the last.
func each(first, last int, request, what string) (events []Event) {
	for n := first; n <= last; n++ {
		events = append(events, at(request, n, what)...)
	}
	return events
}

// another is a capture of the first node that is given up, and one of another.
func another(node int) []Ask {
	return []Ask{{Do: "capture", Once: true}, {Do: "capture", Node: node}}
}

// afterBaked is a pool that was captured on the first day, and baked on the second; the
// model's customData does nothing since. Then others set an image.
func afterBaked(image string, then ...Ask) []Ask {
	return append([]Ask{{Do: "capture"}, {Do: "wait", For: day}, {Do: "capture", Baked: true}, {Do: "wait", For: day}, {Do: "set image", To: image}}, then...)
}

// refused is a capture that ends with exit 3 for a code.
func refused(code string, change func(*Pool), happen ...Event) Story {
	return Story{Name: "refused: " + code, Seed: 85, Pool: with(change), Asks: []Ask{{Do: "capture", Exit: 3}}, Cannot: code, Happen: happen}
}

// stories are pools of all kinds, and what happens between processes.
var stories = []Story{
	{Name: "capture, scale out, capture again, rollback", Seed: 1, Pool: usual, Asks: []Ask{
		{Do: "capture", Grow: 1}, {Do: "scale out", N: 1}, {Do: "wait", For: day}, {Do: "capture", Node: 1, History: 2}, {Do: "rollback"}}},
	{Name: "capture twice a day", Seed: 4, Pool: usual, Asks: []Ask{{Do: "capture"}, {Do: "capture"}, {Do: "capture", Again: true}}},
	{Name: "capture after a rollback", Seed: 7, Pool: usual, Asks: []Ask{{Do: "capture"}, {Do: "rollback"}, {Do: "capture", Again: true}}},
	{Name: "baked", Seed: 8, Pool: Pool{Instances: 3, Versions: 2}, Asks: []Ask{{Do: "capture", Baked: true}, {Do: "scale out", N: 1}, {Do: "rollback"}}},
	{Name: "five days, a history of two", Seed: 53, Pool: Pool{Instances: 2}, Asks: []Ask{{Do: "capture", History: 2}, {Do: "wait", For: day}, {Do: "capture", History: 2},
		{Do: "wait", For: day}, {Do: "capture", History: 2}, {Do: "wait", For: day}, {Do: "capture", Node: 1, History: 2}, {Do: "wait", For: day}, {Do: "capture", History: 2}}},
	{Name: "rollback by name, and a capture after it", Seed: 52, Pool: usual, Asks: []Ask{{Do: "rollback", To: "1999.12.18"}, {Do: "capture"}}},
	{Name: "donor cordoned and protected by its owners", Seed: 11, Pool: with(func(p *Pool) { p.Cordoned, p.Protected, p.ScaleDown = true, true, "true" }), Asks: aCapture},
	{Name: "donor offered to the autoscaler", Seed: 12, Pool: with(func(p *Pool) { p.ScaleDown = "false" }), Asks: aCapture},
	{Name: "pods that come late", Seed: 13, Pool: with(func(p *Pool) { p.LatePods = 3 }), Asks: aCapture},
	{Name: "pods that take three minutes to end, and a node controller that waits for five", Seed: 30,
		Pool: with(func(p *Pool) { p.PodsTake, p.Pods, p.Budgeted = 3*time.Minute, 3, 3 }), Asks: []Ask{{Do: "capture", Grow: 1}}},
	{Name: "pod without a controller", Seed: 14, Pool: with(func(p *Pool) { p.Unmanaged = true }), Asks: []Ask{{Do: "capture", Exit: 3}}, Cannot: "PodNotEvictable"},
	{Name: "budget that never allows an eviction", Seed: 48, Pool: with(func(p *Pool) { p.Blocked = true }), Asks: []Ask{{Do: "capture", Exit: 3}}, Cannot: "BudgetAllowsNoEviction"},
	{Name: "pods that nothing evicts, by force", Seed: 14, Pool: with(func(p *Pool) { p.Unmanaged, p.Blocked = true, true }), Asks: []Ask{{Do: "capture", Force: true}}},
	{Name: "as many requests as Azure Compute takes", Seed: 91, Pool: with(func(p *Pool) { p.Budgets, p.Extensions = true, []string{"monitor"} }),
		Asks: []Ask{{Do: "capture", Grow: 1, Canary: 1}, {Do: "rollback"}}},
	{Name: "deallocate", Seed: 15, Pool: usual, Asks: []Ask{{Do: "capture", Deallocate: true}}},
	{Name: "credentials of the pool", Seed: 16, Pool: with(func(p *Pool) { p.Disk = "secrets" }),
		Asks: []Ask{{Do: "capture", Exit: 1}}, Cannot: "its disk holds credentials"},
	{Name: "credentials of the pool accepted", Seed: 16, Pool: with(func(p *Pool) { p.Disk = "secrets" }), Asks: []Ask{{Do: "capture", Accept: true}}},
	{Name: "host name preserved", Seed: 17, Pool: with(func(p *Pool) { p.Disk = "preserve" }), Asks: []Ask{{Do: "capture", Exit: 3}}, Cannot: "DiskRefused"},
	{Name: "pod killed on the workbench", Seed: 18, Pool: with(func(p *Pool) { p.Disk = "lost" }), Asks: aCapture},
	{Name: "nothing on the disk joins", Seed: 29, Pool: with(func(p *Pool) { p.Disk = "nojoin" }), Asks: aCapture},
	{Name: "model refers to the definition", Seed: 19, Pool: latest, Asks: []Ask{{Do: "capture"}, {Do: "rollback"}}},
	{Name: "region without zone-redundant storage", Seed: 20, Pool: with(func(p *Pool) { p.NoZRS = true }), Asks: aCapture},
	{Name: "zones", Seed: 21, Pool: Pool{Instances: 6, Zones: 3}, Asks: aCapture},
	{Name: "two zones, two nodes: no workbench", Seed: 22, Pool: Pool{Instances: 2, Zones: 2}, Asks: []Ask{{Do: "capture", Exit: 3}}, Cannot: "NoWorkbench"},
	{Name: "all other nodes cordoned", Seed: 50, Pool: with(func(p *Pool) { p.Others = "cordoned" }), Asks: []Ask{{Do: "capture", Exit: 3}}, Cannot: "NoWorkbench"},
	{Name: "all other nodes protected by their owners", Seed: 51, Pool: with(func(p *Pool) { p.Others = "protected" }), Asks: aCapture},
	{Name: "NVMe", Seed: 23, Pool: with(func(p *Pool) { p.NVMe = true }), Asks: []Ask{{Do: "capture", Grow: 2}}},
	{Name: "spot", Seed: 24, Pool: with(func(p *Pool) { p.Spot = true }), Asks: aCapture},
	{Name: "trusted launch", Seed: 47, Pool: with(func(p *Pool) { p.Trusted = true }), Asks: []Ask{{Do: "capture", Grow: 1}}},
	{Name: "pages of two", Seed: 25, Pool: with(func(p *Pool) { p.PageSize = 2 }), Asks: []Ask{{Do: "capture"}, {Do: "rollback"}}},
	{Name: "kured reboots another node", Seed: 26, Pool: with(func(p *Pool) { p.Rebooting = 10 * time.Minute }), Asks: aCapture},
	{Name: "extensions stay", Seed: 27, Pool: usual, Asks: []Ask{{Do: "capture", KeepExtensions: true}}},
	{Name: "extension that depends on a deleted one", Seed: 28, Pool: with(func(p *Pool) { p.Extensions = []string{"cse", "billing"} }),
		Asks: []Ask{{Do: "capture", Exit: 3}}, Cannot: "ExtensionNeeded"},
	{Name: "rolling mode", Seed: 40, Pool: rolling, Asks: []Ask{{Do: "capture", Exit: 3}}, Cannot: "RollingUpgrade"},
	{Name: "rolling mode allowed", Seed: 40, Pool: rolling, Asks: []Ask{{Do: "capture", Rolling: true}, {Do: "wait", For: day}, {Do: "rollback", Rolling: true}}},
	{Name: "provider ids in lower case", Seed: 41, Pool: with(func(p *Pool) { p.Spelling = "lower" }), Asks: []Ask{{Do: "capture"}, {Do: "rollback"}}},
	{Name: "provider ids of k3s", Seed: 76, Pool: with(func(p *Pool) { p.Spelling = "k3s" }), Asks: []Ask{{Do: "capture"}, {Do: "scale out", N: 1}, {Do: "rollback"}}},
	{Name: "provider ids of k3s, and a twin of the donor", Seed: 76, Pool: with(func(p *Pool) { p.Spelling = "k3s" }),
		Asks:   []Ask{{Do: "capture", Exit: 3}},
		Cannot: "node twin reports that it is the same machine", Happen: at("kube GET nodes/pool1000000", 1, "twin of the donor")},
	{Name: "provider ids of k3s, killed, and a twin of the donor", Seed: 76, Pool: with(func(p *Pool) { p.Spelling = "k3s" }),
		Asks:   []Ask{{Do: "capture", Exit: 3}},
		Cannot: "node twin reports that it is the same machine", Happen: append(at(powerOff, 1, "twin of the donor"), at(powerOff, 1, "kill after")...)},
	{Name: "ids in Azure's answers in upper case", Seed: 42, Pool: with(func(p *Pool) { p.Spelling = "upper" }), Asks: []Ask{{Do: "capture"}, {Do: "rollback"}}},
	{Name: "the model's definition id in upper case, baked", Seed: 68, Pool: with(func(p *Pool) { p.Spelling, p.Latest = "model", true }), Asks: []Ask{{Do: "capture", Baked: true}}},
	{Name: "ids in Azure's answers in upper case, and a rollback that is killed", Seed: 42, Pool: with(func(p *Pool) { p.Spelling = "upper" }), Asks: []Ask{{Do: "capture"}, {Do: "rollback"}},
		Happen: at(patchModel, 2, "kill after")},
	{Name: "volumes of others", Seed: 43, Pool: with(func(p *Pool) { p.Volumes = true }), Asks: []Ask{{Do: "capture", Deallocate: true}, {Do: "scale out", N: 1}}},
	{Name: "version of others", Seed: 44, Pool: with(func(p *Pool) { p.Foreign = true }), Asks: []Ask{{Do: "capture", History: 2}, {Do: "rollback"}}},
	{Name: "instances of older versions", Seed: 45, Pool: with(func(p *Pool) { p.Old = 2 }), Asks: []Ask{{Do: "capture", History: 2}}},
	{Name: "left by an earlier capture", Seed: 46, Pool: with(func(p *Pool) { p.Leftover = true }), Asks: aCapture},
	{Name: "killed while the donor is stopped, and another donor", Seed: 55, Pool: usual, Asks: another(1), Happen: at(powerOff, 1, "kill after")},
	{Name: "interrupted, and another donor", Seed: 59, Pool: usual, Asks: another(1), Happen: at("azure PUT disks/disk_pool1_work", 1, "interrupt")},
	{Name: "killed, two days later", Seed: 56, Pool: usual, Asks: []Ask{{Do: "capture", Once: true}, {Do: "wait", For: 2 * day}, {Do: "capture"}},
		Happen: at("azure PUT snapshots/snapshot_pool1_generalized", 1, "kill after")},
	{Name: "killed, two days later, and its snapshot deleted", Seed: 0xab0fb, Pool: usual, Asks: []Ask{{Do: "capture", Once: true}, {Do: "wait", For: 2 * day}, {Do: "capture"}},
		Happen: []Event{{At: "azure PUT snapshots/snapshot_pool1_generalized", What: "kill after"}, {At: "kube DELETE ortet-system/pods/ortet-generalize-pool1", What: "snapshot deleted"},
			{At: putJournal, N: 45, What: "laptop sleeps", For: 2 * time.Hour}}},
	{Name: "killed, and a rollback", Seed: 57, Pool: usual, Asks: []Ask{{Do: "capture", Once: true}, {Do: "rollback"}}, Happen: at(patchModel, 1, "kill after")},
	{Name: "killed twice", Seed: 58, Pool: usual, Asks: aCapture,
		Happen: append(at(putSnapshot, 1, "kill after"), at("azure PUT snapshots/snapshot_pool1_generalized", 1, "kill before")...)},
}

// extensionStories are rollbacks that restore what captures deleted from the model.
var extensionStories = []Story{
	{Name: "extensions restored", Seed: 60, Pool: bootstrapped(""), Asks: []Ask{
		{Do: "capture"}, {Do: "wait", For: day}, {Do: "capture", Node: 1}, {Do: "rollback", To: "original"}, {Do: "scale out", N: 1}}},
	{Name: "extensions with protected settings restored", Seed: 61, Pool: bootstrapped("sealed"), Asks: []Ask{
		{Do: "capture"}, {Do: "rollback", To: "original"}, {Do: "wait", For: day}, {Do: "capture"}, {Do: "rollback", To: "original"}}},
	{Name: "extensions restored, killed at the first", Seed: 62, Pool: bootstrapped("sealed"), Asks: []Ask{{Do: "capture"}, {Do: "rollback", To: "original"}},
		Happen: at("azure PUT virtualMachineScaleSets/pool1/extensions/vmssCSE", 1, "kill after")},
	{Name: "original set by others, a capture, and its extensions restored", Seed: 60, Pool: bootstrapped(""), Asks: []Ask{
		{Do: "capture"}, {Do: "set image", To: firstImage}, {Do: "wait", For: day}, {Do: "capture"}, {Do: "rollback", To: "original"}}},
	{Name: "extension whose protected settings are unknown", Seed: 63, Pool: bootstrapped("unknown"), Asks: []Ask{
		{Do: "capture"}, {Do: "rollback", To: "original", Exit: 3}}, Cannot: "extension vmssCSE: its protected settings"},
	{Name: "extension whose protected settings are unknown, accepted", Seed: 63, Pool: bootstrapped("unknown"), Asks: []Ask{
		{Do: "capture"}, {Do: "rollback", To: "original", AcceptLost: true, Exit: 4}}, Cannot: "extension vmssCSE: its protected settings"},
	{Name: "extension lost and accepted, and the tag refused", Seed: 0xec6, Pool: bootstrapped("unknown"), Asks: []Ask{
		{Do: "capture"}, {Do: "rollback", To: "original", AcceptLost: true, Exit: 4}}, Cannot: "extension vmssCSE: its protected settings",
		Happen: at("azure PATCH "+definition+"/versions/2000.01.01", 1, "refused")},
}

// found are stories of bugs that no other story and no single event shows. Seeds draw none of
// them: the judge expects the model of the last command that ended, not of one that was killed.
var found = []Story{
	{Name: "donor protected by its owners in the same second", Seed: 1, Pool: usual, Asks: aCapture, Happen: at("kube PATCH nodes/pool1000000", 1, "owners protect the node")},
	{Name: "workbench protected by its owners in the same second", Seed: 1, Pool: usual, Asks: aCapture, Happen: at("kube PATCH nodes/pool1000001", 1, "owners protect the node")},
	{Name: "the model's image id in upper case", Seed: 75, Pool: Pool{Instances: 3, Spelling: "model"}, Asks: []Ask{{Do: "capture"}, {Do: "set image", To: "2000.01.01"},
		{Do: "wait", For: day}, {Do: "capture", Node: 1}, {Do: "set image", To: "2000.01.02"}, {Do: "rollback"}, {Do: "rollback", To: "original"}}},
	{Name: "extensions restored, killed before the first, and a capture", Seed: 62, Pool: bootstrapped("sealed"), Asks: []Ask{
		{Do: "capture"}, {Do: "rollback", To: "original", Once: true}, {Do: "capture", Again: true}, {Do: "rollback", To: "original"}},
		Happen: at("azure PUT virtualMachineScaleSets/pool1/extensions/vmssCSE", 1, "kill before")},
	{Name: "extensions restored, killed before the first, and two captures", Seed: 62, Pool: bootstrapped("sealed"), Asks: []Ask{
		{Do: "capture"}, {Do: "rollback", To: "original", Once: true}, {Do: "capture", Again: true, Once: true}, {Do: "wait", For: 3 * day}, {Do: "capture", Node: 1}, {Do: "rollback", To: "original"}},
		Happen: append(at("azure PUT virtualMachineScaleSets/pool1/extensions/vmssCSE", 1, "kill before"), at(powerOff, 2, "kill before")...)},
	{Name: "budget that allows evictions after ten minutes", Seed: 40, Pool: with(func(p *Pool) { p.Tight = 10 * time.Minute }), Asks: aCapture},
	{Name: "budget that allows no eviction", Seed: 41, Pool: with(func(p *Pool) { p.Tight = 30 * day }),
		Asks: []Ask{{Do: "capture", Exit: 1}}, Cannot: "PodDisruptionBudget default/db"},
	{Name: "budget that allows no eviction, forced", Seed: 41, Pool: with(func(p *Pool) { p.Tight = 30 * day }), Asks: []Ask{{Do: "capture", Force: true}}},
	{Name: "donor that is Ready from before its stop while it boots", Seed: 42, Pool: with(func(p *Pool) { p.SlowBoot = 4 * time.Minute }), Asks: aCapture},
	{Name: "forward to a version that was rolled back", Seed: 43, Pool: usual, Asks: []Ask{
		{Do: "capture"}, {Do: "rollback"}, {Do: "rollback", To: "2000.01.01"}, {Do: "capture"}}},
	{Name: "rollback past a version that was rolled back", Seed: 54, Pool: usual, Asks: []Ask{
		{Do: "capture"}, {Do: "rollback"}, {Do: "wait", For: day}, {Do: "capture", Node: 1}, {Do: "rollback"}}},
	{Name: "history after rollbacks", Seed: 44, Pool: with(func(p *Pool) { p.Versions = 5 }), Asks: []Ask{
		{Do: "rollback"}, {Do: "rollback"}, {Do: "rollback"}, {Do: "capture", History: 2}, {Do: "wait", For: day}, {Do: "capture", History: 2}}},
	{Name: "Node of the stopped donor deleted, and killed", Seed: 46, Pool: usual, Asks: aCapture, Happen: []Event{
		{At: putSnapshot, What: "node deleted", Target: "donor"}, {At: putSnapshot, What: "kill after"}}},
	{Name: "Node of the donor deleted, and its instance stopped", Seed: 0x465, Pool: usual, Asks: aCapture, Happen: []Event{
		{At: "kube PATCH default/machines/pool1000000", What: "node deleted", Target: "donor"},
		{At: "kube DELETE ortet-system/leases/ortet-pool1-fd34c415d62c", What: "instance stopped", Target: "donor"}}},
	{Name: "autoscaler while the donor is empty", Seed: 47, Pool: usual, Asks: aCapture, Happen: at(putSnapshot, 1, "autoscaler deletes empty nodes")},
	{Name: "autoscaler deletes nodes when the version is built", Seed: 1, Pool: usual, Asks: []Ask{{Do: "capture", Grow: 1}},
		Happen: at("azure GET operation-of-PUT-"+definition+"/versions/2000.01.01", 9, "autoscaler deletes empty nodes")},
	{Name: "autoscaler preempts the model's change", Seed: 1, Pool: usual, Asks: []Ask{{Do: "capture", Grow: 1, History: 2}},
		Happen: at("azure DELETE snapshots/snapshot_pool1_generalized", 1, "autoscaler adds a node")},
	{Name: "capacity asked for, answer lost, and an autoscaler", Seed: 49, Pool: usual, Asks: []Ask{{Do: "capture", Grow: 1}},
		Happen: append(at(patchModel, 2, "lost answer"), at(patchModel, 3, "autoscaler adds a node")...)},
	{Name: "poll of the new nodes throttled", Seed: 1, Pool: fresh, Asks: []Ask{{Do: "capture", Grow: 2}},
		Happen: each(5, 9, "azure GET operation-of-PATCH-virtualMachineScaleSets/pool1", "throttled")},
	{Name: "capacity asked for, answer lost, then throttled", Seed: 1, Pool: fresh, Asks: []Ask{{Do: "capture", Grow: 2}},
		Happen: append(at(patchModel, 2, "lost answer"), at(patchModel, 3, "throttled")...)},
	{Name: "deletion that is preempted while the version is built", Seed: 69, Pool: usual, Asks: aCapture, Happen: at(putVersion, 1, "autoscaler adds a node while it deletes one")},
	{Name: "baked with the definition in upper case, and a node added before the model has its customData", Seed: 68,
		Pool: with(func(p *Pool) { p.Spelling, p.Latest = "model", true }), Asks: []Ask{{Do: "capture", Baked: true}}, Happen: at(patchModel, 1, "autoscaler adds a node")},
	{Name: "baked, and a node added before the model has its customData", Seed: 68, Pool: latest, Asks: []Ask{{Do: "capture", Baked: true}}, Happen: at(patchModel, 1, "autoscaler adds a node")},
	{Name: "donor started while its disk is copied", Seed: 48, Pool: usual, Asks: aCapture, Happen: []Event{
		{At: putSnapshot, What: "slow"}, {At: putSnapshot, What: "instance started", Target: "donor"}}},
	{Name: "donor that its owner stops when the capture does", Seed: 70, Pool: usual, Asks: aCapture, Happen: []Event{
		{At: "azure GET " + instance0, N: 6, What: "instance stopped", Target: "donor"}}},
	{Name: "workbench stopped while the pod works, and replaced", Seed: 65, Pool: usual, Asks: aCapture, Single: powerOff, Happen: []Event{
		{At: getPod, N: 2, What: "instance stopped", Target: "workbench"}}},
	{Name: "workbench that boots with the copy attached", Seed: 1, Pool: usual, Asks: aCapture, Single: powerOff, Happen: []Event{
		{At: getPod, What: "instance restarted", Target: "workbench"}}},
	{Name: "workbench stopped, and no other node", Seed: 1, Pool: Pool{Instances: 2}, Asks: []Ask{{Do: "capture", Once: true, Exit: 1}}, Happen: []Event{{At: getPod, N: 2, What: "instance stopped", Target: "workbench"}}},
	{Name: "uncordon that fails, and the same command", Seed: 1, Pool: usual, Asks: aCapture, Happen: each(3, 60, "kube PATCH nodes/pool1000000", "server error")},
	{Name: "laptop that sleeps while another process locks the pool", Seed: 1, Pool: usual, Asks: []Ask{{Do: "capture", Grow: 1, History: 2}}, Happen: []Event{
		{At: "kube GET default/machines/pool1000000", N: 2, What: "laptop sleeps and another ortet begins", For: 303 * time.Second}}},
	{Name: "laptop that sleeps until another process has captured the pool", Seed: 0x9c3, Pool: usual, Asks: aCapture, Happen: append(
		at("kube POST ortet-system/secrets", 1, "another ortet"), Event{At: "kube PUT ortet-system/secrets/ortet-journal-pool1-fd34c415d62c", N: 7, What: "laptop sleeps", For: 2 * time.Hour})},
	slow(powerOff, 1), slow(putSnapshot, 1), slow(start, 1), slow("azure PUT disks/disk_pool1_work", 1), slow(putVersion, 1), slow(patchModel, 1), slow(patchModel, 2),
	{Name: "killed after the cordon", Seed: 60, Pool: usual, Asks: aCapture, Happen: at("kube PATCH nodes/pool1000000", 2, "kill after")},
	{Name: "killed after the workbench is annotated", Seed: 61, Pool: usual, Asks: aCapture, Happen: at("kube PATCH nodes/pool1000001", 1, "kill after")},
	{Name: "killed with a snapshot, and another donor is named", Seed: 50, Pool: usual, Asks: another(2), Happen: at(start, 1, "kill before")},
	{Name: "killed with kured's lock, and another donor is named", Seed: 62, Pool: usual, Asks: another(2), Happen: at("kube PATCH kube-system/daemonsets/kured", 1, "kill after")},
	{Name: "killed with a complete version, and another donor is named", Seed: 63, Pool: usual, Asks: another(2), Happen: at(patchModel, 1, "kill before")},
	{Name: "donor gone with the pod that inspects it", Seed: 0xa9e, Pool: usual, Asks: []Ask{{Do: "capture", Once: true}, {Do: "capture", Node: 1}}, Happen: []Event{
		{At: "kube GET ortet-system/pods/ortet-generalize-pool1-look", What: "away for 20 minutes"}, {At: "kube GET ortet-system/pods/ortet-generalize-pool1-look", N: 2, What: "instance deleted", Target: "donor"}}},
	{Name: "interrupted while the pod works", Seed: 51, Pool: usual, Asks: aCapture, Happen: at(getPod, 3, "interrupt")},
	{Name: "interrupted with a snapshot, which the next process uses", Seed: 64, Pool: usual, Asks: aCapture, Single: powerOff, Happen: at(putVersion, 1, "interrupt")},
	{Name: "interrupted with a snapshot, and the donor scaled in", Seed: 64, Pool: usual, Asks: []Ask{{Do: "capture"}, {Do: "capture", Node: 1}}, Happen: append(
		at(putVersion, 1, "interrupt"), Event{At: "kube GET nodes/pool1000000", N: 32, What: "instance deleted", Target: "donor"})},
	{Name: "begun before midnight, and killed with a snapshot from after it", Seed: 1, Pool: usual, Asks: []Ask{{Do: "wait", For: day - 2*time.Minute}, {Do: "capture"}},
		Happen: at(start, 1, "kill after"), Single: powerOff},
	{Name: "begun before midnight, and killed with a generalised copy from after it", Seed: 1, Pool: usual, Asks: []Ask{{Do: "wait", For: day - 2*time.Minute}, {Do: "capture", Again: true}},
		Happen: append(at("azure DELETE disks/disk_pool1_work", 1, "snapshot deleted"), at("azure DELETE disks/disk_pool1_work", 1, "kill before")...), Single: powerOff},
	{Name: "killed, and its lock expired when the API server fails once", Seed: 0x68, Pool: usual, Asks: aCapture,
		Happen: append(at(start, 1, "kill after"), at("kube PUT ortet-system/leases/ortet-pool1-fd34c415d62c", 2, "server error")...)},
	{Name: "API server away while the version is built", Seed: 66, Pool: usual, Asks: aCapture, Single: powerOff,
		Happen: at("kube PUT ortet-system/leases/ortet-pool1-fd34c415d62c", 3, "away for 20 minutes")},
	{Name: "extension that is deleted at the eleventh time", Seed: 67, Pool: usual, Asks: aCapture, Happen: each(1, 10, "azure DELETE virtualMachineScaleSets/pool1/extensions/vmssCSE", "operation fails")},
	{Name: "all other nodes deleted, and the version of which they are made", Seed: 0xed6, Pool: with(func(p *Pool) { p.Disk = "secrets" }),
		Asks: []Ask{{Do: "capture", Exit: 1}}, Cannot: "its disk holds credentials", Happen: append(at(putJournal, 23, "version deleted"),
			Event{At: putJournal, N: 27, What: "instance deleted", Target: "workbench"}, Event{At: "kube PATCH nodes/pool1000000", N: 3, What: "autoscaler deletes empty nodes"})},
	{Name: "donor deleted, and two processes that leave the capture open", Seed: 0xeff, Pool: with(func(p *Pool) { p.PodsTake, p.Pods, p.Budgeted = 3*time.Minute, 3, 3 }),
		Asks: aCapture, Happen: []Event{
			{At: "kube PUT ortet-system/leases/ortet-pool1-fd34c415d62c", N: 3, What: "laptop sleeps", For: 303 * time.Second},
			{At: "azure PUT " + instance0, N: 2, What: "instance deleted", Target: "donor"},
			{At: getPod, N: 6, What: "laptop sleeps and another ortet begins", For: 303 * time.Second}}},
	{Name: "workbench that another pool takes in the same second", Seed: 1, Pool: with(func(p *Pool) { p.Others = "protected" }), Asks: aCapture,
		Happen: at("kube PATCH nodes/pool1000001", 1, "another pool takes the node")},
	{Name: "version of others that appears while the copy is generalised", Seed: 1, Pool: usual, Asks: []Ask{{Do: "capture", Exit: 3}}, Cannot: "ForeignVersion",
		Happen: at("azure GET snapshots/snapshot_pool1_generalized", 4, "others publish a version")},
	{Name: "extension changed by its owner during the second capture", Seed: 1, Pool: Pool{Instances: 3, Extensions: []string{"monitor", "cse"}}, Asks: []Ask{
		{Do: "capture"}, {Do: "rollback", To: "original"}, {Do: "wait", For: day}, {Do: "capture"}, {Do: "rollback", To: "original", Exit: 3}},
		Cannot: "extension vmssCSE: its protected settings", Happen: at("azure PUT "+definition+"/versions/2000.01.02", 1, "extension changed by others")},
	{Name: "conflict at the model's change", Seed: 71, Pool: usual, Asks: aCapture, Happen: at(patchModel, 1, "conflict")},
}

// others are stories of owners, of captures of other pools, of a full store, and of donors that go.
var others = []Story{
	{Name: "donor kept by its owners", Seed: 80, Pool: with(func(p *Pool) { p.Kept = true }), Asks: aCapture},
	refused("IsWorkbench", func(p *Pool) { p.Bench = "donor" }),
	refused("ForeignSnapshot", func(p *Pool) { p.Copies = "snapshot" }),
	refused("ForeignDisk", func(p *Pool) { p.Copies = "disk" }),
	refused("ForeignDisk", func(*Pool) {}, Event{At: powerOff, What: "disk made by others"}),
	{Name: "workbench of another pool's capture", Seed: 82, Pool: with(func(p *Pool) { p.Bench = "other" }), Asks: aCapture},
	{Name: "workbench that another pool's capture takes", Seed: 83, Pool: usual, Asks: aCapture, Single: powerOff,
		Happen: at("kube POST ortet-system/pods", 1, "another pool takes the workbench")},
	{Name: "kured locked by another pool's capture, and killed", Seed: 84, Pool: usual, Asks: aCapture,
		Happen: []Event{{At: powerOff, What: "another pool locks kured", For: 30 * time.Minute}, {At: start, What: "kill after"}}},
	{Name: "store full by size", Seed: 87, Pool: Pool{Instances: 3, Versions: 2, Store: "bytes"}, Asks: aCapture},
	{Name: "store full by number, and the original", Seed: 88, Pool: Pool{Instances: 3, Extensions: []string{"cse"}, Store: "items"},
		Asks: []Ask{{Do: "capture", Baked: true}, {Do: "rollback", To: "original"}}},
	{Name: "store full of what is needed", Seed: 89, Pool: Pool{Instances: 3, Versions: 2, Store: "needed"},
		Asks: []Ask{{Do: "capture", Exit: 1}}, Cannot: "do not fit"},
	{Name: "killed before its snapshot, three days later", Seed: 90, Pool: usual,
		Asks: []Ask{{Do: "capture", Once: true}, {Do: "wait", For: 3 * day}, {Do: "capture"}}, Happen: at(powerOff, 1, "kill after")},
	{Name: "donor deleted before it is started", Seed: 92, Pool: usual, Asks: []Ask{{Do: "capture", Once: true, Exit: 1}},
		Cannot: "was deleted", Happen: []Event{{At: start, What: "instance deleted", Target: "donor"}}},
	{Name: "donor deleted while the version is built", Seed: 93, Pool: usual, Asks: aCapture, Single: powerOff,
		Happen: []Event{{At: putVersion, What: "instance deleted", Target: "donor"}}},
}

// rollbacks are stories of rollbacks, and of captures around them.
var rollbacks = []Story{
	{Name: "rollback to a version whose tag was refused, and days later another", Seed: 1, Pool: usual, Asks: []Ask{
		{Do: "rollback", To: "1999.12.18", Once: true}, {Do: "wait", For: 3 * day}, {Do: "rollback"}},
		Happen: at("azure PATCH "+definition+"/versions/1999.12.25", 1, "refused")},
	{Name: "tag refused while extensions are restored", Seed: 2, Pool: Pool{Instances: 3, Extensions: []string{"cse"}, Pods: 1}, Asks: []Ask{
		{Do: "capture", Deallocate: true}, {Do: "rollback", To: "original"}}, Happen: at("azure PATCH "+definition+"/versions/2000.01.01", 1, "refused")},
	{Name: "the first rollback, and forward", Seed: 60, Pool: Pool{Instances: 3, Extensions: []string{"monitor"}}, Asks: []Ask{
		{Do: "capture"}, {Do: "rollback"}, {Do: "rollback", To: "original"}, {Do: "rollback", To: "2000.01.01"}, {Do: "scale out", N: 1}}},
	{Name: "capture after the first rollback is refused", Seed: 61, Pool: fresh, Asks: []Ask{{Do: "capture"}, {Do: "rollback"}, {Do: "capture", Exit: 3}}, Cannot: "RolledBack"},
	{Name: "the original after captures and rollbacks that died", Seed: 62, Pool: fresh, Asks: []Ask{
		{Do: "capture"}, {Do: "wait", For: day}, {Do: "capture", Baked: true}, {Do: "wait", For: day}, {Do: "capture"}, {Do: "rollback", To: "original"}, {Do: "scale out", N: 1}},
		Happen: []Event{{At: patchModel, N: 1, What: "kill after"}, {At: patchModel, N: 3, What: "kill before"}, {At: patchModel, N: 4, What: "kill after"}}},
	{Name: "nothing to go back to", Seed: 63, Pool: Pool{Instances: 2}, Asks: []Ask{{Do: "rollback", Exit: 3}}, Cannot: "NoPrevious"},
	{Name: "original that is not recorded", Seed: 64, Pool: usual, Asks: []Ask{{Do: "rollback", To: "original", Exit: 3}}, Cannot: "NoOriginal"},
	{Name: "a second capture of the day, and a rollback to the first", Seed: 65, Pool: usual, Asks: []Ask{
		{Do: "capture"}, {Do: "capture", Again: true}, {Do: "capture"}, {Do: "rollback"}, {Do: "capture"}}},
	{Name: "rollback of a baked version to itself and back", Seed: 66, Pool: fresh, Asks: []Ask{{Do: "capture", Baked: true}, {Do: "wait", For: day},
		{Do: "capture"}, {Do: "scale out", N: 1}, {Do: "rollback"}, {Do: "rollback", To: "2000.01.02"}, {Do: "rollback", To: "original"}}},
	{Name: "rollback from a version with customData of its own", Seed: 45, Pool: fresh, Asks: []Ask{
		{Do: "capture"}, {Do: "wait", For: day}, {Do: "capture", Baked: true}, {Do: "rollback"}, {Do: "rollback", To: "2000.01.02"}, {Do: "scale out", N: 1}}},
	{Name: "baked capture killed at the model, and a rollback", Seed: 67, Pool: fresh, Asks: []Ask{{Do: "capture"}, {Do: "wait", For: day},
		{Do: "capture", Baked: true, Once: true}, {Do: "rollback", To: "2000.01.01"}, {Do: "scale out", N: 1}}, Happen: at(patchModel, 2, "kill after")},
	{Name: "rollback while an instance is being deleted", Seed: 77, Pool: usual, Asks: []Ask{{Do: "capture"}, {Do: "wait", For: time.Minute}, {Do: "rollback"}},
		Happen: at("kube DELETE ortet-system/leases/ortet-pool1-fd34c415d62c", 1, "autoscaler adds a node while it deletes one")},
	{Name: "rollback killed at the model, and another one", Seed: 68, Pool: usual, Asks: []Ask{
		{Do: "rollback", Once: true}, {Do: "rollback", To: "1999.12.11"}}, Happen: at(patchModel, 1, "kill after")},
	{Name: "rollback whose version is deleted after a kill", Seed: 79, Pool: usual, Asks: []Ask{
		{Do: "capture"}, {Do: "rollback"}, {Do: "rollback", To: "2000.01.01", Once: true}, {Do: "rollback", To: "2000.01.01", Exit: 3}},
		Cannot: "NoVersion", Happen: append(at(patchModel, 3, "version deleted"), at(patchModel, 3, "kill before")...)},
	{Name: "rollback killed after its tag left the version Failed", Seed: 1, Pool: bootstrapped("sealed"), Asks: []Ask{{Do: "capture"}, {Do: "rollback", To: "original"}},
		Happen: append(at("azure PATCH "+definition+"/versions/2000.01.01", 1, "operation fails"), at("azure PUT virtualMachineScaleSets/pool1/extensions/vmssCSE", 1, "kill after")...)},
	{Name: "rollback whose tag is refused, and the same command", Seed: 1, Pool: usual, Asks: []Ask{{Do: "rollback"}},
		Happen: at("azure PATCH "+definition+"/versions/1999.12.25", 1, "refused")},
	{Name: "rollback whose tag leaves the version Failed, and the same command", Seed: 1, Pool: usual, Asks: []Ask{{Do: "rollback"}},
		Happen: each(1, 5, "azure PATCH "+definition+"/versions/1999.12.25", "operation fails")},
	{Name: "first rollback whose extension is refused, and the same command", Seed: 1, Pool: Pool{Instances: 3, Extensions: []string{"monitor", "cse"}}, Asks: []Ask{{Do: "capture"}, {Do: "rollback"}},
		Happen: at("azure PUT virtualMachineScaleSets/pool1/extensions/vmssCSE", 1, "refused")},
	{Name: "rollback killed while the API server is away", Seed: 0x61c, Pool: Pool{Instances: 3, Versions: 3, Extensions: []string{"monitor"}}, Asks: []Ask{{Do: "rollback"}},
		Happen: append(at(putJournal, 2, "away for 20 minutes"), at(putJournal, 4, "kill before")...)},
	{Name: "rollback killed at the model, and a capture", Seed: 69, Pool: usual, Asks: []Ask{{Do: "rollback", Once: true}, {Do: "capture"}}, Happen: at(patchModel, 1, "kill after")},
	{Name: "version set by others after a baked capture, and a capture", Seed: 70, Pool: fresh, Asks: afterBaked("2000.01.01", Ask{Do: "capture"}, Ask{Do: "scale out", N: 1})},
	{Name: "version set by others after a baked capture, and a rollback", Seed: 71, Pool: fresh,
		Asks: afterBaked("2000.01.01", Ask{Do: "rollback", To: "2000.01.01"}, Ask{Do: "scale out", N: 1})},
	{Name: "original set by others after a baked capture, and a capture", Seed: 72, Pool: fresh, Asks: afterBaked(firstImage, Ask{Do: "capture"}, Ask{Do: "scale out", N: 1})},
	{Name: "original set by others after a baked capture, and two rollbacks, throttled", Seed: 74, Pool: fresh,
		Asks: afterBaked(firstImage, Ask{Do: "rollback", To: "original"}, Ask{Do: "rollback", To: "original"}), Happen: at(patchModel, 3, "throttled")},
	unheard("throttled", 1), unheard("conflict", 1), unheard("server error", 5), // the client tries five times
	{Name: "original set by others after a baked capture, and a rollback whose operation fails", Seed: 74, Pool: fresh,
		Asks: afterBaked(firstImage, Ask{Do: "rollback", To: "original"}), Happen: at(patchModel, 3, "operation fails")},
	{Name: "other image set by others after a baked capture, and a capture", Seed: 75, Pool: fresh, Asks: afterBaked(otherImage, Ask{Do: "capture"}, Ask{Do: "scale out", N: 1})},
	{Name: "other image set by others after a baked capture, and no way back", Seed: 76, Pool: fresh,
		Asks: afterBaked(otherImage, Ask{Do: "capture"}, Ask{Do: "rollback", To: "original", Exit: 3}), Cannot: "CustomDataLost"},
	{Name: "other image set by others after a baked capture, baked again, and no way back", Seed: 76, Pool: fresh,
		Asks:   afterBaked(otherImage, Ask{Do: "capture"}, Ask{Do: "wait", For: day}, Ask{Do: "capture", Baked: true}, Ask{Do: "rollback", To: "original", Exit: 3}),
		Cannot: "CustomDataLost"},
}

// taken are stories in which others write the same just before a command does.
var taken = []Story{
	{Name: "version that others begin under the same name", Seed: 94, Pool: usual, Asks: []Ask{{Do: "capture", Once: true, Exit: 1}},
		Cannot: "made a version of this name since this capture began", Happen: at(putVersion, 1, "others begin a version")},
	{Name: "newer version that others have go live", Seed: 95, Pool: usual, Asks: []Ask{{Do: "capture", Once: true, Exit: 1}},
		Cannot: "which is newer than 2000.01.01", Happen: at(patchModel, 1, "newer version goes live")},
	{Name: "workbench released while another pool's capture takes it", Seed: 4, Pool: usual, Asks: aCapture,
		Happen: at("kube GET nodes/pool1000001", 9, "another pool takes the workbench")}, // before the PATCH that releases it
}

// setStories are pools beside the scale set of another pool.
var setStories = []Story{
	{Name: "another pool in the cluster", Seed: 1, Pool: with(func(p *Pool) { p.Neighbour = 2 }),
		Asks: []Ask{{Do: "capture", Grow: 1}, {Do: "rollback"}}},
	{Name: "workbench of another pool", Seed: 2, Pool: with(func(p *Pool) { p.Neighbour, p.Others = 1, "cordoned" }), Asks: aCapture},
	{Name: "workbench of another pool, and an autoscaler", Seed: 3, Pool: with(func(p *Pool) { p.Neighbour, p.Others = 3, "cordoned" }),
		Asks: aCapture, Happen: at("kube POST ortet-system/pods", 2, "autoscaler deletes empty nodes")},
	{Name: "another pool updating while the model is changed", Seed: 6, Pool: with(func(p *Pool) { p.Neighbour = 3 }), Asks: aCapture,
		Happen: at("azure GET virtualMachineScaleSets/pool1", 5, "autoscaler deletes empty nodes")},
}
