package join

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/asn1"
	"time"
)

const certificateDays = 365

// A certificate as far as a self-signed one without extensions goes. Who looks at it
// looks at the key; x509.CreateCertificate knows all that others may hold, and takes
// a two-hundredth of the agent. Source: RFC 5280, 4.1.
type (
	algorithm struct{ ID asn1.ObjectIdentifier }
	validity  struct {
		From  time.Time `asn1:"utc"`
		Until time.Time `asn1:"utc"`
	}
	toBeSigned struct {
		Version   int `asn1:"explicit,tag:0"`
		Serial    int64
		Algorithm algorithm
		Issuer    asn1.RawValue
		Validity  validity
		Subject   asn1.RawValue
		Key       asn1.RawValue
	}
	signed struct {
		Content   asn1.RawValue
		Algorithm algorithm
		Signature asn1.BitString
	}
)

// certificate is one of the key, by the key. Its times are wide, since a machine's
// clock may be wrong when it starts.
func (k identityKey) certificate(now time.Time) ([]byte, error) {
	by := algorithm{asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2}} // ecdsa-with-SHA256
	nobody := asn1.RawValue{FullBytes: []byte{0x30, 0}}
	// Years beyond 2049 have another form, which a clock that is that wrong may do
	// without.
	now = now.UTC()
	content, err := asn1.Marshal(toBeSigned{
		Version: 2, Serial: now.UnixMilli(), Algorithm: by, Issuer: nobody, Subject: nobody,
		Validity: validity{now.AddDate(0, 0, -certificateDays), now.AddDate(0, 0, certificateDays)},
		Key:      asn1.RawValue{FullBytes: k.public},
	})
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(content)
	signature, err := ecdsa.SignASN1(rand.Reader, k.key, digest[:])
	if err != nil {
		return nil, err
	}
	return asn1.Marshal(signed{asn1.RawValue{FullBytes: content}, by, asn1.BitString{Bytes: signature, BitLength: 8 * len(signature)}})
}
