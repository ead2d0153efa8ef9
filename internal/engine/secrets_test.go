package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/wire"
)

// otherSecrets is what a pod reports of a disk with two other secrets and an image, by
// its flags.
func otherSecrets(command []string, report *wire.GeneralizeReport) {
	var accepted []string
	for i, a := range command[:len(command)-1] {
		if a == "--accept-secret" {
			accepted = append(accepted, command[i+1])
		}
	}
	for _, path := range []string{"/etc/app.env", "/home/u/.netrc"} {
		f := wire.SecretFinding{Path: path, Class: wire.OtherSecret, Rule: "rule", Accepted: wire.AcceptsSecret(accepted, path)}
		switch {
		case f.Accepted:
		case slices.Contains(command, "--remove-secrets"):
			f.Removed = true
			report.SecretsRemoved++
		default:
			report.Outcome = wire.SecretsFound
		}
		report.Findings = append(report.Findings, f)
	}
	if report.Outcome == wire.SecretsFound {
		report.SecretsRemoved = 0
	}
	report.Stores = []wire.ImageStore{{Path: "/var/lib/containerd/blobs", Bytes: 3 << 30, ByForm: slices.Contains(command, "--scan-images")}}
}

// What was accepted and removed is in the result, in the plan's text and on the image,
// and a capture that goes on does what the first one was asked, whatever it is asked.
func TestAcceptedAndRemovedSecretsAreKept(t *testing.T) {
	for _, killed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.outcome = "others"
			q := request()
			q.AcceptSecrets, q.RemoveSecrets = []string{"/home/u/"}, true
			e, p, ctx, _ := w.process(t, "first", 0)
			planned, err := e.Plan(ctx, q)
			if err != nil || len(planned.Problems) > 0 {
				t.Fatalf("%+v, %v", planned.Problems, err)
			}
			i := slices.IndexFunc(planned.Steps, func(s prototype.Step) bool { return s.ID == prototype.StepGeneralize })
			if !strings.Contains(planned.Steps[i].Title, "delete files with secrets") || !slices.Contains(planned.Notes, "--remove-secrets deletes from the copy: /etc/app.env") {
				t.Errorf("step %q, notes %q", planned.Steps[i].Title, planned.Notes)
			}
			if killed {
				p.killWhen = "after create disk disk_pool1_work"
				_, _ = e.Capture(ctx, q)
				if !p.dead {
					t.Fatal("the process did not die")
				}
				q = request() // asks for neither
				e, _, ctx, _ = w.process(t, "next", 0)
			}
			result, err := e.Capture(ctx, q)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(result.AcceptedSecrets, []string{"/home/u/.netrc"}) || !slices.Equal(result.RemovedSecrets, []string{"/etc/app.env"}) || len(result.PoolCredentials) != 0 {
				t.Errorf("accepted %q, removed %q, pool credentials %q", result.AcceptedSecrets, result.RemovedSecrets, result.PoolCredentials)
			}
			if notes := fmt.Sprint(result.Notes); !strings.Contains(notes, "3.0 GiB of image layers") || !strings.Contains(notes, "--scan-images") {
				t.Errorf("notes %q", result.Notes)
			}
			for id, v := range w.versions {
				if got := v.Tags[fleet.TagSecrets]; got != "other 1, removed 1" {
					t.Errorf("%s is tagged %q", id, got)
				}
			}
			w.whole(t)
			w.tidy(t)
		})
	}
}

func TestScanImagesIsAskedOfThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.outcome = "others"
		q := request()
		q.RemoveSecrets, q.ScanImages = true, true
		e, _, ctx, _ := w.process(t, "a", 0)
		result, err := e.Capture(ctx, q)
		if err != nil || strings.Contains(fmt.Sprint(result.Notes), "image layers") {
			t.Errorf("notes %q, %v", result.Notes, err)
		}
	})
}

func TestBadPathsOfSecretsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e, _, ctx, _ := w.process(t, "a", 0)
		q := request()
		q.AcceptSecrets = append(slices.Repeat([]string{"/etc/a"}, wire.MaxAcceptedSecrets), "etc/b")
		_, err := e.Capture(ctx, q)
		var refused *Refused
		if !errors.As(err, &refused) || len(refused.Problems) != 2 || refused.Problems[0].Code != "BadPath" || refused.Problems[1].Code != "BadNumber" {
			t.Errorf("%v", err)
		}
	})
}
