package live

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure/azuretest"
)

// What a report says of a check and of a claim.
const (
	asExpected = "as expected"
	differs    = "differs"
	NotReached = "not reached"
)

func (t *trial) result() string {
	switch {
	case len(t.wrong) > 0:
		return differs
	case t.ended:
		return asExpected
	}
	return NotReached
}

// answer is what the trial says of a claim.
func (t *trial) answer(c azuretest.Claim) string {
	switch {
	case slices.ContainsFunc(t.wrong, func(f finding) bool { return f.claim == c }):
		return differs
	case t.reached[c]:
		return asExpected
	}
	return NotReached
}

// report is the page of a run: each check, each claim that checks make statements about, and
// every difference with both answers. Trials of one check follow one another, in the same
// order of kinds.
func report(title string, trials []*trial) string {
	var b strings.Builder
	var kinds []string
	for _, t := range trials {
		if !slices.Contains(kinds, t.kind) {
			kinds = append(kinds, t.kind)
		}
	}
	row := func(cells ...string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	of := func(checks []*trial, say func(*trial) string) (cells []string) {
		for _, t := range checks {
			cells = append(cells, say(t))
		}
		return cells
	}
	fmt.Fprintf(&b, "# %s\n\n", title)
	row(append([]string{"check"}, kinds...)...)
	fmt.Fprintln(&b, "|---"+strings.Repeat("|---", len(kinds))+"|")
	for all := range slices.Chunk(trials, len(kinds)) {
		row(append([]string{all[0].check.Name}, of(all, (*trial).result)...)...)
	}
	fmt.Fprintln(&b)
	row(append([]string{"claim of not-yet-met.md", "check"}, kinds...)...)
	fmt.Fprintln(&b, "|---|---"+strings.Repeat("|---", len(kinds))+"|")
	for all := range slices.Chunk(trials, len(kinds)) {
		for _, claim := range all[0].check.Claims {
			row(append([]string{string(claim), all[0].check.Name}, of(all, func(t *trial) string { return t.answer(claim) })...)...)
		}
	}
	b.WriteString("\n## Differences\n\n")
	none := true
	for _, t := range trials {
		for _, f := range t.wrong {
			none = false
			fmt.Fprintf(&b, "- %s, %s", t.check.Name, t.kind)
			if f.claim != "" {
				fmt.Fprintf(&b, " (%s)", f.claim)
			}
			fmt.Fprintf(&b, ": answered %s\n", strings.Join(strings.Fields(f.text), " "))
		}
	}
	if none {
		b.WriteString("None.\n")
	}
	return b.String()
}

// writable is an error where the report cannot be written after all that a run costs.
func (s *session) writable() error {
	err := os.MkdirAll(s.folder, 0o755)
	if err == nil {
		var f *os.File
		if f, err = os.CreateTemp(s.folder, ".writable-"); err == nil {
			err = errors.Join(f.Close(), os.Remove(f.Name()))
		}
	}
	if err != nil {
		return fmt.Errorf("cannot write the report: %w; choose another folder by LIVE_OUT", err)
	}
	return nil
}

// publish writes both files, and returns the exit code that the trials deserve.
func (s *session) publish(version string, begin time.Time, trials []*trial) int {
	title := fmt.Sprintf("LIVE=%s in %s, %s to %s, ortet %s", s.what, s.region, begin.UTC().Format(time.RFC3339),
		s.now().UTC().Format("15:04"), cmp.Or(version, "dev"))
	rec := recording{Source: "ortet make live", Name: s.what, Interactions: s.recorder.interactions()}
	c := newScrubber(s)
	page, text, err := c.scrubbed(report(title, trials), rec)
	if err == nil {
		err = errors.Join(os.MkdirAll(s.folder, 0o755), os.WriteFile(filepath.Join(s.folder, s.what+".md"), []byte(page), 0o644),
			os.WriteFile(filepath.Join(s.folder, s.what+".json"), text, 0o644))
	}
	if err != nil {
		s.say("cannot write the report: %v", err)
		return ExitFailed
	}
	s.say("report and recording (%d requests): %s", len(rec.Interactions), s.folder)
	if rest := c.rest(page + string(text)); len(rest) > 0 {
		s.say("what became %s elsewhere is still in them, within other words: look for it before you publish them",
			strings.Join(rest, ", "))
	}
	code := ExitDone
	for _, t := range trials {
		switch t.result() {
		case differs:
			return ExitDiffers
		case NotReached:
			if s.check == "" || s.check == t.check.Name {
				code = ExitFailed
			}
		}
	}
	return code
}

// scrubbed is the report and the recording as they are published. Names that an answer gives
// away are in exchanges before it too: the first pass learns them.
func (c *scrubber) scrubbed(page string, rec recording) (string, []byte, error) {
	all := slices.Clone(rec.Interactions)
	for range 2 {
		for n, i := range rec.Interactions {
			all[n] = c.interaction(i)
		}
		_ = c.text(page)
		c.compile()
	}
	rec.Interactions = all
	text, err := json.MarshalIndent(rec, "", " ")
	return c.secrets(c.text(page)), append(text, '\n'), err
}
