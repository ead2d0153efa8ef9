package azsim

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// A bench is a server with the SDK's clients on it.
type bench struct {
	*testing.T
	s     *Server
	f     *armcompute.ClientFactory
	ctx   context.Context
	group string
}

// inVirtualTime runs the test in a bubble, with a server that its set-up may
// change before it is used.
func inVirtualTime(t *testing.T, set func(*Server), test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		if set != nil {
			set(s)
		}
		defer s.Close()
		test(newBench(t, s, ""))
	})
}

func newBench(t *testing.T, s *Server, clientID string) *bench {
	t.Helper()
	o := s.ClientOptions()
	o.Retry = policy.RetryOptions{MaxRetries: -1}
	f, err := armcompute.NewClientFactory(DefaultSubscription, s.Credential(clientID), o)
	if err != nil {
		t.Fatal(err)
	}
	return &bench{t, s, f, context.Background(), DefaultResourceGroup}
}

// await waits for a long-running operation to succeed.
func await[T any](b *bench, p *runtime.Poller[T], err error) T {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	out, err := p.PollUntilDone(b.ctx, nil)
	if err != nil {
		b.Fatal(err)
	}
	return out
}

// awaitRefusal waits for a long-running operation to fail with that code.
func awaitRefusal[T any](b *bench, code string, p *runtime.Poller[T], err error) {
	b.Helper()
	if err == nil {
		_, err = p.PollUntilDone(b.ctx, nil)
	}
	wantCode(b.T, err, code)
}

func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	var re *azcore.ResponseError
	if !errors.As(err, &re) || re.ErrorCode != code {
		t.Errorf("want %s, got %v", code, err)
	}
}

func (b *bench) disk(name string, sizeGB int32) armcompute.Disk {
	b.Helper()
	p, err := b.f.NewDisksClient().BeginCreateOrUpdate(b.ctx, b.group, name, armcompute.Disk{
		Location: ptr(DefaultLocation),
		Properties: &armcompute.DiskProperties{
			DiskSizeGB: &sizeGB, CreationData: &armcompute.CreationData{CreateOption: ptr(armcompute.DiskCreateOptionEmpty)},
			OSType: ptr(armcompute.OperatingSystemTypesLinux), HyperVGeneration: ptr(armcompute.HyperVGenerationV2),
		},
	}, nil)
	return await(b, p, err).Disk
}

func copyOf(id string) *armcompute.CreationData {
	return &armcompute.CreationData{CreateOption: ptr(armcompute.DiskCreateOptionCopy), SourceResourceID: &id}
}

func (b *bench) beginSnapshot(name, of string) (*runtime.Poller[armcompute.SnapshotsClientCreateOrUpdateResponse], error) {
	return b.f.NewSnapshotsClient().BeginCreateOrUpdate(b.ctx, b.group, name, armcompute.Snapshot{
		Location: ptr(DefaultLocation), Properties: &armcompute.SnapshotProperties{CreationData: copyOf(of)},
	}, nil)
}

func (b *bench) snapshot(name, of string) armcompute.Snapshot {
	b.Helper()
	p, err := b.beginSnapshot(name, of)
	return await(b, p, err).Snapshot
}

// image makes gallery "g" with the image definition "i".
func (b *bench) image() {
	b.Helper()
	p, err := b.f.NewGalleriesClient().BeginCreateOrUpdate(b.ctx, b.group, "g", armcompute.Gallery{Location: ptr(DefaultLocation)}, nil)
	await(b, p, err)
	q, err := b.f.NewGalleryImagesClient().BeginCreateOrUpdate(b.ctx, b.group, "g", "i", definition(), nil)
	await(b, q, err)
}

func definition() armcompute.GalleryImage {
	return armcompute.GalleryImage{Location: ptr(DefaultLocation), Properties: &armcompute.GalleryImageProperties{
		Identifier: &armcompute.GalleryImageIdentifier{Publisher: ptr("p"), Offer: ptr("o"), SKU: ptr("s")},
		OSType:     ptr(armcompute.OperatingSystemTypesLinux), OSState: ptr(armcompute.OperatingSystemStateTypesGeneralized),
	}}
}

