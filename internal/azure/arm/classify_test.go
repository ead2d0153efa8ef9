package arm_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

func TestClassify(t *testing.T) {
	const denied = "The client 'c' with object id 'o' does not have authorization to perform action 'Microsoft.Compute/disks/read' over scope '/subscriptions/s/x' or the scope is invalid."
	const linked = "The client 'c' with object id 'o' has permission to perform action 'Microsoft.Compute/snapshots/write' on scope '/subscriptions/s/y'; however, it does not have permission to perform action(s) 'Microsoft.Compute/disks/beginGetAccess/action' on the linked scope(s) '/subscriptions/s/z' or the linked scope(s) are invalid."
	for _, tc := range []struct {
		name   string
		answer answer
		kind   fleet.Kind
		code   string
		after  time.Duration
		says   string // part of the error's text
	}{
		{name: "not found", answer: refusal(404, "ResourceNotFound", "The Resource was not found."), kind: fleet.KindNotFound, code: "ResourceNotFound"},
		{name: "no group", answer: refusal(404, "ResourceGroupNotFound", "x"), kind: fleet.KindNotFound, code: "ResourceGroupNotFound"},
		{name: "not to be seen", answer: refusal(404, "SubscriptionNotFound", "no"), kind: fleet.KindDenied, code: "SubscriptionNotFound", says: "cannot see the subscription"},
		{name: "no such type", answer: refusal(404, "InvalidResourceType", "no"), kind: fleet.KindUnsupported, code: "InvalidResourceType"},
		{name: "no such instance", answer: refusal(400, "InvalidParameter", "The provided instanceId 4 is not an active Virtual Machine Scale Set VM instanceId."), kind: fleet.KindNotFound, code: "InvalidParameter"},
		{name: "a proxy's 404", answer: answer{status: 404, body: "<html>"}, kind: fleet.KindTransient, says: "proxy"},
		{name: "denied", answer: refusal(403, "AuthorizationFailed", denied), kind: fleet.KindDenied, code: "AuthorizationFailed",
			says: "grant Microsoft.Compute/disks/read on /subscriptions/s/x"},
		{name: "linked", answer: refusal(403, "LinkedAuthorizationFailed", linked), kind: fleet.KindDenied, code: "LinkedAuthorizationFailed",
			says: "grant Microsoft.Compute/disks/beginGetAccess/action on /subscriptions/s/z"},
		{name: "policy", answer: refusal(403, "RequestDisallowedByPolicy", "no"), kind: fleet.KindDenied, says: "Azure Policy", code: "RequestDisallowedByPolicy"},
		{name: "expired", answer: refusal(401, "ExpiredAuthenticationToken", "expired"), kind: fleet.KindUnauthenticated, code: "ExpiredAuthenticationToken"},
		{name: "busy", answer: refusal(409, "OperationNotAllowed", "another operation is in progress"), kind: fleet.KindConflict, code: "OperationNotAllowed"},
		{name: "quota", answer: refusal(409, "OperationNotAllowed", "Operation could not be completed as it results in exceeding approved Total Regional Cores quota."), kind: fleet.KindBlocked, code: "OperationNotAllowed"},
		{name: "lock", answer: refusal(409, "ScopeLocked", "locked"), kind: fleet.KindBlocked, code: "ScopeLocked", says: "remove the resource lock"},
		{name: "end of life", answer: refusal(409, "OperationNotAllowed", "cannot be deleted: safetyProfile.blockDeletionBeforeEndOfLife is true"), kind: fleet.KindBlocked, code: "OperationNotAllowed"},
		{name: "etag", answer: refusal(412, "PreconditionFailed", "changed"), kind: fleet.KindConflict, code: "PreconditionFailed"},
		{name: "throttled", answer: answer{status: 429, header: map[string]string{"Retry-After": "17"}, body: `{"error":{"code":"TooManyRequests","message":"slow down"}}`},
			kind: fleet.KindThrottled, code: "TooManyRequests", after: 17 * time.Second},
		{name: "throttled by date", answer: answer{status: 429, header: map[string]string{"Date": "Sat, 21 Nov 2026 10:00:00 GMT", "Retry-After": "Sat, 21 Nov 2026 10:00:42 GMT"}},
			kind: fleet.KindThrottled, after: 42 * time.Second},
		{name: "throttled for ever", answer: answer{status: 429, header: map[string]string{"Retry-After": "99999999999"}}, kind: fleet.KindThrottled},
		{name: "unavailable", answer: answer{status: 503, header: map[string]string{"Retry-After": "3"}}, kind: fleet.KindTransient, after: 3 * time.Second},
		{name: "internal", answer: refusal(500, "InternalExecutionError", "oops"), kind: fleet.KindTransient, code: "InternalExecutionError"},
		{name: "bad", answer: refusal(400, "InvalidParameter", "no"), kind: fleet.KindInvalid, code: "InvalidParameter"},
		{name: "zrs", answer: refusal(400, "InvalidParameter", "ZRS is not supported in region 'westcentralus'."), kind: fleet.KindUnsupported, code: "InvalidParameter"},
		{name: "no SKU", answer: refusal(409, "SkuNotAvailable", "no"), kind: fleet.KindUnsupported, code: "SkuNotAvailable"},
		{name: "full", answer: refusal(409, "ZonalAllocationFailed", "no"), kind: fleet.KindBlocked, code: "ZonalAllocationFailed", says: "capacity"},
		{name: "unregistered", answer: refusal(409, "MissingSubscriptionRegistration", "no"), kind: fleet.KindInvalid, code: "MissingSubscriptionRegistration", says: "az provider register"},
		{name: "proxy page", answer: answer{status: 200, body: "<html>Please log in</html>"}, kind: fleet.KindTransient, says: "not what Azure sends"},
		{name: "proxy error", answer: answer{status: 502, body: "<html>Bad gateway</html>"}, kind: fleet.KindTransient},
		{name: "cut short", answer: answer{status: 200, body: `{"name": "d"`}, kind: fleet.KindTransient},
		{name: "wrong types", answer: answer{status: 200, body: `{"id": 7}`}, kind: fleet.KindTransient, says: "not what Azure sends"},
		{name: "bad date", answer: answer{status: 200, body: `{"properties":{"timeCreated":"yesterday"}}`}, kind: fleet.KindTransient},
		{name: "too large", answer: answer{status: 200, body: `{"name":"` + strings.Repeat("x", 1<<17) + `"}`}, kind: fleet.KindInvalid, says: "larger than allowed"},
		{name: "not trusted", answer: answer{err: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}}, kind: fleet.KindInvalid, says: "SSL_CERT_FILE"},
		{name: "dropped", answer: answer{err: syscall.ECONNRESET}, kind: fleet.KindTransient},
		{name: "dropped in the body", answer: answer{status: 200, stream: &broken{}}, kind: fleet.KindTransient},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, s := newCloud(t, tc.answer)
			_, err := c.Disk(t.Context(), disk)
			var e *fleet.Error
			if !errors.As(err, &e) {
				t.Fatalf("%v is no *fleet.Error", err)
			}
			if e.Kind != tc.kind || e.Code != tc.code {
				t.Errorf("kind %q, code %q; want %q, %q: %v", e.Kind, e.Code, tc.kind, tc.code, err)
			}
			if tc.after != 0 && e.RetryAfter != tc.after {
				t.Errorf("retry after %v, want %v", e.RetryAfter, tc.after)
			}
			if e.RetryAfter > 15*time.Minute {
				t.Errorf("a Retry-After of %v is believed", e.RetryAfter)
			}
			if e.Op != "get disk" || e.Resource != string(disk) {
				t.Errorf("says neither what nor on what: %+v", e)
			}
			if !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "the-bearer") || len(err.Error()) > 2000 {
				t.Errorf("the text is wrong: %v", err)
			}
			if len(s.sent) != 1 {
				t.Errorf("%d requests instead of one: the adapter must not retry", len(s.sent))
			}
			if agent := s.sent[0].agent; !strings.HasPrefix(agent, "ortet/1.2.3 ") {
				t.Errorf("user agent %q", agent)
			}
		})
	}
}

