package arm

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/fleet"
)

// asked keeps the URLs of requests for resources, which get an empty answer.
type asked []*url.URL

func (a *asked) Do(r *http.Request) (*http.Response, error) {
	*a = append(*a, r.URL)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader("{}")), Request: r}, nil
}

// What is read here is what the SDK's clients, which change it, would read: an
// update of the SDK brings new versions.
func TestRequestsAreThoseOfTheSDK(t *testing.T) {
	s := &azsim.Server{Seed: 1}
	var a asked
	c, err := New(Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: s.Credential(""), Transport: &a, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	const group = fleet.ResourceID("/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/rg/providers/Microsoft.Compute")
	sdk, err := c.compute(group)
	if err != nil {
		t.Fatal(err)
	}
	set := group.Child("virtualMachineScaleSets", "pool")
	image := group.Child("galleries", "g").Child("images", "i")
	view := armcompute.InstanceViewTypesInstanceView
	for name, requests := range map[string][2]func(context.Context) error{
		"scale set": {func(ctx context.Context) error { _, err := c.Pool(ctx, set); return err },
			func(ctx context.Context) error {
				_, err := sdk.NewVirtualMachineScaleSetsClient().Get(ctx, "rg", "pool", nil)
				return err
			}},
		"instance": {func(ctx context.Context) error {
			_, err := c.Instance(ctx, set.Child("virtualMachines", "3"))
			return err
		},
			func(ctx context.Context) error {
				_, err := sdk.NewVirtualMachineScaleSetVMsClient().Get(ctx, "rg", "pool", "3", &armcompute.VirtualMachineScaleSetVMsClientGetOptions{Expand: &view})
				return err
			}},
		"Uniform instances": {func(ctx context.Context) error { _, err := c.Boots(ctx, fleet.Pool{ID: set}); return err },
			func(ctx context.Context) error {
				_, err := sdk.NewVirtualMachineScaleSetVMsClient().NewListPager("rg", "pool", &armcompute.VirtualMachineScaleSetVMsClientListOptions{Expand: ptr("instanceView")}).NextPage(ctx)
				return err
			}},
		"Flexible instances": {func(ctx context.Context) error {
			_, err := c.Boots(ctx, fleet.Pool{ID: set, Orchestration: fleet.Flexible})
			return err
		}, func(ctx context.Context) error {
			_, err := sdk.NewVirtualMachinesClient().NewListPager("rg", &armcompute.VirtualMachinesClientListOptions{
				Expand: ptr(armcompute.ExpandTypeForListVMsInstanceView), Filter: ptr("'virtualMachineScaleSet/id' eq '" + string(set) + "'")}).NextPage(ctx)
			return err
		}},
		"disk": {func(ctx context.Context) error { _, err := c.Disk(ctx, group.Child("disks", "d")); return err },
			func(ctx context.Context) error { _, err := sdk.NewDisksClient().Get(ctx, "rg", "d", nil); return err }},
		"snapshot": {func(ctx context.Context) error { _, err := c.Snapshot(ctx, group.Child("snapshots", "s")); return err },
			func(ctx context.Context) error {
				_, err := sdk.NewSnapshotsClient().Get(ctx, "rg", "s", nil)
				return err
			}},
		"image versions": {func(ctx context.Context) error { _, err := c.Versions(ctx, image); return err },
			func(ctx context.Context) error {
				_, err := sdk.NewGalleryImageVersionsClient().NewListByGalleryImagePager("rg", "g", "i", nil).NextPage(ctx)
				return err
			}},
		"image version": {func(ctx context.Context) error {
			_, err := c.Version(ctx, image.Child("versions", "1.0.0"))
			return err
		},
			func(ctx context.Context) error {
				_, err := sdk.NewGalleryImageVersionsClient().Get(ctx, "rg", "g", "i", "1.0.0",
					&armcompute.GalleryImageVersionsClientGetOptions{Expand: ptr(armcompute.ReplicationStatusTypesReplicationStatus)})
				return err
			}},
	} {
		a = nil
		for _, request := range requests {
			if err := request(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if len(a) != 2 || a[0].String() != a[1].String() {
			t.Errorf("%s: %v", name, a)
		}
	}
}

// The next link of a filtered list comes from Azure with blanks in it, which are encoded
// as the SDK's pager does.
func TestNextLinkIsEncoded(t *testing.T) {
	first := `{"nextLink":"https://azsim.invalid/subscriptions/s/providers/Microsoft.Compute/virtualMachines?$filter='virtualMachineScaleSet/id' eq 'x'&$skiptoken=a b"}`
	var a asked
	c, err := New(Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: (&azsim.Server{Seed: 1}).Credential(""), Version: "test", Transport: transport(func(r *http.Request) (*http.Response, error) {
		answer, err := a.Do(r)
		if len(a) == 1 {
			answer.Body = io.NopCloser(strings.NewReader(first))
		}
		return answer, err
	})})
	if err != nil {
		t.Fatal(err)
	}
	group := fleet.ResourceID("/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/rg/providers/Microsoft.Compute")
	if _, err := c.Versions(t.Context(), group.Child("galleries", "g").Child("images", "i")); err != nil {
		t.Fatal(err)
	}
	if want := "%24filter=%27virtualMachineScaleSet%2Fid%27+eq+%27x%27&%24skiptoken=a+b"; len(a) != 2 || a[1].RawQuery != want {
		t.Errorf("asked %v, want a second page by %s", a, want)
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) Do(r *http.Request) (*http.Response, error) { return f(r) }
