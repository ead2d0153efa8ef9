package recipe_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

const (
	azsimCompute = fleet.ResourceID("/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/demo-compute")
	azsimStorage = fleet.ResourceID("/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/demo-storage")
	azsimPool    = azsimCompute + "/providers/Microsoft.Compute/virtualMachineScaleSets/agents"
	azsimServer  = azsimCompute + "/providers/Microsoft.Compute/virtualMachines/server"
)

// A deployed cluster is one in azsim, served by HTTP, whose machines run nothing.
type deployed struct {
	t     *testing.T
	azure *azsim.Server
	url   string
	arm   *arm.Resources

	mu      sync.Mutex
	actions map[string]bool // "client id action" that were granted
}

func deploy(t *testing.T) *deployed {
	t.Helper()
	d := &deployed{t: t, actions: map[string]bool{}}
	web := httptest.NewUnstartedServer(nil)
	d.url = "http://" + web.Listener.Addr().String()
	d.azure = &azsim.Server{Seed: 1, Base: d.url, OnRequest: func(r azsim.Request) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if r.Status < 400 {
			d.actions[r.Principal+" "+strings.ToLower(r.Action)] = true
		}
	}}
	web.Config.Handler = d.azure
	web.Start()
	t.Cleanup(func() { web.Close(); d.azure.Close() })
	d.azure.Instant(true)
	options := arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: d.azure.Credential(""), Transport: d.azure.Transport(), Version: "test"}
	var err error
	if d.arm, err = arm.NewResources(options); err != nil {
		t.Fatal(err)
	}
	cloud, err := arm.New(options)
	if err != nil {
		t.Fatal(err)
	}
	m := lifecycle.New(lifecycle.Config{ARM: d.arm, Cloud: cloud, Subscription: azsim.DefaultSubscription, Cluster: minimal(), Render: recipe.Render,
		SSHPublicKey: facts().SSHPublicKey, OwnAddresses: facts().OwnAddresses, Poll: 10 * time.Millisecond})
	if _, err := m.Up(t.Context(), lifecycle.UpOptions{NoWait: true}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the group is deployed", func() bool {
		var state struct {
			Properties struct{ ProvisioningState string }
		}
		err := d.arm.Get(t.Context(), azsimCompute+"/providers/Microsoft.Resources/deployments/ortet", "2021-04-01", &state)
		return err == nil && state.Properties.ProvisioningState == "Succeeded"
	})
	return d
}

// on has boot.py of a machine run with this cluster's Azure.
func (d *deployed) on(machine string, id fleet.ResourceID) *world {
	d.t.Helper()
	w := newWorld(d.t)
	w.imds, w.manager = d.url+"/azsim/imds"+string(id), d.url
	w.install(machine, nil)
	w.put(w.root+"/etc/ssh/ssh_host_ed25519_key.pub", "ssh-ed25519 AAAAhost root@server\n", 0o644)
	if machine == "server" { // the artifacts that are here
		_, err := d.arm.Send(d.t.Context(), "write userData", http.MethodPatch, id, "2024-07-01", object{"properties": object{"userData": w.data}})
		if err != nil {
			d.t.Fatal(err)
		}
	}
	return w
}

// may gives the custom role of a grant other actions.
func (d *deployed) may(g recipe.Grant, actions []string) {
	d.t.Helper()
	group := azsimCompute
	if g.Scope == "account" {
		group = azsimStorage
	}
	found := 0
	err := d.arm.List(d.t.Context(), group+"/providers/Microsoft.Authorization/roleDefinitions", "2022-04-01", func(raw json.RawMessage) error {
		var role struct {
			ID         fleet.ResourceID `json:"id"`
			Properties object           `json:"properties"`
		}
		if err := json.Unmarshal(raw, &role); err != nil || !strings.HasPrefix(role.Properties["roleName"].(string), "Ortet demo "+g.Name+" ") {
			return err
		}
		found++
		role.Properties["permissions"] = []any{object{"actions": actions, "notActions": []string{}}}
		_, err := d.arm.Send(d.t.Context(), "change the role", http.MethodPut, group+"/providers/Microsoft.Authorization/roleDefinitions/"+fleet.ResourceID(role.ID.Name()),
			"2022-04-01", object{"properties": role.Properties})
		return err
	})
	if err != nil || found != 1 {
		d.t.Fatalf("role %s: %d found: %v", g.Name, found, err)
	}
}

