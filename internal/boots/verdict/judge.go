package verdict

import (
	"slices"
	"strconv"
	"strings"

	"github.com/ortet/ortet/internal/redact"
	"github.com/ortet/ortet/internal/wire"
)

// A Judgement is what became of one boot, and why: a verdict within its bounds and
// without secrets. Whose boot it was, and when, is for the caller to add.
type Judgement struct {
	wire.Verdict
	// Shown are the lines that show it, that of the reason first. They do not cross.
	Shown []Position
}

// A Position is a line of one of the logs that were judged, as they were given.
type Position struct{ Log, Line int }

// inquiry is the work of one Judge.
type inquiry struct {
	facts  Facts
	logs   []log
	came   bool // the bootstrap said that it succeeded
	early  bool
	ends   bool // the kubelet does, over and over
	within kind // whose logs may hold the cause
	found  []finding
	beside []string // units that failed and have nothing to do with it
}

// Judge returns the outcome of a boot that is over, or whose time was up. It returns a reason
// only on evidence, Unknown with the raw lines otherwise. The same facts give the same
// judgement.
//
// The logs are read only where something is wrong: a boot that succeeded is
// judged at once.
func Judge(f Facts) Judgement {
	code := f.Provision.code()
	// A script of AKS's that failed has failed, whatever was written before.
	came := f.Sentinel
	if code != nil {
		came = *code == 0
	}
	c := inquiry{facts: f, came: came, early: f.CloudInit.early(), within: anywhere}
	broken, ignored := c.structure()
	if c.came && len(broken) == 0 && !f.Outside {
		if f.Why == "" {
			return c.cameUp(ignored)
		}
		broken = []finding{{reason: wire.ReasonUnknown, rank: rankNone, log: -1, text: f.Why}}
	}
	if f.Sign != "" {
		// The lines go before it: they are nearer to the cause.
		broken = append(broken, finding{reason: f.Sign, rank: rankSign, log: -1, order: k3s, stage: "node"})
	}
	c.found = broken
	for _, found := range broken {
		c.ends = c.ends || found.reason == "KubeletCrashLoop"
	}
	if c.came {
		// What went wrong before the bootstrap succeeded was got over.
		c.within = kubelet | k3s | runtime | kernel | elsewhere
	}
	c.logs = readLogs(f)
	for i := range c.logs {
		c.logs[i].aside = c.aside(c.logs[i].source)
	}
	c.look()
	best := c.best()
	j := c.explain(best)
	j.Outcome = wire.Failed
	if f.Deadline && !c.definite(broken) {
		j.Outcome = wire.TimedOut
	}
	j.Message = c.message(j, best)
	j.Evidence = c.evidence(best)
	j.Shown = c.positions(best)
	if j.Reason == wire.ReasonUnknown && len(j.Evidence) == 0 {
		j.Remedy = "Look at the node's console and journal: it wrote nothing where it was looked for."
		if f.Outside {
			j.Remedy = "See that boot diagnostics are enabled, and read the serial console: nothing of it was read."
		}
	}
	if c.came {
		j.Ignored = bounded(ignored)
	}
	return j
}

// positions are the lines that show the reason, then those of others that were found.
func (c *inquiry) positions(best finding) (at []Position) {
	add := func(f *finding) {
		if f.log >= 0 && f.log < len(c.facts.Logs) && len(at) <= mostOthers {
			if p := (Position{f.log, f.line + c.logs[f.log].from}); !slices.Contains(at, p) {
				at = append(at, p)
			}
		}
	}
	add(&best)
	for i := range c.found {
		if f := &c.found[i]; best.log >= 0 && newReason(c.found, *f) {
			add(f)
		}
	}
	return at
}

