package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/cluster/conversion"
	"github.com/ortet/ortet/internal/fleet"
)

// nodesFlags are those of ortet nodes.
type nodesFlags struct {
	pools, groups []string
	failed        bool
	deadline      time.Duration
	wait, since   time.Duration
}

func newNodes(o *options) *cobra.Command {
	var f nodesFlags
	c := &cobra.Command{
		Use:   "nodes [NAME]",
		Short: "Show which nodes came up, and why others failed",
		Long: `nodes lists the instances of the scale sets that the cluster's nodes belong to,
with a verdict for each: also for instances that never registered a Node. With the
name of a node or an instance it shows what failed, who can fix it and how, the
duration of each stage, and the log lines that prove it.

It reads Azure and the cluster directly, so it needs no controller. If ortet
controller runs, it also lists failed instances that were deleted since.

With --wait it ends when each instance has a verdict: 0 if all came up, 4 if some did
not, 1 if some have none when the time is over.`,
		Example: `  ortet nodes
  ortet nodes --failed --pool k8s-pool1-12345678-vmss
  ortet nodes --wait 15m --since 1h --pool k8s-pool1-12345678-vmss`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return oneNode("a node or an instance")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd, args); err != nil {
				return err
			}
			more, err := groups(f.groups)
			if err != nil {
				return err
			}
			v, err := o.openSurvey(cmd.Context(), f.pools, more, assess.Deadlines{Boot: f.deadline})
			if err != nil {
				return err
			}
			if f.since > 0 {
				v.since = time.Now().Add(-f.since)
			}
			if f.wait > 0 {
				s, err := v.waitForVerdicts(cmd.Context(), f.wait)
				if err != nil {
					return err
				}
				return o.printWaited(s, f)
			}
			s, err := v.observe(cmd.Context(), strings.Join(args, ""))
			if err != nil {
				return err
			}
			s = s.young()
			if len(args) == 1 {
				return o.printNode(s, args[0])
			}
			return o.printNodes(s, f.failed)
		},
	}
	o.takesForms(c, nameForm)
	p := c.Flags()
	p.StringArrayVar(&f.pools, "pool", nil, "`POOL` to inspect instead of all: a scale set's name or ARM id; repeatable")
	p.StringArrayVar(&f.groups, "resource-group", nil, "ARM `ID` of a resource group whose scale sets are inspected too; repeatable")
	p.BoolVar(&f.failed, "failed", false, "show only nodes that failed, timed out or came up degraded")
	durationVar(p, &f.wait, "wait", 0, "time to wait until each instance has a verdict; 0 is not at all")
	durationVar(p, &f.since, "since", 0, "age of the oldest instances to show and to wait for; 0 is any")
	durationVar(p, &f.deadline, "boot-deadline", assess.DefaultBootDeadline, "time limit from an instance's creation until its Node is Ready")
	return c
}

// A nodeStory is all that is known of one node or instance.
type nodeStory struct {
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

// survey is what one look gives.
type survey struct {
	stories []nodeStory
	notes   []string           // what is worth knowing of what was not read
	missing []fleet.ResourceID // scale sets that were named and do not exist
	unread  []string           // what could not be read: without it the stories are no answer
	now     time.Time
	since   time.Time    // older instances do not count
	pools   []fleet.Pool // that were listed
}

// maxSerialReads bounds how many serial logs one command reads.
const maxSerialReads = 32

// A surveyor observes the instances of pools, of all if none is named.
type surveyor struct {
	o         *options
	client    kubernetes.Interface
	look      lookout
	lookErr   error // Azure cannot be asked
	pools     []fleet.ResourceID
	groups    []fleet.ResourceID // besides those of pools and Nodes
	deadlines assess.Deadlines
	since     time.Time
}

// openSurvey connects, and finds pools by their names or ARM ids. Azure may be away.
func (o *options) openSurvey(ctx context.Context, pools []string, more []fleet.ResourceID, deadlines assess.Deadlines) (*surveyor, error) {
	config, err := o.kubernetes()
	if err != nil {
		return nil, err
	}
	if err := o.reach(ctx, config); err != nil {
		return nil, err
	}
	v := &surveyor{o: o, groups: more, deadlines: deadlines}
	if v.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("set up the Kubernetes client: %w", err)
	}
	if v.look, v.lookErr = o.connectBoots(ctx, nil); errors.As(v.lookErr, new(refusedFileError)) {
		return nil, v.lookErr
	}
	for _, arg := range pools {
		id, err := v.pool(ctx, arg)
		if err != nil {
			return nil, err
		}
		v.pools = append(v.pools, id)
	}
	return v, ctx.Err()
}

