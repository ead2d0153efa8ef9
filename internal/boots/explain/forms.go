package explain

import (
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

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
	object    bool  // the lines are no log
	dead      bool  // the boot did not come beyond the initrd or the loader
	failed    bool  // the form says that something failed
	well      bool  // or that all is well
	signs     []int // the lines that say so
	overcome  []int // and those that say that all is well
}

var (
	unitHead   = regexp.MustCompile(`^\s*(?:[●○×↻*xX]\s*)?([\w@.:\\-]+\.(?:service|mount|socket|target|device|swap))(?: - |\s*$)`)
	unitState  = regexp.MustCompile(`^\s*Active:\s+([\w-]+)(?:\s+\(([\w-]+)\))?(?:\s+\(Result: ([\w-]+)\))?`)
	unitResult = regexp.MustCompile(`\(Result: ([\w-]+)\)`)
	unitExit   = regexp.MustCompile(`\(code=exited, status=(\d+)`)
	nodeName   = regexp.MustCompile(`^Name:\s+([\w.-]+)$`)
	readyRow   = regexp.MustCompile(`^\s*Ready\s+(True|False|Unknown)\s+(.*)$`)
	nodesRow   = regexp.MustCompile(`^([a-z0-9][\w.-]*)\s+((?:Not)?Ready\S*|Unknown)\s+\S+\s+\S+\s+v\d`)
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
		if headed.MatchString(strings.TrimLeft(l.Text, " ")) {
			heads++
		}
		arm = arm || armText.MatchString(l.Text[:min(len(l.Text), 4*maxSign)])
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
			switch {
			case u.Active == "failed" || u.Sub == "auto-restart":
				p.failed, p.signs = p.failed || u.Asked, append(p.signs, i)
			case u.Active == "active" && u.Asked:
				p.good(i)
			}
		}
		if m := unitExit.FindStringSubmatch(s); m != nil && u != nil && u.ExitCode == 0 {
			if u.ExitCode, _ = strconv.Atoi(m[1]); u.ExitCode != 0 {
				p.signs = append(p.signs, i)
			}
		}
		if m := readyRow.FindStringSubmatch(s); m != nil && conditions {
			p.ready(i, m[1], m[2])
		}
		if m := nodesRow.FindStringSubmatch(s); m != nil {
			p.form = "kubectl get nodes"
			if ready, _, _ := strings.Cut(m[2], ","); ready == "Ready" {
				p.good(i)
			} else {
				p.ready(i, "False", "")
			}
		}
		if m := ciStatus.FindStringSubmatch(s); m != nil && heads(s) == "" {
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

func heads(s string) string { return headed.FindString(s) }

// good notes a line that says that all is well.
func (p *part) good(i int) { p.well, p.overcome = true, append(p.overcome, i) }

// ready takes the condition Ready of a Node.
func (p *part) ready(line int, status, why string) {
	if status == "True" {
		p.good(line)
		return
	}
	p.sign, p.failed, p.signs = verdict.NotReadyReason(why), true, append(p.signs, line)
}

// nodeUnit says whether a unit is one that makes a node.
func nodeUnit(name string) bool {
	name = strings.TrimSuffix(name, ".service")
	for _, n := range [...]string{"kubelet", "containerd", "crio", "docker", "k3s", "k3s-agent", "rke2-agent", "rke2-server", "cloudbase-init"} {
		if name == n {
			return true
		}
	}
	return strings.HasPrefix(name, "cloud-init") || strings.HasPrefix(name, "cloud-config") || strings.HasPrefix(name, "cloud-final")
}

// Bounds, in bytes, of what is read as one object. YAML takes much more memory.
const (
	maxObject = 8 << 20
	maxYAML   = 2 << 20
)

// readObject reads Nodes as kubectl get -o yaml or json prints them, and cloud-init's
// status.json and result.json. Their lines are no log.
func (p *part) readObject() bool {
	var b strings.Builder
	for _, l := range p.lines {
		if b.Len()+len(l.Text) > maxObject {
			return false
		}
		b.WriteString(l.Text + "\n")
	}
	text := b.String()
	line := func(words ...string) int {
		return max(0, slices.IndexFunc(p.lines, func(l Line) bool {
			return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(l.Text, w) })
		}))
	}
	switch {
	case strings.Contains(text, "conditions") && (strings.Contains(text, "kind: Node") || strings.Contains(text, `"kind": "Node"`)):
		type node struct {
			Kind     string
			Metadata struct{ Name string }
			Status   struct {
				Conditions []struct{ Type, Status, Reason, Message string }
			}
			Items []json.RawMessage
		}
		var list node
		parse := func(b []byte, to any) error { return yaml.Unmarshal(b, to) }
		if strings.HasPrefix(strings.TrimSpace(text), "{") {
			parse = json.Unmarshal
		} else if len(text) > maxYAML || aliased([]byte(text)) {
			return false
		}
		if parse([]byte(text), &list) != nil {
			return false
		}
		all := []node{list}
		for _, item := range list.Items {
			var n node
			if json.Unmarshal(item, &n) == nil {
				all = append(all, n)
			}
		}
		for _, n := range all {
			for _, c := range n.Status.Conditions {
				if c.Type == "Ready" && n.Kind == "Node" {
					p.form = "a Node"
					at := line(c.Message)
					if c.Message == "" {
						at = line("Ready")
					}
					if p.ready(at, c.Status, c.Reason+": "+c.Message); c.Status != "True" || len(all) == 1 {
						p.machine = n.Metadata.Name
					}
				}
			}
		}
		return p.form != ""
	case strings.Contains(text, `"v1"`) && strings.Contains(text, `"errors"`):
		var v struct{ V1 map[string]json.RawMessage }
		if json.Unmarshal([]byte(text), &v) != nil {
			return false
		}
		p.form, p.cloudInit = "cloud-init's status", &verdict.CloudInit{}
		var all []string
		if json.Unmarshal(v.V1["errors"], &all) == nil && len(all) > 0 {
			p.cloudInit.Stages = append(p.cloudInit.Stages, verdict.Stage{Errors: all})
		}
		for _, name := range [...]string{"init-local", "init", "modules-config", "modules-final"} {
			var s struct {
				Errors []string
				Start  *float64
			}
			if json.Unmarshal(v.V1[name], &s) == nil && s.Start != nil {
				p.cloudInit.Stages = append(p.cloudInit.Stages, verdict.Stage{Name: name, Begin: 1, End: 2, Errors: s.Errors})
			}
		}
		if p.failed = p.cloudInit.Failed(); p.failed {
			p.signs = append(p.signs, line(`"errors"`))
		} else if v.V1["datasource"] != nil {
			p.good(line(`"errors"`))
		}
		return true
	}
	return false
}
