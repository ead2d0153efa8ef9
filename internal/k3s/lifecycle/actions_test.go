package lifecycle_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/agents"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

// readyNodes is a cluster in which each machine has a Ready Node, in another boot each
// time that it is read.
type readyNodes struct {
	machines func(context.Context) ([]agents.Machine, error)
	mu       sync.Mutex
	boots    int
}

func (*readyNodes) Now() time.Time { return time.Now() }

func (n *readyNodes) Node(ctx context.Context, name string) (fleet.Node, error) {
	for node, err := range n.Nodes(ctx) {
		if err != nil || node.Name == name {
			return node, err
		}
	}
	return fleet.Node{}, &fleet.Error{Op: "read node", Kind: fleet.KindNotFound}
}

func (n *readyNodes) Nodes(ctx context.Context) iter.Seq2[fleet.Node, error] {
	return func(yield func(fleet.Node, error) bool) {
		n.mu.Lock()
		n.boots++
		boot := fmt.Sprint(n.boots)
		n.mu.Unlock()
		machines, err := n.machines(ctx)
		if err != nil {
			yield(fleet.Node{}, err)
		}
		for _, m := range machines {
			if !yield(fleet.Node{Name: m.Node, UID: m.Node, SystemUUID: m.VMID, Ready: true, BootID: boot}, nil) {
				return
			}
		}
	}
}

func (*readyNodes) Annotate(context.Context, string, map[string]*string) error { return nil }
func (*readyNodes) SetUnschedulable(context.Context, string, bool) error       { return nil }
func (*readyNodes) Forget(context.Context, string, string) error               { return nil }
func (*readyNodes) Drain(context.Context, string, cluster.DrainOptions, func(cluster.DrainEvent)) error {
	return nil
}

const subscriptionScope = "subscription"

// A grant is a row of the table in docs/reference/azure-permissions.md.
type grant struct {
	command, scope string // scope: subscriptionScope, or a group by its role
	actions        []string
}

// of reports whether a row is about a command; some are about several.
func (g grant) of(command string) bool {
	return slices.Contains(strings.Split(g.command, ", "), command)
}

// documented is the table of what an operator of ortet cluster needs in Azure.
func documented(t *testing.T) (all []grant) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/reference/azure-permissions.md")
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
		t.Fatalf("docs/reference/azure-permissions.md has %d rows about operators", len(all))
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
	grouped := strings.Replace(backedUp(1, "northeurope"), "backups", "demo-backup", 1)
	up := func(text string, o lifecycle.UpOptions) func(*site, *agents.Control) (any, error) {
		return func(x *site, _ *agents.Control) (any, error) { return x.manager(text).Up(x.ctx, o) }
	}
	scale := func(n int) func(*site, *agents.Control) (any, error) {
		return func(x *site, c *agents.Control) (any, error) { return nil, c.Scale(x.ctx, "agents", int64(n)) }
	}
	return []operation{
		{"plan", func(x *site, _ *agents.Control) (any, error) { return x.manager(auto).Plan(x.ctx) }},
		{"up", up(auto, lifecycle.UpOptions{})},
		{"plan", func(x *site, _ *agents.Control) (any, error) { return x.manager(auto).Plan(x.ctx) }},
		{"status", func(x *site, _ *agents.Control) (any, error) { return x.manager(auto).Status(x.ctx) }},
		{"up", up(auto, lifecycle.UpOptions{})}, // of what exists
		{"scale", scale(3)},
		{"scale", scale(2)},
		{"resize", func(x *site, c *agents.Control) (any, error) {
			return nil, c.Resize(x.ctx, "agents", "Standard_D4s_v5")
		}},
		{"stop", func(x *site, c *agents.Control) (any, error) { return nil, c.Stop(x.ctx, "agents") }},
		{"start", func(x *site, c *agents.Control) (any, error) { return nil, c.Start(x.ctx, "agents") }},
		{"reimage", func(x *site, c *agents.Control) (any, error) { return nil, c.Reimage(x.ctx, "agents", 1, false) }},
		{"replace", func(x *site, c *agents.Control) (any, error) { return nil, c.Replace(x.ctx, "agents_1") }},
		{"chaos", func(x *site, c *agents.Control) (any, error) {
			return nil, c.Chaos(x.ctx, "agents", func(int, func(i, j int)) {})
		}},
		{"up of another server", up(strings.NewReplacer("ea5647", "0b5647", "  pools:", "  server: {size: Standard_D4s_v5, stateGB: 16}\n  pools:").Replace(auto), lifecycle.UpOptions{})},
		{"backup", func(x *site, _ *agents.Control) (any, error) {
			b, err := x.manager(file).Backup(x.ctx, "", "")
			if err == nil {
				err = x.manager(file).DeleteBackup(x.ctx, b.Name)
			}
			return b, err
		}},
		{"backup to a group", func(x *site, _ *agents.Control) (any, error) {
			var err error
			for range 2 { // the second deletes the first
				time.Sleep(10 * time.Minute)
				if _, err = x.manager(grouped).BackupToGroup(x.ctx); err != nil {
					break
				}
			}
			return nil, err
		}},
		{"status", func(x *site, _ *agents.Control) (any, error) { return x.manager(grouped).Status(x.ctx) }},
		{"replace server", func(x *site, _ *agents.Control) (any, error) {
			return x.manager(auto).ReplaceServer(x.ctx, lifecycle.UpOptions{})
		}},
		{"restore", func(x *site, _ *agents.Control) (any, error) {
			all, err := x.manager(file).Backups(x.ctx)
			if err == nil && !slices.ContainsFunc(all, func(b lifecycle.Backup) bool { return b.Name == "good" }) {
				_, err = x.manager(file).Backup(x.ctx, "good", "")
			}
			if err != nil {
				return all, err
			}
			return x.manager(auto).Restore(x.ctx, "good")
		}},
		{"stop of the cluster", func(x *site, _ *agents.Control) (any, error) { return x.manager(auto).Stop(x.ctx) }},
		{"start of the cluster", func(x *site, _ *agents.Control) (any, error) { return x.manager(auto).Start(x.ctx) }},
		{"up --prune", up(file, lifecycle.UpOptions{Prune: true})},
		{"down", func(x *site, _ *agents.Control) (any, error) {
			return x.manager(file).Down(x.ctx, []string{lifecycle.RoleCompute, lifecycle.RoleState, lifecycle.RoleStorage})
		}},
	}
}

