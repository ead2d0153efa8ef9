package timeline

import (
	"time"

	"github.com/ortet/ortet/internal/wire"
)

// Version is the version of a Timeline's JSON (docs/schema/timeline.json).
const Version = 1

// Cloud is what Azure and the cluster know of a boot. A zero time is unknown.
type Cloud struct {
	Pool  string // the scale set's name
	Image string // resource id of the image version that the machine was created from
	VMID  string
	// By Azure's clock.
	Requested   time.Time // the scale set was asked for it, where an activity of that is known
	Created     time.Time // the instance's timeCreated
	Provisioned time.Time // the platform called it provisioned: the time of ProvisioningState/succeeded
	// By the API server's clock, to the second.
	NodeCreated time.Time
	NodeReady   time.Time // the transition of its Ready condition to True, of this boot
	FirstPod    time.Time // the first pod that was not a static one or a DaemonSet's ran

	Pulls []Pull // for pods of DaemonSets
}

// Timeline is one boot on one axis. All times are microseconds after the kernel's
// start, negative before it.
type Timeline struct {
	Version int    `json:"version"`
	Node    string `json:"node,omitempty"`
	Pool    string `json:"pool,omitempty"`
	Image   string `json:"image,omitempty"`
	VMID    string `json:"vmId,omitempty"`
	BootID  string `json:"bootId,omitempty"`
	// KernelStart is when the kernel started, by the node's synchronised clock; zero where
	// no clock shows it. Where OriginIs is "the first thing told", that.
	KernelStart time.Time `json:"kernelStart,omitzero"`

	Origin   wire.Micros `json:"originUsec"`
	OriginIs string      `json:"originIs"` // "machine requested", "machine created", "machine handed over", "machine started" (its firmware), "kernel started", "soft reboot", "userspace started", "the first thing told" (no clock counts from the kernel's start)
	// Idle is how long a preprovisioned machine had waited unused before its origin.
	Idle  wire.Micros `json:"idleUsec,omitempty"`
	End   wire.Micros `json:"endUsec"`
	EndIs string      `json:"endIs"` // "node Ready", "node created", "kubelet registered", "kubelet started", "startup finished", or a span's name
	// Complete means that the end was reached: a boot that never finished, or whose sources
	// are missing, has the last thing that is known for its end.
	Complete bool `json:"complete"`

	// Spans, by Start. A span's After and Parent are IDs of others here.
	Spans []Span `json:"spans"`
	// Path is the critical path, from the origin to the end: each step begins
	// where the one before ended.
	Path   []Step   `json:"path"`
	Advice []Advice `json:"advice,omitempty"` // spans that a tuning shortens first, then by what it saves, most first
	Pulls  []Pull   `json:"pulls,omitempty"`  // images pulled for its DaemonSets' first pods, the largest first
	// DiskRead is what was read from the OS disk, by the node's count; zero where it is unknown.
	DiskRead DiskRead `json:"diskRead,omitzero"`
	// Restart is that the machine restarted before a boot of it was reported; zero where it did not.
	Restart Restart `json:"restart,omitzero"`
	Clocks  []Clock `json:"clocks,omitempty"`
	// UserData is how long cloud-init ran what user data says: commands, packages, files, scripts.
	UserData wire.Micros `json:"userDataUsec,omitempty"`
	// Tuned are the tunings of which the image has each file as its capture wrote it.
	Tuned []string `json:"tuned,omitempty"`
	// Missing is what could not be known, one line each, with what that hides.
	Missing []string `json:"missing,omitempty"`
}

// ShortUserData is a UserData that shows no user data: cloud-init's modules take some time for nothing.
const ShortUserData = second / 2

// Total is how long the boot took, from its origin to its end.
func (t Timeline) Total() time.Duration { return (t.End - t.Origin).Duration() }

// Class is where a piece of work belongs.
type Class string

// The classes.
const (
	Base     Class = "base"     // base preparation: the same on every node, so it belongs in the image
	Node     Class = "node"     // node preparation: has to be done on each node
	Platform Class = "platform" // Azure's, or the kernel's and systemd's own
	Waiting  Class = "wait"
)

// Kind is what a span is.
type Kind string

// The kinds.
const (
	KindPlatform Kind = "platform" // before and around the machine: creation, firmware, kernel
	KindManager  Kind = "manager"  // of systemd itself: generators, loading units
	KindUnit     Kind = "unit"
	KindStage    Kind = "stage"  // of cloud-init, an extension, a script
	KindPart     Kind = "part"   // of a stage: a module, a task
	KindPull     Kind = "pull"   // of a container image
	KindMoment   Kind = "moment" // Start is End
	KindCluster  Kind = "cluster"
)

