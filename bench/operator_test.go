package main

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/ortet/ortet/api/v1alpha1"
	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/cluster/conversion"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/operator"
	"github.com/ortet/ortet/test/azsimserver"
	"github.com/ortet/ortet/test/kubesim"
)

const operatorEach = 50 // nodes of a pool

// cachedNodes are the cluster's Nodes as a cache has them.
type cachedNodes struct {
	cluster.Cluster
	nodes []corev1.Node
	by    map[string][]int // fleet.Claim.Keys, as the operator's cache has them
}

func (p *cachedNodes) add(n corev1.Node) {
	for _, key := range conversion.Node(&n).Claim().Keys() {
		p.by[key] = append(p.by[key], len(p.nodes))
	}
	p.nodes = append(p.nodes, n)
}

func (p *cachedNodes) of(_ context.Context, keys []string) (nodes []fleet.Node, _ error) {
	has := map[int]bool{}
	for _, key := range keys {
		for _, i := range p.by[key] {
			if !has[i] {
				has[i], nodes = true, append(nodes, conversion.Node(&p.nodes[i]))
			}
		}
	}
	return nodes, nil
}

func (p *cachedNodes) Nodes(context.Context) iter.Seq2[fleet.Node, error] {
	return func(yield func(fleet.Node, error) bool) {
		for i := range p.nodes {
			if !yield(conversion.Node(&p.nodes[i]), nil) {
				return
			}
		}
	}
}

// idlePools are objects whose pools need nothing.
type idlePools struct{ all []v1alpha1.ScaleSetPool }

func (p *idlePools) List(context.Context) ([]v1alpha1.ScaleSetPool, error) {
	return slices.Clone(p.all), nil
}

func (p *idlePools) SaveStatus(_ context.Context, o *v1alpha1.ScaleSetPool) error {
	i := slices.IndexFunc(p.all, func(x v1alpha1.ScaleSetPool) bool { return x.Name == o.Name })
	p.all[i].Status = *o.Status.DeepCopy()
	return nil
}

func (p *idlePools) Event(context.Context, *v1alpha1.ScaleSetPool, bool, string, string) {}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// An idleCost is what an operator needs that has nothing to do.
type idleCost struct{ heap, cpu, core, reads float64 }

func costOfIdle(b *testing.B, pools int, flexible bool) (c idleCost) {
	b.Helper()
	var requests atomic.Int64
	cloud := &azsim.Server{OnRequest: func(r azsim.Request) {
		if r.Action != "" {
			requests.Add(1)
		}
	}}
	defer cloud.Close()
	change := azsimserver.Bare
	if flexible {
		change = func(body map[string]any) { azsimserver.Bare(body); azsimserver.Flexible(body) }
	}
	reader, err := arm.New(arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: cloud.Credential(""), Transport: cloud.Transport(), Version: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	api := &kubesim.Server{}
	at, err := kube.New(kube.Config{REST: api.Config("ortet"), Namespace: "ortet-system", Identity: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	group := fleet.ResourceID("/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/" + azsim.DefaultResourceGroup)
	var ids []fleet.ResourceID
	for i := range pools {
		name := fmt.Sprintf("pool%03d", i)
		if err := (azsimserver.Pool{Name: name, Capacity: operatorEach, Change: change}).CreateIn(b.Context(), cloud); err != nil {
			b.Fatal(err)
		}
		ids = append(ids, group+"/providers/Microsoft.Compute/virtualMachineScaleSets/"+fleet.ResourceID(name))
	}
	before, w, nodes := heap(), &idlePools{}, &cachedNodes{Cluster: at, by: map[string][]int{}}
	for _, id := range ids {
		instances, err := reader.Instances(b.Context(), id)
		if err != nil {
			b.Fatal(err)
		}
		for _, i := range instances {
			nodes.add(corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: strings.ToLower(i.HostName), Labels: map[string]string{corev1.LabelHostname: i.HostName}},
				Spec: corev1.NodeSpec{ProviderID: "azure://" + string(i.ID)}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{SystemUUID: i.VMID, OperatingSystem: "linux"},
					Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}}})
		}
		w.all = append(w.all, v1alpha1.ScaleSetPool{ObjectMeta: metav1.ObjectMeta{Name: id.Name()}, Spec: v1alpha1.ScaleSetPoolSpec{ScaleSet: string(id),
			Capture: &v1alpha1.CaptureSpec{Schedule: "0 2 29 2 *"}, Watch: &v1alpha1.WatchSpec{}, Rollout: v1alpha1.RolloutSpec{Mode: v1alpha1.RolloutProven}}})
	}
	r := operator.New(b.Context(), operator.Config{Objects: w, Reads: nodes, NodesOf: nodes.of, Groups: []fleet.ResourceID{group}, Capture: capture.Config{
		Cloud: azure.Retry(azure.Settled(reader), azure.RetryPolicy{}), Cluster: nodes, Journal: at.Journals(), Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Namespace: "ortet-system", Holder: "bench", LockFor: time.Minute, Accesses: func(fleet.ResourceID) []cluster.Access { return nil }}})
	pass := func() (minutes float64) {
		for _, o := range w.all {
			result, err := r.Reconcile(b.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: o.Name}})
			if err != nil {
				b.Fatal(err)
			}
			minutes += result.RequeueAfter.Minutes()
		}
		return minutes
	}
	pass() // writes statuses
	for _, o := range w.all {
		if o.Status.Nodes.Total != operatorEach {
			b.Fatalf("%s has seen %d nodes: %+v", o.Name, o.Status.Nodes.Total, o.Status.Conditions)
		}
	}
	requests.Store(0)
	began := processCPU(b)
	minutes := pass()
	cpu := processCPU(b) - began
	c.cpu = ms(cpu) / float64(pools)
	c.core = cpu.Minutes() * float64(pools) / minutes
	c.reads = float64(requests.Load()) / minutes
	c.heap = (float64(heap()) - float64(before)) / (1 << 20) // less than 0 where the simulators have freed more
	return c
}

// BenchmarkOperatorIdle is an operator with 100 pools and 5,000 Nodes, and nothing to do. The CPU time
// is with that of the simulated Azure and API server, which answer in this process.
func BenchmarkOperatorIdle(b *testing.B) {
	for b.Loop() {
		c, f, large := costOfIdle(b, 100, false), costOfIdle(b, 100, true), costOfIdle(b, 400, false)
		report(b, "operator-idle", atMost("heap", c.heap, "MiB", 100), atMost("cpu-of-a-reconcile", c.cpu, "ms", 20), atMost("core", c.core, "cores", 0.05),
			atMost("azure-reads", c.reads, "a minute and pool", 1), atMost("azure-reads-flexible", f.reads, "a minute and pool", 1),
			atMost("flexible-cpu-of-a-reconcile", f.cpu, "ms", 20), atMost("400-pools-core", large.core/c.core, "times", 4), atMost("400-pools-heap", large.heap/c.heap, "times", 4))
	}
}
