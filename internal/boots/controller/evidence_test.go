package controller

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/fleet"
)

// doom is what goes of evidence, by its time left.
func doom(e *evidence, left map[string]time.Duration, live string, all bool) string {
	e.all = map[string]piece{}
	for n, d := range left {
		e.all[n] = piece{until: e.now().Add(d)}
	}
	names := map[string]bool{}
	for _, n := range strings.Fields(live) {
		names[n] = true
	}
	return strings.Join(e.obsolete(names, all), " ")
}

func TestEvidenceIsBounded(t *testing.T) {
	const day = 24 * time.Hour
	left := map[string]time.Duration{"a": -time.Hour, "b": day, "c": 2 * day, "d": 3 * day, "e": 7*day - time.Minute}
	for name, c := range map[string]struct {
		most  int
		live  string
		all   bool
		after time.Duration // since the controller began
		want  string
	}{
		"its time is over": {10, "", true, time.Minute, "a"},
		"it is too much":   {3, "", true, time.Minute, "a b"},
		"its time is over, and the machine is there": {10, "a", true, time.Minute, ""},
		"not all machines are known yet":             {10, "", false, time.Minute, ""},
		"some are never known":                       {10, "", false, 3 * time.Hour, "a"},
		"some are never known, this one is there":    {10, "a", false, 3 * time.Hour, ""},
		"too much, and not all are known":            {4, "", false, time.Minute, "a"},
		"too much, of all machines":                  {4, "a b c d e", true, time.Minute, "a"},
		"those that are there go first":              {3, "c d", true, time.Minute, "a c"},
		"those that are there, then the oldest":      {1, "c d", true, time.Minute, "a b c d"},
		"but not what failed just now":               {3, "d e", true, time.Minute, "a d"},
		"but not what failed just now, of all":       {1, "d e", true, time.Minute, "a b c d"},
		"what is over goes before what is there":     {4, "c d", true, time.Minute, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEvidence(nil, Config{Keep: 7 * day, MaxEvidence: c.most, Now: func() time.Time { return noon }})
			e.began = noon.Add(-c.after)
			if got := doom(e, left, c.live, c.all); got != c.want {
				t.Errorf("there goes %q, want %q", got, c.want)
			}
		})
	}
	waits := newEvidence(nil, Config{Keep: 7 * day, MaxEvidence: 10, Now: func() time.Time { return noon }})
	if got := doom(waits, left, "", false); got != "" {
		t.Errorf("before it is elected there goes %q", got)
	}
}

// A Fleet knows the evidence of its instances by the name that it is kept under, as
// long as their pool can be listed.
func TestEvidenceOfFleet(t *testing.T) {
	f := NewFleet()
	b := aBoot()
	f.pools[fleet.KeyOf(somePool)] = &poolState{last: noon}
	f.took(fleet.KeyOf(somePool), []fleet.Boot{b})
	if names := f.evidenceNames(noon.Add(-time.Hour)); len(names) != 1 || !names[assess.EvidenceName(b)] {
		t.Errorf("%v, not %s", names, assess.EvidenceName(b))
	}
	if names := f.evidenceNames(noon.Add(time.Hour)); len(names) != 0 {
		t.Errorf("not listed for long: %v", names)
	}
}

// What was published of a machine that is there, and whose evidence was over the limit, is
// not published again, and its evidence does not come back.
func TestEvidenceThatWasTooMuch(t *testing.T) {
	ctx, now := t.Context(), noon.Add(time.Hour)
	c := fake.NewClientBuilder().Build()
	e := newEvidence(c, Config{Namespace: "n", Keep: 24 * time.Hour, MaxEvidence: 1, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)})
	live := map[string]bool{}
	e.live = func() (map[string]bool, bool) { return live, true }
	var boots []fleet.Boot
	var assessed []assess.Assessment
	publish := func(i int) record {
		t.Helper()
		rec, err := e.keep(ctx, Known{Boot: boots[i]}, assessed[i])
		if err != nil {
			t.Fatal(err)
		}
		if err := e.markPublished(ctx, rec, assessed[i]); err != nil {
			t.Fatal(err)
		}
		return rec
	}
	for i := range 2 {
		b := aBoot(func(b *fleet.Boot) { b.VMID = fmt.Sprintf("%d%s", i, someVM[1:]) })
		boots, assessed = append(boots, b), append(assessed, assess.Assess(b, nil, nil, assess.Assessment{}, now, assess.Deadlines{}))
		live[assess.EvidenceName(b)] = i == 0
		publish(i)
		now = now.Add(2 * time.Hour)
	}
	if err := e.prune(ctx); err != nil {
		t.Fatal(err)
	}
	kept := func() string { return keptNames(ctx, t, c) }
	want := assess.EvidenceName(boots[1])
	if kept() != want {
		t.Fatalf("kept: %s, want that of the machine that is gone", kept())
	}
	if rec := publish(0); rec.fresh || rec.was != assess.TimedOut || kept() != want {
		t.Errorf("published again: %+v; kept: %s", rec, kept())
	}
	// Another verdict of it is news.
	assessed[0].Verdict.Reason = "CNINotReady"
	if rec := publish(0); !rec.fresh || rec.was != assess.TimedOut || len(strings.Fields(kept())) != 2 {
		t.Errorf("a new verdict: %+v; kept: %s", rec, kept())
	}
	now = now.Add(2 * time.Hour)
	if err := e.prune(ctx); err != nil || len(e.dropped) != 1 {
		t.Errorf("%v, %v", e.dropped, err)
	}
	clear(live)
	if err := e.prune(ctx); err != nil || len(e.dropped) != 0 {
		t.Errorf("of machines that are gone it remembers %v, %v", e.dropped, err)
	}
}

func keptNames(ctx context.Context, t *testing.T, c client.Client) string {
	t.Helper()
	var list corev1.ConfigMapList
	if err := c.List(ctx, &list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range list.Items {
		names = append(names, m.Name)
	}
	return strings.Join(names, " ")
}
