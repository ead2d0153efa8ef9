package kubesim_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/test/kubesim"
)

func eviction(namespace, name string, grace *int64) *policyv1.Eviction {
	e := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if grace != nil {
		e.DeleteOptions = &metav1.DeleteOptions{GracePeriodSeconds: grace}
	}
	return e
}

func ptr[T any](v T) *T { return &v }

// Pods end when Ends says so, without anybody asking for it, and who deletes is
// told, without the lock.
func TestPodsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		var s kubesim.Server
		s.Ends = func(pod *corev1.Pod, grace time.Duration) time.Duration {
			if pod.Name == "stuck" {
				return -1
			}
			return min(grace, 20*time.Second)
		}
		s.Deleting = func(d kubesim.Deletion) {
			there := s.Pod(d.Pod.Namespace, d.Pod.Name) != nil // so it may ask
			told = append(told, fmt.Sprintf("%s %s eviction=%t grace=%s there=%t before=%t", d.User, d.Pod.Name, d.Eviction, d.Grace, there, d.Pod.DeletionTimestamp != nil))
		}
		for _, name := range []string{"evicted", "deleted", "shortened", "stuck", "forced", "unbound"} {
			p := pod("ns", name, "n")
			if name == "unbound" {
				p.Spec.NodeName = ""
			}
			s.Put(p)
		}
		ctx, pods := t.Context(), client(t, &s, "me").CoreV1().Pods("ns")
		must(t, pods.EvictV1(ctx, eviction("ns", "evicted", ptr(int64(10)))))
		for _, name := range []string{"deleted", "shortened", "stuck"} {
			must(t, pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(60))}))
		}
		for _, name := range []string{"forced", "unbound"} {
			must(t, pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(0))}))
		}
		left := func() string {
			var names []string
			s.Each("pods", func(o runtime.Object) bool {
				names = append(names, o.(*corev1.Pod).Name)
				return true
			})
			return strings.Join(names, " ")
		}
		at := func(after time.Duration, want string) {
			t.Helper()
			time.Sleep(after)
			if got := left(); got != want {
				t.Errorf("left: %q, want %q", got, want)
			}
		}
		at(0, "deleted evicted shortened stuck")
		must(t, pods.Delete(ctx, "shortened", metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(5))}))
		must(t, pods.Delete(ctx, "shortened", metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(30))})) // changes nothing
		at(4999*time.Millisecond, "deleted evicted shortened stuck")
		at(time.Millisecond, "deleted evicted stuck")
		at(5*time.Second, "deleted stuck")
		at(10*time.Second, "stuck")
		at(time.Hour, "stuck")
		if !s.Remove("pods", "ns", "stuck") || s.Remove("pods", "ns", "stuck") || left() != "" {
			t.Errorf("left after its removal: %q", left())
		}
		want := []string{
			"me evicted eviction=true grace=10s there=true before=false",
			"me deleted eviction=false grace=1m0s there=true before=false",
			"me shortened eviction=false grace=1m0s there=true before=false",
			"me stuck eviction=false grace=1m0s there=true before=false",
			"me forced eviction=false grace=0s there=false before=false",
			"me unbound eviction=false grace=0s there=false before=false",
			"me shortened eviction=false grace=5s there=true before=true",
		}
		if !reflect.DeepEqual(told, want) {
			t.Errorf("told:\n%s\nwant:\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
		}
	})
}

// A pod that bears the name of one that was to end does not end in its stead.
func TestSuccessorStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := kubesim.Server{Ends: func(*corev1.Pod, time.Duration) time.Duration { return time.Minute }}
		s.Put(pod("ns", "db-0", "n"))
		must(t, client(t, &s, "me").CoreV1().Pods("ns").Delete(t.Context(), "db-0", metav1.DeleteOptions{}))
		s.Remove("pods", "ns", "db-0")
		s.Put(pod("ns", "db-0", "other"))
		time.Sleep(time.Hour)
		if p := s.Pod("ns", "db-0"); p == nil || p.Spec.NodeName != "other" {
			t.Errorf("%+v", p)
		}
	})
}

