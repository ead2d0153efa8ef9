package admission

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

const (
	// userPrefix and nodesGroup are of the certificates that Kubernetes' node
	// authorizer takes for a kubelet's.
	userPrefix = "system:node:"
	nodesGroup = "system:nodes"
	// backdated is how much earlier than it was signed a certificate of
	// Kubernetes' own signer begins.
	backdated = 5 * time.Minute
	// clocks is the maximum difference between the clocks of Azure and of the cluster;
	// times in certificates are cut to the second besides.
	clocks = time.Minute
	// casFor is how long the cluster's authorities are kept.
	casFor = 5 * time.Minute
	// casGap is at least between two readings.
	casGap = 10 * time.Second
)

// authenticate identifies the client, by a proof or by the kubelet's certificate.
func (s *Server) authenticate(ctx context.Context, r *http.Request, body []byte, facts *facts) (proven, error) {
	if r.Header.Get("Authorization") != "" {
		return s.byProof(ctx, r, body, facts)
	}
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return proven{}, refuse(NoProof, errors.New("neither a proof nor a client certificate"))
	}
	facts.by = "certificate"
	return s.byCertificate(ctx, r.TLS.PeerCertificates, facts)
}

// byProof takes the proof out of the request: a thousand nodes that wait for one
// answer of Azure's need not keep theirs, of some ten kilobytes.
func (s *Server) byProof(ctx context.Context, r *http.Request, body []byte, facts *facts) (proven, error) {
	facts.by = "document"
	header := r.Header.Get("Authorization")
	if header == "" {
		return proven{}, refuse(NoProof, errors.New("no proof"))
	}
	r.Header.Del("Authorization")
	p, err := wire.ParseProof(header)
	if err != nil {
		return proven{}, refuse(BadProof, err)
	}
	return s.prove(ctx, r.URL.Path, p, body, facts)
}

// byCertificate believes a certificate of the cluster that its holder is the node in
// its name. Ids and names of machines are used again, and certificates are not
// revoked: so its Node has to be the machine's that Azure has now, and the machine
// and its admission older than the certificate.
func (s *Server) byCertificate(ctx context.Context, chain []*x509.Certificate, facts *facts) (proven, error) {
	leaf, now := chain[0], s.config.Now()
	roots, err := s.clientCAs.get(ctx, now)
	if err != nil {
		return proven{}, ofPort(ctx, ClusterUnavailable, err)
	}
	// Kubelets' certificates are signed by a root. Only chains are rate-limited by failures:
	// otherwise a pod behind the node's address could keep its node from leaving.
	verified, err := verifyClient(chain[:1], roots, now)
	if err != nil && len(chain) > 1 {
		if !s.failures.left(facts.from, now) {
			return proven{}, refuse(RateLimited, errors.New("too many invalid proofs from this address"))
		}
		if verified, err = verifyClient(chain, roots, now); err != nil {
			s.failures.take(facts.from, now)
		}
	}
	if err != nil {
		return proven{}, refuse(BadCertificate, err)
	}
	node, ok := strings.CutPrefix(leaf.Subject.CommonName, userPrefix)
	if !ok || !slices.Contains(leaf.Subject.Organization, nodesGroup) || !nodeName(node) {
		return proven{}, refuse(NotANode, fmt.Errorf("the certificate is of %.100q", leaf.Subject.CommonName))
	}
	facts.node = node
	if err := s.mayAsk(userPrefix+node, facts); err != nil {
		return proven{}, err
	}
	state, err := s.config.Cluster.Node(ctx, node)
	switch {
	case err != nil:
		return proven{}, ofPort(ctx, ClusterUnavailable, err)
	case !state.Exists:
		return proven{}, errNoNode
	}
	id, ok := strings.CutPrefix(state.ProviderID, "azure://")
	if !ok {
		return proven{}, refuse(NodeUnknown, fmt.Errorf("node %s has provider id %.300q", node, state.ProviderID))
	}
	facts.instance = id
	instance, err := s.allowed(id)
	if err != nil {
		return proven{}, refuse(NodeUnknown, err)
	}
	member, err := s.member(ctx, instance)
	if err != nil {
		return proven{}, err
	}
	facts.vmID = member.VMID
	if member.NodeName() != node {
		return proven{}, refuse(NodeUnknown, fmt.Errorf("the instance's node name is %.100q", member.NodeName()))
	}
	if member.Created.IsZero() {
		return proven{}, refuse(CertificateTooOld, errors.New("it is not known of Azure when the instance was made"))
	}
	admitted, err := s.config.Cluster.AdmittedAt(ctx, node)
	if err != nil {
		return proven{}, ofPort(ctx, ClusterUnavailable, err)
	}
	at := signedAt(leaf, verified).Add(clocks)
	if at.Before(member.Created) || at.Before(admitted) {
		return proven{}, refuse(CertificateTooOld, fmt.Errorf("the certificate was signed %s at the latest, the instance made %s, and admitted %s",
			at.UTC().Format(time.RFC3339), member.Created.UTC().Format(time.RFC3339), admitted.UTC().Format(time.RFC3339)))
	}
	return proven{member: member, node: node}, nil
}