func versionOf(source string, regions ...string) armcompute.GalleryImageVersion {
	pub := &armcompute.GalleryImageVersionPublishingProfile{ReplicaCount: ptr(int32(3)), StorageAccountType: ptr(armcompute.StorageAccountTypeStandardZRS)}
	for _, r := range regions {
		pub.TargetRegions = append(pub.TargetRegions, &armcompute.TargetRegion{Name: ptr(r)})
	}
	return armcompute.GalleryImageVersion{Location: ptr(DefaultLocation), Properties: &armcompute.GalleryImageVersionProperties{
		StorageProfile:    &armcompute.GalleryImageVersionStorageProfile{OSDiskImage: &armcompute.GalleryOSDiskImage{Source: &armcompute.GalleryDiskImageSource{ID: &source}}},
		PublishingProfile: pub,
	}}
}

func (b *bench) beginVersion(name string, v armcompute.GalleryImageVersion) (*runtime.Poller[armcompute.GalleryImageVersionsClientCreateOrUpdateResponse], error) {
	return b.f.NewGalleryImageVersionsClient().BeginCreateOrUpdate(b.ctx, b.group, "g", "i", name, v, nil)
}

func (b *bench) version(name string, expand bool) armcompute.GalleryImageVersion {
	b.Helper()
	o := &armcompute.GalleryImageVersionsClientGetOptions{}
	if expand {
		o.Expand = ptr(armcompute.ReplicationStatusTypesReplicationStatus)
	}
	r, err := b.f.NewGalleryImageVersionsClient().Get(b.ctx, b.group, "g", "i", name, o)
	if err != nil {
		b.Fatal(err)
	}
	return r.GalleryImageVersion
}

func TestSnapshotTakesOverWhatItsDiskIs(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		d := b.disk("d", 8)
		began := time.Now()
		s := b.snapshot("s", strings.ToUpper(*d.ID))
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the snapshot took %v, want a second and a poll", took)
		}
		if p := s.Properties; *p.DiskSizeGB != 8 || *p.HyperVGeneration != armcompute.HyperVGenerationV2 || *p.OSType != armcompute.OperatingSystemTypesLinux || p.CompletionPercent != nil {
			t.Errorf("got %+v", p)
		}
		p, err := b.f.NewDisksClient().BeginCreateOrUpdate(b.ctx, b.group, "d2", armcompute.Disk{
			Location: ptr(DefaultLocation), Zones: []*string{ptr("2")}, Properties: &armcompute.DiskProperties{CreationData: copyOf(*s.ID)},
		}, nil)
		if d2 := await(b, p, err); *d2.Properties.DiskSizeGB != 8 || *d2.Properties.DiskState != armcompute.DiskStateUnattached {
			t.Errorf("got %+v", d2.Properties)
		}
	})
}

