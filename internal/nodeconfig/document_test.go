package nodeconfig

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

func testKey(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(seed)), ed25519.SeedSize)))
}

func accepted(keys ...ed25519.PrivateKey) (all []PublicKey) {
	for _, k := range keys {
		all = append(all, PublicKeyOf(k.Public().(ed25519.PublicKey)))
	}
	return all
}

func sample() Document {
	return Document{Pool: "/subscriptions/s/resourcegroups/g/providers/microsoft.compute/virtualmachinescalesets/p", Generation: 7, Config: Config{
		Files:   []File{{Path: "/etc/motd", Mode: "0644", Content: "hello\n"}},
		Sysctls: map[string]string{"net.core.somaxconn": "4096"},
		Kubelet: map[string]any{"maxPods": float64(50)},
	}}
}

func TestSignedDocumentIsReadAgain(t *testing.T) {
	key := testKey('a')
	userData, err := sample().Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := base64.StdEncoding.DecodeString(userData)
	if err != nil || !strings.HasPrefix(string(text), "#cloud-config\n") {
		t.Fatalf("%v: %.80q", err, text)
	}
	s, err := Read(userData)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Verify(accepted(testKey('b'), key))
	if err != nil || !reflect.DeepEqual(got, sample()) {
		t.Fatalf("%v: %+v", err, got)
	}
	if _, err := s.Verify(accepted(testKey('b'))); !errors.Is(err, ErrSignature) {
		t.Errorf("another key: %v", err)
	}
	if _, err := s.Verify(nil); !errors.Is(err, ErrSignature) {
		t.Errorf("no key: %v", err)
	}
}

func TestChangedDocumentIsRefused(t *testing.T) {
	key := testKey('a')
	userData, err := sample().Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Read(userData)
	if err != nil {
		t.Fatal(err)
	}
	s.e.Document = []byte(strings.Replace(string(s.e.Document), "hello", "hallo", 1))
	if _, err := s.Verify(accepted(key)); !errors.Is(err, ErrSignature) {
		t.Fatal(err)
	}
}

func TestOtherUserDataIsNotOurs(t *testing.T) {
	for _, text := range []string{"", "#cloud-config\n{}\n", "#!/bin/sh\nreboot\n"} {
		if _, err := Read(base64.StdEncoding.EncodeToString([]byte(text))); !errors.Is(err, ErrNotOurs) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestLargeDocumentIsRefused(t *testing.T) {
	d, r := sample(), rand.New(rand.NewPCG(1, 1))
	random := make([]byte, MaxUserData)
	for i := range random {
		random[i] = byte('a' + r.IntN(26))
	}
	d.Config.Files[0].Content = string(random)
	if _, err := d.Sign(testKey('a')); !errors.Is(err, ErrTooLarge) {
		t.Fatal(err)
	}
	if _, err := Read(strings.Repeat("A", MaxUserData+1)); !errors.Is(err, ErrTooLarge) {
		t.Fatal(err)
	}
	// A megabyte and more of one character packs well.
	d.Config.Files[0].Content = strings.Repeat("a", maxDocument)
	if _, err := d.Sign(testKey('a')); !errors.Is(err, ErrTooLarge) {
		t.Fatal(err)
	}
}

func TestAcceptedKeysKeepTheSigner(t *testing.T) {
	d := sample()
	d.Keys = accepted(testKey('b'))
	if _, err := d.Sign(testKey('a')); err == nil {
		t.Fatal("a document that locks its signer out was signed")
	}
	d.Keys = accepted(testKey('a'), testKey('b'))
	if _, err := d.Sign(testKey('a')); err != nil {
		t.Fatal(err)
	}
}

func FuzzRead(f *testing.F) {
	userData, err := sample().Sign(testKey('a'))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(userData)
	f.Add("")
	f.Fuzz(func(t *testing.T, userData string) {
		s, err := Read(userData)
		if err != nil {
			return
		}
		if d, err := s.Verify(accepted(testKey('a'))); err == nil && !reflect.DeepEqual(d, sample()) {
			t.Fatalf("a forged document: %+v", d)
		}
	})
}

// Who has no key names as signer what a terminal would obey: the document is none.
func TestHole01SignerIsNoKey(t *testing.T) {
	text, err := json.Marshal(sample())
	if err != nil {
		t.Fatal(err)
	}
	s := Signed{envelope{Document: text, Key: "ed25519:\x1b]0;x\a"}}
	if _, err := s.Unverified(); err == nil || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("got %v", err)
	}
}
