// Package elastic makes and runs k3s clusters on Azure from one file.
//
// ARM is the engine. A cluster is two ARM templates, each a pure function of
// cluster.yaml (package recipe): the storage group, which outlives compute, and the
// compute group. Up deploys both in order, and Azure converges; Up again repairs. A
// fixed deployment name per group is the lock (409 DeploymentActive). There is no
// journal, and no state on the operator's computer but cluster.yaml and the SSH key:
// what exists is read from Azure, by tags.
//
// This package is the file: its types, how it is read, its defaults and its rules.
// It makes no requests.
package elastic
