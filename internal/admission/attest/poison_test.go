package attest_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/admission/attest"
	"github.com/ortet/ortet/internal/azsim"
)

// Certificates are fetched without TLS, and kept for a day. Who gets a wrong one in
// between once keeps machines from joining for a minute, and not for the day; and who
// brings certificates that what is kept did not sign drives nothing out, nor has others
// wait.
func TestWrongIssuerIsFetchedAnew(t *testing.T) {
	azure, stranger := attestors()[0], attestors()[1]
	var mu sync.Mutex
	at, answer := now, http.Handler(stranger)
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return at }
	fetcher, asked := publication(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer.ServeHTTP(w, r) }), clock)
	v := &attest.Verifier{Roots: azure.Roots(), Issuers: fetcher, Now: still}
	verify := func(by *azsim.Attestor) error {
		_, err := v.Verify(t.Context(), signed(t, by, document(), azsim.SignOptions{}), nonce, home)
		return err
	}
	if err := verify(azure); err == nil {
		t.Fatal("verified by another's issuer")
	}
	answer = azure
	if err := verify(azure); err == nil || len(*asked) != 1 {
		t.Errorf("asked %d times at once: %v", len(*asked), err)
	}
	at = at.Add(time.Minute)
	if err := verify(azure); err != nil {
		t.Errorf("a minute after the wrong one: %v", err)
	}
	// A stranger's certificate names the same address.
	answer = stranger
	for range 3 {
		at = at.Add(time.Minute)
		for range 10 {
			if err := verify(stranger); err == nil {
				t.Error("a stranger is verified")
			}
		}
		if n := len(*asked); n > 5 {
			t.Errorf("a stranger had it fetched %d times", n)
		}
	}
	answer = azure
	at = at.Add(time.Minute)
	if err := verify(azure); err != nil {
		t.Errorf("after a stranger had another one fetched: %v", err)
	}
	// And while that is under way, nobody waits who needs what is kept.
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
		t.Errorf("while another is fetched: %v", err)
	}
	close(released)
	if err := <-done; err == nil {
		t.Error("a stranger is verified")
	}
	if err := verify(azure); err != nil {
		t.Errorf("after a fetch that failed: %v", err)
	}
}
