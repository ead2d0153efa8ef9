package source

import (
	"os"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/wire"
)

func unitOf(t *testing.T, r wire.BootReport, name string) wire.BootUnit {
	t.Helper()
	for _, u := range r.Units {
		if u.Name == name {
			return u
		}
	}
	t.Fatalf("no unit %s among %d", name, len(r.Units))
	return wire.BootUnit{}
}

func spanOf(t *testing.T, r wire.BootReport, source, name string) wire.BootSpan {
	t.Helper()
	for _, s := range r.Spans {
		if s.Source == source && s.Name == name {
			return s
		}
	}
	t.Fatalf("no span %s of %s among %d", name, source, len(r.Spans))
	return wire.BootSpan{}
}

// readFile reads a file of testdata as an operator's `ortet boot analyze` does.
func readFile(t *testing.T, name string, o Options) []wire.BootReport {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	reports, err := Read(name, f, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reports {
		if err := r.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	return reports
}

func ms(n int64) wire.Micros { return wire.Micros(n * 1000) }

// The project's own source 4, prose and all: four chains of three boots.
func TestSourceFour(t *testing.T) {
	reports := readFile(t, "vm-lifecycle.md", Options{})
	if len(reports) != 3 {
		t.Fatalf("%d boots, of which there are 3", len(reports))
	}
	for i, units := range []int{13, 15, 15} {
		if len(reports[i].Units) != units || !reports[i].System.Relative {
			t.Errorf("boot %d: %d units, relative %v, not %d", i, len(reports[i].Units), reports[i].System.Relative, units)
		}
	}
	pps := unitOf(t, reports[1], "cloud-init-local.service")
	if pps.Activating != ms(2504) || pps.Activated != ms(2504+16*60000+40410) || pps.Grain != ms(1) {
		t.Errorf("preprovisioned: %+v", pps)
	}
	if device := unitOf(t, reports[1], `sys-devices-virtual-misc-vmbus\x21hv_kvp.device`); device.Activated != ms(2496) {
		t.Errorf("a device: %+v", device)
	}
	third := reports[2]
	local, network := unitOf(t, third, "cloud-init-local.service"), unitOf(t, third, "cloud-init.service")
	if wait := network.Activating - local.Activated; wait != ms(2286) {
		t.Errorf("a wait of %v before cloud-init.service, not 2.286 s", wait.Duration())
	}
	remount := unitOf(t, third, "systemd-remount-fs.service")
	if wait := local.Activating - remount.Activated; wait != ms(1040) {
		t.Errorf("a wait of %v before cloud-init-local.service, not 1.040 s", wait.Duration())
	}
	// Of the root only how long it took is printed.
	final := unitOf(t, third, "cloud-final.service")
	if final.Activating != ms(33929) || final.Activated-final.Activating != ms(11703) || len(final.After) != 1 || final.After[0] != "multi-user.target" {
		t.Errorf("the root: %+v", final)
	}
	if config := unitOf(t, third, "cloud-config.service"); config.Activated-config.Activating != ms(2499) {
		t.Errorf("cloud-config: %+v", config)
	}
	var roots []string
	for _, s := range third.Spans {
		if s.Source == "systemd" && s.Name == "chain-root" {
			roots = append(roots, s.Unit)
			if s.Open != (s.Unit == "cloud-final.service") {
				t.Errorf("whether the end of %s is known: %v", s.Unit, !s.Open)
			}
		}
	}
	if strings.Join(roots, " ") != "walinuxagent.service cloud-final.service" {
		t.Errorf("the chains lead to %v", roots)
	}
}

func TestChainLayouts(t *testing.T) {
	read := func(text string) []wire.BootReport {
		return CriticalChains(strings.NewReader(text), Options{})
	}
	const ascii = "multi-user.target @1h 2min 3.456s\n" +
		"|-ssh.service @12.001s +33ms\n" +
		"| `-basic.target @12s\n" +
		"|   `-...\n" +
		"`-getty.target @11.9s\n" +
		"  `--.slice @0\n"
	for name, text := range map[string]string{
		"ascii":    ascii,
		"utf-8":    strings.NewReplacer("|-", "├─", "`-", "└─", "| ", "│ ").Replace(ascii),
		"indented": "    " + strings.ReplaceAll(strings.TrimSuffix(ascii, "\n"), "\n", "\n    ") + "\n",
		"quoted":   "> " + strings.ReplaceAll(strings.TrimSuffix(ascii, "\n"), "\n", "\n> ") + "\n",
		"coloured": strings.ReplaceAll(ascii, "ssh.service @12.001s +33ms", "\x1b[0;1;31mssh.service @12.001s +33ms\x1b[0m"),
		"windows":  strings.ReplaceAll(ascii, "\n", "\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			reports := read(text)
			if len(reports) != 1 || len(reports[0].Units) != 5 {
				t.Fatalf("%+v", reports)
			}
			r := reports[0]
			if root := unitOf(t, r, "multi-user.target"); root.Activated != ms(3723456) || strings.Join(root.After, " ") != "ssh.service getty.target" {
				t.Errorf("%+v", root)
			}
			if ssh := unitOf(t, r, "ssh.service"); ssh.Activating != ms(12001) || ssh.Activated != ms(12034) || strings.Join(ssh.After, " ") != "basic.target" {
				t.Errorf("%+v", ssh)
			}
			if slice := unitOf(t, r, "-.slice"); slice.Activated != 1 {
				t.Errorf("a unit that was active at once must not seem never to have been: %+v", slice)
			}
			if getty := unitOf(t, r, "getty.target"); strings.Join(getty.After, " ") != "-.slice" {
				t.Errorf("%+v", getty)
			}
		})
	}
}

// Where a root's time is not printed, whoever knows it is believed.
func TestRootKnownElsewhere(t *testing.T) {
	const chains = "kubelet.service +300ms\n└─basic.target @29.849s\n\n" +
		"multi-user.target @40.000s\n└─kubelet.service @34.645s +300ms\n  └─basic.target @29.849s\n"
	r := CriticalChains(strings.NewReader(chains), Options{})
	if len(r) != 1 {
		t.Fatalf("%d boots", len(r))
	}
	if u := unitOf(t, r[0], "kubelet.service"); u.Activating != ms(34645) || u.Activated != ms(34945) {
		t.Errorf("another chain prints it: %+v", u)
	}
	first, _, _ := strings.Cut(chains, "\n\n")
	alone, err := Read("chain", strings.NewReader(first), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if root := spanOf(t, alone[0], "systemd", "chain-root"); !root.Open || root.Start != ms(29849) {
		t.Errorf("by itself: %+v", root)
	}
	boots := Join(append(alone, readFile(t, "journal.export", Options{})...)...)
	if len(boots) != 1 {
		t.Fatalf("%d boots", len(boots))
	}
	if root := spanOf(t, boots[0], "systemd", "chain-root"); root.Open || root.Start != 36000000 {
		t.Errorf("the journal tells: %+v", root)
	}
	if u := unitOf(t, boots[0], "kubelet.service"); u.Activating != 36000000 || u.Restarts != 0 {
		t.Errorf("%+v", u)
	}
}

func TestNoChain(t *testing.T) {
	for name, text := range map[string]string{
		"prose":        "We start kubelet.service when\nnetwork-online.target\nis there.\n",
		"a branch":     "└─basic.target @1s\n",
		"bad times":    "a.service @soon +1s\nb.service @1s +-3s\n",
		"empty":        "",
		"not UTF-8":    "\xff\xfe└─\xffa.service @1s\n",
		"endless line": strings.Repeat("└─", 1<<17),
	} {
		reports := CriticalChains(strings.NewReader(text), Options{})
		if len(reports) != 1 || len(reports[0].Units) != 0 || reports[0].Sources[0].State != wire.SourcePartial {
			t.Errorf("%s: %+v", name, reports)
		}
	}
}
