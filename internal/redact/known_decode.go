package redact

import (
	"bytes"
	"unicode/utf8"
)

const (
	minText    = 8  // bytes of text that a secret with an escape in it takes
	minSextets = 11 // digits of base64 that 8 bytes take
	maxBreak   = 4  // bytes between the last two runs of base64
	minNibbles = 16
	minWide    = 8
	// near is how much of a text without escapes is looked at before and after one: more
	// than a secret takes that is wrapped twice. In the rest nothing is to be undone.
	near = 8 * maxNeedle
)

// texts yields the runs of text that could hold a wrapped secret, so that nothing else is
// searched for escapes and digits, which there are in other data by chance.
func texts(k *Known, t *tape, src []byte) {
	for at := 0; at+minText <= len(src); {
		// From the end of the shortest run backwards: most of other data is passed over.
		end := at + minText
		i := end - 1
		for i >= at && k.kind[src[i]]&isText != 0 {
			i--
		}
		if i >= at {
			at = i + 1
			continue
		}
		for end < len(src) && k.kind[src[end]]&isText != 0 {
			end++
		}
		t.copy(src, at, end)
		t.data = append(t.data, noValue)
		at = end + 1
	}
}

// joinLines leaves out ends of lines with the blanks around them.
func joinLines(_ *Known, t *tape, src []byte) {
	for at := 0; at < len(src); {
		n := bytes.IndexByte(src[at:], '\n')
		if n < 0 {
			t.copy(src, at, len(src))
			return
		}
		end := at + n
		next := end + 1
		for end > at && isBlank(src[end-1]) {
			end--
		}
		t.copy(src, at, end)
		for next < len(src) && (isBlank(src[next]) || src[next] == '\n') {
			next++
		}
		at = next
	}
}

func isBlank(b byte) bool { return b == ' ' || b == '\t' || b == '\r' }

// sextets yields the digits of every run of base64 that could hold a secret. Runs follow
// each other without a gap: whatever breaks lines, a secret goes on in the next run, and
// at one of four offsets.
func sextets(k *Known, t *tape, src []byte) {
	out := t.data
	for at := 0; at+minSextets <= len(src); {
		// As in texts: words are passed over.
		end := at + minSextets
		i := end - 1
		for i >= at && k.sextet[src[i]] != noValue {
			i--
		}
		if i >= at {
			at = i + 1
			continue
		}
		for end < len(src) && k.sextet[src[end]] != noValue {
			end++
		}
		if t.tracing {
			t.marks = append(t.marks, mark{len(out), at, 1})
		}
		for _, b := range src[at:end] {
			out = append(out, k.sextet[b])
		}
		// A short run behind may be the end of it.
		for at = end; at < min(len(src), end+maxBreak) && k.sextet[src[at]] == noValue; at++ {
		}
		for end = at; end < min(len(src), at+minSextets) && k.sextet[src[end]] != noValue; end++ {
		}
		if end-at == minSextets {
			continue
		}
		if t.tracing {
			t.marks = append(t.marks, mark{len(out), at, 1})
		}
		for ; at < end; at++ {
			out = append(out, k.sextet[src[at]])
		}
	}
	t.data = out
}

// nibbles yields the hexadecimal digits of every run that could hold a secret, without
// what is between them.
func nibbles(k *Known, t *tape, src []byte) {
	for at := 0; at+minNibbles <= len(src); {
		end := at + minNibbles
		i := end - 1
		for i >= at && k.kind[src[i]]&isHexByte != 0 {
			i--
		}
		if i >= at {
			at = i + 1
			continue
		}
		for end < len(src) && k.kind[src[end]]&isHexByte != 0 {
			end++
		}
		begun := len(t.data)
		for i, b := range src[at:end] {
			switch v := k.nibble[b]; {
			case v != noValue:
				t.mark(at+i, 1)
				t.data = append(t.data, v)
			case b|0x20 == 'x' && i > 0 && src[at+i-1] == '0' && len(t.data) > begun:
				t.cut(len(t.data) - 1) // 0x
			}
		}
		if len(t.data)-begun < minNibbles {
			t.cut(begun)
		}
		at = end + 1
	}
}

// wide yields the text in UTF-16 and UTF-32 of either byte order.
func wide(k *Known, t *tape, src []byte) {
	for at := 0; ; {
		n := bytes.IndexByte(src[at:], 0)
		if n < 0 {
			return
		}
		zero := at + n
		begin := zero - 1
		if begin < at || k.kind[src[begin]]&isText == 0 {
			for begin = zero + 1; begin < len(src) && src[begin] == 0; begin++ {
			}
		}
		step := 2
		if begin+3 < len(src) && src[begin+1] == 0 && src[begin+2] == 0 && src[begin+3] == 0 {
			step = 4
		}
		begun := len(t.data)
		t.mark(begin, step)
		i := begin
		for i+step <= len(src) && k.kind[src[i]]&isText != 0 && zeros(src[i+1:i+step]) {
			t.data = append(t.data, src[i])
			i += step
		}
		if i > begin && i < len(src) && k.kind[src[i]]&isText != 0 {
			t.mark(i, 1)
			t.data = append(t.data, src[i]) // the last of big-endian text
			i++
		}
		if len(t.data)-begun < minWide {
			t.cut(begun)
			i = max(begin, zero+1)
		}
		at = min(i, len(src))
	}
}

