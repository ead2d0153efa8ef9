package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxErrors is how many mistakes are told at once.
const maxErrors = 20

// Parse reads a scenario's text. It is strict: whatever it does not know, that
// is out of bounds, or that is said twice, is an error that names the line, the
// column (from 1, in bytes) of the word and what is allowed; up to 20 of them
// are told at once. What it accepts prints to a text that parses to the same.
func Parse(text string) (Scenario, error) {
	if len(text) > MaxText {
		return Scenario{}, fmt.Errorf("read a scenario: it has %d bytes, want at most %d", len(text), MaxText)
	}
	if !utf8.ValidString(text) {
		return Scenario{}, errors.New("read a scenario: it is not UTF-8")
	}
	p := parser{s: Default(), once: map[string]int{}, happenings: happenings()}
	p.s.Asks = nil
	for i, line := range strings.Split(text, "\n") {
		p.number = i + 1
		p.line(strings.TrimSuffix(line, "\r"))
		if len(p.errs) >= maxErrors {
			break
		}
	}
	p.end()
	if len(p.errs) > 0 {
		return Scenario{}, fmt.Errorf("read a scenario: %w", errors.Join(p.errs...))
	}
	if n := len(p.s.String()); n > MaxText {
		return Scenario{}, fmt.Errorf("read a scenario: printed, it would have %d bytes, want at most %d", n, MaxText)
	}
	return p.s, nil
}

type parser struct {
	s          Scenario
	number     int // of the line, from 1
	errs       []error
	once       map[string]int // what may be there once, and the line where it is
	begun      bool           // the comment at the top is over
	happenings []happening
	at         []int // the lines of s.Events
	expected   []int // the lines of s.Expect
}

// A word is one of a line. A quoted one has its quotes taken off.
type word struct {
	text   string
	column int // from 1
	quoted bool
}

func (p *parser) fail(column int, format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf("line %d, column %d: %w", p.number, column, fmt.Errorf(format, args...)))
}

// kinds of lines, for people.
const lines = "seed, pool, donor, capture, rollback, wait, chance, at, expect, or # and a comment"

func (p *parser) line(line string) {
	if i := strings.IndexFunc(line, func(r rune) bool { return r != '\t' && !strconv.IsPrint(r) }); i >= 0 {
		p.fail(i+1, "a character that cannot be shown: want text")
		return
	}
	if comment, ok := strings.CutPrefix(strings.TrimLeft(line, " \t"), "#"); ok {
		p.comment(comment)
		return
	}
	all, ok := p.split(line)
	if !ok || len(all) == 0 {
		return
	}
	p.begun = true
	first, rest := all[0], all[1:]
	switch first.text {
	case "pool", "donor", "chance", "seed":
		if before, twice := p.once[first.text]; twice {
			p.fail(first.column, "%s is said twice, first in line %d", first.text, before)
			return
		}
		p.once[first.text] = p.number
	}
	switch first.text {
	case "seed":
		p.seed(first, rest)
	case "pool":
		assignAll(p, first, rest, &p.s.Pool, poolSettings())
	case "donor":
		assignAll(p, first, rest, &p.s.Donor, donorSettings())
	case "chance":
		if c := &p.s.Chance; assignAll(p, first, rest, c, chanceSettings()) && c.Rate+c.Death+c.World > million {
			p.fail(first.column, "rate, death and world are more than a million together")
		}
	case Capture, Rollback, Wait:
		p.ask(first, rest)
	case "at":
		p.event(first, rest)
	case "expect":
		p.expect(first, rest)
	default:
		p.fail(first.column, "%q begins no line: want %s", first.text, lines)
	}
}

// comment keeps those at the top; others are read over.
func (p *parser) comment(comment string) {
	if p.begun {
		return
	}
	if len(p.s.Comment) == maxComment {
		p.fail(1, "more than %d lines of comment", maxComment)
		return
	}
	p.s.Comment = append(p.s.Comment, strings.TrimRight(strings.TrimPrefix(comment, " "), " \t"))
}

// split cuts a line into words. A word, or what follows its first "=", may be a
// string in quotes, as Go writes it.
func (p *parser) split(line string) ([]word, bool) {
	var all []word
	for i := 0; i < len(line); {
		if line[i] == ' ' || line[i] == '\t' {
			i++
			continue
		}
		w := word{column: i + 1, quoted: line[i] == '"'}
		plain := len(line)
		if n := strings.IndexAny(line[i:], " \t\""); n >= 0 {
			plain = i + n
		}
		w.text, i = line[i:plain], plain
		if i < len(line) && line[i] == '"' {
			if !w.quoted && strings.IndexByte(w.text, '=') != len(w.text)-1 {
				p.fail(i+1, "a quote within a word: want it in front, or after key=")
				return nil, false
			}
			raw, err := strconv.QuotedPrefix(line[i:])
			if err != nil {
				p.fail(i+1, "a string without an end, or that is not written as Go does")
				return nil, false
			}
			value, err := strconv.Unquote(raw)
			if err != nil {
				p.fail(i+1, "%s is not a string as Go writes it", raw)
				return nil, false
			}
			w.text += value
			i += len(raw)
			if i < len(line) && line[i] != ' ' && line[i] != '\t' {
				p.fail(i+1, "want a blank after a string")
				return nil, false
			}
		}
		all = append(all, w)
	}
	return all, true
}

