package engine

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/fleet"
)

// machines is a substrate whose computers are the nodes of a world's cluster:
// they become Ready some time after they boot. Volumes know what was done to
// them.
type machines struct {
	w  *world
	mu sync.Mutex
	// volumes, by their owner's lower-case id: "from <first computer>", with
	// "+generalized", "+running" where it was copied from one that ran.
	volumes map[azsim.Volume]string
	boots   int
	running map[azsim.Volume]bool
}

func (m *machines) CreateVolume(_ context.Context, v azsim.Volume, from azsim.Source) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, there := m.volumes[v]; there {
		return nil
	}
	m.volumes[v] = "new"
	if from.Volume != "" {
		m.volumes[v] = m.volumes[from.Volume]
		if m.running[from.Volume] {
			m.volumes[v] += "+running"
		}
	}
	return nil
}

func (m *machines) DeleteVolume(_ context.Context, v azsim.Volume) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.volumes, v)
	return nil
}

func (m *machines) Boot(_ context.Context, c azsim.Computer) error {
	m.mu.Lock()
	m.boots++
	boot := fmt.Sprintf("boot-%d", m.boots)
	m.running[c.OSDisk] = true
	m.mu.Unlock()
	w := m.w
	w.mu.Lock()
	defer w.mu.Unlock()
	name := strings.ToLower(c.HostName)
	if w.nodes[name] == nil {
		w.nodes[name] = &fleet.Node{
			Name: name, ProviderID: "azure://" + c.ResourceID, OS: "linux", Architecture: "amd64",
			Annotations: map[string]string{}, Labels: map[string]string{}, Addresses: []string{"10.0.0.4"},
		}
	}
	w.in(30*time.Second, func() { w.nodes[name].Ready, w.nodes[name].BootID = true, boot })
	return nil
}

func (m *machines) Shutdown(_ context.Context, id string, _ bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stops++
	for _, n := range w.nodes {
		if strings.EqualFold(n.ProviderID, "azure://"+id) {
			w.in(40*time.Second, func() { n.Ready, n.NotReadyWhy = false, "gone" })
		}
	}
	m.stopDisk(id)
	return nil
}

// stopDisk marks the OS disk of the computer as at rest.
func (m *machines) stopDisk(id string) {
	if v, ok := m.w.osDisks[strings.ToLower(id)]; ok {
		delete(m.running, azsim.Volume(v))
	}
}

func (m *machines) Remove(ctx context.Context, id string) error { return m.Shutdown(ctx, id, false) }

func (m *machines) Attach(_ context.Context, _ string, _ int32, v azsim.Volume) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.w.attached = string(v)
	return nil
}

func (m *machines) Detach(context.Context, string, int32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.w.attached = ""
	return nil
}

func (m *machines) Console(context.Context, string) ([]byte, error) { return nil, nil }

// simulated is a world whose Azure is azsim, in one process and virtual time,
// asked by the real SDK.
type simulated struct {
	*world
	server *azsim.Server
	m      *machines
	sets   *armcompute.VirtualMachineScaleSetsClient
}

const setName = "pool1"

