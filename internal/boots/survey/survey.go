package survey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
)

// A Story is all that is known of one node or instance.
type Story struct {
	assess.Assessment
	// Gone tells that the machine is not there any more, and this is what was kept.
	Gone    bool        `json:"gone,omitempty"`
	Boot    *fleet.Boot `json:"boot,omitempty"`
	Console []string    `json:"console,omitempty"` // what matters of the serial log
	// Configuration is why the configuration in place is not applied, "" where it is or
	// where there is none.
	Configuration string `json:"configuration,omitempty"`
	// Sure is how sure the reason is; it follows from it.
	Sure string `json:"confidence,omitempty"`
}

// A Survey is what one observation shows.
type Survey struct {
	Stories []Story
	Notes   []string           // what is worth knowing of what was not read
	Missing []fleet.ResourceID // scale sets that were named and do not exist
	Unread  []string           // what could not be read: without it the stories are no answer
	Now     time.Time
	Since   time.Time    // older instances do not count
	Pools   []fleet.Pool // that were listed
}

// ListMachines lists the virtual machines of a resource group, as azure.Reader does.
type ListMachines = func(ctx context.Context, group fleet.ResourceID) (map[fleet.ResourceID]fleet.ResourceID, error)

// A Surveyor observes the instances of pools, of all if none is named. Nodes, Records, Now, and
// Boots or Unasked are required.
type Surveyor struct {
	Nodes     Nodes
	Records   cluster.Records
	Boots     azure.Boots
	Machines  ListMachines // nil where no virtual machine is placed
	Unasked   error        // why Azure cannot be asked
	Pools     []fleet.ResourceID
	Groups    []fleet.ResourceID // besides those of pools and Nodes
	Deadlines assess.Deadlines
	Since     time.Time // older instances do not count
	Now       func() time.Time
}

// Nodes are the cluster's; cluster.Cluster has them.
type Nodes interface {
	Node(ctx context.Context, name string) (fleet.Node, error)
	Nodes(ctx context.Context) iter.Seq2[fleet.Node, error]
}

// maxSerialReads bounds how many serial logs one command reads.
const maxSerialReads = 32

// Observe reads Azure, the Nodes and the kept evidence. What cannot be read of Azure is
// reported beside the rest. A serial log is read where it could tell more, and of the
// instance that is named in any case.
func (v *Surveyor) Observe(ctx context.Context, named string) (Survey, error) {
	s := Survey{Now: v.Now(), Since: v.Since}
	var nodes []assess.NodeView
	for n, err := range v.Nodes.Nodes(ctx) {
		if err != nil {
			return s, err
		}
		nodes = append(nodes, *assess.ViewOf(n))
	}
	var kept []Story
	for r, err := range v.Records.Records(ctx, map[string]string{assess.EvidenceLabel: assess.EvidenceValue}) {
		if err != nil {
			s.Unread = append(s.Unread, "what a controller kept was not read: "+err.Error())
			break
		}
		if e, ok := assess.ReadEvidence(r); ok {
			kept = append(kept, Story{Assessment: e.Assessment, Gone: true, Boot: e.Boot, Console: e.Console})
		}
	}
	more := v.Groups
	if len(v.Pools) == 0 {
		more = slices.Concat(more, groupsOf(nodes))
	}
	if v.Unasked != nil {
		s.Unread = append(s.Unread, "Azure was not asked, so instances that never became Nodes are missing: "+v.Unasked.Error())
	} else {
		listed, boots, missing, problems := listBoots(ctx, v.Boots, v.Pools, more)
		s.Pools, s.Missing = listed, missing
		s.Unread = append(s.Unread, problems...)
		s.assess(ctx, v.Boots, boots, nodes, kept, v.Deadlines, named)
	}
	s.rest(nodes, kept)
	s.place(ctx, v.Machines, v.Pools)
	s.only(v.Pools)
	slices.SortStableFunc(s.Stories, func(a, b Story) int {
		return strings.Compare(strings.ToLower(a.Pool.Name())+" "+a.Title(), strings.ToLower(b.Pool.Name())+" "+b.Title())
	})
	return s, ctx.Err()
}

// groupsOf returns the resource groups of Nodes.
func groupsOf(nodes []assess.NodeView) (groups []fleet.ResourceID) {
	for i := range nodes {
		if id, ok := assess.InstanceOf(nodes[i].ProviderID); ok {
			groups = append(groups, id.Group())
		}
	}
	return groups
}

// distinct returns the ids in order, each once.
func distinct(ids []fleet.ResourceID) []fleet.ResourceID {
	sorted := slices.SortedFunc(slices.Values(ids), func(a, b fleet.ResourceID) int { return cmp.Compare(fleet.KeyOf(a), fleet.KeyOf(b)) })
	return slices.CompactFunc(sorted, fleet.ResourceID.Equal)
}

