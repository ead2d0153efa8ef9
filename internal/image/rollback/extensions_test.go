package rollback_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/rollback"
)

// A vault has items by kind and hash.
type vault map[string]string

func (vault) PutSecret(context.Context, cluster.SecretItem, func(context.Context) ([]string, error)) error {
	return nil
}

func (vault) DropSecret(context.Context, fleet.ResourceID, string, string) error { return nil }

func (v vault) GetSecret(_ context.Context, _ fleet.ResourceID, kind, sha string) (cluster.SecretItem, error) {
	data, ok := v[kind+" "+sha]
	if !ok {
		return cluster.SecretItem{}, &fleet.Error{Op: "read", Kind: fleet.KindNotFound}
	}
	return cluster.SecretItem{Data: fleet.NewSecret(data)}, nil
}

func TestRestorable(t *testing.T) {
	kept := vault{"extensionSettings 1": `{"a":1}`, "protectedSettings 2": `{"b":2}`}
	extension := func(name, public, protected string, after ...string) plan.OriginalExtension {
		return plan.OriginalExtension{Extension: fleet.Extension{Name: name, After: after}, PublicSHA256: public, ProtectedSHA256: protected}
	}
	for name, c := range map[string]struct {
		original []plan.OriginalExtension
		model    []string
		writes   string
		lost     []string // parts of the problems
	}{
		"none":             {nil, nil, "", nil},
		"all there":        {[]plan.OriginalExtension{extension("a", "", "")}, []string{"A"}, "", nil},
		"with settings":    {[]plan.OriginalExtension{extension("a", "1", "2")}, nil, `a {"a":1} {"b":2}`, nil},
		"without settings": {[]plan.OriginalExtension{extension("a", "none", "none")}, nil, "a  ", nil},
		"dependencies first": {[]plan.OriginalExtension{extension("a", "none", "none", "B", "c"), extension("b", "none", "none", "c")},
			[]string{"C"}, "b  ; a  ", nil},
		"not recorded": {[]plan.OriginalExtension{extension("a", "", "")}, nil, "",
			[]string{"extension a: its public settings were not recorded"}},
		"not known": {[]plan.OriginalExtension{extension("a", "1", "")}, nil, "",
			[]string{"extension a: its protected settings were not recorded"}},
		"not kept": {[]plan.OriginalExtension{extension("a", "2", "none")}, nil, "",
			[]string{"extension a: its public settings are not kept (SHA-256 2)"}},
		"dependency is lost": {[]plan.OriginalExtension{extension("a", "1", ""), extension("b", "1", "2", "a")}, nil, "",
			[]string{"extension a: its protected", "extension b: it runs after extension a"}},
		"one is lost": {[]plan.OriginalExtension{extension("a", "1", ""), extension("b", "1", "2")}, nil, `b {"a":1} {"b":2}`,
			[]string{"extension a: its protected"}},
		"dependency is absent": {[]plan.OriginalExtension{extension("b", "1", "2", "a")}, nil, "",
			[]string{"extension b: it runs after extension a"}},
	} {
		t.Run(name, func(t *testing.T) {
			pool := fleet.Pool{}
			for _, n := range c.model {
				pool.Model.Extensions = append(pool.Model.Extensions, fleet.Extension{Name: n})
			}
			writes, lost, err := rollback.Restorable(t.Context(), kept, plan.Original{Extensions: c.original}, pool)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, w := range writes {
				got = append(got, w.Extension.Name+" "+w.Extension.Settings.Reveal()+" "+w.Protected.Reveal())
			}
			if text := strings.Join(got, "; "); text != c.writes {
				t.Errorf("writes %q, want %q", text, c.writes)
			}
			if !slices.EqualFunc(lost, c.lost, func(p fleet.Problem, want string) bool { return strings.Contains(p.String(), want) }) {
				t.Errorf("lost %v, want %q", lost, c.lost)
			}
		})
	}
}
