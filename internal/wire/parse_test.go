package wire

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode"
)

const sha = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func TestParseGeneralizeLine(t *testing.T) {
	sealed := `"` + strings.Repeat("A", 64) + `"`
	for _, c := range []struct {
		name, line string
		ok         bool
	}{
		{"progress", `{"progress":"looking"}`, true},
		{"report", `{"report":{"capture":"c","donor":"d","at":"2026-11-21T00:00:00Z","outcome":"Generalized","removed":3,"bytes":9}}`, true},
		{"accepted finding", `{"report":{"outcome":"Generalized","findings":[{"path":"/a","class":"PoolCredential","rule":"r","accepted":true}]}}`, true},
		{"accepted other secret", `{"report":{"outcome":"Generalized","more":2,"findings":[{"path":"/a","class":"OtherSecret","rule":"r","accepted":true}]}}`, true},
		{"removed other secret", `{"report":{"outcome":"Generalized","secretsRemoved":1,"findings":[{"path":"/a","class":"OtherSecret","rule":"r","removed":true}]}}`, true},
		{"image stores", `{"report":{"outcome":"Generalized","stores":[{"path":"/a","bytes":9,"byForm":true},{"path":"/b","bytes":0}]}}`, true},
		{"sealed", `{"report":{"outcome":"Generalized","saved":[{"kind":"customData","sha256":"` + sha + `","sealed":` + sealed + `}]}}`, true},
		{"empty", ``, false},
		{"neither", `{}`, false},
		{"both", `{"progress":"x","report":{"outcome":"Generalized"}}`, false},
		{"unknown field", `{"progress":"x","more":1}`, false},
		{"two objects", `{"progress":"x"}{"progress":"y"}`, false},
		{"terminal escape", `{"progress":"\u001b[2J"}`, false},
		{"unknown outcome", `{"report":{"outcome":"Fine"}}`, false},
		{"unaccepted finding in a generalized disk", `{"report":{"outcome":"Generalized","findings":[{"path":"/a","class":"PoolCredential","rule":"r"}]}}`, false},
		{"accepted identity", `{"report":{"outcome":"SecretsFound","findings":[{"path":"/a","class":"NodeIdentity","rule":"r","accepted":true}]}}`, false},
		{"removed identity", `{"report":{"outcome":"SecretsFound","findings":[{"path":"/a","class":"NodeIdentity","rule":"r","removed":true}]}}`, false},
		{"removed pool credential", `{"report":{"outcome":"Generalized","findings":[{"path":"/a","class":"PoolCredential","rule":"r","removed":true}]}}`, false},
		{"removed and accepted", `{"report":{"outcome":"Generalized","findings":[{"path":"/a","class":"OtherSecret","rule":"r","accepted":true,"removed":true}]}}`, false},
		{"unaccepted other secret", `{"report":{"outcome":"Generalized","findings":[{"path":"/a","class":"OtherSecret","rule":"r"}]}}`, false},
		{"relative image store", `{"report":{"outcome":"Generalized","stores":[{"path":"a","bytes":9}]}}`, false},
		{"negative image store", `{"report":{"outcome":"Generalized","stores":[{"path":"/a","bytes":-9}]}}`, false},
		{"negative number of removed secrets", `{"report":{"outcome":"Generalized","secretsRemoved":-1}}`, false},
		{"relative path", `{"report":{"outcome":"SecretsFound","findings":[{"path":"a","class":"NodeIdentity","rule":"r"}]}}`, false},
		{"short seal", `{"report":{"outcome":"Generalized","saved":[{"kind":"customData","sha256":"` + sha + `","sealed":"AAAA"}]}}`, false},
		{"bad hash", `{"report":{"outcome":"Generalized","saved":[{"kind":"customData","sha256":"x","sealed":` + sealed + `}]}}`, false},
		{"settings without a name", `{"report":{"outcome":"Generalized","saved":[{"kind":"protectedSettings","sha256":"` + sha + `","sealed":` + sealed + `}]}}`, false},
		{"long message", `{"report":{"outcome":"Failed","message":"` + strings.Repeat("x", maxText+1) + `"}}`, false},
		{"negative", `{"report":{"outcome":"Failed","removed":-1}}`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := ParseGeneralizeLine([]byte(c.line)); (err == nil) != c.ok {
				t.Errorf("error %v, want none: %v", err, c.ok)
			}
		})
	}
}

