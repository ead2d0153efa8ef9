package metadata

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"time"

	"github.com/smallstep/pkcs7"
)

// PublicationPath is that of the certificates' publication point, where Azure's are too.
const PublicationPath = "/pkiops/certs/"

// issuerFile is the name of the issuer's certificate at the publication point.
const issuerFile = "azsim RSA TLS Issuing CA 01 - xsign.crt"

// AttestedTime is how the times of an attested document are written. They are in UTC.
const AttestedTime = "01/02/06 15:04:05 -0700"

// An AttestedDocument is what the metadata service signs. The order of the members
// is Azure's.
type AttestedDocument struct {
	LicenseType    string            `json:"licenseType"`
	Nonce          string            `json:"nonce"`
	Plan           AttestedPlan      `json:"plan"`
	SKU            string            `json:"sku"`
	SubscriptionID string            `json:"subscriptionId"`
	TimeStamp      AttestedTimeStamp `json:"timeStamp"`
	VMID           string            `json:"vmId"`
}

// An AttestedPlan is a marketplace image's plan; empty for other images.
type AttestedPlan struct {
	Name      string `json:"name"`
	Product   string `json:"product"`
	Publisher string `json:"publisher"`
}

// An AttestedTimeStamp says when a document was made and until when it holds, as
// AttestedTime.
type AttestedTimeStamp struct {
	CreatedOn string `json:"createdOn"`
	ExpiresOn string `json:"expiresOn"`
}

// AttestedFor is how long a document holds (a sample of the documentation, and those
// that others have published).
const AttestedFor = 6 * time.Hour

// NewAttestedDocument returns a document of that time. An empty nonce becomes the time
// at which it expires, as in documents that others have published; the documentation
// says that it is the current one.
func NewAttestedDocument(vmID, subscription, nonce string, now time.Time) AttestedDocument {
	expires := now.UTC().Add(AttestedFor)
	if nonce == "" {
		nonce = expires.Format("20060102-150405")
	}
	return AttestedDocument{
		Nonce: nonce, SubscriptionID: subscription, VMID: vmID,
		TimeStamp: AttestedTimeStamp{CreatedOn: azureTime(now), ExpiresOn: azureTime(expires)},
	}
}

// azureTime writes UTC with the zone "-0000", as Azure does.
func azureTime(t time.Time) string { return t.UTC().Format("01/02/06 15:04:05") + " -0000" }

// LeafOptions say what certificate an Attestor signs with. The zero value is one as
// Azure's in "eastus".
type LeafOptions struct {
	// Names are the certificate's DNS names; none means those of "eastus".
	Names []string
	// CommonName is the subject's; "" means "metadata.azure.com".
	CommonName string
	// NotBefore and NotAfter bound the certificate; zero means from a day before to a
	// year after the Attestor's time.
	NotBefore, NotAfter time.Time
	// Issuers are the "CA issuers" addresses; nil means where Azure's would be, below
	// http://www.microsoft.com/pkiops/certs/. Empty means none.
	Issuers []string
}

// An Attestor signs attested documents as Azure's metadata service does: with a
// certificate for metadata.azure.com by an intermediate, which only a fetch of its
// "CA issuers" address gives, by a root. By its options it signs what Azure would
// not, for tests of who verifies. It is safe for concurrent use.
type Attestor struct {
	now                time.Time
	root, intermediate *x509.Certificate
	issuerKey          *ecdsa.PrivateKey
	key                *rsa.PrivateKey
	leaf               *x509.Certificate
}

// NewAttestor makes a root, an intermediate and a leaf of its own, valid around now.
// It makes an RSA key, which takes some tenths of a second.
func NewAttestor(o LeafOptions, now time.Time) (*Attestor, error) {
	rootKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the attestation root's key: %w", err)
	}
	a := &Attestor{now: now}
	if a.issuerKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, fmt.Errorf("make the attestation issuer's key: %w", err)
	}
	if a.key, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		return nil, fmt.Errorf("make the key that signs attested documents: %w", err)
	}
	authority := func(name string) *x509.Certificate {
		return &x509.Certificate{
			Subject:   pkix.Name{Country: []string{"US"}, Organization: []string{"azsim"}, CommonName: name},
			NotBefore: now.AddDate(-1, 0, 0), NotAfter: now.AddDate(10, 0, 0),
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		}
	}
	root := authority("azsim Global Root G2")
	if a.root, err = sign(root, root, rootKey.Public(), rootKey); err != nil {
		return nil, fmt.Errorf("make the attestation root: %w", err)
	}
	issuer := authority("azsim RSA TLS Issuing CA 01")
	issuer.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	issuer.MaxPathLenZero = true
	if a.intermediate, err = sign(issuer, a.root, a.issuerKey.Public(), rootKey); err != nil {
		return nil, fmt.Errorf("make the attestation issuer: %w", err)
	}
	return a.WithLeaf(o)
}

