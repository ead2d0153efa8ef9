package scenario

import (
	"strconv"
	"time"
)

// Bounds of a scenario, and so of what playing one may take.
const (
	MaxText         = 64 << 10 // bytes
	MaxEvents       = 200
	MaxAsks         = 20
	MaxInstances    = 1000
	maxExpectations = 40
	maxComment      = 200 // lines
	maxRequest      = 300 // bytes of a name
	maxCount        = 1_000_000
	minWait         = time.Second
	maxWait         = 60 * 24 * time.Hour
	million         = 1_000_000
)

// The settings of each kind of line, in the order in which they are printed.

func poolSettings() []setting[Pool] {
	return []setting[Pool]{
		number("instances", 3, 2, MaxInstances, func(p *Pool) *int { return &p.Instances }, "the pool's nodes"),
		number("zones", 0, 0, 3, func(p *Pool) *int { return &p.Zones }, "availability zones that the instances are spread over; 0: a regional pool"),
		number("versions", 0, 0, 20, func(p *Pool) *int { return &p.Versions }, "prototypes that earlier captures left; the model uses the newest"),
		onOff("marketplace", func(p *Pool) *bool { return &p.Marketplace }, "the model uses a Marketplace image though there are versions"),
		number("old", 0, 0, 20, func(p *Pool) *int { return &p.Old }, "instances made from older versions than the model's, each from another, as far as there are"),
		list("extensions", "cse", func(p *Pool) *[]string { return &p.Extensions }, "the model's extensions, each provisioned after the one before", "cse", "billing", "monitor"),
		choice("upgrade", func(p *Pool) *string { return &p.Upgrade }, "the upgrade mode", "Manual", "Rolling"),
		onOff("machines", func(p *Pool) *bool { return &p.Machines }, "Cluster API has a Machine for each node"),
		onOff("kured", func(p *Pool) *bool { return &p.Kured }, "kured is installed"),
		duration("rebooting", 0, 0, 24*time.Hour, func(p *Pool) *time.Duration { return &p.Rebooting }, "where there is kured: for how long it reboots a node of another pool, from the beginning on"),
		onOff("nozrs", func(p *Pool) *bool { return &p.NoZRS }, "the region has no zone-redundant storage"),
		onOff("latest", func(p *Pool) *bool { return &p.Latest }, "the model refers to the image definition, where there are versions"),
		onOff("theirs", func(p *Pool) *bool { return &p.Theirs }, "others made the oldest version, which an instance runs where there are enough"),
		onOff("leftover", func(p *Pool) *bool { return &p.Leftover }, "an earlier capture left its snapshots and its copy of the disk, where there are versions"),
		onOff("customdata", func(p *Pool) *bool { return &p.CustomData }, "versions before the newest carry customData of their own, which is kept"),
		onOff("again", func(p *Pool) *bool { return &p.Again }, "an earlier release made the newest version with --again, and did not exclude it from latest"),
		choice("refuses", func(p *Pool) *string { return &p.Refuses },
			"a reason to refuse: none, upgrades that are automatic, a pool that Cluster API or AKS manages, a donor that runs the control plane, is about to reboot, is a workbench, has two Nodes or is not Ready, a snapshot, a copy of the disk or a version of others, a definition that does not fit, no right to change the scale set, automatic repairs or OS upgrades, ephemeral OS disks, confidential VMs (where there are versions), a donor in a Flexible scale set",
			"none", "automatic", "owned", "aks", "controlplane", "reboot", "workbench", "duplicate", "notready", "snapshot", "workdisk", "version", "definition", "rights", "repairs", "osupgrade", "ephemeral", "confidential", "flexible"),
		choice("benches", func(p *Pool) *string { return &p.Benches },
			"what others have set on the first 8 nodes but the donor: nothing, protectFromScaleIn, also protectFromScaleSetActions, cluster-autoscaler's annotation, the same to false; all but one: cordoned, NotReady, of unknown readiness, donor of another capture, workbench of another pool, about to reboot, of another architecture, with a disk at each LUN",
			"plain", "protected", "actions", "scaledown", "offered", "cordoned", "notready", "unknown", "captured", "serving", "rebooting", "otherarch", "full"),
		choice("volumes", func(p *Pool) *string { return &p.Volumes }, "data disks of others on the first 8 nodes: none, at the lowest two LUNs, where volume drivers put them, or at the highest", "none", "low", "high"),
		choice("spelling", func(p *Pool) *string { return &p.Spelling }, "how Azure spells ids in answers and nodes' provider ids: as they were sent, in lower case, resource group and names in upper case, or each id in each answer in one of these ways", "sent", "lower", "upper", "mixed"),
		choice("kind", func(p *Pool) *string { return &p.Kind }, "what the pool is: nothing special, Trusted Launch, a size with NVMe disks, Spot instances that are deallocated or deleted when Azure evicts them", "plain", "trusted", "nvme", "spot", "spotdelete"),
		number("pages", 0, 0, 50, func(p *Pool) *int { return &p.Pages }, "entries of a page of Azure's lists; 0: 50"),
	}
}

