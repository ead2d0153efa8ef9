package apierror

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ortet/ortet/internal/fleet"
)

func TestClassification(t *testing.T) {
	nodes := schema.GroupResource{Resource: "nodes"}
	withCause := func(err *apierrors.StatusError, cause metav1.CauseType) error {
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause})
		return err
	}
	network := func(err error) error {
		return &url.Error{Op: "Get", URL: "https://api.invalid", Err: &net.OpError{Op: "dial", Err: err}}
	}
	a := Request{Op: "cordon node", On: "node n", Grant: "grant patch nodes", Privileged: "ns"}
	for name, c := range map[string]struct {
		err    error
		want   fleet.Kind
		remedy string
	}{
		"not found":         {apierrors.NewNotFound(nodes, "n"), fleet.KindNotFound, ""},
		"namespace missing": {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "ns"), fleet.KindInvalid, "kubectl create namespace ns"},
		"exists":            {apierrors.NewAlreadyExists(nodes, "n"), fleet.KindConflict, ""},
		"conflict":          {apierrors.NewConflict(nodes, "n", errors.New("changed")), fleet.KindConflict, ""},
		"unauthorized":      {apierrors.NewUnauthorized("expired"), fleet.KindUnauthenticated, "log in"},
		"forbidden":         {apierrors.NewForbidden(nodes, "n", errors.New(`User "u" cannot patch resource "nodes" in API group ""`)), fleet.KindDenied, "grant patch nodes"},
		"pod security":      {apierrors.NewForbidden(nodes, "n", errors.New(`violates PodSecurity "baseline:latest"`)), fleet.KindDenied, "kubectl label namespace ns"},
		"terminating":       {withCause(apierrors.NewForbidden(nodes, "n", errors.New("it is being terminated")), corev1.NamespaceTerminatingCause), fleet.KindConflict, "wait"},
		"budget":            {withCause(apierrors.NewTooManyRequests("budget", 0), policyv1.DisruptionBudgetCause), fleet.KindBlocked, ""},
		"throttled":         {apierrors.NewTooManyRequests("slow down", 7), fleet.KindThrottled, ""},
		"invalid":           {apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "n", nil), fleet.KindInvalid, ""},
		"bad request":       {apierrors.NewBadRequest("what?"), fleet.KindInvalid, ""},
		"too large":         {apierrors.NewRequestEntityTooLargeError("limit is 3145728"), fleet.KindInvalid, ""},
		"internal":          {apierrors.NewInternalError(errors.New("etcdserver: leader changed")), fleet.KindTransient, ""},
		"unavailable":       {apierrors.NewServiceUnavailable("starting"), fleet.KindTransient, ""},
		"timeout":           {apierrors.NewTimeoutError("etcd", 1), fleet.KindTransient, ""},
		"gone":              {&apierrors.StatusError{ErrStatus: metav1.Status{Code: 410, Reason: metav1.StatusReasonGone}}, fleet.KindTransient, ""},
		"expired":           {apierrors.NewResourceExpired("too old"), fleet.KindTransient, ""},
		"gateway":           {apierrors.NewGenericServerResponse(502, "get", nodes, "n", "<html>", 0, true), fleet.KindTransient, ""},
		"a proxy's page":    {errors.New("serializer for text/html doesn't exist"), fleet.KindTransient, "any proxy"},
		"cut short":         {errors.New("couldn't get version/kind; json parse error: unexpected end of JSON input"), fleet.KindTransient, "any proxy"},
		"refused":           {network(syscall.ECONNREFUSED), fleet.KindTransient, ""},
		"reset":             {network(syscall.ECONNRESET), fleet.KindTransient, ""},
		"no such host":      {network(&net.DNSError{Err: "no such host", IsNotFound: true}), fleet.KindTransient, ""},
		"cut off":           {io.ErrUnexpectedEOF, fleet.KindTransient, ""},
		"request timeout":   {context.DeadlineExceeded, fleet.KindTransient, ""},
		"certificate":       {&url.Error{Op: "Get", Err: x509.UnknownAuthorityError{}}, fleet.KindInvalid, "certificate authority"},
		"plugin":            {&url.Error{Op: "Get", Err: errors.New("getting credentials: exec: executable kubelogin failed")}, fleet.KindUnauthenticated, "credential plugin"},
		"unheard of":        {errors.New("what is this"), fleet.KindUnknown, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := a.Error(t.Context(), c.err)
			var out *fleet.Error
			if !errors.As(err, &out) || out.Kind != c.want || out.Op != a.Op || out.Resource != a.On {
				t.Fatalf("%#v, want kind %q", err, c.want)
			}
			if c.remedy != "" && !strings.Contains(out.Remedy, c.remedy) || c.remedy == "" && out.Remedy != "" {
				t.Errorf("remedy %q, want %q", out.Remedy, c.remedy)
			}
			if !errors.Is(err, c.err) {
				t.Error("the cause is lost")
			}
			if name == "throttled" && out.RetryAfter != 7*time.Second {
				t.Errorf("retry after %s", out.RetryAfter)
			}
		})
	}
	if err := a.Error(t.Context(), nil); err != nil {
		t.Errorf("no error became %v", err)
	}
	if err := a.Error(t.Context(), &fleet.Error{Op: "before", Kind: fleet.KindHeld}); !strings.HasPrefix(err.Error(), "before") {
		t.Errorf("an error of ours was wrapped again: %v", err)
	}

	gone, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the operator had enough")
	cancel(why)
	if err := a.Error(gone, errors.New("some words of client-go")); !errors.Is(err, why) {
		t.Errorf("after the context's end: %v", err)
	}
}
