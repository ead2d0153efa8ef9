package simulate

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

// scanned has a disk hold all that a scan can report.
func (w *world) scanned(report *wire.GeneralizeReport) {
	if w.story.Pool.Disk != "much" {
		return
	}
	for i := range 12 {
		report.Findings = append(report.Findings, wire.SecretFinding{Path: fmt.Sprintf("/srv/key%02d", i), Class: wire.OtherSecret, Rule: "private-key", Removed: true})
	}
	report.Findings = append(report.Findings, wire.SecretFinding{Path: "/etc/app/token", Class: wire.OtherSecret, Rule: "token", Accepted: true})
	report.SecretsRemoved, report.More, report.Partial = 14, 3, report.DryRun
	report.Stores = []wire.ImageStore{{Path: "/var/lib/containerd", Bytes: 3 << 29}, {Path: "/var/lib/docker", Bytes: 1 << 30, ByForm: true}}
	if !report.DryRun {
		report.Emptied = []string{"/var/lib/app/state.json"}
	}
}

// What the scan of a donor's disk removed, accepted and passed over is in the notes of a capture and of
// its dry run.
func TestOutcomeScanOfTheDiskIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Seed: 1, Pool: with(func(p *Pool) { p.Disk = "much" })})
		defer w.finish()
		config, _ := w.of(t, namespace)
		plan, err := capture.New(config).Plan(t.Context(), capture.Request{Node: w.nodeName(0)})
		if err != nil || len(plan.Problems) > 0 {
			t.Fatalf("%v, %v", plan.Problems, err)
		}
		w.pursue(0, Ask{Do: "capture", Once: true})
		p := w.processes[len(w.processes)-1]
		if p.code() != workflow.ExitDone {
			t.Fatal(p.err)
		}
		removed := "--remove-secrets deletes from the copy: /srv/key00, "
		partial := "the inspection of the donor's disk ended at its limit of time, files or bytes"
		for what, c := range map[string]struct {
			notes []string
			says  []string
		}{
			"dry run": {plan.Notes, []string{removed, "/srv/key09 and 4 more", partial}},
			"capture": {p.capture.Notes, []string{removed, partial,
				"these files are empty, and were written in the minute before the disk was copied; if they should not be, capture again: /var/lib/app/state.json",
				"1.5 GiB of image layers were searched for the node's own secrets only (/var/lib/containerd); --scan-images searches them for all kinds",
				"3 more secrets were found on the disk than are listed"}},
		} {
			all := strings.Join(c.notes, "\n")
			for _, says := range c.says {
				if !strings.Contains(all, says) {
					t.Errorf("the notes of a %s lack %q:\n%s", what, says, all)
				}
			}
		}
		if _, hides, _ := strings.Cut(strings.Join(plan.Notes, "\n"), "/srv/key10"); hides != "" {
			t.Errorf("the dry run names more than 10 files: %q", plan.Notes)
		}
	})
}

// A workbench that is lost is named with the reason, and another one does its work: the exit code is 0.
func TestOutcomeLostWorkbenchIsNamed(t *testing.T) {
	for _, c := range []struct{ what, why string }{
		{"instance deleted", "workbench pool1000001 is lost: its instance "},
		{"instance stopped", "workbench pool1000001 is lost: its instance is stopped"},
		{"instance restarted", "the pod ended with code -1 and no report"},
		{"node deleted", "workbench pool1000001 is lost: its Node was deleted"},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			s := Story{Seed: 1, Pool: usual, Asks: []Ask{{Do: "capture", Once: true}}, Happen: []Event{{At: getPod, What: c.what, Target: "workbench"}}}
			asked(t, s, func(w *world, ps []*process) {
				notes := strings.Join(ps[0].capture.Notes, "\n")
				if !strings.Contains(notes, c.why) || !strings.Contains(notes, "the run was planned again") || ps[0].code() != workflow.ExitDone || len(w.pending) > 0 {
					t.Errorf("exit %d: %v; %s", ps[0].code(), ps[0].err, notes)
				}
			})
		})
	}
}

// A version of --shallow has one replica, which Azure makes without copies.
func TestOutcomeShallowVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Seed: 1, Pool: usual})
		defer w.close()
		config, _ := w.of(t, namespace)
		r, err := capture.New(config).Capture(t.Context(), capture.Request{Node: w.nodeName(0), Shallow: true})
		v := w.versions()[low(r.Version)]
		if err != nil || v == nil {
			t.Fatalf("%v, %v", v, err)
		}
		p := v.Properties.PublishingProfile
		if p.ReplicationMode == nil || *p.ReplicationMode != armcompute.ReplicationModeShallow || *p.StorageAccountType != armcompute.StorageAccountTypeStandardLRS {
			t.Errorf("%v %v", *p.ReplicationMode, *p.StorageAccountType)
		}
	})
}

