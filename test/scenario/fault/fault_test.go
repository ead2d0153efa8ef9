package fault_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/ortet/ortet/test/scenario"
	"github.com/ortet/ortet/test/scenario/fault"
)

// counter is an API server that counts what reaches it.
type counter struct{ served int }

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.served++
	if r.Body != nil {
		if err := r.Body.Close(); err != nil {
			return nil, err
		}
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(strings.Repeat("x", c.served)))}, nil
}

func request(t *testing.T, method, path, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://kube.invalid"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestName(t *testing.T) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Namespace: "n", Resource: "pods", Subresource: "eviction"},
	}}
	review.SetGroupVersionKind(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"))
	scheme := runtime.NewScheme()
	if err := authorizationv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var encoded bytes.Buffer
	if err := protobuf.NewSerializer(scheme, scheme).Encode(review, &encoded); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ method, path, body, want string }{
		{"PATCH", "/api/v1/nodes/pool1000000", "{}", "PATCH nodes/pool1000000"},
		{"POST", "/api/v1/namespaces/default/pods/web-0/eviction", "{}", "POST default/pods/web-0/eviction"},
		{"POST", "/api/v1/namespaces", "{}", "POST namespaces"},
		{"GET", "/api/v1/namespaces/ortet-system", "", "GET namespaces/ortet-system"},
		{"PUT", "/apis/coordination.k8s.io/v1/namespaces/s/leases/l", "{}", "PUT s/leases/l"},
		{"GET", "/apis/cluster.x-k8s.io", "", "GET apis/cluster.x-k8s.io"},
		{"GET", "/version", "", "GET version"},
		{"POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", encoded.String(), "POST selfsubjectaccessreviews of create n pods eviction"},
		{"POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"spec":{"resourceAttributes":{"verb":"get","resource":"nodes"}}}`, "POST selfsubjectaccessreviews of get nodes"},
		{"POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "k8s\x00", "POST selfsubjectaccessreviews of something"},
	} {
		r := request(t, c.method, c.path, c.body)
		if got := fault.Name(r); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.method, c.path, got, c.want)
		}
		if body, err := io.ReadAll(r.Body); err != nil || string(body) != c.body {
			t.Errorf("%s: the body is %q afterwards: %v", c.want, body, err)
		}
	}
}

