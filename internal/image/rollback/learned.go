package rollback

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/redact"
	"github.com/ortet/ortet/internal/wire"
)

const (
	codeLearned = "LearnedFromDonor"

	maxOthers = 3 // other donors that are compared
	maxLines  = 5 // of each, that are shown
)

// allow adds what a person allowed before: with the rollback that is resumed, or with the capture
// whose watch asks.
func (r *rollback) allow(rec journal.Record) {
	var was Request // a capture's has the field, too
	if json.Unmarshal(rec.Request, &was) != nil {
		return
	}
	if rec.Open() || r.req.Unattended && (rec.Kind == capture.Kind || was.Unattended) {
		names := slices.Concat(r.req.RestoreLearned, was.RestoreLearned)
		slices.Sort(names)
		r.req.RestoreLearned = slices.Compact(names)
		r.req.WithoutLearned = r.req.WithoutLearned || rec.Open() && was.WithoutLearned
	}
}

// learned decides about what donors' disks showed: root on a donor may have written it, and nodes
// of an image that never was on that donor would run it.
type learned struct {
	*rollback
	problems   *plan.Problems
	names      []string // of the command that restores all
	notes, out []string // out: extensions that are left out
}

// restores reports whether a value is not left out. It is refused unless the request names it.
func (l *learned) restores(ctx context.Context, pool fleet.Pool, v plan.Learned, data fleet.Secret) bool {
	name := cmp.Or(v.Name, v.Kind)
	named := slices.ContainsFunc(l.req.RestoreLearned, func(n string) bool {
		n, sha, _ := strings.Cut(n, "@") // of the value that was shown: a version's tag may name another by now
		return strings.EqualFold(n, name) && strings.HasPrefix(v.SHA256, strings.ToLower(sha))
	})
	if !named && l.req.WithoutLearned {
		l.notes = append(l.notes, name+" that a donor's disk showed is left out")
		return false
	}
	all := l.s.Original.Showed(v.Kind, v.Name)
	if i := slices.IndexFunc(all, func(o plan.Learned) bool { return o.SHA256 == v.SHA256 }); i >= 0 {
		v = all[i]
	} else if item, err := l.Cluster.GetSecret(ctx, pool.ID, v.Kind, v.SHA256); err == nil {
		v.Donor, v.At = item.Donor, item.At
	}
	text := fmt.Sprintf("%d bytes, SHA-256 %.12s, from node %s at %s", len(data.Reveal()), v.SHA256, v.Donor, v.At.UTC().Format(time.RFC3339))
	if last := l.s.LastCustomData; v.Name == "" && last != "" && last != plan.NoopSHA256 {
		all = append(slices.Clip(all), plan.Learned{Kind: v.Kind, SHA256: last})
	}
	others := slices.DeleteFunc(slices.Clone(all), func(o plan.Learned) bool { return o.SHA256 == v.SHA256 })
	for _, o := range others[:min(len(others), maxOthers)] {
		other, _ := l.Cluster.GetSecret(ctx, pool.ID, o.Kind, o.SHA256) // what is not kept is named by its hash
		text += fmt.Sprintf("; node %s showed SHA-256 %.12s", cmp.Or(o.Donor, other.Donor, "unknown"), o.SHA256)
		if other.SHA256 != "" {
			text += " at " + other.At.UTC().Format(time.RFC3339) + differing(data.Reveal(), other.Data.Reveal())
		}
	}
	if more := len(others) - maxOthers; more > 0 {
		text += fmt.Sprintf("; and %s more", fleet.Count(more, "other value"))
	}
	l.names = append(l.names, fmt.Sprintf("%s@%.12s", name, v.SHA256))
	if named {
		l.notes = append(l.notes, "restores "+name+" as a donor's disk showed it: "+text)
		return true
	}
	l.problems.Refuse(true, codeLearned, string(pool.ID), name+" was read from a donor's disk: "+text, "")
	return true
}

// leavesOut reports whether an extension is left out, or runs after one that is.
func (l *learned) leavesOut(ctx context.Context, pool fleet.Pool, w fleet.WriteExtension) bool {
	name := w.Extension.Name
	after := slices.ContainsFunc(w.Extension.After, func(n string) bool { return slices.Contains(l.out, strings.ToLower(n)) })
	v := plan.Learned{Kind: string(wire.ProtectedSettings), Name: name, SHA256: plan.SHA256(w.Protected.Reveal())}
	if !after && (w.Protected.Reveal() == "" || l.restores(ctx, pool, v, w.Protected)) {
		return false
	}
	l.out = append(l.out, strings.ToLower(name))
	l.result.Lost = append(l.result.Lost, "extension "+name+": left out (--without-learned); add it by az vmss extension set")
	return true
}

// end gives each refusal the command that restores all, and returns the notes.
func (l *learned) end() []string {
	command := "ortet rollback " + l.s.Pool.Name() + " --to " + cmp.Or(l.s.To.Name(), plan.ToOriginal) + " --restore-learned "
	for i, p := range *l.problems {
		if p.Code == codeLearned {
			(*l.problems)[i].WayOut = "if the pool's owner gave it: " + command + strings.Join(l.names, " --restore-learned ") +
				"; or give --without-learned in place of these"
		}
	}
	return l.notes
}

// differing shows the lines of two texts that the other lacks, without secrets.
func differing(this, other string) string {
	lines := func(text string) (raw, shown []string) {
		var b bytes.Buffer
		if json.Indent(&b, []byte(text), "", "") == nil { // nested ones, indented, would fill the memory
			text = b.String()
		}
		raw = strings.Split(text, "\n")
		return raw, redact.Lines(raw)
	}
	if !utf8.ValidString(this + other) {
		return ""
	}
	only := func(what, a, b string) (text string) {
		raw, shown := lines(a)
		have := map[string]bool{}
		other, _ := lines(b)
		for _, l := range other {
			have[l] = true
		}
		n := 0
		for i, l := range raw {
			if have[l] {
				continue
			}
			if n++; n <= maxLines {
				text += fmt.Sprintf(" %q", shown[i])
			}
		}
		if n > maxLines { // else lines of no matter would hide the one that matters
			text += fmt.Sprintf(" and %s more", fleet.Count(n-maxLines, "line"))
		}
		if text != "" {
			text = ", " + what + text
		}
		return text
	}
	return only("without", this, other) + only("with", other, this)
}
