package bootstrap

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ortet/ortet/internal/boots/verdict"
	"github.com/ortet/ortet/internal/wire"
)

// Wait waits until it is known how this boot ended, writes the verdict to Options.State,
// reports it on the console and to the admission server, and returns it. A stored verdict
// of this boot that answers the same question is returned at once and not reported again,
// except TimedOut: such a node may have come up since. Options.After requests another
// judgement.
//
// A report that fails is logged, and the verdict returned all the same. An error means that
// there is no verdict: wrong options (the same as Validate's), or that ctx ended.
func Wait(ctx context.Context, o Options, log *slog.Logger) (wire.Verdict, error) {
	o, err := o.complete()
	if err != nil {
		return wire.Verdict{}, err
	}
	me := identifyNode(o)
	before, answered, cameUp := recall(o, me, time.Now(), log)
	if answered {
		return before.Verdict, nil
	}
	n := newNode(o, me, log)
	n.before, n.cameUp = before.Verdict, cameUp
	return n.wait(ctx)
}

// node is one that is waited for.
type node struct {
	o      Options
	me     whoAmI
	before wire.Verdict // of this boot; without an outcome where there is none
	cameUp bool         // the machine did, in an earlier boot
	log    *slog.Logger
	pokes  chan struct{}

	files     []string
	cloudInit cloudInitFiles
	watcher   *watcher // nil where there are no notifications
	// blind means that some notifications are missing: then files are polled every second.
	blind      bool
	newWatcher func(poke func()) (*watcher, error)
	units      unitSource
	kubelet    *kubeletCheck
	member     *memberCheck
	busThere   bool
	journalctl string
	// ranEarlier is whether the commands ran in an earlier boot; looked up once
	// cloud-init is done.
	ranEarlier *bool
	// aksPromised is whether AKS is to provision it; looked up then too.
	aksPromised *bool
}

func newNode(o Options, me whoAmI, log *slog.Logger) *node {
	n := &node{o: o, me: me, log: log, pokes: make(chan struct{}, 1)}
	n.files, n.cloudInit = watchedFiles(o), newCloudInitFiles(o)
	n.kubelet = &kubeletCheck{address: kubeletAddress, within: kubeletTimeout, question: question{poke: n.poke}}
	n.member = &memberCheck{question: question{poke: n.poke}}
	n.journalctl = journalProgram(o)
	n.newWatcher = newWatcher
	return n
}

// poke makes the loop observe again. It never blocks.
func (n *node) poke() {
	select {
	case n.pokes <- struct{}{}:
	default:
	}
}

// wait waits for the verdict, reports it and returns it.
func (n *node) wait(ctx context.Context) (wire.Verdict, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	began := time.Now()
	if w, err := n.newWatcher(n.poke); err != nil {
		n.log.Warn("looking every second instead of being told", "error", err)
		n.blind = true
	} else {
		n.watcher = w
		defer w.close()
	}
	n.busThere = exists(n.o.under(busSocket))
	n.units = watchUnits(n.o, watchedUnits(n.o.Units), n.poke, n.log)
	defer n.units.close()
	// Before that, its running questions have to be stopped.
	defer func() { stop(); n.kubelet.wait(); n.member.wait() }()
	r := rules{
		deadline: began.Add(n.o.Deadline), sentinel: n.o.Sentinel != NoSentinel, units: n.o.Units,
		node: n.o.Node, settle: n.o.Settle, grace: n.o.Grace, again: n.again(),
	}
	st, s, d, err := n.loop(ctx, r)
	if err != nil {
		return wire.Verdict{}, err
	}
	v := n.judge(ctx, &st, &s, &d)
	n.tell(ctx, v)
	n.log.Info("it is known how the boot ended", "why", d.why, "after", time.Since(began).Round(time.Millisecond))
	return v, nil
}

// again reports that the boot was judged before, and is to be judged again.
func (n *node) again() bool { return !n.o.After.IsZero() && n.before.Outcome != "" }