func donorSettings() []setting[Donor] {
	return []setting[Donor]{
		number("pods", 2, 0, 100, func(d *Donor) *int { return &d.Pods }, "pods of a ReplicaSet without a budget"),
		number("budgeted", 0, 0, 100, func(d *Donor) *int { return &d.Budgeted }, "pods of a ReplicaSet whose budget lets one go at a time"),
		duration("tight", 0, 0, time.Hour, func(d *Donor) *time.Duration { return &d.Tight }, "how long one more of them, on another node, is not Ready: so long the budget lets none go"),
		number("daemons", 0, 0, 50, func(d *Donor) *int { return &d.Daemons }, "pods of DaemonSets"),
		number("mirrors", 0, 0, 20, func(d *Donor) *int { return &d.Mirrors }, "mirror pods"),
		number("unmanaged", 0, 0, 20, func(d *Donor) *int { return &d.Unmanaged }, "pods that nothing would create again"),
		number("late", 0, 0, 20, func(d *Donor) *int { return &d.Late }, "pods that come to it within a second after it is cordoned: the scheduler had decided before"),
		onOff("blocked", func(d *Donor) *bool { return &d.Blocked }, "a budget never lets one pod go"),
		duration("slow", 2*time.Second, 0, 2*time.Hour, func(d *Donor) *time.Duration { return &d.Slow }, "how long a pod takes to end"),
		onOff("cordoned", func(d *Donor) *bool { return &d.Cordoned }, "others have cordoned it"),
		onOff("scaledown", func(d *Donor) *bool { return &d.ScaleDown }, "others have set cluster-autoscaler's annotation"),
		onOff("skip", func(d *Donor) *bool { return &d.Skip }, "others have set skip-remediation on its Machine"),
		onOff("protected", func(d *Donor) *bool { return &d.Protected }, "others have set protectFromScaleIn"),
		onOff("actions", func(d *Donor) *bool { return &d.Actions }, "others have set protectFromScaleSetActions, and so protectFromScaleIn"),
		onOff("offered", func(d *Donor) *bool { return &d.Offered }, "others have set cluster-autoscaler's annotation to false"),
		choice("disk", func(d *Donor) *string { return &d.Disk },
			"what is found on the copy: clones join, it has the pool's credentials, clones do not join, it has `preserve_hostname`, the pod is lost once",
			"joins", "secrets", "nojoin", "preserve", "lost"),
		choice("kind", func(d *Donor) *string { return &d.Kind },
			"what is on the disks of the pool's nodes, on which the agent's own code works: no files, and what a pod reports is made up; a node that `ortet-node join` had admitted, one of kubeadm with a bootstrap kubeconfig, an agent of k3s, one with AKS's places of kubeconfigs",
			"none", "admission", "kubeadm", "k3s", "aks"),
		number("others", 0, 0, 9, func(d *Donor) *int { return &d.Others }, "secrets of users on each node's disk, sampled by the seed, where it holds files"),
		number("strays", 0, 0, 6, func(d *Donor) *int { return &d.Strays }, "copies of a node's identity on its disk where generalising does not remove them, sampled by the seed"),
	}
}

const nodes = 9999 // numbers of instances

func nodeSetting(does string) setting[Ask] {
	return number("node", 0, 0, nodes, func(a *Ask) *int { return &a.Node }, does)
}

func askedSettings() []setting[Ask] {
	return []setting[Ask]{
		onOff("rolling", func(a *Ask) *bool { return &a.Rolling }, "`--allow-rolling`"),
		number("rival", -1, -1, nodes, func(a *Ask) *int { return &a.Rival }, "another process asks the same meanwhile, of that instance; -1: nobody does"),
		onOff("unknown", func(a *Ask) *bool { return &a.Unknown }, "the next process cannot know that a process before it is dead, and waits for its Lease to run out"),
		duration("pause", 0, 0, 48*time.Hour, func(a *Ask) *time.Duration { return &a.Pause }, "how long after a death the same is asked again; 0s: up to 90 s"),
	}
}

