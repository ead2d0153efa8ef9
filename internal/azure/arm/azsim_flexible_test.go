package arm_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/azuretest"
	"github.com/ortet/ortet/internal/fleet"
)

const belowSet = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/"

// fault has Azure refuse an action from now on.
func (f fixture) fault(action string, status int, code string) {
	f.t.Helper()
	if err := f.s.AddFault(azsim.Fault{Name: action, Action: action, Effect: azsim.EffectError, Status: status, Code: code}); err != nil {
		f.t.Fatal(err)
	}
}

// testUnprotectable: what Azure refuses of all members of a Flexible set alone is
// unsupported. An instance whose protection is not shown has none, but not where Azure
// fails for another reason.
func testUnprotectable(t *testing.T, f fixture) {
	id := f.Instances(2)[0].ID
	protect := fleet.ProtectInstance{Instance: id, Protection: fleet.Protection{ScaleIn: true}}
	for _, c := range []struct {
		status   int
		code     string
		uniform  fleet.Kind
		flexible fleet.Kind
	}{
		{400, "InvalidParameter", fleet.KindInvalid, fleet.KindUnsupported},
		{404, "NotFound", fleet.KindNotFound, fleet.KindUnsupported},
		{403, "AuthorizationFailed", fleet.KindDenied, fleet.KindDenied},
		{409, "OperationNotAllowed", fleet.KindConflict, fleet.KindConflict},
		{503, "ServerBusy", fleet.KindTransient, fleet.KindTransient},
	} {
		want := c.uniform
		if f.Flexible {
			want = c.flexible
		}
		f.fault(belowSet+"write", c.status, c.code)
		azuretest.WantKind(t, f.Try(protect), want)
		f.s.RemoveFault(belowSet + "write")
	}
	if !f.Flexible {
		return
	}
	f.Finish(protect)
	for status, want := range map[int]fleet.Kind{400: "", 403: "", 503: fleet.KindTransient, 401: fleet.KindUnauthenticated} {
		f.fault(belowSet+"read", status, "Refused")
		i, err := f.Cloud.Instance(t.Context(), id)
		if fleet.KindOf(err) != want || want == "" && (err != nil || !i.ID.Equal(id) || i.Protection != fleet.Protection{}) {
			t.Errorf("%d: %+v, %v, want %q", status, i, err, want)
		}
		f.s.RemoveFault(belowSet + "read")
	}
}

// testRemade: a set that is deleted and made again in the other mode is listed as what it
// is now, by a process that knew the first one; a set that is gone is not found.
func testRemade(t *testing.T, f fixture) {
	f.Instances(2)
	sets := sdk(t, f.s).NewVirtualMachineScaleSetsClient()
	gone, err := sets.BeginDelete(t.Context(), azsim.DefaultResourceGroup, "pool1", nil)
	done(t, gone, err)
	azuretest.WantKind(t, only(f.Cloud.Instances(t.Context(), simPool)), fleet.KindNotFound)
	f.Cloud = inProcess(t, f.s, "")
	other := flexBody(2)
	if f.Flexible {
		other = poolBody(2)
	}
	for _, body := range []armcompute.VirtualMachineScaleSet{other, poolBody(3), flexBody(1)} {
		p, err := sets.BeginCreateOrUpdate(t.Context(), azsim.DefaultResourceGroup, "pool1", body, nil)
		done(t, p, err)
		f.Instances(int(*body.SKU.Capacity))
		gone, err = sets.BeginDelete(t.Context(), azsim.DefaultResourceGroup, "pool1", nil)
		done(t, gone, err)
	}
}