// The pods of a node that is deleted go after a while, unless it is back.
func TestPodGarbage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s kubesim.Server
		for _, name := range []string{"gone", "back", "stays"} {
			s.Put(node(name))
			s.Put(pod("ns", "on-"+name, name))
		}
		s.Remove("nodes", "", "gone")
		s.Remove("nodes", "", "back")
		time.Sleep(30 * time.Second)
		s.Put(node("back"))
		if s.Pod("ns", "on-gone") == nil {
			t.Error("a pod goes with its node at once")
		}
		time.Sleep(time.Minute)
		if s.Pod("ns", "on-gone") != nil || s.Pod("ns", "on-back") == nil || s.Pod("ns", "on-stays") == nil {
			t.Error("other pods went than those of the deleted node")
		}
	})
}

// What is given is the caller's, and what is taken remains the caller's.
func TestCopies(t *testing.T) {
	var s kubesim.Server
	mine := node("n")
	s.Put(mine)
	mine.Labels["changed"] = "after Put"
	got := s.Node("n")
	got.Labels["changed"] = "after Node"
	s.Each("nodes", func(o runtime.Object) bool {
		o.(*corev1.Node).Labels["changed"] = "in Each"
		return true
	})
	var kept *corev1.Node
	if !s.Change("nodes", "", "n", func(o runtime.Object) {
		kept = o.(*corev1.Node)
		kept.Annotations["by"] = "Change"
	}) || s.Change("nodes", "", "none", func(runtime.Object) {}) {
		t.Error("Change does not say what is there")
	}
	now := s.Node("n")
	if _, changed := now.Labels["changed"]; changed || now.Annotations["by"] != "Change" || now.ResourceVersion == got.ResourceVersion || now.UID != got.UID {
		t.Errorf("%+v", now.ObjectMeta)
	}
	s.Put(node("n")) // replaces
	if again := s.Node("n"); again.Annotations["by"] != "" || again.UID != got.UID || again.ResourceVersion == now.ResourceVersion {
		t.Errorf("%+v", again.ObjectMeta)
	}
	if s.Node("none") != nil || s.Pod("ns", "none") != nil || s.Secret("ns", "none") != nil || s.DaemonSet("ns", "none") != nil || s.Get("nodes", "", "none") != nil {
		t.Error("something is there that is not")
	}
	s.Machines = true
	s.Put(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine", "metadata": map[string]any{"name": "m", "namespace": "capi"}}})
	if m, ok := s.Get("machines", "capi", "m").(*unstructured.Unstructured); !ok || m.GetUID() == "" {
		t.Errorf("%+v", m)
	}
}

// Two worlds in which the same happens are the same.
func TestDeterministic(t *testing.T) {
	play := func() (out string) {
		synctest.Test(t, func(t *testing.T) {
			var s kubesim.Server
			c := client(t, &s, "me")
			s.Put(node("n"))
			s.Put(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "agent"}})
			for range 3 {
				_, err := c.CoreV1().Events("default").Create(t.Context(), &corev1.Event{ObjectMeta: metav1.ObjectMeta{GenerateName: "n."}, InvolvedObject: corev1.ObjectReference{Name: "n"}}, metav1.CreateOptions{})
				must(t, err)
			}
			for _, resource := range []string{"nodes", "pods", "daemonsets", "events", "namespaces"} {
				s.Each(resource, func(o runtime.Object) bool {
					data, err := json.Marshal(o)
					must(t, err)
					out += string(data) + "\n"
					return true
				})
			}
		})
		return out
	}
	if one, two := play(), play(); one != two || strings.Count(one, "\n") < 9 {
		t.Errorf("one\n%s\ntwo\n%s", one, two)
	}
}

// A list that is gone through too slowly is refused, with the way on.
func TestListExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s kubesim.Server
		for i := range 5 {
			s.Put(node(fmt.Sprintf("n-%d", i)))
		}
		nodes := client(t, &s, "me").CoreV1().Nodes()
		first, err := nodes.List(t.Context(), metav1.ListOptions{Limit: 2})
		must(t, err)
		time.Sleep(6 * time.Minute)
		s.Put(node("n-21"))
		_, err = nodes.List(t.Context(), metav1.ListOptions{Limit: 2, Continue: first.Continue})
		if !apierrors.IsResourceExpired(err) {
			t.Fatalf("%v", err)
		}
		rest, err := nodes.List(t.Context(), metav1.ListOptions{Continue: err.(apierrors.APIStatus).Status().Continue})
		must(t, err)
		var names []string
		for i := range rest.Items {
			names = append(names, rest.Items[i].Name)
		}
		if got := strings.Join(names, " "); got != "n-2 n-21 n-3 n-4" {
			t.Errorf("%s", got)
		}
	})
}

