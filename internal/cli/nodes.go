package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ortet/ortet/internal/controller"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// nodesFlags are those of ortet nodes.
type nodesFlags struct {
	pools, groups []string
	failed        bool
	deadline      time.Duration
}

func newNodes(o *options) *cobra.Command {
	var f nodesFlags
	c := &cobra.Command{
		Use:   "nodes [NAME]",
		Short: "Show which nodes came up, and why others did not",
		Long: `nodes shows, for each instance of the scale sets that the cluster's nodes are in,
whether it came up, also where it never became a Node. With the name of a node or
an instance it tells the whole story: what happened, who can mend it and how, how
long each stage took, and the lines that show it.

It asks Azure and the cluster itself, and shows besides what a controller kept of
machines that are gone.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return oneArgument("a node or an instance")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			pools, err := scaleSets(f.pools)
			if err != nil {
				return err
			}
			more, err := groups(f.groups)
			if err != nil {
				return err
			}
			s, err := o.survey(cmd.Context(), pools, more, controller.Deadlines{Boot: f.deadline}, first(strings.Join(args, ""), ""))
			if err != nil {
				return err
			}
			if len(args) == 1 {
				return o.printNode(s, args[0])
			}
			return o.printNodes(s, f.failed)
		},
	}
	p := c.Flags()
	p.StringArrayVar(&f.pools, "pool", nil, "ARM id of a scale set to look at, instead of all; may be repeated")
	p.StringArrayVar(&f.groups, "resource-group", nil, "ARM id of a resource group whose scale sets to look at besides those of the nodes; may be repeated")
	p.BoolVar(&f.failed, "failed", false, "show only those that did not come up well")
	p.DurationVar(&f.deadline, "boot-deadline", 25*time.Minute, "how long an instance may take to become a Ready node or to say something")
	return c
}

// A nodeStory is all that is known of one node or instance.
type nodeStory struct {
	controller.Assessment
	// Gone tells that the machine is not there any more, and this is what was kept.
	Gone    bool        `json:"gone,omitempty"`
	Boot    *fleet.Boot `json:"boot,omitempty"`
	Console []string    `json:"console,omitempty"` // what matters of the serial log
}

// survey is what one look gives.
type survey struct {
	stories []nodeStory
	notes   []string // what could not be looked at
	now     time.Time
}

// maxSerialReads bounds how many serial logs one command reads.
const maxSerialReads = 32

// survey looks at Azure, the Nodes and the kept evidence. What cannot be seen of
// Azure is told, and the rest shown. A serial log is read where it could tell
// more, and of the instance that is named in any case.
func (o *options) survey(ctx context.Context, pools, more []fleet.ResourceID, deadlines controller.Deadlines, named string) (survey, error) {
	s := survey{now: time.Now()}
	config, err := o.kubernetes()
	if err != nil {
		return s, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return s, fmt.Errorf("set up the Kubernetes client: %w", err)
	}
	nodes, err := listNodes(ctx, client)
	if err != nil {
		return s, err
	}
	kept, err := listEvidence(ctx, client, o.namespace)
	if err != nil {
		s.notes = append(s.notes, err.Error())
	}
	if len(pools) == 0 {
		for i := range nodes {
			if id, ok := controller.InstanceOf(nodes[i].ProviderID); ok {
				more = append(more, id.Group())
			}
		}
	}
	look, err := o.connectBoots(ctx, nil)
	if err != nil {
		s.notes = append(s.notes, "Azure was not asked, so instances that never became Nodes are missing: "+err.Error())
	} else {
		if look.group != "" && len(pools) == 0 {
			more = append(more, look.group)
		}
		boots, problems := listBoots(ctx, look, pools, more)
		s.notes = append(s.notes, problems...)
		s.assess(ctx, look, boots, nodes, kept, deadlines, named)
	}
	s.rest(nodes, kept)
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

func listNodes(ctx context.Context, client kubernetes.Interface) ([]controller.NodeView, error) {
	var out []controller.NodeView
	for options := (metav1.ListOptions{Limit: 250}); ; {
		page, err := client.CoreV1().Nodes().List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list nodes: %w", err)
		}
		for i := range page.Items {
			out = append(out, *controller.ViewOf(&page.Items[i]))
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return out, nil
		}
	}
}

// listEvidence reads what a controller kept.
func listEvidence(ctx context.Context, client kubernetes.Interface, namespace string) ([]nodeStory, error) {
	var out []nodeStory
	for options := (metav1.ListOptions{Limit: 100, LabelSelector: controller.EvidenceLabel + "=" + controller.EvidenceValue}); ; {
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
	n := nodeStory{Gone: true}
	if json.Unmarshal([]byte(m.Data[controller.KeyAssessment]), &n.Assessment) != nil || n.State == "" {
		return n, false
	}
	var b fleet.Boot
	if json.Unmarshal([]byte(m.Data[controller.KeyInstance]), &b) == nil {
		n.Boot = &b
	}
	if text := m.Data[controller.KeyConsole]; text != "" {
		n.Console = strings.Split(strings.TrimRight(text, "\n"), "\n")
	}
	return n, true
}

// listBoots lists the pools, some at a time.
func listBoots(ctx context.Context, look lookout, pools, more []fleet.ResourceID) (boots []fleet.Boot, problems []string) {
	wanted := map[controller.Key]bool{}
	for _, p := range pools {
		wanted[controller.KeyOf(p)] = true
		more = append(more, p.Group())
	}
	var (
		mu  sync.Mutex
		all []fleet.Pool
	)
	problem := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		problems = append(problems, err.Error())
	}
	slices.SortFunc(more, func(a, b fleet.ResourceID) int {
		return strings.Compare(string(controller.KeyOf(a)), string(controller.KeyOf(b)))
	})
	more = slices.CompactFunc(more, fleet.ResourceID.Equal)
	var g errgroup.Group
	g.SetLimit(4)
	for _, group := range more {
		g.Go(func() error {
			list, err := look.boots.Pools(ctx, group)
			if err != nil {
				problem(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, p := range list {
				if len(wanted) == 0 || wanted[controller.KeyOf(p.ID)] {
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
	return boots, problems
}

// assess puts in the instances that there are.
func (s *survey) assess(ctx context.Context, look lookout, boots []fleet.Boot, nodes []controller.NodeView, kept []nodeStory, deadlines controller.Deadlines, named string) {
	var g errgroup.Group
	g.SetLimit(4)
	var mu sync.Mutex
	reads := 0
	for i := range boots {
		b := &boots[i]
		node := nodeFor(nodes, b)
		n := nodeStory{Boot: b}
		var previous controller.Assessment
		for _, k := range kept {
			if k.VMID != "" && strings.EqualFold(k.VMID, b.VMID) {
				previous, n.Console = k.Assessment, k.Console
			}
		}
		n.Assessment = controller.Assess(*b, node, nil, previous, s.now, deadlines)
		isNamed := named != "" && n.named(named)
		if !b.Console || !isNamed && (named != "" || !controller.LogWanted(n.Assessment, s.now) || reads == maxSerialReads) {
			mu.Lock()
			s.stories = append(s.stories, n)
			mu.Unlock()
			continue
		}
		reads++
		g.Go(func() error {
			log, err := look.boots.SerialLog(ctx, b.Instance)
			mu.Lock()
			defer mu.Unlock()
			if err != nil && !fleet.Is(err, fleet.KindNotFound) && !fleet.Is(err, fleet.KindUnsupported) {
				s.notes = append(s.notes, err.Error())
			}
			if err == nil && len(log) > 0 {
				n.Assessment = controller.Assess(*b, node, log, n.Assessment, s.now, deadlines)
				n.Console = controller.Relevant(log, 60)
			}
			s.stories = append(s.stories, n)
			return nil
		})
	}
	_ = g.Wait()
}

func nodeFor(nodes []controller.NodeView, b *fleet.Boot) *controller.NodeView {
	var byName *controller.NodeView
	for i := range nodes {
		n := &nodes[i]
		if id, ok := controller.InstanceOf(n.ProviderID); ok && id.Equal(b.Instance) {
			return n
		} else if !ok && n.ProviderID == "" && strings.EqualFold(n.Name, b.HostName) {
			byName = n
		}
	}
	return byName
}

// rest puts in Nodes that are no instances that were seen, and what was kept of
// machines that are gone.
func (s *survey) rest(nodes []controller.NodeView, kept []nodeStory) {
	shown, vms := map[string]bool{}, map[string]bool{}
	for _, n := range s.stories {
		shown[n.Node], vms[n.VMID] = true, true
	}
	for _, k := range kept {
		if vms[k.VMID] || k.State == controller.Succeeded {
			continue
		}
		// Where Azure was not seen a Node of the name tells that it is there.
		k.Gone = !slices.ContainsFunc(nodes, func(n controller.NodeView) bool { return n.Name == k.Node })
		if !k.Gone {
			shown[k.Node] = true
		}
		s.stories = append(s.stories, k)
	}
	for _, v := range nodes {
		if shown[v.Name] {
			continue
		}
		n := nodeStory{Assessment: controller.Assessment{Node: v.Name, HostName: v.Name, Created: v.Created, Since: v.ReadySince}}
		if id, ok := controller.InstanceOf(v.ProviderID); ok {
			n.Instance = id
			if id.Segment("virtualMachineScaleSets") != "" {
				n.Pool = id.Parent()
			}
		}
		if v.Ready || v.CameUp {
			n.State, n.Source = controller.Succeeded, controller.FromNode
		} else {
			n.Note = first(v.Why, "the node is not Ready")
		}
		s.stories = append(s.stories, n)
	}
}

// well tells what --failed leaves out.
func (n nodeStory) well() bool {
	return n.State == controller.Succeeded || n.State == controller.Booting || n.State == controller.Stopped || n.State == controller.Deleting
}

func (o *options) printNodes(s survey, failed bool) error {
	list := s.stories
	if failed {
		list = slices.DeleteFunc(slices.Clone(list), nodeStory.well)
	}
	for i := range list { // the whole story has its own command
		list[i].Console = nil
	}
	err := o.print(map[string]any{"nodes": nonNil(list), "notes": nonNil(s.notes)}, func(w io.Writer) {
		if len(list) == 0 {
			fmt.Fprintln(w, "No instance or node to show.")
			return
		}
		writeNodes(w, list, s.now)
	})
	o.tellNotes(s)
	return err
}

// tellNotes says what could not be seen where a table does not.
func (o *options) tellNotes(s survey) {
	if o.output != "table" {
		return
	}
	for _, n := range s.notes {
		paragraph(o.process.Err, columnsOf(o.process.Err), "note: ", "  ", n)
	}
}

func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func writeNodes(w io.Writer, list []nodeStory, now time.Time) {
	rows := [][]string{{"NODE", "POOL", "VERDICT", "REASON", "OWNER", "AGE"}}
	legend := map[string]bool{}
	for _, n := range list {
		mark := ""
		if n.Gone {
			mark = "+"
		} else if n.Node == "" {
			mark = "*"
		}
		legend[mark] = true
		at := n.Created
		if at.IsZero() {
			at = n.Since
		}
		rows = append(rows, []string{n.title() + mark, dash(n.Pool.Name()), dash(string(n.State)), dash(n.Reason()), dash(string(n.Owner())), age(at, now)})
	}
	if total(rows) <= resultWidth {
		writeRows(w, rows)
	} else {
		writeByPool(w, rows)
	}
	if legend["*"] {
		fmt.Fprintln(w, "* has no Node")
	}
	if legend["+"] {
		fmt.Fprintln(w, "+ is gone, and its evidence was kept")
	}
}

// writeByPool writes a table for each pool, where one for all would be too wide.
func writeByPool(w io.Writer, rows [][]string) {
	var narrow [][]string
	for _, r := range rows {
		narrow = append(narrow, append(slices.Clone(r[:1]), r[2:]...))
	}
	// What is too wide all the same gives way: the reason goes before the node.
	fit(narrow, resultWidth, []shrink{{2, 16}, {0, 20}, {2, 8}})
	wide := widths(narrow)
	for i := 1; i < len(rows); {
		end := i
		for end < len(rows) && rows[end][1] == rows[i][1] {
			end++
		}
		if i > 1 {
			fmt.Fprintln(w)
		}
		if rows[i][1] == "-" {
			fmt.Fprintln(w, "no pool")
		} else {
			fmt.Fprintln(w, "pool "+rows[i][1])
		}
		writeColumns(w, narrow[:1], wide)
		writeColumns(w, narrow[i:end], wide)
		i = end
	}
}

// A shrink says how narrow a column may become.
type shrink struct{ column, least int }

// fit cuts columns, which stand two apart, until a row fits the width.
func fit(rows [][]string, width int, order []shrink) {
	for _, s := range order {
		over := total(rows) - width
		if over <= 0 {
			return
		}
		room := max(s.least, widths(rows)[s.column]-over)
		for _, r := range rows {
			r[s.column] = middle(r[s.column], room)
		}
	}
}

// middle cuts a text in its middle: beginnings and ends of names tell most.
func middle(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	head := (n - 1) / 2
	return string(r[:head]) + "…" + string(r[len(r)-(n-1-head):])
}

// total is how wide rows are.
func total(rows [][]string) int {
	sum := -2
	for _, w := range widths(rows) {
		sum += w + 2
	}
	return sum
}

func widths(rows [][]string) []int {
	var out []int
	for _, r := range rows {
		for i, c := range r {
			if i == len(out) {
				out = append(out, 0)
			}
			out[i] = max(out[i], len([]rune(c)))
		}
	}
	return out
}

func writeRows(w io.Writer, rows [][]string) { writeColumns(w, rows, widths(rows)) }

func writeColumns(w io.Writer, rows [][]string, wide []int) {
	for _, r := range rows {
		var b strings.Builder
		for i, c := range r {
			b.WriteString(c)
			if i < len(r)-1 {
				b.WriteString(strings.Repeat(" ", wide[i]-len([]rune(c))+2))
			}
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

func (o *options) printNode(s survey, name string) error {
	var found []nodeStory
	for _, n := range s.stories {
		if n.named(name) {
			found = append(found, n)
		}
	}
	if len(found) == 0 {
		return errors.Join(append([]error{&fleet.Error{Op: "find the node", Resource: name, Kind: fleet.KindNotFound, Err: errors.New("no node or instance has that name"),
			Remedy: "ortet nodes lists all that there are"}}, noteErrors(s.notes)...)...)
	}
	// Those that are there go before those that were.
	slices.SortStableFunc(found, func(a, b nodeStory) int {
		if a.Gone != b.Gone {
			if a.Gone {
				return 1
			}
			return -1
		}
		return b.Since.Compare(a.Since)
	})
	err := o.print(found[0], func(w io.Writer) {
		writeNode(w, found[0], s.now)
		if n := len(found) - 1; n > 0 {
			fmt.Fprintf(w, "\n%d earlier machine(s) of that name: -o json of ortet nodes has their ids.\n", n)
		}
	})
	o.tellNotes(s)
	return err
}

func noteErrors(notes []string) []error {
	var out []error
	for _, n := range notes {
		out = append(out, errors.New(n))
	}
	return out
}

// writeNode tells the whole story.
func writeNode(w io.Writer, n nodeStory, now time.Time) {
	head := n.title() + ": " + first(string(n.State), "no verdict")
	if r := n.Reason(); r != "" {
		head += ", " + r
	}
	fmt.Fprintln(w, head)
	if n.Gone {
		fmt.Fprintln(w, "  The machine is gone; this is what was kept of it.")
	}
	if text := n.Message(); text != "" {
		paragraph(w, resultWidth, "  ", "  ", text)
	}
	field := func(name, text string) {
		if text != "" && text != "-" {
			paragraph(w, resultWidth, fmt.Sprintf("  %-9s ", name), strings.Repeat(" ", 12), text)
		}
	}
	v := n.Verdict
	if v == nil {
		v = &wire.Verdict{}
	}
	fmt.Fprintln(w)
	field("owner", string(n.Owner()))
	field("remedy", v.Remedy)
	if v.Retryable {
		field("retry", "the same boot may succeed if it is tried again")
	}
	field("where", where(*v))
	field("told by", sourceText(n.Source))
	field("since", moment(n.Since, now))
	field("created", moment(n.Created, now))
	if n.Node == "" {
		field("node", "none")
	} else if n.Node != n.title() {
		field("node", n.Node)
	}
	field("pool", n.Pool.Name())
	field("instance", string(n.Instance))
	field("vm id", n.VMID)
	if b := n.Boot; b != nil {
		field("azure", strings.Trim(b.ProvisioningState+", "+string(b.Power), ", "))
		field("agent", strings.Trim(b.Agent.Version+" "+b.Agent.Message, " "))
		for _, e := range b.Extensions {
			field("extension", e.Name+": "+extensionText(e))
		}
	}
	for _, ignored := range v.Ignored {
		field("ignored", ignored)
	}
	if len(v.Stages) > 0 {
		rows := [][]string{{"  STAGE", "BEGAN", "TOOK"}}
		for _, s := range v.Stages {
			took := "never ended"
			if s.End > 0 {
				took = duration(time.Duration(s.End-s.Begin) * time.Millisecond)
			}
			rows = append(rows, []string{"  " + s.Name, duration(time.Duration(s.Begin) * time.Millisecond), took})
		}
		fmt.Fprintln(w)
		writeRows(w, rows)
	}
	for _, e := range v.Evidence {
		fmt.Fprintf(w, "\n%s\n", e.Source)
		for _, l := range e.Lines {
			fmt.Fprintln(w, "  "+l)
		}
	}
	if len(n.Console) > 0 && n.State != controller.Succeeded {
		fmt.Fprintln(w, "\nserial console")
		for _, l := range n.Console {
			fmt.Fprintln(w, "  "+l)
		}
	}
}

func where(v wire.Verdict) string {
	parts := []string{v.Stage, v.Module}
	if v.Phase != "" {
		parts = append(parts, "kubeadm "+v.Phase)
	}
	if v.ExitCode != nil {
		parts = append(parts, fmt.Sprintf("exit code %d", *v.ExitCode))
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}

func sourceText(s controller.Source) string {
	switch s {
	case controller.FromExtension:
		return "the node, by an extension's status"
	case controller.FromConsole:
		return "the node, on its serial console"
	case controller.FromNode:
		return "the Node object"
	case controller.FromPlatform:
		return "Azure"
	case controller.FromLog:
		return "the serial log, as judged from outside"
	}
	return string(s)
}

func moment(at, now time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format("2006-01-02 15:04:05") + "Z (" + age(at, now) + " ago)"
}

func extensionText(e fleet.ExtensionStatus) string {
	if len(e.Statuses) == 0 {
		return "has not reported"
	}
	st := e.Statuses[0]
	return strings.Trim(first(st.Display, st.State)+" "+st.Reason, " ")
}
