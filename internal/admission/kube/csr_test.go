package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/netip"
	"net/url"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/fleet"
)

const (
	client  = certificatesv1.KubeAPIServerClientKubeletSignerName
	serving = certificatesv1.KubeletServingSignerName
)

// asked is a request as kubelets make it, changed.
func asked(t testing.TB, key *ecdsa.PrivateKey, subject string, change func(*x509.CertificateRequest)) []byte {
	t.Helper()
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: subject, Organization: []string{"system:nodes"}}}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func TestDecideCSR(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keyOf := func(k *ecdsa.PrivateKey) string {
		return csrOf(&certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: client, Request: asked(t, k, "x", nil)}}).key
	}
	own := token{id: "abcdef", node: "pool1000001"}
	bound, taken, later := own, own, own
	own.made, later.made = noon, noon.Add(2*time.Minute)
	bound.key, taken.key = keyOf(key), keyOf(other)
	member := fleet.Member{HostName: "POOL1000001", VMID: "vm-a", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.4"), netip.MustParseAddr("fd00::4")}}
	stranger := member
	stranger.VMID = "vm-b"
	there := facts{admission: admitted{VMID: "vm-a", Instance: "/i"}, admitted: true, member: &member, mayAsk: true}
	earlier := there
	earlier.mayAsk = false
	asToken := func(s *certificatesv1.CertificateSigningRequestSpec) {
		s.Username, s.Groups = "system:bootstrap:abcdef", []string{"system:bootstrappers", "system:bootstrappers:ortet", "system:authenticated"}
	}
	asNode := func(s *certificatesv1.CertificateSigningRequestSpec) {
		s.Username, s.Groups = "system:node:pool1000001", []string{"system:nodes", "system:authenticated"}
	}
	type change = func(*certificatesv1.CertificateSigningRequestSpec)
	pemOf := func(subject string, c func(*x509.CertificateRequest)) change {
		return func(s *certificatesv1.CertificateSigningRequestSpec) { s.Request = asked(t, key, subject, c) }
	}
	me := "system:node:pool1000001"
	serve := func(c func(*x509.CertificateRequest)) change {
		return func(s *certificatesv1.CertificateSigningRequestSpec) {
			s.SignerName, s.Usages = serving, []certificatesv1.KeyUsage{certificatesv1.UsageServerAuth, certificatesv1.UsageDigitalSignature}
			s.Request = asked(t, key, me, c)
		}
	}
	names := func(dns []string, ips ...string) func(*x509.CertificateRequest) {
		return func(r *x509.CertificateRequest) {
			r.DNSNames = dns
			for _, ip := range ips {
				r.IPAddresses = append(r.IPAddresses, net.ParseIP(ip))
			}
		}
	}
	for _, c := range []struct {
		name    string
		changes []change
		facts   facts
		verb    Verb
		reason  string
	}{
		{"a machine's first certificate", []change{asToken}, facts{token: &own}, Approve, TokenProven},
		{"again with its key", []change{asToken}, facts{token: &bound}, Approve, TokenProven},
		{"RSA's usages", []change{asToken, func(s *certificatesv1.CertificateSigningRequestSpec) {
			s.Usages = append(s.Usages, certificatesv1.UsageKeyEncipherment)
		}}, facts{token: &own}, Approve, TokenProven},
		{"a token used twice", []change{asToken}, facts{token: &taken}, Deny, TokenUsedTwice},
		{"another name", []change{asToken, pemOf("system:node:pool1000002", nil)}, facts{token: &own}, Deny, TokenOtherName},
		{"no node's name", []change{asToken, pemOf("pool1000001", nil)}, facts{token: &own}, Deny, TokenOtherName},
		{"upper case", []change{asToken, pemOf("system:node:POOL1000001", nil)}, facts{token: &own}, Deny, TokenOtherName},
		{"an administrator's group", []change{asToken, pemOf(me, func(r *x509.CertificateRequest) { r.Subject.Organization = []string{"system:masters"} })}, facts{token: &own}, Deny, TokenMisused},
		{"another group beside", []change{asToken, pemOf(me, func(r *x509.CertificateRequest) { r.Subject.Organization = []string{"system:nodes", "system:masters"} })}, facts{token: &own}, Deny, TokenMisused},
		{"more of a subject", []change{asToken, pemOf(me, func(r *x509.CertificateRequest) { r.Subject.OrganizationalUnit = []string{"x"} })}, facts{token: &own}, Deny, TokenMisused},
		{"a DNS name", []change{asToken, pemOf(me, names([]string{"kubernetes"}))}, facts{token: &own}, Deny, TokenMisused},
		{"a URI", []change{asToken, pemOf(me, func(r *x509.CertificateRequest) { r.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}} })}, facts{token: &own}, Deny, TokenMisused},
		{"a server's usage", []change{asToken, func(s *certificatesv1.CertificateSigningRequestSpec) {
			s.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageServerAuth}
		}}, facts{token: &own}, Deny, TokenMisused},
		{"a serving certificate by token", []change{serve(names([]string{"pool1000001"})), asToken}, facts{token: &own}, Deny, TokenMisused},
		{"another signer by token", []change{asToken, func(s *certificatesv1.CertificateSigningRequestSpec) {
			s.SignerName = certificatesv1.KubeAPIServerClientSignerName
		}}, facts{token: &own}, Deny, TokenMisused},
		{"no request by token", []change{asToken, func(s *certificatesv1.CertificateSigningRequestSpec) { s.Request = []byte("nonsense") }}, facts{token: &own}, Deny, RequestUnreadable},
		{"two requests by token", []change{asToken, func(s *certificatesv1.CertificateSigningRequestSpec) {
			s.Request = append(s.Request, asked(t, key, "system:node:pool1000002", nil)...)
		}}, facts{token: &own}, Deny, RequestUnreadable},
		{"our token after its end", []change{asToken}, facts{}, Leave, TokenUnknown},
		{"an earlier token of the name", []change{asToken}, facts{token: &later}, Leave, TokenUnknown},
		{"another group's token, with a record", []change{asToken, func(s *certificatesv1.CertificateSigningRequestSpec) {
			s.Groups = []string{"system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token"}
		}}, facts{token: &own}, Leave, TokenUnknown},
		{"kubeadm's token", []change{asToken, func(s *certificatesv1.CertificateSigningRequestSpec) {
			s.Groups = []string{"system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token"}
		}}, facts{}, Leave, TokenUnknown},

		{"a renewal", []change{asNode}, there, Approve, NodeProven},
		{"of a node that was not admitted", []change{asNode}, facts{}, Leave, NotAdmitted},
		{"of an instance that is gone", []change{asNode}, facts{admission: there.admission, admitted: true}, Leave, InstanceGone},
		{"of another machine by now", []change{asNode}, facts{admission: there.admission, admitted: true, member: &stranger}, Leave, OtherMachine},
		{"a renewal with an earlier machine's certificate", []change{asNode}, earlier, Leave, OtherCertificate},
		{"serving with an earlier machine's certificate", []change{serve(names([]string{"pool1000001"}, "10.0.0.4")), asNode}, earlier, Leave, OtherCertificate},
		{"for another node", []change{asNode, pemOf("system:node:pool1000002", nil)}, there, Leave, NotKubelet},
		{"a renewal with names", []change{asNode, pemOf(me, names([]string{"x"}))}, there, Leave, NotKubelet},
		{"a node that is none", []change{asNode, func(s *certificatesv1.CertificateSigningRequestSpec) { s.Groups = nil }}, there, Leave, NotKubelet},
		{"serving", []change{serve(names([]string{"pool1000001"}, "10.0.0.4", "fd00::4")), asNode}, there, Approve, NodeProven},
		{"serving its host name", []change{serve(names([]string{"POOL1000001", "pool1000001"})), asNode}, there, Approve, NodeProven},
		{"serving a foreign address", []change{serve(names([]string{"pool1000001"}, "10.0.0.5")), asNode}, there, Leave, NotItsAddress},
		{"serving loopback", []change{serve(names(nil, "127.0.0.1")), asNode}, there, Leave, NotItsAddress},
		{"serving a foreign name", []change{serve(names([]string{"kubernetes.default"})), asNode}, there, Leave, NotItsAddress},
		{"serving nothing", []change{serve(nil), asNode}, there, Leave, NotItsAddress},
		{"serving mail", []change{serve(func(r *x509.CertificateRequest) {
			r.EmailAddresses = []string{"a@b.c"}
			r.DNSNames = []string{"pool1000001"}
		}), asNode}, there, Leave, NotItsAddress},
		{"a person", []change{func(s *certificatesv1.CertificateSigningRequestSpec) { s.Username = "jane" }}, there, Leave, NotKubelet},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(noon)}, Spec: certificatesv1.CertificateSigningRequestSpec{
				SignerName: client, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}, Request: asked(t, key, me, nil),
			}}
			for _, change := range c.changes {
				change(&r.Spec)
			}
			if d := decideCSR(csrOf(r), c.facts); d.verb != c.verb || d.reason != c.reason || d.message == "" {
				t.Errorf("%s, %s: %s; want %s, %s", d.verb, d.reason, d.message, c.verb, c.reason)
			}
		})
	}
}

// Whatever stands in a request, nothing is approved but for the node that asks.
func FuzzCSR(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(asked(f, key, "system:node:n", nil), "system:bootstrap:abcdef", client)
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\n"), "system:node:n", serving)
	f.Fuzz(func(t *testing.T, request []byte, user, signer string) {
		r := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request, Username: user, SignerName: signer, Groups: []string{"system:nodes", TokenGroup},
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		}}
		ask := csrOf(r)
		d := decideCSR(ask, facts{token: &token{node: "n"}, admitted: true, member: &fleet.Member{HostName: "n"}, mayAsk: true})
		if d.verb != Approve {
			return
		}
		if got := ask.wants.Subject.CommonName; got != "system:node:"+d.node || subjectNode(r) != d.node || signer != client {
			t.Errorf("approved %q for %q by %q", got, d.node, user)
		}
	})
}
