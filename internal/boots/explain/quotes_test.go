package explain

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// heads is what a program puts before a line of its own.
var heads = regexp.MustCompile(`^(?:[IWEF]\d{4} [\d:.]+ +\d+ \S+\] |time="[^"]*" level=\w+ msg=|\[ *\d+\.\d+\] |\d{4}-\d\d-\d\d \S+ - (?:\S+\[\w+\]: )?)`)

// Lines of package verdict give their reasons also where they do not say who wrote them:
// alone in prose, quoted in a sentence, after a prompt, and in what Ansible prints.
func TestLinesAsQuotes(t *testing.T) {
	files, err := filepath.Glob("../verdict/testdata/lines/*.tsv")
	if err != nil || len(files) < 5 {
		t.Fatalf("no lines: %v", err)
	}
	for name, form := range map[string]func(lines []string) string{
		"alone": func(lines []string) string {
			for i, l := range lines {
				lines[i] = heads.ReplaceAllString(l, "")
			}
			return "My node does not join, any idea?\n\n" + strings.Join(lines, "\n") + "\n\nThanks"
		},
		"in a sentence": func(lines []string) string {
			return `I get the error "` + heads.ReplaceAllString(strings.Join(lines, " "), "") + `" when it boots.`
		},
		"after a prompt": func(lines []string) string { return "root@pool1000003:~# " + strings.Join(lines, "\n") },
		"by Ansible": func(lines []string) string {
			text, _ := json.Marshal("\t" + strings.Join(lines, "\n"))
			return `fatal: [pool1000003]: FAILED! => {"changed": true, "rc": 1, "stderr": ` + string(text) + `, "stdout": "x"}`
		},
	} {
		all, right := 0, 0
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for l := range strings.Lines(string(text)) {
				cells := strings.Split(strings.TrimSuffix(l, "\n"), "\t")
				if cells[1] == "-" || strings.HasSuffix(cells[0], "+joined") {
					continue
				}
				all++
				if got := explained(t, form(strings.Split(cells[3], "␤"))).Machines; got[0].Reason == cells[1] {
					right++
				} else if testing.Verbose() {
					t.Logf("%s: %s, not %s: %s", name, got[0].Reason, cells[1], cells[3])
				}
			}
		}
		if right*100 < all*96 {
			t.Errorf("%s: %d of %d lines give their reasons", name, right, all)
		}
	}
}

// What says something only as somebody quotes it, and what is taken for it and says nothing.
func TestQuotes(t *testing.T) {
	const (
		network = "NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized"
		wait    = "[ TIME ] Timed out waiting for device /dev/vda2."
	)
	for text, want := range map[string]string{
		"It leads to\n```\n" + network + "\n```": "CNINotReady",
		"Nov 21 06:58:31 pool1000003 kubelet[1402]: E1121 06:58:31.1    1402 kubelet.go:2917] Container runtime network not ready: " + network: "",
		"No match for argument: kubelet": "PackageNotFound",
		"No match for argument: docker":  "",
		"[* ] A start job is running for /dev/vda2 (27s / 1min 30s) " + wait + " [DEPEND] Dependency failed for /mnt.": "DeviceMissing",
		wait + "\n[  OK  ] Reached target Multi-User System.":                                                          "",
		"Error: unknown flag: --short": "",
		"The error message is:\nhttps://pkgs.example.com/rpm/repodata/repomd.xml: [Errno -1] repomd.xml signature could not be\n verified for kubernetes": "PackageSignatureInvalid",
		"failed to set\nup the machine, and to find the right\nplugin in path":                                                                            "",
		`fatal: [a]: FAILED! => {"msg": "could not install kubelet and containerd: x"}`:                                                                   "Unknown",
		`failed to import C:\\var\\lib\\rancher\\new`:                                                                                                     "",
	} {
		if got := explained(t, text).Machines[0].Reason; got != want {
			t.Errorf("%q, not %q: %s", got, want, text)
		}
	}
}
