package source

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

func wallOf(t *testing.T, s string) time.Time {
	t.Helper()
	at, err := time.Parse("2006-01-02T15:04:05", s)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// All files of one machine, given in any order, make its two boots.
func TestJoin(t *testing.T) {
	names := []string{
		"status.json", "show.txt", "kvp_pool_1", "handler.log", "aks-events.json", "metrics.txt", "result.json",
		"cloud-init.log", "provision.json", "journal-interleaved.export", "waagent.log", "containerd.log",
	}
	for turn := range names {
		var all []wire.BootReport
		for i := range names {
			all = append(all, readFile(t, names[(i+turn)%len(names)], Options{})...)
		}
		boots := Join(all...)
		if len(boots) != 2 {
			for _, b := range boots {
				t.Log(printed([]wire.BootReport{b}))
			}
			t.Fatalf("%s first: %d boots, of which there are 2", names[turn], len(boots))
		}
		for _, b := range boots {
			if err := b.Validate(); err != nil {
				t.Fatal(err)
			}
		}
		b := boots[1]
		if b.BootID != "4f1c8a52-b7e9-4d0e-9c33-a1d2e5f60718" || b.Node != "aks-nodepool1-28471936-vmss000003" || b.VMID != "8f14e45f-ceea-467f-9b6a-1c2d3e4f5a6b" {
			t.Errorf("%q %q %q", b.BootID, b.Node, b.VMID)
		}
		// systemd's own times are the finer.
		if u := unitOf(t, b, "cloud-init-local.service"); u.Activating != 2528117 || u.Grain != 0 || len(u.After) != 4 {
			t.Errorf("%+v", u)
		}
		// Of a unit that was restarted later, the boot's start counts.
		if u := unitOf(t, b, "kubelet.service"); u.Activating != 36000000 || u.Restarts != 0 || len(u.After) != 3 {
			t.Errorf("%+v", u)
		}
		lease := spanOf(t, b, "cloud-init", "azure-ds/obtain-dhcp-lease")
		if lease.Grain != 0 || lease.Parent != "init-local" {
			t.Errorf("of the log and the pool the finer time: %+v", lease)
		}
		n := 0
		for _, s := range b.Spans {
			if s.Name == lease.Name {
				n++
			}
			if s.Source == "cloud-init" && s.Start < wire.Micros(wallOf(t, "2024-11-12T17:23:33").UnixMicro()) {
				t.Errorf("of the boot before: %+v", s)
			}
		}
		if n != 1 {
			t.Errorf("%d times the same span", n)
		}
		spanOf(t, b, "waagent", "extensions")
		spanOf(t, b, "cse", "enable/command")
		spanOf(t, b, "aks", "AKS.CSE.cse_start")
		if ready := spanOf(t, b, "kubelet", "ready"); ready.Grain != 1000 || ready.Start != 42100000 {
			t.Errorf("the journal knows it better than the gauge: %+v", ready)
		}
		// The log and the status tell of the stages, in different clocks.
		for _, stage := range []string{"init-local", "init-network", "modules-config", "modules-final"} {
			n := 0
			for _, s := range b.Spans {
				if s.Source == "cloud-init" && s.Name == stage {
					n++
				}
			}
			if n != 1 {
				t.Errorf("%d times the stage %s", n, stage)
			}
		}
		if config := spanOf(t, b, "cloud-init", "modules-config"); config.Result != "FAIL" || config.Clock != wire.ClockWall {
			t.Errorf("what only the status knows: %+v", config)
		}
		if len(b.Clocks) != 4 {
			t.Errorf("only what reads both clocks at once tells how they go: %v", b.Clocks)
		}
		spanOf(t, boots[0], "cloud-init", "init-local/check-cache")
	}
}

// Logs of which only the time of day is known, of before the first boot that is
// known, make one boot, not one each.
func TestJoinEarlierLogs(t *testing.T) {
	const earlier = "time=2024-11-12T16:24:22.751Z version=v2 operation=enable seq=0 event=start\ntime=2024-11-12T16:24:40.820Z version=v2 operation=enable seq=0 event=end\n"
	const pulled = `time="2024-11-12T16:24:13Z" level=info msg="PullImage \"a:1\""` + "\n" + `time="2024-11-12T16:24:14Z" level=info msg="PullImage \"a:1\" returns image reference \"sha256:1\""` + "\n"
	var all []wire.BootReport
	for _, text := range []string{earlier, pulled} {
		r, err := Read("x", strings.NewReader(text), Options{})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r...)
	}
	if boots := Join(all...); len(boots) != 1 || len(boots[0].Spans) != 2 {
		t.Errorf("alone: %s", printed(boots))
	}
	boots := Join(append(all, readFile(t, "journal.export", Options{})...)...)
	if len(boots) != 2 || len(boots[0].Spans) != 2 {
		t.Errorf("%s", printed(boots))
	}
}