// A capture whose new nodes Azure refuses does not begin the watch that was asked for, and says so.
func TestOutcomeNothingWatchesNewNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Seed: 1, Pool: usual})
		defer w.finish()
		w.azure.Quota = map[string]int{"cores": 2*int(w.modelNow().capacity) + 1}
		p := w.do(t, Ask{Do: "capture", Grow: 2, Watch: "cordon", Once: true})
		if p.code() != workflow.ExitNeedsPerson || !strings.Contains(p.err.Error(), "nothing watches the nodes of "+badVersion+"; run ortet watch pool1") {
			t.Errorf("exit %d: %v", p.code(), p.err)
		}
	})
}

// Clones of a canary do not report health to Azure, which would repair what is being judged: that is no
// lack, as that of an extension whose settings are not known.
func TestOutcomeClonesDoNotReportHealth(t *testing.T) {
	s := Story{Seed: 1, Pool: with(func(p *Pool) { p.Extensions = []string{"health", "monitor"} }), Asks: []Ask{{Do: "capture", Canary: 1}}}
	asked(t, s, func(w *world, ps []*process) {
		notes := strings.Join(ps[0].capture.Notes, "\n")
		if ps[0].code() != workflow.ExitDone || !strings.Contains(notes, "without extension monitor") || strings.Contains(notes, "extension health") {
			t.Errorf("exit %d: %v; %s", ps[0].code(), ps[0].err, notes)
		}
	})
}

// A dry run with `--bootstrap keep` says that user data runs again on each clone, and for how long, by the boot
// reports of the donor's own machine that a controller keeps.
func TestOutcomeUserDataRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Seed: 1, Pool: usual})
		defer w.finish()
		config, _ := w.of(t, namespace)
		api, err := kubernetes.NewForConfig(&rest.Config{Host: "http://kubesim.invalid", Transport: w.kube, BearerToken: ortetUser})
		if err != nil {
			t.Fatal(err)
		}
		name := w.nodeName(0)
		i, err := config.Cloud.Instance(t.Context(), w.instance(0))
		if err != nil {
			t.Fatal(err)
		}
		keep := func(vm, boot string, took wire.Micros) {
			report := wire.BootReport{Version: wire.BootReportVersion, Node: name, VMID: strings.ToLower(vm), BootID: boot,
				Spans: []wire.BootSpan{{Source: "cloud-init", Name: "modules-final/config-scripts_user", Parent: "modules-final",
					Clock: wire.ClockMonotonic, Start: 20e6, End: 20e6 + took},
					{Source: "cloud-init", Name: "modules-final", Clock: wire.ClockMonotonic, Start: 19e6, End: 21e6 + took}}}
			r, err := assess.BootRecord{Node: name, Pool: w.pool, Instance: w.instance(0), VMID: vm, BootID: boot, Stored: time.Now()}.Record(report)
			if err != nil {
				t.Fatal(err)
			}
			m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: r.Name, Namespace: namespace, Labels: r.Labels, Annotations: r.Annotations},
				Data: r.Data, BinaryData: r.Binary}
			if _, err := api.CoreV1().ConfigMaps(namespace).Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		want := func(what string, q capture.Request, says string) {
			t.Helper()
			p, err := capture.New(config).Plan(t.Context(), q)
			if err != nil || len(p.Problems) > 0 {
				t.Fatalf("%s: %v, %v", what, p.Problems, err)
			}
			all := strings.Join(p.Notes, "\n")
			if says == "" && strings.Contains(all, "user data") || !strings.Contains(all, says) {
				t.Errorf("%s: notes %q, want %q", what, p.Notes, says)
			}
		}
		donor := capture.Request{Node: name}
		const runs, baked = "user data runs again on each clone", "; with --bootstrap baked it does not"
		unknown := runs + ", how long is not known: no readable boot report of " + name + " shows it (ortet-node report --annotate)" + baked
		want("no report", donor, unknown)
		keep("00000000-0000-4000-8000-00000000ffff", "theirs", 90e6)
		want("one of another machine", donor, unknown)
		keep(i.VMID, "liar", 25*3600e6)
		want("one of more than a day", donor, unknown)
		keep(i.VMID, "first", 41.04e6)
		keep(i.VMID, "second", 1e4)
		want("the first boot's and the second's", donor, runs+": it took 41s on "+name+", as that Node reports"+baked)
		want("publish only", capture.Request{Node: name, PublishOnly: true}, "it took 41s on "+name+", as that Node reports")
		want("a donor that is added", capture.Request{Fresh: w.pool}, runs+", how long is not known before the donor is there")
		want("baked", capture.Request{Node: name, Bootstrap: plan.BootstrapBaked}, "")
	})
}
