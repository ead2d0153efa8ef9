// Package wire is the JSON that crosses between a node, the operator's side and
// what is stored: small types, parsed strictly and bounded, with no behaviour
// but their own validation. The agent imports it, so it has no dependencies.
package wire