func captureSettings() []setting[Ask] {
	return append([]setting[Ask]{
		nodeSetting("the instance to capture"),
		onOff("again", func(a *Ask) *bool { return &a.Again }, "`--again`"),
		onOff("deallocate", func(a *Ask) *bool { return &a.Deallocate }, "`--deallocate`"),
		onOff("force", func(a *Ask) *bool { return &a.Force }, "`--force`"),
		onOff("bake", func(a *Ask) *bool { return &a.Bake }, "`--bootstrap baked`"),
		onOff("accept", func(a *Ask) *bool { return &a.Accept }, "`--accept-pool-credentials`"),
		number("history", 0, 0, 100, func(a *Ask) *int { return &a.History }, "versions to keep; 0: Ortet's default"),
		number("newnodes", 0, 0, 100, func(a *Ask) *int { return &a.NewNodes }, "nodes to add"),
		number("acceptsecrets", 0, 0, 9, func(a *Ask) *int { return &a.AcceptSecrets }, "`--accept-secret` for so many of the other secrets"),
		onOff("removesecrets", func(a *Ask) *bool { return &a.RemoveSecrets }, "`--remove-secrets`"),
		onOff("rivalrollback", func(a *Ask) *bool { return &a.RivalRollback }, "the other process asks for a rollback instead"),
	}, askedSettings()...)
}

func rollbackSettings() []setting[Ask] {
	return append([]setting[Ask]{
		nodeSetting("any instance of the pool"),
		text("to", 40, "a version's name, previous, original, oldest, newest or left", func(a *Ask) *string { return &a.To },
			func(r rune) bool { return r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' }, "the version; none: the one before; oldest, newest: by publishing date; left: the newest that was rolled back from"),
	}, askedSettings()...)
}

// settingsOf gives those of an ask with that verb. A wait has none, but what
// follows it on its line.
func settingsOf(verb string) []setting[Ask] {
	switch verb {
	case Capture:
		return captureSettings()
	case Rollback:
		return rollbackSettings()
	}
	return nil
}

func chanceSettings() []setting[Chance] {
	return []setting[Chance]{
		number("rate", 0, 0, million, func(c *Chance) *int { return &c.Rate }, "faults in a million requests"),
		number("death", 0, 0, million, func(c *Chance) *int { return &c.Death }, "ends of the process in a million requests"),
		number("world", 0, 0, million, func(c *Chance) *int { return &c.World }, "changes that others make in a million requests"),
		number("aimed", 0, 0, 20, func(c *Chance) *int { return &c.Aimed }, "kinds of changes, of fifteen, that are aimed at: something happens at one of that kind, and at the read after it"),
		ofTheme(),
		number("undoing", 0, 0, 20, func(c *Chance) *int { return &c.Undoing }, "how many happen, beyond `most`, while changes are undone; where not 0, a failure or an interruption is brought about"),
		number("phase", 0, 0, mostPhases, func(c *Chance) *int { return &c.Phase }, "`rate`, `death`, `world` and the beginning of `undoing` come only once so many kinds of changes were asked for, and for 80 requests; 0: always"),
		number("deaths", 0, 0, 20, func(c *Chance) *int { return &c.Deaths }, "at how many of 22 kinds of changes a process dies or is suspended, four times at most"),
		number("after", 0, 0, MaxAsks-1, func(c *Chance) *int { return &c.After }, "nothing happens by chance in so many asks, waits included, from the first on"),
		number("most", 0, 0, MaxEvents, func(c *Chance) *int { return &c.Most }, "how many happen in all; 0: no bound but 200"),
	}
}

// lastAsk is how "the last" is said while the asks are not known.
const lastAsk = -1

func expectSettings() []setting[Expectation] {
	exit := number("exit", 0, 0, 255, func(e *Expectation) *int { return &e.Exit }, "the exit code of its last process")
	exit.def, exit.must = "", true
	ask := number("ask", lastAsk, 0, MaxAsks-1, func(e *Expectation) *int { return &e.Ask }, "which one, from 0, waits included; none: the last")
	get, set := ask.get, ask.set
	ask.def = ""
	ask.get = func(e *Expectation) string {
		if e.Ask == lastAsk {
			return ""
		}
		return get(e)
	}
	ask.set = func(e *Expectation, v string) error {
		if v == "" {
			e.Ask = lastAsk
			return nil
		}
		return set(e, v)
	}
	return []setting[Expectation]{
		ask, exit,
		text("says", 400, "a text in quotes", func(e *Expectation) *string { return &e.Says }, strconv.IsPrint, "a part of what it says"),
	}
}

// Default is the shortest story: node 0 of three is captured, and nothing
// happens.
func Default() Scenario {
	var s Scenario
	reset(&s.Pool, poolSettings())
	reset(&s.Donor, donorSettings())
	reset(&s.Chance, chanceSettings())
	s.Asks = []Ask{newAsk(Capture)}
	return s
}

// newAsk gives one with nothing but defaults.
func newAsk(verb string) Ask {
	a := Ask{}
	reset(&a, captureSettings())
	reset(&a, rollbackSettings())
	a.Verb = verb
	if verb == Wait {
		a.For = 24 * time.Hour
	}
	return a
}
