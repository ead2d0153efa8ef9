package clustertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
)

// A Faulted is an implementation one of whose requests meets a fault.
type Faulted struct {
	Under cluster.Cluster
	// Begin has requests be counted from now on.
	Begin func()
	// Met reports whether the fault came.
	Met func() bool
}

// Faults says what the suite asks of an implementation while requests meet
// faults, beside Setup.
type Faults struct {
	Setup
	// Kinds are the faults by name, in order.
	Kinds []string
	// Fail gives an implementation whose nth request meets the fault. A request
	// that is never answered ends after some seconds.
	Fail func(t *testing.T, kind string, nth int) Faulted
}

// An operation is something that is asked once, with one request meeting a fault.
type operation struct {
	name        string
	first, last int // of its requests that are tried
	// prepare makes what is needed, by w.under, which meets none, and gives what is
	// asked and what the cluster then shows, in words in which no names are.
	prepare func(w *world, under cluster.Cluster) (ask func(ctx context.Context) error, state func() string)
}

// limit bounds what is asked, so that what is repeated until the end ends.
const limit = patience

// RunFaults asks for what Ortet asks most, with each fault at each of the first
// requests, and gives what came of it, a line for each: the same on every API
// server. Where no error was given, the cluster shows what it does without a
// fault. The tests run beside each other unless Setup.Within is set.
func RunFaults(t *testing.T, f Faults) string {
	t.Helper()
	setup, err := f.connect()
	if err != nil {
		t.Fatal(err)
	}
	f.ServeMachines(t)
	var lines []*string
	t.Run("Each", func(t *testing.T) {
		for _, op := range operations() {
			whole := new(string)
			t.Run(op.name, func(t *testing.T) { setup.once(t, f, op, "", 0, whole, nil) })
			for _, kind := range f.Kinds {
				for nth := op.first; nth <= op.last; nth++ {
					line := new(string)
					lines = append(lines, line)
					t.Run(fmt.Sprintf("%s/%s/%d", op.name, kind, nth), func(t *testing.T) {
						if f.Within == nil {
							t.Parallel()
						}
						setup.once(t, f, op, kind, nth, line, whole)
					})
				}
			}
		}
	})
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(*line + "\n")
	}
	return b.String()
}

// once asks for one thing in a world of its own.
func (s *suite) once(t *testing.T, f Faults, op operation, kind string, nth int, line, whole *string) {
	t.Helper()
	s.within(t, func(w *world) {
		faulted := Faulted{Under: w.under, Begin: func() {}, Met: func() bool { return true }}
		if kind != "" {
			faulted = f.Fail(w.T, kind, nth)
		}
		ask, state := op.prepare(w, faulted.Under)
		ctx, cancel := context.WithTimeout(w.ctx, limit)
		defer cancel()
		faulted.Begin()
		err := ask(ctx)
		got := state()
		switch {
		case kind == "":
			w.must(err, op.name)
			*line = got
			return
		case !faulted.Met():
			*line = fmt.Sprintf("%s, %s at request %d: it sends no such request", op.name, kind, nth)
			return
		}
		outcome := "done"
		if err != nil {
			if as := new(fleet.Error); !errors.As(err, &as) {
				w.Errorf("%v is no *fleet.Error", err)
			}
			outcome = fmt.Sprintf("fails (%s)", fleet.KindOf(err))
		}
		if err == nil && got != *whole {
			w.Errorf("it reports success, and there is: %s; want: %s", got, *whole)
		}
		*line = fmt.Sprintf("%s, %s at request %d: %s; %s", op.name, kind, nth, outcome, got)
	})
}

