package scenario

import (
	"slices"
	"time"
)

// Generate makes a scenario from a seed alone: the same on every platform. Most
// are captures of small pools that succeed where nothing happens; about one in
// five is to be refused or to fail by itself. What happens is chance, but for an
// outage that outlasts the Lease, which some rivals meet.
func Generate(seed uint64) Scenario {
	d := roll(seed, 0x6f72746574) // a stream apart from chance's
	s := Default()
	s.Seed = seed
	s.Pool = generatePool(d)
	s.Donor = generateDonor(d, s.Pool)
	s.Asks = generateAsks(d, &s)
	s.Chance = generateChance(d, len(s.Asks))
	if d.percent(65) {
		s.Chance.Aimed = d.in(1, 3)
	}
	if s.Asks[0].Rival >= 0 && d.percent(40) {
		s.Events = []Event{longOutage(d)}
	}
	generateNeighbours(roll(seed, 0x62656e636865), &s.Pool)
	if d := roll(seed, 0x7468656d65); d.percent(60) {
		all := slices.DeleteFunc(themes()[1:], func(t theme) bool { return t.mostly != "" })
		s.Chance.Of = all[d.n(len(all))].name
	}
	// Such a node is no donor either, which is the matter of refuses.
	others := func(a Ask) bool { return a.Verb == Capture && (a.Node != 0 || a.Rival > 0) }
	if d := roll(seed, 0x756e666974); s.Pool.Benches == "plain" && !slices.ContainsFunc(s.Asks, others) && d.percent(25) {
		some := []string{"notready", "unknown", "captured", "serving", "rebooting", "otherarch", "full"}
		s.Pool.Benches = some[d.n(len(some))]
	}
	if late := roll(seed, 0x6c617465); late.percent(25) {
		s.Donor.Late = late.in(1, 2)
	}
	generateReturns(roll(seed, 0x72657475726e), &s)
	generateFiles(roll(seed, 0x66696c6573), &s)
	generateWire(roll(seed, 0x77697265), &s.Pool)
	if d := roll(seed, 0x7269676874); s.Chance.Of == "" && d.percent(15) {
		s.Chance.Of = "rights"
	}
	if d := roll(seed, 0x7469676874); s.Donor.Budgeted > 0 && d.percent(35) {
		// A drain waits for 16 minutes, in which all that are budgeted end one by one.
		room := 14*minute - (s.Donor.Budgeted+s.Donor.Late)*int(s.Donor.Slow/time.Second)
		if tight := d.spread(minute, 9*minute); tight <= room {
			s.Donor.Tight = time.Duration(tight) * time.Second
		}
	}
	s.Pool.Volumes = pick(roll(seed, 0x766f6c756d65), []weighted[string]{{80, "none"}, {10, "low"}, {10, "high"}})
	generateUndoing(roll(seed, 0x756e646f), &s)
	generateDeaths(roll(seed, 0x646561746873), &s)
	generatePhase(roll(seed, 0x7068617365), &s)
	return s
}

// generateWire has Azure answer in some of its other ways.
func generateWire(d dice, p *Pool) {
	if d.percent(35) {
		p.Spelling = pick(d, []weighted[string]{{1, "lower"}, {1, "upper"}, {2, "mixed"}})
	}
	if d.percent(35) && p.Instances <= 40 { // a larger one has several pages anyway
		p.Pages = d.in(1, 3)
	}
	if p.Kind = "plain"; p.Refuses != "ephemeral" && p.Refuses != "confidential" {
		p.Kind = pick(d, []weighted[string]{{70, "plain"}, {8, "trusted"}, {6, "nvme"}, {10, "spot"}, {6, "spotdelete"}})
	}
}

func generatePool(d dice) Pool {
	p := Default().Pool
	switch at := d.n(100); {
	case at < 1:
		p.Instances = d.in(100, 300)
	case at < 11:
		p.Instances = d.in(9, 40)
	default:
		p.Instances = d.in(2, 8)
	}
	// The donor needs another node of its zone, which smaller pools do not have.
	if p.Instances >= 6 && d.percent(45) || d.percent(1) {
		p.Zones = 3
	}
	if d.percent(60) {
		p.Versions = d.in(1, 5)
		p.Marketplace = d.percent(10)
	}
	if p.Versions > 1 && d.percent(50) {
		p.Old = min(d.in(1, 3), p.Instances-1)
	}
	// What stays must not need what goes, which is cse: it is the last.
	p.Extensions = slices.Clone(pick(d, []weighted[[]string]{
		{40, []string{"cse"}}, {25, []string{"billing", "cse"}}, {12, []string{"monitor", "billing", "cse"}},
		{8, []string{"monitor", "cse"}}, {7, []string{"billing"}}, {6, nil}, {1, []string{"cse", "billing"}}, {1, []string{"cse", "monitor"}},
	}))
	if d.percent(8) {
		p.Upgrade = "Rolling"
	}
	p.Machines = d.percent(20)
	p.Kured = d.percent(25)
	p.NoZRS = d.percent(10)
	p.Latest = p.Versions > 0 && !p.Marketplace && d.percent(15)
	p.Theirs = p.Versions > 1 && d.percent(15)
	p.Leftover = p.Versions > 0 && d.percent(8)
	p.CustomData = p.Versions > 1 && d.percent(20)
	return p
}

