package report_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/image/capture/report"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/wire"
)

// TestKeep keeps of a scan what was accepted and removed, each file once, and what people have to know.
func TestKeep(t *testing.T) {
	key := func(path string, class wire.SecretClass, accepted, removed bool) wire.SecretFinding {
		return wire.SecretFinding{Path: path, Class: class, Accepted: accepted, Removed: removed}
	}
	for name, c := range map[string]struct {
		report                    wire.GeneralizeReport
		pool, other, gone, secret string
		notes                     []string
	}{
		"nothing": {},
		"accepted and removed": {report: wire.GeneralizeReport{SecretsRemoved: 3, Findings: []wire.SecretFinding{key("/p", wire.PoolCredential, true, false), key("/b", wire.OtherSecret, true, false),
			key("/a", wire.OtherSecret, true, false), key("/a", wire.OtherSecret, true, false), key("/r", wire.OtherSecret, false, true), key("/q", wire.PoolCredential, false, true), key("/x", wire.OtherSecret, false, false)}},
			pool: "/p", other: "/a /b", gone: "/q /r", secret: "pool 1, other 2, removed 3"},
		"emptied": {report: wire.GeneralizeReport{Emptied: []string{"/e"}}, notes: []string{"these files are empty, and were written in the minute before the disk was copied; if they should not be, capture again: /e"}},
		"files of tunings that somebody changed": {report: wire.GeneralizeReport{TunedKept: []string{"/t"}},
			notes: []string{"an earlier capture's --tune added these files, and somebody changed them since, so that they stay: /t"}},
		"image stores": {report: wire.GeneralizeReport{Stores: []wire.ImageStore{{Path: "/a", Bytes: 1 << 30}, {Path: "/b", Bytes: 1 << 29}, {Path: "/c", Bytes: 9 << 30, ByForm: true}}},
			notes: []string{"1.5 GiB of image layers were searched for the node's own secrets only (/a, /b); --scan-images searches them for all kinds"}},
		"image stores that are searched": {report: wire.GeneralizeReport{Stores: []wire.ImageStore{{Path: "/c", Bytes: 9 << 30, ByForm: true}, {Path: "/d"}}}},
		"more":                           {report: wire.GeneralizeReport{More: 2}, notes: []string{"2 more secrets were found on the disk than are listed"}},
	} {
		found := report.Found{Secrets: "old", ScanNotes: []string{"old"}, Credentials: []string{"old"}}
		found.Keep(c.report)
		if strings.Join(found.Credentials, " ") != c.pool || strings.Join(found.AcceptedSecrets, " ") != c.other || strings.Join(found.RemovedSecrets, " ") != c.gone ||
			found.Secrets != c.secret || !slices.Equal(found.ScanNotes, c.notes) {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// TestInspected turns what a donor's disk shows, and nothing forbids, into notes.
func TestInspected(t *testing.T) {
	joins := []string{"/etc/kubernetes/bootstrap.conf"}
	removed := []wire.SecretFinding{{Path: "/r", Class: wire.OtherSecret, Removed: true}}
	baked := plan.Request{Bootstrap: plan.BootstrapBaked, Node: "n"}
	for name, c := range map[string]struct {
		request plan.Request
		report  wire.GeneralizeReport
		code    string
		says    string // problem or note
	}{
		"nothing":                      {report: wire.GeneralizeReport{Joins: joins}},
		"secrets that go":              {report: wire.GeneralizeReport{Joins: joins, Findings: removed, SecretsRemoved: 4}, says: "--remove-secrets deletes from the copy: /r"},
		"kubelet on another disk":      {report: wire.GeneralizeReport{Joins: joins, Elsewhere: []wire.ElsewhereFolder{{Path: "/var/lib/kubelet", Kubelet: true, Bytes: 3 << 20}}}, says: "/var/lib/kubelet lies on another disk than the root of the donor: what is there (3 MiB are used"},
		"and nothing makes it again":   {request: baked, report: wire.GeneralizeReport{Elsewhere: []wire.ElsewhereFolder{{Path: "/var/lib/kubelet", Kubelet: true}}}, code: "KubeletElsewhere", says: "/var/lib/kubelet lies on another disk"},
		"images are pulled again":      {request: baked, report: wire.GeneralizeReport{Elsewhere: []wire.ElsewhereFolder{{Path: "/var/lib/containerd", Bytes: 1 << 20}}}, says: "/var/lib/containerd lies on another disk than the root of the donor: what is there (1 MiB are used"},
		"not inspected to its end":     {report: wire.GeneralizeReport{Joins: joins, Partial: true}, says: "the inspection of the donor's disk ended at its limit"},
		"refused":                      {report: wire.GeneralizeReport{Outcome: wire.DiskRefused, Partial: true}, code: "DiskRefused", says: "its disk cannot be captured"},
		"failed":                       {report: wire.GeneralizeReport{Outcome: wire.GeneralizeFailed}, code: "", says: "it failed without a reason"},
		"failed with a reason":         {report: wire.GeneralizeReport{Outcome: wire.GeneralizeFailed, Message: "no mount"}, code: "", says: "no mount"},
		"secrets of the pool's others": {report: wire.GeneralizeReport{Outcome: wire.SecretsFound, Joins: joins, Findings: []wire.SecretFinding{{Path: "/a", Class: wire.PoolCredential, Rule: "kubeconfig", Detail: "a token"}}}, code: report.CodePoolCredentials, says: "which every new node would hold: /a (kubeconfig, a token)"},
	} {
		var said []string
		problems := report.Disk{Request: c.request}.Inspected(c.report, func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) })
		code := ""
		for _, p := range problems {
			code, said = p.Code, append(said, p.What)
		}
		if code != c.code || !strings.Contains(strings.Join(said, "\n"), c.says) || (len(said) > 0) != (c.says != "") {
			t.Errorf("%s: %v, %q", name, problems, said)
		}
	}
}

// TestLearn learns the original from the first donor's disk that shows it; what a later one shows counts no
// more, and is returned.
func TestLearn(t *testing.T) {
	for name, c := range map[string]struct {
		original *plan.Original
		learns   bool
		custom   string
		want     string // customData of the original
		differ   string
	}{
		"no original":         {learns: true, custom: "abc"},
		"first donor":         {original: &plan.Original{}, learns: true, custom: "abc", want: "abc"},
		"not a donor of it":   {original: &plan.Original{}, custom: "abc"},
		"another donor, same": {original: &plan.Original{CustomData: "abc"}, learns: true, custom: "abc", want: "abc"},
		"another donor disagrees": {original: &plan.Original{CustomData: "abc", Learned: []plan.Learned{{Kind: string(wire.CustomData), SHA256: "abc", Donor: "a", At: time.Unix(1, 0)}}},
			learns: true, custom: "xyz", want: "abc", differ: "customData"},
	} {
		h := plan.Inherited{Original: c.original}
		var found report.Found
		differ := found.Learn(&h, report.Disk{Request: plan.Request{Node: "b"}, LearnsOriginal: c.learns}, wire.GeneralizeReport{}, c.custom, time.Unix(2, 0))
		got := ""
		if h.Original != nil {
			got = h.Original.CustomData
		}
		if got != c.want || strings.Join(differ, " ") != c.differ {
			t.Errorf("%s: %q, differ %q", name, got, differ)
		}
	}
}
