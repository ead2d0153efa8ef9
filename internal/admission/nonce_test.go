package admission

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// nonceKeys is a cluster's key, which can change or be away.
type nonceKeys struct {
	key   []byte
	err   error
	reads int
}

func (k *nonceKeys) get(context.Context) ([]byte, error) { k.reads++; return k.key, k.err }

func newNonces(k *nonceKeys, now *time.Time) *nonces {
	return &nonces{key: k.get, random: strings.NewReader(strings.Repeat("0123456789abcdef", 100)), now: func() time.Time { return *now }}
}

func reasonOfNonce(err error) Reason {
	if err == nil {
		return Granted
	}
	return refusalOf(err).reason
}

func TestNonces(t *testing.T) {
	now := time.Date(2026, 11, 21, 16, 0, 0, 0, time.UTC)
	k := &nonceKeys{key: bytes.Repeat([]byte{1}, nonceKey)}
	n, replica := newNonces(k, &now), newNonces(k, &now)
	given, err := n.give(t.Context())
	if err != nil || !given.Expires.Equal(now.Add(time.Minute)) || len(given.Nonce) > 128 {
		t.Fatalf("%+v %v", given, err)
	}
	if at, err := replica.check(t.Context(), given.Nonce); err != nil || !at.Equal(given.Expires) {
		t.Errorf("another replica: %v %v", at, err)
	}
	for i := range given.Nonce { // any other character makes another nonce
		other := []byte(given.Nonce)
		other[i] = "AB"[map[bool]int{true: 1, false: 0}[other[i] == 'A']]
		if _, err := n.check(t.Context(), string(other)); reasonOfNonce(err) != NonceForged {
			t.Errorf("%s: %v", other, err)
		}
	}
	for _, other := range []string{"", "A", given.Nonce + "A", given.Nonce + "=", given.Nonce[:len(given.Nonce)-1], "§"} {
		if _, err := n.check(t.Context(), other); reasonOfNonce(err) != NonceForged {
			t.Errorf("%q: %v", other, err)
		}
	}
	if name := spentName(given.Nonce); len(name) != 40 || strings.Trim(name, "0123456789abcdef") != "" {
		t.Errorf("%q is no name of 40 hex digits", name)
	}
	if k.reads > 2*(1+len(given.Nonce)) {
		t.Errorf("the key was read %d times", k.reads)
	}
	now = now.Add(64 * time.Second)
	if _, err := n.check(t.Context(), given.Nonce); err != nil {
		t.Errorf("within what clocks differ: %v", err)
	}
	now = now.Add(2 * time.Second)
	if _, err := n.check(t.Context(), given.Nonce); reasonOfNonce(err) != NonceExpired {
		t.Errorf("late: %v", err)
	}
}

// A key that was made anew is found out by the first nonce of it, and a stranger's
// nonces do not have it read without end.
func TestNonceKeyChanges(t *testing.T) {
	now := time.Date(2026, 11, 21, 16, 0, 0, 0, time.UTC)
	k := &nonceKeys{key: bytes.Repeat([]byte{1}, nonceKey)}
	n := newNonces(k, &now)
	if _, err := n.give(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err := n.check(t.Context(), strings.Repeat("A", 75)); reasonOfNonce(err) != NonceForged {
			t.Errorf("%v", err)
		}
	}
	if k.reads != 1 {
		t.Errorf("strangers had the key read %d times", k.reads)
	}
	now = now.Add(keyGap)
	k.key = bytes.Repeat([]byte{2}, nonceKey)
	other, err := newNonces(k, &now).give(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.check(t.Context(), other.Nonce); err != nil {
		t.Errorf("a nonce of the new key: %v", err)
	}
	// While the cluster is away, the key that is known will do.
	k.err = &fleet.Error{Op: "get", Kind: fleet.KindTransient, Err: errors.New("away")}
	now = now.Add(time.Hour)
	if _, err := n.give(t.Context()); err != nil {
		t.Errorf("with the cluster away: %v", err)
	}
	if _, err := newNonces(k, &now).give(t.Context()); reasonOfNonce(err) != ClusterUnavailable {
		t.Errorf("before the key was ever read: %v", err)
	}
	if _, err := newNonces(&nonceKeys{key: []byte("short")}, &now).give(t.Context()); reasonOfNonce(err) != Internal {
		t.Errorf("with a short key: %v", err)
	}
}

func FuzzNonce(f *testing.F) {
	now := time.Date(2026, 11, 21, 16, 0, 0, 0, time.UTC)
	n := newNonces(&nonceKeys{key: bytes.Repeat([]byte{1}, nonceKey)}, &now)
	given, err := n.give(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(given.Nonce)
	f.Add(base64.RawURLEncoding.EncodeToString(make([]byte, nonceSize)))
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := n.check(t.Context(), text); (err == nil) != (text == given.Nonce) {
			t.Fatalf("%q: %v", text, err)
		}
	})
}

// An id leads nowhere else than it seems to.
func FuzzInstanceID(f *testing.F) {
	for _, s := range []string{
		"/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/p/virtualMachines/0",
		"/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/m", "/subscriptions/s/../x", "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		uniform, ok := instanceID(text)
		if !ok {
			return
		}
		if strings.ContainsAny(text, "?#%\\ \r\n") || strings.Contains(text, "//") || strings.Contains(text, "/../") || strings.HasSuffix(text, "/..") {
			t.Fatalf("%q was taken", text)
		}
		if id := fleet.ResourceID(text); uniform && id.Parent().Name() == "" || id.Name() == "" {
			t.Fatalf("%q has no name", text)
		}
	})
}
