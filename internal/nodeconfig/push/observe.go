package push

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/redact"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

const computeVersion = "2024-07-01"

// A scaleSet is as much of one as a push looks at.
type scaleSet struct {
	ID         fleet.ResourceID  `json:"id"`
	Etag       string            `json:"etag"`
	Tags       map[string]string `json:"tags"`
	Properties struct {
		OrchestrationMode string `json:"orchestrationMode"`
		UpgradePolicy     struct {
			Mode string `json:"mode"`
		} `json:"upgradePolicy"`
		Profile struct {
			UserData string `json:"userData"`
		} `json:"virtualMachineProfile"`
	} `json:"properties"`
}

// An instance of the scale set.
type instance struct {
	ID         fleet.ResourceID `json:"id"`
	Name       string           `json:"name"` // "pool1_3"
	Etag       string           `json:"etag"`
	Properties struct {
		VMID      string `json:"vmId"`
		UserData  string `json:"userData"` // only where a GET expands it
		OSProfile struct {
			ComputerName string `json:"computerName"`
		} `json:"osProfile"`
	} `json:"properties"`
}

func (i instance) computer() fleet.Computer {
	return fleet.Computer{ID: i.ID, HostName: i.Properties.OSProfile.ComputerName, VMID: i.Properties.VMID}
}

// A member is a Node of the pool.
type member struct {
	Node
	id    fleet.ResourceID // of the instance
	about int64            // generation that State is about
	kube  *corev1.Node
}

// has reports whether the node has the generation.
func (m member) has(generation int64) bool {
	return m.Generation == generation && m.State == string(wire.ConfigurationApplied)
}

// reports is the highest generation that the node says it has, or failed. What it answers
// otherwise may be about a number that only its annotation names.
func (m member) reports() int64 {
	if m.State == string(wire.ConfigurationFailed) {
		return max(m.Generation, m.about)
	}
	return m.Generation
}

// interrupted reports whether the generation failed by no fault of its own.
func (m member) interrupted() bool {
	return m.Reason == wire.ReasonInterrupted || m.Reason == wire.ReasonFailedEarlier && strings.HasPrefix(m.Message, wire.ReasonInterrupted+":")
}

// failed reports whether the node failed or refused the generation.
func (m member) failed(generation int64) bool {
	return m.about == generation && (m.State == string(wire.ConfigurationFailed) || m.State == string(wire.ConfigurationRefused))
}

// String is the Node's name, or the instance's.
func (m member) String() string { return cmp.Or(m.Name, m.Instance) }

// answer is the state with its reason and message.
func (m member) answer() string {
	if m.State == "" {
		return cmp.Or(m.Message, "no answer")
	}
	parts := slices.DeleteFunc([]string{m.State, m.Reason, m.Message}, func(s string) bool { return s == "" })
	return strings.Join(parts, ": ")
}

// brief is the answer without the log that a node adds, which the result has.
func (m member) brief() string {
	text, _, cut := strings.Cut(m.answer(), wire.ConfigurationLog)
	if len(text) > maxBrief {
		text, cut = text[:maxBrief], true
	}
	if cut {
		text += " …"
	}
	return text
}

// maxBrief bounds what an error says of one node, in bytes.
const maxBrief = 240

// nodes is "1 node", "2 nodes".
func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

// An observation is what Azure and the cluster have of one pool.
type observation struct {
	pool     fleet.ResourceID
	set      scaleSet
	document *nodeconfig.Document   // of the model; nil for none of this pool's
	signed   nodeconfig.Signed      // document, as it was found
	foreign  string                 // what the model's userData is instead; "" where it is ours or empty
	keys     []nodeconfig.PublicKey // whose documents are believed
	reset    bool                   // generations beyond nodeconfig.MaxGeneration do not count
	seen     int64                  // highest generation of the instances' documents, or that the user names
	members  []member               // by name
	without  []instance             // without a Node
	nobodies []string               // Nodes that claim an instance and are not it, each with why
	history  history
}

func (r *Rollout) observe(ctx context.Context, pool fleet.ResourceID) (*observation, error) {
	o := &observation{pool: pool}
	err := r.readModel(ctx, o)
	if err != nil {
		return nil, err
	}
	if o.history, err = r.readHistory(ctx, o.pool); err != nil {
		return nil, err
	}
	return o, r.list(ctx, o)
}

// readModel reads the scale set and the document in its model.
func (r *Rollout) readModel(ctx context.Context, o *observation) error {
	o.set = scaleSet{}
	if err := r.ARM.Get(ctx, o.pool, computeVersion, &o.set, "$expand", "userData"); err != nil {
		return err
	}
	if o.set.ID != "" {
		o.pool = o.set.ID
	}
	o.document, o.signed, o.foreign = parse(o.set.Properties.Profile.UserData, o.pool)
	return nil
}

