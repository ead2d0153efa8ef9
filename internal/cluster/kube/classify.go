package kube

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

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
)

// An act is one request, for its error's sake: what was tried, on what, and
// what RBAC has to allow for it.
type act struct {
	op     string // "cordon node"
	on     string // "node pool1000003"
	access cluster.Access
}

// fail makes a *fleet.Error of what client-go gave. It is nil for nil.
func (a act) fail(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	var done *fleet.Error
	if errors.As(err, &done) {
		return err
	}
	out := &fleet.Error{Op: a.op, Resource: a.on, Err: err}
	if cause := context.Cause(ctx); cause != nil {
		// The request's error is then a consequence, in varying words.
		out.Err = cause
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			out.Kind = fleet.KindTimedOut
		}
		return out
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		a.classifyStatus(out, status.Status(), err)
		return out
	}
	classifyNetwork(out, err)
	return out
}

func (a act) classifyStatus(out *fleet.Error, status metav1.Status, err error) {
	out.Code = string(status.Reason)
	if status.Details != nil {
		out.RetryAfter = time.Duration(status.Details.RetryAfterSeconds) * time.Second
	}
	switch {
	case missingNamespace(status, a.access):
		// Not KindNotFound: it is not what was asked for that is missing.
		out.Kind, out.Code = fleet.KindInvalid, "NamespaceNotFound"
		out.Remedy = fmt.Sprintf("make the namespace: kubectl create namespace %s, and label it %s=privileged", a.access.Namespace, podSecurityLabel)
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
		out.Kind, out.Remedy = fleet.KindDenied, a.remedyOfDenial(status.Message)
	case apierrors.IsTooManyRequests(err):
		out.Kind = fleet.KindThrottled
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err), status.Code >= 500:
		out.Kind = fleet.KindTransient
	case status.Code >= 400:
		out.Kind = fleet.KindInvalid
	}
}

// rbacDenied tells RBAC's refusal from an admission plugin's: both are 403.
func rbacDenied(message string) bool {
	return strings.Contains(message, " cannot ") && strings.Contains(message, " resource ")
}

func (a act) remedyOfDenial(message string) string {
	switch {
	case strings.Contains(message, "violates PodSecurity"):
		return fmt.Sprintf("allow privileged pods there: kubectl label namespace %s %s=privileged", a.access.Namespace, podSecurityLabel)
	case rbacDenied(message):
		return "grant " + Show(a.access) + " to these credentials"
	default:
		return ""
	}
}

// Show writes an Access for a person: `create pods/eviction in all namespaces`.
func Show(a cluster.Access) string {
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	if a.Group != "" {
		resource += "." + a.Group
	}
	if a.Name != "" {
		resource += " " + a.Name
	}
	switch {
	case a.Namespace != "":
		resource += " in namespace " + a.Namespace
	case namespaced(a.Resource):
		resource += " in all namespaces"
	}
	return a.Verb + " " + resource
}

// namespaced says it of the resources that Ortet uses.
func namespaced(resource string) bool {
	switch resource {
	case "nodes", "namespaces", "selfsubjectaccessreviews":
		return false
	}
	return true
}

// missingNamespace tells a missing namespace from a missing object: the API
// server answers a creation with the namespace's own 404.
func missingNamespace(status metav1.Status, access cluster.Access) bool {
	return status.Reason == metav1.StatusReasonNotFound && status.Details != nil &&
		status.Details.Kind == "namespaces" && access.Resource != "namespaces"
}

func classifyNetwork(out *fleet.Error, err error) {
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
	case transientNetwork(err):
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

// transientNetwork says of an error without an answer that a later try may
// succeed.
func transientNetwork(err error) bool {
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
