package admission

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/ortet/ortet/internal/fleet"
)

const (
	reapPool  = fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/agents")
	reapOther = fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/others")
	oldVM     = "11111111-0000-4000-8000-000000000001"
	newVM     = "22222222-0000-4000-8000-000000000002"
)

var reapNow = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func reapInstance(n int) fleet.ResourceID {
	return reapPool.Child("virtualMachines", strconv.Itoa(n))
}

// lost is a Node that was admitted and whose kubelet is silent.
func lost(n int) AdmittedNode {
	return AdmittedNode{Name: "agents00000" + strconv.Itoa(n), Instance: reapInstance(n), Pool: reapPool, VMID: oldVM, Admitted: reapNow.Add(-time.Hour),
		Exists: true, UID: "u" + strconv.Itoa(n), Version: "1", ProviderID: "azure://" + string(reapInstance(n)), ReadySince: reapNow.Add(-time.Minute), Renewed: reapNow.Add(-10 * time.Minute)}
}

// joining is what is held of a machine that has its token since some minutes, and whose
// kubelet has not spoken yet.
func joining(change func(*AdmittedNode)) AdmittedNode {
	n := AdmittedNode{Name: "agents000001", Instance: reapInstance(1), Pool: reapPool, VMID: oldVM, Admitted: reapNow.Add(-9 * time.Minute)}
	if change != nil {
		change(&n)
	}
	return n
}

