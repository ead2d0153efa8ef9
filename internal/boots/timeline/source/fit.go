package source

import (
	"github.com/ortet/ortet/internal/wire"
)

// fit makes a report's JSON fit its bound.
func fit(r *wire.BootReport) {
	if size(r) <= wire.MaxBootReport {
		return
	}
	for i := range r.Spans {
		r.Spans[i].Detail = ""
	}
	for i := range r.Sources {
		r.Sources[i].Detail = ""
	}
	if size(r) > wire.MaxBootReport {
		here := make(map[string]bool, len(r.Units))
		for i := range r.Units {
			here[r.Units[i].Name] = true
		}
		for i := range r.Units {
			kept := r.Units[i].After[:0]
			for _, name := range r.Units[i].After {
				if here[name] {
					kept = append(kept, name)
				}
			}
			r.Units[i].After = kept
		}
	}
	for most := wire.MaxUnitEdges / 2; most > 0 && size(r) > wire.MaxBootReport; most /= 2 {
		for i := range r.Units {
			r.Units[i].After = r.Units[i].After[:min(most, len(r.Units[i].After))]
			r.Units[i].TriggeredBy = r.Units[i].TriggeredBy[:min(most, len(r.Units[i].TriggeredBy))]
		}
	}
	for size(r) > wire.MaxBootReport {
		r.Spans = r.Spans[:len(r.Spans)/2]
		r.Units = r.Units[:len(r.Units)/2]
		r.Sources = r.Sources[:(len(r.Sources)+1)/2]
		if len(r.Spans) == 0 && len(r.Units) == 0 {
			break
		}
	}
	if len(r.Sources) < wire.MaxBootSources {
		r.Sources = append(r.Sources, wire.BootSource{Name: "report", State: wire.SourcePartial, Detail: "its sources said more than a report holds"})
	}
}

// size is the maximum length of a report's JSON. A byte may become six.
func size(r *wire.BootReport) int {
	text := func(s string) int {
		n := len(s) + 24
		for _, c := range []byte(s) {
			if c < 0x20 || c == '<' || c == '>' || c == '&' || c == '"' || c == '\\' || c >= 0x80 {
				n += 5
			}
		}
		return n
	}
	n := 4096 + len(r.Clocks)*64 + text(r.Image)
	for i := range r.Units {
		u := &r.Units[i]
		n += 320 + text(u.Name) + text(u.Result)
		for _, name := range u.After {
			n += text(name) - 20
		}
		for _, name := range u.TriggeredBy {
			n += text(name) - 20
		}
	}
	for i := range r.Spans {
		s := &r.Spans[i]
		n += 160 + text(s.Source) + text(s.Name) + text(s.Unit) + text(s.Parent) + text(s.Result) + text(s.Detail)
	}
	for i := range r.Sources {
		s := &r.Sources[i]
		n += 64 + text(s.Name) + text(s.Path) + text(s.Detail)
	}
	return n
}
