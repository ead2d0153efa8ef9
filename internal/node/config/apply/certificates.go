package apply

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"path"
	"strconv"
	"time"
)

// certificates writes each certificate to a file of its own: update-ca-certificates makes
// no hash link for a file with several.
func (p *plan) certificates(h host, now time.Time) error {
	all := p.doc.Config.CACertificates
	for _, c := range all {
		if !plainName.MatchString(c.Name) {
			return fmt.Errorf("CA certificate %q: want a name of letters, digits and -", c.Name)
		}
		blocks, err := readCAs([]byte(c.PEM), now)
		if err != nil {
			return fmt.Errorf("CA certificate %s: %w", c.Name, err)
		}
		for i, text := range blocks {
			name := "ortet-" + c.Name
			if i > 0 {
				name += "-" + strconv.Itoa(i+1)
			}
			if err := p.write(path.Join(certificateDir, name+".crt"), string(text)); err != nil {
				return err
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	if there, err := h.t.Exists(updateCA); err != nil || !there {
		return notPrepared("%s is missing: CA certificates need the package ca-certificates of Debian or Ubuntu", updateCA)
	}
	return nil
}

// readCAs gives each certificate as PEM. Others than valid ones of CAs are errors.
func readCAs(text []byte, now time.Time) (all [][]byte, err error) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("PEM block %q is no certificate", block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		switch {
		case err != nil:
			return nil, fmt.Errorf("read certificate: %w", err)
		case !c.IsCA || !c.BasicConstraintsValid:
			return nil, fmt.Errorf("%q is the certificate of a server or client, not of a CA: give its issuer's (%q)", c.Subject, c.Issuer)
		case now.After(c.NotAfter):
			return nil, fmt.Errorf("%q expired at %s", c.Subject, c.NotAfter.Format(time.RFC3339))
		case now.Before(c.NotBefore):
			return nil, fmt.Errorf("%q is valid from %s on", c.Subject, c.NotBefore.Format(time.RFC3339))
		}
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes}))
	}
	if len(all) == 0 || len(bytes.TrimSpace(text)) > 0 {
		return nil, errors.New("want certificates in PEM and nothing else")
	}
	return all, nil
}
