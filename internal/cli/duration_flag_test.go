package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func TestDurationFlag(t *testing.T) {
	const seconds = "--min-ready" // the one flag whose numbers need no unit
	for _, c := range []struct {
		flag, text string
		want       time.Duration // -1: refused
		shown      string
	}{
		{"--watch", "30s", 30 * time.Second, "30s"},
		{"--watch", "1h30m", 90 * time.Minute, "1h30m"},
		{"--watch", "1.5h", 90 * time.Minute, "1h30m"},
		{"--watch", "48h", 48 * time.Hour, "2d"},
		{"--watch", "1d12h", 36 * time.Hour, "1d12h"},
		{"--watch", "7d", 7 * 24 * time.Hour, "1w"},
		{"--watch", "720h", 30 * 24 * time.Hour, "30d"},
		{"--watch", "0", 0, "0"},
		{"--watch", "-5m", -5 * time.Minute, "-5m0s"},
		{"--watch", "300", -1, ""},
		{"--watch", "12h1d", -1, ""},
		{"--watch", "1.5d", -1, ""},
		{"--watch", "d", -1, ""},
		{"--watch", "", -1, ""},
		{"--watch", "9999999d", -1, ""},
		{seconds, "90", 90 * time.Second, "1m30s"},
		{seconds, "0", 0, "0"},
		{seconds, "2d", 48 * time.Hour, "2d"},
		{seconds, "1d12h", 36 * time.Hour, "1d12h"},
		{seconds, "-5m", -1, ""},
		{seconds, "5x", -1, ""},
	} {
		var got time.Duration
		f := durationFlag{&got, c.flag == seconds}
		switch err := f.Set(c.text); {
		case (err != nil) != (c.want == -1):
			t.Errorf("%s %q: %v", c.flag, c.text, err)
		case err != nil && !strings.HasSuffix(err.Error(), "a duration such as 30s, 5m or 2d"):
			t.Errorf("%s %q: %v", c.flag, c.text, err)
		case err == nil && (got != c.want || f.String() != c.shown):
			t.Errorf("%s %q is %s, shown as %s; want %s, %s", c.flag, c.text, got, f, c.want, c.shown)
		}
	}
}

// Every flag for a duration knows days, and shows its default as a person writes it.
func TestEveryDurationFlag(t *testing.T) {
	n := 0
	var commands func(c *cobra.Command)
	commands = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() != "duration" {
				return
			}
			n++
			if strings.Contains(f.DefValue, "m0s") || strings.Contains(f.DefValue, "h0m") {
				t.Errorf("%s --%s has default %s", c.CommandPath(), f.Name, f.DefValue)
			}
			// That of --lease-duration ends at 1h.
			if err := f.Value.Set("1d12h"); err != nil && !strings.HasPrefix(err.Error(), "want a duration from ") {
				t.Errorf("%s --%s 1d12h: %v", c.CommandPath(), f.Name, err)
			}
		})
		for _, sub := range c.Commands() {
			commands(sub)
		}
	}
	commands(Command(Process{}))
	if n < 20 {
		t.Errorf("only %d flags were seen", n)
	}
}
