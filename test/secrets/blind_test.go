package secrets

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The blind corpus, held out too: blind_*_test.go. It was written after the rules
// had been extended for the other corpora, without having read the rules or the cases of
// those, and committed before its first run: of the node's own secrets 99 of 111 were
// found, of pool credentials 37 of 42, of others 159 of 169; of evidence 94 of 100 groups
// were hidden; 6 of 68 files raised a false alarm; 25 of 25 lines stayed readable. Then
// what it had missed was mended by kind, but for what blindNotFound lists.

// blindNotFound are the plants that are not found, by path, and why.
func blindNotFound() map[string]string {
	return map[string]string{
		"/opt/app/dump.log":                  "a list of decimal numbers: not undone",
		"/opt/app/key.py":                    "a key's number in decimal: not undone",
		"/root/k.uu":                         "uuencode: not undone, nothing on a node writes it today",
		"/root/od.txt":                       "od -c puts blanks between letters: not undone",
		"/etc/.git/objects/pack/pack-1.pack": "zlib within a file: each offset would have to be tried",
		"/var/backups/etc-full.tar.gz":       "lies beyond the first 8 MiB unpacked",
		"/opt/cmdb/node.upper":               "in capitals: the server refuses it, so it lets nobody in",
		"/var/lib/NetworkManager/duid.state": "a machine-id in bytes with colons: programs write a hash of it there",
		"/srv/app/app.db":                    "names are not read in binary files",
		"/opt/app/cert.hex":                  "by form, hexadecimal is not undone",
		"/root/note.txt":                     "a password in a sentence, as in the first held-out corpus",
	}
}

// blindShown is the group of evidence of which the plant counts all parameters as secret:
// the signature is hidden, and the others let nobody in.
const blindShown = "a script's output: azcopy"

// plantBlind makes the tree of the node, with its machine-id known to the plants.
func plantBlind(t *testing.T, g *gen, n node, machine string, all []plant) string {
	t.Helper()
	dir := plantIn(t, g, n, all)
	write(t, dir, "etc/machine-id", []byte(machine+"\n"))
	return dir
}

func TestBlindImage(t *testing.T) {
	t.Run("secrets", func(t *testing.T) {
		g := newGen(t)
		n, machine := g.node(), g.hex(32)
		sum := newTally()
		// Each class has a tree of its own: several write the same file.
		for _, all := range [][]plant{blindIdentities(g, n, machine), blindPool(g), blindOthers(g)} {
			measureIn(t, plantBlind(t, g, n, machine, all), all, sum)
		}
		sum.print(t)
		for _, s := range sum.shipped {
			if at := s[strings.LastIndex(s, ": /")+2:]; blindNotFound()[at] == "" {
				t.Errorf("shipped: %s", s)
			}
		}
		for c, least := range map[class]int{identity: 60, pool: 30, other: 80} {
			if n := sum.classes[c].planted; n < least {
				t.Errorf("%d of class %s planted, want %d", n, c, least)
			}
		}
	})
	t.Run("near misses", func(t *testing.T) {
		g := newGen(t)
		n := g.node()
		all := blindMisses(g, n)
		dir := plantBlind(t, g, n, g.hex(32), all)
		write(t, dir, heldOutCanary, g.ecPEM(g.ec()))
		findings := found(generalized(t, dir, nil))
		if len(findings[heldOutCanary]) == 0 {
			t.Errorf("/%s was not found: was the tree searched?", heldOutCanary)
		}
		var alarms []string
		for _, p := range all {
			if hits := findings[p.path]; len(hits) > 0 {
				alarms = append(alarms, fmt.Sprintf("/%s (%s): %s %s", p.path, p.wrap, hits[0].Rule, hits[0].Detail))
			}
		}
		if len(alarms) > 0 {
			t.Errorf("seed %d\nfalse alarms: %d / %d\n%s", *seed, len(alarms), len(all), strings.Join(alarms, "\n"))
		}
	})
}

func TestBlindEvidence(t *testing.T) {
	all := blindEvidence(newGen(t))
	kinds := map[string][2]int{}
	var missed []string
	for _, s := range all {
		kind, name, _ := strings.Cut(s.kind, ": ")
		for _, secret := range s.secrets {
			if !strings.Contains(s.text, secret) {
				t.Fatalf("%s: the secret %q is not in %q", s.kind, secret, s.text)
			}
		}
		shown := published(s.text)
		c := kinds[kind]
		c[1]++
		if slices.ContainsFunc(s.secrets, func(secret string) bool { return left(shown, secret) != "" }) {
			missed = append(missed, s.kind)
			if s.kind != blindShown {
				t.Errorf("%s: %s: %s", kind, name, shown)
			}
		} else {
			c[0]++
		}
		kinds[kind] = c
	}
	t.Logf("seed %d: %d of %d hidden, by kind %v\nmissed:\n%s", *seed, len(all)-len(missed), len(all), kinds, strings.Join(missed, "\n"))
}

func TestBlindReadable(t *testing.T) {
	all := blindReadable(newGen(t))
	var lost []string
	for _, l := range all {
		shown := published(l.text)
		if slices.ContainsFunc(l.keep, func(s string) bool { return !strings.Contains(shown, s) }) {
			lost = append(lost, shown)
		}
	}
	if len(lost) > 0 {
		t.Errorf("seed %d: %d of %d stay readable\n%s", *seed, len(all)-len(lost), len(all), strings.Join(lost, "\n"))
	}
}

// Each plant has a file of its own, and the same seed gives the same corpus.
func TestBlindRepeats(t *testing.T) {
	var made [2][]plant
	for i := range made {
		t.Run("", func(t *testing.T) {
			g := newGen(t)
			n := g.node()
			made[i] = slices.Concat(blindIdentities(g, n, g.hex(32)), blindPool(g), blindOthers(g), blindMisses(g, n))
		})
	}
	for i, p := range made[0] {
		if q := made[1][i]; p.path != q.path || string(p.data) != string(q.data) {
			t.Errorf("/%s differs between two runs of seed %d", p.path, *seed)
		}
		if p.path != filepath.Clean(p.path) {
			t.Errorf("%s is not a plain path", p.path)
		}
	}
	g := newGen(t)
	n := g.node()
	for _, all := range [][]plant{blindIdentities(g, n, g.hex(32)), blindPool(g), blindOthers(g), blindMisses(g, n)} {
		plantIn(t, g, n, all)
	}
}
