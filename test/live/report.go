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
	"github.com/ortet/ortet/internal/fleet"
)

// What a report says of a check and of a claim.
const (
	asExpected = "as expected"
	differs    = "differs"
	notReached = "not reached"
)

func (t *trial) result() string {
	switch {
	case len(t.wrong) > 0:
		return differs
	case t.ended:
		return asExpected
	}
	return notReached
}

// answer is what the trial says of a claim.
func (t *trial) answer(c azuretest.Claim) string {
	switch {
	case slices.ContainsFunc(t.wrong, func(f finding) bool { return f.claim == c }):
		return differs
	case t.reached[c]:
		return asExpected
	}
	return notReached
}

// report is the page of a run: each check, each claim that checks make statements about, and
// every difference with both answers.
func report(title string, trials []*trial) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n| check | Uniform | Flexible |\n|---|---|---|\n", title)
	of := func(check, kind string) *trial {
		return trials[slices.IndexFunc(trials, func(t *trial) bool { return t.check.Name == check && t.kind == kind })]
	}
	for _, c := range azuretest.Checks() {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", c.Name, of(c.Name, fleet.Uniform).result(), of(c.Name, fleet.Flexible).result())
	}
	b.WriteString("\n| claim of not-yet-met.md | check | Uniform | Flexible |\n|---|---|---|---|\n")
	for _, c := range azuretest.Checks() {
		for _, claim := range c.Claims {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", claim, c.Name, of(c.Name, fleet.Uniform).answer(claim), of(c.Name,
				fleet.Flexible).answer(claim))
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

// publish writes both files, and returns the exit code that the trials deserve.
func (s *session) publish(version string, begin time.Time, trials []*trial) int {
	title := fmt.Sprintf("LIVE=%s in %s, %s to %s, ortet %s", s.what, s.region, begin.UTC().Format(time.RFC3339),
		s.now().UTC().Format("15:04"), cmp.Or(version, "dev"))
	rec := recording{Source: "ortet make live", Name: s.what, Interactions: s.recorder.interactions()}
	page, text, err := s.scrubbed(report(title, trials), rec)
	if err == nil {
		err = errors.Join(os.MkdirAll(s.folder, 0o755), os.WriteFile(filepath.Join(s.folder, "report.md"), []byte(page), 0o644),
			os.WriteFile(filepath.Join(s.folder, s.what+".json"), text, 0o644))
	}
	if err != nil {
		s.say("cannot write the report: %v", err)
		return ExitFailed
	}
	s.say("report and recording (%d requests): %s", len(rec.Interactions), s.folder)
	code := ExitDone
	for _, t := range trials {
		switch t.result() {
		case differs:
			return ExitDiffers
		case notReached:
			if s.check == "" || s.check == t.check.Name {
				code = ExitFailed
			}
		}
	}
	return code
}

// scrubbed is the report and the recording as they are published.
func (s *session) scrubbed(page string, rec recording) (string, []byte, error) {
	c := newScrubber(s.name, s.owner, s.who)
	rec.Interactions = slices.Clone(rec.Interactions)
	for n, i := range rec.Interactions {
		rec.Interactions[n] = c.interaction(i)
	}
	text, err := json.MarshalIndent(rec, "", " ")
	if err != nil {
		return "", nil, err
	}
	page = c.secrets(c.text(page))
	return page, append(text, '\n'), errors.Join(c.left("report", page), c.left("recording", string(text)))
}
