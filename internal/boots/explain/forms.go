package explain

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ortet/ortet/internal/boots/verdict"
)

// part is what one text has of one machine: its lines, and the facts of the forms in it.
type part struct {
	text    *Text
	machine string
	lines   []Line
	notes   []string
	form    string
	source  string // a hint for the judge, which knows files by their names

	units     []verdict.Unit
	cloudInit *verdict.CloudInit
	provision *verdict.Provision
	sign      string // a reason that the form shows by itself
	windows   bool
	object    bool   // the lines are no log
	dead      bool   // the boot did not come beyond the initrd or the loader
	failed    bool   // the form says that something failed
	well      bool   // or that all is well
	signs     []int  // the lines that say so
	overcome  []int  // and those that say that all is well
	newest    string // the time of the newest Event that counts

	open map[string][]int // the lines of each sign of a failure that was not got over
}

var (
	unitHead   = regexp.MustCompile(`^\s*(?:[●○×↻*xX]\s*)?([\w@.:\\-]+\.(?:service|mount|socket|target|device|swap))(?: - |\s*$)`)
	unitState  = regexp.MustCompile(`^\s*Active:\s+([\w-]+)(?:\s+\(([\w-]+)\))?(?:\s+\(Result: ([\w-]+)\))?`)
	unitResult = regexp.MustCompile(`\(Result: ([\w-]+)\)`)
	unitExit   = regexp.MustCompile(`\(code=exited, status=(\d+)`)
	nodeName   = regexp.MustCompile(`^Name:\s+([\w.-]+)$`)
	readyRow   = regexp.MustCompile(`^\s*Ready\s+(True|False|Unknown)\s+(.*)$`)
	nodesRow   = regexp.MustCompile(`^(?:node/)?([a-z0-9][\w.-]*)\s+((?:Not)?Ready\S*|Unknown)\s+(?:\S+\s+)?\d\w*\s+v\d`) // older ones have no roles
	ciStatus   = regexp.MustCompile(`^(?:extended_)?status: (done|error|running|degraded|disabled|not run)\b`)
	ciError    = regexp.MustCompile(`^\s*-?\s*(\('[\w-]+', \w+\(.*)$`)
)

// hints are files that the judge knows by their names, whose lines have no heads.
var hints = [...]string{"cloud-init-output.log", "cloud-init.log", "cluster-provision.log", "cloudbase-init.log", "kubelet.log", "kubelet.err.log", "containerd.log", "dmesg"}

// read finds the forms in a part's lines. Several may stand in one paste.
func (p *part) read() {
	base := strings.ToLower(path.Base(strings.ReplaceAll(p.text.Name, `\`, "/")))
	if slices.Contains(hints[:], strings.TrimSuffix(base, ".txt")) {
		p.source = base
	}
	heads, arm := 0, false
	for _, l := range p.lines {
		if armText.MatchString(l.Text[:min(len(l.Text), 4*maxSign)]) {
			arm = true // also where another program logs it
		} else if headed.MatchString(strings.TrimLeft(l.Text, " ")) {
			heads++
		}
	}
	if arm && heads*2 <= len(p.lines) {
		p.form = azures
		p.readARM()
		return
	}
	p.readState()
	if p.form == "" {
		p.form = "text"
		if heads*2 > len(p.lines) {
			p.form = "a log"
		}
	}
}

// readState reads what tools print of a state: systemctl, kubectl and cloud-init.
func (p *part) readState() {
	conditions, status := false, ""
	var errs []string
	for i, l := range p.lines {
		s := l.Text
		var u *verdict.Unit
		if n := len(p.units); n > 0 {
			u = &p.units[n-1]
		}
		switch m := unitHead.FindStringSubmatch(s); {
		case m != nil && i+1 < len(p.lines) && strings.HasPrefix(strings.TrimSpace(p.lines[i+1].Text), "Loaded:"):
			p.form = "systemctl status"
			// Somebody asks for its state because it matters.
			p.units = append(p.units, verdict.Unit{Name: m[1], Asked: nodeUnit(m[1])})
			p.units[len(p.units)-1].Missing = strings.Contains(p.lines[i+1].Text, "not-found")
			continue
		case strings.HasPrefix(s, "Conditions:"):
			conditions, p.form = true, "kubectl describe node"
		}
		if m := unitState.FindStringSubmatch(s); m != nil && u != nil && u.Active == "" {
			u.Active, u.Sub, u.Result = m[1], m[2], m[3]
			if u.Result == "" {
				if r := unitResult.FindStringSubmatch(s); r != nil {
					u.Result = r[1]
				}
			}
			if u.Sub == "Result" || strings.HasPrefix(s, "Active: failed") && u.Sub == "" {
				u.Sub = "failed"
			}
			if u.Active == "failed" || u.Sub == "auto-restart" {
				p.failed, p.signs = p.failed || u.Asked, append(p.signs, i)
			}
		}
		if m := unitExit.FindStringSubmatch(s); m != nil && m[1] != "0" {
			switch {
			case u == nil: // its head was not pasted
				p.failed, p.signs = p.failed || strings.HasPrefix(strings.TrimSpace(s), "Main PID: "), append(p.signs, i)
			case u.ExitCode == 0:
				u.ExitCode, _ = strconv.Atoi(m[1])
				p.signs = append(p.signs, i)
			}
		}
		if m := readyRow.FindStringSubmatch(s); m != nil && (conditions || strings.Contains(m[2], "Kubelet")) {
			p.ready(i, m[1] == "True", m[2])
		}
		if m := nodesRow.FindStringSubmatch(s); m != nil {
			p.form = "kubectl get nodes"
			if ready, _, _ := strings.Cut(m[2], ","); ready == "Ready" {
				p.good(i)
			} else {
				p.ready(i, false, "")
			}
		}
		if m := ciStatus.FindStringSubmatch(s); m != nil && !headed.MatchString(s) {
			p.form, status = "cloud-init status", m[1]
			switch status {
			case "done", "degraded":
				p.good(i)
			case "error":
				p.failed, p.signs = true, append(p.signs, i)
			}
		}
		if m := ciError.FindStringSubmatch(s); m != nil && status != "" && status != "done" {
			errs = append(errs, m[1])
		}
	}
	if len(errs) > 0 {
		p.cloudInit = &verdict.CloudInit{Done: true, Stages: []verdict.Stage{{Errors: errs}}}
	}
}

// good notes a line that says that all is well.
func (p *part) good(i int) { p.well, p.overcome = true, append(p.overcome, i) }

// ready takes the condition Ready of a Node.
func (p *part) ready(line int, status bool, why string) {
	if status {
		p.good(line)
		return
	}
	p.sign, p.failed, p.signs = verdict.NotReadyReason(why), true, append(p.signs, line)
}

// nodeUnit says whether a unit is one that makes a node.
func nodeUnit(name string) bool {
	name = strings.TrimSuffix(name, ".service")
	return slices.Contains([]string{"kubelet", "containerd", "crio", "docker", "k3s", "k3s-agent", "rke2-agent", "rke2-server", "cloudbase-init"}, name) ||
		strings.HasPrefix(name, "cloud-init") || strings.HasPrefix(name, "cloud-config") || strings.HasPrefix(name, "cloud-final")
}
