package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/boots/explain"
	"github.com/ortet/ortet/internal/boots/survey"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

// explained runs ortet explain in the folder of its samples.
func explained(t *testing.T, in io.Reader, args ...string) (code int, out, said string) {
	t.Helper()
	var o, e strings.Builder
	code = Run(t.Context(), append([]string{"explain"}, args...), Process{In: in, Out: &o, Err: &e, Getenv: func(string) string { return "" }})
	return code, o.String(), e.String()
}

// What ortet explain prints of ten files, and its exit code.
func TestExplained(t *testing.T) {
	t.Chdir(filepath.Join("testdata", "explain"))
	var all strings.Builder
	for _, c := range []struct {
		file string
		code int
		says string
	}{
		{"console-dracut.txt", needsPerson, "failed, RootNotFound"},
		{"arm-cut.json", needsPerson, "failed, OutboundBlocked"},
		{"mail.txt", needsPerson, "failed, ContainerdConfigInvalid"},
		{"describe.txt", needsPerson, "pool1000003: failed, CNINotReady"},
		{"instance-view.json", needsPerson, "pool1000003: failed, BootstrapTokenUnknown"},
		{"kubelet-cni.txt", needsPerson, "pool1000003: failed, CNINotReady"},
		{"kubelet-windows.log", needsPerson, "failed, ContainerRuntimeUnavailable"},
		{"two-boots.txt", needsPerson, "failed, SwapOn"},
		{"console-healthy.txt", workflow.ExitDone, "pool1000003: nothing failed"},
		{"picture.png", refused, "picture"},
	} {
		args, in := []string{c.file}, io.Reader(strings.NewReader(""))
		if c.file == "describe.txt" {
			text, err := os.ReadFile(c.file)
			if err != nil {
				t.Fatal(err)
			}
			args, in = []string{"-"}, bytes.NewReader(text)
		}
		code, out, said := explained(t, in, args...)
		if code != c.code || !strings.Contains(out+said, c.says) {
			t.Errorf("%s: code %d, want %d and %q:\n%s%s", c.file, code, c.code, c.says, out, said)
		}
		for l := range strings.Lines(out) {
			if len([]rune(l)) > resultWidth+1 && strings.Contains(strings.TrimSpace(l), " ") {
				t.Errorf("%s: a line is wider than %d columns: %s", c.file, resultWidth, l)
			}
		}
		fmt.Fprintf(&all, "== %s\n%s%sexit code %d\n\n", c.file, out, said, code)
	}
	t.Chdir(filepath.Join("..", ".."))
	golden(t, "explain", all.String())
}

func TestExplainForPrograms(t *testing.T) {
	for _, form := range []string{"json", "yaml"} {
		code, out, _ := explained(t, nil, "testdata/explain/mail.txt", "-o", form)
		if code != needsPerson || !strings.Contains(out, "ContainerdConfigInvalid") {
			t.Errorf("-o %s: code %d\n%s", form, code, out)
		}
	}
	var r struct {
		Machines []struct {
			Name, Result, Reason, Confidence, Owner, Remedy string
			Lines                                           []struct {
				File  string
				Line  int
				Text  string
				Shows bool
			}
		}
	}
	_, out, _ := explained(t, nil, "testdata/explain/mail.txt", "-o", "json")
	if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Machines) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	m := r.Machines[0]
	if m.Name != "pool1000003" || m.Result != "Failed" || m.Confidence != "observed" || m.Owner != "user" || m.Remedy == "" {
		t.Errorf("%+v", m)
	}
	for _, l := range m.Lines {
		if l.Shows && (l.Line != 13 || !strings.HasSuffix(l.File, "mail.txt")) {
			t.Errorf("the line that shows it is %+v", l)
		}
	}
}

// endless gives a line without an end, of n bytes.
type endless struct{ n int }

func (e *endless) Read(p []byte) (int, error) {
	if e.n <= 0 {
		return 0, io.EOF
	}
	n := min(len(p), e.n)
	for i := range p[:n] {
		p[i] = 'x'
	}
	e.n -= n
	return n, nil
}

