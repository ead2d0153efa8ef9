package verdict

import (
	"slices"
	"strings"
)

// preflightWarning reports whether a line in lower case is of a check of kubeadm's that was
// to be ignored, or only warns. A service that does not exist is excepted: no other line
// shows that the kubelet is missing.
func preflightWarning(s string) bool {
	return strings.Contains(s, "[warning ") && !strings.Contains(s, "service does not exist")
}

// runtimeSocket reports whether a line in lower case is of a container runtime that does
// not answer.
func runtimeSocket(s string) bool {
	return hasAny(s, "containerd.sock", "crio.sock", "cri-dockerd.sock", "dockershim.sock", "docker.sock", "pipe/containerd-containerd") &&
		hasAny(s, "no such file or directory", "connection refused", "connection reset by peer", "cannot find the file", "context deadline exceeded", "could not connect to the container runtime", "is the docker daemon running") &&
		!hasAny(s, "docker.socket", "unable to determine ") && !informs(s) &&
		!(strings.Contains(s, "dockershim.sock") && (strings.HasPrefix(s, `time="`) || klog(s) && strings.Contains(s, " remote_runtime.go:"))) // crictl, which tries the one of old first
}

// level is how serious klog marks a line in lower case: "i", "w", "e" or "f"; "" where it is
// none of klog's.
func level(s string) string {
	if _, own, ok := strings.Cut(s, "]: "); ok && !klog(s) {
		s = own
	}
	if !klog(s) {
		return ""
	}
	return s[:1]
}

// informs reports whether a line in lower case is one of information.
func informs(s string) bool { return level(s) == "i" || strings.Contains(s, " level=info ") }

// systemdReason is the reason in systemd's message about a unit on the console and in the
// journal, where it is one that matters.
func (c *inquiry) systemdReason(s string) string {
	reason := ""
	switch {
	case strings.Contains(s, "dependency failed for "):
		reason = "UnitDependencyFailed"
	case strings.Contains(s, "failed to mount /") && strings.Contains(s, "failed] "):
		return "MountFailed"
	case hasAny(s, "a start job is running for ", "/start running ("):
		reason = "UnitHung"
	case strings.Contains(s, "restart counter is at "):
		return loops(s)
	}
	if reason == "" || !c.names(s) {
		return ""
	}
	return reason
}

// loops is the reason by systemd's count of a unit's restarts: for minutes, since a kubelet
// waits like this until its node joins.
func loops(s string) string {
	unit, count, _ := strings.Cut(s, ".service: scheduled restart job, restart counter is at ")
	n := number(count[:len(count)-len(strings.TrimLeft(count, "0123456789"))], nil)
	switch unit = unit[strings.LastIndexByte(unit, ' ')+1:]; {
	case n == nil || *n < 30:
	case unit == "kubelet":
		return "KubeletCrashLoop"
	case strings.HasPrefix(unit, "k3s"), strings.HasPrefix(unit, "rke2"):
		return "K3sAgentFailed"
	case unit == "containerd":
		return "ContainerdFailed"
	}
	return ""
}

// stopped reports whether a log shows that the boot did not go on, or not to what makes the
// node.
func (c *inquiry) stopped(l *log) bool {
	for _, s := range l.low {
		if strings.Contains(s, "emergency mode") || strings.Contains(s, "dependency failed for ") && c.names(s) {
			return true
		}
	}
	on := func(s string) bool { return hasAny(s, "reached target multi-user", " login:") }
	return c.facts.Headless && !slices.ContainsFunc(l.low, on)
}

// look finds the evidence in the lines of the logs.
func (c *inquiry) look() {
	for at := range c.logs {
		c.lookAt(at, &c.logs[at])
	}
}

// reading is what is found in a log while it is read.
type reading struct {
	at    int
	log   *log
	found []finding
	try   int  // of kubeadm
	came  bool // the text shows that the node joined
	data  bool // and that cloud-init found its data
}

func (r *reading) add(reason string, of rank, line int, phase string, w when) {
	known, ok := Lookup(reason)
	if !ok {
		return
	}
	if of == rankNone {
		of = known.rank
	}
	if r.log.aside && of < rankHost {
		return // it has a reason of its own
	}
	k := r.log.of[line]
	f := finding{reason: reason, rank: of, log: r.at, line: line, order: k, phase: phase, try: r.try}
	f.passes = passingOf(reason, of, w, k)
	r.found = append(r.found, f)
}

