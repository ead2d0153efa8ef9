package generalize

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/wire"
)

// prefixedForms are what programs write around each line of a key.
func prefixedForms() map[string]func(i int, line string) string {
	return map[string]func(int, string) string{
		"syslog": func(i int, l string) string {
			return fmt.Sprintf("Nov 25 07:10:%02d pool1-12345678-vmss000000 restore[812]: %s", i, l)
		},
		"diff":   func(_ int, l string) string { return "+" + l },
		"cat-n":  func(i int, l string) string { return fmt.Sprintf("%6d\t%s", i+1, l) },
		"colour": func(_ int, l string) string { return "\x1b[32m" + l + "\x1b[0m" },
		"trace":  func(_ int, l string) string { return "+ " + l },
		"echo":   func(_ int, l string) string { return "+ echo '" + l + "'" },
		"suffix": func(i int, l string) string { return fmt.Sprintf("%s   # kubelet.key:%d", l, i+1) },
	}
}

// No flag lets the donor's key pass, whatever is before or behind each of its lines;
// another's key in the same form is a credential that may be accepted.
func TestOwnKeyInPrefixedLines(t *testing.T) {
	t.Parallel()
	d := newDonor(t).capz()
	own, other := d.read("var/lib/kubelet/pki/kubelet.key"), string(keyPEM(newKey(t)))
	block, _ := pem.Decode([]byte(own))
	narrow := "-----BEGIN PRIVATE KEY-----\n" + wrap(base64.StdEncoding.EncodeToString(block.Bytes), "", 28) + "-----END PRIVATE KEY-----\n"
	var ours, others []string
	for form, write := range prefixedForms() {
		for name, text := range map[string]string{"pem": own, "narrow": narrow, "base64": wrap(base64.StdEncoding.EncodeToString([]byte(own)), "", 76), "other": other} {
			var b strings.Builder
			for i, l := range strings.Split(strings.TrimSpace(text), "\n") {
				b.WriteString(write(i, l) + "\n")
			}
			at := "srv/" + form + "/" + name + ".txt"
			d.write(map[string]string{at: b.String()})
			if name == "other" {
				others = append(others, at)
			} else {
				ours = append(ours, at)
			}
		}
	}
	r := d.run(func(o *Options) {
		accept(o)
		o.AcceptSecrets, o.RemoveSecrets = []string{"/srv/"}, true
	})
	wantOutcome(t, r, wire.SecretsFound)
	found := map[string]wire.SecretFinding{}
	for _, f := range r.Findings {
		found[f.Path] = f
	}
	for _, at := range ours {
		if f := found["/"+at]; f.Class != wire.NodeIdentity || f.Rule != ruleServingKey && f.Rule != ruleKubeletKey || f.Accepted {
			t.Errorf("%s: got %+v, want the donor's key, not accepted", at, f)
		}
	}
	for _, at := range others {
		if f := found["/"+at]; f.Class != wire.PoolCredential || !f.Accepted {
			t.Errorf("%s: got %+v, want an accepted pool credential", at, f)
		}
	}
}
