package k3s

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/keyutil"
)

// Authority is a certificate authority in two files.
type Authority struct {
	CertFile, KeyFile string
	PEM               []byte
	cert              *x509.Certificate
	key               *ecdsa.PrivateKey
}

// LoadAuthority reads the authority of that name, or makes it.
func LoadAuthority(dir, name string, now time.Time) (*Authority, error) {
	a := &Authority{CertFile: filepath.Join(dir, name+".crt"), KeyFile: filepath.Join(dir, name+".key")}
	var err error
	if a.key, err = loadKey(a.KeyFile); err != nil {
		return nil, err
	}
	if a.PEM, err = os.ReadFile(a.CertFile); errors.Is(err, fs.ErrNotExist) {
		template := &x509.Certificate{
			SerialNumber: serial(), Subject: pkix.Name{CommonName: fmt.Sprintf("k3s-%s@%d", name, now.Unix())},
			NotBefore: now.Add(-time.Minute), NotAfter: now.AddDate(10, 0, 0), IsCA: true, BasicConstraintsValid: true,
			KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign | x509.KeyUsageKeyEncipherment,
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
		if err != nil {
			return nil, err
		}
		a.PEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		if err := writeFile(a.CertFile, a.PEM, 0o644); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(a.PEM)
	if block == nil {
		return nil, fmt.Errorf("read %s: no certificate", a.CertFile)
	}
	a.cert, err = x509.ParseCertificate(block.Bytes)
	return a, err
}

// Hash is what a full token pins: SHA-256 of the certificate's PEM.
func (a *Authority) Hash() string { return hashCA(a.PEM) }

func hashCA(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// A subject is who a certificate is for.
type subject struct {
	name    string
	groups  []string
	hosts   []string // names and addresses; with any, it serves
	clients bool     // it is a client too
}

// sign returns a certificate for a year, followed by the authority's.
func (a *Authority) sign(s subject, public any, now time.Time) ([]byte, error) {
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: s.name, Organization: s.groups},
		NotBefore: now.Add(-time.Minute), NotAfter: now.AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
	}
	if len(s.hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if len(s.hosts) == 0 || s.clients {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	for _, host := range s.hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		return nil, err
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), a.PEM...), nil
}

// issue writes a certificate and its key, as files of that name.
func (a *Authority) issue(name string, s subject, now time.Time) error {
	key, err := loadKey(name + ".key")
	if err != nil {
		return err
	}
	text, err := a.sign(s, key.Public(), now)
	if err != nil {
		return err
	}
	return writeFile(name+".crt", text, 0o644)
}

// loadKey reads a key, or makes it.
func loadKey(file string) (*ecdsa.PrivateKey, error) {
	text, _, err := keyutil.LoadOrGenerateKeyFile(file)
	if err != nil {
		return nil, err
	}
	key, err := keyutil.ParsePrivateKeyPEM(text)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	if key, ok := key.(*ecdsa.PrivateKey); ok {
		return key, nil
	}
	return nil, fmt.Errorf("read %s: no elliptic key", file)
}

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 63))
	if err != nil {
		return big.NewInt(1) // crypto/rand does not fail
	}
	return n
}

// writeFile replaces a file at once, and makes its folder.
func writeFile(path string, content []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".part", content, mode); err != nil {
		return err
	}
	if err := os.Chmod(path+".part", mode); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}

// writeKubeconfig writes a client's access by its certificate and key: their paths,
// or in the file itself.
func writeKubeconfig(path, server string, ca []byte, name string, inline bool, mode fs.FileMode) error {
	data := map[string]string{"Data": "", "Server": server, "CA": base64.StdEncoding.EncodeToString(ca), "Cert": name + ".crt", "Key": name + ".key"}
	if inline {
		data["Data"] = "-data"
		for _, field := range []string{"Cert", "Key"} {
			text, err := os.ReadFile(data[field])
			if err != nil {
				return err
			}
			data[field] = base64.StdEncoding.EncodeToString(text)
		}
	}
	text, err := render("kubeconfig.yaml", data)
	if err != nil {
		return err
	}
	return writeFile(path, text, mode)
}
