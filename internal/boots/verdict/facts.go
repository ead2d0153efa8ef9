package verdict

import "slices"

// Facts are what was seen of one boot of one node, when it was over or at the
// deadline. All text is as it was read, cut to bounds, and not redacted yet:
// Judge redacts what it quotes.
type Facts struct {
	// Sentinel means that the bootstrap provider said it succeeded.
	Sentinel bool
	// Deadline means that the time was up before the boot came to an end.
	Deadline bool
	// Why is the caller's reason to call the boot failed, as "x.service failed"; "" where
	// it has none. With it the outcome is never a success.
	Why string
	// Outside means that the node gave no facts of its own: what is known of it is its
	// serial console, its extensions and what Azure and the cluster report.
	Outside bool
	// Headless means that the logs are quotes: a line without a program's name may be of
	// any program, and a line may be several.
	Headless bool
	// Sign is a reason that Azure or the cluster shows by itself, given where no line
	// shows a cause; "" for none.
	Sign string
	// Windows means that the node runs it, with stages of its own.
	Windows bool
	// CloudInit is nil where cloud-init left no trace.
	CloudInit *CloudInit
	// Provision is AKS's provision.json, nil where there is none.
	Provision *Provision
	// Units are those that failed, and those that were asked about.
	Units []Unit
	// Kubelet is how its health was last.
	Kubelet Kubelet
	// Logs are the ends of what was written, by where it comes from:
	// "/var/log/cloud-init-output.log", "journal kubelet.service", "journal
	// containerd.service", "journal kernel".
	Logs []Log
}

// A Log is the end of one log.
type Log struct {
	Source string
	Lines  []string
	Cut    bool // there was more before
}

// CloudInit is the content of its status.json and result.json. Stages that have not begun
// are left out.
type CloudInit struct {
	Stages []Stage // in the order in which they run
	// Done means that result.json is there: all stages are over.
	Done bool
	// Datasource is the one that it found, "" for none.
	Datasource string
	// Unreadable is why its files could not be read, "" where they could.
	Unreadable string
}

// Failed reports whether a stage met an error that it did not get over.
func (ci *CloudInit) Failed() bool {
	return slices.ContainsFunc(ci.Stages, func(s Stage) bool { return len(s.Errors) > 0 })
}

// Stage is one of cloud-init's: "init-local", "init", "modules-config",
// "modules-final".
type Stage struct {
	Name string
	// Begin and End are milliseconds after the kernel's start; End is 0 while it
	// runs.
	Begin, End int64
	Errors     []string
	// Recoverable are those that it goes on after, by level ("WARNING", "ERROR",
	// "DEPRECATED"); since cloud-init 23.4.
	Recoverable map[string][]string
}

// Provision is AKS's provision.json; its values are texts, some of numbers.
type Provision struct {
	ExitCode                string
	Output, Error           string
	ExecDuration            string // seconds
	KernelStartTime         string
	CloudInitLocalStartTime string
	CloudInitStartTime      string
	CloudFinalStartTime     string
	NetworkdStartTime       string
	CSEStartTime            string
	GuestAgentStartTime     string
	KubeletStartTime        string // of BootDatapoints
	SystemdSummary          string
}

// Unit is a systemd unit, or a Windows service.
type Unit struct {
	Name       string
	Asked      bool   // by the operator, to be waited for
	Needed     bool   // one that makes the node requires it: kubelet, container runtime, cloud-init
	Active     string // systemd's ActiveState
	Sub        string // SubState, as "auto-restart"
	Result     string // as "exit-code", "timeout", "oom-kill"
	ExitCode   int    // ExecMainStatus
	Restarts   int    // NRestarts
	Loops      bool   // it was restarted over and over, whatever its state is now
	LoadError  string // as "org.freedesktop.systemd1.NoSuchUnit"
	Missing    bool   // there is no such unit
	Conditions bool   // it was skipped for an unmet condition
}

// Kubelet is its health as seen on its own port.
type Kubelet struct {
	// Wanted means that this node is to run one.
	Wanted bool
	// Healthy means that /healthz answered 200 last.
	Healthy bool
	// EverHealthy means that it did at any time.
	EverHealthy bool
	// Last is what was met where it is not healthy, as "connection refused".
	Last string
	// Registered means that its log or its API said that the node is known to the API
	// server.
	Registered bool
	// Loops means that it was restarted over and over after the bootstrap had succeeded.
	Loops bool
	// NotReady means that the node is known, and has not become ready although it should
	// have: by its condition, or its log "Node not becoming ready in time after startup".
	NotReady bool
	// Condition is reason and message of the Node's condition Ready where it is not
	// True, "KubeletNotReady: container runtime network not ready: …"; "" where it is
	// not known.
	Condition string
	// Unregistered means that the node is known not to be in the cluster.
	Unregistered bool
	// Mute means that the API server was asked for the node repeatedly, and gave no usable
	// answer.
	Mute bool
	// Unsigned means that the kubelet has no client certificate yet.
	Unsigned bool
}
