package k3s

import (
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/yamlfile"
)

// cloudflareText are Cloudflare's published ranges, IPv4 and IPv6, and the list's date.
//
//go:embed cloudflare.txt
var cloudflareText string

// Sources expands sources of Access to ranges in CIDR notation, by family, each once
// and sorted: the rules of a security group cannot mix families. own are the
// addresses or ranges that Own stands for.
func Sources(list, own []string) (v4, v6 []string, err error) {
	var all []netip.Prefix
	for _, source := range list {
		expanded := []string{source}
		switch source {
		case Own:
			if len(own) == 0 {
				return nil, nil, errors.New("cannot expand source own: no address; give --own-address or --own-address-from")
			}
			expanded = own
		case Cloudflare:
			_, ranges, _ := strings.Cut(cloudflareText, "\n")
			expanded = strings.Fields(ranges)
		case Any:
			expanded = []string{"0.0.0.0/0", "::/0"}
		}
		for _, text := range expanded {
			p, err := prefixOf(text)
			if err != nil {
				return nil, nil, fmt.Errorf("cannot expand source %s: %w", source, err)
			}
			all = append(all, p)
		}
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	for _, p := range slices.Compact(all) {
		// Azure refuses a rule whose sources overlap.
		if slices.ContainsFunc(all, func(o netip.Prefix) bool { return o.Bits() < p.Bits() && o.Contains(p.Addr()) }) {
			continue
		}
		if p.Addr().Is4() {
			v4 = append(v4, p.String())
		} else {
			v6 = append(v6, p.String())
		}
	}
	return v4, v6, nil
}

// prefixOf reads a range, or an address as a range of one.
func prefixOf(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" && !a.Is4In6() {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() {
		return p, fmt.Errorf("%s is not a source; use %s, %s, %s, or an address or range such as 192.0.2.0/24", yamlfile.Quote(text), Own, Cloudflare, Any)
	}
	if p.Masked() != p {
		return p, fmt.Errorf("%s is not the start of its range; use %s", text, p.Masked())
	}
	return p, nil
}