// loop observes whenever something happened, and at decide's times.
func (n *node) loop(ctx context.Context, r rules) (st state, s seen, d decision, err error) {
	timer := time.NewTimer(time.Until(r.deadline))
	defer timer.Stop()
	for looks := 0; ; looks++ {
		n.cover()
		s = n.look()
		now := time.Now()
		if st, d = decide(r, st, s, now); d.over {
			return st, s, d, nil
		}
		if d.askKubelet {
			n.kubelet.start(ctx, n.kubelet.ask)
		}
		if d.askNode {
			n.member.start(ctx, func(ctx context.Context) func() {
				m := askMembership(ctx, n.o, n.me.bootID)
				return func() { n.member.answer = m }
			})
		}
		next := r.deadline
		if !d.next.IsZero() && d.next.Before(next) {
			next = d.next
		}
		if blind := now.Add(blindEvery); n.blind && blind.Before(next) {
			next = blind
		}
		timer.Reset(next.Sub(now))
		if looks == 0 {
			n.log.Info("waiting", "until", r.deadline.UTC())
		}
		select {
		case <-ctx.Done():
			return st, s, d, context.Cause(ctx)
		case <-n.pokes:
		case <-timer.C:
		}
	}
}

// cover has every folder watched that is to be, the ones too that came to be
// meanwhile; what happened before is found by looking afterwards.
func (n *node) cover() {
	if n.watcher == nil {
		return
	}
	for range maxDepth {
		changed, err := n.watcher.cover(n.files)
		if err != nil {
			if !n.blind {
				n.log.Warn("looking every second, since not all can be watched", "error", err)
			}
			n.blind = true
			return
		}
		if !changed {
			return
		}
	}
	n.poke() // folders come and go: observe again soon
}

// blindEvery is the interval of polls where the kernel does not notify, as where its
// watches are used up.
const blindEvery = time.Second

// maxDepth bounds how often watches follow folders that are being made.
const maxDepth = 16

// look gathers decide's input. The order matters: a sign that is written before another is
// read after it, so that of both being there one is never missed.
func (n *node) look() seen {
	var s seen
	if there := exists(n.o.under(busSocket)); there != n.busThere {
		n.busThere = there
		n.units.retry()
	}
	units, known := n.units.look()
	s.units = units
	if u := units[cloudInitUnits()[0]]; known && u.Active == "failed" {
		s.cloudInitDied = u.Name
	}
	up := Uptime(n.o.Root)
	s.cloudInit = n.cloudInit.look(time.Now().Add(-up), up)
	s.cloudInitRuns = exists(n.o.under("/run/cloud-init/enabled"))
	if onWindows {
		s.cloudInit, s.cloudInitRuns = cloudbaseSeen(units, time.Now().Add(-up))
	}
	n.lookAtAKS(&s, up)
	s.kubelet = n.lookKubelet(units, known)
	if n.o.Sentinel != NoSentinel {
		mode, there := fileKind(n.o.under(n.o.Sentinel))
		s.sentinel = there && mode.IsRegular()
		if why := n.noSentinelComes(&s); !s.sentinel && s.otherSign == "" && why != "" {
			s.otherSign, s.assumed = why, s.cloudInit == nil || !s.cloudInit.Failed()
		}
	}
	s.node.asked, s.node.membership = n.member.last()
	s.node.said, s.node.condition = harmlessText(s.node.said), harmlessText(s.node.condition)
	return s
}

// rebootSlack is how far the clock may have been set at the boot.
const rebootSlack = time.Minute

// noSentinelComes returns why no sentinel will be written in this boot; "" where one may
// be.
func (n *node) noSentinelComes(s *seen) string {
	done := s.cloudInit != nil && s.cloudInit.Done
	switch {
	case onWindows:
	case done && n.commandsRanEarlier():
		return "the commands ran in an earlier boot"
	case s.cloudInit == nil && !s.cloudInitRuns && n.cameUp:
		return "this machine came up in an earlier boot"
	case done && (s.kubelet.wanted || !s.cloudInit.Failed()) && !n.sentinelPromised():
		return "nothing on this node writes a sentinel"
	}
	return ""
}

// promises are where cloud-init keeps what is to be run on this machine.
var promises = [...]string{"scripts/runcmd", "cloud-config.txt", "user-data.txt"}