// TestTransport: what each fault is answered with, and whether the API server
// saw the request.
func TestTransport(t *testing.T) {
	for _, c := range []struct {
		what   scenario.What
		args   []string
		served bool
		status int
		reason metav1.StatusReason
		body   string // of what is no API server's answer
		wait   string // Retry-After
		err    error
	}{
		{what: scenario.Throttle, args: []string{"7"}, status: 429, reason: metav1.StatusReasonTooManyRequests, wait: "7"},
		{what: scenario.Error, args: []string{"503"}, status: 503, reason: metav1.StatusReasonServiceUnavailable},
		{what: scenario.Error, args: []string{"409", "AlreadyExists"}, status: 409, reason: metav1.StatusReasonAlreadyExists},
		{what: scenario.Conflict, status: 409, reason: metav1.StatusReasonConflict},
		{what: scenario.ExpireToken, status: 401, reason: metav1.StatusReasonUnauthorized},
		{what: scenario.ReportFailure, served: true, status: 500, reason: metav1.StatusReasonInternalError},
		{what: scenario.ProxyBefore, args: []string{"502", "html"}, status: 502, body: "<h1>Bad Gateway</h1>"},
		{what: scenario.ProxyBefore, args: []string{"503", "empty"}, status: 503},
		{what: scenario.ProxyAfter, args: []string{"200", "cut"}, served: true, status: 200, body: `"/subscriptions/5ca1ab1e-0000`},
		{what: scenario.DropBefore, err: syscall.ECONNRESET},
		{what: scenario.DropAfter, served: true, err: syscall.ECONNRESET},
		{what: scenario.KubeOutage, args: []string{"5"}, err: syscall.ECONNREFUSED},
	} {
		t.Run(string(c.what), func(t *testing.T) {
			s := scenario.Default()
			s.Events = []scenario.Event{{Side: scenario.Kube, Request: "PATCH nodes/n", Count: 2, What: c.what, Args: c.args}}
			server := &counter{}
			now := time.Now()
			transport := &fault.Transport{Next: server, Chooser: scenario.NewChooser(s), Now: func() time.Time { return now }}
			patch := func() (*http.Response, error) {
				return transport.RoundTrip(request(t, http.MethodPatch, "/api/v1/nodes/n", "{}"))
			}
			first, err := patch()
			if err != nil || first.StatusCode != http.StatusOK {
				t.Fatalf("the first: %v %v", first, err)
			}
			_ = first.Body.Close()
			answer, err := patch()
			if (server.served == 2) != c.served {
				t.Errorf("%d requests reached the server", server.served)
			}
			if !errors.Is(err, c.err) {
				t.Fatalf("%v, want %v", err, c.err)
			}
			if err == nil {
				defer func() { _ = answer.Body.Close() }()
				body, _ := io.ReadAll(answer.Body)
				want := c.body
				if c.reason != "" {
					want = `"reason":"` + string(c.reason) + `"`
				}
				if answer.StatusCode != c.status || !strings.Contains(string(body), want) {
					t.Errorf("%d: %s", answer.StatusCode, body)
				}
				if got := answer.Header.Get("Retry-After"); got != c.wait {
					t.Errorf("Retry-After %q", got)
				}
			}
			now = now.Add(5 * time.Second)
			third, err := patch()
			if err != nil || third.StatusCode != http.StatusOK {
				t.Fatalf("the third: %v %v", third, err)
			}
			_ = third.Body.Close()
		})
	}
}

func TestStale(t *testing.T) {
	s := scenario.Default()
	s.Events = []scenario.Event{
		{Side: scenario.Kube, Request: "GET nodes/n", Count: 1, What: scenario.Stale},
		{Side: scenario.Kube, Request: "GET nodes/n", Count: 3, What: scenario.Stale},
	}
	transport := &fault.Transport{Next: &counter{}, Chooser: scenario.NewChooser(s)}
	for i, want := range []string{"x", "xx", "xx", "xxx"} {
		answer, err := transport.RoundTrip(request(t, http.MethodGet, "/api/v1/nodes/n", ""))
		if err != nil {
			t.Fatal(err)
		}
		if body, _ := io.ReadAll(answer.Body); string(body) != want {
			t.Errorf("read %d: %q, want %q", i+1, body, want)
		}
		_ = answer.Body.Close()
	}
}

// TestHang ends when the client gives up, and no sooner.
func TestHang(t *testing.T) {
	s := scenario.Default()
	s.Events = []scenario.Event{{Side: scenario.Kube, Request: "GET nodes/n", Count: 1, What: scenario.Hang}}
	server := &counter{}
	client := http.Client{Transport: &fault.Transport{Next: server, Chooser: scenario.NewChooser(s)}, Timeout: 20 * time.Millisecond}
	answer, err := client.Do(request(t, http.MethodGet, "/api/v1/nodes/n", ""))
	if err == nil {
		_ = answer.Body.Close()
		t.Fatal("it was answered")
	}
	if timeout := interface{ Timeout() bool }(nil); !errors.As(err, &timeout) || !timeout.Timeout() || server.served != 0 {
		t.Errorf("%v, %d served", err, server.served)
	}
}

func TestSupports(t *testing.T) {
	for e, want := range map[scenario.What]bool{scenario.Hang: true, scenario.KubeOutage: true, scenario.KillAfter: false, scenario.Cordon: false, scenario.NeverEnds: false} {
		if err := fault.Supports(scenario.Event{Side: scenario.Kube, What: e}); (err == nil) != want {
			t.Errorf("%s: %v", e, err)
		}
	}
}
