package admission_test

import (
	"context"
	"crypto/x509"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

const nodeName = "pool1000003"

func ready() admission.NodeState {
	return admission.NodeState{Exists: true, Ready: true, ProviderID: "azure://" + instance}
}

func TestLeaveByCertificateAndByProof(t *testing.T) {
	for _, by := range []string{"certificate", "document"} {
		t.Run(by, func(t *testing.T) {
			s := newSite(t, nil)
			state := ready()
			state.Ready = by == "certificate"
			s.cluster.nodes[nodeName] = state
			ask := func(path string, request any) {
				t.Helper()
				var r reply
				if by == "document" {
					r = s.ask(path, request)
				} else {
					r = s.send(path, encode(t, request), "", s.authority.kubelet(nil))
				}
				if r.status != http.StatusOK {
					t.Fatalf("%s: %d %s\n%s", path, r.status, r.body, s.log)
				}
			}
			ask(wire.LeavePath, wire.LeaveRequest{Cause: "Preempt", Within: 30})
			ask(wire.BackPath, struct{}{})
			if by == "certificate" {
				ask(wire.LeftPath, wire.LeftRequest{Cause: "Preempt"})
				if !slices.Equal(s.cluster.forgot, []string{nodeName + " azure://" + instance}) {
					t.Errorf("forgot %v", s.cluster.forgot)
				}
			}
			if !slices.Equal(s.cluster.drained, []wire.LeaveRequest{{Cause: "Preempt", Within: 30}}) || !slices.Equal(s.cluster.returned, []string{nodeName}) {
				t.Errorf("drained %+v, returned %v", s.cluster.drained, s.cluster.returned)
			}
			if !strings.Contains(s.log.String(), `"by":"`+by+`"`) {
				t.Errorf("the audit log does not say how it was proven:\n%s", s.log)
			}
		})
	}
}

// A pod that reaches the metadata service has its machine's document: it cannot have
// its node drained or deleted by it.
func TestPodCannotHaveItsNodeLeave(t *testing.T) {
	s := newSite(t, nil)
	s.cluster.nodes[nodeName] = ready()
	s.refused(s.ask(wire.LeavePath, wire.LeaveRequest{Cause: "Preempt", Within: 30}), admission.CertificateNeeded)
	s.refused(s.ask(wire.LeftPath, wire.LeftRequest{Cause: "Preempt"}), admission.CertificateNeeded)
	s.refused(s.ask(wire.BackPath, struct{}{}), admission.CertificateNeeded)
	if len(s.cluster.drained)+len(s.cluster.forgot)+len(s.cluster.returned) != 0 {
		t.Error("it was done all the same")
	}
}

// A Node is not Ready for moments now and then, and its pods are there: for as long as
// its kubelet is heard of, none of them can have it leave.
func TestPodCannotHaveItsNodeLeaveWhileItsKubeletLives(t *testing.T) {
	s := newSite(t, nil)
	state := ready()
	state.Ready = false
	s.cluster.nodes[nodeName] = state
	for _, ago := range []time.Duration{-time.Hour, 0, 59 * time.Second} {
		s.cluster.heard[nodeName] = today.Add(-ago)
		s.refused(s.ask(wire.LeavePath, wire.LeaveRequest{Cause: "Preempt", Within: 30}), admission.CertificateNeeded)
		s.refused(s.ask(wire.LeftPath, wire.LeftRequest{Cause: "Preempt"}), admission.CertificateNeeded)
		s.refused(s.ask(wire.BackPath, struct{}{}), admission.CertificateNeeded)
	}
	if len(s.cluster.drained)+len(s.cluster.forgot)+len(s.cluster.returned)+len(s.cluster.spent) != 0 {
		t.Error("it was done all the same")
	}
	// What it says of its boot does nothing to the Node.
	if r := s.ask(wire.VerdictPath, wire.Verdict{Outcome: wire.Failed, Reason: "DiskFull", Node: nodeName, VMID: vmID, At: today}); r.status != http.StatusOK {
		t.Errorf("a verdict: %d %s", r.status, r.body)
	}
	s.cluster.heard[nodeName] = today.Add(-time.Minute)
	if r := s.ask(wire.LeavePath, wire.LeaveRequest{Cause: "Preempt", Within: 30}); r.status != http.StatusOK || len(s.cluster.drained) != 1 {
		t.Errorf("a machine whose kubelet stands still: %d %s", r.status, r.body)
	}
}

// One node's requests to leave, which may each wait for a quarter of an hour, leave the
// places to the others.
func TestOneNodeDoesNotTakeAllDrains(t *testing.T) {
	goes := make(chan struct{})
	s := newSite(t, nil)
	s.cluster.nodes[nodeName] = ready()
	var working atomic.Int32
	s.cluster.hold = func(context.Context) {
		working.Add(1)
		<-goes
	}
	kubelet := s.authority.kubelet(nil)
	ask := func() reply {
		return s.send(wire.LeavePath, encode(t, wire.LeaveRequest{Cause: "Asked", Within: 900}), "", kubelet)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if r := ask(); r.status != http.StatusOK {
				t.Errorf("%d %s", r.status, r.body)
			}
		})
	}
	// A request in flight may not have its place yet, and this one would take it.
	waitFor(t, func() bool { return working.Load() == 4 })
	refused := 0
	for range 300 { // more than there are places
		if r := ask(); r.status == http.StatusTooManyRequests && r.refusal.Reason == string(admission.RateLimited) {
			refused++
		}
		s.clock.add(time.Second)
	}
	if n := metric(t, s, "ortet_admission_in_flight"); refused != 300 || n != 4 {
		t.Errorf("%d of 300 were refused, %v are worked on", refused, n)
	}
	close(goes)
	all.Wait()
	if r := ask(); r.status != http.StatusOK {
		t.Errorf("afterwards: %d %s", r.status, r.body)
	}
}

