package lifecycle_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/workflow"
)

// sshOpen are the ports of SSH that a security group opens.
func (x *site) sshOpen(name string) (ports []string) {
	var group struct {
		Properties struct {
			SecurityRules []struct {
				Name       string
				Properties struct{ DestinationPortRanges []string }
			}
		}
	}
	x.read(computeGroup+"/providers/Microsoft.Network/networkSecurityGroups/"+name, &group)
	for _, r := range group.Properties.SecurityRules {
		if strings.HasPrefix(r.Name, "ssh-") {
			ports = append(ports, r.Properties.DestinationPortRanges...)
		}
	}
	return ports
}

// An sshd is what listens on the server: on the port of its settings, some time after they
// were written, and before it reports them.
type sshd struct {
	mu   sync.Mutex
	port string
}

func (s *sshd) listens() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.port
}

// run is boot, with sshd. It fails when the port that sshd listens on is closed.
func (s *sshd) run(x *site) {
	go x.boot()
	for x.ctx.Err() == nil {
		if vm, there := x.thing(serverVM, "$expand", "userData"); there {
			port := "22"
			var settings struct {
				Files []struct{ Path, Content string }
			}
			if json.Unmarshal(vm.Properties.UserData, &settings) == nil {
				for _, f := range settings.Files {
					if strings.HasSuffix(f.Path, "/50-ortet.conf") {
						port = strings.TrimSpace(strings.TrimPrefix(f.Content, "Port "))
					}
				}
			}
			s.mu.Lock()
			s.port = port
			s.mu.Unlock()
			if open := x.sshOpen("servers"); len(open) > 0 && !slices.Contains(open, port) && x.ctx.Err() == nil {
				x.Errorf("sshd listens on %s, and the security group opens %q", port, open)
				return
			}
		}
		select {
		case <-x.ctx.Done():
		case <-time.After(3 * time.Second):
		}
	}
}

// A killer ends its process after some writes.
type killer struct {
	next   *azsim.Transport
	kill   context.CancelFunc
	after  int
	writes int
}

func (k *killer) Do(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	answer, err := k.next.Do(r)
	if r.Method != http.MethodGet {
		if k.writes++; k.writes == k.after {
			k.kill()
		}
	}
	return answer, err
}

// Another port of SSH never closes the one that the server listens on: beside a pool that
// Azure refuses, killed after each request, and until the new one was reached.
func TestOutcomePortOfSSHStaysReachable(t *testing.T) {
	t.Parallel()
	other := edited(t, file, map[string]string{"spec.access.sshPort": "2222"})
	for _, refused := range []bool{false, true} {
		for after := 1; ; after++ {
			done := false
			play(t, nil, func(x *site) {
				s := &sshd{}
				go s.run(x)
				x.up(file)
				if refused {
					if err := x.s.AddFault(azsim.Fault{Name: "pool", Method: http.MethodPut, Path: "virtualMachineScaleSets/agents$", Effect: "error", Status: 409, Code: "SkuNotAvailable"}); err != nil {
						x.Fatal(err)
					}
				}
				ctx, kill := context.WithCancel(x.ctx)
				defer kill()
				resources, err := arm.NewResources(arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: x.s.Credential(azsim.DefaultClientID), Version: "test",
					Transport: &killer{next: x.s.Transport(), kill: kill, after: after}})
				if err != nil {
					x.Fatal(err)
				}
				m := x.manager(other)
				m.ARM = resources
				_, err = m.Up(ctx, lifecycle.UpOptions{})
				done = ctx.Err() == nil
				if want := workflow.ExitCode(err); done && refused && want != workflow.ExitNeedsPerson || done && !refused && err != nil {
					x.Errorf("up: exit code %d: %v", want, err)
				}
				time.Sleep(10 * time.Minute) // what Azure goes on with
				if refused && done && (s.listens() != "22" || !slices.Contains(x.sshOpen("servers"), "22")) {
					x.Errorf("beside a pool that Azure refuses, sshd listens on %s, and %q are open", s.listens(), x.sshOpen("servers"))
				}
				x.s.RemoveFault("pool")
				x.up(other)
				if open := x.sshOpen("servers"); !slices.Equal(open, []string{"2222"}) || s.listens() != "2222" {
					x.Errorf("killed after write %d, then up: sshd listens on %s, and %q are open", after, s.listens(), open)
				}
			})
			if done || t.Failed() {
				break
			}
		}
	}
}

