package boot

import (
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/boots/timeline/source"
)

// selects reports whether journalctl prints an entry for these matches: those of one field are
// alternatives, as are the groups between "+".
func selects(matches []string, entry map[string]string) bool {
	for group := range strings.SplitSeq(strings.Join(matches, "\n"), "\n+\n") {
		found := map[string]bool{}
		for match := range strings.SplitSeq(group, "\n") {
			field, value, _ := strings.Cut(match, "=")
			found[field] = found[field] || entry[field] == value
		}
		all := true
		for _, ok := range found {
			all = all && ok
		}
		if all {
			return true
		}
	}
	return false
}

// A node's report has the steps of ortet-boot by what is asked of its journal, and no others'.
func TestJournalHasTheStepsOfOrtetBoot(t *testing.T) {
	spans := func(unit, identifier string) (names []string) {
		entry := map[string]string{"_BOOT_ID": strings.Repeat("1", 32), "_SYSTEMD_UNIT": unit, "SYSLOG_IDENTIFIER": identifier,
			"MESSAGE": "ortet-boot: installing packages"}
		text := "__REALTIME_TIMESTAMP=1700000000000000\n__MONOTONIC_TIMESTAMP=1000000\n"
		for field, value := range entry {
			if slices.Contains(strings.Split(journalFields(), ","), field) {
				text += field + "=" + value + "\n"
			}
		}
		if !selects(journalSpeakers(), entry) {
			text = ""
		}
		for _, s := range source.Journal(strings.NewReader(text+"\n"), source.Options{})[0].Spans {
			names = append(names, s.Name)
		}
		return names
	}
	if got := spans("ortet-boot.service", "python3"); !slices.Equal(got, []string{"installing packages"}) {
		t.Errorf("steps of ortet-boot.service: %q", got)
	}
	for _, forged := range [][2]string{{"session-1.scope", "cloud-init"}, {"session-1.scope", "python3"}, {"ortet-share.service", "python3"}} {
		if got := spans(forged[0], forged[1]); len(got) > 0 {
			t.Errorf("%s of %s has steps %q", forged[1], forged[0], got)
		}
	}
}