// A copy of CopyStart is Succeeded at once and usable at 100 percent; a disk has one copy at a
// time, which fails where its source is deleted.
func TestCopyStartTakesItsTime(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		incremental := func(name string, option armcompute.DiskCreateOption, source string) (armcompute.SnapshotsClientCreateOrUpdateResponse, error) {
			p, err := b.f.NewSnapshotsClient().BeginCreateOrUpdate(b.ctx, b.group, name, armcompute.Snapshot{Location: ptr(DefaultLocation), Properties: &armcompute.SnapshotProperties{
				Incremental: ptr(true), CreationData: &armcompute.CreationData{CreateOption: &option, SourceResourceID: &source}}}, nil)
			if err != nil {
				return armcompute.SnapshotsClientCreateOrUpdateResponse{}, err
			}
			return p.PollUntilDone(b.ctx, nil)
		}
		d := b.disk("d", 8)
		first, err := incremental("first", armcompute.DiskCreateOptionCopy, *d.ID)
		second, err2 := incremental("second", armcompute.DiskCreateOptionCopy, *d.ID)
		copied, err3 := incremental("copy", armcompute.DiskCreateOptionCopyStart, *first.ID)
		if err != nil || err2 != nil || err3 != nil || *copied.Properties.ProvisioningState != "Succeeded" || *copied.Properties.CompletionPercent >= 100 {
			t.Fatalf("%v, %v, %v, %+v", err, err2, err3, copied.Properties)
		}
		if _, err := incremental("of-copy", armcompute.DiskCreateOptionCopy, *copied.ID); err == nil || !strings.Contains(err.Error(), "cannot be used: its copy is at") {
			t.Errorf("snapshot of a copy under way: %v", err)
		}
		if _, err := incremental("other", armcompute.DiskCreateOptionCopyStart, *second.ID); err == nil || !strings.Contains(err.Error(), "is being copied") {
			t.Errorf("second copy of a disk: %v", err)
		}
		time.Sleep(time.Hour)
		if copied, err := b.f.NewSnapshotsClient().Get(b.ctx, b.group, "copy", nil); err != nil || *copied.Properties.CompletionPercent != 100 {
			t.Errorf("after an hour: %v, %+v", err, copied.Properties)
		}
		if _, err := incremental("other", armcompute.DiskCreateOptionCopyStart, *second.ID); err != nil {
			t.Error(err)
		}
		p, err := b.f.NewSnapshotsClient().BeginDelete(b.ctx, b.group, "second", nil)
		await(b, p, err)
		time.Sleep(time.Hour)
		if other, err := b.f.NewSnapshotsClient().Get(b.ctx, b.group, "other", nil); err != nil || *other.Properties.CompletionPercent >= 100 ||
			*other.Properties.CopyCompletionError.ErrorCode != armcompute.CopyCompletionErrorReasonCopySourceNotFound {
			t.Errorf("copy without its source: %v, %+v", err, other.Properties)
		}
	})
}

func TestDiskRefusals(t *testing.T) {
	disk := func(change func(*armcompute.Disk)) armcompute.Disk {
		d := armcompute.Disk{Location: ptr(DefaultLocation), Properties: &armcompute.DiskProperties{
			DiskSizeGB: ptr(int32(4)), CreationData: &armcompute.CreationData{CreateOption: ptr(armcompute.DiskCreateOptionEmpty)}}}
		change(&d)
		return d
	}
	for name, c := range map[string]struct {
		code string
		disk armcompute.Disk
	}{
		"no location":      {"LocationRequired", disk(func(d *armcompute.Disk) { d.Location = nil })},
		"no such location": {"LocationNotAvailableForResourceType", disk(func(d *armcompute.Disk) { d.Location = ptr("atlantis") })},
		"no such zone":     {"InvalidAvailabilityZone", disk(func(d *armcompute.Disk) { d.Zones = []*string{ptr("9")} })},
		"no size":          {"InvalidParameter", disk(func(d *armcompute.Disk) { d.Properties.DiskSizeGB = nil })},
		"no source": {"NotFound", disk(func(d *armcompute.Disk) {
			d.Properties.CreationData = copyOf("/subscriptions/" + DefaultSubscription + "/resourceGroups/azsim/providers/Microsoft.Compute/snapshots/none")
		})},
		"not an id": {"InvalidParameter", disk(func(d *armcompute.Disk) { d.Properties.CreationData = copyOf("none") })},
		"ZRS without zones": {"SkuNotAvailable", disk(func(d *armcompute.Disk) {
			d.Location = ptr("westcentralus")
			d.SKU = &armcompute.DiskSKU{Name: ptr(armcompute.DiskStorageAccountTypesPremiumZRS)}
		})},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, nil, func(b *bench) {
				p, err := b.f.NewDisksClient().BeginCreateOrUpdate(b.ctx, b.group, "d", c.disk, nil)
				awaitRefusal(b, c.code, p, err)
				_, err = b.f.NewDisksClient().Get(b.ctx, b.group, "d", nil)
				wantCode(t, err, "ResourceNotFound")
			})
		})
	}
}

