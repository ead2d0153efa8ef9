package ber

import (
	"bytes"
	"testing"

	"github.com/smallstep/pkcs7"
)

var limits = Limits{Depth: 32, Objects: 4096}

func TestCheck(t *testing.T) {
	deep := func(depth int) []byte {
		der := []byte{0x05, 0x00}
		for range depth {
			der = append([]byte{0x30, 0x82, byte(len(der) >> 8), byte(len(der))}, der...)
		}
		return der
	}
	for name, c := range map[string]struct {
		ber []byte
		ok  bool
	}{
		"a null":                    {[]byte{0x05, 0x00}, true},
		"a sequence":                {[]byte{0x30, 0x02, 0x05, 0x00}, true},
		"without a length":          {[]byte{0x30, 0x80, 0x05, 0x00, 0x00, 0x00}, true},
		"as deep as may be":         {deep(limits.Depth - 1), true},
		"deeper":                    {deep(limits.Depth), false},
		"deeper without lengths":    {append(bytes.Repeat([]byte{0x30, 0x80}, limits.Depth), make([]byte, 2*limits.Depth+2)...), false},
		"many":                      {append([]byte{0x30, 0x82, 0x20, 0x00}, bytes.Repeat([]byte{0x05, 0x00}, limits.Objects)...), false},
		"nothing":                   {nil, false},
		"half a head":               {[]byte{0x30}, false},
		"longer than it is":         {[]byte{0x30, 0x05, 0x05, 0x00}, false},
		"longer than what it is in": {[]byte{0x30, 0x03, 0x04, 0x05, 0x00, 0x00, 0x00, 0x00}, false},
		"something behind":          {[]byte{0x05, 0x00, 0x05, 0x00}, false},
		"a tag of several bytes":    {[]byte{0x3f, 0x81, 0x01, 0x00}, false},
		"primitive without length":  {[]byte{0x04, 0x80, 0x00, 0x00}, false},
		"never ends":                {[]byte{0x30, 0x80, 0x05, 0x00}, false},
		"a length of four bytes":    {[]byte{0x30, 0x84, 0x00, 0x00, 0x00, 0x00}, false},
		"half a length":             {[]byte{0x30, 0x82, 0x00}, false},
	} {
		if err := Check(c.ber, limits); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What has a shape can be parsed, or refused, without a panic, and is not blown up by
// it.
func FuzzCheck(f *testing.F) {
	f.Add([]byte{0x30, 0x80, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x02, 0xa0, 0x80, 0x30, 0x80, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00})
	f.Add([]byte{0x30, 0x02, 0x05, 0x00})
	signed, err := pkcs7.NewSignedData([]byte(`{"vmId":"x"}`))
	if err != nil {
		f.Fatal(err)
	}
	der, err := signed.Finish()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(der)
	f.Fuzz(func(t *testing.T, message []byte) {
		if Check(message, limits) != nil {
			return
		}
		p, err := pkcs7.Parse(message)
		if err == nil && len(p.Content) > len(message) {
			t.Fatalf("%d bytes became %d", len(message), len(p.Content))
		}
		if err == nil {
			_ = p.GetOnlySigner()
			_ = p.Verify() // whatever it says, it says
		}
	})
}
