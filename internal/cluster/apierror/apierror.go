// Package apierror says what an API server's answers and a client's failures mean, as a
// *fleet.Error: its kind decides retry, wait and stop (internal/workflow's retry says which), its
// remedy names what to do.
package apierror

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/ortet/ortet/internal/fleet"
)

// PodSecurityLabel is of a namespace: which pods Pod Security admission allows there.
const PodSecurityLabel = "pod-security.kubernetes.io/enforce"

// NamespaceNotFound is the code where not the object is missing, but its namespace.
const NamespaceNotFound = "NamespaceNotFound"

// A Request is what was tried, for its error.
type Request struct {
	Op, On string // "cordon node", "node pool1000003"
	Grant  string // remedy where RBAC denies it; may be empty
	// Privileged is the namespace in which pods have to be privileged; "" for none.
	Privileged string
}

// Error returns a *fleet.Error for what client-go returned; nil for nil, and err itself
// if it is one already. Once ctx has ended, the cause is why it ended.
func (r Request) Error(ctx context.Context, err error) error {
	if err == nil || errors.As(err, new(*fleet.Error)) {
		return err
	}
	out := &fleet.Error{Op: r.Op, Resource: r.On, Err: err}
	var status apierrors.APIStatus
	switch cause := context.Cause(ctx); {
	case cause != nil:
		// The request's error is then a consequence, in varying words.
		out.Err = cause
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			out.Kind = fleet.KindTimedOut
		}
	case errors.As(err, &status):
		r.answer(out, status.Status())
	default:
		network(out, err)
	}
	return out
}

func (r Request) answer(out *fleet.Error, status metav1.Status) {
	out.Code, out.RetryAfter = string(status.Reason), RetryAfter(status)
	switch err := out.Err; {
	case apierrors.IsNotFound(err) && status.Details != nil && status.Details.Kind == "namespaces":
		// The API server answers a creation so. Not KindNotFound: it is not what was asked for that is missing.
		out.Kind, out.Code, out.Remedy = fleet.KindInvalid, NamespaceNotFound, "make the namespace: kubectl create namespace "+status.Details.Name
		if r.Privileged != "" {
			out.Remedy += ", and label it " + PodSecurityLabel + "=privileged"
		}
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		out.Kind, out.Remedy = fleet.KindConflict, "wait until the namespace is gone, then make it again"
	case apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause):
		out.Kind = fleet.KindBlocked
	case apierrors.IsNotFound(err):
		out.Kind = fleet.KindNotFound
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err):
		out.Kind = fleet.KindConflict
	case apierrors.IsUnauthorized(err):
		out.Kind, out.Remedy = fleet.KindUnauthenticated, "log in again, or give another --kubeconfig"
	case apierrors.IsForbidden(err):
		out.Kind = fleet.KindDenied
		if r.Privileged != "" && strings.Contains(status.Message, "violates PodSecurity") {
			out.Remedy = "allow privileged pods there: kubectl label namespace " + r.Privileged + " " + PodSecurityLabel + "=privileged"
		} else if RBACDenied(status.Message) {
			out.Remedy = r.Grant
		}
	case apierrors.IsTooManyRequests(err):
		out.Kind = fleet.KindThrottled
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err), status.Code >= 500:
		out.Kind = fleet.KindTransient
	case status.Code >= 400:
		out.Kind = fleet.KindInvalid
	}
}

// RBACDenied distinguishes RBAC's refusal from an admission plugin's: both are 403, and
// only the message differs.
func RBACDenied(message string) bool {
	return strings.Contains(message, " cannot ") && strings.Contains(message, " resource ")
}

// Status returns an API server's answer; a zero one where err is none.
func Status(err error) metav1.Status {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status()
	}
	return metav1.Status{}
}

// RetryAfter is how long an API server asks to wait; 0 if it does not.
func RetryAfter(status metav1.Status) time.Duration {
	if status.Details == nil {
		return 0
	}
	return time.Duration(status.Details.RetryAfterSeconds) * time.Second
}

func network(out *fleet.Error, err error) {
	var (
		authority x509.UnknownAuthorityError
		hostname  x509.HostnameError
		invalid   x509.CertificateInvalidError
		verify    *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &authority), errors.As(err, &hostname), errors.As(err, &invalid), errors.As(err, &verify):
		out.Kind, out.Remedy = fleet.KindInvalid, "check the kubeconfig's certificate authority and server name, and any proxy that replaces certificates"
	case strings.Contains(err.Error(), "getting credentials"):
		// client-go's exec plugins give no typed error.
		out.Kind, out.Remedy = fleet.KindUnauthenticated, "the kubeconfig's credential plugin failed: run it by hand, or log in again"
	case Passing(err):
		out.Kind = fleet.KindTransient
	case foreign(err):
		out.Kind, out.Err = fleet.KindTransient, fmt.Errorf("the answer is not what an API server sends: %w", err)
		out.Remedy = "if this stays, check the API server's address and any proxy"
	}
}

// foreign reports whether an answer cannot be read: a proxy's page, or an answer cut
// short. client-go gives no typed error.
func foreign(err error) bool {
	text := err.Error()
	return strings.HasPrefix(text, "serializer for ") || strings.Contains(text, "couldn't get version/kind") || strings.Contains(text, "unexpected end of JSON input")
}

// Passing reports whether a later try may succeed after an error that is no answer.
func Passing(err error) bool {
	var verify *tls.CertificateVerificationError
	if errors.As(err, &verify) || errors.Is(err, context.Canceled) {
		return false
	}
	var (
		network net.Error
		outer   *url.Error
	)
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, http.ErrServerClosed) ||
		utilnet.IsConnectionReset(err) || utilnet.IsConnectionRefused(err) || utilnet.IsHTTP2ConnectionLost(err) ||
		utilnet.IsProbableEOF(err) || utilnet.IsTimeout(err) || errors.As(err, &outer)
}
