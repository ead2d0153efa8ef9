package attest_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/ortet/ortet/azsim/metadata"
	"github.com/ortet/ortet/internal/admission/attest"
)

// Issuers are fetched without TLS and cached for a day. One spoofed response may stop joins
// for a minute, not for a day. A client whose certificate does not match a cached issuer
// neither evicts it nor delays other clients.
func TestWrongIssuerIsRefetched(t *testing.T) {
	azure, stranger := attestors()[0], attestors()[1]
	var mu sync.Mutex
	at, answer := now, http.Handler(stranger)
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return at }
	fetcher, asked := publication(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer.ServeHTTP(w, r) }), clock)
	v := &attest.Verifier{Roots: azure.Roots(), Issuers: fetcher, Now: still}
	verify := func(by *metadata.Attestor) error {
		_, err := v.Verify(t.Context(), signed(t, by, document(), metadata.SignOptions{}), nonce, home)
		return err
	}
	if err := verify(azure); err == nil {
		t.Fatal("verified by a wrong issuer")
	}
	answer = azure
	if err := verify(azure); err == nil || len(*asked) != 1 {
		t.Errorf("asked %d times at once: %v", len(*asked), err)
	}
	at = at.Add(time.Minute)
	if err := verify(azure); err != nil {
		t.Errorf("a minute after the wrong one: %v", err)
	}
	// A forged certificate names the same address.
	answer = stranger
	for range 3 {
		at = at.Add(time.Minute)
		for range 10 {
			if err := verify(stranger); err == nil {
				t.Error("a stranger is verified")
			}
		}
		if n := len(*asked); n > 5 {
			t.Errorf("a forged certificate caused %d fetches", n)
		}
	}
	answer = azure
	at = at.Add(time.Minute)
	if err := verify(azure); err != nil {
		t.Errorf("after a refetch returned a wrong issuer: %v", err)
	}
	// Clients that the cached issuer serves do not wait for a refetch.
	released, began := make(chan struct{}), make(chan struct{})
	answer = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(began)
		<-released
		http.Error(w, "away", http.StatusBadGateway)
	})
	at = at.Add(time.Minute)
	done := make(chan error, 1)
	go func() { done <- verify(stranger) }()
	<-began
	if err := verify(azure); err != nil {
		t.Errorf("during a refetch: %v", err)
	}
	close(released)
	if err := <-done; err == nil {
		t.Error("a stranger is verified")
	}
	if err := verify(azure); err != nil {
		t.Errorf("after a fetch that failed: %v", err)
	}
}
