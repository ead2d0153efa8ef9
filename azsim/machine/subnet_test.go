package machine

import (
	"net"
	"net/netip"
	"testing"
)

func addresses(cidrs ...string) func() ([]net.Addr, error) {
	return func() ([]net.Addr, error) {
		var all []net.Addr
		for _, c := range cidrs {
			ip, n, err := net.ParseCIDR(c)
			if err != nil {
				return nil, err
			}
			n.IP = ip
			all = append(all, n)
		}
		return all, nil
	}
}

func TestChooseSubnet(t *testing.T) {
	for _, tc := range []struct {
		name, wanted string
		taken        []string
		ok           bool
	}{
		{"wanted and free", "10.140.0.0/24", []string{"192.168.1.5/24"}, true},
		{"wanted and taken", "10.140.0.0/24", []string{"10.140.0.2/24"}, false},
		{"taken by a wider one", "10.140.0.0/24", []string{"10.0.0.1/8"}, false},
		{"too wide", "10.140.0.0/16", nil, false},
		{"no room for pods", "10.192.0.0/24", nil, false},
		{"elsewhere", "192.168.0.0/24", nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := chooseSubnet(netip.MustParsePrefix(tc.wanted), "/lab", addresses(tc.taken...))
			if (err == nil) != tc.ok {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}

	first, err := chooseSubnet(netip.Prefix{}, "/lab", addresses())
	if err != nil {
		t.Fatal(err)
	}
	second, err := chooseSubnet(netip.Prefix{}, "/lab", addresses(first.String()))
	if err != nil || second == first {
		t.Errorf("with %v taken: %v, %v", first, second, err)
	}
	if _, err := chooseSubnet(netip.Prefix{}, "/lab", addresses("10.0.0.1/8")); err == nil {
		t.Error("chose a subnet where none is free")
	}
	if podRange(first).Overlaps(first) {
		t.Errorf("pods of %v have addresses of machines", first)
	}
}

func TestMachineNumber(t *testing.T) {
	subnet := netip.MustParsePrefix("10.151.7.0/24")
	for address, want := range map[string]int{
		"10.151.7.4/26": 4, "10.151.7.254/24": 254,
		"10.151.7.0/26": 0, "10.151.7.3/26": 0, "10.151.7.255/24": 0, "10.151.8.4/24": 0, "fd00::4/64": 0,
	} {
		n, err := machineNumber(subnet, netip.MustParsePrefix(address))
		if n != want || (err == nil) != (want != 0) {
			t.Errorf("%s: %d, %v, want %d", address, n, err, want)
		}
	}
	if n, err := machineNumber(subnet, netip.Prefix{}); n != 0 || err != nil {
		t.Errorf("without an address: %d, %v", n, err)
	}
}
