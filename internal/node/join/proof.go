package join

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

// identityKey is what this machine proves a request with. It lives in memory for as
// long as a process asks: what Azure signs binds it, so that nothing on the disk
// could be copied.
type identityKey struct {
	key    *ecdsa.PrivateKey
	public []byte // PKIX
}

func newKey() (identityKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return identityKey{}, fmt.Errorf("making a key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return identityKey{}, fmt.Errorf("making a key: %w", err)
	}
	return identityKey{key, public}, nil
}

// prove makes the Authorization header of one request: Azure signs the nonce with
// the key and the id, the key signs the request.
func (k identityKey) prove(ctx context.Context, service string, m Machine, nonce, path string, body []byte) (string, error) {
	document, err := attest(ctx, service, wire.AttestedNonce(nonce, k.public, m.ResourceID))
	if err != nil {
		return "", err
	}
	digest := sha256.Sum256(wire.SignedText(path, body, nonce))
	signature, err := ecdsa.SignASN1(rand.Reader, k.key, digest[:])
	if err != nil {
		return "", fmt.Errorf("signing a request: %w", err)
	}
	p := wire.Proof{ResourceID: m.ResourceID, Nonce: nonce, PublicKey: k.public, Document: document, Signature: signature}
	if err := p.Validate(); err != nil {
		return "", fmt.Errorf("proving who this is: %w", err)
	}
	return p.Header()
}

// Bounds of who may call back.
const (
	callbackTimeout = 2 * time.Second
	maxCallers      = 64 // that have said nothing yet
	maxCallersOfOne = 8  // of them of one address
	callbackPause   = 100 * time.Millisecond
)

// callback answers challenges with the key, which proves to the server that the client has
// the address that Azure gave this machine: see wire.CallbackText. What it signs is of no
// use for anything else.
type callback struct {
	listener net.Listener
	callers  sync.WaitGroup
	stop     context.CancelFunc
}

// answer listens on the port, on all addresses.
func (k identityKey) answer(ctx context.Context, port int) (*callback, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return nil, fmt.Errorf("listening for the server's callback: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	c := &callback{listener: listener, stop: stop}
	silent := &waiting{}
	c.callers.Go(func() {
		for {
			conn, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				// Out of files, or a caller that hung up: the next may succeed. Each turn
				// needs a caller, so it cannot loop for ever by itself.
				select {
				case <-ctx.Done():
					return
				case <-time.After(callbackPause):
				}
				continue
			}
			silent.add(conn)
			c.callers.Go(func() { k.sign(ctx, conn, silent) })
		}
	})
	return c, nil
}

// waiting are the callers that have sent no challenge yet, the oldest first. Any client
// that reaches this machine may connect and stay silent, while a server sends its challenge
// at once: so a new caller takes the place of the oldest, of its address or of all.
type waiting struct {
	mu    sync.Mutex
	conns []net.Conn
}

func (w *waiting) add(conn net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	from := hostOf(conn)
	same, oldest := 0, 0
	for i, c := range slices.Backward(w.conns) {
		if hostOf(c) == from {
			same, oldest = same+1, i
		}
	}
	if same < maxCallersOfOne {
		oldest = 0
	}
	if same >= maxCallersOfOne || len(w.conns) >= maxCallers {
		_ = w.conns[oldest].Close() // nothing was said on it
		w.conns = slices.Delete(w.conns, oldest, oldest+1)
	}
	w.conns = append(w.conns, conn)
}

func (w *waiting) remove(conn net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = slices.DeleteFunc(w.conns, func(c net.Conn) bool { return c == conn })
}

// hostOf is the address of who called.
func hostOf(conn net.Conn) string {
	host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil {
		return "" // all that have none are one
	}
	return host
}

// sign answers one challenge. What goes wrong the caller sees.
func (k identityKey) sign(ctx context.Context, conn net.Conn, silent *waiting) {
	ctx, cancel := context.WithTimeout(ctx, callbackTimeout)
	defer cancel()
	hangUp := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer hangUp()
	defer func() { _ = conn.Close() }()
	challenge := make([]byte, wire.ChallengeSize)
	_, err := io.ReadFull(conn, challenge)
	silent.remove(conn)
	if err != nil {
		return
	}
	digest := sha256.Sum256(wire.CallbackText(challenge))
	signature, err := ecdsa.SignASN1(rand.Reader, k.key, digest[:])
	if err != nil || len(signature) > wire.MaxCallbackSignature {
		return
	}
	_, _ = conn.Write(append([]byte{byte(len(signature))}, signature...))
}

// close ends it, and whoever is answered.
func (c *callback) close() {
	_ = c.listener.Close() // nothing was written to it
	c.stop()
	c.callers.Wait()
}
