package scenario

import (
	"cmp"
	"slices"
	"strings"
)

// A theme narrows what happens by chance to what belongs together, so that a few
// happenings of one scenario meet: of all that can go wrong, two that need each other
// seldom do by chance alone.
type theme struct {
	name  string
	does  string // for people
	whats []What // faults and changes by others; of a kind that is not among them, all
	whom  string // whose instance and node; "": any
	// mostly is what others do in four of five changes; "": any. Such a theme is not one of
	// which every seed takes one.
	mostly What
}

// themes lists them; the first is none.
func themes() []theme {
	return []theme{
		{name: "all", does: "anything"},
		{name: "believe", does: "answers say what is not so", whats: []What{DropAfter, ReportFailure, ReportSuccess, FailAtEnd, IgnoreNull}},
		{name: "stale", does: "reads are old, and writes meet others'", whats: []What{Stale, Error, Conflict, ChangeModel, ScaleOut}},
		{name: "hold", does: "processes meet over the Lease", whats: []What{RivalComes, KubeOutage, Clock, Hang, DropAfter, Conflict}},
		{name: "bench", does: "the workbench is lost or troubled", whats: []What{DeleteInstance, StopInstance, StartInstance, RestartInstance, NodeNotReady, NodeGone, Cordon, DeleteDisk}, whom: bench},
		{name: "donor", does: "the donor is lost or troubled", whats: []What{DeleteInstance, StopInstance, StartInstance, RestartInstance, NodeNotReady, NodeGone, Cordon, Uncordon}, whom: donor},
		{name: "images", does: "others change images and the pool", whats: []What{DeleteSnapshot, DeleteCopy, DeleteVersion, DeleteGallery, ChangeModel, ScaleOut, ScaleIn, DeleteInstance}},
		{name: "outages", does: "a side does not answer", whats: []What{Throttle, Error, DropBefore, Hang, ExpireToken, KubeOutage, AzureOutage, ExpireLogin}},
		{name: "rights", does: "rights are taken away", whats: []What{Error, ExpireToken, ExpireLogin}, mostly: Deny},
	}
}

func themeNamed(name string) theme {
	all := themes()
	if i := slices.IndexFunc(all, func(t theme) bool { return t.name == name }); i >= 0 {
		return all[i]
	}
	return all[0]
}

// among gives those of the weighted that belong to the theme, or all where none does.
func (t theme) among(all []weighted[What]) []weighted[What] {
	if len(t.whats) == 0 {
		return all
	}
	some := slices.DeleteFunc(slices.Clone(all), func(w weighted[What]) bool { return !slices.Contains(t.whats, w.of) })
	if len(some) == 0 {
		return all
	}
	return some
}

// ofTheme is the setting; no theme is printed as that of anything.
func ofTheme() setting[Chance] {
	var names, does []string
	for _, t := range themes() {
		names, does = append(names, t.name), append(does, t.name+": "+t.does)
	}
	s := choice("of", func(c *Chance) *string { return &c.Of }, "what happens: "+strings.Join(does, "; "), names...)
	set, get := s.set, s.get
	s.set = func(c *Chance, v string) error {
		err := set(c, v)
		if err == nil && v == names[0] {
			c.Of = ""
		}
		return err
	}
	s.get = func(c *Chance) string { return cmp.Or(get(c), names[0]) }
	return s
}
