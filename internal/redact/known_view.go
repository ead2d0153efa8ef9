package redact

import (
	"bytes"
	"compress/flate"
	"io"
	"slices"
	"sort"
)

const (
	maxDepth    = 8        // wrappings within each other
	maxPacked   = 2        // of them compressed
	maxUnpacked = 8 << 20  // bytes unpacked of a piece
	maxWork     = 64 << 20 // bytes looked at for a piece, all views together

	maxOrders = 4         // times a piece's bytes that are looked at with escapes undone in each order
	minOrders = 256 << 10 // bytes, for short pieces

	viewCost   = 256     // what a view costs beside its bytes
	memberCost = 4 << 10 // what it costs to begin to unpack
)

// A view is a piece, or a part of it with a wrapping undone.
type view struct {
	data   []byte
	span   func(from, to int) (int, int) // where bytes of data lie in the piece
	depth  int
	packed int
	// escapes are those that may be undone in it, together says not one by one. See
	// unescape.
	escapes  escapes
	together bool
}

// A tape is where a decoder writes a view. While it traces it marks where in the source
// each byte was, which is needed only where a secret was found.
type tape struct {
	data    []byte
	tracing bool
	marks   []mark
}

// A mark says that from out on the bytes of a view were in the source from in on, each
// step bytes after the one before.
type mark struct{ out, in, step int }

func (t *tape) mark(in, step int) {
	if t.tracing {
		t.marks = append(t.marks, mark{len(t.data), in, step})
	}
}

func (t *tape) copy(src []byte, from, to int) {
	if from < to {
		t.mark(from, 1)
		t.data = append(t.data, src[from:to]...)
	}
}

// cut takes back what was written after the first n bytes.
func (t *tape) cut(n int) {
	t.data = t.data[:n]
	for len(t.marks) > 0 && t.marks[len(t.marks)-1].out >= n {
		t.marks = t.marks[:len(t.marks)-1]
	}
}

func (t *tape) span(from, to int) (int, int) {
	first := t.marks[sort.Search(len(t.marks), func(i int) bool { return t.marks[i].out > from })-1]
	last := t.marks[sort.Search(len(t.marks), func(i int) bool { return t.marks[i].out > to-1 })-1]
	return first.in + (from-first.out)*first.step, last.in + (to-last.out)*last.step
}

// scratch is the memory of a search: at each depth what views there are written to.
type scratch struct {
	levels [maxDepth]struct{ text, lines, digits, out, unpacked tape }
	flate  [maxPacked]io.ReadCloser
}

// A search is one call of Find.
type search struct {
	k        *Known
	scratch  *scratch
	hits     []Hit
	found    []bool // secrets
	left     int    // secrets that are not found yet
	work     int
	orders   int // work after which escapes are not undone in each order
	unpacked int
}

type decoder func(k *Known, t *tape, src []byte)

// undo is a view with a wrapping undone by a decoder.
func (s *search) undo(v view, t *tape, decode decoder) view {
	t.data = t.data[:0]
	decode(s.k, t, v.data)
	return view{data: t.data, depth: v.depth + 1, packed: v.packed, escapes: allEscapes, span: func(from, to int) (int, int) {
		traced := tape{tracing: true}
		decode(s.k, &traced, v.data)
		return v.span(traced.span(from, to))
	}}
}

// scan looks for secrets in a view and, with each wrapping undone, in the views of it.
func (s *search) scan(v view) {
	if len(v.data) < s.k.window || !s.look(v) || v.depth >= maxDepth {
		return
	}
	level := &s.scratch.levels[v.depth]
	text := s.undo(v, &level.text, texts)
	text.depth, text.escapes, text.together = v.depth, v.escapes, v.together
	if len(text.data) > 0 {
		s.digits(text)
		s.unescape(text, &level.out)
	}
	s.scan(s.undo(v, &level.out, wide))
	if v.packed < maxPacked {
		s.members(v)
	}
}

