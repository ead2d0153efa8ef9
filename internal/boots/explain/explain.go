package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/boots/verdict"
	"github.com/ortet/ortet/internal/redact"
	"github.com/ortet/ortet/internal/wire"
)

// A Result is what a text says of a machine.
type Result string

// The results.
const (
	Failed        Result = "Failed"        // something failed, with a known cause or without
	NothingFailed Result = "NothingFailed" // the text shows that what makes the node came up
	Unclear       Result = "Unclear"       // nothing in the text says that something failed, or that all is well
)

// A Report is the verdicts on texts.
type Report struct {
	Machines []Machine `json:"machines"`
	Files    []File    `json:"files"`
}

// Failed says whether something failed on any machine.
func (r Report) Failed() bool {
	return slices.ContainsFunc(r.Machines, func(m Machine) bool { return m.Result == Failed })
}

// A Machine is the verdict on one machine's last boot. Texts are redacted.
type Machine struct {
	Name       string             `json:"name,omitempty"` // "" where the texts do not say it
	Files      []string           `json:"files"`
	Result     Result             `json:"result"`
	Reason     string             `json:"reason,omitempty"` // of the catalogue; Unknown if something failed without a known cause
	Confidence verdict.Confidence `json:"confidence,omitempty"`
	Owner      wire.Owner         `json:"owner,omitempty"`
	Retryable  bool               `json:"retryable,omitempty"`
	Message    string             `json:"message"`
	Remedy     string             `json:"remedy,omitempty"`
	Stage      string             `json:"stage,omitempty"`
	Module     string             `json:"module,omitempty"`
	Phase      string             `json:"phase,omitempty"`
	ExitCode   *int               `json:"exitCode,omitempty"`
	Lines      []Quote            `json:"lines,omitempty"`
	More       string             `json:"more,omitempty"` // the command whose output says more
}

// A Quote is a line that shows the verdict, or one beside it.
type Quote struct {
	File  string `json:"file"`
	Line  int    `json:"line"`
	Text  string `json:"text"`
	Shows bool   `json:"shows,omitempty"` // it is the line itself
}

// A File is what was read of one file.
type File struct {
	Name    string   `json:"name"`
	Form    string   `json:"form"`
	Lines   int      `json:"lines"`
	Skipped []string `json:"skipped,omitempty"` // what was left out, and why
}

// Explain judges texts: those of one machine together, by the machines that they name. A
// text that names none is of the one machine there is, else of one of its own.
func Explain(texts []Text) Report {
	var r Report
	var parts []*part
	names := map[string]bool{}
	for i := range texts {
		t := &texts[i]
		raw, isJournal := entries(t.Lines)
		for n := range raw {
			raw[n].Text = clean(raw[n].Text)
		}
		t.Lines = programs(raw)
		split := objects(t)
		if split == nil {
			split = logs(t)
		}
		f := File{Name: t.Name, Lines: t.Total, Skipped: t.Notes}
		for _, p := range split {
			if isJournal {
				p.form = "a journal"
			}
			names[p.machine] = true
			parts = append(parts, p)
			f.Form = cmp.Or(f.Form, p.form)
			f.Skipped = append(f.Skipped, p.notes...)
		}
		r.Files = append(r.Files, f)
	}
	delete(names, "")
	var of []string // machines, in the order of the texts
	groups := map[string][]*part{}
	for _, p := range parts {
		key := p.machine
		if key == "" && len(names) == 1 {
			for only := range names {
				key = only
			}
		} else if key == "" && len(names) > 1 {
			key = "\x00" + p.text.Name
		}
		if groups[key] == nil {
			of = append(of, key)
		}
		groups[key] = append(groups[key], p)
	}
	for _, key := range of {
		m := judge(groups[key])
		if !strings.HasPrefix(key, "\x00") {
			m.Name = redact.Text(key)
		}
		r.Machines = append(r.Machines, m)
	}
	return r
}

