package kube

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/internal/cluster"
)

func TestFitGrace(t *testing.T) {
	for _, c := range []struct{ own, left, want time.Duration }{
		{30 * time.Second, 30 * time.Second, 28 * time.Second},
		{30 * time.Second, 15 * time.Minute, 30 * time.Second},
		{30 * time.Second, 10500 * time.Millisecond, 8 * time.Second},
		{30 * time.Second, time.Second, time.Second},
		{30 * time.Second, -time.Minute, time.Second},
		{0, time.Minute, time.Second}, // never at once: its kubelet would not be waited for
	} {
		if got := fitGrace(c.own, c.left); got != c.want {
			t.Errorf("of %s with %s left: %s, want %s", c.own, c.left, got, c.want)
		}
	}
}

// On 30 seconds' notice a budget holds for half of it, and with long notice until the
// pod's own grace is all that is left.
func TestFitOverridesInTime(t *testing.T) {
	for _, c := range []struct{ deadline, own, want time.Duration }{
		{30 * time.Second, 30 * time.Second, 15 * time.Second},
		{30 * time.Second, 5 * time.Second, 23 * time.Second},
		{15 * time.Minute, 30 * time.Second, 15*time.Minute - 32*time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSmall("db")
			seconds := int64(c.own / time.Second)
			s.Change("pods", "ns", "db", func(o runtime.Object) { o.(*corev1.Pod).Spec.TerminationGracePeriodSeconds = &seconds })
			s.evict = func(string, int) *metav1.Status { return budgetStatus("b", 0) }
			var at time.Duration
			begun := time.Now()
			err := s.open(t).Drain(t.Context(), "n", cluster.DrainOptions{GracePeriod: -1, Deadline: c.deadline, Fit: true, Force: true}, func(e cluster.DrainEvent) {
				if e.What == "deleted by force" {
					at = time.Since(begun)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if at < c.want || at > c.want+fitLook {
				t.Errorf("of %s, a pod of %s was told after %s, want %s", c.deadline, c.own, at, c.want)
			}
		})
	}
}

// It is over at the deadline, not after it, and at the caller's end at once.
func TestFitIsOverAtTheDeadline(t *testing.T) {
	for _, cancel := range []time.Duration{0, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := newSmall("db", "web")
			s.ends = -1
			options := cluster.DrainOptions{GracePeriod: -1, Deadline: 30 * time.Second, Fit: true, Force: true}
			ctx, stop := t.Context(), func() {}
			want := options.Deadline
			if cancel > 0 {
				ctx, stop = context.WithTimeout(t.Context(), cancel)
				want = cancel
			}
			defer stop()
			begun := time.Now()
			err := s.open(t).Drain(ctx, "n", options, nil)
			if took := time.Since(begun); err == nil || took != want {
				t.Errorf("it ended after %s: %v", took, err)
			}
		})
	}
}

// Of a failure in passing it takes no note, and goes on.
func TestFitOutlastsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSmall("db", "web")
		s.fault = func(r *http.Request, n int) (*http.Response, error) {
			if n%3 == 0 && !strings.Contains(r.URL.Path, "/nodes/") {
				return refuse(http.StatusInternalServerError, metav1.StatusReasonInternalError, "etcdserver: leader changed")
			}
			return nil, nil
		}
		if err := s.open(t).Drain(t.Context(), "n", cluster.DrainOptions{GracePeriod: -1, Deadline: 30 * time.Second, Fit: true, Force: true}, nil); err != nil {
			t.Fatal(err)
		}
		if left := s.left(); left != "" {
			t.Errorf("left: %s", left)
		}
	})
}

// Two requests after it was called, the first pod is told: the list, and the node's.
func TestFitTellsTheFirstPodAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSmall("a", "b", "c")
		high := int32(1000)
		s.Change("pods", "ns", "c", func(o runtime.Object) { o.(*corev1.Pod).Spec.Priority = &high })
		if err := s.open(t).Drain(t.Context(), "n", cluster.DrainOptions{GracePeriod: -1, Deadline: 30 * time.Second, Fit: true, Force: true}, nil); err != nil {
			t.Fatal(err)
		}
		want := []string{"GET /api/v1/pods", "GET /api/v1/nodes/n", "POST /api/v1/namespaces/ns/pods/c/eviction"}
		if !slices.Equal(s.log[:3], want) {
			t.Errorf("it asked %q", s.log)
		}
	})
}

// A pod whose containers have ended is waited for until its kubelet has deleted it: on
// a Node that was deleted before nothing would, and it would stay terminating.
func TestFitWaitsUntilTheKubeletIsDone(t *testing.T) {
	for name, c := range map[string]struct {
		cleans time.Duration // by the kubelet; negative is never
		took   time.Duration
	}{"it cleans up": {5 * time.Second, 5 * time.Second}, "it does not": {-1, 30 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSmall("db")
				s.Ends = func(*corev1.Pod, time.Duration) time.Duration {
					time.AfterFunc(time.Second, func() {
						s.Change("pods", "ns", "db", func(o runtime.Object) { o.(*corev1.Pod).Status.Phase = corev1.PodSucceeded })
					})
					return c.cleans
				}
				begun := time.Now()
				err := s.open(t).Drain(t.Context(), "n", cluster.DrainOptions{GracePeriod: -1, Deadline: 30 * time.Second, Fit: true, Force: true}, nil)
				if took := time.Since(begun); err != nil || took < c.took || took > c.took+2*fitLook {
					t.Errorf("it ended after %s, want %s: %v", took, c.took, err)
				}
				if left := s.left(); c.cleans >= 0 && left != "" {
					t.Errorf("left terminating: %s", left)
				}
			})
		})
	}
}

// What has ended and is not deleted, and what waits for others' finalizers after its
// kubelet is done, is not waited for.
func TestFitLeavesWhatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSmall("done", "kept")
		for _, pod := range []string{"done", "kept"} {
			s.Change("pods", "ns", pod, func(o runtime.Object) { o.(*corev1.Pod).Status.Phase = corev1.PodFailed })
		}
		s.Change("pods", "ns", "kept", func(o runtime.Object) {
			p := o.(*corev1.Pod)
			now := metav1.Now()
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds, p.Finalizers = &now, ptr(int64(0)), []string{"batch.kubernetes.io/job-tracking"}
		})
		begun := time.Now()
		err := s.open(t).Drain(t.Context(), "n", cluster.DrainOptions{GracePeriod: -1, Deadline: 30 * time.Second, Fit: true, Force: true}, nil)
		if took := time.Since(begun); err != nil || took > time.Second || s.left() != "done kept" {
			t.Errorf("it ended after %s: %v; left: %s", took, err, s.left())
		}
	})
}
