package kube

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// unsealedFor is how long records of an earlier version, which have no seal, count
// after the key was made, where there were any.
const unsealedFor = time.Hour

const (
	sealSize    = 16  // bytes of the HMAC-SHA256
	sealMark    = "=" // begins the last field of an entry
	sealDataKey = "seal"
)

// errForged is of a record without a valid seal.
var errForged = errors.New("the record was not written by the admission server")

// A seal makes and checks HMACs of records. Each is bound to the namespace and to what
// names the record, so that a valid one cannot be moved to another place.
type seal struct {
	key       []byte
	namespace string
	until     time.Time // records without a seal count before it
	now       func() time.Time
}

// sealer returns the seal that all replicas share; the first replica makes its key.
func (c *Cluster) sealer(ctx context.Context) (*seal, error) {
	if s := c.seal.Load(); s != nil {
		return s, nil
	}
	const until = "unsealed-until"
	data, err := c.kept(ctx, recordsName, "records-key", func() (map[string][]byte, error) {
		key := make([]byte, sha256.Size)
		if _, err := rand.Read(key); err != nil {
			return nil, err
		}
		fresh := map[string][]byte{"key": key}
		// Only an earlier version can have made the list before there was a key.
		_, err := c.client.CoreV1().ConfigMaps(c.namespace).Get(ctx, NamesName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return fresh, nil
		}
		fresh[until] = []byte(c.now().Add(unsealedFor).UTC().Format(time.RFC3339))
		return fresh, err
	})
	if err != nil {
		return nil, err
	}
	s := &seal{key: data["key"], namespace: c.namespace, now: c.now}
	if text := string(data[until]); text != "" {
		if s.until, err = time.Parse(time.RFC3339, text); err != nil {
			return nil, fail(ctx, "read the records' key", c.onKey(recordsName), err)
		}
	}
	if len(s.key) != sha256.Size {
		return nil, fail(ctx, "read the records' key", c.onKey(recordsName), fmt.Errorf("a key of %d bytes, want %d", len(s.key), sha256.Size))
	}
	c.seal.Store(s)
	return s, nil
}

// sum is the HMAC of a kind of record. Each part has its length before it, so that no
// two lists of parts are one text.
func (s *seal) sum(kind string, parts ...string) []byte {
	h := hmac.New(sha256.New, s.key)
	for _, part := range append([]string{kind, s.namespace}, parts...) {
		_, _ = fmt.Fprintf(h, "%d:", len(part)) // a hash takes everything
		_, _ = io.WriteString(h, part)
	}
	return h.Sum(nil)[:sealSize]
}

// believes reports whether a seal is that of the parts. A record without one is believed
// while those of an earlier version count.
func (s *seal) believes(sealed, kind string, parts ...string) bool {
	if sealed == "" {
		return s.now().Before(s.until)
	}
	sum, err := base64.RawURLEncoding.DecodeString(sealed)
	return err == nil && hmac.Equal(sum, s.sum(kind, parts...))
}

// tokenID is the public part of a name's tokens: always the same, so that a repeated
// Admit finds what it replaces, and unknown to who does not know the key.
func (s *seal) tokenID(node string) string {
	return base36(binary.BigEndian.Uint64(s.sum("token id", node)), 6)
}

// token returns the seal of a token's record.
func (s *seal) token(t token) string {
	return base64.RawURLEncoding.EncodeToString(s.sum("token", tokenParts(t)...))
}

func (s *seal) believesToken(sealed string, t token) bool {
	return s.believes(sealed, "token", tokenParts(t)...)
}

func tokenParts(t token) []string {
	return []string{TokenGroup, t.id, t.node, t.vmID, t.instance, t.pool, t.distribution, t.key, t.made.UTC().Format(time.RFC3339), t.expires.UTC().Format(time.RFC3339)}
}

// entry returns an admission's entry with its seal behind it. A Node that was there
// before admission has none: nothing is granted by it.
func (s *seal) entry(name string, a admitted, pools *[]string) string {
	text := a.entry(pools)
	if text == "" {
		return ""
	}
	return text + " " + sealMark + base64.RawURLEncoding.EncodeToString(s.sum("admission", a.parts(name)...))
}

// parse reads the entry of a name. One that the server did not write is errForged.
func (s *seal) parse(name, text string, pools []string) (admitted, error) {
	if text == "" {
		return admitted{}, nil
	}
	entry, sealed, _ := strings.Cut(text, " "+sealMark)
	a, err := parseEntry(entry, pools)
	if err != nil {
		return admitted{}, err
	}
	if !s.believes(sealed, "admission", a.parts(name)...) {
		return admitted{}, errForged
	}
	return a, nil
}

// parts are what an admission's seal is of. The pool is its id: the table in which
// entries count it may be changed by who writes ConfigMaps.
func (a admitted) parts(name string) []string {
	return []string{name, a.VMID, string(a.Pool), string(a.Instance), a.At.UTC().Format(time.RFC3339Nano), a.Certificates, a.Newest.UTC().Format(time.RFC3339)}
}

// unsealed reports whether an entry is of a version that did not seal them.
func unsealed(text string) bool { return text != "" && !strings.Contains(text, " "+sealMark) }

// sealEntries seals the entries of an earlier version, while those count.
func (c *Cluster) sealEntries(ctx context.Context) error {
	s, err := c.sealer(ctx)
	if err != nil || !s.now().Before(s.until) {
		return err
	}
	found, err := c.client.CoreV1().ConfigMaps(c.namespace).Get(ctx, NamesName, metav1.GetOptions{})
	if err != nil {
		return fail(ctx, "read the names admitted", c.names.on(), err)
	}
	var changes []*nameChange
	for name, text := range found.Data {
		if unsealed(text) {
			changes = append(changes, &nameChange{name: name, set: func(a admitted) admitted { return a }, only: func(a admitted) bool { return a.VMID != "" }})
		}
	}
	return c.names.changeAll(ctx, changes)
}