func TestAcceptedSecrets(t *testing.T) {
	for at, ok := range map[string]bool{
		"/etc/a": true, "/opt/a/": true, "/": false, "": false, "etc/a": false, "//": false, "/etc/../root/": false, "/a//": false, "/a\nb": false,
		"/" + strings.Repeat("x", 2<<10): false,
	} {
		if err := CheckAcceptedSecret(at); (err == nil) != ok {
			t.Errorf("%q: %v, want an error: %t", at, err, !ok)
		}
	}
	accepted := []string{"/etc/a", "/opt/a/"}
	for file, want := range map[string]bool{"/etc/a": true, "/etc/a/b": false, "/etc/ab": false, "/opt/a/b/c": true, "/opt/a": false, "/opt/ab": false} {
		if got := AcceptsSecret(accepted, file); got != want {
			t.Errorf("%s accepted: %t, want %t", file, got, want)
		}
	}
}

// eachText calls do for every text in decoded JSON.
func eachText(tree any, do func(string)) {
	switch v := tree.(type) {
	case string:
		do(v)
	case []any:
		for _, x := range v {
			eachText(x, do)
		}
	case map[string]any:
		for k, x := range v {
			do(k)
			eachText(x, do)
		}
	}
}

func FuzzParseGeneralizeLine(f *testing.F) {
	f.Add([]byte(`{"report":{"outcome":"SecretsFound","at":"2026-11-21T10:00:00.5+01:00","saved":[{"kind":"protectedSettings","name":"x","sha256":"` + sha + `","sealed":"` + strings.Repeat("A", 64) + `"}],"unsaved":["a\u2028b"],"bytes":9223372036854775807}}`))
	f.Add([]byte(`{"PROGRESS":"x","progress":"y"}`))
	f.Add([]byte(`{"progress":"looking"}`))
	f.Add([]byte(`{"report":{"outcome":"Generalized","findings":[{"path":"/a","class":"PoolCredential","rule":"r","accepted":true}]}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		l, err := ParseGeneralizeLine(line)
		if err != nil {
			return
		}
		again, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		once, err := ParseGeneralizeLine(again)
		if err != nil {
			t.Fatalf("what was accepted does not come back: %v", err)
		}
		if twice, err := json.Marshal(once); err != nil || !bytes.Equal(again, twice) {
			t.Errorf("%s\nbecame\n%s (%v)", again, twice, err)
		}
		// It can be shown: nothing in it moves a cursor.
		var tree any
		if err := json.Unmarshal(again, &tree); err != nil {
			t.Fatal(err)
		}
		eachText(tree, func(s string) {
			if strings.ContainsFunc(s, unicode.IsControl) {
				t.Errorf("%q was accepted", s)
			}
		})
	})
}

// TestLacks reads what a report lacks: its data, or the sentences of an earlier release.
func TestLacks(t *testing.T) {
	const handler = "Microsoft.Azure.Extensions.CustomScript"
	for name, c := range map[string]struct {
		report GeneralizeReport
		want   []UnsavedItem
	}{
		"nothing": {},
		"data, in other words": {GeneralizeReport{Unsaved: []string{"the settings of cse are sealed"}, Missing: []UnsavedItem{{Kind: ProtectedSettings, Name: handler}}},
			[]UnsavedItem{{Kind: ProtectedSettings, Name: handler}}},
		"customData not read":         {GeneralizeReport{Unsaved: []string{"customData: ovf-env.xml: no XML"}}, []UnsavedItem{{Kind: CustomData}}},
		"customData, no key":          {GeneralizeReport{Unsaved: []string{"customData: " + NoSealKey}}, []UnsavedItem{{Kind: CustomData, Readable: true}}},
		"protected settings not read": {GeneralizeReport{Unsaved: []string{"protected settings of " + handler + ": larger than 1 MiB"}}, []UnsavedItem{{Kind: ProtectedSettings, Name: handler}}},
		"protected settings, no key":  {GeneralizeReport{Unsaved: []string{"protectedSettings " + handler + ": " + NoSealKey}}, []UnsavedItem{{Kind: ProtectedSettings, Name: handler, Readable: true}}},
		"an earlier run's end":        {report: GeneralizeReport{Unsaved: []string{"an earlier run of this capture got to its end on this disk"}}},
	} {
		if got := c.report.Lacks(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
