package lifecycle

import (
	"context"
	"net/netip"
	"time"

	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
)

// Values of Way.Via.
const (
	ViaTailnet = "tailnet"
	ViaPrivate = "private address"
	ViaPublic  = "public address"
)

// A Way is an address of the server.
type Way struct {
	Via     string
	Address string
	FQDN    string // of the public address
}

// An Entrance is how the server is reached.
type Entrance struct {
	HostKey string // line of an authorized_keys file, which the server published; "" is none yet
	Boot    string // what the server reported last
	Ways    []Way  // in the order to try them: the host key decides whether it is the server
}

// Entrance reads how the server is reached; nil is no server.
func (m *Manager) Entrance(ctx context.Context) (*Entrance, error) {
	r := &reads{m: m}
	vm := r.get(ctx, m.serverID(), computeVersion)
	address := m.publicAddress(ctx, r)
	if r.err != nil || vm == nil {
		return nil, r.err
	}
	e := &Entrance{HostKey: vm.Tags[recipe.TagSSHHostKey], Boot: vm.Tags[recipe.TagBoot]}
	if t := m.tailnet(vm); t != nil && t.Address != "" {
		e.Ways = append(e.Ways, Way{Via: ViaTailnet, Address: t.Address})
	}
	if m.withoutAddress() && len(k3s.PrivateRanges(m.Cluster.Spec.Access.SSH)) > 0 {
		private, err := recipe.ServerAddress(m.Cluster)
		if err != nil {
			return nil, err
		}
		e.Ways = append(e.Ways, Way{Via: ViaPrivate, Address: private})
	}
	if address != nil && address.Properties.IPAddress != "" {
		e.Ways = append(e.Ways, Way{ViaPublic, address.Properties.IPAddress, address.Properties.DNSSettings.FQDN})
	}
	return e, nil
}

// A TailnetStatus is the server in its tailnet, as it reported.
type TailnetStatus struct {
	State     string     `json:"state"` // tailscaled's, "Running", "NeedsLogin"; "OutOfSync"; or why it has none
	Hostname  string     `json:"hostname"`
	Name      string     `json:"name,omitempty"`      // in the tailnet's DNS
	Address   string     `json:"address,omitempty"`   // while the state is Running or OutOfSync
	KeyExpiry *time.Time `json:"keyExpiry,omitempty"` // when its node key ends; a tagged server's does not
	closed    bool       // the server is to have no public address
}

// tailnet is what the server reported of itself; nil without spec.access.tailscale.
func (m *Manager) tailnet(vm *resource) *TailnetStatus {
	want := m.Cluster.Spec.Access.Tailscale
	if want == nil || vm == nil {
		return nil
	}
	t := &TailnetStatus{State: vm.Tags[recipe.TagTailnet], Hostname: want.Hostname, Name: vm.Tags[recipe.TagTailnetName],
		closed: m.withoutAddress()}
	if t.State == "" {
		t.State = "not reported yet"
	}
	in := t.State == recipe.TailnetRunning || t.State == recipe.TailnetOutOfSync
	if a, err := netip.ParseAddr(vm.Tags[recipe.TagTailnetAddress]); err == nil && in {
		t.Address = a.String()
	}
	if end, err := time.Parse(time.RFC3339, vm.Tags[recipe.TagTailnetExpiry]); err == nil {
		t.KeyExpiry = &end
	}
	return t
}

// note says what a person has to do about the server's login, or "".
func (t *TailnetStatus) note(now time.Time) string {
	if t == nil {
		return ""
	}
	login := "; to log it in: ortet cluster up --tailscale-key FILE"
	if t.closed {
		login += ", with publicAddress: static if no other way to the server is open"
	}
	switch {
	case t.KeyExpiry != nil && t.KeyExpiry.Before(now):
		return "key of the server in the tailnet ended on " + t.KeyExpiry.Format(time.DateOnly) + login
	case t.State == "NoState" || t.State == "Starting": // of a login that is there
		return "server is not in the tailnet yet (" + t.State + "): its coordination server has not answered since tailscaled started"
	case t.State == recipe.TailnetOutOfSync:
		return "coordination server of the tailnet does not answer the server, or an admin removed the server there" + login
	case t.State != recipe.TailnetRunning:
		return "server is not in the tailnet (" + t.State + ")" + login
	}
	return ""
}

// joinTailnet has login give the server a key, and reads how the server is in the tailnet then.
func (m *Manager) joinTailnet(ctx context.Context, login func(context.Context) error) (note string, err error) {
	if m.Cluster.Spec.Access.Tailscale == nil {
		return "", nil
	}
	if login != nil {
		c := m.begin("tailnet", "Log the server in to its tailnet")
		err = login(ctx)
		if c.end(err); err != nil && ctx.Err() == nil {
			err = &workflow.Outcome{Exit: workflow.ExitNeedsPerson, Step: "tailnet", Err: err, Left: []string{
				"the server is ready, and is reached as before; correct the cause, then run the same command again"}}
		}
		if err != nil {
			return "", err
		}
	}
	deadline := m.Now().Add(time.Minute) // in which ARM's reads may be older than its writes
	err = m.poll(ctx, func() (bool, error) {
		vm, err := m.get(ctx, m.serverID(), computeVersion)
		note = m.tailnet(vm).note(m.Now())
		return err == nil && (note == "" || login == nil || m.Now().After(deadline)), err
	})
	return note, err
}

// privateEndpoints are the open ports of a server without a public address.
func (m *Manager) privateEndpoints(ctx context.Context, r *reads) []Endpoint {
	all := []Endpoint{}
	if r.err != nil || !m.withoutAddress() {
		return all
	}
	e, err := m.Entrance(ctx)
	if r.err = err; err != nil || e == nil {
		return all
	}
	a := m.Cluster.Spec.Access
	for _, way := range e.Ways {
		for _, p := range []struct {
			name string
			port int
			from []string
		}{{"ssh", a.SSHPort, a.SSH}, {"api", 6443, a.API}} {
			if p.from = k3s.PrivateRanges(p.from); way.Via == ViaTailnet {
				p.from = []string{ViaTailnet}
			}
			all = append(all, Endpoint{Name: p.name, Address: way.Address, Port: p.port, Open: p.from})
		}
	}
	return all
}
