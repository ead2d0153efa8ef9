package boot

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A D-Bus message is read by hand: of each unit's some ninety properties a
// handful is wanted, and a library makes values of all of them, which for the
// units of a node takes more time than all else here. Source of fact: the D-Bus
// specification, "Marshaling" and "Message Format".

// Types of messages, and header fields.
const (
	methodCall   = 1
	methodReturn = 2
	methodError  = 3

	fieldPath        = 1
	fieldInterface   = 2
	fieldMember      = 3
	fieldErrorName   = 4
	fieldReplySerial = 5
	fieldDestination = 6
	fieldSignature   = 8
)

const (
	maxMessage = 16 << 20 // bytes; the list of 10,000 units has some 3 MB
	maxNesting = 64       // of containers, as the specification has it
)

// call is a method call whose arguments are strings.
type call struct {
	path, iface, member string
	args                []string
}

// appendCall writes a call in little endian. to is the name on a bus, "" where
// the other side is systemd itself.
func appendCall(b []byte, serial uint32, to string, c call) []byte {
	w := writer{b: b, from: len(b)}
	w.b = append(w.b, 'l', methodCall, 0, 1)
	w.u32(0) // the body's length, filled in below
	w.u32(serial)
	w.u32(0) // the fields' length, too
	fields := len(w.b)
	w.field(fieldPath, "o", c.path)
	w.field(fieldInterface, "s", c.iface)
	w.field(fieldMember, "s", c.member)
	if to != "" {
		w.field(fieldDestination, "s", to)
	}
	if len(c.args) > 0 {
		w.align(8)
		w.b = append(w.b, fieldSignature)
		w.signature("g")
		signature := make([]byte, len(c.args))
		for i := range signature {
			signature[i] = 's'
		}
		w.signature(string(signature))
	}
	binary.LittleEndian.PutUint32(w.b[w.from+12:], uint32(len(w.b)-fields))
	w.align(8)
	body := len(w.b)
	for _, a := range c.args {
		w.text(a)
	}
	binary.LittleEndian.PutUint32(w.b[w.from+4:], uint32(len(w.b)-body))
	return w.b
}

type writer struct {
	b    []byte
	from int // where the message begins, by which things are aligned
}

func (w *writer) align(n int) {
	for (len(w.b)-w.from)%n != 0 {
		w.b = append(w.b, 0)
	}
}

func (w *writer) u32(v uint32) {
	w.align(4)
	w.b = binary.LittleEndian.AppendUint32(w.b, v)
}

func (w *writer) text(s string) {
	w.u32(uint32(len(s)))
	w.b = append(append(w.b, s...), 0)
}

func (w *writer) signature(s string) {
	w.b = append(append(append(w.b, byte(len(s))), s...), 0)
}

func (w *writer) field(code byte, kind, value string) {
	w.align(8)
	w.b = append(w.b, code)
	w.signature(kind)
	w.text(value)
}

// errMessage says that a message is not as the specification has it.
var errMessage = errors.New("a D-Bus message that is cut off or broken")

// decoder reads values off a message's body, or off its header fields. After the
// first error it gives zeros.
type decoder struct {
	b     []byte
	at    int
	order binary.ByteOrder
	err   error
}

func (d *decoder) fail() {
	if d.err == nil {
		d.err = errMessage
	}
	d.at = len(d.b)
}

func (d *decoder) align(n int) { d.at = (d.at + n - 1) / n * n }

// take gives the next n bytes, aligned to a multiple of align.
func (d *decoder) take(align, n int) []byte {
	d.align(align)
	if d.err != nil || n < 0 || d.at > len(d.b) || n > len(d.b)-d.at {
		d.fail()
		return nil
	}
	v := d.b[d.at : d.at+n]
	d.at += n
	return v
}

