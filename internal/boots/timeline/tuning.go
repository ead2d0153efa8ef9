package timeline

import (
	"fmt"
	"slices"

	"github.com/ortet/ortet/internal/wire"
)

// tuned are the spans, by Match as of a Rule, that a tuning of `ortet capture --tune` shortens, and how.
var tuned = []struct{ match, tuning, how string }{
	{"unit/containerd.service", wire.TuneRuntimeEarly, "containerd then starts beside cloud-init, not after it"},
	{"cloud-init/*config-ssh*", wire.TuneSSHHostKey, "cloud-init then makes one host key, not one of each kind"},
}

// mentioned is the least time on the path of a span that a tuning shortens.
const mentioned = second / 4

func tuningOf(id string) string {
	for _, t := range tuned {
		if matches(t.match, plainID(id)) {
			return t.tuning
		}
	}
	return ""
}

// tunedBy are the tunings that the image has unchanged, by what the node reported of their files.
func (b *boot) tunedBy() (has []string) {
	for _, tuning := range wire.Tunings() {
		read, changed := false, false
		for _, s := range b.report.Sources {
			if s.Name == wire.SourceTuning && s.Detail == tuning {
				read, changed = true, changed || s.State != wire.SourceRead
			}
		}
		if read && !changed {
			has = append(has, tuning)
		}
	}
	return has
}

// tunable are the innermost items on the path that a tuning shortens.
func (b *boot) tunable(onPath map[int32]wire.Micros) (out []int32) {
	for i, took := range onPath {
		inner := func(k int32) bool { return onPath[k] > 0 && tuningOf(b.items[k].id) != "" }
		if took >= mentioned && tuningOf(b.items[i].id) != "" && !slices.ContainsFunc(b.children[i], inner) {
			out = append(out, i)
		}
	}
	slices.Sort(out)
	return out[:min(len(out), mostAdvice)]
}

// tuneRemedy says whether the image has a tuning, by what the node reported of its files.
func (b *boot) tuneRemedy(tuning string) string {
	does, how := fmt.Sprintf("capture with `--tune %s`", tuning), ""
	for _, t := range tuned {
		if t.tuning == tuning {
			how = t.how
		}
	}
	for _, s := range b.report.Sources {
		if s.Name != wire.SourceTuning || s.Detail != tuning {
			continue
		}
		if s.State == wire.SourceRead {
			return fmt.Sprintf("nothing: this image has `--tune %s`", tuning)
		}
		return fmt.Sprintf("%s again: this image had it, and a person changed or deleted %s", does, s.Path)
	}
	return does + ": " + how
}
