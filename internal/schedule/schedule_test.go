package schedule

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the machine of a test may have none
)

// at reads a time with its offset, "2026-03-28 23:30 +01:00".
func at(t *testing.T, s string) time.Time {
	t.Helper()
	got, err := time.Parse("2006-01-02 15:04 -07:00", s)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestWindows(t *testing.T) {
	const saturday = "0 1 * * 6"
	for name, c := range map[string]struct {
		schedule  string
		duration  time.Duration
		zone, now string
		until     string // "" is closed
		next      string
	}{
		"before it opens":         {saturday, 5 * time.Hour, "", "2026-11-28 00:59 +00:00", "", "2026-11-28 01:00 +00:00"},
		"as it opens":             {saturday, 5 * time.Hour, "", "2026-11-28 01:00 +00:00", "2026-11-28 06:00 +00:00", "2026-12-05 01:00 +00:00"},
		"in its last minute":      {saturday, 5 * time.Hour, "", "2026-11-28 05:59 +00:00", "2026-11-28 06:00 +00:00", "2026-12-05 01:00 +00:00"},
		"as it closes":            {saturday, 5 * time.Hour, "", "2026-11-28 06:00 +00:00", "", "2026-12-05 01:00 +00:00"},
		"its zone":                {saturday, 5 * time.Hour, "Asia/Tokyo", "2026-11-27 16:30 +00:00", "2026-11-28 06:00 +09:00", "2026-12-05 01:00 +09:00"},
		"asked in another zone":   {saturday, 5 * time.Hour, "Europe/Berlin", "2026-11-27 19:30 -05:00", "2026-11-28 06:00 +01:00", "2026-12-05 01:00 +01:00"},
		"over midnight":           {"0 22 * * 1-5", 4 * time.Hour, "", "2026-11-28 01:30 +00:00", "2026-11-28 02:00 +00:00", "2026-11-30 22:00 +00:00"},
		"a descriptor":            {"@weekly", time.Hour, "", "2026-11-29 00:10 +00:00", "2026-11-29 01:00 +00:00", "2026-12-06 00:00 +00:00"},
		"windows that adjoin":     {"0 0 * * 0,6", 24 * time.Hour, "", "2026-11-28 08:00 +00:00", "2026-11-30 00:00 +00:00", "2026-11-29 00:00 +00:00"},
		"adjoining, for ever":     {"@daily", 24 * time.Hour, "", "2026-11-28 08:00 +00:00", "2026-12-06 00:00 +00:00", "2026-11-29 00:00 +00:00"},
		"every minute":            {"* * * * *", time.Minute, "", "2026-11-28 08:00 +00:00", "2026-12-05 08:00 +00:00", "2026-11-28 08:01 +00:00"},
		"day of month or of week": {"0 0 1 * 6", time.Hour, "", "2026-11-29 00:00 +00:00", "", "2026-12-01 00:00 +00:00"},
		"a leap day":              {"0 0 29 2 *", time.Hour, "", "2026-11-29 00:00 +00:00", "", "2028-02-29 00:00 +00:00"},

		// Clocks of Berlin go from 02:00 to 03:00 on 29 March, and from 03:00 to 02:00 on 25 October.
		"forward: 5h are 5h":            {"0 1 * * 0", 5 * time.Hour, "Europe/Berlin", "2026-03-29 06:30 +02:00", "2026-03-29 07:00 +02:00", "2026-04-05 01:00 +02:00"},
		"forward: over by then":         {"0 1 * * 0", 5 * time.Hour, "Europe/Berlin", "2026-03-29 07:00 +02:00", "", "2026-04-05 01:00 +02:00"},
		"forward: its time is skipped":  {"30 2 * * *", time.Hour, "Europe/Berlin", "2026-03-29 03:10 +02:00", "", "2026-03-30 02:30 +02:00"},
		"forward: a day is 23h":         {"@daily", 24 * time.Hour, "Europe/Berlin", "2026-03-29 23:30 +02:00", "2026-04-06 00:00 +02:00", "2026-03-30 00:00 +02:00"},
		"forward: hours":                {"0 * * * *", time.Hour, "Europe/Berlin", "2026-03-29 01:30 +01:00", "2026-04-05 03:00 +02:00", "2026-03-29 03:00 +02:00"},
		"forward: midnight is skipped":  {"0 3 * * 5", time.Hour, "Africa/Cairo", "2026-04-23 12:00 +02:00", "", "2026-04-24 03:00 +03:00"},
		"forward: half an hour":         {"15 2 * * *", time.Hour, "Australia/Lord_Howe", "2026-10-04 01:00 +10:30", "", "2026-10-05 02:15 +11:00"},
		"back: 5h are 5h":               {"0 1 * * 0", 5 * time.Hour, "Europe/Berlin", "2026-10-25 04:30 +01:00", "2026-10-25 05:00 +01:00", "2026-11-01 01:00 +01:00"},
		"back: over by then":            {"0 1 * * 0", 5 * time.Hour, "Europe/Berlin", "2026-10-25 05:00 +01:00", "", "2026-11-01 01:00 +01:00"},
		"back: its time comes twice":    {"30 2 * * *", 30 * time.Minute, "Europe/Berlin", "2026-10-25 02:40 +02:00", "2026-10-25 02:00 +01:00", "2026-10-26 02:30 +01:00"},
		"back: the second is not it":    {"30 2 * * *", 30 * time.Minute, "Europe/Berlin", "2026-10-25 02:40 +01:00", "", "2026-10-26 02:30 +01:00"},
		"back: between the two":         {"30 2 * * *", time.Hour, "Europe/Berlin", "2026-10-25 02:10 +01:00", "2026-10-25 02:30 +01:00", "2026-10-26 02:30 +01:00"},
		"back: before both":             {"30 2 * * *", time.Hour, "Europe/Berlin", "2026-10-25 01:00 +02:00", "", "2026-10-25 02:30 +02:00"},
		"back, west of Greenwich":       {"30 1 * * *", time.Hour, "America/New_York", "2026-11-01 01:10 -04:00", "", "2026-11-01 01:30 -04:00"},
		"forward, west of Greenwich":    {"30 2 * * *", time.Hour, "America/New_York", "2026-03-08 01:10 -05:00", "", "2026-03-09 02:30 -04:00"},
		"back: the day after is normal": {"30 2 * * *", time.Hour, "Europe/Berlin", "2026-10-25 12:00 +01:00", "", "2026-10-26 02:30 +01:00"},
	} {
		w, err := Parse(c.schedule, c.duration, c.zone)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		now := at(t, c.now)
		until, open := w.Open(now)
		if open != (c.until != "") || open && !until.Equal(at(t, c.until)) {
			t.Errorf("%s: open %v until %v, want %q", name, open, until, c.until)
		}
		if next := w.Next(now); !next.Equal(at(t, c.next)) {
			t.Errorf("%s: opens next at %v, want %s", name, next, c.next)
		}
	}
}

// What opens is open from then on for its duration, and closed before and after: for each minute of
// the two months in which clocks change.
func TestNextAndOpenAgree(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Africa/Cairo", "Australia/Lord_Howe", "America/Santiago", "UTC"} {
		for _, schedule := range []string{"0 0 * * *", "30 2 * * *", "15 1,3 * * *", "30 0 * * 0,5"} {
			w, err := Parse(schedule, 50*time.Minute, zone)
			if err != nil {
				t.Fatal(err)
			}
			for _, month := range []time.Month{time.March, time.April, time.September, time.October, time.November} {
				now := time.Date(2026, month, 1, 12, 0, 0, 0, time.UTC)
				next, closes := w.Next(now), time.Time{}
				for range 31 * 24 * 12 {
					now = now.Add(5 * time.Minute)
					if !now.Before(next) {
						closes = next.Add(50 * time.Minute)
						next = w.Next(now)
					}
					if until, open := w.Open(now); open != now.Before(closes) || open && !until.Equal(closes) {
						t.Fatalf("%s of %s at %v: open %v until %v, want until %v", schedule, zone, now, open, until, closes)
					}
				}
			}
		}
	}
}

