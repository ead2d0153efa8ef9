package admission_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/azsim/metadata"
	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/admission/attest"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// Each bad request is refused with its reason, a plain 4xx and a line of the audit
// log, and nothing is granted.
func TestRefused(t *testing.T) {
	const elsewhere = "00000000-1111-2222-3333-444444444444"
	for _, c := range []struct {
		name   string
		change func(*site)
		want   admission.Reason
		status int
	}{
		{"forged document", func(s *site) {
			s.node.proof = func(p *wire.Proof) {
				raw, err := base64.StdEncoding.DecodeString(p.Document)
				if err != nil {
					s.t.Fatal(err)
				}
				p.Document = base64.StdEncoding.EncodeToString(bytes.Replace(raw, []byte(vmID), []byte(elsewhere), 1))
			}
		}, admission.Reason(attest.Forged), 401},
		{"document of another authority", func(s *site) { s.node.signer = evil(); s.node.options.Chain = true }, admission.Reason(attest.Untrusted), 401},
		{"expired document", func(s *site) {
			s.node.document = func(d *metadata.AttestedDocument) {
				d.TimeStamp.CreatedOn, d.TimeStamp.ExpiresOn = "11/21/26 15:57:00 -0000", "11/21/26 15:58:00 -0000"
			}
		}, admission.Reason(attest.Expired), 401},
		{"old document", func(s *site) {
			s.node.document = func(d *metadata.AttestedDocument) { d.TimeStamp.CreatedOn = "11/21/26 15:50:00 -0000" }
		}, admission.Reason(attest.TooOld), 401},
		{"foreign subscription in the document", func(s *site) {
			s.node.document = func(d *metadata.AttestedDocument) { d.SubscriptionID = elsewhere }
		}, admission.ForeignDocument, 403},
		{"foreign subscription in the id", func(s *site) { s.node.resource = strings.Replace(instance, subscription, elsewhere, 1) }, admission.PoolNotAllowed, 403},
		{"wrong nonce in the document", func(s *site) {
			s.node.document = func(d *metadata.AttestedDocument) { d.Nonce = "0123456789abcdef0123456789abcdef" }
		}, admission.Reason(attest.WrongNonce), 401},
		{"document for another key", func(s *site) {
			other := newNode(s.t, instance, vmID)
			s.node.document = func(d *metadata.AttestedDocument) {
				d.Nonce = wire.AttestedNonce(s.nonce(), other.public, instance)
			}
		}, admission.Reason(attest.WrongNonce), 401},
		{"several signers", func(s *site) { s.node.options.Also = []*metadata.Attestor{evil()} }, admission.Reason(attest.NotOneSigner), 401},
		{"a stranger signs, Azure's certificate first", func(s *site) {
			s.node.signer, s.node.options = evil(), metadata.SignOptions{First: []*x509.Certificate{azureSigner().Leaf()}, Chain: true}
		}, admission.Reason(attest.Untrusted), 401},
		{"document of another machine", func(s *site) { s.node.vmID = elsewhere }, admission.VMIDMismatch, 403},
		{"id of another machine", func(s *site) {
			const other = pool + "/virtualMachines/4"
			s.node.resource = other
			s.cloud.put(fleet.Member{Instance: other, Pool: pool, HostName: "pool1000004", VMID: elsewhere})
		}, admission.VMIDMismatch, 403},
		{"id of another scale set", func(s *site) { s.node.resource = strings.Replace(instance, "pool1/", "pool2/", 1) }, admission.PoolNotAllowed, 403},
		{"id with a path", func(s *site) { s.node.resource = instance + "/../4" }, admission.BadResourceID, 403},
		{"id with a query", func(s *site) { s.node.resource = instance + "?api-version=1" }, admission.BadResourceID, 403},
		{"id of a scale set", func(s *site) { s.node.resource = pool }, admission.BadResourceID, 403},
		{"host name with shell characters", hostName("pool$(reboot)"), admission.BadHostName, 403},
		{"host name with a path", hostName("../../etc"), admission.BadHostName, 403},
		{"host name with a dot", hostName("pool.example"), admission.BadHostName, 403},
		{"no host name", hostName(""), admission.BadHostName, 403},
		{"instance deleted before", func(s *site) { s.cloud.remove(instance) }, admission.InstanceGone, 403},
		{"instance being deleted", func(s *site) {
			s.cloud.put(fleet.Member{Instance: instance, Pool: pool, HostName: "pool1000003", VMID: vmID, ProvisioningState: "Deleting"})
		}, admission.InstanceGone, 403},
		{"machine of no scale set", func(s *site) {
			s.node.resource = group + "/providers/Microsoft.Compute/virtualMachines/jumpbox"
			s.cloud.err = &fleet.Error{Op: "find instance", Kind: fleet.KindInvalid}
		}, admission.PoolNotAllowed, 403},
		{"Azure away", func(s *site) {
			s.cloud.err = &fleet.Error{Op: "find instance", Kind: fleet.KindThrottled, RetryAfter: 17 * time.Second}
		}, admission.CloudUnavailable, 503},
		{"node Ready", func(s *site) { s.cluster.nodes["pool1000003"] = admission.NodeState{Exists: true, Ready: true} }, admission.NodeReady, 409},
		{"name of another instance", func(s *site) {
			s.cluster.nodes["pool1000003"] = admission.NodeState{Exists: true, ProviderID: "azure://" + strings.Replace(instance, "pool1/", "pool9/", 1)}
		}, admission.NameTaken, 409},
		{"name admitted for another instance", func(s *site) {
			s.cluster.admits = &fleet.Error{Op: "admit", Kind: fleet.KindConflict, Err: admission.ErrTaken}
		}, admission.NameTaken, 409},
		{"node Ready by the time that it is admitted", func(s *site) {
			s.cluster.admits = &fleet.Error{Op: "admit", Kind: fleet.KindConflict, Err: admission.ErrReady}
		}, admission.NodeReady, 409},
		{"node that changes all the time", func(s *site) {
			s.cluster.admits = &fleet.Error{Op: "admit", Kind: fleet.KindConflict, Err: errors.New("it changed since it was read")}
		}, admission.ClusterChanged, 409},
		{"nobody answers the callback", func(s *site) { s.node.port = 1 }, admission.CallbackFailed, 403},
		{"another key answers the callback", func(s *site) { s.node.newKey() }, admission.CallbackWrongKey, 403},
		{"no address", func(s *site) {
			s.cloud.put(fleet.Member{Instance: instance, Pool: pool, HostName: "pool1000003", VMID: vmID})
		}, admission.CallbackFailed, 403},
		{"signature of another key", func(s *site) {
			s.node.proof = func(p *wire.Proof) { p.Signature[len(p.Signature)-1] ^= 1 }
		}, admission.SignatureInvalid, 401},
		{"key that is none", func(s *site) { s.node.proof = func(p *wire.Proof) { p.PublicKey = []byte("x") } }, admission.BadProof, 401},
		{"made-up nonce", func(s *site) {
			s.node.proof = func(p *wire.Proof) { p.Nonce = strings.Repeat("A", len(p.Nonce)) }
		}, admission.NonceForged, 401},
		{"nonce of another server", func(s *site) {
			nonce := newSite(s.t, nil)
			nonce.cluster.key = bytes.Repeat([]byte{8}, 32)
			other := nonce.nonce()
			s.node.proof = func(p *wire.Proof) { p.Nonce = other }
		}, admission.NonceForged, 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t, nil)
			c.change(s)
			r := s.join()
			s.refused(r, c.want)
			if r.status != c.status {
				t.Errorf("status %d, want %d", r.status, c.status)
			}
			if strings.Contains(r.body, "4-3333") || strings.Contains(r.body, "127.0.0.1") || strings.Contains(r.body, pool) {
				t.Errorf("the answer tells what the asker may not know: %s", r.body)
			}
		})
	}
}

