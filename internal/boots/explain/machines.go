package explain

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	hostHead = regexp.MustCompile(`^\S[^\[\]]{0,34}?\d\d:\d\d:\d\d\S*\s+(?:[A-Z]{3,5}\s+)?([A-Za-z0-9][\w.-]*)\s+[^\s\[\]:]+(?:\[\d+\])?:(?:\s|$)`)
	login    = regexp.MustCompile(`^([a-z0-9][\w.-]*) login:`)
	named    = regexp.MustCompile(`(?:Hostname set to|Set hostname to|Initializing machine ID|hostname to) <([\w.-]+)>`)
	reboot   = regexp.MustCompile(`^-- (?:Reboot --|Boot [0-9a-f]{32})`)
)

// general are names that images have before a machine has its own.
func general(host string) bool {
	switch host {
	case "localhost", "ubuntu", "debian", "linux", "mariner", "azurelinux", "flatcar", "packer", "-":
		return true
	}
	return strings.HasPrefix(host, "pkr") || strings.HasPrefix(host, "localhost.")
}

// logs sorts a text's lines by the machine that they are of, by the host in a line's head
// or the Node that is described, and reads each one's last boot. A line without stays with
// the one before. Events of what is no Node are left out.
func logs(t *Text) []*part {
	var parts []*part
	by := map[string]*part{}
	var now *part
	unnamed := &part{text: t}
	for i, l := range t.Lines {
		host := ""
		if m := hostHead.FindStringSubmatch(l.Text); m != nil && !general(m[1]) {
			host = m[1]
		} else if m := nodeName.FindStringSubmatch(l.Text); m != nil && i+1 < len(t.Lines) && strings.HasPrefix(t.Lines[i+1].Text, "Roles:") {
			host = m[1]
		} else if m := nodesRow.FindStringSubmatch(l.Text); m != nil && !strings.HasPrefix(m[2], "Ready") {
			host = m[1]
		} else if m := eventRow.FindStringSubmatch(l.Text); m != nil && strings.EqualFold(m[3], "node") {
			host = m[4]
		} else if m != nil && m[2] != "FailedCreatePodSandBox" { // which is of what the node gives every pod
			continue
		} else if m := login.FindStringSubmatch(l.Text); m != nil && !general(m[1]) && now == nil {
			unnamed.machine = m[1]
		} else if m := named.FindStringSubmatch(l.Text); m != nil && now == nil && !general(m[1]) {
			unnamed.machine = m[1]
		}
		if host != "" && (now == nil || now.machine != host) {
			if by[host] == nil {
				by[host] = &part{text: t, machine: host}
				if len(by) <= maxParts {
					parts = append(parts, by[host])
				}
			}
			now = by[host]
			if len(parts) == 1 && len(unnamed.lines) > 0 { // what came before its name
				now.lines, unnamed.lines = unnamed.lines, nil
			}
		}
		to := now
		if to == nil {
			to = unnamed
		}
		to.lines = append(to.lines, l)
	}
	if len(unnamed.lines) > 0 {
		parts = append(parts, unnamed)
	}
	if left := len(by) - maxParts; left > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("lines of %d other machines than the first %d were left out: give those of interest (grep HOST)", left, maxParts))
	}
	for _, p := range parts {
		p.lastBoot()
		p.read()
		p.readTables()
		p.readSigns()
	}
	return parts
}

// maxJudged is how many of a part's last lines the judge reads.
const maxJudged = 5000

// lastBoot leaves the lines of the last boot that is in a part, as many as are judged, and
// says so.
func (p *part) lastBoot() {
	begins, boots := 0, 0
	for i, l := range p.lines {
		if kernel := strings.Contains(l.Text, "] Linux version ") || strings.Contains(l.Text, "kernel: Linux version "); kernel || reboot.MatchString(l.Text) {
			if kernel && i-begins < 5 && boots > 0 && reboot.MatchString(p.lines[begins].Text) { // the journal says it before the kernel does
				continue
			}
			if i > 0 && !kernel {
				boots = max(boots, 1) // what stands before the mark is of another boot
			}
			if i > 0 || kernel {
				begins, boots = i, boots+1
			}
		}
	}
	if boots > 0 && begins > 20 || boots > 1 {
		p.notes = append(p.notes, fmt.Sprintf("the last boot in it begins in line %d: only that was judged", p.lines[begins].Number))
		p.lines = p.lines[begins:]
	}
	if n := len(p.lines) - maxJudged; n > 0 {
		p.notes = append(p.notes, fmt.Sprintf("lines %d to %d were not judged: the last %d are; give the part that is of interest (sed -n FROM,TOp)", p.lines[0].Number, p.lines[n-1].Number, maxJudged))
		p.lines = p.lines[n:]
	}
}