// Bad input is named, within bounds of memory and time.
func TestExplainBadInput(t *testing.T) {
	const cause = "Nov 21 06:58:31 pool1000003 kubelet[1402]: E1121 06:58:30.100112    1402 run.go:72] \"command failed\" err=\"failed to run Kubelet: running with swap on is not supported\"\n"
	for name, c := range map[string]struct {
		in   io.Reader
		code int
		says []string
		not  string
	}{
		"nothing":          {strings.NewReader(""), refused, []string{"empty"}, ""},
		"spaces":           {strings.NewReader(" \n\n"), refused, []string{"empty"}, ""},
		"binary":           {strings.NewReader(strings.Repeat("\x01\x02\x80\xff", 1000)), refused, []string{"binary"}, ""},
		"an archive":       {strings.NewReader("\x1f\x8b\x08\x00abc"), refused, []string{"gunzip"}, ""},
		"a line of 200 MB": {io.MultiReader(strings.NewReader(cause), &endless{200 << 20}, strings.NewReader("\n"+cause)), needsPerson, []string{"SwapOn", "256 KiB"}, ""},
		"many lines":       {io.MultiReader(strings.NewReader(strings.Repeat("2026-11-21T06:58:31Z x y[1]: z\n", 400_000)), strings.NewReader(cause)), needsPerson, []string{"SwapOn", "not judged"}, ""},
		"an entry of many lines": {strings.NewReader(strings.Repeat(`{"__REALTIME_TIMESTAMP":"1","_HOSTNAME":"`+strings.Repeat("h", 2000)+`","MESSAGE":"`+strings.Repeat(`\n`, 120_000)+`end"}`+"\n", 2) + cause),
			needsPerson, []string{"SwapOn"}, ""},
		"a YAML of aliases": {strings.NewReader("kind: Node\nstatus: {conditions: []}\na: &a " + strings.Repeat("x", 1<<20) + "\nb:\n" + strings.Repeat("- *a\n", 500)), workflow.ExitDone, []string{"unclear"}, ""},
		"many exit codes":   {strings.NewReader(strings.Repeat(`"provisioningState": "Failed" `+strings.Repeat(`extension "a" exit status=1 `, 9000)+"\n", 30)), needsPerson, []string{"failed"}, ""},
		"escaped breaks":    {strings.NewReader(strings.Repeat(`"provisioningState": "Failed"`+strings.Repeat(`\n`, 115_000)+`"provisioningState": "Failed"`+"\n", 31)), needsPerson, []string{"failed"}, ""},
		"prose":             {strings.NewReader("my node does not come up, please help\n"), workflow.ExitDone, []string{"unclear", "journalctl -b"}, ""},
		"a secret":          {strings.NewReader("kubeadm join --token abcdef.0123456789abcdef 10.1.0.4:6443\n" + cause), needsPerson, []string{"[redacted]"}, "0123456789abcdef"},
		"terminal's orders": {strings.NewReader("\x1b]0;evil\x07\x1b[2J\x9b31m" + cause), needsPerson, []string{"SwapOn"}, "\x1b"},
		"two machines": {strings.NewReader(cause + strings.ReplaceAll(strings.ReplaceAll(cause, "pool1000003", "pool1000004"), "running with swap on is not supported", "unknown flag: --network-plugin")),
			needsPerson, []string{"pool1000003: failed, SwapOn", "pool1000004: failed, KubeletFlagUnknown"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var after runtime.MemStats
			began := processCPU(t)
			code, out, said := explained(t, c.in, "-")
			runtime.ReadMemStats(&after)
			if code != c.code {
				t.Errorf("code %d, want %d", code, c.code)
			}
			for _, s := range c.says {
				if !strings.Contains(strings.Join(strings.Fields(out+said), " "), s) {
					t.Errorf("it does not say %q:\n%s%s", s, out, said)
				}
			}
			if c.not != "" && strings.Contains(out+said, c.not) {
				t.Errorf("it says %q:\n%s%s", c.not, out, said)
			}
			if took := processCPU(t) - began; took > 20*time.Second || after.Sys > 512<<20 {
				t.Errorf("it took %v of the processors and %d MiB", took, after.Sys>>20)
			}
		})
	}
}