// The window of the boot that is wanted leaves out others, and a file that has
// others only says so.
func TestWindow(t *testing.T) {
	since, until := wallOf(t, "2024-11-12T17:23:33"), wallOf(t, "2024-11-12T18:00:00")
	for _, name := range []string{"cloud-init.log", "waagent.log", "handler.log", "aks-events.json", "containerd.log", "kvp_pool_1", "provision.json", "analyze-dump.json", "status-epoch.json"} {
		reports := readFile(t, name, Options{Since: since, Until: until})
		if len(reports) != 1 || len(reports[0].Spans) == 0 || reports[0].Sources[0].State == wire.SourceOther {
			t.Errorf("%s: %d boots: %s", name, len(reports), printed(reports))
		}
		later := readFile(t, name, Options{Since: since.Add(24 * time.Hour)})
		if len(later) != 1 || len(later[0].Spans) != 0 || later[0].Sources[0].State != wire.SourceOther {
			t.Errorf("%s, of another day: %s", name, printed(later))
		}
	}
	old := Options{BootID: "0a7be1d9-4c5d-4be0-a1f6-c2d83e947b15"}
	if r := readFile(t, "journal-interleaved.export", old); len(r) != 1 || len(r[0].Units) != 2 {
		t.Errorf("by a boot's id: %s", printed(r))
	}
	if r := readFile(t, "journal-interleaved.export", Options{Since: since}); len(r) != 1 || r[0].BootID != "4f1c8a52-b7e9-4d0e-9c33-a1d2e5f60718" {
		t.Errorf("by the time: %s", printed(r))
	}
	if r := readFile(t, "journal.export", Options{Since: since.Add(24 * time.Hour)}); len(r) != 1 || r[0].Sources[0].State != wire.SourceOther {
		t.Errorf("of another day: %s", printed(r))
	}
	if r := readFile(t, "journal.export", old); len(r) != 1 || r[0].Sources[0].State != wire.SourceOther {
		t.Errorf("of another boot: %s", printed(r))
	}
}

// A chain's times count from userspace; beside the manager's times they count
// from the kernel's start.
func TestChainBesideOthers(t *testing.T) {
	const chain = "kubelet.service @34.645s +400ms\n└─basic.target @29.849s\n"
	chains, err := Read("chain", strings.NewReader(chain), Options{})
	if err != nil {
		t.Fatal(err)
	}
	boots := Join(append(chains, readFile(t, "journal.export", Options{})...)...)
	if len(boots) != 1 || boots[0].System.Relative {
		t.Fatalf("%d boots", len(boots))
	}
	if root := spanOf(t, boots[0], "systemd", "chain-root"); root.Start != 34645000+1355210 || root.End != root.Start+400000 {
		t.Errorf("%+v", root)
	}
	if u := unitOf(t, boots[0], "kubelet.service"); u.Activating != 36000000 || len(u.After) != 1 {
		t.Errorf("%+v", u)
	}
	// A chain of another boot stays apart.
	others := readFile(t, "vm-lifecycle.md", Options{})
	if boots := Join(append(others, readFile(t, "journal.export", Options{})...)...); len(boots) < 3 {
		t.Errorf("%d boots of 4", len(boots))
	}
}

