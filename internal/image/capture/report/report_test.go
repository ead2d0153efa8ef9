package report_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture/report"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/wire"
)

// TestUnsaved names the protected settings that are deleted and were not saved.
func TestUnsaved(t *testing.T) {
	const handler, lost = "Microsoft.Azure.Extensions.CustomScript", "protected settings of extension cse: the donor's disk has none of them"
	cse := plan.OriginalExtension{Extension: fleet.Extension{Name: "cse", Publisher: "Microsoft.Azure.Extensions", Type: "CustomScript",
		HasProtectedSettings: true}}
	known, plain := cse, cse
	known.ProtectedSHA256, plain.HasProtectedSettings = "abc", false
	failed := []string{"protected settings of " + handler + ": no key"}
	for name, c := range map[string]struct {
		e      plan.OriginalExtension
		stays  bool
		report wire.GeneralizeReport
		want   []string
	}{
		"nothing on the disk": {e: cse, want: []string{lost}},
		"saved": {e: cse, report: wire.GeneralizeReport{Saved: []wire.SealedItem{{Kind: wire.ProtectedSettings,
			Name: handler, SHA256: "abc"}}}},
		"saved by an earlier capture": {e: known},
		"has none":                    {e: cse, report: wire.GeneralizeReport{NoProtected: []string{handler}}},
		"not decrypted":               {e: cse, report: wire.GeneralizeReport{Unsaved: failed}, want: failed},
		"type without protected ones": {e: plain},
		"extension that stays":        {e: cse, stays: true},
		"customData that cannot be read": {e: known, report: wire.GeneralizeReport{Unsaved: []string{"customData: x"}},
			want: []string{"customData: x"}},
	} {
		toDelete := []string{"cse"}
		if c.stays {
			toDelete = nil
		}
		var found report.Found
		inherited := plan.Inherited{Original: &plan.Original{Extensions: []plan.OriginalExtension{c.e}}}
		found.Learn(&inherited, report.Disk{ToDelete: toDelete}, c.report, "abc", time.Time{})
		if o := inherited.Original; o.CustomData != "" || o.Extensions[0].ProtectedSHA256 != c.e.ProtectedSHA256 {
			t.Errorf("%s: learned of a donor that is not of the original: %+v", name, o)
		}
		found.Learn(&inherited, report.Disk{ToDelete: toDelete, LearnsOriginal: true}, c.report, "abc", time.Time{})
		if inherited.Original.CustomData != "abc" {
			t.Errorf("%s: not learned: %+v", name, inherited.Original)
		}
		if !slices.Equal(found.Unsaved, c.want) {
			t.Errorf("%s: %q, want %q", name, found.Unsaved, c.want)
		}
	}
}