// parse reads the document of this pool in userData, without a check of its signature.
// What is neither empty nor a document is described. A document of another pool, as a
// copied model has, counts as none.
func parse(userData string, pool fleet.ResourceID) (d *nodeconfig.Document, signed nodeconfig.Signed, foreign string) {
	if userData == "" {
		return nil, signed, ""
	}
	signed, err := nodeconfig.Read(userData)
	if errors.Is(err, nodeconfig.ErrNotOurs) {
		return nil, signed, describe(userData)
	}
	var document nodeconfig.Document
	if err == nil {
		document, err = signed.Unverified()
	}
	switch {
	case err != nil:
		return nil, signed, "a damaged document: " + err.Error()
	case document.Pool != strings.ToLower(string(pool)):
		return nil, signed, ""
	}
	return &document, signed, ""
}

// list reads the pool's instances and Nodes.
func (r *Rollout) list(ctx context.Context, o *observation) error {
	var instances []instance
	err := r.ARM.List(ctx, o.pool+"/virtualMachines", computeVersion, func(raw json.RawMessage) error {
		var i instance
		err := json.Unmarshal(raw, &i)
		instances = append(instances, i)
		return err
	})
	if err != nil {
		return err
	}
	byName, byID := map[string]instance{}, map[string]instance{}
	for _, i := range instances {
		byName[strings.ToLower(i.Properties.OSProfile.ComputerName)], byID[keyOf(i.ID)] = i, i
	}
	o.members, o.nobodies = nil, nil
	has := map[string]bool{}
	var all []fleet.Node
	claims := map[string]fleet.Claim{} // of Nodes that are not nobodies yet
	nodes := pager.New(func(ctx context.Context, l metav1.ListOptions) (runtime.Object, error) {
		return r.Kube.CoreV1().Nodes().List(ctx, l)
	})
	if err := nodes.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		n := object.(*corev1.Node)
		says := fleet.Node{Name: n.Name, ProviderID: n.Spec.ProviderID, SystemUUID: n.Status.NodeInfo.SystemUUID, MachineID: n.Status.NodeInfo.MachineID}
		claim := says.Claim()
		all, claims[n.Name] = append(all, says), claim
		id, _ := fleet.ParseProviderID(n.Spec.ProviderID) // other cloud providers (k3s://NAME) say nothing of Azure's instance
		i, there := byName[strings.ToLower(n.Name)]
		if named, is := byID[keyOf(id)]; is {
			i, there = named, true
		}
		if !there {
			return nil
		}
		if err := claim.Is(i.computer()); err != nil {
			o.nobodies = append(o.nobodies, err.Error())
			delete(claims, n.Name)
			return nil
		}
		o.members = append(o.members, memberOf(n, i.ID))
		has[keyOf(i.ID)] = true
		return nil
	}); err != nil {
		return kubeError(ctx, "list Nodes", "", err, "list on nodes")
	}
	slices.SortFunc(o.members, func(a, b member) int { return cmp.Compare(a.Name, b.Name) })
	o.without = slices.DeleteFunc(instances, func(i instance) bool { return has[keyOf(i.ID)] })
	roster := fleet.NewRoster(all)
	for _, i := range o.without { // a Node with a name of its own may have the instance's vmId alone
		_, rivals := roster.Of(i.computer())
		for _, name := range rivals {
			if claim, is := claims[name]; is {
				o.nobodies = append(o.nobodies, claim.Is(i.computer()).Error())
			}
		}
	}
	return nil
}

func memberOf(n *corev1.Node, id fleet.ResourceID) member {
	m := member{id: id, kube: n}
	m.Name, m.Instance = n.Name, id.Parent().Name()+"_"+id.Name()
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			m.Ready = c.Status == corev1.ConditionTrue
		}
	}
	m.Wanted, _ = strconv.ParseInt(n.Annotations[wire.ConfigurationWanted], 10, 64) // what is no number wants nothing
	text := n.Annotations[wire.ConfigurationAnnotation]
	if text == "" {
		return m
	}
	var a wire.ConfigurationAnswer
	if len(text) > wire.MaxConfigurationAnswer || json.Unmarshal([]byte(text), &a) != nil {
		m.Message = "annotation " + wire.ConfigurationAnnotation + " is unreadable"
		return m
	}
	// A node writes what it likes, and a terminal shows it.
	m.Generation, m.about, m.At = a.Generation, a.Wanted, a.At
	m.State, m.Reason, m.Message = redact.Plain(string(a.State), 64), redact.Plain(a.Reason, 64), redact.Plain(a.Message, 1<<10)
	for _, path := range a.Drift[:min(len(a.Drift), 20)] {
		m.Drift = append(m.Drift, redact.Plain(path, 256))
	}
	return m
}