func TestDecideReap(t *testing.T) {
	notFound := &look{err: &fleet.Error{Op: "get", Kind: fleet.KindNotFound}}
	empty := &poolSeen{listed: true, members: map[string]fleet.Member{}}
	has := func(vm string, power fleet.PowerState, state string) *poolSeen {
		return &poolSeen{listed: true, members: map[string]fleet.Member{keyOf(reapInstance(1)): {Instance: reapInstance(1), VMID: vm, Power: power, ProvisioningState: state}}}
	}
	change := func(do func(*AdmittedNode)) AdmittedNode { n := lost(1); do(&n); return n }
	for name, tc := range map[string]struct {
		node AdmittedNode
		pool *poolSeen
		l    *look
		want Fate
	}{
		"of another scale set":             {lost(1), nil, notFound, FateForeign},
		"missing from the list":            {lost(1), empty, nil, FateWaits},
		"and gone":                         {lost(1), empty, notFound, FateGone},
		"the list was behind":              {lost(1), empty, &look{member: fleet.Member{VMID: oldVM}}, FateExists},
		"the list was behind, vmId's case": {lost(1), empty, &look{member: fleet.Member{VMID: strings.ToUpper(oldVM)}}, FateExists},
		"cannot be asked for":              {lost(1), empty, &look{err: &fleet.Error{Op: "get", Kind: fleet.KindThrottled}}, FateUnknown},
		"asked for with other credentials": {lost(1), empty, &look{err: &fleet.Error{Op: "get", Kind: fleet.KindDenied}}, FateUnknown},
		"an error of no kind":              {lost(1), empty, &look{err: context.Canceled}, FateUnknown},
		"the list failed":                  {lost(1), &poolSeen{}, nil, FateUnknown},
		"the scale set is gone, once":      {lost(1), &poolSeen{gone: 1}, nil, FateUnknown},
		"the scale set is gone, twice":     {lost(1), &poolSeen{gone: 2}, nil, FateWaits},
		"and the instance is":              {lost(1), &poolSeen{gone: 2}, notFound, FateGone},
		"but the instance is not":          {lost(1), &poolSeen{gone: 2}, &look{member: fleet.Member{VMID: oldVM}}, FateExists},
		"runs":                             {lost(1), has(oldVM, fleet.PowerRunning, "Succeeded"), nil, FateExists},
		"restarts":                         {lost(1), has(oldVM, fleet.PowerStarting, "Updating"), nil, FateExists},
		"is stopped":                       {lost(1), has(oldVM, fleet.PowerStopped, "Succeeded"), nil, FateExists},
		"is deallocated":                   {lost(1), has(oldVM, fleet.PowerDeallocated, "Succeeded"), nil, FateExists},
		"is being deleted":                 {lost(1), has(oldVM, "", "Deleting"), nil, FateExists},
		"failed":                           {lost(1), has(oldVM, "", "Failed"), nil, FateExists},
		"is listed without vmId":           {lost(1), has("", fleet.PowerRunning, "Creating"), nil, FateExists},
		"another machine of the id":        {lost(1), has(newVM, fleet.PowerRunning, "Creating"), nil, FateWaits},
		"and it is":                        {lost(1), has(newVM, fleet.PowerRunning, "Creating"), &look{member: fleet.Member{VMID: newVM}}, FateReplaced},
		"but it is not":                    {lost(1), has(newVM, fleet.PowerRunning, "Creating"), &look{member: fleet.Member{VMID: oldVM}}, FateExists},
		"and is gone by then":              {lost(1), has(newVM, fleet.PowerRunning, "Creating"), notFound, FateGone},
		"the new machine was admitted":     {change(func(n *AdmittedNode) { n.VMID = newVM }), has(newVM, fleet.PowerRunning, "Succeeded"), nil, FateExists},
		"alive":                            {change(func(n *AdmittedNode) { n.Ready, n.Renewed = true, reapNow.Add(-50*time.Second) }), empty, nil, FateAlive},
		"alive, it turns out":              {change(func(n *AdmittedNode) { n.Renewed = reapNow.Add(-50 * time.Second) }), empty, notFound, FateAlive},
		"alive with a fast clock":          {change(func(n *AdmittedNode) { n.Renewed = reapNow.Add(time.Hour) }), empty, notFound, FateAlive},
		"alive under another's id":         {change(func(n *AdmittedNode) { n.Ready, n.Renewed = true, reapNow }), has(newVM, fleet.PowerRunning, ""), nil, FateAlive},
		"Ready, as nobody looked":          {change(func(n *AdmittedNode) { n.Ready = true }), empty, notFound, FateGone},
		"no lease":                         {change(func(n *AdmittedNode) { n.Renewed = time.Time{} }), empty, notFound, FateGone},
		"admitted, never registered":       {AdmittedNode{Name: "a", Instance: reapInstance(1), Pool: reapPool, VMID: oldVM}, empty, notFound, FateGone},
		"admitted, not registered yet":     {AdmittedNode{Name: "a", Instance: reapInstance(1), Pool: reapPool, VMID: oldVM}, has(oldVM, "", "Creating"), nil, FateExists},
		"admitted, the id was used again":  {AdmittedNode{Name: "a", Instance: reapInstance(1), Pool: reapPool, VMID: oldVM}, has(newVM, "", "Creating"), &look{member: fleet.Member{VMID: newVM}}, FateReplaced},
		"admitted just now":                {joining(nil), empty, nil, FateJoins},
		"admitted just now, not found":     {joining(nil), has(newVM, "", ""), notFound, FateJoins},
		"admitted just now, registered":    {joining(func(n *AdmittedNode) { n.Exists, n.UID, n.Version = true, "u", "1" }), empty, nil, FateJoins},
		"joins as its scale set is gone":   {joining(nil), &poolSeen{gone: 2}, nil, FateJoins},
		"admitted anew after a restart":    {joining(func(n *AdmittedNode) { n.Exists, n.Renewed = true, reapNow.Add(-10*time.Minute) }), empty, notFound, FateJoins},
		"admitted by a fast clock":         {joining(func(n *AdmittedNode) { n.Admitted = reapNow.Add(time.Second) }), empty, notFound, FateJoins},
		"its token has ended":              {joining(func(n *AdmittedNode) { n.Admitted = reapNow.Add(-10 * time.Minute) }), empty, notFound, FateGone},
		"it was heard of":                  {joining(func(n *AdmittedNode) { n.Exists, n.Renewed = true, reapNow.Add(-2*time.Minute) }), empty, notFound, FateGone},
		"it registered, and was lost":      {joining(func(n *AdmittedNode) { n.Exists, n.Created = true, n.Admitted.Add(time.Second) }), empty, notFound, FateGone},
		"it registered, and has no lease":  {joining(func(n *AdmittedNode) { n.Exists, n.Created = true, reapNow.Add(-50*time.Second) }), empty, notFound, FateAlive},
		"joins, with an earlier Node":      {joining(func(n *AdmittedNode) { n.Exists, n.Created = true, reapNow.Add(-time.Hour) }), empty, notFound, FateJoins},
		"joins, the id was used again":     {joining(nil), has(newVM, "", "Creating"), nil, FateWaits},
		"and another machine has it":       {joining(nil), has(newVM, "", "Creating"), &look{member: fleet.Member{VMID: newVM}}, FateReplaced},
		"joins, and Azure shows it":        {joining(nil), has(oldVM, "", "Creating"), nil, FateExists},
		"not admitted by us":               {change(func(n *AdmittedNode) { n.Instance, n.Pool, n.VMID = "", "", "" }), empty, notFound, FateGone},
		"not admitted by us, and there":    {change(func(n *AdmittedNode) { n.Instance, n.Pool, n.VMID = "", "", "" }), has(newVM, "", ""), nil, FateExists},
	} {
		if got := decideReap(tc.node, tc.pool, tc.l, reapNow, 10*time.Minute); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestPlace(t *testing.T) {
	machine := reapPool.In("virtualMachines", "flex_1")
	for name, tc := range map[string]struct {
		node           AdmittedNode
		instance, pool fleet.ResourceID
	}{
		"azure's":                      {lost(1), reapInstance(1), reapPool},
		"in other letters":             {AdmittedNode{Instance: reapInstance(1), Pool: reapPool, ProviderID: "azure://" + strings.ToUpper(string(reapInstance(1)))}, reapInstance(1), reapPool},
		"k3s's own id":                 {AdmittedNode{Instance: reapInstance(1), Pool: reapPool, ProviderID: "k3s://agents000001"}, reapInstance(1), reapPool},
		"none yet":                     {AdmittedNode{Instance: reapInstance(1), Pool: reapPool}, reapInstance(1), reapPool},
		"another instance's":           {AdmittedNode{Instance: reapInstance(1), Pool: reapPool, ProviderID: "azure://" + string(reapInstance(2))}, "", ""},
		"of a Flexible pool, admitted": {AdmittedNode{Instance: machine, Pool: reapPool, ProviderID: "azure://" + string(machine)}, machine, reapPool},
		"not admitted":                 {AdmittedNode{ProviderID: "azure://" + string(reapInstance(1))}, reapInstance(1), reapPool},
		"a machine, not admitted":      {AdmittedNode{ProviderID: "azure://" + string(machine)}, "", ""},
		"k3s's, not admitted":          {AdmittedNode{ProviderID: "k3s://server"}, "", ""},
		"of another cloud":             {AdmittedNode{ProviderID: "aws:///eu/i-1"}, "", ""},
		"nothing":                      {AdmittedNode{}, "", ""},
	} {
		if instance, pool := place(tc.node); instance != tc.instance || pool != tc.pool {
			t.Errorf("%s: %q of %q", name, instance, pool)
		}
	}
}

// A heldCluster is what the cluster holds of machines.
type heldCluster struct {
	nodes  map[string]AdmittedNode
	err    error
	fails  int // how often yet, of the lists
	refuse error
	// before is called when something is about to be deleted.
	before func(name string)
}

func (h *heldCluster) Admitted(context.Context) ([]AdmittedNode, error) {
	if h.err != nil {
		return nil, h.err
	}
	if h.fails--; h.fails >= 0 {
		return nil, errors.New("the API server is away")
	}
	return slices.Collect(maps.Values(h.nodes)), nil
}

func (h *heldCluster) Reap(_ context.Context, node AdmittedNode) (bool, error) {
	if h.before != nil {
		h.before(node.Name)
	}
	if h.refuse != nil {
		return false, h.refuse
	}
	if h.nodes[node.Name] != node {
		return false, nil
	}
	delete(h.nodes, node.Name)
	return true, nil
}

func (h *heldCluster) names() []string { return slices.Sorted(maps.Keys(h.nodes)) }

// A smallCloud has instances by their scale set, and may say wrong things.
type smallCloud struct {
	have    map[fleet.ResourceID]map[fleet.ResourceID]fleet.Member
	hidden  map[fleet.ResourceID]bool // from lists
	listErr map[fleet.ResourceID]error
	errOnce int // of the lists with errors, how many; 0 is all
	getErr  error
	slow    func() // is called by each list
	gets    int
	lists   int
}

func (c *smallCloud) Members(_ context.Context, pool fleet.ResourceID, views bool) ([]fleet.Member, error) {
	c.lists++
	if c.slow != nil {
		c.slow()
	}
	if views {
		return nil, errors.New("instance views, which nobody looks at")
	}
	if err := c.listErr[pool]; err != nil {
		if c.errOnce == 0 {
			return nil, err
		}
		if c.errOnce--; c.errOnce == 0 {
			delete(c.listErr, pool)
		}
		return nil, err
	}
	if c.have[pool] == nil {
		return nil, &fleet.Error{Op: "list", Resource: string(pool), Kind: fleet.KindNotFound}
	}
	var out []fleet.Member
	for id, m := range c.have[pool] {
		if !c.hidden[id] {
			out = append(out, m)
		}
	}
	return out, nil
}

func (c *smallCloud) Member(_ context.Context, id fleet.ResourceID) (fleet.Member, error) {
	c.gets++
	if c.getErr != nil {
		return fleet.Member{}, c.getErr
	}
	if m, there := c.have[id.Parent()][id]; there {
		return m, nil
	}
	return fleet.Member{}, &fleet.Error{Op: "get", Resource: string(id), Kind: fleet.KindNotFound}
}

func (c *smallCloud) put(n int, vm string) {
	if c.have == nil {
		c.have = map[fleet.ResourceID]map[fleet.ResourceID]fleet.Member{reapPool: {}}
	}
	id := reapInstance(n)
	c.have[reapPool][id] = fleet.Member{Instance: id, Pool: reapPool, VMID: vm}
}

func newTestReaper(t *testing.T, h *heldCluster, c *smallCloud) (*Reaper, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	r, err := NewReaper(ReaperConfig{Admissions: h, Members: c, Pools: []fleet.ResourceID{reapPool}, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Metrics: prometheus.NewRegistry(), Now: func() time.Time { return reapNow }})
	if err != nil {
		t.Fatal(err)
	}
	return r, &log
}

func held(nodes ...AdmittedNode) *heldCluster {
	h := &heldCluster{nodes: map[string]AdmittedNode{}}
	for _, n := range nodes {
		h.nodes[n.Name] = n
	}
	return h
}

func wantNodes(t *testing.T, h *heldCluster, names ...string) {
	t.Helper()
	if got := h.names(); !slices.Equal(got, names) {
		t.Errorf("left are %v, want %v", got, names)
	}
}

// A round deletes what is left of machines that are gone or are others by now, each
// with a line of the audit log, and nothing else.
func TestReaperRound(t *testing.T) {
	c := &smallCloud{hidden: map[fleet.ResourceID]bool{reapInstance(2): true}}
	c.put(1, oldVM)
	c.put(2, oldVM)
	c.put(4, newVM)
	never := AdmittedNode{Name: "agents000005", Instance: reapInstance(5), Pool: reapPool, VMID: oldVM}
	foreign := AdmittedNode{Name: "others000001", Exists: true, ProviderID: "azure://" + string(reapOther.Child("virtualMachines", "1"))}
	k3s := lost(6)
	k3s.ProviderID = "k3s://agents000006"
	h := held(lost(1), lost(2), lost(3), lost(4), never, foreign, k3s)
	r, log := newTestReaper(t, h, c)
	if err := r.Round(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantNodes(t, h, "agents000001", "agents000002", "others000001")
	if c.gets != 5 || c.lists != 1 {
		t.Errorf("%d lists, %d gets", c.lists, c.gets)
	}
	for _, want := range []string{
		"msg=admission operation=reap decision=deleted reason=InstanceGone node=agents000003 instance=" + string(reapInstance(3)) + " vmId=" + oldVM + " registered=true",
		"reason=InstanceReplaced node=agents000004", "reason=InstanceGone node=agents000005 instance=" + string(reapInstance(5)) + " vmId=" + oldVM + " registered=false", "node=agents000006",
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no line %q in\n%s", want, log)
		}
	}
	if n := strings.Count(log.String(), "operation=reap"); n != 4 {
		t.Errorf("%d lines of the audit log", n)
	}
	if n := counted(t, r.reaped.WithLabelValues("InstanceGone")); n != 3 {
		t.Errorf("%v counted as gone", n)
	}
	if n := counted(t, r.rounds.WithLabelValues("ok")); n != 1 {
		t.Errorf("%v rounds", n)
	}
}

// The Node of a canary goes with its scale set.
func TestReaperOfADeletedCanary(t *testing.T) {
	c := &smallCloud{}
	c.put(1, oldVM)
	node := lost(2)
	node.Name, node.Pool = "canary000000", fleet.CanaryOf(reapPool)
	node.Instance = node.Pool.Child("virtualMachines", "0")
	node.ProviderID = "azure://" + string(node.Instance)
	h := held(lost(1), node)
	r, _ := newTestReaper(t, h, c)
	for range roundsGone {
		if err := r.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	wantNodes(t, h, "agents000001")
}

// What changes while the reaper looks is not deleted.
func TestReaperIsOvertaken(t *testing.T) {
	c := &smallCloud{}
	c.put(9, oldVM)
	h := held(lost(1))
	h.before = func(name string) {
		n := h.nodes[name]
		n.VMID, n.Admitted = newVM, reapNow
		h.nodes[name] = n
	}
	r, log := newTestReaper(t, h, c)
	if err := r.Round(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantNodes(t, h, "agents000001")
	if !strings.Contains(log.String(), "decision=changed") || counted(t, r.reaped.WithLabelValues("InstanceGone")) != 0 {
		t.Error(log)
	}
	h.nodes["agents000001"], h.before = lost(1), nil
	h.refuse = &fleet.Error{Op: "delete node", Kind: fleet.KindDenied}
	if err := r.Round(t.Context()); !fleet.Is(err, fleet.KindDenied) || !strings.Contains(log.String(), "decision=failed") {
		t.Errorf("%v, %s", err, log)
	}
}

// A round may take long, since Azure has the lists wait. What was alive when its Lease was
// read is held to be alive, however late it is by the time it is decided.
func TestReaperOfALongRound(t *testing.T) {
	now := reapNow
	c := &smallCloud{slow: func() { now = now.Add(5 * time.Minute) }}
	c.put(9, oldVM)
	alive := lost(1)
	alive.Ready, alive.Renewed = true, reapNow.Add(-5*time.Second)
	h := held(alive, lost(2))
	r, _ := newTestReaper(t, h, c)
	r.config.Now = func() time.Time { return now }
	if err := r.Round(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantNodes(t, h, "agents000001")
}

// A machine that was just admitted, and has no Node yet, keeps its token for as long as
// it is good: a list that is behind and a wrong 404 are not its end. Then they are.
func TestReaperLeavesWhoJoins(t *testing.T) {
	now := reapNow
	c := &smallCloud{}
	c.put(9, oldVM)
	h := held(joining(nil))
	r, _ := newTestReaper(t, h, c)
	r.config.Now, r.config.Joins = func() time.Time { return now }, 15*time.Minute
	for _, want := range [][]string{{"agents000001"}, nil} {
		if err := r.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantNodes(t, h, want...)
		now = now.Add(6 * time.Minute) // it was admitted 9 minutes before
	}
	if n := counted(t, r.known.WithLabelValues(string(FateJoins))); n != 0 {
		t.Errorf("%v join still", n)
	}
}

// Wrong and broken answers cost no Node.
func TestReaperIsNotFooled(t *testing.T) {
	wrong := &fleet.Error{Op: "list", Resource: string(reapPool), Kind: fleet.KindNotFound}
	for name, tc := range map[string]struct {
		spoil func(*smallCloud)
		lists int
		fails bool
	}{
		"the list fails": {func(c *smallCloud) { c.listErr[reapPool] = &fleet.Error{Op: "list", Kind: fleet.KindTransient} }, 1, true},
		"the list is empty": {func(c *smallCloud) {
			c.hidden = map[fleet.ResourceID]bool{reapInstance(1): true, reapInstance(2): true}
		}, 1, false},
		"the scale set is not found once":  {func(c *smallCloud) { c.listErr[reapPool], c.errOnce = wrong, 1 }, 2, false},
		"the scale set is not found, ever": {func(c *smallCloud) { c.listErr[reapPool] = wrong }, 2, false},
		"nothing is found by itself":       {func(c *smallCloud) { c.getErr = &fleet.Error{Op: "get", Kind: fleet.KindNotFound} }, 1, false},
		"the list is empty, and nobody knows": {func(c *smallCloud) {
			c.have[reapPool] = map[fleet.ResourceID]fleet.Member{}
			c.getErr = errors.New("x")
		}, 1, true},
		"the credentials may not see instance": {func(c *smallCloud) {
			delete(c.have[reapPool], reapInstance(1))
			c.getErr = &fleet.Error{Op: "get", Kind: fleet.KindDenied}
		}, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := &smallCloud{listErr: map[fleet.ResourceID]error{}}
			c.put(1, oldVM)
			c.put(2, oldVM)
			tc.spoil(c)
			h := held(lost(1), lost(2))
			r, _ := newTestReaper(t, h, c)
			for range 3 {
				c.lists = 0
				if err := r.Round(t.Context()); (err != nil) != tc.fails {
					t.Error(err)
				}
				if name != "the scale set is not found once" && c.lists != tc.lists {
					t.Errorf("%d lists", c.lists)
				}
			}
			wantNodes(t, h, "agents000001", "agents000002")
		})
	}
	// The cluster's own list that fails.
	h := held(lost(1))
	h.err = errors.New("half of it")
	r, _ := newTestReaper(t, h, &smallCloud{})
	if err := r.Round(t.Context()); !errors.Is(err, h.err) {
		t.Error(err)
	}
	if n := counted(t, r.rounds.WithLabelValues("failed")); n != 1 {
		t.Errorf("%v", n)
	}
}

// A scale set that is deleted takes its Nodes along, at the second round that does not
// find it, since each of its instances is not found either.
func TestReaperOfADeletedPool(t *testing.T) {
	h := held(lost(1), lost(2))
	c := &smallCloud{have: map[fleet.ResourceID]map[fleet.ResourceID]fleet.Member{}}
	r, _ := newTestReaper(t, h, c)
	if err := r.Round(t.Context()); err != nil || c.lists != 2 || c.gets != 0 {
		t.Errorf("%v, %d lists, %d gets", err, c.lists, c.gets)
	}
	wantNodes(t, h, "agents000001", "agents000002")
	if err := r.Round(t.Context()); err != nil || c.gets != 2 {
		t.Errorf("%v, %d gets", err, c.gets)
	}
	wantNodes(t, h)
	// With nobody left nothing is asked.
	c.lists = 0
	if err := r.Round(t.Context()); err != nil || c.lists != 0 {
		t.Errorf("%v, %d lists", err, c.lists)
	}
}

// However many are gone, a round asks for a bounded number of them.
func TestReaperIsBounded(t *testing.T) {
	h := held()
	for n := range 3*maxLooks - 1 {
		x := lost(n)
		h.nodes[x.Name] = x
	}
	c := &smallCloud{have: map[fleet.ResourceID]map[fleet.ResourceID]fleet.Member{reapPool: {}}}
	r, _ := newTestReaper(t, h, c)
	for round := 1; round <= 3; round++ {
		if err := r.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want := max(0, 3*maxLooks-1-round*maxLooks); len(h.nodes) != want || c.gets > round*maxLooks {
			t.Errorf("after round %d %d are left, by %d gets", round, len(h.nodes), c.gets)
		}
	}
}

// Run goes on at its interval while it leads, whatever fails, and ends with its context.
func TestReaperRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, c := held(lost(1)), &smallCloud{}
		c.put(2, oldVM)
		led := false
		r, err := NewReaper(ReaperConfig{Admissions: h, Members: c, Pools: []fleet.ResourceID{reapPool, fleet.ResourceID(strings.ToUpper(string(reapPool)))}, Interval: time.Minute, Now: func() time.Time { return reapNow },
			Lead: func(ctx context.Context, run func(context.Context)) error {
				led = true
				time.Sleep(time.Hour)
				ctx, cancel := context.WithTimeout(ctx, 150*time.Second)
				defer cancel()
				run(ctx)
				return errors.New("led no more")
			}})
		if err != nil {
			t.Fatal(err)
		}
		h.fails = 2
		if err := r.Run(t.Context()); err == nil || err.Error() != "led no more" || !led {
			t.Error(err)
		}
		wantNodes(t, h)
		if n := counted(t, r.rounds.WithLabelValues("failed")); n != 2 {
			t.Errorf("%v rounds failed", n)
		}
	})
	if _, err := NewReaper(ReaperConfig{}); !fleet.Is(err, fleet.KindInvalid) {
		t.Error(err)
	}
}

// counted returns a metric's value.
func counted(t *testing.T, m prometheus.Metric) float64 {
	t.Helper()
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.GetCounter().GetValue()
}
