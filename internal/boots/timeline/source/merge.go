package source

import (
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/wire"
)

// Merge puts together the reports of several sources about one boot. Contradictions are
// decided by precision: units' times by the source with the smallest Grain, a span of two
// sources by the finer. Of a unit with different starts the first is taken, and earlier
// ones count as Restarts. The result passes wire's Validate, and ParseBootReport takes its
// JSON, whatever the input: what cannot be, or is too much, is left out, details first.
// Whether all are of one boot is not checked (Join).
func Merge(reports ...wire.BootReport) wire.BootReport {
	r := gatherAll(reports)
	parents(r.Spans)
	return r
}

// gatherAll is Merge, but keeps parents that another file may have.
func gatherAll(reports []wire.BootReport) wire.BootReport {
	ranked := append([]wire.BootReport(nil), reports...)
	slices.SortStableFunc(ranked, func(a, b wire.BootReport) int { return rank(&a) - rank(&b) })
	place(ranked)
	m := newBoot()
	to := &m.report
	for i := range ranked {
		r := &ranked[i]
		fill(&to.Node, strings.ToLower(word(r.Node)))
		fill(&to.VMID, strings.ToLower(word(r.VMID)))
		fill(&to.BootID, dashed(word(r.BootID)))
		fill(&to.Image, shorten(r.Image, 1024))
		if r.At.After(to.At) && r.At.Year() <= 9999 {
			to.At = r.At
		}
		fillSystem(&to.System, r.System)
		known := m.known(concludedRoots(r))
		for _, u := range r.Units {
			if known[u.Name] {
				u.Activating, u.Activated = 0, 0
			}
			m.mergeUnit(u)
		}
		for _, s := range r.Spans {
			if s.Name == chainRoot && known[s.Unit] {
				u := &to.Units[m.units[s.Unit]]
				s.Start, s.End, s.Open, s.Detail = begin(u), max(begin(u), u.Activated), u.Activated == 0, ""
			}
			m.span(tidySpan(s))
		}
		for _, s := range r.Sources {
			if len(to.Sources) < wire.MaxBootSources && isState(s.State) {
				to.Sources = append(to.Sources, wire.BootSource{Name: orUnknown(word(s.Name)), Path: shorten(s.Path, 1024), State: s.State, Detail: detail(s.Detail)})
			}
		}
	}
	to.Clocks = mergeClocks(ranked)
	sortSpans(to.Spans)
	to.Spans = stages(distinct(to.Spans))
	tidySystem(&to.System)
	fit(to)
	return *to
}

