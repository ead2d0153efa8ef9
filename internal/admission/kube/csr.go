package kube

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/ortet/ortet/internal/fleet"
)

// A Verb is what the approver does with a request.
type Verb string

// The verbs.
const (
	Approve Verb = "Approve"
	Deny    Verb = "Deny"
	// Leave is to leave it to others: what is not ours is neither granted nor denied.
	Leave Verb = "Leave"
)

// Reasons of decisions on certificates. docs/reference/admission.md lists them with the
// server's own.
const (
	TokenProven       = "TokenProven"       // approved: the token's own name, by its first key
	NodeProven        = "NodeProven"        // approved: the node itself, whose instance is there
	TokenUsedTwice    = "TokenUsedTwice"    // denied: another key asked before
	TokenOtherName    = "TokenOtherName"    // denied: not the name that the token is for
	TokenMisused      = "TokenMisused"      // denied: no kubelet's client certificate as kubelets ask for it
	TokenUnknown      = "TokenUnknown"      // left: a bootstrap token of somebody else, or of ours that has ended
	NotKubelet        = "NotKubelet"        // left: nothing that a node asks for itself
	NotAdmitted       = "NotAdmitted"       // left: a node that we did not admit
	InstanceGone      = "InstanceGone"      // left: Azure has no such instance any more
	OtherMachine      = "OtherMachine"      // left: the instance is another machine by now
	OtherCertificate  = "OtherCertificate"  // left: asked with a certificate of an earlier machine of the name
	NotItsAddress     = "NotItsAddress"     // left: a name or address that the instance does not have in Azure
	RequestUnreadable = "RequestUnreadable" // left, or denied where our token asks
)

const (
	bootstrapUser = "system:bootstrap:"
	nodeUser      = "system:node:"
	nodesGroup    = "system:nodes"
)

// maxRequest bounds a certificate request in PEM; kubelets' have about 600 bytes.
const maxRequest = 4 << 10

// clocks is the maximum difference between the clocks of the API servers and of the
// replicas.
const clocks = time.Minute

// A csr is what a decision needs of a CertificateSigningRequest.
type csr struct {
	name     string
	at       time.Time // when it was asked
	signer   string
	username string
	groups   []string
	with     fingerprint // the certificate with which it was asked; "" where it is not known
	usages   []certificatesv1.KeyUsage
	wants    *x509.CertificateRequest // nil where it cannot be read
	why      error                    // then
	key      string                   // hex SHA-256 of its public key
}

func csrOf(r *certificatesv1.CertificateSigningRequest) csr {
	out := csr{name: r.Name, at: r.CreationTimestamp.Time, signer: r.Spec.SignerName, username: r.Spec.Username, groups: r.Spec.Groups, with: askedWith(r.Spec), usages: r.Spec.Usages}
	wants, err := parseRequest(r.Spec)
	if err == nil {
		err = known(wants.PublicKey)
	}
	if err == nil {
		err = wants.CheckSignature()
	}
	if err != nil {
		out.why = err
		return out
	}
	out.wants = wants
	sum := sha256.Sum256(wants.RawSubjectPublicKeyInfo)
	out.key = hex.EncodeToString(sum[:])
	return out
}

