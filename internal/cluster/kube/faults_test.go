package kube_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/cluster/clustertest"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/test/kubesim"
)

var updateFaults = flag.Bool("update-faults", false, "rewrite testdata/faults.txt by the API server in memory")

// unanswered is how long requests wait for their answer where one of them hangs.
const unanswered = 3 * time.Second

// nthMeets is a way to an API server on which one request meets a fault.
type nthMeets struct {
	next http.RoundTripper
	kind string
	nth  int

	mu    sync.Mutex
	begun bool
	count int
}

func (n *nthMeets) RoundTrip(r *http.Request) (*http.Response, error) {
	n.mu.Lock()
	meets := false
	if n.begun {
		n.count++
		meets = n.count == n.nth
	}
	n.mu.Unlock()
	if !meets {
		return n.next.RoundTrip(r)
	}
	if n.kind == "dropAfter" || n.kind == "reportFailure" {
		answer, err := n.next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		if err := answer.Body.Close(); err != nil {
			return nil, err
		}
	} else if r.Body != nil {
		if err := r.Body.Close(); err != nil {
			return nil, err
		}
	}
	switch n.kind {
	case "throttle 1":
		return failed(http.StatusTooManyRequests, 1), nil
	case "expireToken":
		return failed(http.StatusUnauthorized, 0), nil
	case "reportFailure":
		return failed(http.StatusInternalServerError, 0), nil
	case "hang":
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	case "dropBefore", "dropAfter":
		return nil, &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	}
	status, err := strconv.Atoi(strings.TrimPrefix(n.kind, "error "))
	if err != nil {
		return nil, fmt.Errorf("unknown fault %q", n.kind)
	}
	return failed(status, 0), nil
}

// reasons are those that an API server gives with a status.
var reasons = map[int]metav1.StatusReason{
	http.StatusBadRequest:          metav1.StatusReasonBadRequest,
	http.StatusUnauthorized:        metav1.StatusReasonUnauthorized,
	http.StatusForbidden:           metav1.StatusReasonForbidden,
	http.StatusConflict:            metav1.StatusReasonConflict,
	http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError: metav1.StatusReasonInternalError,
	http.StatusServiceUnavailable:  metav1.StatusReasonServiceUnavailable,
	http.StatusGatewayTimeout:      metav1.StatusReasonTimeout,
}

// failed is an API server's answer that a request failed; retryAfter is in seconds, 0 leaves it out.
func failed(status int, retryAfter int32) *http.Response {
	s := metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: int32(status), Reason: reasons[status], Message: "simulated"}
	header := http.Header{"Content-Type": {"application/json"}}
	if retryAfter > 0 {
		s.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfter}
		header.Set("Retry-After", fmt.Sprint(retryAfter))
	}
	body, _ := json.Marshal(s) // of strings and numbers
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body))}
}

func (n *nthMeets) WrappedRoundTripper() http.RoundTripper { return n.next }

func (n *nthMeets) begin() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.begun = true
}

func (n *nthMeets) met() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.count >= n.nth
}

// faultKinds are the faults of Kubernetes.
func faultKinds() []string {
	return []string{
		"throttle 1", "error 400", "error 403", "error 409", "error 500", "error 503", "error 504",
		"expireToken", "hang", "dropBefore", "dropAfter", "reportFailure",
	}
}

func failing(config *rest.Config, namespace string) func(t *testing.T, kind string, nth int) clustertest.Faulted {
	return func(t *testing.T, kind string, nth int) clustertest.Faulted {
		t.Helper()
		n := &nthMeets{nth: nth, kind: kind}
		config := rest.CopyConfig(config)
		if kind == "hang" {
			config.Timeout = unanswered
		}
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			n.next = next
			return n
		})
		return clustertest.Faulted{Under: open(t, config, namespace, nil), Begin: n.begin, Met: n.met}
	}
}

// came compares what came of faults with what is kept, which is so on every API
// server.
func came(t *testing.T, got string) {
	t.Helper()
	const file = "testdata/faults.txt"
	if *updateFaults {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	a, b := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	if len(a) != len(b) {
		t.Fatalf("%d outcomes, want %d: -update-faults rewrites them", len(b), len(a))
	}
	for i := range a {
		if a[i] != b[i] {
			t.Errorf("got  %s\nwant %s", b[i], a[i])
		}
	}
}

// TestFaultsInMemory and TestFaults have each request of what Ortet asks most
// meet each fault, on the API server in memory and on a real one: the same comes
// of it.
func TestFaultsInMemory(t *testing.T) {
	const namespace = "ortet-faults"
	s := &kubesim.Server{}
	s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	s.Users = map[string][]kubesim.Grant{
		"admin": {kubesim.Administrator()},
		"least": kubesim.Grants(kube.PolicyRules(kube.Rules(kube.Everything(namespace)))),
	}
	least := s.Config("least")
	came(t, clustertest.RunFaults(t, clustertest.Faults{
		Setup: clustertest.Setup{
			Admin: s.Config("admin"), Namespace: namespace,
			Open: func(t *testing.T, now func() time.Time) cluster.Cluster { return open(t, least, namespace, now) },
			ServeMachines: func(t *testing.T) {
				s.Machines = true
				t.Cleanup(func() { s.Machines = false })
			},
			Within: synctest.Test,
		},
		Kinds: faultKinds(), Fail: failing(least, namespace),
	}))
}
