package k3s

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ortet/ortet/internal/yamlfile"
)

// Values of AccessRule.To, which are names of subnets and of their security groups.
const (
	ToServers = "servers"
	ToAgents  = "agents"
)

// ruleNames are the security rules that Ortet makes of its own, of this version and of
// earlier ones: names of earlier ones stay here, for up to replace their rules.
var ruleNames = []string{
	"ssh-ipv4", "ssh-ipv6", "api-ipv4", "api-ipv6", "ingress-ipv4", "ingress-ipv6", "cluster-from-agents", "callback-from-servers",
	"ssh-from-servers", "kubelet", "vxlan", "deny-virtual-network",
}

// IsRuleName reports whether a security rule is Ortet's own. Azure's names have no case.
func IsRuleName(name string) bool {
	return slices.ContainsFunc(ruleNames, func(own string) bool { return strings.EqualFold(own, name) })
}

// private are the ranges that the internet does not route: RFC 1918, RFC 6598, RFC 4193.
var private = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("fc00::/7"),
}

// PrivateRanges returns those of sources that are ranges or addresses outside the internet.
func PrivateRanges(sources []string) (all []string) {
	for _, source := range sources {
		q, err := prefixOf(source)
		within := func(r netip.Prefix) bool { return r.Bits() <= q.Bits() && r.Contains(q.Addr()) }
		if err == nil && slices.ContainsFunc(private, within) {
			all = append(all, source)
		}
	}
	return all
}

// ways checks that there is a way to the server without its public address, and the programs of
// a tailnet.
func (p parser) ways(s *Spec) {
	a := s.Access
	if a.Tailscale != nil && s.Artifacts.Tailscale == nil {
		p.At("spec.access.tailscale", "needs Tailscale's programs; "+
			"add spec.artifacts.tailscale, the block that ortet cluster artifacts --tailscale FILE prints")
	}
	if a.PublicAddress != None {
		return
	}
	const at = "spec.access.publicAddress"
	if s.Network.Outbound == Addresses {
		p.At(at, "none leaves the server no way out, since spec.network.outbound: addresses has no NAT gateway; "+
			"use static, or outbound: gateway")
	}
	inside := len(a.SSH) > 0 && len(PrivateRanges(a.SSH)) == len(a.SSH) && len(PrivateRanges(a.API)) == len(a.API)
	if a.Tailscale == nil && !inside {
		p.At(at, "none needs another way to the server; add spec.access.tailscale, "+
			"or have private ranges alone in spec.access.ssh and spec.access.api")
	}
}

// accessRules checks the rules that a security group gets besides Ortet's own.
func (p parser) accessRules(s *Spec) {
	names, priorities := map[string]bool{}, map[string]bool{}
	for i, r := range s.Access.Rules {
		at := fmt.Sprintf("spec.access.rules[%d]", i)
		name, priority := strings.ToLower(r.To+" "+r.Name), fmt.Sprint(r.To, r.Priority)
		switch {
		case IsRuleName(r.Name):
			p.At(at+".name", yamlfile.Quote(r.Name)+" is a rule of Ortet's own; use another name")
		case names[name]:
			p.At(at+".name", yamlfile.Quote(r.Name)+" is the name of another rule to "+r.To+"; use another name")
		}
		if priorities[priority] {
			p.At(at+".priority", fmt.Sprintf("%d is the priority of another rule to %s; use another", r.Priority, r.To))
		}
		names[name], priorities[priority] = true, true
		for j, text := range r.Ports {
			p.rulePorts(fmt.Sprintf("%s.ports[%d]", at, j), text, ownPorts(s, r))
		}
		for j, source := range r.From {
			at := fmt.Sprintf("%s.from[%d]", at, j)
			if strings.Contains(source, ":") {
				p.At(at, yamlfile.Quote(source)+" is of IPv6, and the cluster's network is of IPv4; delete it")
			} else {
				p.source(at, source)
			}
		}
	}
}

// ownPorts are the ports of Ortet's own rules that a rule must leave to them.
func ownPorts(s *Spec, r AccessRule) []int {
	tcp := []int{s.Access.SSHPort, 10250}
	if r.To == ToAgents {
		tcp = append(tcp, 340)
	} else if tcp = append(tcp, 80, 443, 6443, 8443); s.Options.PrivateRegistry {
		tcp = append(tcp, 5000)
	}
	switch r.Protocol {
	case "Tcp":
		return tcp
	case "Udp":
		return []int{8472}
	}
	return append(tcp, 8472)
}

func (p parser) rulePorts(at, text string, own []int) {
	low, high, isRange := strings.Cut(text, "-")
	first, err := strconv.Atoi(low)
	last := first
	if err == nil && isRange {
		last, err = strconv.Atoi(high)
	}
	if err != nil || first < 1 || first > last || last > 65535 {
		p.At(at, yamlfile.Quote(text)+" is not a port or a range of ports; use 1 to 65535, such as 8000-8100")
		return
	}
	for _, port := range own {
		if first <= port && port <= last {
			p.At(at, fmt.Sprintf("%s has port %d, for which Ortet has a rule; leave it out, and use access.ssh, access.api or access.ingress",
				text, port))
		}
	}
}