func (c *inquiry) lookAt(at int, l *log) {
	r := reading{at: at, log: l}
	left := -1
	phases := map[int]string{} // by try
	module, serious := len(c.found) > 0, false
	for i, s := range l.low {
		k := l.of[i]
		switch over := overcome(s); {
		case s == "", k&c.within == 0, k&scripts != 0 && preflightWarning(s):
			continue
		case over != lasting:
			if over != tillEnd || !module {
				r.found = drop(r.found, func(f *finding) bool { return f.passes&over != 0 })
			}
			module, r.data = false, r.data || over == tillData
			continue
		case k&(scripts|k3s|kubelet) != 0 && hasAny(s, "this node has joined the cluster", "successfully registered node", "as it just became ready"):
			// What went wrong before was got over, but what is wrong with the machine.
			r.found = drop(r.found, func(f *finding) bool { return f.rank != rankHost })
			r.came = c.facts.Outside
		case strings.Contains(s, "[preflight] running pre-flight checks"):
			// A script that tries again: what counts is the last try.
			r.try++
		case strings.Contains(s, "successfully pulled image"):
			r.found = drop(r.found, func(f *finding) bool { return f.reason == "RegistryUnreachable" || f.reason == "ImagePullFailed" })
		case k&scripts != 0:
			module = module || moduleFailed(s)
			serious = serious || strings.Contains(s, "e: ")
		}
		if ofPod(s) && !needed(s) || ofOthers(s) {
			continue
		}
		next := ""
		if i+1 < len(l.low) {
			next = l.low[i+1]
		}
		if c.facts.Headless {
			next = s + next
		}
		for n := range rules {
			if rule := &rules[n]; rule.in&k != 0 && (c.applies(rule.when) || rule.when == joined && r.came) && !(rule.when == early && r.data) && rule.matches(s, next) && (rule.reason != "DiskFull" || nodesDisk(s, k)) {
				if known, _ := Lookup(rule.reason); k&(kubelet|k3s) != 0 && known.rank == rankCause && level(s) == "w" {
					continue // it goes on
				}
				r.add(rule.reason, rule.rank, i, "", rule.when)
			}
		}
		if k&(elsewhere|kernel) != 0 {
			if reason := c.systemdReason(s); reason != "" {
				r.add(reason, rankSign, i, "", always)
			}
		}
		if runtimeSocket(s) {
			r.add(runtimeReason(s), rankNone, i, "", always)
		}
		if k&scripts != 0 {
			if reason := download(s); reason != "" {
				r.add(reason, rankStep, i, "", always)
			}
			if reason, leftover := check(s); leftover && r.try > 1 {
				left = r.try
			} else if reason != "" {
				r.add(reason, rankNone, i, "preflight", always)
			}
			if p := phaseOf(s); p != "" {
				phases[r.try] = p
				reason := phaseReason(p)
				if p == "preflight" && strings.Contains(s, "couldn't validate the id") {
					reason = "KubeadmDiscoveryFailed"
				}
				r.add(reason, rankPhase-1, i, p, always) // its other findings precede
			}
		}
		if pull(s) && !strings.Contains(s, "[error ") {
			// A workload's image is none of the node's; a script pulls what it needs.
			switch {
			case k&(output|provision) != 0 && k&kubelet == 0, k&elsewhere != 0 && strings.Contains(s, "ctr: "):
				r.add(pullReason(s), rankStep, i, "", always)
			case nodeImage(s):
				of, reason := rankCause, pullReason(s)
				if reason == "ImagePullFailed" { // another line may have the cause
					of = rankNone
				}
				r.add(reason, of, i, "", always)
			}
		} else if apiRequest(s, k) {
			if reason := faultOf(s).ofAPIServer(s, k); reason != "" {
				rank := rankCause
				if k&scripts != 0 && !hasAny(s, "error execution phase", "error: ") {
					rank = rankStep // said on the way to another try
				}
				if c.ends && k == kubelet && !hasAny(s, "command failed", "failed to run kubelet") {
					rank = rankSign // a kubelet that cannot reach the API server waits; it does not end
				}
				r.add(reason, rank, i, phaseOf(s), always)
			}
		}
	}
	stopped := c.stopped(l)
	r.found = drop(r.found, func(f *finding) bool {
		switch f.reason {
		case "DeviceMissing":
			return f.order&(elsewhere|kernel) != 0 && !stopped && !strings.Contains(l.low[f.line], "mount: ") // a disk that need not be there (nofail) is waited for as well
		case "MountFailed":
			return !stopped && f.rank == rankSign // of a disk that need not be there
		case "PackageRepositoryUnreachable":
			return !serious && strings.Contains(l.low[f.line], "w: failed to fetch ") // apt went on
		case "NodeSilent":
			posts := func(s string) bool { return strings.Contains(s, "kubelet is posting ready status") }
			return slices.ContainsFunc(l.low, posts) // a condition that no kubelet sets any more, of a Node that is Ready
		case "RuncmdFailed", "UserScriptFailed":
			return r.came // after the node was in the cluster
		}
		return false
	})
	// kubeadm names its phase after what its checks found.
	for i := range r.found {
		f := &r.found[i]
		if phase := phases[f.try]; f.phase == "" && phase != "" && f.order&scripts != 0 && kubeadms(f.reason) {
			f.phase = phase
		}
	}
	c.found = append(c.found, lastTry(r.found, left)...)
	if c.came || r.came {
		c.network(at, l)
	}
}