func TestZeroWindow(t *testing.T) {
	w, err := Parse("", 0, "")
	now := at(t, "2026-11-28 00:59 +00:00")
	until, open := w.Open(now)
	if err != nil || !open || !until.IsZero() || !w.Next(now).Equal(now) || w.String() != "always" || w != (Window{}) {
		t.Errorf("%v: open %v until %v, next %v", err, open, until, w.Next(now))
	}
}

func TestWindowsThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		schedule string
		duration time.Duration
		zone     string
		says     string
	}{
		"a duration alone":            {"", time.Hour, "", "a duration without a schedule"},
		"a zone alone":                {"", 0, "UTC", "a time zone without a schedule"},
		"a schedule alone":            {"@daily", 0, "", "a schedule without a duration"},
		"a negative duration":         {"@daily", -time.Hour, "", "want 1m to 744h"},
		"too short":                   {"@daily", time.Second, "", "open for 1s: want 1m"},
		"garbage":                     {"saturday night", time.Hour, "", `"saturday night" cannot be read`},
		"seconds":                     {"0 0 1 * * 6", time.Hour, "", "expected exactly 5 fields"},
		"too few":                     {"0 1 * *", time.Hour, "", "expected exactly 5 fields"},
		"an hour of 24":               {"0 24 * * *", time.Hour, "", "above maximum (23)"},
		"Sunday as 7":                 {"0 1 * * 7", time.Hour, "", "0 is Sunday"},
		"the last day":                {"0 1 L * *", time.Hour, "", "cannot be read"},
		"since the program's start":   {"@every 1h", time.Minute, "", "@every counts from the start of a program"},
		"a zone in it":                {"TZ=UTC 0 1 * * *", time.Hour, "", "it names a time zone"},
		"a zone in it, and no more":   {"CRON_TZ=UTC", time.Hour, "", "it names a time zone"},
		"too long":                    {strings.Repeat("1,", 200) + "1 * * * *", time.Minute, "", "at most 256 are read"},
		"no time at all":              {", , , , ,", time.Hour, "", "never comes"},
		"31 February":                 {"0 0 31 2 *", time.Hour, "", "never comes"},
		"31st of months of 30 days":   {"0 0 31 4,6,9,11 *", time.Hour, "", "never comes"},
		"longer than its period":      {"@daily", 25 * time.Hour, "", "comes 24h after the time before"},
		"two of many overlap":         {"0 1,22 * * 6,0", 4 * time.Hour, "", "a duration of at most 3h"},
		"an unknown zone":             {"@daily", time.Hour, "Europe/Atlantis", `unknown time zone "Europe/Atlantis"`},
		"the zone of the machine":     {"@daily", time.Hour, "Local", `unknown time zone "Local"`},
		"a file instead of a zone":    {"@daily", time.Hour, "../../etc/passwd", "unknown time zone"},
		"first of a month, or Sunday": {"0 0 1 * 0", 36 * time.Hour, "", "comes 24h after"},
	} {
		w, err := Parse(c.schedule, c.duration, c.zone)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, %v; want %q", name, w, err, c.says)
		}
	}
}