// testRest: a writer waits for a scale-out that another began, also where the scale set does
// not show it and only its new member does.
func testRest(t *testing.T, f fixture) {
	secret := fleet.NewSecret("#cloud-config\n")
	for i, hidden := range []bool{false, true} {
		capacity := int64(3 + i)
		out := armcompute.VirtualMachineScaleSetUpdate{SKU: &armcompute.SKU{Name: ptr(size), Capacity: &capacity}}
		p, err := sdk(t, f.s).NewVirtualMachineScaleSetsClient().BeginUpdate(t.Context(), azsim.DefaultResourceGroup, "pool1", out, nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // the new member is listed
		w := azure.Writer{Cloud: scalingOut{f.Cloud, t, hidden}, Now: time.Now, Within: time.Minute}
		if _, err := w.ScaleSet(t.Context(), simPool, func(p fleet.Pool) fleet.Change {
			return fleet.PatchModel{Pool: simPool, CustomData: &secret, Etag: p.Etag}
		}, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Poll(t.Context()); err != nil || !p.Done() {
			t.Errorf("the scale-out to %d was preempted or goes on: %v", capacity, err)
		}
	}
}

// scalingOut is a cloud that is changed while no member of its pool is.
type scalingOut struct {
	azure.Cloud
	t      *testing.T
	hidden bool // the scale set's provisioningState is Succeeded throughout
}

func (c scalingOut) Pool(ctx context.Context, id fleet.ResourceID) (fleet.Pool, error) {
	p, err := c.Cloud.Pool(ctx, id)
	if c.hidden {
		p.ProvisioningState = "Succeeded"
	}
	return p, err
}

func (c scalingOut) Begin(ctx context.Context, change fleet.Change) (fleet.Token, error) {
	for _, i := range azuretest.Get(c.t, c.Instances, simPool) {
		if i.ProvisioningState != "Succeeded" {
			c.t.Errorf("%s while instance %s is %s", change.Verb(), i.InstanceID, i.ProvisioningState)
		}
	}
	return c.Cloud.Begin(ctx, change)
}

// testRequests counts what reads and changes of an instance ask: protection of a Flexible
// set's member is a second GET.
func testRequests(t *testing.T, f fixture) {
	i := f.Instances(2)[0]
	count := func(what string, uniform, flexible int, do func()) {
		t.Helper()
		want := uniform
		if f.Flexible {
			want = flexible
		}
		before := len(f.s.Requests())
		do()
		if all := f.s.Requests()[before:]; len(all) != want {
			t.Errorf("%s: %d requests, want %d: %+v", what, len(all), want, all)
		}
	}
	count("list", 1, 1, func() { f.Instances(2) })
	count("one", 1, 2, func() { azuretest.Get(t, f.Cloud.Instance, i.ID) })
	count("list by another process", 2, 2, func() { azuretest.Get(t, f.Another.Instances, simPool) })
	count("group", 1, 1, func() { azuretest.Get(t, f.Cloud.Machines, simGroup) })
	count("pool of one", 0, 2, func() {
		if pool, err := azure.PoolOf(t.Context(), f.Cloud, i.ID); err != nil || !pool.Equal(simPool) {
			t.Errorf("%s, %v", pool, err)
		}
	})
	count("stop", 1, 1, func() {
		if _, err := f.Cloud.Begin(t.Context(), fleet.StopInstance{Instance: i.ID}); err != nil {
			t.Error(err)
		}
	})
	path := f.s.Requests()[len(f.s.Requests())-1].Path
	if want := strings.ToLower(string(i.ID)) + "/poweroff"; path != want {
		t.Errorf("stopped by %s, want %s", path, want)
	}
}

// testMachines: the map of a group's virtual machines, and where Nodes run by it.
func testMachines(t *testing.T, f fixture) {
	list := f.Instances(2)
	machines := azuretest.Get(t, f.Cloud.Machines, simGroup)
	want := 0
	if f.Flexible {
		want = 2
	}
	if len(machines) != want {
		t.Errorf("%d virtual machines: %v", len(machines), machines)
	}
	places := azure.Places{Reader: f.Cloud}
	for _, id := range []string{string(list[0].ID), strings.ToUpper(string(list[1].ID)), strings.ToLower(string(list[1].ID))} {
		p, err := places.Of(t.Context(), fleet.Node{Name: "n", ProviderID: "azure://" + id})
		if err != nil || !p.Instance.Equal(fleet.ResourceID(id)) || !p.Pool.Equal(simPool) {
			t.Errorf("%s: %+v, %v", id, p, err)
		}
	}
	for id, kind := range map[fleet.ResourceID]fleet.Kind{
		simPool.In("virtualMachines", "gone"): fleet.KindNotFound,
		"/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/none/providers/Microsoft.Compute/virtualMachines/m": fleet.KindNotFound,
	} {
		_, err := places.Of(t.Context(), fleet.Node{Name: "n", ProviderID: "azure://" + string(id)})
		if !fleet.Is(err, kind) {
			t.Errorf("%s: %v", id, err)
		}
	}
	lists := 0
	for _, r := range f.s.Requests() {
		if strings.HasSuffix(r.Path, "/resourcegroups/"+azsim.DefaultResourceGroup+"/providers/microsoft.compute/virtualmachines") {
			lists++
		}
	}
	if f.Flexible && lists > 4 { // those of Instances, Machines, and one of Places
		t.Errorf("%d lists", lists)
	}
}
