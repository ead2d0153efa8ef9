package lifecycle

import (
	"slices"

	"github.com/ortet/ortet/internal/k3s"
)

// unused names what cluster.yaml gives and no other field needs. It is no error: a pool may come back.
func unused(s *k3s.Spec) (notes []string) {
	pool := func(needs func(k3s.Pool) bool) bool { return slices.ContainsFunc(s.Pools, needs) }
	for _, f := range []struct {
		field     string
		set, used bool
		why       string
	}{
		{"artifacts.containerToolkit", len(s.Artifacts.ContainerToolkit) > 0,
			pool(func(p k3s.Pool) bool { return p.GPU != nil && p.GPU.Driver != k3s.InImage }),
			"no pool has gpu with driver extension or none"},
		{"options.devicePlugin", s.Options.DevicePlugin != "", pool(func(p k3s.Pool) bool { return p.GPU != nil }), "no pool has gpu"},
		{"artifacts.tailscale", s.Artifacts.Tailscale != nil, s.Access.Tailscale != nil, "access.tailscale is not set"},
		{"options.clusterAutoscaler", s.Options.ClusterAutoscaler != "",
			pool(func(p k3s.Pool) bool { return p.ScaleBy == k3s.Pods }), "no pool has scaleBy: pods"},
	} {
		if f.set && !f.used {
			notes = append(notes, "spec."+f.field+" is not used: "+f.why+"; add what uses it, or delete it")
		}
	}
	return notes
}