// generateNeighbours rolls dice of its own, so that what was there before it stays.
func generateNeighbours(d dice, p *Pool) {
	p.Benches = pick(d, []weighted[string]{{76, "plain"}, {6, "protected"}, {4, "actions"}, {5, "scaledown"}, {5, "offered"}, {4, "cordoned"}})
	p.Refuses = "none"
	if d.percent(8) {
		some := []string{"automatic", "owned", "aks", "controlplane", "reboot", "workbench", "duplicate", "notready", "snapshot", "workdisk", "version", "definition", "rights", "repairs", "osupgrade", "ephemeral", "confidential", "flexible"}
		p.Refuses = some[d.n(len(some))]
	}
	if p.Refuses == "automatic" && p.Old > 0 || p.Refuses == "definition" && p.Versions > 0 || (p.Refuses == "version" || p.Refuses == "confidential") && p.Versions == 0 || p.Refuses == "confidential" && p.Marketplace || p.Refuses != "none" && p.Leftover {
		p.Refuses = "owned"
	}
	p.Again = p.Versions > 0 && d.percent(15)
	if p.Kured && d.percent(40) { // no longer than a capture waits
		p.Rebooting = time.Duration(d.spread(3*minute, 25*minute)) * time.Second
	}
}

// generateUndoing has changes go wrong that undo others, in two seeds of five.
func generateUndoing(d dice, s *Scenario) {
	if d.percent(40) {
		s.Chance.Undoing = d.in(1, 4)
	}
}

// generateDeaths has processes die, in one seed of six, and little else happen. Who has to
// wait for a Lease takes over from a process that is suspended, too.
func generateDeaths(d dice, s *Scenario) {
	if !d.percent(17) {
		return
	}
	s.Chance = Chance{Deaths: d.in(1, 3), Most: 1, Rate: s.Chance.Rate / 4, Of: s.Chance.Of, After: s.Chance.After}
	if d.percent(25) {
		s.Chance.Undoing = 1
	}
	for i := range s.Asks {
		a := &s.Asks[i]
		if a.Verb == Wait {
			continue
		}
		a.Unknown = d.percent(60)
		if d.percent(60) {
			a.Pause = time.Duration(d.spread(2*minute, day)) * time.Second
		}
	}
}

func generateDonor(d dice, p Pool) Donor {
	o := Default().Donor
	if d.percent(60) {
		o.Pods = d.in(0, 6)
	}
	if d.percent(35) {
		o.Budgeted = d.in(1, 4)
	}
	if d.percent(50) {
		o.Daemons = d.in(1, 3)
	}
	if d.percent(15) {
		o.Mirrors = d.in(1, 2)
	}
	if d.percent(3) {
		o.Unmanaged = d.in(1, 2)
	}
	o.Blocked = d.percent(2)
	if d.percent(30) {
		o.Slow = time.Duration(d.spread(1, 300)) * time.Second
	}
	o.Cordoned = d.percent(5)
	o.ScaleDown = d.percent(10)
	o.Skip = p.Machines && d.percent(20)
	o.Protected = d.percent(10)
	o.Actions = d.percent(8)
	o.Offered = !o.ScaleDown && d.percent(8)
	o.Disk = pick(d, []weighted[string]{{91, "joins"}, {4, "secrets"}, {1, "nojoin"}, {1, "preserve"}, {3, "lost"}})
	return o
}

// withFiles is the share of seeds, in percent, in whose worlds the agent's own code runs:
// a pod takes some milliseconds, of a hundred or so that a seed takes.
const withFiles = 35

// generateFiles rolls dice of its own, so that what was there before it stays, but for
// what a kind of node makes necessary.
func generateFiles(d dice, s *Scenario) {
	if !d.percent(withFiles) {
		return
	}
	s.Donor.Kind = pick(d, []weighted[string]{{25, "admission"}, {35, "kubeadm"}, {22, "k3s"}, {18, "aks"}})
	if d.percent(15) {
		s.Donor.Others = d.in(1, 4)
	}
	if d.percent(2) {
		s.Donor.Strays = d.in(1, 2)
	}
	for i := range s.Asks {
		a := &s.Asks[i]
		if a.Verb != Capture {
			continue
		}
		if a.Bake && s.Donor.Kind == "kubeadm" { // the bootstrap kubeconfig stays
			a.Accept = a.Accept || d.percent(85)
		}
		if s.Donor.Others > 0 {
			a.Accept = a.Accept || d.percent(70) // private keys count as the pool's
			a.RemoveSecrets = d.percent(50)
			if !a.RemoveSecrets || d.percent(30) {
				a.AcceptSecrets = d.in(s.Donor.Others-1, s.Donor.Others)
			}
		} else {
			a.RemoveSecrets = d.percent(5)
		}
	}
}

