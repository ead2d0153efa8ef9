package verdict

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/wire"
)

// A row of testdata/lines is a line of a program with the reason that it gives: four
// columns with tabs between them.
//
//	PROGRAM[+joined]	REASON or -	SOURCE	LINE
//
// The program is one of origins, or "other NAME". With +joined the bootstrap had
// succeeded. SOURCE is where the line's fixed words stand (doc.go); names and values are
// ours. ␤ breaks a line where a rule reads more than one.
type row struct {
	where, program, reason, line string
	joined                       bool
}

// origins are how a program's lines stand in a log of its own, and in a journal or on a
// console, where a line has the program's name before it.
var origins = map[string]struct{ log, id string }{
	"kubelet":    {"journal kubelet.service", "kubelet[1402]: "},
	"containerd": {"journal containerd.service", "containerd[911]: "},
	"k3s":        {"journal k3s-agent.service", "k3s[1402]: "},
	"kernel":     {"journal kernel", "kernel: "},
	"cloud-init": {"/var/log/cloud-init.log", "cloud-init[812]: "},
	"script":     {"/var/log/cloud-init-output.log", "cloud-init[812]: "},
	"systemd":    {"journal", "systemd[1]: "},
	"aks":        {"/var/log/azure/cluster-provision.log", ""},
	"console":    {"serial console", ""},
	"windows":    {"cloudbase-init.log", ""},
}

func (r row) logs() []Log {
	o, ok := origins[r.program]
	if name, other := strings.CutPrefix(r.program, "other "); other {
		o.log, o.id, ok = "journal", name+"[333]: ", true
	}
	if !ok {
		return nil
	}
	lines := strings.Split(r.line, "␤")
	own := Log{Source: o.log, Lines: lines}
	if o.id == "" {
		return []Log{own}
	}
	console, journal := Log{Source: "serial console"}, Log{Source: "paste"}
	for _, l := range lines {
		journal.Lines = append(journal.Lines, "Nov 21 06:58:31 pool1000003 "+o.id+l)
		if o.id == "kernel: " {
			console.Lines = append(console.Lines, l)
		} else {
			console.Lines = append(console.Lines, "[   31.310021] "+o.id+l)
		}
	}
	if strings.HasPrefix(r.program, "other ") || r.program == "systemd" {
		return []Log{console, journal}
	}
	return []Log{own, console, journal}
}

func (r row) judged(l Log) string {
	reason := Judge(Facts{Outside: true, Sentinel: r.joined, Logs: []Log{l}}).Reason
	if reason == wire.ReasonUnknown {
		return "-"
	}
	return reason
}

func rows(t testing.TB) []row {
	t.Helper()
	files, err := filepath.Glob("testdata/lines/*.tsv")
	if err != nil || len(files) == 0 {
		t.Fatalf("no lines: %v", err)
	}
	var all []row
	seen := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for n, l := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
			where := fmt.Sprintf("%s:%d", file, n+1)
			cells := strings.Split(l, "\t")
			if len(cells) != 4 || slices.Contains(cells, "") || seen[cells[0]+cells[3]] {
				t.Fatalf("%s: not four columns, or there twice: %q", where, l)
			}
			seen[cells[0]+cells[3]] = true
			r := row{where: where, reason: cells[1], line: cells[3]}
			r.program, r.joined = strings.CutSuffix(cells[0], "+joined")
			if _, ok := Lookup(r.reason); r.reason != "-" && !ok || r.logs() == nil {
				t.Fatalf("%s: no such reason or program: %q", where, l)
			}
			all = append(all, r)
		}
	}
	return all
}

// Each line gives its reason and no other, alone in its program's log, on a console and
// in a journal or paste.
func TestLines(t *testing.T) {
	all := rows(t)
	none := 0
	for _, r := range all {
		if r.reason == "-" {
			none++
		}
		for _, l := range r.logs() {
			if got := r.judged(l); got != r.reason {
				t.Errorf("%s: in a log %q the reason is %s, not %s: %s", r.where, l.Source, got, r.reason, strings.Join(l.Lines, "\n"))
			} else if testing.Verbose() && l.Source == r.logs()[0].Source {
				t.Logf("%-30s %s", got, r.line)
			}
		}
	}
	if len(all) < 400 || none < 150 {
		t.Errorf("%d lines, of which %d give no reason; at least 400 and 150 are expected", len(all), none)
	}
}

// alike says whether a line in lower case is one that a phrase could be taken for: two
// words that follow each other, or a long one, are the same.
func alike(line, phrase string) bool {
	words := strings.FieldsFunc(phrase, func(r rune) bool { return strings.ContainsRune(" :\"'\\(),[]", r) })
	for i, w := range words {
		if len(w) >= 7 && strings.Contains(line, w) || i > 0 && strings.Contains(line, words[i-1]+" "+w) {
			return true
		}
	}
	return len(words) == 1 && strings.Contains(line, words[0])
}

