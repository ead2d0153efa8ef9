package prove_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/image/prove"
	"github.com/ortet/ortet/internal/wire"
)

const (
	edKey  = "ssh-ed25519 SHA256:a"
	rsaKey = "ssh-rsa SHA256:r"
)

func boot(keys []string, failed ...string) prove.Boot {
	return prove.Boot{HostKeys: keys, Failed: append([]string{}, failed...)}
}

func TestGatesOfTunedVersions(t *testing.T) {
	donor := boot([]string{"ssh-ed25519 SHA256:d", "ssh-rsa SHA256:d"}, "fwupd.service")
	console := boot([]string{edKey}, "Failed X")
	console.Console = true
	for name, c := range map[string]struct {
		tuned  []string
		donor  prove.Boot
		boots  []prove.Boot
		early  bool // the report may still come
		result prove.Result
		gate   string
		why    string
	}{
		"good":                     {wire.RecommendedTunings(), donor, []prove.Boot{boot([]string{edKey}, "fwupd.service"), boot([]string{"ssh-ed25519 SHA256:b"})}, false, prove.Passed, "", ""},
		"untuned, and no report":   {nil, prove.Boot{}, []prove.Boot{{}, {}}, false, prove.Passed, "", ""},
		"no key of the kind":       {wire.RecommendedTunings(), donor, []prove.Boot{boot([]string{rsaKey}), boot([]string{edKey})}, false, prove.Failed, "host-key", "has no SSH host key of type ssh-ed25519"},
		"no key at all":            {wire.RecommendedTunings(), donor, []prove.Boot{boot([]string{}), boot([]string{edKey})}, false, prove.Failed, "host-key", "has no SSH host key"},
		"another kind, not asked":  {[]string{wire.TuneRuntimeEarly}, donor, []prove.Boot{boot([]string{rsaKey}), boot([]string{edKey})}, false, prove.Passed, "", ""},
		"the donor's key":          {wire.RecommendedTunings(), donor, []prove.Boot{boot([]string{"ssh-ed25519 SHA256:d"}), boot([]string{edKey})}, false, prove.Failed, "host-key", "has an SSH host key of its donor"},
		"one key for both":         {wire.RecommendedTunings(), donor, []prove.Boot{boot([]string{edKey}), boot([]string{edKey})}, false, prove.Failed, "host-key", "has an SSH host key of pool1-canary_1"},
		"a unit failed":            {wire.RecommendedTunings(), donor, []prove.Boot{boot([]string{edKey}, "containerd.service"), boot([]string{rsaKey, "ssh-ed25519 SHA256:b"})}, false, prove.Failed, "units", "failed to start containerd.service, which had not failed on the donor"},
		"nothing is known":         {wire.RecommendedTunings(), prove.Boot{}, []prove.Boot{{}, {}}, false, prove.Passed, "", "its SSH host key and which units failed of pool1-canary_0 was not checked: neither clone nor donor has"},
		"the donor is not known":   {wire.RecommendedTunings(), prove.Boot{}, []prove.Boot{boot([]string{edKey}), boot([]string{"ssh-ed25519 SHA256:b"})}, false, prove.Passed, "", "was not checked: the donor has neither"},
		"no unit to compare with":  {wire.RecommendedTunings(), prove.Boot{}, []prove.Boot{boot([]string{edKey}, "a.service"), boot([]string{"ssh-ed25519 SHA256:b"})}, false, prove.Passed, "", "its SSH host key and which units failed of pool1-canary_0 was not checked"},
		"donor of an earlier one":  {wire.RecommendedTunings(), prove.Boot{Failed: []string{}}, []prove.Boot{boot([]string{edKey}), boot([]string{"ssh-ed25519 SHA256:b"})}, false, prove.Passed, "", "its SSH host key of pool1-canary_0 was not checked"},
		"clones are not known":     {wire.RecommendedTunings(), donor, []prove.Boot{{}, {}}, false, prove.Passed, "", "was not checked: the clone has neither"},
		"clones are not known yet": {wire.RecommendedTunings(), donor, []prove.Boot{{}, {}}, true, prove.Waits, "", "its boot report is still to come"},
		"report beside console":    {wire.RecommendedTunings(), donor, []prove.Boot{console, boot([]string{"ssh-ed25519 SHA256:b"})}, false, prove.Passed, "", "which units failed of pool1-canary_0 was not checked"},
	} {
		w := newWorld(2)
		w.base.Tuned, w.base.DonorBoot = c.tuned, c.donor
		if c.early {
			w.Soak = 30 * time.Second
			w.at(70*time.Second + w.Soak)
		}
		for i := range c.boots {
			w.Clones[i].Boot = c.boots[i]
		}
		j := prove.Judge(w.Observation, w.base, 2)
		f := j.Findings[0]
		if j.Result != c.result || f.Gate != c.gate || !strings.Contains(f.Why, c.why) || c.why == "" && f.Why != "" {
			t.Errorf("%s: %s, %+v", name, j.Result, f)
		}
	}
}