// unescape scans a text with its escapes undone, kind by kind: which is within which
// nothing says, and what looks like another may be a part of the secret. Of four kinds
// there are 64 orders, so that after s.orders bytes several are undone each by itself and
// all together.
func (s *search) unescape(text view, t *tape) {
	met := text.escapes.in(s.k, text.data)
	again := func(of escapes, next escapes, together bool) {
		v := s.undo(text, t, of.undone)
		v.escapes, v.together = next, together
		s.scan(v)
	}
	several := met&(met-1) != 0
	for kind := backslashes; kind <= ampersands && !text.together; kind <<= 1 {
		switch {
		case met&kind == 0:
		case several && s.work > s.orders:
			again(kind, kind, false)
		default:
			again(kind, allEscapes, false)
		}
	}
	if several && s.work > s.orders || text.together && met != 0 {
		again(met, allEscapes, true)
	}
	if without := met &^ equals; s.work > s.orders && met&equals != 0 && without&(without-1) != 0 {
		again(without, allEscapes, true) // NAME=AB is no escape
	}
	for _, mark := range []string{"=\n ", "=\n\t", "=\r"} {
		if met&equals != 0 && bytes.Contains(text.data, []byte(mark)) {
			again(indented, allEscapes, false)
			break
		}
	}
}

// digits scans what is written in a text in base64 and in hexadecimal.
func (s *search) digits(text view) {
	level := &s.scratch.levels[text.depth]
	rows := s.undo(text, &level.out, dumps)
	s.scan(rows)
	joined := text
	if bytes.IndexByte(text.data, '\n') >= 0 {
		joined = s.undo(text, &level.lines, joinLines)
		s.look(joined)
	}
	of := s.undo(joined, &level.digits, sextets)
	for offset := range 4 {
		s.scan(s.fromSextets(of, &level.out, offset, text.depth+1))
	}
	of = s.undo(joined, &level.digits, nibbles)
	for offset := range 2 {
		s.scan(s.fromNibbles(of, &level.out, offset, text.depth+1))
	}
}

// look looks for the secrets themselves, and says whether the search goes on.
func (s *search) look(v view) bool {
	s.work += len(v.data) + viewCost
	if s.left == 0 || s.work > maxWork {
		return false
	}
	s.k.needlesIn(v.data, func(n, end int) {
		of := s.k.needles[n].secret
		if s.found[of] {
			return
		}
		s.found[of] = true
		s.left--
		from, to := v.span(end-len(s.k.needles[n].bytes), end)
		i := len(s.hits)
		for i > 0 && s.hits[i-1].From > from {
			i--
		}
		s.hits = slices.Insert(s.hits, i, Hit{Rule: s.k.secrets[of].Rule, Class: s.k.secrets[of].Class, From: from, To: to})
	})
	return s.left > 0
}

// fromSextets puts base64's digits from an offset on together.
func (s *search) fromSextets(digits view, t *tape, offset, depth int) view {
	d := digits.data[min(offset, len(digits.data)):]
	out := t.data[:0]
	for ; len(d) >= 4; d = d[4:] {
		out = append(out, d[0]<<2|d[1]>>4, d[1]<<4|d[2]>>2, d[2]<<6|d[3])
	}
	if len(d) >= 2 {
		out = append(out, d[0]<<2|d[1]>>4)
	}
	if len(d) >= 3 {
		out = append(out, d[1]<<4|d[2]>>2)
	}
	t.data = out
	return view{data: out, depth: depth, packed: digits.packed, escapes: allEscapes, span: func(from, to int) (int, int) {
		return digits.span(offset+from*4/3, offset+(to*4+2)/3)
	}}
}

func (s *search) fromNibbles(digits view, t *tape, offset, depth int) view {
	d := digits.data[min(offset, len(digits.data)):]
	out := t.data[:0]
	for ; len(d) >= 2; d = d[2:] {
		out = append(out, d[0]<<4|d[1])
	}
	t.data = out
	return view{data: out, depth: depth, packed: digits.packed, escapes: allEscapes, span: func(from, to int) (int, int) {
		return digits.span(offset+from*2, offset+to*2)
	}}
}

