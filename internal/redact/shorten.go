package redact

import (
	"strconv"
	"strings"
)

const (
	// leastRandom is how long a word must be to be shortened where nothing names it.
	leastRandom = 20
	// shown is how much of it stays, so that whoever has it knows which it is.
	shown = 4
)

// shorten cuts words that look random to their first bytes: q7Rw…[redacted 20 of 24].
// What is long and no secret stays: paths, names, digests, identifiers, versions.
func shorten(s string) string {
	var b strings.Builder
	done := 0
	for i := 0; i < len(s); {
		if !isRandomByte(s[i]) {
			i++
			continue
		}
		from := i
		for i < len(s) && isRandomByte(s[i]) {
			i++
		}
		for i < len(s) && s[i] == '=' && i-from >= leastRandom {
			i++
		}
		if i-from < leastRandom || !looksRandom(s, from, i) {
			continue
		}
		b.WriteString(s[done : from+shown])
		b.WriteString("…[redacted " + strconv.Itoa(i-from-shown) + " of " + strconv.Itoa(i-from) + "]")
		done = i
	}
	if done == 0 {
		return s
	}
	b.WriteString(s[done:])
	return b.String()
}

func isRandomByte(c byte) bool {
	return isAlnum(c) || c == '+' || c == '/' || c == '_' || c == '-' || c == '~' || c == '!' || c == '#' || c == '^' || c == '*'
}

// looksRandom says whether a word is one that nobody made up: within it, kinds of
// letters change as they do by chance. Digests and identifiers are hexadecimal, names
// have words of one kind.
func looksRandom(s string, from, to int) bool {
	before := s[:from]
	if strings.HasSuffix(before, "SHA256:") || strings.HasSuffix(before, "MD5:") || strings.HasSuffix(before, "sha256:") || isAddress(s, from, to) {
		return false
	}
	for _, sign := range [...]string{"sha256-", "sha384-", "sha512-"} { // integrity of a file
		if strings.HasPrefix(s[from:to], sign) {
			return false
		}
	}
	// Parts that are names on their own are no part of what is random.
	best := 0
	for at := from; at < to; {
		end := at
		for end < to && isAlnum(s[end]) || end < to && s[end] != '/' && s[end] != '-' && s[end] != '_' {
			end++
		}
		best = max(best, end-at)
		at = end + 1
	}
	word := s[from:to]
	upper, lower, digit, changes, last := classes(word)
	n := upper + lower + digit
	switch {
	case n < leastRandom*3/4 || upper+lower == 0:
		return false
	case upper > 0 && lower > 0:
		// Of base64, two of three neighbours are of different kinds; of names with
		// capitals within, one of four. One random word of twelve has a digit at most:
		// that is known by its many capitals, and a small letter between two of them.
		mixed := digit > 1 && changes*5 >= last*2 || upper*3 >= n && lower*4 >= n && changes*3 >= last && hasLoneSmall(word)
		return best >= 8 && mixed && !isCamel(word)
	case digit == 0 || best < leastRandom || isHex(word) || strings.ContainsAny(word, "/"):
		return false
	case to < len(s) && s[to] == '.' || from > 0 && s[from-1] == '.': // a host's name
		return false
	}
	return changes*4 >= last && digit*8 >= n
}

func isCapital(c byte) bool { return c >= 'A' && c <= 'Z' }

func hasLoneSmall(word string) bool {
	for i := 1; i+1 < len(word); i++ {
		if isCapital(word[i-1]) && word[i] >= 'a' && word[i] <= 'z' && isCapital(word[i+1]) {
			return true
		}
	}
	return false
}

// classes counts a word's letters and digits, and how often their kind changes among
// how many neighbours.
func classes(word string) (upper, lower, digit, changes, pairs int) {
	before := byte(0)
	for i := 0; i < len(word); i++ {
		class := byte(0)
		switch c := word[i]; {
		case c >= 'A' && c <= 'Z':
			upper++
			class = 1
		case c >= 'a' && c <= 'z':
			lower++
			class = 2
		case c >= '0' && c <= '9':
			digit++
			class = 3
		}
		if class != 0 && before != 0 {
			pairs++
			if class != before {
				changes++
			}
		}
		before = class
	}
	return upper, lower, digit, changes, pairs
}