// Budgets that count by the scale of a ReplicaSet, in numbers and in percent.
func TestBudgets(t *testing.T) {
	budget := func(change func(*policyv1.PodDisruptionBudgetSpec)) *policyv1.PodDisruptionBudget {
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b"}, Spec: policyv1.PodDisruptionBudgetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}}}
		change(&b.Spec)
		return b
	}
	for name, c := range map[string]struct {
		budget                            *policyv1.PodDisruptionBudget
		owner                             string
		healthy                           int
		expected, wanted, allowed, evicts int32
	}{
		"minAvailable":            {budget(func(s *policyv1.PodDisruptionBudgetSpec) { s.MinAvailable = ptr(intstr.FromInt32(3)) }), "ReplicaSet", 5, 5, 3, 2, 2},
		"minAvailable in percent": {budget(func(s *policyv1.PodDisruptionBudgetSpec) { s.MinAvailable = ptr(intstr.FromString("50%")) }), "ReplicaSet", 5, 6, 3, 2, 2},
		"maxUnavailable":          {budget(func(s *policyv1.PodDisruptionBudgetSpec) { s.MaxUnavailable = ptr(intstr.FromInt32(2)) }), "ReplicaSet", 5, 6, 4, 1, 1},
		"in percent, rounded up":  {budget(func(s *policyv1.PodDisruptionBudgetSpec) { s.MaxUnavailable = ptr(intstr.FromString("20%")) }), "ReplicaSet", 6, 6, 4, 2, 2},
		"of a StatefulSet":        {budget(func(s *policyv1.PodDisruptionBudgetSpec) { s.MaxUnavailable = ptr(intstr.FromInt32(1)) }), "StatefulSet", 5, 5, 4, 1, 1},
		"without a known owner":   {budget(func(s *policyv1.PodDisruptionBudgetSpec) { s.MaxUnavailable = ptr(intstr.FromInt32(1)) }), "ConfigMap", 5, 0, 0, 0, 0},
		"of nothing":              {budget(func(s *policyv1.PodDisruptionBudgetSpec) { s.MinAvailable = ptr(intstr.FromInt32(0)) }), "ReplicaSet", 0, 0, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var s kubesim.Server
			s.Put(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db", UID: "uid-db"}, Spec: appsv1.ReplicaSetSpec{Replicas: ptr(int32(6))}})
			for i := range c.healthy {
				p := pod("ns", fmt.Sprintf("db-%d", i), "n")
				p.Labels["app"], p.OwnerReferences = "db", []metav1.OwnerReference{{Kind: c.owner, Name: "db", UID: "uid-db", Controller: ptr(true)}}
				s.Put(p)
			}
			s.Put(c.budget)
			api := client(t, &s, "me")
			got, err := api.PolicyV1().PodDisruptionBudgets("ns").Get(t.Context(), "b", metav1.GetOptions{})
			must(t, err)
			if st := got.Status; st.ExpectedPods != c.expected || st.DesiredHealthy != c.wanted || st.DisruptionsAllowed != c.allowed {
				t.Errorf("%+v", st)
			}
			evicted := int32(0)
			for i := range c.healthy {
				err := api.CoreV1().Pods("ns").EvictV1(t.Context(), eviction("ns", fmt.Sprintf("db-%d", i), nil))
				if err == nil {
					evicted++
				} else if !apierrors.IsTooManyRequests(err) {
					t.Error(err)
				}
			}
			if evicted != c.evicts {
				t.Errorf("%d were evicted, not %d", evicted, c.evicts)
			}
		})
	}
}

