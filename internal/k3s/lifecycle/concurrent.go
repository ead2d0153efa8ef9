package lifecycle

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"maps"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/k3s/recipe"
)

// settings are the server's userData; nil is no server, or none of ours.
func (r *resource) settings() []byte {
	if r == nil {
		return nil
	}
	text, _ := base64.StdEncoding.DecodeString(r.Properties.UserData) // what is no base64 is not ours
	return text
}

// otherChange refuses to go on where another command has applied another cluster.yaml since
// the observation before: the generation of a cluster is the record of its compute deployment,
// and its server's settings.
func (m *Manager) otherChange(before, now *observation, d *recipe.Documents) error {
	var p problems
	const wayOut = "get the cluster.yaml that was applied, run ortet cluster plan again, then up"
	record := func(o *observation) map[string]string {
		if len(o.records) == 0 {
			return nil
		}
		return o.records[0].Fields
	}
	was, is := record(before), record(now)
	if is != nil && !maps.Equal(was, is) && !maps.Equal(is, d.Applied.Fields) {
		p.add("ChangedMeanwhile", m.deploymentID(RoleCompute), "another cluster.yaml was applied since this command began: "+differences(was, is), wayOut)
	} else if s := now.server.settings(); s != nil && !bytes.Equal(s, before.server.settings()) && !bytes.Equal(s, d.Settings) {
		p.add("ChangedMeanwhile", m.serverID(), "the server was given other settings since this command began", wayOut)
	}
	return p.err()
}

// unchanged observes the cluster, refuses what otherChange refuses, and ends a deployment to a
// cluster that is being deleted.
func (m *Manager) unchanged(ctx context.Context, before *observation, d *recipe.Documents) error {
	now, err := m.observe(ctx)
	if err != nil {
		return err
	}
	for _, role := range roles() {
		if m.deleting(now, role) {
			return m.beingDeleted(role)
		}
	}
	return m.otherChange(before, now, d)
}

// differences are some fields that two records have different values of, without secrets.
func differences(was, is map[string]string) string {
	all := maps.Clone(is)
	maps.Copy(all, was)
	lines := []string{}
	for _, name := range sorted(all) {
		if f := (FieldChange{Field: name, Before: was[name], After: is[name]}); f.Before != f.After {
			lines = append(lines, f.Line())
		}
	}
	if n := len(lines); n > 3 {
		lines = append(slices.Clip(lines[:3]), "and others")
	}
	return cmp.Or(strings.Join(lines, "; "), "its record differs")
}