// processCPU is the processors' time that this process had: what other processes have does not count.
func processCPU(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Files of one machine are judged together; one that is no text is named beside others.
func TestExplainSeveralFiles(t *testing.T) {
	code, out, said := explained(t, nil, "testdata/explain/kubelet-cni.txt", "testdata/explain/console-healthy.txt", "testdata/explain/picture.png")
	if code != needsPerson || strings.Count(out, "pool1000003: failed, CNINotReady") != 1 || !strings.Contains(said, "picture.png: it is a picture") {
		t.Errorf("code %d\n%s%s", code, out, said)
	}
	if code, _, said = explained(t, nil, "testdata/explain/mail.txt", "nosuch"); code != refused || !strings.Contains(said, "nosuch") {
		t.Errorf("code %d, %s", code, said)
	}
	if code, _, said = explained(t, nil); code != ExitUsage || !strings.Contains(said, "standard input") {
		t.Errorf("code %d, %s", code, said)
	}
}

// fieldOf is a field of what ortet nodes NAME or ortet explain prints, in one line.
func fieldOf(text, name string) string {
	_, rest, _ := strings.Cut(text, fmt.Sprintf("\n  %-10s ", name))
	value, rest, _ := strings.Cut(rest, "\n")
	for strings.HasPrefix(rest, strings.Repeat(" ", 13)) {
		var more string
		more, rest, _ = strings.Cut(rest, "\n")
		value += " " + strings.TrimSpace(more)
	}
	return value
}

// A console gives the same reason, owner, confidence and remedy by ortet explain and by
// ortet nodes NAME: the samples, and each line that gives a reason, as a console has it.
func TestExplainAsNodes(t *testing.T) {
	consoles := map[string]string{}
	for _, name := range []string{"console-dracut.txt", "two-boots.txt", "mail.txt", "kubelet-windows.log"} {
		text, err := os.ReadFile(filepath.Join("testdata", "explain", name))
		if err != nil {
			t.Fatal(err)
		}
		consoles[name] = string(text)
	}
	ids := map[string]string{"kubelet": "kubelet[1402]: ", "containerd": "containerd[911]: ", "k3s": "k3s[1402]: ", "script": "cloud-init[812]: ", "systemd": "systemd[1]: ", "console": "-", "kernel": "-"}
	files, err := filepath.Glob("../boots/verdict/testdata/lines/*.tsv")
	if err != nil || len(files) < 5 {
		t.Fatalf("no lines: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for l := range strings.Lines(string(text)) {
			cells := strings.Split(strings.TrimSuffix(l, "\n"), "\t")
			if id := ids[cells[0]]; cells[1] != "-" && id != "" {
				head := strings.TrimPrefix("[   31.310021] "+id, "[   31.310021] -")
				consoles[l] = head + strings.ReplaceAll(cells[3], "␤", "\n"+head) + "\n"
			}
		}
	}
	if len(consoles) < 200 {
		t.Errorf("only %d consoles", len(consoles))
	}
	boot := fleet.Boot{Instance: pool1.Child("virtualMachines", "3"), Pool: pool1, HostName: "pool1000003", VMID: "11111111-2222-4333-8444-555555555555", Created: noon, Power: fleet.PowerRunning, Console: true}
	for name, console := range consoles {
		a := assess.Assess(boot, nil, []byte(console), assess.Assessment{}, noon.Add(time.Hour), assess.Deadlines{})
		var nodes, explained strings.Builder
		writeNode(&nodes, survey.Story{Assessment: a}, noon.Add(time.Hour))
		read, err := explain.Read("console.txt", strings.NewReader(console), 1)
		if err != nil {
			t.Fatal(err)
		}
		r := explain.Explain([]explain.Text{read})
		writeExplained(&explained, r)
		said := fmt.Sprintf("%s; ", r.Machines[0].Reason)
		want := fmt.Sprintf("%s; ", a.Reason())
		for _, field := range []string{"owner", "confidence", "remedy"} {
			said += field + " " + fieldOf(explained.String(), field) + "; "
			want += field + " " + fieldOf(nodes.String(), field) + "; "
		}
		if said != want || strings.HasPrefix(want, wire.ReasonUnknown+";") || strings.HasPrefix(want, ";") {
			t.Errorf("%s: ortet explain says %q, ortet nodes %q:\n%s\n%s", name, said, want, explained.String(), nodes.String())
		}
	}
}
