package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/test/kubesim"
)

// small is a cluster with the cordoned node n, and what goes wrong with it. Its
// pods, in namespace ns, take as long to end as it says, in virtual time.
type small struct {
	kubesim.Server
	// evict answers an eviction where it gives a status, instead of evicting.
	evict func(pod string, try int) *metav1.Status
	// fault breaks a request where it gives an error or an answer.
	fault func(request *http.Request, count int) (*http.Response, error)
	// ends says how long a terminating pod takes; negative means for ever.
	ends time.Duration

	mu       sync.Mutex
	tries    map[string]int
	requests int
	log      []string
}

// has makes the node, and pods on it.
func (s *small) has(pods ...string) *small {
	s.Ends = func(*corev1.Pod, time.Duration) time.Duration { return s.ends }
	s.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{Unschedulable: true}})
	for _, name := range pods {
		s.Put(podOn("n", name))
	}
	return s
}

func newSmall(pods ...string) *small {
	s := &small{ends: time.Second}
	return s.has(pods...)
}

func podOn(node, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"app": name},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "owner", Controller: ptr(true)}}},
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// left names the pods that are there.
func (s *small) left() string {
	var names []string
	s.Each("pods", func(o runtime.Object) bool {
		names = append(names, o.(*corev1.Pod).Name)
		return true
	})
	return strings.Join(names, " ")
}

func (s *small) RoundTrip(request *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	s.log = append(s.log, request.Method+" "+request.URL.Path)
	if s.fault != nil {
		if answer, err := s.fault(request, s.requests); answer != nil || err != nil {
			return answer, err
		}
	}
	if asked := kubesim.ParseRequest(request); asked.Subresource == "eviction" && s.evict != nil {
		if s.tries == nil {
			s.tries = map[string]int{}
		}
		s.tries[asked.Name]++
		if status := s.evict(asked.Name, s.tries[asked.Name]); status != nil {
			return answerStatus(status)
		}
	}
	return s.Server.RoundTrip(request)
}

func answerStatus(status *metav1.Status) (*http.Response, error) {
	status.TypeMeta, status.Status = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, metav1.StatusFailure
	data, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: int(status.Code), Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(data))}, nil
}

func refuse(code int32, reason metav1.StatusReason, message string) (*http.Response, error) {
	return answerStatus(&metav1.Status{Code: code, Reason: reason, Message: message})
}

func (s *small) open(t *testing.T) *Cluster {
	t.Helper()
	c, err := New(Config{REST: &rest.Config{Host: "http://small.invalid", Transport: s, QPS: -1}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func budgetStatus(name string, retryAfter int32) *metav1.Status {
	return &metav1.Status{
		Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests,
		Message: "Cannot evict pod as it would violate the pod's disruption budget.",
		Details: &metav1.StatusDetails{RetryAfterSeconds: retryAfter, Causes: []metav1.StatusCause{{
			Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget " + name + " needs 1 healthy pods and has 1 currently",
		}}},
	}
}

var usual = cluster.DrainOptions{GracePeriod: 5 * time.Minute, Deadline: 15 * time.Minute}

// A drain that gives up holds the node no longer: at the deadline and at the
// context's end it returns in that instant, also out of kubectl's pauses.
func TestDrainReturnsAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		small   *small
		cancel  time.Duration // 0: at the deadline
		blocked string
		kind    fleet.Kind
	}{
		"deadline, budget":      {small: &small{evict: func(string, int) *metav1.Status { return budgetStatus("b", 0) }}, blocked: "ns/b", kind: fleet.KindBlocked},
		"cancelled, budget":     {small: &small{evict: func(string, int) *metav1.Status { return budgetStatus("b", 0) }}, cancel: 61 * time.Second, blocked: "ns/b"},
		"cancelled, processing": {small: &small{evict: func(string, int) *metav1.Status { return budgetStatus("b", 10) }}, cancel: 61 * time.Second, blocked: "ns/b"},
		"deadline, terminating": {small: &small{ends: -1}, kind: fleet.KindBlocked},
		"cancelled, silent": {small: &small{fault: func(r *http.Request, _ int) (*http.Response, error) {
			if r.Method == http.MethodPost {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return nil, nil
		}}, cancel: 7 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := c.small.has("db")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				begun, want := time.Now(), usual.Deadline
				if c.cancel > 0 {
					time.AfterFunc(c.cancel, cancel)
					want = c.cancel
				}
				err := s.open(t).Drain(ctx, "n", usual, nil)
				if took := time.Since(begun); took != want {
					t.Errorf("it returned after %s, not %s: %v", took, want, err)
				}
				if c.cancel > 0 && !errors.Is(err, context.Canceled) {
					t.Errorf("cancelled: %v", err)
				}
				if fleet.KindOf(err) != c.kind {
					t.Errorf("kind %q of %v", fleet.KindOf(err), err)
				}
				var blocked *cluster.BlockedError
				if c.blocked != "" && (!errors.As(err, &blocked) || blocked.Pods[0].Budget != c.blocked) {
					t.Errorf("blocked: %v", err)
				}
				s.mu.Lock()
				before := s.requests
				s.mu.Unlock()
				time.Sleep(time.Hour)
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.requests != before {
					t.Errorf("requests went on after the return: %v", s.log[before:])
				}
			})
		})
	}
}

