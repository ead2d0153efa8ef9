package controlplane

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

// validity of all certificates: longer than any run, short enough to be
// worthless when found later.
const validity = 7 * 24 * time.Hour

// authority signs certificates. Its files are <name>.crt and <name>.key.
type authority struct {
	dir  string
	name string
	now  func() time.Time
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// newAuthority makes a CA and writes it to dir.
func newAuthority(dir, name, commonName string, now func() time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &authority{dir: dir, name: name, now: now, key: key}
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
	if err := writeCertificate(a.certFile(), der); err != nil {
		return nil, err
	}
	return a, writeKey(a.keyFile(), key)
}

func (a *authority) certFile() string { return filepath.Join(a.dir, a.name+".crt") }
func (a *authority) keyFile() string  { return filepath.Join(a.dir, a.name+".key") }

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func (a *authority) template(commonName string, organizations ...string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: commonName, Organization: organizations},
		// Machines with a clock of their own may lag a little.
		NotBefore: a.now().Add(-5 * time.Minute),
		NotAfter:  a.now().Add(validity),
		KeyUsage:  x509.KeyUsageDigitalSignature,
	}, nil
}

// issue makes a key and a certificate for it.
func (a *authority) issue(template *x509.Certificate) (der []byte, key crypto.Signer, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, err
	}
	der, err = x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	return der, key, err
}

// client issues a client certificate.
func (a *authority) client(user string, groups ...string) (certPEM, keyPEM []byte, err error) {
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

// clientFiles issues a client certificate into <name>.crt and <name>.key.
func (a *authority) clientFiles(name, user string, groups ...string) error {
	certPEM, keyPEM, err := a.client(user, groups...)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(a.dir, name+".crt"), certPEM, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(a.dir, name+".key"), keyPEM, 0o600)
}

// serverFiles issues a certificate for names and addresses, good for serving
// and, since etcd's peers do both, for dialling.
func (a *authority) serverFiles(name, commonName string, hosts ...string) error {
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

// writeServiceAccountKey makes the key that signs service account tokens. It is
// RSA because the token issuer's discovery document names RS256.
func writeServiceAccountKey(path string) error {
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
