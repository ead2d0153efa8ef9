package lifecycle_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/test/serverboot"
)

const (
	serverNIC     = computeGroup + "/providers/Microsoft.Network/networkInterfaces/server"
	serverAddress = computeGroup + "/providers/Microsoft.Network/publicIPAddresses/server"
)

// access is what Azure lets through to the server: by its public address from the operator's, and
// from a private range.
func (x *site) access() (public, private bool) {
	x.Helper()
	var nic struct {
		Properties struct {
			IPConfigurations []struct {
				Properties struct{ PublicIPAddress *struct{ ID string } }
			}
		}
	}
	var group struct {
		Properties struct {
			SecurityRules []struct {
				Name       string
				Properties struct{ SourceAddressPrefixes []string }
			}
		}
	}
	x.read(serverNIC, &nic)
	x.read(computeGroup+"/providers/Microsoft.Network/networkSecurityGroups/servers", &group)
	from := map[string]int{}
	for _, r := range group.Properties.SecurityRules {
		if r.Name == "ssh-ipv4" || r.Name == "api-ipv4" {
			for _, source := range r.Properties.SourceAddressPrefixes {
				from[source]++
			}
		}
	}
	for _, c := range nic.Properties.IPConfigurations {
		public = public || c.Properties.PublicIPAddress != nil && from["192.0.2.7/32"] == 2
	}
	return public, from["10.0.0.0/8"] == 2
}

// none are the fields of a server without a public address, which is reached otherwise.
var none = map[string]map[string]string{
	"tailnet": {"spec.artifacts.tailscale": tailnetArtifact, "spec.access.tailscale": `{}`, "spec.access.publicAddress": `"none"`},
	"private": {"spec.access.ssh": `["10.0.0.0/8"]`, "spec.access.api": `["10.0.0.0/8"]`, "spec.access.publicAddress": `"none"`},
}

// The public address is given up and comes back, killed after each write: at every point one way
// to the server is open, and the public one does not close before the other one was reached.
func TestOutcomeOneWayToTheServerStaysOpen(t *testing.T) {
	t.Parallel()
	for way, fields := range none {
		static := edited(t, file, map[string]string{})
		if way == "tailnet" {
			static = tailnetFile(t, nil)
		}
		without := edited(t, static, fields)
		for _, back := range []bool{false, true} {
			for after := 1; ; after++ {
				done := false
				play(t, nil, func(x *site) {
					go x.boot()
					checked := atomic.Bool{}
					dial := func(_ context.Context, address, hostKey string) error {
						if strings.HasPrefix(address, serverboot.TailnetAddress+":") || strings.HasPrefix(address, "10.16.0.10:") {
							checked.Store(checked.Load() || strings.HasSuffix(address, ":6443"))
							return nil
						}
						return errors.New("not the other way: " + address)
					}
					do := func(m *lifecycle.Manager, ctx context.Context) error {
						m.Dial = dial
						_, err := m.Up(ctx, lifecycle.UpOptions{})
						return err
					}
					to := without
					x.up(static)
					if back {
						to = static
						if err := do(x.manager(without), x.ctx); err != nil {
							x.Fatal(err)
						}
					}
					go func() {
						for x.ctx.Err() == nil {
							public, private := x.access()
							if other := private || way == "tailnet" && checked.Load(); !public && !other && x.ctx.Err() == nil {
								x.Errorf("%s, back %t, killed after write %d: no way to the server is open", way, back, after)
								return
							}
							select {
							case <-x.ctx.Done():
							case <-time.After(time.Second):
							}
						}
					}()
					ctx, kill := context.WithCancel(x.ctx)
					defer kill()
					resources, err := arm.NewResources(arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: x.s.Credential(azsim.DefaultClientID), Version: "test",
						Transport: &killer{next: x.s.Transport(), kill: kill, after: after}})
					if err != nil {
						x.Fatal(err)
					}
					m := x.manager(to)
					m.ARM = resources
					err = do(m, ctx)
					if done = ctx.Err() == nil; done && err != nil {
						x.Errorf("up: %v", err)
					}
					time.Sleep(10 * time.Minute) // what Azure goes on with
					if err := do(x.manager(to), x.ctx); err != nil {
						x.Errorf("%s, back %t, killed after write %d, then up: %v", way, back, after, err)
					}
					public, _ := x.access()
					var address object
					gone := fleet.Is(x.arm.Get(x.ctx, serverAddress, "2024-05-01", &address), fleet.KindNotFound)
					if public != back || gone == back {
						x.Errorf("%s, back %t, killed after write %d, then up: public way open: %t, address gone: %t", way, back, after, public, gone)
					}
					if p, err := x.manager(to).Plan(x.ctx); err != nil || len(p.Fields) > 0 || len(p.Changes) > 0 {
						x.Errorf("%s, back %t: plan after up: %v %+v", way, back, err, p)
					}
				})
				if done || t.Failed() {
					break
				}
			}
		}
	}
}

