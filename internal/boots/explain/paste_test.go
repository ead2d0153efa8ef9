package explain

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/ortet/ortet/internal/boots/verdict"
)

// wrap breaks a line at a width: between words, or wherever it comes to.
func wrap(s string, width int, words bool) string {
	var out []string
	for r := []rune(s); ; {
		if len(r) <= width {
			return strings.Join(append(out, string(r)), "\n")
		}
		n := width
		if words {
			if i := strings.LastIndexByte(string(r[:width]), ' '); i > 0 && i == len([]rune(string(r[:width])[:i])) {
				n = i
			}
		}
		out = append(out, string(r[:n]))
		if r = r[n:]; words && r[0] == ' ' {
			r = r[1:]
		}
	}
}

// eachLine has a form of a whole text be one of its lines.
func eachLine(f func(string) string) func(string) string {
	return func(s string) string {
		var out []string
		for l := range strings.SplitSeq(s, "\n") {
			out = append(out, f(l))
		}
		return strings.Join(out, "\n")
	}
}

var pasted = map[string]func(string) string{
	"quoted":           eachLine(func(s string) string { return "> " + s }),
	"quoted twice":     eachLine(func(s string) string { return ">> > " + s }),
	"fenced":           func(s string) string { return "Hi, see:\n```console\n" + s + "\n```\nThanks" },
	"bold":             eachLine(func(s string) string { return "**" + s + "**" }),
	"code":             eachLine(func(s string) string { return "`" + s + "`" }),
	"indented":         eachLine(func(s string) string { return "        " + s }),
	"carriage returns": eachLine(func(s string) string { return s + "\r" }),
	"colours":          eachLine(func(s string) string { return "\x1b[0;1;31m" + s + "\x1b[0m" }),
	"lost escapes":     eachLine(func(s string) string { return "[0;1;31m" + s + "[0m" }),
	"written escapes":  eachLine(func(s string) string { return "^[[31m" + s + "#033[0m" }),
	"container's":      eachLine(func(s string) string { return "2026-11-21T06:58:31.123456789Z stderr F " + s }),
	"a pipeline's":     eachLine(func(s string) string { return "2026-11-21T06:58:31.1234567Z " + s }),
	"Docker's": eachLine(func(s string) string {
		b, _ := json.Marshal(map[string]string{"log": s + "\n", "stream": "stderr", "time": "2026-11-21T06:58:31Z"})
		return string(b)
	}),
	"a remote shell's":  eachLine(func(s string) string { return "module.pool.null_resource.a[0] (remote-exec): " + s }),
	"Terraform's":       eachLine(func(s string) string { return "│ " + s }),
	"wrapped":           eachLine(func(s string) string { return wrap(s, 80, false) }),
	"wrapped by a mail": eachLine(func(s string) string { return wrap(s, 76, true) }),
	"quoted and wrapped": eachLine(func(s string) string {
		return "> " + strings.ReplaceAll(wrap(s, 76, true), "\n", "\n> ")
	}),
	"UTF-16": func(s string) string {
		var b strings.Builder
		b.WriteString("\xff\xfe")
		for _, u := range utf16.Encode([]rune(s)) {
			b.Write([]byte{byte(u), byte(u >> 8)})
		}
		return b.String()
	},
	"a journal as JSON": eachLine(func(s string) string {
		program, message, _ := strings.Cut(strings.TrimPrefix(s, "Nov 21 06:58:31 pool1000003 "), ": ")
		id, pid, _ := strings.Cut(strings.TrimSuffix(program, "]"), "[")
		b, _ := json.Marshal(map[string]string{"__REALTIME_TIMESTAMP": "1795244311000000", "_BOOT_ID": strings.Repeat("a", 32), "_HOSTNAME": "pool1000003", "SYSLOG_IDENTIFIER": id, "_PID": pid, "MESSAGE": message})
		return string(b)
	}),
	"a journal with units": eachLine(func(s string) string {
		s = strings.Replace(s, "Nov 21 06:58:31 pool", "Sat 2026-11-21 06:58:31 UTC pool", 1)
		for id, unit := range map[string]string{" kubelet[": " kubelet.service[", " containerd[": " containerd.service[", " k3s[": " k3s-agent.service[", " cloud-init[": " cloud-final.service[", " systemd[": " init.scope["} {
			s = strings.Replace(s, "pool1000003"+id, "pool1000003"+unit, 1)
		}
		return s
	}),
	"a journal by uptime": eachLine(func(s string) string { return strings.Replace(s, "Nov 21 06:58:31 pool", "[   31.310021] pool", 1) }),
	"a journal by ISO": eachLine(func(s string) string {
		return strings.Replace(s, "Nov 21 06:58:31 pool", "2026-11-21T06:58:31+0000 pool", 1)
	}),
	"a journal's export": eachLine(func(s string) string {
		program, message, _ := strings.Cut(strings.TrimPrefix(s, "Nov 21 06:58:31 pool1000003 "), ": ")
		id, pid, _ := strings.Cut(strings.TrimSuffix(program, "]"), "[")
		return fmt.Sprintf("__CURSOR=s=1\n__REALTIME_TIMESTAMP=1795244311000000\n_HOSTNAME=pool1000003\nSYSLOG_IDENTIFIER=%s\n_PID=%s\nMESSAGE=%s\n", id, pid, message)
	}),
}

// What a paste puts around lines changes no verdict: each line of package verdict that gives a
// reason gives it in each form.
func TestPasted(t *testing.T) {
	files, err := filepath.Glob("../verdict/testdata/lines/*.tsv")
	if err != nil || len(files) < 5 {
		t.Fatalf("no lines: %v", err)
	}
	ids := map[string]string{"kubelet": "kubelet[1402]: ", "containerd": "containerd[911]: ", "k3s": "k3s[1402]: ", "script": "cloud-init[812]: ", "systemd": "systemd[1]: "}
	n, lost := 0, map[string]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for l := range strings.Lines(string(text)) {
			cells := strings.Split(strings.TrimSuffix(l, "\n"), "\t")
			id := ids[cells[0]]
			if _, ok := verdict.Lookup(cells[1]); !ok || id == "" {
				continue
			}
			n++
			head := "Nov 21 06:58:31 pool1000003 " + id
			plain := head + strings.ReplaceAll(cells[3], "␤", "\n"+head)
			if got := explained(t, plain).Machines[0]; got.Reason != cells[1] || got.Name != "pool1000003" {
				t.Errorf("plain: %s is %q of %q: %s", cells[1], got.Reason, got.Name, plain)
				continue
			}
			for form, of := range pasted {
				if got := explained(t, of(plain)).Machines[0]; got.Reason != cells[1] {
					// A date at the beginning of a line cannot be told from a head.
					if lost[form]++; lost[form] > 1 || !strings.Contains(form, "wrapped") {
						t.Errorf("%s: %s is %q, %s:\n%s", form, cells[1], got.Reason, got.Message, of(plain))
					}
				}
			}
		}
	}
	t.Logf("%d lines in %d forms; lost %v", n, len(pasted), lost)
	if n < 100 {
		t.Errorf("only %d lines", n)
	}
}
