package kube

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/fleet"
)

// What counts is what the approver granted to the machine, and what was asked for with
// that; the newest is kept, and the one with which it was asked for.
func TestCounting(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 11, 21, 12, minute, 0, 0, time.UTC) }
	first := issued{at: at(0), is: "a", vmID: "vm-a"}
	for _, c := range []struct {
		name   string
		kept   string
		all    []issued
		counts string // sorted
		next   string
	}{
		{"nothing yet", "-", nil, "", "-"},
		{"the first", "-", []issued{first}, "a", "a"},
		{"the first of another machine", "-", []issued{{at: at(0), is: "x", vmID: "vm-x"}}, "", "-"},
		{"one that somebody else approved", "-", []issued{{at: at(0), is: "x"}}, "", "-"},
		{"a renewal", "a", []issued{{at: at(1), is: "b", with: "a", vmID: "vm-a"}}, "ab", "b,a"},
		{"a renewal that the controller manager approved", "a", []issued{{at: at(1), is: "b", with: "a"}}, "ab", "b,a"},
		{"an earlier machine's renewal that the controller manager approved", "a", []issued{{at: at(1), is: "y", with: "x"}}, "a", "a"},
		{"two renewals since, in whatever order they are told", "-", []issued{{at: at(2), is: "c", with: "b"}, first, {at: at(1), is: "b", with: "a"}}, "abc", "c,b"},
		{"clocks of API servers apart", "-", []issued{{at: at(1), is: "c", with: "b"}, first, {at: at(2), is: "b", with: "a"}}, "abc", "c,b"},
		{"renewals that the kubelet could not write down", "a", []issued{{at: at(1), is: "b", with: "a", vmID: "vm-a"}, {at: at(2), is: "c", with: "a", vmID: "vm-a"}, {at: at(3), is: "d", with: "a", vmID: "vm-a"}}, "abcd", "d,a"},
		{"the token used again by its key", "-", []issued{first, {at: at(1), is: "b", vmID: "vm-a"}}, "ab", "b,a"},
		{"kept already", "b,a", []issued{first, {at: at(1), is: "b", with: "a", vmID: "vm-a"}}, "ab", "b,a"},
		{"the newest is gone from the cluster", "b,a", []issued{first}, "ab", "b,a"},
		{"before 1.32", "a", []issued{{at: at(1), is: "b", vmID: "vm-a"}}, "ab", "b,a"},
		{"an admission of an earlier version", "", []issued{{at: at(1), is: "b", with: "a", vmID: "vm-a"}}, "b", "b,a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := admitted{VMID: "vm-a", Certificates: c.kept}
			told := slices.Clone(c.all)
			counts, next := a.counting(c.all)
			var names []string
			for _, f := range slices.Sorted(maps.Keys(counts)) {
				names = append(names, string(f))
			}
			if got := strings.Join(names, ""); got != c.counts || next.Certificates != c.next || next.VMID != "vm-a" {
				t.Errorf("%q count, %q are kept; want %q, %q", got, next.Certificates, c.counts, c.next)
			}
			if !slices.Equal(told, c.all) {
				t.Error("what it was given changed")
			}
			if _, again := next.counting(c.all); again != next {
				t.Errorf("then %q are kept", again.Certificates)
			}
		})
	}
}

// Kubernetes deletes what was signed in whatever order, some of it minutes after the
// rest. What is left by then is no news, and the machine keeps the one that it has.
func TestCountingWhileRequestsGo(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	all := []issued{{at: at, is: "a", vmID: "vm-a"}}
	// Renewals that the kubelet could not write down, but for the last.
	for i, is := range []fingerprint{"b", "c", "d"} {
		all = append(all, issued{at: at.Add(time.Duration(i+1) * time.Minute), is: is, with: "a", vmID: "vm-a"})
	}
	_, kept := admitted{VMID: "vm-a", Certificates: noCertificate}.counting(all)
	for left := range 1 << len(all) {
		var some []issued
		for i, c := range all {
			if left&(1<<i) != 0 {
				some = append(some, c)
			}
		}
		_, next := kept.counting(some)
		pools := []string{""}
		written, err := parseEntry(next.entry(&pools), pools)
		if err != nil {
			t.Fatal(err)
		}
		if !written.mayAsk("d", nil) {
			t.Errorf("with %v left, %q are kept, and not the newest", some, next.Certificates)
		}
	}
	if _, next := kept.counting([]issued{{at: at.Add(time.Hour), is: "e", with: "d", vmID: "vm-a"}}); next.Certificates != "e,d" || !next.Newest.Equal(at.Add(time.Hour)) {
		t.Errorf("the next one: %+v", next)
	}
}