// An outage of the cluster explains a unit that failed, and no key of the donor.
func TestOutageExcusesNoHostKey(t *testing.T) {
	for gate, clone := range map[string]prove.Boot{"host-key": boot([]string{"ssh-ed25519 SHA256:d"}), "": boot([]string{edKey}, "a.service")} {
		w := newWorld(1)
		w.base.Tuned, w.base.DonorBoot, w.Outage = wire.RecommendedTunings(), boot([]string{"ssh-ed25519 SHA256:d"}), w.Now
		w.Clones[0].Boot = clone
		if j := prove.Judge(w.Observation, w.base, 1); (j.Result == prove.Failed) != (gate != "") || j.Gate != gate {
			t.Errorf("want the gate %q: %s, %+v", gate, j.Result, j.Finding)
		}
	}
}

// What a node reports is a field that an earlier controller reads, and what a console shows.
func TestBootsThatAreSeen(t *testing.T) {
	const line = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPq1t8hpRZ1lq5nUW5jGrWfF7s3j1dZ0bqQ1yJwXgDkR root@clone"
	key := wire.SSHHostKey(line)
	if !strings.HasPrefix(key, "ssh-ed25519 SHA256:") || wire.SSHHostKey("ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIPq1") != "" {
		t.Fatalf("fingerprint %q", key)
	}
	seen := prove.OnConsole([]byte("[\x1b[0;32m  OK  \x1b[0m] Started a.service.\r\n[\x1b[0;1;31mFAILED\x1b[0m] Failed to start b.service - B.\r\n" +
		"-----BEGIN SSH HOST KEY KEYS-----\r\n" + line + "\r\n-----END SSH HOST KEY KEYS-----\r\n"))
	if !seen.Known() || !seen.Console || len(seen.HostKeys) != 1 || seen.HostKeys[0] != key || len(seen.Failed) != 1 || seen.Failed[0] != "b.service - B" {
		t.Errorf("%+v", seen)
	}
	if quiet := prove.OnConsole([]byte("login: ")); quiet.HostKeys != nil || quiet.Failed != nil {
		t.Errorf("%+v", quiet)
	}
	r := wire.BootReport{Version: wire.BootReportVersion, Units: []wire.BootUnit{{Name: "a.service"}, {Name: "b.service", Result: "exit-code"}},
		Sources: []wire.BootSource{{Name: wire.SourceSSHHostKey, State: wire.SourceRead, Detail: key}}}
	if b := prove.Reported(r); !b.Known() || b.HostKeys[0] != key || b.Failed[0] != "b.service" || len(b.Failed) != 1 {
		t.Errorf("%+v", b)
	}
	r.Sources[0].Detail, r.Sources[0].State = "", wire.SourceMissing
	if b := prove.Reported(r); b.HostKeys == nil || len(b.HostKeys) != 0 {
		t.Errorf("no key at all is not known: %+v", b)
	}
	r.Sources = nil // an earlier agent's
	if b := prove.Reported(r); b.HostKeys != nil {
		t.Errorf("an earlier agent's report: %+v", b)
	}
}
