package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/wire"
)

// What only the disk shows is found before the donor is touched, also by a dry run,
// with the way out.
func TestWhatWouldEndTheCaptureLaterIsRefusedBeforeTheDonorIsTouched(t *testing.T) {
	for outcome, c := range map[string]struct {
		code, wayOut string
		mend         func(w *world, q *CaptureRequest)
	}{
		"preserve": {"DiskRefused", "mend it", func(w *world, _ *CaptureRequest) { w.outcome = "" }},
		"visible":  {"PoolCredentials", "--accept-pool-credentials", func(_ *world, q *CaptureRequest) { q.AcceptPoolCredentials = true }},
		"others":   {"OtherSecrets", "--remove-secrets", func(_ *world, q *CaptureRequest) { q.RemoveSecrets = true }},
	} {
		t.Run(outcome, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.machine = map[string]string{}
				w.outcome = outcome
				e, _, ctx, _ := w.process(t, "a", 0)
				q := request()
				wants := func(what string, problems []fleet.Problem) {
					t.Helper()
					if len(problems) != 1 || problems[0].Code != c.code || !strings.Contains(problems[0].WayOut, c.wayOut) {
						t.Errorf("%s: %+v; want %s", what, problems, c.code)
					}
					if w.drained != 0 || w.stops != 0 || len(w.pods) != 0 || len(w.snapshots) != 0 || w.donor().Unschedulable || len(w.galleries) != 0 {
						t.Errorf("%s drained %d, stopped %d; left pods %v, snapshots %v; want nothing touched", what, w.drained, w.stops, w.pods, w.snapshots)
					}
				}
				p, err := e.Plan(ctx, q)
				if err != nil {
					t.Fatal(err)
				}
				wants("a dry run", p.Problems)
				if i := slices.IndexFunc(p.Steps, func(s prototype.Step) bool { return s.ID == prototype.StepInspect }); i < 0 || p.Steps[i].Skip != "" {
					t.Errorf("the plan does not have the step: %+v", p.Steps)
				}
				_, err = e.Capture(ctx, q)
				var refused *Refused
				if !errors.As(err, &refused) || ExitCode(err) != ExitRefused {
					t.Fatalf("got %v, want a refusal", err)
				}
				wants("a capture", refused.Problems)
				c.mend(w, &q)
				if p, err := e.Plan(ctx, q); err != nil || len(p.Problems) > 0 {
					t.Errorf("once it is mended, a dry run: %+v, %v", p.Problems, err)
				}
				if _, err := e.Capture(ctx, q); err != nil {
					t.Errorf("once it is mended: %v", err)
				}
				w.whole(t)
				w.tidy(t)
			})
		})
	}
}

// An inspection that fails is a note, and no answer.
func TestInspectionThatFailsIsANote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.outcome = "failed"
		e, _, ctx, _ := w.process(t, "a", 0)
		p, err := e.Plan(ctx, request())
		if err != nil || len(p.Problems) > 0 || !strings.Contains(fmt.Sprint(p.Notes), "could not be inspected beforehand: no memory") {
			t.Errorf("problems %v, notes %q, %v", p.Problems, p.Notes, err)
		}
	})
}

