package arm_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

// testFaults checks the kind of each fault's error and what the fault leaves. A GET is
// not dropped: over a network the HTTP client repeats it by itself.
func testFaults(t *testing.T, f fixture) {
	disk := f.Instances(2)[0].OSDisk
	for _, c := range []struct {
		name  string
		fault azsim.Fault
		// kind is what the creation or deletion of a snapshot ends with, "" for
		// no error; begun says that Begin itself gave none.
		kind       fleet.Kind
		begun      bool
		retryAfter time.Duration
		// state is that of the snapshot in the end, "" if it does not exist.
		state string
	}{
		{name: "throttled", fault: azsim.Fault{Method: "PUT", Effect: azsim.EffectThrottle, RetryAfterSeconds: 7}, kind: fleet.KindThrottled, retryAfter: 7 * time.Second},
		{name: "unavailable", fault: azsim.Fault{Method: "PUT", Effect: azsim.EffectError, Status: 503, Code: "ServerBusy"}, kind: fleet.KindTransient},
		{name: "forbidden", fault: azsim.Fault{Method: "PUT", Effect: azsim.EffectError, Status: 403, Code: "AuthorizationFailed"}, kind: fleet.KindDenied},
		{name: "look-fails", fault: azsim.Fault{Method: "GET", Effect: azsim.EffectError, Status: 500}, kind: fleet.KindTransient},
		{name: "dropped-before", fault: azsim.Fault{Method: "PUT", Effect: azsim.EffectDropBefore}, kind: fleet.KindTransient},
		{name: "dropped-after", fault: azsim.Fault{Method: "PUT", Effect: azsim.EffectDropAfter}, kind: fleet.KindTransient, state: "Succeeded"},
		{name: "hangs", fault: azsim.Fault{Method: "PUT", Effect: azsim.EffectHang}, kind: fleet.KindTimedOut},
		{name: "token-expired", fault: azsim.Fault{Method: "PUT", Effect: azsim.EffectExpireToken}, kind: fleet.KindUnauthenticated},
		{name: "fails-at-end", fault: azsim.Fault{Method: "PUT", Effect: azsim.EffectFailAtEnd, Code: "AllocationFailed"}, kind: fleet.KindBlocked, begun: true, state: "Failed"},
		{name: "fails-passing", fault: azsim.Fault{Method: "PUT", Effect: azsim.EffectFailAtEnd}, kind: fleet.KindTransient, begun: true, state: "Failed"},
		{name: "reported-failure", fault: azsim.Fault{Method: "PUT", Effect: azsim.EffectReportFailure}, kind: fleet.KindTransient, begun: true, state: "Succeeded"},
		{name: "reported-success", fault: azsim.Fault{Method: "PUT", Effect: azsim.EffectReportSuccess}, begun: true},
		{name: "deletion-dropped-before", fault: azsim.Fault{Method: http.MethodDelete, Effect: azsim.EffectDropBefore}, kind: fleet.KindTransient, state: "Succeeded"},
		{name: "deletion-dropped-after", fault: azsim.Fault{Method: http.MethodDelete, Effect: azsim.EffectDropAfter}, kind: fleet.KindTransient},
		{name: "deletion-throttled", fault: azsim.Fault{Method: http.MethodDelete, Effect: azsim.EffectThrottle, RetryAfterSeconds: 1}, kind: fleet.KindThrottled, retryAfter: time.Second, state: "Succeeded"},
		{name: "deletion-fails-at-end", fault: azsim.Fault{Method: http.MethodDelete, Effect: azsim.EffectFailAtEnd}, kind: fleet.KindTransient, begun: true, state: "Failed"},
		{name: "deletion-reported-failure", fault: azsim.Fault{Method: http.MethodDelete, Effect: azsim.EffectReportFailure}, kind: fleet.KindTransient, begun: true},
		{name: "deletion-reported-success", fault: azsim.Fault{Method: http.MethodDelete, Effect: azsim.EffectReportSuccess}, begun: true, state: "Succeeded"},
	} {
		id := simPool.In("snapshots", c.name)
		create := fleet.CreateSnapshot{ID: id, Location: region, Source: disk}
		var change fleet.Change = create
		if c.fault.Method == http.MethodDelete {
			f.Finish(create)
			change = fleet.DeleteSnapshot{ID: id}
		}
		c.fault.Path, c.fault.Count = string(id)+"$", 1
		if err := f.s.AddFault(c.fault); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := t.Context(), context.CancelFunc(func() {})
		if c.fault.Effect == azsim.EffectHang {
			ctx, cancel = context.WithTimeout(ctx, 5*time.Second)
		}
		tok, err := f.Cloud.Begin(ctx, change)
		cancel()
		if (err == nil) != c.begun {
			t.Errorf("%s: Begin gives %v", c.name, err)
		}
		if err == nil {
			err = f.Follow(f.Cloud, tok)
		}
		var e *fleet.Error
		if c.kind == "" && err != nil || c.kind != "" && !fleet.Is(err, c.kind) {
			t.Errorf("%s: %v, want kind %q", c.name, err, c.kind)
		} else if c.retryAfter > 0 && (!errors.As(err, &e) || e.RetryAfter != c.retryAfter) {
			t.Errorf("%s: %+v, want to be asked to wait %v", c.name, err, c.retryAfter)
		}
		if got := f.settled(id); got != c.state {
			t.Errorf("%s: the snapshot is %q, want %q", c.name, got, c.state)
		}
		// Nothing is left of it: the change, made again, does what it is for.
		f.Finish(change)
		want := "Succeeded"
		if c.fault.Method == http.MethodDelete {
			want = ""
		}
		if got := f.settled(id); got != want {
			t.Errorf("%s: made again, the snapshot is %q, want %q", c.name, got, want)
		}
	}
}