// network finds why a node that is late is so, where its log shows that it has no pod
// network. Before it is late that is usual.
func (c *inquiry) network(at int, l *log) {
	late := c.facts.Kubelet.NotReady || c.facts.Outside && waitsForNetwork(l)
	for _, f := range c.found {
		late = late || f.log == at && f.reason == "NodeNotReady"
	}
	if !late {
		return
	}
	for i := len(l.low) - 1; i >= 0; i-- {
		if l.of[i]&(kubelet|k3s)&c.within != 0 && noNetwork(l.low[i]) {
			c.found = append(c.found, finding{reason: "CNINotReady", rank: rankEffect, log: at, line: i, order: l.of[i]})
			return
		}
	}
}

func noNetwork(s string) bool {
	return hasAny(s, "cni plugin not initialized", "networkpluginnotready", "cni config uninitialized", "unable to update cni config: no networks found in")
}

// waits is how many times a kubelet logs that it has no network, every 5 s, until that is
// not usual any more. Source: kubernetes pkg/kubelet/kubelet.go, syncLoop.
const waits = 12

// waitsForNetwork reports whether a kubelet had no network to the end of the text.
func waitsForNetwork(l *log) bool {
	n := 0
	for i, s := range l.low {
		switch {
		case l.of[i]&(kubelet|k3s) == 0:
		case strings.Contains(s, "as it just became ready"):
			n = 0
		case noNetwork(s):
			n++
		}
	}
	return n >= waits
}

// kubeadms reports whether a reason is of kubeadm's output, and so has its phase. Put in
// wherever it is called it would make the agent 4 KiB larger.
//
//go:noinline
func kubeadms(reason string) bool {
	switch reason {
	case "BootstrapTokenUnknown", "BootstrapTokenSecretWrong", "BootstrapTokenMalformed", "CAHashMismatch", "ClusterInfoUnreadable", "CertificateKeyExpired",
		"CertificateKeyWrong", "KubeadmConfigInvalid", "VersionSkew", "NodeExists", "KubeletStartTimeout", "TLSBootstrapTimeout", "ContainerRuntimeUnavailable",
		"ContainerRuntimeDisabled", "HostnameInvalid":
		return true
	}
	return false
}

// drop leaves out what is not to be kept, in place. The others are moved as parts of a
// slice: the code that copies one finding, field by field, is long.
func drop(found []finding, dropped func(f *finding) bool) []finding {
	n := 0
	for i := range found {
		if !dropped(&found[i]) {
			copy(found[n:], found[i:i+1])
			n++
		}
	}
	return found[:n]
}

// lastTry leaves out kubeadm's findings in all tries but the last: a script retries because
// of what may pass. A try that only met what an earlier one left (left, -1 for none) is no
// evidence.
func lastTry(found []finding, left int) []finding {
	last := 0
	for i := range found {
		if f := &found[i]; f.ofKubeadm() && !(f.try == left && f.reason == "KubeadmPreflight") {
			last = max(last, f.try)
		}
	}
	return drop(found, func(f *finding) bool { return f.ofKubeadm() && f.try != last })
}

func (f *finding) ofKubeadm() bool { return f.phase != "" || kubeadms(f.reason) }

func (c *inquiry) applies(w when) bool {
	switch w {
	case joined:
		return c.came || c.ends && c.facts.Outside // somebody asked for the kubelet's state
	case early:
		return c.early
	case quotes:
		return c.facts.Headless
	}
	return w == always
}