// Requests have RBAC's names, before they are served and afterwards.
func TestRequests(t *testing.T) {
	var heard []kubesim.Request
	s := kubesim.Server{OnRequest: func(r kubesim.Request) { heard = append(heard, r) }}
	s.Users = map[string][]kubesim.Grant{"me": {kubesim.Administrator()}, "nobody": nil}
	for _, c := range []struct {
		method, path, user string
		want               kubesim.Request
	}{
		{"GET", "/api/v1/nodes/n", "me", kubesim.Request{Verb: "get", Resource: "nodes", Name: "n", Status: 404}},
		{"GET", "/api/v1/nodes", "me", kubesim.Request{Verb: "list", Resource: "nodes", Status: 200}},
		{"GET", "/api/v1/nodes?watch=true", "me", kubesim.Request{Verb: "watch", Resource: "nodes", Status: 200}},
		{"GET", "/api/v1/nodes/n", "nobody", kubesim.Request{Verb: "get", Resource: "nodes", Name: "n", Status: 403}},
		{"GET", "/api/v1/nodes/n", "", kubesim.Request{Verb: "get", Resource: "nodes", Name: "n", Status: 403}},
		{"GET", "/api/v1/namespaces/default", "me", kubesim.Request{Verb: "get", Resource: "namespaces", Namespace: "default", Name: "default", Status: 200}},
		{"GET", "/api/v1/namespaces/default/pods/p/log?container=c", "me", kubesim.Request{Verb: "get", Resource: "pods", Subresource: "log", Namespace: "default", Name: "p", Status: 404}},
		{"POST", "/api/v1/namespaces/default/pods/p/eviction", "me", kubesim.Request{Verb: "create", Resource: "pods", Subresource: "eviction", Namespace: "default", Name: "p", Status: 400}},
		{"POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", "me", kubesim.Request{Verb: "create", Group: "coordination.k8s.io", Resource: "leases", Namespace: "default", Status: 400}},
		{"DELETE", "/api/v1/namespaces/default/pods", "me", kubesim.Request{Verb: "deletecollection", Resource: "pods", Namespace: "default", Status: 200}},
		{"GET", "/apis/cluster.x-k8s.io", "nobody", kubesim.Request{Verb: "get", Path: "/apis/cluster.x-k8s.io", Status: 404}},
		{"GET", "/apis/apps", "nobody", kubesim.Request{Verb: "get", Path: "/apis/apps", Status: 200}},
		{"GET", "/apis/apps", "", kubesim.Request{Verb: "get", Path: "/apis/apps", Status: 403}},
		{"GET", "/apis/cluster.x-k8s.io/v1beta1/namespaces/default/machines", "me", kubesim.Request{Verb: "list", Group: "cluster.x-k8s.io", Resource: "machines", Namespace: "default", Status: 404}},
		{"GET", "/apis/apps/v1/deployments", "me", kubesim.Request{Verb: "list", Group: "apps", Resource: "deployments", Status: 404}},
	} {
		request, err := http.NewRequestWithContext(t.Context(), c.method, kubesim.Host+c.path, nil)
		must(t, err)
		c.want.User = "system:anonymous"
		if c.user != "" {
			request.Header.Set("Authorization", "Bearer "+c.user)
			c.want.User = c.user
		}
		asked := kubesim.ParseRequest(request)
		response, err := s.RoundTrip(request)
		must(t, err)
		must(t, response.Body.Close())
		if got := heard[len(heard)-1]; got != c.want || response.StatusCode != c.want.Status {
			t.Errorf("%s %s: %+v, want %+v", c.method, c.path, got, c.want)
		}
		if c.want.Status = 0; asked != c.want {
			t.Errorf("%s %s, before it is served: %+v, want %+v", c.method, c.path, asked, c.want)
		}
	}
}

// The same server stands behind a real connection, and speaks JSON too.
func TestHandler(t *testing.T) {
	var s kubesim.Server
	s.Put(node("n"))
	listener := httptest.NewServer(&s)
	defer listener.Close()
	c, err := kubernetes.NewForConfig(&rest.Config{Host: listener.URL, BearerToken: "me", ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON, AcceptContentTypes: runtime.ContentTypeJSON}})
	must(t, err)
	list, err := c.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	patched, err := c.CoreV1().Nodes().Patch(t.Context(), "n", types.MergePatchType, []byte(`{"spec":{"taints":[{"key":"a","effect":"NoSchedule"}],"unschedulable":true}}`), metav1.PatchOptions{})
	must(t, err)
	if len(list.Items) != 1 || list.Items[0].Name != "n" || !patched.Spec.Unschedulable || len(patched.Spec.Taints) != 1 || len(patched.Status.Conditions) != 4 {
		t.Errorf("%+v\n%+v", list, patched)
	}
	if _, err := c.CoreV1().Nodes().Get(t.Context(), "none", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("%v", err)
	}
	info, err := c.Discovery().ServerVersion()
	must(t, err)
	if info.GitVersion == "" {
		t.Errorf("%+v", info)
	}
}

