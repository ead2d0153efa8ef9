package simulate

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// A Story is a pool, what operators ask for, and what happens at which request.
type Story struct {
	Name   string
	Seed   uint64
	Pool   Pool
	Asks   []Ask
	Happen []Event
	// Cannot says why the last ask may end with 1 or 3; "" requires 0.
	Cannot string
}

// A Pool is the scale set at the beginning. Its first instance is the donor.
type Pool struct {
	Instances, Versions int
	Zones               int
	PageSize            int
	Kured, Machines     bool
	Latest              bool // the model refers to the image definition
	NoZRS, NVMe, Spot   bool
	Extensions          []string // cse, bootstrap, billing, monitor; each waits for the one before it
	Settings            string   // protected ones of cse: sealed, unknown, or "" for none

	Pods, Budgeted, Daemons int // on the donor
	LatePods                int // bound to the donor just after it is cordoned
	Unmanaged               bool
	Cordoned, Protected     bool          // the donor, by its owners
	ScaleDown               string        // the donor's annotation
	PodsTake                time.Duration // to end
	Rebooting               time.Duration // how long kured reboots a node of another pool
	Disk                    string        // secrets, preserve, nojoin, lost

	Mode              string // of upgrades; "" is Manual
	Spelling          string // provider ids in lower case; ids in Azure's answers in upper case
	Others            string // the other nodes: cordoned, protected
	Old               int    // instances made of the oldest version
	Foreign, Leftover bool   // others made the oldest version; snapshot and disk of an earlier capture are left
	Volumes           bool   // data disks of others at LUN 0
	Trusted, Blocked  bool   // Trusted Launch; the budget allows no eviction

	SlowBoot time.Duration // that each boot takes longer
	Tight    time.Duration // until the budget allows an eviction
}

// An Ask is one command of an operator, or what others do between two commands.
type Ask struct {
	Do             string // capture, rollback, scale out, set image, wait
	Node           int    // the donor's instance
	To             string // of a rollback; image of set image
	N              int64  // of scale out
	For            time.Duration
	Grow           int64
	History        int
	Again          bool
	Baked          bool
	Accept         bool
	Force          bool
	Deallocate     bool
	Rolling        bool
	Once           bool // not repeated, however it ends
	KeepExtensions bool
	AcceptLost     bool
	Exit           int // that Cannot expects
}

// An Event happens just before a request is served: the N-th of that name.
type Event struct {
	At     string // "azure PATCH virtualMachineScaleSets/pool1"
	N      int
	What   string // one of faults, or a deed of neighbours
	Target string // donor, workbench, or "" for another node
	For    time.Duration
}

var zeroFields = regexp.MustCompile(`(, )?\w+:(0x0\b|0\b|false\b|""|\[\][\w.]+\(nil\))`)

// GoString is the story as a literal, without what is zero.
func (s Story) GoString() string {
	type plain Story // without this method
	text := strings.NewReplacer("simulate.plain", "Story", "simulate.", "").Replace(fmt.Sprintf("%#v", plain(s)))
	return zeroFields.ReplaceAllString(text, "")
}

const day = 24 * time.Hour

// usual is a pool in which each part of a capture has something to do.
var usual = Pool{Instances: 4, Versions: 3, Kured: true, Machines: true, Extensions: []string{"monitor", "cse"}, Pods: 1, Budgeted: 1, Daemons: 1}

func with(change func(*Pool)) Pool {
	p := usual
	change(&p)
	return p
}