// survey is one observation.
func (o *options) survey(ctx context.Context, more []fleet.ResourceID) (survey, error) {
	v, err := o.openSurvey(ctx, nil, more, assess.Deadlines{})
	if err != nil {
		return survey{}, err
	}
	return v.observe(ctx, "")
}

// observe reads Azure, the Nodes and the kept evidence. What cannot be read of Azure is
// reported beside the rest. A serial log is read where it could tell more, and of the
// instance that is named in any case.
func (v *surveyor) observe(ctx context.Context, named string) (survey, error) {
	s := survey{now: time.Now(), since: v.since}
	o, pools, look, deadlines := v.o, v.pools, v.look, v.deadlines
	nodes, err := listNodes(ctx, v.client)
	if err != nil {
		return s, err
	}
	kept, err := listEvidence(ctx, v.client, o.namespace)
	if err != nil {
		s.unread = append(s.unread, err.Error())
	}
	more := v.groups
	if len(pools) == 0 {
		more = v.groupsWith(nodes)
	}
	if v.lookErr != nil {
		s.unread = append(s.unread, "Azure was not asked, so instances that never became Nodes are missing: "+v.lookErr.Error())
	} else {
		listed, boots, missing, problems := listBoots(ctx, look, pools, more)
		s.pools, s.missing = listed, missing
		s.unread = append(s.unread, problems...)
		s.assess(ctx, look, boots, nodes, kept, deadlines, named)
	}
	s.rest(nodes, kept)
	s.place(ctx, look, pools)
	s.only(pools)
	slices.SortStableFunc(s.stories, func(a, b nodeStory) int {
		return strings.Compare(strings.ToLower(a.Pool.Name())+" "+a.title(), strings.ToLower(b.Pool.Name())+" "+b.title())
	})
	return s, ctx.Err()
}

func (n nodeStory) title() string { return first(n.Node, first(n.HostName, n.Name)) }

func (n nodeStory) named(name string) bool {
	for _, s := range []string{n.Node, n.HostName, n.Name, string(n.Instance), n.VMID} {
		if s != "" && strings.EqualFold(s, name) {
			return true
		}
	}
	return false
}

func listNodes(ctx context.Context, client kubernetes.Interface) ([]assess.NodeView, error) {
	var out []assess.NodeView
	for options := (metav1.ListOptions{Limit: 250}); ; {
		page, err := client.CoreV1().Nodes().List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list nodes: %w", err)
		}
		for i := range page.Items {
			out = append(out, *assess.ViewOf(conversion.Node(&page.Items[i])))
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return out, nil
		}
	}
}

