package lifecycle

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/workflow"
)

// dialFor is the time in which a port that the server listens on has to be reached.
const dialFor = time.Minute

// preconditionFailed is Azure's code where a resource has another ETag than that of If-Match.
const preconditionFailed = "PreconditionFailed"

func isSSHRule(name string) bool {
	return k3s.IsRuleName(name) && strings.HasPrefix(strings.ToLower(name), "ssh-")
}

// isAccessRule reports whether a rule is of spec.access.ssh, api or ingress.
func isAccessRule(name string) bool {
	return k3s.IsRuleName(name) && strings.Contains(strings.ToLower(name), "-ipv")
}

// sourcesOf are the sorted ranges of a group's rules of spec.access.NAME; nil is no group.
func sourcesOf(group *resource, name string) (all []string) {
	if group == nil {
		return nil
	}
	for _, r := range group.Properties.SecurityRules {
		if isAccessRule(r.Name) && strings.HasPrefix(strings.ToLower(r.Name), name+"-") {
			all = append(append(all, r.Properties.From...), strings.Fields(r.Properties.One)...)
		}
	}
	slices.Sort(all)
	return all
}

// sshPorts are the ports that a security group's rules of SSH open; nil is no group.
func sshPorts(group *resource) (ports []string) {
	if group == nil {
		return nil
	}
	for _, r := range group.Properties.SecurityRules {
		if isSSHRule(r.Name) {
			ports = append(append(ports, r.Properties.Ports...), strings.Fields(r.Properties.Port)...)
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

func (m *Manager) sshPort() string { return strconv.Itoa(m.Cluster.Spec.Access.SSHPort) }

// formerPorts are the ports of SSH that a security group opens beside that of cluster.yaml.
func (m *Manager) formerPorts(o *observation, to string) []string {
	return slices.DeleteFunc(sshPorts(o.security[to]), func(port string) bool { return port == m.sshPort() })
}

// closePorts closes former ports of SSH of a server that runs by its settings. Deployments
// leave them open: what fails halfway must not close the port that a machine listens on. It
// returns a note about agents that still listen on a former port.
func (m *Manager) closePorts(ctx context.Context, behind bool) (note string, err error) {
	r := &reads{m: m}
	o := &observation{security: m.securityGroups(ctx, r)}
	if r.err != nil {
		return "", r.err
	}
	if former := m.formerPorts(o, k3s.ToServers); len(former) > 0 {
		c := m.begin("access", "Close the former port of SSH")
		if err = m.dialServer(ctx, c, former); err == nil {
			err = m.closeGroup(ctx, k3s.ToServers, nil)
		}
		if c.end(err); err != nil {
			return "", err
		}
	}
	former := m.formerPorts(o, k3s.ToAgents)
	switch {
	case len(former) == 0:
		return "", nil
	case behind:
		return fmt.Sprintf("agents listen for SSH on port %s until they are reimaged; the next ortet cluster up closes it then", strings.Join(former, ", ")), nil
	}
	return "", m.closeGroup(ctx, k3s.ToAgents, nil)
}

// dialServer connects to the server's port of SSH, if this computer is among its sources.
func (m *Manager) dialServer(ctx context.Context, c *clock, former []string) error {
	e, err := m.Entrance(ctx)
	sources := m.Cluster.Spec.Access.SSH
	among := slices.Contains(sources, k3s.Any) || len(m.OwnAddresses) > 0 && len(m.shutOut("ssh", sources)) == 0
	if err != nil || m.Dial == nil || e == nil || len(e.Ways) == 0 {
		return err
	}
	way := e.Ways[0]
	if public := e.Ways[len(e.Ways)-1]; public.Via == ViaPublic {
		if way = public; !among {
			return nil
		}
	}
	address, deadline := net.JoinHostPort(way.Address, m.sshPort()), m.Now().Add(dialFor)
	c.report(workflow.EventProgress, "connecting to "+address)
	return m.poll(ctx, func() (bool, error) {
		err := m.Dial(ctx, address, e.HostKey)
		if err == nil || ctx.Err() != nil || m.Now().Before(deadline) {
			return err == nil, ctx.Err()
		}
		return false, &workflow.Outcome{Exit: workflow.ExitNeedsPerson, Step: "access", Err: fmt.Errorf("cannot connect to %s, where the server listens for SSH: %w", address, err), Left: []string{
			"port " + strings.Join(former, ", ") + " stays open in the security group beside " + m.sshPort(),
			"open port " + m.sshPort() + " in the firewall between, or write sshPort: " + former[0] + "; then run the same command again"}}
	})
}

// sources are the sorted ranges that rules of spec.access are to have in the end, by "ssh",
// "api" and "ingress".
func (m *Manager) sources() map[string][]string {
	a, all := m.Cluster.Spec.Access, map[string][]string{}
	for name, sources := range map[string][]string{"ssh": a.SSH, "api": a.API, "ingress": a.Ingress} {
		v4, v6, _ := k3s.Sources(sources, m.OwnAddresses) // the templates were rendered by them
		if all[name] = slices.Concat(v4, v6); m.withoutAddress() {
			all[name] = k3s.PrivateRanges(all[name])
		}
		slices.Sort(all[name])
	}
	return all
}

// closeGroup has a security group's rules of SSH open the port of cluster.yaml alone, and with
// sources its rules of access have those sources alone.
func (m *Manager) closeGroup(ctx context.Context, to string, sources map[string][]string) error {
	return m.edit(ctx, "close former rules of group "+to, m.securityGroup(to), func(properties map[string]any) {
		rules, _ := properties["securityRules"].([]any)
		properties["securityRules"] = slices.DeleteFunc(rules, func(one any) bool {
			rule, _ := one.(map[string]any)
			name, _ := rule["name"].(string)
			p, _ := rule["properties"].(map[string]any)
			if p != nil && isSSHRule(name) {
				delete(p, "destinationPortRange")
				p["destinationPortRanges"] = []string{m.sshPort()}
			}
			if p == nil || sources == nil || !isAccessRule(name) {
				return false
			}
			kind, family, _ := strings.Cut(strings.ToLower(name), "-")
			other := func(source string) bool { return strings.Contains(source, ":") != (family == "ipv6") }
			from := slices.DeleteFunc(slices.Clone(sources[kind]), other)
			delete(p, "sourceAddressPrefix")
			p["sourceAddressPrefixes"] = from
			return len(from) == 0
		})
	})
}
