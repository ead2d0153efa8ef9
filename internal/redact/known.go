package redact

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"sync"

	"github.com/ortet/ortet/internal/wire"
)

const (
	minSecret   = 8   // bytes; shorter values are met by chance
	minDistinct = 4   // different bytes of a value; values with fewer are met everywhere
	maxNeedle   = 128 // bytes that are compared of a longer value: its last ones
	maxSecrets  = 10000
)

// Secret is one value of this node's own that may not leave it.
type Secret struct {
	Rule  string // the rule of hits, such as kubelet-client-key
	Class wire.SecretClass
	// Value is a password's or token's text, or a private key: DER in PKCS#8, PKCS#1 or
	// SEC 1, OpenSSH's own form, or PEM of one of them.
	Value []byte
}

// Known finds given secrets. It is safe for concurrent use.
//
// A private key is known by each of its private numbers (scalar, seed, exponents,
// primes), so that it is found in whatever form it was written again, and by no public
// one. Text before and after each line of a key does not matter, where lines have 40
// characters or more; for shorter ones see FindKeys. A value longer than maxNeedle is known
// by its end.
//
// Undone, in any order and up to maxDepth deep: base64 and base64url in lines of any
// length and indentation, from any offset; hexadecimal of both cases, with colons and
// blanks, as \x and 0x; escapes of JSON, YAML, C and shells; URL escapes;
// quoted-printable; character references of XML; UTF-16 and UTF-32 of ASCII; lines broken
// within a value; dumps of xxd, hexdump and od with their columns; gzip and deflated files
// of a zip, maxPacked deep, maxUnpacked of a piece, where they begin in the piece; the same
// of a piece that begins as a zlib stream, such as git's loose objects.
//
// Not undone: encryption (PKCS#12 or PEM with a password), xz, zstd, bzip2, lists of
// decimal numbers, octal dumps, git's packs, little-endian numbers, escapes in a value of
// which less than eight bytes in a row are ASCII.
type Known struct {
	secrets []Secret // without their values
	needles []needle
	// Search of all needles at once, after Wu and Manber: shift says by how much the
	// window may move by the hash of its last four bytes, ends which needles end so.
	window  int
	shift   [1 << hashBits]uint8
	ends    map[uint32][]int
	sextet  [256]uint8 // of base64 and base64url, noValue for other bytes
	nibble  [256]uint8 // of hexadecimal digits, noValue for other bytes
	kind    [256]uint8
	scratch sync.Pool
}

// A needle is a run of bytes that only who has the secret can know.
type needle struct {
	secret int
	bytes  []byte
}

const (
	hashBits  = 14
	maxWindow = 16
	noValue   = 0xff
)

// NewKnown prepares a search for secrets by value in every wrapping that Known lists.
// An error names the rule of a value that is too short or too plain to be searched for.
func NewKnown(secrets []Secret) (*Known, error) {
	if len(secrets) > maxSecrets {
		return nil, fmt.Errorf("prepare search for %d secrets: more than %d", len(secrets), maxSecrets)
	}
	k := &Known{window: maxWindow, ends: map[uint32][]int{}}
	for i, s := range secrets {
		parts := needlesOf(s.Value)
		if len(parts) == 0 {
			return nil, fmt.Errorf("prepare search for %s: want at least %d bytes, %d of them different", s.Rule, minSecret, minDistinct)
		}
		for _, p := range parts {
			k.needles = append(k.needles, needle{i, bytes.Clone(p)})
			k.window = min(k.window, len(p))
		}
		k.secrets = append(k.secrets, Secret{Rule: s.Rule, Class: s.Class})
	}
	k.tables()
	k.scratch.New = func() any { return new(scratch) }
	return k, nil
}