func hostName(name string) func(*site) {
	return func(s *site) {
		m, err := s.cloud.Member(s.t.Context(), instance)
		if err != nil {
			s.t.Fatal(err)
		}
		m.HostName = name
		s.cloud.put(m)
	}
}

func TestThrottlingOfAzureIsPassedOn(t *testing.T) {
	s := newSite(t, nil)
	s.cloud.err = &fleet.Error{Op: "list", Kind: fleet.KindThrottled, RetryAfter: 17 * time.Second}
	if r := s.join(); r.refusal.After != 17 || r.header.Get("Retry-After") != "17" || r.refusal.Final {
		t.Errorf("%+v", r)
	}
}

// A request that was granted once is not granted again, whatever replica is asked.
func TestReplayedRequest(t *testing.T) {
	s := newSite(t, nil)
	replica := newSite(t, func(c *admission.Config) { c.Cluster, c.Directory = s.cluster, s.cloud })
	body := encode(t, wire.JoinRequest{Distribution: wire.Kubelet, CallbackPort: s.node.port})
	header := s.node.header(s.nonce(), wire.JoinPath, body, today)
	if r := s.send(wire.JoinPath, body, header, nil); r.status != http.StatusOK {
		t.Fatalf("%d %s", r.status, r.body)
	}
	delete(s.cluster.tokens, "pool1000003")
	for _, at := range []*site{s, replica} {
		if r := at.send(wire.JoinPath, body, header, nil); r.refusal.Reason != string(admission.NonceSpent) || r.status != http.StatusConflict {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	if n := s.cluster.granted(); n != 0 {
		t.Errorf("%d tokens", n)
	}
}

// A pod of a Ready node has its machine's document, and is refused before the nonce is
// spent for all. Again and again with one proof, it has Azure asked once.
func TestReplayedRefusalAsksAzureOnce(t *testing.T) {
	s := newSite(t, nil)
	s.cluster.nodes["pool1000003"] = admission.NodeState{Exists: true, Ready: true}
	body := encode(t, wire.JoinRequest{Distribution: wire.Kubelet, CallbackPort: s.node.port})
	header := s.node.header(s.nonce(), wire.JoinPath, body, today)
	s.refused(s.send(wire.JoinPath, body, header, nil), admission.NodeReady)
	for range 20 {
		s.refused(s.send(wire.JoinPath, body, header, nil), admission.NonceSpent)
	}
	if s.cloud.asked != 1 || len(s.cluster.spent) != 0 {
		t.Errorf("Azure was asked %d times, %d objects were made", s.cloud.asked, len(s.cluster.spent))
	}
	s.clock.add(2 * time.Minute) // what has expired is forgotten, and expired
	s.refused(s.send(wire.JoinPath, body, header, nil), admission.NonceExpired)
	s.refused(s.join(), admission.NodeReady)
}

// A proof is of one request: neither its body nor its path can be another.
func TestProofOfAnotherRequest(t *testing.T) {
	s := newSite(t, nil)
	body := encode(t, wire.JoinRequest{Distribution: wire.Kubelet, CallbackPort: s.node.port})
	header := s.node.header(s.nonce(), wire.JoinPath, body, today)
	other := encode(t, wire.JoinRequest{Distribution: wire.K3s, CallbackPort: s.node.port})
	s.refused(s.send(wire.JoinPath, other, header, nil), admission.SignatureInvalid)
	left := encode(t, wire.LeftRequest{Cause: "Preempt"})
	header = s.node.header(s.nonce(), wire.LeavePath, left, today)
	s.refused(s.send(wire.LeftPath, left, header, nil), admission.SignatureInvalid)
	if len(s.cluster.forgot) != 0 {
		t.Errorf("deleted %v", s.cluster.forgot)
	}
}

func TestExpiredNonce(t *testing.T) {
	s := newSite(t, nil)
	body := encode(t, wire.JoinRequest{Distribution: wire.Kubelet, CallbackPort: s.node.port})
	nonce := s.nonce()
	s.clock.add(66 * time.Second)
	s.refused(s.send(wire.JoinPath, body, s.node.header(nonce, wire.JoinPath, body, s.clock.get()), nil), admission.NonceExpired)
}

// deleting is a Directory whose instance is deleted as soon as it was looked up.
type deleting struct {
	*cloud
	machine func()
}

func (d deleting) Member(ctx context.Context, id fleet.ResourceID) (fleet.Member, error) {
	m, err := d.cloud.Member(ctx, id)
	d.machine()
	return m, err
}

// An instance may be deleted after it proved itself and before it has a token: then
// nobody answers at its address.
func TestInstanceDeletedBetweenProofAndToken(t *testing.T) {
	s := newSite(t, nil)
	s.cloud.remove(instance)
	s.refused(s.join(), admission.InstanceGone)
	around := newSite(t, nil)
	directory := deleting{around.cloud, func() { around.node.stop() }}
	server, err := admission.New(admission.Config{
		Directory: directory, Cluster: around.cluster, Pools: []fleet.ResourceID{pool}, Audit: slog.New(slog.NewJSONHandler(around.log, nil)), Now: around.clock.get,
		Attest: &attest.Verifier{Roots: azureSigner().Roots(), Issuers: attest.NewFetcher(onlyAzure{}, around.clock.get), Now: around.clock.get},
	})
	if err != nil {
		t.Fatal(err)
	}
	around.handler = server
	around.refused(around.join(), admission.CallbackFailed)
}

func TestClusterAway(t *testing.T) {
	s := newSite(t, nil)
	nonce := s.nonce()
	s.cluster.err = &fleet.Error{Op: "get node", Kind: fleet.KindTransient, Err: errors.New("connection refused to 10.1.2.3")}
	body := encode(t, wire.JoinRequest{Distribution: wire.Kubelet, CallbackPort: s.node.port})
	r := s.send(wire.JoinPath, body, s.node.header(nonce, wire.JoinPath, body, today), nil)
	s.refused(r, admission.ClusterUnavailable)
	if r.status != http.StatusServiceUnavailable || r.refusal.After == 0 || r.refusal.Final || strings.Contains(r.body, "10.1.2.3") {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// Who lost a race in the cluster asks again soon: nothing is away, and nothing is final.
func TestClusterChangedIsAskedAgain(t *testing.T) {
	s := newSite(t, nil)
	s.cluster.admits = &fleet.Error{Op: "make a token", Kind: fleet.KindConflict, Err: errors.New("the object has been modified")}
	r := s.join()
	s.refused(r, admission.ClusterChanged)
	if r.refusal.Final || r.refusal.After < 1 || r.refusal.After > 5 {
		t.Errorf("%d %s", r.status, r.body)
	}
	s.cluster.admits = nil
	if r = s.join(); r.status != http.StatusOK {
		t.Errorf("again: %d %s", r.status, r.body)
	}
}

func TestFormOfRequests(t *testing.T) {
	good := `{"distribution":"kubelet","callbackPort":9440}`
	for _, c := range []struct {
		name, method, path, contentType, body string
		want                                  admission.Reason
		status                                int
	}{
		{"another path", "POST", "/join/pool1000003", "application/json", good, admission.NotFound, 404},
		{"path with dots", "POST", "/v1/../v1/join", "application/json", good, admission.NotFound, 404},
		{"GET", "GET", wire.JoinPath, "application/json", "", admission.MethodNotAllowed, 405},
		{"form", "POST", wire.JoinPath, "application/x-www-form-urlencoded", good, admission.NotJSON, 415},
		{"no content type", "POST", wire.JoinPath, "", good, admission.NotJSON, 415},
		{"another charset", "POST", wire.JoinPath, "application/json; charset=utf-16", good, admission.NotJSON, 415},
		{"oversized", "POST", wire.JoinPath, "application/json", good + strings.Repeat(" ", 5<<10), admission.TooLarge, 413},
		{"oversized verdict", "POST", wire.VerdictPath, "application/json", strings.Repeat(" ", 65<<10), admission.TooLarge, 413},
		{"oversized boot", "POST", wire.BootPath, "application/json", strings.Repeat(" ", 1<<20+1), admission.TooLarge, 413},
		{"no JSON", "POST", wire.JoinPath, "application/json", "hello", admission.BadRequest, 400},
		{"unknown field", "POST", wire.JoinPath, "application/json", `{"distribution":"kubelet","callbackPort":9440,"nodeName":"master0"}`, admission.BadRequest, 400},
		{"two objects", "POST", wire.JoinPath, "application/json", good + good, admission.BadRequest, 400},
		{"no port", "POST", wire.JoinPath, "application/json", `{"distribution":"kubelet"}`, admission.BadRequest, 400},
		{"no proof", "POST", wire.JoinPath, "application/json", good, admission.NoProof, 401},
		{"leave without proof", "POST", wire.LeavePath, "application/json; charset=utf-8", `{"cause":"Preempt","withinSeconds":30}`, admission.NoProof, 401},
		{"left without proof", "POST", wire.LeftPath, "application/json", `{"cause":"Preempt"}`, admission.NoProof, 401},
		{"cause with shell characters", "POST", wire.LeftPath, "application/json", `{"cause":"$(reboot)"}`, admission.BadRequest, 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, chunked := range []bool{false, true} {
				s := newSite(t, nil)
				r := httptest.NewRequestWithContext(t.Context(), c.method, "/", strings.NewReader(c.body))
				r.URL.Path, r.RemoteAddr = c.path, "10.0.0.9:1"
				if chunked { // no length is said beforehand
					r.ContentLength = -1
				}
				if c.contentType != "" {
					r.Header.Set("Content-Type", c.contentType)
				}
				got := s.do(r)
				s.refused(got, c.want)
				if got.status != c.status {
					t.Errorf("status %d, want %d", got.status, c.status)
				}
			}
		})
	}
}

func TestProofsThatCannotBeRead(t *testing.T) {
	s := newSite(t, nil)
	body := []byte(`{"distribution":"kubelet","callbackPort":9440}`)
	for _, header := range []string{"Bearer abc", "Ortet", "Ortet §", "Ortet " + base64.RawURLEncoding.EncodeToString([]byte(`{}`)), "Ortet " + strings.Repeat("A", 25<<10)} {
		s.refused(s.send(wire.JoinPath, body, header, nil), admission.BadProof)
	}
}

// stalled is a body that ends in an error, as a connection's that was cut.
type stalled struct{ err error }

func (b stalled) Read([]byte) (int, error) { return 0, b.err }

func TestBodiesThatDoNotArrive(t *testing.T) {
	s := newSite(t, nil)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, wire.JoinPath, io.NopCloser(stalled{io.ErrUnexpectedEOF}))
	r.Header.Set("Content-Type", "application/json")
	s.refused(s.do(r), admission.Canceled)
}

func TestPoliteness(t *testing.T) {
	s := newSite(t, func(c *admission.Config) {
		c.Limits = admission.DefaultLimits()
		c.Limits.AddressRate, c.Limits.AddressBurst = 1, 3
		c.Jitter = func() float64 { return 0.5 }
	})
	for range 3 {
		s.nonce()
	}
	r := s.send(wire.NoncePath, []byte(`{}`), "", nil)
	if r.status != http.StatusTooManyRequests || r.refusal.After != 3 || r.refusal.Final {
		t.Errorf("%d %s", r.status, r.body)
	}
	for range 50 {
		s.send(wire.NoncePath, []byte(`{}`), "", nil)
	}
	if n := strings.Count(s.log.String(), string(admission.RateLimited)); n != 1 {
		t.Errorf("%d lines of one who asks too often, want one in ten seconds", n)
	}
	if n := decisions(t, s, admission.RateLimited); n != 51 {
		t.Errorf("%v counted, want all 51", n)
	}
	s.clock.add(2 * time.Second)
	s.nonce() // and later is answered again
}

func decisions(t *testing.T, s *site, reason admission.Reason) float64 {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	for _, f := range families {
		if f.GetName() != "ortet_admission_decisions_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "reason" && l.GetValue() == string(reason) {
					sum += m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

// One who asks without end does not keep the others from being answered, and what is
// known of who asks is bounded.
func TestRatesAreOfEachAddress(t *testing.T) {
	s := newSite(t, func(c *admission.Config) {
		c.Limits = admission.DefaultLimits()
		c.Limits.AddressRate, c.Limits.AddressBurst, c.Limits.Burst = 1, 1, 100000
	})
	from := func(address string) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, wire.NoncePath, strings.NewReader(`{}`))
		r.Header.Set("Content-Type", "application/json")
		r.RemoteAddr = address
		return s.do(r).status
	}
	for _, c := range []struct {
		address string
		want    int
	}{
		{"10.0.0.1:1", 200}, {"10.0.0.1:2", 429}, {"[::ffff:10.0.0.1]:3", 429}, {"10.0.0.2:1", 200},
		{"[2001:db8::1]:1", 200}, {"[2001:db8::2]:1", 429}, {"[2001:db8:0:1::1]:1", 200}, {"nonsense", 200}, {"other nonsense", 429},
	} {
		if got := from(c.address); got != c.want {
			t.Errorf("%s: %d, want %d", c.address, got, c.want)
		}
	}
}

func TestOnlyTheNodesPortIsCalledBack(t *testing.T) {
	s := newSite(t, func(c *admission.Config) {
		c.CallbackPorts = admission.Ports{{First: 1, Last: 1023}, {First: 9440, Last: 9440}}
	})
	s.refused(s.ask(wire.JoinPath, wire.JoinRequest{Distribution: wire.Kubelet, CallbackPort: s.node.port}), admission.CallbackPortForbidden)
	if len(s.cluster.tokens) > 0 {
		t.Error("a token was made")
	}
}
