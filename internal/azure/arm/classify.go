package arm

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/ortet/ortet/internal/fleet"
)

// maxMessage bounds what of Azure's message goes into an error.
const maxMessage = 1200

// maxRetryAfter bounds what is believed of a Retry-After.
const maxRetryAfter = 15 * time.Minute

// A refusal is an answer of Azure that says no.
type refusal struct {
	status  int
	code    string
	message string
}

func (r *refusal) Error() string {
	var b strings.Builder
	if r.status > http.StatusOK { // the failed end of an operation comes with 200
		fmt.Fprintf(&b, "%d ", r.status)
	}
	if r.code != "" {
		b.WriteString(r.code)
	} else if r.status > http.StatusOK {
		b.WriteString(http.StatusText(r.status))
	}
	if r.message != "" {
		if b.Len() > 0 {
			b.WriteString(": ")
		}
		b.WriteString(r.message)
	}
	if b.Len() == 0 {
		return "Azure refused without saying why"
	}
	return b.String()
}

// failed turns what went wrong into a *fleet.Error. It is nil for nil.
func failed(ctx context.Context, op string, on fleet.ResourceID, err error) error {
	if err == nil {
		return nil
	}
	var own *fleet.Error
	if errors.As(err, &own) {
		e := *own
		e.Op = cmp.Or(e.Op, op)
		e.Resource = cmp.Or(e.Resource, string(on))
		return &e
	}
	e := &fleet.Error{Op: op, Resource: string(on), Err: err}
	if cause := ctx.Err(); cause != nil {
		// Ours ended: that says nothing of the cloud.
		e.Err = cause
		if errors.Is(cause, context.DeadlineExceeded) {
			e.Kind = fleet.KindTimedOut
		}
		return e
	}
	var answer *azcore.ResponseError
	if errors.As(err, &answer) {
		classifyAnswer(e, answer.RawResponse, answer.StatusCode, answer.ErrorCode)
		return e
	}
	classifyLocal(e, err)
	return e
}

// classifyLocal judges errors without an answer from Resource Manager.
func classifyLocal(e *fleet.Error, err error) {
	var (
		denied  *azidentity.AuthenticationFailedError
		foreign foreignError
		network net.Error
		syntax  *json.SyntaxError
		typ     *json.UnmarshalTypeError
		parse   *time.ParseError
		cert    *tls.CertificateVerificationError
		file    *fs.PathError
	)
	switch {
	case errors.As(err, &denied):
		classifyLogIn(e, denied)
	case errors.As(err, &foreign):
		e.Kind = fleet.KindInvalid
		e.Err = foreign
		e.Remedy = "check the resource manager endpoint in the cloud's configuration"
	case errors.As(err, &cert):
		e.Kind = fleet.KindInvalid
		e.Remedy = distrusted
	case errors.As(err, &file): // a federated token or a certificate
		e.Kind = fleet.KindUnauthenticated
	case errors.Is(err, errTooLarge):
		e.Kind = fleet.KindInvalid
		e.Remedy = "something other than Azure seems to answer: check the endpoint and any proxy"
	case errors.As(err, &syntax), errors.As(err, &typ), errors.As(err, &parse), strings.HasPrefix(err.Error(), "unmarshalling type "):
		// A proxy's page, or an answer cut short.
		e.Kind = fleet.KindTransient
		e.Err = fmt.Errorf("the answer is not what Azure sends: %w", err)
		e.Remedy = "if this stays, check the endpoint and any proxy"
	case errors.Is(err, context.DeadlineExceeded):
		e.Kind = fleet.KindTransient
		e.Err = errors.New("no answer in time")
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		e.Kind = fleet.KindTransient
		e.Remedy = unreachable(err)
	default:
		// What is left comes from the transport: a broken connection has
		// many types.
		e.Kind = fleet.KindTransient
	}
}

const distrusted = "trust the certificate authority of Azure's endpoint, or of the proxy that replaces its certificates: SSL_CERT_FILE=FILE"

// unreachable returns a hint where a name is not known. It may be soon, so the
// error is transient.
func unreachable(err error) string {
	var dns *net.DNSError
	if errors.As(err, &dns) && dns.IsNotFound {
		return "check the cloud's endpoint, DNS and proxy"
	}
	return ""
}

// ofSDK matches what the SDK puts around a cause: its credential's Go type, and its own
// page of advice.
var ofSDK = regexp.MustCompile(`^\w+Credential: |\.?\s*To troubleshoot, visit \S+\s*$`)

// opLogIn is the act that only logs in; other acts log in on their way.
const opLogIn = "log in"

