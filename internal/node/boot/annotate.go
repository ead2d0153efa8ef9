package boot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/wire"
)

// Annotate leaves a report in the annotation wire.BootAnnotation of the node's
// own Node, as the kubelet, whose right that is. One that does not fit is made
// less detailed (reduce); what was left out is told in its Sources. Again it
// replaces the value.
func Annotate(ctx context.Context, root string, r wire.BootReport) error {
	value, err := encodeReduced(r)
	if err != nil {
		return err
	}
	var patch struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	patch.Metadata.Annotations = map[string]string{wire.BootAnnotation: value}
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	answer, err := bootstrap.APIServer(root).Ask(ctx, "PATCH", func(node string) string {
		return "/api/v1/nodes/" + url.PathEscape(node) + "?fieldManager=ortet-node"
	}, "application/merge-patch+json", body)
	if err != nil {
		return fmt.Errorf("leaving the boot's report at the Node: %w", err)
	}
	if answer.Code != 200 {
		return fmt.Errorf("leaving the boot's report at the Node: the API server answered %s", answer.Refusal())
	}
	return nil
}

// encodeReduced is the value for the annotation, with as much of a report as fits.
func encodeReduced(r wire.BootReport) (string, error) {
	value, err := wire.EncodeBootAnnotation(r)
	var without []string
	for _, s := range reductions() {
		if !errors.Is(err, wire.ErrBootTooLarge) {
			return value, err
		}
		r = s.of(r)
		without = append(without, s.what)
		told := r
		told.Sources = append(append([]wire.BootSource(nil), r.Sources...), wire.BootSource{
			Name: "report", State: wire.SourcePartial, Detail: "to fit the annotation it is without " + strings.Join(without, ", ") + "; the node has all of it in " + reports})
		value, err = wire.EncodeBootAnnotation(told)
	}
	return value, err
}

// reduction is a way of saying less.
type reduction struct {
	what string
	of   func(wire.BootReport) wire.BootReport
}

// reductions, in their order: first what only a person reads, then what no chain
// goes through, then what took no time, at last all but the units. docs/reference/boot.md
// tells of them.
func reductions() []reduction {
	shorter := func(than wire.Micros) func(wire.BootReport) wire.BootReport {
		return func(r wire.BootReport) wire.BootReport {
			return onlySpans(r, func(s *wire.BootSpan) bool { return s.Parent == "" || s.Open || s.End-s.Start >= than })
		}
	}
	return []reduction{
		{"details", withoutDetails},
		{"edges to units that were not started", withoutLooseEdges},
		{"units that were skipped, devices, slices and scopes", withoutPlaces},
		{"parts of less than 10 ms", shorter(10e3)},
		{"parts of less than 100 ms", shorter(100e3)},
		{"parts of less than 1 s", shorter(1e6)},
		{"parts", shorter(wire.MaxBootReport * 1e6)},
		{"edges but for the last 8 of each unit", withoutEarlyEdges},
		{"spans", func(r wire.BootReport) wire.BootReport {
			return onlySpans(r, func(*wire.BootSpan) bool { return false })
		}},
		{"edges and all but 256 units", withoutMostUnits},
	}
}

func onlySpans(r wire.BootReport, keep func(*wire.BootSpan) bool) wire.BootReport {
	var spans []wire.BootSpan
	for i := range r.Spans {
		if keep(&r.Spans[i]) {
			spans = append(spans, r.Spans[i])
		}
	}
	r.Spans = spans
	return r
}

func onlyUnits(r wire.BootReport, keep func(*wire.BootUnit) bool) wire.BootReport {
	var units []wire.BootUnit
	for i := range r.Units {
		if keep(&r.Units[i]) {
			units = append(units, r.Units[i])
		}
	}
	r.Units = units
	return r
}

func withoutDetails(r wire.BootReport) wire.BootReport {
	r.Spans = append([]wire.BootSpan(nil), r.Spans...)
	for i := range r.Spans {
		r.Spans[i].Detail = ""
	}
	r.Sources = append([]wire.BootSource(nil), r.Sources...)
	for i := range r.Sources {
		if !r.Sources[i].IsFact() {
			r.Sources[i].Detail = ""
		}
	}
	return r
}

// edges has each unit's edges chosen anew.
func edges(r wire.BootReport, choose func(u *wire.BootUnit) []string) wire.BootReport {
	r.Units = append([]wire.BootUnit(nil), r.Units...)
	for i := range r.Units {
		r.Units[i].After = choose(&r.Units[i])
	}
	return r
}

func withoutLooseEdges(r wire.BootReport) wire.BootReport {
	here := make(map[string]bool, len(r.Units))
	for i := range r.Units {
		here[r.Units[i].Name] = true
	}
	return edges(r, func(u *wire.BootUnit) []string {
		var kept []string
		for _, name := range u.After {
			if here[name] {
				kept = append(kept, name)
			}
		}
		return kept
	})
}

func withoutPlaces(r wire.BootReport) wire.BootReport {
	return withoutLooseEdges(onlyUnits(r, func(u *wire.BootUnit) bool {
		for _, kind := range []string{".device", ".slice", ".scope"} {
			if strings.HasSuffix(u.Name, kind) {
				return false
			}
		}
		return !u.Skipped
	}))
}

// withoutEarlyEdges keeps those to the units that were active last: through them
// the chains go.
func withoutEarlyEdges(r wire.BootReport) wire.BootReport {
	active := make(map[string]wire.Micros, len(r.Units))
	for i := range r.Units {
		u := &r.Units[i]
		active[u.Name] = max(u.Activated, u.Deactivated)
	}
	const most = 8
	return edges(r, func(u *wire.BootUnit) []string {
		kept := make([]string, 0, most)
		for _, name := range u.After {
			if at := active[name]; at > 0 && at <= max(u.Activating, u.Activated) {
				kept = append(kept, name)
			}
		}
		for i := range kept { // the last ones to the front
			for k := i + 1; k < len(kept) && i < most; k++ {
				if active[kept[k]] > active[kept[i]] {
					kept[i], kept[k] = kept[k], kept[i]
				}
			}
		}
		return kept[:min(len(kept), most)]
	})
}

func withoutMostUnits(r wire.BootReport) wire.BootReport {
	r.Units = append([]wire.BootUnit(nil), r.Units[:min(len(r.Units), 256)]...)
	for i := range r.Units {
		r.Units[i].After, r.Units[i].TriggeredBy = nil, nil
	}
	return r
}
