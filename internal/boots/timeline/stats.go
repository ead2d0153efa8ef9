package timeline

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/wire"
)

// MaxStatSpans is of how many different spans Stats keeps figures of their own;
// those of the rest are counted together, as OtherSpans.
const (
	MaxStatSpans = 512
	OtherSpans   = "others"
)

// Stats are figures of many boots, in memory that does not grow with their
// number. The zero value is ready. It is not safe for use by several goroutines.
type Stats struct {
	Version    int    `json:"version"`
	Boots      uint64 `json:"boots"`
	Incomplete uint64 `json:"incomplete,omitempty"` // boots without an end: they are counted in nothing else
	// Total is of the whole boots, Idle of the time that preprovisioned ones
	// waited before.
	Total Histogram `json:"total"`
	Idle  Histogram `json:"idle"`
	// Stages and Spans are of shares of the critical path. A stage counts in each
	// boot, with 0 where the path does not lead through it; a span only in boots
	// where it is on the path. Waits count under "wait/" and the ID of what waited.
	Stages map[Stage]*Histogram  `json:"stages"`
	Spans  map[string]*Histogram `json:"spans"`

	shares []share
}

// share is what a span, or the waiting before it, has of a path.
type share struct {
	id   string
	wait bool
	took wire.Micros
}

const waitPrefix = "wait/"

// AddReport adds the boot of a report. It does all that Build does for the path, without
// advice.
func (s *Stats) AddReport(r wire.BootReport, c Cloud) {
	b := analyse(&r, c)
	s.add(b.path(b.newGraph(b.endItem)), b.end-b.origin, b.idle, b.complete)
}

func (s *Stats) add(path []Step, total, idle wire.Micros, complete bool) {
	s.Version = Version
	if !complete {
		s.Incomplete++
		return
	}
	s.Boots++
	s.Total.Add(total)
	if idle > 0 {
		s.Idle.Add(idle)
	}
	if s.Stages == nil {
		s.Stages, s.Spans = make(map[Stage]*Histogram), make(map[string]*Histogram)
	}
	all := AllStages()
	var stages [32]wire.Micros
	s.shares = s.shares[:0]
	for i := range path {
		step := &path[i]
		took := step.End - step.Start
		if k := stageIndex(step.Stage); k >= 0 {
			stages[k] += took
		}
		if took == 0 {
			continue
		}
		if step.Wait != nil {
			s.shares = append(s.shares, share{step.Wait.Before, true, took})
		} else {
			s.shares = append(s.shares, share{step.Span, false, took})
		}
	}
	for i, stage := range all {
		h := s.Stages[stage]
		if h == nil {
			h = &Histogram{}
			s.Stages[stage] = h
		}
		h.Add(stages[i])
	}
	// A span may have several steps.
	slices.SortFunc(s.shares, func(x, y share) int {
		if x.wait != y.wait {
			if x.wait {
				return 1
			}
			return -1
		}
		return strings.Compare(x.id, y.id)
	})
	var room [96]byte
	for i := 0; i < len(s.shares); {
		x := s.shares[i]
		for i++; i < len(s.shares) && s.shares[i].id == x.id && s.shares[i].wait == x.wait; i++ {
			x.took += s.shares[i].took
		}
		key := room[:0]
		if x.wait {
			key = append(key, waitPrefix...)
		}
		key = append(key, x.id...)
		h := s.Spans[string(key)]
		if h == nil {
			h = s.newSpan(string(key))
		}
		h.Add(x.took)
	}
	clear(s.shares)
}

func (s *Stats) newSpan(id string) *Histogram {
	if len(s.Spans) >= MaxStatSpans {
		if id = OtherSpans; s.Spans[id] != nil {
			return s.Spans[id]
		}
	}
	h := &Histogram{}
	s.Spans[strings.Clone(id)] = h
	return h
}

// Figure is a row of Stats.
type Figure struct {
	Name  string      `json:"name"`
	Boots uint64      `json:"boots"` // in how many it is on the path
	Mean  wire.Micros `json:"meanUsec"`
	P50   wire.Micros `json:"p50Usec"`
	P95   wire.Micros `json:"p95Usec"`
	P99   wire.Micros `json:"p99Usec"`
	Max   wire.Micros `json:"maxUsec"`
}

func figure(name string, h *Histogram) Figure {
	return Figure{Name: name, Boots: h.Count - h.Zero, Mean: h.Mean(), P50: h.Quantile(0.5), P95: h.Quantile(0.95), P99: h.Quantile(0.99), Max: h.Max}
}

// StageFigures are the stages' figures in their order, those left out that no
// boot had; the total's last.
func (s *Stats) StageFigures() []Figure {
	var out []Figure
	for _, stage := range AllStages() {
		if h := s.Stages[stage]; h != nil && h.Max > 0 {
			out = append(out, figure(string(stage), h))
		}
	}
	return append(out, figure("total", &s.Total))
}

// SpanFigures are the figures of spans and waits on the path, by what they cost
// all boots together, most first.
func (s *Stats) SpanFigures() []Figure {
	ids := sortedKeys(s.Spans)
	slices.SortStableFunc(ids, func(x, y string) int { return cmp.Compare(s.Spans[y].Sum, s.Spans[x].Sum) })
	out := make([]Figure, len(ids))
	for i, id := range ids {
		out[i] = figure(id, s.Spans[id])
	}
	return out
}
