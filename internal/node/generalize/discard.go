package generalize

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/ortet/ortet/internal/node/tree"
)

// Scope says how much of a kubelet's state is discarded.
type Scope string

const (
	// Credentials are what a node acts by: keys, certificates, kubeconfigs, the node
	// password.
	Credentials Scope = "credentials"
	// Everything is also what another machine's kubelet knew of its pods.
	Everything Scope = "everything"
)

// Discard removes the identity of a node from the disk of a machine that runs, by
// the table's rows for Kubernetes, k3s and RKE2: what is on a disk before a node
// joins anew. Nothing of it may be in use: spare is asked for each path first, and
// its error ends it before anything is removed. Container runtimes keep what they
// have: the kubelet ends what it does not know. Again is harmless.
func Discard(ctx context.Context, t *tree.Tree, scope Scope, spare func(path string) error, log *slog.Logger) (tree.Count, error) {
	var rows []Row
	for _, r := range Table() {
		secret := r.Action == Shred || r.Action == ShredIf
		if (r.Group == groupKube || r.Group == groupK3s) && r.When == "" && (scope == Everything || secret) {
			rows = append(rows, r)
		}
	}
	c := &cleaner{t: t, log: log}
	for _, last := range []bool{false, true} {
		jobs, err := c.plan(rows, last)
		if err != nil {
			return tree.Count{}, err
		}
		for _, j := range jobs {
			if err := spare("/" + j.at); err != nil {
				return tree.Count{}, err
			}
		}
	}
	for _, last := range []bool{false, true} {
		if err := c.clean(ctx, rows, last); err != nil {
			return c.total, fmt.Errorf("discarding a node's identity: %w", err)
		}
	}
	return c.total, nil
}
