package redact

import (
	"bytes"
	"compress/zlib"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// dumped writes bytes in the form of a dump: the offset, groups of some bytes, and the
// text behind.
func dumped(b []byte, offset string, width, group int, swap bool, text string) []byte {
	var out strings.Builder
	for at := 0; at < len(b); at += width {
		row := b[at:min(at+width, len(b))]
		var digits, shown strings.Builder
		for i := 0; i < len(row); i += group {
			part := bytes.Clone(row[i:min(i+group, len(row))])
			if swap {
				part = append(part, make([]byte, group-len(part))...)
				for a, z := 0, len(part)-1; a < z; a, z = a+1, z-1 {
					part[a], part[z] = part[z], part[a]
				}
			}
			digits.WriteString(hex.EncodeToString(part) + " ")
			if text == "  |%s|" && i == 7 {
				digits.WriteByte(' ')
			}
		}
		for _, c := range row {
			if c < ' ' || c > '~' {
				c = '.'
			}
			shown.WriteByte(c)
		}
		fmt.Fprintf(&out, offset, at)
		fmt.Fprintf(&out, " %-*s", 2*width+width/group, digits.String())
		if text != "" {
			fmt.Fprintf(&out, text, shown.String())
		}
		out.WriteByte('\n')
	}
	return []byte(out.String())
}

// gdbBytes is what gdb prints of memory, with blanks for tabs.
func gdbBytes(b []byte) []byte {
	var out bytes.Buffer
	for i, c := range b {
		if i%8 == 0 {
			fmt.Fprintf(&out, "\n0xc000416%03x:", i)
		}
		fmt.Fprintf(&out, " 0x%02x", c)
	}
	return append(out.Bytes()[1:], '\n')
}

// A dump with columns hides no key of the node's, binary or in PEM, and none that is
// dumped within an indented block.
func TestKnownFindsDumps(t *testing.T) {
	forms := map[string]func([]byte) []byte{
		"xxd":                 func(b []byte) []byte { return dumped(b, "%08x:", 16, 2, false, " %s") },
		"xxd -g 1 -c 20":      func(b []byte) []byte { return dumped(b, "%08x:", 20, 1, false, " %s") },
		"hexdump -C":          func(b []byte) []byte { return dumped(b, "%08x ", 16, 1, false, "  |%s|") },
		"hexdump":             func(b []byte) []byte { return dumped(b, "%07x", 16, 2, true, "") },
		"od -A x -t x1":       func(b []byte) []byte { return dumped(b, "%06x", 16, 1, false, "") },
		"od -t x1z":           func(b []byte) []byte { return dumped(b, "%07o", 16, 1, false, "  >%s<") },
		"od -A d -t x4":       func(b []byte) []byte { return dumped(b, "%07d", 16, 4, true, "") },
		"tcpdump -X":          func(b []byte) []byte { return dumped(b, "\t0x%04x: ", 16, 2, false, " %s") },
		"gdb's x/xb":          func(b []byte) []byte { return bytes.ReplaceAll(gdbBytes(b), []byte(" "), []byte("\t")) },
		"xxd, indented, CRLF": nil,
	}
	forms["xxd, indented, CRLF"] = func(b []byte) []byte {
		return bytes.ReplaceAll(append([]byte("content: |\n"), forms["xxd"](b)...), []byte("\n"), []byte("\r\n    "))
	}
	password := []byte("q7rw2lx9zt4kb8vn3mc6hd1fg5js0pyt")
	for name, form := range forms {
		if k := known(t, password); len(k.Find(Piece{Data: form(append([]byte("password: "), password...))})) == 0 {
			t.Errorf("%s: a password was not found", name)
		}
		for _, key := range keys() {
			k := known(t, key.private[0])
			for i, private := range key.private {
				data := form(private)
				hits := k.Find(Piece{Data: data})
				if len(hits) == 0 {
					t.Errorf("%s: %s, form %d: not found", name, key.name, i)
				} else if h := hits[0]; h.From < 0 || h.To > len(data) || h.To-h.From < 16 {
					t.Errorf("%s: %s, form %d: from %d to %d of %d", name, key.name, i, h.From, h.To, len(data))
				}
			}
			for i, public := range key.public {
				if hits := k.Find(Piece{Data: form(public)}); len(hits) > 0 {
					t.Errorf("%s: %s, public form %d: %v", name, key.name, i, hits)
				}
			}
		}
	}
}

// A file that is a zlib stream, such as a loose object of git's, is unpacked within the
// bounds of gzip.
func TestKnownFindsInZlib(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	value := make([]byte, 32)
	for i := range value {
		value[i] = byte(r.Uint32())
	}
	k := known(t, value)
	for _, level := range []int{1, 5, 6, 9} {
		var out bytes.Buffer
		w := must(zlib.NewWriterLevel(&out, level))
		_, _ = fmt.Fprintf(w, "blob %d\x00key: %x\n", 70, value)
		_ = w.Close()
		if hits := k.Find(Piece{Data: out.Bytes()}); len(hits) != 1 || hits[0].From != 0 {
			t.Errorf("level %d: hits %v", level, hits)
		}
	}
	var zeros bytes.Buffer
	w := zlib.NewWriter(&zeros)
	_, _ = w.Write(make([]byte, 64<<20))
	_ = w.Close()
	if hits, work := k.find(Piece{Data: zeros.Bytes()}); len(hits) > 0 || work > maxWork+maxUnpacked {
		t.Errorf("a bomb: hits %v, work %d", hits, work)
	}
}