// What passes does not end a drain.
func TestDrainOutlastsPassingFailures(t *testing.T) {
	broken := errors.New("connection reset by peer")
	for name, fault := range map[string]func(*http.Request, int) (*http.Response, error){
		"dropped connections": func(_ *http.Request, count int) (*http.Response, error) {
			if count%2 == 0 {
				return nil, &netError{broken}
			}
			return nil, nil
		},
		"starting API server": func(_ *http.Request, count int) (*http.Response, error) {
			if count > 3 && count < 9 {
				return refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "starting")
			}
			return nil, nil
		},
		"throttled": func(r *http.Request, count int) (*http.Response, error) {
			if r.Method == http.MethodPost && count < 6 {
				return refuse(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "slow down")
			}
			return nil, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSmall("a", "b", "c")
				s.fault = fault
				if err := s.open(t).Drain(t.Context(), "n", usual, nil); err != nil {
					t.Fatalf("%v\n%s", err, strings.Join(s.log, "\n"))
				}
				if left := s.left(); left != "" {
					t.Errorf("left: %s", left)
				}
			})
		})
	}
}

type netError struct{ error }

func (netError) Timeout() bool   { return false }
func (netError) Temporary() bool { return true }

// What waiting does not end is said at once.
func TestDrainGivesUpEarly(t *testing.T) {
	two := []policyv1.PodDisruptionBudget{
		{ObjectMeta: metav1.ObjectMeta{Name: "y"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"web"}},
		}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "cache"}}}},
	}
	for name, c := range map[string]struct {
		status  metav1.Status
		budgets []policyv1.PodDisruptionBudget
		kind    fleet.Kind
		want    string
	}{
		"two budgets": {metav1.Status{Code: 500, Message: "This pod has more than one PodDisruptionBudget"}, two, fleet.KindBlocked, "PodDisruptionBudget ns/x, ns/y"},
		"webhook":     {metav1.Status{Code: 403, Reason: metav1.StatusReasonForbidden, Message: `admission webhook "guard" denied the request: not today`}, nil, fleet.KindBlocked, "not today"},
		"denied":      {metav1.Status{Code: 403, Reason: metav1.StatusReasonForbidden, Message: `pods "db" is forbidden: User "u" cannot create resource "pods/eviction"`}, nil, fleet.KindDenied, "grant create pods/eviction in all namespaces"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSmall("db", "web")
				for i := range c.budgets {
					c.budgets[i].Namespace = "ns"
					s.Put(&c.budgets[i])
				}
				s.ends = time.Minute
				s.evict = func(pod string, _ int) *metav1.Status {
					if pod == "web" {
						return nil
					}
					status := c.status
					return &status
				}
				begun := time.Now()
				err := s.open(t).Drain(t.Context(), "n", usual, nil)
				if !fleet.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v (kind %q), want %q", err, fleet.KindOf(err), c.want)
				}
				if took := time.Since(begun); took > time.Second {
					t.Errorf("it took %s", took)
				}
				var blocked *cluster.BlockedError
				if errors.As(err, &blocked) && (len(blocked.Pods) != 1 || blocked.Pods[0].Pod != "ns/db") {
					t.Errorf("blocked: %+v, want ns/db alone", blocked.Pods)
				}
			})
		})
	}
}