// scopeOf is the scope of a grant that a path of a request is in.
func scopeOf(path string) string {
	for _, role := range []string{lifecycle.RoleStorage, lifecycle.RoleCompute, recipe.RoleBackup} {
		if strings.Contains(path+"/", "/resourcegroups/demo-"+role+"/") {
			return role
		}
	}
	return subscriptionScope
}

// An operator may do what is documented, but not one action at one scope; "" lacks
// nothing.
type lack struct{ scope, action string }

// rights are the roles of an operator.
func rights(grants []grant, l lack) (roles []azsim.Grant) {
	const subscription = "/subscriptions/" + azsim.DefaultSubscription
	for scope, id := range map[string]string{subscriptionScope: subscription, lifecycle.RoleStorage: storageGroup, lifecycle.RoleCompute: computeGroup,
		recipe.RoleBackup: subscription + "/resourceGroups/demo-backup"} {
		role := azsim.Grant{Role: "operator of " + scope, Scope: id}
		for _, g := range grants {
			for _, a := range g.actions {
				if g.scope == scope && (lack{scope, a}) != l {
					role.Actions = append(role.Actions, a)
				}
			}
		}
		if len(role.Actions) > 0 {
			roles = append(roles, role)
		}
	}
	return roles
}

func operatorID(i int) string { return fmt.Sprintf("0a7e7000-0000-4000-8000-%012d", i) }

// operate gives test a world with operators that lack something, and as, which does an
// operation as one of them and gives what it printed when it failed.
func operate(t *testing.T, lacks []lack, observe func(r azsim.Request), test func(x *site, as func(i int, o operation) (failed bool, output string))) {
	t.Helper()
	grants := documented(t)
	play(t, func(s *azsim.Server) {
		s.Principals = []azsim.Principal{{Name: "owner", ClientID: azsim.DefaultClientID, Roles: []azsim.Grant{{Role: "Owner"}}}}
		for i, l := range lacks {
			s.Principals = append(s.Principals, azsim.Principal{Name: fmt.Sprint("operator ", i), ClientID: operatorID(i), ObjectID: operatorID(i), Roles: rights(grants, l)})
		}
		s.OnRequest = observe
		twoRegions(s)
	}, func(x *site) {
		x.k3s = "v1.36.3+k3s1"
		go x.boot()
		test(x, func(i int, o operation) (bool, string) {
			as := siteOf(x.ctx, x.T, x.s, operatorID(i))
			all := &agents.Control{ARM: x.arm, Cloud: x.cloud, Group: computeGroup}
			nodes := &readyNodes{machines: func(ctx context.Context) ([]agents.Machine, error) {
				return all.Machines(ctx, fleet.ResourceID(computeGroup).In("virtualMachineScaleSets", "agents"))
			}}
			control := &agents.Control{ARM: as.arm, Cloud: as.cloud, Nodes: nodes, Group: computeGroup, DrainTimeout: time.Minute, ReadyTimeout: time.Minute, Now: time.Now}
			result, err := o.do(as, control)
			if err == nil {
				return false, ""
			}
			data, _ := json.Marshal(result)
			return true, err.Error() + "\n" + string(data)
		})
	})
}