// Of a file that is longer than may be read, its start and its end are, and it is said.
func TestBounds(t *testing.T) {
	text, err := os.ReadFile("testdata/journal-interleaved.export")
	if err != nil {
		t.Fatal(err)
	}
	filler := strings.Repeat("__CURSOR=x\n__REALTIME_TIMESTAMP=1731432300000000\n__MONOTONIC_TIMESTAMP=90000000\n_BOOT_ID=4f1c8a52b7e94d0e9c33a1d2e5f60718\nSYSLOG_IDENTIFIER=x\nMESSAGE=nothing of use\n\n", 2000)
	half := bytes.Index(text[len(text)/2:], []byte("\n\n")) + len(text)/2 + 2
	whole := append(append(append([]byte(nil), text[:half]...), filler...), text[half:]...)
	reports, err := Read("big", bytes.NewReader(whole), Options{Bytes: int64(2 * len(text))})
	if err != nil {
		t.Fatal(err)
	}
	r := reports[len(reports)-1]
	if s := r.Sources[0]; s.State != wire.SourcePartial || !strings.Contains(s.Detail, "only") {
		t.Errorf("%+v", s)
	}
	unitOf(t, r, "systemd-remount-fs.service")
	if unitOf(t, r, "graphical.target").Activated != 45640000 || r.System.Finish == 0 {
		t.Error("the end was not read")
	}
	// A stream cannot be sought: its start is read.
	reports = Journal(strings.NewReader(string(whole)), Options{Bytes: 4096})
	if reports[0].Sources[0].State != wire.SourcePartial {
		t.Errorf("%+v", reports[0].Sources)
	}
}

// What is cut anywhere is a partial report, and never none or an error.
func TestCutAnywhere(t *testing.T) {
	for _, name := range []string{"journal.export", "kvp_pool_1", "cloud-init.log", "plot.json", "waagent.log", "dump-new.txt"} {
		text, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		step := max(1, len(text)/97)
		for n := 0; n < len(text); n += step {
			for _, part := range [][]byte{text[:n], text[n:]} {
				reports, err := Read(name, bytes.NewReader(part), Options{})
				if err != nil {
					continue // too little is left to tell what it is
				}
				for _, r := range reports {
					if err := r.Validate(); err != nil {
						t.Fatalf("%s at %d: %v", name, n, err)
					}
				}
			}
		}
	}
}

func TestNotRead(t *testing.T) {
	for name, text := range map[string]string{
		"empty":   "",
		"prose":   "Nothing of a boot.",
		"gzip":    "\x1f\x8b\x08\x00",
		"journal": "LPKSHHRH\x00",
		"binary":  strings.Repeat("\x00\x01\x02", 4000),
		"object":  `{"a": 1}`,
	} {
		if reports, err := Read(name, strings.NewReader(text), Options{}); err == nil {
			t.Errorf("%s was taken for %s", name, printed(reports))
		} else if !strings.Contains(err.Error(), name) {
			t.Errorf("%s: the error does not name the file: %v", name, err)
		}
	}
}

// A report that was stored is read back.
func TestStoredReport(t *testing.T) {
	r := Join(readFile(t, "journal.export", Options{})...)[0]
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	back, err := Read("report.json", bytes.NewReader(text), Options{})
	if err != nil || len(back) != 1 || len(back[0].Units) != len(r.Units) {
		t.Fatalf("%v %d", err, len(back))
	}
}

// Secrets in what is kept are not kept.
func TestSecretsAreNotKept(t *testing.T) {
	const secret = "Tr0ub4dor&3xyzW"
	for _, text := range []string{
		"2024-11-12 17:23:37,912 - log_util.py[DEBUG]: Cloud-init v. 24.1.3 running 'init-local' at Tue, 12 Nov 2024 17:23:37 +0000. Up 4.31 seconds.\n" +
			"2024-11-12 17:23:38,000 - handlers.py[DEBUG]: start: init-local/x: running with --password=" + secret + "\n" +
			"2024-11-12 17:23:39,000 - handlers.py[DEBUG]: finish: init-local/x: FAIL: curl -u admin:" + secret + " https://example.com\n",
		`{"Timestamp": "2024-11-12 17:24:24.100", "OperationId": "2024-11-12 17:24:30.655", "TaskName": "AKS.CSE.x", "Message": "Completed: login --password=` + secret + `"}`,
		`time="2024-11-12T17:24:13Z" level=info msg="PullImage \"https://user:` + secret + `@registry.example.com/a:1\""` + "\n" +
			`time="2024-11-12T17:24:14Z" level=info msg="PullImage \"https://user:` + secret + `@registry.example.com/a:1\" failed"` + "\n",
	} {
		reports, err := Read("x", strings.NewReader(text), Options{})
		if err != nil {
			t.Fatal(err)
		}
		said := printed(reports)
		if len(reports[0].Spans) == 0 || strings.Contains(said, secret) {
			t.Errorf("kept:\n%s", said)
		}
	}
}
