package verdict

import (
	"strings"

	"github.com/ortet/ortet/internal/redact"
)

// maxLooked is how many of a log's last lines are looked at.
const maxLooked = 5000

// kind is who wrote a line, as a bit. Their order is that of the boot: of findings of the
// same rank in several logs the one of the earlier kind is the verdict's.
type kind uint16

const (
	kernel kind = 1 << iota
	elsewhere
	cloudInit // its own log
	output    // what cloud-init's scripts printed
	provision // what AKS's script printed
	runtime   // containerd's or CRI-O's journal
	kubelet
	k3s           // or RKE2: agent, kubelet and runtime in one
	anywhere kind = 1<<iota - 1
	foreign  kind = 1 << iota // programs that have nothing to do with the boot: no rule is for them
)

func kindOf(source string) kind {
	s := strings.ToLower(source)
	switch {
	case hasAny(s, "kernel", "dmesg"):
		return kernel
	case hasAny(s, "k3s", "rke2"):
		return k3s
	case hasAny(s, "kubelet"):
		return kubelet
	case hasAny(s, "containerd", "crio", "cri-o", "docker"):
		return runtime
	case hasAny(s, "cluster-provision", "provision.json", "cse"):
		return provision
	case hasAny(s, "cloud-init-output"):
		return output
	case hasAny(s, "cloud-init", "cloudbase-init"):
		return cloudInit
	}
	return elsewhere
}

// log is one of the facts' logs, of this boot only.
type log struct {
	source string
	kind   kind
	aside  bool     // of a unit that has nothing to do with the boot
	lines  []string // as they are
	low    []string // in lower case, without what a terminal would obey
	of     []kind   // who wrote each line
	cut    bool
	from   int // how many lines before were left out
}

func readLogs(f Facts) []log {
	logs := make([]log, 0, len(f.Logs)+2)
	for _, l := range f.Logs {
		logs = append(logs, newLog(l.Source, kindOf(l.Source), l.Lines, l.Cut))
		if f.Headless {
			logs[len(logs)-1].anyone()
		}
	}
	if p := f.Provision; p != nil {
		for _, text := range [...]string{p.Output, p.Error} {
			if text != "" {
				logs = append(logs, newLog(provisionFile, provision, strings.Split(text, "\n"), false))
			}
		}
	}
	return logs
}

func newLog(source string, k kind, lines []string, cut bool) log {
	given := len(lines)
	if n := len(lines) - maxLooked; n > 0 {
		lines, cut = lines[n:], true
	}
	switch {
	case k&(output|cloudInit) != 0:
		lines = lines[thisBoot(lines):]
	case k&(elsewhere|kernel) != 0:
		lines = lines[lastBoot(lines):]
	}
	l := log{source: source, kind: k, lines: lines, cut: cut, low: make([]string, len(lines)), of: make([]kind, len(lines)), from: given - len(lines)}
	for i, text := range lines {
		l.low[i] = logged(strings.ToLower(Plain(text, redact.MaxRead)))
		l.of[i] = programOf(l.low[i], k)
	}
	return l
}

// anyone has the lines without a head be of any program, of k3s where they speak of it.
func (l *log) anyone() {
	for i, k := range l.of {
		if k != elsewhere || klog(l.low[i]) || hasAny(l.low[i], "unknown flag", "unknown shorthand") && !strings.Contains(l.low[i], "kubelet") {
			continue
		}
		l.of[i] |= kernel | cloudInit | output | runtime | kubelet
		if hasAny(l.low[i], "k3s", "rke2", "rancher", "etcd", "token", "cacerts", "--server", "server configuration") {
			l.of[i] |= k3s
		}
	}
}

// redacted is a line without secrets; a private key may have begun above it.
func (l *log) redacted(i int) string {
	shown := Redact(l.lines[max(0, i-redact.MaxKeyLines) : i+1])
	return shown[len(shown)-1]
}

// thisBoot is where cloud-init began last: its files go on over reboots.
func thisBoot(lines []string) int {
	for i := len(lines) - 1; i > 0; i-- {
		if strings.Contains(lines[i], "cloudbaseinit.init [-] Cloudbase-Init version: ") {
			return i
		}
		if strings.Contains(lines[i], "Cloud-init v. ") && strings.Contains(lines[i], "running 'init-local'") {
			return i
		}
	}
	return 0
}

// lastBoot is where the last of several boots begins in a console, a journal or a paste:
// the first has no beginning that would have to be there.
func lastBoot(lines []string) int {
	for i := len(lines) - 1; i > 0; i-- {
		if strings.Contains(lines[i], "] Linux version ") || strings.Contains(lines[i], "kernel: Linux version ") {
			return i
		}
	}
	last := thisBoot(lines)
	for _, text := range lines[:last] {
		if strings.Contains(text, "Cloud-init v. ") && strings.Contains(text, "running 'init-local'") {
			return last
		}
	}
	return 0
}

// finding is a reason with what shows it.
type finding struct {
	reason string
	rank   rank
	log    int // which of the logs, -1 where it is not in one
	line   int
	order  kind   // when in the boot
	text   string // as text, where it is not in a log
	source string // of the text, "" for the one of its order
	passes passing
	try    int  // of kubeadm, in which it was found
	late   bool // it may come yet: at the deadline it is no failure
	stage  string
	module string
	phase  string
	exit   *int
}

// before reports whether f is to be preferred to g: nearer to the cause, or earlier; in one
// log the order of the text decides.
func (f finding) before(g finding) bool {
	if f.rank != g.rank {
		return f.rank > g.rank
	}
	if f.order != g.order && (f.log < 0 || f.log != g.log) {
		return f.order < g.order
	}
	return f.line < g.line
}
