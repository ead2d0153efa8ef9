package bootstrap

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/boots/verdict"
)

const (
	maxHead = 64 << 10 // bytes of an answer's head
	// maxAnswer bounds an answer's body: a Node with all its images has some 100 KiB.
	maxAnswer = 2 << 20
)

var errTooLong = errors.New("an HTTP answer that is too long")

// Question is one request of HTTP/1.1, the only one of its connection.
type Question struct {
	Method string
	URL    *url.URL
	TLS    *tls.Config // nil where the URL is no https
	Within time.Duration
	Header http.Header
	Type   string // of Body
	Body   []byte // nil sends none
}

// Answer is a server's response.
type Answer struct {
	Code   int       // 0 if not even the head could be read
	Status string    // "200 OK"
	Date   time.Time // of the server's clock; zero if the head has none
	Body   []byte    // up to maxAnswer
}

// Refusal returns the status and, of a Kubernetes Status, its message: "403 Forbidden: no".
func (a Answer) Refusal() string {
	var s struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(a.Body, &s) // "" where it is none of Kubernetes'
	return strings.TrimSuffix(a.Status+": "+verdict.Plain(s.Message, maxErrorText), ": ")
}

// Ask sends one request. No proxy is used, no redirect followed, no connection kept.
// An answer that broke off has its Code beside the error.
func Ask(ctx context.Context, q Question) (Answer, error) {
	a, err := exchange(ctx, q)
	if err != nil {
		err = fmt.Errorf("%s %s: %w", q.Method, q.URL, err)
	}
	return a, err
}

// exchange is Ask without the URL in its errors. It has no http.Transport, which goes on
// dialing after ctx is done and then hides the failure.
func exchange(ctx context.Context, q Question) (a Answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, q.Within)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, q.Method, q.URL.String(), bytes.NewReader(q.Body))
	if err != nil {
		return a, err
	}
	r.Close = true
	maps.Copy(r.Header, q.Header)
	r.Header.Set("User-Agent", "ortet-node")
	if q.Body != nil {
		r.Header.Set("Content-Type", q.Type)
	}
	dial, port := (&tls.Dialer{Config: q.TLS}).DialContext, "443"
	if q.URL.Scheme == "http" {
		dial, port = new(net.Dialer).DialContext, "80"
	}
	conn, err := dial(ctx, "tcp", net.JoinHostPort(q.URL.Hostname(), cmp.Or(q.URL.Port(), port)))
	if err != nil {
		return a, err
	}
	defer func() { _ = conn.Close() }() // all was read that is wanted
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if err := r.Write(conn); err != nil {
		return a, err
	}
	return readAnswer(conn, r)
}

// readAnswer reads the answer to r; r nil is a GET.
func readAnswer(conn io.Reader, r *http.Request) (a Answer, err error) {
	limited := &io.LimitedReader{R: conn, N: maxHead}
	in := bufio.NewReader(limited)
	resp, err := http.ReadResponse(in, r)
	for err == nil && resp.StatusCode/100 == 1 { // 100 Continue and others come before the answer
		resp, err = http.ReadResponse(in, r)
	}
	if err != nil {
		if limited.N <= 0 {
			err = errTooLong
		}
		if broken := net.Error(nil); !errors.As(err, &broken) {
			err = errors.New(harmless([]byte(err.Error()))) // it quotes what it cannot read, whole
		}
		return a, fmt.Errorf("reading an HTTP answer: %w", err)
	}
	a.Code, a.Status = resp.StatusCode, harmless([]byte(resp.Status))
	a.Date, _ = http.ParseTime(resp.Header.Get("Date"))
	limited.N = maxAnswer // beside what is buffered already, up to 4 KiB
	a.Body, err = io.ReadAll(resp.Body)
	if limited.N <= 0 {
		err = errTooLong
	}
	if err != nil {
		return a, fmt.Errorf("reading an HTTP answer: %w", err)
	}
	return a, resp.Body.Close()
}

// MetadataService is where Azure answers for the machine that asks.
const MetadataService = "http://169.254.169.254"

// AskMetadata asks an instance metadata service, "http://HOST[:PORT]".
func AskMetadata(ctx context.Context, service, path string, within time.Duration) (Answer, error) {
	u, err := url.Parse(service + path)
	if err != nil {
		return Answer{}, err
	}
	return Ask(ctx, Question{Method: "GET", URL: u, Within: within, Header: http.Header{"Metadata": {"true"}}})
}