// needlesOf is what a value is known by, or nothing if it is too short or too plain.
func needlesOf(value []byte) [][]byte {
	if numbers := privateNumbers(value); len(numbers) > 0 {
		return numbers
	}
	var all [][]byte
	for block, rest := pem.Decode(value); block != nil; block, rest = pem.Decode(rest) {
		all = append(all, privateNumbers(block.Bytes)...)
	}
	if len(all) > 0 {
		return all
	}
	value = bytes.TrimSpace(value)
	value = value[max(0, len(value)-maxNeedle):]
	var seen [256]bool
	distinct := 0
	for _, b := range value {
		if !seen[b] {
			seen[b] = true
			distinct++
		}
	}
	if len(value) < minSecret || distinct < minDistinct {
		return nil
	}
	return [][]byte{value}
}

func (k *Known) tables() {
	for i := range k.shift {
		k.shift[i] = uint8(k.window - 3)
	}
	// A window's end is a needle's end: what begins tokens is common to many.
	for n, needle := range k.needles {
		tail := needle.bytes[len(needle.bytes)-k.window:]
		for end := 4; end <= k.window; end++ {
			h := hash(tail[end-4:])
			k.shift[h] = min(k.shift[h], uint8(k.window-end))
			if end == k.window {
				k.ends[h] = append(k.ends[h], n)
			}
		}
	}
	for i := range 256 {
		k.sextet[i], k.nibble[i] = noValue, noValue
	}
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	for i := range len(digits) {
		k.sextet[digits[i]] = uint8(i)
	}
	k.sextet['-'], k.sextet['_'] = 62, 63
	for i := range 16 {
		k.nibble["0123456789abcdef"[i]], k.nibble["0123456789ABCDEF"[i]] = uint8(i), uint8(i)
	}
	for i := range 256 {
		if i >= ' ' && i < 0x7f || i == '\n' || i == '\r' || i == '\t' {
			k.kind[i] |= isText
		}
		if k.nibble[i] != noValue || bytes.IndexByte([]byte(" \t:,-\\xX"), byte(i)) >= 0 {
			k.kind[i] |= isHexByte
		}
		if bytes.IndexByte([]byte(`\%=&`), byte(i)) >= 0 {
			k.kind[i] |= isSign
		}
	}
}

// Kinds of bytes.
const (
	isText    = 1 << iota // of a line of ASCII
	isHexByte             // a hexadecimal digit, or between such
	isSign                // what an escape begins with
)

// hash is of the first four bytes.
func hash(b []byte) uint32 {
	_ = b[3]
	return (uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24) * 0x9e3779b1 >> (32 - hashBits)
}

// Find returns where the values lie, whatever the piece is, in the order of From, at most
// one hit per secret. Where a value is packed, the hit is all that it is packed in. It
// undoes at most maxWork bytes of a piece, which only text that is made for it exceeds.
func (k *Known) Find(p Piece) []Hit {
	hits, _ := k.find(p)
	return hits
}

func (k *Known) find(p Piece) (hits []Hit, work int) {
	if len(k.needles) == 0 || len(p.Data) < k.window {
		return nil, 0
	}
	b := k.scratch.Get().(*scratch)
	s := search{k: k, scratch: b, found: make([]bool, len(k.secrets)), left: len(k.secrets), orders: minOrders + maxOrders*len(p.Data)}
	s.scan(view{data: p.Data, escapes: allEscapes, span: func(from, to int) (int, int) {
		to = min(to, len(p.Data)) // what was added between runs may end a view
		return min(from, to-1), to
	}})
	k.scratch.Put(b)
	return s.hits, s.work
}

// needlesIn calls hit with each needle that lies in data and where it ends.
func (k *Known) needlesIn(data []byte, hit func(needle, end int)) {
	for end := k.window; end <= len(data); {
		b := data[end-4 : end : end]
		h := (uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24) * 0x9e3779b1 >> (32 - hashBits) // hash, in line
		if skip := k.shift[h]; skip > 0 {
			end += int(skip)
			continue
		}
		for _, n := range k.ends[h] {
			if bytes.HasSuffix(data[:end], k.needles[n].bytes) {
				hit(n, end)
			}
		}
		end++
	}
}
