package controller

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	azruntime "github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// consoles is a Substrate whose computers write what they are told to their serial
// consoles, and nothing else.
type consoles struct {
	mu  sync.Mutex
	log map[string]string
}

func (*consoles) CreateVolume(context.Context, azsim.Volume, azsim.Source) error { return nil }
func (*consoles) DeleteVolume(context.Context, azsim.Volume) error               { return nil }
func (*consoles) Shutdown(context.Context, string, bool) error                   { return nil }
func (*consoles) Remove(context.Context, string) error                           { return nil }
func (*consoles) Attach(context.Context, string, int32, azsim.Volume) error      { return nil }
func (*consoles) Detach(context.Context, string, int32) error                    { return nil }
func (*consoles) Boot(context.Context, azsim.Computer) error                     { return nil }

func (c *consoles) Console(_ context.Context, id string) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return []byte(c.log[id]), nil
}

// write is what a computer writes next; id is its ARM id in lower case.
func (c *consoles) write(id Key, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.log == nil {
		c.log = map[string]string{}
	}
	c.log[string(id)] += text
}

const someGroup = fleet.ResourceID("/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/" + azsim.DefaultResourceGroup)

// newPools makes pools of so many instances each, that boot at once.
func newPools(t testing.TB, s *azsim.Server, pools, each int) {
	t.Helper()
	s.Instant(true)
	defer s.Instant(false)
	sets, err := armcompute.NewVirtualMachineScaleSetsClient(azsim.DefaultSubscription, s.Credential(""), s.ClientOptions())
	if err != nil {
		t.Fatal(err)
	}
	for i := range pools {
		name := fmt.Sprintf("pool%02d", i)
		p, err := sets.BeginCreateOrUpdate(t.Context(), azsim.DefaultResourceGroup, name, poolBody(name, int64(each)), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.PollUntilDone(t.Context(), &azruntime.PollUntilDoneOptions{Frequency: time.Second}); err != nil {
			t.Fatal(err)
		}
	}
}

func poolBody(name string, capacity int64) armcompute.VirtualMachineScaleSet {
	return armcompute.VirtualMachineScaleSet{
		Location: to.Ptr("westeurope"),
		SKU:      &armcompute.SKU{Name: to.Ptr("Standard_D2s_v5"), Tier: to.Ptr("Standard"), Capacity: to.Ptr(capacity)},
		Properties: &armcompute.VirtualMachineScaleSetProperties{
			OrchestrationMode: to.Ptr(armcompute.OrchestrationModeUniform), Overprovision: to.Ptr(false), SinglePlacementGroup: to.Ptr(true),
			UpgradePolicy: &armcompute.UpgradePolicy{Mode: to.Ptr(armcompute.UpgradeModeManual)},
			VirtualMachineProfile: &armcompute.VirtualMachineScaleSetVMProfile{
				DiagnosticsProfile: &armcompute.DiagnosticsProfile{BootDiagnostics: &armcompute.BootDiagnostics{Enabled: to.Ptr(true)}},
				OSProfile: &armcompute.VirtualMachineScaleSetOSProfile{
					ComputerNamePrefix: to.Ptr(name), AdminUsername: to.Ptr("azureuser"),
					LinuxConfiguration: &armcompute.LinuxConfiguration{DisablePasswordAuthentication: to.Ptr(true), SSH: &armcompute.SSHConfiguration{PublicKeys: []*armcompute.SSHPublicKey{{
						Path: to.Ptr("/home/azureuser/.ssh/authorized_keys"), KeyData: to.Ptr("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA7kUYRTzmHqVg0m9bN8h1v3sQ2o5fJ4c6dWxXeYzabc operator"),
					}}}},
				},
				StorageProfile: &armcompute.VirtualMachineScaleSetStorageProfile{
					ImageReference: &armcompute.ImageReference{Publisher: to.Ptr("Debian"), Offer: to.Ptr("debian-12"), SKU: to.Ptr("12-gen2"), Version: to.Ptr("latest")},
					OSDisk:         &armcompute.VirtualMachineScaleSetOSDisk{CreateOption: to.Ptr(armcompute.DiskCreateOptionTypesFromImage), OSType: to.Ptr(armcompute.OperatingSystemTypesLinux), DiskSizeGB: to.Ptr[int32](30)},
				},
				NetworkProfile: &armcompute.VirtualMachineScaleSetNetworkProfile{NetworkInterfaceConfigurations: []*armcompute.VirtualMachineScaleSetNetworkConfiguration{{
					Name: to.Ptr("nic"), Properties: &armcompute.VirtualMachineScaleSetNetworkConfigurationProperties{
						Primary: to.Ptr(true), IPConfigurations: []*armcompute.VirtualMachineScaleSetIPConfiguration{{
							Name: to.Ptr("ip"), Properties: &armcompute.VirtualMachineScaleSetIPConfigurationProperties{
								Primary: to.Ptr(true), Subnet: &armcompute.APIEntityReference{ID: to.Ptr(string(someGroup) + "/providers/Microsoft.Network/virtualNetworks/vnet/subnets/nodes")},
							},
						}},
					},
				}}},
			},
		},
	}
}

// newBoots looks at a simulated Azure through the real adapter, the requests
// counted by the budget.
func newBoots(t testing.TB, s *azsim.Server, budget *Budget) azure.Boots {
	t.Helper()
	client := &http.Client{Transport: budget.Meter(roundTripper{s.Transport()}, hostOf(s))}
	c, err := arm.New(arm.Options{Cloud: s.ClientOptions().Cloud, Credential: s.Credential(""), Transport: client, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

type roundTripper struct{ *azsim.Transport }

func (r roundTripper) RoundTrip(q *http.Request) (*http.Response, error) { return r.Do(q) }

func hostOf(s *azsim.Server) string {
	for _, c := range s.ClientOptions().Cloud.Services {
		q, err := http.NewRequest(http.MethodGet, c.Endpoint, nil)
		if err == nil && q.URL.Host != "" {
			return q.URL.Host
		}
	}
	return ""
}

// A world is a poller before a simulated Azure, with whoever assesses what it
// finds; Nodes are played by the test.
type world struct {
	azure    *azsim.Server
	consoles *consoles
	fleet    *Fleet
	poller   *Poller
	budget   *Budget

	mu    sync.Mutex
	times []time.Time
	nodes map[Key]*NodeView
}

func newWorld(t *testing.T, pools, each, perMinute int) *world {
	w := &world{consoles: &consoles{}, fleet: NewFleet(), nodes: map[Key]*NodeView{}}
	var counting atomic.Bool
	w.azure = &azsim.Server{Substrate: w.consoles, OnRequest: func(r azsim.Request) {
		if r.Action == "" || !counting.Load() {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.times = append(w.times, time.Now())
	}}
	newPools(t, w.azure, pools, each)
	counting.Store(true)
	w.budget = NewBudget(perMinute, time.Now)
	w.poller = NewPoller(PollerConfig{
		Boots: newBoots(t, w.azure, w.budget), Metered: true, Budget: w.budget, Fleet: w.fleet, Groups: []fleet.ResourceID{someGroup}, Now: time.Now,
		Changed: func(keys []Key) {
			for _, k := range keys {
				w.assess(k)
			}
		},
	})
	return w
}

func (w *world) assess(k Key) Assessment {
	known, ok := w.fleet.Get(k)
	if !ok {
		return Assessment{}
	}
	w.mu.Lock()
	node := w.nodes[k]
	w.mu.Unlock()
	a := Assess(known.Boot, node, known.Serial, known.Previous, time.Now(), Deadlines{})
	w.fleet.Decided(k, a, known.Serial)
	return a
}

// ready plays a Node that is.
func (w *world) ready(k Key) {
	w.mu.Lock()
	w.nodes[k] = &NodeView{Name: string(k), Ready: true, ReadySince: time.Now()}
	w.mu.Unlock()
	w.assess(k)
}

// most gives how many requests came in any minute at most.
func (w *world) most() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	most := 0
	for i := range w.times {
		n := 0
		for j := i; j < len(w.times) && w.times[j].Sub(w.times[i]) < time.Minute; j++ {
			n++
		}
		most = max(most, n)
	}
	return most
}

func (w *world) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.times = nil
}

func (w *world) all() []Key {
	var out []Key
	for i := range 1000 {
		for j := range 1000 {
			k := KeyOf(fleet.ResourceID(fmt.Sprintf("%s/providers/Microsoft.Compute/virtualMachineScaleSets/pool%02d/virtualMachines/%d", someGroup, i, j)))
			if _, ok := w.fleet.Get(k); !ok {
				if j == 0 {
					return out
				}
				break
			}
			out = append(out, k)
		}
	}
	return out
}

// Five thousand instances cost no more than sixty requests in any minute, whether
// nothing happens, all is new, or a hundred of them fail; and what fails is known
// all the same.
func TestBudgetWithManyInstances(t *testing.T) {
	pools, each := 50, 100
	if testing.Short() {
		pools, each = 10, 20
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, pools, each, 60)
		defer w.azure.Close()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.poller.Run(ctx); close(done) }()
		defer func() { cancel(); <-done }()

		begin := time.Now()
		for !w.poller.Complete() {
			time.Sleep(time.Second)
			if time.Since(begin) > time.Hour {
				t.Fatal("not every pool was listed within an hour")
			}
		}
		t.Logf("all %d pools listed after %s, at most %d requests in a minute", pools, time.Since(begin), w.most())
		keys := w.all()
		if len(keys) != pools*each {
			t.Fatalf("%d instances known", len(keys))
		}
		// All boot, and all but a few come up.
		bad := map[Key]bool{}
		for i, k := range keys {
			if i%50 == 7 {
				bad[k] = true
				known, _ := w.fleet.Get(k)
				v := aVerdict(wire.Failed, time.Minute, func(v *wire.Verdict) { v.VMID, v.Node, v.At = known.Boot.VMID, "", time.Now() })
				w.consoles.write(k, v.ConsoleLine()+"\r\n")
				continue
			}
			w.ready(k)
		}
		begin = time.Now()
		for left := len(bad); left > 0; {
			time.Sleep(time.Second)
			left = 0
			for k := range bad {
				if known, _ := w.fleet.Get(k); known.Previous.State != Failed {
					left++
				}
			}
			if time.Since(begin) > time.Hour {
				t.Fatalf("%d failures not known after an hour", left)
			}
		}
		t.Logf("%d failures known after %s", len(bad), time.Since(begin))
		if n := w.most(); n > 60 {
			t.Errorf("%d requests in a minute", n)
		}
		// What came up is looked at once while it is news, when nothing else is to be
		// done; then nothing happens.
		time.Sleep(30 * time.Minute)
		if n := w.most(); n > 60 {
			t.Errorf("%d requests in a minute", n)
		}
		w.forget()
		time.Sleep(30 * time.Minute)
		w.mu.Lock()
		n := len(w.times)
		w.mu.Unlock()
		t.Logf("quiet: %.1f requests a minute, at most %d in one", float64(n)/30, w.most())
		if w.most() > 60 || n == 0 {
			t.Errorf("%d requests in half an hour, %d in a minute", n, w.most())
		}
	})
}

