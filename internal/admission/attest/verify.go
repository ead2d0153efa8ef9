package attest

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/smallstep/pkcs7"

	"github.com/ortet/ortet/internal/wire/ber"
)

// Azure writes times in UTC as "11/20/18 22:07:39 -0000".
const timeLayout = "01/02/06 15:04:05 -0700"

const (
	maxText    = 16 << 10 // bytes of a document in base64; Azure's have about 5 KiB
	maxContent = 8 << 10  // bytes of the JSON in it
	maxDepth   = 32       // of objects within each other; Azure's documents have about 12
	maxObjects = 4096     // Azure's documents have about 400
	maxCerts   = 3        // certificates in a document: the signer's and its issuers'
	maxAge     = 5 * time.Minute
	skew       = 2 * time.Minute
)

// A Reason says why a document proves nothing.
type Reason string

// Reasons, in the order in which they are looked for.
const (
	Malformed     Reason = "DocumentMalformed"       // not what Azure gives: no PKCS #7 of a JSON, too large, too deep
	NotOneSigner  Reason = "DocumentNotOneSigner"    // none, or several, of whom one may be a stranger
	Forged        Reason = "DocumentForged"          // the signer's key did not sign it
	ForeignSigner Reason = "DocumentForeignSigner"   // the signer is not named as the metadata service
	WrongNonce    Reason = "DocumentWrongNonce"      // made for another request, key or instance
	NotYet        Reason = "DocumentFromTheFuture"   // created after now, beyond what clocks differ
	TooOld        Reason = "DocumentTooOld"          // created too long ago
	Expired       Reason = "DocumentExpired"         //
	Untrusted     Reason = "DocumentUntrusted"       // its chain ends at none of the roots
	Unreachable   Reason = "DocumentChainIncomplete" // an intermediate certificate could not be had; ask again
)

// Error is why a document was refused.
type Error struct {
	Reason Reason
	Err    error
}