func (d *decoder) u32() uint32 {
	if v := d.take(4, 4); v != nil {
		return d.order.Uint32(v)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if v := d.take(8, 8); v != nil {
		return d.order.Uint64(v)
	}
	return 0
}

// text is a string or an object's path.
func (d *decoder) text() []byte {
	n := d.u32()
	if n > maxMessage {
		d.fail()
		return nil
	}
	v := d.take(1, int(n)+1)
	if v == nil {
		return nil
	}
	return v[:n]
}

func (d *decoder) signature() string {
	n := d.take(1, 1)
	if n == nil {
		return ""
	}
	v := d.take(1, int(n[0])+1)
	if v == nil {
		return ""
	}
	return string(v[:n[0]])
}

// alignment of a type by the first letter of its signature.
func alignment(kind byte) int {
	switch kind {
	case 'n', 'q':
		return 2
	case 'b', 'i', 'u', 's', 'o', 'a', 'h':
		return 4
	case 'x', 't', 'd', '(', '{':
		return 8
	}
	return 1 // y, g, v
}

// array begins an array of elements that are aligned so, and says where it ends.
func (d *decoder) array(align int) (end int) {
	n := d.u32()
	d.align(align)
	if d.err != nil || n > maxMessage || d.at > len(d.b) || int(n) > len(d.b)-d.at {
		d.fail()
		return d.at
	}
	return d.at + int(n)
}

// texts is an array of strings.
func (d *decoder) texts() []string {
	var all []string
	for end := d.array(4); d.at < end; {
		all = append(all, string(d.text()))
	}
	return all
}

// skip passes over a value of the first complete type of a signature, and gives
// the rest of it.
func (d *decoder) skip(signature string, depth int) (rest string) {
	if signature == "" || depth > maxNesting {
		d.fail()
		return ""
	}
	kind, rest := signature[0], signature[1:]
	switch kind {
	case 'y':
		d.take(1, 1)
	case 'n', 'q':
		d.take(2, 2)
	case 'b', 'i', 'u', 'h':
		d.take(4, 4)
	case 'x', 't', 'd':
		d.take(8, 8)
	case 's', 'o':
		d.text()
	case 'g':
		d.signature()
	case 'v':
		d.skip(d.signature(), depth+1)
	case 'a':
		if rest == "" {
			d.fail()
			return ""
		}
		d.at = d.array(alignment(rest[0]))
		return d.over(rest, depth+1)
	case '(', '{':
		d.align(8)
		for rest != "" && rest[0] != ')' && rest[0] != '}' && d.err == nil {
			rest = d.skip(rest, depth+1)
		}
		if rest == "" {
			d.fail()
			return ""
		}
		return rest[1:]
	default:
		d.fail()
		return ""
	}
	return rest
}

// over is what follows the first complete type of a signature.
func (d *decoder) over(signature string, depth int) string {
	for open := 0; signature != "" && depth <= maxNesting; depth++ {
		kind := signature[0]
		signature = signature[1:]
		switch kind {
		case 'a':
			depth--
			continue
		case '(', '{':
			open++
		case ')', '}':
			open--
		}
		if open == 0 {
			return signature
		}
		depth--
	}
	d.fail()
	return ""
}

// reply is a method's answer.
type reply struct {
	serial    uint32
	signature string
	body      decoder
	err       error // the other side's
}

// header is a message's, as far as it says how long the rest is.
type header struct {
	order  binary.ByteOrder
	kind   byte
	fields int // bytes of the header's fields, with what is filled up to 8
	own    int // without that
	body   int
}

const fixedHeader = 16 // bytes

func readHeader(b []byte) (h header, err error) {
	switch {
	case len(b) != fixedHeader || b[3] != 1:
		return h, errMessage
	case b[0] == 'l':
		h.order = binary.LittleEndian
	case b[0] == 'B':
		h.order = binary.BigEndian
	default:
		return h, errMessage
	}
	body, fields := h.order.Uint32(b[4:]), h.order.Uint32(b[12:])
	if body > maxMessage || fields > maxMessage {
		return h, fmt.Errorf("a D-Bus message of more than %d bytes", maxMessage)
	}
	h.kind, h.body, h.own = b[1], int(body), int(fields)
	h.fields = (h.own + 7) / 8 * 8
	return h, nil
}

// readReply takes what follows a message's fixed header apart; ok is false where
// it is no answer.
func readReply(h header, rest []byte) (r reply, ok bool, err error) {
	if len(rest) != h.fields+h.body {
		return r, false, errMessage
	}
	// Fields begin at byte 16, which is aligned for all types.
	d := decoder{b: rest[:h.own], order: h.order}
	name := ""
	for d.align(8); d.at < len(d.b); d.align(8) {
		code := d.take(1, 1)
		kind := d.signature()
		switch {
		case d.err != nil:
		case code[0] == fieldReplySerial && kind == "u":
			r.serial = d.u32()
		case code[0] == fieldErrorName && kind == "s":
			name = string(d.text())
		case code[0] == fieldSignature && kind == "g":
			r.signature = d.signature()
		default:
			d.skip(kind, 0)
		}
		if d.err != nil {
			return r, false, d.err
		}
	}
	r.body = decoder{b: rest[h.fields:], order: h.order}
	if h.kind == methodError {
		text := ""
		if len(r.signature) > 0 && r.signature[0] == 's' {
			text = string(r.body.text())
		}
		r.err = fmt.Errorf("%s: %s", name, text)
	}
	return r, h.kind == methodReturn || h.kind == methodError, nil
}

// properties calls set for each entry of an answer that is an a{sv}, with the
// value ahead in d; what set does not read is passed over.
func (r *reply) properties(set func(name []byte, kind string, d *decoder)) error {
	if r.signature != "a{sv}" {
		return fmt.Errorf("an answer of type %q, not properties", r.signature)
	}
	d := &r.body
	for end := d.array(8); d.at < end && d.err == nil; {
		d.align(8)
		name := d.text()
		kind := d.signature()
		at := d.at
		set(name, kind, d)
		if d.at == at {
			d.skip(kind, 0)
		}
	}
	return d.err
}
