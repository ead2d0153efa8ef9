package bootstrap

import (
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ortet/ortet/internal/boots/verdict"
	"github.com/ortet/ortet/internal/wire"
)

// booted is when the fixtures' machines were started, by their clocks.
var booted = time.Unix(1710355575, 0)

func TestStatusOfEachVersion(t *testing.T) {
	const up = 10 * time.Minute
	for _, c := range []struct {
		file   string
		stages []verdict.Stage
		source string
	}{
		{"status-20.4.json", []verdict.Stage{
			{Name: "init-local", Begin: 7226, End: 7280}, {Name: "init", Begin: 9222, End: 9360}, {Name: "modules-config", Begin: 10334, End: 10504},
			{Name: "modules-final", Begin: 11808, End: 11904, Errors: []string{"('scripts-user', RuntimeError('Runparts: 1 failures (runcmd) in 1 attempted commands',))"}},
		}, "DataSourceAzure [seed=/dev/sr0]"},
		{"status-21.4.json", []verdict.Stage{
			{Name: "init-local", Begin: 7226, End: 7280}, {Name: "init", Begin: 9222, End: 9360}, {Name: "modules-config", Begin: 10334, End: 10504},
			{Name: "modules-final", Begin: 11808, End: 11904, Errors: []string{"('scripts-user', RuntimeError('Runparts: 1 failures (runcmd) in 1 attempted commands'))"}},
		}, "DataSourceAzure [seed=/dev/sr0]"},
		{"status-22.4.json", []verdict.Stage{
			{Name: "init-local", Begin: 7226, End: 7280}, {Name: "init", Begin: 9222, End: 9360}, {Name: "modules-config", Begin: 10334},
		}, "DataSourceNoCloud [seed=/var/lib/cloud/seed/nocloud-net][dsmode=net]"},
		{"status-23.4.json", []verdict.Stage{
			{Name: "init-local", Begin: 7226, End: 7280}, {Name: "init", Begin: 9222, End: 9360, Recoverable: map[string][]string{"WARNING": {"Could not match supplied host pattern, ignoring: all"}}},
			{Name: "modules-config", Begin: 10334, End: 10504}, {Name: "modules-final", Begin: 11808, End: 11904},
		}, "DataSourceAzure [seed=/dev/sr0]"},
		{"status-24.4.json", []verdict.Stage{
			{Name: "init-local", Begin: 4120, End: 4870}, {Name: "init", Begin: 6310, End: 7020}, {Name: "modules-config", Begin: 8140, End: 8930},
			{Name: "modules-final", Begin: 9120, End: 41480, Errors: []string{"('scripts_user', RuntimeError('Runparts: 1 failures (runcmd) in 1 attempted commands'))"}, Recoverable: map[string][]string{"WARNING": {"Failed to run module scripts_user (scripts in /var/lib/cloud/instance/scripts)"}}},
		}, "DataSourceAzure [seed=/dev/sr0]"},
		{"status-25.1.json", []verdict.Stage{
			{Name: "init-local", Begin: 2550, End: 2900}, {Name: "init", Begin: 4760, End: 5330},
			{Name: "modules-config", Begin: 6100, End: 6500, Recoverable: map[string][]string{"DEPRECATED": {"Config key 'lists' is deprecated"}}},
			{Name: "modules-final", Begin: 7000, End: 9500, Errors: []string{"('scripts_user', RuntimeError('Runparts: 1 failures (runcmd) in 1 attempted commands'))"}},
		}, "DataSourceAzure [seed=/dev/sr0]"},
		{"status-26.1.json", []verdict.Stage{
			{Name: "init-local", Begin: 2550, End: 2900}, {Name: "init", Begin: 4760, End: 5330}, {Name: "modules-config", Begin: 6100},
		}, ""},
	} {
		t.Run(c.file, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", c.file))
			if err != nil {
				t.Fatal(err)
			}
			got, err := parseStatus(text, booted, up)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got.Stages, c.stages) || got.Datasource != c.source {
				t.Errorf("datasource %q, stages\n%+v, want\n%q\n%+v", got.Datasource, got.Stages, c.source, c.stages)
			}
		})
	}
}

// Of each version a boot that ended without its sentinel gets its verdict, with
// what it knows of stages.
func TestVerdictOfEachVersion(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/status-*.json")
	if err != nil {
		t.Fatal(err)
	}
	majors := map[string]bool{}
	for _, file := range files {
		name := filepath.Base(file)
		majors[name[len("status-"):len("status-20")]] = true
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoot(t)
			r.write("/proc/uptime", "600.00 30.00\n")
			r.cloudInit("status.json", name)
			r.cloudInit("result.json", "result-good.json")
			v := r.wait(r.options())
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			reason, module := "SentinelMissing", ""
			if strings.Contains(string(text), "Runparts") {
				reason, module = "RuncmdFailed", "runcmd"
			}
			if v.Outcome != wire.Failed || v.Reason != reason || v.Module != module || len(v.Stages) < 3 || v.Stages[0].Name != "init-local" {
				t.Errorf("%+v, want %s", v, reason)
			}
		})
	}
	for major := 20; major <= 26; major++ {
		if !majors[strconv.Itoa(major)] {
			t.Errorf("no status of %d", major)
		}
	}
}

