package lifecycle_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
)

// An up that finds the deployment of an up of another file follows it, and then makes what its own
// file says, whether the other deployment ends well or not.
func TestOutcomeUpAfterTheDeploymentOfAnother(t *testing.T) {
	for _, fails := range []bool{false, true} {
		play(t, nil, func(x *site) {
			go x.boot()
			if fails {
				if err := x.s.AddFault(azsim.Fault{Method: http.MethodPut, Path: "virtualMachineScaleSets/agents$", Count: 1, Effect: "error", Status: 409, Code: "SkuNotAvailable"}); err != nil {
					x.Fatal(err)
				}
			}
			end := make(chan error, 1)
			go func() { _, err := x.manager(file).Up(x.ctx, lifecycle.UpOptions{}); end <- err }()
			for x.deployment() != "Running" {
				time.Sleep(time.Second)
			}
			r, err := x.manager(twoPools).Up(x.ctx, lifecycle.UpOptions{})
			if _, there := x.thing(morePool); err != nil || !r.Ready || !there {
				x.Errorf("fails %t: %v, pool more is there: %t", fails, err, there)
			}
			if err := <-end; (err != nil) != fails {
				x.Errorf("the other up: %v", err)
			}
		})
	}
}

// updating answers that scale sets are updating, in place of Succeeded.
type updating struct{ azure.Resources }

func (u updating) List(ctx context.Context, id fleet.ResourceID, version string, each func(json.RawMessage) error, query ...string) error {
	return u.Resources.List(ctx, id, version, func(raw json.RawMessage) error {
		if strings.HasSuffix(string(id), "/virtualMachineScaleSets") {
			raw = bytes.Replace(raw, []byte(`"Succeeded"`), []byte(`"Updating"`), 1)
		}
		return each(raw)
	}, query...)
}

// A scale set that is updating for ever is waited for as long as the documentation says, once named.
func TestOutcomeStuckScaleSetEndsTheWait(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		ctx, cancel := context.WithTimeout(x.ctx, 2*time.Hour)
		defer cancel()
		m, named, began := x.manager(file), 0, time.Now()
		m.ARM = updating{m.ARM}
		m.Report = func(e workflow.Event) {
			if e.Message == "scale set agents is updating" {
				named++
			}
		}
		if r, err := m.Up(ctx, lifecycle.UpOptions{}); err != nil || !r.Ready || named != 1 || time.Since(began) < azure.RestFor {
			x.Errorf("after %s: %v; the scale set is named %d times", time.Since(began), err, named)
		}
	})
}

// What others write to the server while its settings are written has it written again, on one backup.
func TestOutcomeOneBackupOfAChange(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		w := &world{site: x, happens: nothing, met: map[string]bool{}}
		writes := 0
		w.guard = func(_ *world, _ *process, r *http.Request, body []byte) {
			if r.Method == http.MethodPatch && strings.EqualFold(r.URL.Path, serverVM) && bytes.Contains(body, []byte(`"userData"`)) {
				if writes++; writes < 3 {
					x.send(http.MethodPatch, serverVM, "2024-07-01", object{"identity": object{"type": "SystemAssigned, UserAssigned"}})
				}
			}
		}
		p := w.process()
		r, err := p.manager(strings.ReplaceAll(file, "ea5647", "0b5647")).Up(p.ctx, lifecycle.UpOptions{})
		if all := x.backups("before another k3s"); err != nil || writes != 3 || len(all) != 1 || r.Backup != all[0] {
			x.Errorf("%v; settings were written %d times, backups %q", err, writes, all)
		}
	})
}

// Where the server's host has no room for its size, Azure takes another for a machine that is
// deallocated.
func TestOutcomeSizeThatTheHostLacks(t *testing.T) {
	for _, code := range []string{"AllocationFailed", "OverconstrainedAllocationRequest", "ZonalAllocationFailed", "OperationNotAllowed"} {
		play(t, nil, func(x *site) {
			go x.boot()
			x.up(file)
			if err := x.s.AddFault(azsim.Fault{Method: http.MethodPatch, Path: "virtualMachines/server$", Count: 1, Effect: "error", Status: 409, Code: code}); err != nil {
				x.Fatal(err)
			}
			x.up(withServer(file, "Standard_D4s_v5"))
			if now := x.machine(); now != "Standard_D4s_v5 running 8 GB" {
				x.Errorf("%s: the server is %s", code, now)
			}
		})
	}
}