func simulate(t *testing.T, faults ...azsim.Fault) *simulated {
	t.Helper()
	w := newWorld()
	w.nodes = map[string]*fleet.Node{}
	w.osDisks = map[string]string{}
	m := &machines{w: w, volumes: map[azsim.Volume]string{}, running: map[azsim.Volume]bool{}}
	w.onWork = func(string) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if w.attached == "" || strings.Contains(m.volumes[azsim.Volume(w.attached)], "generalized") {
			return errors.New("there is no fresh disk")
		}
		m.volumes[azsim.Volume(w.attached)] += "+generalized"
		return nil
	}
	s := &azsim.Server{Seed: 1, Substrate: m, Faults: faults}
	t.Cleanup(s.Close)
	sets, err := armcompute.NewVirtualMachineScaleSetsClient(azsim.DefaultSubscription, s.Credential(""), s.ClientOptions())
	if err != nil {
		t.Fatal(err)
	}
	x := &simulated{world: w, server: s, m: m, sets: sets}
	ext := func(name string, after ...*string) *armcompute.VirtualMachineScaleSetExtension {
		return &armcompute.VirtualMachineScaleSetExtension{Name: new(name), Properties: &armcompute.VirtualMachineScaleSetExtensionProperties{
			Publisher: new("Microsoft.Azure.Extensions"), Type: new("CustomScript"), TypeHandlerVersion: new("2.1"), ProvisionAfterExtensions: after,
		}}
	}
	p, err := sets.BeginCreateOrUpdate(t.Context(), azsim.DefaultResourceGroup, setName, armcompute.VirtualMachineScaleSet{
		Location: new("westeurope"), SKU: &armcompute.SKU{Name: new("Standard_D2s_v5"), Capacity: new(int64(3))},
		Properties: &armcompute.VirtualMachineScaleSetProperties{
			Overprovision: new(false),
			UpgradePolicy: &armcompute.UpgradePolicy{Mode: new(armcompute.UpgradeModeManual)},
			VirtualMachineProfile: &armcompute.VirtualMachineScaleSetVMProfile{
				OSProfile: &armcompute.VirtualMachineScaleSetOSProfile{
					ComputerNamePrefix: new("pool1"), AdminUsername: new("azureuser"), AdminPassword: new("Corr3ct-horse"),
					CustomData: new(base64.StdEncoding.EncodeToString([]byte(w.customData))),
				},
				StorageProfile: &armcompute.VirtualMachineScaleSetStorageProfile{
					ImageReference: &armcompute.ImageReference{Publisher: new("Canonical"), Offer: new("ubuntu-24_04-lts"), SKU: new("server"), Version: new("latest")},
				},
				ExtensionProfile: &armcompute.VirtualMachineScaleSetExtensionProfile{Extensions: []*armcompute.VirtualMachineScaleSetExtension{ext("first"), ext("second", new("first"))}},
			},
		},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.PollUntilDone(t.Context(), &runtime.PollUntilDoneOptions{Frequency: 10 * time.Second}); err != nil {
		t.Fatal(err)
	}
	cloud := x.cloud(t)
	instances, err := cloud.Instances(t.Context(), x.pool())
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range instances {
		w.osDisks[low(i.ID)] = low(i.OSDisk)
	}
	time.Sleep(time.Minute)
	return x
}

func (x *simulated) pool() fleet.ResourceID {
	return "/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/" + azsim.DefaultResourceGroup + "/providers/Microsoft.Compute/virtualMachineScaleSets/" + setName
}

func (x *simulated) cloud(t *testing.T) *arm.Cloud {
	t.Helper()
	c, err := arm.New(arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: x.server.Credential(""), Transport: x.server.Transport(), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// mortal is a cloud whose changes are boundaries at which its process dies.
type mortal struct {
	*arm.Cloud
	p *proc
}

func (m mortal) Begin(ctx context.Context, c fleet.Change) (token fleet.Token, err error) {
	die := func(when string) bool {
		m.p.w.mu.Lock()
		defer m.p.w.mu.Unlock()
		return m.p.dead || m.p.boundary(when+" "+c.Verb()+" "+c.Target().Name())
	}
	if die("before") {
		return "", errDead
	}
	token, err = m.Cloud.Begin(ctx, c)
	if die("after") {
		return "", errDead
	}
	return token, err
}

func (m mortal) Poll(ctx context.Context, token fleet.Token) (fleet.Progress, error) {
	m.p.w.mu.Lock()
	dead := m.p.dead
	m.p.w.mu.Unlock()
	if dead {
		return fleet.Progress{}, errDead
	}
	return m.Cloud.Poll(ctx, token)
}

func (x *simulated) process(t *testing.T, holder string, killAt int) (*Engine, *proc, context.Context) {
	t.Helper()
	_, p, ctx, seen := x.world.process(t, holder, killAt)
	e, err := New(Config{
		Cloud: mortal{x.cloud(t), p}, Cluster: clusterProc{p}, Logger: slog.New(slog.DiscardHandler), Reporter: seen, Version: "test",
		Image: "ortet:test", Namespace: "ortet", Holder: holder, Liveness: func(string) Liveness { return Unknown },
	})
	if err != nil {
		t.Fatal(err)
	}
	return e, p, ctx
}

func (x *simulated) node(t *testing.T) string {
	t.Helper()
	for name, n := range x.nodes {
		if strings.HasSuffix(n.ProviderID, "/0") {
			return name
		}
	}
	t.Fatalf("no node of instance 0 among %v", x.nodes)
	return ""
}

// check looks at the end of a capture, by the SDK and on the substrate.
func (x *simulated) check(t *testing.T, donor, version string) {
	t.Helper()
	cloud := x.cloud(t)
	pool, err := cloud.Pool(t.Context(), x.pool())
	if err != nil {
		t.Fatal(err)
	}
	instances, err := cloud.Instances(t.Context(), x.pool())
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range instances {
		if i.Protection != (fleet.Protection{}) {
			t.Errorf("instance %s had no protection policy, and is left with %+v", i.InstanceID, i.Protection)
		}
	}
	if !pinned(pool.Model.Image, pool.Model.Image.ID) || pool.Model.Image.ID.Name() != version || len(pool.Model.Extensions) > 0 {
		t.Errorf("model %+v", pool.Model)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.catchUp()
	n := x.nodes[donor]
	if !n.Ready || n.Unschedulable || len(n.Annotations) > 0 {
		t.Errorf("donor %+v", n)
	}
	if len(x.pods) > 0 || len(x.lease) > 0 || x.kured != "" || x.attached != "" {
		t.Errorf("left: pods %v, Lease %v, kured %q, attached %q", x.pods, x.lease, x.kured, x.attached)
	}
	x.m.mu.Lock()
	defer x.m.mu.Unlock()
	versions := 0
	for v, what := range x.m.volumes {
		switch {
		case strings.Contains(string(v), "/versions/"):
			versions++
			if what != "new+generalized" {
				t.Errorf("version %s is %s", v, what)
			}
		case strings.Contains(string(v), "/snapshots/"), strings.Contains(string(v), "_work"):
			t.Errorf("%s is left", v)
		}
	}
	if versions != 1 {
		t.Errorf("%d versions", versions)
	}
}

// TestCaptureOnSimulatedAzure: the engine, the adapter, the SDK and azsim.
func TestCaptureOnSimulatedAzure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := simulate(t)
		e, p, ctx := x.process(t, "a", 0)
		q := request()
		q.Node = x.node(t)
		result, err := e.Capture(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		x.check(t, q.Node, result.Version.Name())
		t.Logf("%d boundaries, %s; stopped %d times", p.boundaries, result.Timing.End.Sub(result.Timing.Begin), x.stops)
		for _, s := range result.Timing.Steps {
			t.Logf("%-20s %8s cloud %8s world %8s own %8s", s.Step, s.End.Sub(s.Begin), s.Cloud, s.World, s.Own)
		}
		again, err := e.Capture(ctx, q)
		if err != nil || !again.NothingToDo {
			t.Errorf("%+v, %v", again, err)
		}
	})
}

// TestKilledOnSimulatedAzure: a process dies anywhere, where tokens are the SDK's
// and conflicts are Azure's.
func TestKilledOnSimulatedAzure(t *testing.T) {
	const every = 17
	for at := 5; ; at += every {
		died := false
		synctest.Test(t, func(t *testing.T) {
			x := simulate(t)
			q := request()
			q.Node = x.node(t)
			e, p, ctx := x.process(t, "killed", at)
			_, _ = e.Capture(ctx, q)
			if died = p.dead; !died {
				return
			}
			e, _, ctx = x.process(t, "next", 0)
			result, err := e.Capture(ctx, q)
			if err != nil {
				t.Errorf("killed at %d, %s: %v", at, p.trace[len(p.trace)-1], err)
				return
			}
			x.check(t, q.Node, result.Version.Name())
			if x.stops != 1 {
				t.Errorf("killed at %d, %s: the donor was stopped %d times", at, p.trace[len(p.trace)-1], x.stops)
			}
		})
		if !died {
			return
		}
	}
}