func TestIncrementalSnapshotsAreLimited(t *testing.T) {
	inVirtualTime(t, func(s *Server) { s.Profile = Profile{"snapshot.create": {time.Second, time.Second}} }, func(b *bench) {
		d := b.disk("d", 4)
		begin := func(i int) (*runtime.Poller[armcompute.SnapshotsClientCreateOrUpdateResponse], error) {
			return b.f.NewSnapshotsClient().BeginCreateOrUpdate(b.ctx, b.group, fmt.Sprint("s", i), armcompute.Snapshot{
				Location: ptr(DefaultLocation), Properties: &armcompute.SnapshotProperties{CreationData: copyOf(*d.ID), Incremental: ptr(true)},
			}, nil)
		}
		for i := range incrementalPerSpell {
			p, err := begin(i)
			if s := await(b, p, err); *s.SKU.Name != armcompute.SnapshotStorageAccountTypesStandardZRS {
				t.Errorf("an incremental snapshot is kept in %s", *s.SKU.Name)
			}
		}
		p, err := begin(100)
		awaitRefusal(b, "OperationNotAllowed", p, err)
		time.Sleep(incrementalSpell)
		p, err = begin(101)
		await(b, p, err)
	})
}

// A capture's longest wait: the client dies in the middle of an image version
// and another one goes on from its token.
func TestImageVersionOutlivesItsClient(t *testing.T) {
	slow := func(s *Server) {
		s.Profile = Profile{"version.create": {40 * time.Minute, 40 * time.Minute}}
		// In 40 minutes a token of an hour may expire; let it.
		s.TokenLife = 25 * time.Minute
	}
	inVirtualTime(t, slow, func(b *bench) {
		b.image()
		s := b.snapshot("s", *b.disk("d", 8).ID)
		began := time.Now()
		p, err := b.beginVersion("2026.11.21", versionOf(*s.ID, "West Europe", "northeurope"))
		if err != nil {
			t.Fatal(err)
		}
		token, err := p.ResumeToken()
		if err != nil {
			t.Fatal(err)
		}
		if st := *b.version("2026.11.21", false).Properties.ProvisioningState; st != armcompute.GalleryProvisioningStateCreating {
			t.Errorf("state %s while it is made", st)
		}
		// A second request and the deletion of what is being made meet a conflict.
		_, err = b.beginVersion("2026.11.21", versionOf(*s.ID))
		wantCode(t, err, "OperationNotAllowed")
		last := int32(-1)
		for range 3 {
			time.Sleep(6 * time.Minute)
			v := b.version("2026.11.21", true)
			sum := v.Properties.ReplicationStatus.Summary
			if len(sum) != 2 || *sum[0].Progress <= last || *v.Properties.ReplicationStatus.AggregatedState != armcompute.AggregatedReplicationStateInProgress {
				t.Fatalf("replication after %v: %+v", time.Since(began), sum)
			}
			last = *sum[0].Progress
		}
		q, err := newBench(t, b.s, "").f.NewGalleryImageVersionsClient().BeginCreateOrUpdate(b.ctx, "", "", "", "", armcompute.GalleryImageVersion{},
			&armcompute.GalleryImageVersionsClientBeginCreateOrUpdateOptions{ResumeToken: token})
		v := await(b, q, err)
		if took := time.Since(began); took < 40*time.Minute || took > 42*time.Minute {
			t.Errorf("the version took %v", took)
		}
		if *v.Properties.ProvisioningState != armcompute.GalleryProvisioningStateSucceeded {
			t.Errorf("state %s", *v.Properties.ProvisioningState)
		}
		got := b.version("2026.11.21", true)
		if *got.Properties.ReplicationStatus.AggregatedState != armcompute.AggregatedReplicationStateCompleted {
			t.Errorf("replication %+v", got.Properties.ReplicationStatus)
		}
		if b.version("2026.11.21", false).Properties.ReplicationStatus != nil {
			t.Error("ReplicationStatus is there without $expand")
		}
		if pub := got.Properties.PublishingProfile; pub.PublishedDate == nil || !pub.PublishedDate.Equal(began) || *pub.TargetRegions[1].Name != "North Europe" {
			t.Errorf("published %v in %v", pub.PublishedDate, *pub.TargetRegions[1].Name)
		}
		// Its source may go now.
		d, err := b.f.NewSnapshotsClient().BeginDelete(b.ctx, b.group, "s", nil)
		await(b, d, err)
	})
}

