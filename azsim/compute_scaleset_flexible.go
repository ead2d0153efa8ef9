package azsim

import (
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
		if x, isInstance := e.extra.(*instance); isInstance && x.flex && x.set == set {
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

// memberHostName is the prefix and six characters: Kubernetes' cloud provider
// cuts off as many to find the set. That they are random, of base 36, is
// inferred.
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
		if x, _ := instanceOf(e); x.set != set {
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
// on one by one (documentation, "Orchestration modes API comparison").
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

// A bareInstance is all that the list below a Flexible set tells of a member.
type bareInstance struct{ e *entry }

func (b bareInstance) MarshalJSON() ([]byte, error) {
	x, body := instanceOf(b.e)
	return json.Marshal(map[string]any{
		"id":   x.set.id.child("virtualMachines", val(body.Name)).String(),
		"name": val(body.Name), "instanceId": val(body.Name), "location": val(body.Location), "type": instanceType,
	})
}

// listFlexible is the list below a Flexible set: names and no more, and refused
// where more is asked for. That the ids lie below the set is inferred.
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
	if val(p.SinglePlacementGroup) {
		return badParameter("singlePlacementGroup", "The value of parameter singlePlacementGroup is invalid: it must be false for Virtual Machine Scale Sets with orchestration mode 'Flexible'.")
	}
	if val(p.Overprovision) {
		return badParameter("overprovision", "Property 'overprovision' is not supported for Virtual Machine Scale Sets with orchestration mode 'Flexible'.")
	}
	if n := profileOf(next).NetworkProfile; n != nil && len(n.NetworkInterfaceConfigurations) > 0 && n.NetworkAPIVersion == nil {
		return badParameter("networkProfile.networkApiVersion", "Required parameter 'networkProfile.networkApiVersion' is missing (null).")
	}
	p.SinglePlacementGroup = ptr(false)
	p.PlatformFaultDomainCount = orDefault(p.PlatformFaultDomainCount, 1)
	if p.UpgradePolicy == nil {
		p.UpgradePolicy = &armcompute.UpgradePolicy{}
	}
	p.UpgradePolicy.Mode = orDefault(p.UpgradePolicy.Mode, armcompute.UpgradeModeManual)
	return nil
}

// notSimulated is the answer to a PUT of a Flexible set's member.
func notSimulated() error {
	return refuse(http.StatusNotImplemented, "NotImplemented", "azsim changes members of Flexible scale sets by PATCH only.")
}
