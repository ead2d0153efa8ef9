// Package attest verifies the attested documents of Azure's instance metadata
// service: PKCS #7 over a JSON of nonce, vmId and times, by a certificate of the
// metadata service.
//
// What it takes care of: there is one signer and that one's certificate is looked
// at, not whichever certificate comes first in the message; the certificate's name
// is metadata.azure.com (or a sovereign cloud's) or below it; the chain is verified
// to Microsoft's and DigiCert's roots, or those that the caller gives, by the certificates in the message
// and, where they do not reach, by what their "CA issuers" address gives, fetched
// from Microsoft's publication points alone, in few hops, bounded, and kept a day.
// No intermediate is pinned: Azure changes them. Those whose names are known are
// fetched for anybody; for others who asks is told from others who ask, since a
// stranger can name whatever it likes.
//
// It knows nothing of Ortet. Facts: Microsoft's "Azure Instance Metadata Service",
// section "Attested data"; defects of others that it avoids are named at the checks.
package attest
