package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/boots/survey"
	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

const bootPool = fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/Pool1")

const someGallery = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/galleries/g/images/d/versions/"

// aKept is a boot of a node that takes that long to its kubelet, as a controller
// keeps it.
func aKept(t *testing.T, node int, version, boot string, stored time.Duration, config wire.Micros) fleet.Record {
	t.Helper()
	kernel := noon.Add(stored - 5*time.Minute)
	report := wire.BootReport{
		Version: wire.BootReportVersion, Node: fmt.Sprintf("node-%d", node), VMID: fmt.Sprintf("%d1111111-2222-4333-8444-555555555555", node), BootID: boot,
		Clocks: []wire.ClockReading{{Monotonic: 60e6, Wall: wire.Micros(kernel.Add(time.Minute).UnixMicro())}}, System: wire.SystemTimes{Userspace: 1.5e6, Finish: 60e6},
		Units: []wire.BootUnit{
			{Name: "network-online.target", Activating: 4e6, Activated: 4e6},
			{Name: "cloud-config.service", Activating: 4.01e6, Activated: 4.01e6 + config, After: []string{"network-online.target"}},
			{Name: "kubelet.service", Activating: 4.5e6 + config, Activated: 5e6 + config, After: []string{"cloud-config.service"}},
		},
	}
	r, err := assess.BootRecord{Node: report.Node, Pool: bootPool, Instance: bootPool.Child("virtualMachines", fmt.Sprint(node)), VMID: report.VMID, BootID: boot,
		Image: someGallery + version, Stored: noon.Add(stored), Created: kernel.Add(-20 * time.Second), NodeCreated: kernel.Add((6e6 + config).Duration()).Truncate(time.Second),
		NodeReady: kernel.Add((9e6 + config).Duration()).Truncate(time.Second)}.Record(report)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// someKept are five boots of each of two image versions, of which the second is
// slower, and a reboot of node 3.
func someKept(t *testing.T) *survey.KeptBoots {
	t.Helper()
	var all recordList
	put := func(r fleet.Record) { all = append(all, r) }
	for i := range 5 {
		put(aKept(t, i, "2026.11.20", fmt.Sprintf("aaaa-%d", i), time.Duration(i)*time.Hour, wire.Micros(2e6+i*1e5)))
		put(aKept(t, 10+i, "2026.11.21", fmt.Sprintf("bbbb-%d", i), time.Duration(24+i)*time.Hour, wire.Micros(11e6+i*1e5)))
	}
	put(aKept(t, 3, "2026.11.20", "cccc-3", 12*time.Hour, 3e6))
	broken := aKept(t, 99, "2026.11.20", "dddd", 0, 2e6)
	broken.Binary = nil
	put(broken)
	return &survey.KeptBoots{Records: all, Nodes: nodeList{}, Namespace: "ortet-system"}
}

func TestBootOfANode(t *testing.T) {
	k := someKept(t)
	var nodes nodeList
	report := wire.BootReport{Version: wire.BootReportVersion, Node: "node-7", VMID: "71111111-2222-4333-8444-555555555555", BootID: "eeee", Image: someGallery + "2026.11.21", System: wire.SystemTimes{Userspace: 1e6}}
	value, err := wire.EncodeBootAnnotation(report)
	if err != nil {
		t.Fatal(err)
	}
	for name, annotations := range map[string]map[string]string{"node-7": {wire.BootAnnotation: value}, "node-8": nil, "node-9": {wire.BootAnnotation: "v9:"}} {
		nodes = append(nodes, fleet.Node{Name: name, Annotations: annotations})
	}
	k.Nodes = nodes
	for _, c := range []struct{ node, boot, want, says string }{
		{"node-3", "", "cccc-3", ""}, // the last one
		{"NODE-3", "AAAA", "aaaa-3", ""},
		{"node-7", "", "eeee", ""}, // from its Node
		{"node-3", "ffff", "", "no boot ffff is kept; there are aaaa-3, cccc-3"},
		{"node-8", "", "", "`ortet-node report --annotate`"},
		{"node-9", "", "", wire.BootAnnotation},
		{"nobody", "", "", "the cluster has no such Node"},
	} {
		b, err := k.Node(t.Context(), c.node, c.boot)
		switch {
		case c.says == "" && (err != nil || b.Report.BootID != c.want || b.Timeline().Node == ""):
			t.Errorf("%s %s: %+v, %v; want %s", c.node, c.boot, b.Record, err, c.want)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s %s: %v, want %q", c.node, c.boot, err, c.says)
		}
	}
}

func TestBootChoice(t *testing.T) {
	k := someKept(t)
	for _, c := range []struct {
		name, what string
		boots      int
		says       string
	}{
		{"node-3", "node node-3", 1, ""},
		{"pool1", "pool pool1", 11, ""},
		{"pool1@2026.11.21", "pool pool1 with image version 2026.11.21", 5, ""},
		{"pool1@latest", "pool pool1 with image version 2026.11.21", 5, ""},
		{"pool1@previous", "pool pool1 with image version 2026.11.20", 6, ""},
		{string(bootPool) + "@latest", "pool " + string(bootPool) + " with image version 2026.11.21", 5, ""},
		{string(bootPool) + "x", "", 0, "no boot is kept of pool /subscriptions/"},
		{"pool1@7", "", 0, "there are 2026.11.21, 2026.11.20"},
		{"pool2@7", "", 0, "no boot is kept of pool pool2"},
		{"nobody", "", 0, "nobody is no node or pool"},
		{"@latest", "", 0, "want a node, POOL or POOL@VERSION"},
		{"pool1@", "", 0, "want a node, POOL or POOL@VERSION"},
	} {
		got, err := chooseBoots(t.Context(), k, c.name, true)
		if c.says == "" && (err != nil || got.What != c.what || len(got.Boots) != c.boots) || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %s with %d boots, %v; want %+v", c.name, got.What, len(got.Boots), err, c)
		}
	}
	if len(k.Notes) == 0 || !strings.Contains(k.Notes[0], "the stored boot") {
		t.Errorf("nothing is said of the one that cannot be read: %q", k.Notes)
	}
}

