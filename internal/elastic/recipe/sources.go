package recipe

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/ortet/ortet/internal/elastic"
)

// sources expands sources of Access to prefixes, by family.
func sources(from, own []string) (v4, v6 []string, err error) {
	for _, s := range from {
		addresses := []string{s}
		switch s {
		case elastic.Own:
			addresses = own
		case elastic.Any:
			addresses = []string{"0.0.0.0/0", "::/0"}
		case elastic.Cloudflare:
			return nil, nil, errors.New("cloudflare: not implemented")
		}
		for _, a := range addresses {
			p, err := netip.ParsePrefix(a)
			if err != nil {
				ip, err := netip.ParseAddr(a)
				if err != nil {
					return nil, nil, err
				}
				p = netip.PrefixFrom(ip, ip.BitLen())
			}
			if p.Addr().Is4() {
				v4 = append(v4, p.String())
			} else {
				v6 = append(v6, p.String())
			}
		}
	}
	slices.Sort(v4)
	slices.Sort(v6)
	return slices.Compact(v4), slices.Compact(v6), nil
}