// k3s's certificates begin when its authority does, and are good for a year.
func TestCertificateOfK3s(t *testing.T) {
	for year, want := range map[time.Duration]int{-time.Minute: http.StatusOK, -time.Hour: http.StatusUnauthorized} {
		s := newSite(t, nil)
		s.cluster.nodes[nodeName] = ready()
		m, err := s.cloud.Member(t.Context(), instance)
		if err != nil {
			t.Fatal(err)
		}
		m.Created = today.Add(-10 * time.Minute)
		s.cloud.put(m)
		certificate := s.authority.kubelet(func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = s.authority.certificate.NotBefore, today.Add(year).AddDate(0, 0, 365)
		})
		if r := s.send(wire.LeftPath, encode(t, wire.LeftRequest{Cause: "Asked"}), "", certificate); r.status != want {
			t.Errorf("signed %s ago: %d %s, want %d", -year, r.status, r.body, want)
		}
	}
}

// Once the Node is gone, whatever has its name belongs to the next machine: a late
// left deletes nothing.
func TestLeftAgainDeletesNothing(t *testing.T) {
	s := newSite(t, nil)
	for _, c := range []struct {
		path    string
		request any
	}{{wire.LeavePath, wire.LeaveRequest{Cause: "Asked", Within: 5}}, {wire.LeftPath, wire.LeftRequest{Cause: "Asked"}}, {wire.BackPath, struct{}{}}} {
		if r := s.send(c.path, encode(t, c.request), "", s.authority.kubelet(nil)); r.status != http.StatusOK {
			t.Errorf("%s: %d %s", c.path, r.status, r.body)
		}
	}
	if len(s.cluster.forgot)+len(s.cluster.drained)+len(s.cluster.returned) != 0 {
		t.Errorf("forgot %v, drained %v", s.cluster.forgot, s.cluster.drained)
	}
}

