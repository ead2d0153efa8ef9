package attest

import (
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"time"
)

const maxHops = 4

// Issuers gives certificates of who signed a certificate, as by the addresses that it
// names ("CA issuers"). What these may be is its business; none, without an error, is
// where nobody can be asked. from is who brought the certificate, by whatever tells one
// from another. It is safe for concurrent use.
type Issuers interface {
	Issuers(ctx context.Context, child *x509.Certificate, from string) ([]*x509.Certificate, error)
}

// chain verifies that the signer descends from the roots: by the certificates of
// the message, and by Issuers where they do not reach.
func (v *Verifier) chain(ctx context.Context, signer *x509.Certificate, given []*x509.Certificate, from string, now time.Time) error {
	options := x509.VerifyOptions{
		Roots: v.Roots, Intermediates: x509.NewCertPool(), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if options.Roots == nil {
		options.Roots = Roots()
	}
	given = append(slices.Clip(given), v.Intermediates...)
	for _, c := range given {
		if strong(c) == nil {
			options.Intermediates.AddCert(c)
		}
	}
	_, err := signer.Verify(options)
	last := signer
	for hop := 0; err != nil && hop < maxHops; hop++ {
		if !missing(err) || v.Issuers == nil {
			break
		}
		above, fetchErr := v.above(ctx, last, given, from)
		if fetchErr != nil {
			return refuse(Unreachable, "%w (%v)", fetchErr, err)
		}
		if len(above) == 0 {
			break
		}
		for _, c := range above {
			options.Intermediates.AddCert(c)
			last = c
		}
		_, err = signer.Verify(options)
	}
	if err != nil {
		return refuse(Untrusted, "%w", err)
	}
	if signer.KeyUsage != 0 && signer.KeyUsage&x509.KeyUsageDigitalSignature == 0 {
		return refuse(Untrusted, "the signer's key is not for signatures")
	}
	return nil
}

// missing tells an issuer that is not known from a chain that is wrong: only the
// first is mended by another certificate.
func missing(err error) bool {
	var unknown x509.UnknownAuthorityError
	return errors.As(err, &unknown)
}

// above returns issuers of a certificate, or of the highest of those given that it
// descends from: none where that one names none, or signed itself.
func (v *Verifier) above(ctx context.Context, c *x509.Certificate, given []*x509.Certificate, from string) ([]*x509.Certificate, error) {
	for range maxHops {
		issuer := issuerAmong(given, c)
		if issuer == nil {
			break
		}
		c = issuer
	}
	if c.CheckSignatureFrom(c) == nil {
		return nil, nil
	}
	return v.Issuers.Issuers(ctx, c, from)
}

func issuerAmong(given []*x509.Certificate, c *x509.Certificate) *x509.Certificate {
	for _, g := range given {
		if !g.Equal(c) && strong(g) == nil && c.CheckSignatureFrom(g) == nil {
			return g
		}
	}
	return nil
}
