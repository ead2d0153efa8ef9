package kube

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// The API server records which client certificate made a request: the SHA-256 of its DER,
// in hexadecimal. Source: Kubernetes 1.32 and later, apiserver/plugin's
// authentication/request/x509.
const (
	credentialID  = "authentication.kubernetes.io/credential-id"
	ofCertificate = "X509SHA256="
)

// A fingerprint stands for a certificate: 16 bytes of the SHA-256 of its DER, in base64.
// Half of the hash is enough, since each candidate for a collision has to be signed.
type fingerprint string

const (
	fingerprintBytes = 16
	fingerprintSize  = 22 // characters
	// otherCredential is what somebody asks with that is no certificate, or that is
	// named in a way that we do not know. It is no certificate's.
	otherCredential fingerprint = "?"
)

func fingerprintOf(sum []byte) fingerprint {
	return fingerprint(base64.RawURLEncoding.EncodeToString(sum[:fingerprintBytes]))
}

// askedWith returns the certificate with which a request was made; "" where the API server
// does not record it, as one older than 1.32.
func askedWith(spec certificatesv1.CertificateSigningRequestSpec) fingerprint {
	said, ok := spec.Extra[credentialID]
	if !ok {
		return ""
	}
	if len(said) == 1 {
		text, ok := strings.CutPrefix(said[0], ofCertificate)
		if sum, err := hex.DecodeString(text); ok && err == nil && len(sum) == sha256.Size {
			return fingerprintOf(sum)
		}
	}
	return otherCredential
}

// An issued is a client certificate that was signed for a node's name.
type issued struct {
	at   time.Time // when it was asked for
	is   fingerprint
	with fingerprint // with which it was asked; "" for a token, or where it is not known
	vmID string      // of the machine to which our approver granted it; "" where somebody else did
	// admitted is when that machine was admitted; the zero value where an earlier
	// version granted it.
	admitted time.Time
}

// grantedFor reports that the approver granted a certificate to the machine since it was
// admitted this time. Two admissions between which a kubelet lived are further apart than
// clocks are.
func (c issued) grantedFor(a admitted) bool {
	if a.VMID == "" || c.vmID != a.VMID {
		return false
	}
	if c.admitted.IsZero() {
		return !c.at.Add(clocks).Before(a.At)
	}
	return c.admitted.Sub(a.At).Abs() <= clocks
}

// counting returns the client certificates that count for an admission: those that are
// kept with it, those that the approver granted to its machine, and those that were
// asked for with one that counts, whoever approved them. next is the admission with
// what is to be kept. all are the certificates for its name that can still be read, which
// go in any order: one that is older than what is kept is there still, and is no news.
func (a admitted) counting(all []issued) (counts map[fingerprint]bool, next admitted) {
	counts = map[fingerprint]bool{}
	last, _ := a.kept()
	for _, is := range a.keeps() {
		counts[is] = true
	}
	rest := slices.Clone(all)
	slices.SortStableFunc(rest, func(x, y issued) int { return x.at.Compare(y.at) })
	var newest issued
	before := last // the one that counted before the newest
	at := a.Newest
	for {
		i := slices.IndexFunc(rest, func(c issued) bool {
			return c.grantedFor(a) || c.with != "" && counts[c.with]
		})
		if i < 0 {
			break
		}
		if newest.is != "" {
			before = newest.is
		}
		newest = rest[i]
		counts[newest.is] = true
		if newest.at.After(at) {
			at = newest.at
		}
		rest = slices.Delete(rest, i, i+1)
	}
	if newest.is == "" || slices.Contains(a.keeps(), newest.is) || newest.at.Before(a.Newest) {
		return counts, a
	}
	if newest.with != "" {
		before = newest.with
	}
	next = a.keeping(newest.is, before)
	next.Newest = time.Unix(at.Unix(), 0).UTC()
	return counts, next
}

// noCertificate is kept with an admission for which none was signed yet.
const noCertificate = "-"

// kept returns the newest certificate that is kept, and the one before; "" where there
// is none.
func (a admitted) kept() (last, before fingerprint) {
	first, second, _ := strings.Cut(a.Certificates, ",")
	if first == noCertificate {
		first = ""
	}
	return fingerprint(first), fingerprint(second)
}

func (a admitted) keeps() []fingerprint {
	last, before := a.kept()
	return slices.DeleteFunc([]fingerprint{last, before}, func(f fingerprint) bool { return f == "" })
}

