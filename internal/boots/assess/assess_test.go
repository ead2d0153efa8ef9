package assess

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

const (
	somePool = fleet.ResourceID("/subscriptions/0b1f6471-1bf0-4dda-aec3-cb9272f09590/resourceGroups/rg/providers/Microsoft.Compute/virtualMachineScaleSets/pool1")
	someVM   = "11111111-2222-4333-8444-555555555555"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func aBoot(change ...func(*fleet.Boot)) fleet.Boot {
	b := fleet.Boot{
		Instance: somePool.Child("virtualMachines", "3"), Pool: somePool, Name: "pool1_3", HostName: "POOL1000003", VMID: someVM,
		Created: noon, ProvisioningState: "Succeeded", Power: fleet.PowerRunning, Console: true,
	}
	for _, c := range change {
		c(&b)
	}
	return b
}

func aNode(change ...func(*NodeView)) *NodeView {
	n := &NodeView{Name: "pool1000003", UID: "u", BootID: "boot-a", Created: noon.Add(time.Minute), Ready: true, ReadySince: noon.Add(2 * time.Minute)}
	for _, c := range change {
		c(n)
	}
	return n
}

func notReady(n *NodeView) {
	n.Ready, n.Why = false, "KubeletNotReady: cni plugin not initialized"
}

func aVerdict(outcome wire.Outcome, at time.Duration, change ...func(*wire.Verdict)) wire.Verdict {
	v := wire.Verdict{Outcome: outcome, Node: "pool1000003", VMID: someVM, BootID: "boot-a", At: noon.Add(at), Uptime: at.Milliseconds(), Message: "as it was"}
	if outcome != wire.Succeeded {
		v.Reason, v.Owner, v.Remedy = "BootstrapTokenUnknown", wire.OwnerUser, "Make a new token."
	}
	for _, c := range change {
		c(&v)
	}
	return v
}

// console is a serial log that ends with a verdict.
func console(v wire.Verdict) []byte {
	return []byte("[    0.000000] Linux version 6.1.0\r\n[   12.3] cloud-init[411]: x\r\n[   14.0] " + v.ConsoleLine() + "\r\n[   14.1] audit: y\r\n")
}

func saying(kind, code, message string) func(*fleet.Boot) {
	return func(b *fleet.Boot) {
		st := fleet.BootStatus{Code: code, Message: message, Time: noon.Add(3 * time.Minute)}
		st.Name, st.State, st.Reason = fleet.ParseStatusCode(code)
		b.Extensions = append(b.Extensions, fleet.ExtensionStatus{Name: "ext", Type: kind, Statuses: []fleet.BootStatus{st}})
	}
}

func TestAssess(t *testing.T) {
	failed := aVerdict(wire.Failed, 90*time.Second)
	type want struct {
		state  State
		source Source
		reason string
		says   string
	}
	for name, c := range map[string]struct {
		boot     fleet.Boot
		node     *NodeView
		serial   []byte
		previous Assessment
		after    time.Duration // now, after the creation
		want     want
	}{
		"booting":                  {boot: aBoot(), after: time.Minute, want: want{state: Booting}},
		"no node at the deadline":  {boot: aBoot(), after: 26 * time.Minute, want: want{TimedOut, FromNode, wire.ReasonUnknown, "no Node"}},
		"node not ready, in time":  {boot: aBoot(), node: aNode(notReady), after: 5 * time.Minute, want: want{state: Booting}},
		"node not ready, too late": {boot: aBoot(), node: aNode(notReady), after: 26 * time.Minute, want: want{TimedOut, FromNode, "CNINotReady", "cni plugin"}},
		"ready":                    {boot: aBoot(), node: aNode(), after: 3 * time.Minute, want: want{Succeeded, FromNode, "", "Ready"}},
		"ready once is enough":     {boot: aBoot(), node: aNode(notReady, func(n *NodeView) { n.CameUp = true }), after: 26 * time.Hour, want: want{Succeeded, FromNode, "", ""}},
		"node deleted after success": {boot: aBoot(), previous: Assessment{Instance: aBoot().Instance, VMID: someVM, State: Succeeded, Source: FromNode},
			after: 26 * time.Hour, want: want{Succeeded, FromNode, "", ""}},
		"reported on the console": {boot: aBoot(), serial: console(failed), after: 2 * time.Minute, want: want{Failed, FromConsole, "BootstrapTokenUnknown", "as it was"}},
		"reported by the extension": {boot: aBoot(saying("X.Ortet", "ProvisioningState/failed/1", "Failed\n"+failed.ConsoleLine())), after: 2 * time.Minute,
			want: want{Failed, FromExtension, "BootstrapTokenUnknown", ""}},
		"reported by CustomScript": {boot: aBoot(saying("Microsoft.Azure.Extensions.CustomScript", "ProvisioningState/failed/1", "Enable failed\n[stdout]\n"+failed.ConsoleLine()+"\n[stderr]\n")), after: 2 * time.Minute,
			want: want{Failed, FromExtension, "BootstrapTokenUnknown", ""}},
		"of the donor": {boot: aBoot(), serial: console(aVerdict(wire.Failed, time.Minute, func(v *wire.Verdict) { v.VMID = "99999999-2222-4333-8444-555555555555" })), after: 2 * time.Minute,
			want: want{state: Booting}},
		"of an earlier boot": {boot: aBoot(), node: aNode(func(n *NodeView) { n.BootID = "boot-b" }), serial: console(failed), after: time.Hour, want: want{Succeeded, FromNode, "", ""}},
		"the last report counts": {boot: aBoot(), serial: append(console(failed), console(aVerdict(wire.Succeeded, 3*time.Minute))...), after: 4 * time.Minute,
			want: want{Succeeded, FromConsole, "", ""}},
		"the later of two sources": {boot: aBoot(saying("X.Ortet", "ProvisioningState/succeeded", aVerdict(wire.Succeeded, time.Minute).ConsoleLine())),
			serial: console(failed), after: 4 * time.Minute, want: want{Failed, FromConsole, "BootstrapTokenUnknown", ""}},
		"what was reported before stays": {boot: aBoot(), previous: Assessment{Instance: aBoot().Instance, VMID: someVM, State: Failed, Source: FromConsole, Verdict: &failed, Seen: noon.Add(2 * time.Minute)},
			after: time.Hour, want: want{Failed, FromConsole, "BootstrapTokenUnknown", ""}},
		"another machine of the name": {boot: aBoot(func(b *fleet.Boot) { b.VMID = "aaaaaaaa-2222-4333-8444-555555555555" }),
			previous: Assessment{Instance: aBoot().Instance, VMID: someVM, State: Failed, Source: FromConsole, Verdict: &failed}, after: time.Minute, want: want{state: Booting}},
		"ready in spite of it": {boot: aBoot(), node: aNode(func(n *NodeView) { n.ReadySince = noon.Add(5 * time.Minute) }), serial: console(failed), after: 6 * time.Minute,
			want: want{Degraded, FromConsole, "BootstrapTokenUnknown", "in spite"}},
		"ready before it failed": {boot: aBoot(), node: aNode(func(n *NodeView) { n.ReadySince = noon.Add(time.Minute) }), serial: console(failed), after: 2 * time.Minute,
			want: want{Failed, FromConsole, "BootstrapTokenUnknown", ""}},
		"ready and stays so": {boot: aBoot(), node: aNode(func(n *NodeView) { n.ReadySince = noon.Add(time.Minute) }), serial: console(failed), after: 10 * time.Minute,
			want: want{Degraded, FromConsole, "BootstrapTokenUnknown", "stays Ready"}},
		"came up in spite of it, and is not Ready later": {boot: aBoot(), node: aNode(notReady), previous: func() Assessment {
			return Assess(aBoot(), aNode(func(n *NodeView) { n.ReadySince = noon.Add(time.Minute) }), console(failed), Assessment{}, noon.Add(time.Hour), Deadlines{})
		}(), after: 9 * time.Hour, want: want{Degraded, FromConsole, "BootstrapTokenUnknown", "stays Ready"}},
		"of an earlier boot, and not Ready later": {boot: aBoot(saying("X.Ortet", "ProvisioningState/failed/1", failed.ConsoleLine())),
			node: aNode(notReady, func(n *NodeView) { n.BootID, n.CameUp, n.ReadySince = "boot-b", true, noon.Add(9*time.Hour) }), after: 10 * time.Hour, want: want{Succeeded, FromNode, "", ""}},
		"rebooted, and did not come up": {boot: aBoot(), serial: console(aVerdict(wire.Failed, 9*time.Hour, func(v *wire.Verdict) { v.BootID = "boot-b" })),
			node: aNode(notReady, func(n *NodeView) { n.CameUp, n.ReadySince = true, noon.Add(9*time.Hour+40*time.Second) }), after: 10 * time.Hour, want: want{Failed, FromConsole, "BootstrapTokenUnknown", ""}},
		"degraded": {boot: aBoot(), node: aNode(), serial: console(aVerdict(wire.Degraded, time.Minute)), after: 3 * time.Minute, want: want{Degraded, FromConsole, "BootstrapTokenUnknown", ""}},
		"stopped":  {boot: aBoot(func(b *fleet.Boot) { b.Power = fleet.PowerDeallocated }), after: 26 * time.Hour, want: want{state: Stopped, says: "deallocated"}},
		"deleting": {boot: aBoot(func(b *fleet.Boot) { b.ProvisioningState = "Deleting" }), serial: console(failed), after: time.Hour, want: want{state: Deleting}},
		"started again": {boot: aBoot(), previous: Assessment{Instance: aBoot().Instance, VMID: someVM, State: Stopped}, after: 26 * time.Hour,
			want: want{state: Booting}},
		"provisioning failed": {boot: aBoot(func(b *fleet.Boot) {
			b.ProvisioningState = "Failed"
			b.Provisioning = fleet.BootStatus{State: "failed", Reason: "OSProvisioningTimedOut", Message: "OS Provisioning did not finish\nin the allotted time.", Level: "Error"}
		}), after: 21 * time.Minute, want: want{Failed, FromPlatform, "OSProvisioningTimedOut", "OSProvisioningTimedOut"}},
		"provisioning failed, the log has the cause": {boot: aBoot(func(b *fleet.Boot) { b.ProvisioningState = "Failed" }),
			serial: []byte("[ 9.1] Kernel panic - not syncing: VFS\n"), after: 21 * time.Minute, want: want{Failed, FromPlatform, "KernelPanic", ""}},
		"extension of the boot failed": {boot: aBoot(saying("Microsoft.Azure.Extensions.CustomScript", "ProvisioningState/failed/1", "Enable failed: exit status=7\n[stdout]\n\n[stderr]\nbash: line 3: kubeadm: command not found\n")),
			after: 3 * time.Minute, want: want{Failed, FromPlatform, "BinaryMissing", "exit status=7"}},
		"AKS's exit code": {boot: aBoot(saying("Microsoft.Azure.Extensions.CustomScript", "ProvisioningState/failed/1", `Enable failed: [stdout] {"ExitCode": "50", "Output": "curl timed out", "Error": ""} [stderr]`)),
			after: 3 * time.Minute, want: want{Failed, FromPlatform, "OutboundBlocked", ""}},
		"another extension failed":            {boot: aBoot(saying("Microsoft.Azure.Monitor.AzureMonitorLinuxAgent", "ProvisioningState/failed/1", "no")), after: 3 * time.Minute, want: want{state: Booting}},
		"an extension failed on a Ready node": {boot: aBoot(saying("Microsoft.Azure.Extensions.CustomScript", "ProvisioningState/failed/1", "no")), node: aNode(), after: 3 * time.Minute, want: want{Succeeded, FromNode, "", "failed extensions: ext"}},
		"the kernel stopped":                  {boot: aBoot(), serial: []byte("[ 0.1] Linux version 6\n[ 9.1] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)\n"), after: 5 * time.Minute, want: want{state: Failed, source: FromLog}},
		"a panic of an earlier boot":          {boot: aBoot(), serial: []byte("[ 9.1] Kernel panic - not syncing: x\n[    0.000000] Linux version 6\n[ 1.0] fine\n"), after: 5 * time.Minute, want: want{state: Booting}},
		"the log has the cause at the deadline": {boot: aBoot(), serial: []byte("cloud-init[9]: [2026-11-21] error execution phase preflight: couldn't validate the identity of the API Server: Get \"https://10.0.0.4:6443\": dial tcp 10.0.0.4:6443: i/o timeout\n"),
			after: 26 * time.Minute, want: want{TimedOut, FromLog, "APIServerUnreachable", "no Node"}},
	} {
		t.Run(name, func(t *testing.T) {
			now := noon.Add(c.after)
			a := Assess(c.boot, c.node, c.serial, c.previous, now, Deadlines{})
			if a.State != c.want.state || c.want.source != "" && a.Source != c.want.source || c.want.reason != "" && a.Reason() != c.want.reason || !strings.Contains(a.Message(), c.want.says) {
				t.Fatalf("%s from %q, reason %q: %q\nwant %+v", a.State, a.Source, a.Reason(), a.Message(), c.want)
			}
			if a.State.Final() != (a.Verdict != nil) {
				t.Errorf("%s with verdict %+v", a.State, a.Verdict)
			}
			if a.Verdict != nil {
				if err := a.Verdict.Validate(); err != nil {
					t.Errorf("verdict: %v", err)
				}
				if wire.Outcome(a.State) != a.Verdict.Outcome {
					t.Errorf("state %s, outcome %s", a.State, a.Verdict.Outcome)
				}
			}
			if !a.Next.IsZero() && !a.Next.After(now) {
				t.Errorf("to be assessed again at %s, which is past", a.Next)
			}
			// Looked at again without the log it is the same; so it is after a
			// restart that left the evidence alone.
			again := Assess(c.boot, c.node, nil, a, now, Deadlines{})
			if !again.Same(a) || !again.Since.Equal(a.Since) {
				t.Errorf("the second time: %s %s %q since %s, not %s %s %q since %s", again.State, again.Reason(), again.Message(), again.Since, a.State, a.Reason(), a.Message(), a.Since)
			}
			text, err := json.Marshal(a)
			if err != nil {
				t.Fatal(err)
			}
			var stored Assessment
			if err := json.Unmarshal(text, &stored); err != nil {
				t.Fatal(err)
			}
			if again := Assess(c.boot, c.node, nil, stored, now, Deadlines{}); !again.Same(a) {
				t.Errorf("from what was stored: %s %s %q", again.State, again.Reason(), again.Message())
			}
		})
	}
}

// What Azure takes back is taken back.
func TestAssessFollowsAzure(t *testing.T) {
	bad := aBoot(func(b *fleet.Boot) { b.ProvisioningState = "Failed" })
	a := Assess(bad, nil, nil, Assessment{}, noon.Add(time.Minute), Deadlines{})
	if a.State != Failed {
		t.Fatalf("%+v", a)
	}
	a = Assess(aBoot(), nil, nil, a, noon.Add(2*time.Minute), Deadlines{})
	if a.State != Booting {
		t.Errorf("Azure made it good, and it is %s", a.State)
	}
	a = Assess(aBoot(), nil, nil, a, noon.Add(30*time.Minute), Deadlines{})
	if a.State != TimedOut {
		t.Errorf("%s at the deadline", a.State)
	}
	a = Assess(aBoot(), aNode(func(n *NodeView) { n.ReadySince = noon.Add(31 * time.Minute) }), nil, a, noon.Add(32*time.Minute), Deadlines{})
	if a.State != Succeeded {
		t.Errorf("%s though it became Ready", a.State)
	}
}

// A Node that was deleted and is registered again is not Ready for a moment.
func TestAssessNodeRegisteredAgain(t *testing.T) {
	later := noon.Add(240 * time.Hour)
	report := console(aVerdict(wire.Failed, time.Minute))
	for name, c := range map[string]struct {
		serial []byte
		boot   string // of the Node that is registered again
		after  time.Duration
		want   State
	}{
		"the same boot":                      {nil, "boot-a", time.Second, Succeeded},
		"the same boot, and long not Ready":  {nil, "boot-a", time.Hour, Succeeded},
		"its boot is not reported yet":       {nil, "", time.Second, Succeeded},
		"degraded, the same boot":            {report, "boot-a", time.Second, Degraded},
		"another boot has its time":          {nil, "boot-b", time.Second, Booting},
		"another boot that does not come up": {nil, "boot-b", 26 * time.Minute, TimedOut},
	} {
		t.Run(name, func(t *testing.T) {
			a := Assess(aBoot(), aNode(func(n *NodeView) { n.ReadySince = noon.Add(3 * time.Minute) }), c.serial, Assessment{}, noon.Add(time.Hour), Deadlines{})
			if a.State.Bad() {
				t.Fatalf("%s at first", a.State)
			}
			before := a.State
			if a = Assess(aBoot(), nil, nil, a, later, Deadlines{}); a.State != before {
				t.Fatalf("%s without its Node", a.State)
			}
			n := aNode(notReady, func(n *NodeView) {
				n.UID, n.BootID, n.Created, n.ReadySince = "v", c.boot, later.Add(time.Minute), later.Add(time.Minute)
			})
			for _, after := range []time.Duration{time.Second, c.after} {
				a = Assess(aBoot(), n, nil, a, n.Created.Add(after), Deadlines{})
			}
			if a.State != c.want {
				t.Errorf("%s: %s, want %s", a.State, a.Message(), c.want)
			}
		})
	}
	// The controller was installed, or has forgotten, in that moment.
	n := aNode(notReady, func(n *NodeView) { n.Created, n.ReadySince = later, later })
	if a := Assess(aBoot(), n, nil, Assessment{}, later.Add(time.Second), Deadlines{}); a.State != Booting {
		t.Errorf("first seen just after it was registered again, it is %s: %s", a.State, a.Message())
	}
	// What was published as failed does not begin again with a late Node.
	a := Assess(aBoot(), nil, nil, Assessment{}, later, Deadlines{})
	if a = Assess(aBoot(), n, nil, a, later.Add(time.Second), Deadlines{}); a.State != TimedOut {
		t.Errorf("a late Node makes %s of what timed out", a.State)
	}
}

// The controller is installed, or has forgotten, while a node is not Ready.
func TestAssessNotReadyAtFirstSight(t *testing.T) {
	const long = 2400 * time.Hour
	silent := "NodeStatusUnknown: Kubelet stopped posting node status."
	for name, c := range map[string]struct {
		created, changed time.Duration // of the Node, and its Ready condition, after the instance's
		why              string
		boot             func(*fleet.Boot)
		previous         State
		after            time.Duration // now, after the condition changed
		want             State
	}{
		"it works since long, and reboots":      {time.Minute, long, silent, nil, "", time.Minute, Succeeded},
		"it is back, and not Ready yet":         {time.Minute, long, "KubeletNotReady: container runtime is down", nil, "", time.Minute, Succeeded},
		"as it boots":                           {time.Minute, long, silent, nil, Booting, time.Minute, Succeeded},
		"an extension failed in an update":      {time.Minute, long, silent, saying("CustomScript", "ProvisioningState/failed/1", "no"), "", time.Minute, Succeeded},
		"never Ready since it was registered":   {time.Minute, time.Minute + time.Second, "KubeletNotReady: cni plugin not initialized", nil, "", long, TimedOut},
		"no kubelet ever reported":              {time.Minute, long, "NodeStatusNeverUpdated: Kubelet never posted node status.", nil, "", time.Minute, TimedOut},
		"it changed in time, and fell silent":   {time.Minute, 11 * time.Minute, silent, nil, "", long, Unclear},
		"it changed in time, and is not Ready":  {time.Minute, 9 * time.Minute, "KubeletNotReady: PLEG is not healthy", nil, "", long, Unclear},
		"it changed in time, Azure says why":    {time.Minute, 11 * time.Minute, silent, saying("CustomScript", "ProvisioningState/failed/1", "no"), "", long, Failed},
		"in time, it says that it came up":      {time.Minute, 11 * time.Minute, silent, saying("X.Ortet", "ProvisioningState/succeeded", aVerdict(wire.Succeeded, 3*time.Minute).ConsoleLine()), "", long, Succeeded},
		"its time is not up yet":                {time.Minute, 9 * time.Minute, silent, nil, "", time.Minute, Booting},
		"it was watched all the time":           {2 * time.Minute, 11 * time.Minute, silent, nil, Booting, long, TimedOut},
		"registered late, and its kubelet died": {time.Hour, time.Hour + time.Minute, silent, nil, "", long, TimedOut},
		"it was published as failed":            {time.Minute, long, silent, nil, TimedOut, time.Minute, TimedOut},
	} {
		t.Run(name, func(t *testing.T) {
			b := aBoot()
			if c.boot != nil {
				c.boot(&b)
			}
			n := aNode(func(n *NodeView) {
				n.Ready, n.Why, n.Created, n.ReadySince = false, c.why, noon.Add(c.created), noon.Add(c.changed)
			})
			var previous Assessment
			if c.previous != "" {
				previous = Assess(b, nil, nil, Assessment{}, noon.Add(26*time.Minute), Deadlines{})
				if c.previous == Booting {
					previous = Assess(b, nil, nil, Assessment{}, noon.Add(time.Minute), Deadlines{})
				}
				if previous.State != c.previous {
					t.Fatalf("%s before", previous.State)
				}
			}
			a := Assess(b, n, nil, previous, n.ReadySince.Add(c.after), Deadlines{})
			if a.State != c.want {
				t.Errorf("%s: %s", a.State, a.Message())
			}
			if a.State == Succeeded && a.Source == FromNode && !a.Since.Equal(n.Created) {
				t.Errorf("since %s, when it ceased to be Ready", a.Since)
			}
		})
	}
}

// Whether a node that stopped being Ready before it was looked at came up is not
// known, also at its deadline and when its kubelet is back; that it is Ready shows it.
func TestAssessUnclear(t *testing.T) {
	silent := func(at time.Duration) *NodeView {
		return aNode(notReady, func(n *NodeView) { n.Why, n.ReadySince = "NodeStatusUnknown: x", noon.Add(at) })
	}
	b := aBoot()
	a := Assess(b, silent(8*time.Minute), nil, Assessment{}, noon.Add(10*time.Minute), Deadlines{})
	if a.State != Booting {
		t.Fatalf("%s at first", a.State)
	}
	back := aNode(notReady, func(n *NodeView) { n.ReadySince = noon.Add(12 * time.Minute) })
	a = Assess(b, back, nil, a, noon.Add(12*time.Minute), Deadlines{})
	for _, n := range []*NodeView{back, silent(40 * time.Minute), nil} {
		if a = Assess(b, n, nil, a, noon.Add(41*time.Minute), Deadlines{}); a.State != Unclear || a.Verdict != nil || a.State.Final() {
			t.Fatalf("%s: %s", a.State, a.Message())
		}
	}
	if !LogWanted(a, noon.Add(time.Hour)) {
		t.Error("the serial log, which may tell, is not read")
	}
	failed := console(aVerdict(wire.Failed, 5*time.Minute, func(v *wire.Verdict) { v.BootID = "" }))
	if reported := Assess(b, back, failed, a, noon.Add(time.Hour), Deadlines{}); reported.State != Failed || reported.Source != FromConsole {
		t.Errorf("with its own report it is %s", reported.State)
	}
	if up := Assess(b, aNode(func(n *NodeView) { n.ReadySince = noon.Add(time.Hour) }), nil, a, noon.Add(time.Hour), Deadlines{}); up.State != Succeeded {
		t.Errorf("Ready, it is %s", up.State)
	}
	// Started again, it has its time, and nothing is unclear any more.
	off := Assess(aBoot(func(b *fleet.Boot) { b.Power = fleet.PowerStopped }), silent(40*time.Minute), nil, a, noon.Add(2*time.Hour), Deadlines{})
	on := Assess(b, silent(40*time.Minute), nil, off, noon.Add(3*time.Hour), Deadlines{})
	if on.State != Booting {
		t.Fatalf("started again, it is %s", on.State)
	}
	if on = Assess(b, silent(40*time.Minute), nil, on, noon.Add(4*time.Hour), Deadlines{}); on.State != TimedOut {
		t.Errorf("started again, and not up: %s", on.State)
	}
}

// In a pool that was deleted and made again machines have the names and ids of
// earlier ones, whose Nodes may be there still, and say that they came up.
func TestAssessNodeOfEarlierMachine(t *testing.T) {
	earlier := func(n *NodeView) {
		n.Created, n.BootID = noon.Add(-240*time.Hour), "boot-z"
		n.CameUp, n.CameUpSince, n.CameUpWritten = true, noon.Add(-239*time.Hour), noon.Add(-239*time.Hour)
	}
	ready := aNode(earlier, func(n *NodeView) { n.ReadySince = noon.Add(-239 * time.Hour) })
	gone := aNode(earlier, notReady, func(n *NodeView) { n.ReadySince = noon.Add(-time.Hour) })
	a := Assess(aBoot(), ready, nil, Assessment{}, noon.Add(20*time.Second), Deadlines{})
	if a.State != Booting || a.Next.After(noon.Add(3*time.Minute)) {
		t.Errorf("as it is made, it is %s, and looked at again at %s", a.State, a.Next)
	}
	if a := Assess(aBoot(), ready, nil, a, noon.Add(5*time.Minute), Deadlines{}); a.State != Succeeded {
		t.Errorf("it stays Ready, and is %s", a.State)
	}
	for _, previous := range []Assessment{{}, a} {
		if a := Assess(aBoot(), gone, nil, previous, noon.Add(5*time.Minute), Deadlines{}); a.State != Booting {
			t.Errorf("it is %s: %s", a.State, a.Message())
		}
		if a := Assess(aBoot(), gone, nil, previous, noon.Add(26*time.Minute), Deadlines{}); a.State != TimedOut {
			t.Errorf("it never came, and is %s: %s", a.State, a.Message())
		}
	}
	if a := Assess(aBoot(), aNode(earlier, func(n *NodeView) { n.BootID = "boot-a" }), nil, Assessment{}, noon.Add(3*time.Minute), Deadlines{}); a.State != Succeeded {
		t.Errorf("it is Ready, and %s", a.State)
	}
	if a := Assess(aBoot(), aNode(earlier, notReady, func(n *NodeView) { n.CameUpWritten = noon.Add(3 * time.Minute) }), nil, Assessment{}, noon.Add(time.Hour), Deadlines{}); a.State != Succeeded {
		t.Errorf("it was published that this one came up, and it is %s", a.State)
	}
}

// A node came up in spite of its verdict, and the controller has forgotten it: the
// condition shows it, also while the node is not Ready.
func TestAssessConditionOutlivesEvidence(t *testing.T) {
	const reason = "CNINotReady"
	said := aVerdict(wire.TimedOut, 20*time.Minute, func(v *wire.Verdict) { v.Reason = reason })
	b := aBoot(saying("X.Ortet", "ProvisioningState/failed/1", said.ConsoleLine()))
	for name, c := range map[string]struct {
		status  string
		reason  string
		written time.Duration // after the creation
		want    State
	}{
		"published as Degraded after the verdict": {"True", reason, 21 * time.Minute, Degraded},
		"published as good, long after it":        {"True", "Succeeded", 30 * time.Minute, Degraded},
		"it was Ready for a moment before it":     {"True", "Succeeded", 19 * time.Minute, TimedOut},
		"and that was written a bit late":         {"True", "Succeeded", 20*time.Minute + 30*time.Second, TimedOut},
		"Degraded was another boot":               {"True", reason, -time.Hour, TimedOut},
		"it was published":                        {"False", reason, 21 * time.Minute, TimedOut},
	} {
		t.Run(name, func(t *testing.T) {
			n := ViewOf(fleet.Node{Name: "pool1000003", Created: noon.Add(time.Minute), BootID: "boot-a", NotReadyWhy: "KubeletNotReady", ReadySince: noon.Add(240 * time.Hour),
				Conditions: []fleet.Condition{ // True since long before, where the status did not change
					{Type: fleet.ConditionBootSucceeded, Status: c.status, Reason: c.reason, Since: noon.Add(-2 * time.Hour), Written: noon.Add(c.written)},
				}})
			a := Assess(b, n, nil, Assessment{}, noon.Add(241*time.Hour), Deadlines{})
			if a.State != c.want || a.Reason() != reason {
				t.Errorf("%s, %s: %s", a.State, a.Reason(), a.Message())
			}
			if again := Assess(b, n, nil, a, noon.Add(242*time.Hour), Deadlines{}); !again.Same(a) {
				t.Errorf("the second time: %s: %s", again.State, again.Message())
			}
		})
	}
}

func FuzzAssess(f *testing.F) {
	v := aVerdict(wire.Failed, time.Minute)
	f.Add(console(v), "boom", uint16(3), true)
	f.Add([]byte("\x00\xff[9]\x1b[31m"), `{"ExitCode": "50"}`, uint16(30), false)
	f.Add([]byte("Kernel panic - not syncing"), "ortet.io/verdict {", uint16(60), false)
	f.Fuzz(func(t *testing.T, serial []byte, message string, minutes uint16, node bool) {
		var n *NodeView
		if node {
			n = aNode(notReady, func(n *NodeView) { n.Why = message })
		}
		b := aBoot(saying("CustomScript", "ProvisioningState/failed/"+message, message))
		a := Assess(b, n, serial, Assessment{}, noon.Add(time.Duration(minutes)*time.Minute), Deadlines{})
		if a.Verdict != nil {
			if err := a.Verdict.Validate(); err != nil {
				t.Errorf("a verdict that cannot be sent: %v", err)
			}
		}
		if m := a.ConditionMessage(); len(m) > MaxMessage || strings.ContainsAny(m, "\x1b\x00\n") {
			t.Errorf("message %q", m)
		}
		kept, err := EvidenceOf(a, Compact(b), serial)
		if err != nil {
			t.Fatal(err)
		}
		size := 0
		for k, text := range kept.Data {
			size += len(k) + len(text)
		}
		if size > 64<<10 {
			t.Errorf("evidence of %d bytes", size)
		}
	})
}

// What extensions report, and serial logs, are read whatever they hold.
func FuzzOutside(f *testing.F) {
	f.Add([]byte("[    0.000000] Linux version 6.8\r\nx\ry\x1b[31m\n"), "init", "took 1.2s, until 34s after the kernel's start", uint8(3))
	f.Add([]byte("\xff\xfe\x00"), "X", `prefix {"ExitCode": "50", "Output": "x"}`, uint8(0))
	f.Add(bytes.Repeat([]byte("a"), 3*maxQuoted), "", `{"ExitCode"`, uint8(255))
	f.Fuzz(func(t *testing.T, serial []byte, name, message string, n uint8) {
		st := fleet.BootStatus{Name: name, State: "failed", Message: message}
		b := fleet.Boot{Extensions: []fleet.ExtensionStatus{{Name: name, Type: "CustomScript", Statuses: []fleet.BootStatus{st}, Substatuses: []fleet.BootStatus{st}}}}
		if p := provisionOf(b); p != nil && p.ExitCode == "" {
			t.Error("a provisioning without an exit code")
		}
		if stages := stagesOf(b); len(stages) > maxStages {
			t.Errorf("%d stages", len(stages))
		}
		for _, l := range logsOf(b, serial) {
			for _, text := range l.Lines {
				if len(text) > 3*maxQuoted || !utf8.ValidString(text) || strings.ContainsAny(text, "\n\r") {
					t.Errorf("%s: %q", l.Source, text)
				}
			}
		}
		for _, text := range Relevant(serial, int(n)) {
			if strings.ContainsFunc(text, unicode.IsControl) {
				t.Errorf("%q", text)
			}
		}
		stuck(serial)
	})
}

// What was kept may have been changed by anybody who can write ConfigMaps.
func FuzzAssessment(f *testing.F) {
	v := aVerdict(wire.Failed, time.Minute)
	text, err := json.Marshal(Assessment{State: Failed, Verdict: &v, Source: FromConsole})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"state":"Failed","verdict":{"outcome":"Succeeded"}}`))
	f.Add([]byte(`{"instance":"/x","since":"0001-01-01T00:00:00Z"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		a := ParseAssessment(text)
		if a.Verdict != nil && a.Verdict.Validate() != nil || a.State.Final() != (a.Verdict != nil) {
			t.Errorf("%+v", a)
		}
		Assess(aBoot(), nil, nil, a, noon, Deadlines{})
	})
}