// read reads a member again; gone says that the Node does not exist.
func (r *Rollout) read(ctx context.Context, m member) (now member, gone bool, err error) {
	n, err := r.Kube.CoreV1().Nodes().Get(ctx, m.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return m, true, nil
	}
	if err != nil {
		return m, false, kubeError(ctx, "read Node", m.Name, err, "get on nodes")
	}
	return memberOf(n, m.id), false, nil
}

// newest is the highest generation of a document that is believed: of the model, the
// history, and of instances whose userData was read. What nodes report does not count.
func (o *observation) newest() int64 {
	newest := max(o.history.newest().Generation, o.seen)
	if o.document != nil {
		newest = max(newest, o.counted(o.document.Generation))
	}
	return newest
}

func (o *observation) counted(generation int64) int64 {
	if o.reset {
		return nodeconfig.Counted(generation)
	}
	return generation
}

// next is the generation that follows the newest one.
func (o *observation) next() (int64, error) {
	newest := o.newest()
	if newest < nodeconfig.MaxGeneration {
		return newest + 1, nil
	}
	return 0, refused(o.pool, "GenerationTooHigh", fmt.Sprintf("its newest document has generation %d, and none above %d counts", newest, int64(nodeconfig.MaxGeneration)),
		"update ortet-node on all nodes, then push with --reset-generation, which goes on from the highest that counts")
}

// reportProblems names nodes that report generations of which no document is.
func (o *observation) reportProblems() (out []fleet.Problem) {
	newest, names := o.newest(), map[bool][]string{}
	for _, m := range o.members {
		if r := m.reports(); r > newest && o.counted(r) > 0 {
			beyond := r > nodeconfig.MaxGeneration
			names[beyond] = append(names[beyond], fmt.Sprintf("%s (generation %d)", m.Name, r))
		}
	}
	for beyond, all := range names {
		wayOut := "leave out with --skip-node what reports wrongly, and replace it; or name with --accept-key the key that signed what it has; " +
			"or name with --after-generation what honest nodes report, where its document was lost"
		if beyond {
			wayOut = "leave out with --skip-node what reports wrongly, and replace it; nodes that have such a generation accept a push with --reset-generation"
		}
		out = append(out, fleet.Problem{On: on("node", all), Code: "GenerationNotSigned",
			What: fmt.Sprintf("no document that an accepted key signed has the generation that is reported; the newest is %d", newest), WayOut: wayOut})
	}
	slices.SortFunc(out, func(a, b fleet.Problem) int { return strings.Compare(a.On, b.On) })
	return out
}

// on names some of many nodes or instances.
func on(noun string, names []string) string {
	if len(names) > 1 {
		noun += "s"
	}
	if more := len(names) - maxShown; more > 0 {
		names = append(names[:maxShown:maxShown], fmt.Sprintf("and %d more", more))
	}
	return noun + " " + strings.Join(names, ", ")
}

// failed returns the nodes that failed a generation; refused says that some refused it.
func (o *observation) failed(generation int64) (failed []string, refused bool) {
	for _, m := range o.members {
		switch {
		case !m.failed(generation):
		case m.State == string(wire.ConfigurationRefused):
			refused = true
		default:
			failed = append(failed, m.Name+" ("+m.brief()+")")
		}
	}
	return failed, refused
}

func nodesOf(members []member) []Node {
	out := make([]Node, 0, len(members))
	for _, m := range members {
		out = append(out, m.Node)
	}
	return out
}

// Status reads what a pool has.
func (r *Rollout) Status(ctx context.Context, pool fleet.ResourceID) (*Status, error) {
	o, err := r.observe(ctx, pool)
	if err != nil {
		return nil, err
	}
	if !o.uniform() {
		return nil, &workflow.Refused{Problems: []fleet.Problem{o.notUniform()}}
	}
	s := &Status{Pool: o.pool, ModelForeign: o.foreign != "", Nodes: nodesOf(o.members), History: []Entry{}}
	if o.document != nil {
		s.Model = o.document.Generation
	}
	for _, i := range o.without {
		s.Without = append(s.Without, i.Name)
	}
	for _, e := range o.history.entries {
		s.History = append(s.History, e.Entry)
	}
	return s, nil
}