func classifyLogIn(e *fleet.Error, err *azidentity.AuthenticationFailedError) {
	e.Kind = fleet.KindUnauthenticated
	e.Remedy = "check the credentials: their secret, tenant, expiry, and the clock"
	if err.RawResponse == nil {
		// The token endpoint did not answer, or there is none.
		if s := err.Error(); strings.Contains(s, "x509:") {
			e.Kind = fleet.KindInvalid
			e.Remedy = distrusted
		} else if strings.Contains(s, "connection") || strings.Contains(s, "dial ") || strings.Contains(s, "EOF") ||
			strings.Contains(s, "timeout") || strings.Contains(s, "deadline exceeded") {
			e.Kind = fleet.KindTransient
			e.Remedy = "the log-in service cannot be reached: check the network and the cloud's log-in endpoint"
		}
		e.Err = errors.New(strings.Join(strings.Fields(ofSDK.ReplaceAllString(err.Error(), "")), " "))
		return
	}
	// The SDK's text has many lines; what the log-in service says is one.
	r := &refusal{status: err.RawResponse.StatusCode}
	if body, readErr := runtime.Payload(err.RawResponse); readErr == nil {
		var said struct {
			Error       string `json:"error"`
			Description string `json:"error_description"`
		}
		if json.Unmarshal(body, &said) == nil {
			r.code = said.Error
			r.message, _, _ = strings.Cut(strings.TrimSpace(said.Description), "\n")
			r.message = shortened(strings.TrimSpace(r.message))
		}
	}
	if e.Code, e.Err = r.code, r; e.Op != opLogIn {
		e.Err = fmt.Errorf("%s: %w", opLogIn, r)
	}
	switch s := r.status; {
	case s == http.StatusTooManyRequests:
		e.Kind = fleet.KindThrottled
		e.RetryAfter, _ = retryAfter(err.RawResponse.Header)
		e.Remedy = ""
	case s >= 500 || s == http.StatusRequestTimeout:
		e.Kind = fleet.KindTransient
		e.RetryAfter, _ = retryAfter(err.RawResponse.Header)
		e.Remedy = ""
	}
}

// classifyAnswer judges an answer that says no, or the failed end of an
// operation, whose status is 200.
func classifyAnswer(e *fleet.Error, resp *http.Response, status int, code string) {
	r := &refusal{status: status, code: code}
	if resp != nil {
		e.RetryAfter, _ = retryAfter(resp.Header)
		if body, err := runtime.Payload(resp); err == nil {
			if c, m := readARMError(body); m != "" || c != "" {
				r.message = m
				r.code = cmp.Or(r.code, c)
			}
		}
	}
	e.Err, e.Code = r, r.code
	e.Kind = kindOf(status, r.code, r.message)
	e.Remedy = remedy(e.Kind, r)
}

