package scenario

import (
	"slices"
	"strconv"
	"strings"
)

// String gives the scenario's text, as Parse reads it: the shortest one, in one
// order, so that two scenarios are the same where their texts are.
func (s Scenario) String() string {
	var b strings.Builder
	line := func(words ...string) {
		b.WriteString(strings.Join(words, " "))
		b.WriteByte('\n')
	}
	for _, c := range s.Comment {
		for _, c := range strings.Split(c, "\n") {
			line(strings.TrimRight("# "+c, " \t\r"))
		}
	}
	line("seed", strconv.FormatUint(s.Seed, 10))
	settings := func(first string, words []string) {
		if len(words) > 0 {
			line(slices.Insert(words, 0, first)...)
		}
	}
	settings("pool", words(&s.Pool, poolSettings()))
	settings("donor", words(&s.Donor, donorSettings()))
	for _, a := range s.Asks {
		line(a.String())
	}
	settings("chance", words(&s.Chance, chanceSettings()))
	for _, e := range s.Events {
		line(e.String())
	}
	for _, e := range s.Expect {
		if e.Ask == len(s.Asks)-1 {
			e.Ask = lastAsk
		}
		line(slices.Insert(words(&e, expectSettings()), 0, "expect")...)
	}
	return b.String()
}

// String gives the line of an ask.
func (a Ask) String() string {
	if a.Verb == Wait {
		return Wait + " " + span(a.For)
	}
	return strings.Join(slices.Insert(words(&a, settingsOf(a.Verb)), 0, a.Verb), " ")
}

// String gives the line of a happening.
func (e Event) String() string {
	all := []string{"at", e.Side, strconv.Quote(e.Request), strconv.Itoa(e.Count), string(e.What)}
	for _, a := range e.Args {
		all = append(all, quoted(a))
	}
	return strings.Join(all, " ")
}