// listEvidence reads what a controller kept.
func listEvidence(ctx context.Context, client kubernetes.Interface, namespace string) ([]nodeStory, error) {
	var out []nodeStory
	for options := (metav1.ListOptions{Limit: 100, LabelSelector: assess.EvidenceLabel + "=" + assess.EvidenceValue}); ; {
		page, err := client.CoreV1().ConfigMaps(namespace).List(ctx, options)
		if err != nil {
			return out, fmt.Errorf("what a controller kept was not read: %w", err)
		}
		for i := range page.Items {
			if n, ok := readEvidence(&page.Items[i]); ok {
				out = append(out, n)
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return out, nil
		}
	}
}

func readEvidence(m *corev1.ConfigMap) (nodeStory, bool) {
	e, ok := assess.ReadEvidence(conversion.Record(m))
	return nodeStory{Assessment: e.Assessment, Gone: true, Boot: e.Boot, Console: e.Console}, ok
}

// listBoots lists the pools, some at a time.
func listBoots(ctx context.Context, look lookout, pools, more []fleet.ResourceID) (all []fleet.Pool, boots []fleet.Boot, missing []fleet.ResourceID, problems []string) {
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
			list, err := look.boots.Pools(ctx, group)
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
			list, err := look.boots.Boots(ctx, pool)
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
func (s *survey) assess(ctx context.Context, look lookout, boots []fleet.Boot, nodes []assess.NodeView, kept []nodeStory, deadlines assess.Deadlines, named string) {
	begin := len(s.stories)
	for i := range boots {
		b := &boots[i]
		n := nodeStory{Boot: b}
		var previous assess.Assessment
		for _, k := range kept {
			if k.VMID != "" && strings.EqualFold(k.VMID, b.VMID) {
				previous, n.Console = k.Assessment, k.Console
			}
		}
		n.Assessment = assess.Assess(*b, assess.NodeFor(nodes, *b), nil, previous, s.now, deadlines)
		s.stories = append(s.stories, n)
	}
	wanted := logsWanted(s.stories[begin:], named, s.now)
	if more := len(wanted) - maxSerialReads; more > 0 {
		wanted = wanted[:maxSerialReads]
		s.notes = append(s.notes, fmt.Sprintf("the serial logs of %d more instances were not read; name one to see what it says", more))
	}
	var g errgroup.Group
	g.SetLimit(4)
	var mu sync.Mutex
	for _, n := range wanted {
		g.Go(func() error {
			log, err := look.boots.SerialLog(ctx, n.Instance)
			if err == nil && len(log) > 0 {
				n.Assessment = assess.Assess(*n.Boot, assess.NodeFor(nodes, *n.Boot), log, n.Assessment, s.now, deadlines)
				n.Console = assess.Relevant(log, 60)
			}
			if err != nil && !fleet.Is(err, fleet.KindNotFound) && !fleet.Is(err, fleet.KindUnsupported) {
				mu.Lock()
				defer mu.Unlock()
				s.notes = append(s.notes, err.Error())
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
func logsWanted(stories []nodeStory, named string, now time.Time) []*nodeStory {
	var failed, booting, ready []*nodeStory
	for i := range stories {
		n := &stories[i]
		switch {
		case !n.Boot.Console:
		case named != "":
			if n.named(named) {
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
	slices.SortStableFunc(booting, func(a, b *nodeStory) int { return a.Began.Compare(b.Began) })
	slices.SortStableFunc(ready, func(a, b *nodeStory) int { return b.Began.Compare(a.Began) })
	return slices.Concat(failed, booting, ready)
}

// lately is how long after its start a node's boot is still news.
const lately = 30 * time.Minute

// rest puts in Nodes that are no instances that were seen, and what was kept of
// machines that are gone.
func (s *survey) rest(nodes []assess.NodeView, kept []nodeStory) {
	shown, vms := map[string]bool{}, map[string]bool{}
	for _, n := range s.stories {
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
		s.stories = append(s.stories, k)
	}
	for i := range s.stories {
		at := slices.IndexFunc(nodes, func(n assess.NodeView) bool { return n.Name == s.stories[i].Node })
		if at >= 0 {
			s.stories[i].Configuration = nodes[at].Configuration
		}
	}
	for _, v := range nodes {
		if shown[v.Name] {
			continue
		}
		n := nodeStory{Configuration: v.Configuration, Assessment: assess.Assessment{Node: v.Name, HostName: v.Name, Created: v.Created, Since: v.ReadySince}}
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
			n.Note = first(n.Note, first(v.Why, "the node is not Ready"))
		}
		s.stories = append(s.stories, n)
	}
}

// notInstance says why a Node is not the instance that it names, if that one was seen.
func (s *survey) notInstance(node assess.NodeView, id fleet.ResourceID) error {
	for _, n := range s.stories {
		if n.Boot != nil && n.Boot.Instance.Equal(id) {
			return node.Claim().Is(n.Boot.Computer())
		}
	}
	return nil
}

// isGone reports whether the instances of a Node's pool were read, and the Node's is not there.
func (s *survey) isGone(node nodeStory) bool {
	return len(s.unread) == 0 && slices.ContainsFunc(s.pools, func(p fleet.Pool) bool { return p.ID.Equal(node.Pool) }) &&
		!slices.ContainsFunc(s.stories, func(n nodeStory) bool { return n.Boot != nil && n.Instance.Equal(node.Instance) })
}

// place finds the scale sets of virtual machines whose Nodes alone were seen, in the groups of
// the pools that were asked for: such an id does not name its scale set.
func (s *survey) place(ctx context.Context, look lookout, pools []fleet.ResourceID) {
	read := map[fleet.Key]map[fleet.ResourceID]fleet.ResourceID{}
	for i := range s.stories {
		n := &s.stories[i]
		group := n.Instance.Group()
		if n.Pool != "" || n.Instance == "" || look.machines == nil ||
			!slices.ContainsFunc(pools, func(p fleet.ResourceID) bool { return p.Group().Equal(group) }) {
			continue
		}
		machines, known := read[fleet.KeyOf(group)]
		if !known {
			var err error
			if machines, err = look.machines(ctx, group); err != nil {
				s.unread = append(s.unread, err.Error())
			}
			read[fleet.KeyOf(group)] = machines
		}
		pool, there := machines[fleet.ResourceID(strings.ToLower(string(n.Instance)))]
		if n.Pool = pool; machines != nil && !there {
			s.notes = append(s.notes, fmt.Sprintf("node %s: its virtual machine %s does not exist any more; its scale set is unknown",
				n.Node, n.Instance.Name()))
		}
	}
}

// only leaves out what is of other pools than those that were asked for, if any.
func (s *survey) only(pools []fleet.ResourceID) {
	if len(pools) > 0 {
		s.stories = slices.DeleteFunc(s.stories, func(n nodeStory) bool { return !slices.ContainsFunc(pools, n.Pool.Equal) })
	}
}
