package e2e

import (
	"os"
	"slices"
	"testing"
	"time"
)

// interrupted presses Ctrl-C while the donor is drained, while it is stopped and
// while the version is built. Each time the donor is given back before the
// command ends, and the same command goes on.
func interrupted(t *testing.T, w *world) {
	p := w.pool(t, "ctrlc", 2)
	donor, bench := p.nodes[0], p.nodes[1]
	p.run2pods(t, "app", donor, "example.invalid/app:"+p.short)
	before := p.node(t, donor)
	args := baked("capture", donor, "--workbench="+bench)
	for _, step := range []string{"drain", "stop", "version"} {
		o := p.ortet(t, on(step, "started", os.Interrupt), args...).exits(t, exitInterrupted)
		o.says(t, "Interrupted", "same command")
		p.whole(t, donor, before)
		if got := p.versions(t); step != "version" && len(got) > 0 {
			t.Errorf("interrupted at %s, there are versions %v", step, got)
		}
	}

	// While a capture runs, another says who holds the pool.
	var other outcome
	asked := false
	first := p.ortet(t, func(l line) os.Signal {
		if !asked && l.step == "hold" && l.state == "done" {
			asked = true
			var err error
			if other, err = p.try(t.Context(), nil, append(args, "--azure-config="+p.azureConfig, "--kubeconfig="+p.cp.Kubeconfig)...); err != nil {
				t.Error(err)
			}
		}
		return nil
	}, args...).exits(t, exitDone)
	if asked {
		host, err := os.Hostname()
		must(t, err)
		other.exits(t, exitRefused).says(t, "holds it since", host)
	} else {
		t.Errorf("the capture never held the pool\n%s", first)
	}

	day := time.Now().UTC().Format("2006.01.02")
	if got := p.versions(t); !slices.Equal(got, []string{day}) {
		t.Errorf("versions are %v, want %s alone", got, day)
	}
	p.pinned(t, day)
	p.whole(t, donor, before)
	p.clean(t)
}
