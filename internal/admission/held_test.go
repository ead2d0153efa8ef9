package admission

import (
	"context"
	"encoding/base64"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Made-up nonces have the key read again, since another replica may know a newer one. An
// API server that is slow, or away, does not hold up who has a good nonce or wants one,
// and is not asked again for each.
func TestForgedNoncesHoldNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, fail := 0, error(nil)
		n := newNonces(&nonceKeys{}, new(time.Time))
		n.now = time.Now
		n.key = func(ctx context.Context) ([]byte, error) {
			reads++
			if reads > 1 {
				time.Sleep(20 * time.Second)
			}
			return make([]byte, nonceKey), fail
		}
		good, err := n.give(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		forged := base64.RawURLEncoding.EncodeToString(make([]byte, nonceSize))
		time.Sleep(keyGap)
		fail = errors.New("away")
		go func() {
			if _, err := n.check(t.Context(), forged); reasonOfNonce(err) != NonceForged {
				t.Error(err)
			}
		}()
		synctest.Wait()
		began := time.Now()
		if _, err := n.give(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := n.check(t.Context(), good.Nonce); err != nil {
			t.Error(err)
		}
		for range 100 {
			if _, err := n.check(t.Context(), forged); reasonOfNonce(err) != NonceForged {
				t.Error(err)
			}
		}
		if took := time.Since(began); took > 0 || reads != 2 {
			t.Errorf("others waited %s; the key was read %d times, want 2", took, reads)
		}
		time.Sleep(20 * time.Second)
		for range 3 { // it failed 20 s after it was begun
			if _, err := n.check(t.Context(), forged); reasonOfNonce(err) != NonceForged {
				t.Error(err)
			}
		}
		if reads > 5 {
			t.Errorf("the key was read %d times", reads)
		}
	})
}

// So it is with the authorities of certificates, which anybody can send.
func TestStrangersCertificatesHoldNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		pem, _, err := newAuthority(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		a := &authorities{load: func(context.Context) ([]byte, error) {
			if reads++; reads == 1 {
				return pem, nil
			}
			time.Sleep(20 * time.Second)
			return nil, errors.New("away")
		}}
		get := func() {
			if pool, err := a.get(t.Context(), time.Now()); err != nil || pool == nil {
				t.Errorf("%v %v", pool, err)
			}
		}
		get()
		time.Sleep(casFor)
		go get()
		synctest.Wait()
		began := time.Now()
		for range 100 {
			get()
		}
		if took := time.Since(began); took > 0 || reads != 2 {
			t.Errorf("others waited %s; they were read %d times, want 2", took, reads)
		}
		time.Sleep(time.Minute)
	})
}
