package hollow

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1" //nolint:gosec // the agent names certificates so
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/smallstep/pkcs7"
)

// extensionFiles writes the settings of extensions as the Azure Linux agent keeps them.
// The protected ones are encrypted to the machine's transport certificate.
func (r *running) extensionFiles() error {
	type handler struct {
		Thumbprint string          `json:"protectedSettingsCertThumbprint,omitempty"`
		Protected  string          `json:"protectedSettings,omitempty"`
		Public     json.RawMessage `json:"publicSettings"`
	}
	var cert *x509.Certificate
	for _, e := range r.computer.Extensions {
		h := handler{Public: e.Public}
		if e.Public == nil {
			h.Public = json.RawMessage("{}")
		}
		if e.Protected != nil {
			if cert == nil {
				var err error
				if cert, h.Thumbprint, err = r.transportCertificate(); err != nil {
					return err
				}
			}
			message, err := pkcs7.Encrypt(e.Protected, []*x509.Certificate{cert})
			if err != nil {
				return fmt.Errorf("encrypt settings of %s: %w", e.Type, err)
			}
			h.Thumbprint, h.Protected = fmt.Sprintf("%X", sha1.Sum(cert.Raw)), base64.StdEncoding.EncodeToString(message) //nolint:gosec // as above
		}
		text, err := json.Marshal(map[string]any{"runtimeSettings": []any{map[string]any{"handlerSettings": h}}})
		if err != nil {
			return fmt.Errorf("encode settings of %s: %w", e.Type, err)
		}
		at := fmt.Sprintf("/var/lib/waagent/%s.%s-%s.0/config/0.settings", e.Publisher, e.Type, e.Version)
		if err := r.tree.writeFile(at, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// transportCertificate makes the certificate to which Azure encrypts protected settings.
func (r *running) transportCertificate() (*x509.Certificate, string, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, "", err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "Windows Azure CRP Certificate Generator"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0), KeyUsage: x509.KeyUsageKeyEncipherment | x509.KeyUsageDataEncipherment,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, "", err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, "", err
	}
	thumbprint := fmt.Sprintf("%X", sha1.Sum(der)) //nolint:gosec // as above
	private, err := x509.MarshalPKCS8PrivateKey(key)
	return cert, thumbprint, errors.Join(err,
		r.tree.writeFile("/var/lib/waagent/"+thumbprint+".crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		r.tree.writeFile("/var/lib/waagent/"+thumbprint+".prv", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
}
