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
	// Cannot is the code or text with which the last ask has to end; "" requires exit 0.
	Cannot string
	// Single names a request that is sent once.
	Single string
}

// A Pool is the scale set at the beginning. Its first instance is the donor.
type Pool struct {
	Instances, Versions int
	Zones               int
	PageSize            int
	Flexible            bool // its members are virtual machines
	Unprotectable       bool // Azure refuses their protection
	Kured, Machines     bool
	Latest              bool // the model refers to the image definition
	NoZRS, NVMe, Spot   bool
	Extensions          []string // cse, bootstrap, billing, monitor; each waits for the one before it
	Settings            string   // protected ones of cse: sealed, unknown, or "" for none

	Pods, Budgeted      int  // on the donor
	Daemons             int  // DaemonSets with a pod on each node
	GPUs                bool // each node has one, which its device plugin registers
	LatePods            int  // bound to the donor just after it is cordoned
	Unmanaged           bool
	Cordoned, Protected bool          // the donor, by its owners
	Kept                bool          // the donor, from repairs and scale set actions, by its owners
	ScaleDown           string        // the donor's annotation
	PodsTake            time.Duration // to end
	Rebooting           time.Duration // how long kured reboots a node of another pool
	Disk                string        // secrets, preserve, nojoin, lost, unread, dead, dying
	Image               string        // of ortet's pods: none, unpullable, hanging, foreign, newer

	Mode              string // of upgrades; "" is Manual
	Owned             bool   // Cluster API has the model
	Budgets           bool   // Azure limits requests as its documentation says
	Spelling          string // lower: provider ids; k3s: those of k3s; upper: ids in Azure's answers; model: the image's id in the model, in upper case
	Others            string // the other nodes: cordoned, protected
	Old               int    // instances made of the oldest version
	Foreign, Leftover bool   // others made the oldest version; snapshot and disk of an earlier capture are left
	Volumes           bool   // data disks of others at LUN 0
	Trusted, Blocked  bool   // Trusted Launch; the budget allows no eviction
	Bench             string // of a capture of another pool: donor, other
	Copies            string // that others made under our names: snapshot, disk
	Store             string // of saved items, which is full: items, bytes, needed

	Neighbour int    // instances of another pool's scale set, whose Nodes are in the same cluster
	Mixed     bool   // that scale set is of the other kind
	Kind      string // of Azure's newer kinds: one of poolKinds
	Liar      string // what a hostile kubelet beside the pool claims: one of lies
	Surplus   bool   // a scale-out makes more instances than are wanted, and deletes them in their boot
	Forged    bool   // the second instance's disk shows donorsCommand in customData and settings
	Bad       string // what is wrong with instances of each version that a capture of this story builds: no boot, slow, no join, twin, daemon

	SlowBoot time.Duration // that each boot takes longer
	Stale    time.Duration // how long a Node stays Ready without its kubelet; 0 is nodeMonitorGrace
	// SlowDaemons is how long after its Node pods of DaemonSets become Ready.
	SlowDaemons time.Duration
	Tight       time.Duration // until the budget allows an eviction
}

// An Ask is one command of an operator, or what others do between two commands.
type Ask struct {
	Do             string        // capture, rollback, watch, rollout, scale out, set image, forge, wait
	Bad            string        // what a watch does with bad nodes
	Need           int           // nodes that prove a version, of a watch; 0 is watchNodes
	Watch          string        // of a capture, which then watches: what becomes of bad nodes
	Node           int           // the donor's instance
	To             string        // of a rollback or a watch; image of set image; version of forge
	N              int64         // of scale out
	For            time.Duration // of wait, of a watch, and of a rollout's window
	Budget, Window string        // of a rollout; "" is 1, and always open
	Grow, Canary   int64
	Soak           time.Duration // of the canary's clones, or a fresh donor
	Test           string        // of a canary's clones: one of testPods
	History        int
	Again          bool
	Excluded       bool // from latest
	Auto           bool // with the options of auto mode
	Baked          bool
	Accept         bool
	Force          bool
	Deallocate     bool
	Online         bool
	Fresh          bool // a donor is raised
	Tune           []string
	Prepare        string // what its preparation does: one of preparations
	PublishOnly    bool
	Rolling        bool
	Once           bool // not repeated, however it ends
	KeepExtensions bool
	AcceptLost     bool
	Alone          bool          // a rollback or watch restores nothing that a donor's disk showed
	Exit           int           // that Cannot requires
	Ahead          time.Duration // how far the laptop's clock is ahead
}

// restores names all that a person restores who trusts the donors.
func (a Ask) restores() []string {
	if a.Alone {
		return nil
	}
	return []string{"customData", "vmssCSE", "monitor"}
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
