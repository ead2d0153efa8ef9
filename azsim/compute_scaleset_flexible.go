package azsim

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// The members of a Flexible scale set are virtual machines of their own
// (compute_virtual_machine.go); the set only makes and deletes them. In the server they
// are kept as the instances of a Uniform set are, under the virtual machine's id.

func isFlexible(set *entry) bool {
	_, body := setOf(set)
	return body != nil && body.Properties != nil && val(body.Properties.OrchestrationMode) == armcompute.OrchestrationModeFlexible
}

// membersOf lists a Flexible scale set's virtual machines in the order of their
// creation.
func (s *Server) membersOf(set *entry) []*entry {
	var out []*entry
	for _, e := range s.order {
		if x, isInstance := e.extra.(*instance); isInstance && x.flex && x.scaleSet() == set {
			out = append(out, e)
		}
	}
	return out
}

// memberName is "pool1_1c0ffee0": the set's name and eight digits of a UUID
// (documentation of the names of scale set VMs).
func (s *Server) memberName(set *entry, n int) string {
	for i := 0; ; i++ {
		name := set.id.name() + "_" + s.newUUID("member "+strconv.Itoa(n)+" "+strconv.Itoa(i), set.key)[:8]
		if s.find(memberID(set, name)) == nil {
			return name
		}
	}
}

// memberHostName is the prefix and six upper-case characters, as the Azure CLI recorded
// it; Kubernetes' cloud provider cuts off as many to find the set. That they are random, of
// base 36, is inferred.
func (s *Server) memberHostName(prefix string, id resourceID) string {
	hex := strings.ReplaceAll(s.newUUID("host name", id.key()), "-", "")
	n, err := strconv.ParseUint(hex[:12], 16, 64)
	if err != nil { // a UUID is hexadecimal
		n = 0
	}
	digits := strings.ToUpper(strconv.FormatUint(n, 36))
	digits = strings.Repeat("0", computerNameDigits) + digits
	return prefix + digits[len(digits)-computerNameDigits:]
}

func memberID(set *entry, name string) resourceID {
	return resourceID{subscription: set.id.subscription, group: set.id.group, namespace: "Microsoft.Compute", types: []string{"virtualMachines"}, names: []string{name}}
}

// memberNIC is the id of a member's network interface, which is a resource of its
// own (network_interface.go).
func memberNIC(e *entry, config string) string {
	name := e.id.name()
	return e.id.root() + "/providers/Microsoft.Network/networkInterfaces/" + config + "-" + name[strings.LastIndexByte(name, '_')+1:]
}

// instanceNamed finds an instance by its instance id, which in a Flexible set is
// the virtual machine's name. It is nil for one that is not the set's.
func (s *Server) instanceNamed(set *entry, id string) *entry {
	if isFlexible(set) {
		e := s.find(memberID(set, id))
		if e == nil {
			return nil
		}
		if x, _ := instanceOf(e); x.scaleSet() != set {
			return nil
		}
		return e
	}
	if _, isID := parseInstanceID(id); !isID {
		return nil
	}
	return s.find(set.id.child("virtualMachines", id))
}

// notForFlexible is Azure's refusal of what a Flexible set cannot do as a whole
// (nomad-autoscaler issue 1096, OMS-Agent-for-Linux pull request 1475).
func notForFlexible(what, set string) *armError {
	return badRequest("BadRequest", "Operation 'VirtualMachineScaleSets.%s' is not allowed on Virtual Machine Scale Set '%s'.", what, set)
}

// uniformOnly refuses an operation on a Flexible scale set: its members are acted
// on one by one (documentation, "Orchestration modes API comparison"). The Azure CLI's
// recordings have two that Azure does on a set: deallocate and manualupgrade.
func uniformOnly(what string, h handler) handler {
	return func(c *call) (*reply, error) {
		if set := c.s.find(c.id); set != nil && isFlexible(set) {
			return nil, notForFlexible(what, set.id.name())
		}
		return h(c)
	}
}

