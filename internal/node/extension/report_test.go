package extension

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ortet/ortet/internal/boots/verdict"
	"github.com/ortet/ortet/internal/wire"
)

// everyStatus is each kind of status that we write: of every reason, of every
// outcome, at every bound.
func everyStatus(t *testing.T) map[string]status {
	t.Helper()
	code := 7
	at := time.Unix(1.7e9, 0)
	all := map[string]status{
		"waiting": {State: transitioning, Message: say("Waiting, until 15:04 UTC at most.")},
		"refused": {State: failure, Code: usageCode, Message: say(`the settings: "\u0000<&>"`)},
		"came up": report(wire.Verdict{Outcome: wire.Succeeded, At: at, Uptime: 61_000, Stages: []wire.StageTime{{Name: "init", Begin: 1, End: 1500}}}, 0, ""),
		"late":    report(wire.Verdict{Outcome: wire.TimedOut, Reason: wire.ReasonUnknown, At: at, Stages: []wire.StageTime{{Name: "modules-final", Begin: 9000}}}, 124, "a note"),
	}
	for _, r := range verdict.Reasons() {
		for _, o := range []wire.Outcome{wire.Failed, wire.Degraded} {
			v := wire.Verdict{
				Outcome: o, Reason: r.Name, Owner: r.Owner, Retryable: r.Retryable, Message: r.Summary, Remedy: r.Remedy,
				Stage: "modules-final", Module: "runcmd", Phase: "preflight", ExitCode: &code, At: at,
				Evidence: []wire.Excerpt{{Source: "/var/log/cloud-init-output.log", Lines: []string{`"quoted" \ <&> ü`, ""}}},
			}
			all[string(o)+" "+r.Name] = report(v, 7, "")
		}
	}
	for name, unit := range map[string]string{"letters": "x", "quotes": `"`, "wide": "ü", "beyond": "😀", "marks": "<"} {
		line := strings.Repeat(unit, 1024/len(unit))
		v := wire.Verdict{
			Outcome: wire.Failed, Reason: strings.Repeat("R", 512), Owner: wire.OwnerUser, Message: line, Remedy: line,
			Stage: strings.Repeat(unit, 512/len(unit)), Module: strings.Repeat(unit, 512/len(unit)), Phase: strings.Repeat(unit, 512/len(unit)), ExitCode: &code, At: at,
		}
		for range 32 {
			v.Ignored = append(v.Ignored, line)
			v.Stages = append(v.Stages, wire.StageTime{Name: line[:512/len(unit)*len(unit)], Begin: 1, End: 1})
		}
		for range 16 {
			e := wire.Excerpt{Source: strings.Repeat(unit, 4096/len(unit)), Cut: true}
			for range 200 {
				e.Lines = append(e.Lines, line)
			}
			v.Evidence = append(v.Evidence, e)
		}
		if err := v.Validate(); err != nil {
			t.Fatalf("the largest verdict: %v", err)
		}
		all["largest of "+name] = report(v, 7, "a note")
		// With fewer excerpts there is room for each.
		v.Evidence = []wire.Excerpt{{Source: "a log", Lines: v.Evidence[0].Lines}}
		all["long log of "+name] = report(v, 7, "")
	}
	return all
}

func TestStatusesKeepTheirBounds(t *testing.T) {
	for name, s := range everyStatus(t) {
		text, err := encodeStatus(s, time.Unix(1e9, 0))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var file statusFile
		if err := json.Unmarshal(text, &file); err != nil || len(file) != 1 {
			t.Fatalf("%s: %v", name, err)
		}
		if len(text) > maxStatus || !utf8.Valid(text) || len(file[0].Status.Subparts) != len(s.Subparts) {
			t.Errorf("%s: %d bytes, %d of %d parts", name, len(text), len(file[0].Status.Subparts), len(s.Subparts))
		}
		if len(s.Message.Text) > 6<<10 {
			t.Errorf("%s: a message of %d bytes", name, len(s.Message.Text))
		}
		if s.State == failure && s.Code == 0 {
			t.Errorf("%s: an error of code 0", name)
		}
	}
}

// What is larger than any verdict is cut, not lost.
func TestStatusThatIsTooLargeIsCut(t *testing.T) {
	s := status{State: failure, Code: 1, Message: say(strings.Repeat("m", 300<<10))}
	for range 10 {
		s.Subparts = append(s.Subparts, subpart{"x", failure, 1, say(strings.Repeat("s", 100<<10))})
	}
	text, err := encodeStatus(s, time.Unix(1e9, 0))
	if err != nil || len(text) > maxStatus || len(text) < maxStatus/4 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

func TestSummary(t *testing.T) {
	code := 1
	v := wire.Verdict{
		Outcome: wire.Failed, Reason: "KubeadmPreflightFailed", Owner: wire.OwnerUser, Retryable: true, Message: "what happened", Remedy: "what to do",
		Stage: "modules-final", Module: "runcmd", Phase: "preflight", ExitCode: &code,
		Evidence: []wire.Excerpt{{Source: "a log", Lines: []string{"one", "two"}}}, Stages: []wire.StageTime{{Name: "init", Begin: 1, End: 1500}},
	}
	got := summary(&v, "a note")
	const want = `Failed: KubeadmPreflightFailed (owner: user; confidence: unknown; trying again may help)
what happened
Remedy: what to do
Where: stage modules-final, module runcmd, kubeadm phase preflight, exit code 1
a note
a log:
  one
  two`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	states := ""
	for _, p := range report(v, 1, "").Subparts {
		states += p.Name + " " + p.State + ", "
	}
	if states != "init success, modules-final error, node error, verdict error, evidence warning, " {
		t.Errorf("parts: %s", states)
	}
}

// A full disk has the status that is there written over.
func TestStatusWithoutRoomForANewFile(t *testing.T) {
	dir := t.TempDir()
	h := &Handler{o: Options{Now: time.Now}, dir: dir, env: Environment{Name: "x", Status: dir}}
	h.UseLogger(discard())
	if err := h.tell(Call{}, status{State: transitioning, Message: say(strings.Repeat("waiting ", 400))}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "0.status")
	text, err := encodeStatus(status{State: failure, Code: 1, Message: say("short")}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := overwrite(path, text); err != nil {
		t.Fatal(err)
	}
	if got := h.state(Call{}); got != failure {
		read, _ := os.ReadFile(path)
		t.Errorf("state %q of %s", got, read)
	}
	if err := overwrite(filepath.Join(dir, "1.status"), text); err == nil {
		t.Error("a file that is not there was written over")
	}
}

// When stages ran is read from the statuses by the controller.
func TestStageTimesAreReadBack(t *testing.T) {
	v := wire.Verdict{Outcome: wire.Succeeded, At: time.Unix(1.7e9, 0), Uptime: 61_000, Stages: []wire.StageTime{
		{Name: "init-local", Begin: 4100, End: 4900}, {Name: "init", Begin: 6300, End: 7000}, {Name: "modules-config", Begin: 8100, End: 8900}, {Name: "modules-final", Begin: 9100, End: 141_500},
	}}
	var read []wire.StageTime
	for _, p := range report(v, 0, "").Subparts {
		if s, ok := wire.ParseStageTime(p.Name, p.Message.Text); ok {
			read = append(read, s)
		}
	}
	if !slices.Equal(read, v.Stages) {
		t.Errorf("read back %+v, want %+v", read, v.Stages)
	}
}