// judge has one machine's texts judged, as they are, then with broken lines put together.
func judge(parts []*part) Machine {
	f := verdict.Facts{Outside: true}
	m := Machine{Result: Unclear}
	failed, well := false, false
	for _, p := range parts {
		if !slices.Contains(m.Files, p.text.Name) {
			m.Files = append(m.Files, p.text.Name)
		}
		f.Units = append(f.Units, p.units...)
		f.Windows = f.Windows || p.windows
		f.Sign = cmp.Or(f.Sign, p.sign)
		f.CloudInit, f.Provision = cmp.Or(p.cloudInit, f.CloudInit), cmp.Or(p.provision, f.Provision)
		failed, well = failed || p.failed, well || p.well
	}
	// A text that looks as if it were wrapped is judged put together, and as it is if that
	// shows nothing; any other the other way round.
	whole, wrapped := make([][]Line, len(parts)), false
	for i, p := range parts {
		if whole[i] = p.lines; !p.object {
			var wraps bool
			whole[i], wraps = unwrapped(p.lines)
			wrapped = wrapped || wraps
		}
	}
	var j verdict.Judgement
	read, last := make([][]Line, len(parts)), lastWord(parts)
	// Then its lines are taken for quotes, and at last what ended is all that is known.
	const quotes, ending = 2, 4
	for n, together := range [...]bool{wrapped, !wrapped, wrapped, !wrapped, wrapped} {
		f.Logs = make([]verdict.Log, len(parts))
		f.Headless = n >= quotes && n < ending
		for i, p := range parts {
			lines := p.lines
			switch f.Logs[i].Source = p.source; {
			case p.object:
				lines = nil
			case together:
				lines = whole[i]
			}
			if f.Headless {
				read[i] = unquoted(lines)
				lines = read[i]
			}
			for _, l := range lines {
				f.Logs[i].Lines = append(f.Logs[i].Lines, l.Text)
			}
		}
		if n == ending {
			f.Sign = cmp.Or(f.Sign, last)
		}
		if j = verdict.Judge(f); j.Reason == wire.ReasonUnknown || j.Reason == last && n < ending {
			continue
		}
		for i, p := range parts {
			if f.Headless && len(j.Shown) > 0 {
				p.lines = read[i]
			} else if together && len(j.Shown) > 0 { // the signs are of the lines as they are
				p.lines = whole[i]
			}
		}
		break
	}
	switch {
	case j.Reason != wire.ReasonUnknown || failed:
		m.Result, m.Reason, m.Message, m.Remedy = Failed, j.Reason, j.Message, j.Remedy
		m.Owner, m.Retryable, m.Confidence = j.Owner, j.Retryable, verdict.ConfidenceOf(j.Reason)
		m.Stage, m.Module, m.Phase, m.ExitCode = j.Stage, j.Module, j.Phase, j.ExitCode
		for _, at := range j.Shown {
			m.quote(parts[at.Log], at.Line, 2)
		}
	case well:
		m.Result, m.Message = NothingFailed, "nothing in it failed: it shows that cloud-init came to its end, or that the node works"
	default:
		m.Message = "nothing in it says that something failed, and nothing that the node came up"
	}
	for _, p := range parts {
		shown := p.signs
		if m.Result == NothingFailed {
			shown = p.overcome[max(0, len(p.overcome)-1):]
		}
		if m.Result == Unclear || m.Result == Failed && len(j.Shown) > 0 {
			break
		}
		for _, i := range shown[max(0, len(shown)-maxShown):] {
			around := 2
			if p.form == azures { // what is beside it is JSON
				around = 0
			}
			m.quote(p, i, around)
		}
	}
	r, _ := verdict.Lookup(j.Reason)
	if unsaid := j.Reason == wire.ReasonUnknown; m.Result == Failed && (unsaid || j.Reason == last && len(j.Shown) == 0) {
		m.Stage, m.Message = "", r.Summary+", and nothing in it says why"
		if unsaid {
			m.Message, m.Remedy = "something failed, and nothing in it says why", ""
		}
		if i := slices.IndexFunc(m.Lines, func(q Quote) bool { return q.Shows }); i >= 0 {
			m.Message += ": " + strings.TrimSpace(m.Lines[i].Text)
		}
	}
	if m.Result == Unclear || m.Confidence == verdict.Unsure {
		m.More = more(parts, f)
	}
	return m
}

// maxShown is how many lines are shown of a text that show the verdict.
const maxShown = 4

// quote adds a line and some around it, redacted in the sight of all that is before.
func (m *Machine) quote(p *part, i, around int) {
	if i >= len(p.lines) {
		return
	}
	from, to := max(0, i-around), min(len(p.lines), i+1+around/2)
	top := max(0, from-redact.MaxKeyLines)
	var text []string
	for _, l := range p.lines[top:min(len(p.lines), to+1)] {
		text = append(text, l.Text)
	}
	text = redact.Lines(text)
	for n := from; n < to; n++ {
		q := Quote{File: p.text.Name, Line: p.lines[n].Number, Text: text[n-top], Shows: n == i}
		at := slices.IndexFunc(m.Lines, func(o Quote) bool { return o.File == q.File && o.Line == q.Line && o.Text == q.Text })
		switch {
		case at >= 0:
			m.Lines[at].Shows = m.Lines[at].Shows || q.Shows
		case strings.TrimSpace(q.Text) != "":
			m.Lines = append(m.Lines, q)
		}
	}
}

// more is the one command whose output says most beside what there is already.
func more(parts []*part, f verdict.Facts) string {
	const journal = "journalctl -b --no-pager"
	has := func(form string) bool {
		return slices.ContainsFunc(parts, func(p *part) bool { return p.form == form })
	}
	at := "on the node: "
	switch {
	case slices.ContainsFunc(parts, func(p *part) bool { return p.dead }):
		return "in the shell on its console: cat /run/initramfs/rdsosreport.txt, or journalctl -b --no-pager"
	case f.Windows:
		return at + `type C:\AzureData\CustomDataSetupScript.log C:\k\kubelet.err.log`
	case f.Provision != nil:
		return at + "cat /var/log/azure/cluster-provision.log"
	case has(azures):
		return fmt.Sprintf("ortet nodes NAME, or %s%s", at, journal)
	case has("cloud-init status"), has("cloud-init's status"):
		return at + "cat /var/log/cloud-init-output.log"
	case has("kubectl get nodes"):
		return "kubectl describe node NAME"
	}
	return at + journal
}
