package lifecycle_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/elastic/agents"
	"github.com/ortet/ortet/internal/elastic/lifecycle"
	"github.com/ortet/ortet/internal/fleet"
)

// readyNodes is a cluster in which each machine has a Ready Node, in another boot each
// time that it is read.
type readyNodes struct {
	mu    sync.Mutex
	boots int
}

func (n *readyNodes) Node(_ context.Context, name string) (fleet.Node, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.boots++
	return fleet.Node{Name: name, UID: name, Ready: true, BootID: fmt.Sprint(n.boots)}, nil
}

func (*readyNodes) Annotate(context.Context, string, map[string]*string) error { return nil }
func (*readyNodes) SetUnschedulable(context.Context, string, bool) error       { return nil }
func (*readyNodes) Forget(context.Context, string, string) error               { return nil }
func (*readyNodes) Drain(context.Context, string, cluster.DrainOptions, func(cluster.DrainEvent)) error {
	return nil
}

const operator = "0a7e7000-0000-4000-8000-000000000009"

const subscriptionScope = "subscription"

// A grant is a row of the table in docs/azure-permissions.md.
type grant struct {
	command, scope string // scope: subscriptionScope, lifecycle.RoleStorage or lifecycle.RoleCompute
	actions        []string
}

// documented is the table of what an operator of ortet cluster needs in Azure.
func documented(t *testing.T) (all []grant) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/azure-permissions.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "<!-- operator -->\n")
	table, _, _ := strings.Cut(rest, "<!-- end -->")
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.ReplaceAll(strings.TrimSpace(line), "`", ""), " | ")
		if len(cells) == 3 && strings.Contains(cells[2], "/") {
			all = append(all, grant{strings.TrimPrefix(cells[0], "| "), strings.TrimSuffix(cells[1], " group"), strings.Split(strings.TrimSuffix(cells[2], " |"), ", ")})
		}
	}
	if len(all) < 15 {
		t.Fatalf("docs/azure-permissions.md has %d rows about operators", len(all))
	}
	return all
}

// An operation is a command as an operator gives it.
type operation struct {
	command string
	do      func(x *site, c *agents.Control) (any, error)
}

func operations() []operation {
	auto := strings.Replace(file, "count: 2}", "count: 2}, {name: auto, min: 1, max: 2}", 1)
	up := func(text string, o lifecycle.UpOptions) func(*site, *agents.Control) (any, error) {
		return func(x *site, _ *agents.Control) (any, error) { return x.manager(text).Up(x.ctx, o) }
	}
	scale := func(n int) func(*site, *agents.Control) (any, error) {
		return func(x *site, c *agents.Control) (any, error) { return nil, c.Scale(x.ctx, "agents", n) }
	}
	return []operation{
		{"plan", func(x *site, _ *agents.Control) (any, error) { return x.manager(auto).Plan(x.ctx) }},
		{"up", up(auto, lifecycle.UpOptions{})},
		{"plan", func(x *site, _ *agents.Control) (any, error) { return x.manager(auto).Plan(x.ctx) }},
		{"status", func(x *site, _ *agents.Control) (any, error) { return x.manager(auto).Status(x.ctx) }},
		{"scale", scale(3)},
		{"scale", scale(2)},
		{"resize", func(x *site, c *agents.Control) (any, error) {
			return nil, c.Resize(x.ctx, "agents", "Standard_D4s_v5")
		}},
		{"stop", func(x *site, c *agents.Control) (any, error) { return nil, c.Stop(x.ctx, "agents") }},
		{"start", func(x *site, c *agents.Control) (any, error) { return nil, c.Start(x.ctx, "agents") }},
		{"reimage", func(x *site, c *agents.Control) (any, error) { return nil, c.Reimage(x.ctx, "agents", 1) }},
		{"replace", func(x *site, c *agents.Control) (any, error) { return nil, c.Replace(x.ctx, "agents_1") }},
		{"chaos", func(x *site, c *agents.Control) (any, error) {
			return nil, c.Chaos(x.ctx, "agents", func(int, func(i, j int)) {})
		}},
		{"up --prune", up(file, lifecycle.UpOptions{Prune: true})},
		{"down", func(x *site, _ *agents.Control) (any, error) {
			return x.manager(file).Down(x.ctx, []string{lifecycle.RoleCompute, lifecycle.RoleStorage})
		}},
	}
}

