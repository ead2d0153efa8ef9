package timeline

import (
	"fmt"
	"slices"

	"github.com/ortet/ortet/internal/wire"
)

type tuningSpan struct{ match, tuning, how string }

// tuned are the spans, by Match as of a Rule, that a tuning of `ortet capture --tune` shortens, and how.
var tuned = []tuningSpan{
	{"unit/containerd.service", wire.TuneRuntimeEarly, "containerd then starts beside cloud-init, not after it"},
	{"unit/cloud-init.service", wire.TuneKubeletEarly, earlyHow},
	{"unit/cloud-init-network.service", wire.TuneKubeletEarly, earlyHow},
	{"cloud-init/*config-ssh*", wire.TuneSSHHostKey, "cloud-init then makes one host key, not one of each kind"},
}

const earlyHow = "the kubelet then starts beside this stage, unless the disk is larger than the image's"

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

// tunable are the items on the path that a tuning shortens, of those of one tuning the innermost.
func (b *boot) tunable(onPath map[int32]wire.Micros) (out []int32) {
	for i, took := range onPath {
		tuning := tuningOf(b.items[i].id)
		inner := func(k int32) bool { return onPath[k] > 0 && tuningOf(b.items[k].id) == tuning }
		helps := tuning != wire.TuneKubeletEarly || b.startsEarlier(i)
		if took >= mentioned && tuning != "" && helps && !slices.ContainsFunc(b.children[i], inner) {
			out = append(out, i)
		}
	}
	slices.Sort(out)
	return out[:min(len(out), mostAdvice)]
}

// startsEarlier reports whether kubelet-early moves the kubelet's start before the end of cloud-init's network
// stage: on a clone of a baked image, by the node's word, that has not the tuning.
func (b *boot) startsEarlier(stage int32) bool {
	baked := slices.ContainsFunc(b.report.Sources, func(s wire.BootSource) bool { return s.Name == wire.SourceBaked })
	k, ok := b.byUnit["kubelet.service"]
	return baked && ok && b.items[k].start >= b.items[stage].end && !slices.Contains(b.tunedBy(), wire.TuneKubeletEarly)
}

// tuneRemedy says whether the image has a tuning, by what the node reported of its files.
func (b *boot) tuneRemedy(tuning string) string {
	if slices.Contains(b.tunedBy(), tuning) {
		return fmt.Sprintf("nothing: this image has `--tune %s`", tuning)
	}
	does := fmt.Sprintf("capture with `--tune %s`", tuning)
	if tuning == wire.TuneKubeletEarly { // it needs both
		does = fmt.Sprintf("capture with `--bootstrap baked --tune %s,%s`", wire.TuneRecommended, tuning)
	}
	for _, s := range b.report.Sources {
		if s.Name == wire.SourceTuning && s.Detail == tuning && s.State != wire.SourceRead {
			return fmt.Sprintf("%s again: this image had it, and a person changed or deleted %s", does, s.Path)
		}
	}
	i := slices.IndexFunc(tuned, func(t tuningSpan) bool { return t.tuning == tuning })
	return does + ": " + tuned[i].how
}
