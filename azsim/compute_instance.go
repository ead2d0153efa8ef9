package azsim

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// The power states of an instance, as the codes of its instance view end.
const (
	powerStarting     = "starting"
	powerRunning      = "running"
	powerStopping     = "stopping"
	powerStopped      = "stopped"
	powerDeallocating = "deallocating"
	powerDeallocated  = "deallocated"
)

// An instance is what an instance of a scale set keeps beside its ARM model,
// which holds the data disks, tags and protection.
type instance struct {
	set      *entry
	id       int           // of a Uniform set's instance its name, of a Flexible set's only its turn
	flex     bool          // a virtual machine of its own, in a Flexible set
	plain    *plainMachine // nil: a scale set made it
	hostName string
	vmID     string
	zone     string
	power    string // "" before the first start
	powerAt  time.Time
	failure  *armError // why provisioningState is Failed

	// The recipe that the instance was made of, or was last changed to.
	profile *armcompute.VirtualMachineScaleSetVMProfile
	size    string
	key     string    // modelKey of that recipe
	changed time.Time // of the scale set's model, when that was its recipe
	custom  bool      // the instance was changed on its own since
	image   bootImage
	// oldUserData is what the metadata service shows for a while after a change.
	oldUserData userDataDelay

	nics       []nic  // the primary one first
	osDisk     *entry // a disk; that of an ephemeral OS disk is hidden
	extensions []*armcompute.VirtualMachineExtension

	// provisioned is true once the OS has reported ready from its disk.
	provisioned bool
	gone        bool // deletion has begun
	// What goes on with it whatever becomes of the operation that began it; nil for
	// nothing. A deletion that has succeeded stays.
	creation, upgrade, deletion *task
	heir                        *entry // that was made in its place; nil for none
	// notice is the Terminate event that tells of its deletion, nil for none: it
	// runs on until that begins.
	notice *postedEvent

	// What the agent told, of itself (nil: nothing) and by extension in lower
	// case; told is closed with the next report where somebody waits for it.
	agent   *AgentReport
	reports map[string]ExtensionReport
	told    chan struct{}

	// When the metadata service was asked within the last second.
	asked, askedIdentity []time.Time

	// alive ends when the instance is to be deleted; end ends it.
	alive context.Context
	end   context.CancelFunc
	// turn is held while the Substrate works on the instance: one thing at a
	// time. It is a channel, since a mutex that is held over a timer would stop
	// virtual time.
	turn chan struct{}
}

// faultDomain is one of five, and the first in a zone: that zones have no others
// is inferred.
func (x *instance) faultDomain() int {
	if x.zone != "" {
		return 0
	}
	return x.id % 5
}

func instanceOf(e *entry) (*instance, *armcompute.VirtualMachineScaleSetVM) {
	x, _ := e.extra.(*instance)
	x = cmp.Or(x, &instance{})
	body, _ := e.body.(*armcompute.VirtualMachineScaleSetVM)
	body = cmp.Or(body, &armcompute.VirtualMachineScaleSetVM{Properties: &armcompute.VirtualMachineScaleSetVMProperties{}})
	return x, body
}

func instanceResourceType() *resourceType {
	rt := &resourceType{
		name: instanceType, versions: setVersions(),
		get: protectable(getStored), put: protectable(putInstance), remove: numbered(removeInstance), list: listInstances, render: renderInstance,
		views:   map[string]handler{"instanceview": numbered(getInstanceView)},
		actions: instanceActions(),
		drop:    dropInstance,
	}
	rt.actions["reimageall"] = instanceAction(actReimage)
	for name, h := range rt.actions {
		rt.actions[name] = numbered(h)
	}
	return rt
}

// instanceActions are the POSTs that an instance knows whatever its set is.
func instanceActions() map[string]handler {
	return map[string]handler{
		"start":                       instanceAction(actStart),
		"poweroff":                    instanceAction(actPowerOff),
		"deallocate":                  instanceAction(actDeallocate),
		"restart":                     instanceAction(actRestart),
		"redeploy":                    instanceAction(actRedeploy),
		"reimage":                     instanceAction(actReimage),
		"attachdetachdatadisks":       attachDetachDataDisks,
		"retrievebootdiagnosticsdata": retrieveBootDiagnostics,
		"simulateeviction":            simulateEviction,
	}
}