func fill(to *string, s string) {
	if *to == "" {
		*to = s
	}
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

func isState(s wire.SourceState) bool {
	switch s {
	case wire.SourceRead, wire.SourcePartial, wire.SourceMissing, wire.SourceOther:
		return true
	}
	return false
}

// rank orders reports by how well their source knows systemd's times and the
// clocks: those that the manager gave first.
func rank(r *wire.BootReport) int {
	switch {
	case len(r.Sources) == 0:
		return 3
	case r.System.Relative:
		return 6
	}
	switch r.Sources[0].Name {
	case sourceSystemd, sourceShow:
		return 0
	case sourcePlot:
		return 1
	case sourceJournal:
		return 2
	case sourceDump:
		return 4
	case sourceCloudInit:
		return 5
	}
	return 3
}

// place brings reports whose times count from the start of userspace to the kernel's start,
// where another report has the start of userspace, or one of their units; where all are
// relative they stay so. Reports that cannot be placed lose their units, and note it.
func place(reports []wire.BootReport) {
	var absolute []*wire.BootReport
	for i := range reports {
		if r := &reports[i]; !r.System.Relative && (len(r.Units) > 0 || r.System.Userspace > 0) {
			absolute = append(absolute, r)
		}
	}
	if len(absolute) == 0 {
		return
	}
	for i := range reports {
		r := &reports[i]
		if !r.System.Relative {
			continue
		}
		by, ok := userspaceOf(absolute, r)
		if !ok {
			r.Units, r.Spans = nil, nil
			r.System = wire.SystemTimes{}
			r.Sources = append([]wire.BootSource(nil), r.Sources...)
			for k := range r.Sources {
				r.Sources[k].State = wire.SourcePartial
				r.Sources[k].Detail = join(r.Sources[k].Detail, "when userspace started is not known, so its times cannot be placed beside the others'")
			}
			continue
		}
		shift(r, by)
	}
}

// userspaceOf is when userspace started, by the manager's times or by a unit.
func userspaceOf(absolute []*wire.BootReport, r *wire.BootReport) (wire.Micros, bool) {
	for _, a := range absolute {
		if a.System.Userspace > 0 {
			return a.System.Userspace, true
		}
	}
	times := map[string]wire.Micros{}
	for i := range r.Units {
		times[r.Units[i].Name] = r.Units[i].Activating
	}
	for _, a := range absolute {
		for i := range a.Units {
			u := &a.Units[i]
			if at := times[u.Name]; at > 0 && u.Activating >= at {
				return u.Activating - at, true
			}
		}
	}
	return 0, false
}

// shift makes a relative report one whose times count from the kernel's start.
func shift(r *wire.BootReport, by wire.Micros) {
	move := func(t *wire.Micros) {
		if *t > 0 {
			*t += by
		}
	}
	r.Units = append([]wire.BootUnit(nil), r.Units...)
	for i := range r.Units {
		u := &r.Units[i]
		move(&u.Activating)
		move(&u.Activated)
		move(&u.Deactivating)
		move(&u.Deactivated)
	}
	r.Spans = append([]wire.BootSpan(nil), r.Spans...)
	for i := range r.Spans {
		if r.Spans[i].Clock == wire.ClockMonotonic {
			r.Spans[i].Start += by
			r.Spans[i].End += by
		}
	}
	t := &r.System
	t.Relative = false
	for _, at := range [...]*wire.Micros{&t.SecurityStart, &t.SecurityFinish, &t.GeneratorsStart, &t.GeneratorsFinish, &t.UnitsLoadStart, &t.UnitsLoadFinish, &t.Finish, &t.SoftReboot} {
		move(at)
	}
	t.Userspace = by
}

func fillSystem(to *wire.SystemTimes, from wire.SystemTimes) {
	if from.Relative {
		// All are relative: else it was placed.
		to.Relative = true
	}
	to.Container = to.Container || from.Container
	for _, f := range [...]struct {
		to   *wire.Micros
		from wire.Micros
	}{
		{&to.Firmware, from.Firmware}, {&to.Loader, from.Loader}, {&to.InitRD, from.InitRD}, {&to.Userspace, from.Userspace},
		{&to.SecurityStart, from.SecurityStart}, {&to.SecurityFinish, from.SecurityFinish},
		{&to.GeneratorsStart, from.GeneratorsStart}, {&to.GeneratorsFinish, from.GeneratorsFinish},
		{&to.UnitsLoadStart, from.UnitsLoadStart}, {&to.UnitsLoadFinish, from.UnitsLoadFinish},
		{&to.Finish, from.Finish}, {&to.SoftReboot, from.SoftReboot},
	} {
		if *f.to == 0 {
			*f.to = f.from
		}
	}
}

func tidySystem(t *wire.SystemTimes) {
	for _, at := range [...]*wire.Micros{&t.Firmware, &t.Loader, &t.InitRD, &t.Userspace, &t.SecurityStart, &t.SecurityFinish, &t.GeneratorsStart, &t.GeneratorsFinish, &t.UnitsLoadStart, &t.UnitsLoadFinish, &t.Finish, &t.SoftReboot} {
		clamp(at)
	}
	if t.Relative {
		t.Userspace = 0
	}
}

// clamp makes a time that cannot be an unknown one.
func clamp(t *wire.Micros) {
	if *t < 0 || *t > maxMonotonic {
		*t = 0
	}
}

func (b *boot) mergeUnit(u wire.BootUnit) {
	for _, t := range [...]*wire.Micros{&u.Activating, &u.Activated, &u.Deactivating, &u.Deactivated, &u.Grain} {
		clamp(t)
	}
	_, was := b.units[u.Name]
	to := b.unit(u.Name)
	if to == nil {
		return
	}
	begun, known := begin(&u) > 0, begin(to) > 0
	// systemd knows a unit's last start only, the journal the boot's.
	apart := begin(&u) - begin(to)
	within := alike + u.Grain + to.Grain
	again := begun && known && (apart > within || apart < -within)
	switch {
	case !again:
		to.Restarts = max(to.Restarts, min(u.Restarts, 1<<30))
	case apart < 0:
		to.Restarts = min(u.Restarts, 1<<30)
	}
	if !was || begun && (!known || again && apart < 0 || !again && u.Grain < to.Grain) {
		to.Activating, to.Activated, to.Deactivating, to.Deactivated, to.Grain = u.Activating, u.Activated, u.Deactivating, u.Deactivated, u.Grain
	}
	to.After = edges(to.After, u.After)
	to.TriggeredBy = edges(to.TriggeredBy, u.TriggeredBy)
	fill(&to.Result, word(u.Result))
	to.Restarts = max(to.Restarts, 0)
	to.Skipped = to.Skipped || u.Skipped
	to.Oneshot = to.Oneshot || u.Oneshot
}

// concludedRoots are the units that critical chains lead to of which only how long
// they took is printed: another source knows better when that was.
func concludedRoots(r *wire.BootReport) []string {
	var names []string
	for i := range r.Spans {
		if s := &r.Spans[i]; s.Source == sourceSystemd && s.Name == chainRoot && s.Open {
			names = append(names, s.Unit)
		}
	}
	return names
}

// known are those of the units whose times are known already.
func (b *boot) known(units []string) map[string]bool {
	var known map[string]bool
	for _, name := range units {
		if i, ok := b.units[name]; ok && begin(&b.report.Units[i]) > 0 {
			if known == nil {
				known = map[string]bool{}
			}
			known[name] = true
		}
	}
	return known
}

// begin is when a unit began to start.
func begin(u *wire.BootUnit) wire.Micros {
	if u.Activating > 0 {
		return u.Activating
	}
	return u.Activated
}

// edges are the names of both lists that can be units', each once.
func edges(a, b []string) []string {
	if len(b) == 0 {
		return a
	}
	seen := make(map[string]bool, len(a)+len(b))
	kept := make([]string, 0, len(a)+len(b))
	for _, list := range [...][]string{a, b} {
		for _, name := range list {
			if !seen[name] && isUnit(name) && len(kept) < wire.MaxUnitEdges {
				seen[name] = true
				kept = append(kept, name)
			}
		}
	}
	return kept
}

func tidySpan(s wire.BootSpan) wire.BootSpan {
	switch s.Clock {
	case wire.ClockMonotonic, wire.ClockWall, wire.ClockCloud, wire.ClockCluster:
	default:
		s.Name = "" // left out
	}
	s.Source, s.Name, s.Parent, s.Result = orUnknown(word(s.Source)), shortName(s.Name), shortName(s.Parent), word(s.Result)
	if s.Unit != "" && !isUnit(s.Unit) {
		s.Unit = ""
	}
	clamp(&s.Grain)
	return s
}

// shortName is a span's name within wire's bound. Its text was redacted when it was made.
func shortName(s string) string { return strings.TrimSpace(shorten(s, maxUnit-1)) }

// mergeClocks are the readings of the sources that read both clocks at once.
// Where there are none, cloud-init's are taken, which are written down later, and
// where there are none of those either, times of day that were cut to the second.
func mergeClocks(ranked []wire.BootReport) []wire.ClockReading {
	var exact, late, cut []wire.ClockReading
	for i := range ranked {
		r := &ranked[i]
		for _, c := range r.Clocks {
			switch {
			case c.Monotonic < 0 || c.Monotonic > maxMonotonic || c.Wall < 0 || c.Wall > maxWall:
			case c.Wall%second == 0 && rank(r) != 2:
				cut = append(cut, c)
			case rank(r) == 5:
				late = append(late, c)
			default:
				exact = append(exact, c)
			}
		}
	}
	switch {
	case len(exact) > 0:
	case len(late) > 0:
		sortClocks(late)
		exact = bestReadings(late)
	case len(cut) > 0:
		best := cut[0] // what was cut is too early: the latest is the nearest
		for _, c := range cut {
			if c.Wall-c.Monotonic > best.Wall-best.Monotonic {
				best = c
			}
		}
		exact = []wire.ClockReading{best}
	}
	sortClocks(exact)
	if len(exact) <= wire.MaxBootClocks {
		return exact
	}
	var f clockFilter
	for _, c := range exact {
		f.take(c)
	}
	return f.readings()
}

// distinct leaves out spans that another source has too: of the same source and name, that
// begin at the same time but for what is rounded. spans are sorted.
func distinct(spans []wire.BootSpan) []wire.BootSpan {
	last := make(map[string]int, len(spans)) // by source, clock and name: where it was kept
	kept := spans[:0]
	for _, s := range spans {
		key := s.Source + "\x00" + string(s.Clock) + "\x00" + s.Name
		i, seen := last[key]
		if seen && s.Start-kept[i].Start <= max(s.Grain, kept[i].Grain, 2*millisecond) && s.Result == kept[i].Result {
			if kept[i].Open && !s.Open || kept[i].Open == s.Open && s.Grain < kept[i].Grain {
				s, kept[i] = kept[i], s
			}
			fill(&kept[i].Parent, s.Parent)
			fill(&kept[i].Unit, s.Unit)
			fill(&kept[i].Detail, s.Detail)
			continue
		}
		last[key] = len(kept)
		kept = append(kept, s)
	}
	return kept
}

// stages keeps one span of each of cloud-init's stages: its log, its status and its events
// all have them, by different clocks. The one that ended is kept, of those the finest, of
// those the first.
func stages(spans []wire.BootSpan) []wire.BootSpan {
	at := make(map[string]int, len(stageNames))
	kept := spans[:0]
	for _, s := range spans {
		if s.Source != sourceCloudInit || s.Start == s.End && !s.Open {
			kept = append(kept, s)
			continue
		}
		if stage, ok := stageName(s.Name); !ok || stage != s.Name {
			kept = append(kept, s)
			continue
		}
		i, again := at[s.Name]
		if !again {
			at[s.Name] = len(kept)
			kept = append(kept, s)
			continue
		}
		if kept[i].Open && !s.Open || kept[i].Open == s.Open && s.Grain < kept[i].Grain {
			s, kept[i] = kept[i], s
		}
		fill(&kept[i].Result, s.Result)
		fill(&kept[i].Unit, s.Unit)
		fill(&kept[i].Detail, s.Detail)
	}
	return kept
}

// parents clears missing parents: a source may name one that was rotated away, or that
// another file has.
func parents(spans []wire.BootSpan) {
	here := make(map[string]bool, len(spans))
	for i := range spans {
		here[spans[i].Source+"\x00"+spans[i].Name] = true
	}
	for i := range spans {
		s := &spans[i]
		if s.Parent == s.Name || s.Parent != "" && !here[s.Source+"\x00"+s.Parent] {
			s.Parent = ""
		}
	}
}
