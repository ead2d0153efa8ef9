package boot

import (
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/boots/timeline/source"
	"github.com/ortet/ortet/internal/wire"
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

// Boots before this one are counted in the forms that journalctl has printed since systemd 247. A machine
// that first booted days ago did not restart for what is done to it once.
func TestBootsBeforeThisOne(t *testing.T) {
	this, other, third := strings.Repeat("1", 32), strings.Repeat("2", 32), strings.Repeat("3", 32)
	line := func(id, first string) string {
		return " 0 " + id + " Mon " + first + " UTC—Mon 2026-11-30 08:12:00 UTC\n"
	}
	now := line(this, "2026-11-30 06:09:55")
	for name, c := range map[string]struct{ list, want string }{
		"older systemd": {line(other, "2026-11-30 05:59:21") + now, wire.EarlierBoots(1, 634e6)},
		"since 254": {"IDX BOOT ID                          FIRST ENTRY                 LAST ENTRY\n" + strings.ReplaceAll(
			line(other, "2026-11-30 05:59:21")+line(third, "2026-11-30 06:00:21")+now, "—", " "), wire.EarlierBoots(2, 634e6)},
		"first boot":       {now, ""},
		"days ago":         {line(other, "2026-11-27 05:59:21") + now, ""},
		"clock set back":   {line(other, "2026-11-30 07:59:21") + now, ""},
		"without this one": {line(other, "2026-11-30 05:59:21"), ""},
		"nothing":          {"", ""},
	} {
		if got := bootsBefore(c.list, "11111111-1111-1111-1111-111111111111"); got.Detail != c.want {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
	}
}
