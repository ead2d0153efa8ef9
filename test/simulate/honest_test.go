package simulate

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
)

// specialized is a cloud whose instances have no host name.
type specialized struct{ azure.Cloud }

func (c specialized) Instance(ctx context.Context, id fleet.ResourceID) (fleet.Instance, error) {
	i, err := c.Cloud.Instance(ctx, id)
	i.HostName = ""
	return i, err
}

// TestHonestClusters plans a capture in clusters whose kubelets are configured in every usual way, and
// in a few that cannot be. The tables in docs/how-to/no-provider-id.md have these rows.
func TestHonestClusters(t *testing.T) {
	named := func(change func(string) string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Name = change(n.Name) }
	}
	provider := func(id string) func(*corev1.Node) { return func(n *corev1.Node) { n.Spec.ProviderID = id } }
	uuid := func(change func(string) string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Status.NodeInfo.SystemUUID = change(n.Status.NodeInfo.SystemUUID) }
	}
	suffix := func(text string) func(*corev1.Node) { return named(func(name string) string { return name + text }) }
	all := func(changes ...func(*corev1.Node)) []func(*corev1.Node) { return changes }
	const wayOut = "let its kubelet register with the host name that Azure has"
	for name, c := range map[string]struct {
		pool    func(*Pool)
		nodes   []func(*corev1.Node) // of the pool
		also    *corev1.Node
		others  bool // --other-pools
		special bool
		want    []string // in the problems; none: there are none
	}{
		"Azure's cloud provider, CAPZ, AKS Engine": {},
		"a Flexible set, base 36 in capitals":      {pool: func(p *Pool) { p.Flexible = true }},
		"provider id in capitals": {nodes: all(func(n *corev1.Node) {
			n.Spec.ProviderID = "azure://" + strings.ToUpper(strings.TrimPrefix(n.Spec.ProviderID, "azure://"))
		})},
		"k3s, RKE2 with host names": {nodes: all(provider("k3s://pool1"))},
		"no cloud provider":         {nodes: all(provider(""))},
		"generation 1, the bytes swapped": {nodes: all(uuid(func(id string) string {
			return id[6:8] + id[4:6] + id[2:4] + id[0:2] + "-" + id[11:13] + id[9:11] + "-" + id[16:18] + id[14:16] + id[18:]
		}))},
		"Windows beside the pool": {also: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "akswin000000"}, Spec: corev1.NodeSpec{ProviderID: "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/akswin/virtualMachines/0"},
			Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "windows", SystemUUID: noVM}}}},
		"a Node of an earlier scale set": {also: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "old000000"}, Spec: corev1.NodeSpec{ProviderID: "DONOR"},
			Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{SystemUUID: noVM}}}},
		"a pool of one node":                      {pool: func(p *Pool) { p.Instances, p.Neighbour = 1, 1 }, want: []string{"no other node can work on a copy of its disk", "is of another pool (1)", "--other-pools"}},
		"a pool of one node, other pools allowed": {pool: func(p *Pool) { p.Instances, p.Neighbour = 1, 1 }, others: true},
		"k3s node-name":                           {nodes: all(provider("k3s://other"), suffix("-renamed")), want: []string{"the host name", "a node is matched only where its name is the host name"}},
		"k3s with-node-id":                        {nodes: all(provider(""), suffix("-1c0ffee0")), want: []string{"the host name"}},
		"--provider-id with --hostname-override":  {nodes: all(named(func(name string) string { return "node-" + name[len(name)-1:] })), want: []string{"has the host name", wayOut}},
		"an FQDN as Node name":                    {nodes: all(suffix(".example.internal")), want: []string{"has the host name", wayOut}},
		"DMI hidden":                              {nodes: all(uuid(func(string) string { return "feedface-feed-face-feed-facefeedface" })), want: []string{"systemUUID feedface", "has the vmId", wayOut}},
		"DMI of zeros":                            {nodes: all(uuid(func(string) string { return "00000000-0000-0000-0000-000000000000" })), want: []string{"which is no machine's", wayOut}},
		"a specialized image":                     {special: true, want: []string{"Azure has no host name", "specialized"}},
		"OS renamed by hand, the earlier Node left": {also: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "renamed"}, Spec: corev1.NodeSpec{ProviderID: "DONOR"},
			Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{SystemUUID: "DONOR"}}}, want: []string{"node renamed reports that it is the same machine", "delete the Node that is stale"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pool := usual
				if c.pool != nil {
					c.pool(&pool)
				}
				w := newWorld(Story{Seed: 5, Pool: pool})
				defer w.close()
				donor := w.nodeName(0)
				machine := w.computerOf(donor)
				for i, name := range w.nodesOf(w.pool) {
					n := w.kube.Node(name).DeepCopy()
					for _, change := range c.nodes {
						change(n)
					}
					w.kube.Remove("nodes", "", name)
					if w.kube.Put(n); i == 0 {
						donor = n.Name
					}
				}
				if also := c.also.DeepCopy(); also != nil {
					also.Spec.ProviderID = strings.Replace(also.Spec.ProviderID, "DONOR", "azure://"+machine.ResourceID, 1)
					also.Status.NodeInfo.SystemUUID = strings.Replace(also.Status.NodeInfo.SystemUUID, "DONOR", machine.VMID, 1)
					w.kube.Put(also)
				}
				config, err := w.config("honest", w.azure.Transport(), w.kube, nil)
				if err != nil {
					t.Fatal(err)
				}
				if c.special {
					config.Cloud = specialized{config.Cloud}
				}
				p, err := capture.New(config).Plan(t.Context(), capture.Request{Node: donor, OtherPools: c.others})
				if err != nil {
					t.Fatal(err)
				}
				var lines []string
				for _, problem := range p.Problems {
					lines = append(lines, problem.String())
				}
				text := strings.Join(lines, "\n")
				if len(c.want) == 0 && (text != "" || len(p.Steps) == 0) {
					t.Errorf("it is refused: %s", text)
				}
				for _, want := range c.want {
					if !strings.Contains(text, want) {
						t.Errorf("%q is not in: %s", want, text)
					}
				}
			})
		})
	}
}
