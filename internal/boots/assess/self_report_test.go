package assess

import (
	"testing"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// A Node that was Ready before its node reported a failure is assessed again once it is
// known whether it stays Ready: nothing else may change until then.
func TestAssessAgainWhenReadySettles(t *testing.T) {
	n := aNode(func(n *NodeView) { n.ReadySince = noon.Add(time.Minute) })
	a := Assess(aBoot(), n, console(aVerdict(wire.Failed, 90*time.Second)), Assessment{}, noon.Add(2*time.Minute), Deadlines{})
	if want := noon.Add(90*time.Second + 2*time.Minute); a.State != Failed || !a.Next.Equal(want) {
		t.Fatalf("%s, assessed again at %s; want %s", a.State, a.Next, want)
	}
	if a = Assess(aBoot(), n, nil, a, a.Next, Deadlines{}); a.State != Degraded {
		t.Errorf("it stayed Ready, and is %s", a.State)
	}
}

// A report of success that is found as the machine is deleted is published no more: there is
// no node.
func TestAssessDeletedAfterSuccess(t *testing.T) {
	before := Assess(aBoot(), nil, nil, Assessment{}, noon.Add(time.Minute), Deadlines{})
	b := aBoot(func(b *fleet.Boot) { b.ProvisioningState = "Deleting" })
	a := Assess(b, nil, console(aVerdict(wire.Succeeded, 2*time.Minute)), before, noon.Add(3*time.Minute), Deadlines{})
	if before.State != Booting || a.State != Deleting || a.Verdict != nil {
		t.Errorf("%s, then %s with %+v", before.State, a.State, a.Verdict)
	}
}
