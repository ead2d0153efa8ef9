package verdict

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

var update = flag.Bool("update", false, "rewrite the golden judgements and docs/reference/reasons.md")

// A fixture is a boot in words: lines that say what was seen, then logs, each
// below "-- SOURCE --". Its file is named after the reason that it must give,
// with what else there is to say of it after a dash.
//
//	sentinel | deadline | windows | done
//	outside [REASON]
//	stage NAME BEGIN END
//	error STAGE TEXT
//	recoverable STAGE LEVEL TEXT
//	provision KEY VALUE
//	unit NAME [asked] [needed] [missing] [skipped] [active=…] [sub=…] [result=…] [exit=…] [restarts=…]
//	kubelet [wanted] [healthy] [registered] [unregistered] [mute] [unsigned] [notready] [last=…]
//	condition TEXT
func readFixture(t testing.TB, text string) Facts {
	t.Helper()
	var f Facts
	ci := func() *CloudInit {
		if f.CloudInit == nil {
			f.CloudInit = &CloudInit{}
		}
		return f.CloudInit
	}
	stage := func(name string) *Stage {
		for i := range ci().Stages {
			if f.CloudInit.Stages[i].Name == name {
				return &f.CloudInit.Stages[i]
			}
		}
		t.Fatalf("no stage %s", name)
		return nil
	}
	for _, l := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if source, ok := strings.CutPrefix(l, "-- "); ok && strings.HasSuffix(source, " --") {
			f.Logs = append(f.Logs, Log{Source: strings.TrimSuffix(source, " --")})
			continue
		}
		if n := len(f.Logs); n > 0 {
			f.Logs[n-1].Lines = append(f.Logs[n-1].Lines, l)
			continue
		}
		words := strings.Fields(l)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		rest := func(n int) string { return strings.Join(words[n:], " ") }
		switch words[0] {
		case "sentinel":
			f.Sentinel = true
		case "deadline":
			f.Deadline = true
		case "outside":
			f.Outside, f.Sign = true, rest(1)
		case "windows":
			f.Windows = true
		case "done":
			ci().Done = true
		case "stage":
			ci().Stages = append(ci().Stages, Stage{Name: words[1], Begin: atoi(t, words[2]), End: atoi(t, words[3])})
		case "error":
			s := stage(words[1])
			s.Errors = append(s.Errors, rest(2))
		case "recoverable":
			s := stage(words[1])
			if s.Recoverable == nil {
				s.Recoverable = map[string][]string{}
			}
			s.Recoverable[words[2]] = append(s.Recoverable[words[2]], rest(3))
		case "provision":
			if f.Provision == nil {
				f.Provision = &Provision{}
			}
			switch words[1] {
			case "ExitCode":
				f.Provision.ExitCode = rest(2)
			case "Output":
				f.Provision.Output += rest(2) + "\n"
			case "Error":
				f.Provision.Error = rest(2)
			default:
				t.Fatalf("a fixture's line %q", l)
			}
		case "unit":
			f.Units = append(f.Units, readUnit(t, words[1:]))
		case "kubelet":
			for _, w := range words[1:] {
				switch w {
				case "wanted":
					f.Kubelet.Wanted = true
				case "healthy":
					f.Kubelet.Healthy, f.Kubelet.EverHealthy = true, true
				case "registered":
					f.Kubelet.Registered = true
				case "unregistered":
					f.Kubelet.Unregistered = true
				case "mute":
					f.Kubelet.Mute = true
				case "unsigned":
					f.Kubelet.Unsigned = true
				case "notready":
					f.Kubelet.NotReady = true
				default:
					f.Kubelet.Last = strings.TrimPrefix(w, "last=")
				}
			}
		case "condition":
			f.Kubelet.Condition = rest(1)
		default:
			t.Fatalf("a fixture's line %q", l)
		}
	}
	return f
}

func readUnit(t testing.TB, words []string) Unit {
	t.Helper()
	u := Unit{Name: words[0]}
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "asked":
			u.Asked = true
		case "needed":
			u.Needed = true
		case "missing":
			u.Missing, u.LoadError = true, "org.freedesktop.systemd1.NoSuchUnit"
		case "skipped":
			u.Conditions = true
		case "active":
			u.Active = value
		case "sub":
			u.Sub = value
		case "result":
			u.Result = value
		case "exit":
			u.ExitCode = int(atoi(t, value))
		case "restarts":
			u.Restarts = int(atoi(t, value))
		default:
			t.Fatalf("a unit's word %q", w)
		}
	}
	return u
}

func atoi(t testing.TB, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func fixtures(t testing.TB) map[string]Facts {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	all := make(map[string]Facts, len(files))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(file), ".txt")] = readFixture(t, string(text))
	}
	return all
}

func verdictOf(j Judgement) wire.Verdict {
	v := j.Verdict
	v.At, v.Uptime = time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC), 61234
	return v
}

// Each fixture gives just the reason that it is named after, and the judgement
// that was looked at when it was written.
func TestFixtures(t *testing.T) {
	for name, f := range fixtures(t) {
		t.Run(name, func(t *testing.T) {
			j := Judge(f)
			v := verdictOf(j)
			text, err := json.MarshalIndent(v, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := wire.ParseVerdict(text); err != nil {
				t.Errorf("the verdict is not valid: %v", err)
			}
			want, _, _ := strings.Cut(name, "-")
			got := v.Reason
			if v.Outcome == wire.Succeeded {
				got = string(wire.Succeeded)
			}
			if got != want {
				t.Errorf("the reason is %s: %s", got, v.Message)
			}
			golden := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(golden, append(text, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			kept, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if string(kept) != string(text)+"\n" {
				t.Errorf("the judgement is another than %s:\n%s", golden, text)
			}
		})
	}
}

// Every reason can be given: the catalogue promises nothing that Judge does not
// know.
func TestEveryReasonHasAFixture(t *testing.T) {
	have := map[string]bool{}
	for name := range fixtures(t) {
		reason, _, _ := strings.Cut(name, "-")
		have[reason] = true
	}
	for _, r := range Reasons() {
		if !have[r.Name] {
			t.Errorf("no fixture gives %s", r.Name)
		}
		delete(have, r.Name)
	}
	delete(have, string(wire.Succeeded))
	for name := range have {
		t.Errorf("a fixture is named after %s, which is no reason", name)
	}
}
