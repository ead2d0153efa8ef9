package generalize

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/wire"
)

const tunedList = "etc/ortet/tuned.json"

// tunable is a donor's disk on which both tunings can be made.
func tunable(t *testing.T) *donor {
	d := newDonor(t)
	d.write(map[string]string{
		"etc/cloud/cloud.cfg":                   "cloud_init_modules:\n - users-groups\n - ssh\n",
		"lib/systemd/system/containerd.service": "[Unit]\nAfter=network.target local-fs.target\n",
		"var/lib/cloud/instance/user-data.txt":  "#cloud-config\n",
	})
	return d
}

// A clone of a tuned image is the next donor: its capture has the tunings of its own request alone.
func TestCaptureReplacesTunings(t *testing.T) {
	t.Parallel()
	d := tunable(t)
	capture := func(name string, tune ...string) wire.GeneralizeReport {
		d.write(map[string]string{"etc/hostname": donorName + "\n"})
		r := d.run(func(o *Options) { o.Capture, o.Tune = name, tune })
		wantOutcome(t, r, wire.Generalized)
		if !slices.Equal(r.Tuned, tune) {
			t.Errorf("%s: tuned %v", name, r.Tuned)
		}
		return r
	}
	capture("c-1", wire.RecommendedTunings()...)
	capture("c-2", wire.TuneSSHHostKey)
	if p := d.paths(); p["etc/systemd/system/containerd.service.d/90-ortet-runtime-early.conf"] || !p["etc/cloud/cloud.cfg.d/zz-ortet-ssh-host-key.cfg"] {
		t.Error("the disk has not the tunings of its last capture alone")
	}
	d.write(map[string]string{"etc/cloud/cloud.cfg.d/zz-ortet-ssh-host-key.cfg": "# mine\n"})
	if r := capture("c-3"); !slices.Equal(r.TunedKept, []string{"/etc/cloud/cloud.cfg.d/zz-ortet-ssh-host-key.cfg"}) || d.paths()[tunedList] {
		t.Errorf("kept %v, list left: %t", r.TunedKept, d.paths()[tunedList])
	}
}

// All that stands against a capture is said at once, by the inspection as well, and changes nothing.
func TestTuningsAreRefusedWithTheRest(t *testing.T) {
	t.Parallel()
	for _, inspect := range []bool{true, false} {
		d := tunable(t)
		d.write(map[string]string{"etc/cloud/cloud.cfg.d/10.cfg": "preserve_hostname: true\nssh_genkeytypes: [rsa]\n", "etc/containerd/config.toml": "root = \"/mnt/x\"\n"})
		before := d.snapshot()
		r := d.run(func(o *Options) { o.Tune, o.Inspect, o.DryRun = wire.RecommendedTunings(), inspect, inspect })
		wantOutcome(t, r, wire.DiskRefused)
		for _, want := range []string{"preserve_hostname", "--tune ssh-host-key: /etc/cloud/cloud.cfg.d/10.cfg:2", "--tune runtime-early: /etc/containerd/config.toml:1"} {
			if !strings.Contains(r.Message, want) {
				t.Errorf("inspect %t: %q lacks %q", inspect, r.Message, want)
			}
		}
		if d.snapshot() != before {
			t.Error("the disk was changed")
		}
	}
}

// User data that clones run again stands against a tuning; with --bootstrap baked no clone gets it.
func TestTuningsAndUserData(t *testing.T) {
	t.Parallel()
	for bootstrap, refused := range map[Bootstrap]bool{Keep: true, Baked: false} {
		d := tunable(t)
		d.write(map[string]string{"var/lib/cloud/instance/user-data.txt": "#cloud-config\npackages: [x]\n"})
		r := d.run(func(o *Options) {
			o.Tune, o.Inspect, o.DryRun, o.Bootstrap = []string{wire.TuneRuntimeEarly}, true, true, bootstrap
		})
		if is := strings.Contains(r.Message, "--tune runtime-early: /var/lib/cloud/instance/user-data.txt:2: packages:: clones run it again"); is != refused {
			t.Errorf("--bootstrap %s: %s, %q", bootstrap, r.Outcome, r.Message)
		}
	}
}

// A list that names another file refuses the disk, also where nothing is to be tuned.
func TestListOfTuningsIsNotBelieved(t *testing.T) {
	t.Parallel()
	d := tunable(t)
	d.write(map[string]string{tunedList: `{"version":1,"capture":"c","files":[{"tuning":"ssh-host-key","path":"etc/passwd","sha256":"x"}]}`})
	r := d.run(nil)
	wantOutcome(t, r, wire.DiskRefused)
	if !strings.Contains(r.Message, "which no tuning adds") || !d.paths()["etc/passwd"] {
		t.Errorf("%q", r.Message)
	}
}

// User data is not there yet when such a kubelet starts, and without the other tuning it waits for containerd.
func TestKubeletEarlyIsForBaked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bootstrap Bootstrap
		tune      []string
		want      string
	}{
		{Keep, wire.Tunings(), "--tune: kubelet-early: only with --bootstrap baked"},
		{Baked, []string{wire.TuneKubeletEarly}, "--tune: kubelet-early: only with runtime-early"},
		{Baked, wire.Tunings(), "--tune kubelet-early: /usr/lib/systemd/system/kubelet.service: is not on this disk"},
	} {
		d := tunable(t)
		r := d.run(func(o *Options) { o.Tune, o.Inspect, o.DryRun, o.Bootstrap = c.tune, true, true, c.bootstrap })
		wantOutcome(t, r, wire.DiskRefused)
		if !strings.Contains(r.Message, c.want) {
			t.Errorf("--bootstrap %s: %q, want %q", c.bootstrap, r.Message, c.want)
		}
	}
}

// A donor with kubelet-early is generalised, and again as a clone of that.
func TestKubeletEarlyOnACopy(t *testing.T) {
	t.Parallel()
	d := tunable(t).tlsBootstrap()
	const at = "etc/systemd/system/kubelet.service"
	text, err := os.ReadFile(filepath.Join(d.dir, at))
	if err = cmp.Or(err, os.Remove(filepath.Join(d.dir, at))); err != nil {
		t.Fatal(err)
	}
	d.write(map[string]string{"usr/lib/systemd/system/kubelet.service": "[Unit]\nAfter=network-online.target\n[Service]\nRestart=always\n" + string(text), "usr/lib/systemd/system/cloud-init-local.service": "[Unit]\n"})
	for _, name := range []string{"c-1", "c-2"} {
		d.write(map[string]string{"etc/hostname": donorName + "\n"})
		r := d.run(func(o *Options) {
			o.Capture, o.Tune, o.Bootstrap, o.AcceptPoolCredentials = name, wire.Tunings(), Baked, true
		})
		wantOutcome(t, r, wire.Generalized)
		copied, err := os.ReadFile(filepath.Join(d.dir, at))
		if err != nil || !slices.Equal(r.Tuned, wire.Tunings()) || len(r.TunedKept) > 0 || strings.Contains(string(copied), "\nAfter=network-online.target") || !strings.Contains(string(copied), string(text)) {
			t.Errorf("%s: tuned %v, kept %v, %v, the copy is\n%s", name, r.Tuned, r.TunedKept, err, copied)
		}
	}
}
