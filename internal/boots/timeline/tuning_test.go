package timeline_test

import (
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/wire"
)

// tunable is a boot whose kubelet waited for cloud-init's keys and then for containerd. An earlier
// controller has to read its report.
func tunable(t *testing.T, sources ...wire.BootSource) timeline.Timeline {
	t.Helper()
	return tunableAfter(t, "cloud-init.service", sources...)
}

// tunableAfter is tunable with cloud-init's network stage in a unit.
func tunableAfter(t *testing.T, stage string, sources ...wire.BootSource) timeline.Timeline {
	t.Helper()
	r := wire.BootReport{
		Version: wire.BootReportVersion, System: wire.SystemTimes{Userspace: 1e6, Finish: 9e6}, Sources: sources,
		Units: []wire.BootUnit{
			{Name: stage, Activating: 2e6, Activated: 4e6},
			{Name: "containerd.service", Activating: 4e6, Activated: 5e6, After: []string{stage}},
			{Name: "kubelet.service", Activating: 8e6, Activated: 8.5e6, After: []string{"containerd.service"}},
		},
		Spans: []wire.BootSpan{{Source: "cloud-init", Name: "modules-init/config-ssh", Clock: wire.ClockMonotonic, Start: 2.5e6, End: 3.9e6, Unit: "cloud-init.service"}},
	}
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	return timeline.Build(r, timeline.Cloud{})
}

// The advice says of each span that a tuning shortens whether the image has it.
func TestAdviceNamesTunings(t *testing.T) {
	const key, drop = "/etc/cloud/cloud.cfg.d/zz-ortet-ssh-host-key.cfg", "/etc/systemd/system/containerd.service.d/90-ortet-runtime-early.conf"
	source := func(tuning, path string, state wire.SourceState) wire.BootSource {
		return wire.BootSource{Name: wire.SourceTuning, Path: path, State: state, Detail: tuning}
	}
	for name, c := range map[string]struct {
		sources      []wire.BootSource
		key, runtime string
	}{
		"untuned": {nil, "capture with `--tune ssh-host-key`: cloud-init then makes one host key", "capture with `--tune runtime-early`: containerd then starts beside cloud-init"},
		"tuned": {[]wire.BootSource{source("ssh-host-key", key, wire.SourceRead), source("runtime-early", drop, wire.SourceRead)},
			"nothing: this image has `--tune ssh-host-key`", "nothing: this image has `--tune runtime-early`"},
		"changed": {[]wire.BootSource{source("ssh-host-key", key, wire.SourcePartial), source("runtime-early", drop, wire.SourceMissing)},
			"this image had it, and a person changed or deleted " + key, "this image had it, and a person changed or deleted " + drop},
	} {
		tl := tunable(t, c.sources...)
		found := map[string]string{}
		for _, a := range tl.Advice {
			for _, id := range a.Spans {
				if len(a.Spans) == 1 {
					found[id] += a.Do
				}
			}
		}
		if !strings.Contains(found["cloud-init/modules-init/config-ssh"], c.key) || !strings.Contains(found["unit/containerd.service"], c.runtime) {
			t.Errorf("%s: %q", name, found)
		}
		if len(tl.Advice) < 3 || tl.Advice[0].Spans[0] != "cloud-init/modules-init/config-ssh" || tl.Advice[1].Spans[0] != "unit/containerd.service" || tl.Advice[2].Saves <= tl.Advice[0].Saves {
			t.Errorf("%s: advice on tunings is not the first: %+v", name, tl.Advice)
		}
		want := map[string]string{"tuned": "runtime-early,ssh-host-key"}[name]
		if has := strings.Join(tl.Tuned, ","); has != want {
			t.Errorf("%s: the boot's image has the tunings %q, want %q", name, has, want)
		}
		for _, m := range tl.Missing {
			if strings.Contains(m, "tuning") {
				t.Errorf("%s: a tuning's file is called missing evidence: %s", name, m)
			}
		}
	}
}

// kubelet-early is advised on a clone of a baked image whose kubelet waited for cloud-init's network stage, with
// what the replay saves; not on other machines, and not where the image has it.
func TestAdviceNamesKubeletEarly(t *testing.T) {
	baked := wire.BootSource{Name: wire.SourceBaked, State: wire.SourceRead}
	file := func(path string, state wire.SourceState) wire.BootSource {
		return wire.BootSource{Name: wire.SourceTuning, Path: path, State: state, Detail: wire.TuneKubeletEarly}
	}
	const unit, gate = "/etc/systemd/system/kubelet.service", "/etc/ortet/kubelet-early.sh"
	const does = "capture with `--bootstrap baked --tune recommended,kubelet-early`"
	for name, c := range map[string]struct {
		sources []wire.BootSource
		want    string
		stage   string
	}{
		"generic or keep":       {nil, "", "cloud-init.service"},
		"baked":                 {[]wire.BootSource{baked}, does + ": the kubelet then starts beside this stage", "cloud-init.service"},
		"since cloud-init 24.3": {[]wire.BootSource{baked}, does + ": the kubelet then starts beside this stage", "cloud-init-network.service"},
		"tuned":                 {[]wire.BootSource{baked, file(gate, wire.SourceRead), file(unit, wire.SourceRead)}, "", "cloud-init.service"},
		"changed": {[]wire.BootSource{baked, file(gate, wire.SourceRead), file(unit, wire.SourcePartial)},
			does + " again: this image had it, and a person changed or deleted " + unit, "cloud-init.service"},
	} {
		var found []timeline.Advice
		for _, a := range tunableAfter(t, c.stage, c.sources...).Advice {
			if strings.Contains(a.Do, wire.TuneKubeletEarly) {
				found = append(found, a)
			}
		}
		switch {
		case c.want == "" && len(found) > 0, c.want != "" && len(found) != 1:
			t.Errorf("%s: advice %+v, want %q", name, found, c.want)
		case c.want != "" && (!strings.HasPrefix(found[0].Do, c.want) || found[0].Saves != 2e6 || found[0].Unit != c.stage):
			t.Errorf("%s: advice %+v, want %q and 2 s", name, found[0], c.want)
		}
	}
}
