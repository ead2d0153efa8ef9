package timeline

import (
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

// noTime is an unknown time.
var noTime time.Time

func timeOf(t time.Time) *wire.Micros {
	if t.IsZero() {
		return nil
	}
	m := micros(t)
	return &m
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// kubelets are the units that a kubelet runs in.
var kubelets = []string{"kubelet.service", "k3s-agent.service", "k3s.service", "rke2-agent.service", "rke2-server.service"}

func isKubelet(unit string) bool { return slices.Contains(kubelets, unit) }

// isRegistration reports whether it is the kubelet's span that ends when its Node is
// registered.
func isRegistration(name string) bool {
	return name == "register" || name == "startup/registration"
}

// isHandOver reports whether it is a span of cloud-init at whose end a preprovisioned
// machine was handed over.
func isHandOver(name string) bool {
	return strings.Contains(name, "wait-for-media-disconnect-connect") || strings.Contains(name, "wait-for-nic-attach")
}

// isPoolWait reports whether it is a span of cloud-init in which a preprovisioned machine
// waits.
func isPoolWait(name string) bool {
	return isHandOver(name) || strings.Contains(name, "wait-for-nic-detach")
}

// runsCommands reports whether it starts other programs, units among them.
func runsCommands(it *item) bool {
	switch it.source {
	case sourceAgent, sourceCSE, sourceAKS:
		return true
	case sourceProvision:
		return it.name == "cse"
	case sourceCloudInit:
		for _, word := range []string{"script", "runcmd", "bootcmd", "package", "snap", "power"} {
			if strings.Contains(it.name, word) {
				return true
			}
		}
	}
	return false
}