// structure is what the facts show without the logs: what broke the boot, and what, once
// the bootstrap has succeeded, did not.
func (c *inquiry) structure() (broken []finding, ignored []finding) {
	f := c.facts
	for _, s := range stageFindings(f.CloudInit) {
		if c.came {
			ignored = append(ignored, s)
		} else {
			broken = append(broken, s)
		}
	}
	if !c.came {
		broken = append(broken, provisionFindings(f)...)
	}
	for _, u := range f.Units {
		found, ok := unitFinding(f, u, c.came)
		switch {
		case !ok || u.isKubelet() && f.Kubelet.Wanted && f.Kubelet.Healthy && !f.Kubelet.Loops: // it was restarted, and works now
		case !u.tied(f):
			c.beside = append(c.beside, found.text)
		case !c.came || u.Asked || (u.isKubelet() || u.isK3s()) && f.Kubelet.Wanted:
			broken = append(broken, found)
		case u.failed():
			ignored = append(ignored, found)
		}
	}
	if f.Outside {
		return broken, ignored // whether the kubelet is healthy only the node knows
	}
	if c.came {
		broken = append(broken, c.kubeletFindings(broken)...)
		return broken, ignored
	}
	if ci := f.CloudInit; ci != nil && ci.Done {
		broken = append(broken, finding{reason: "SentinelMissing", rank: rankSign, log: -1, order: cloudInit})
	} else if stage := ci.running(); stage != "" && f.Deadline {
		broken = append(broken, finding{reason: "CloudInitHung", rank: rankSign, log: -1, order: cloudInit, stage: stage})
	}
	return broken, ignored
}

// kubeletFindings are what is wrong with the kubelet of a node whose bootstrap
// succeeded.
func (c *inquiry) kubeletFindings(broken []finding) []finding {
	k := c.facts.Kubelet
	if !k.Wanted || len(broken) > 0 {
		return nil
	}
	switch {
	case k.Loops:
		return []finding{{reason: "KubeletCrashLoop", rank: rankStage, log: -1, order: kubelet, stage: "kubelet", text: k.Last}}
	case !k.Healthy:
		return []finding{{reason: "KubeletUnhealthy", rank: rankSign, log: -1, order: kubelet, stage: "kubelet", text: k.Last}}
	case k.NotReady || c.facts.Deadline && late(c.facts.Logs):
		reason := NotReadyReason(k.Condition)
		f := finding{reason: reason, rank: rankSign, log: -1, order: kubelet, stage: "node", text: k.Condition, source: nodeCondition, late: true}
		if known, _ := Lookup(reason); reason != "NodeNotReady" {
			f.rank = known.rank
		}
		return []finding{f}
	case k.Unsigned && (k.Unregistered || c.facts.Deadline):
		return []finding{{reason: "TLSBootstrapTimeout", rank: rankSign, log: -1, order: kubelet, stage: "node"}}
	case k.Mute:
		return []finding{{reason: wire.ReasonUnknown, rank: rankNone, log: -1, order: kubelet, stage: "node", text: "the API server did not tell of the node"}}
	case k.Unregistered || c.facts.Deadline && !k.Registered:
		return []finding{{reason: "NodeNotRegistered", rank: rankSign, log: -1, order: kubelet, stage: "node"}}
	}
	return nil
}

// NotReadyReason is the reason of the Node's condition Ready where it is not True, by its
// message; NodeNotReady where the message is unknown. Source: kubernetes
// pkg/kubelet/nodestatus/setters.go, pkg/kubelet/runtime.go.
func NotReadyReason(condition string) string {
	switch s := strings.ToLower(condition); {
	case hasAny(s, "networkpluginnotready", "cni plugin not initialized", "cni config uninitialized"):
		return "CNINotReady"
	case hasAny(s, "container runtime is down", "container runtime not ready"):
		return "ContainerRuntimeUnavailable"
	}
	return "NodeNotReady"
}

// late reports whether the kubelet's log shows that the node is late, and not that it
// became ready afterwards.
func late(logs []Log) bool {
	is := false
	for _, l := range logs {
		if kindOf(l.Source)&(kubelet|k3s) == 0 {
			continue
		}
		for _, text := range l.Lines {
			switch {
			case strings.Contains(text, "Node not becoming ready in time after startup"):
				is = true
			case strings.Contains(text, "as it just became ready"):
				is = false
			}
		}
	}
	return is
}

// definite reports whether a boot had failed when its time was up.
func (c *inquiry) definite(broken []finding) bool {
	for _, f := range broken {
		switch {
		case f.reason == "UnitHung", f.late:
		case f.rank > rankSign, f.reason == "SentinelMissing":
			return true
		}
	}
	return c.facts.Why != ""
}

// best is the finding that the verdict is made of.
func (c *inquiry) best() finding {
	best := finding{reason: wire.ReasonUnknown, rank: rankNone, log: -1, text: c.facts.Why}
	for _, f := range c.found {
		if best.rank == rankNone || f.before(best) {
			best = f
		}
	}
	return best
}

