package simulate

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/workflow"
)

const networkAPI = "2024-05-01"

const machineType = "Microsoft.Compute/virtualMachines"

// A member is a virtual machine of a Flexible scale set. Its name and its Node's end at random; in
// the names of requests, and so in stories, both end with its number in the order of creation.
type member struct {
	id, set            fleet.ResourceID
	name, node         string // in lower case
	nameByNo, nodeByNo string
}

// findMembers notes the members that there are; those that were deleted stay noted.
func (w *world) findMembers() {
	if p := w.story.Pool; !p.Flexible && !p.Mixed {
		return
	}
	var all []member
	w.azure.View(func(v *azsim.View) {
		v.Each(machineType, func(id string, _ any) {
			if i, ok := v.Instance(id); ok && i.ScaleSet != "" {
				all = append(all, member{id: fleet.ResourceID(id), set: fleet.ResourceID(i.ScaleSet), name: low(fleet.ResourceID(id).Name()), node: low(i.HostName)})
			}
		})
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range all {
		if slices.ContainsFunc(w.members, func(known member) bool { return known.id == m.id }) {
			continue
		}
		n := 0
		for _, known := range w.members {
			if known.set.Equal(m.set) {
				n++
			}
		}
		m.nameByNo, m.nodeByNo = fmt.Sprintf("%s_%d", low(m.set.Name()), n), nameBy(m.node[:max(0, len(m.node)-nodeDigits)], n)
		w.members = append(w.members, m)
	}
}

const nodeDigits = 6

// nameBy is the name of an instance's Node in a Uniform set.
func nameBy(prefix string, n int) string {
	return fmt.Sprintf("%s%0*s", prefix, nodeDigits, strconv.FormatInt(int64(n), 36))
}

// member returns the first member that is as asked for.
func (w *world) member(is func(member) bool) (m member, found bool) {
	look := func() {
		if i := slices.IndexFunc(w.members, is); i >= 0 {
			m, found = w.members[i], true
		}
	}
	if w.locked(look); !found {
		w.findMembers()
		w.locked(look)
	}
	return m, found
}

// nodeName is the name of the Node of the pool's n-th instance.
func (w *world) nodeName(n int) string {
	name := nameBy(poolName, n)
	if m, found := w.member(func(m member) bool { return m.nodeByNo == name && m.set.Equal(w.pool) }); found {
		return m.node
	}
	return name
}

// instance is the id of the pool's n-th instance.
func (w *world) instance(n int) fleet.ResourceID {
	if m, found := w.member(func(m member) bool { return m.nameByNo == fmt.Sprintf("%s_%d", poolName, n) && m.set.Equal(w.pool) }); found {
		return m.id
	}
	return w.pool.Child("virtualMachines", fmt.Sprint(n))
}

// setOf returns the scale set of an instance, "" for a virtual machine of its own.
func (w *world) setOf(id fleet.ResourceID) fleet.ResourceID {
	if set := id.UniformPool(); set != "" {
		return set
	}
	m, _ := w.member(func(m member) bool { return m.id.Equal(id) })
	return m.set
}

// byNumber is a path in which members have their numbers.
func (w *world) byNumber(path string) string {
	return w.renamed(path, func(m member) []string { return []string{m.name, m.nameByNo, m.node, m.nodeByNo} })
}

// byName is a path of a request's name as it was sent.
func (w *world) byName(path string) string {
	return w.renamed(path, func(m member) []string { return []string{m.nameByNo, m.name, m.nodeByNo, m.node} })
}

// renamed replaces names of members, and what begins the names of their disks.
func (w *world) renamed(path string, pairs func(member) []string) string {
	if strings.Contains(path, "virtualMachines/") { // names of Nodes and disks are not seen before
		w.findMembers()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	parts := strings.Split(path, "/")
	for i, part := range parts {
		for _, m := range w.members {
			for p := pairs(m); len(p) > 1; p = p[2:] {
				if rest, begins := strings.CutPrefix(strings.ToLower(part), p[0]); begins && (rest == "" || rest[0] == '_') {
					parts[i] = p[1] + part[len(p[0]):]
				}
			}
		}
	}
	return strings.Join(parts, "/")
}

// onFlexible is a story that is played on a Flexible scale set.
func onFlexible(s Story) Story {
	const below = "virtualMachineScaleSets/" + poolName + "/virtualMachines/"
	renamed := func(request string) string {
		before, n, found := strings.Cut(request, below)
		switch {
		case !found || n == "":
			return request
		case strings.HasSuffix(before, " PUT "): // protection
			return before + below + poolName + "_" + n
		}
		return before + "virtualMachines/" + poolName + "_" + n
	}
	s.Name, s.Pool.Flexible, s.Single = "Flexible: "+s.Name, true, renamed(s.Single)
	s.Happen = slices.Clone(s.Happen)
	for i := range s.Happen {
		s.Happen[i].At = renamed(s.Happen[i].At)
		if strings.HasSuffix(s.Happen[i].At, "/"+nameBy(poolName, 1)) {
			s.Seed = 61 // by which this Node is the first by name of those that may be the workbench
		}
	}
	return s
}

// belowSet is the id of an instance below its scale set, where its protection is set.
func (w *world) belowSet(id fleet.ResourceID) fleet.ResourceID {
	if set := w.setOf(id); id.UniformPool() == "" && set != "" {
		return set.Child("virtualMachines", id.Name())
	}
	return id
}

// flexibles are stories of Flexible scale sets alone.
var flexibles = []Story{
	{Name: "member deleted between preflight and stop", Seed: 1, Pool: flexible(func(*Pool) {}), Asks: []Ask{{Do: "capture", Once: true, Exit: 1}},
		Cannot: "was not found", Happen: []Event{{At: memberPowerOff, What: "instance deleted", Target: "donor"}}},
	{Name: "member deleted between preflight and stop, and its name in no scale set", Seed: 1, Pool: flexible(func(*Pool) {}), Asks: []Ask{{Do: "capture", Once: true, Exit: 1}},
		Cannot: "another virtual machine has its name", Happen: []Event{{At: "azure GET virtualMachines/pool1_0", N: 7, What: "donor's name given to another machine"}}},
	{Name: "member deleted between preflight and stop, and its name in another scale set", Seed: 1,
		Pool: flexible(func(p *Pool) { p.Neighbour = 1 }), Asks: []Ask{{Do: "capture", Once: true, Exit: 1}}, Cannot: "another virtual machine has its name",
		Happen: []Event{{At: "azure GET virtualMachines/pool1_0", N: 7, What: "donor's name given to a member of another scale set"}}},
	{Name: "protection of members refused", Seed: 2, Pool: flexible(func(p *Pool) { p.Unprotectable = true }), Asks: []Ask{{Do: "capture", Grow: 1}, {Do: "rollback"}}},
	{Name: "protection of members refused, and killed", Seed: 3, Pool: flexible(func(p *Pool) { p.Unprotectable = true }), Asks: aCapture,
		Happen: at(putSnapshot, 1, "kill after")},
	{Name: "workbench deleted before its protection, and Azure refuses that", Seed: 0x7a376, Pool: flexible(func(*Pool) {}), Asks: aCapture,
		Happen: at("kube PUT ortet-system/secrets/ortet-journal-pool1-fd34c415d62c", 1, "autoscaler deletes empty nodes")},
	{Name: "autoscaler adds and deletes members", Seed: 4, Pool: flexible(func(*Pool) {}), Asks: []Ask{{Do: "capture", Grow: 1}}, Happen: []Event{
		{At: memberPowerOff, What: "autoscaler adds a node"}, {At: putSnapshot, What: "autoscaler deletes empty nodes"}, {At: putVersion, What: "autoscaler adds a node"}}},
	{Name: "workbench in a Uniform scale set", Seed: 5, Pool: flexible(func(p *Pool) { p.Neighbour, p.Mixed, p.Others = 2, true, "cordoned" }), Asks: aCapture},
	{Name: "workbench in a Flexible scale set", Seed: 6, Pool: with(func(p *Pool) { p.Neighbour, p.Mixed, p.Others = 2, true, "cordoned" }), Asks: aCapture},
}

const memberPowerOff = "azure POST virtualMachines/pool1_0/powerOff"

func flexible(change func(*Pool)) Pool {
	return with(func(p *Pool) {
		p.Flexible = true
		change(p)
	})
}

// giveName deletes a member, and makes a virtual machine of its name that is in another scale
// set, or in none.
func (w *world) giveName(c *computer, set fleet.ResourceID) {
	w.azure.Instant(true)
	defer w.azure.Instant(false)
	w.changeNode("instance deleted", c)
	nic := w.pool.Group() + "/providers/Microsoft.Network/networkInterfaces/another"
	network := w.pool.Group() + "/providers/Microsoft.Network/virtualNetworks/another"
	w.make(http.MethodPut, network, networkAPI, object{"location": location, "properties": object{"addressSpace": object{"addressPrefixes": []string{"10.0.0.0/8"}},
		"subnets": []object{{"name": "nodes", "properties": object{"addressPrefix": "10.0.0.0/16"}}}}})
	w.make(http.MethodPut, nic, networkAPI, object{"location": location, "properties": object{"ipConfigurations": []object{
		{"name": "ip", "properties": object{"subnet": object{"id": string(network) + "/subnets/nodes"}}}}}})
	machine := object{
		"hardwareProfile": object{"vmSize": w.size()}, "networkProfile": object{"networkInterfaces": []object{{"id": string(nic)}}},
		"osProfile":      object{"computerName": "another", "adminUsername": "azureuser", "adminPassword": "Corr3ct-horse"},
		"storageProfile": object{"imageReference": object{"publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": "server", "version": "latest"}, "osDisk": object{"createOption": "FromImage"}}}
	if set != "" {
		machine["virtualMachineScaleSet"] = object{"id": string(set)}
	}
	w.make(http.MethodPut, fleet.ResourceID(c.ResourceID), computeAPI, object{"location": location, "properties": machine})
	joined := w.modelOf(w.otherPool)
	w.locked(func() { w.otherModel = joined })
}

// moves is a cloud in which a member moves to another scale set once it was read.
type moves struct {
	azure.Cloud
	id, to fleet.ResourceID
	reads  atomic.Int64
}

func (m *moves) Instance(ctx context.Context, id fleet.ResourceID) (fleet.Instance, error) {
	i, err := m.Cloud.Instance(ctx, id)
	if m.id.Equal(id) && m.reads.Add(1) > 1 {
		i.Pool = m.to
	}
	return i, err
}

// TestOutcomeMemberThatMovesIsOfNoPool: a donor that moves to another scale set after its pool was
// locked is refused. The other one, whose lock is free, is not changed.
func TestOutcomeMemberThatMovesIsOfNoPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := usual
		pool.Flexible, pool.Neighbour = true, 2
		w := newWorld(Story{Seed: 3, Pool: pool})
		defer w.close()
		config, err := w.config("p1", w.azure.Transport(), w.kube, nil)
		if err != nil {
			t.Fatal(err)
		}
		config.Cloud = &moves{Cloud: config.Cloud, id: w.instance(0), to: w.otherPool}
		before := w.modelOf(w.otherPool).image
		result, err := capture.New(config).Capture(t.Context(), capture.Request{Node: w.nodeName(0)})
		if !workflow.RefusedFor(err, "PoolChanged") || !strings.Contains(err.Error(), "nothing was changed") {
			t.Errorf("the capture ends with %v, version %s", err, result.Version)
		}
		if now := w.modelOf(w.otherPool).image; now != before {
			t.Errorf("the other pool's model names %s", now)
		}
	})
}

// onBoth are stories that are played on both kinds of scale sets.
func onBoth() (all []Story) {
	for _, s := range slices.Concat(stories, extensionStories, found, others, rollbacks, taken, setStories, online, publishing) {
		all = append(all, s, onFlexible(s))
	}
	return append(all, flexibles...)
}