// A pod of a StatefulSet that was made again elsewhere under its name is not
// evicted in its predecessor's stead.
func TestDrainSparesTheSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSmall("db-0")
		var told []cluster.DrainEvent
		s.evict = func(pod string, try int) *metav1.Status {
			if try == 1 {
				return budgetStatus("b", 0)
			}
			// Meanwhile it died, and runs elsewhere.
			s.Remove("pods", "ns", pod)
			s.Put(podOn("other", pod))
			return &metav1.Status{Code: 409, Reason: metav1.StatusReasonConflict, Message: "the UID in the precondition does not match"}
		}
		if err := s.open(t).Drain(t.Context(), "n", usual, func(e cluster.DrainEvent) { told = append(told, e) }); err != nil {
			t.Fatal(err)
		}
		for _, line := range s.log {
			if strings.HasPrefix(line, http.MethodDelete) {
				t.Errorf("it deleted: %v", s.log)
			}
		}
		if len(told) != 3 || told[1].Because != "PodDisruptionBudget ns/b" {
			t.Errorf("told: %+v", told)
		}
	})
}

// With force, what is left at the deadline is deleted, and what not even that
// removes is named, within the grace period and a minute.
func TestDrainForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSmall("blocked", "stuck", "held")
		s.ends = -1
		s.Change("pods", "ns", "held", func(o runtime.Object) { o.(*corev1.Pod).Finalizers = []string{"example.com/keep"} })
		s.evict = func(pod string, _ int) *metav1.Status {
			if pod == "blocked" {
				return budgetStatus("b", 0)
			}
			return nil
		}
		options := usual
		options.Force = true
		begun := time.Now()
		err := s.open(t).Drain(t.Context(), "n", options, nil)
		var blocked *cluster.BlockedError
		if !errors.As(err, &blocked) || len(blocked.Pods) != 1 || blocked.Pods[0].Pod != "ns/held" || !strings.Contains(blocked.Pods[0].Why, "example.com/keep") {
			t.Errorf("%v", err)
		}
		if left := s.left(); left != "held" {
			t.Errorf("left: %s", left)
		}
		if took, most := time.Since(begun), options.Deadline+options.GracePeriod+2*forcedMargin; took > most {
			t.Errorf("it took %s, more than %s", took, most)
		}
	})
}

// A DaemonSet that could not be read for a moment does not make its pods a
// reason to give up.
func TestDrainOutlastsUnreadDaemonSets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSmall("web")
		s.Put(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "agents"}})
		reads := 0
		s.fault = func(r *http.Request, _ int) (*http.Response, error) {
			if !strings.HasSuffix(r.URL.Path, "/daemonsets/agents") {
				return nil, nil
			}
			if reads++; reads < 3 {
				return refuse(http.StatusInternalServerError, metav1.StatusReasonInternalError, "etcdserver: leader changed")
			}
			return nil, nil
		}
		if err := s.open(t).Drain(t.Context(), "n", usual, nil); err != nil {
			t.Fatal(err)
		}
		if left := s.left(); reads < 3 || !strings.HasPrefix(left, "agents-") || strings.Contains(left, " ") {
			t.Errorf("left: %s, after %d reads", left, reads)
		}
	})
}
