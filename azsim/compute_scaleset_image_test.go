package azsim

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// prototype captures instance 0's OS disk into version v of gallery g, image i.
func (l *lab) prototype(b *bench, v string) string {
	l.t.Helper()
	disk := val(l.vm("pool1", "0").Properties.StorageProfile.OSDisk.ManagedDisk.ID)
	snap := b.snapshot("snap-"+v, disk)
	p, err := b.beginVersion(v, versionOf(val(snap.ID), DefaultLocation))
	return val(await(b, p, err).ID)
}

func (b *bench) gen2Image() {
	b.Helper()
	p, err := b.f.NewGalleriesClient().BeginCreateOrUpdate(b.ctx, b.group, "g", armcompute.Gallery{Location: ptr(DefaultLocation)}, nil)
	await(b, p, err)
	def := definition()
	def.Properties.HyperVGeneration = ptr(armcompute.HyperVGenerationV2)
	def.Properties.Features = []*armcompute.GalleryImageFeature{{Name: ptr("SecurityType"), Value: ptr("TrustedLaunchSupported")}}
	q, err := b.f.NewGalleryImagesClient().BeginCreateOrUpdate(b.ctx, b.group, "g", "i", def, nil)
	await(b, q, err)
}

// pin points the model at one image version and takes the platform image away.
func (l *lab) pin(id string) error {
	l.t.Helper()
	return l.patch("pool1", armcompute.VirtualMachineScaleSetUpdate{Properties: &armcompute.VirtualMachineScaleSetUpdateProperties{
		VirtualMachineProfile: &armcompute.VirtualMachineScaleSetUpdateVMProfile{StorageProfile: &armcompute.VirtualMachineScaleSetUpdateStorageProfile{
			ImageReference: &armcompute.ImageReference{ID: ptr(id), Publisher: azcore.NullValue[*string](), Offer: azcore.NullValue[*string](),
				SKU: azcore.NullValue[*string](), Version: azcore.NullValue[*string]()}}}}})
}

func TestPrototypePattern(t *testing.T) {
	withPool(t, 1, nil, func(t *testing.T, l *lab) {
		b := newBench(t, l.s, "")
		b.gen2Image()
		v1 := l.prototype(b, "2026.01.01")
		if err := l.pin(v1); err != nil {
			t.Fatal(err)
		}
		ref := l.set("pool1").Properties.VirtualMachineProfile.StorageProfile.ImageReference
		if val(ref.ID) != v1 || ref.Publisher != nil || ref.Version != nil {
			t.Errorf("reference %+v", ref)
		}
		if err := l.scale("pool1", 2); err != nil {
			t.Fatal(err)
		}
		clone := l.sub.computer(t, "pool1000001")
		l.sub.mu.Lock()
		from := l.sub.volumes[clone.OSDisk]
		l.sub.mu.Unlock()
		if from.Volume != Volume(strings.ToLower(v1)) {
			t.Errorf("the clone's disk is a copy of %+v", from)
		}
		if vm := l.vm("pool1", "1"); val(vm.Properties.StorageProfile.ImageReference.ExactVersion) != "2026.01.01" || !val(vm.Properties.LatestModelApplied) {
			t.Errorf("clone %+v", vm.Properties.StorageProfile.ImageReference)
		}
		if val(l.vm("pool1", "0").Properties.LatestModelApplied) {
			t.Error("the donor has the latest model without an upgrade")
		}

		// A scale-out from a deleted version fails, and changes nothing.
		del, err := b.f.NewGalleryImageVersionsClient().BeginDelete(b.ctx, b.group, "g", "i", "2026.01.01", nil)
		await(b, del, err)
		wantRefusal(t, l.scale("pool1", 3), "GalleryImageNotFound", "is not available in westeurope region")
		if n := val(l.set("pool1").SKU.Capacity); n != 2 || len(l.ids("pool1")) != 2 {
			t.Errorf("capacity %d, instances %v", n, l.ids("pool1"))
		}
		wantRefusal(t, l.pin(galleryVersionID("9.9.9")), "GalleryImageNotFound", "9.9.9")
		// What does not need the image goes on: tags, scale-in.
		if err := l.scale("pool1", 1); err != nil {
			t.Errorf("scale-in without the image: %v", err)
		}
	})
}

func TestIgnoredNullLeavesBothReferences(t *testing.T) {
	withPool(t, 1, nil, func(t *testing.T, l *lab) {
		b := newBench(t, l.s, "")
		b.gen2Image()
		v1 := l.prototype(b, "2026.01.01")
		if err := l.s.AddFault(Fault{Effect: EffectIgnoreNull, Count: 1}); err != nil {
			t.Fatal(err)
		}
		if err := l.pin(v1); err != nil {
			t.Fatal(err)
		}
		ref := l.set("pool1").Properties.VirtualMachineProfile.StorageProfile.ImageReference
		if val(ref.ID) != v1 || val(ref.Publisher) != "Canonical" {
			t.Errorf("reference %+v", ref)
		}
	})
}

