package verdict

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/wire"
)

// A secret that only the line below the last quoted one shows to be one.
func TestExcerptReadsTheLineBelow(t *testing.T) {
	const planted = "s3cr3tValue"
	logs := []Log{{Source: "/var/log/cloud-init-output.log", Lines: append([]string{"error execution phase preflight: x"}, slices.Repeat([]string{"+ echo u:" + planted, "+ chpasswd"}, linesAfter)...)}}
	text, err := json.Marshal(verdictOf(Judge(Facts{Deadline: true, Logs: logs})))
	if err != nil || strings.Contains(string(text), planted) {
		t.Errorf("%s, %v", text, err)
	}
}

// Whatever is planted in any of the facts, the verdict has none of it.
func TestVerdictHoldsNoSecrets(t *testing.T) {
	const value, token, body = "s3cr3tValue", "0123456789abcdef", "bm9ib2R5J3M"
	lines := []string{
		"got abcdef." + token, "x password=" + value, "x --token " + value, `x "auth": "` + value + `"`, "x https://u:" + value + "@h", "x curl -u u:" + value + " h",
		"x echo u:" + value + " | chpasswd", "x sig=" + value, "-----BEGIN PRIVATE KEY-----", body, "-----END PRIVATE KEY-----",
		"error execution phase preflight: --token abcdef." + token,
	}
	all := strings.Join(lines, "\n")
	f := Facts{
		CloudInit: &CloudInit{Done: true, Stages: []Stage{{Name: "init", Begin: 1, End: 2, Errors: lines, Recoverable: map[string][]string{"ERROR": lines}}}},
		Provision: &Provision{ExitCode: "50", Output: all, Error: all, SystemdSummary: all},
		Units:     []Unit{{Name: "a --token " + value, Asked: true, Active: "failed"}},
		Kubelet:   Kubelet{Wanted: true, Last: "token=" + value},
		Logs: []Log{
			{Source: "/var/log/cloud-init-output.log", Lines: lines}, {Source: "journal kubelet.service", Lines: lines},
			{Source: "journal containerd.service", Lines: lines}, {Source: "https://u:" + value + "@h", Lines: lines},
		},
	}
	for _, change := range []func(){func() {}, func() { f.Provision = nil }, func() { f.CloudInit = nil }, func() { f.Sentinel = true }, func() { f.Deadline = true }, func() { f.Units = nil }} {
		change()
		text, err := json.Marshal(verdictOf(Judge(f)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := wire.ParseVerdict(text); err != nil {
			t.Error(err)
		}
		for _, planted := range []string{value, token, body} {
			if strings.Contains(string(text), planted) {
				t.Errorf("%s is in %s", planted, text)
			}
		}
	}
}
