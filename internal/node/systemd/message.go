// Package systemd asks systemd, by D-Bus, and is told by it: over systemd's own
// socket or over the message bus.
//
// It is a client by hand of what is needed of D-Bus. A library makes values of
// every message by reflection, which for the units of a node takes more time than
// all else that the agent does with them, and is a twentieth of the agent's size.
package systemd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// Source of fact for all here: the D-Bus specification, "Marshaling" and "Message
// Format".

// Types of messages, and header fields.
const (
	methodCall   = 1
	methodReturn = 2
	methodError  = 3
	signal       = 4

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

// Call is a method call. Its arguments are strings, and where List is not nil an
// array of strings as the last.
type Call struct {
	Path, Iface, Member string
	Args, List          []string
	to                  string // another name than systemd's
}

// appendCall writes a call in little endian. to is the name on a bus, "" where
// the other side is systemd itself.
func appendCall(b []byte, serial uint32, to string, c Call) []byte {
	w := writer{b: b, from: len(b)}
	w.b = append(w.b, 'l', methodCall, 0, 1)
	w.u32(0) // the body's length, filled in below
	w.u32(serial)
	w.u32(0) // the fields' length, too
	fields := len(w.b)
	w.field(fieldPath, "o", c.Path)
	w.field(fieldInterface, "s", c.Iface)
	w.field(fieldMember, "s", c.Member)
	if to != "" {
		w.field(fieldDestination, "s", to)
	}
	signature := strings.Repeat("s", len(c.Args))
	if c.List != nil {
		signature += "as"
	}
	if signature != "" {
		w.align(8)
		w.b = append(w.b, fieldSignature)
		w.signature("g")
		w.signature(signature)
	}
	binary.LittleEndian.PutUint32(w.b[w.from+12:], uint32(len(w.b)-fields))
	w.align(8)
	body := len(w.b)
	for _, a := range c.Args {
		w.text(a)
	}
	if c.List != nil {
		w.u32(0)
		length := len(w.b)
		for _, a := range c.List {
			w.text(a)
		}
		binary.LittleEndian.PutUint32(w.b[length-4:], uint32(len(w.b)-length))
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

// Decoder reads values off a message's body, or off its header fields. After the
// first error it gives zeros.
type Decoder struct {
	b     []byte
	at    int
	order binary.ByteOrder
	err   error
}

func (d *Decoder) fail() {
	if d.err == nil {
		d.err = errMessage
	}
	d.at = len(d.b)
}

func (d *Decoder) align(n int) { d.at = (d.at + n - 1) / n * n }

// take gives the next n bytes, aligned to a multiple of align.
func (d *Decoder) take(align, n int) []byte {
	d.align(align)
	if d.err != nil || n < 0 || d.at > len(d.b) || n > len(d.b)-d.at {
		d.fail()
		return nil
	}
	v := d.b[d.at : d.at+n]
	d.at += n
	return v
}

// U32 is an unsigned number.
func (d *Decoder) U32() uint32 {
	if v := d.take(4, 4); v != nil {
		return d.order.Uint32(v)
	}
	return 0
}

// U64 is an unsigned number.
func (d *Decoder) U64() uint64 {
	if v := d.take(8, 8); v != nil {
		return d.order.Uint64(v)
	}
	return 0
}

// Text is a string or an object's path.
func (d *Decoder) Text() []byte {
	n := d.U32()
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

// Signature is a type, as a variant has ahead of its value.
func (d *Decoder) Signature() string {
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

// Array begins an array of elements that are aligned so, and says where it ends.
func (d *Decoder) Array(align int) (end int) {
	n := d.U32()
	d.align(align)
	if d.err != nil || n > maxMessage || d.at > len(d.b) || int(n) > len(d.b)-d.at {
		d.fail()
		return d.at
	}
	return d.at + int(n)
}

// Texts is an array of strings.
func (d *Decoder) Texts() []string {
	var all []string
	for end := d.Array(4); d.at < end; {
		all = append(all, string(d.Text()))
	}
	return all
}

// skip passes over a value of the first complete type of a signature, and gives
// the rest of it.
func (d *Decoder) skip(signature string, depth int) (rest string) {
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
		d.Text()
	case 'g':
		d.Signature()
	case 'v':
		d.skip(d.Signature(), depth+1)
	case 'a':
		if rest == "" {
			d.fail()
			return ""
		}
		d.at = d.Array(alignment(rest[0]))
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
func (d *Decoder) over(signature string, depth int) string {
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

// Err is what was wrong with the message.
func (d *Decoder) Err() error { return d.err }

// More tells whether more of an array follows that ends there.
func (d *Decoder) More(end int) bool { return d.at < end && d.err == nil }

// Struct begins a structure, or an entry of a dictionary.
func (d *Decoder) Struct() { d.align(8) }

// Reply is a method's answer, or a signal. It is good until the next is asked for.
type Reply struct {
	Signature string // the type of Body
	Body      Decoder
	Err       error // the other side's

	kind         byte
	serial       uint32 // of the call that it answers
	path, member string
}

// Variant is the answer of Properties.Get: the value's type, with the value ahead
// in Body; "" where it is none.
func (r *Reply) Variant() (kind string) {
	if r.Err != nil || r.Signature != "v" {
		return ""
	}
	return r.Body.Signature()
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

// readMessage takes what follows a message's fixed header apart.
func readMessage(h header, rest []byte) (r Reply, err error) {
	if len(rest) != h.fields+h.body {
		return r, errMessage
	}
	// Fields begin at byte 16, which is aligned for all types.
	d := Decoder{b: rest[:h.own], order: h.order}
	name := ""
	for d.align(8); d.at < len(d.b); d.align(8) {
		code := d.take(1, 1)
		kind := d.Signature()
		switch {
		case d.err != nil:
		case code[0] == fieldReplySerial && kind == "u":
			r.serial = d.U32()
		case code[0] == fieldErrorName && kind == "s":
			name = string(d.Text())
		case code[0] == fieldPath && kind == "o":
			r.path = string(d.Text())
		case code[0] == fieldMember && kind == "s":
			r.member = string(d.Text())
		case code[0] == fieldSignature && kind == "g":
			r.Signature = d.Signature()
		default:
			d.skip(kind, 0)
		}
		if d.err != nil {
			return r, d.err
		}
	}
	r.kind = h.kind
	r.Body = Decoder{b: rest[h.fields:], order: h.order}
	if h.kind == methodError {
		text := ""
		if len(r.Signature) > 0 && r.Signature[0] == 's' {
			text = string(r.Body.Text())
		}
		r.Err = fmt.Errorf("%s: %s", name, text)
	}
	return r, nil
}

// Properties calls set for each entry of an answer that is an a{sv}, with the
// value ahead in d; what set does not read is passed over.
func (r *Reply) Properties(set func(name []byte, kind string, d *Decoder)) error {
	if r.Err != nil {
		return r.Err
	}
	if r.Signature != "a{sv}" {
		return fmt.Errorf("an answer of type %q, not properties", r.Signature)
	}
	return r.Body.properties(set)
}

func (d *Decoder) properties(set func(name []byte, kind string, d *Decoder)) error {
	for end := d.Array(8); d.More(end); {
		d.align(8)
		name := d.Text()
		kind := d.Signature()
		at := d.at
		set(name, kind, d)
		if d.at == at {
			d.skip(kind, 0)
		}
	}
	return d.err
}

// Parse reads one whole message, an answer or a signal.
func Parse(message []byte) (Reply, error) {
	if len(message) < fixedHeader {
		return Reply{}, errMessage
	}
	h, err := readHeader(message[:fixedHeader])
	if err != nil {
		return Reply{}, err
	}
	return readMessage(h, message[fixedHeader:])
}