// members unpacks what begins in a view, of gzip's form and zip's, and a view that is a
// zlib stream: two bytes are met within others by chance.
func (s *search) members(v view) {
	if n := zlibHeader(v.data); n > 0 {
		s.member(v, 0, n)
	}
	for _, form := range []struct {
		magic  string
		header func([]byte) int
	}{{"\x1f\x8b\x08", gzipHeader}, {"PK\x03\x04", zipHeader}} {
		for at := 0; s.left > 0 && s.work <= maxWork; {
			i := bytes.Index(v.data[at:], []byte(form.magic))
			if i < 0 {
				break
			}
			at += i
			end := at + len(form.magic)
			if n := form.header(v.data[at:]); n > 0 && at+n < len(v.data) {
				end = max(end, s.member(v, at, at+n))
			}
			at = end
		}
	}
}

const (
	unpackChunk   = 1 << 20
	unpackOverlap = 64 << 10 // what neighbouring chunks share
)

// member looks through what is unpacked of the deflated data at body, and gives where it
// ends; 0 if it does not end well.
func (s *search) member(v view, at, body int) int {
	if s.work += memberCost; s.work > maxWork {
		return 0
	}
	in := bytes.NewReader(v.data[body:])
	unpack := &s.scratch.flate[v.packed]
	if *unpack == nil {
		*unpack = flate.NewReader(in)
	} else if err := (*unpack).(flate.Resetter).Reset(in, nil); err != nil {
		return 0
	}
	t := &s.scratch.levels[v.depth].unpacked
	t.data = t.data[:0]
	for {
		kept := len(t.data)
		n, err := fill(*unpack, t, min(unpackChunk, kept+maxUnpacked-s.unpacked))
		s.unpacked += n
		end := len(v.data) - in.Len()
		if n > 0 {
			s.scan(view{data: t.data, depth: v.depth + 1, packed: v.packed + 1, escapes: allEscapes, span: func(int, int) (int, int) { return v.span(at, end) }})
		}
		switch {
		case err == io.EOF: //nolint:errorlint // it is flate's own, unwrapped
			return end
		case err != nil || n == 0 || s.left == 0:
			return 0
		}
		t.data = append(t.data[:0], t.data[max(0, len(t.data)-unpackOverlap):]...)
	}
}

// fill reads on until a tape has size bytes, and gives how many were read.
func fill(r io.Reader, t *tape, size int) (int, error) {
	begun := len(t.data)
	for len(t.data) < size {
		if len(t.data) == cap(t.data) {
			t.data = append(t.data, 0)[:len(t.data)]
		}
		n, err := r.Read(t.data[len(t.data):min(cap(t.data), size)])
		t.data = t.data[:len(t.data)+n]
		if err != nil {
			return len(t.data) - begun, err
		}
	}
	return len(t.data) - begun, nil
}

// gzipHeader is how long a member's header is (RFC 1952); 0 if it is none.
func gzipHeader(b []byte) int {
	const crc, extra, name, comment = 2, 4, 8, 16
	if len(b) < 18 || b[3]&0xe0 != 0 {
		return 0
	}
	flags, n := b[3], 10
	if flags&extra != 0 {
		n += 2 + int(b[10]) + int(b[11])<<8
	}
	for _, text := range []byte{name, comment} {
		if flags&text != 0 {
			if n >= len(b) {
				return 0
			}
			n += 1 + max(0, bytes.IndexByte(b[n:], 0))
		}
	}
	if flags&crc != 0 {
		n += 2
	}
	return n
}

// zipHeader is how long the header of a deflated file in a zip is; 0 if it is none.
func zipHeader(b []byte) int {
	const deflated = 8
	if len(b) < 30 || b[8] != deflated || b[9] != 0 {
		return 0
	}
	return 30 + int(b[26]) + int(b[27])<<8 + int(b[28]) + int(b[29])<<8
}