// shown is a text that fits a terminal.
func shown(t *testing.T, name, text string) {
	t.Helper()
	golden(t, name, text)
	for l := range strings.Lines(text) {
		if n := len([]rune(strings.TrimSuffix(l, "\n"))); n > resultWidth {
			t.Errorf("%s: %d columns: %s", name, n, l)
		}
	}
}

func TestBootsShown(t *testing.T) {
	k := someKept(t)
	choose := func(name string) survey.Choice {
		c, err := chooseBoots(t.Context(), k, name, true)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	diff := func(a, b string) string {
		var out strings.Builder
		d := bootDiff{A: choose(a), B: choose(b)}
		d.Difference = timeline.Diff(d.A.Timelines(), d.B.Timelines())
		writeBootDiff(&out, d)
		return out.String()
	}
	stats := func(c survey.Choice) string {
		var out strings.Builder
		writeBootStats(&out, statsOf(c))
		return out.String()
	}
	shown(t, "boot-diff-versions", diff("pool1@previous", "pool1@latest"))
	shown(t, "boot-diff-nodes", diff("node-12", "node-3"))
	shown(t, "boot-stats", stats(choose("pool1@latest")))
	none := choose("node-3")
	none.Boots = nil
	shown(t, "boot-stats-none", stats(none))

	// What programs read.
	text, err := json.Marshal(statsOf(choose("pool1@latest")))
	if err != nil {
		t.Fatal(err)
	}
	var back struct {
		Pool          string
		Boots         int
		ImageVersions []string
		Stages        []struct{ Name string }
	}
	if err := json.Unmarshal(text, &back); err != nil || back.Pool != "pool1" || back.Boots != 5 || len(back.ImageVersions) != 1 || len(back.Stages) == 0 {
		t.Errorf("%+v, %v\n%s", back, err, text)
	}
}

const chainText = `The time when unit became active or started is printed after the "@" character.

kubelet.service @5.100s
└─cloud-config.service @2.000s +3.000s
  └─network-online.target @1.000s
`

func TestBootAnalyze(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	chain, junk, page := write("chain.txt", chainText), write("junk.bin", "nothing of a boot"), filepath.Join(dir, "page.html")
	blame := write("blame.txt", "11.703s cloud-final.service\n 2.499s cloud-config.service\n")

	code, out, errs := run(t, "boot", "analyze", chain)
	if code != 0 || !strings.Contains(out, "cloud-config.service") || errs != "" {
		t.Errorf("code %d\n%s%s", code, out, errs)
	}
	for l := range strings.Lines(out) {
		if n := len([]rune(strings.TrimSuffix(l, "\n"))); n > resultWidth {
			t.Errorf("%d columns: %s", n, l)
		}
	}
	code, out, errs = run(t, "boot", "analyze", chain, junk, "-o", "json")
	var list []timeline.Timeline
	if err := json.Unmarshal([]byte(out), &list); code != 0 || err != nil || len(list) != 1 || len(list[0].Path) == 0 || !strings.Contains(errs, "junk.bin") {
		t.Errorf("code %d, %v, %d boots, %s", code, err, len(list), errs)
	}
	if code, out, errs := run(t, "boot", "analyze", chain, "-o", "html", "--out", page); code != 0 || out != "" || errs != "" {
		t.Errorf("code %d\n%s%s", code, out, errs)
	}
	text, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(text), "</html>") {
		t.Errorf("the page: %v, %d bytes", err, len(text))
	}
	if info, err := os.Stat(page); runtime.GOOS != "windows" && (err != nil || info.Mode().Perm()&0o133 != 0) {
		t.Errorf("the page's mode is %v (%v)", info.Mode(), err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) != 0 {
		t.Errorf("left over: %q, %v", left, err)
	}

	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{junk}, workflow.ExitRefused, "junk.bin: unknown format"},
		{[]string{blame}, workflow.ExitFailed, "the files have no time of any event of a boot"},
		{[]string{blame, "-o", "json"}, workflow.ExitFailed, "but not when"},
		{[]string{dir}, workflow.ExitRefused, "is a directory"},
		{[]string{filepath.Join(dir, "none")}, workflow.ExitRefused, "no such file"},
		{[]string{"-"}, workflow.ExitRefused, "standard input"},
		{[]string{chain, "--boot", "9"}, workflow.ExitRefused, "no boot 9 is in the files"},
		{[]string{chain, "--otlp", "ftp://x"}, workflow.ExitFailed, "http"},
		{[]string{chain, "--out", filepath.Join(dir, "none", "x")}, workflow.ExitFailed, "write the result to"},
		{[]string{chain, "--out", dir}, workflow.ExitFailed, "it is a directory"},
		{nil, ExitUsage, "name files of a machine"},
		{[]string{"-", "-"}, ExitUsage, "standard input can be read once"},
		{[]string{chain, "-o", "xml"}, ExitUsage, "-o xml: want table, json, yaml, html or svg"},
	} {
		code, out, errs := run(t, append([]string{"boot", "analyze"}, c.args...)...)
		if code != c.code || out != "" || !strings.Contains(errs, c.says) {
			t.Errorf("%q: code %d, want %d with %q\n%s%s", c.args, code, c.code, c.says, out, errs)
		}
	}
}

