package admission

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"sync/atomic"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

const (
	authorityFor = 10 * 365 * 24 * time.Hour
	leafFor      = 30 * 24 * time.Hour
	// backdate lets machines whose clocks are behind take a new certificate.
	backdate = time.Hour
	// renewEvery is how often is looked whether the authority or the time asks for
	// another certificate.
	renewEvery = 10 * time.Minute
)

// Certificates has the server's TLS certificate: signed by an authority of its own, which
// is stored in the cluster, and renewed in memory by each replica, long before it ends. A
// node knows the authority's hash beforehand.
type Certificates struct {
	keys  Keys
	names []string
	now   func() time.Time
	log   *slog.Logger
	leaf  atomic.Pointer[issued]
}

type issued struct {
	authority *x509.Certificate
	leaf      *tls.Certificate
}

// NewCertificates makes a certificate for the names, which are DNS names and
// addresses. The authority is made if there is none.
func NewCertificates(ctx context.Context, keys Keys, names []string, now func() time.Time, log *slog.Logger) (*Certificates, error) {
	c := &Certificates{keys: keys, names: names, now: now, log: log}
	return c, c.renew(ctx)
}

// Hash is what nodes know of the authority: "sha256:" and the hash of its public
// key in hexadecimal, as kubeadm spells it.
func (c *Certificates) Hash() string { return HashOf(c.leaf.Load().authority) }

// HashOf spells the hash of a certificate's public key as kubeadm does.
func HashOf(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Run renews the certificate until ctx ends.
func (c *Certificates) Run(ctx context.Context) error {
	ticker := time.NewTicker(renewEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := c.renew(ctx); err != nil && ctx.Err() == nil {
			c.log.WarnContext(ctx, "certificate not renewed", "ends", c.leaf.Load().leaf.Leaf.NotAfter, "error", err)
		}
	}
}

func (c *Certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{"http/1.1"},
		// Kubelets' certificates are of the cluster's authority, and verified where one
		// is needed.
		ClientAuth: tls.RequestClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return c.leaf.Load().leaf, nil
		},
	}
}

// renew makes another certificate where the authority is another, or two thirds of
// the time are over.
func (c *Certificates) renew(ctx context.Context) error {
	now := c.now()
	certificate, key, err := c.keys.Authority(ctx, func() ([]byte, []byte, error) { return newAuthority(now) })
	if err != nil {
		return fmt.Errorf("the authority of the admission server: %w", err)
	}
	authority, signer, err := parseAuthority(certificate, key, now)
	if err != nil {
		return &fleet.Error{Op: "read the authority of the admission server", Kind: fleet.KindInvalid, Err: err, Remedy: "delete its Secret, and give nodes the new hash"}
	}
	if had := c.leaf.Load(); had != nil && bytes.Equal(had.authority.Raw, authority.Raw) && now.Before(had.leaf.Leaf.NotBefore.Add(leafFor*2/3)) {
		return nil
	}
	leaf, err := newLeaf(authority, signer, c.names, now)
	if err != nil {
		return fmt.Errorf("make the admission server's certificate: %w", err)
	}
	c.leaf.Store(&issued{authority, leaf})
	c.log.InfoContext(ctx, "certificate made", "authority", HashOf(authority), "ends", leaf.Leaf.NotAfter)
	return nil
}

func parseAuthority(certificate, key []byte, now time.Time) (*x509.Certificate, crypto.Signer, error) {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, nil, err
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	switch {
	case !ok || !pair.Leaf.IsCA:
		return nil, nil, errors.New("it is no authority")
	case now.After(pair.Leaf.NotAfter):
		return nil, nil, fmt.Errorf("it ended %s", pair.Leaf.NotAfter)
	}
	return pair.Leaf, signer, nil
}

// newAuthority makes an authority that signs server certificates, and no other
// authorities.
func newAuthority(now time.Time) (certificate, key []byte, err error) {
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "ortet-admission"},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(authorityFor),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, signer.Public(), signer)
	if err != nil {
		return nil, nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), nil
}

// newLeaf returns a certificate with its authority's behind it: a node knows only the
// hash of the latter.
func newLeaf(authority *x509.Certificate, by crypto.Signer, names []string, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	ends := now.Add(leafFor)
	if ends.After(authority.NotAfter) {
		ends = authority.NotAfter
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "ortet-admission"}, NotBefore: now.Add(-backdate), NotAfter: ends,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority, key.Public(), by)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der, authority.Raw}, PrivateKey: key, Leaf: parsed}, nil
}

func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126))
}
