package attest

import (
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"time"
)

const maxHops = 4

// Issuers gives the certificate of an issuer from the address that a certificate
// names ("CA issuers"). What the address may be is its business. It is safe for
// concurrent use.
type Issuers interface {
	Issuer(ctx context.Context, url string) (*x509.Certificate, error)
}

// chain verifies that the signer descends from the roots: by the certificates of
// the message, and by Issuers where they do not reach.
func (v *Verifier) chain(ctx context.Context, signer *x509.Certificate, given []*x509.Certificate, now time.Time) error {
	options := x509.VerifyOptions{
		Roots: v.Roots, Intermediates: x509.NewCertPool(), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if options.Roots == nil {
		system, err := x509.SystemCertPool()
		if err != nil {
			return refuse(Unreachable, "the system's roots: %w", err)
		}
		options.Roots = system
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
		next, fetchErr := v.next(ctx, last, given)
		if fetchErr != nil {
			return refuse(Unreachable, "%w (%v)", fetchErr, err)
		}
		if next == nil {
			break
		}
		options.Intermediates.AddCert(next)
		last = next
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

// next gives the issuer of a certificate: nil where it names none, or where it is
// one that signed itself.
func (v *Verifier) next(ctx context.Context, c *x509.Certificate, given []*x509.Certificate) (*x509.Certificate, error) {
	for range maxHops {
		above := issuerAmong(given, c)
		if above == nil {
			break
		}
		c = above
	}
	if c.CheckSignatureFrom(c) == nil || len(c.IssuingCertificateURL) == 0 {
		return nil, nil
	}
	issuer, err := v.Issuers.Issuer(ctx, c.IssuingCertificateURL[0])
	if err != nil {
		return nil, err
	}
	if err := c.CheckSignatureFrom(issuer); err != nil {
		return nil, nil //nolint:nilerr // somebody else's certificate is as good as none: the chain says what is wrong
	}
	return issuer, nil
}

func issuerAmong(given []*x509.Certificate, c *x509.Certificate) *x509.Certificate {
	for _, g := range given {
		if !g.Equal(c) && strong(g) == nil && c.CheckSignatureFrom(g) == nil {
			return g
		}
	}
	return nil
}
