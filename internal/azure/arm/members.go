package arm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

var _ azure.Members = (*Cloud)(nil)

// API versions of network interfaces. Those of scale sets have but this one
// (Azure's REST reference, "Network Interfaces - List Virtual Machine Scale Set
// Network Interfaces").
const (
	setInterfaceVersion = "2018-10-01"
	interfaceVersion    = "2024-05-01"
)

// maxInterfaces is far above what any VM size has.
const maxInterfaces = 32

// memberAnswer is what is wanted of a VirtualMachineScaleSetVM or a VirtualMachine as
// a member. The instance view's computer name is not: the guest says it.
type memberAnswer struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	Properties struct {
		VMID              string `json:"vmId"`
		ProvisioningState string `json:"provisioningState"`
		TimeCreated       moment `json:"timeCreated"`
		OSProfile         struct {
			ComputerName string `json:"computerName"`
		} `json:"osProfile"`
		NetworkProfile struct {
			NetworkInterfaces []*diskAnswer `json:"networkInterfaces"`
		} `json:"networkProfile"`
		VirtualMachineScaleSet *diskAnswer `json:"virtualMachineScaleSet"`
		InstanceView           struct {
			Statuses []*statusAnswer `json:"statuses"`
		} `json:"instanceView"`
	} `json:"properties"`
}

// interfaceAnswer is what is wanted of a NetworkInterface.
type interfaceAnswer struct {
	ID         string `json:"id"`
	Properties struct {
		Primary          bool       `json:"primary"`
		VirtualMachine   diskAnswer `json:"virtualMachine"`
		IPConfigurations []*struct {
			Properties struct {
				Primary          bool   `json:"primary"`
				PrivateIPAddress string `json:"privateIPAddress"`
			} `json:"properties"`
		} `json:"ipConfigurations"`
	} `json:"properties"`
}

// Member returns one instance: a request for it and, at the same time, one for its network
// interfaces; or, of a Flexible pool, one for each of those after it.
func (c *Cloud) Member(ctx context.Context, instance fleet.ResourceID) (fleet.Member, error) {
	const op = "get member"
	m, err := c.member(ctx, instance)
	if err != nil {
		return fleet.Member{}, failed(ctx, op, instance, err)
	}
	return m, nil
}

func (c *Cloud) member(ctx context.Context, instance fleet.ResourceID) (fleet.Member, error) {
	var vm memberAnswer
	if instance.Segment(typeScaleSet) == "" {
		p, err := c.at(instance, typeMachine)
		if err != nil {
			return fleet.Member{}, err
		}
		if err := c.get(ctx, c.address(p.id, computeVersion, "$expand", "instanceView"), &vm); err != nil {
			return fleet.Member{}, err
		}
		m, err := c.machineOf(&vm, instance)
		if err != nil {
			return m, err
		}
		own, err := c.interfacesOf(ctx, &vm)
		if err != nil {
			return fleet.Member{}, err
		}
		m.Addresses, m.OfPrimary, err = own.of(instance)
		return m, err
	}
	p, err := c.at(instance, typeInstance)
	if err != nil {
		return fleet.Member{}, err
	}
	var own interfaces
	if err := both(ctx, func(ctx context.Context) error {
		err := c.get(ctx, c.address(p.id, computeVersion, "$expand", "instanceView"), &vm)
		if err == nil && !instance.Equal(fleet.ResourceID(vm.ID)) {
			err = another(vm.ID)
		}
		return err
	}, func(ctx context.Context) (err error) {
		own, err = c.interfacesAt(ctx, instance+"/networkInterfaces", setInterfaceVersion)
		return err
	}); err != nil {
		return fleet.Member{}, err
	}
	m := memberOf(&vm, instance.Parent(), false)
	m.Addresses, m.OfPrimary, err = own.of(instance)
	return m, err
}

// both does two things at once and gives the first's error, or else the second's; both
// have ended when it returns.
func both(ctx context.Context, first, second func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- second(ctx) }()
	err := first(ctx)
	if err != nil {
		cancel()
	}
	return cmp.Or(err, <-done)
}

// machineOf reads a machine of a Flexible pool, without its addresses.
func (c *Cloud) machineOf(vm *memberAnswer, instance fleet.ResourceID) (fleet.Member, error) {
	if !instance.Equal(fleet.ResourceID(vm.ID)) {
		return fleet.Member{}, another(vm.ID)
	}
	set := vm.Properties.VirtualMachineScaleSet
	if set == nil || set.ID == "" {
		return fleet.Member{}, &fleet.Error{Kind: fleet.KindInvalid, Err: errors.New("a virtual machine of no scale set")}
	}
	if _, err := c.at(fleet.ResourceID(set.ID), typeScaleSet); err != nil {
		return fleet.Member{}, err
	}
	return memberOf(vm, fleet.ResourceID(set.ID), true), nil
}

