package engine

import (
	"errors"
	"testing"
	"testing/synctest"
)

// What only the disk shows is found before the donor is touched.
func TestPreserveHostnameIsRefusedBeforeTheDonorIsTouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.machine = map[string]string{}
		w.outcome = "preserve"
		e, _, ctx, _ := w.process(t, "a", 0)
		_, err := e.Capture(ctx, request())
		var refused *Refused
		if !errors.As(err, &refused) || refused.Problems[0].Code != "DiskRefused" || ExitCode(err) != ExitRefused {
			t.Fatalf("got %v, want a refusal of the disk", err)
		}
		if w.drained != 0 || w.stops != 0 || len(w.pods) != 0 || len(w.snapshots) != 0 {
			t.Errorf("drained %d, stopped %d; left pods %v, snapshots %v; want nothing touched", w.drained, w.stops, w.pods, w.snapshots)
		}
		w.outcome = ""
		if _, err := e.Capture(ctx, request()); err != nil {
			t.Errorf("once it is mended: %v", err)
		}
		w.whole(t)
		w.tidy(t)
	})
}
