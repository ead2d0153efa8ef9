// Package ber limits nesting depth and object count of untrusted BER messages before they
// are parsed. PKCS #7 parsers convert BER to DER recursively and copy the content once per
// level, so 700 kB of nested headers would take minutes.
package ber

import (
	"errors"
	"fmt"
)

// Limits are the maximum nesting depth and the maximum number of objects.
type Limits struct{ Depth, Objects int }

// Check rejects a malformed message or one beyond the limits. It walks as
// github.com/smallstep/pkcs7 does, including indefinite lengths. It rejects multi-byte
// tags: PKCS #7 has none, and that parser deviates from the standard there.
func Check(message []byte, l Limits) error {
	w := walk{ber: message, limits: l}
	end, err := w.object(0, 1)
	if err != nil {
		return err
	}
	if end != len(message) {
		return fmt.Errorf("%d bytes follow the message", len(message)-end)
	}
	return nil
}

type walk struct {
	ber     []byte
	limits  Limits
	objects int
}

var errShort = errors.New("it ends within an object")

// object walks over the object at a place and gives the place behind it.
func (w *walk) object(at, depth int) (int, error) {
	if w.objects++; depth > w.limits.Depth || w.objects > w.limits.Objects {
		return 0, fmt.Errorf("more than %d objects, or %d within each other", w.limits.Objects, w.limits.Depth)
	}
	if at+2 > len(w.ber) {
		return 0, errShort
	}
	tag := w.ber[at]
	if tag&0x1f == 0x1f {
		return 0, errors.New("a tag of several bytes")
	}
	length, at, err := w.length(at + 1)
	if err != nil {
		return 0, err
	}
	constructed := tag&0x20 != 0
	if length < 0 {
		if !constructed {
			return 0, errors.New("an indefinite length of something primitive")
		}
		return w.indefinite(at, depth)
	}
	end := at + length
	if end > len(w.ber) {
		return 0, errShort
	}
	for constructed && at < end {
		if at, err = w.object(at, depth+1); err != nil {
			return 0, err
		}
	}
	if constructed && at != end {
		return 0, errors.New("an object longer than what it is in")
	}
	return end, nil
}

// indefinite walks until the two zeros.
func (w *walk) indefinite(at, depth int) (int, error) {
	for {
		var err error
		if at, err = w.object(at, depth+1); err != nil {
			return 0, err
		}
		if at+2 > len(w.ber) {
			return 0, errShort
		}
		if w.ber[at] == 0 && w.ber[at+1] == 0 {
			return at + 2, nil
		}
	}
}

// length reads a length; -1 is indefinite.
func (w *walk) length(at int) (int, int, error) {
	first := w.ber[at]
	at++
	switch n := int(first & 0x7f); {
	case first < 0x80:
		return int(first), at, nil
	case n == 0:
		return -1, at, nil
	case n > 3:
		return 0, 0, errors.New("a length beyond all bounds")
	case at+n > len(w.ber):
		return 0, 0, errShort
	default:
		length := 0
		for _, b := range w.ber[at : at+n] {
			length = length<<8 | int(b)
		}
		return length, at + n, nil
	}
}