// Every rule gives its reason to a line, and there is one that it could be taken for
// and that it gives none. So has every branch that tells what went wrong with a request.
func TestLinesForEachRule(t *testing.T) {
	type proof struct{ gives, not bool }
	branches := map[string]*proof{}
	for _, b := range []string{"proxyFault", "notYetValid", "expired", "untrusted", "wrongName", "noSuchHost", "resolverFault", "refused", "unreachable", "unauthorized", "forbidden", "unavailable"} {
		branches["faultOf "+b] = &proof{}
	}
	for _, b := range []string{"ProxyFailed", "ClockWrong", "RegistryCertificateUntrusted", "RegistryNameUnknown", "DNSFailed", "RegistryUnreachable", "ImagePullRateLimited", "ImagePullUnauthorized", "ImageNotFound", "ImagePullFailed"} {
		branches["pullReason "+b] = &proof{}
	}
	words := map[string][]string{
		"download IMDSUnreachable": {"169.254.169.254"}, "download WireServerUnreachable": {"168.63.129.16"}, "download ProxyFailed": {"curl: (5)"}, "download DownloadNameUnresolved": {"curl: (6)"},
		"download DownloadUnreachable": {"curl: (7)", "curl: (28)"}, "download DownloadRefused": {"curl: (22)"}, "download DownloadFailed": {"download"},
		"check PortInUse": {"port-"}, "check NodeNotClean": {"available-"}, "check SwapOn": {"swap]"}, "check BinaryMissing": {"fileexisting-"}, "check KernelSettingMissing": {"filecontent-"},
		"check CgroupV1Refused": {"systemverification"}, "check KernelUnsupported": {"systemverification"}, "check MachineTooSmall": {"numcpu"}, "check ContainerRuntimeUnavailable": {"[warning cri]"},
		"check ContainerRuntimeDisabled": {"[warning cri]"}, "check KubeletMissing": {"kubeletversion"}, "check VersionSkew": {"kubeletversion"}, "check KubeadmConfigInvalid": {"kubernetesversion"}, "check ImagePullRateLimited": {"imagepull]"}, "check NotRoot": {"isprivilegeduser"},
		"check KubeadmPreflight": {"[warning httpproxy"}, "apiRequest kubectl": {"the server localhost", "the server: dial tcp 127."}, "apiRequest /api/": {"/api/v1", "/readyz"}, "apiRequest reflector.go": {"reflector.go"},
		"apiRequest lease": {"lease exists"}, "apiRequest api server": {"api server", "apiserver"}, "apiRequest k3s": {":6444", "/v1-k3s/"},
	}
	for b := range words {
		branches[b] = &proof{}
	}
	faults := []string{"", "proxyFault", "notYetValid", "expired", "untrusted", "wrongName", "noSuchHost", "resolverFault", "refused", "unreachable", "unauthorized", "forbidden", "unavailable"}
	byRule := make([]proof, len(rules))
	note := func(name string, r row) {
		if p := branches[name]; p != nil && r.reason != "-" {
			p.gives = true
		} else if p != nil {
			p.not = true
		}
	}
	for _, r := range rows(t) {
		l := r.logs()[0]
		read := newLog(l.Source, kindOf(l.Source), l.Lines, false)
		for i, s := range read.low {
			k, next := read.of[i], ""
			if i+1 < len(read.low) {
				next = read.low[i+1]
			}
			for n := range rules {
				rule := &rules[n]
				phrases := append(append([]string{rule.all, rule.next}, rule.any...), rule.not...)
				switch {
				case rule.in&k == 0 && k != foreign:
				case r.reason == rule.reason && rule.matches(s, next) && rule.in&k != 0:
					byRule[n].gives = true
				case r.reason != rule.reason && slices.ContainsFunc(phrases, func(p string) bool { return alike(s, p) }):
					byRule[n].not = true
				}
			}
			if f := faultOf(s); f != noFault && int(f) < len(faults) && !pull(s) {
				if r.reason == "-" || r.reason == f.ofAPIServer(s, k) {
					note("faultOf "+faults[f], r)
				}
			}
			if pull(s) && (r.reason == "-" || r.reason == pullReason(s)) {
				note("pullReason "+pullReason(s), r)
			}
			if reason := download(s); reason == r.reason {
				note("download "+reason, r)
			}
			if reason, _ := check(s); reason == r.reason {
				note("check "+reason, r)
			}
			for name, few := range words {
				about := strings.HasPrefix(name, "apiRequest ") && apiRequest(s, k) && faultOf(s).ofAPIServer(s, k) == r.reason
				if hasAny(s, few...) && (r.reason == "-" || about) {
					note(name, r)
				}
			}
			if kubectls(s) {
				note("apiRequest kubectl", r)
			}
		}
	}
	for n := range rules {
		r := &rules[n]
		if r.when == quotes { // package explain's tests show these
			continue
		}
		if r.when != warns && !byRule[n].gives {
			t.Errorf("no line gives %s by the rule %q %q", r.reason, r.all, r.any)
		}
		if !byRule[n].not {
			t.Errorf("no line could be taken for one that gives %s by the rule %q %q", r.reason, r.all, r.any)
		}
	}
	for name, p := range branches {
		if !p.gives || !p.not {
			t.Errorf("branch %s: a line that gives its reason: %v; one that could be taken for it: %v", name, p.gives, p.not)
		}
	}
}
