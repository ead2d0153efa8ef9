package watch

import (
	"testing"
	"time"
)

// Whoever may tag versions writes the tag of a watch.
func TestParseBegin(t *testing.T) {
	const begin = "2026-11-27T10:00:00Z"
	since, within, nodes, err := parseBegin(begin + " 30m0s 3")
	if err != nil || !since.Equal(time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)) || within != 30*time.Minute || nodes != 3 {
		t.Errorf("%s, %s, %d, %v", since, within, nodes, err)
	}
	for _, value := range []string{
		"", begin, begin + " 30m0s", begin + " 30m0s 3 delete", "today 30m0s 3", begin + " soon 3", begin + " 30m0s many",
		begin + " 59s 3", begin + " 169h 3", begin + " -30m 3", begin + " 30m0s 0", begin + " 30m0s -1", begin + " 30m0s 1001",
	} {
		if _, _, _, err := parseBegin(value); err == nil {
			t.Errorf("%q is accepted", value)
		}
	}
}