// sentinelPromised reports whether something on this node is to write the sentinel: its
// folder is made beforehand, or cloud-init's input names it.
func (n *node) sentinelPromised() bool {
	if n.o.Sentinel != defaultSentinel || isDir(filepath.Dir(n.o.under(n.o.Sentinel))) {
		return true
	}
	return n.promised(filepath.Base(defaultSentinel))
}

// promised reports whether cloud-init's input contains what.
func (n *node) promised(what string) bool {
	for _, name := range promises {
		text, err := readWhole(n.o.under("/var/lib/cloud/instance/" + name))
		if err == nil && bytes.Contains(text, []byte(what)) {
			return true
		}
	}
	return false
}

// commandsRanEarlier reports whether no sentinel will be written since the commands ran in
// an earlier boot of this machine.
func (n *node) commandsRanEarlier() bool {
	if n.ranEarlier == nil {
		l, err := tail(n.o.under("/var/log/cloud-init.log"), "")
		ran := err == nil && commandsRanEarlier(l)
		ran = ran || n.cameUp
		n.ranEarlier = &ran
	}
	return *n.ranEarlier
}

func (n *node) lookKubelet(units map[string]unitSeen, known bool) kubeletSeen {
	var k kubeletSeen
	for _, name := range kubeletUnits() {
		if u, ok := units[name]; ok && !u.Missing && u.Active != "" && (k.unit.Name == "" || k.unit.Active == "inactive") {
			k.unit = u
		}
	}
	switch n.o.Kubelet {
	case KubeletYes:
		k.wanted = true
	case KubeletAuto:
		k.wanted = known && k.unit.Name != "" || kubeletOnDisk(n.o)
	}
	k.asked, k.healthy, k.last = n.kubelet.last()
	return k
}

// judge has the facts judged, and adds whose they are. The logs of a node that
// came up are not read.
func (n *node) judge(ctx context.Context, st *state, s *seen, d *decision) wire.Verdict {
	now, up := time.Now(), Uptime(n.o.Root)
	f := n.facts(st, s, d)
	j := verdict.Judge(f)
	if !d.came || j.Outcome == wire.Failed || j.Outcome == wire.TimedOut {
		for _, u := range n.units.failed() {
			if !slices.ContainsFunc(f.Units, func(k verdict.Unit) bool { return k.Name == u.Name }) {
				f.Units = append(f.Units, u.Unit)
			}
		}
		f.Logs = append(f.Logs, gatherLogs(n.o)...)
		f.Logs = append(f.Logs, journals(ctx, n.journalctl, journalTime(st), f.Units)...)
		f.Kubelet.Registered = f.Kubelet.Registered || registered(f.Logs)
		if d.unsure {
			// Who cannot ask, as from behind a proxy that the kubelet knows, believes the
			// kubelet.
			f.Kubelet.Registered = f.Kubelet.Registered || saidRegistered(ctx, n.o, n.journalctl, journalTime(st))
			f.Kubelet.Mute = !f.Kubelet.Registered
		}
		j = verdict.Judge(f)
	}
	v := j.Verdict
	switch {
	case d.came && st.failed != "":
		v = mended(v)
	case v.Outcome == wire.Succeeded && n.again() && n.before.Outcome == wire.Failed:
		v = mended(n.before)
	case v.Outcome == wire.Succeeded && n.again() && n.before.Outcome == wire.Degraded:
		v = n.before // it was mended before: nothing else is left of that
	}
	v.Node, v.VMID, v.BootID = nodeName(), n.me.vmID, n.me.bootID
	v.At, v.Uptime = now.UTC(), up.Milliseconds()
	if mode, there := fileKind(n.o.under(n.o.Sentinel)); there && !mode.IsRegular() && n.o.Sentinel != NoSentinel && v.Outcome != wire.Succeeded {
		said := n.o.Sentinel + " is " + kind(mode) + ", not a file, and says nothing"
		v.Message = harmless([]byte(v.Message + "; " + said))
		v.Evidence = append([]wire.Excerpt{{Source: n.o.Sentinel, Lines: []string{said}}}, v.Evidence[:min(len(v.Evidence), 15)]...)
	}
	if err := v.Validate(); err != nil {
		// Invalid excerpts must not prevent the report.
		n.log.Error("the verdict's evidence is out of bounds and left out", "error", err)
		v = wire.Verdict{Outcome: v.Outcome, Reason: v.Reason, Owner: v.Owner, Retryable: v.Retryable, ExitCode: v.ExitCode, BootID: v.BootID, At: v.At, Uptime: v.Uptime}
	}
	return v
}

