package wire_test

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/wire"
)

func packed(t testing.TB, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A manifest was written on a disk that is not trusted, and kept where others may write.
func TestManifestIsRead(t *testing.T) {
	for name, c := range map[string]struct {
		data []byte
		want string // part of the error; "" for none
	}{
		"of a later release":        {packed(t, `{"os":{"id":"debian"},"newer":1}`), ""},
		"no gzip":                   {[]byte("{}"), "a manifest that is cut, or no gzip"},
		"cut":                       {packed(t, `{"kubelet":"v1.31.2"}`)[:20], "a manifest that is cut, or no gzip"},
		"longer than it may be":     {make([]byte, wire.MaxManifest+1), "more than 65536"},
		"a bomb":                    {packed(t, `{"kubelet":"`+strings.Repeat("a", 8<<20)+`"}`), "more than 1048576 bytes of JSON"},
		"an escape of a terminal":   {packed(t, `{"kubelet":"\u001b[2J"}`), "no printable ASCII"},
		"a mark of direction":       {packed(t, `{"packages":[{"type":"deb","name":"a\u202e","version":"1"}]}`), "no printable ASCII"},
		"a long word":               {packed(t, `{"units":["`+strings.Repeat("a", 257)+`"]}`), "no printable ASCII"},
		"a package without a name":  {packed(t, `{"packages":[{"type":"deb","version":"1"}]}`), "a name or a version"},
		"a package of another type": {packed(t, `{"packages":[{"type":"apk","name":"a","version":"1"}]}`), "without a known type"},
		"a negative size":           {packed(t, `{"bytes":{"/usr":-1}}`), "of negative size"},
		"nothing":                   {nil, "a manifest that is cut, or no gzip"},
	} {
		if _, err := wire.ReadManifest(c.data); (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func FuzzReadManifest(f *testing.F) {
	f.Add(packed(f, `{"os":{"id":"debian"},"packages":[{"type":"deb","name":"a","version":"1"}],"bytes":{"/usr":1}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := wire.ReadManifest(data)
		if err != nil {
			return
		}
		if again, ok := m.Pack(); ok {
			if _, err := wire.ReadManifest(again); err != nil {
				t.Error(err)
			}
		}
	})
}
