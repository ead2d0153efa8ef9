//go:build e2e && linux

package lab

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ortet/ortet/azsim/machine"
	rootfs "github.com/ortet/ortet/hack/lab"
)

// TestRolloutOnRealMachines captures one of three machines and rolls the version out to all of
// them, while a Deployment of two pods with a budget of one serves requests.
func TestRolloutOnRealMachines(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 14*time.Minute)
	defer cancel()
	line := newTimeline(t)
	l := newLab(ctx, t, line, "rollout", nil)
	line.begin("container images")
	l.buildOrtet(ctx, t)
	line.begin("pool of three machines boots and joins")
	l.createPool(ctx, t)
	nodes := l.awaitNodes(ctx, t, workers)
	donor, bench := nodes[0], nodes[1]
	l.pull(ctx, t, "ortet", donor, bench)
	l.deployService(ctx, t)
	line.begin(donor + " is captured")
	if err := l.change(ctx, t, "capture", donor, "--image="+ortetImage, "--workbench="+bench, "--bootstrap=baked", "--accept-pool-credentials", "--grace-period=30s"); err != nil {
		l.explain(t)
		t.Fatal(err)
	}
	version := l.checkModel(ctx, t)
	before := map[string]*corev1.Node{}
	identities := map[string]map[string]string{}
	for _, n := range nodes {
		before[n] = l.node(ctx, t, n)
		identities[n] = l.machines.identity(ctx, t, n)
	}

	line.begin("the version is rolled out to all three")
	load := l.serve(ctx, t)
	err := l.change(ctx, t, "rollout", poolName, "--soak=20s")
	asked, failed := load()
	t.Logf("%d requests while three nodes got the version, %d failed", asked, len(failed))
	if err != nil {
		l.explain(t)
		t.Fatal(err)
	}
	for _, f := range failed[:min(len(failed), 10)] {
		t.Errorf("request: %s", f)
	}
	if asked < 200 {
		t.Errorf("%d requests, want at least 200", asked)
	}

	line.begin("what became of the nodes")
	l.machines.forget()
	l.checkOrigin(ctx, t, nodes, version)
	l.checkIdentity(ctx, t, donor, nodes[1:])
	for _, n := range nodes {
		now, was := l.node(ctx, t, n), before[n]
		if !ready(*now) || now.Spec.Unschedulable || len(now.Spec.Taints) != len(was.Spec.Taints) {
			t.Errorf("%s: ready %v, unschedulable %v, taints %v", n, ready(*now), now.Spec.Unschedulable, now.Spec.Taints)
		}
		if now.UID != was.UID || now.Status.NodeInfo.BootID == was.Status.NodeInfo.BootID {
			t.Errorf("%s: the same Node %v, the same boot %v", n, now.UID == was.UID, now.Status.NodeInfo.BootID == was.Status.NodeInfo.BootID)
		}
		if id := l.machines.identity(ctx, t, n)["machine-id"]; id == identities[n]["machine-id"] {
			t.Errorf("%s has the machine id %s as before: its disk is the old one", n, id)
		}
	}
	l.checkTemporary(ctx, t, nodes)
	line.begin("the same command again")
	if err := l.change(ctx, t, "rollout", poolName); err != nil {
		t.Error(err)
	}
	for _, n := range nodes {
		if now := l.node(ctx, t, n); now.Spec.Unschedulable {
			t.Errorf("%s is cordoned by a rollout with nothing to do", n)
		}
	}
	line.print()
}

// deployService runs two pods that are told of their end before they stop to listen, with a
// budget of one, behind a Service.
func (l *lab) deployService(ctx context.Context, t *testing.T) {
	t.Helper()
	labels := map[string]string{"app": "served"}
	port := intstr.FromInt32(8080)
	meta := metav1.ObjectMeta{Name: "served"}
	if _, err := l.client.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: meta, Spec: corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 80, TargetPort: port}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.client.PolicyV1().PodDisruptionBudgets("default").Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: meta, Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	sets := l.client.AppsV1().Deployments("default")
	if _, err := sets.Create(ctx, &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
		Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "web", Image: rootfs.WebImage, ImagePullPolicy: corev1.PullNever,
				ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: port}}},
				Lifecycle:      &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 5}}},
			}},
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
			}},
		}},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	poll(ctx, t, "both pods of the Service", 2*time.Minute, func(ctx context.Context) (bool, error) {
		d, err := sets.Get(ctx, "served", metav1.GetOptions{})
		return err == nil && d.Status.AvailableReplicas == 2, err
	})
}

// serve asks the Service's ready endpoints in turn, as a load balancer does that hears of a change
// within a second. The function that it gives ends it: how many requests there were, and what
// each that failed said. A second without an endpoint is a failure, too.
func (l *lab) serve(ctx context.Context, t *testing.T) func() (asked int, failed []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, DialContext: dialWithin(machine.Prefix(l.machines.dir)),
	}}
	var (
		asked  int
		failed []string
		group  sync.WaitGroup
	)
	group.Go(func() {
		var ready []string
		for tick := 0; ctx.Err() == nil; tick++ {
			if tick%5 == 0 {
				now, err := l.endpoints(ctx)
				switch {
				case ctx.Err() != nil:
					return
				case err != nil:
					failed = append(failed, "the API server: "+err.Error())
				default:
					ready = now
				}
			}
			asked++
			if len(ready) == 0 {
				failed = append(failed, time.Now().Format(time.TimeOnly)+": no endpoint is ready")
			} else if err := get(ctx, client, ready[tick%len(ready)]); err != nil && ctx.Err() == nil {
				failed = append(failed, time.Now().Format(time.TimeOnly)+": "+err.Error())
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	return func() (int, []string) {
		cancel()
		group.Wait()
		return asked, failed
	}
}

func (l *lab) endpoints(ctx context.Context) (ready []string, err error) {
	slices, err := l.client.DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=served"})
	if err != nil {
		return nil, err
	}
	for _, s := range slices.Items {
		for _, e := range s.Endpoints {
			if e.Conditions.Ready != nil && *e.Conditions.Ready {
				ready = append(ready, "http://"+net.JoinHostPort(e.Addresses[0], "8080"))
			}
		}
	}
	return ready, nil
}

func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, response.Status)
	}
	return err
}

// dialWithin connects from the network namespace in which the machines' network is.
func dialWithin(namespace string) func(ctx context.Context, network, address string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		done := make(chan result, 1)
		go func() {
			runtime.LockOSThread() // not unlocked: the thread ends with the goroutine
			ns, err := os.Open(filepath.Join("/run/netns", namespace))
			if err != nil {
				done <- result{err: err}
				return
			}
			defer ns.Close()
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				done <- result{err: fmt.Errorf("enter network namespace %s: %w", namespace, err)}
				return
			}
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			done <- result{conn, err}
		}()
		r := <-done
		return r.conn, r.err
	}
}

// forget has machines looked for again: one with a new disk is another container.
func (m *machines) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.containers = nil
}