// readARMError reads {"error": {"code", "message", "details"}}, with or without
// the outer object, as answers and operations have it.
func readARMError(body []byte) (code, message string) {
	type armError struct {
		Code    string `json:"code"`
		Message string `json:"message"`
		Details []struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"details"`
	}
	var outer struct {
		armError
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(body, &outer) != nil {
		return "", ""
	}
	inner := outer.armError
	if len(outer.Error) > 0 {
		var e armError
		if json.Unmarshal(outer.Error, &e) == nil && (e.Code != "" || e.Message != "") {
			inner = e
		}
	}
	message = inner.Message
	for _, d := range inner.Details {
		if d.Message != "" && !strings.Contains(message, d.Message) {
			message = strings.TrimSpace(message + " " + d.Message)
		}
	}
	return inner.Code, shortened(message)
}

func shortened(message string) string {
	if len(message) > maxMessage {
		return strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	return message
}

// has reports whether s contains any of the words, in any letter case.
func has(s string, words ...string) bool {
	s = strings.ToLower(s)
	for _, w := range words {
		if strings.Contains(s, strings.ToLower(w)) {
			return true
		}
	}
	return false
}

// kindOf judges by code first, since Azure uses 409 and 400 for nearly all.
func kindOf(status int, code, message string) fleet.Kind {
	switch {
	case has(message, "ZRS is not supported", "Standard_ZRS is not supported", "ZRS storage account type is not supported"):
		return fleet.KindUnsupported
	case has(code, "SkuNotAvailable", "LocationNotAvailableForResourceType", "NoRegisteredProviderFound",
		"NotSupported", "UnsupportedZone", "AvailabilityZoneNotSupported"):
		return fleet.KindUnsupported
	case has(code, "AllocationFailed", "OverconstrainedAllocation", "OverconstrainedZonalAllocation", "QuotaExceeded", "ScopeLocked"):
		return fleet.KindBlocked
	case strings.EqualFold(code, "OperationNotAllowed") && has(message, "quota"):
		return fleet.KindBlocked
	case has(code, "DeletionBlocked", "BlockDeletion") || has(message, "blockDeletionBeforeEndOfLife"):
		return fleet.KindBlocked
	case has(code, "MissingSubscriptionRegistration", "PropertyChangeNotAllowed"):
		return fleet.KindInvalid
	}
	switch {
	case has(code, "SubscriptionNotFound"):
		// What the credentials may not see is not there, says Azure. Nothing
		// must be taken for deleted because of that.
		return fleet.KindDenied
	case has(message, "not an active Virtual Machine Scale Set VM instanceId"):
		return fleet.KindNotFound // a 400 for some requests
	case has(code, "InvalidResourceType", "InvalidResourceNamespace"):
		return fleet.KindUnsupported
	case status == http.StatusNotFound && code == "":
		return fleet.KindTransient // of a proxy: Azure gives a code
	case status == http.StatusUnauthorized:
		return fleet.KindUnauthenticated
	case status == http.StatusForbidden:
		return fleet.KindDenied
	case status == http.StatusNotFound, status == http.StatusGone:
		return fleet.KindNotFound
	case status == http.StatusConflict, status == http.StatusPreconditionFailed:
		return fleet.KindConflict
	case status == http.StatusTooManyRequests:
		return fleet.KindThrottled
	case status == http.StatusNotImplemented:
		return fleet.KindUnsupported
	case status == http.StatusRequestTimeout, status >= 500:
		return fleet.KindTransient
	}
	// 400s, and the failed ends of operations: by the code.
	switch {
	case has(code, "OperationNotAllowed", "OperationPreempted", "Canceled", "Cancelled", "Conflict", "InProgress",
		"AttachDiskWhileBeingDetached", "AnotherOperation"):
		return fleet.KindConflict
	case has(code, "TooManyRequests", "Throttled", "RateLimit"):
		return fleet.KindThrottled
	case has(code, "InternalExecutionError", "InternalServerError", "InternalOperationError", "InternalDiskManagementError",
		"InternalError", "RetryableError", "NetworkingInternalOperationError", "ServiceUnavailable", "ServerTimeout", "GatewayTimeout"):
		return fleet.KindTransient
	case has(code, "AuthorizationFailed"):
		return fleet.KindDenied
	case status < 300 && has(code, "NotFound"):
		return fleet.KindNotFound
	case status >= 400:
		return fleet.KindInvalid
	}
	return fleet.KindUnknown
}

// reAction finds the action in the message of AuthorizationFailed, and in that
// of LinkedAuthorizationFailed the one that is missing, which comes last.
var reAction = regexp.MustCompile(`(?:perform action|permission to perform action\(s\)) '([^']+)'(?: over scope| on the linked scope\(s\))? '?([^']*)`)

func remedy(kind fleet.Kind, r *refusal) string {
	switch {
	case has(r.code, "SubscriptionNotFound"):
		return "the credentials cannot see the subscription: check its id, the tenant, and their role"
	case kind == fleet.KindTransient && r.status == http.StatusNotFound:
		return "if this stays, check the endpoint and any proxy"
	case kind == fleet.KindDenied && has(r.code, "Policy"):
		return "an Azure Policy forbids this: ask its owner for an exemption"
	case kind == fleet.KindDenied:
		all := reAction.FindAllStringSubmatch(r.message, -1)
		if len(all) == 0 {
			return "grant what docs/reference/azure-permissions.md lists"
		}
		last := all[len(all)-1]
		s := "grant " + last[1]
		if strings.HasPrefix(last[2], "/") {
			s += " on " + last[2]
		}
		return s + " (docs/reference/azure-permissions.md lists all that is needed)"
	case kind == fleet.KindUnauthenticated:
		return "check the credentials: their secret, tenant, expiry, and the clock"
	case has(r.code, "ScopeLocked"):
		return "remove the resource lock"
	case has(r.code, "MissingSubscriptionRegistration"):
		return "run: az provider register --namespace Microsoft.Compute"
	case has(r.code, "AllocationFailed", "OverconstrainedAllocation", "OverconstrainedZonalAllocation"):
		return "Azure has no capacity for this size there now: try later"
	case has(r.code, "QuotaExceeded"), kind == fleet.KindBlocked && has(r.message, "quota"):
		return "raise the subscription's quota"
	}
	return ""
}

// retryAfter reads how long the service asks to wait, and whether it says so.
// Azure also has both millisecond forms. An HTTP date is taken against the
// answer's own Date, so that no clock of ours matters.
func retryAfter(h http.Header) (time.Duration, bool) {
	for _, name := range []string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		if ms, err := strconv.Atoi(h.Get(name)); err == nil && ms >= 0 {
			return min(time.Duration(ms)*time.Millisecond, maxRetryAfter), true
		}
	}
	s := h.Get("Retry-After")
	if s == "" {
		return 0, false
	}
	if n, err := strconv.Atoi(s); err == nil {
		if n < 0 {
			return 0, false
		}
		return time.Duration(min(n, int(maxRetryAfter/time.Second))) * time.Second, true
	}
	at, err := http.ParseTime(s)
	if err != nil {
		return 0, false
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(now), 0), maxRetryAfter), true
}