func TestZoneLessRegionLeavesAFailedVersion(t *testing.T) {
	inVirtualTime(t, func(s *Server) { s.Locations = []Location{{Name: DefaultLocation, DisplayName: "West Europe"}} }, func(b *bench) {
		b.image()
		s := b.snapshot("s", *b.disk("d", 8).ID)
		p, err := b.beginVersion("1.0.0", versionOf(*s.ID))
		if err != nil {
			t.Fatalf("the request itself is refused: %v", err)
		}
		if _, err = p.PollUntilDone(b.ctx, nil); err == nil || !strings.Contains(err.Error(), "ZRS is not supported") {
			t.Fatalf("got %v", err)
		}
		if st := *b.version("1.0.0", false).Properties.ProvisioningState; st != armcompute.GalleryProvisioningStateFailed {
			t.Errorf("state %s", st)
		}
		lrs := versionOf(*s.ID)
		lrs.Properties.PublishingProfile.StorageAccountType = ptr(armcompute.StorageAccountTypeStandardLRS)
		_, err = b.beginVersion("1.0.0", lrs)
		wantCode(t, err, "PropertyChangeNotAllowed")
		d, err := b.f.NewGalleryImageVersionsClient().BeginDelete(b.ctx, b.group, "g", "i", "1.0.0", nil)
		await(b, d, err)
		p, err = b.beginVersion("1.0.0", lrs)
		await(b, p, err)
	})
}

func TestDeletionBeforeEndOfLifeIsBlocked(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		b.image()
		v := versionOf(*b.snapshot("s", *b.disk("d", 8).ID).ID)
		v.Properties.PublishingProfile.EndOfLifeDate = ptr(time.Now().Add(24 * time.Hour))
		v.Properties.SafetyProfile = &armcompute.GalleryImageVersionSafetyProfile{BlockDeletionBeforeEndOfLife: ptr(true)}
		p, err := b.beginVersion("1.0.0", v)
		await(b, p, err)
		c := b.f.NewGalleryImageVersionsClient()
		_, err = c.BeginDelete(b.ctx, b.group, "g", "i", "1.0.0", nil)
		wantCode(t, err, "OperationNotAllowed")
		_, err = b.f.NewGalleryImagesClient().BeginDelete(b.ctx, b.group, "g", "i", nil)
		wantCode(t, err, "CannotDeleteResource")
		u, err := c.BeginUpdate(b.ctx, b.group, "g", "i", "1.0.0", armcompute.GalleryImageVersionUpdate{
			Tags:       map[string]*string{"k": ptr("v")},
			Properties: &armcompute.GalleryImageVersionProperties{SafetyProfile: &armcompute.GalleryImageVersionSafetyProfile{BlockDeletionBeforeEndOfLife: ptr(false)}},
		}, nil)
		got := await(b, u, err)
		if *got.Properties.PublishingProfile.ReplicaCount != 3 || *got.Tags["k"] != "v" {
			t.Errorf("PATCH lost something: %+v %v", got.Properties.PublishingProfile, got.Tags)
		}
		d, err := c.BeginDelete(b.ctx, b.group, "g", "i", "1.0.0", nil)
		await(b, d, err)
		_, err = c.Get(b.ctx, b.group, "g", "i", "1.0.0", nil)
		wantCode(t, err, "ResourceNotFound")
	})
}