func TestBootIsSentAsATrace(t *testing.T) {
	got := make(chan string, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- fmt.Sprint(r.URL.Path, " ", len(body) > 0)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	defer s.Close()
	_, report, err := assess.ReadBoot(aKept(t, 1, "1", "aaaa", 0, 2e6))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := run(t, "boot", "analyze", file, "--otlp", s.URL); code != 0 || !strings.Contains(out, "cloud-config") || !strings.Contains(errs, "sent") {
		t.Errorf("code %d\n%s%s", code, out, errs)
	}
	select {
	case is := <-got:
		if is != "/v1/traces true" {
			t.Error(is)
		}
	default:
		t.Error("nothing was sent")
	}
}

func TestBootUsage(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"boot show", "name a node"},
		{"boot show a b", "takes one argument"},
		{"boot show a -o table1", "want table, json, yaml, html or svg"},
		{"boot stats", "name a pool"},
		{"boot stats p -o html", "want table, json or yaml"},
		{"boot diff a", "name two"},
	} {
		if code, out, errs := run(t, strings.Fields(c.args)...); code != ExitUsage || out != "" || !strings.Contains(errs, c.says) {
			t.Errorf("ortet %s: code %d\n%s%s", c.args, code, out, errs)
		}
	}
	if code, _, errs := run(t, "boot", "show", "n", "--kubeconfig", "/none"); code != workflow.ExitRefused || !strings.Contains(errs, "--kubeconfig") {
		t.Errorf("no cluster: code %d, %s", code, errs)
	}
}

// Every flag of ortet boot, and what bounds the boots that are kept, is on its page.
func TestBootFlagsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/boot.md")
	if err != nil {
		t.Fatal(err)
	}
	root := Command(Process{})
	told := map[string]bool{}
	for _, command := range [][]string{{"boot", "show"}, {"boot", "diff"}, {"boot", "stats"}, {"boot", "analyze"}, {"controller"}} {
		c, _, err := root.Find(command)
		if err != nil {
			t.Fatal(err)
		}
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if command[0] == "controller" && !strings.Contains(f.Name, "boots") && f.Name != "first-pod" {
				return
			}
			if told[f.Name] = true; !strings.Contains(string(page), "`--"+f.Name) {
				t.Errorf("docs/reference/boot.md does not tell of --%s", f.Name)
			}
		})
	}
	if len(told) < 7 {
		t.Errorf("only %d flags were seen", len(told))
	}
}

// A boot that was not seen to end is not the one in the middle.
func TestMedianBoot(t *testing.T) {
	boot := func(end wire.Micros, complete bool) timeline.Timeline {
		return timeline.Timeline{End: end, Complete: complete}
	}
	for want, all := range map[int][]timeline.Timeline{
		-1: nil,
		0:  {boot(5, false)},
		3:  {boot(1, false), boot(2, false), boot(9, true), boot(7, true), boot(3, true)},
	} {
		if got := medianBoot(all); got != want {
			t.Errorf("of %d boots %d, want %d", len(all), got, want)
		}
	}
}
