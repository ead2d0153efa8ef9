// Package survey finds scale sets by what a person names, observes their machines, and reads
// what a controller keeps of boots: for a command line, without a controller.
//
// # Finding a pool
//
// A Finder is the one way. The scale sets of the cluster's Nodes go first; then those that Azure
// lists in the resource groups that are named, that Nodes are of, and that the credentials name.
// One of which no machine is known to be a Node may be another cluster's in a shared group: what
// changes something is refused with its ARM id, and acts on that alone. To read, what a Node reports
// of itself is enough; to change, Azure has to show it (fleet.Claim).
//
// # Observing
//
// A Surveyor lists instances (azure.Boots), Nodes and kept evidence (cluster.Records), and
// judges by package assess. What cannot be read is reported beside the rest.
package survey