// stories are those that play without faults.
var stories = []Story{
	{Name: "capture, scale out, capture again, rollback", Seed: 1, Pool: usual, Asks: []Ask{
		{Do: "capture", Grow: 1}, {Do: "scale out", N: 1}, {Do: "wait", For: day}, {Do: "capture", Node: 1, History: 2}, {Do: "rollback"},
	}},
	{Name: "first capture of a pool", Seed: 3, Pool: Pool{Instances: 2}, Asks: []Ask{{Do: "capture"}, {Do: "scale out", N: 1}}},
	{Name: "capture twice a day", Seed: 4, Pool: usual, Asks: []Ask{{Do: "capture"}, {Do: "capture"}, {Do: "capture", Again: true}}},
	{Name: "back to the original", Seed: 5, Pool: Pool{Instances: 3, Pods: 2}, Asks: []Ask{
		{Do: "capture"}, {Do: "wait", For: day}, {Do: "capture"}, {Do: "rollback", To: "original"}, {Do: "scale out", N: 1}}},
	{Name: "rollback twice", Seed: 6, Pool: usual, Asks: []Ask{{Do: "rollback"}, {Do: "rollback"}}},
	{Name: "capture after a rollback", Seed: 7, Pool: usual, Asks: []Ask{{Do: "capture"}, {Do: "rollback"}, {Do: "capture", Again: true}}},
	{Name: "capture after a rollback is refused", Seed: 7, Pool: usual, Asks: []Ask{{Do: "capture"}, {Do: "rollback"}, {Do: "capture", Exit: 3}}, Cannot: "today's version was rolled back"},
	{Name: "baked", Seed: 8, Pool: Pool{Instances: 3, Versions: 2}, Asks: []Ask{{Do: "capture", Baked: true}, {Do: "scale out", N: 1}, {Do: "rollback"}}},
	{Name: "baked, then kept", Seed: 9, Pool: Pool{Instances: 3}, Asks: []Ask{{Do: "capture", Baked: true}, {Do: "wait", For: day}, {Do: "capture"}, {Do: "scale out", N: 1}}},
	{Name: "donor cordoned by its owners", Seed: 10, Pool: with(func(p *Pool) { p.Cordoned = true }), Asks: []Ask{{Do: "capture"}}},
	{Name: "donor protected by its owners", Seed: 11, Pool: with(func(p *Pool) { p.Protected, p.ScaleDown = true, "true" }), Asks: []Ask{{Do: "capture"}}},
	{Name: "donor offered to the autoscaler", Seed: 12, Pool: with(func(p *Pool) { p.ScaleDown = "false" }), Asks: []Ask{{Do: "capture"}}},
	{Name: "pods that come late", Seed: 13, Pool: with(func(p *Pool) { p.LatePods = 3 }), Asks: []Ask{{Do: "capture"}}},
	{Name: "pods that take three minutes to end, and a node controller that waits for five", Seed: 30, Pool: with(func(p *Pool) { p.PodsTake, p.Pods, p.Budgeted = 3*time.Minute, 3, 3 }),
		Asks: []Ask{{Do: "capture", Grow: 1}}},
	{Name: "pod without a controller", Seed: 14, Pool: with(func(p *Pool) { p.Unmanaged = true }), Asks: []Ask{{Do: "capture", Exit: 3}}, Cannot: "PodNotEvictable"},
	{Name: "pod without a controller, by force", Seed: 14, Pool: with(func(p *Pool) { p.Unmanaged = true }), Asks: []Ask{{Do: "capture", Force: true}}},
	{Name: "deallocate", Seed: 15, Pool: usual, Asks: []Ask{{Do: "capture", Deallocate: true}}},
	{Name: "credentials of the pool", Seed: 16, Pool: with(func(p *Pool) { p.Disk = "secrets" }), Asks: []Ask{{Do: "capture", Exit: 1}}, Cannot: "PoolCredentials"},
	{Name: "credentials of the pool accepted", Seed: 16, Pool: with(func(p *Pool) { p.Disk = "secrets" }), Asks: []Ask{{Do: "capture", Accept: true}}},
	{Name: "host name preserved", Seed: 17, Pool: with(func(p *Pool) { p.Disk = "preserve" }), Asks: []Ask{{Do: "capture", Exit: 3}}, Cannot: "DiskRefused"},
	{Name: "pod killed on the workbench", Seed: 18, Pool: with(func(p *Pool) { p.Disk = "lost" }), Asks: []Ask{{Do: "capture"}}},
	{Name: "model refers to the definition", Seed: 19, Pool: with(func(p *Pool) { p.Latest = true }), Asks: []Ask{{Do: "capture"}, {Do: "rollback"}}},
	{Name: "region without zone-redundant storage", Seed: 20, Pool: with(func(p *Pool) { p.NoZRS = true }), Asks: []Ask{{Do: "capture"}}},
	{Name: "zones", Seed: 21, Pool: Pool{Instances: 6, Zones: 3}, Asks: []Ask{{Do: "capture"}}},
	{Name: "two zones, two nodes: no workbench", Seed: 22, Pool: Pool{Instances: 2, Zones: 2}, Asks: []Ask{{Do: "capture", Exit: 3}}, Cannot: "NoWorkbench"},
	{Name: "NVMe", Seed: 23, Pool: with(func(p *Pool) { p.NVMe = true }), Asks: []Ask{{Do: "capture", Grow: 2}}},
	{Name: "spot", Seed: 24, Pool: with(func(p *Pool) { p.Spot = true }), Asks: []Ask{{Do: "capture"}}},
	{Name: "pages of two", Seed: 25, Pool: with(func(p *Pool) { p.PageSize = 2 }), Asks: []Ask{{Do: "capture"}, {Do: "rollback"}}},
	{Name: "kured reboots another node", Seed: 26, Pool: with(func(p *Pool) { p.Rebooting = 10 * time.Minute }), Asks: []Ask{{Do: "capture"}}},
	{Name: "extensions stay", Seed: 27, Pool: usual, Asks: []Ask{{Do: "capture", KeepExtensions: true}}},
	{Name: "extension that depends on one that goes", Seed: 28, Pool: with(func(p *Pool) { p.Extensions = []string{"cse", "billing"} }), Asks: []Ask{{Do: "capture", Exit: 3}}, Cannot: "ExtensionNeeded"},
	{Name: "nothing on the disk joins", Seed: 29, Pool: with(func(p *Pool) { p.Disk = "nojoin" }), Asks: []Ask{{Do: "capture"}}},
}
