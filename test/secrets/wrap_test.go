package secrets

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf16"
)

func indent(data []byte, by string) string {
	return by + strings.ReplaceAll(strings.TrimSuffix(string(data), "\n"), "\n", "\n"+by) + "\n"
}

// jsonText is the inside of a JSON string.
func (g *gen) jsonText(data []byte) string {
	quoted := string(check[[]byte](g)(json.Marshal(string(data))))
	return quoted[1 : len(quoted)-1]
}

// b64Lines is base64 in lines of a width; skew bytes of other text go before.
func b64Lines(data []byte, width, skew int, by string) string {
	return indent([]byte(strings.Join(lines(base64.StdEncoding.EncodeToString(append([]byte("# a\n#")[:skew:skew], data...)), width), "\n")), by)
}

func hexLines(data []byte, width int) string {
	return strings.Join(lines(hex.EncodeToString(data), width), "\n") + "\n"
}

// hexColons is what `openssl x509 -text` prints of numbers.
func hexColons(data []byte) string {
	var b strings.Builder
	for i, c := range data {
		if i%15 == 0 {
			b.WriteString("\n    ")
		}
		fmt.Fprintf(&b, "%02x:", c)
	}
	return strings.TrimSuffix(b.String(), ":") + "\n"
}

// xxd is a canonical dump with offsets and the text beside it.
func xxd(data []byte) string { return hex.Dump(data) }

func (g *gen) gzip(data []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		g.t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		g.t.Fatal(err)
	}
	return b.Bytes()
}

func (g *gen) tar(name string, data []byte) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range []struct {
		name string
		data []byte
	}{{"etc/motd", []byte("Welcome\n")}, {name, data}} {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o600, Size: int64(len(f.data)), ModTime: issued}); err != nil {
			g.t.Fatal(err)
		}
		if _, err := w.Write(f.data); err != nil {
			g.t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		g.t.Fatal(err)
	}
	return b.Bytes()
}

func (g *gen) zip(name string, data []byte, method uint16) []byte {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	f, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: method, Modified: issued})
	if err != nil {
		g.t.Fatal(err)
	}
	if _, err := f.Write(data); err != nil {
		g.t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		g.t.Fatal(err)
	}
	return b.Bytes()
}

func utf16Bytes(text string, order binary.AppendByteOrder, mark bool) []byte {
	var b []byte
	if mark {
		b = order.AppendUint16(b, 0xfeff)
	}
	for _, u := range utf16.Encode([]rune(text)) {
		b = order.AppendUint16(b, u)
	}
	return b
}

// percent escapes all that is not a letter or digit, as in a form.
func percent(data []byte) string { return url.QueryEscape(string(data)) }

// body is what lies between the first and the last line of a PEM block.
func body(pem []byte) string {
	all := strings.Split(strings.TrimSpace(string(pem)), "\n")
	return strings.Join(all[1:len(all)-1], "\n") + "\n"
}

// rewrapped is the same block with lines of another width.
func rewrapped(pem []byte, width int) string {
	all := strings.Split(strings.TrimSpace(string(pem)), "\n")
	inner := strings.Join(all[1:len(all)-1], "")
	return all[0] + "\n" + strings.Join(lines(inner, width), "\n") + "\n" + all[len(all)-1] + "\n"
}

// elf is something that begins as a program does, with data in the middle.
func (g *gen) elf(data []byte) []byte {
	head := append([]byte("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x3e\x00\x01\x00\x00\x00"), g.bytes(20000)...)
	return append(append(append(head, 0), data...), append([]byte{0}, g.bytes(9000)...)...)
}

// after puts text behind n bytes of log lines, so that it lies far in the file.
func (g *gen) after(n int, data []byte) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < n-100; i++ {
		fmt.Fprintf(&b, "2026-11-20T07:%02d:%02dZ INFO request %d served in %d ms\n", i/60%60, i%60, i, g.r.IntN(900))
	}
	b.WriteString(strings.Repeat("-", n-b.Len()-1) + "\n")
	return append(b.Bytes(), data...)
}
