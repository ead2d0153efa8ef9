package azsim

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// modelSubstrate is a Substrate that only remembers: what each volume was made
// of, what runs, and what hangs at each LUN.
type modelSubstrate struct {
	mu       sync.Mutex
	volumes  map[Volume]Source
	running  map[string]Computer
	known    map[string]bool
	attached map[string]map[int32]Volume
	booted   map[string][]bool // Provision of each boot
	unclean  map[string]int    // shutdowns that were not graceful
	refuse   map[string]error  // by instance name: Boot fails
	silent   bool              // no OS reports: Boot starts it, and waits to the end of ctx
	console  map[string]string
}

func newModelSubstrate() *modelSubstrate {
	return &modelSubstrate{volumes: map[Volume]Source{}, running: map[string]Computer{}, known: map[string]bool{}, attached: map[string]map[int32]Volume{},
		booted: map[string][]bool{}, unclean: map[string]int{}, refuse: map[string]error{}, console: map[string]string{}}
}

func (m *modelSubstrate) CreateVolume(_ context.Context, v Volume, from Source) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.volumes[v]; ok {
		return nil
	}
	if _, ok := m.volumes[from.Volume]; from.Volume != "" && !ok {
		return fmt.Errorf("no volume %s", from.Volume)
	}
	m.volumes[v] = from
	return nil
}

func (m *modelSubstrate) DeleteVolume(_ context.Context, v Volume) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.volumes, v)
	return nil
}

func (m *modelSubstrate) Boot(ctx context.Context, c Computer) error {
	if err := m.start(c); err != nil || !m.silent {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func (m *modelSubstrate) start(c Computer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.refuse[c.Name]; err != nil {
		return err
	}
	if _, ok := m.volumes[c.OSDisk]; !ok {
		return fmt.Errorf("%s: no volume %s", c.Name, c.OSDisk)
	}
	m.running[c.ID], m.known[c.ID] = c, true
	m.booted[c.Name] = append(m.booted[c.Name], c.Provision)
	m.console[c.ID] += "boot " + c.HostName + "\n"
	return nil
}

func (m *modelSubstrate) Shutdown(_ context.Context, id string, graceful bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !graceful {
		m.unclean[id]++
	}
	delete(m.running, id)
	return nil
}

func (m *modelSubstrate) Remove(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.running, id)
	delete(m.known, id)
	return nil
}

func (m *modelSubstrate) Attach(_ context.Context, id string, lun int32, v Volume) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.volumes[v]; !ok {
		return fmt.Errorf("no volume %s", v)
	}
	if m.attached[id] == nil {
		m.attached[id] = map[int32]Volume{}
	}
	m.attached[id][lun] = v
	return nil
}

func (m *modelSubstrate) Detach(_ context.Context, id string, lun int32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.attached[id], lun)
	return nil
}

func (m *modelSubstrate) Console(_ context.Context, id string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return []byte(m.console[id]), nil
}

// names lists the host names of what runs.
func (m *modelSubstrate) names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for _, c := range m.running {
		out = append(out, c.HostName)
	}
	slices.Sort(out)
	return out
}

// computer is a computer that runs.
func (m *modelSubstrate) computer(t *testing.T, host string) Computer {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.running {
		if c.HostName == host {
			return c
		}
	}
	t.Fatalf("%s does not run", host)
	return Computer{}
}

// volumesLike lists the last parts of the volumes whose names hold the text.
func (m *modelSubstrate) volumesLike(text string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for v := range maps.Keys(m.volumes) {
		if strings.Contains(string(v), text) {
			out = append(out, string(v)[strings.LastIndexByte(string(v), '/')+1:])
		}
	}
	slices.Sort(out)
	return out
}

// A lab is a server with clients for its scale sets.
type lab struct {
	t     *testing.T
	s     *Server
	sub   *modelSubstrate
	sets  *armcompute.VirtualMachineScaleSetsClient
	vms   *armcompute.VirtualMachineScaleSetVMsClient
	exts  *armcompute.VirtualMachineScaleSetExtensionsClient
	vmExt *armcompute.VirtualMachineScaleSetVMExtensionsClient
	disks *armcompute.DisksClient
}

const labGroup = DefaultResourceGroup

func newLab(t *testing.T, s *Server) *lab {
	t.Helper()
	l := &lab{t: t, s: s}
	if sub, ok := s.Substrate.(*modelSubstrate); ok {
		l.sub = sub
	}
	cred, opts := s.Credential(""), s.ClientOptions()
	var errs [5]error
	l.sets, errs[0] = armcompute.NewVirtualMachineScaleSetsClient(DefaultSubscription, cred, opts)
	l.vms, errs[1] = armcompute.NewVirtualMachineScaleSetVMsClient(DefaultSubscription, cred, opts)
	l.exts, errs[2] = armcompute.NewVirtualMachineScaleSetExtensionsClient(DefaultSubscription, cred, opts)
	l.vmExt, errs[3] = armcompute.NewVirtualMachineScaleSetVMExtensionsClient(DefaultSubscription, cred, opts)
	l.disks, errs[4] = armcompute.NewDisksClient(DefaultSubscription, cred, opts)
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return l
}

