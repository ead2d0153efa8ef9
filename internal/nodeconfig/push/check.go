package push

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/redact"
	"github.com/ortet/ortet/internal/workflow"
)

// tagCAPZ begins the tag that Cluster API's Azure provider gives to what it owns.
const tagCAPZ = "sigs.k8s.io_cluster-api-provider-azure_cluster_"

// problems returns the reasons of the pool itself to refuse a push.
func (o *observation) problems() []fleet.Problem {
	var out []fleet.Problem
	add := func(code, what, wayOut string) {
		out = append(out, fleet.Problem{On: string(o.pool), Code: code, What: what, WayOut: wayOut})
	}
	p := o.set.Properties
	if !o.uniform() {
		out = append(out, o.notUniform())
	} else if !strings.EqualFold(p.UpgradePolicy.Mode, fleet.Manual) {
		add("UpgradePolicy", fmt.Sprintf("its upgrade policy is %q: Azure could replace instances when the model's userData changes", p.UpgradePolicy.Mode),
			"set it to Manual: az vmss update --set upgradePolicy.mode=Manual")
	}
	if by := o.managedByAKS(); by != "" {
		add("ManagedByAKS", "AKS manages this pool ("+by+"), and does not support changes to its scale sets", "configure nodes through AKS instead (az aks nodepool)")
	}
	for _, k := range slices.Sorted(maps.Keys(o.set.Tags)) {
		if name, ok := strings.CutPrefix(k, tagCAPZ); ok {
			add("OwnedByClusterAPI", "Cluster API's cluster "+name+" owns its model and would change it back", "configure nodes through its AzureMachinePool instead")
		}
	}
	return out
}

// managedByAKS is the mark of a pool that AKS manages, or "".
func (o *observation) managedByAKS() string {
	by := fleet.AKSMark(nil, o.pool, o.set.Tags)
	for _, m := range o.members {
		by = cmp.Or(by, fleet.AKSMark(m.kube.Labels, o.pool, nil))
	}
	return by
}

func (o *observation) notUniform() fleet.Problem {
	return fleet.Problem{On: string(o.pool), Code: "NotUniform", What: "its orchestration mode is " + o.set.Properties.OrchestrationMode,
		WayOut: "ortet config serves Uniform scale sets alone"}
}

func (o *observation) uniform() bool {
	mode := o.set.Properties.OrchestrationMode
	return mode == "" || strings.EqualFold(mode, fleet.Uniform)
}

func refused(on fleet.ResourceID, code, what, wayOut string) error {
	return &workflow.Refused{Problems: []fleet.Problem{{On: string(on), Code: code, What: what, WayOut: wayOut}}}
}

func publicOf(key ed25519.PrivateKey) nodeconfig.PublicKey {
	return nodeconfig.PublicKeyOf(key.Public().(ed25519.PublicKey))
}

// foreignProblem says that userData is not Ortet's.
func foreignProblem(on, what string) fleet.Problem {
	return fleet.Problem{On: on, Code: "ForeignUserData", What: "its userData is not Ortet's: " + what,
		WayOut: "move what it does elsewhere (an image, customData), then push with --replace-user-data, which overwrites it"}
}

// believe takes over whose documents count: those of the signing key, of the keys that are
// named beside it, and of those that the model's document lists, where one of them signed
// it. A model's document that is not believed is a reason to refuse, unless it is replaced.
func (o *observation) believe(key nodeconfig.PublicKey, named []nodeconfig.PublicKey, replace bool) (problems []fleet.Problem) {
	o.keys = append([]nodeconfig.PublicKey{key}, named...)
	if o.document != nil {
		problems = o.keyProblems(key)
		if _, err := o.signed.Verify(o.keys); err == nil {
			o.keys = append(o.keys, o.document.Keys...)
		} else if o.document = nil; replace {
			problems = nil
		} else if len(problems) == 0 {
			problems = []fleet.Problem{foreignProblem(string(o.pool), err.Error())}
		}
	}
	o.history.believe(o.pool, o.keys, o.reset)
	return problems
}