// keeping returns the admission with the newest certificate and the one with which it
// was asked for: until a machine has written the newest down it asks with that.
func (a admitted) keeping(last, before fingerprint) admitted {
	a.Certificates = string(last)
	if before != "" && before != last {
		a.Certificates += "," + string(before)
	}
	return a
}

// mayAsk reports whether a request with a certificate is by the admitted machine, of which
// all are the certificates that can still be read. Without a record of the certificate, or
// with an admission by an earlier version, which has none, the name has to be enough.
func (a admitted) mayAsk(with fingerprint, all []issued) bool {
	if with == "" || a.Certificates == "" {
		return true
	}
	counts, _ := a.counting(all)
	return counts[with]
}

// What is kept of a request that was decided, once its rest is not needed any more.
const (
	annotationCertificate = "ortet.io/certificate"
	annotationAskedWith   = "ortet.io/asked-with"
	annotationAdmitted    = "ortet.io/admitted"
)

// leanRequest keeps of a request that is decided whom it is for, and what counting
// needs. Of one that is not it keeps what a kubelet may ask for, and nothing larger.
func leanRequest(o any) (any, error) {
	r, ok := o.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return o, nil
	}
	r.ManagedFields = nil
	switch {
	case len(r.Spec.Request) == 0:
		return r, nil
	case !decided(r) && ofKubelets(r.Spec.SignerName) && len(r.Spec.Request) <= maxRequest:
		r.Annotations, r.Labels = nil, nil
		return r, nil
	case !decided(r):
		r.Annotations, r.Labels, r.Spec.Request = map[string]string{annotationNode: ""}, nil, nil
		return r, nil
	}
	r.Labels = nil
	// Whoever asks may write annotations of his own.
	kept := map[string]string{annotationNode: subjectNode(r)}
	if is := certificateIn(r.Status.Certificate); is != "" && r.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName {
		kept[annotationCertificate] = string(is)
		kept[annotationVMID], kept[annotationAdmitted] = grantedTo(r)
		if csr := (csr{username: r.Spec.Username, groups: r.Spec.Groups}); csr.node() != "" {
			kept[annotationAskedWith] = string(askedWith(r.Spec))
		}
	}
	r.Annotations = kept
	r.Spec.Request, r.Spec.Extra, r.Spec.Groups, r.Spec.Usages, r.Status.Certificate = nil, nil, nil, nil, nil
	return r, nil
}

// certificateIn returns the first certificate of what was signed; "" where none was.
func certificateIn(signed []byte) fingerprint {
	block, _ := pem.Decode(signed)
	if block == nil || block.Type != "CERTIFICATE" {
		return ""
	}
	sum := sha256.Sum256(block.Bytes)
	return fingerprintOf(sum[:])
}

// issuedFor returns the client certificates for a node whose requests are there still.
// Kubernetes deletes them an hour after they were approved.
func (w *watched) issuedFor(node string) []issued {
	var all []issued
	for _, r := range w.requestsOf(node) {
		if is := r.Annotations[annotationCertificate]; is != "" && len(r.Spec.Request) == 0 {
			one := issued{at: r.CreationTimestamp.Time, is: fingerprint(is), with: fingerprint(r.Annotations[annotationAskedWith]), vmID: r.Annotations[annotationVMID]}
			if at, err := time.Parse(time.RFC3339, r.Annotations[annotationAdmitted]); err == nil {
				one.admitted = at
			}
			all = append(all, one)
		}
	}
	return all
}

// keepCertificates writes which certificates count to the admissions of those names for
// which new ones were signed, all at once. Until then, and after a replica's death in
// between, the requests themselves show it.
func (c *Cluster) keepCertificates(ctx context.Context) error {
	w := c.watched.Load()
	if w == nil || !w.requests.HasSynced() {
		return nil
	}
	var changes []*nameChange
	for _, node := range w.requests.GetIndexer().ListIndexFuncValues(byNode) {
		all := w.issuedFor(node)
		if len(all) == 0 {
			continue
		}
		next := func(a admitted) admitted { _, next := a.counting(all); return next }
		changes = append(changes, &nameChange{name: node, set: next, only: func(a admitted) bool { return a.VMID != "" && next(a) != a }})
	}
	if len(changes) == 0 {
		return nil
	}
	return c.names.changeAll(ctx, changes)
}