// parseRequest reads a request to one of kubelets' signers, of bounded size. It does not
// verify it.
func parseRequest(spec certificatesv1.CertificateSigningRequestSpec) (*x509.CertificateRequest, error) {
	if !ofKubelets(spec.SignerName) {
		return nil, errors.New("not a request to a signer of kubelets' certificates")
	}
	if n := len(spec.Request); n == 0 || n > maxRequest {
		return nil, fmt.Errorf("a certificate request of more than %d bytes, or none", maxRequest)
	}
	block, rest := pem.Decode(spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(strings.TrimSpace(string(rest))) > 0 {
		return nil, errors.New("not one certificate request in PEM")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}

func ofKubelets(signer string) bool {
	return signer == certificatesv1.KubeAPIServerClientKubeletSignerName || signer == certificatesv1.KubeletServingSignerName
}

// known bounds what verifying a signature costs: by a key of 131,072 bits it takes 0.3 s.
func known(key any) error {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits < 2048 || bits > 4096 {
			return fmt.Errorf("an RSA key of %d bits, want 2048 to 4096", bits)
		}
		return nil
	case *ecdsa.PublicKey:
		if bits := k.Curve.Params().BitSize; bits < 256 {
			return fmt.Errorf("a key on a curve of %d bits, want 256 or more", bits)
		}
		return nil
	case ed25519.PublicKey:
		return nil
	}
	return fmt.Errorf("a key of the type %T", key)
}

// token returns the id of the bootstrap token that asks; "" where none does.
func (r csr) token() string {
	id, ok := strings.CutPrefix(r.username, bootstrapUser)
	if !ok {
		return ""
	}
	return id
}

// node returns the node that asks for itself; "" where none does.
func (r csr) node() string {
	name, ok := strings.CutPrefix(r.username, nodeUser)
	if !ok || !slices.Contains(r.groups, nodesGroup) {
		return ""
	}
	return name
}

// facts is what a decision knows beside the request.
type facts struct {
	token     *token // with which it is asked; nil where it is none that we know
	admission admitted
	admitted  bool          // of the node that asks
	member    *fleet.Member // the admitted instance; nil where Azure has none
	mayAsk    bool          // the certificate with which it is asked counts for the admission
}

// A decision is what to do with a request, and why.
type decision struct {
	verb    Verb
	reason  string
	message string
	node    string
	vmID    string // of the machine to which it is granted
	// admitted is when that was admitted; the zero value where it is not known.
	admitted time.Time
}

// decideCSR decides on a request. It is pure.
func decideCSR(r csr, f facts) decision {
	switch {
	case r.token() != "":
		return decideFirst(r, f)
	case r.node() != "":
		return decideOwn(r, f)
	}
	return decision{verb: Leave, reason: NotKubelet, message: "neither a bootstrap token nor a node asks"}
}

// decideFirst is on what a bootstrap token asks for.
func decideFirst(r csr, f facts) decision {
	if !slices.Contains(r.groups, TokenGroup) {
		return decision{verb: Leave, reason: TokenUnknown, message: "the token is not in the group " + TokenGroup}
	}
	if f.token == nil {
		// If it is of our group, no other approver grants it either: its token ended
		// meanwhile, or another installation made it.
		return decision{verb: Leave, reason: TokenUnknown, message: "it is not a token that the admission server made"}
	}
	if r.at.Add(clocks).Before(f.token.made) {
		// A name's tokens have one id. What is asked with one while it ends is left, and
		// would be granted to the last machine by the token of the next.
		return decision{verb: Leave, reason: TokenUnknown, message: "it was asked with an earlier token of the name", node: f.token.node}
	}
	d := decision{node: f.token.node}
	deny := func(reason, message string) decision {
		d.verb, d.reason, d.message = Deny, reason, message
		return d
	}
	if r.signer != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return deny(TokenMisused, "the token is for a kubelet's client certificate only, not for one of "+shown(r.signer))
	}
	if r.wants == nil {
		return deny(RequestUnreadable, shown(r.why.Error()))
	}
	if name := r.wants.Subject.CommonName; name != nodeUser+f.token.node {
		return deny(TokenOtherName, fmt.Sprintf("it asks for %q, and the token is for %q", shown(name), nodeUser+f.token.node))
	}
	if !subjectOfNode(r.wants) || hasNames(r.wants) {
		return deny(TokenMisused, "the subject has to be the node in "+nodesGroup+" and nothing else, without other names")
	}
	if !usagesAre(r.usages, certificatesv1.UsageClientAuth) {
		return deny(TokenMisused, fmt.Sprintf("usages %v", r.usages))
	}
	if f.token.key != "" && f.token.key != r.key {
		return deny(TokenUsedTwice, "another key asked with this token before")
	}
	d.verb, d.vmID, d.admitted = Approve, f.token.vmID, f.token.made
	d.reason, d.message = TokenProven, "the machine proved that it is "+f.token.node
	return d
}

// decideOwn is on what a node asks for itself.
func decideOwn(r csr, f facts) decision {
	name := r.node()
	d := decision{node: name, verb: Leave}
	leave := func(reason, message string) decision {
		d.reason, d.message = reason, message
		return d
	}
	serving := r.signer == certificatesv1.KubeletServingSignerName
	if !ofKubelets(r.signer) {
		return leave(NotKubelet, "a certificate of "+shown(r.signer))
	}
	if r.wants == nil {
		return leave(RequestUnreadable, shown(r.why.Error()))
	}
	if r.wants.Subject.CommonName != nodeUser+name || !subjectOfNode(r.wants) {
		return leave(NotKubelet, "it asks for another subject than its own")
	}
	usage := certificatesv1.UsageClientAuth
	if serving {
		usage = certificatesv1.UsageServerAuth
	}
	if !usagesAre(r.usages, usage) {
		return leave(NotKubelet, fmt.Sprintf("usages %v", r.usages))
	}
	switch {
	case !f.admitted:
		return leave(NotAdmitted, "the node was not admitted here")
	case f.member == nil:
		return leave(InstanceGone, "Azure has no instance "+string(f.admission.Instance))
	case f.member.VMID != f.admission.VMID:
		return leave(OtherMachine, fmt.Sprintf("%s was admitted as machine %s and is %s now", f.admission.Instance, f.admission.VMID, f.member.VMID))
	case !f.mayAsk:
		return leave(OtherCertificate, fmt.Sprintf("it asks with a certificate that was not signed for machine %s", f.admission.VMID))
	}
	if !serving {
		if hasNames(r.wants) {
			return leave(NotKubelet, "a client certificate with other names")
		}
		d.verb, d.vmID, d.admitted = Approve, f.admission.VMID, f.admission.At
		return leave(NodeProven, "the machine is there and asks for itself")
	}
	if why := foreignName(r.wants, name, *f.member); why != "" {
		return leave(NotItsAddress, why)
	}
	d.verb, d.vmID, d.admitted = Approve, f.admission.VMID, f.admission.At
	return leave(NodeProven, "the machine is there, and the addresses are its own")
}