// Who stands before the server can refuse in its stead.
func TestRefuse(t *testing.T) {
	var s kubesim.Server
	config := s.Config("me")
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	config.Wrap(func(http.RoundTripper) http.RoundTripper {
		return tripper(func(r *http.Request) (*http.Response, error) {
			return kubesim.Refuse(r, apierrors.NewConflict(corev1.Resource("nodes"), "n", fmt.Errorf("not now"))), nil
		})
	})
	c, err := kubernetes.NewForConfig(config)
	must(t, err)
	if _, err := c.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{}); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "not now") {
		t.Errorf("%v", err)
	}
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestLog(t *testing.T) {
	printed := []byte("one\ntwo\nthree\n")
	var s kubesim.Server
	s.Log = func(namespace, name string) []byte {
		if s.Pod(namespace, name) == nil { // so it may ask
			t.Errorf("no pod %s/%s", namespace, name)
		}
		return printed
	}
	s.Put(pod("ns", "p", "n"))
	pods := client(t, &s, "me").CoreV1().Pods("ns")
	for want, options := range map[string]*corev1.PodLogOptions{
		"one\ntwo\nthree\n": {},
		"two\nthree\n":      {TailLines: ptr(int64(2))},
		"":                  {TailLines: ptr(int64(0))},
		"three":             {TailLines: ptr(int64(1)), LimitBytes: ptr(int64(5))},
		"one\nt":            {TailLines: ptr(int64(9)), LimitBytes: ptr(int64(5)), Container: "c"},
	} {
		stream, err := pods.GetLogs("p", options).Stream(t.Context())
		must(t, err)
		got, err := io.ReadAll(stream)
		must(t, err)
		must(t, stream.Close())
		if string(got) != want {
			t.Errorf("%+v: %q, want %q", options, got, want)
		}
	}
	for what, options := range map[string]*corev1.PodLogOptions{"is not valid for pod p": {Container: "other"}} {
		if _, err := pods.GetLogs("p", options).Stream(t.Context()); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), what) {
			t.Errorf("%v", err)
		}
	}
	printed = nil
	if _, err := pods.GetLogs("p", &corev1.PodLogOptions{}).Stream(t.Context()); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "waiting to start") {
		t.Errorf("%v", err)
	}
}

// FuzzRequest sends what no client would: nothing may panic, and every answer
// is one.
func FuzzRequest(f *testing.F) {
	f.Add("PATCH", "/api/v1/nodes/n", "application/merge-patch+json", []byte(`{"metadata":{"annotations":{"a":null}},"spec":null}`))
	f.Add("PATCH", "/api/v1/namespaces/ns/pods/p", "application/strategic-merge-patch+json", []byte(`{"spec":{"containers":[{"name":"c","$patch":"delete"}]}}`))
	f.Add("PUT", "/api/v1/nodes/n", "application/vnd.kubernetes.protobuf", []byte("k8s\x00\x0a\x00\x12\x02\x0a\x00"))
	f.Add("DELETE", "/api/v1/namespaces/ns/pods/p", "application/json", []byte(`{"gracePeriodSeconds":-1}`))
	f.Add("GET", "/api/v1/pods?limit=1&continue=eyJydiI6MX0&fieldSelector=spec.nodeName%3Dn", "", []byte{})
	f.Add("POST", "/api/v1/namespaces/ns/pods/p/eviction", "application/json", []byte(`{"metadata":{"name":"p"}}`))
	f.Add("POST", "/apis/policy/v1/namespaces/ns/poddisruptionbudgets", "application/json", []byte(`{"metadata":{"name":"b"},"spec":{"maxUnavailable":"x%"}}`))
	f.Fuzz(func(t *testing.T, method, path, contentType string, body []byte) {
		s := kubesim.Server{Machines: true}
		s.Put(node("n"))
		s.Put(pod("ns", "p", "n"))
		request, err := http.NewRequestWithContext(t.Context(), method, kubesim.Host, bytes.NewReader(body))
		if err != nil {
			return
		}
		if request.URL, err = request.URL.Parse(path); err != nil {
			return
		}
		request.Header.Set("Content-Type", contentType)
		response, err := s.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(response.Body); err != nil || response.StatusCode < 200 || response.StatusCode > 599 {
			t.Errorf("%d, %v", response.StatusCode, err)
		}
		s.Each("pods", func(runtime.Object) bool { return true })
	})
}
