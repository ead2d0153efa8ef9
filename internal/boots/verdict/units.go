package verdict

import (
	"fmt"
	"strings"
)

// failed reports whether a unit does not do its work.
func (u Unit) failed() bool {
	if u.Missing {
		return false
	}
	return u.Loops || u.Active == "failed" || u.Sub == "auto-restart" || u.Active != "active" && u.Result != "" && u.Result != "success"
}

// base is a unit's name without its suffix.
func (u Unit) base() string { return strings.TrimSuffix(u.Name, ".service") }

func (u Unit) isKubelet() bool { return u.base() == "kubelet" }

func (u Unit) isK3s() bool {
	return strings.HasPrefix(u.base(), "k3s") || strings.HasPrefix(u.base(), "rke2")
}

func (u Unit) isRuntime() bool {
	b := u.base()
	return b == "containerd" || b == "crio" || b == "docker"
}

func (u Unit) isCloudInit() bool {
	return strings.HasPrefix(u.Name, "cloud-init") || strings.HasPrefix(u.Name, "cloud-config") || strings.HasPrefix(u.Name, "cloud-final") || u.Name == "cloudbase-init"
}

// tied reports whether a unit's failure has to do with the boot. Others fail on nodes that
// work: what updates firmware or package lists, what remounts in a container, what waits
// for an interface that is not used. They are shown, and are no reason.
func (u Unit) tied(f Facts) bool {
	switch {
	case u.Asked, u.Needed, u.isKubelet(), u.isK3s(), u.isCloudInit(), u.base() == "crio":
		return true
	case u.base() == "containerd":
		return !otherRuntime(f)
	case strings.HasSuffix(u.Name, "-wait-online.service"):
		return f.CloudInit.early() // without a network there is no source of data
	}
	return false
}

// aside reports whether a log is the journal of a unit that is not tied to the boot.
func (c *inquiry) aside(source string) bool {
	name, ok := strings.CutPrefix(source, "journal ")
	for _, u := range c.facts.Units {
		if ok && u.Name == name {
			return !u.tied(c.facts)
		}
	}
	return false
}

// names reports whether a line of systemd's, in lower case, is of a unit that has to do
// with the boot: it has the unit's name, or in older ones its description.
func (c *inquiry) names(s string) bool {
	if hasAny(s, "kubelet", "containerd", "container runtime", "cri-o", "crio.service", "k3s", "rke2", "cloud-init", "cloud-config.", "cloud-final.", "cloud init", "local-fs.target", "local file systems", "initrd", "/sysroot", "ignition (") {
		return true
	}
	for _, u := range c.facts.Units {
		if (u.Asked || u.Needed) && strings.Contains(s, strings.ToLower(u.Name)) {
			return true
		}
	}
	return false
}

// words describe a unit's state, in one line.
func (u Unit) words() string {
	if u.Missing {
		return fmt.Sprintf("%s: there is no such unit", u.Name)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s (%s)", u.Name, u.Active, u.Sub)
	if u.Result != "" {
		fmt.Fprintf(&b, ", result %s", u.Result)
	}
	if u.ExitCode != 0 {
		fmt.Fprintf(&b, ", exit code %d", u.ExitCode)
	}
	if u.Loops {
		b.WriteString(", started over and over")
	}
	if u.Restarts > 0 {
		fmt.Fprintf(&b, ", %d restarts", u.Restarts)
	}
	if u.Conditions {
		b.WriteString(", skipped for an unmet condition")
	}
	if u.LoadError != "" {
		fmt.Fprintf(&b, ", %s", u.LoadError)
	}
	return b.String()
}

// unitFinding is a unit's finding, ok where it has one.
func unitFinding(f Facts, u Unit, came bool) (found finding, ok bool) {
	var reason string
	r := rankNone
	switch {
	case u.Missing && u.isKubelet() && (u.Asked || f.Kubelet.Wanted):
		reason = "KubeletMissing"
	case u.Missing && u.base() == "containerd" && (u.Asked || !otherRuntime(f)):
		reason = "ContainerdMissing"
	case u.Missing && u.Asked:
		reason = "UnitMissing"
	case u.Missing:
		return finding{}, false
	case u.Conditions && u.Asked && u.Active != "active":
		reason = "UnitSkipped"
	case u.failed():
		// Until a node has joined the kubelet has no configuration and ends over and
		// over: that is usual.
		if u.isKubelet() && !came && !u.Asked && u.Result != "oom-kill" {
			return finding{}, false
		}
		reason, r = unitReason(f, u)
	case f.Deadline && (u.Active == "activating" || u.Asked && u.Active != "active"):
		reason = "UnitHung"
		if u.Asked {
			r = rankStage
		}
	default:
		return finding{}, false
	}
	known, _ := Lookup(reason)
	if r == rankNone {
		r = known.rank
	}
	found = finding{reason: reason, rank: r, log: -1, order: elsewhere, text: u.words(), stage: u.Name}
	switch {
	case u.isKubelet():
		found.stage, found.order = "kubelet", kubelet
	case u.isRuntime():
		found.order = runtime
	}
	if u.ExitCode != 0 {
		code := u.ExitCode
		found.exit = &code
	}
	return found, true
}

// exitExec is systemd's code for a program that it could not execute, most often because it
// is missing. Source: systemd.exec(5), EXIT_EXEC.
const exitExec = 203

func unitReason(f Facts, u Unit) (string, rank) {
	mayMatter := rankNone
	if !u.Asked {
		mayMatter = rankSign
	}
	switch {
	case u.Result == "oom-kill":
		if u.Asked || u.isKubelet() || u.isRuntime() || u.isK3s() || u.isCloudInit() {
			return "OutOfMemory", rankNone
		}
		return "OutOfMemory", rankSign
	case u.isKubelet():
		return "KubeletCrashLoop", rankNone
	case u.isK3s():
		return "K3sAgentFailed", rankNone
	case u.base() == "containerd" && (u.Asked || !otherRuntime(f)):
		if u.ExitCode == exitExec {
			return "ContainerdMissing", rankEffect // its own lines may know better
		}
		return "ContainerdFailed", rankNone
	case strings.HasSuffix(u.Name, "-wait-online.service"):
		return "NetworkNotOnline", mayMatter
	case strings.HasSuffix(u.Name, ".mount"):
		return "MountFailed", mayMatter
	case u.isCloudInit():
		if len(stageFindings(f.CloudInit)) > 0 { // the stages' findings are more precise
			return "UnitFailed", rankSign
		}
		return "CloudInitCrashed", rankNone
	case u.Result == "timeout" || u.Result == "watchdog":
		return "UnitTimedOut", mayMatter
	case u.Asked:
		return "UnitFailed", rankStage
	}
	return "UnitFailed", rankNone
}

// otherRuntime reports whether the node has a container runtime besides containerd's own
// unit.
func otherRuntime(f Facts) bool {
	for _, u := range f.Units {
		if !u.Missing && (u.isK3s() || u.base() == "crio" || u.base() == "docker") {
			return true
		}
	}
	for _, l := range f.Logs {
		if kindOf(l.Source) == k3s && len(l.Lines) > 0 {
			return true
		}
	}
	return false
}