// numbered refuses to look for a Flexible set's member below the set
// (azure-sdk-for-go issue 19707).
func numbered(h handler) handler {
	return func(c *call) (*reply, error) {
		if set := c.s.find(c.id.parent()); set != nil && isFlexible(set) {
			return nil, badParameter("instanceId", "Virtual Machine Scale Set VM instanceId must be a number.")
		}
		return h(c)
	}
}

// protectable finds a Flexible set's member below the set where its protection is read
// or set, which Azure does from API version 2023-09-01 on (documentation of instance
// protection). What else a GET shows there, and that a PUT changes nothing else, is
// inferred.
func protectable(h handler) handler {
	return func(c *call) (*reply, error) {
		set := c.s.find(c.id.parent())
		if set == nil || !isFlexible(set) || c.query("api-version") < "2023-09-01" {
			return numbered(h)(c)
		}
		e := c.s.instanceNamed(set, c.id.name())
		if e == nil {
			return nil, notActive(c.id.name())
		}
		if c.verb == "read" {
			return ok(renderInstance(c, e)), nil
		}
		c.id = e.id
		return h(c)
	}
}

// A bareInstance is all that the list below a Flexible set shows of a member: names, and
// a zone that is null whatever the member's (the Azure CLI's recordings).
type bareInstance struct{ e *entry }

func (b bareInstance) MarshalJSON() ([]byte, error) {
	x, body := instanceOf(b.e)
	return json.Marshal(map[string]any{
		"id":   x.scaleSet().id.child("virtualMachines", val(body.Name)).String(),
		"name": val(body.Name), "instanceId": val(body.Name), "location": val(body.Location), "type": instanceType,
		"zones": []any{nil},
	})
}

// listFlexible is the list below a Flexible set: names and no more, and refused
// where more is asked for.
func (c *call) listFlexible(set *entry) (*reply, error) {
	if c.query("$expand") != "" || c.query("$filter") != "" {
		return nil, notForFlexible("virtualMachines.GET", set.id.name())
	}
	var items []any
	for _, e := range c.s.membersOf(set) {
		items = append(items, bareInstance{e})
	}
	return c.pageOf(items), nil
}

// checkFlexible settles what is different in a Flexible scale set.
func checkFlexible(_ *call, next *armcompute.VirtualMachineScaleSet) error {
	p := next.Properties
	if val(p.OrchestrationMode) != armcompute.OrchestrationModeFlexible {
		return nil
	}
	if p.PlatformFaultDomainCount == nil {
		return badParameter("platformFaultDomainCount", "Required parameter 'platformFaultDomainCount' is missing (null).")
	}
	if p.ScaleInPolicy != nil && len(p.ScaleInPolicy.Rules) > 0 { // azure-docs issue 95901; the words are inferred
		return badParameter("scaleInPolicy",
			"Property 'scaleInPolicy' is not supported for Virtual Machine Scale Sets with orchestration mode 'Flexible'.")
	}
	if val(p.Overprovision) {
		return badParameter("overprovision", "Property 'overprovision' is not supported for Virtual Machine Scale Sets with orchestration mode 'Flexible'.")
	}
	if n := profileOf(next).NetworkProfile; n != nil && len(n.NetworkInterfaceConfigurations) > 0 && n.NetworkAPIVersion == nil {
		return badParameter("networkProfile.networkApiVersion", "Required parameter 'networkProfile.networkApiVersion' is missing (null).")
	}
	p.Overprovision = nil
	p.SinglePlacementGroup = orDefault(p.SinglePlacementGroup, false)
	if p.VirtualMachineProfile == nil {
		return nil
	}
	p.UpgradePolicy = cmp.Or(p.UpgradePolicy, &armcompute.UpgradePolicy{})
	p.UpgradePolicy.Mode = orDefault(p.UpgradePolicy.Mode, armcompute.UpgradeModeManual)
	return nil
}

