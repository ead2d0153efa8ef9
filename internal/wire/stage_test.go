package wire

import (
	"strings"
	"testing"
	"time"
)

func TestStageText(t *testing.T) {
	for _, c := range []struct {
		stage StageTime
		text  string
		back  StageTime // to a tenth of a second
	}{
		{StageTime{"init", 6310, 7020}, "took 700ms, until 7s after the kernel's start", StageTime{"init", 6300, 7000}},
		{StageTime{"modules-final", 9120, 141480}, "took 2m12.4s, until 2m21.5s after the kernel's start", StageTime{"modules-final", 9100, 141500}},
		{StageTime{"init-local", 0, 20}, "took 0s, until 0s after the kernel's start", StageTime{"init-local", 0, 1}},
		{StageTime{"node", 0, 49}, "took 0s, until 0s after the kernel's start", StageTime{"node", 0, 1}},
		{StageTime{"modules-final", 9120, 0}, "began 9.1s after the kernel's start and has not ended", StageTime{"modules-final", 9100, 0}},
		{StageTime{"init", 3_600_000, 7_200_000}, "took 1h0m0s, until 2h0m0s after the kernel's start", StageTime{"init", 3_600_000, 7_200_000}},
	} {
		if text := c.stage.Text(); text != c.text {
			t.Errorf("%+v is %q, want %q", c.stage, text, c.text)
		}
		if back, ok := ParseStageTime(c.stage.Name, c.text); !ok || back != c.back {
			t.Errorf("%q is %+v (%v), want %+v", c.text, back, ok, c.back)
		}
	}
}

func TestStageTextOfOthers(t *testing.T) {
	const good = "took 1.2s, until 34s after the kernel's start"
	for _, c := range [][2]string{
		{"", good}, {"a\nb", good}, {strings.Repeat("a", maxName+1), good},
		{"init", ""}, {"init", "took 1.2s"}, {"init", "took 1.2s, until 34s"}, {"init", good + "."}, {"init", "it " + good},
		{"init", "took -1s, until 34s after the kernel's start"}, {"init", "took 35s, until 34s after the kernel's start"},
		{"init", "took 1s, until 25h after the kernel's start"}, {"init", "took 1, until 2 after the kernel's start"},
		{"init", "began 3s after the kernel's start"}, {"init", "began soon after the kernel's start and has not ended"},
	} {
		if s, ok := ParseStageTime(c[0], c[1]); ok {
			t.Errorf("stage %q, %q: read as %+v", c[0], c[1], s)
		}
	}
}

func FuzzParseStageTime(f *testing.F) {
	f.Add("init", "took 700ms, until 7s after the kernel's start")
	f.Add("node", "began 9.1s after the kernel's start and has not ended")
	f.Add("x", "took 1h0m0s, until 24h0m0.05s after the kernel's start")
	f.Fuzz(func(t *testing.T, name, text string) {
		s, ok := ParseStageTime(name, text)
		if !ok {
			return
		}
		most := maxStage.Milliseconds()
		if s.Name != name || s.Begin < 0 || s.Begin > most || s.End < 0 || s.End > most || s.End > 0 && s.End < s.Begin {
			t.Fatalf("%q: %+v is out of bounds", text, s)
		}
		// What it was read as is what it is told as again, to the tenth of a second.
		again, ok := ParseStageTime(name, s.Text())
		const tenth = int64(100 * time.Millisecond / time.Millisecond)
		if !ok && max(s.Begin, s.End) <= most-tenth || ok && (abs(again.Begin-s.Begin) > tenth || abs(again.End-s.End) > tenth) {
			t.Fatalf("%q: %+v is told as %q and read as %+v (%v)", text, s, s.Text(), again, ok)
		}
	})
}

func abs(n int64) int64 { return max(n, -n) }
