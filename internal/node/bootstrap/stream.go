package bootstrap

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// maxEvent bounds one line of a watch, in bytes: a Node's metadata has a few KiB.
const maxEvent = 1 << 20

// errIdle means that a watch was silent for longer than its idle limit.
var errIdle = errors.New("the API server was silent for too long")

// APIServer is that of the node with this root, asked with the kubelet's own credentials
// as they are on the disk at that time. Paths are made of the node's name, as the
// certificate has it.
type APIServer string

// Ask sends one request; body nil sends none.
func (s APIServer) Ask(ctx context.Context, method string, path func(node string) string, contentType string, body []byte) (Answer, error) {
	config, u, err := s.login(path)
	if err != nil {
		return Answer{}, err
	}
	return Ask(ctx, Question{Method: method, URL: u, TLS: config, Within: nodeTimeout, Type: contentType, Body: body})
}

// Watch sends one GET, and calls event with each line of the answer. It returns nil once
// the server ends the answer, and an error where event returns one, where nothing came for
// idle, or where the answer is not 200.
func (s APIServer) Watch(ctx context.Context, path func(node string) string, accept string, idle time.Duration, event func(line []byte) error) error {
	config, u, err := s.login(path)
	if err != nil {
		return err
	}
	if err := stream(ctx, u, config, accept, idle, event); err != nil {
		return fmt.Errorf("GET %s: %w", u, err)
	}
	return nil
}

// login is how the kubelet asks its API server, and where.
func (s APIServer) login(path func(node string) string) (*tls.Config, *url.URL, error) {
	o := rooted(string(s))
	k, u, err := readKubeconfig(o)
	if err != nil {
		return nil, nil, err
	}
	config, name, err := k.login(o)
	if err != nil {
		return nil, nil, err
	}
	full, err := url.Parse(strings.TrimSuffix(u.String(), "/") + path(name))
	if err != nil {
		return nil, nil, err
	}
	config.ServerName = cmp.Or(config.ServerName, full.Hostname())
	return config, full, nil
}

func stream(ctx context.Context, u *url.URL, config *tls.Config, accept string, idle time.Duration, event func(line []byte) error) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	r.Close = true
	r.Header.Set("User-Agent", "ortet-node")
	r.Header.Set("Accept", accept)
	within, cancel := context.WithTimeout(ctx, nodeTimeout)
	conn, err := (&tls.Dialer{Config: config}).DialContext(within, "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")))
	cancel()
	if err != nil {
		return err
	}
	// Closed by ctx, by the idle limit, or at the end, whichever comes first.
	end := sync.OnceFunc(func() { _ = conn.Close() })
	defer end()
	defer context.AfterFunc(ctx, end)()
	var idled atomic.Bool
	silent := time.AfterFunc(idle, func() {
		idled.Store(true)
		end()
	})
	defer silent.Stop()
	// A server may end its answer properly when it sees that the connection is closed.
	why := func(err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if idled.Load() {
			return fmt.Errorf("%w: %s", errIdle, idle)
		}
		return err
	}
	if err := r.Write(conn); err != nil {
		return why(err)
	}
	limited := &io.LimitedReader{R: conn, N: maxHead}
	in := bufio.NewReader(limited)
	resp, err := http.ReadResponse(in, r)
	if err != nil {
		return why(fmt.Errorf("reading an HTTP answer: %w", err))
	}
	defer func() {
		end() // else closing reads on to the body's end
		_ = resp.Body.Close()
	}()
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(resp.Body) // what came of it
		return errors.New(Answer{Status: harmless([]byte(resp.Status)), Body: said}.Refusal())
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 16<<10), maxEvent)
	for {
		limited.N = maxEvent + maxHead // of this line, with its chunks' heads
		silent.Reset(idle)
		if !lines.Scan() {
			break
		}
		silent.Stop() // event may take its time
		if err := event(lines.Bytes()); err != nil {
			return err
		}
	}
	return why(lines.Err())
}
