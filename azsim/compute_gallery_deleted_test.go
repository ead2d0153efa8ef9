package azsim

import (
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// A version that is deleted softly is listed apart, and its name is taken, until it is recovered or a
// week is over.
func TestSoftDelete(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		b.image()
		v := versionOf(*b.snapshot("s", *b.disk("d", 8).ID).ID)
		p, err := b.beginVersion("1.0.0", v)
		made := await(b, p, err)
		g, err := b.f.NewGalleriesClient().BeginUpdate(b.ctx, b.group, "g", armcompute.GalleryUpdate{
			Properties: &armcompute.GalleryProperties{SoftDeletePolicy: &armcompute.SoftDeletePolicy{IsSoftDeleteEnabled: ptr(true)}}}, nil)
		await(b, g, err)
		deleted := func() (names []string) {
			b.Helper()
			pages := b.f.NewSoftDeletedResourceClient().NewListByArtifactNamePager(b.group, "g", "Images", "i", nil)
			for pages.More() {
				page, err := pages.NextPage(b.ctx)
				if err != nil {
					b.Fatal(err)
				}
				for _, x := range page.Value {
					if *x.Properties.ResourceArmID != *made.ID {
						t.Errorf("%+v", x.Properties)
					}
					names = append(names, *x.Name)
				}
			}
			return names
		}
		remove := func() {
			b.Helper()
			d, err := b.f.NewGalleryImageVersionsClient().BeginDelete(b.ctx, b.group, "g", "i", "1.0.0", nil)
			await(b, d, err)
		}
		remove()
		wantList(t, "deleted", deleted(), "1.0.0")
		_, err = b.f.NewGalleryImageVersionsClient().Get(b.ctx, b.group, "g", "i", "1.0.0", nil)
		wantCode(t, err, "ResourceNotFound")
		_, err = b.beginVersion("1.0.0", v)
		wantCode(t, err, "OperationNotAllowed")
		_, err = b.f.NewGalleryImagesClient().BeginDelete(b.ctx, b.group, "g", "i", nil)
		wantCode(t, err, "OperationNotAllowed")
		p, err = b.beginVersion("1.0.0", armcompute.GalleryImageVersion{Location: ptr(DefaultLocation)})
		if back := await(b, p, err); *back.ID != *made.ID || *back.Properties.ProvisioningState != armcompute.GalleryProvisioningStateSucceeded {
			t.Errorf("recovered: %+v", back)
		}
		wantList(t, "deleted", deleted())
		remove()
		time.Sleep(7*24*time.Hour + time.Minute)
		wantList(t, "deleted", deleted())
		p, err = b.beginVersion("1.0.0", v)
		await(b, p, err)
	})
}
