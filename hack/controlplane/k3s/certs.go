package k3s

import (
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"net"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	kubeadmapi "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pkiutil"
)

// Authority is a certificate authority.
type Authority struct {
	PEM  []byte
	cert *x509.Certificate
	key  crypto.Signer
}

// LoadAuthority reads the authority of that name from files, or makes it.
func LoadAuthority(dir, name string) (*Authority, error) {
	if !pkiutil.CertOrKeyExist(dir, name) {
		cert, key, err := pkiutil.NewCertificateAuthority(&pkiutil.CertConfig{
			Config: certutil.Config{CommonName: "k3s-" + name}, EncryptionAlgorithm: kubeadmapi.EncryptionAlgorithmECDSAP256,
		})
		if err != nil {
			return nil, err
		}
		if err := pkiutil.WriteCertAndKey(dir, name, cert, key); err != nil {
			return nil, err
		}
	}
	cert, key, err := pkiutil.TryLoadCertAndKeyFromDisk(dir, name)
	if err != nil {
		return nil, err
	}
	return &Authority{pkiutil.EncodeCertPEM(cert), cert, key}, nil
}

// hashCA is what a token pins: SHA-256 of the certificate's PEM.
func hashCA(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// subject is who a certificate is for: a client, and with names or addresses a
// server. As k3s's, it begins when its authority does, and ends in a year.
func subject(now time.Time, name string, groups []string, hosts ...string) *pkiutil.CertConfig {
	c := &pkiutil.CertConfig{
		Config:   certutil.Config{CommonName: name, Organization: groups, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
		NotAfter: now.AddDate(0, 0, 365), EncryptionAlgorithm: kubeadmapi.EncryptionAlgorithmECDSAP256,
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			c.AltNames.IPs = append(c.AltNames.IPs, ip)
		} else {
			c.AltNames.DNSNames = append(c.AltNames.DNSNames, host)
		}
	}
	if len(hosts) > 0 {
		c.Usages = append(c.Usages, x509.ExtKeyUsageServerAuth)
	}
	return c
}

// issue writes a certificate and its key, as files of that name.
func (a *Authority) issue(file string, who *pkiutil.CertConfig) error {
	cert, key, err := pkiutil.NewCertAndKey(a.cert, a.key, who)
	if err != nil {
		return err
	}
	return pkiutil.WriteCertAndKey(filepath.Dir(file), filepath.Base(file), cert, key)
}

// publicKey is a key of which only the public half is known.
type publicKey struct {
	crypto.Signer
	public any
}

func (k publicKey) Public() crypto.PublicKey { return k.public }

// sign returns a certificate for another's key.
func (a *Authority) sign(who *pkiutil.CertConfig, public any) ([]byte, error) {
	cert, err := pkiutil.NewSignedCert(who, publicKey{public: public}, a.cert, a.key, false)
	if err != nil {
		return nil, err
	}
	return pkiutil.EncodeCertPEM(cert), nil
}

// writeKubeconfig writes a client's access by the files of its certificate and key,
// or with what they hold.
func writeKubeconfig(path, server, ca, name string, inline bool) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["default"] = &clientcmdapi.Cluster{Server: server, CertificateAuthority: ca}
	config.AuthInfos["default"] = &clientcmdapi.AuthInfo{ClientCertificate: name + ".crt", ClientKey: name + ".key"}
	config.Contexts["default"] = &clientcmdapi.Context{Cluster: "default", AuthInfo: "default"}
	config.CurrentContext = "default"
	if inline {
		if err := clientcmdapi.FlattenConfig(config); err != nil {
			return err
		}
	}
	return clientcmd.WriteToFile(*config, path)
}
