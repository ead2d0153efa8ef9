package azsim

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// sourceOf is what a volume was made of, as the substrate has it.
func (m *modelSubstrate) sourceOf(id string) (Source, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, found := m.volumes[volumeOf(id)]
	return from, found
}

func volumeOf(id string) Volume {
	parsed, err := parseID(id)
	if err != nil {
		return ""
	}
	return Volume(parsed.key())
}

// The bytes go from disk to snapshot to version to disk, and with their owners.
func TestVolumesFollowTheirResources(t *testing.T) {
	sub := newModelSubstrate()
	inVirtualTime(t, func(s *Server) { s.Substrate = sub }, func(b *bench) {
		b.image()
		d := b.disk("d", 4)
		s := b.snapshot("s", *d.ID)
		p, err := b.beginVersion("1.0.0", versionOf(*s.ID))
		v := await(b, p, err)
		q, err := b.f.NewDisksClient().BeginCreateOrUpdate(b.ctx, b.group, "d2", armcompute.Disk{
			Location: ptr(DefaultLocation), Properties: &armcompute.DiskProperties{CreationData: &armcompute.CreationData{
				CreateOption: ptr(armcompute.DiskCreateOptionFromImage), GalleryImageReference: &armcompute.ImageDiskReference{ID: v.ID}}},
		}, nil)
		d2 := await(b, q, err)
		if *d2.Properties.DiskSizeGB != 4 || *d2.Properties.OSType != armcompute.OperatingSystemTypesLinux {
			t.Errorf("the disk of the version: %+v", d2.Properties)
		}
		for id, want := range map[string]Source{
			*d.ID: {SizeGB: 4}, *s.ID: {Volume: volumeOf(*d.ID)}, *v.ID: {Volume: volumeOf(*s.ID)}, *d2.ID: {Volume: volumeOf(*v.ID), SizeGB: 4},
		} {
			if got, found := sub.sourceOf(id); !found || got != want {
				t.Errorf("%s is made of %+v", id, got)
			}
		}
		del, err := b.f.NewSnapshotsClient().BeginDelete(b.ctx, b.group, "s", nil)
		await(b, del, err)
		if _, found := sub.sourceOf(*s.ID); found {
			t.Error("the snapshot's bytes are left behind")
		}
		b.sendAbsolute(http.MethodDelete, "/subscriptions/"+DefaultSubscription+"/resourceGroups/azsim", "2022-09-01", "")
		time.Sleep(time.Hour)
		if left := sub.volumesLike("/"); len(left) != 0 {
			t.Errorf("the group is gone, but not %v", left)
		}
	})
}

// A brokenSubstrate cannot make volumes until it is mended.
type brokenSubstrate struct {
	*modelSubstrate
	broken bool
}

func (s *brokenSubstrate) CreateVolume(ctx context.Context, v Volume, from Source) error {
	if s.broken {
		return errors.New("disk full")
	}
	return s.modelSubstrate.CreateVolume(ctx, v, from)
}

func TestSubstrateFailureFailsTheOperation(t *testing.T) {
	sub := &brokenSubstrate{newModelSubstrate(), false}
	inVirtualTime(t, func(s *Server) { s.Substrate = sub }, func(b *bench) {
		d := b.disk("d", 4)
		sub.broken = true
		p, err := b.beginSnapshot("s", *d.ID)
		awaitRefusal(b, "InternalExecutionError", p, err)
		got, err := b.f.NewSnapshotsClient().Get(b.ctx, b.group, "s", nil)
		if err != nil || *got.Properties.ProvisioningState != stateFailed {
			t.Errorf("%v, %+v", err, got.Properties)
		}
		_, err = b.beginVersion("1.0.0", versionOf(*got.ID))
		wantCode(t, err, "ParentResourceNotFound")
		b.image()
		_, err = b.beginVersion("1.0.0", versionOf(*got.ID))
		wantCode(t, err, "OperationNotAllowed") // of a failed snapshot nothing can be made
		sub.broken = false
		if s := b.snapshot("s", *d.ID); *s.Properties.ProvisioningState != stateSucceeded {
			t.Error(*s.Properties.ProvisioningState)
		}
		if _, found := sub.sourceOf(*got.ID); !found {
			t.Error("the second attempt made no bytes")
		}
	})
}

func TestCloseEndsWhatRuns(t *testing.T) {
	inVirtualTime(t, withFault(Fault{Effect: EffectNeverEnds, Method: http.MethodPut}), func(b *bench) {
		if _, err := b.f.NewGalleriesClient().BeginCreateOrUpdate(b.ctx, b.group, "g", armcompute.Gallery{Location: ptr(DefaultLocation)}, nil); err != nil {
			t.Fatal(err)
		}
		// The bubble ends in deadlock if Close leaves a goroutine behind.
	})
}