// newInstance stores a new instance in state Creating. The caller holds the lock.
func (s *Server) newInstance(set *entry, zone string, now time.Time) *entry {
	x, body := setOf(set)
	n := x.next
	x.next++
	id, instanceID, name, typ := set.id.child("virtualMachines", strconv.Itoa(n)), strconv.Itoa(n), instanceName(set.id.name(), n), instanceType
	flex := isFlexible(set)
	if flex {
		name = s.memberName(set, n)
		id, instanceID, typ = memberID(set, name), name, machineType
	}
	vm := &armcompute.VirtualMachineScaleSetVM{
		ID: ptr(id.String()), Name: ptr(name), Type: ptr(typ), InstanceID: ptr(instanceID),
		Location: body.Location, Tags: copyTags(body.Tags),
		Properties: &armcompute.VirtualMachineScaleSetVMProperties{TimeCreated: ptr(now), ProvisioningState: ptr(stateCreating)},
	}
	if zone != "" {
		vm.Zones = []*string{ptr(zone)}
	}
	if flex {
		tagModel(vm, body)
	}
	e, in := s.insertInstance(set, id, vm, n, zone, now)
	in.hostName = computerName(prefixOf(set, in.profile), n)
	if flex {
		in.hostName = s.memberHostName(prefixOf(set, in.profile), id)
	}
	s.connect(in)
	return e
}

// insertInstance stores an instance of a set, which has no network interfaces yet.
func (s *Server) insertInstance(set *entry, id resourceID, vm *armcompute.VirtualMachineScaleSetVM, n int, zone string, now time.Time) (*entry, *instance) {
	e := s.insert(id, s.types[strings.ToLower(val(vm.Type))], vm, now)
	in := &instance{set: set, id: n, flex: isFlexible(set), vmID: s.newUUID("vm", id.key()), zone: zone, turn: make(chan struct{}, 1)}
	in.alive, in.end = context.WithCancel(s.ctx)
	in.adopt()
	vm.Properties.VMID = ptr(in.vmID)
	s.stampEtag(vm, e.key)
	e.extra = in
	return e, in
}

// scaleSet is the stored scale set that the instance is a member of; nil for a machine of
// its own.
func (x *instance) scaleSet() *entry {
	if x.plain != nil {
		return x.plain.joined
	}
	return x.set
}

// prefixOf is the host name's prefix; a specialized image has its own host name,
// for which the scale set's name must do.
func prefixOf(set *entry, p *armcompute.VirtualMachineScaleSetVMProfile) string {
	if p.OSProfile != nil && val(p.OSProfile.ComputerNamePrefix) != "" {
		return *p.OSProfile.ComputerNamePrefix
	}
	return set.id.name()
}

// adopt takes over the scale set's recipe as it is now.
func (x *instance) adopt() {
	of, set := setOf(x.set)
	x.profile, x.size, x.key, x.changed, x.custom = clone(profileOf(set)), x.sizeIn(set), modelKey(set), of.changed, false
}

func copyTags(in map[string]*string) map[string]*string {
	if in == nil {
		return nil
	}
	out := make(map[string]*string, len(in))
	for k, v := range in {
		out[k] = ptr(val(v))
	}
	return out
}

// onSubstrate does something to the instance on the Substrate, alone. Without a
// Substrate there is nothing to do.
func (s *Server) onSubstrate(ctx context.Context, x *instance, do func(Substrate) error) error {
	if s.Substrate == nil {
		return nil
	}
	select {
	case x.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-x.turn }()
	return do(s.Substrate)
}

// settle ends an instance's work: it becomes Succeeded, or Failed for the reason
// given. A deletion that came in between is no failure.
func (s *Server) settle(e *entry, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, body := instanceOf(e)
	if x.gone {
		return nil
	}
	if err == nil {
		x.failure = nil
		setState(body, stateSucceeded)
		return nil
	}
	if errors.Is(err, context.Canceled) && s.ctx.Err() != nil {
		return err // the server closes
	}
	x.failure = asARM(err)
	setState(body, stateFailed)
	return x.failure
}

// createInstance makes a new instance run.
func (s *Server) createInstance(e *entry) error {
	x, _ := instanceOf(e)
	return s.settle(e, s.bringUp(x.alive, e))
}

