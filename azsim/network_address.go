package azsim

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// Each IP configuration has an address in its subnet for as long as it is there. A
// subnet that is not stored is an id and nothing else: each that an instance names
// gets a range of its own, in the order in which they are first named.

const (
	firstHost   = 4  // Azure keeps the first four addresses of a subnet, and the last
	subnetBits  = 16 // of IPv4: 10.n.0.0/16
	subnetBits6 = 64 // of IPv6: fd00:n::/64
	maxSubnets  = 224
)

// A subnet is a range of addresses.
type subnet struct {
	stored netip.Prefix // of a stored subnet; invalid for another, which has a number
	number int
	used   map[int]bool // hosts, by their number in the range
	low    int          // all hosts below it are used
}

func (n *subnet) prefix(v6 bool) netip.Prefix {
	if v6 {
		return netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 3: byte(n.number)}), subnetBits6)
	}
	if n.stored.IsValid() {
		return n.stored
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n.number), 0, 0}), subnetBits)
}

// last is the highest host that may be given away.
func (n *subnet) last() int { return 1<<(32-n.prefix(false).Bits()) - 2 }

func (n *subnet) address(host int, v6 bool) netip.Addr {
	if v6 {
		a := n.prefix(true).Addr().As16()
		a[14], a[15] = byte(host>>8), byte(host)
		return netip.AddrFrom16(a)
	}
	a := n.prefix(false).Addr().As4()
	binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(a[:])+uint32(host)) // #nosec G115 -- below 1<<32
	return netip.AddrFrom4(a)
}

// take returns the lowest free host, 0 where the subnet is full.
func (n *subnet) take() int {
	for h := n.low; h <= n.last(); h++ {
		if !n.used[h] {
			n.used[h], n.low = true, h+1
			return h
		}
	}
	return 0
}

func (n *subnet) free(host int) {
	delete(n.used, host)
	n.low = min(n.low, host)
}

// A nic is one network interface of an instance.
type nic struct {
	name    string
	primary bool
	mac     string // "000D3A1BC721"
	configs []ipConfig
}

// macText is the address as Azure shows it.
func (n nic) macText() string {
	var pairs []string
	for m := range slices.Chunk([]byte(n.mac), 2) {
		pairs = append(pairs, string(m))
	}
	return strings.Join(pairs, "-")
}

// An ipConfig is one IP configuration of a network interface.
type ipConfig struct {
	name     string
	primary  bool
	subnetID string
	subnet   *subnet
	host     int // 0: none was left
	v6       bool
}

func (c ipConfig) address() netip.Prefix {
	if c.host == 0 {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(c.subnet.address(c.host, c.v6), c.subnet.prefix(c.v6).Bits())
}

// subnetOf is the range of the subnet with that id. The caller holds the lock.
func (s *Server) subnetOf(id string) *subnet {
	if s.scaleSets.subnets == nil {
		s.scaleSets.subnets = map[string]*subnet{}
	}
	key := strings.ToLower(id)
	n := s.scaleSets.subnets[key]
	if n == nil {
		n = &subnet{number: len(s.scaleSets.subnets) % maxSubnets, used: map[int]bool{}, low: firstHost}
		if e := s.entries[key]; e != nil {
			n.stored, _ = subnetPrefix(e.body.(object))
		}
		s.scaleSets.subnets[key] = n
	}
	return n
}

// connect gives a new instance its network interfaces: those of its recipe, the
// primary one first, or a single one where that has none. The caller holds the lock.
func (s *Server) connect(x *instance) {
	var configs []*armcompute.VirtualMachineScaleSetNetworkConfiguration
	if n := x.profile.NetworkProfile; n != nil {
		configs = n.NetworkInterfaceConfigurations
	}
	if len(configs) == 0 {
		configs = []*armcompute.VirtualMachineScaleSetNetworkConfiguration{{Name: ptr("nic")}}
	}
	tail := strings.ToUpper(strings.ReplaceAll(x.vmID, "-", "")[20:])
	for i, c := range configs {
		n := nic{name: val(c.Name), primary: len(configs) == 1, mac: tail}
		if i > 0 {
			n.mac = tail[:10] + fmt.Sprintf("%02X", i)
		}
		var ips []*armcompute.VirtualMachineScaleSetIPConfiguration
		if c.Properties != nil {
			n.primary = n.primary || val(c.Properties.Primary)
			ips = c.Properties.IPConfigurations
		}
		if len(ips) == 0 {
			ips = []*armcompute.VirtualMachineScaleSetIPConfiguration{{Name: ptr("ipconfig")}}
		}
		for _, ip := range ips {
			one := ipConfig{name: val(ip.Name), primary: len(ips) == 1}
			if p := ip.Properties; p != nil {
				one.primary = one.primary || val(p.Primary)
				one.v6 = val(p.PrivateIPAddressVersion) == armcompute.IPVersionIPv6
				if p.Subnet != nil {
					one.subnetID = val(p.Subnet.ID)
				}
			}
			n.configs = append(n.configs, one)
		}
		toFront(n.configs, func(c ipConfig) bool { return c.primary })
		x.nics = append(x.nics, n)
	}
	toFront(x.nics, func(n nic) bool { return n.primary })
	for _, n := range x.nics {
		for i := range n.configs {
			c := &n.configs[i]
			c.subnet = s.subnetOf(c.subnetID)
			c.host = c.subnet.take()
		}
	}
}

// disconnect gives an instance's addresses back. The caller holds the lock.
func (x *instance) disconnect() {
	for _, n := range x.nics {
		for _, c := range n.configs {
			if c.host != 0 && x.plain == nil {
				c.subnet.free(c.host)
			}
		}
	}
	x.nics = nil
}

// An Addresser is a Substrate whose computers have addresses of their own. It is
// asked under the Server's lock: it answers at once, and does not call the Server.
type Addresser interface {
	// PrivateAddress is the primary private address of a computer, with the length of
	// its subnet's prefix. false leaves it to the Server, which has made one up; an
	// invalid prefix says that the computer has none yet.
	PrivateAddress(id string) (netip.Prefix, bool)
}

// addressOf is an IP configuration's address as it is, with its subnet's prefix. The
// caller holds the lock.
func (s *Server) addressOf(e *entry, n, c int) netip.Prefix {
	x, _ := instanceOf(e)
	if a, ok := s.Substrate.(Addresser); ok && n == 0 && c == 0 {
		if p, own := a.PrivateAddress(e.id.key()); own {
			return p
		}
	}
	return x.nics[n].configs[c].address()
}

// metadataNetwork is the part "network" of the metadata service's document. The
// caller holds the lock.
func (s *Server) metadataNetwork(e *entry) map[string]any {
	x, _ := instanceOf(e)
	all := []any{}
	for i, n := range x.nics {
		v4, v6, nets := []any{}, []any{}, []any{}
		for j, c := range n.configs {
			a := s.addressOf(e, i, j)
			text := ""
			if a.IsValid() {
				text = a.Addr().String()
			}
			if c.v6 {
				v6 = append(v6, map[string]any{"privateIpAddress": text})
				continue
			}
			v4 = append(v4, map[string]any{"privateIpAddress": text, "publicIpAddress": ""})
			if net := a.Masked(); a.IsValid() && len(nets) == 0 {
				nets = append(nets, map[string]any{"address": net.Addr().String(), "prefix": strconv.Itoa(net.Bits())})
			}
		}
		all = append(all, map[string]any{"ipv4": map[string]any{"ipAddress": v4, "subnet": nets}, "ipv6": map[string]any{"ipAddress": v6}, "macAddress": n.mac})
	}
	return map[string]any{"interface": all}
}
