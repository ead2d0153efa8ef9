package scenario

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A setting is one key=value of a kind of line. Parsing, printing, shrinking and
// the documentation all go by it, so that they cannot drift.
type setting[T any] struct {
	key     string // the field's name in lower case
	def     string // as it is printed; "" where it has to be given
	allowed string // for people
	does    string // for people
	flag    bool   // "key" is short for "key=true"
	must    bool   // it has no default: it has to be given, and is always printed
	set     func(*T, string) error
	get     func(*T) string
	// simpler gives values between the default and this one, simplest first.
	simpler func(value string) []string
}

// reset gives every setting its default.
func reset[T any](at *T, settings []setting[T]) {
	for _, s := range settings {
		if !s.must {
			_ = s.set(at, s.def) // defaults are valid, which a test checks
		}
	}
}

// words gives the settings that are not at their default, as they are printed.
func words[T any](at *T, settings []setting[T]) []string {
	var out []string
	for _, s := range settings {
		switch v := s.get(at); {
		case v == s.def && !s.must:
		case s.flag && v == "true":
			out = append(out, s.key)
		default:
			out = append(out, s.key+"="+quoted(v))
		}
	}
	return out
}

// assign reads one word of a line that has these settings.
func assign[T any](at *T, settings []setting[T], line, word string, given map[string]bool) error {
	key, value, assigned := strings.Cut(word, "=")
	i := slices.IndexFunc(settings, func(s setting[T]) bool { return s.key == key })
	if i < 0 {
		return fmt.Errorf("%q is not a setting of %s: want %s", key, line, keys(settings))
	}
	s := settings[i]
	if given[key] {
		return fmt.Errorf("%s is given twice", key)
	}
	given[key] = true
	if !assigned {
		if !s.flag {
			return fmt.Errorf("%s has no value: want %s=%s", key, key, s.allowed)
		}
		value = "true"
	}
	if err := s.set(at, value); err != nil {
		return fmt.Errorf("%s=%s: %w", key, value, err)
	}
	return nil
}

func keys[T any](settings []setting[T]) string {
	var all []string
	for _, s := range settings {
		all = append(all, s.key)
	}
	return strings.Join(all, ", ")
}

// quoted gives a value as it is written in a line: in quotes where it would
// otherwise not be one word.
func quoted(v string) string {
	if v == "" || strings.ContainsFunc(v, func(r rune) bool { return r == '"' || r == '\\' || r == ' ' || !strconv.IsPrint(r) }) {
		return strconv.Quote(v)
	}
	return v
}

func number[T any](key string, def, low, high int, at func(*T) *int, does string) setting[T] {
	return setting[T]{
		key: key, def: strconv.Itoa(def), allowed: fmt.Sprintf("%d to %d", low, high), does: does,
		set: func(t *T, v string) error {
			n, err := whole(v, low, high)
			if err == nil {
				*at(t) = n
			}
			return err
		},
		get: func(t *T) string { return strconv.Itoa(*at(t)) },
		simpler: func(v string) []string {
			n, err := strconv.Atoi(v)
			if err != nil {
				return nil
			}
			return between(def, n)
		},
	}
}

// between gives numbers that are nearer to def than n, nearest to def first.
func between(def, n int) []string {
	var out []string
	for part := n - def; part != 0; part /= 2 {
		if near := n - part; near != def && near != n {
			out = append(out, strconv.Itoa(near))
		}
	}
	return out
}

// whole reads a whole number within bounds.
func whole(v string, low, high int) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("want a whole number from %d to %d", low, high)
	}
	return n, nil
}

func onOff[T any](key string, at func(*T) *bool, does string) setting[T] {
	return setting[T]{
		key: key, def: "false", allowed: "true or false", flag: true, does: does,
		set: func(t *T, v string) error {
			if v != "true" && v != "false" {
				return fmt.Errorf("want true or false")
			}
			*at(t) = v == "true"
			return nil
		},
		get: func(t *T) string { return strconv.FormatBool(*at(t)) },
	}
}

// choice is one of some words; the first is the default.
func choice[T any](key string, at func(*T) *string, does string, of ...string) setting[T] {
	return setting[T]{
		key: key, def: of[0], allowed: strings.Join(of, ", "), does: does,
		set: func(t *T, v string) error {
			if !slices.Contains(of, v) {
				return fmt.Errorf("want one of %s", strings.Join(of, ", "))
			}
			*at(t) = v
			return nil
		},
		get: func(t *T) string { return *at(t) },
	}
}

const none = "none"

// list is some words of a few, in an order that matters, or none of them.
func list[T any](key, def string, at func(*T) *[]string, does string, of ...string) setting[T] {
	allowed := "some of " + strings.Join(of, ",") + " in any order, or " + none
	return setting[T]{
		key: key, def: def, allowed: allowed, does: does,
		set: func(t *T, v string) error {
			if v == none {
				*at(t) = nil
				return nil
			}
			all := strings.Split(v, ",")
			for i, w := range all {
				if !slices.Contains(of, w) || slices.Contains(all[:i], w) {
					return fmt.Errorf("want %s", allowed)
				}
			}
			*at(t) = all
			return nil
		},
		get: func(t *T) string {
			if len(*at(t)) == 0 {
				return none
			}
			return strings.Join(*at(t), ",")
		},
		simpler: func(v string) []string {
			out := []string{none}
			all := strings.Split(v, ",")
			for i := range all {
				if rest := slices.Delete(slices.Clone(all), i, i+1); len(rest) > 0 {
					out = append(out, strings.Join(rest, ","))
				}
			}
			return out
		},
	}
}

func duration[T any](key string, def, low, high time.Duration, at func(*T) *time.Duration, does string) setting[T] {
	return setting[T]{
		key: key, def: span(def), allowed: span(low) + " to " + span(high), does: does,
		set: func(t *T, v string) error {
			d, err := spanOf(v, low, high)
			if err == nil {
				*at(t) = d
			}
			return err
		},
		get: func(t *T) string { return span(*at(t)) },
	}
}

// span prints a duration as short as people write it: "24h", not "24h0m0s".
func span(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func spanOf(v string, low, high time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(v)
	if err != nil || d < low || d > high || d%time.Millisecond != 0 {
		return 0, fmt.Errorf("want a duration from %s to %s, as 90s or 1h30m", span(low), span(high))
	}
	return d, nil
}

// words of one's own, of at most so many bytes that check accepts.
func text[T any](key string, most int, allowed string, at func(*T) *string, check func(rune) bool, does string) setting[T] {
	return setting[T]{
		key: key, def: "", allowed: allowed, does: does,
		set: func(t *T, v string) error {
			if len(v) > most || !utf8.ValidString(v) || strings.ContainsFunc(v, func(r rune) bool { return !check(r) }) {
				return fmt.Errorf("want %s, at most %d bytes", allowed, most)
			}
			*at(t) = v
			return nil
		},
		get: func(t *T) string { return *at(t) },
	}
}