func TestVersionRefusals(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		b.image()
		s := *b.snapshot("s", *b.disk("d", 8).ID).ID
		try := func(name, code string, change func(*armcompute.GalleryImageVersion)) {
			v := versionOf(s)
			if change != nil {
				change(&v)
			}
			_, err := b.beginVersion(name, v)
			wantCode(t, err, code)
		}
		try("1.0", "InvalidParameter", nil)
		try("1.0.4294967296", "InvalidParameter", nil)
		try("1.0.x", "InvalidParameter", nil)
		try("1.0.0", "InvalidParameter", func(v *armcompute.GalleryImageVersion) {
			v.Properties.PublishingProfile.ReplicationMode = ptr(armcompute.ReplicationModeShallow) // with three replicas
		})
		try("1.0.0", "InvalidParameter", func(v *armcompute.GalleryImageVersion) {
			v.Properties.PublishingProfile.TargetRegions = []*armcompute.TargetRegion{{Name: ptr("northeurope")}}
		})
		try("1.0.0", "ResourceNotFound", func(v *armcompute.GalleryImageVersion) {
			v.Properties.StorageProfile.OSDiskImage.Source.ID = ptr(s + "x")
		})
		// A managed image of another generation is refused; a snapshot's is not looked at.
		p, err := b.f.NewSnapshotsClient().BeginCreateOrUpdate(b.ctx, b.group, "v1", armcompute.Snapshot{
			Location: ptr(DefaultLocation), Properties: &armcompute.SnapshotProperties{CreationData: copyOf(*b.disk("d2", 8).ID), HyperVGeneration: ptr(armcompute.HyperVGenerationV1)},
		}, nil)
		v1 := await(b, p, err)
		q, err := b.f.NewImagesClient().BeginCreateOrUpdate(b.ctx, b.group, "m", armcompute.Image{
			Location: ptr(DefaultLocation), Properties: &armcompute.ImageProperties{StorageProfile: &armcompute.ImageStorageProfile{OSDisk: &armcompute.ImageOSDisk{
				OSType: ptr(armcompute.OperatingSystemTypesLinux), OSState: ptr(armcompute.OperatingSystemStateTypesGeneralized), Snapshot: &armcompute.SubResource{ID: v1.ID},
			}}},
		}, nil)
		image := await(b, q, err)
		try("1.0.0", "InvalidParameter", func(v *armcompute.GalleryImageVersion) {
			v.Properties.StorageProfile = &armcompute.GalleryImageVersionStorageProfile{Source: &armcompute.GalleryArtifactVersionFullSource{ID: image.ID}}
		})
		if _, err = b.beginVersion("1.0.0", versionOf(*v1.ID)); err != nil {
			t.Errorf("of a snapshot of generation 1: %v", err)
		}
	})
}

// The defaults of an image definition depend on the API version that asks.
func TestImageDefinitionDefaults(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		b.image()
		get := func(name string) *armcompute.GalleryImageProperties {
			r, err := b.f.NewGalleryImagesClient().Get(b.ctx, b.group, "g", name, nil)
			if err != nil {
				t.Fatal(err)
			}
			return r.Properties
		}
		if p := get("i"); *p.HyperVGeneration != armcompute.HyperVGenerationV2 || imageFeature(p, "SecurityType") != "TrustedLaunchSupported" {
			t.Errorf("new API version: %s, %q", *p.HyperVGeneration, imageFeature(p, "SecurityType"))
		}
		body := `{"location":"westeurope","properties":{"osType":"linux","osState":"generalized","identifier":{"publisher":"p","offer":"o","sku":"t"}}}`
		if r := b.send(http.MethodPut, "/providers/Microsoft.Compute/galleries/g/images/old", "2021-10-01", body); r.StatusCode != http.StatusCreated {
			t.Fatalf("status %d", r.StatusCode)
		}
		if p := get("old"); *p.HyperVGeneration != armcompute.HyperVGenerationV1 || *p.OSState != armcompute.OperatingSystemStateTypesGeneralized || len(p.Features) != 0 {
			t.Errorf("old API version: %s, %s, %v", *p.HyperVGeneration, *p.OSState, p.Features)
		}
		change := definition()
		change.Properties.HyperVGeneration = ptr(armcompute.HyperVGenerationV1)
		_, err := b.f.NewGalleryImagesClient().BeginCreateOrUpdate(b.ctx, b.group, "g", "i", change, nil)
		wantCode(t, err, "PropertyChangeNotAllowed")
		_, err = b.f.NewGalleriesClient().BeginCreateOrUpdate(b.ctx, b.group, "a-b", armcompute.Gallery{Location: ptr(DefaultLocation)}, nil)
		wantCode(t, err, "InvalidParameter")
	})
}