// assignAll reads a line of settings; it reports whether all could be read.
func assignAll[T any](p *parser, first word, rest []word, at *T, settings []setting[T]) bool {
	good, given := true, map[string]bool{}
	for _, w := range rest {
		var err error
		if w.quoted {
			err = fmt.Errorf("%q is in quotes: want key=value, of %s", w.text, keys(settings))
		} else {
			err = assign(at, settings, first.text, w.text, given)
		}
		if err != nil {
			p.fail(w.column, "%w", err)
			good = false
		}
	}
	for _, s := range settings {
		if s.must && !given[s.key] && good {
			p.fail(first.column, "%s without %s: want %s=%s", first.text, s.key, s.key, s.allowed)
			good = false
		}
	}
	return good
}

func (p *parser) seed(first word, rest []word) {
	if len(rest) == 1 && !rest[0].quoted {
		n, err := strconv.ParseUint(rest[0].text, 10, 64)
		if err == nil {
			p.s.Seed = n
			return
		}
	}
	p.fail(first.column, "want seed and one whole number from 0 to 18446744073709551615")
}

func (p *parser) ask(first word, rest []word) {
	if len(p.s.Asks) == MaxAsks {
		p.fail(first.column, "more than %d asks", MaxAsks)
		return
	}
	a := newAsk(first.text)
	if a.Verb == Wait {
		if len(rest) != 1 || rest[0].quoted {
			p.fail(first.column, "want wait and one duration, as 24h")
			return
		}
		d, err := spanOf(rest[0].text, minWait, maxWait)
		if err != nil {
			p.fail(rest[0].column, "%w", err)
			return
		}
		a.For = d
	} else if !assignAll(p, first, rest, &a, settingsOf(a.Verb)) {
		return
	}
	p.s.Asks = append(p.s.Asks, a)
}

// event reads: at SIDE "REQUEST" COUNT WHAT ARGS…
func (p *parser) event(first word, rest []word) {
	if len(p.s.Events) == MaxEvents {
		p.fail(first.column, "more than %d happenings", MaxEvents)
		return
	}
	if len(rest) < 4 {
		p.fail(first.column, `want at %s or %s, "REQUEST", which one of them from 1, what happens, and its arguments`, Azure, Kube)
		return
	}
	side, request, count, what := rest[0], rest[1], rest[2], rest[3]
	if side.text != Azure && side.text != Kube {
		p.fail(side.column, "%q is no side: want %s or %s", side.text, Azure, Kube)
		return
	}
	if err := checkRequest(request.text); err != nil {
		p.fail(request.column, "%w", err)
		return
	}
	n, err := whole(count.text, 1, maxCount)
	if err != nil {
		p.fail(count.column, "which of the requests, %q: %w", count.text, err)
		return
	}
	h, ok := named(p.happenings, What(what.text))
	if !ok {
		var all []string
		for _, h := range p.happenings {
			all = append(all, string(h.what))
		}
		p.fail(what.column, "%q does not happen: want one of %s", what.text, strings.Join(all, ", "))
		return
	}
	if err := h.fits(side.text, request.text); err != nil {
		p.fail(what.column, "%w", err)
		return
	}
	var args []string
	for _, w := range rest[4:] {
		args = append(args, w.text)
	}
	args, err = h.checked(args)
	if err != nil {
		p.fail(what.column, "%w", err)
		return
	}
	e := Event{Side: side.text, Request: request.text, Count: n, What: h.what, Args: args}
	if p.twice(first, e.String()) || p.contradicts(first, h, e) {
		return
	}
	p.s.Events = append(p.s.Events, e)
	p.at = append(p.at, p.number)
}

// twice fails where the same line was there before.
func (p *parser) twice(first word, line string) bool {
	if before, twice := p.once[line]; twice {
		p.fail(first.column, "the same as line %d", before)
		return true
	}
	p.once[line] = p.number
	return false
}

// contradicts fails where a request meets two faults, or the process ends twice.
// What others do may be any number of things.
func (p *parser) contradicts(first word, h happening, e Event) bool {
	if h.kind == world {
		return false
	}
	for i, o := range p.s.Events {
		if o.Side != e.Side || o.Request != e.Request || o.Count != e.Count {
			continue
		}
		if before, ok := named(p.happenings, o.What); ok && before.kind == h.kind {
			p.fail(first.column, "%s cannot be where %s is, in line %d", e.What, o.What, p.at[i])
			return true
		}
	}
	return false
}

func (p *parser) expect(first word, rest []word) {
	if len(p.s.Expect) == maxExpectations {
		p.fail(first.column, "more than %d expectations", maxExpectations)
		return
	}
	e := Expectation{Ask: lastAsk}
	if assignAll(p, first, rest, &e, expectSettings()) {
		p.s.Expect = append(p.s.Expect, e)
		p.expected = append(p.expected, p.number)
	}
}

// end checks what only the whole shows.
func (p *parser) end() {
	if len(p.errs) > 0 {
		return
	}
	if len(p.s.Asks) == 0 {
		p.fail(1, "nothing is asked: want a line that begins with %s, %s or %s", Capture, Rollback, Wait)
		return
	}
	last := len(p.s.Asks) - 1
	for i := range p.s.Expect {
		e := &p.s.Expect[i]
		p.number = p.expected[i]
		if e.Ask == lastAsk {
			e.Ask = last
		}
		switch {
		case e.Ask > last:
			p.fail(1, "ask=%d: there are asks 0 to %d", e.Ask, last)
		case p.s.Asks[e.Ask].Verb == Wait:
			p.fail(1, "ask=%d is a wait, which has no exit code", e.Ask)
		default:
			if j := slices.Index(p.s.Expect[:i], *e); j >= 0 {
				p.fail(1, "the same as line %d", p.expected[j])
			}
		}
	}
}