func (e *Error) Error() string { return fmt.Sprintf("attested document: %s: %v", e.Reason, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func refuse(r Reason, format string, args ...any) error {
	return &Error{Reason: r, Err: fmt.Errorf(format, args...)}
}

// A Document is what Azure says of the machine that asked it.
type Document struct {
	Nonce          string
	VMID           string // UUID in lower case
	SubscriptionID string // in lower case; "" before 2019-04-30 of the API
	SKU            string // of the image
	Created        time.Time
	Expires        time.Time
}

// A Cloud is whose metadata service is believed: the domain of its signers.
type Cloud string

// Clouds of Microsoft's table of certificates.
const (
	Public     Cloud = "metadata.azure.com"
	Government Cloud = "metadata.azure.us"
	China      Cloud = "metadata.azure.cn"
)

// Verifier verifies documents. It is safe for concurrent use.
type Verifier struct {
	Cloud Cloud // "" is Public
	// Roots are who is trusted; nil are those of Roots, Microsoft's and DigiCert's.
	Roots *x509.CertPool
	// Intermediates are known beforehand, where nothing can be fetched.
	Intermediates []*x509.Certificate
	// Issuers gives certificates that a document lacks; nil has none.
	Issuers Issuers
	Now     func() time.Time
}

// Verify tells what a document says, if Azure signed it for this nonce, lately.
// Errors are *Error. Who sends it can make Verify ask Issuers only with a document
// that has the nonce and the signer's name right, which whoever has the nonce can
// make: from is who sends it, for Issuers to be fair by.
func (v *Verifier) Verify(ctx context.Context, document, nonce, from string) (Document, error) {
	message, signer, err := open(document)
	if err != nil {
		return Document{}, err
	}
	if err := v.named(signer); err != nil {
		return Document{}, err
	}
	d, err := read(message.Content)
	if err != nil {
		return Document{}, err
	}
	if d.Nonce != nonce {
		return Document{}, refuse(WrongNonce, "it was made for %q", d.Nonce)
	}
	now := v.Now()
	if err := d.fresh(now); err != nil {
		return Document{}, err
	}
	if err := v.chain(ctx, signer, message.Certificates, from, now); err != nil {
		return Document{}, err
	}
	return d, nil
}

// open returns the message, whose signature is right, and its only signer. Others
// took the first certificate of the message for the signer's: whoever wants may put
// one of Microsoft's there (spire #6998).
func open(document string) (*pkcs7.PKCS7, *x509.Certificate, error) {
	if len(document) > maxText {
		return nil, nil, refuse(Malformed, "%d bytes, more than %d", len(document), maxText)
	}
	raw, err := base64.StdEncoding.DecodeString(document)
	if err != nil {
		return nil, nil, refuse(Malformed, "%w", err)
	}
	if err := ber.Check(raw, ber.Limits{Depth: maxDepth, Objects: maxObjects}); err != nil {
		return nil, nil, refuse(Malformed, "%w", err)
	}
	message, err := pkcs7.Parse(raw)
	if err != nil {
		return nil, nil, refuse(Malformed, "%w", err)
	}
	if len(message.Signers) != 1 {
		return nil, nil, refuse(NotOneSigner, "%d signers", len(message.Signers))
	}
	if len(message.Certificates) > maxCerts {
		return nil, nil, refuse(Malformed, "%d certificates, more than %d", len(message.Certificates), maxCerts)
	}
	signer := message.GetOnlySigner()
	if signer == nil {
		return nil, nil, refuse(NotOneSigner, "the signer's certificate is not in it")
	}
	for _, c := range message.Certificates {
		if err := strong(c); err != nil {
			return nil, nil, refuse(Malformed, "%w", err)
		}
	}
	if slices.ContainsFunc(sha1s(), message.Signers[0].DigestAlgorithm.Algorithm.Equal) {
		return nil, nil, refuse(Forged, "signed over SHA-1")
	}
	if err := message.Verify(); err != nil {
		return nil, nil, refuse(Forged, "%w", err)
	}
	return message, signer, nil
}

// sha1s are the ids by which a message may ask for SHA-1, for which two texts with
// one signature can be found.
func sha1s() []asn1.ObjectIdentifier {
	return []asn1.ObjectIdentifier{pkcs7.OIDDigestAlgorithmSHA1, pkcs7.OIDEncryptionAlgorithmRSASHA1, pkcs7.OIDDigestAlgorithmECDSASHA1}
}

// strong takes keys of the sizes that authorities use, before a signature is looked at:
// others prove less, or cost more to verify than they are worth.
func strong(c *x509.Certificate) error {
	bits := 0
	switch k := c.PublicKey.(type) {
	case *rsa.PublicKey:
		if bits = k.N.BitLen(); slices.Contains([]int{2048, 3072, 4096}, bits) {
			return nil
		}
	case *ecdsa.PublicKey:
		if bits = k.Curve.Params().BitSize; slices.Contains([]int{256, 384, 521}, bits) {
			return nil
		}
	}
	return fmt.Errorf("a %s key of %d bits", c.PublicKeyAlgorithm, bits)
}

// named finds the metadata service in the certificate's alternative names, of which
// Microsoft says that regions have subdomains.
func (v *Verifier) named(c *x509.Certificate) error {
	domain := cmp.Or(string(v.Cloud), string(Public))
	for _, name := range c.DNSNames {
		name = strings.ToLower(name)
		if name == domain || strings.HasSuffix(name, "."+domain) {
			return nil
		}
	}
	return refuse(ForeignSigner, "its names are %.200q, want %s or one below it", c.DNSNames, domain)
}

// read reads the JSON that was signed. Azure adds fields, so unknown ones are no
// error.
func read(content []byte) (Document, error) {
	if len(content) > maxContent {
		return Document{}, refuse(Malformed, "a content of %d bytes, more than %d", len(content), maxContent)
	}
	var c struct {
		Nonce          string `json:"nonce"`
		VMID           string `json:"vmId"`
		SubscriptionID string `json:"subscriptionId"`
		SKU            string `json:"sku"`
		TimeStamp      struct {
			CreatedOn string `json:"createdOn"`
			ExpiresOn string `json:"expiresOn"`
		} `json:"timeStamp"`
	}
	if err := json.Unmarshal(content, &c); err != nil {
		return Document{}, refuse(Malformed, "%w", err)
	}
	d := Document{Nonce: c.Nonce, VMID: strings.ToLower(c.VMID), SubscriptionID: strings.ToLower(c.SubscriptionID), SKU: c.SKU}
	if !uuid(d.VMID) || (d.SubscriptionID != "" && !uuid(d.SubscriptionID)) {
		return Document{}, refuse(Malformed, "vmId %.60q, subscriptionId %.60q", c.VMID, c.SubscriptionID)
	}
	var err1, err2 error
	d.Created, err1 = time.Parse(timeLayout, c.TimeStamp.CreatedOn)
	d.Expires, err2 = time.Parse(timeLayout, c.TimeStamp.ExpiresOn)
	if err := errors.Join(err1, err2); err != nil {
		return Document{}, refuse(Malformed, "%w", err)
	}
	return d, nil
}

// uuid tells a UUID in lower case.
func uuid(s string) bool {
	for i, r := range []byte(s) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (r == '-') || (!dash && !strings.ContainsRune("0123456789abcdef", rune(r))) {
			return false
		}
	}
	return len(s) == 36
}

func (d Document) fresh(now time.Time) error {
	switch {
	case d.Created.After(now.Add(skew)):
		return refuse(NotYet, "created %s, now is %s", d.Created.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	case d.Created.Before(now.Add(-maxAge - skew)):
		return refuse(TooOld, "created %s, now is %s", d.Created.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	case !d.Expires.After(now.Add(-skew)):
		return refuse(Expired, "expired %s, now is %s", d.Expires.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}
