package join

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/wire"
)

// How long the server may take for what is asked of it.
const (
	nonceTimeout = 10 * time.Second
	joinTimeout  = 60 * time.Second // it asks Azure and the cluster, and calls back
	tellTimeout  = 15 * time.Second
	// leaveMargin is what an answer may take beyond the time that the server was given
	// to drain.
	leaveMargin = 3 * time.Second
)

// Options are what does not come from the settings.
type Options struct {
	Root string // the node's root; "" is this system's
	// Metadata is the metadata service's address, "http://HOST:PORT"; "" is Azure's.
	Metadata string
	// Agent stops the node's agent; nil asks systemd.
	Agent Agent
	Log   *slog.Logger // nil logs nothing
	// Now and Wait are the clock; nil is this system's. Wait ends early, with an error,
	// when ctx does.
	Now  func() time.Time
	Wait func(ctx context.Context, d time.Duration) error
}

func (o Options) metadata() string {
	if o.Metadata == "" {
		return bootstrap.MetadataService
	}
	return o.Metadata
}

// Client asks the admission server for this machine. It proves each request by the
// kubelet's client certificate where there is one, else by Azure's attested document.
// It is used by one goroutine at a time.
type Client struct {
	settings Settings
	options  Options
	servers  []*url.URL
	pins     [][32]byte
	key      identityKey
}

// NewClient makes a client; the settings are completed by it.
func NewClient(s Settings, o Options) (*Client, error) {
	s, err := s.Complete()
	if err != nil {
		return nil, err
	}
	o.Log = o.logger()
	c := &Client{settings: s, options: o}
	for _, text := range s.Servers {
		u, err := parseServer(text)
		if err != nil {
			return nil, err
		}
		u.Path = ""
		c.servers = append(c.servers, u)
	}
	if c.pins, err = s.pins(); err != nil {
		return nil, err
	}
	if c.key, err = newKey(); err != nil {
		return nil, err
	}
	return c, nil
}

// RefusedError is the server's refusal.
type RefusedError struct {
	Server string
	Code   int // HTTP status
	wire.Refusal
}

// Error is the server's message.
func (r *RefusedError) Error() string {
	return fmt.Sprintf("%s refused: %s: %s", r.Server, r.Reason, r.Message)
}

// own reports that the refusal is of this replica alone: it is overloaded, or cannot reach
// Azure or the cluster.
func (r *RefusedError) own() bool { return !r.Final && (r.Code == 429 || r.Code >= 500) }

// Leave asks the server to drain this node, and waits for as long as the request allows. It
// is idempotent; if a server cannot be reached, the next one is asked.
func (c *Client) Leave(ctx context.Context, r wire.LeaveRequest) (wire.Leave, error) {
	return tell[wire.Leave](ctx, c, wire.LeavePath, r, time.Duration(r.Within)*time.Second+leaveMargin)
}

// Left reports to the server that this node's agent is stopped, so that its Node may be
// deleted; it is idempotent. It is written down first: a node that has left has to join
// again, and one join too many is harmless.
func (c *Client) Left(ctx context.Context, cause string) error {
	if err := c.noteLeft(); err != nil {
		return err
	}
	_, err := tell[struct{}](ctx, c, wire.LeftPath, wire.LeftRequest{Cause: cause}, tellTimeout)
	return err
}

// Report posts a wire.Verdict to wire.VerdictPath, or a wire.BootReport to wire.BootPath,
// in JSON: for nodes that cannot report to the API server. It is idempotent.
func (c *Client) Report(ctx context.Context, path string, text []byte) error {
	_, err := tell[struct{}](ctx, c, path, json.RawMessage(text), tellTimeout)
	return err
}

// tell posts a report of an admitted node.
func tell[T any](ctx context.Context, c *Client, path string, request any, within time.Duration) (T, error) {
	var none T
	body, err := json.Marshal(request)
	if err != nil {
		return none, err
	}
	var problems []error
	for _, server := range c.servers {
		text, err := c.tellOne(ctx, server, path, body, within)
		if err == nil {
			return wire.ParseAnswer[T](text)
		}
		problems = append(problems, err)
		// Another replica would answer the same.
		if refused := (*RefusedError)(nil); errors.As(err, &refused) && refused.Final || ctx.Err() != nil {
			break
		}
	}
	return none, errors.Join(problems...)
}

// tellOne tries the kubelet's certificate, and where that is not taken the attested
// proof.
func (c *Client) tellOne(ctx context.Context, server *url.URL, path string, body []byte, within time.Duration) ([]byte, error) {
	pair, _, err := bootstrap.KubeletLogin(c.options.Root, c.kubeconfig())
	if err == nil {
		config := trust(c.pins, server.Hostname())
		config.Certificates = []tls.Certificate{pair}
		text, err := c.post(ctx, server, path, config, nil, body, within)
		if !unrecognised(err) {
			return text, err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		c.options.Log.Debug("the kubelet's certificate is of no use", "error", err)
	}
	for try := 1; ; try++ {
		m, err := whoAmI(ctx, c.options.metadata())
		var text []byte
		if err == nil {
			text, err = c.proven(ctx, server, m, path, body, within)
		}
		// Others on the machine ask Azure too; there may be no time to come back later.
		if !errors.Is(err, errNotNow) || try == metadataTries || c.options.wait(ctx, firstPause) != nil {
			return text, err
		}
	}
}

const metadataTries = 3

// unrecognised reports that the server does not accept the certificate: by its answer, or
// by ending the handshake.
func unrecognised(err error) bool {
	var refused *RefusedError
	var end *net.OpError
	return errors.As(err, &refused) && refused.Code == 401 || errors.As(err, &end) && end.Op == "remote error"
}

// kubeconfig is where this distribution's kubelet has its own; "" is where kubelets
// have them.
func (c *Client) kubeconfig() string {
	if c.settings.Distribution == wire.Kubelet && c.settings.Kubelet.Kubeconfig != kubeletKubeconfig {
		return c.settings.Kubelet.Kubeconfig
	}
	return ""
}

// proven posts with an attested proof, for a nonce of the same server.
func (c *Client) proven(ctx context.Context, server *url.URL, m Machine, path string, body []byte, within time.Duration) ([]byte, error) {
	text, err := c.post(ctx, server, wire.NoncePath, trust(c.pins, server.Hostname()), nil, []byte("{}"), nonceTimeout)
	if err != nil {
		return nil, err
	}
	nonce, err := wire.ParseAnswer[wire.Nonce](text)
	if err != nil {
		return nil, err
	}
	header, err := c.key.prove(ctx, c.options.metadata(), m, nonce.Nonce, path, body)
	if err != nil {
		return nil, err
	}
	return c.post(ctx, server, path, trust(c.pins, server.Hostname()), http.Header{"Authorization": {header}}, body, within)
}

// post is one request of JSON, and the answer where it was granted.
func (c *Client) post(ctx context.Context, server *url.URL, path string, config *tls.Config, header http.Header, body []byte, within time.Duration) ([]byte, error) {
	u := *server
	u.Path = path
	a, err := bootstrap.Ask(ctx, bootstrap.Question{Method: "POST", URL: &u, TLS: config, Within: within, Header: header, Type: "application/json", Body: body})
	if err != nil {
		return nil, err
	}
	if a.Code == 200 {
		return a.Body, nil
	}
	if r, ok := wire.ParseRefusal(a.Body); ok {
		return nil, &RefusedError{Server: server.Host, Code: a.Code, Refusal: r}
	}
	return nil, fmt.Errorf("POST %s: answered %s", &u, a.Status)
}
