package azsim

import (
	"encoding/hex"
	"strings"
	"time"
)

// What the server makes up (ids, durations, whether a fault is met) is drawn from
// streams, each of which belongs to one thing that happens to one resource for the
// n-th time. So it depends on the seed and on the requests, and not on the order
// in which goroutines that wake at the same instant get their turn, which package
// testing/synctest leaves open as the real world does.

// A stream is a source of chance: the SplitMix64 generator.
type stream uint64

// draw begins the next stream of what happens to the thing that key names. The
// caller holds the lock.
func (s *Server) draw(what, key string) stream {
	name := what + " " + key
	n := s.drawn[name] + 1
	s.drawn[name] = n
	const offset, prime = 0xcbf29ce484222325, 0x100000001b3 // FNV-1a
	h := uint64(offset)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * prime
	}
	out := stream(h ^ s.Seed*0x9e3779b97f4a7c15)
	out += stream(n) * 0xd1b54a32d192ed03
	out.next() // spreads what differs in few bits
	return out
}

func (r *stream) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below draws a number from 0 to n-1; n is far below 1<<63, so that the remainder
// is as good as fair.
func (r *stream) below(n int64) int64 { return int64(r.next() >> 1 % uint64(n)) }

// chance says yes with the probability p.
func (r *stream) chance(p float64) bool { return float64(r.next()>>11)/(1<<53) < p }

// uuid draws a UUID of version 4.
func (r *stream) uuid() string {
	var b [16]byte
	for i, v := range []uint64{r.next(), r.next()} {
		for j := range 8 {
			b[8*i+j] = byte(v >> (8 * j))
		}
	}
	return uuidOf(b[:])
}

// uuidOf makes a version-4-shaped UUID of the first 16 bytes.
func uuidOf(b []byte) string {
	var u [16]byte
	copy(u[:], b)
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	var out [36]byte
	hex.Encode(out[:], u[:4])
	hex.Encode(out[9:], u[4:6])
	hex.Encode(out[14:], u[6:8])
	hex.Encode(out[19:], u[8:10])
	hex.Encode(out[24:], u[10:])
	out[8], out[13], out[18], out[23] = '-', '-', '-', '-'
	return string(out[:])
}

// newUUID draws the next id of that kind ("operation") for the resource that key
// names. The caller holds the lock.
func (s *Server) newUUID(kind, key string) string {
	r := s.draw(kind, key)
	return r.uuid()
}

// duration draws how long the named thing takes on the resource that key names,
// at the server's speed. The caller holds the lock.
func (s *Server) duration(name, key string) time.Duration {
	if s.instant {
		return 0
	}
	span, ok := s.profile[name]
	if !ok {
		span = DefaultSpan
	}
	d := span.Min
	if span.Max > span.Min {
		r := s.draw(name, key)
		d += time.Duration(r.below(int64(span.Max-span.Min) + 1))
	}
	return s.scaled(d)
}

// takes is duration with the lock taken.
func (s *Server) takes(name string, e *entry) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.duration(name, e.key)
}

// duration is how long the named thing takes on the resource of the path.
func (c *call) duration(name string) time.Duration { return c.s.duration(name, c.id.key()) }

// natural orders ids as people do, with their numbers by value: "p/9" before "p/10".
func natural(a, b string) int {
	digit := func(c byte) bool { return c >= '0' && c <= '9' }
	number := func(s string) (string, string) {
		n := 0
		for n < len(s) && digit(s[n]) {
			n++
		}
		return s[:n], s[n:]
	}
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	for i > 0 && digit(a[i-1]) { // the number that differs, whole
		i--
	}
	a, b = a[i:], b[i:]
	if a != "" && b != "" && digit(a[0]) && digit(b[0]) {
		x, restA := number(a)
		y, restB := number(b)
		tx, ty := strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		if len(tx) != len(ty) {
			return len(tx) - len(ty)
		}
		if c := strings.Compare(tx, ty); c != 0 {
			return c
		}
		if len(x) != len(y) {
			return len(x) - len(y)
		}
		a, b = restA, restB
	}
	return strings.Compare(a, b)
}
