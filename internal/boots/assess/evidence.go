package assess

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/boots/verdict"
	"github.com/ortet/ortet/internal/fleet"
)

// Evidence is a ConfigMap for each machine whose boot did not end well. It has no
// owner, so that it outlives the machine.
const (
	// EvidenceLabel selects them.
	EvidenceLabel = "ortet.io/evidence"
	EvidenceValue = "boot"

	// KeyAssessment, KeyInstance and KeyConsole are the parts: the Assessment and
	// the fleet.Boot as JSON, and what matters of the serial log.
	KeyAssessment = "assessment.json"
	KeyInstance   = "instance.json"
	KeyConsole    = "console.txt"
)

// Bounds of one piece of evidence; together below 64 KiB.
const (
	maxAssessment  = 24 << 10
	maxInstance    = 12 << 10
	maxConsoleText = 24 << 10
)

// Evidence is what was kept of a machine whose boot did not end well.
type Evidence struct {
	Assessment
	Boot    *fleet.Boot // nil where it cannot be read
	Console []string    // what matters of the serial log
}

// ReadEvidence reads what EvidenceOf made; false where it is none.
func ReadEvidence(r fleet.Record) (Evidence, bool) {
	var e Evidence
	if json.Unmarshal([]byte(r.Data[KeyAssessment]), &e.Assessment) != nil || e.State == "" {
		return e, false
	}
	var b fleet.Boot
	if json.Unmarshal([]byte(r.Data[KeyInstance]), &b) == nil {
		e.Boot = &b
	}
	if text := r.Data[KeyConsole]; text != "" {
		e.Console = strings.Split(strings.TrimRight(text, "\n"), "\n")
	}
	return e, true
}

// nameText makes a text fit the name of an object.
func nameText(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, strings.ToLower(s))
	return s[:min(len(s), most)]
}

// EvidenceName is a name for one machine, which may have none of its own.
func EvidenceName(b fleet.Boot) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s|%s", fleet.KeyOf(b.Instance), strings.ToLower(b.VMID))
	return fmt.Sprintf("boot-%s-%016x", strings.Trim(nameText(cmp.Or(b.HostName, b.Name), 60), "-"), h.Sum64())
}

// ParseAssessment reads what was kept; zero where it is none any more: somebody
// changed it, and it is found out again.
func ParseAssessment(text []byte) Assessment {
	var a Assessment
	if err := json.Unmarshal(text, &a); err != nil {
		return Assessment{}
	}
	if a.State.Final() != (a.Verdict != nil) {
		return Assessment{}
	}
	if a.Verdict != nil {
		a.Verdict.Evidence = nil
		if err := a.Verdict.Validate(); err != nil || a.State != State(a.Verdict.Outcome) {
			return Assessment{}
		}
	}
	return a
}

// EvidenceOf is the form in which an assessment of a boot is kept, with what it was judged by:
// without secrets and within bounds.
func EvidenceOf(a Assessment, b fleet.Boot, serial []byte) (fleet.Record, error) {
	name := EvidenceName(b)
	b.Provisioning.Message = verdict.RedactText(b.Provisioning.Message)
	b.Agent.Message = verdict.RedactText(b.Agent.Message)
	b.Extensions = slices.Clone(b.Extensions)
	for i := range b.Extensions {
		x := &b.Extensions[i]
		x.Statuses, x.Substatuses = redacted(x.Statuses), redacted(x.Substatuses)
	}
	for range 4 { // messages are most of it
		text, err := json.MarshalIndent(b, "", " ")
		if err != nil {
			return fleet.Record{}, err
		}
		if len(text) <= maxInstance {
			break
		}
		for i := range b.Extensions {
			halve(b.Extensions[i].Statuses)
			halve(b.Extensions[i].Substatuses)
		}
	}
	instance, err := json.MarshalIndent(b, "", " ")
	if err != nil {
		return fleet.Record{}, err
	}
	if len(instance) > maxInstance {
		b.Extensions = nil
		if instance, err = json.MarshalIndent(b, "", " "); err != nil {
			return fleet.Record{}, err
		}
	}
	if a.Verdict != nil {
		v := *a.Verdict
		a.Verdict = &v
	}
	assessment, err := json.MarshalIndent(a, "", " ")
	for err == nil && len(assessment) > maxAssessment && len(a.Verdict.Evidence) > 0 {
		a.Verdict.Evidence = a.Verdict.Evidence[:len(a.Verdict.Evidence)-1]
		assessment, err = json.MarshalIndent(a, "", " ")
	}
	if err != nil {
		return fleet.Record{}, err
	}
	data := map[string]string{KeyAssessment: string(assessment), KeyInstance: string(instance)}
	if len(serial) > 0 {
		lines := Relevant(serial, maxConsole)
		size := 0
		for i := len(lines) - 1; i >= 0; i-- { // the end has most of the evidence
			if size += len(lines[i]) + 1; size > maxConsoleText {
				lines = append([]string{"[…]"}, lines[i+1:]...)
				break
			}
		}
		data[KeyConsole] = strings.Join(lines, "\n") + "\n"
	}
	return fleet.Record{Name: name, Data: data, Labels: map[string]string{
		EvidenceLabel: EvidenceValue, MachineLabel: labelText(a.VMID), BootPoolLabel: labelText(a.Pool.Name()),
		"app.kubernetes.io/managed-by": "ortet",
	}}, nil
}

func redacted(list []fleet.BootStatus) []fleet.BootStatus {
	list = slices.Clone(list)
	for i := range list {
		text := strings.Split(list[i].Message, "\n")
		list[i].Message = strings.Join(verdict.Redact(text), "\n")
	}
	return list
}

func halve(list []fleet.BootStatus) {
	for i, st := range list {
		if n := len(st.Message); n > 128 {
			list[i].Message = strings.ToValidUTF8(st.Message[n/2:], "")
		}
	}
}

// labelText makes a text fit a label.
func labelText(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == '_' {
			return r
		}
		return '-'
	}, s)
	return strings.Trim(s[:min(len(s), 63)], "-._")
}