// Span is something that took time.
type Span struct {
	// ID is unique in a Timeline, and the same in each boot for the same thing:
	// "unit/kubelet.service", "cloud-init/init-local", with "#2" and so on for one
	// that came again.
	ID          string      `json:"id"`
	Name        string      `json:"name"` // for people: "kubelet.service"
	Source      string      `json:"source"`
	Kind        Kind        `json:"kind"`
	Parent      string      `json:"parent,omitempty"`
	Start       wire.Micros `json:"startUsec"`
	End         wire.Micros `json:"endUsec"`
	Uncertainty wire.Micros `json:"uncertaintyUsec,omitempty"` // either time may be off by this much
	Open        bool        `json:"open,omitempty"`            // it had not ended when this was collected
	After       []string    `json:"after,omitempty"`           // what it was ordered after
	Result      string      `json:"result,omitempty"`          // "" is success
	Detail      string      `json:"detail,omitempty"`
}

// Step is a piece of the critical path: of a span, or a wait between spans, or a
// span that was itself a waiting, which has both Span and Wait.
type Step struct {
	Span  string      `json:"span,omitempty"` // the ID
	Name  string      `json:"name"`
	Start wire.Micros `json:"startUsec"`
	End   wire.Micros `json:"endUsec"`
	Class Class       `json:"class"`
	Stage Stage       `json:"stage"` // of a wait: that of what waited
	Wait  *Wait       `json:"wait,omitempty"`
}

// Nothing reports that no time of the boot is known: it cannot be shown.
func (t Timeline) Nothing() bool { return len(t.Spans) == 1 && t.Spans[0].ID == idNothing }

// Wait is time in which what comes next could have run, and did not.
type Wait struct {
	Before string `json:"before"`          // the ID of what waited: of a span that waits, what that is a part of
	After  string `json:"after,omitempty"` // the ID of the last known thing that it was ordered after
	// Cause is what delayed it, in short: "another unit's job", "the network", "a lock of
	// dpkg", "an image pull", "the agent's next look at the goal state", "preprovisioned".
	// "" without evidence.
	Cause    string `json:"cause,omitempty"`
	Evidence string `json:"evidence,omitempty"` // what shows it
	// Hidden means that `systemd-analyze critical-chain` shows nothing of it.
	Hidden bool `json:"hidden,omitempty"`
}

// Advice is what would make such boots faster.
type Advice struct {
	Class Class    `json:"class"`
	Spans []string `json:"spans"` // the IDs of what it is about
	// Saves is how much earlier the end would be without them, by a replay.
	Saves       wire.Micros `json:"savesUsec"`
	Uncertainty wire.Micros `json:"uncertaintyUsec,omitempty"`
	What        string      `json:"what"` // what was seen, with figures
	Do          string      `json:"do"`   // what to change, and where: the unit or module is named
	Unit        string      `json:"unit,omitempty"`
	Module      string      `json:"module,omitempty"`
}

// Pull is an image that a node pulled for a pod of a DaemonSet. Size and time are the kubelet's
// word, or containerd's.
type Pull struct {
	Image     string      `json:"image"`              // as the pod's spec names it
	DaemonSet string      `json:"daemonSet"`          // "NAMESPACE/NAME" of the first one
	Took      wire.Micros `json:"tookUsec,omitempty"` // without its waiting for other pulls
	Bytes     int64       `json:"bytes,omitempty"`    // 0: unknown
	// Holds means that clones of a node that has it need no registry: imagePullPolicy is not Always.
	Holds bool `json:"imageHolds"`
}

// DiskRead is what was read from a disk since the kernel's start.
type DiskRead struct {
	Disk  string      `json:"disk"` // "/dev/sda"
	Bytes int64       `json:"bytes"`
	At    wire.Micros `json:"atUsec"` // when it was counted, after the kernel's start
}

// Restart names the boot that all times are of, where the machine booted before. What was before is
// the span "machine/earlier-boots", and OriginIs is "first boot started" if Azure's times are unknown.
type Restart struct {
	Boot  int         `json:"boot"`      // 2 where it restarted once
	After wire.Micros `json:"afterUsec"` // after the first boot's begin
}

// Clock is how a clock was brought to the axis.
type Clock struct {
	Kind        wire.ClockKind `json:"kind"`
	Offset      wire.Micros    `json:"offsetUsec"` // what it showed at the kernel's start, since the epoch
	Uncertainty wire.Micros    `json:"uncertaintyUsec"`
	Steps       []ClockStep    `json:"steps,omitempty"` // when it was set
	How         string         `json:"how"`             // the evidence in plain text
}

// ClockStep is a moment at which a clock was set.
type ClockStep struct {
	At wire.Micros `json:"atUsec"` // after the kernel's start; not later than this
	By wire.Micros `json:"byUsec"` // forward; negative: it was set back
}
