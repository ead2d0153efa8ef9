package plan

import (
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ortet/ortet/internal/fleet"
)

// FuzzNames asserts that whatever a node's provider id says, if it is taken for
// one, all that a capture makes has names that Azure and Kubernetes take, lies
// in the pool's resource group, and is its own.
func FuzzNames(f *testing.F) {
	const begin = "azure:///subscriptions/s/resourceGroups/"
	const set = "/providers/Microsoft.Compute/virtualMachineScaleSets/"
	for _, pool := range []string{"p", "Pool-1", strings.Repeat("p", 59), strings.Repeat("p", 64), strings.Repeat("ä", 45), "-", "1.2_3", "(a)"} {
		for _, group := range []string{"g", "My-Group_(1)", strings.Repeat("g", 90), strings.Repeat("ü", 45), "グループ"} {
			f.Add(begin + group + set + pool + "/virtualMachines/0")
		}
	}
	gallery := regexp.MustCompile(`^[A-Za-z0-9_.]{1,80}$`)
	pod := regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	f.Fuzz(func(t *testing.T, providerID string) {
		id, err := fleet.ParseProviderID(providerID)
		if err != nil {
			if !fleet.Is(err, fleet.KindInvalid) {
				t.Errorf("of kind %q", fleet.KindOf(err))
			}
			return
		}
		pool := id.Parent()
		now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
		n := NamesOf(pool, CaptureName(now, ""), VersionName(now, true))
		within := string(pool.Group()) + "/providers/Microsoft.Compute/"
		for _, id := range []fleet.ResourceID{n.Gallery, n.Definition, n.Version, n.Snapshot, n.WorkDisk, n.Generalized} {
			rest, ok := strings.CutPrefix(string(id), within)
			if !ok {
				t.Errorf("%s is not in the pool's group", id)
			}
			for _, s := range strings.Split(rest, "/") {
				if len(s) > maxName || !fleet.ValidName(s) {
					t.Errorf("%s: %q is no name", id, s)
				}
			}
		}
		if !gallery.MatchString(n.Gallery.Name()) {
			t.Errorf("gallery %q", n.Gallery.Name())
		}
		if !pod.MatchString(n.Job) {
			t.Errorf("pod %q", n.Job)
		}
		// A pool whose name begins alike has names of its own.
		other := NamesOf(pool+"2", "c", "v")
		if fleet.ValidName(other.Definition.Name()) && utf8.ValidString(string(pool)) &&
			(n.Snapshot.Equal(other.Snapshot) || n.WorkDisk.Equal(other.WorkDisk) || n.Generalized.Equal(other.Generalized) || n.Definition.Equal(other.Definition)) {
			t.Errorf("%s and %s2 share names", pool, pool)
		}
	})
}
