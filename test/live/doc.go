// Package live asks the real Azure what docs/explanation/not-yet-met.md lists as open. It is
// `make live` and `make live-clean`; hack/live is its program.
//
// A run makes resource groups, whose tags say whose they are and until when, and deletes them,
// also where it was interrupted (group.go). In them it has the checks of
// internal/azure/azuretest run (contract.go), or makes a cluster and captures an agent by the
// commands of ortet (cluster.go). What a killed run left is found by the tags.
//
// It writes a report of claims (report.go) and the exchanges with Azure in the form that
// test/recorded reads (record.go). Both are made to be published: scrub.go replaces ids, names
// and addresses, and writes nothing where one of them is left.
package live