// settled waits until nothing is under way on a snapshot, and gives its state, ""
// if it does not exist.
func (f fixture) settled(id fleet.ResourceID) string {
	f.t.Helper()
	for range 2000 {
		s, err := f.Another.Snapshot(f.t.Context(), id)
		if fleet.Is(err, fleet.KindNotFound) {
			return ""
		}
		if err != nil {
			f.t.Fatal(err)
		}
		switch s.ProvisioningState {
		case "Succeeded", "Failed":
			return s.ProvisioningState
		}
		f.Wait(time.Second)
	}
	f.t.Errorf("%s does not settle", id)
	return ""
}

func TestFaults(t *testing.T) {
	// The answer is lost, the effect is not: the repeated creation joins it.
	onAzsim(t, "dropped after the effect", func(t *testing.T, f fixture) {
		if err := f.s.AddFault(azsim.Fault{Method: "PUT", Path: "/snapshots/", Count: 1, Effect: azsim.EffectDropAfter}); err != nil {
			t.Fatal(err)
		}
		c := azure.Retry(f.Cloud, azure.RetryPolicy{})
		tok, err := c.Begin(t.Context(), fleet.CreateSnapshot{ID: simPool.In("snapshots", "s"), Location: region, Source: f.Instances(2)[0].OSDisk})
		if err != nil {
			t.Fatal(err)
		}
		if tok != "" { // else the snapshot was complete before the retry
			if err := f.Follow(c, tok); err != nil {
				t.Error(err)
			}
		}
		puts := 0
		for _, r := range f.s.Requests() {
			if r.Method == http.MethodPut && strings.HasSuffix(r.Path, "/snapshots/s") {
				puts++
			}
		}
		if puts != 1 {
			t.Errorf("%d PUTs", puts)
		}
	})

	// A region without zones takes the request for ZRS, and fails later.
	onAzsim(t, "ZRS in a region without it", func(t *testing.T, f fixture) {
		const where = "westcentralus"
		p, err := sdk(t, f.s).NewDisksClient().BeginCreateOrUpdate(t.Context(), azsim.DefaultResourceGroup, "far", armcompute.Disk{Location: ptr(where), Properties: &armcompute.DiskProperties{
			DiskSizeGB: ptr(int32(4)), OSType: ptr(armcompute.OperatingSystemTypesLinux), HyperVGeneration: ptr(armcompute.HyperVGenerationV2),
			CreationData: &armcompute.CreationData{CreateOption: ptr(armcompute.DiskCreateOptionEmpty)},
		}}, nil)
		done(t, p, err)
		gallery, snapshot := simPool.In("galleries", "far"), simPool.In("snapshots", "far")
		def := gallery.Child("images", "img")
		version := fleet.CreateVersion{ID: def.Child("versions", "1.0.0"), Location: where, Source: snapshot, Replicas: 1, StorageType: fleet.ZRS, ReplicationMode: fleet.ReplicationFull}
		for _, ch := range []fleet.Change{
			fleet.CreateSnapshot{ID: snapshot, Location: where, Source: simPool.In("disks", "far")},
			fleet.CreateGallery{ID: gallery, Location: where},
			fleet.CreateDefinition{Definition: fleet.Definition{ID: def, Location: where, Publisher: "p", Offer: "o", SKU: "s", OSState: "Generalized", Linux: true, Generation: "V2", Architecture: "x64"}},
		} {
			f.Finish(ch)
		}
		if err := f.Try(version); !fleet.Is(err, fleet.KindUnsupported) {
			t.Errorf("%v", err)
		}
		list, err := f.Cloud.Versions(t.Context(), def)
		if err != nil || len(list) != 1 || list[0].ProvisioningState != "Failed" || !strings.Contains(list[0].FailureMessage, "ZRS is not supported") {
			t.Errorf("%+v, %v", list, err)
		}
		version.StorageType = fleet.LRS
		for _, ch := range []fleet.Change{fleet.DeleteVersion{ID: version.ID}, version} {
			f.Finish(ch)
		}
		list, err = f.Cloud.Versions(t.Context(), def)
		if err != nil || len(list) != 1 || list[0].ProvisioningState != "Succeeded" || list[0].StorageType != fleet.LRS {
			t.Errorf("%+v, %v", list, err)
		}
	})

	// What Azure refuses because of what else is under way is a conflict.
	onAzsim(t, "busy", func(t *testing.T, f fixture) {
		i := f.Instances(2)[0]
		if _, err := f.Cloud.Begin(t.Context(), fleet.ProtectInstance{Instance: i.ID, Protection: fleet.Protection{ScaleIn: true}}); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Another.Begin(t.Context(), fleet.ProtectInstance{Instance: i.ID, Protection: fleet.Protection{}}); !fleet.Is(err, fleet.KindConflict) {
			t.Errorf("%v", err)
		}
	})
}
