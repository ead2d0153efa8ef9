package controller

import (
	"time"

	"github.com/ortet/ortet/internal/boots/assess"
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

func aNode(change ...func(*assess.NodeView)) *assess.NodeView {
	n := &assess.NodeView{Name: "pool1000003", UID: "u", BootID: "boot-a", Created: noon.Add(time.Minute), Ready: true, ReadySince: noon.Add(2 * time.Minute)}
	for _, c := range change {
		c(n)
	}
	return n
}

func notReady(n *assess.NodeView) {
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
