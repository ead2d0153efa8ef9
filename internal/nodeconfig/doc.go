// Package nodeconfig is the configuration of a pool's live nodes: what it may hold, and
// the signed document in which a scale set's userData carries it.
//
// A document is the whole state, not a change: what a later one omits goes back to what
// the node had before the first. It holds no secret, since every process of a machine can
// read userData from Azure's metadata service.
//
// The agent imports this package; how nodeconfig.yaml is read, with lines and fields in
// its errors, is package file.
package nodeconfig
