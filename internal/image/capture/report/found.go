package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/wire"
)

// Learn completes the original from the donor's disk: customData, and extensions by their
// handlers' names. Unsaved names what the pod could not save, and the protected settings of
// extensions that are to be deleted and of which the disk has nothing. What an earlier donor's
// disk showed stays: a node that lies must not replace it, and what differs is returned.
func (f *Found) Learn(h *plan.Inherited, d Disk, report wire.GeneralizeReport, customData string, now time.Time) (differ []string) {
	f.Unsaved = slices.Clone(report.Unsaved)
	if h.Original == nil {
		return nil
	}
	o := *h.Original
	learn := func(known, name, sha string, kind wire.SealedKind) string {
		counts := o.Learn(known, plan.Learned{Kind: string(kind), Name: name, SHA256: sha, Donor: d.Request.Node, At: now})
		if counts != sha {
			differ = append(differ, cmp.Or(name, string(kind)))
		}
		return counts
	}
	if o.Extensions = slices.Clone(o.Extensions); customData != "" {
		o.CustomData = learn(o.CustomData, "", customData, wire.CustomData)
	}
	for i := range o.Extensions {
		e := &o.Extensions[i]
		is := func(name string) bool {
			return strings.EqualFold(name, e.Handler()) || strings.EqualFold(name, e.Handler()+"/"+e.Name)
		}
		sha := ""
		if slices.ContainsFunc(report.NoProtected, is) {
			sha = plan.NoSettings
		}
		for _, item := range report.Saved {
			if item.Kind == wire.ProtectedSettings && is(item.Name) {
				sha = item.SHA256
			}
		}
		if e.KeyVault == nil && sha != "" {
			e.ProtectedSHA256 = learn(e.ProtectedSHA256, e.Name, sha, wire.ProtectedSettings)
		}
		named := slices.ContainsFunc(report.Lacks(), func(i wire.UnsavedItem) bool { return strings.Contains(i.Name, e.Handler()) })
		if e.HasProtectedSettings && e.ProtectedSHA256 == "" && slices.Contains(d.ToDelete, e.Name) && !named {
			f.Unsaved = append(f.Unsaved, "protected settings of extension "+e.Name+": the donor's disk has none of them")
		}
	}
	if !d.LearnsOriginal {
		return nil
	}
	h.Original = &o
	return differ
}

// changed says which files of an earlier capture's tunings stay.
func changed(report wire.GeneralizeReport) []string {
	if len(report.TunedKept) == 0 {
		return nil
	}
	return []string{"an earlier capture's --tune added these files, and somebody changed them since, so that they stay: " +
		plan.UpTo(plan.MaxNamed, report.TunedKept, len(report.TunedKept))}
}

// Keep keeps what the scan of the copy accepted, removed and passed over.
func (f *Found) Keep(report wire.GeneralizeReport) {
	paths := func(is func(wire.SecretFinding) bool) (all []string) {
		for _, x := range report.Findings {
			if is(x) {
				all = append(all, x.Path)
			}
		}
		slices.Sort(all)
		return slices.Compact(all) // a file may hold several
	}
	f.Credentials = paths(func(x wire.SecretFinding) bool { return x.Accepted && x.Class == wire.PoolCredential })
	f.AcceptedSecrets = paths(func(x wire.SecretFinding) bool { return x.Accepted && x.Class == wire.OtherSecret })
	f.RemovedSecrets = paths(func(x wire.SecretFinding) bool { return x.Removed })
	f.Secrets, f.ScanNotes = "", changed(report)
	f.Tuned = wire.JoinTunings(report.Tuned)
	if pool, other, removed := len(f.Credentials), len(f.AcceptedSecrets), report.SecretsRemoved; pool+other+removed > 0 {
		f.Secrets = fmt.Sprintf("pool %d, other %d, removed %d", pool, other, removed)
	}
	if len(report.Emptied) > 0 { // of a copy that was taken online
		f.ScanNotes = append(f.ScanNotes, "these files are empty, and were written in the minute before the disk was copied; if they should not be, capture again: "+
			plan.UpTo(plan.MaxNamed, report.Emptied, len(report.Emptied)))
	}
	var stores []string
	var bytes int64
	for _, x := range report.Stores {
		if !x.ByForm {
			stores, bytes = append(stores, x.Path), bytes+x.Bytes
		}
	}
	if bytes > 0 {
		f.ScanNotes = append(f.ScanNotes, fmt.Sprintf("%.1f GiB of image layers were searched for the node's own secrets only (%s); --scan-images searches them for all kinds", float64(bytes)/(1<<30), strings.Join(stores, ", ")))
	}
	if report.More > 0 {
		f.ScanNotes = append(f.ScanNotes, fmt.Sprintf("%d more secrets were found on the disk than are listed", report.More))
	}
}