// identity returns the client and object id of an identity.
func (d *deployed) identity(name string) (client, object string) {
	d.t.Helper()
	var v struct {
		Properties struct{ ClientID, PrincipalID string }
	}
	if err := d.arm.Get(d.t.Context(), azsimStorage+"/providers/Microsoft.ManagedIdentity/userAssignedIdentities/"+fleet.ResourceID(name), "2023-01-31", &v); err != nil {
		d.t.Fatal(err)
	}
	return v.Properties.ClientID, v.Properties.PrincipalID
}

// admits does in Azure what the server's admission does: it reads one machine that asks
// to join, and lists those of the pool.
func (d *deployed) admits() error {
	d.t.Helper()
	client, _ := d.identity(recipe.ServerIdentity)
	c, err := arm.New(arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: d.azure.Credential(client), Transport: d.azure.Transport()})
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := c.Member(d.t.Context(), azsimPool+"/virtualMachines/0"); err != nil {
		return err
	}
	_, err = c.Members(d.t.Context(), azsimPool, true)
	return err
}

// lives runs the machines until one cannot go on because an action is denied, which it
// gives with the message, or until all of them have done all that they do.
func (d *deployed) lives(denied string) string {
	d.t.Helper()
	for _, step := range []struct {
		machine, argument string
		id                fleet.ResourceID
		w                 *world
	}{{machine: "server", id: azsimServer}, {machine: "agents", id: azsimPool + "/virtualMachines/0"}} {
		w := d.on(step.machine, step.id)
		arguments := [][]string{nil}
		if step.machine == "server" {
			arguments = append(arguments, []string{"publish"})
		}
		for _, a := range arguments {
			if message := w.until(denied, a...); message != "" {
				return message
			}
		}
	}
	if err := d.admits(); err != nil {
		return err.Error()
	}
	return ""
}

// until runs boot.py to its end, or until it says that an action is denied.
func (w *world) until(denied string, arguments ...string) string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	log, err := os.Create(w.root + "/log")
	if err != nil {
		w.t.Fatal(err)
	}
	defer log.Close()
	w.log = log
	wait := w.start(ctx, arguments...)
	ended := make(chan error, 1)
	go func() { _, err := wait(); ended <- err }()
	for {
		select {
		case err := <-ended:
			if err != nil {
				w.t.Fatalf("boot.py: %v\n%s", err, w.read("/log"))
			}
			return ""
		case <-time.After(10 * time.Millisecond):
		}
		if said := w.read("/log"); denied != "" && strings.Contains(strings.ToLower(said), strings.ToLower("'"+denied+"'")) {
			cancel()
			<-ended //nolint:errcheck // it was killed
			return said
		}
	}
}

func TestMachinesNeedTheActionsAlone(t *testing.T) {
	d := deploy(t)
	if message := d.lives(""); message != "" {
		t.Fatal(message)
	}
	for _, name := range []string{recipe.ServerIdentity, recipe.AgentIdentity} {
		var want, got []string
		for _, g := range recipe.Actions() {
			for _, a := range g.Actions {
				if g.Identity == name {
					want = append(want, strings.ToLower(a))
				}
			}
		}
		_, object := d.identity(name)
		d.mu.Lock()
		for asked := range d.actions {
			if action, its := strings.CutPrefix(asked, object+" "); its && action != "" {
				got = append(got, action)
			}
		}
		d.mu.Unlock()
		slices.Sort(want)
		slices.Sort(got)
		if want = slices.Compact(want); !slices.Equal(got, want) {
			t.Errorf("%s used\n%s\nand may do\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func TestMachineLacksAnAction(t *testing.T) {
	d := deploy(t)
	for _, g := range recipe.Actions() {
		for i, a := range g.Actions {
			t.Run(fmt.Sprint(g.Identity, " on ", g.Scope, " ", a), func(t *testing.T) {
				d.t = t
				d.may(g, slices.Delete(slices.Clone(g.Actions), i, i+1))
				if message := d.lives(a); !strings.Contains(strings.ToLower(message), strings.ToLower(a)) {
					t.Errorf("without %s: %q", a, message)
				}
			})
			d.t = t
			d.may(g, g.Actions)
		}
	}
}