func TestRelevantShowsOnce(t *testing.T) {
	early := "[ERROR Swap]: running with swap on is not supported. Please disable swap"
	for _, c := range []struct {
		name string
		at   int
	}{{"the cause before the end", 10}, {"the cause at its end", 95}} {
		var b strings.Builder
		for i := range 100 {
			if i == c.at {
				fmt.Fprintf(&b, "%s\r\n", early)
			}
			fmt.Fprintf(&b, "line %d\r\n", i)
		}
		lines := Relevant([]byte(b.String()+aVerdict(wire.Failed, time.Minute).ConsoleLine()), 40)
		all := strings.Join(lines, "\n")
		if strings.Count(all, early) != 1 || strings.Count(all, "line 97\n") != 1 || !strings.HasSuffix(strings.TrimSpace(all), "line 99") {
			t.Errorf("%s:\n%s", c.name, all)
		}
	}
}

func TestRelevantHidesSecrets(t *testing.T) {
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, "[%8d.0] something \x1b[1mhappened\x1b[0m %d\r\n", i, i)
	}
	b.WriteString("kubeadm join 10.0.0.4:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:x\r\n")
	lines := Relevant([]byte(b.String()), 40)
	all := strings.Join(lines, "\n")
	if strings.Contains(all, "0123456789abcdef") || strings.Contains(all, "\x1b") || !strings.Contains(all, "kubeadm join") {
		t.Errorf("shown:\n%s", all)
	}
	if len(lines) > 400 {
		t.Errorf("%d lines", len(lines))
	}
}

