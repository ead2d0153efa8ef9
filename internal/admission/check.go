package admission

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// proven is the proven client.
type proven struct {
	member fleet.Member
	node   string
	key    *ecdsa.PublicKey // nil of a certificate
	exists bool             // a Node of its name did when it was asked
	nonce  string
	expire time.Time // of the nonce
}

// prove identifies the client by the proof: the checks 2 to 6 of the package's doc. What it
// knows by then of a request that it refuses is in facts.
func (s *Server) prove(ctx context.Context, path string, p wire.Proof, body []byte, facts *facts) (proven, error) {
	facts.instance = p.ResourceID
	expires, err := s.nonces.check(ctx, p.Nonce)
	if err != nil {
		return proven{}, err
	}
	id, err := s.allowed(p.ResourceID)
	if err != nil {
		return proven{}, err
	}
	key, err := signedBy(path, body, p)
	if err != nil {
		return proven{}, err
	}
	if !s.failures.left(facts.from, s.config.Now()) {
		return proven{}, refuse(RateLimited, errors.New("too many invalid proofs from this address"))
	}
	done := s.meters.stage("document")
	document, err := s.config.Attest.Verify(ctx, p.Document, wire.AttestedNonce(p.Nonce, p.PublicKey, p.ResourceID), facts.from.String())
	done()
	if err != nil {
		s.failures.take(facts.from, s.config.Now())
		return proven{}, err
	}
	facts.vmID = document.VMID
	if !s.nonces.once(p.Nonce, expires) {
		return proven{}, refuse(NonceSpent, ErrSpent)
	}
	// Documents of the metadata service's oldest versions name no subscription: any
	// customer of Azure's has those.
	if said := document.SubscriptionID; !strings.EqualFold(said, id.Segment("subscriptions")) {
		return proven{}, refuse(ForeignDocument, fmt.Errorf("the document is of subscription %q", said))
	}
	if err := s.mayAsk(document.VMID, facts); err != nil {
		return proven{}, err
	}
	member, err := s.member(ctx, id)
	if err != nil {
		return proven{}, err
	}
	if member.VMID != document.VMID {
		return proven{}, refuse(VMIDMismatch, fmt.Errorf("the instance that Azure has is vmId %s", member.VMID))
	}
	if err := s.admits(ctx, member); err != nil {
		return proven{}, err
	}
	facts.node = member.NodeName()
	if !nodeName(member.NodeName()) {
		return proven{}, refuse(BadHostName, fmt.Errorf("computer name %.100q", member.HostName))
	}
	return proven{member: member, node: member.NodeName(), key: key, nonce: p.Nonce, expire: expires}, nil
}

// mayAsk limits one machine's requests, by its identity: a vmId that Azure signed, or the
// node of a certificate. From then on each request costs calls of Azure and of the cluster,
// and an audit line.
func (s *Server) mayAsk(machine string, facts *facts) error {
	if !s.machines.take(machine, s.config.Now()) {
		return refuse(RateLimited, errors.New("too many requests of this machine"))
	}
	facts.proven = true
	return nil
}

// member asks the cloud for an instance, of an admitted scale set or one that may be its canary.
func (s *Server) member(ctx context.Context, id fleet.ResourceID) (fleet.Member, error) {
	done := s.meters.stage("cloud")
	member, err := s.config.Directory.Member(ctx, id)
	done()
	switch {
	case fleet.Is(err, fleet.KindNotFound):
		return member, refuse(InstanceGone, err)
	case fleet.Is(err, fleet.KindInvalid):
		return member, refuse(PoolNotAllowed, err)
	case err != nil:
		return member, ofPort(ctx, CloudUnavailable, err)
	}
	if !s.ours(member.Pool) {
		return member, refuse(PoolNotAllowed, fmt.Errorf("the instance is of %.300q", member.Pool))
	}
	return member, nil
}

// spend uses the proof's nonce, for all replicas.
func (s *Server) spend(ctx context.Context, who proven) error {
	if who.nonce == "" {
		return nil
	}
	defer s.meters.stage("spend")()
	err := s.config.Cluster.Spend(ctx, spentName(who.nonce), who.expire.Add(nonceSkew))
	if errors.Is(err, ErrSpent) {
		return refuse(NonceSpent, err)
	}
	return ofPort(ctx, ClusterUnavailable, err)
}

// allowed reads the id of an instance of a Uniform scale set, which has to be one of ours
// or may be a canary of one, or of a virtual machine in the resource group of one: the
// cloud knows whose it is.
func (s *Server) allowed(text string) (fleet.ResourceID, error) {
	id := fleet.ResourceID(text)
	uniform, ok := instanceID(text)
	if !ok {
		return "", refuse(BadResourceID, fmt.Errorf("resource id %.300q", text))
	}
	inGroup := func(pool fleet.ResourceID) bool { return id.Group().Equal(pool.Group()) }
	if uniform && s.ours(id.Parent()) || !uniform && slices.ContainsFunc(s.config.Pools, inGroup) {
		return id, nil
	}
	return "", refuse(PoolNotAllowed, fmt.Errorf("resource id %.300q", text))
}

// instanceID reports whether a text is an instance's id, and whether it is of a Uniform
// scale set.
func instanceID(text string) (uniform, ok bool) {
	want := []string{"", "subscriptions", "*", "resourceGroups", "*", "providers", "Microsoft.Compute", "virtualMachines", "*"}
	parts := strings.Split(text, "/")
	if len(parts) == len(want)+2 {
		uniform = true
		want = append(want[:7:7], "virtualMachineScaleSets", "*", "virtualMachines", "*")
	}
	return uniform, slices.EqualFunc(parts, want, func(part, want string) bool {
		return want == "*" && fleet.ValidName(part) || want != "*" && strings.EqualFold(part, want)
	})
}

// signedBy returns the proof's key, by which the request is signed.
func signedBy(path string, body []byte, p wire.Proof) (*ecdsa.PublicKey, error) {
	parsed, err := x509.ParsePKIXPublicKey(p.PublicKey)
	if err != nil {
		return nil, refuse(BadProof, fmt.Errorf("the public key: %w", err))
	}
	key, ok := parsed.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, refuse(BadProof, errors.New("the public key is not of ECDSA on P-256"))
	}
	// One key has one spelling, so that it is one nonce.
	if der, err := x509.MarshalPKIXPublicKey(key); err != nil || !bytes.Equal(der, p.PublicKey) {
		return nil, refuse(BadProof, errors.New("the public key is spelled otherwise than DER has it"))
	}
	sum := sha256.Sum256(wire.SignedText(path, body, p.Nonce))
	if !ecdsa.VerifyASN1(key, sum[:], p.Signature) {
		return nil, refuse(SignatureInvalid, errors.New("the signature does not fit the request and the key"))
	}
	return key, nil
}

// nodeName reports whether a Node can have a name that means the same wherever it is
// written: a DNS label.
func nodeName(s string) bool {
	plain := strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
	return plain && s != "" && len(s) <= 63 && s[0] != '-' && s[len(s)-1] != '-'
}
