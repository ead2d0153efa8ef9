package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/internal/fleet"
)

// script answers requests in turn, and repeats its last answer.
type script struct {
	answers []func(*http.Request) (*http.Response, error)
	seen    []string
}

func (s *script) RoundTrip(request *http.Request) (*http.Response, error) {
	s.seen = append(s.seen, request.Method)
	return s.answers[min(len(s.seen), len(s.answers))-1](request)
}

func (s *script) open(t *testing.T, retries int) *Cluster {
	t.Helper()
	c, err := New(Config{REST: &rest.Config{Host: "http://script.invalid", Transport: s, QPS: -1}, ReadRetries: retries})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func dropped(*http.Request) (*http.Response, error) {
	return nil, &netError{errors.New("no route to host")}
}

func says(code int32, reason metav1.StatusReason) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) { return refuse(code, reason, "no") }
}

func theNode(*http.Request) (*http.Response, error) {
	return text(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}`)
}

func text(body string) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

func TestReadsAreSentAgain(t *testing.T) {
	unavailable := says(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
	for name, c := range map[string]struct {
		answers []func(*http.Request) (*http.Response, error)
		retries int
		want    fleet.Kind
		sent    int
	}{
		"dropped once":     {[]func(*http.Request) (*http.Response, error){dropped, theNode}, 2, "", 2},
		"unavailable":      {[]func(*http.Request) (*http.Response, error){unavailable, unavailable, theNode}, 2, "", 3},
		"for good":         {[]func(*http.Request) (*http.Response, error){dropped}, 2, fleet.KindTransient, 3},
		"switched off":     {[]func(*http.Request) (*http.Response, error){dropped, theNode}, -1, fleet.KindTransient, 1},
		"missing":          {[]func(*http.Request) (*http.Response, error){says(404, metav1.StatusReasonNotFound), theNode}, 2, fleet.KindNotFound, 1},
		"inner error":      {[]func(*http.Request) (*http.Response, error){says(500, metav1.StatusReasonInternalError), theNode}, 2, fleet.KindTransient, 1},
		"not even allowed": {[]func(*http.Request) (*http.Response, error){says(403, metav1.StatusReasonForbidden), theNode}, 2, fleet.KindDenied, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{answers: c.answers}
				_, err := s.open(t, c.retries).Node(t.Context(), "n")
				if fleet.KindOf(err) != c.want || (err == nil) != (c.want == "") {
					t.Errorf("%v (kind %q), want kind %q", err, fleet.KindOf(err), c.want)
				}
				if len(s.seen) != c.sent {
					t.Errorf("%d requests, want %d", len(s.seen), c.sent)
				}
			})
		})
	}
}

func TestWritesAreSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []func(*http.Request) (*http.Response, error){dropped}}
		err := s.open(t, 2).SetUnschedulable(t.Context(), "n", true)
		if !fleet.Is(err, fleet.KindTransient) || len(s.seen) != 1 {
			t.Errorf("%v after %v", err, s.seen)
		}
	})
}

func TestReadEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []func(*http.Request) (*http.Response, error){dropped}}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		begun := time.Now()
		_, err := s.open(t, 1000).Node(ctx, "n")
		if !fleet.Is(err, fleet.KindTimedOut) || time.Since(begun) != 50*time.Millisecond {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
	})
}

// A walk whose snapshot expired goes on from the token that the server gives.
func TestWalkOutlivesItsSnapshot(t *testing.T) {
	page := func(next string, names ...string) func(*http.Request) (*http.Response, error) {
		return func(*http.Request) (*http.Response, error) {
			var items []string
			for _, name := range names {
				items = append(items, fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
			}
			return text(fmt.Sprintf(`{"apiVersion":"v1","kind":"NodeList","metadata":{"continue":%q},"items":[%s]}`, next, strings.Join(items, ",")))
		}
	}
	var tokens []string
	expired := func(*http.Request) (*http.Response, error) {
		return answerStatus(&metav1.Status{Code: 410, Reason: metav1.StatusReasonExpired, Message: "too old", ListMeta: metav1.ListMeta{Continue: "later"}})
	}
	s := &script{}
	for _, a := range []func(*http.Request) (*http.Response, error){page("first", "a", "b"), expired, page("", "c")} {
		s.answers = append(s.answers, func(r *http.Request) (*http.Response, error) {
			tokens = append(tokens, r.URL.Query().Get("continue"))
			return a(r)
		})
	}
	var names []string
	for node, err := range s.open(t, -1).Nodes(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, node.Name)
	}
	if got := strings.Join(names, " "); got != "a b c" {
		t.Errorf("walked %q", got)
	}
	if got := strings.Join(tokens, " "); got != " first later" {
		t.Errorf("tokens %q", got)
	}
}