// While the server boots, an answer of Azure that fails for a passing reason is read again, and one
// that is refused ends up at once.
func TestOutcomeReadsWhileTheServerBoots(t *testing.T) {
	for status, code := range map[int]string{503: "ServiceUnavailable", 403: "AuthorizationFailed"} {
		play(t, nil, func(x *site) {
			m, waits := x.manager(file), time.Time{}
			m.Report = func(e workflow.Event) {
				if e.Step != "boot" || e.Kind != workflow.EventBegun {
					return
				}
				waits = time.Now()
				if err := x.s.AddFault(azsim.Fault{Name: "read", Method: http.MethodGet, Path: "virtualMachines/server$", Effect: "error", Status: status, Code: code}); err != nil {
					x.Error(err)
				}
				go func() {
					select {
					case <-x.ctx.Done():
					case <-time.After(5 * time.Minute):
						x.s.RemoveFault("read")
						x.boot()
					}
				}()
			}
			r, err := m.Up(x.ctx, lifecycle.UpOptions{})
			if passing := status == 503; (err == nil && r.Ready) != passing || !passing && (time.Since(waits) > time.Minute || !strings.Contains(err.Error(), code)) {
				x.Errorf("%d: after %s up ends with %v", status, time.Since(waits), err)
			}
		})
	}
}

// A rule that others add to the security group while up closes the former port of SSH stays.
func TestOutcomeRuleOfOthersBesideTheClosedPort(t *testing.T) {
	play(t, nil, func(x *site) {
		go (&sshd{}).run(x)
		x.up(file)
		w, closes := &world{site: x, happens: nothing, met: map[string]bool{}}, 0
		w.guard = func(_ *world, _ *process, r *http.Request, _ []byte) {
			if r.Method == http.MethodPut && strings.EqualFold(r.URL.Path, serversNSG) {
				if closes++; closes == 1 {
					x.rule(serversNSG, "mqtt", 300)
				}
			}
		}
		p := w.process()
		_, err := p.manager(edited(t, file, map[string]string{"spec.access.sshPort": "2222"})).Up(p.ctx, lifecycle.UpOptions{})
		if open := x.sshOpen("servers"); err != nil || closes != 2 || !slices.Equal(open, []string{"2222"}) || !slices.Contains(x.rules(serversNSG), "mqtt") {
			x.Errorf("%v; after %d writes %q are open, and the group has the rules %q", err, closes, open, x.rules(serversNSG))
		}
	})
}

// The new port is connected to where its sources have this computer, and otherwise closed without.
func TestOutcomePortIsDialedFromItsSources(t *testing.T) {
	for _, c := range []struct {
		ssh   string // sources
		own   []string
		dials bool
	}{
		{`["own"]`, []string{"192.0.2.7"}, true}, {`["any"]`, []string{"192.0.2.7"}, true}, {`["any"]`, nil, true},
		{`["198.51.100.0/24"]`, []string{"192.0.2.7"}, false}, {`["198.51.100.0/24"]`, nil, false},
	} {
		play(t, nil, func(x *site) {
			go x.boot()
			up := func(port string) (dialed bool, err error) {
				m := x.manager(edited(t, file, map[string]string{"spec.access.ssh": c.ssh, "spec.access.api": `["any"]`, "spec.access.sshPort": port}))
				m.OwnAddresses, m.Dial = c.own, func(context.Context, string, string) error { dialed = true; return errors.New("i/o timeout") }
				_, err = m.Up(x.ctx, lifecycle.UpOptions{})
				return dialed, err
			}
			if dialed, err := up("22"); err != nil || dialed {
				x.Errorf("%+v: first up: %v, dialed %t", c, err, dialed)
			}
			dialed, err := up("2222")
			if open := x.sshOpen("servers"); dialed != c.dials || (err != nil) != c.dials || slices.Contains(open, "22") != c.dials {
				x.Errorf("%+v: %v, dialed %t, %q are open", c, err, dialed, open)
			}
		})
	}
}

// Agents of a cluster that is gone are all reimaged, also by an up after one that did not reach all.
func TestOutcomeAllAgentsOfALostClusterAreRenewed(t *testing.T) {
	reimaged := map[string]int{}
	play(t, func(s *azsim.Server) {
		s.OnRequest = func(r azsim.Request) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.Path, "/reimage") && r.Status < 300 {
				reimaged[r.Path]++
			}
		}
	}, func(x *site) {
		go x.boot()
		x.up(twoPools)
		x.send(http.MethodDelete, serverVM, "2024-07-01", nil)
		x.send(http.MethodDelete, stateDisk, "2023-10-02", nil)
		if err := x.s.AddFault(azsim.Fault{Method: http.MethodPost, Path: "/reimage$", Count: 1, Effect: "error", Status: 403, Code: "AuthorizationFailed"}); err != nil {
			x.Fatal(err)
		}
		if _, err := x.manager(twoPools).Up(x.ctx, lifecycle.UpOptions{}); err == nil || !strings.Contains(err.Error(), "AuthorizationFailed") {
			x.Errorf("an agent is not reimaged: %v", err)
		}
		x.send(http.MethodDelete, morePool, "2024-07-01", nil) // one that is deleted meanwhile holds up none
		r, err := x.manager(file).Up(x.ctx, lifecycle.UpOptions{})
		if err != nil || len(reimaged) < 2 || !slices.Contains(r.Notes, "the state disk was lost, so this is a new cluster; agents of the old one were reimaged: pool agents") || x.tags(stateDisk)[recipe.TagRenew] != "" {
			x.Errorf("%v, reimaged %v, notes %q", err, reimaged, r.Notes)
		}
	})
}
