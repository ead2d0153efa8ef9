package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
)

func TestReadAnswer(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for name, c := range map[string]struct{ answer, body, wrong string }{
		"by length":          {ok + "Content-Length: 5\r\n\r\nhelloX", "hello", ""},
		"by chunks":          {ok + "transfer-encoding: Chunked\r\n\r\n5;x=y\r\nhello\r\n1\r\n!\r\n0\r\n\r\n", "hello!", ""},
		"by the end":         {ok + "\r\nhello", "hello", ""},
		"after others":       {"HTTP/1.1 100 Continue\r\n\r\n" + ok + "Content-Length: 2\r\n\r\nhi", "hi", ""},
		"none":               {ok + "Content-Length: 0\r\n\r\n", "", ""},
		"too short":          {ok + "Content-Length: 5\r\n\r\nhell", "", "unexpected EOF"},
		"too long":           {ok + "Content-Length: 99999999\r\n\r\n" + strings.Repeat("x", maxHead+maxAnswer), "", "too long"},
		"too long, no end":   {ok + "\r\n" + strings.Repeat("x", maxHead+maxAnswer), "", "too long"},
		"many chunks":        {ok + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("fffff\r\n"+strings.Repeat("x", 0xfffff)+"\r\n", 4), "", "too long"},
		"a head without end": {ok + strings.Repeat("a: b\r\n", 20000), "", "too long"},
		"a line without end": {ok + strings.Repeat("x", 200000), "", "too long"},
		"others for ever":    {strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 9000), "", "too long"},
		"something else":     {"SSH-2.0-x\r\n", "", "malformed HTTP"},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := readAnswer(strings.NewReader(c.answer), nil)
			if c.wrong == "" && (err != nil || a.Code != 200 || string(a.Body) != c.body) || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
				t.Errorf("%d %.80q, %v; want %q, %q", a.Code, a.Body, err, c.body, c.wrong)
			}
			if err != nil && len(err.Error()) > 2*maxTailLine {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
		})
	}
}

// A server that takes the connection and does not answer costs the time that it was
// given, and less where nobody waits any more.
func TestAskOfASilentServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for _, scheme := range []string{"http", "https"} {
		q := Question{Method: "GET", URL: &url.URL{Scheme: scheme, Host: l.Addr().String()}, Within: 50 * time.Millisecond}
		if _, err := Ask(t.Context(), q); !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", scheme, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		q.Within = time.Hour
		if _, err := Ask(ctx, q); err == nil {
			t.Errorf("%s: an answer of nobody", scheme)
		}
		cancel()
	}
}

func FuzzReadAnswer(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if a, err := readAnswer(bytes.NewReader(text), nil); err == nil && (a.Code/100 == 1 || len(a.Body) > len(text)) {
			t.Errorf("%d, %d bytes of %d", a.Code, len(a.Body), len(text))
		}
	})
}

// The answer has the time of the server's clock, if it reports one.
func TestAnswerHasTheDate(t *testing.T) {
	t.Parallel()
	noon, text := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), []string{"Sat, 21 Nov 2026 12:00:00 GMT"}
	for _, c := range []struct {
		header http.Header
		want   time.Time
	}{
		{http.Header{"Date": text}, noon},
		{http.Header{"Date": nil, "date": text}, noon}, // "nil" has net/http send none of its own
		{http.Header{"Date": nil, "X-Date": text}, time.Time{}},
		{http.Header{"Date": {"noon"}}, time.Time{}},
	} {
		want := c.want
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { maps.Copy(w.Header(), c.header) }))
		u, err := url.Parse(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		if a, err := Ask(t.Context(), Question{Method: "GET", URL: u, Within: 5 * time.Second}); err != nil || !a.Date.Equal(want) {
			t.Errorf("%s: %v, want %s", a.Date, err, want)
		}
		s.Close()
	}
}