func TestDefinitionMeansLatest(t *testing.T) {
	withPool(t, 1, nil, func(t *testing.T, l *lab) {
		b := newBench(t, l.s, "")
		b.gen2Image()
		l.prototype(b, "1.9.0")
		l.prototype(b, "1.10.0")
		def := strings.TrimSuffix(galleryVersionID(""), "/versions/")
		if err := l.pin(def); err != nil {
			t.Fatal(err)
		}
		if err := l.scale("pool1", 2); err != nil {
			t.Fatal(err)
		}
		if v := val(l.vm("pool1", "1").Properties.StorageProfile.ImageReference.ExactVersion); v != "1.10.0" {
			t.Errorf("latest is %s", v)
		}
	})
}

// A least-privileged client needs to read the image that it points a model at.
func TestLinkedPermission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const poor = "22222222-0000-4000-8000-000000000000"
		s := &Server{Principals: []Principal{
			{ClientID: DefaultClientID, Roles: []Grant{{Role: "Owner"}}},
			{Name: "poor", ClientID: poor, Roles: []Grant{{Role: "scaler", Actions: []string{"Microsoft.Compute/virtualMachineScaleSets/*"}}}},
		}}
		defer s.Close()
		l := newLab(t, s)
		l.create("pool1", pool(0))
		c, err := armcompute.NewVirtualMachineScaleSetsClient(DefaultSubscription, s.Credential(poor), s.ClientOptions())
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.BeginUpdate(context.Background(), labGroup, "pool1", armcompute.VirtualMachineScaleSetUpdate{Properties: &armcompute.VirtualMachineScaleSetUpdateProperties{
			VirtualMachineProfile: &armcompute.VirtualMachineScaleSetUpdateVMProfile{StorageProfile: &armcompute.VirtualMachineScaleSetUpdateStorageProfile{
				ImageReference: &armcompute.ImageReference{ID: ptr(galleryVersionID("1.0.0"))}}}}}, nil)
		wantRefusal(t, err, "LinkedAuthorizationFailed", "Microsoft.Compute/galleries/images/versions/read")
	})
}

func TestSizesAndSKUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		defer s.Close()
		ctx := context.Background()
		skus, err := armcompute.NewResourceSKUsClient(DefaultSubscription, s.Credential(""), s.ClientOptions())
		if err != nil {
			t.Fatal(err)
		}
		page, err := skus.NewListPager(&armcompute.ResourceSKUsClientListOptions{Filter: ptr("location eq 'westcentralus'")}).NextPage(ctx)
		if err != nil || len(page.Value) != len(vmSizes()) || len(page.Value[0].LocationInfo[0].Zones) != 0 {
			t.Errorf("%d SKUs, %v", len(page.Value), err)
		}
		sizes, err := armcompute.NewVirtualMachineSizesClient(DefaultSubscription, s.Credential(""), s.ClientOptions())
		if err != nil {
			t.Fatal(err)
		}
		list, err := sizes.NewListPager("westeurope", nil).NextPage(ctx)
		if err != nil || len(list.Value) != len(vmSizes()) || val(list.Value[0].NumberOfCores) == 0 {
			t.Errorf("%d sizes, %v", len(list.Value), err)
		}
		l := newLab(t, s)
		l.create("pool1", pool(0))
		for name, next := range map[string]func() (int, error){
			"in the group": func() (int, error) {
				p, err := l.sets.NewListPager(labGroup, nil).NextPage(ctx)
				return len(p.Value), err
			},
			"in the subscription": func() (int, error) { p, err := l.sets.NewListAllPager(nil).NextPage(ctx); return len(p.Value), err },
			"in the region": func() (int, error) {
				p, err := l.sets.NewListByLocationPager("westeurope", nil).NextPage(ctx)
				return len(p.Value), err
			},
		} {
			if n, err := next(); n != 1 || err != nil {
				t.Errorf("scale sets %s: %d, %v", name, n, err)
			}
		}
		p, err := l.sets.NewListSKUsPager(labGroup, "pool1", nil).NextPage(ctx)
		if err != nil || len(p.Value) == 0 {
			t.Errorf("sizes of the set: %d, %v", len(p.Value), err)
		}
	})
}

// The Azure CLI sends what it has read, null members and all.
func TestPutWithNulls(t *testing.T) {
	withPool(t, 1, nil, func(t *testing.T, l *lab) {
		id := val(l.set("pool1").ID)
		do := func(method, path, body string) map[string]any {
			r, err := http.NewRequestWithContext(context.Background(), method, InProcess+path+"?api-version=2022-11-01", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			tok, err := l.s.Credential("").GetToken(context.Background(), policy.TokenRequestOptions{})
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+tok.Token)
			resp, err := l.s.Transport().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			var out map[string]any
			if err := json.Unmarshal(data, &out); err != nil || resp.StatusCode >= 300 {
				t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, data)
			}
			return out
		}
		set := do(http.MethodGet, id, "")
		set["plan"], set["extendedLocation"], set["identity"] = nil, nil, nil
		profile, _ := at(set, "properties", "virtualMachineProfile").(map[string]any)
		profile["extensionProfile"], profile["licenseType"], profile["userData"] = nil, nil, nil
		tags, _ := set["tags"].(map[string]any)
		tags["by"] = "cli"
		body, err := json.Marshal(set)
		if err != nil {
			t.Fatal(err)
		}
		if got := do(http.MethodPut, strings.ToUpper(id), string(body)); at(got, "tags", "by") != "cli" {
			t.Errorf("answer %v", got["tags"])
		}
	})
}