// believeSigners takes over whose documents count where no signing key is known: those who
// say to have signed the model's document, or else the history.
func (o *observation) believeSigners() {
	if o.document != nil {
		o.keys = append([]nodeconfig.PublicKey{o.signed.Key()}, o.document.Keys...)
		if _, err := o.signed.Verify(o.keys); err != nil {
			o.document, o.foreign = nil, err.Error()
		}
	} else {
		for _, e := range o.history.entries {
			if signed, err := nodeconfig.Read(e.UserData); err == nil {
				o.keys = append(o.keys, signed.Key())
			}
		}
	}
	o.history.believe(o.pool, o.keys, o.reset)
}

// keyProblems says whether nodes that have the model's document accept the key, and
// whether the key's owner knows who signed that document.
func (o *observation) keyProblems(key nodeconfig.PublicKey) []fleet.Problem {
	accepted, signer := o.document.Keys, o.signed.Key()
	if len(accepted) == 0 {
		accepted = []nodeconfig.PublicKey{signer}
	}
	p := fleet.Problem{On: string(o.pool), Code: "KeyNotAccepted"}
	switch {
	case !slices.Contains(accepted, key):
		p.What = fmt.Sprintf("its nodes accept documents signed by %s, and not by %s", strings.Trim(fmt.Sprint(accepted), "[]"), key)
		p.WayOut = "push with an accepted key; to change keys, push with the old one first, and name the new one with --accept-key; " +
			"if none of these keys is known, overwrite the model's document with --replace-user-data"
	case !slices.Contains(o.keys, signer):
		p.What = fmt.Sprintf("%s signed its document, which is neither the signing key nor one that --accept-key names", signer)
		p.WayOut = "if that key is known, name it with --accept-key, and push once more without it; otherwise overwrite the model's document with --replace-user-data"
	default:
		return nil
	}
	return []fleet.Problem{p}
}

// describe is what a person recognises userData by: its first line, without secrets.
func describe(userData string) string {
	text, err := base64.StdEncoding.DecodeString(userData)
	if err != nil {
		text = []byte(userData)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	// Redacted before it is cut: half a secret is recognised by nothing.
	return fmt.Sprintf("%d bytes that begin with %q", len(text), redact.Plain(redact.Text(line), 80))
}

// check returns the reasons of the Nodes to refuse a configuration.
func (r *Rollout) check(ctx context.Context, o *observation, c nodeconfig.Config) ([]fleet.Problem, error) {
	if len(c.Kubelet) == 0 || len(o.members) == 0 {
		return nil, nil
	}
	var out []fleet.Problem
	if r.CheckKubelet != nil {
		var versions []string
		for _, m := range o.members {
			versions = append(versions, m.kube.Status.NodeInfo.KubeletVersion)
		}
		if err := r.CheckKubelet(c, versions); err != nil {
			out = append(out, fleet.Problem{On: string(o.pool), Code: "KubeletField", What: err.Error(), WayOut: "correct the member kubelet of the configuration"})
		}
	}
	reserved, err := reservationOf(c.Kubelet)
	if err != nil || reflect.DeepEqual(reserved, reservation{}) {
		return out, err
	}
	pods, err := r.pods(ctx)
	if err != nil {
		return nil, err
	}
	lacks := map[string][]string{} // names of nodes
	for _, m := range o.members {
		if what := reserved.excess(m.kube, pods[m.Name]); what != "" {
			lacks[what] = append(lacks[what], m.Name)
		}
	}
	for _, what := range slices.SortedFunc(maps.Keys(lacks), func(a, b string) int { return strings.Compare(lacks[a][0], lacks[b][0]) }) {
		out = append(out, fleet.Problem{On: on("node", lacks[what]), Code: "PodsDoNotFit", What: what,
			WayOut: "reserve less, or move pods away first: a kubelet that restarts rejects pods that no longer fit"})
	}
	return out, nil
}

// pods are those that run or will, by Node.
func (r *Rollout) pods(ctx context.Context) (map[string][]corev1.Pod, error) {
	out := map[string][]corev1.Pod{}
	list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return r.Kube.CoreV1().Pods("").List(ctx, o)
	})
	err := list.EachListItem(ctx, metav1.ListOptions{FieldSelector: "status.phase!=Succeeded,status.phase!=Failed"}, func(o runtime.Object) error {
		p := o.(*corev1.Pod)
		out[p.Spec.NodeName] = append(out[p.Spec.NodeName], *p)
		return nil
	})
	if err != nil {
		return nil, kubeError(ctx, "list pods", "", err, "list on pods")
	}
	return out, nil
}