// mild makes an ask one that such a pool and donor allow, mostly.
func mild(d dice, s *Scenario, a *Ask) {
	a.Rolling = s.Pool.Upgrade == "Rolling" && d.percent(85)
	a.Unknown = d.percent(33)
	if a.Verb != Capture {
		return
	}
	a.Accept = d.percent(3) || s.Donor.Disk == "secrets" && d.percent(60)
	hard := s.Donor.Blocked || s.Donor.Unmanaged > 0
	a.Force = d.percent(7) || hard && d.percent(60)
	a.Deallocate = d.percent(15)
	a.Bake = d.percent(12)
	if d.percent(40) {
		a.History = d.in(2, 4)
	}
	if d.percent(25) {
		a.NewNodes = d.in(1, 3)
	}
	if d.percent(12) {
		a.Node = d.n(s.Pool.Instances)
	}
}

// generateAsks may give the pool a version more, where an ask needs one.
func generateAsks(d dice, s *Scenario) []Ask {
	first := newAsk(Capture)
	mild(d, s, &first)
	if d.percent(12) {
		first.Rival = first.Node
		if d.percent(50) {
			first.Rival = d.n(s.Pool.Instances)
		}
	}
	asks := []Ask{first}
	same := first
	same.Rival = -1
	rollback := func() Ask {
		a := newAsk(Rollback)
		mild(d, s, &a)
		a.Node = d.n(s.Pool.Instances)
		if d.percent(20) {
			a.To = "previous"
		}
		return a
	}
	switch at := d.n(100); {
	case at < 60:
	case at < 68: // nothing to do
		asks = append(asks, same)
	case at < 77:
		a := newAsk(Capture)
		mild(d, s, &a)
		a.Node = d.n(s.Pool.Instances)
		w := newAsk(Wait)
		if d.percent(30) {
			w.For = time.Duration(d.spread(1, 72)) * time.Hour
		}
		asks = append(asks, w, a)
	case at < 82:
		same.Again = true
		asks = append(asks, same)
	case at < 86: // a baked and a kept prototype, and back
		w := newAsk(Wait)
		w.For = 24 * time.Hour
		baked := same
		baked.Bake, same.Bake = true, false
		if d.percent(50) {
			baked, same = same, baked
		}
		asks = append([]Ask{baked}, w, same, rollback())
	default:
		if d.percent(90) {
			s.Pool.Versions = max(s.Pool.Versions, 1)
		}
		r := rollback()
		if d.percent(5) {
			r.Rival = d.n(s.Pool.Instances)
		}
		asks = append(asks, r)
		if d.percent(35) {
			asks = append(asks, rollback())
		}
	}
	return asks
}

// longOutage is one of the API server that lasts longer than a process has the pool
// for, at a request that every capture sends once.
func longOutage(d dice) Event {
	at := pick(d, []weighted[string]{
		{2, "POST virtualMachineScaleSets/pool1/virtualMachines/0/poweroff"}, {2, "PUT snapshots/snapshot_pool1"},
		{1, "POST virtualMachineScaleSets/pool1/virtualMachines/0/start"}, {1, "PATCH virtualMachineScaleSets/pool1"},
	})
	return Event{Side: Azure, Request: at, Count: 1, What: KubeOutage, Args: numbers(d.in(5*minute, 40*minute))}
}

// changesAsWeighed is about what the requests of a capture come to in changes of
// Azure, the others counted by their weight.
const changesAsWeighed = 60

// generateChance aims at a number of happenings that is mostly the bound, and
// spreads them over the capture: rates that reach the bound at once would try
// its beginning only.
func generateChance(d dice, asks int) Chance {
	var c Chance
	switch at := d.n(100); {
	case at < 5:
		return c
	case at < 35:
		c.Most = 1
	case at < 70:
		c.Most = d.in(2, 4)
	case at < 90:
		c.Most = d.in(5, 12)
	default:
		c.Most = 30
	}
	wanted := c.Most * d.in(70, 300) // in hundredths
	if asks > 1 {
		wanted = wanted * 2 / 3
	}
	total := min(wanted*(million/100)/changesAsWeighed, million*3/10)
	faults, deaths, changes := d.in(1, 6), d.n(4), d.n(4)
	parts := faults + deaths + changes
	c.Rate, c.Death, c.World = total*faults/parts, total*deaths/parts, total*changes/parts
	return c
}