// maxChain limits a client's certificate chain: a leaf and two authorities. x509.Verify
// tries the authorities in every order, up to 100 signature checks.
const maxChain = 3

// verifyClient verifies a client's certificate chain. Clients are unauthenticated here, so
// length and keys are limited before any signature is checked.
func verifyClient(chain []*x509.Certificate, roots *x509.CertPool, now time.Time) ([]*x509.Certificate, error) {
	if len(chain) > maxChain {
		return nil, fmt.Errorf("chain of %d client certificates exceeds the limit of %d", len(chain), maxChain)
	}
	between := x509.NewCertPool()
	for i, c := range chain {
		if err := checkKey(c); err != nil {
			return nil, err
		}
		if i > 0 {
			between.AddCert(c)
		}
	}
	verified, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return nil, err
	}
	return verified[0], nil
}

// checkKey accepts RSA, ECDSA and Ed25519 keys whose signatures are cheap to verify.
func checkKey(c *x509.Certificate) error {
	bits := 0
	switch k := c.PublicKey.(type) {
	case *rsa.PublicKey:
		if bits = k.N.BitLen(); bits >= 2048 && bits <= 4096 && k.E <= 1<<16+1 {
			return nil
		}
	case *ecdsa.PublicKey:
		if bits = k.Curve.Params().BitSize; bits >= 256 {
			return nil
		}
	case ed25519.PublicKey:
		return nil
	}
	return fmt.Errorf("unsupported %s key of %d bits in a client certificate", c.PublicKeyAlgorithm, bits)
}

// signedAt is the latest time at which a certificate was signed. Kubernetes' signer begins
// it five minutes before; k3s and RKE2 begin it when its authority begins, and by default
// end it a year after it was signed (rancher's dynamiclistener, cert.NewSignedCert).
func signedAt(leaf *x509.Certificate, chain []*x509.Certificate) time.Time {
	if len(chain) > 1 && leaf.NotBefore.Equal(chain[1].NotBefore) {
		return leaf.NotAfter.AddDate(0, 0, -365)
	}
	return leaf.NotBefore.Add(backdated)
}

// errNoNode is of a certificate whose node has no Node: it is deleted, and what else has
// its name may belong to the next machine.
var errNoNode = refuse(NodeUnknown, errors.New("there is no Node of this name"))

// readFor is how long what is kept for all may take to be read.
const readFor = 10 * time.Second

// readingOn is the context of a read that one has made for all: it does not end with his
// request, or who hangs up would keep it from being made.
func readingOn(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), readFor)
}

// authorities keeps the cluster's client CAs for a while. Anybody's certificate has them
// read, so where they cannot be, they are not read again at once.
type authorities struct {
	load func(context.Context) ([]byte, error)

	mu          sync.Mutex
	pool        *x509.CertPool
	read, tried time.Time
}

func (a *authorities) get(ctx context.Context, now time.Time) (*x509.CertPool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	again := a.pool != nil
	if again && (now.Sub(a.read) < casFor || now.Sub(a.tried) < casGap) {
		return a.pool, nil
	}
	a.tried = now
	if again { // the others use the cached ones
		a.mu.Unlock()
	}
	ctx, cancel := readingOn(ctx)
	defer cancel()
	text, err := a.load(ctx)
	if again {
		a.mu.Lock()
	}
	if err != nil && again {
		return a.pool, nil // they change by the year
	}
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, &fleet.Error{Op: "read the cluster's client authorities", Kind: fleet.KindInvalid, Err: errors.New("there is no certificate in them")}
	}
	a.pool, a.read = pool, now
	return pool, nil
}