// subjectOfNode reports that the subject has a name and the nodes' group and nothing else.
func subjectOfNode(r *x509.CertificateRequest) bool {
	return slices.Equal(r.Subject.Organization, []string{nodesGroup}) && len(r.Subject.Names) == 2
}

func hasNames(r *x509.CertificateRequest) bool {
	return len(r.DNSNames)+len(r.IPAddresses)+len(r.EmailAddresses)+len(r.URIs) > 0
}

// foreignName returns which of a serving certificate's names is not the instance's; ""
// where all are, and at least one exists.
func foreignName(r *x509.CertificateRequest, node string, m fleet.Member) string {
	if len(r.EmailAddresses)+len(r.URIs) > 0 {
		return "it has mail addresses or URIs"
	}
	if len(r.DNSNames)+len(r.IPAddresses) == 0 {
		return "it has no name and no address"
	}
	for _, name := range r.DNSNames {
		if name != node && !strings.EqualFold(name, m.HostName) {
			return fmt.Sprintf("the name %q is not the instance's", shown(name))
		}
	}
	for _, ip := range r.IPAddresses {
		address, ok := netip.AddrFromSlice(ip)
		if !ok || !slices.ContainsFunc(m.Addresses, func(a netip.Addr) bool { return a.Unmap() == address.Unmap() }) {
			return fmt.Sprintf("the address %s is not the instance's", ip)
		}
	}
	return ""
}

// usagesAre reports that the usages are a kubelet's: with key encipherment for RSA, and
// without it for other keys.
func usagesAre(usages []certificatesv1.KeyUsage, auth certificatesv1.KeyUsage) bool {
	got := slices.Clone(usages)
	slices.Sort(got)
	got = slices.Compact(got)
	for _, want := range [][]certificatesv1.KeyUsage{
		{auth, certificatesv1.UsageDigitalSignature},
		{auth, certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment},
	} {
		slices.Sort(want)
		if slices.Equal(got, want) {
			return true
		}
	}
	return false
}

// shown cuts what a stranger wrote.
func shown(text string) string {
	const most = 120
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// decided reports that the request is decided already.
func decided(r *certificatesv1.CertificateSigningRequest) bool {
	for _, condition := range r.Status.Conditions {
		switch condition.Type {
		case certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			return true
		}
	}
	return len(r.Status.Certificate) > 0
}

// granting stands before the vmId in the message of an approval, and since before the
// time of its admission, where that is known.
const granting, since = "; granted to machine ", " admitted "

// conditionOf is how a decision stands on the request.
func conditionOf(d decision) certificatesv1.CertificateSigningRequestCondition {
	condition := certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Ortet" + d.reason, Message: "Ortet's admission server: " + d.message,
	}
	if d.verb == Deny {
		condition.Type = certificatesv1.CertificateDenied
		return condition
	}
	condition.Message += granting + d.vmID
	if !d.admitted.IsZero() {
		condition.Message += since + d.admitted.UTC().Format(time.RFC3339)
	}
	return condition
}

// grantedTo returns the vmId of the machine to which our approver granted a request, and
// when it was admitted; "" where it did not. Only approvers may write conditions.
func grantedTo(r *certificatesv1.CertificateSigningRequest) (vmID, admitted string) {
	for _, condition := range r.Status.Conditions {
		ours := condition.Reason == "Ortet"+TokenProven || condition.Reason == "Ortet"+NodeProven
		if i := strings.LastIndex(condition.Message, granting); i >= 0 && ours && condition.Type == certificatesv1.CertificateApproved {
			vmID, admitted, _ = strings.Cut(condition.Message[i+len(granting):], since)
			return vmID, admitted
		}
	}
	return "", ""
}