// explain fills in the text of the reason and the findings.
func (c *inquiry) explain(best finding) Judgement {
	r, ok := Lookup(best.reason)
	if !ok {
		r, _ = Lookup(wire.ReasonUnknown)
	}
	j := Judgement{Verdict: wire.Verdict{
		Reason: r.Name, Owner: r.Owner, Retryable: r.Retryable, Remedy: r.Remedy,
		Stage: best.stage, Module: best.module, Phase: best.phase, ExitCode: best.exit, Stages: stageTimes(c.facts.CloudInit),
	}}
	// Where it broke is also known by what is farther from the cause.
	for _, f := range c.found {
		if f.log < 0 && (f.order == best.order || f.order&(cloudInit|provision) != 0 && best.order&(scripts|runtime|kernel) != 0) {
			if j.Stage == "" {
				j.Stage = f.stage
			}
			if j.Module == "" && f.stage == j.Stage {
				j.Module = f.module
			}
		}
		if j.Phase == "" && !c.came {
			j.Phase = f.phase
		}
	}
	if j.Stage == "" {
		switch {
		case best.order == kubelet:
			j.Stage = "kubelet"
		case best.order&(k3s|elsewhere) != 0 && best.log >= 0:
			if unit, ok := strings.CutPrefix(c.logs[best.log].source, "journal "); ok {
				j.Stage = unit
			}
		case !c.came:
			j.Stage = c.facts.CloudInit.running()
		}
	}
	if j.Stage != "" && j.Stage == c.facts.CloudInit.running() && j.Module == "" {
		j.Module = runningModule(c.logs)
	}
	switch code := c.facts.Provision.code(); {
	case c.came:
	case code != nil && *code != 0:
		j.ExitCode = code
	case j.ExitCode == nil:
		j.ExitCode = scriptExit(c.logs)
	}
	j.Stage, j.Module, j.Phase = name(j.Stage), name(j.Module), name(j.Phase)
	return j
}

// absent returns which signs of a bootstrap never came; "" where one did.
func (f Facts) absent() string {
	if f.Sentinel || f.CloudInit != nil || f.Provision != nil {
		return ""
	}
	if f.Outside {
		return "nothing was read of its serial console"
	}
	return "there is no sentinel, no trace of cloud-init and no provision.json"
}

// message is what happened, in a line for a person.
func (c *inquiry) message(j Judgement, best finding) string {
	r, _ := Lookup(j.Reason)
	var b strings.Builder
	if j.Outcome == wire.TimedOut {
		b.WriteString("at the deadline: ")
	}
	b.WriteString(r.Summary)
	switch {
	case j.Module != "" && j.Stage != "":
		b.WriteString(" (" + j.Stage + ", " + j.Module + ")")
	case j.Phase != "":
		b.WriteString(" (kubeadm " + j.Phase + ")")
	case j.Stage != "":
		b.WriteString(" (" + j.Stage + ")")
	}
	said := best.text
	if said == "" && j.Reason == wire.ReasonUnknown {
		if said = c.lastLine(); said == "" {
			said = c.facts.absent()
		}
	}
	if best.log >= 0 {
		said = withoutPrefix(c.logs[best.log].redacted(best.line))
	}
	if said = strings.TrimSpace(RedactText(said)); said != "" {
		b.WriteString(": " + said)
	}
	if other := c.other(best); other != "" {
		b.WriteString("; also: " + other)
	}
	if j.ExitCode != nil && *j.ExitCode != 0 && !strings.Contains(said, "exit code") {
		b.WriteString(" (exit code " + strconv.Itoa(*j.ExitCode) + ")")
	}
	if best.rank <= rankStage || best.order == provision && best.log < 0 {
		if last := c.lastOutput(); last != "" {
			b.WriteString("; the last output was: " + last)
		}
	}
	return redact.Cut(b.String())
}

// other names a second cause that suffices by itself: mending the first alone would not
// help. What a request to the API server met one after another is one cause.
func (c *inquiry) other(best finding) string {
	for _, f := range c.found {
		api := strings.HasPrefix(f.reason, "APIServer") && strings.HasPrefix(best.reason, "APIServer")
		if f.rank == best.rank && f.rank >= rankCause && f.reason != best.reason && !api {
			r, _ := Lookup(f.reason)
			return r.Summary + " (" + r.Name + ")"
		}
	}
	return ""
}