func TestInspectionNamesTheRefusalAndTheSecrets(t *testing.T) {
	found := func(class wire.SecretClass, paths ...string) (all []wire.SecretFinding) {
		for _, p := range paths {
			all = append(all, wire.SecretFinding{Path: p, Class: class, Rule: "rule"})
		}
		return all
	}
	var many []string
	for i := range 12 {
		many = append(many, fmt.Sprintf("/etc/%d", i))
	}
	joins := []string{"/etc/kubernetes/bootstrap-kubelet.conf"}
	const baked = -1 // the model's customData is the no-op, and no extension goes
	for name, c := range map[string]struct {
		report wire.GeneralizeReport
		doomed int
		want   []string // of each problem, code and words
	}{
		"nothing":     {wire.GeneralizeReport{Outcome: wire.Generalized, Joins: joins}, 1, nil},
		"a refusal":   {wire.GeneralizeReport{Outcome: wire.DiskRefused, Message: "it is a control plane's"}, 1, []string{"DiskRefused: it is a control plane's"}},
		"a failure":   {wire.GeneralizeReport{Outcome: wire.GeneralizeFailed}, 1, nil},
		"both":        {wire.GeneralizeReport{Outcome: wire.SecretsFound, Joins: joins, Findings: append(found(wire.NodeIdentity, "/srv/k.pem"), found(wire.PoolCredential, "/etc/azure.json")...)}, 1, []string{"IdentityOnDisk: /srv/k.pem (rule)", "PoolCredentials: /etc/azure.json (rule)"}},
		"many":        {wire.GeneralizeReport{Outcome: wire.SecretsFound, Joins: joins, Findings: found(wire.PoolCredential, many...)}, 1, []string{"PoolCredentials: /etc/9 (rule) and 2 more"}},
		"all three":   {wire.GeneralizeReport{Outcome: wire.SecretsFound, Joins: joins, Findings: slices.Concat(found(wire.NodeIdentity, "/a"), found(wire.PoolCredential, "/b"), found(wire.OtherSecret, "/c"))}, 1, []string{"IdentityOnDisk: /a", "PoolCredentials: /b", "OtherSecrets: /c (rule)"}},
		"unlisted":    {wire.GeneralizeReport{Outcome: wire.SecretsFound, Joins: joins, Message: "1001 secrets", More: 1001}, 1, []string{"OtherSecrets: 1001 secrets"}},
		"removed":     {wire.GeneralizeReport{Outcome: wire.Generalized, Joins: joins, SecretsRemoved: 1, Findings: []wire.SecretFinding{{Path: "/a", Class: wire.OtherSecret, Rule: "r", Removed: true}}}, 1, nil},
		"cannot join": {wire.GeneralizeReport{Outcome: wire.Generalized}, 1, []string{"CannotJoin: customData"}},
		"customData":  {wire.GeneralizeReport{Outcome: wire.Generalized, Unsaved: []string{"customData: there is no key"}}, 1, nil},
		"extensions":  {wire.GeneralizeReport{Outcome: wire.Generalized}, 0, nil},
		"baked":       {wire.GeneralizeReport{Outcome: wire.Generalized}, baked, []string{"CannotJoin: does nothing"}},
		"baked joins": {wire.GeneralizeReport{Outcome: wire.Generalized, Joins: joins}, baked, nil},
	} {
		prep := preparation{input: prototype.CaptureInput{Doomed: make([]fleet.Extension, max(0, c.doomed))}}
		if c.doomed == baked {
			id := versionID("2026.11.20")
			prep.input.Pool.Model.Image.ID = id
			prep.observed.Versions = []fleet.ImageVersion{{ID: id, Tags: map[string]string{fleet.TagCustomData: sha(noop)}}}
		}
		problems := inspectionProblems(CaptureRequest{Node: "n"}.withDefaults(), prep, c.report)
		if len(problems) != len(c.want) {
			t.Errorf("%s: %+v, want %q", name, problems, c.want)
			continue
		}
		for i, want := range c.want {
			code, words, _ := strings.Cut(want, ": ")
			if p := problems[i]; p.Code != code || !strings.Contains(p.What, words) || p.WayOut == "" || p.On != "node n" {
				t.Errorf("%s: %+v, want %q", name, p, want)
			}
		}
	}
}

// A dry run beside a capture names it, changes nothing, and leaves its pod alone;
// where the capture's process is gone, the dry run says that it would be finished.
func TestADryRunFindsACaptureUnderWay(t *testing.T) {
	total := boundaries(t, newWorld, request())
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e, _, ctx, _ := w.process(t, "host/17/capture", 0)
		done := make(chan error, 1)
		go func() {
			_, err := e.Capture(ctx, request())
			done <- err
		}()
		time.Sleep(2 * time.Minute) // of the bubble's clock: the capture is at work
		dry, _, dryCtx, _ := w.process(t, "other", 0)
		got, err := dry.Plan(dryCtx, request())
		if err != nil || len(got.Problems) != 1 || got.Problems[0].Code != "Held" ||
			!strings.Contains(got.Problems[0].What, "host/17/capture") || !strings.Contains(got.Problems[0].What, donorName+", begun 20") {
			t.Errorf("beside a capture: %+v, %v", got.Problems, err)
		}
		if err := <-done; err != nil {
			t.Errorf("the capture beside a dry run: %v", err)
		}
		w.whole(t)
		w.tidy(t)

		// The next is killed as it drains, and its Lease is left.
		w = newWorld()
		e, p, ctx, _ := w.process(t, "killed", 0)
		p.killAt = total / 2
		_, _ = e.Capture(ctx, request())
		dry, _, dryCtx, _ = w.process(t, "other", 0)
		got, err = dry.Plan(dryCtx, request())
		if err != nil || !got.Resumes || slices.ContainsFunc(got.Problems, func(p fleet.Problem) bool { return p.Code == "Held" }) {
			t.Errorf("after one that was killed: %+v, resumes %t, %v", got.Problems, got.Resumes, err)
		}
	})
}