// bringUp does what a new instance needs: disk, boot, extensions.
func (s *Server) bringUp(ctx context.Context, e *entry) error {
	x, _ := instanceOf(e)
	start := time.Now()
	total := s.takes("instance.create", e)
	if err := pause(ctx, s.takes("instance.allocate", e)); err != nil {
		return err
	}
	if err := s.allocate(e); err != nil {
		return err
	}
	if err := s.makeOSDisk(ctx, e, ""); err != nil {
		return err
	}
	if err := s.makeDataDisks(ctx, e); err != nil {
		return err
	}
	s.locked(func() { x.setPower(powerRunning) })
	if err := s.boot(ctx, e); err != nil {
		return err
	}
	if err := pause(ctx, total-time.Since(start)); err != nil {
		return err
	}
	return s.provisionExtensions(ctx, e)
}

// allocate finds room for a new instance, unless the fault of its action
// "…/allocate" is met: without room it is Failed and has no power state.
func (s *Server) allocate(e *entry) error {
	x, _ := instanceOf(e)
	var fault *Fault
	s.locked(func() { fault = s.innerFault(e.rt.name+"/allocate", e.id) })
	if fault == nil {
		return nil
	}
	if fault.Code == "" {
		fault.Status, fault.Code, fault.Message = http.StatusConflict, "AllocationFailed", "Allocation failed. We do not have sufficient capacity for the requested VM size in this region. Read more about improving likelihood of allocation success at https://aka.ms/allocation-guidance"
		if x.zone != "" {
			fault.Code, fault.Message = "ZonalAllocationFailed", strings.Replace(fault.Message, "region", "zone", 1)
		}
	}
	return fault.failure()
}

// osProvisioningTimeout is how long Azure waits for an instance's OS to report, whatever
// the server's speed: 20 minutes (CAPZ issue 1768).
const osProvisioningTimeout = 20 * time.Minute

// boot starts the computer and waits for it to be ready, up to osProvisioningTimeout, or to
// resilientTimeout. The reasons that it is not are reported as Azure does.
func (s *Server) boot(ctx context.Context, e *entry) error {
	x, body := instanceOf(e)
	var c Computer
	var fault *Fault
	timeout := osProvisioningTimeout
	s.locked(func() {
		if x.recreated() {
			timeout = resilientTimeout
		}
		x.oldUserData = userDataDelay{}
		c = s.computerOf(e)
		fault = s.innerFault(e.rt.name+"/provision", e.id)
	})
	if fault != nil {
		return fault.failure()
	}
	err := s.onSubstrate(ctx, x, func(sub Substrate) error {
		bounded, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return sub.Boot(bounded, c)
	})
	if err == nil {
		s.locked(func() { x.provisioned = true })
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.Log.Warn("instance did not boot", "instance", val(body.Name), "provision", c.Provision, "error", err)
	if !c.Provision {
		return refuse(http.StatusConflict, "VMStartTimedOut", "VM '%s' did not start in the allotted time. The VM may still start successfully. Please check the power state later. (%v)", val(body.Name), err)
	}
	return osProvisioningTimedOut(val(body.Name), err)
}

// osProvisioningTimedOut is Azure's word for an OS that did not report ready.
func osProvisioningTimedOut(name string, cause error) *armError {
	e := refuse(http.StatusConflict, "OSProvisioningTimedOut",
		"OS Provisioning for VM '%s' did not finish in the allotted time. The VM may still finish provisioning successfully. Please check provisioning state later. For details on how to check current provisioning state of Windows VMs, refer to https://aka.ms/WindowsVMLifecycle and Linux VMs, refer to https://aka.ms/LinuxVMLifecycle.", name)
	if cause != nil {
		e.details = []*armError{{code: "SubstrateError", message: cause.Error()}}
	}
	return e
}

// setPower notes a new power state. The caller holds the lock.
func (x *instance) setPower(p string) { x.power, x.powerAt = p, time.Now() }

// innerFault finds the fault that a step within an operation meets: a fault of
// effect "error" whose action names that step, which ends in "/allocate" or
// "/provision". The caller holds the lock.
func (s *Server) innerFault(action string, on resourceID) *Fault {
	for _, f := range s.faults {
		if f.Effect != EffectError || f.Action == "" || f.Method != "" || !isInner(f.Action) || !actionMatches(f.Action, action) ||
			f.path != nil && !f.path.MatchString(on.String()) {
			continue
		}
		f.Matched++
		if f.Matched <= f.Skip || f.Count > 0 && f.Met >= f.Count {
			continue
		}
		if f.Probability > 0 && f.Probability < 1 && !s.meets(f, on.key()) {
			continue
		}
		f.Met++
		met := *f
		return &met
	}
	return nil
}

func isInner(action string) bool {
	lower := strings.ToLower(action)
	return strings.HasSuffix(lower, "/allocate") || strings.HasSuffix(lower, "/provision")
}