func operations() []operation {
	type asked = func(ctx context.Context) error
	return []operation{
		{"Annotate", 1, 1, func(w *world, under cluster.Cluster) (asked, func() string) {
			node := w.node("", nil)
			return func(ctx context.Context) error {
					return under.Annotate(ctx, node, map[string]*string{"ours": ptr("1")})
				},
				func() string { return fmt.Sprintf("annotation %q", w.readNode(node).Annotations["ours"]) }
		}},
		{"SetUnschedulable", 1, 1, func(w *world, under cluster.Cluster) (asked, func() string) {
			node := w.node("", nil)
			return func(ctx context.Context) error { return under.SetUnschedulable(ctx, node, true) },
				func() string { return fmt.Sprintf("unschedulable %t", w.readNode(node).Spec.Unschedulable) }
		}},
		{"AnnotateMachine", 1, 3, annotatesMachine},
		{"Drain", 1, 4, func(w *world, under cluster.Cluster) (asked, func() string) {
			ns, owner := w.namespace()
			node := w.cordoned()
			w.kubelet(node)
			w.pod(ns, node, "web", owner, nil)
			return func(ctx context.Context) error {
					return under.Drain(ctx, node, cluster.DrainOptions{GracePeriod: time.Second, Deadline: limit}, nil)
				},
				func() string { return w.settled(ns, "web") }
		}},
		// The request before the eviction reads whose pod it is.
		{"Drain beside a DaemonSet", 3, 3, func(w *world, under cluster.Cluster) (asked, func() string) {
			ns, owner := w.namespace()
			node := w.cordoned()
			w.kubelet(node)
			w.daemon(ns, node)
			w.pod(ns, node, "web", owner, nil)
			return func(ctx context.Context) error {
					return under.Drain(ctx, node, cluster.DrainOptions{GracePeriod: time.Second, Deadline: limit}, nil)
				},
				func() string { return w.settled(ns, "web") }
		}},
		{"StartJob", 1, 1, func(w *world, under cluster.Cluster) (asked, func() string) {
			job := w.faultedJob()
			return func(ctx context.Context) error { return under.StartJob(ctx, job) }, func() string { return w.settled(w.setup.Namespace, job.Name) }
		}},
		{"StartJob again", 1, 2, func(w *world, under cluster.Cluster) (asked, func() string) {
			job := w.faultedJob()
			w.must(w.under.StartJob(w.ctx, job), "start")
			return func(ctx context.Context) error { return under.StartJob(ctx, job) }, func() string { return w.settled(w.setup.Namespace, job.Name) }
		}},
		{"Job", 1, 1, func(w *world, under cluster.Cluster) (asked, func() string) {
			job := w.faultedJob()
			w.must(w.under.StartJob(w.ctx, job), "start")
			var state cluster.JobState
			return func(ctx context.Context) (err error) { state, err = under.Job(ctx, job.Name); return err },
				func() string {
					return fmt.Sprintf("said to exist: %t; %s", state.Exists, w.settled(w.setup.Namespace, job.Name))
				}
		}},
		{"DeleteJob", 1, 3, func(w *world, under cluster.Cluster) (asked, func() string) {
			job := w.faultedJob()
			w.kubelet(job.Node)
			w.must(w.under.StartJob(w.ctx, job), "start")
			return func(ctx context.Context) error { return deleteJob(ctx, under, job.Name) },
				func() string { return w.settled(w.setup.Namespace, job.Name) }
		}},
		{"Hold", 1, 2, func(w *world, under cluster.Cluster) (asked, func() string) {
			return func(ctx context.Context) error { return w.hold(ctx, under) }, w.holds
		}},
		{"Hold again", 1, 1, func(w *world, under cluster.Cluster) (asked, func() string) {
			w.must(w.hold(w.ctx, under), "hold")
			return func(ctx context.Context) error { return w.hold(ctx, under) }, w.holds
		}},
		{"Hold of another process", 1, 2, func(w *world, under cluster.Cluster) (asked, func() string) {
			w.must(w.hold(w.ctx, w.under), "hold")
			return func(ctx context.Context) error { return w.hold(ctx, under) }, w.holds
		}},
		{"Release", 1, 2, func(w *world, under cluster.Cluster) (asked, func() string) {
			w.must(w.hold(w.ctx, under), "hold")
			return func(ctx context.Context) error { return under.Release(ctx, w.pool(), w.name+"/holder") }, w.holds
		}},
		{"Keep", 1, 1, func(w *world, under cluster.Cluster) (asked, func() string) {
			item := w.item(w.name)
			return func(ctx context.Context) error { return under.PutSecret(ctx, item, nil) }, func() string { return w.keeps(item) }
		}},
		{"Keep beside another item", 1, 3, func(w *world, under cluster.Cluster) (asked, func() string) {
			item := w.item(w.name)
			w.must(w.under.PutSecret(w.ctx, w.item("another"), nil), "keep")
			return func(ctx context.Context) error { return under.PutSecret(ctx, item, nil) }, func() string { return w.keeps(item) }
		}},
		{"Keep again", 1, 2, func(w *world, under cluster.Cluster) (asked, func() string) {
			item := w.item(w.name)
			w.must(w.under.PutSecret(w.ctx, item, nil), "keep")
			return func(ctx context.Context) error { return under.PutSecret(ctx, item, nil) }, func() string { return w.keeps(item) }
		}},
		{"Kept", 1, 1, func(w *world, under cluster.Cluster) (asked, func() string) {
			item := w.item(w.name)
			w.must(w.under.PutSecret(w.ctx, item, nil), "keep")
			return func(ctx context.Context) error {
				_, err := under.GetSecret(ctx, item.Pool, item.Kind, item.SHA256)
				return err
			}, func() string { return w.keeps(item) }
		}},
		{"Save of a new journal", 1, 1, func(w *world, under cluster.Cluster) (asked, func() string) {
			return func(ctx context.Context) error { _, err := under.Journals().Save(ctx, w.record("")); return err }, w.journal
		}},
		{"Save", 1, 1, func(w *world, under cluster.Cluster) (asked, func() string) {
			saved, err := w.under.Journals().Save(w.ctx, w.record(""))
			w.must(err, "save")
			saved.Subject = "another"
			return func(ctx context.Context) error { _, err := under.Journals().Save(ctx, saved); return err }, w.journal
		}},
		{"Load", 1, 1, func(w *world, under cluster.Cluster) (asked, func() string) {
			_, err := w.under.Journals().Save(w.ctx, w.record(""))
			w.must(err, "save")
			return func(ctx context.Context) error { _, err := under.Journals().Load(ctx, w.pool()); return err }, w.journal
		}},
	}
}