// lastLine is the last line of the serial console, of a node of which nothing else
// is known; "" where it is empty.
func (c *inquiry) lastLine() string {
	if !c.facts.Outside {
		return ""
	}
	for i := range c.logs {
		l := &c.logs[i]
		for n := len(l.lines) - 1; n >= 0; n-- {
			if strings.TrimSpace(l.low[n]) != "" {
				return "the last line of its " + l.source + " is: " + strings.TrimSpace(l.redacted(n))
			}
		}
	}
	return ""
}

// lastOutput is the last line that a script printed: most often it has the cause.
func (c *inquiry) lastOutput() string {
	for _, k := range [...]kind{provision, output} {
		for at := range c.logs {
			l := &c.logs[at]
			for i := len(l.low) - 1; i >= 0; i-- {
				if s := l.low[i]; l.of[i]&k&c.within == 0 || strings.TrimSpace(s) == "" || hasAny(s, "cloud-init v. ", "cc_scripts_user.py", "util.py[", "ci-info: ", "ssh host key ", "ssh-rsa aaaa", "ssh-ed25519 aaaa", "ecdsa-sha2-nistp256 aaaa") {
					continue
				}
				return withoutPrefix(l.redacted(i))
			}
		}
	}
	return ""
}

// withoutPrefix takes the time, host and program off a line: of a journal, of
// cloud-init's logger, of klog and of logrus.
func withoutPrefix(s string) string {
	s = strings.TrimSpace(s)
	for range 3 {
		i := strings.Index(s, "] ")
		if j := strings.Index(s, "]: "); j >= 0 && (i < 0 || j < i) {
			i = j + 1
		}
		if i <= 0 || i > 120 {
			break
		}
		head := strings.TrimRight(s[:i], "]:")
		pid := strings.HasSuffix(strings.TrimRight(head, "0123456789"), "[")
		dated := len(s) > 5 && s[0] >= '0' && s[0] <= '9' && s[4] == '-'
		klog := len(s) > 5 && strings.IndexByte("IWEF", s[0]) >= 0 && strings.Trim(s[1:5], "0123456789") == "" && s[5] == ' '
		uptime := s[0] == '[' && strings.Trim(s[1:i], " 0123456789.]") == ""
		if !pid && !dated && !klog && !uptime {
			break
		}
		s = strings.TrimSpace(strings.TrimPrefix(s[i+1:], ":"))
	}
	if i := strings.Index(s, ` msg="`); i >= 0 && strings.HasPrefix(s, "time=") {
		s = s[i+len(" msg="):]
	}
	return s
}

// cameUp is the judgement of a node that works.
func (c *inquiry) cameUp(ignored []finding) Judgement {
	j := Judgement{Verdict: wire.Verdict{Outcome: wire.Succeeded, Stages: stageTimes(c.facts.CloudInit)}}
	ignored = append(ignored, c.recoverable()...)
	if len(ignored) == 0 {
		j.Message = "the node came up"
		return j
	}
	c.found = ignored
	best := c.best()
	lines := bounded(ignored)
	j = c.explain(best)
	j.Outcome, j.Ignored = wire.Degraded, lines
	errs := " ignored errors; "
	if len(lines) == 1 {
		errs = " ignored error; "
	}
	j.Message = redact.Cut("the node came up, with " + strconv.Itoa(len(lines)) + errs + c.message(j, best))
	return j
}

// recoverable are the errors that cloud-init logged and went on after. What is only
// deprecated is no error.
func (c *inquiry) recoverable() []finding {
	ci := c.facts.CloudInit
	if ci == nil {
		return nil
	}
	var found []finding
	for _, s := range ci.Stages {
		for _, level := range [...]string{"CRITICAL", "ERROR", "WARNING"} {
			for i, e := range s.Recoverable[level] {
				f := finding{reason: "CloudInitRecovered", rank: rankSign, log: -1, line: i, order: cloudInit, text: e, stage: s.Name}
				low := strings.ToLower(Plain(e, redact.MaxRead))
				for r := range rules {
					if rule := &rules[r]; rule.in&cloudInit != 0 && (rule.when == always || rule.when == warns) && rule.matches(low, "") {
						known, _ := Lookup(rule.reason)
						if known.rank > f.rank {
							f.reason, f.rank = rule.reason, known.rank
						} else if f.reason == "CloudInitRecovered" {
							f.reason = rule.reason
						}
					}
				}
				found = append(found, f)
			}
		}
	}
	return found
}