// interfacesOf reads a virtual machine's network interfaces one by one. One that was
// taken off meanwhile may be another machine's by now.
func (c *Cloud) interfacesOf(ctx context.Context, vm *memberAnswer) (interfaces, error) {
	if len(vm.Properties.NetworkProfile.NetworkInterfaces) > maxInterfaces {
		return nil, tooMany()
	}
	own := interfaces{}
	for _, ref := range vm.Properties.NetworkProfile.NetworkInterfaces {
		if ref == nil {
			continue
		}
		id := fleet.ResourceID(ref.ID)
		if !isInterface(id) {
			return nil, &fleet.Error{Kind: fleet.KindInvalid, Err: fmt.Errorf("%q is not the id of a network interface", short(ref.ID))}
		}
		nic := &interfaceAnswer{}
		switch err := failed(ctx, "get network interface", id, c.get(ctx, c.address(id, interfaceVersion), nic)); {
		case fleet.Is(err, fleet.KindNotFound): // the machine is there all the same
		case err != nil:
			return nil, err
		default:
			own.add(nic)
		}
	}
	return own, nil
}

// Members lists a pool's instances: a request for the pool, which says what it is, and
// then at the same time one for each page of instances, and one for each page of
// network interfaces; of a Flexible pool these are all of its resource group.
func (c *Cloud) Members(ctx context.Context, pool fleet.ResourceID, views bool) ([]fleet.Member, error) {
	const op = "list members"
	list, err := c.members(ctx, pool, views)
	if err != nil {
		return nil, failed(ctx, op, pool, err)
	}
	return list, nil
}

func (c *Cloud) members(ctx context.Context, pool fleet.ResourceID, views bool) ([]fleet.Member, error) {
	p, err := c.at(pool, typeScaleSet)
	if err != nil {
		return nil, err
	}
	var set setAnswer
	if err := c.get(ctx, c.address(p.id, computeVersion), &set); err != nil {
		return nil, err
	}
	if !pool.Equal(fleet.ResourceID(set.ID)) {
		return nil, another(set.ID)
	}
	flexible := set.flexible()
	var out []fleet.Member
	seen := map[string]bool{} // by id, lower case
	take := func(vm *memberAnswer) error {
		if flexible && (vm.Properties.VirtualMachineScaleSet == nil || !pool.Equal(fleet.ResourceID(vm.Properties.VirtualMachineScaleSet.ID))) {
			return nil // should the filter have been ignored
		}
		id := fleet.ResourceID(vm.ID)
		typ, within := typeInstance, id.Parent().Equal(pool)
		if flexible {
			typ, within = typeMachine, id.Group().Equal(pool.Group())
		}
		if _, err := c.at(id, typ); err != nil || !within {
			return another(vm.ID)
		}
		key := strings.ToLower(vm.ID)
		if !seen[key] { // pages may move meanwhile
			seen[key] = true
			out = append(out, memberOf(vm, pool, flexible))
		}
		return nil
	}
	list, version := pool+"/networkInterfaces", setInterfaceVersion
	if flexible {
		list, version = pool.Group()+"/providers/Microsoft.Network/networkInterfaces", interfaceVersion
	}
	var all interfaces
	if err := both(ctx, func(ctx context.Context) error {
		return c.eachMember(ctx, p, pool, flexible, views, take)
	}, func(ctx context.Context) (err error) {
		all, err = c.interfacesAt(ctx, list, version)
		return err
	}); err != nil {
		return nil, err
	}
	for i := range out {
		if out[i].Addresses, out[i].OfPrimary, err = all.of(out[i].Instance); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// eachMember pages through a pool's instances.
func (c *Cloud) eachMember(ctx context.Context, p place, pool fleet.ResourceID, flexible, views bool, do func(*memberAnswer) error) error {
	return list(ctx, c, c.instances(p, pool, flexible, views), do)
}

// isInterface tells ids that can be asked for from what an answer may hold.
func isInterface(id fleet.ResourceID) bool {
	parts := strings.Split(string(id), "/")
	want := []string{"", "subscriptions", "*", "resourceGroups", "*", "providers", "Microsoft.Network", "networkInterfaces", "*"}
	if len(parts) != len(want) {
		return false
	}
	for i, w := range want {
		if w == "*" && !fleet.ValidName(parts[i]) || w != "*" && !strings.EqualFold(parts[i], w) {
			return false
		}
	}
	return true
}

// interfacesAt pages through a list of network interfaces, which armcompute has no
// client for. A list that is not found has none: whether the machines exist is not
// asked here, and Network knows of them later than Compute does.
func (c *Cloud) interfacesAt(ctx context.Context, at fleet.ResourceID, version string) (interfaces, error) {
	all := interfaces{}
	cause := list(ctx, c, c.address(at, version), func(nic *interfaceAnswer) error {
		all.add(nic)
		return nil
	})
	switch err := failed(ctx, "list network interfaces", at, cause); {
	case !fleet.Is(err, fleet.KindNotFound):
		return all, err
	case errors.As(cause, new(brokenOffError)):
		return nil, &fleet.Error{Kind: fleet.KindTransient, Err: fmt.Errorf("the list of network interfaces broke off: %w", err)}
	}
	return all, nil
}

// another is for an answer about something else than what was asked for: nobody's
// identity is taken from it.
func another(id string) error {
	return &fleet.Error{Kind: fleet.KindInvalid, Err: fmt.Errorf("the answer is about %q", short(id))}
}

func tooMany() error {
	return &fleet.Error{Kind: fleet.KindInvalid, Err: fmt.Errorf("more than %d network interfaces of one machine", maxInterfaces)}
}

func memberOf(vm *memberAnswer, pool fleet.ResourceID, flexible bool) fleet.Member {
	p := &vm.Properties
	m := fleet.Member{
		Instance: fleet.ResourceID(vm.ID), Pool: pool, Flexible: flexible, Name: short(vm.Name),
		ProvisioningState: short(p.ProvisioningState), Created: p.TimeCreated.Time,
	}
	// What is not of its form is not known: whoever needs it refuses.
	if id := strings.ToLower(p.VMID); isUUID(id) {
		m.VMID = id
	}
	if isHostName(p.OSProfile.ComputerName) {
		m.HostName = p.OSProfile.ComputerName
	}
	for _, st := range p.InstanceView.Statuses {
		if st == nil {
			continue
		}
		if kind, state, ok := strings.Cut(st.Code, "/"); ok && strings.EqualFold(kind, "PowerState") {
			m.Power = fleet.PowerState(strings.ToLower(short(state)))
		}
	}
	return m
}

func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i, r := range s {
		switch {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if r != '-' {
				return false
			}
		case (r < '0' || r > '9') && (r < 'a' || r > 'f'):
			return false
		}
	}
	return true
}

// isHostName reports whether s in lower case can be a Node's name without dots, as
// Azure's rules for computer names have it.
func isHostName(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-'
	})
}