// A port that a firewall outside Azure drops is not the only one that stays open, and up says
// what to do.
func TestOutcomePortThatIsNotReached(t *testing.T) {
	play(t, nil, func(x *site) {
		go (&sshd{}).run(x)
		x.up(file)
		dialed := ""
		m := x.manager(edited(t, file, map[string]string{"spec.access.sshPort": "2222"}))
		m.Dial = func(_ context.Context, address, _ string) error { dialed = address; return errors.New("i/o timeout") }
		p, err := m.Plan(x.ctx)
		if err != nil || !strings.Contains(lines(p), "spec.access.sshPort: 22 -> 2222") {
			x.Errorf("plan: %v\n%s", err, lines(p))
		}
		_, err = m.Up(x.ctx, lifecycle.UpOptions{})
		var outcome *workflow.Outcome
		if !errors.As(err, &outcome) || outcome.Exit != workflow.ExitNeedsPerson || !strings.HasSuffix(dialed, ":2222") || !strings.Contains(strings.Join(outcome.Left, "\n"), "write sshPort: 22") {
			x.Errorf("up: %v, dialed %q", err, dialed)
		}
		if open := x.sshOpen("servers"); !slices.Equal(open, []string{"22", "2222"}) {
			x.Errorf("%q are open", open)
		}
		m.Dial = func(context.Context, string, string) error { return nil }
		if p, err := m.Plan(x.ctx); err != nil || len(p.Changes) == 0 || p.Changes[0].Name != "agents" && p.Changes[0].Name != "servers" {
			x.Errorf("plan before the port is closed: %v %+v", err, p.Changes)
		}
		if _, err := m.Up(x.ctx, lifecycle.UpOptions{}); err != nil {
			x.Error(err)
		}
		if open := x.sshOpen("servers"); !slices.Equal(open, []string{"2222"}) {
			x.Errorf("%q are open in the end", open)
		}
	})
}

// Agents listen on the former port until they are reimaged: up says so, and closes it then.
func TestOutcomePortOfAgents(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		other := edited(t, file, map[string]string{"spec.access.sshPort": "2222"})
		r := x.up(other)
		if !strings.Contains(strings.Join(r.Notes, "\n"), "agents listen for SSH on port 22 until they are reimaged") {
			x.Errorf("%q", r.Notes)
		}
		if open := x.sshOpen("agents"); !slices.Equal(open, []string{"22", "2222"}) {
			x.Errorf("%q are open to agents of the former port", open)
		}
		x.send(http.MethodPost, pool+"/manualupgrade", "2024-07-01", object{"instanceIds": []string{"*"}})
		x.up(other)
		if open := x.sshOpen("agents"); !slices.Equal(open, []string{"2222"}) {
			x.Errorf("%q are open to agents of the new port", open)
		}
	})
}

// Status names when certificates end, and warns 30 days before.
func TestOutcomeCertificatesThatEnd(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		for days, warns := range map[int]bool{31: false, 29: true} {
			end := time.Now().Add(time.Duration(days) * 24 * time.Hour).UTC().Truncate(time.Second)
			x.send(http.MethodPatch, serverVM+"/providers/Microsoft.Resources/tags/default", "2021-04-01",
				object{"operation": "Merge", "properties": object{"tags": object{"ortet.io_certificates": end.Format(time.RFC3339)}}})
			s, err := x.manager(file).Status(x.ctx)
			if err != nil || s.Server.CertificatesEnd == nil || !s.Server.CertificatesEnd.Equal(end) || strings.Contains(strings.Join(s.Notes, "\n"), "certificates of k3s end on "+end.Format(time.DateOnly)) != warns {
				x.Errorf("%d days before: %v %+v", days, err, s)
			}
		}
	})
}