// What shows that a line is secret may be above what is shown.
func TestRelevantHidesSecretsThatBeginAbove(t *testing.T) {
	text := "x\r\n-----BEGIN EC PRIVATE KEY-----\r\n" + strings.Repeat("aVeryShort1Line+of\r\n", 60) + "-----END EC PRIVATE KEY-----\r\nlast\r\n"
	for _, n := range []int{2, 10, 40} {
		all := strings.Join(Relevant([]byte(text), n), "\n")
		if strings.Contains(all, "aVeryShort1Line") || !strings.HasSuffix(all, "last") {
			t.Errorf("the last %d lines: %s", n, all)
		}
	}
}

// A secret that lies where a long text is cut is not shown for want of its name.
func TestCutsHideSecrets(t *testing.T) {
	const secret = "hunter2hunter2"
	for _, name := range []string{"password=", "--password ", "Authorization: Bearer ", "password: "} {
		for at := maxQuoted - 40; at <= maxQuoted+4; at += 5 {
			line := strings.Repeat("x ", at/2)[:at-1] + " " + name + secret + " and more"
			if all := strings.Join(Relevant([]byte(line+"\r\nnext\r\n"), 40), "\n"); strings.Contains(all, secret[7:]) || !strings.Contains(all, "next") {
				t.Fatalf("of a serial log, %q at %d: %q", name, at, all[max(0, len(all)-80):])
			}
			// The end of a message is kept.
			message := strings.Repeat("y\n", 1000) + name + secret + " " + strings.Repeat("z ", 400) + "\n" + strings.Repeat("w\n", (at-800)/2)
			b := Compact(aBoot(saying("CustomScript", "ProvisioningState/failed/1", message)))
			kept, err := EvidenceOf(Assess(b, nil, nil, Assessment{}, noon.Add(time.Minute), Deadlines{}), b, nil)
			if err != nil {
				t.Fatal(err)
			}
			if all := fmt.Sprint(kept.Data); strings.Contains(all, secret[7:]) {
				t.Fatalf("of a message, %q at %d", name, at)
			}
		}
	}
	// The verdict in a long message is found all the same.
	v := aVerdict(wire.Failed, time.Minute)
	b := Compact(aBoot(saying("CustomScript", "ProvisioningState/failed/1", strings.Repeat("some line\n", 2000)+v.ConsoleLine()+"\n[stderr]\n")))
	if a := Assess(b, nil, nil, Assessment{}, noon.Add(2*time.Minute), Deadlines{}); a.Source != FromExtension || a.Reason() != v.Reason {
		t.Errorf("%s, %s", a.Source, a.Reason())
	}
}
