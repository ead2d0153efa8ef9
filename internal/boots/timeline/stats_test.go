package timeline

import (
	"encoding/json"
	"math"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/wire"
)

// A histogram's quantiles are those of what was counted, to RelativeError.
func TestHistogram(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	for _, draw := range []func() wire.Micros{
		func() wire.Micros { return wire.Micros(rnd.Int63n(100)) },
		func() wire.Micros { return wire.Micros(math.Exp(rnd.NormFloat64()*3 + 12)) },
		func() wire.Micros { return 5000 },
		func() wire.Micros { return wire.Micros(rnd.Int63n(2)) * wire.Micros(rnd.Int63n(int64(maxBoot))) },
	} {
		var whole Histogram
		var all []wire.Micros
		for range 5000 {
			d := draw()
			all = append(all, d)
			whole.Add(d)
		}
		slices.Sort(all)
		for _, q := range []float64{0, 0.01, 0.5, 0.95, 0.99, 1} {
			want := all[max(int(math.Ceil(q*float64(len(all)))), 1)-1]
			got := whole.Quantile(q)
			if math.Abs(float64(got-want)) > RelativeError*float64(want)+1 {
				t.Errorf("quantile %v is %d, not %d", q, got, want)
			}
		}
	}
}

// boots are boots of 400 units, which differ by chance, and by how long
// cloud-config takes.
func boots(seed int64, n int, config wire.Micros) []Timeline {
	var out []Timeline
	for i := range n {
		out = append(out, Build(sampleReport(rand.New(rand.NewSource(seed+int64(i))), 60, 2500000+config), Cloud{}))
	}
	return out
}

func TestDiff(t *testing.T) {
	a := boots(1, 12, 0)
	same := Diff(a, boots(100, 12, 0))
	if same.Total.Significant {
		t.Errorf("boots of one kind differ: %+v", same.Total)
	}
	for _, c := range append(same.Stages, same.Spans...) {
		if c.Significant {
			t.Errorf("boots of one kind differ: %+v", c)
		}
	}
	slower := Diff(a, boots(100, 12, 3*second))
	if !slower.Total.Significant || slower.Total.By < 2*second || slower.Total.By > 4*second {
		t.Errorf("the total is not 3 s slower: %+v", slower.Total)
	}
	if c := slower.Stages[0]; c.Name != string(StageConfig) || !c.Significant || c.By < 2*second {
		t.Errorf("the stage that got slower is not cloud-init's: %+v", c)
	}
	if c := slower.Spans[0]; !strings.HasPrefix(c.Name, "cloud-init/modules-config") || !c.Significant {
		t.Errorf("the span that got slower is not cloud-config: %+v", c)
	}
	few := Diff(a[:3], boots(100, 3, 3*second))
	if few.Total.Significant || len(few.Notes) == 0 {
		t.Errorf("three boots are said to be enough: %+v", few)
	}
	if none := Diff(nil, a); none.Total.P != 1 || len(none.Notes) == 0 {
		t.Errorf("nothing is said to be enough: %+v", none)
	}
}

// What AddReport counts is what addBuilt counts of what Build makes, and the memory is
// bounded.
func TestStats(t *testing.T) {
	var whole, reports Stats
	for i := range 50 {
		r := sampleReport(rand.New(rand.NewSource(int64(i))), 80, second)
		whole.addBuilt(Build(r, Cloud{}))
		reports.AddReport(r, Cloud{})
	}
	text := func(s *Stats) string {
		t.Helper()
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if text(&reports) != text(&whole) {
		t.Error("figures depend on how they were counted")
	}
	if whole.Boots != 50 || len(whole.StageFigures()) < 5 || len(whole.SpanFigures()) < 5 {
		t.Errorf("%d boots, stages %v, spans %v", whole.Boots, whole.StageFigures(), whole.SpanFigures())
	}
	var many Stats
	for i := range 2 * MaxStatSpans {
		many.add([]Step{{Span: "unit/" + string(rune('a'+i%26)) + string(rune('a'+i/26)), End: 5, Stage: StageServices}}, 5, 0, true)
	}
	if len(many.Spans) > MaxStatSpans+1 {
		t.Errorf("%d spans are kept", len(many.Spans))
	}
}