func TestMayAsk(t *testing.T) {
	bound := admitted{VMID: "vm-a", Certificates: "b,a"}
	for _, c := range []struct {
		name string
		a    admitted
		with fingerprint
		want bool
	}{
		{"the newest", bound, "b", true},
		{"the one before", bound, "a", true},
		{"another", bound, "x", false},
		{"not by a certificate", bound, otherCredential, false},
		{"before the first", admitted{VMID: "vm-a", Certificates: noCertificate}, "x", false},
		{"a dash", admitted{VMID: "vm-a", Certificates: noCertificate}, noCertificate, false},
		{"an API server that does not say", bound, "", true},
		{"an admission of an earlier version", admitted{VMID: "vm-a"}, "x", true},
	} {
		if got := c.a.mayAsk(c.with, nil); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// A machine that is admitted again, since its disk was made anew, begins without
// certificates: neither what was kept nor what was granted before counts, nor what is
// asked for with it.
func TestReimageRetiresCertificates(t *testing.T) {
	again := noon.Add(2 * time.Hour)
	before := []issued{
		{at: noon, is: "a", vmID: "vm-a", admitted: noon}, {at: noon.Add(time.Minute), is: "b", with: "a", vmID: "vm-a", admitted: noon},
		{at: again.Add(time.Minute), is: "c", with: "b"}, // which somebody else approved
		{at: noon, is: "d", vmID: "vm-a"},                // by an earlier version
	}
	a := admittedOf(fleet.Member{VMID: "vm-a", Instance: "/i"}, again)
	if counts, next := a.counting(before); len(counts) != 0 || next != a {
		t.Errorf("%v count, %+v", counts, next)
	}
	after := append(slices.Clone(before), issued{at: again.Add(time.Second), is: "n", vmID: "vm-a", admitted: again.Truncate(time.Second)})
	for _, with := range []fingerprint{"a", "b", "c", "d", "n"} {
		if got := a.mayAsk(with, after); got != (with == "n") {
			t.Errorf("asked with %s: %v", with, got)
		}
	}
	if _, next := a.counting(after); next.Certificates != "n" {
		t.Errorf("%+v", next)
	}
}

func TestAskedWith(t *testing.T) {
	sum := sha256.Sum256([]byte("certificate"))
	own := ofCertificate + hex.EncodeToString(sum[:])
	for _, c := range []struct {
		said []string
		want fingerprint
	}{
		{nil, ""}, {[]string{own}, fingerprintOf(sum[:])},
		{[]string{}, otherCredential}, {[]string{own, own}, otherCredential}, {[]string{"JTI=1"}, otherCredential},
		{[]string{own[:len(own)-2]}, otherCredential}, {[]string{own + "00"}, otherCredential}, {[]string{""}, otherCredential},
	} {
		spec := certificatesv1.CertificateSigningRequestSpec{Extra: map[string]certificatesv1.ExtraValue{"other": {own}}}
		if c.said != nil {
			spec.Extra[credentialID] = c.said
		}
		if got := askedWith(spec); got != c.want {
			t.Errorf("%q: %q, want %q", c.said, got, c.want)
		}
	}
}

// Of a request that is decided is kept what tells of its certificate, and nothing that
// who asks wrote there himself.
func TestLeanRequest(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("the one before"))
	der := []byte("certificate")
	own := sha256.Sum256(der)
	forged := map[string]string{annotationNode: "other", annotationCertificate: "x", annotationAskedWith: "x", annotationVMID: "vm-x"}
	made := func(change func(*certificatesv1.CertificateSigningRequest)) *certificatesv1.CertificateSigningRequest {
		r := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr-1", Annotations: maps.Clone(forged)},
			Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: client, Username: "system:node:n", Groups: []string{"system:nodes"}, Request: asked(t, key, "system:node:n", nil),
				Extra: map[string]certificatesv1.ExtraValue{credentialID: {ofCertificate + hex.EncodeToString(sum[:])}}},
			Status: certificatesv1.CertificateSigningRequestStatus{
				Conditions:  []certificatesv1.CertificateSigningRequestCondition{conditionOf(decision{verb: Approve, reason: NodeProven, message: "m", vmID: "vm-a", admitted: noon})},
				Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
			},
		}
		change(r)
		return r
	}
	for _, c := range []struct {
		name           string
		change         func(*certificatesv1.CertificateSigningRequest)
		is, with, vmID string
	}{
		{"a renewal", func(*certificatesv1.CertificateSigningRequest) {}, string(fingerprintOf(own[:])), string(fingerprintOf(sum[:])), "vm-a"},
		{"a first one", func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Username, r.Spec.Groups, r.Spec.Extra = "system:bootstrap:abcdef", []string{TokenGroup}, nil
		}, string(fingerprintOf(own[:])), "", "vm-a"},
		{"by the controller manager", func(r *certificatesv1.CertificateSigningRequest) {
			r.Status.Conditions[0].Reason, r.Status.Conditions[0].Message = "AutoApproved", granting+"vm-a"
		}, string(fingerprintOf(own[:])), string(fingerprintOf(sum[:])), ""},
		{"to serve", func(r *certificatesv1.CertificateSigningRequest) { r.Spec.SignerName = serving }, "", "", ""},
		{"not signed yet", func(r *certificatesv1.CertificateSigningRequest) { r.Status.Certificate = nil }, "", "", ""},
		{"denied", func(r *certificatesv1.CertificateSigningRequest) {
			r.Status.Certificate = nil
			r.Status.Conditions[0] = conditionOf(decision{verb: Deny, reason: TokenUsedTwice, message: granting + "vm-a"})
		}, "", "", ""},
	} {
		r := made(c.change)
		for range 2 {
			if _, err := leanRequest(r); err != nil {
				t.Fatal(err)
			}
			got := r.Annotations
			if got[annotationNode] != "n" || got[annotationCertificate] != c.is || got[annotationAskedWith] != c.with || got[annotationVMID] != c.vmID || (got[annotationAdmitted] == "2026-11-21T12:00:00Z") != (c.vmID != "") {
				t.Errorf("%s: %v", c.name, got)
			}
		}
		if len(r.Spec.Request)+len(r.Spec.Extra)+len(r.Status.Certificate) > 0 {
			t.Errorf("%s: %+v", c.name, r)
		}
	}
	undecided := made(func(r *certificatesv1.CertificateSigningRequest) {
		r.Status = certificatesv1.CertificateSigningRequestStatus{}
	})
	before := bytes.Clone(undecided.Spec.Request)
	if _, err := leanRequest(undecided); err != nil || !bytes.Equal(before, undecided.Spec.Request) || len(undecided.Spec.Extra) == 0 || subjectNode(undecided) != "n" {
		t.Errorf("undecided: %+v (%v)", undecided, err)
	}
}