// No text makes a program hang, or panic as robfig/cron does of "TZ=UTC".
func FuzzParse(f *testing.F) {
	for _, s := range []string{"0 1 * * 6", "@weekly", "TZ=UTC", "*/7 1-5/2 ? jan-mar sun", "1-59/9223372036854775807 * * * *"} {
		f.Add(s, int64(time.Hour), int64(1774742400))
	}
	f.Fuzz(func(t *testing.T, schedule string, duration, now int64) {
		w, err := Parse(schedule, time.Duration(duration), "Africa/Cairo")
		if err != nil {
			return
		}
		at := time.Unix(now%(1<<33), 0)
		if until, open := w.Open(at); open && !w.Always() && !until.After(at) {
			t.Errorf("%v is open at %v until %v", w, at, until)
		}
		if next := w.Next(at); !w.Always() && !next.IsZero() && !next.After(at) {
			t.Errorf("%v opens next at %v, before %v", w, next, at)
		}
	})
}

func TestBudgets(t *testing.T) {
	for text, of := range map[string][2]int{"1": {1, 1}, "3": {3, 3}, "10%": {1, 10}, "100%": {9, 100}, "1%": {1, 1}, "33%": {2, 33}, "1000": {1000, 1000}} {
		b, err := ParseBudget(text)
		if err != nil || b.Of(9) != of[0] || b.Of(100) != of[1] {
			t.Errorf("%s: %v, %d of 9 and %d of 100; want %v", text, err, b.Of(9), b.Of(100), of)
		}
	}
	for text, says := range map[string]string{"0": "would never allow anything", "0%": "would never allow anything", "00%": "never", "101%": "1% to 100%", "1001": "1 to 1000 nodes", "": "want 1",
		"-1": "want 1", "-10%": "want 1", "+1": "want 1", "1.5": "want 1", "10 %": "want 1", "%": "want 1", "10%%": "want 1", "half": "want 1", "99999999999999999999": "want 1"} {
		if b, err := ParseBudget(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, %v; want %q", text, b, err, says)
		}
	}
}
