package azsim

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A Publisher is a Substrate that relays public addresses to its computers.
type Publisher interface {
	// Publish lets what comes to the TCP ports of a public address reach the computer
	// of that id; without ports nothing does any more.
	Publish(public netip.Addr, computer string, ports []int) error
}

// maxPublished is how many ports of a public address are published at most.
const maxPublished = 64

type publication struct {
	computer string
	ports    []int
}

// republish gives a Substrate that is a Publisher what has changed of the ports of
// public addresses. It is called without the lock. What cannot be published is logged:
// the ARM resources are right all the same.
func (s *Server) republish() {
	sub, ok := s.Substrate.(Publisher)
	if !ok {
		return
	}
	s.publishing.Lock()
	defer s.publishing.Unlock()
	var now map[netip.Addr]publication
	s.locked(func() { now = s.publications() })
	give := func(a netip.Addr, p publication) {
		if err := sub.Publish(a, p.computer, p.ports); err != nil {
			s.Log.Error("public address is not reachable", "address", a, "error", err)
		}
	}
	for a, was := range s.published {
		if now[a].computer != was.computer {
			give(a, publication{was.computer, nil})
		}
	}
	for a, p := range now {
		if was := s.published[a]; was.computer != p.computer || !slices.Equal(was.ports, p.ports) {
			give(a, p)
		}
	}
	s.published = now
}

// republished is republish as the work of an operation.
func (s *Server) republished(context.Context) error {
	s.republish()
	return nil
}

// publications are the public addresses of virtual machines with what reaches them.
// The caller holds the lock.
func (s *Server) publications() map[netip.Addr]publication {
	out := map[netip.Addr]publication{}
	for _, nic := range s.ofType(nicType, s.Subscription, "") {
		vm := s.machineWith(nic)
		if vm == nil {
			continue
		}
		if x, _ := instanceOf(vm); x.osDisk == nil || x.leaves() {
			continue
		}
		list, _ := at(nic.body, "properties", "ipConfigurations").([]any)
		for _, config := range list {
			public := s.findID(text(config, "properties", "publicIPAddress", "id"))
			if public == nil {
				continue
			}
			a, err := netip.ParseAddr(text(public.body, "properties", "ipAddress"))
			ports := s.openPorts(nic, text(config, "properties", "subnet", "id"))
			if err == nil && len(ports) > 0 {
				out[a] = publication{vm.key, ports}
			}
		}
	}
	return out
}

// openPorts lists the TCP ports that may be reached from outside: by the security
// group of the interface and by that of its subnet, of which a Standard address
// needs one at least.
func (s *Server) openPorts(nic *entry, subnet string) []int {
	var groups [][]object
	for _, e := range []*entry{nic, s.findID(subnet)} {
		if e == nil {
			continue
		}
		if g := s.findID(text(e.body, "properties", "networkSecurityGroup", "id")); g != nil {
			groups = append(groups, s.inboundRules(g))
		}
	}
	var ports []int
	for _, rules := range groups {
		for _, r := range rules {
			for _, one := range portRanges(r) {
				for p := one[0]; p <= one[1] && one[1]-one[0] < maxPublished; p++ {
					open := !slices.ContainsFunc(groups, func(rules []object) bool { return !allowed(rules, p) })
					if open && !slices.Contains(ports, p) {
						ports = append(ports, p)
					}
				}
			}
		}
	}
	slices.Sort(ports)
	return ports[:min(len(ports), maxPublished)]
}

// inboundRules are the rules of a security group for TCP from outside, those that
// count first at the front. A rule that denies counts where it denies everybody.
func (s *Server) inboundRules(group *entry) []object {
	var out []object
	for _, e := range s.children(group.id, "securityRules") {
		p, _ := at(e.body, "properties").(object)
		protocol := strings.ToLower(text(p, "protocol"))
		if !strings.EqualFold(text(p, "direction"), "Inbound") || protocol != "tcp" && protocol != "*" {
			continue
		}
		allow := strings.EqualFold(text(p, "access"), "Allow")
		sources := append(texts(p, "sourceAddressPrefixes"), text(p, "sourceAddressPrefix"))
		if slices.ContainsFunc(sources, func(source string) bool {
			cidr, err := netip.ParsePrefix(source)
			_, one := netip.ParseAddr(source)
			everybody := source == "*" || strings.EqualFold(source, "Internet") || err == nil && cidr.Bits() == 0
			return everybody || allow && (err == nil || one == nil)
		}) {
			out = append(out, p)
		}
	}
	slices.SortStableFunc(out, func(a, b object) int { return int(number(a, "priority") - number(b, "priority")) })
	return out
}

// portRanges are the destination ports of a rule.
func portRanges(rule object) [][2]int {
	var out [][2]int
	for _, one := range append(texts(rule, "destinationPortRanges"), text(rule, "destinationPortRange")) {
		if one == "*" {
			out = append(out, [2]int{0, 65535})
			continue
		}
		low, high, isRange := strings.Cut(one, "-")
		if !isRange {
			high = low
		}
		a, err1 := strconv.Atoi(low)
		b, err2 := strconv.Atoi(high)
		if err1 == nil && err2 == nil {
			out = append(out, [2]int{a, b})
		}
	}
	return out
}

// allowed says whether the first rule about a port allows it.
func allowed(rules []object, port int) bool {
	for _, r := range rules {
		if slices.ContainsFunc(portRanges(r), func(one [2]int) bool { return one[0] <= port && port <= one[1] }) {
			return strings.EqualFold(text(r, "access"), "Allow")
		}
	}
	return false
}
