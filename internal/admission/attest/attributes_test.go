package attest_test

import (
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/ortet/ortet/azsim/metadata"
	"github.com/ortet/ortet/internal/admission/attest"
)

// A CMS signature over signed attributes also verifies for a message without attributes
// whose content is the DER encoding of those attributes. Such content is not JSON.
func TestAttributesAreNoContent(t *testing.T) {
	azure := attestors()[0]
	raw, err := base64.StdEncoding.DecodeString(signed(t, azure, document(), metadata.SignOptions{Attributes: true}))
	if err != nil {
		t.Fatal(err)
	}
	type content struct {
		Type    asn1.ObjectIdentifier
		Content asn1.RawValue `asn1:"explicit,optional,tag:0"`
	}
	type signer struct {
		Version    int
		Issuer     asn1.RawValue
		Digest     pkix.AlgorithmIdentifier
		Attributes asn1.RawValue `asn1:"optional,tag:0"`
		Encryption pkix.AlgorithmIdentifier
		Signature  []byte
	}
	type data struct {
		Version      int
		Digests      []pkix.AlgorithmIdentifier `asn1:"set"`
		Content      content
		Certificates asn1.RawValue `asn1:"optional,tag:0"`
		Signers      []signer      `asn1:"set"`
	}
	var outer content
	var inner data
	if _, err := asn1.Unmarshal(raw, &outer); err != nil {
		t.Fatal(err)
	}
	if _, err := asn1.Unmarshal(outer.Content.Bytes, &inner); err != nil {
		t.Fatal(err)
	}
	marshal := func(v any) []byte {
		der, err := asn1.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	attributes := marshal(asn1.RawValue{Tag: asn1.TagSet, IsCompound: true, Bytes: inner.Signers[0].Attributes.Bytes})
	inner.Content.Content = asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: marshal(attributes)}
	inner.Signers[0].Attributes = asn1.RawValue{}
	outer.Content = asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: marshal(inner)}
	fetcher, _ := publication(azure, still)
	v := &attest.Verifier{Roots: azure.Roots(), Issuers: fetcher, Now: still}
	d, err := v.Verify(t.Context(), base64.StdEncoding.EncodeToString(marshal(outer)), nonce, home)
	if reasonOf(err) != attest.Malformed || !strings.Contains(err.Error(), "invalid character") || d != (attest.Document{}) {
		t.Errorf("%v (%+v), want %s: valid signature, content is not JSON", err, d, attest.Malformed)
	}
}
