package redact

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"math/rand/v2"
	"strings"
	"testing"
)

// FuzzKnown asserts, of any data, that hits lie within it and that the work is bounded;
// and of a secret that was put into it, that it is found.
func FuzzKnown(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		data, _ := wrapped(r, []byte("s3cret-t0ken"), 4)
		f.Add(data)
	}
	f.Add([]byte("\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\x00\xff\xff"))
	f.Add([]byte("\\u00"))
	f.Add([]byte("&#x;&#;&#99999999;"))
	k := known(f, []byte("s3cret-t0ken"), bytes.Repeat([]byte("abcd"), 300))
	f.Fuzz(func(t *testing.T, data []byte) {
		hits, work := k.find(Piece{Data: data})
		if len(hits) > 2 || work > maxWork+len(data)+viewCost {
			t.Fatalf("%d hits, work %d", len(hits), work)
		}
		for i, hit := range hits {
			if hit.From < 0 || hit.From >= hit.To || hit.To > len(data) || i > 0 && hits[i-1].From > hit.From {
				t.Fatalf("hits %v in %d bytes", hits, len(data))
			}
		}
		with := append(append(bytes.Clone(data), "\ns3cret-t0ken\n"...), data...)
		if hits := k.Find(Piece{Data: with}); len(hits) == 0 {
			t.Fatalf("not found in %q", with)
		}
	})
}

// Text that is made to be undone in many ways takes bounded work.
func TestKnownWorkIsBounded(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	var zeros bytes.Buffer
	w := gzip.NewWriter(&zeros)
	_, _ = w.Write(make([]byte, 64<<20))
	_ = w.Close()
	nested := []byte("x")
	for len(nested) < 400<<10 {
		nested = []byte(base64.StdEncoding.EncodeToString(append(nested, nested...)))
	}
	letters := make([]byte, 1<<20)
	for i := range letters {
		letters[i] = "ABCDEFabcdef0123456789"[r.IntN(22)]
	}
	k := known(t, []byte("s3cret-t0ken"))
	for name, c := range map[string]struct {
		data []byte
		most int // bytes looked at for a byte of the piece
	}{
		"hexadecimal digits":  {letters, 12},
		"base64 of base64":    {nested, 60},
		"backslashes":         {bytes.Repeat([]byte("\\"), 1<<20), 12},
		"escaped escapes":     {bytes.Repeat([]byte("%25=3D\\x26&amp;"), 1<<16), 40},
		"headers of gzip":     {bytes.Repeat([]byte("\x1f\x8b\x08\x00"), 1<<18), 65},
		"a gzip bomb":         {zeros.Bytes(), 1000},
		"UTF-16":              {bytes.Repeat([]byte("a\x00"), 1<<19), 30},
		"zeros":               {make([]byte, 1<<20), 2},
		"a line for a letter": {[]byte(strings.Repeat("QQ\n", 1<<18)), 12},
	} {
		hits, work := k.find(Piece{Data: c.data})
		if len(hits) > 0 || work > c.most*max(len(c.data), 16<<10) || work > maxWork+8<<20 {
			t.Errorf("%s: work %d for %d bytes, want at most %d each; hits %v", name, work, len(c.data), c.most, hits)
		}
	}
}

// A secret that begins before a piece is found in the part that follows, as a scan
// cuts files.
func TestKnownFindsSecretAcrossPieces(t *testing.T) {
	const size, overlap = 1 << 20, 64 << 10
	r := rand.New(rand.NewPCG(5, 5))
	value := keys()[0].private[0]
	k := known(t, value)
	for _, at := range []int{0, size - 3000, size - overlap + 10, size - overlap - 2000, size - 1, 2 * size} {
		file := bytes.Repeat([]byte("lorem ipsum dolor\n"), 3*size/18)
		copy(file[at:], breakLines(base64.StdEncoding.EncodeToString(value), 1+r.IntN(100), "\n   "))
		found := false
		for from := 0; from < len(file) && !found; from += size - overlap {
			found = len(k.Find(Piece{Data: file[from:min(len(file), from+size)]})) > 0
		}
		if !found {
			t.Errorf("at %d: not found", at)
		}
	}
}

// Errors name the rule and not the value.
func TestNewKnownRefusesWhatIsEverywhere(t *testing.T) {
	for _, value := range []string{"", "short", "        7chars7 ", "00000000", "abababababab"} {
		_, err := NewKnown([]Secret{{Rule: "k3s-node-password", Value: []byte(value)}})
		if err == nil || !strings.Contains(err.Error(), "k3s-node-password") || value != "" && strings.Contains(err.Error(), value) {
			t.Errorf("%q: %v", value, err)
		}
	}
	if k, err := NewKnown(nil); err != nil || len(k.Find(Piece{Data: []byte("0123456789abcdef")})) != 0 {
		t.Error("no secrets: want a search that finds nothing", err)
	}
}
