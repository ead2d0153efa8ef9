package rollback_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/rollback"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/workflow"
)

// TestRecordOfAnotherPool: a record whose state names another pool, or a version outside this one's
// gallery, moves no model: who may write the Secret reaches nothing else.
func TestRecordOfAnotherPool(t *testing.T) {
	elsewhere := pool.In("galleries", "theirs").Child("images", "i").Child("versions", "1.0.0")
	good := func() map[string]any {
		return map[string]any{"pool": pool, "to": version("2026.01.01", 1).ID, "from": version("2026.01.02", 2).ID, "tagFrom": version("2026.01.02", 2).ID}
	}
	for name, change := range map[string]func(s map[string]any){
		"none":                   func(map[string]any) {},
		"of another pool":        func(s map[string]any) { s["pool"] = pool + "2" },
		"to another gallery":     func(s map[string]any) { s["to"] = elsewhere },
		"tags another gallery":   func(s map[string]any) { s["tagFrom"] = elsewhere },
		"to a path":              func(s map[string]any) { s["to"] = string(version("2026.01.01", 1).ID) + "/../x" },
		"to an unknown original": func(s map[string]any) { s["to"], s["toOriginal"] = "", true },
	} {
		for _, open := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", open ", open), func(t *testing.T) {
				var f fake
				config := f.config()
				state := good()
				change(state)
				rec := journal.Record{Kind: rollback.Kind, Name: "20260103-090000", Pool: string(pool), Request: []byte("{}")}
				rec.State, _ = json.Marshal(state)
				if !open { // the same command would finish it
					rec.Ended = &journal.End{Exit: workflow.ExitNeedsPerson}
					rec.State, _ = json.Marshal(map[string]any{"unfinished": state})
				}
				_, err := config.Journal.Save(t.Context(), rec)
				must(t, err)
				p, err := rollback.New(config).Plan(t.Context(), rollback.Request{Pool: pool})
				if open {
					refused := err != nil || len(p.Problems) > 0
					if refused != (name != "none") || strings.Contains(fmt.Sprint(p.Steps), "1.0.0") {
						t.Errorf("%v, %v, %v", p.Steps, p.Problems, err)
					}
				} else if err != nil || p.Version.Name() != "2026.01.01" || strings.Contains(fmt.Sprint(p.Steps), "1.0.0") {
					t.Errorf("%v, %v, %v", p.Version, p.Problems, err)
				}
				if last, err := rollback.New(config).Last(t.Context(), pool); err != nil || open && (last.Name == "") != (name != "none") {
					t.Errorf("%+v, %v", last, err)
				}
			})
		}
	}
}

// TestUnreadNode: a node that cannot be read is no reason to go on: which permission lacks is named, and
// what passes is interrupted, since a record may be open.
func TestUnreadNode(t *testing.T) {
	for kind, c := range map[fleet.Kind]struct {
		exit int
		says string
	}{
		fleet.KindDenied:    {workflow.ExitRefused, "get nodes"},
		fleet.KindTransient: {workflow.ExitInterrupted, "step preflight: "},
	} {
		f := fake{nodeErr: &fleet.Error{Op: "get node", Kind: kind}}
		_, err := rollback.New(f.config()).Rollback(t.Context(), rollback.Request{Node: "n"})
		if workflow.ExitCode(err) != c.exit || !strings.Contains(fmt.Sprint(err), c.says) || f.begun > 0 {
			t.Errorf("%v: exit %d, %v", kind, workflow.ExitCode(err), err)
		}
	}
}

// TestRollbackThatWasUndone: one that failed and whose record is open is ended before it begins again.
func TestRollbackThatWasUndone(t *testing.T) {
	for phase, says := range map[journal.Phase]string{journal.Undo: "is ended first: it was being undone", journal.Forward: "is resumed"} {
		var f fake
		config := f.config()
		rec := journal.Record{Kind: rollback.Kind, Name: "20260103-090000", Pool: string(pool), Request: []byte("{}"), Phase: phase}
		rec.State, _ = json.Marshal(map[string]any{"pool": pool, "to": version("2026.01.01", 1).ID})
		_, err := config.Journal.Save(t.Context(), rec)
		must(t, err)
		p, err := rollback.New(config).Plan(t.Context(), rollback.Request{Pool: pool})
		if notes := strings.Join(p.Notes, "\n"); err != nil || !strings.Contains(notes, says) {
			t.Errorf("%s: %q, %v", phase, notes, err)
		}
	}
}

// TestOtherValuesAreCounted: of what other donors showed three are compared, and the rest is counted.
func TestOtherValuesAreCounted(t *testing.T) {
	for n, says := range map[int]string{3: "", 4: "; and 1 other value more", 5: "; and 2 other values more"} {
		f := fake{customData: "abc", last: "noop"}
		config := f.config()
		rec, err := config.Journal.Load(t.Context(), string(pool))
		must(t, err)
		learned := []map[string]any{{"kind": "customData", "sha256": "abc", "donor": "first"}}
		for i := range n - 1 { // and the model's
			learned = append(learned, map[string]any{"kind": "customData", "sha256": fmt.Sprint("other", i), "donor": fmt.Sprint("n", i)})
		}
		rec.State, _ = json.Marshal(map[string]any{"lastCustomData": "def", "original": map[string]any{"learned": learned}})
		_, err = config.Journal.Save(t.Context(), rec)
		must(t, err)
		p, err := rollback.New(config).Plan(t.Context(), rollback.Request{Pool: pool, To: "2026.01.01"})
		if err != nil || len(p.Problems) != 1 || strings.Contains(p.Problems[0].What, " more") != (says != "") || !strings.Contains(p.Problems[0].What, says) ||
			strings.Count(p.Problems[0].What, " showed ") != 3 {
			t.Errorf("%d: %v, %v", n, p.Problems, err)
		}
	}
}
