package agents_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

func (w *world) change(method, below, version, body string) {
	w.t.Helper()
	op, err := w.arm.Send(w.t.Context(), "change", method, w.pool+fleet.ResourceID(below), version, json.RawMessage(body))
	if err == nil {
		_, err = op.Wait(w.t.Context())
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) tagCloudInit(digest string) {
	w.t.Helper()
	w.change(http.MethodPatch, "/providers/Microsoft.Resources/tags/default", "2021-04-01",
		`{"operation": "Merge", "properties": {"tags": {"`+recipe.TagApplied+`": "count=2 cloudinit=`+digest+`"}}}`)
}

// After a model went from A to B and back to A, Azure calls no agent up to date, and none is
// drained, also where it is not known by which cloud-init document they were made. One that lacks
// the present document is renewed.
func TestModelChangedBack(t *testing.T) {
	for _, known := range []bool{true, false} {
		play(t, 2, func(w *world) {
			if known { // an upgrade gives agents the tags of their scale set
				w.tagCloudInit("a")
				w.change(http.MethodPost, "/manualupgrade", "2024-07-01", `{"instanceIds": ["*"]}`)
			}
			for _, size := range []string{"Standard_D4s_v5", "Standard_D2s_v5"} {
				w.change(http.MethodPatch, "", "2024-07-01", `{"sku": {"name": "`+size+`"}}`)
			}
			if w.machines()[0].LatestModelApplied {
				w.t.Fatal("azsim calls an agent up to date after two changes")
			}
			time.Sleep(time.Hour)
			renewed := func(when string, want int) {
				disks := map[string]fleet.ResourceID{}
				for _, m := range w.machines() {
					disks[m.Name] = m.OSDisk
				}
				w.drained = nil
				if err := w.control.Reimage(w.t.Context(), "agents", 1, true); err != nil {
					w.t.Fatal(err)
				}
				got := 0
				for _, m := range w.machines() {
					if m.OSDisk != disks[m.Name] {
						got++
					}
				}
				if got != want || len(w.drained) != want {
					w.t.Errorf("%s, cloud-init known %t: reimage --outdated drains %q and renews %d, want %d", when, known, w.drained, got, want)
				}
				w.wantNodes(2)
			}
			if err := w.control.Resize(w.t.Context(), "agents", "Standard_D2s_v5"); err != nil || len(w.drained) > 0 {
				w.t.Errorf("resize to the size that they have, cloud-init known %t: drains %q, %v", known, w.drained, err)
			}
			renewed("changed back", 0)
			if left := strings.Count(strings.Join(w.lines, "\n"), "left as it is: Azure says that the pool's model changed"); left != map[bool]int{false: 2}[known] {
				w.t.Errorf("cloud-init known %t: %d agents are named as left: %q", known, left, w.lines)
			}
			if !known {
				return
			}
			w.tagCloudInit("b")
			w.change(http.MethodPatch, "", "2024-07-01", `{"properties": {"virtualMachineProfile": {"osProfile": {"customData": "Yg=="}}}}`)
			renewed("another cloud-init document", 2)
			renewed("again", 0)
		})
	}
}
