package redact

import "bytes"

const (
	minOffset = 4  // digits of the offset that a row of a dump begins with
	maxOffset = 16 // the same at most: digests are longer
)

// dumps yields what the rows of dumps with columns hold, without their offsets and their
// text: of xxd, hexdump, tcpdump -X, gdb's x/xb and od (-t x1, x2, x4, x8). Rows follow
// each other without a gap.
func dumps(k *Known, t *tape, src []byte) {
	for at := 0; at < len(src); {
		end := len(src)
		if n := bytes.IndexByte(src[at:], '\n'); n >= 0 {
			end = at + n
		}
		from := at
		for from < end && isBlank(src[from]) {
			from++
		}
		if end-from > minOffset && k.nibble[src[from]] != noValue && k.nibble[src[from+minOffset-1]] != noValue {
			row := dumpRow(src[from:end])
			for row.next() {
				t.group(k, src, from+row.from, from+row.to, row.swapped())
			}
		}
		at = end + 1
	}
}

// group writes the bytes of a run of digits.
func (t *tape) group(k *Known, src []byte, from, to int, swapped bool) {
	t.mark(from, 2)
	for i := from; i < to; i += 2 {
		at := i
		if swapped {
			at = from + to - 2 - i
		}
		t.data = append(t.data, k.nibble[src[at]]<<4|k.nibble[src[at+1]])
	}
}

// A row is one of a dump with columns. Its groups are read one by one.
type row struct {
	line     []byte
	colon    bool // as xxd has it
	from, to int  // of the group that was read
}

// dumpRow begins to read a line that begins with the digits of an offset. A row that is
// none has no groups.
func dumpRow(line []byte) row {
	i := hexPrefix(line, 0)
	from := i
	for i < len(line) && i-from <= maxOffset && isHexDigit(line[i]) {
		i++
	}
	if i-from < minOffset || i-from > maxOffset || i >= len(line) {
		return row{}
	}
	colon := line[i] == ':'
	if colon {
		i++
	}
	return row{line: line, colon: colon, to: i}
}

// next reads the next group, and says whether there is one. The text of xxd's rows begins
// behind two blanks, that of others with a sign that is no digit.
func (r *row) next() bool {
	i := r.to
	for i < len(r.line) && isBlank(r.line[i]) {
		i++
	}
	if i == r.to || r.colon && r.from > 0 && i > r.to+1 {
		return false
	}
	i = hexPrefix(r.line, i)
	end := i
	for end < len(r.line) && isHexDigit(r.line[end]) {
		end++
	}
	if end == i || (end-i)%2 != 0 || end < len(r.line) && !isBlank(r.line[end]) {
		return false
	}
	r.from, r.to = i, end
	return true
}

// hexPrefix is where digits begin that may have 0x before them, as tcpdump has it of
// offsets, and gdb of bytes too.
func hexPrefix(line []byte, at int) int {
	if len(line) > at+1 && line[at] == '0' && line[at+1] == 'x' {
		return at + 2
	}
	return at
}

// swapped says whether the group's lowest byte is its first digits: hexdump and od print
// words as a little-endian machine reads them, xxd prints bytes in their order.
func (r *row) swapped() bool {
	n := r.to - r.from
	return !r.colon && (n == 4 || n == 8 || n == 16)
}

func isHexDigit(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
}

// zlibHeader is how long the header of a zlib stream is (RFC 1950) with the window that
// all tools use and without a dictionary; 0 if it is none.
func zlibHeader(b []byte) int {
	const dictionary = 0x20
	if len(b) < 8 || b[0] != 0x78 || b[1]&dictionary != 0 || (int(b[0])<<8|int(b[1]))%31 != 0 {
		return 0
	}
	return 2
}