// fillFlexible sets what Azure decides of a Flexible set's profile. Its time is renewed by a
// change of the model alone; that one of the size counts is inferred.
func (c *call) fillFlexible(old, next *armcompute.VirtualMachineScaleSet) {
	v := next.Properties.VirtualMachineProfile
	v.TimeCreated = nil
	if val(next.Properties.OrchestrationMode) != armcompute.OrchestrationModeFlexible {
		return
	}
	if v.StorageProfile != nil {
		v.StorageProfile.OSDisk.DeleteOption = orDefault(v.StorageProfile.OSDisk.DeleteOption, armcompute.DiskDeleteOptionTypesDelete)
	}
	v.TimeCreated = ptr(c.now)
	if old != nil && modelKey(old) == modelKey(next) {
		v.TimeCreated = profileOf(old).TimeCreated
	}
}

// tagModel writes into a member's tag when the model was made that the member is made
// from; that a manual upgrade renews it is inferred.
func tagModel(vm *armcompute.VirtualMachineScaleSetVM, set *armcompute.VirtualMachineScaleSet) {
	at := profileOf(set).TimeCreated
	if at == nil {
		return
	}
	if vm.Tags == nil {
		vm.Tags = map[string]*string{}
	}
	vm.Tags["VirtualMachineProfileTimeCreated"] = ptr(at.UTC().Format("1/2/2006 3:04:05 PM -07:00"))
}

// hasNoProfile reports whether a Flexible set is made without a profile and a size: its
// members are machines that join it when they are made.
func hasNoProfile(set *armcompute.VirtualMachineScaleSet) bool {
	p := set.Properties
	return val(p.OrchestrationMode) == armcompute.OrchestrationModeFlexible && p.VirtualMachineProfile == nil && set.SKU == nil
}

func (c *call) checkWithoutProfile(old, next *armcompute.VirtualMachineScaleSet) error {
	if old != nil {
		if err := checkUnchanged(old, next); err != nil {
			return err
		}
	}
	if err := cmp.Or(checkFlexible(c, next), checkZones(c, next)); err != nil {
		return err
	}
	c.fillUniqueID(old, next)
	return c.fillIdentity(old, next)
}

// joinable finds the scale set that a new machine is to join. The refusals are inferred.
func (c *call) joinable(id string, vm *armcompute.VirtualMachine) (*entry, error) {
	set := c.s.findID(id)
	if set == nil || set.rt.name != setType {
		return nil, refuse(http.StatusNotFound, "NotFound",
			"The Virtual Machine Scale Set '%s' referenced by resource '%s' was not found.", id, c.id.String())
	}
	_, body := setOf(set)
	switch {
	case !isFlexible(set):
		return nil, badParameter("virtualMachineScaleSet",
			"Virtual Machine Scale Set '%s' has orchestration mode 'Uniform': no virtual machine can be added.", set.id.name())
	case vm.Properties.AvailabilitySet != nil:
		return nil, badParameter("availabilitySet",
			"A virtual machine cannot be in an availability set and in a Virtual Machine Scale Set.")
	case normLocation(val(body.Location)) != normLocation(val(vm.Location)):
		return nil, badParameter("virtualMachineScaleSet", "Virtual Machine Scale Set '%s' is in location '%s'.", set.id.name(), val(body.Location))
	}
	return set, nil
}

// join counts a machine among a scale set's members; that the capacity, if the set has
// one, grows by it is inferred. The caller holds the lock.
func (s *Server) join(x *instance, set *entry) {
	if set == nil {
		return
	}
	n, body := setOf(set)
	x.id = n.next
	n.next++
	if body.SKU != nil {
		body.SKU.Capacity = ptr(val(body.SKU.Capacity) + 1)
		s.stampEtag(body, set.key)
	}
}
