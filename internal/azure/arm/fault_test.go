package arm_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/azuretest"
	"github.com/ortet/ortet/internal/fleet"
)

// inFault runs a test against a simulated Azure with the faults on, in virtual
// time.
func inFault(t *testing.T, name string, do func(t *testing.T, s *azsim.Server, f azuretest.Fixture), faults ...azsim.Fault) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &azsim.Server{Principals: principals(), Seed: 2}
			defer s.Close()
			f := inProcess(s).fixture(t, s)
			for _, x := range faults {
				if err := s.AddFault(x); err != nil {
					t.Fatal(err)
				}
			}
			do(t, s, f)
		})
	})
}

// settle polls until the end.
func settle(t *testing.T, c azure.Cloud, tok fleet.Token) (fleet.Progress, error) {
	t.Helper()
	for range 1000 {
		p, err := c.Poll(t.Context(), tok)
		if err != nil || p.Done {
			return p, err
		}
		time.Sleep(p.Wait)
	}
	t.Fatal("the operation does not end")
	return fleet.Progress{}, nil
}

func TestFaults(t *testing.T) {
	snapshotOf := func(f azuretest.Fixture, disk fleet.ResourceID) fleet.CreateSnapshot {
		return fleet.CreateSnapshot{ID: f.Pool.In("snapshots", "s"), Location: f.Location, Source: disk}
	}
	osDisk := func(t *testing.T, f azuretest.Fixture) (fleet.Instance, fleet.ResourceID) {
		t.Helper()
		list, err := azure.Retry(f.Cloud, azure.RetryPolicy{}).Instances(t.Context(), f.Pool)
		if err != nil {
			t.Fatal(err)
		}
		return list[0], list[0].OSDisk
	}

	// The answer is lost, the effect is not: the repeated creation joins it.
	inFault(t, "dropped after the effect", func(t *testing.T, s *azsim.Server, f azuretest.Fixture) {
		_, disk := osDisk(t, f)
		c := azure.Retry(f.Cloud, azure.RetryPolicy{})
		tok, err := c.Begin(t.Context(), snapshotOf(f, disk))
		if err != nil {
			t.Fatal(err)
		}
		if tok == "" {
			t.Fatal("the snapshot is said to be complete while it is made")
		}
		if p, err := settle(t, c, tok); err != nil || !p.Done {
			t.Errorf("%+v, %v", p, err)
		}
		puts := 0
		for _, r := range s.Requests() {
			if r.Method == http.MethodPut && strings.HasSuffix(r.Path, "/snapshots/s") {
				puts++
			}
		}
		if puts != 1 {
			t.Errorf("%d PUTs", puts)
		}
	}, azsim.Fault{Method: "PUT", Path: "/snapshots/", Count: 1, Effect: azsim.EffectDropAfter})

	// A region without zones takes the request for ZRS, and fails later.
	inFault(t, "ZRS where there is none", func(t *testing.T, s *azsim.Server, f azuretest.Fixture) {
		const where = "westcentralus"
		disks, err := armcompute.NewDisksClient(azsim.DefaultSubscription, s.Credential(""), s.ClientOptions())
		if err != nil {
			t.Fatal(err)
		}
		p, err := disks.BeginCreateOrUpdate(t.Context(), azsim.DefaultResourceGroup, "far", armcompute.Disk{Location: ptr(where), Properties: &armcompute.DiskProperties{
			DiskSizeGB: ptr(int32(4)), OSType: ptr(armcompute.OperatingSystemTypesLinux), HyperVGeneration: ptr(armcompute.HyperVGenerationV2),
			CreationData: &armcompute.CreationData{CreateOption: ptr(armcompute.DiskCreateOptionEmpty)},
		}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.PollUntilDone(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		gallery, snapshot := f.Pool.In("galleries", "far"), f.Pool.In("snapshots", "far")
		def := gallery.Child("images", "img")
		version := fleet.CreateVersion{ID: def.Child("versions", "1.0.0"), Location: where, Source: snapshot, Replicas: 1, StorageType: fleet.ZRS, ReplicationMode: fleet.ReplicationFull}
		change := func(ch fleet.Change) error {
			tok, err := f.Cloud.Begin(t.Context(), ch)
			if err != nil || tok == "" {
				return err
			}
			_, err = settle(t, f.Cloud, tok)
			return err
		}
		for _, ch := range []fleet.Change{
			fleet.CreateSnapshot{ID: snapshot, Location: where, Source: f.Pool.In("disks", "far")},
			fleet.CreateGallery{ID: gallery, Location: where},
			fleet.CreateDefinition{Definition: fleet.Definition{ID: def, Location: where, Publisher: "p", Offer: "o", SKU: "s", OSState: "Generalized", Linux: true, Generation: "V2", Architecture: "x64"}},
		} {
			if err := change(ch); err != nil {
				t.Fatal(err)
			}
		}
		if err := change(version); !fleet.Is(err, fleet.KindUnsupported) {
			t.Errorf("%v", err)
		}
		list, err := f.Cloud.Versions(t.Context(), def)
		if err != nil || len(list) != 1 || list[0].ProvisioningState != "Failed" || !strings.Contains(list[0].FailureMessage, "ZRS is not supported") {
			t.Errorf("%+v, %v", list, err)
		}
		version.StorageType = fleet.LRS
		for _, ch := range []fleet.Change{fleet.DeleteVersion{ID: version.ID}, version} {
			if err := change(ch); err != nil {
				t.Fatal(err)
			}
		}
		list, err = f.Cloud.Versions(t.Context(), def)
		if err != nil || len(list) != 1 || list[0].ProvisioningState != "Succeeded" || list[0].StorageType != fleet.LRS {
			t.Errorf("%+v, %v", list, err)
		}
	})

	// What Azure refuses because of what else is under way is a conflict.
	inFault(t, "busy", func(t *testing.T, _ *azsim.Server, f azuretest.Fixture) {
		i, _ := osDisk(t, f)
		if _, err := f.Cloud.Begin(t.Context(), fleet.ProtectInstance{Instance: i.ID, Protection: fleet.Protection{ScaleIn: true}}); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Another.Begin(t.Context(), fleet.ProtectInstance{Instance: i.ID, Protection: fleet.Protection{}}); !fleet.Is(err, fleet.KindConflict) {
			t.Errorf("%v", err)
		}
	})
}