func zeros(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

// What an escape stands for: a byte, or one of these.
const (
	nothing = -1      // an end of a line that is left out
	letter  = 1 << 24 // added to a character that is written as UTF-8
)

// escapes are kinds of escapes, by the byte that each begins with.
type escapes uint8

const (
	backslashes escapes = 1 << iota // of JSON, YAML, C and shells
	percents                        // of URLs
	equals                          // quoted-printable (RFC 2045)
	ampersands                      // character references of XML and HTML
	indented                        // equals where lines were indented afterwards

	// allEscapes are those that are undone together.
	allEscapes = backslashes | percents | equals | ampersands
)

// read reads the escape that begins at b, if it is of these kinds, and gives what it
// stands for and how long it is; 0 if it is none.
func (e escapes) read(k *Known, b []byte) (value, length int) {
	switch b[0] {
	case '\\':
		if e&backslashes != 0 {
			return backslash(k, b)
		}
	case '%':
		if e&percents != 0 {
			return digits(k, b, 1, 2)
		}
	case '=':
		if e&(equals|indented) == 0 {
			return 0, 0
		}
		n := softBreak(b)
		if n == 0 {
			return quotedByte(k, b)
		}
		for e&indented != 0 && n < len(b) && isBlank(b[n]) {
			n++
		}
		return nothing, n
	case '&':
		if e&ampersands != 0 {
			return reference(k, b)
		}
	}
	return 0, 0
}

// next is where the next byte is that an escape of these kinds may begin with; -1 if
// there is none.
func (e escapes) next(k *Known, b []byte) int {
	switch e {
	case backslashes:
		return bytes.IndexByte(b, '\\')
	case percents:
		return bytes.IndexByte(b, '%')
	case equals, indented:
		return bytes.IndexByte(b, '=')
	case ampersands:
		return bytes.IndexByte(b, '&')
	}
	for i, c := range b {
		if k.kind[c]&isSign != 0 {
			return i
		}
	}
	return -1
}

// in says which kinds there are in a text.
func (e escapes) in(k *Known, text []byte) (met escapes) {
	for kind := backslashes; kind <= ampersands; kind <<= 1 {
		for at := 0; e&kind != 0 && met&kind == 0; at++ {
			n := kind.next(k, text[at:])
			if n < 0 {
				break
			}
			at += n
			if _, length := kind.read(k, text[at:]); length > 0 {
				met |= kind
			}
		}
	}
	return met
}

// undone yields the text near escapes of these kinds, with them undone.
func (e escapes) undone(k *Known, t *tape, src []byte) {
	done, met := 0, false
	for at := 0; at < len(src); {
		n := e.next(k, src[at:])
		if n < 0 {
			break
		}
		at += n
		value, length := e.read(k, src[at:])
		if length == 0 {
			at++
			continue
		}
		if at-done > 2*near {
			if met {
				t.copy(src, done, done+near)
			}
			done = at - near
		}
		t.copy(src, done, at)
		met = true
		t.mark(at, length)
		switch {
		case value >= letter:
			t.data = utf8.AppendRune(t.data, rune(value-letter))
		case value >= 0:
			t.data = append(t.data, byte(value))
		}
		at += length
		done = at
	}
	if met {
		t.copy(src, done, min(len(src), done+near))
	}
}

func backslash(k *Known, b []byte) (value, length int) {
	if len(b) < 2 {
		return 0, 0
	}
	if i := bytes.IndexByte([]byte("ntrbfav0e"), b[1]); i >= 0 && b[1] != '0' {
		return int("\n\t\r\b\f\a\v\x00\x1b"[i]), 2
	}
	switch c := b[1]; {
	case c == '\n':
		return nothing, 2
	case c == 'x':
		return digits(k, b, 2, 2)
	case c == 'u':
		v, n := digits(k, b, 2, 4)
		return v + letter, n
	case c >= '0' && c <= '3' && len(b) >= 4 && b[2]&^7 == '0' && b[3]&^7 == '0':
		return int(c-'0')<<6 | int(b[2]-'0')<<3 | int(b[3]-'0'), 4
	case c > ' ' && c < 0x7f && (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9'), c == ' ':
		return int(c), 2
	}
	return 0, 0
}

func softBreak(b []byte) int {
	end := 1
	for end < len(b) && isBlank(b[end]) {
		end++
	}
	if end < len(b) && b[end] == '\n' {
		return end + 1
	}
	return 0
}

func quotedByte(k *Known, b []byte) (value, length int) {
	if len(b) >= 3 && b[1] < 'a' && b[2] < 'a' { // small letters are no escapes
		return digits(k, b, 1, 2)
	}
	return 0, 0
}

func reference(k *Known, b []byte) (value, length int) {
	end := bytes.IndexByte(b[:min(len(b), 10)], ';')
	if end < 2 {
		return 0, 0
	}
	switch name := string(b[1:end]); {
	case name[0] == '#' && len(name) > 2 && name[1]|0x20 == 'x':
		if v, n := digits(k, b[:end], 3, end-3); n > 0 {
			return v + letter, end + 1
		}
	case name[0] == '#' && len(name) > 1:
		v := 0
		for _, c := range []byte(name[1:]) {
			if c < '0' || c > '9' {
				return 0, 0
			}
			v = v*10 + int(c-'0')
		}
		return min(v, utf8.MaxRune) + letter, end + 1
	case name == "amp":
		return '&', end + 1
	case name == "lt":
		return '<', end + 1
	case name == "gt":
		return '>', end + 1
	case name == "quot":
		return '"', end + 1
	case name == "apos":
		return '\'', end + 1
	}
	return 0, 0
}

// digits reads count hexadecimal digits after skip bytes.
func digits(k *Known, b []byte, skip, count int) (value, length int) {
	if len(b) < skip+count {
		return 0, 0
	}
	for _, c := range b[skip : skip+count] {
		d := k.nibble[c]
		if d == noValue {
			return 0, 0
		}
		value = value<<4 | int(d)
	}
	return value, skip + count
}