// WithLeaf returns an Attestor of the same root and key that signs with another leaf.
func (a *Attestor) WithLeaf(o LeafOptions) (*Attestor, error) {
	if len(o.Names) == 0 {
		o.Names = RegionNames("westeurope")
	}
	o.CommonName = cmp.Or(o.CommonName, "metadata.azure.com")
	if o.NotBefore.IsZero() {
		o.NotBefore = a.now.AddDate(0, 0, -1)
	}
	if o.NotAfter.IsZero() {
		o.NotAfter = a.now.AddDate(1, 0, 0)
	}
	if o.Issuers == nil {
		o.Issuers = []string{IssuerURL()}
	}
	leaf, err := sign(&x509.Certificate{
		Subject:   pkix.Name{Country: []string{"US"}, Organization: []string{"azsim"}, CommonName: o.CommonName},
		NotBefore: o.NotBefore, NotAfter: o.NotAfter, DNSNames: o.Names, BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IssuingCertificateURL: o.Issuers,
	}, a.intermediate, a.key.Public(), a.issuerKey)
	if err != nil {
		return nil, fmt.Errorf("make the certificate that signs attested documents: %w", err)
	}
	other := *a
	other.leaf = leaf
	return &other, nil
}

// RegionNames are the names of the metadata service's certificate in a region.
func RegionNames(location string) []string {
	return []string{strings.ToLower(strings.ReplaceAll(location, " ", "")) + ".metadata.azure.com", "metadata.azure.com"}
}

func sign(template, parent *x509.Certificate, key, by any) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key, by)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// Leaf is the certificate that signs.
func (a *Attestor) Leaf() *x509.Certificate { return a.leaf }

// Intermediate is the leaf's issuer.
func (a *Attestor) Intermediate() *x509.Certificate { return a.intermediate }

// Roots holds the root alone.
func (a *Attestor) Roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.root)
	return pool
}

// RootPEM is the root's certificate.
func (a *Attestor) RootPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.root.Raw})
}

// IssuerURL is where an Attestor's leaf says that its issuer is.
func IssuerURL() string {
	return "http://www.microsoft.com" + PublicationPath + strings.ReplaceAll(issuerFile, " ", "%20")
}

// ServeHTTP is the publication point: the intermediate at the path of IssuerURL, in
// DER, on whatever host.
func (a *Attestor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path != PublicationPath+issuerFile:
		http.NotFound(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
	default:
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(a.intermediate.Raw) // the client has gone: nothing to do
	}
}

// SignOptions say how a document is signed; the zero value is as Azure does it.
type SignOptions struct {
	// Chain embeds the intermediate after the leaf.
	Chain bool
	// First are certificates that come before the leaf.
	First []*x509.Certificate
	// Also sign the same, as further signers.
	Also []*Attestor
	// Detached leaves the content out.
	Detached bool
	// Attributes signs attributes, among them the content's digest, and not the
	// content itself: Azure does not, other signers of PKCS #7 do.
	Attributes bool
}

// Sign signs a document and gives it as the member "signature" of the metadata
// service's answer: base64 of a PKCS #7 message.
func (a *Attestor) Sign(d AttestedDocument, o SignOptions) (string, error) {
	content, err := json.Marshal(d)
	if err != nil {
		return "", err
	}
	der, err := a.SignContent(content, o)
	if err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(der), nil
}

// SignContent signs any content and gives the PKCS #7 message in DER.
func (a *Attestor) SignContent(content []byte, o SignOptions) ([]byte, error) {
	message, err := pkcs7.NewSignedData(content)
	if err != nil {
		return nil, err
	}
	message.SetDigestAlgorithm(pkcs7.OIDDigestAlgorithmSHA256)
	for _, c := range o.First {
		message.AddCertificate(c)
	}
	add := message.SignWithoutAttr
	if o.Attributes {
		add = message.AddSigner
	}
	for _, by := range append([]*Attestor{a}, o.Also...) {
		if err := add(by.leaf, by.key, pkcs7.SignerInfoConfig{}); err != nil {
			return nil, fmt.Errorf("sign an attested document: %w", err)
		}
	}
	if o.Chain {
		message.AddCertificate(a.intermediate)
	}
	data := message.GetSignedData()
	if !o.Attributes {
		// Azure names the signature's algorithm where that of the digest belongs.
		for i := range data.DigestAlgorithmIdentifiers {
			data.DigestAlgorithmIdentifiers[i] = sha256WithRSA()
		}
		for i := range data.SignerInfos {
			data.SignerInfos[i].DigestAlgorithm = sha256WithRSA()
			data.SignerInfos[i].DigestEncryptionAlgorithm.Parameters = asn1.NullRawValue
		}
	}
	if o.Detached {
		message.Detach()
	}
	return message.Finish()
}

func sha256WithRSA() pkix.AlgorithmIdentifier {
	return pkix.AlgorithmIdentifier{Algorithm: pkcs7.OIDEncryptionAlgorithmRSASHA256, Parameters: asn1.NullRawValue}
}