func TestCertificatesThatDoNotCount(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*x509.Certificate)
		around func(*site)
		want   admission.Reason
		status int
	}{
		{"expired", func(c *x509.Certificate) { c.NotBefore, c.NotAfter = today.Add(-2*time.Hour), today.Add(-time.Hour) }, nil, admission.BadCertificate, 401},
		{"a server's", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }, nil, admission.BadCertificate, 401},
		{"of another cluster", nil, func(s *site) { s.authority = newAuthority(s.t) }, admission.BadCertificate, 401},
		{"an administrator's", func(c *x509.Certificate) {
			c.Subject.CommonName, c.Subject.Organization = "kubernetes-admin", []string{"system:masters"}
		}, nil, admission.NotANode, 403},
		{"a node's name without its group", func(c *x509.Certificate) { c.Subject.Organization = nil }, nil, admission.NotANode, 403},
		{"a name with a path", func(c *x509.Certificate) { c.Subject.CommonName = "system:node:../x" }, nil, admission.NotANode, 403},
		{"of an earlier machine of the name", func(c *x509.Certificate) { c.NotBefore = today.Add(-10 * time.Minute) }, nil, admission.CertificateTooOld, 401},
		{"of a machine of which Azure does not say since when it is", nil, func(s *site) {
			s.cloud.put(fleet.Member{Instance: instance, Pool: pool, HostName: nodeName, VMID: vmID})
		}, admission.CertificateTooOld, 401},
		{"of a node elsewhere", nil, func(s *site) {
			s.cluster.nodes[nodeName] = admission.NodeState{Exists: true, ProviderID: "aws:///x"}
		}, admission.NodeUnknown, 401},
		{"of another scale set", nil, func(s *site) {
			s.cluster.nodes[nodeName] = admission.NodeState{Exists: true, ProviderID: "azure://" + strings.Replace(instance, "pool1/", "other/", 1)}
		}, admission.NodeUnknown, 401},
		{"of an instance with another name", nil, func(s *site) {
			s.cloud.put(fleet.Member{Instance: instance, Pool: pool, HostName: "pool1000004", VMID: vmID})
		}, admission.NodeUnknown, 401},
		{"of an instance that is gone", nil, func(s *site) { s.cloud.remove(instance) }, admission.InstanceGone, 403},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t, nil)
			s.cluster.nodes[nodeName] = ready()
			certificate := s.authority.kubelet(c.change)
			if c.around != nil {
				c.around(s)
			}
			r := s.send(wire.LeftPath, encode(t, wire.LeftRequest{Cause: "Asked"}), "", certificate)
			s.refused(r, c.want)
			if r.status != c.status || len(s.cluster.forgot) != 0 {
				t.Errorf("status %d, forgot %v", r.status, s.cluster.forgot)
			}
		})
	}
}

// Azure deletes an instance only after its notice, or once the node acknowledges: by then
// it has left.
func TestInstanceBeingDeletedLeaves(t *testing.T) {
	s := newSite(t, nil)
	s.cluster.nodes[nodeName] = ready()
	s.cloud.put(fleet.Member{Instance: instance, Pool: pool, HostName: nodeName, VMID: vmID, Created: today.Add(-time.Hour), ProvisioningState: "Deleting"})
	r := s.send(wire.LeftPath, encode(t, wire.LeftRequest{Cause: "Terminate"}), "", s.authority.kubelet(nil))
	if r.status != http.StatusOK || len(s.cluster.forgot) != 1 {
		t.Errorf("status %d %s, forgot %v", r.status, r.body, s.cluster.forgot)
	}
}

// A certificate is no way to a token: what a node has it keeps.
func TestJoinTakesNoCertificate(t *testing.T) {
	s := newSite(t, nil)
	body := encode(t, wire.JoinRequest{Distribution: wire.Kubelet, CallbackPort: s.node.port})
	s.refused(s.send(wire.JoinPath, body, "", s.authority.kubelet(nil)), admission.NoProof)
}

func TestReportsAreKept(t *testing.T) {
	s := newSite(t, nil)
	verdict := wire.Verdict{Outcome: wire.Failed, Reason: "DiskFull", Node: nodeName, VMID: vmID, At: today}
	if r := s.ask(wire.VerdictPath, verdict); r.status != http.StatusOK {
		t.Errorf("%d %s", r.status, r.body)
	}
	verdict.VMID = "00000000-1111-2222-3333-444444444444"
	s.refused(s.ask(wire.VerdictPath, verdict), admission.ForeignReport)
	s.refused(s.ask(wire.BootPath, map[string]any{"version": 99}), admission.BadRequest)
	// A Ready node has pods, who could have Azure sign for them too.
	s.cluster.nodes[nodeName] = ready()
	verdict.VMID = vmID
	s.refused(s.ask(wire.VerdictPath, verdict), admission.CertificateNeeded)
	boot := wire.BootReport{Version: wire.BootReportVersion, Node: nodeName, VMID: vmID}
	if r := s.send(wire.BootPath, encode(t, boot), "", s.authority.kubelet(nil)); r.status != http.StatusOK {
		t.Errorf("%d %s", r.status, r.body)
	}
	if len(s.cluster.verdicts) != 1 || s.cluster.verdicts[0].Reason != "DiskFull" || len(s.cluster.boots) != 1 {
		t.Errorf("%+v %+v", s.cluster.verdicts, s.cluster.boots)
	}
	if len(s.cluster.verdicts) != 1 || len(s.cluster.boots) != 1 {
		t.Error("a foreign or unreadable report was kept")
	}
}
