package attest

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"slices"
	"testing"
	"time"
)

// The embedded roots are these, as their owners publish them, and no others.
func TestRootsAreMicrosoftsAndDigiCerts(t *testing.T) {
	want := map[string]string{
		"DigiCert Global Root CA":                       "4348a0e9444c78cb265e058d5e8944b4d84f9662bd26db257f8934a443c70161",
		"DigiCert Global Root G2":                       "cb3ccbb76031e5e0138f8dd39a23f9de47ffc35e43c1144cea27d46a5ab1cb5f",
		"DigiCert Global Root G3":                       "31ad6648f8104138c738f39ea4320133393e3a18cc02296ef97c2ac9ef6731d0",
		"DigiCert TLS ECC P384 Root G5":                 "018e13f0772532cf809bd1b17281867283fc48c6e13be9c69812854a490c1b05",
		"DigiCert TLS RSA4096 Root G5":                  "371a00dc0533b3721a7eeb40e8419e70799d2b0a0f2c1d80693165f7cec4ad75",
		"Microsoft ECC Root Certificate Authority 2017": "358df39d764af9e1b766e9c972df352ee15cfac227af6ad1d70e8e4a6edcba02",
		"Microsoft RSA Root Certificate Authority 2017": "c741f70f4b2a8d88bf2e71c14122ef53ef10eba0cfa5e64cfa20f418853073e0",
	}
	for rest := rootsPEM; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(c.Raw)
		if name := c.Subject.CommonName; want[name] != hex.EncodeToString(sum[:]) {
			t.Errorf("%q is another certificate", name)
		}
		if !slices.Contains([]string{"Microsoft Corporation", "DigiCert Inc", "DigiCert, Inc."}, c.Subject.Organization[0]) || !c.IsCA || !bytes.Equal(c.RawSubject, c.RawIssuer) || strong(c) != nil {
			t.Errorf("%s is no root of theirs", c.Subject)
		}
		if c.NotAfter.Before(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)) {
			t.Errorf("%s ends %s", c.Subject, c.NotAfter)
		}
		delete(want, c.Subject.CommonName)
	}
	if len(want) != 0 {
		t.Errorf("missing: %v", want)
	}
}
