package redact

import (
	"bytes"
	"sort"
)

const (
	maxKeyText  = 16 << 10 // bytes of text that a key found by form may take
	maxAttached = 8        // bytes of a prefix that are digits of base64 too, as a diff's + is
	maxVariants = 1 << 20  // bytes of text that the keys of a piece are compared in
)

// FindKeys compares private keys that Find found in a piece by their form with the given
// secrets. It reads them without what is before and after each of their lines: the prefix
// of a log, a diff or a trace, colour codes. A hit lies where the key begins.
func (k *Known) FindKeys(p Piece, byForm []Hit) []Hit {
	var keys []Hit
	for _, h := range byForm {
		if h.Rule == rulePrivateKey || h.Rule == ruleSSH {
			keys = append(keys, h)
		}
	}
	var text []byte
	var begin []int // where in text the variants of a key begin
	for i, h := range keys {
		end := min(len(p.Data), h.From+maxKeyText)
		if i+1 < len(keys) {
			end = min(end, keys[i+1].From)
		}
		runs := digitsOfLines(p.Data[bytes.LastIndexByte(p.Data[:h.From], '\n')+1 : end])
		begin = append(begin, len(text))
		for skip := 0; skip < maxAttached && len(text) < maxVariants; skip++ {
			for _, run := range runs {
				text = append(append(text, run[skip:]...), '\n')
			}
			text = append(text, '.', '\n')
		}
	}
	hits := k.Find(Piece{Data: text})
	for i, own := range hits {
		key := keys[sort.SearchInts(begin, own.From+1)-1]
		hits[i].From, hits[i].To = key.From, key.To
	}
	return hits
}

// digitsOfLines returns the longest run of base64 of each line.
func digitsOfLines(text []byte) (runs [][]byte) {
	for line := range bytes.Lines(text) {
		var longest []byte
		for from := 0; from < len(line); {
			to := from
			for to < len(line) && isKeyByte(line[to]) {
				to++
			}
			if to-from >= len(longest) {
				longest = line[from:to]
			}
			from = to + 1
		}
		if len(longest) >= minSextets {
			runs = append(runs, longest)
		}
	}
	return runs
}