// Title is the name by which a story is shown.
func (n Story) Title() string { return cmp.Or(n.Node, cmp.Or(n.HostName, n.Name)) }

// Named reports whether a name is one of the Node or the instance.
func (n Story) Named(name string) bool {
	for _, s := range []string{n.Node, n.HostName, n.Name, string(n.Instance), n.VMID} {
		if s != "" && strings.EqualFold(s, name) {
			return true
		}
	}
	return false
}

// listBoots lists the pools, some at a time.
func listBoots(ctx context.Context, look azure.Boots, pools, more []fleet.ResourceID) (all []fleet.Pool, boots []fleet.Boot, missing []fleet.ResourceID, problems []string) {
	wanted := map[fleet.Key]bool{}
	for _, p := range pools {
		wanted[fleet.KeyOf(p)] = true
		more = append(more, p.Group())
	}
	var mu sync.Mutex
	problem := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		problems = append(problems, err.Error())
	}
	var g errgroup.Group
	g.SetLimit(4)
	for _, group := range distinct(more) {
		g.Go(func() error {
			list, err := look.Pools(ctx, group)
			noGroup := fleet.Is(err, fleet.KindNotFound) && slices.ContainsFunc(pools, func(p fleet.ResourceID) bool { return p.Group().Equal(group) })
			if err != nil && !noGroup {
				problem(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, p := range pools {
				if (err == nil || noGroup) && p.Group().Equal(group) && !slices.ContainsFunc(list, func(l fleet.Pool) bool { return l.ID.Equal(p) }) {
					missing = append(missing, p)
				}
			}
			for _, p := range list {
				if len(wanted) == 0 || wanted[fleet.KeyOf(p.ID)] {
					all = append(all, p)
				}
			}
			return nil
		})
	}
	_ = g.Wait() // problems are collected
	for _, pool := range all {
		g.Go(func() error {
			list, err := look.Boots(ctx, pool)
			if err != nil {
				problem(err)
			}
			mu.Lock()
			defer mu.Unlock()
			boots = append(boots, list...)
			return nil
		})
	}
	_ = g.Wait()
	slices.Sort(problems)
	return all, boots, missing, problems
}

// assess puts in the instances that there are.
func (s *Survey) assess(ctx context.Context, look azure.Boots, boots []fleet.Boot, nodes []assess.NodeView, kept []Story, deadlines assess.Deadlines, named string) {
	begin := len(s.Stories)
	for i := range boots {
		b := &boots[i]
		n := Story{Boot: b}
		var previous assess.Assessment
		for _, k := range kept {
			if k.VMID != "" && strings.EqualFold(k.VMID, b.VMID) {
				previous, n.Console = k.Assessment, k.Console
			}
		}
		n.Assessment = assess.Assess(*b, assess.NodeFor(nodes, *b), nil, previous, s.Now, deadlines)
		s.Stories = append(s.Stories, n)
	}
	wanted := logsWanted(s.Stories[begin:], named, s.Now)
	if more := len(wanted) - maxSerialReads; more > 0 {
		wanted = wanted[:maxSerialReads]
		s.Notes = append(s.Notes, fmt.Sprintf("the serial logs of %d more instances were not read; name one to see what it says", more))
	}
	var g errgroup.Group
	g.SetLimit(4)
	var mu sync.Mutex
	for _, n := range wanted {
		g.Go(func() error {
			log, err := look.SerialLog(ctx, n.Instance)
			if err == nil && len(log) > 0 {
				n.Assessment = assess.Assess(*n.Boot, assess.NodeFor(nodes, *n.Boot), log, n.Assessment, s.Now, deadlines)
				n.Console = assess.Relevant(log, 60)
			}
			if err != nil && !fleet.Is(err, fleet.KindNotFound) && !fleet.Is(err, fleet.KindUnsupported) {
				mu.Lock()
				defer mu.Unlock()
				s.Notes = append(s.Notes, err.Error())
			}
			return nil
		})
	}
	_ = g.Wait() // what cannot be read is told in the notes
}

// logsWanted are the stories to which a serial log could add something: that of
// the instance that is named; without a name those that failed and do not say why
// themselves, then those that boot, the oldest first, and those that became Ready
// lately, since it may have cost them something, or not last. A controller would
// let a boot take some minutes before it looks; who asks now wants to know now.
func logsWanted(stories []Story, named string, now time.Time) []*Story {
	var failed, booting, ready []*Story
	for i := range stories {
		n := &stories[i]
		switch {
		case !n.Boot.Console:
		case named != "":
			if n.Named(named) {
				failed = append(failed, n)
			}
		case n.State == assess.Booting:
			booting = append(booting, n)
		case assess.LogWanted(n.Assessment, now):
			failed = append(failed, n)
		case n.Source == assess.FromNode && now.Sub(n.Began) < lately:
			ready = append(ready, n)
		}
	}
	slices.SortStableFunc(booting, func(a, b *Story) int { return a.Began.Compare(b.Began) })
	slices.SortStableFunc(ready, func(a, b *Story) int { return b.Began.Compare(a.Began) })
	return slices.Concat(failed, booting, ready)
}

// lately is how long after its start a node's boot is still news.
const lately = 30 * time.Minute

// rest puts in Nodes that are no instances that were seen, and what was kept of
// machines that are gone.
func (s *Survey) rest(nodes []assess.NodeView, kept []Story) {
	shown, vms := map[string]bool{}, map[string]bool{}
	for _, n := range s.Stories {
		shown[n.Node], vms[n.VMID] = true, true
	}
	for _, k := range kept {
		if vms[k.VMID] || k.State == assess.Succeeded {
			continue
		}
		// Where Azure was not seen a Node of the name tells that it is there.
		k.Gone = !slices.ContainsFunc(nodes, func(n assess.NodeView) bool { return n.Name == k.Node })
		if !k.Gone {
			shown[k.Node] = true
		}
		s.Stories = append(s.Stories, k)
	}
	for i := range s.Stories {
		at := slices.IndexFunc(nodes, func(n assess.NodeView) bool { return n.Name == s.Stories[i].Node })
		if at >= 0 {
			s.Stories[i].Configuration = nodes[at].Configuration
		}
	}
	for _, v := range nodes {
		if shown[v.Name] {
			continue
		}
		n := Story{Configuration: v.Configuration, Assessment: assess.Assessment{Node: v.Name, HostName: v.Name, Created: v.Created, Since: v.ReadySince}}
		if id, ok := assess.InstanceOf(v.ProviderID); ok {
			n.Instance = id
			if id.Segment("virtualMachineScaleSets") != "" {
				n.Pool = id.Parent()
			}
			if why := s.notInstance(v, id); why != nil {
				n.Instance, n.Pool, n.Note = "", "", errors.Unwrap(why).Error()
			}
		}
		switch {
		case v.Ready || v.CameUp:
			n.State, n.Source = assess.Succeeded, assess.FromNode
		case s.isGone(n): // a cloud controller deletes such Nodes, some time later
			n.State, n.Note = assess.Deleting, "its instance is gone"
		default:
			n.Note = cmp.Or(n.Note, cmp.Or(v.Why, "the node is not Ready"))
		}
		s.Stories = append(s.Stories, n)
	}
}

// notInstance says why a Node is not the instance that it names, if that one was seen.
func (s *Survey) notInstance(node assess.NodeView, id fleet.ResourceID) error {
	for _, n := range s.Stories {
		if n.Boot != nil && n.Boot.Instance.Equal(id) {
			return node.Claim().Is(n.Boot.Computer())
		}
	}
	return nil
}

// isGone reports whether the instances of a Node's pool were read, and the Node's is not there.
func (s *Survey) isGone(node Story) bool {
	return len(s.Unread) == 0 && slices.ContainsFunc(s.Pools, func(p fleet.Pool) bool { return p.ID.Equal(node.Pool) }) &&
		!slices.ContainsFunc(s.Stories, func(n Story) bool { return n.Boot != nil && n.Instance.Equal(node.Instance) })
}

// place finds the scale sets of virtual machines whose Nodes alone were seen, in the groups of
// the pools that were asked for: such an id does not name its scale set.
func (s *Survey) place(ctx context.Context, list ListMachines, pools []fleet.ResourceID) {
	read := map[fleet.Key]map[fleet.ResourceID]fleet.ResourceID{}
	for i := range s.Stories {
		n := &s.Stories[i]
		group := n.Instance.Group()
		if n.Pool != "" || n.Instance == "" || list == nil ||
			!slices.ContainsFunc(pools, func(p fleet.ResourceID) bool { return p.Group().Equal(group) }) {
			continue
		}
		machines, known := read[fleet.KeyOf(group)]
		if !known {
			var err error
			if machines, err = list(ctx, group); err != nil {
				s.Unread = append(s.Unread, err.Error())
			}
			read[fleet.KeyOf(group)] = machines
		}
		pool, there := machines[fleet.ResourceID(strings.ToLower(string(n.Instance)))]
		if n.Pool = pool; machines != nil && !there {
			s.Notes = append(s.Notes, fmt.Sprintf("node %s: its virtual machine %s does not exist any more; its scale set is unknown",
				n.Node, n.Instance.Name()))
		}
	}
}

// only leaves out what is of other pools than those that were asked for, if any.
func (s *Survey) only(pools []fleet.ResourceID) {
	if len(pools) > 0 {
		s.Stories = slices.DeleteFunc(s.Stories, func(n Story) bool { return !slices.ContainsFunc(pools, n.Pool.Equal) })
	}
}