// TestProblems refuses a disk for what its report says, of which some is accepted or harmless.
func TestProblems(t *testing.T) {
	found := func(x wire.SecretFinding) wire.GeneralizeReport {
		outcome := wire.SecretsFound
		if x.Accepted || x.Removed {
			outcome = wire.Generalized
		}
		return wire.GeneralizeReport{Outcome: outcome, Findings: []wire.SecretFinding{x}, Joins: []string{"/etc/kubernetes/bootstrap.conf"}}
	}
	custom := wire.GeneralizeReport{Outcome: wire.Generalized, Saved: []wire.SealedItem{{Kind: wire.CustomData, SHA256: "abc"}}}
	for name, c := range map[string]struct {
		report wire.GeneralizeReport
		disk   report.Disk
		want   string // a problem's code; "" for none
	}{
		"identity":                     {found(wire.SecretFinding{Class: wire.NodeIdentity, Path: "/a"}), report.Disk{}, "IdentityOnDisk"},
		"pool's credential":            {found(wire.SecretFinding{Class: wire.PoolCredential, Path: "/a"}), report.Disk{}, "PoolCredentials"},
		"accepted":                     {found(wire.SecretFinding{Class: wire.PoolCredential, Path: "/a", Accepted: true}), report.Disk{}, ""},
		"removed":                      {found(wire.SecretFinding{Class: wire.OtherSecret, Path: "/a", Removed: true}), report.Disk{}, ""},
		"more than is listed":          {wire.GeneralizeReport{Outcome: wire.SecretsFound, Message: "too many", Joins: []string{"/a"}}, report.Disk{}, "OtherSecrets"},
		"disk that cannot be read":     {wire.GeneralizeReport{Outcome: wire.DiskRefused}, report.Disk{}, "DiskRefused"},
		"joins by its customData":      {custom, report.Disk{ToDelete: []string{"cse"}}, ""},
		"joins by what is deleted":     {wire.GeneralizeReport{Outcome: wire.Generalized}, report.Disk{ToDelete: []string{"cse"}}, "CannotJoin"},
		"customData could not be read": {wire.GeneralizeReport{Outcome: wire.Generalized, Unsaved: []string{"customData: x"}}, report.Disk{ToDelete: []string{"cse"}}, ""},
		"baked before":                 {wire.GeneralizeReport{Outcome: wire.Generalized}, report.Disk{LastCustomData: plan.NoopSHA256}, "CannotJoin"},
		"baked":                        {wire.GeneralizeReport{Outcome: wire.Generalized}, report.Disk{Request: plan.Request{Bootstrap: plan.BootstrapBaked}, ToDelete: []string{"cse"}}, ""},
	} {
		problems := c.disk.Problems(c.report, 10)
		if codes := fleet.Each(problems, func(p fleet.Problem) string { return p.Code }); strings.Join(codes, " ") != c.want {
			t.Errorf("%s: %v, want %q", name, problems, c.want)
		}
	}
}

// TestRead says that a report is of another version of ortet-node, and nothing of what is cut off or is none.
func TestRead(t *testing.T) {
	const known = `{"report":{"capture":"c","donor":"d","at":"2026-01-02T03:04:05Z","outcome":"Generalized"}}` + "\n"
	newer := strings.Replace(known, `"donor"`, `"newer":1,"donor"`, 1)
	for name, c := range map[string]struct {
		output            string
		report, isAnother bool
	}{
		"of this version":                  {known, true, false},
		"of another":                       {newer, false, true},
		"of another, and of this":          {newer + known, true, false},
		"cut off":                          {newer[:len(newer)-4], false, false},
		"progress of another":              {`{"progress":"scanning","newer":1}` + "\n", false, false},
		"no line of the program":           {"panic: runtime error\n", false, false},
		"of another, with wrong values":    {strings.Replace(newer, "Generalized", "Newly", 1), false, true},
		"of this version, of wrong values": {strings.Replace(known, "Generalized", "Newly", 1), false, false},
	} {
		_, got, err := report.Read([]byte(c.output))
		if (got != nil) != c.report || errors.Is(err, wire.ErrOtherVersion) != c.isAnother || (err != nil) != c.isAnother {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// What the workbench prints costs no more than one manifest, and one that cannot be read is none.
func TestManifestOfAPod(t *testing.T) {
	line := func(m []byte) []byte {
		text, err := json.Marshal(wire.GeneralizeLine{Manifest: m})
		if err != nil {
			t.Fatal(err)
		}
		return append(text, '\n')
	}
	good, _ := wire.Manifest{Kubelet: "v1.31.2"}.Pack()
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, err := z.Write([]byte(`{"packages":[` + strings.Repeat("{},", 1<<18) + `{}]}`))
	if err = errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	read := func(output []byte) (manifest []byte, memory uint64) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		manifest = report.Manifest(output)
		runtime.ReadMemStats(&after)
		return manifest, after.TotalAlloc - before.TotalAlloc
	}
	_, one := read(line(bomb.Bytes()))
	for name, c := range map[string]struct{ output, want []byte }{
		"one":             {slices.Concat([]byte("x\n"), line(good)), good},
		"none":            {[]byte("x\n"), nil},
		"many, one good":  {append(bytes.Repeat(line(bomb.Bytes()), 300), line(good)...), good},
		"many, none good": {bytes.Repeat(line(bomb.Bytes()), 300), nil},
	} {
		if got, memory := read(c.output); !bytes.Equal(got, c.want) || memory > 2*one {
			t.Errorf("%s: %d bytes, by %d bytes of memory, and one manifest takes %d", name, len(got), memory, one)
		}
	}
}
