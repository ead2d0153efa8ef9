package attest

import (
	"fmt"
	"strings"
)

// knownNames are the files of the authorities that Microsoft says sign the metadata
// service's certificates, today and until lately ("Troubleshoot IMDS certificate chain
// issues on Linux VMs", "Azure Certificate Authority details"). They are fetched
// whoever asks, since they are few, and nobody else is trusted or distrusted by this
// list: names that are not in it are fetched at a pace.
func knownNames() []string {
	names := []string{bridgeOf("Microsoft TLS RSA Root G2")}
	for n := 2; n <= 16; n += 2 {
		names = append(names, fmt.Sprintf("Microsoft TLS G2 RSA CA OCSP %02d.crt", n))
	}
	for _, n := range []int{3, 4, 7, 8} {
		authority := fmt.Sprintf("Microsoft Azure RSA TLS Issuing CA %02d", n)
		names = append(names, bridgeOf(authority), authority+".crt")
	}
	return names
}

// rootNames are those of authorities that signed themselves, which a certificate may
// name as its issuer's: known too, but of use only where the roots have them anyway.
func rootNames() []string { return []string{"Microsoft TLS RSA Root G2.crt"} }

// bridgeOf names the certificate by which an authority that is no root everywhere
// descends from one that is.
func bridgeOf(authority string) string { return authority + " - xsign.crt" }

// addressOf is where a name is published.
func addressOf(name string) string { return Publication + strings.ReplaceAll(name, " ", "%20") }

// knownAddresses are those of the known names, at all that publish them.
func knownAddresses() map[string]bool {
	all := map[string]bool{}
	for _, name := range append(knownNames(), rootNames()...) {
		for _, p := range publications() {
			all[p+strings.ReplaceAll(name, " ", "%20")] = true
		}
	}
	return all
}
