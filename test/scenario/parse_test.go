package scenario

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

const story = `# The answer to the power-off is lost,
#
#   and the process dies.
seed 4711
pool instances=5 versions=2 extensions=billing,cse upgrade=Rolling machines kured
donor pods=3 budgeted=1 slow=1m30s disk=lost
capture history=2 newnodes=1 rolling unknown
wait 24h
capture node=2 again rival=0
rollback to=previous
chance rate=5000 death=2000 most=6
at azure "POST virtualMachineScaleSets/pool1/virtualMachines/0/poweroff" 1 dropAfter
at kube "PATCH nodes/pool1000000" 2 error 500
at kube "PATCH nodes/pool1000000" 3 error 409 Conflict
at kube "PUT ortet-system/leases/*" 9 killAfter
at azure "GET operation of PUT snapshots/s" 3 nodeNotReady bench 90
at azure "GET galleries/g" 1 clock -3600
expect ask=0 exit=1 says="the drain of \"pool1000000\" did not end"
expect exit=0 says=Done
`

func parse(t *testing.T, text string) Scenario {
	t.Helper()
	s, err := Parse(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return s
}

func TestTextIsCanonical(t *testing.T) {
	s := parse(t, story)
	if got := s.String(); got != story {
		t.Errorf("printed\n%s\nwant\n%s", got, story)
	}
	if !reflect.DeepEqual(s, parse(t, s.String())) {
		t.Error("the printed text does not parse to the same")
	}
	if a := s.Asks[2]; a.Verb != Capture || a.Node != 2 || !a.Again || a.Rival != 0 || s.Asks[0].Rival != -1 {
		t.Errorf("asks %+v", s.Asks)
	}
	if s.Donor.Slow != 90*time.Second || s.Pool.Zones != 0 || s.Expect[1].Ask != 3 || s.Comment[2] != "  and the process dies." {
		t.Errorf("%+v", s)
	}
}

func TestOtherWaysToWriteTheSame(t *testing.T) {
	same := strings.NewReplacer("again rival=0", "rival=0 \t again=true", "wait 24h", "\n  # later\nwait 1440m", "says=Done", `says="Done"`,
		"pool instances=5", "pool zones=0 kured=true instances=005", "machines kured", "machines=true nozrs=false", "\n", "\r\n").Replace(story)
	if got := parse(t, same).String(); got != story {
		t.Errorf("printed\n%s\nwant\n%s", got, story)
	}
}

func TestDefaultIsTheShortest(t *testing.T) {
	const want = "seed 0\ncapture\n"
	d := Default()
	if d.String() != want {
		t.Errorf("printed %q, want %q", d.String(), want)
	}
	if got := parse(t, "capture"); !reflect.DeepEqual(got, d) {
		t.Errorf("parsed %+v, want %+v", got, d)
	}
	if d.Pool.Instances != 3 || d.Pool.Upgrade != "Manual" || !slices.Equal(d.Pool.Extensions, []string{"cse"}) || d.Donor.Pods != 2 ||
		d.Donor.Slow != 2*time.Second || d.Donor.Disk != "joins" || d.Asks[0].Rival != -1 {
		t.Errorf("%+v is not what the fields' documentation says", d)
	}
}

func TestMistakes(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "line 1, column 1: nothing is asked"},
		{"capture\npodz", `line 2, column 1: "podz" begins no line: want seed, pool`},
		{"capture node=1 knode=2", `line 1, column 16: "knode" is not a setting of capture: want node, again`},
		{"pool instances=1\ncapture", "line 1, column 6: instances=1: want a whole number from 2 to 1000"},
		{"pool instances=4 instances=4\ncapture", "line 1, column 18: instances is given twice"},
		{"pool\npool\ncapture", "line 2, column 1: pool is said twice, first in line 1"},
		{"pool instances\ncapture", "column 6: instances has no value: want instances=2 to 1000"},
		{"pool kured=yes\ncapture", "kured=yes: want true or false"},
		{"pool upgrade=Automatic\ncapture", "want one of Manual, Rolling"},
		{"pool extensions=cse,cse\ncapture", "want some of cse,billing,monitor"},
		{"pool extensions=\ncapture", "want some of cse,billing,monitor"},
		{"donor slow=90\ncapture", "want a duration from 0s to 2h"},
		{"seed -1\ncapture", "line 1, column 1: want seed and one whole number"},
		{"seed\ncapture", "want seed and one whole number"},
		{"wait\ncapture", "want wait and one duration"},
		{"wait 61d\ncapture", "line 1, column 6: want a duration from 1s to 1440h"},
		{"rollback to=v1\nrollback to=\"x y\"", "want a version's name, previous, original, oldest, newest or left"},
		{"rollback again", `"again" is not a setting of rollback`},
		{"chance rate=600000 world=500000\ncapture", "more than a million together"},
		{"capture\nexpect", "expect without exit: want exit=0 to 255"},
		{"capture\nexpect ask=1 exit=0", "line 2, column 1: ask=1: there are asks 0 to 0"},
		{"wait 1h\nexpect exit=0", "is a wait"},
		{"capture\nexpect exit=0\nexpect ask=0 exit=0", "line 3, column 1: the same as line 2"},
		{"capture\nat azure \"GET x\" 1", "want at azure or kube"},
		{"capture\nat aws \"GET x\" 1 hang", `line 2, column 4: "aws" is no side`},
		{"capture\nat kube \"LIST x\" 1 hang", "line 2, column 9: request"},
		{"capture\nat kube GET x 1 hang", "request"},
		{"capture\nat kube \"GET x\" 0 hang", "column 17: which of the requests"},
		{"capture\nat kube \"GET x\" 1 explode", `column 19: "explode" does not happen: want one of throttle, error`},
		{"capture\nat kube \"GET x\" 1 hang 3", `hang takes no arguments, not "3"`},
		{"capture\nat kube \"GET x\" 1 error", "error takes STATUS [CODE]"},
		{"capture\nat kube \"GET x\" 1 error 200", "want a whole number from 400 to 599"},
		{"capture\nat kube \"GET x\" 1 error 500 No-Code", "want an error code or reason"},
		{"capture\nat kube \"GET x\" 1 clock 0", "want -86400 to 86400, not 0"},
		{"capture\nat kube \"GET x\" 1 nodeGone me", "want one of donor, bench, other"},
		{"capture\nat kube \"GET x\" 1 conflict", "conflict does not happen at a GET: want PUT, PATCH"},
		{"capture\nat kube \"PUT x\" 1 neverEnds", "neverEnds happens in azure only"},
		{"capture\nat kube \"PUT x\" 1 hang\nat kube \"PUT x\" 1  hang", "line 3, column 1: the same as line 2"},
		{"capture\nat kube \"PUT x\" 1 hang\nat kube \"PUT x\" 1 throttle 1", "line 3, column 1: throttle cannot be where hang is, in line 2"},
		{"capture\nat kube \"PUT x\" 1 interrupt\nat kube \"PUT x\" 1 cordon donor\nat kube \"PUT x\" 1 uncordon donor\nat kube \"PUT x\" 1 killAfter",
			"line 5, column 1: killAfter cannot be where interrupt is, in line 2"},
		{"capture\nexpect exit=0 says=\"x", "line 2, column 20: a string without an end"},
		{"capture\nexpect exit=0 says=\"x\"y", "want a blank after a string"},
		{"capture\nexpect exit=0 sa\"ys=x\"", "a quote within a word"},
		{"capture \"again\"", "is in quotes"},
		{"capture\x00", "line 1, column 8: a character that cannot be shown"},
		{"capture # why", `"#" is not a setting`},
		{"# \xff\ncapture", "not UTF-8"},
		{strings.Repeat("#", MaxText+1), "want at most 65536"},
		{strings.Repeat("capture\n", MaxAsks+1), "line 21, column 1: more than 20 asks"},
		{strings.Repeat("#\n", maxComment+1), "more than 200 lines of comment"},
	} {
		s, err := Parse(c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.80q gives %v, want %q", c.text, err, c.want)
		}
		if !reflect.DeepEqual(s, Scenario{}) {
			t.Errorf("%.80q gives an error and a scenario", c.text)
		}
	}
}

func TestHappeningsAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("capture\n")
	for i := range MaxEvents {
		fmt.Fprintf(&b, "at kube \"GET x\" %d hang\n", i+1)
	}
	parse(t, b.String())
	if _, err := Parse(b.String() + "at kube \"GET y\" 1 hang\n"); err == nil || !strings.Contains(err.Error(), "more than 200 happenings") {
		t.Errorf("got %v", err)
	}
}

// All mistakes are told at once, but not thousands.
func TestMistakesAreToldTogether(t *testing.T) {
	_, err := Parse("pool instances=1 zones=7\ndonor pods=-1\ncapture nod=1\n")
	for _, want := range []string{"line 1, column 6", "line 1, column 18", "line 2, column 7", "line 3, column 9"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	_, err = Parse(strings.Repeat("x\n", 1000))
	if n := strings.Count(err.Error(), "line "); n != maxErrors {
		t.Errorf("%d mistakes told, want %d", n, maxErrors)
	}
}

// Each field has the setting of its name, and each default is a valid value.
func TestSettingsAreTheFields(t *testing.T) {
	checkFields(t, poolSettings())
	checkFields(t, donorSettings())
	checkFields(t, chanceSettings())
	checkFields(t, expectSettings())
	both := captureSettings()
	for _, s := range rollbackSettings() {
		if !slices.ContainsFunc(both, func(c setting[Ask]) bool { return c.key == s.key }) {
			both = append(both, s)
		}
	}
	checkFields(t, both, "verb", "for")
}

func checkFields[T any](t *testing.T, settings []setting[T], but ...string) {
	t.Helper()
	var keys []string
	for _, s := range settings {
		keys = append(keys, s.key)
		var at T
		if s.must {
			continue
		}
		if err := s.set(&at, s.def); err != nil {
			t.Errorf("%T: the default of %s: %v", at, s.key, err)
		} else if got := s.get(&at); got != s.def {
			t.Errorf("%T: the default of %s is printed as %q, want %q", at, s.key, got, s.def)
		}
		if s.does == "" || s.allowed == "" {
			t.Errorf("%T: %s is not explained", at, s.key)
		}
	}
	var fields []string
	for f := range reflect.TypeFor[T]().Fields() {
		if key := strings.ToLower(f.Name); !slices.Contains(but, key) {
			fields = append(fields, key)
		}
	}
	slices.Sort(keys)
	slices.Sort(fields)
	if !slices.Equal(keys, fields) {
		t.Errorf("%s has the settings %v, and the fields %v", reflect.TypeFor[T](), keys, fields)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(story)
	f.Add("capture")
	f.Add("pool extensions=none\nrollback to=2026.11.20\nwait .5h\nat kube \"DELETE a/pods/b\" 7 error 429 TooManyRequests")
	f.Add("# a\n#\tb\n\nseed 1\ncapture rival=-1 again=false\nexpect exit=5 says=\"\\x00é\"")
	for seed := range uint64(20) {
		f.Add(Generate(seed).String())
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		printed := s.String()
		again, err := Parse(printed)
		if err != nil {
			t.Fatalf("%q parses, and what it prints does not: %v\n%s", text, err, printed)
		}
		if !reflect.DeepEqual(s, again) || again.String() != printed {
			t.Fatalf("%q prints as\n%s\nand then as\n%s", text, printed, again.String())
		}
	})
}
