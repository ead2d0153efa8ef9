package admission

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"sync"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

const (
	nonceRandom = 16
	nonceSize   = nonceRandom + 8 + sha256.Size
	nonceKey    = 32
	// nonceFor is how long a nonce may be used. The node asks the metadata service
	// within it.
	nonceFor = time.Minute
	// nonceSkew is how much replicas' clocks may differ.
	nonceSkew = 5 * time.Second
	// keyFor is how long the key is used before it is read again, and keyGap the
	// least time between two readings for a nonce that does not fit it.
	keyFor = 10 * time.Minute
	keyGap = 10 * time.Second
)

// nonces makes and knows nonces: 16 random bytes, when they expire, and the MAC of
// both by the key that replicas share, in base64url. Nothing is kept of those that
// were given.
type nonces struct {
	key    func(context.Context) ([]byte, error)
	random io.Reader
	now    func() time.Time

	mu    sync.Mutex
	held  []byte
	read  time.Time
	tried time.Time // to read it, last

	provenMu sync.Mutex
	proven   map[[sha256.Size]byte]time.Time // nonces that came with a good proof, until they expire
	pruned   time.Time
}

func (n *nonces) give(ctx context.Context) (wire.Nonce, error) {
	key, err := n.secret(ctx, keyFor)
	if err != nil {
		return wire.Nonce{}, err
	}
	expires := n.now().Add(nonceFor).Truncate(time.Second)
	raw := make([]byte, nonceRandom, nonceSize)
	if _, err := io.ReadFull(n.random, raw); err != nil {
		return wire.Nonce{}, refuse(Internal, fmt.Errorf("make a nonce: %w", err))
	}
	raw = binary.BigEndian.AppendUint64(raw, uint64(expires.Unix()))
	return wire.Nonce{Nonce: base64.RawURLEncoding.EncodeToString(append(raw, mac(key, raw)...)), Expires: expires.UTC()}, nil
}

// check verifies that a nonce is ours and returns when it expires.
func (n *nonces) check(ctx context.Context, nonce string) (time.Time, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(nonce)
	if err != nil || len(raw) != nonceSize {
		return time.Time{}, refuse(NonceForged, fmt.Errorf("a nonce of %d bytes", len(raw)))
	}
	said, sum := raw[:nonceRandom+8], raw[nonceRandom+8:]
	for _, age := range []time.Duration{keyFor, keyGap} { // another replica may know a newer key
		key, err := n.secret(ctx, age)
		if err != nil {
			return time.Time{}, err
		}
		if !hmac.Equal(mac(key, said), sum) {
			continue
		}
		expires := time.Unix(int64(binary.BigEndian.Uint64(said[nonceRandom:])), 0)
		if now := n.now(); now.After(expires.Add(nonceSkew)) {
			return time.Time{}, refuse(NonceExpired, fmt.Errorf("the nonce expired %s ago", now.Sub(expires).Round(time.Second)))
		}
		return expires, nil
	}
	return time.Time{}, refuse(NonceForged, fmt.Errorf("the nonce has not our MAC"))
}

// secret returns the key, which was read no longer ago than age. While it is read again,
// and where that fails, the cached one is used: so clients with forged nonces neither delay
// others nor make us read it all the time.
func (n *nonces) secret(ctx context.Context, age time.Duration) ([]byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.now()
	if n.held != nil && (now.Sub(n.read) < age || now.Sub(n.tried) < keyGap) {
		return n.held, nil
	}
	n.tried = now
	again := n.held != nil
	if again {
		n.mu.Unlock()
	}
	ctx, cancel := readingOn(ctx)
	defer cancel()
	key, err := n.key(ctx)
	if again {
		n.mu.Lock()
	}
	switch {
	case err != nil && again:
		return n.held, nil // what needs the cluster fails later, with its own error
	case err != nil:
		return nil, refuse(ClusterUnavailable, fmt.Errorf("the key of the nonces: %w", err))
	case len(key) != nonceKey:
		return nil, refuse(Internal, fmt.Errorf("the key of the nonces has %d bytes, want %d", len(key), nonceKey))
	}
	n.held, n.read = key, now
	return key, nil
}

// once reports whether a nonce comes with a good proof for the first time, as far as this
// replica knows. Only the creation of an object, which comes later, decides for all; but
// the calls before that, to Azure first, are made once per proof.
func (n *nonces) once(nonce string, expires time.Time) bool {
	key, now := sha256.Sum256([]byte(nonce)), n.now()
	n.provenMu.Lock()
	defer n.provenMu.Unlock()
	if now.Sub(n.pruned) > nonceFor { // proofs are rated, so there are no more than some ten thousand
		n.pruned = now
		maps.DeleteFunc(n.proven, func(_ [sha256.Size]byte, until time.Time) bool { return now.After(until) })
	}
	if _, known := n.proven[key]; known {
		return false
	}
	n.proven[key] = expires.Add(nonceSkew)
	return true
}

func mac(key, text []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write(text) // never fails
	return m.Sum(nil)
}

// spentName is a nonce's name for Cluster.Spend.
func spentName(nonce string) string {
	sum := sha256.Sum256([]byte(nonce))
	return hex.EncodeToString(sum[:20])
}
