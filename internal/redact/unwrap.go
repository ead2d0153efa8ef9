package redact

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"io"
)

const (
	// maxWrapped limits the text files whose base64 is unpacked, and what comes of it.
	maxWrapped = 256 << 10
	// leastWrapped is how long base64 is that is worth it.
	leastWrapped = 40
)

// unwrap looks into base64 of text, and of text in gzip, as cloud-init's write_files
// and Kubernetes' Secrets have it: in one line, or in lines one below another.
func (f *finder) unwrap() {
	if f.kind != text || len(f.Data) > maxWrapped {
		return
	}
	for at := 0; at < len(f.Data); {
		if !isKeyByte(f.Data[at]) {
			at++
			continue
		}
		from := at
		raw, end := f.base64At(from)
		at = end
		if len(raw) < leastWrapped {
			continue
		}
		raw = bytes.TrimRight(raw, "=")
		plain := make([]byte, base64.RawStdEncoding.DecodedLen(len(raw)))
		n, err := base64.RawStdEncoding.Decode(plain, raw)
		if plain = plain[:n]; err != nil {
			continue
		}
		if bytes.HasPrefix(plain, []byte("\x1f\x8b")) {
			z, err := gzip.NewReader(bytes.NewReader(plain))
			if err != nil {
				continue
			}
			plain, _ = io.ReadAll(io.LimitReader(z, maxWrapped)) // a cut-off end is no matter
		}
		if !mostlyText(plain) {
			continue
		}
		inner := finder{Piece: Piece{Path: f.Path, Data: plain}, place: f.place, index: f.index}
		inner.index.marks.each(plain, inner.mark)
		for _, h := range inner.sorted() {
			f.hit(h.Rule, from, end)
		}
	}
}

// base64At is the base64 that begins at a place, without its line breaks, and where it
// ends.
func (f *finder) base64At(from int) (raw []byte, end int) {
	for end = from; ; {
		line := end
		for end < len(f.Data) && isKeyByte(f.Data[end]) {
			end++
		}
		raw = append(raw, f.Data[line:end]...)
		next := end
		for next < len(f.Data) && (f.Data[next] == '\n' || f.Data[next] == '\r' || f.Data[next] == ' ') {
			next++
		}
		if end-line < leastWrapped || next == end || next >= len(f.Data) || !isKeyByte(f.Data[next]) || !bytes.ContainsRune(f.Data[end:next], '\n') {
			return raw, end
		}
		end = next
	}
}

func mostlyText(b []byte) bool {
	odd := 0
	for _, c := range b {
		if c == 0 {
			return false
		}
		if c < ' ' && c != '\n' && c != '\r' && c != '\t' || c >= 0x7f {
			odd++
		}
	}
	return len(b) > 0 && odd*20 < len(b)
}
