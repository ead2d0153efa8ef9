package azuretest

import (
	"testing"

	"github.com/ortet/ortet/internal/fleet"
)

// conditions: what was computed from a scale set that is another by now has no
// effect. Where the cloud gives no ETags there is no condition to keep.
func conditions(t *testing.T, f Fixture) {
	read := f.pool(t)
	if read.Etag == "" {
		t.Log("NOT RUN: this cloud gives scale sets no ETags")
		return
	}
	if again := f.pool(t); again.Etag != read.Etag {
		t.Errorf("ETag %s, and %s though nothing changed", read.Etag, again.Etag)
	}
	// Somebody else is quicker.
	finish(t, f, fleet.SetCapacity{Pool: f.Pool, Capacity: 4, Etag: read.Etag})
	before := f.pool(t)
	if before.Etag == read.Etag {
		t.Errorf("the ETag is %s still", read.Etag)
	}
	secret := fleet.NewSecret("#cloud-config\n")
	for _, change := range []fleet.Change{
		fleet.SetCapacity{Pool: f.Pool, Capacity: 3, Etag: read.Etag},
		fleet.SetCapacity{Pool: f.Pool, Capacity: 4, Etag: read.Etag}, // it is 4, but not since we asked
		fleet.PatchModel{Pool: f.Pool, CustomData: &secret, Etag: read.Etag},
	} {
		wantKind(t, try(t, f, f.Cloud, change), fleet.KindStale)
	}
	if now := f.pool(t); now.Capacity != 4 || now.Etag != before.Etag {
		t.Errorf("capacity %d, ETag %s: a change on a condition that did not hold has changed something", now.Capacity, now.Etag)
	}
	finish(t, f, fleet.PatchModel{Pool: f.Pool, CustomData: &secret, Etag: before.Etag})
	finish(t, f, fleet.SetCapacity{Pool: f.Pool, Capacity: 3, Etag: f.pool(t).Etag})
	if n := f.pool(t).Capacity; n != 3 {
		t.Errorf("capacity %d", n)
	}
}
