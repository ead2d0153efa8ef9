package attest

import (
	"crypto/x509"
	_ "embed" // the roots
)

// rootsPEM are the roots of Microsoft's list of those that Azure's services use ("Azure
// Certificate Authority details"), as Mozilla's store has them.
//
//go:embed roots.pem
var rootsPEM []byte

// Roots returns a pool of the authorities that sign for Azure: Microsoft's and DigiCert's.
// The system's store is never asked: any of its hundred authorities, and whatever an
// administrator added to it, could speak for Azure.
func Roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(rootsPEM) // a test reads them all
	return pool
}
