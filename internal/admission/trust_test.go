package admission_test

import (
	"context"
	"crypto/x509"
	"net/http"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// A Node is not Ready for a moment, and a pod in its network answers the callback: it
// gets no token for as long as that the kubelet is heard of.
func TestPodDoesNotJoinWhileItsKubeletLives(t *testing.T) {
	s := newSite(t, nil)
	state := ready()
	state.Ready = false
	s.cluster.nodes[nodeName] = state
	for _, ago := range []time.Duration{-time.Hour, 0, 59 * time.Second} {
		s.cluster.heard[nodeName] = today.Add(-ago)
		r := s.join()
		s.refused(r, admission.KubeletHeard)
		if r.refusal.Final || r.refusal.After < 1 || r.refusal.After > 60 {
			t.Errorf("%s ago: come back after %d s, final %v", ago, r.refusal.After, r.refusal.Final)
		}
	}
	if len(s.cluster.spent) != 0 {
		t.Error("a nonce was used")
	}
	s.cluster.heard[nodeName] = today.Add(-time.Minute)
	if r := s.join(); r.status != http.StatusOK {
		t.Errorf("a machine whose kubelet stands still: %d %s", r.status, r.body)
	}
}

// A Node of yesterday says Ready until the controller of Nodes looks: its Lease decides, so
// the first try joins. One whose kubelet lives is refused, and so is one without a Lease.
func TestLeaseDecidesOverReady(t *testing.T) {
	s := newSite(t, nil)
	s.cluster.nodes[nodeName] = ready()
	for _, heard := range []time.Time{{}, today.Add(time.Hour), today, today.Add(-59 * time.Second)} {
		s.cluster.heard[nodeName] = heard
		r := s.join()
		s.refused(r, admission.NodeReady)
		if r.refusal.Final || r.refusal.After < 1 || r.refusal.After > 60 {
			t.Errorf("heard %s: come back after %d s, final %v", heard, r.refusal.After, r.refusal.Final)
		}
	}
	if len(s.cluster.spent) != 0 {
		t.Error("a nonce was used")
	}
	s.cluster.heard[nodeName] = today.Add(-time.Minute)
	if r := s.join(); r.status != http.StatusOK {
		t.Errorf("the first try after the Lease is a minute old: %d %s", r.status, r.body)
	}
}

// What Azure signs for every process of a machine deletes no Node, and changes no
// capacity: the machine's absence is the reaper's to find.
func TestDocumentDeletesNoNodeAndNotesNoEviction(t *testing.T) {
	noted := 0
	s := newSite(t, func(c *admission.Config) {
		c.Evicted = func(context.Context, fleet.Member) error { noted++; return nil }
	})
	state := ready()
	state.Ready = false
	s.cluster.nodes[nodeName] = state
	if r := s.ask(wire.LeavePath, wire.LeaveRequest{Cause: "Preempt", Within: 30}); r.status != http.StatusOK || len(s.cluster.drained) != 1 {
		t.Errorf("leave: %d %s", r.status, r.body)
	}
	s.refused(s.ask(wire.LeftPath, wire.LeftRequest{Cause: "Preempt"}), admission.DocumentInsufficient)
	delete(s.cluster.nodes, nodeName)
	if r := s.ask(wire.LeftPath, wire.LeftRequest{Cause: "Preempt"}); r.status != http.StatusOK {
		t.Errorf("left, without a Node: %d %s", r.status, r.body)
	}
	if noted != 0 || len(s.cluster.forgot) != 0 {
		t.Errorf("%d evictions noted, forgot %v", noted, s.cluster.forgot)
	}
	s.cluster.nodes[nodeName] = ready()
	for _, c := range []struct {
		path    string
		request any
	}{{wire.LeavePath, wire.LeaveRequest{Cause: "Preempt", Within: 30}}, {wire.LeftPath, wire.LeftRequest{Cause: "Preempt"}}} {
		if r := s.send(c.path, encode(t, c.request), "", s.authority.kubelet(nil)); r.status != http.StatusOK {
			t.Errorf("by certificate: %s: %d %s", c.path, r.status, r.body)
		}
	}
	if noted != 1 || len(s.cluster.forgot) != 1 {
		t.Errorf("by certificate: %d evictions noted, forgot %v", noted, s.cluster.forgot)
	}
}

// Who sends one document after the other that proves nothing is stopped before the
// next is looked at, and keeps nobody else from joining.
func TestFailedDocumentsOfAnAddressAreBounded(t *testing.T) {
	s := newSite(t, nil)
	good := s.node.signer
	s.node.signer = evil()
	looked := 0
	for range 150 {
		r := s.join()
		if r.refusal.Reason != string(admission.RateLimited) {
			looked++
		}
		s.clock.add(25 * time.Millisecond) // slower than an address may ask
	}
	if looked > 70 {
		t.Errorf("%d documents of one address were looked at within 4 s", looked)
	}
	s.node.signer = good
	body := encode(t, wire.JoinRequest{Distribution: wire.Kubelet, CallbackPort: s.node.port})
	const other = "10.0.0.8:1"
	if got := s.sendFrom(other, wire.JoinPath, body, s.node.header(s.nonceFrom(other), wire.JoinPath, body, s.clock.get())); got.status != http.StatusOK {
		t.Errorf("from another address: %d %s", got.status, got.body)
	}
}

// A machine that was made anew on its disk is admitted again under its vmId. What was
// signed for it before may lie on the old disk.
func TestCertificateFromBeforeTheAdmissionDoesNotCount(t *testing.T) {
	s := newSite(t, nil)
	s.cluster.nodes[nodeName] = ready()
	m, err := s.cloud.Member(t.Context(), instance)
	if err != nil {
		t.Fatal(err)
	}
	m.Created = today.Add(-24 * time.Hour)
	s.cloud.put(m)
	before := s.authority.kubelet(func(c *x509.Certificate) { c.NotBefore = today.Add(-2 * time.Hour) })
	after := s.authority.kubelet(nil)
	s.cluster.admitted = today.Add(-time.Hour)
	leave := encode(t, wire.LeaveRequest{Cause: "Asked", Within: 5})
	s.refused(s.send(wire.LeavePath, leave, "", before), admission.CertificateTooOld)
	if r := s.send(wire.LeavePath, leave, "", after); r.status != http.StatusOK {
		t.Errorf("its own: %d %s", r.status, r.body)
	}
	s.cluster.admitted = time.Time{} // a Node from before Ortet
	if r := s.send(wire.LeavePath, leave, "", before); r.status != http.StatusOK {
		t.Errorf("of a Node that was not admitted: %d %s", r.status, r.body)
	}
}
