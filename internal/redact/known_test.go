package redact

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io/fs"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/ortet/ortet/internal/wire"
)

func known(t testing.TB, values ...[]byte) *Known {
	t.Helper()
	var all []Secret
	for i, v := range values {
		all = append(all, Secret{Rule: fmt.Sprintf("secret-%d", i), Class: wire.NodeIdentity, Value: v})
	}
	k, err := NewKnown(all)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// keyForms are a private key and its public half in the forms that programs write.
type keyForms struct {
	name            string
	private, public [][]byte
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func jwk(fields map[string][]byte) []byte {
	out := map[string]string{"kty": "x"}
	for k, v := range fields {
		out[k] = base64.RawURLEncoding.EncodeToString(v)
	}
	return must(json.Marshal(out))
}

func certificate(public, private any) []byte {
	serial := &x509.Certificate{SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "system:node:a"}}
	return must(x509.CreateCertificate(crand.Reader, serial, serial, public, private))
}

func keys() []keyForms {
	r := must(rsa.GenerateKey(crand.Reader, 2048))
	e := must(ecdsa.GenerateKey(elliptic.P256(), crand.Reader))
	_, d, err := ed25519.GenerateKey(crand.Reader)
	if err != nil {
		panic(err)
	}
	x := must(ecdh.X25519().GenerateKey(crand.Reader))
	openssh := func(key any) []byte { return pem.EncodeToMemory(must(ssh.MarshalPrivateKey(key, "host"))) }
	sshPublic := func(key any) []byte { return ssh.MarshalAuthorizedKey(must(ssh.NewPublicKey(key))) }
	pkcs8 := func(key any) []byte { return must(x509.MarshalPKCS8PrivateKey(key)) }
	spki := func(key any) []byte { return must(x509.MarshalPKIXPublicKey(key)) }
	p := r.Precomputed
	return []keyForms{
		{
			"RSA", [][]byte{
				pkcs8(r), x509.MarshalPKCS1PrivateKey(r), pemOf("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(r)), openssh(r),
				jwk(map[string][]byte{"n": r.N.Bytes(), "d": r.D.Bytes()}),
				jwk(map[string][]byte{"n": r.N.Bytes(), "dp": p.Dp.Bytes()}), jwk(map[string][]byte{"q": r.Primes[1].Bytes()}),
			},
			[][]byte{spki(&r.PublicKey), x509.MarshalPKCS1PublicKey(&r.PublicKey), certificate(&r.PublicKey, r), sshPublic(&r.PublicKey), jwk(map[string][]byte{"n": r.N.Bytes()})},
		},
		{
			"ECDSA",
			[][]byte{pkcs8(e), must(x509.MarshalECPrivateKey(e)), pemOf("EC PRIVATE KEY", must(x509.MarshalECPrivateKey(e))), openssh(e), jwk(map[string][]byte{"d": must(e.Bytes())})},
			[][]byte{spki(&e.PublicKey), certificate(&e.PublicKey, e), sshPublic(&e.PublicKey), must(e.PublicKey.Bytes())},
		},
		{
			"Ed25519", [][]byte{pkcs8(d), openssh(d), d.Seed(), jwk(map[string][]byte{"d": d.Seed()})},
			[][]byte{spki(d.Public()), certificate(d.Public(), d), sshPublic(d.Public()), d.Public().(ed25519.PublicKey)},
		},
		{"X25519", [][]byte{pkcs8(x), x.Bytes(), []byte(base64.StdEncoding.EncodeToString(x.Bytes()))}, [][]byte{spki(x.PublicKey()), x.PublicKey().Bytes()}},
	}
}

// A key that is given in one form is found in each other form, and its public half is
// not found.
func TestKnownFindsKeyInEveryForm(t *testing.T) {
	all, other := keys(), keys()
	for i, key := range all {
		for given, value := range key.private {
			if bytes.HasPrefix(value, []byte("{")) || len(value) <= 44 {
				continue // numbers alone are not given
			}
			k := known(t, value)
			for form, data := range key.private {
				if len(k.Find(Piece{Data: data})) != 1 {
					t.Errorf("%s: given in form %d, not found in form %d", key.name, given, form)
				}
			}
			for form, data := range append(append([][]byte{}, key.public...), other[i].private...) {
				if hits := k.Find(Piece{Data: data}); len(hits) != 0 {
					t.Errorf("%s: given in form %d, found in public or foreign form %d: %v", key.name, given, form, hits)
				}
			}
		}
	}
}

// The wrappings in which keys left a donor unnoticed.
func TestKnownFindsKeyThatShipped(t *testing.T) {
	key := must(ecdsa.GenerateKey(elliptic.P256(), crand.Reader))
	der := must(x509.MarshalECPrivateKey(key))
	text := string(pemOf("EC PRIVATE KEY", der))
	b64 := base64.StdEncoding.EncodeToString
	k := known(t, must(x509.MarshalPKCS8PrivateKey(key)))
	for name, data := range map[string]string{
		"as it is":                        text,
		"indented in YAML":                "files:\n- content: |\n    " + strings.ReplaceAll(text, "\n", "\n    "),
		"a JSON string":                   string(must(json.Marshal(map[string]string{"key": text}))),
		"base64 in lines of 76":           string(breakLines(b64([]byte(text)), 76, "\n")),
		"base64 of a line and the key":    b64([]byte("# key\n" + text)),
		"base64 in lines, indented":       "data: |\n" + string(breakLines("      "+b64([]byte("x\n"+text)), 60, "\n      ")),
		"base64 of base64":                b64([]byte(b64([]byte(text)))),
		"base64 of lines of base64":       b64(breakLines(b64([]byte(text)), 76, "\n")),
		"JSON in JSON":                    string(must(json.Marshal(string(must(json.Marshal(text)))))),
		"PEM in quoted lines of a script": "\"" + strings.ReplaceAll(text, "\n", "\\n\" +\n    \"") + "\"",
		"PEM in a comment":                "# " + strings.ReplaceAll(text, "\n", "\n# "),
	} {
		if hits := k.Find(Piece{Data: []byte(data)}); len(hits) != 1 {
			t.Errorf("%s: not found in\n%s", name, data)
		}
	}
}

// randomSecret is a password, a token, random bytes or one of keys.
func randomSecret(r *rand.Rand, keys []keyForms) []byte {
	text := func(chars string, n int) []byte {
		out := make([]byte, n)
		for {
			for i := range out {
				out[i] = chars[r.IntN(len(chars))]
			}
			if needlesOf(out) != nil {
				return out
			}
		}
	}
	const alphanumeric = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	switch r.IntN(5) {
	case 0:
		return text("0123456789abcdef", 32)
	case 1:
		return text(alphanumeric+"-_.", 20+r.IntN(900))
	case 2:
		return text(alphanumeric+"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", 8+r.IntN(30))
	default:
		return keys[r.IntN(len(keys))].private[0]
	}
}

// Every secret is found in every nesting of wrappings, and nothing else is. Keys are new
// each time. Quoted-printable that was broken into lines again may read in two ways: one
// nesting in some twenty thousand does.
func TestKnownFindsEverySecretInEveryWrapping(t *testing.T) {
	const rounds, seed, ambiguous = 6000, 1, 3
	pool, foreign := keys(), keys()
	r := rand.New(rand.NewPCG(seed, 0))
	missed := 0
	for round := range rounds {
		value := randomSecret(r, pool)
		k := known(t, value, randomSecret(r, pool[:1]))
		data, how := wrapped(r, value, 4)
		found := false
		for _, hit := range k.Find(Piece{Data: data}) {
			if hit.From < 0 || hit.From >= hit.To || hit.To > len(data) {
				t.Fatalf("seed %d, round %d, %s: hit %v of %d bytes", seed, round, how, hit, len(data))
			}
			found = found || hit.Rule == "secret-0"
		}
		if !found {
			if missed++; missed < 5 {
				t.Logf("seed %d, round %d: %.100q not found in %s:\n%.1000q\n…%q", seed, round, value, how, data, data[max(0, len(data)-200):])
			}
		}
		forms := foreign[r.IntN(len(foreign))]
		miss := append(append([][]byte{}, forms.private...), pool[r.IntN(len(pool))].public...)[r.IntN(len(forms.private)+2)]
		data, how = wrapped(r, miss, 4)
		if hits := k.Find(Piece{Data: data}); len(hits) > 0 {
			t.Fatalf("seed %d, round %d: found what is not there, in %s: %v", seed, round, how, hits)
		}
	}
	if missed > ambiguous {
		t.Errorf("%d of %d not found", missed, rounds)
	}
}

// A hit's bytes hold the value: without them it is not found any more.
func TestKnownSaysWhere(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for round := range 2000 {
		value := randomSecret(r, []keyForms{{private: [][]byte{must(x509.MarshalPKCS8PrivateKey(must(ecdsa.GenerateKey(elliptic.P256(), crand.Reader))))}}})
		k := known(t, value)
		data, how := wrapped(r, value, 3)
		if strings.Count(how, ",") == 0 && how == "" && bytes.Contains(data, value) && bytes.IndexByte(value, 0x30) != 0 {
			hit := k.Find(Piece{Data: data})[0]
			if got := data[hit.From:hit.To]; !bytes.HasSuffix(value, got) || len(got) < min(len(value), maxNeedle) {
				t.Fatalf("round %d: %q instead of %q", round, got, value)
			}
		}
		for tries := 0; ; tries++ {
			hits := k.Find(Piece{Data: data})
			if len(hits) == 0 {
				break
			}
			if tries > 5 {
				t.Fatalf("round %d, in %s: still found at %v", round, how, hits)
			}
			for i := hits[0].From; i < hits[0].To; i++ {
				data[i] = ' '
			}
		}
	}
}

// BenchmarkKnown searches the files below $REDACT_TREE as a disk's scan does.
func BenchmarkKnown(b *testing.B) {
	tree := os.Getenv("REDACT_TREE")
	if tree == "" {
		b.Skip("$REDACT_TREE is not set")
	}
	var values [][]byte
	for _, key := range append(keys(), keys()...) {
		values = append(values, key.private[0])
	}
	k := known(b, append(values, []byte("0123456789abcdef0123456789abcdef"))...)
	for b.Loop() {
		total := int64(0)
		err := filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			total += int64(len(data))
			for len(data) > 0 {
				n := min(len(data), 1<<20)
				if hits := k.Find(Piece{Data: data[:n]}); len(hits) > 0 {
					b.Log(path, hits)
				}
				data = data[n:]
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(total)
	}
}