// Confidence is how sure a verdict's reason is, "" where it has none.
func Confidence(v wire.Verdict) string { return string(verdict.ConfidenceOf(v.Reason)) }

// mended is the verdict of a node that works, of a boot that failed: the failure is
// reported, since the next node made the same way will fail too.
func mended(v wire.Verdict) wire.Verdict {
	v.Outcome, v.Ignored = wire.Degraded, []string{v.Message}
	v.Message = harmless([]byte("the node works, after its boot had failed: " + v.Message))
	return v
}

func (n *node) facts(st *state, s *seen, d *decision) verdict.Facts {
	f := verdict.Facts{
		Sentinel: !st.finished.IsZero() && st.failed == "", Deadline: d.deadline, Windows: onWindows,
		CloudInit: s.cloudInit, Provision: s.provision,
		Kubelet: verdict.Kubelet{
			Wanted: s.kubelet.wanted, Healthy: s.kubelet.healthy && !d.loops && s.kubelet.unit.Active != "failed",
			EverHealthy: st.everHealthy, Last: s.kubelet.last, Loops: d.loops,
		},
	}
	if d.loops {
		f.Kubelet.Last = d.why
	}
	if !d.came && !d.deadline && !d.unsure {
		f.Why = d.why
	}
	// Of a node that came up it is known, or does not count.
	f.Kubelet.Registered = d.came || st.registered || n.o.Node == NodeNo
	f.Kubelet.Unregistered = d.unregistered && !d.unsure
	f.Kubelet.Unsigned = s.node.unsigned && !f.Kubelet.Registered
	f.Kubelet.NotReady = !d.came && st.registered && !s.node.ready && n.o.Node == NodeReady
	f.Kubelet.Condition = s.node.condition
	if said := s.node.said; said != "" && !s.node.cannot && !d.came {
		f.Logs = append(f.Logs, verdict.Log{Source: nodeSource, Lines: []string{said}})
	}
	for _, name := range watchedUnits(n.o.Units) {
		u, ok := s.units[name]
		asked := slices.Contains(n.o.Units, name)
		if !ok && asked && d.deadline {
			u.Name, u.Active, ok = name, "not seen", true
		}
		if !ok {
			continue
		}
		u.Asked = asked
		u.Loops = !st.finished.IsZero() && u.crashes()-st.crashesThen[name] >= crashLoop
		if u.Asked || u.Active == "failed" || u.Name == s.kubelet.unit.Name && !d.came && s.kubelet.wanted && !st.finished.IsZero() {
			f.Units = append(f.Units, u.Unit)
		}
	}
	return f
}

// tell writes the verdict and reports it. Each way is tried, even if others failed.
func (n *node) tell(ctx context.Context, v wire.Verdict) {
	text, err := encode(kept{v, n.o.question(), n.cameUp})
	if err != nil {
		n.log.Error("cannot write the verdict as JSON", "error", err)
		return
	}
	if err := Keep(n.o.State, text); err != nil {
		n.log.Error("cannot keep the verdict; it will be lost in a reboot", "path", n.o.State, "error", err)
		spare := n.o.under(spareState)
		if err := Keep(spare, text); err != nil {
			n.log.Error("cannot keep the verdict until the reboot either", "path", spare, "error", err)
		}
	}
	if n.o.Console != "" {
		if err := tellConsole(n.o.Console, v); err != nil {
			n.log.Warn("cannot tell the verdict on the console", "path", n.o.Console, "error", err)
		}
	}
	if n.o.ReportURL != "" {
		text, err := encode(kept{Verdict: v})
		if err == nil {
			err = Post(ctx, n.o.ReportURL, n.o.CAFile, text)
		}
		if err != nil {
			n.log.Warn("cannot tell the verdict to the admission server", "error", err)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
