package machine

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
)

const (
	podsOffset  = 64 // from the second number of the subnet to that of the pods
	firstSubnet = 128
	lastSubnet  = 191 // of that second number

	firstMachine = 4 // Azure keeps the first addresses of a subnet for itself
	lastMachine  = 250
)

// chooseSubnet returns the machines' network: the wanted one, if it is of the
// right form and the host does not have it, or, where none is wanted, the first
// free one. Which is tried first depends on the folder, so that labs that start
// at the same time seldom meet.
func chooseSubnet(wanted netip.Prefix, dir string, addresses func() ([]net.Addr, error)) (netip.Prefix, error) {
	taken, err := addresses()
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("learn the host's networks: %w", err)
	}
	if wanted.IsValid() {
		a := wanted.Masked().Addr()
		if !a.Is4() || a.As4()[0] != 10 || wanted.Bits() != 24 || a.As4()[1] > lastSubnet {
			return netip.Prefix{}, fmt.Errorf("machines' subnet %s: must be a /24 between 10.0.0.0 and 10.%d.255.0", wanted, lastSubnet)
		}
		if other := overlap(wanted, taken); other != "" {
			return netip.Prefix{}, fmt.Errorf("machines' subnet %s: the host has %s; set another, or none to have one chosen", wanted, other)
		}
		return wanted.Masked(), nil
	}
	const candidates = lastSubnet - firstSubnet + 1
	start := sha256.Sum256([]byte(dir))[0]
	for i := range candidates {
		second := firstSubnet + (int(start)+i)%candidates
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(second), 0, 0}), 24)
		if overlap(p, taken) == "" && overlap(podRange(p), taken) == "" {
			return p, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("machines' subnet: the host has addresses in all of 10.%d.0.0 to 10.%d.0.0", firstSubnet, lastSubnet)
}

// machineNumber is the number of the machine that has the address, its last octet;
// 0 without an address.
func machineNumber(subnet, address netip.Prefix) (int, error) {
	if !address.IsValid() {
		return 0, nil
	}
	a := address.Addr().Unmap()
	if subnet.Contains(a) {
		if n := int(a.As4()[3]); n >= firstMachine && n < 255 {
			return n, nil
		}
	}
	return 0, fmt.Errorf("address %s: not one for machines in the lab's subnet %s (host part %d to 254): put the virtual network's address space and subnets inside %s, or start azsim with --subnet", a, subnet, firstMachine, subnet)
}

// podRange is where the pods of all machines in a subnet are.
func podRange(subnet netip.Prefix) netip.Prefix {
	a := subnet.Masked().Addr().As4()
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{a[0], a[1] + podsOffset, 0, 0}), 16)
}

// overlap names the network of the host that p overlaps, "" if none does.
func overlap(p netip.Prefix, taken []net.Addr) string {
	for _, a := range taken {
		if q, err := netip.ParsePrefix(a.String()); err == nil && q.Overlaps(p) {
			return q.String()
		}
	}
	return ""
}
