package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
)

const publicAddresses = "Microsoft.Network/publicIPAddresses"

// withoutAddress reports whether the server is to have no public address.
func (m *Manager) withoutAddress() bool { return m.Cluster.Spec.Access.PublicAddress == k3s.None }

func (m *Manager) publicID() fleet.ResourceID {
	return m.in(RoleCompute, publicAddresses, recipe.ServerName)
}

func (m *Manager) interfaceID() fleet.ResourceID {
	return m.in(RoleCompute, "Microsoft.Network/networkInterfaces", recipe.ServerName)
}

func (m *Manager) publicAddress(ctx context.Context, r *reads) *resource {
	return r.get(ctx, m.publicID(), networkVersion)
}

// hasAddress reports whether an interface has a public address; nil is missing.
func (r *resource) hasAddress() bool {
	public := func(c ipConfiguration) bool { return c.Properties.Public != nil }
	return r != nil && slices.ContainsFunc(r.Properties.IPConfigurations, public)
}

// closeFormerWay closes the way to the server that cluster.yaml does not have any more: sources
// of the former rules, and a public address after the other way was checked from this computer.
// The same call goes on after an interruption, since Azure shows what is done.
func (m *Manager) closeFormerWay(ctx context.Context) (err error) {
	r := &reads{m: m}
	var nic, address *resource
	if m.withoutAddress() {
		nic, address = r.get(ctx, m.interfaceID(), networkVersion), m.publicAddress(ctx, r)
	}
	group := r.get(ctx, m.securityGroup(k3s.ToServers), networkVersion)
	if r.err != nil {
		return r.err
	}
	attached := nic.hasAddress()
	sources, same := m.sources(), true
	for name, from := range sources {
		same = same && slices.Equal(from, sourcesOf(group, name))
	}
	if !attached && address == nil && (same || group == nil) {
		return nil
	}
	c := m.begin("access", "Close the former way to the server")
	defer func() { c.end(err) }()
	if attached {
		if err = m.checkOtherWay(ctx, c); err == nil {
			err = m.edit(ctx, "take the public address from the server's interface", m.interfaceID(), func(properties map[string]any) {
				all, _ := properties["ipConfigurations"].([]any)
				for _, one := range all {
					configuration, _ := one.(map[string]any)
					p, _ := configuration["properties"].(map[string]any)
					delete(p, "publicIPAddress")
				}
			})
		}
	}
	if err == nil && address != nil {
		deadline := m.Now().Add(time.Minute) // in which Azure may still take it for one that is in use
		err = m.poll(ctx, func() (bool, error) {
			err := m.delete(ctx, "the public address", m.publicID(), networkVersion)
			if codeOf(err) == "PublicIPAddressCannotBeDeleted" && m.Now().Before(deadline) {
				return false, nil
			}
			return true, err
		})
	}
	if err == nil {
		err = m.closeGroup(ctx, k3s.ToServers, sources)
	}
	return err
}

// checkOtherWay connects to the server's ports by the way that stays. What fails leaves the
// public address as it is.
func (m *Manager) checkOtherWay(ctx context.Context, c *clock) error {
	const way = "the public address and its rules stay, and the server is reached as before"
	fail := func(err error, wayOut string) error {
		return &workflow.Outcome{Exit: workflow.ExitNeedsPerson, Step: "access", Err: err, Left: []string{way,
			wayOut + ", or write publicAddress: static; then run the same command again"}}
	}
	e, err := m.Entrance(ctx)
	if err != nil {
		return err
	}
	vm, err := m.get(ctx, m.serverID(), computeVersion)
	if err != nil {
		return err
	}
	note := m.tailnet(vm).note(m.Now())
	if e != nil && note != "" { // connections by it may go on for now
		e.Ways = slices.DeleteFunc(e.Ways, func(w Way) bool { return w.Via == ViaTailnet })
	}
	switch {
	case e == nil || e.HostKey == "" || len(e.Ways) == 0 || e.Ways[0].Via == ViaPublic:
		why := cmp.Or(note, "server has published no SSH host key, or no address besides the public one")
		return fail(errors.New(why), "log the server in")
	case m.Dial == nil:
		return fail(errors.New("cannot check the server's other address from this computer"), "use one that reaches "+e.Ways[0].Address)
	}
	ports := map[string]string{m.sshPort(): e.HostKey}
	if len(m.Cluster.Spec.Access.API) > 0 {
		ports["6443"] = ""
	}
	deadline := m.Now().Add(dialFor)
	for _, port := range sorted(ports) {
		address := net.JoinHostPort(e.Ways[0].Address, port)
		c.report(workflow.EventProgress, "connecting to "+address)
		err := m.poll(ctx, func() (bool, error) {
			err := m.Dial(ctx, address, ports[port])
			if err == nil || ctx.Err() != nil || m.Now().Before(deadline) {
				return err == nil, ctx.Err()
			}
			return false, fail(fmt.Errorf("cannot connect to %s, by the server's %s: %w", address, e.Ways[0].Via, err),
				"have this computer reach the address, and the tailnet's policy or the firewall between allow port "+port)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// edit changes a network resource as it is now: all else of it stays, also what others change
// meanwhile.
func (m *Manager) edit(ctx context.Context, what string, id fleet.ResourceID, change func(properties map[string]any)) error {
	return m.poll(ctx, func() (bool, error) {
		var r map[string]any
		if err := m.ARM.Get(ctx, id, networkVersion, &r); err != nil {
			return false, err
		}
		etag, _ := r["etag"].(string)
		properties, _ := r["properties"].(map[string]any)
		change(properties)
		err := m.send(azure.IfMatch(ctx, etag), what, http.MethodPut, id, networkVersion, r)
		if codeOf(err) == preconditionFailed {
			return false, nil
		}
		return true, err
	})
}