// pool is the body of a usual scale set of n instances.
func pool(n int64) armcompute.VirtualMachineScaleSet {
	return armcompute.VirtualMachineScaleSet{
		Location: ptr("westeurope"), SKU: &armcompute.SKU{Name: ptr("Standard_D2s_v5"), Capacity: ptr(n)},
		Tags: map[string]*string{"team": ptr("a")},
		Properties: &armcompute.VirtualMachineScaleSetProperties{
			Overprovision: ptr(false),
			UpgradePolicy: &armcompute.UpgradePolicy{Mode: ptr(armcompute.UpgradeModeManual)},
			VirtualMachineProfile: &armcompute.VirtualMachineScaleSetVMProfile{
				OSProfile: &armcompute.VirtualMachineScaleSetOSProfile{
					ComputerNamePrefix: ptr("pool1"), AdminUsername: ptr("azureuser"), CustomData: ptr(base64.StdEncoding.EncodeToString([]byte("#cloud-config\n"))),
					LinuxConfiguration: &armcompute.LinuxConfiguration{DisablePasswordAuthentication: ptr(true), SSH: &armcompute.SSHConfiguration{
						PublicKeys: []*armcompute.SSHPublicKey{{Path: ptr("/home/azureuser/.ssh/authorized_keys"), KeyData: ptr("ssh-ed25519 AAAA")}}}},
				},
				StorageProfile: &armcompute.VirtualMachineScaleSetStorageProfile{
					ImageReference: &armcompute.ImageReference{Publisher: ptr("Canonical"), Offer: ptr("ubuntu-24_04-lts"), SKU: ptr("server"), Version: ptr("latest")},
				},
				DiagnosticsProfile: &armcompute.DiagnosticsProfile{BootDiagnostics: &armcompute.BootDiagnostics{Enabled: ptr(true)}},
			},
		},
	}
}

// done waits for the end of an operation.
func done[T any](t *testing.T, p *runtime.Poller[T], err error) T {
	t.Helper()
	out, err := tryDone(p, err)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func tryDone[T any](p *runtime.Poller[T], err error) (T, error) {
	if err != nil {
		var zero T
		return zero, err
	}
	return p.PollUntilDone(context.Background(), &runtime.PollUntilDoneOptions{Frequency: 5 * time.Second})
}

// code is the ARM error code of an error, "" for none.
func code(err error) string {
	var re *azcore.ResponseError
	if errors.As(err, &re) {
		return re.ErrorCode
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// wantRefusal fails unless err is an ARM error of that code that holds the text.
func wantRefusal(t *testing.T, err error, want, text string) {
	t.Helper()
	if code(err) != want || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want %s with %q", err, want, text)
	}
}

func (l *lab) create(name string, body armcompute.VirtualMachineScaleSet) armcompute.VirtualMachineScaleSet {
	l.t.Helper()
	p, err := l.sets.BeginCreateOrUpdate(context.Background(), labGroup, name, body, nil)
	return done(l.t, p, err).VirtualMachineScaleSet
}

func (l *lab) patch(name string, body armcompute.VirtualMachineScaleSetUpdate) error {
	l.t.Helper()
	p, err := l.sets.BeginUpdate(context.Background(), labGroup, name, body, nil)
	_, err = tryDone(p, err)
	return err
}

func (l *lab) scale(name string, n int64) error {
	l.t.Helper()
	return l.patch(name, armcompute.VirtualMachineScaleSetUpdate{SKU: &armcompute.SKU{Capacity: ptr(n)}})
}

func (l *lab) set(name string) armcompute.VirtualMachineScaleSet {
	l.t.Helper()
	r, err := l.sets.Get(context.Background(), labGroup, name, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	return r.VirtualMachineScaleSet
}

func (l *lab) vm(name, id string) *armcompute.VirtualMachineScaleSetVM {
	l.t.Helper()
	r, err := l.vms.Get(context.Background(), labGroup, name, id, &armcompute.VirtualMachineScaleSetVMsClientGetOptions{Expand: ptr(armcompute.InstanceViewTypesInstanceView)})
	if err != nil {
		l.t.Fatal(err)
	}
	return &r.VirtualMachineScaleSetVM
}

func (l *lab) list(name string, o *armcompute.VirtualMachineScaleSetVMsClientListOptions) []*armcompute.VirtualMachineScaleSetVM {
	l.t.Helper()
	var out []*armcompute.VirtualMachineScaleSetVM
	for p := l.vms.NewListPager(labGroup, name, o); p.More(); {
		page, err := p.NextPage(context.Background())
		if err != nil {
			l.t.Fatal(err)
		}
		out = append(out, page.Value...)
	}
	return out
}

// ids returns instance ids with their provisioning and power states: "0 Succeeded running".
func (l *lab) ids(name string) []string {
	l.t.Helper()
	var out []string
	for _, vm := range l.list(name, &armcompute.VirtualMachineScaleSetVMsClientListOptions{Expand: ptr("instanceView")}) {
		out = append(out, val(vm.InstanceID)+" "+val(vm.Properties.ProvisioningState)+" "+power(vm))
	}
	return out
}

func power(vm *armcompute.VirtualMachineScaleSetVM) string {
	for _, st := range vm.Properties.InstanceView.Statuses {
		if p, ok := strings.CutPrefix(val(st.Code), "PowerState/"); ok {
			return p
		}
	}
	return ""
}

func wantList(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}
