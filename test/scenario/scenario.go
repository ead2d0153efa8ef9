package scenario

import (
	"time"
)

// A Scenario is one story. Its zero value is not complete: Parse and Generate
// fill in the defaults that are said at the fields.
type Scenario struct {
	Comment []string // the lines at the top, without "# "
	// Seed decides latencies, durations, and what Chance comes to.
	Seed   uint64
	Pool   Pool
	Donor  Donor
	Asks   []Ask // one after the other; at least one
	Chance Chance
	Events []Event // in no order
	Expect []Expectation
}

// Pool is the scale set at the start, and what else there is of Azure.
type Pool struct {
	Instances int // nodes; default 3, 2 to 1,000
	Zones     int // instances are spread over so many; default 0
	// Versions are prototypes that earlier captures left, oldest first; default
	// 0. Where there are some, the model uses the newest, unless Marketplace.
	Versions    int
	Marketplace bool // the model uses a Marketplace image though there are versions
	// Old says how many instances were made from an older version than the
	// model's, each from another, as far as there are.
	Old        int
	Extensions []string // of "cse", "billing", "monitor", each after the one before; default cse
	Upgrade    string   // "Manual" (default), "Rolling"
	Machines   bool     // Cluster API has a Machine for each node
	Kured      bool     // kured is installed
	// Rebooting is for how long kured's lock is held for a node of another pool, from
	// the beginning on, where there is kured; default 0.
	Rebooting  time.Duration
	NoZRS      bool // the region has no zone-redundant storage
	Latest     bool // the model refers to the image definition, not to a version
	Theirs     bool // others made a version, which one instance runs
	Leftover   bool // an earlier capture left its snapshots and its copy of the disk
	CustomData bool // earlier versions carry customData of their own, which is kept
	Again      bool // the newest version was made with --again, and is not excluded from latest
	// Refuses is a reason to refuse that the world has from the beginning on; default
	// "none".
	Refuses string
	// Benches is what others have set on the first nodes but the donor: "plain"
	// (default, nothing), "protected" or "actions" (protectFromScaleIn, and
	// protectFromScaleSetActions), "scaledown" or "offered" (cluster-autoscaler's
	// annotation, true or false); all but one: "cordoned", "notready", "unknown" (of
	// their readiness), "captured" and "serving" (donor or workbench of another
	// capture), "rebooting" (kured will), "otherarch".
	Benches string
	// Volumes is where others have attached data disks to the first nodes: "none"
	// (default), "low" or "high" LUNs.
	Volumes string
	// Spelling is how Azure spells ids in its answers, and the cloud provider in those of
	// nodes: "sent" (default), "lower", "upper" (the resource group's and all names) or
	// "mixed".
	Spelling string
	// Kind is "plain" (default), "trusted" (Trusted Launch), "nvme" (a size with NVMe disks),
	// "spot" or "spotdelete" (Spot instances, by eviction policy).
	Kind  string
	Pages int // of Azure's lists have so many entries; 0 (default) means 50
}

// Donor is what is on and of instance 0, before anything is asked.
type Donor struct {
	Pods     int // of a ReplicaSet without a budget; default 2
	Budgeted int // of a ReplicaSet whose budget allows one to go at a time
	// Tight is how long one more of that ReplicaSet, on another node, is not Ready: so
	// long the budget allows none to go.
	Tight     time.Duration
	Daemons   int // of DaemonSets
	Mirrors   int
	Unmanaged int // pods that nothing would create again
	// Late is how many pods come to it within a second after it is cordoned: the
	// scheduler had decided before.
	Late    int
	Blocked bool // a budget never lets one pod go
	// Slow is how long a pod takes to end; default 2 s.
	Slow      time.Duration
	Cordoned  bool // by others
	ScaleDown bool // others set cluster-autoscaler's annotation
	Skip      bool // others set skip-remediation on its Machine
	Protected bool // others set protectFromScaleIn
	Actions   bool // others set protectFromScaleSetActions
	Offered   bool // others set cluster-autoscaler's annotation to false
	// Disk is what is found on the copy: "joins" (default), "secrets" (pool-wide
	// credentials), "nojoin", "preserve" (preserve_hostname), "lost" (the pod
	// is killed once).
	Disk string
	// Kind is what is on its disk: "none" (default: no files, so that what the agent
	// reports is made up), "admission" (it was admitted by ortet-node join), "kubeadm" (by a bootstrap kubeconfig), "k3s" (an agent), "aks"
	// (AKS's places of kubeconfigs).
	Kind   string
	Others int // other secrets on its disk, which no node needs; default 0
	Strays int // copies of its identity where generalising does not remove them; default 0
}

// Verbs of an Ask.
const (
	Capture  = "capture"
	Rollback = "rollback"
	Wait     = "wait" // a time passes
)

// What a rollback may name, beside a version and what Ortet knows itself.
const (
	Oldest = "oldest" // version by its publishing date
	Newest = "newest"
	Left   = "left" // the newest version that somebody rolled back from
)

// An Ask is one thing that the operator asks for.
type Ask struct {
	Verb string
	Node int // capture: instance number, default 0; rollback: any node of the pool
	// Of a capture, as in engine.CaptureRequest.
	Again, Deallocate, Force, Bake, Accept, Rolling bool
	History                                         int // 0 means the product's default
	NewNodes                                        int
	// AcceptSecrets is of how many of the other secrets it names the path; default 0.
	AcceptSecrets int
	RemoveSecrets bool
	// Of a rollback: a version's name, "original", "" or "previous" meaning the one before;
	// or Oldest, Newest or Left, of which the name is known when it is asked for.
	To string
	// RivalRollback has the rival of a capture ask for a rollback instead.
	RivalRollback bool
	// Of a wait.
	For time.Duration
	// Rival asks at the same time from another process, for the same pool: -1
	// (default, and as absent) nobody, else the node it wants to capture.
	Rival int
	// Unknown hides from the next process that the one before is dead, so that
	// it has to wait for its Lease to run out.
	Unknown bool
	// Pause is how long after a death the same is asked again; default up to 90 s.
	Pause time.Duration
}

