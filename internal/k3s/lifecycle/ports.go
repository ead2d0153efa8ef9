package lifecycle

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure"
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
			err = m.closeGroup(ctx, k3s.ToServers)
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
	return "", m.closeGroup(ctx, k3s.ToAgents)
}

// dialServer connects to the server's port of SSH, if this computer is among its sources.
func (m *Manager) dialServer(ctx context.Context, c *clock, former []string) error {
	e, err := m.Entrance(ctx)
	sources := m.Cluster.Spec.Access.SSH
	among := slices.Contains(sources, k3s.Any) || len(m.OwnAddresses) > 0 && len(m.shutOut("ssh", sources)) == 0
	if err != nil || m.Dial == nil || e == nil || len(e.Ways) == 0 || !among {
		return err
	}
	address, deadline := net.JoinHostPort(e.Ways[len(e.Ways)-1].Address, m.sshPort()), m.Now().Add(dialFor)
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

// closeGroup has a security group's rules of SSH open the port of cluster.yaml alone. All
// else of the group stays, also what others change meanwhile.
func (m *Manager) closeGroup(ctx context.Context, to string) error {
	return m.poll(ctx, func() (bool, error) {
		var group map[string]any
		err := m.ARM.Get(ctx, m.securityGroup(to), networkVersion, &group)
		if err != nil {
			return false, err
		}
		etag, _ := group["etag"].(string)
		properties, _ := group["properties"].(map[string]any)
		rules, _ := properties["securityRules"].([]any)
		for _, one := range rules {
			rule, _ := one.(map[string]any)
			name, _ := rule["name"].(string)
			if p, _ := rule["properties"].(map[string]any); p != nil && isSSHRule(name) {
				delete(p, "destinationPortRange")
				p["destinationPortRanges"] = []string{m.sshPort()}
			}
		}
		err = m.send(azure.IfMatch(ctx, etag), "close the former port of SSH in group "+to, http.MethodPut, m.securityGroup(to), networkVersion, group)
		if codeOf(err) == preconditionFailed {
			return false, nil
		}
		return true, err
	})
}
