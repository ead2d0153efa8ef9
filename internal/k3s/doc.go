// Package k3s makes and runs k3s clusters on Azure from one file.
//
// ARM is the engine: a cluster is two ARM templates, each a pure function of cluster.yaml
// (package recipe), and Azure converges. There is no journal, and no state on the
// operator's computer but cluster.yaml and the SSH key. This package is the file: its
// types, how it is read, its defaults and its rules. It makes no requests.
package k3s