// interfaces are the network interfaces of machines by the machine's id, lower case.
type interfaces map[string][]machineInterface

// A machineInterface is what is kept of one.
type machineInterface struct {
	primary   bool
	addresses []netip.Addr
}

func (i interfaces) add(nic *interfaceAnswer) {
	if nic.Properties.VirtualMachine.ID == "" {
		return // of nobody
	}
	key := strings.ToLower(nic.Properties.VirtualMachine.ID)
	if len(i[key]) <= maxInterfaces { // one more, to tell
		i[key] = append(i[key], machineInterface{nic.Properties.Primary, addressesOf(nic)})
	}
}

// of returns a machine's addresses, the primary interface's first, and the number of
// those. A single interface counts as primary.
func (i interfaces) of(machine fleet.ResourceID) (out []netip.Addr, ofPrimary int, err error) {
	own := i[strings.ToLower(string(machine))]
	if len(own) > maxInterfaces {
		return nil, 0, tooMany()
	}
	for _, primary := range []bool{true, false} {
		for _, nic := range own {
			if (nic.primary || len(own) == 1) != primary {
				continue
			}
			for _, ip := range nic.addresses {
				if !slices.Contains(out, ip) {
					out = append(out, ip)
				}
			}
		}
		if primary {
			ofPrimary = len(out)
		}
	}
	return out, ofPrimary, nil
}

// addressesOf returns the machine's own addresses of an interface. Azure's CNI and others
// give pods those of the secondary configurations, so these are none of the machine's;
// but an IPv6 configuration is never a primary one ("Add a dual-stack network to a
// virtual machine"), so where an interface has just one it counts.
func addressesOf(nic *interfaceAnswer) []netip.Addr {
	var primary netip.Addr
	var six []netip.Addr
	for _, conf := range nic.Properties.IPConfigurations {
		if conf == nil {
			continue
		}
		ip, err := netip.ParseAddr(conf.Properties.PrivateIPAddress)
		if err != nil || ip.Zone() != "" || !reachable(ip) {
			continue // none is given yet, or none that a machine could have
		}
		switch {
		case conf.Properties.Primary || len(nic.Properties.IPConfigurations) == 1:
			primary = ip.Unmap()
		case ip.Is6() && !ip.Is4In6() && len(six) < 2:
			six = append(six, ip)
		}
	}
	var out []netip.Addr
	if primary.IsValid() {
		out = append(out, primary)
	}
	if len(six) == 1 {
		out = append(out, six[0])
	}
	return out
}

// reachable leaves out what would lead elsewhere than to the machine: our own host,
// the metadata service, everybody.
func reachable(ip netip.Addr) bool {
	ip = ip.Unmap()
	return !ip.IsUnspecified() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && !ip.IsMulticast() && ip != netip.AddrFrom4([4]byte{255, 255, 255, 255}) && ip != netip.AddrFrom4([4]byte{168, 63, 129, 16})
}
