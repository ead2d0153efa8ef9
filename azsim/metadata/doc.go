// Package metadata is the Instance Metadata Service that an Azure machine finds at
// 169.254.169.254: instance metadata, tokens, scheduled events, and attested documents with
// the Attestor that signs them. It knows no server: a Service answers for one instance, and
// asks the functions in its fields for all that it does not know. Package azsim gives each
// of its instances one (Server.IMDS).
//
// An Attestor works alone, for tests of who verifies attested documents. By LeafOptions and
// SignOptions it also signs what Azure would not.
package metadata
