package timeline

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/aclements/go-moremath/stats"

	"github.com/ortet/ortet/internal/wire"
)

// Alpha is the probability of calling a difference significant that is none: of the whole
// list of stages, and of the whole list of spans.
const Alpha = 0.05

// noticed is the least difference of medians for a span or stage to be compared: below it,
// no user would act.
const noticed = second / 100

// mostCompared bounds the spans of a Difference.
const mostCompared = 256

// Difference is what differs between two sets of boots.
type Difference struct {
	Version int    `json:"version"`
	A       int    `json:"a"` // boots that were compared; those without an end are not
	B       int    `json:"b"`
	Total   Change `json:"total"`
	// Stages and Spans are what got slower, most first, then what got faster. Both
	// are shares of the critical path; a span that is not on it has 0. Waits are
	// named "wait/" and the ID of what waited.
	Stages []Change `json:"stages"`
	Spans  []Change `json:"spans"`
	// Notes are what a reader has to know to judge it.
	Notes []string `json:"notes,omitempty"`
}

// Change is one thing by both sets of boots.
type Change struct {
	Name string      `json:"name"`
	A    wire.Micros `json:"aUsec"` // medians
	B    wire.Micros `json:"bUsec"`
	By   wire.Micros `json:"byUsec"` // B less A
	// P is the probability of such a difference, or a greater one, if both sets were of the
	// same kind (Mann-Whitney U test, both sides), corrected for the number of comparisons
	// in its list (Holm). 1 where no test was possible.
	P           float64 `json:"p"`
	Significant bool    `json:"significant"`
}

// Diff compares two sets of boots: nodes, pools or image versions.
func Diff(a, b []Timeline) Difference {
	a, b = finished(a), finished(b)
	d := Difference{Version: Version, A: len(a), B: len(b), Stages: []Change{}, Spans: []Change{}}
	if len(a) == 0 || len(b) == 0 {
		d.Total = Change{Name: "total", P: 1}
		d.Notes = append(d.Notes, fmt.Sprintf("nothing can be compared: %d boots with an end on one side, %d on the other", len(a), len(b)))
		return d
	}
	if least := leastP(len(a), len(b)); least >= Alpha {
		d.Notes = append(d.Notes, fmt.Sprintf("%d and %d boots are too few to tell a difference from chance (4 and 4 are the fewest that can)", len(a), len(b)))
	}
	d.Total = compare("total", totals(a), totals(b))
	d.Total.Significant = d.Total.P < Alpha
	var origins, ends = map[string]bool{}, map[string]bool{}
	for _, set := range [][]Timeline{a, b} {
		for i := range set {
			origins[set[i].OriginIs], ends[set[i].EndIs] = true, true
		}
	}
	if len(origins) > 1 || len(ends) > 1 {
		d.Notes = append(d.Notes, fmt.Sprintf("the boots are not all from and to the same: from %v to %v", sortedKeys(origins), sortedKeys(ends)))
	}
	for i, stage := range AllStages() {
		x, y := stageShares(a, i), stageShares(b, i)
		if slices.Max(x) == 0 && slices.Max(y) == 0 {
			continue
		}
		d.Stages = append(d.Stages, compare(string(stage), x, y))
	}
	d.Stages = sortChanges(holm(d.Stages))
	spans := map[string][2][]float64{}
	shares(a, 0, len(a), len(b), spans)
	shares(b, 1, len(a), len(b), spans)
	for _, id := range sortedKeys(spans) {
		if x, y := spans[id][0], spans[id][1]; abs(median(y)-median(x)) >= noticed {
			d.Spans = append(d.Spans, Change{Name: id, A: median(x), B: median(y), By: median(y) - median(x)})
		}
	}
	if len(d.Spans) > mostCompared {
		slices.SortStableFunc(d.Spans, func(x, y Change) int { return cmp.Compare(abs(y.By), abs(x.By)) })
		d.Notes = append(d.Notes, fmt.Sprintf("of %d spans that differ the %d that differ most are told", len(d.Spans), mostCompared))
		d.Spans = d.Spans[:mostCompared]
	}
	for i := range d.Spans {
		d.Spans[i] = compare(d.Spans[i].Name, spans[d.Spans[i].Name][0], spans[d.Spans[i].Name][1])
	}
	d.Spans = sortChanges(holm(d.Spans))
	if most := max(len(d.Stages), len(d.Spans)); most > 1 && len(d.Notes) == 0 && leastP(len(a), len(b))*float64(most) >= Alpha {
		d.Notes = append(d.Notes, fmt.Sprintf("%d and %d boots can tell the total's difference from chance, but not which of %d parts it is of", len(a), len(b), most))
	}
	return d
}

func finished(all []Timeline) []Timeline {
	var out []Timeline
	for _, t := range all {
		if t.Complete {
			out = append(out, t)
		}
	}
	return out
}

func totals(all []Timeline) []float64 {
	out := make([]float64, len(all))
	for i := range all {
		out[i] = float64(all[i].End - all[i].Origin)
	}
	return out
}

func stageShares(all []Timeline, stage int) []float64 {
	out := make([]float64, len(all))
	for i := range all {
		for _, s := range all[i].Path {
			if stageIndex(s.Stage) == stage {
				out[i] += float64(s.End - s.Start)
			}
		}
	}
	return out
}

// shares adds each span's share of each boot's path.
func shares(all []Timeline, side, a, b int, into map[string][2][]float64) {
	for i := range all {
		for _, s := range all[i].Path {
			if s.End == s.Start {
				continue
			}
			id := s.Span
			if s.Wait != nil {
				id = waitPrefix + s.Wait.Before
			}
			both, ok := into[id]
			if !ok {
				both = [2][]float64{make([]float64, a), make([]float64, b)}
				into[id] = both
			}
			both[side][i] += float64(s.End - s.Start)
		}
	}
}

func compare(name string, a, b []float64) Change {
	c := Change{Name: name, A: median(a), B: median(b), P: 1}
	c.By = c.B - c.A
	test, err := stats.MannWhitneyUTest(a, b, stats.LocationDiffers)
	switch {
	case errors.Is(err, stats.ErrSamplesEqual), errors.Is(err, stats.ErrSampleSize):
	case err == nil && !math.IsNaN(test.P):
		c.P = min(max(test.P, 0), 1)
	}
	return c
}

// holm corrects for the number of comparisons. Source: S. Holm, 1979.
func holm(all []Change) []Change {
	slices.SortStableFunc(all, func(x, y Change) int { return cmp.Compare(x.P, y.P) })
	most := 0.0
	for i := range all {
		most = max(most, min(1, all[i].P*float64(len(all)-i)))
		all[i].P, all[i].Significant = most, most < Alpha
	}
	return all
}

func sortChanges(all []Change) []Change {
	slices.SortStableFunc(all, func(x, y Change) int { return cmp.Or(cmp.Compare(y.By, x.By), cmp.Compare(x.Name, y.Name)) })
	return all
}

func median(of []float64) wire.Micros {
	s := slices.Clone(of)
	slices.Sort(s)
	n := len(s)
	if n == 0 {
		return 0
	}
	return wire.Micros(math.Round((s[(n-1)/2] + s[n/2]) / 2))
}

// leastP is the smallest P that sets of this size can have: that of two sets that
// do not overlap.
func leastP(a, b int) float64 {
	ways := 1.0
	for i := 1; i <= a && ways < 1e12; i++ {
		ways = ways * float64(b+i) / float64(i)
	}
	return min(1, 2/ways)
}