// scopeOf is the scope of a grant that a path of a request is in.
func scopeOf(path string) string {
	for _, role := range []string{lifecycle.RoleStorage, lifecycle.RoleCompute} {
		if strings.Contains(path+"/", "/resourcegroups/demo-"+role+"/") {
			return role
		}
	}
	return subscriptionScope
}

// operate gives all commands as an operator who may do what the grants say, but not one
// action at one scope; "" lacks nothing. It ends at the first that fails, and gives the
// command with all that it printed.
func operate(t *testing.T, lacksScope, lacks string, observe func(command string, r azsim.Request)) (failed, output string) {
	t.Helper()
	granted := map[string][]string{}
	for _, g := range documented(t) {
		for _, a := range g.actions {
			if g.scope != lacksScope || a != lacks {
				granted[g.scope] = append(granted[g.scope], a)
			}
		}
	}
	const subscription = "/subscriptions/" + azsim.DefaultSubscription
	var roles []azsim.Grant
	for scope, id := range map[string]string{subscriptionScope: subscription, lifecycle.RoleStorage: subscription + "/resourceGroups/demo-storage", lifecycle.RoleCompute: computeGroup} {
		if len(granted[scope]) > 0 {
			roles = append(roles, azsim.Grant{Role: "operator of " + scope, Scope: id, Actions: granted[scope]})
		}
	}
	var mu sync.Mutex
	command := ""
	play(t, func(s *azsim.Server) {
		s.Principals = []azsim.Principal{{Name: "owner", ClientID: azsim.DefaultClientID, Roles: []azsim.Grant{{Role: "Owner"}}}, {Name: "operator", ClientID: operator, ObjectID: operator, Roles: roles}}
		s.OnRequest = func(r azsim.Request) {
			mu.Lock()
			defer mu.Unlock()
			if r.Principal == operator && observe != nil {
				observe(command, r)
			}
		}
	}, func(x *site) {
		go x.boot()
		client, err := arm.NewResources(arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: x.s.Credential(operator), Transport: x.s.Transport(), Version: "test"})
		if err != nil {
			t.Fatal(err)
		}
		as := &site{x.T, x.s, client, x.ctx}
		control := &agents.Control{ARM: client, Nodes: &readyNodes{}, Group: computeGroup, DrainTimeout: time.Minute, ReadyTimeout: time.Minute, Now: time.Now}
		for _, o := range operations() {
			mu.Lock()
			command = o.command
			mu.Unlock()
			result, err := o.do(as, control)
			if err != nil {
				data, _ := json.Marshal(result)
				failed, output = o.command, err.Error()+"\n"+string(data)
				return
			}
		}
	})
	return failed, output
}

func TestOperatorNeedsTheActionsAlone(t *testing.T) {
	grants := documented(t)
	var unused []string
	for _, g := range grants {
		for _, a := range g.actions {
			if !strings.HasSuffix(a, "/join/action") && !strings.HasSuffix(a, "/assign/action") { // checked by linked requests
				unused = append(unused, strings.ToLower(g.command+" "+g.scope+" "+a))
			}
		}
	}
	failed, output := operate(t, "", "", func(command string, r azsim.Request) {
		action := strings.ToLower(r.Action)
		key := command + " " + scopeOf(r.Path) + " " + action
		unused = slices.DeleteFunc(unused, func(s string) bool { return s == key })
		if action != "" && !slices.ContainsFunc(grants, func(g grant) bool {
			of := g.command == command || g.command == "status" || g.command == "up" && command == "up --prune"
			return of && g.scope == scopeOf(r.Path) && slices.ContainsFunc(g.actions, func(a string) bool { return strings.ToLower(a) == action })
		}) {
			t.Errorf("%s uses %s on %s", command, r.Action, r.Path)
		}
	})
	if failed != "" {
		t.Errorf("%s fails with the documented actions: %s", failed, output)
	}
	if len(unused) > 0 {
		t.Errorf("not used:\n%s", strings.Join(unused, "\n"))
	}
}

func TestOperatorLacksAnAction(t *testing.T) {
	done := map[string]bool{}
	for _, g := range documented(t) {
		for _, a := range g.actions {
			name := g.scope + " " + a
			if done[name] {
				continue
			}
			done[name] = true
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				failed, output := operate(t, g.scope, a, nil)
				if failed == "" || !strings.Contains(strings.ToLower(output), strings.ToLower(a)) {
					t.Errorf("command %q failed with %q", failed, output)
				}
			})
		}
	}
}