// What a boot cost that ended with a Ready node, or that it did not last, is found
// on the serial console where no extension tells it.
func TestReadyNodesAreLookedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, 3, 60)
		defer w.azure.Close()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.poller.Run(ctx); close(done) }()
		defer func() { cancel(); <-done }()
		for !w.poller.Complete() {
			time.Sleep(time.Second)
		}
		keys := w.all()
		for i, outcome := range []wire.Outcome{wire.Succeeded, wire.Degraded, wire.Failed} {
			known, _ := w.fleet.Get(keys[i])
			w.ready(keys[i])
			v := aVerdict(outcome, time.Minute, func(v *wire.Verdict) { v.VMID, v.Node, v.At = known.Boot.VMID, "", time.Now() })
			w.consoles.write(keys[i], v.ConsoleLine()+"\r\n")
		}
		w.mu.Lock()
		w.nodes[keys[2]] = &NodeView{Name: string(keys[2]), CameUp: true, ReadySince: time.Now()} // its kubelet crash-loops
		w.mu.Unlock()
		time.Sleep(5 * time.Minute)
		for i, want := range []State{Succeeded, Degraded, Failed} {
			known, _ := w.fleet.Get(keys[i])
			if a := known.Previous; a.State != want || a.Source != FromConsole {
				t.Errorf("%s by %s, want %s by the console", a.State, a.Source, want)
			}
		}
		w.forget()
		time.Sleep(time.Hour)
		w.mu.Lock()
		n := len(w.times)
		w.mu.Unlock()
		if n > 160 { // groups every 30 s, the pool every 5 min
			t.Errorf("%d requests in an hour in which nothing happened", n)
		}
	})
}