func TestOperatorNeedsTheActionsAlone(t *testing.T) {
	grants := documented(t)
	var unused []string
	for _, g := range grants {
		for _, a := range g.actions {
			if !strings.HasSuffix(a, "/join/action") && !strings.HasSuffix(a, "/assign/action") && !strings.HasSuffix(a, "/beginGetAccess/action") { // checked by linked requests
				unused = append(unused, strings.ToLower(g.command+" "+g.scope+" "+a))
			}
		}
	}
	var mu sync.Mutex
	command := ""
	observe := func(r azsim.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Principal != operatorID(0) {
			return
		}
		action := strings.ToLower(r.Action)
		key := " " + scopeOf(r.Path) + " " + action
		unused = slices.DeleteFunc(unused, func(s string) bool {
			of, is := strings.CutSuffix(s, key)
			return is && (grant{command: of}).of(command)
		})
		if action != "" && !slices.ContainsFunc(grants, func(g grant) bool {
			of := g.of(command) || g.command == "status" || g.command == "up" && (strings.HasPrefix(command, "up") || command == "replace server" || command == "restore")
			return of && g.scope == scopeOf(r.Path) && slices.ContainsFunc(g.actions, func(a string) bool { return strings.ToLower(a) == action })
		}) {
			t.Errorf("%s uses %s on %s", command, r.Action, r.Path)
		}
	}
	operate(t, []lack{{}}, observe, func(x *site, as func(int, operation) (bool, string)) {
		for _, o := range operations() {
			mu.Lock()
			command = o.command
			mu.Unlock()
			if failed, output := as(0, o); failed {
				x.Fatalf("%s fails with the documented actions: %s", o.command, output)
			}
		}
	})
	if len(unused) > 0 {
		t.Errorf("not used:\n%s", strings.Join(unused, "\n"))
	}
}

// In one world each command is given by operators that lack an action of it, before one
// who lacks nothing does it: most are refused before anything changes. An action that is
// not needed in that state is lacking in a world of its own.
func TestOperatorLacksAnAction(t *testing.T) {
	var lacks []lack
	commands := map[lack]string{}
	for _, scope := range []string{subscriptionScope, lifecycle.RoleCompute, lifecycle.RoleStorage, recipe.RoleBackup} {
		for _, g := range documented(t) {
			for _, a := range g.actions {
				if l := (lack{g.scope, a}); g.scope == scope && commands[l] == "" {
					lacks, commands[l] = append(lacks, l), g.command
				}
			}
		}
	}
	refused := map[lack]bool{}
	try := func(i int, l lack, o operation, as func(int, operation) (bool, string)) {
		failed, output := as(i, o)
		if failed && !strings.Contains(strings.ToLower(output), strings.ToLower(l.action)) {
			t.Errorf("%s without %s on %s: %s", o.command, l.action, l.scope, output)
		}
		refused[l] = refused[l] || failed
	}
	operate(t, append(lacks, lack{}), nil, func(x *site, as func(int, operation) (bool, string)) {
		for _, o := range operations() {
			for i, l := range lacks {
				if (grant{command: commands[l]}).of(o.command) && !refused[l] {
					try(i, l, o, as)
				}
			}
			if failed, output := as(len(lacks), o); failed {
				x.Fatalf("%s: %s", o.command, output)
			}
		}
	})
	for _, l := range lacks {
		if refused[l] {
			continue
		}
		t.Log("in a world of its own:", l)
		operate(t, []lack{l}, nil, func(x *site, as func(int, operation) (bool, string)) {
			for _, o := range operations() {
				if try(0, l, o, as); refused[l] {
					return
				}
			}
			x.Errorf("%s without %s on %s is not refused", commands[l], l.action, l.scope)
		})
	}
}