// broken breaks after a few bytes.
type broken struct{ n int }

func (b *broken) Read(p []byte) (int, error) {
	if b.n++; b.n > 1 {
		return 0, io.ErrUnexpectedEOF
	}
	return copy(p, `{"name"`), nil
}

func (*broken) Close() error { return nil }

// A server that never answers must not hold a capture up for ever, and the
// caller's own end must not look like Azure's fault.
func TestNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newCloud(t, answer{hang: true})
		began := time.Now()
		_, err := c.Disk(t.Context(), disk)
		if !fleet.Is(err, fleet.KindTransient) {
			t.Errorf("%v", err)
		}
		if d := time.Since(began); d != time.Minute {
			t.Errorf("gave up after %v", d)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c, _ := newCloud(t, answer{hang: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Disk(ctx, disk); !fleet.Is(err, fleet.KindTimedOut) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c, _ := newCloud(t, answer{hang: true})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := c.Disk(ctx, disk); fleet.KindOf(err) != fleet.KindUnknown || !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}

func TestIDsAreChecked(t *testing.T) {
	c, s := newCloud(t)
	for _, id := range []fleet.ResourceID{"", "/", "disks/d", snapshot, disk + "/", fleet.ResourceID(group), disk + "/x/y", "/subscriptions//resourceGroups/g/providers/Microsoft.Compute/disks/d"} {
		if _, err := c.Disk(t.Context(), id); !fleet.Is(err, fleet.KindInvalid) {
			t.Errorf("%q: %v", id, err)
		}
	}
	if len(s.sent) > 0 {
		t.Errorf("sent %v", s.sent)
	}
}

// The bearer token goes to Azure alone, whatever an answer says.
func TestTokenStaysAtHome(t *testing.T) {
	c, s := newCloud(t, answer{status: 200, body: `{}`}, answer{status: 200, body: `{"value":[],"nextLink":"https://evil.invalid/more"}`})
	_, err := c.Instances(t.Context(), pool)
	if !fleet.Is(err, fleet.KindInvalid) || !strings.Contains(err.Error(), "evil.invalid") {
		t.Errorf("%v", err)
	}
	if len(s.sent) != 2 {
		t.Errorf("%d requests", len(s.sent))
	}
	if s.sent[1].header.Get("Authorization") != "Bearer the-bearer" {
		t.Errorf("not authorized at home: %v", s.sent[0].header)
	}
	_ = http.NoBody
}