// A reservation is what a configuration keeps from pods. What it leaves out may be
// reserved too, by the image's own settings, so less may be left than is computed here.
type reservation struct {
	SystemReserved map[string]string `json:"systemReserved"`
	KubeReserved   map[string]string `json:"kubeReserved"`
	EvictionHard   map[string]string `json:"evictionHard"`
	MaxPods        *int              `json:"maxPods"`
}

func reservationOf(kubelet map[string]any) (reservation, error) {
	var out reservation
	text, err := json.Marshal(kubelet)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		err = &fleet.Error{Op: "read the kubelet's reservations", Kind: fleet.KindInvalid, Err: err}
	}
	return out, err
}

// human prints a quantity of bytes with one decimal, "23.5Gi", and any other as it is.
func human(q resource.Quantity) string {
	const gi, mi = 1 << 30, 1 << 20
	switch v := q.AsApproximateFloat64(); {
	case v >= gi:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", v/gi), ".0") + "Gi"
	case v >= mi:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", v/mi), ".0") + "Mi"
	}
	return q.String()
}

// excess says what pods of a Node would not fit, or "".
func (v reservation) excess(n *corev1.Node, pods []corev1.Pod) string {
	if v.MaxPods != nil && len(pods) > *v.MaxPods {
		return fmt.Sprintf("maxPods %d is less than the %d pods that it has", *v.MaxPods, len(pods))
	}
	left := corev1.ResourceList{}
	take := func(name corev1.ResourceName, text string) {
		capacity, known := n.Status.Capacity[name]
		q, err := resource.ParseQuantity(text)
		if percent, is := strings.CutSuffix(text, "%"); is {
			var f float64
			f, err = strconv.ParseFloat(percent, 64)
			q = *resource.NewQuantity(int64(f/100*capacity.AsApproximateFloat64()), resource.BinarySI)
		}
		if !known || err != nil {
			return // the kubelet's own validation says so
		}
		l, begun := left[name]
		if !begun {
			l = capacity.DeepCopy()
		}
		l.Sub(q)
		left[name] = l
	}
	for _, reserved := range []map[string]string{v.SystemReserved, v.KubeReserved} {
		for name, text := range reserved {
			take(corev1.ResourceName(name), text)
		}
	}
	// Other signals keep nothing from pods. Source: Kubernetes, "Reserve Compute Resources
	// for System Daemons".
	take(corev1.ResourceMemory, v.EvictionHard["memory.available"])
	take(corev1.ResourceEphemeralStorage, v.EvictionHard["nodefs.available"])
	for _, name := range slices.Sorted(maps.Keys(left)) {
		l, sum := left[name], resource.Quantity{}
		requests := map[string]resource.Quantity{}
		for i := range pods {
			if q := resourcehelper.PodRequests(&pods[i], resourcehelper.PodResourcesOptions{})[name]; !q.IsZero() {
				sum.Add(q)
				requests[pods[i].Namespace+"/"+pods[i].Name] = q
			}
		}
		if sum.Cmp(l) <= 0 && l.Sign() >= 0 {
			continue
		}
		names := slices.SortedFunc(maps.Keys(requests), func(a, b string) int {
			q := requests[b]
			return cmp.Or(q.Cmp(requests[a]), strings.Compare(a, b))
		})
		for i, pod := range names {
			q := requests[pod]
			names[i] = pod + " (" + q.String() + ")"
		}
		if more := len(names) - maxShown; more > 0 {
			names = append(names[:maxShown], fmt.Sprintf("and %d more", more))
		}
		if capacity := n.Status.Capacity[name]; l.Sign() < 0 {
			l.Neg()
			l.Add(capacity)
			return fmt.Sprintf("%s of %s would be reserved, of the %s that the node has", human(l), name, human(capacity))
		}
		return fmt.Sprintf("%s of %s would be left for pods, which request %s: %s", human(l), name, human(sum), strings.Join(names, ", "))
	}
	return ""
}
