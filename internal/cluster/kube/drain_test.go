package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
)

// small is as much of an API server as a drain meets, in virtual time. Its zero
// value has the cordoned node n and no pods.
type small struct {
	mu      sync.Mutex
	pods    map[string]*corev1.Pod // by name, in namespace ns
	budgets []policyv1.PodDisruptionBudget
	// evict answers an eviction where it is set, instead of evicting.
	evict func(pod string, try int) *metav1.Status
	// fault breaks a request where it gives an error or an answer.
	fault func(request *http.Request, count int) (*http.Response, error)
	// ends says how long a terminating pod takes; negative means for ever.
	ends     time.Duration
	tries    map[string]int
	requests int
	log      []string
}

func (s *small) RoundTrip(request *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	s.log = append(s.log, request.Method+" "+request.URL.Path)
	if err := request.Context().Err(); err != nil {
		return nil, err
	}
	if s.fault != nil {
		if answer, err := s.fault(request, s.requests); answer != nil || err != nil {
			return answer, err
		}
	}
	path := strings.TrimPrefix(request.URL.Path, "/api/v1/")
	parts := strings.Split(path, "/")
	switch {
	case path == "nodes/n":
		return answer(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{Unschedulable: true}})
	case path == "pods":
		list := &corev1.PodList{}
		for name := range s.pods {
			if pod := s.live(name); pod != nil {
				list.Items = append(list.Items, *pod)
			}
		}
		return answer(list)
	case strings.HasSuffix(path, "poddisruptionbudgets"):
		return answer(&policyv1.PodDisruptionBudgetList{Items: s.budgets})
	case len(parts) >= 4 && parts[2] == "pods":
		return s.pod(request, parts[3], len(parts) == 5)
	}
	return refuse(http.StatusNotFound, metav1.StatusReasonNotFound, "no such path: "+request.URL.Path)
}

// live gives the pod unless it has ended.
func (s *small) live(name string) *corev1.Pod {
	pod := s.pods[name]
	if pod != nil && pod.DeletionTimestamp != nil && s.ends >= 0 && len(pod.Finalizers) == 0 && !time.Now().Before(pod.DeletionTimestamp.Time) {
		delete(s.pods, name)
		return nil
	}
	return pod
}

func (s *small) pod(request *http.Request, name string, eviction bool) (*http.Response, error) {
	pod := s.live(name)
	if pod == nil {
		return refuse(http.StatusNotFound, metav1.StatusReasonNotFound, "no pod "+name)
	}
	if request.Method == http.MethodGet {
		return answer(pod)
	}
	if eviction && s.evict != nil {
		if s.tries == nil {
			s.tries = map[string]int{}
		}
		s.tries[name]++
		if status := s.evict(name, s.tries[name]); status != nil {
			return answerStatus(status)
		}
	}
	if pod.DeletionTimestamp == nil {
		pod.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(s.ends)}
	}
	if !eviction {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return nil, err
		}
		// The grace period of zero is all that matters of the options.
		if bytes.Contains(body, []byte(`"gracePeriodSeconds":0`)) || bytes.Contains(body, []byte{0x08, 0x00, 0x12}) {
			if len(pod.Finalizers) == 0 {
				delete(s.pods, name)
			}
		}
	}
	return answer(&metav1.Status{Status: metav1.StatusSuccess})
}

func answer(object any) (*http.Response, error) { return answerCode(http.StatusOK, object) }

func answerCode(code int, object any) (*http.Response, error) {
	kind := map[string]string{
		"*v1.Node": "v1/Node", "*v1.Pod": "v1/Pod", "*v1.PodList": "v1/PodList", "*v1.Status": "v1/Status",
		"*v1.PodDisruptionBudgetList": "policy/v1/PodDisruptionBudgetList",
	}[fmt.Sprintf("%T", object)]
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	i := strings.LastIndex(kind, "/")
	data = append([]byte(fmt.Sprintf(`{"apiVersion":%q,"kind":%q,`, kind[:i], kind[i+1:])), data[1:]...)
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(data))}, nil
}

func answerStatus(status *metav1.Status) (*http.Response, error) {
	status.Status = metav1.StatusFailure
	return answerCode(int(status.Code), status)
}

func refuse(code int32, reason metav1.StatusReason, message string) (*http.Response, error) {
	return answerStatus(&metav1.Status{Code: code, Reason: reason, Message: message})
}

func newSmall(pods ...string) *small {
	s := &small{pods: map[string]*corev1.Pod{}, ends: time.Second}
	for _, name := range pods {
		s.pods[name] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": name},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "owner", Controller: ptr(true)}},
		}}
	}
	return s
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
				s := c.small
				s.pods = newSmall("db").pods
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
				if len(s.pods) != 0 {
					t.Errorf("left: %v", s.pods)
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
		{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}},
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
				s.budgets = c.budgets
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
			s.pods[pod].UID = "uid-successor"
			return &metav1.Status{Code: 409, Reason: metav1.StatusReasonConflict, Message: "the UID in the precondition does not match"}
		}
		done := make(chan error)
		go func() {
			done <- s.open(t).Drain(t.Context(), "n", usual, func(e cluster.DrainEvent) {
				told = append(told, e)
				if e.What == "evicted" {
					s.mu.Lock()
					defer s.mu.Unlock()
					s.pods = map[string]*corev1.Pod{} // the next list is of this node alone
				}
			})
		}()
		if err := <-done; err != nil {
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
		s.pods["held"].Finalizers = []string{"example.com/keep"}
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
		if len(s.pods) != 1 {
			t.Errorf("left: %v", s.pods)
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
		s := newSmall("agent", "web")
		s.pods["agent"].OwnerReferences[0] = metav1.OwnerReference{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agents", Controller: ptr(true)}
		reads := 0
		s.fault = func(r *http.Request, _ int) (*http.Response, error) {
			if !strings.HasSuffix(r.URL.Path, "/daemonsets/agents") {
				return nil, nil
			}
			if reads++; reads < 3 {
				return refuse(http.StatusInternalServerError, metav1.StatusReasonInternalError, "etcdserver: leader changed")
			}
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(`{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"agents"}}`))}, nil
		}
		if err := s.open(t).Drain(t.Context(), "n", usual, nil); err != nil {
			t.Fatal(err)
		}
		if len(s.pods) != 1 || s.pods["agent"] == nil {
			t.Errorf("left: %v", s.pods)
		}
	})
}
