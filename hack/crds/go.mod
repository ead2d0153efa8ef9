// Cluster API's CRDs, for tests: they are read from its module, so that what is
// tested is what it ships. It is a module of its own, so that nothing that imports
// Ortet depends on it.
module github.com/ortet/ortet/hack/crds

go 1.26.0

require sigs.k8s.io/cluster-api v1.14.2