// A clock that was set back during the boot gives no times outside of it.
func TestStatusByAClockThatWasSetBack(t *testing.T) {
	text := []byte(`{"v1":{"init":{"errors":[],"start":1710355584.2,"finished":1510355584.3}}}`)
	c, err := parseStatus(text, booted.Add(24*time.Hour), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if s := c.Stages[0]; s.Begin != 0 || s.End != 1 {
		t.Errorf("from %d to %d, want a stage that has ended within the boot", s.Begin, s.End)
	}
}

func TestBrokenStatus(t *testing.T) {
	for _, text := range []string{
		"", "{", "null", "[]", `{"v2":{}}`, `{"v1":null}`, `{"v1":[]}`, "\x00\x01\x02", `{"v1":{"init":{"start":1`,
		strings.Repeat("[", 100_000),
	} {
		if c, err := parseStatus([]byte(text), booted, time.Minute); err == nil {
			t.Errorf("%.20q: %+v, want an error", text, c)
		}
	}
	// Other shapes than expected cost what they hold, not the rest.
	text := `{"v1":{"init":7,"init-local":{"errors":"x","start":"soon"},"datasource":{},"modules-config":{"start":3.5,"errors":[1,{"a":2},"e"],"recoverable_errors":[]},"modules-final":{"start":1e300}}}`
	c, err := parseStatus([]byte(text), booted, time.Minute)
	want := []verdict.Stage{{Name: "modules-config", Begin: 3500, Errors: []string{"1", `{"a":2}`, "e"}}}
	if err != nil || !reflect.DeepEqual(c.Stages, want) {
		t.Errorf("%+v, %v, want %+v", c.Stages, err, want)
	}
}

func seeds(f *testing.F, pattern string) {
	f.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(files) == 0 {
		f.Fatalf("no %s: %v", pattern, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
		f.Add(text[:len(text)/2])
	}
}

func FuzzStatus(f *testing.F) {
	seeds(f, "status-*.json")
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := parseStatus(text, booted, time.Hour)
		if err != nil {
			return
		}
		for _, s := range c.Stages {
			if s.Begin < 0 || s.End < 0 || s.Begin > time.Hour.Milliseconds() || s.End > time.Hour.Milliseconds()+1 || s.End != 0 && s.End < s.Begin {
				t.Errorf("%s from %d to %d", s.Name, s.Begin, s.End)
			}
			if len(s.Errors) > maxErrors {
				t.Errorf("%d errors", len(s.Errors))
			}
		}
	})
}

func FuzzResult(f *testing.F) {
	seeds(f, "result-*.json")
	f.Fuzz(func(t *testing.T, text []byte) {
		if source, errs, err := parseResult(text); err == nil && (len(source) > maxErrorText || len(errs) > maxErrors) {
			t.Errorf("%d bytes, %d errors", len(source), len(errs))
		}
	})
}

func FuzzProvision(f *testing.F) {
	seeds(f, "provision-*.json")
	f.Fuzz(func(t *testing.T, text []byte) {
		if p, err := parseProvision(text); err == nil && p.ExitCode == "" {
			t.Error("no exit code, and no error")
		}
	})
}

func FuzzTail(f *testing.F) {
	f.Add([]byte("a\nb\r\n\x00\x1b[31mred\xff"), true)
	f.Add([]byte("\n\n\n"), false)
	f.Add([]byte(strings.Repeat("é", 3000)), true)
	f.Fuzz(func(t *testing.T, text []byte, cut bool) {
		l := lastLines(text, "x", cut)
		if len(l.Lines) > maxTailRows {
			t.Errorf("%d lines", len(l.Lines))
		}
		for _, s := range l.Lines {
			if len(s) > maxTailLine || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
				t.Errorf("a line that is not harmless: %q", s)
			}
		}
	})
}

func TestProvision(t *testing.T) {
	text, err := os.ReadFile("testdata/provision-50.json")
	if err != nil {
		t.Fatal(err)
	}
	p, err := parseProvision(text)
	if err != nil || p.ExitCode != "50" || p.ExecDuration != "31" || !strings.Contains(p.Output, "curl") || p.KubeletStartTime == "" {
		t.Errorf("%+v, %v", p, err)
	}
	// Numbers where texts belong are taken too.
	if p, err := parseProvision([]byte(`{"ExitCode": 0}`)); err != nil || p.ExitCode != "0" {
		t.Errorf("%+v, %v", p, err)
	}
	for _, text := range []string{"", "{}", `{"ExitCode":""}`, `{"ExitCode":null}`, `{"ExitCode":"5`, "7"} {
		if p, err := parseProvision([]byte(text)); err == nil {
			t.Errorf("%q: %+v, want an error", text, p)
		}
	}
}