// Where this computer does not reach the other way, the public address stays.
func TestOutcomePublicAddressStaysWhereTheOtherWayIsNotReached(t *testing.T) {
	play(t, nil, func(x *site) {
		x.loggedOut.Store(true)
		go x.boot()
		without := edited(t, file, none["tailnet"])
		up := func(dial func(context.Context, string, string) error, says string) {
			x.Helper()
			m := x.manager(without)
			m.Dial = dial
			_, err := m.Up(x.ctx, lifecycle.UpOptions{})
			var outcome *workflow.Outcome
			if !errors.As(err, &outcome) || outcome.Exit != workflow.ExitNeedsPerson || !strings.Contains(err.Error(), says) ||
				!strings.Contains(strings.Join(outcome.Left, "\n"), "write publicAddress: static") {
				x.Errorf("want exit code 4 and %q: %v", says, err)
			}
			if public, _ := x.access(); !public {
				x.Error("the public way is closed")
			}
		}
		reach := func(context.Context, string, string) error { return nil }
		up(reach, "ortet cluster up --tailscale-key FILE") // a new cluster begins with an address
		x.loggedOut.Store(false)
		up(nil, "cannot check the server's other address from this computer")
		up(func(_ context.Context, address, _ string) error {
			if strings.HasSuffix(address, ":6443") {
				return errors.New("i/o timeout") // the tailnet's policy
			}
			return nil
		}, "cannot connect to "+serverboot.TailnetAddress+":6443, by the server's tailnet: i/o timeout")
		up(func(_ context.Context, _, hostKey string) error {
			if hostKey != "" {
				return errors.New("the host key is not the one that the server published")
			}
			return nil
		}, "the host key is not the one")
		x.outOfSync.Store(true)
		up(reach, "an admin removed the server there; to log it in: ortet cluster up --tailscale-key FILE") // connections may go on
		x.outOfSync.Store(false)
		p, err := x.manager(without).Plan(x.ctx)
		if err != nil || !slices.ContainsFunc(p.Changes, func(c lifecycle.Change) bool {
			return c.Change == "Delete" && c.Name == "server" && strings.Contains(strings.Join(c.What, ""), "are given back to Azure")
		}) || slices.ContainsFunc(p.Billed, func(c lifecycle.Charge) bool { return c.What == "public address" && c.Number != 1 }) {
			x.Errorf("plan: %v %+v", err, p)
		}
		x.up(without)
		s, err := x.manager(without).Status(x.ctx)
		if err != nil || len(s.Endpoints) != 2 || s.Endpoints[0].Address != serverboot.TailnetAddress || s.Endpoints[0].Open[0] != "tailnet" {
			x.Errorf("status: %v %+v", err, s.Endpoints)
		}
		x.tagServer(object{recipe.TagTailnet: recipe.TailnetOutOfSync})
		const back = "ortet cluster up --tailscale-key FILE, with publicAddress: static"
		if s, err := x.manager(without).Status(x.ctx); err != nil || !strings.Contains(strings.Join(s.Notes, "\n"), back) {
			x.Errorf("status of a server that an admin removed from its only way: %v %q", err, s.Notes)
		}
		x.tagServer(object{recipe.TagTailnet: recipe.TailnetRunning})
		// The server is made again without one, and the port of SSH changes by the tailnet.
		if _, err := x.manager(without).ReplaceServer(x.ctx, lifecycle.UpOptions{}); err != nil {
			x.Errorf("replace server: %v", err)
		}
		if public, _ := x.access(); public {
			x.Error("replace server opens the public way")
		}
		fields := maps.Clone(none["tailnet"])
		fields["spec.access.sshPort"] = "2222"
		dialed := ""
		m := x.manager(edited(t, file, fields))
		m.Dial = func(_ context.Context, address, _ string) error { dialed = address; return nil }
		if _, err := m.Up(x.ctx, lifecycle.UpOptions{}); err != nil {
			x.Errorf("another port: %v, dialed %s", err, dialed)
		}
		x.tagServer(object{recipe.TagApplied: "mount=data reboot=false"})
		if _, err := m.Up(x.ctx, lifecycle.UpOptions{}); workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), "replace server") {
			x.Errorf("a server of an earlier version: %v", err)
		}
	})
}
