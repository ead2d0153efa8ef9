package engine

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
)

// madeAgain is a world of kamino's whose latest version was made with --again by a
// release that did not exclude it.
func madeAgain() *world {
	w := byDefinition("1999.12.30", "1999.12.31")
	id := versionID("1999.1231.120000")
	v := w.versions[low(versionID("1999.12.31"))].ImageVersion
	v.ID, v.Name, v.Tags = id, id.Name(), map[string]string{fleet.TagCapture: "c"}
	v.Published = v.Published.AddDate(0, 0, 1).Add(-1)
	w.versions[low(id)] = &image{ImageVersion: v, generalized: true}
	return w
}

// TestExcludeAfterTheModel: what the model stood for is excluded once the model is
// pinned, and what is made with --again is excluded when it is made.
func TestExcludeAfterTheModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := madeAgain()
		e, _, ctx, _ := w.process(t, "a", 0)
		p, err := e.Plan(ctx, request())
		if err != nil || !slices.ContainsFunc(p.Steps, func(s prototype.Step) bool {
			return s.Skip == "" && strings.HasSuffix(s.Title, "from latest: 1999.1231.120000")
		}) {
			t.Errorf("the plan does not say what is excluded: %+v, %v", p.Steps, err)
		}
		if _, err := e.Capture(ctx, request()); err != nil {
			t.Fatal(err)
		}
		made, err := e.Capture(ctx, again())
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, v := range w.versions {
			if v.ExcludeFromLatest {
				out = append(out, v.Name)
			}
		}
		slices.Sort(out)
		// The day's is baked, and was made while the model referred to the definition.
		if want := []string{"1999.1231.120000", "2000.01.01", made.Version.Name()}; !slices.Equal(out, want) {
			t.Errorf("%v are excluded from latest, want %v", out, want)
		}
		patched := slices.Index(w.began, "patch model pool1")
		if excluded := slices.Index(w.began, "exclude image version from latest 1999.1231.120000"); excluded < patched {
			t.Errorf("the model stood for it when it was excluded: %v", w.began)
		}
		result, err := e.Capture(ctx, request())
		if err != nil || !result.NothingToDo {
			t.Errorf("%+v, %v", result, err)
		}
	})
}

// TestExcludeFailsWithoutHarm: an update that fails leaves the version Failed, so it
// is repeated; one that is refused is noted.
func TestExcludeFailsWithoutHarm(t *testing.T) {
	verb := fleet.ExcludeVersion{}.Verb()
	for name, spoil := range map[string]func(w *world){
		"fails at its end": func(w *world) { w.opFails[verb] = 1 },
		"has no effect":    func(w *world) { w.liesEmpty[verb] = 1 },
		"is refused":       func(w *world) { w.beginFails[verb] = []fleet.Kind{fleet.KindDenied} },
	} {
		synctest.Test(t, func(t *testing.T) {
			w := madeAgain()
			spoil(w)
			e, _, ctx, _ := w.process(t, "a", 0)
			result, err := e.Capture(ctx, request())
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			w.live(t, "2000.01.01")
			w.tidy(t)
			if refused := name == "is refused"; refused != slices.ContainsFunc(result.Notes, func(n string) bool { return strings.Contains(n, "step exclude") }) ||
				refused == w.versions[low(versionID("1999.1231.120000"))].ExcludeFromLatest {
				t.Errorf("%s: notes %v", name, result.Notes)
			}
		})
	}
}
