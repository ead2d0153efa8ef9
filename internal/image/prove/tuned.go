package prove

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

// A Boot is what a machine's boot report, or else its console, says beside its Node. nil lists are
// not known.
type Boot struct {
	HostKeys []string `json:"hostKeys"` // "ssh-ed25519 SHA256:…"
	Failed   []string `json:"failed"`   // units
	Console  bool     `json:"console,omitempty"`
}

// Known reports whether nothing is missing.
func (b Boot) Known() bool { return b.HostKeys != nil && b.Failed != nil }

// Or fills what is not known from another Boot of the same machine.
func (b Boot) Or(other Boot) Boot {
	if b.HostKeys == nil {
		b.HostKeys = other.HostKeys
	}
	if b.Failed == nil {
		b.Failed, b.Console = other.Failed, other.Console
	}
	return b
}

// Reported returns what a boot report says. One of an earlier agent has no host keys.
func Reported(r wire.BootReport) (b Boot) {
	for _, s := range r.Sources {
		if s.Name == wire.SourceSSHHostKey {
			b.HostKeys = append(b.HostKeys, s.Detail)
		}
	}
	if b.HostKeys != nil { // one without a key has an empty Detail
		b.HostKeys = slices.DeleteFunc(b.HostKeys, func(key string) bool { return key == "" })
	}
	if len(r.Units) > 0 {
		b.Failed = []string{}
	}
	for _, u := range r.Units {
		if u.Result != "" {
			b.Failed = append(b.Failed, u.Name)
		}
	}
	return b
}

var (
	// cloud-init's module keys-to-console writes the keys, and systemd the units' results.
	consoleKeys  = regexp.MustCompile(`(?s)-----BEGIN SSH HOST KEY KEYS-----(.*?)-----END SSH HOST KEY KEYS-----`)
	consoleUnits = regexp.MustCompile(`\[(?:\x1b\[[0-9;]*m)*(  OK  |FAILED)(?:\x1b\[[0-9;]*m)*\] (?:Failed to start )?([^\r\n\x1b]{1,200})`)
)

// OnConsole returns what a serial console says: the last keys, and the failures of all boots on it.
func OnConsole(log []byte) (b Boot) {
	if all := consoleKeys.FindAllSubmatch(log, -1); len(all) > 0 {
		b.HostKeys = []string{}
		for line := range strings.Lines(string(all[len(all)-1][1])) {
			if key := wire.SSHHostKey(line); key != "" {
				b.HostKeys = append(b.HostKeys, key)
			}
		}
	}
	for _, m := range consoleUnits.FindAllSubmatch(log, -1) {
		if b.Console = true; b.Failed == nil {
			b.Failed = []string{}
		}
		if string(m[1]) == "FAILED" {
			b.Failed = append(b.Failed, strings.ToValidUTF8(strings.Trim(string(m[2]), " ."), "?"))
		}
	}
	return b
}

// reportFor is how long a clone's boot report is waited for where the donor has one.
const reportFor = time.Minute

// Gates of tuned versions.
const (
	gateHostKey = "host-key"
	gateUnits   = "units"
)

// tuned takes a clone of a tuned version through its gates. Without one that fails, why says what could
// not be checked; "" if all was.
func (o Observation) tuned(c Clone, b Baseline) (gate, why string) {
	kind, kinds := "", "of any type"
	if slices.Contains(b.Tuned, wire.TuneSSHHostKey) {
		kind, kinds = "ssh-ed25519 ", "of type ssh-ed25519"
	}
	is := func(key string) bool { return strings.HasPrefix(key, kind) }
	sshd := kind != "" || len(b.DonorBoot.HostKeys) > 0
	if c.Boot.HostKeys != nil && sshd && !slices.ContainsFunc(c.Boot.HostKeys, is) {
		return gateHostKey, "has no SSH host key " + kinds
	}
	for _, key := range c.Boot.HostKeys {
		if slices.Contains(b.DonorBoot.HostKeys, key) {
			return gateHostKey, "has an SSH host key of its donor, " + key
		}
		for _, x := range o.Clones {
			if x.Instance.Name != c.Instance.Name && slices.Contains(x.Boot.HostKeys, key) {
				return gateHostKey, "has an SSH host key of " + x.Instance.Name + ", " + key
			}
		}
	}
	compared := c.Boot.Failed != nil && b.DonorBoot.Failed != nil && c.Boot.Console == b.DonorBoot.Console
	for _, unit := range c.Boot.Failed {
		if compared && !slices.Contains(b.DonorBoot.Failed, unit) {
			return gateUnits, "failed to start " + unit + ", which had not failed on the donor"
		}
	}
	var missing []string
	if c.Boot.HostKeys == nil || b.DonorBoot.HostKeys == nil {
		missing = append(missing, "its SSH host key")
	}
	if !compared {
		missing = append(missing, "which units failed")
	}
	if len(missing) == 0 {
		return "", ""
	}
	return "", fmt.Sprintf("%s of %s was not checked: %s", strings.Join(missing, " and "), c.Instance.Name, Unseen(c.Boot, b.DonorBoot))
}

// Unseen says what of a clone or of the donor is missing for the gates of tuned versions.
func Unseen(clone, donor Boot) string {
	const needs = " a boot report of this version's ortet-node, nor a console that shows it"
	switch {
	case !clone.Known() && !donor.Known():
		return "neither clone nor donor has" + needs
	case clone.Known() && donor.Known():
		return "one has a boot report, and the other a console only"
	case donor.Known():
		return "the clone has neither" + needs
	}
	return "the donor has neither" + needs
}
