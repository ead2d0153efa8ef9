// Package access makes what a test's cluster is reached by: certificates,
// kubeconfigs and bootstrap tokens.
package access

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Validity of all certificates: longer than any run, short enough to be
// worthless when found later.
const Validity = 7 * 24 * time.Hour

// An Authority signs certificates. Its files are <name>.crt and <name>.key.
type Authority struct {
	dir  string
	name string
	now  func() time.Time
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// NewAuthority makes a CA and writes it to dir.
func NewAuthority(dir, name, commonName string, now func() time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &Authority{dir: dir, name: name, now: now, key: key}
	template, err := a.template(commonName)
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage |= x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	if err := writeCertificate(a.CertFile(), der); err != nil {
		return nil, err
	}
	return a, writeKey(a.KeyFile(), key)
}

// CertFile is the path of its certificate.
func (a *Authority) CertFile() string { return filepath.Join(a.dir, a.name+".crt") }

// KeyFile is the path of its key.
func (a *Authority) KeyFile() string { return filepath.Join(a.dir, a.name+".key") }

// PEM is its certificate.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func (a *Authority) template(commonName string, organizations ...string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: commonName, Organization: organizations},
		// Machines with a clock of their own may lag a little.
		NotBefore: a.now().Add(-5 * time.Minute),
		NotAfter:  a.now().Add(Validity),
		KeyUsage:  x509.KeyUsageDigitalSignature,
	}, nil
}

// issue makes a key and a certificate for it.
func (a *Authority) issue(template *x509.Certificate) (der []byte, key crypto.Signer, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, err
	}
	der, err = x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	return der, key, err
}

// Client issues a client certificate.
func (a *Authority) Client(user string, groups ...string) (certPEM, keyPEM []byte, err error) {
	template, err := a.template(user, groups...)
	if err != nil {
		return nil, nil, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	der, key, err := a.issue(template)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), nil
}

// SignClient signs the key of a certificate request for its subject, as the signer
// kubernetes.io/kube-apiserver-client-kubelet does, and gives PEM.
func (a *Authority) SignClient(request *x509.CertificateRequest) ([]byte, error) {
	template, err := a.template(request.Subject.CommonName, request.Subject.Organization...)
	if err != nil {
		return nil, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, request.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// ClientFiles issues a client certificate into <name>.crt and <name>.key.
func (a *Authority) ClientFiles(name, user string, groups ...string) error {
	certPEM, keyPEM, err := a.Client(user, groups...)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(a.dir, name+".crt"), certPEM, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(a.dir, name+".key"), keyPEM, 0o600)
}

// ServerFiles issues a certificate for names and addresses, good for serving
// and, since etcd's peers do both, for dialling.
func (a *Authority) ServerFiles(name, commonName string, hosts ...string) error {
	template, err := a.template(commonName)
	if err != nil {
		return err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, key, err := a.issue(template)
	if err != nil {
		return err
	}
	if err := writeCertificate(filepath.Join(a.dir, name+".crt"), der); err != nil {
		return err
	}
	return writeKey(filepath.Join(a.dir, name+".key"), key)
}

// WriteServiceAccountKey makes the key that signs service account tokens. It is
// RSA because the token issuer's discovery document names RS256.
func WriteServiceAccountKey(path string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	return writeKey(path, key)
}

func writeCertificate(path string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600)
}

func writeKey(path string, key crypto.Signer) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
}
