package file

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/yamlfile"
)

func (p parser) certificates(all []nodeconfig.CACertificate, now time.Time) {
	seen := map[string]bool{}
	for i, ca := range all {
		at := fmt.Sprintf("spec.caCertificates[%d]", i)
		if seen[ca.Name] {
			p.At(at+".name", yamlfile.Quote(ca.Name)+" is the name of another certificate already; use another")
		}
		seen[ca.Name] = true
		p.pem(at+".pem", []byte(ca.PEM), now)
	}
}

// pem checks that a text has certificates of CAs, and nothing after them.
func (p parser) pem(at string, text []byte, now time.Time) {
	rest, count := text, 0
	for block, after := pem.Decode(rest); block != nil; block, after = pem.Decode(rest) {
		if cause := notCA(block, now); cause != "" {
			p.AtOffset(at, len(text)-len(bytes.TrimLeft(rest, " \t\r\n")), cause)
		}
		rest = after
		count++
	}
	switch {
	case count == 0:
		p.At(at, "has no certificate; give PEM, which begins with -----BEGIN CERTIFICATE-----")
	case count < bytes.Count(text, []byte("-----BEGIN")) || len(bytes.TrimSpace(rest)) > 0:
		p.At(at, "has text after certificates, or a certificate that is cut off; delete or complete it")
	}
}

// notCA says why a block is not the certificate of a CA that is valid now.
func notCA(block *pem.Block, now time.Time) string {
	if strings.HasSuffix(block.Type, "PRIVATE KEY") {
		return "has a private key, and every process of a machine can read userData; delete it, and consider the key as published"
	}
	if block.Type != "CERTIFICATE" {
		return "has a block of type " + yamlfile.Quote(block.Type) + "; give certificates of CAs only"
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "has a certificate that cannot be read: " + err.Error() + "; give the CA's certificate as PEM"
	}
	subject := yamlfile.Quote(c.Subject.String())
	switch {
	case !c.BasicConstraintsValid || !c.IsCA:
		return fmt.Sprintf("certificate of %s is not a CA's; give the certificate of its issuer, %s", subject, yamlfile.Quote(c.Issuer.String()))
	case now.After(c.NotAfter):
		return fmt.Sprintf("certificate of %s expired at %s; give its successor", subject, c.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(c.NotBefore):
		return fmt.Sprintf("certificate of %s is not valid before %s; use it from then on", subject, c.NotBefore.UTC().Format(time.RFC3339))
	}
	return ""
}
