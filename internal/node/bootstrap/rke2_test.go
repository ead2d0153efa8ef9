//go:build !windows

package bootstrap

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/boots/verdict"
)

// rke2Boot is when the last boot of testdata/rke2-kubelet.log began.
func rke2Boot() time.Time { return time.Date(2026, 11, 21, 8, 0, 0, 0, time.Local) }

// RKE2's kubelet writes to a file, which holds earlier boots too: these say
// nothing of this one.
func TestKubeletLogOfRKE2(t *testing.T) {
	path := kubeletLogs()[0]
	text, err := os.ReadFile("testdata/rke2-kubelet.log")
	if err != nil {
		t.Fatal(err)
	}
	l := ofThisBoot(lastLines(text, path, false), rke2Boot())
	if len(l.Lines) != 4 || !l.Cut || !strings.HasPrefix(l.Lines[0], "I1121 08:00:21") {
		t.Errorf("of this boot: %q", l.Lines)
	}
	if registered([]verdict.Log{l}) {
		t.Error("a registration of an earlier boot counts")
	}
	if l := ofThisBoot(lastLines(text, path, false), rke2Boot().Add(-72*time.Hour)); len(l.Lines) != 9 || !registered([]verdict.Log{l}) {
		t.Errorf("where it all is one boot: %q", l.Lines)
	}
	if l := ofThisBoot(lastLines(text, path, false), rke2Boot().Add(time.Hour)); len(l.Lines) != 0 {
		t.Errorf("nothing is of this boot: %q", l.Lines)
	}
}

// What was said at a long log's beginning is found.
func TestRegistrationInAFile(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	o, err := r.options().complete()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now().Local()
	line := func(words string) string {
		return "I" + began.Format("0102 15:04:05") + ".000000     988 kubelet_node_status.go:81] " + words + "\n"
	}
	much := strings.Repeat(line(strings.Repeat("x", 100)), 3000) + strings.Repeat("y", 200<<10) + "\n"
	for said, want := range map[string]bool{`"Successfully registered node" node="agent1"`: true, `"Node was previously registered" node="agent1"`: true, `"Attempting to register node"`: false} {
		r.write(kubeletLogs()[0], line(said)+much)
		if got := saidRegistered(t.Context(), o, "", time.Minute); got != want {
			t.Errorf("%s: %v, want %v", said, got, want)
		}
	}
	began = began.Add(-48 * time.Hour)
	r.write(kubeletLogs()[0], line(`"Successfully registered node" node="agent1"`))
	if saidRegistered(t.Context(), o, "", time.Minute) || len(gatherLogs(o)) != 0 {
		t.Error("what an earlier boot said counts")
	}
	began = time.Now().Local()
	r.write(kubeletLogs()[0], line(`"Unable to register node with API server" err="forbidden"`))
	if logs := gatherLogs(o); len(logs) != 1 || logs[0].Source != kubeletLogs()[0] || len(logs[0].Lines) != 1 {
		t.Errorf("%+v", logs)
	}
}

func TestKlogTime(t *testing.T) {
	newYear := time.Date(2027, 1, 1, 0, 0, 30, 0, time.Local)
	for line, want := range map[string]time.Time{
		"I0101 00:01:00.000000   9 x.go:1] a": time.Date(2027, 1, 1, 0, 1, 0, 0, time.Local),
		"E1231 23:59:59.999999   9 x.go:1] a": time.Date(2026, 12, 31, 23, 59, 59, 0, time.Local),
		"I1321 00:01:00":                      {}, "X0101 00:01:00": {}, "": {}, "I0101": {}, "I0101 00:01:0": {},
	} {
		if got := klogTime(line, newYear); got.Unix() != want.Unix() {
			t.Errorf("%q: %s, want %s", line, got, want)
		}
	}
	if got := klogTime("I0101 00:01:00", newYear.AddDate(0, 0, -1)); !got.Equal(time.Date(2027, 1, 1, 0, 1, 0, 0, time.Local)) {
		t.Errorf("after the turn of the year: %s", got)
	}
}

func FuzzOfThisBoot(f *testing.F) {
	f.Add("I1121 08:00:21.004512     988 x\ny\nE1122 00:00:00")
	f.Add("I0229 00:00:00\xff")
	f.Fuzz(func(t *testing.T, text string) {
		l := ofThisBoot(lastLines([]byte(text), "kubelet", false), rke2Boot())
		if len(l.Lines) > 0 && klogTime(l.Lines[0], rke2Boot()).Before(rke2Boot()) {
			t.Errorf("%q", l.Lines[0])
		}
	})
}
