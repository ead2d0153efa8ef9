package join

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
)

// errUntrusted means that the server's certificate does not come from the CA of the
// settings.
var errUntrusted = errors.New("the server's certificate does not come from the CA of caHash")

// trust is a TLS configuration that takes a server whose chain ends at a certificate
// with one of these public keys, for this host's name or address. The chain is what
// the server sends, so its CA has to be in it; nothing else is trusted, the system's
// roots neither.
func trust(pins [][32]byte, host string) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         host,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies instead, resumed connections too
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return errUntrusted
			}
			// The state's own name is "" where the host is an address.
			options := x509.VerifyOptions{DNSName: host, Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
			found := false
			for _, c := range s.PeerCertificates {
				if slices.Contains(pins, sha256.Sum256(c.RawSubjectPublicKeyInfo)) {
					options.Roots.AddCert(c)
					found = true
				} else {
					options.Intermediates.AddCert(c)
				}
			}
			if !found {
				return errUntrusted
			}
			_, err := s.PeerCertificates[0].Verify(options)
			return err
		},
	}
}