// Chance decides at every request whether something happens: with the
// probability Rate in a million for a fault, Death for the end of the process
// and World for a change that others make. That is so at requests that change
// something in Azure; at changes in Kubernetes it is half as much, at reads
// three twentieths, and a twentieth where a Lease is renewed. Most bounds how
// many happen by chance; 0 means no bound. More than 200 never happen.
type Chance struct {
	Rate, Death, World int
	// Aimed is how many kinds of changes, of fifteen, are aimed at: see the documentation.
	Aimed int
	// Undoing is how many happen, beyond Most, while a process undoes its changes after
	// a failure or an interruption; where it is not 0, one of these is brought about.
	Undoing int
	// Phase is by how many kinds of changes, asked for since the beginning, chance and what
	// makes a process undo its changes begin, for 80 requests; 0: at once, and for good.
	Phase int
	// Deaths is how many kinds of changes, of 22, a process dies or is suspended at.
	Deaths int
	Most   int
	// After is how many asks nothing happens by chance in, from the first on.
	After int
	// Of is the theme that what happens belongs to; default "", anything.
	Of string
}

// Sides of an Event's request.
const (
	Azure = "azure"
	Kube  = "kube"
)

// An Event is a happening at a request.
type Event struct {
	Side    string // Azure or Kube
	Request string // its name
	Count   int    // from 1
	What    What
	// Args of What, as its documentation says. Error's code may be left out.
	Args []string
}

// What happens.
type What string

// Faults of Azure, which azsim has under the same names, and of Kubernetes, where
// it says so.
const (
	Throttle      What = "throttle"      // both; Args: seconds of Retry-After
	Error         What = "error"         // both; Args: status, code or reason
	DropBefore    What = "dropBefore"    // both
	DropAfter     What = "dropAfter"     // both
	Hang          What = "hang"          // both; no answer until the client gives up
	ReportFailure What = "reportFailure" // both: done, and answered with 500
	Stale         What = "stale"         // both: a GET answers as it did before
	NeverEnds     What = "neverEnds"     // Azure: its operation
	FailAtEnd     What = "failAtEnd"     // Azure: its operation
	ReportSuccess What = "reportSuccess" // Azure: not done, and said to have succeeded
	IgnoreNull    What = "ignoreNull"    // Azure: a PATCH's null keeps the value
	ExpireToken   What = "expireToken"   // both: 401
	ThrottleDate  What = "throttleDate"  // Azure; as throttle, with Retry-After as a date
	ProxyBefore   What = "proxyBefore"   // both: a proxy answers; Args: status, "html", "empty" or "cut"
	ProxyAfter    What = "proxyAfter"    // both: done, and a proxy answers; Args: as above
	Conflict      What = "conflict"      // Kubernetes: 409, as where others wrote meanwhile
)

// What becomes of the process that sends the request.
const (
	KillBefore What = "killBefore" // it dies, and the request is not sent
	KillAfter  What = "killAfter"  // it dies, and the request has its effect
	RivalComes What = "rival"      // another process asks the same just then
	Interrupt  What = "interrupt"  // its operator presses Ctrl-C
)

// What others do just before the request is served.
const (
	ScaleOut        What = "scaleOut"        // Args: by how many
	ScaleIn         What = "scaleIn"         // Args: seconds in which an autoscaler deletes what is empty and not protected
	DeleteInstance  What = "deleteInstance"  // Args: "donor", "bench" or "other"
	StopInstance    What = "stopInstance"    // Args: as above: powered off, by whoever
	Evict           What = "evict"           // Args: as above: Azure takes a Spot instance away
	StartInstance   What = "startInstance"   // Args: as above: started, by whoever
	RestartInstance What = "restartInstance" // Args: as above: restarted, by whoever, where it runs
	DeleteSnapshot  What = "deleteSnapshot"  // the operator deletes the donor's snapshot
	DeleteCopy      What = "deleteCopy"      // … the snapshot of the generalised copy
	DeleteDisk      What = "deleteDisk"      // … the temporary disk, where it is free
	DeleteVersion   What = "deleteVersion"   // … today's version, or the newest
	ChangeModel     What = "changeModel"     // Args: "image" or "tags": others set that of the pool
	DeleteGallery   What = "deleteGallery"   // … with all that is in it, as far as Azure lets them
	Deny            What = "deny"            // Args: seconds in which a right lacks: that of the request
	NodeNotReady    What = "nodeNotReady"    // Args: as above, seconds
	NodeGone        What = "nodeGone"        // Args: as above: the Node object is deleted; its kubelet makes it anew after a minute
	Cordon          What = "cordon"          // Args: as above: by somebody else
	Uncordon        What = "uncordon"        // Args: as above
	Clock           What = "clock"           // Args: seconds by which the process's clock jumps, also back
	KubeOutage      What = "kubeOutage"      // Args: seconds in which the API server refuses connections
	AzureOutage     What = "azureOutage"     // Args: seconds in which ARM answers 503
	Suspend         What = "suspend"         // Args: seconds for which the process stands still
	ExpireLogin     What = "expireLogin"     // Args: seconds in which ARM answers 401
)

// An Expectation is what a kept scenario has to come to, beyond the invariants,
// which always hold.
type Expectation struct {
	// Exit is the exit code of the last process of the Ask (from 0) that it is
	// about; Says is a part of what it says, "" for anything.
	Ask  int
	Exit int
	Says string
}