func annotatesMachine(w *world, under cluster.Cluster) (func(ctx context.Context) error, func() string) {
	ns, _ := w.namespace()
	machines := w.dynamic.Resource(schema.GroupVersionResource{Group: "cluster.x-k8s.io", Version: "v1beta1", Resource: "machines"}).Namespace(ns)
	w.eventually("serving of Machines", func() (string, bool) {
		_, err := machines.Create(w.ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine", "metadata": map[string]any{"name": "m1"},
		}}, metav1.CreateOptions{})
		return fmt.Sprint(err), err == nil
	})
	node := w.machineNode(ns, "m1")
	known := false
	return func(ctx context.Context) (err error) {
			_, known, err = under.AnnotateMachine(ctx, node, map[string]*string{"ours": ptr("1")})
			return err
		}, func() string {
			machine, err := machines.Get(w.ctx, "m1", metav1.GetOptions{})
			w.must(err, "read the Machine")
			return fmt.Sprintf("said to be known: %t; annotation %q", known, machine.GetAnnotations()["ours"])
		}
}

func (w *world) faultedJob() cluster.Job {
	job := w.job(w.node("", func(n *corev1.Node) { n.Spec.Unschedulable = true }))
	w.Cleanup(func() {
		err := w.admin.CoreV1().Pods(w.setup.Namespace).Delete(context.WithoutCancel(w.ctx), job.Name, grace(0))
		if err != nil && !apierrors.IsNotFound(err) {
			w.Errorf("clean up pod %s: %v", job.Name, err)
		}
	})
	return job
}

// settled says whether the pod is there, once it is not on its way out.
func (w *world) settled(namespace, name string) string {
	there := ""
	w.eventually("end of a pod that terminates", func() (string, bool) {
		pod, err := w.admin.CoreV1().Pods(namespace).Get(w.ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			there = "no pod"
			return "", true
		}
		w.must(err, "read pod")
		there = "the pod is there"
		return "it terminates", pod.DeletionTimestamp == nil
	})
	return there
}

func (w *world) hold(ctx context.Context, under cluster.Cluster) error {
	_, err := under.Hold(ctx, w.pool(), w.name+"/holder", time.Minute)
	return err
}

func (w *world) holds() string { return fmt.Sprintf("%d leases", len(w.leasesOf(w.name+"/holder"))) }

func (w *world) keeps(item cluster.SecretItem) string {
	_, err := w.under.GetSecret(w.ctx, item.Pool, item.Kind, item.SHA256)
	if err != nil && !fleet.Is(err, fleet.KindNotFound) {
		w.must(err, "read what is kept")
	}
	return fmt.Sprintf("kept %t", err == nil)
}

func (w *world) record(revision string) journal.Record {
	return journal.Record{Revision: revision, Schema: journal.Schema, Name: "c1", Kind: "capture", Pool: w.pool(), Subject: "donor", Begun: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}
}

func (w *world) journal() string {
	r, err := w.under.Journals().Load(w.ctx, w.pool())
	if fleet.Is(err, fleet.KindNotFound) {
		return "no journal"
	}
	w.must(err, "read the journal")
	return "journal of " + r.Subject
}
