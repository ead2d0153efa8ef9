package simulate

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// A Story is a pool, what operators ask for, and what happens meanwhile.
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
	Extensions          []string // cse, billing, monitor; each waits for the one before it

	Pods, Budgeted, Daemons int // on the donor
	LatePods                int // bound to the donor just after it is cordoned
	Unmanaged               bool
	Cordoned, Protected     bool          // the donor, by its owners
	ScaleDown               string        // the donor's annotation
	Rebooting               time.Duration // how long kured reboots a node of another pool
	Disk                    string        // secrets, preserve, nojoin, lost
}

// An Ask is one command of an operator, or what others do between two commands.
type Ask struct {
	Do             string // capture, rollback, scale out, wait
	Node           int    // the donor's instance
	To             string // of a rollback
	N              int64  // of scale out
	For            time.Duration
	Grow           int64
	History        int
	Again          bool
	Baked          bool
	Accept         bool
	Force          bool
	Deallocate     bool
	KeepExtensions bool
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

// stories are those that play without faults, and what the sweep plays with them.
var stories = []Story{
	{Name: "capture, scale out, capture again, rollback", Seed: 1, Pool: usual, Asks: []Ask{
		{Do: "capture", Grow: 1}, {Do: "scale out", N: 1}, {Do: "wait", For: day}, {Do: "capture", Node: 1, History: 2}, {Do: "rollback"},
	}},
}
