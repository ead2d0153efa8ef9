package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/wire"
)

// secretFlags are ortet-node's, for what may be done about secrets on the disk.
func secretFlags(o prototype.Options) []string {
	var flags []string
	for name, on := range map[string]bool{"--accept-pool-credentials": o.AcceptPoolCredentials, "--remove-secrets": o.RemoveSecrets, "--scan-images": o.ScanImages} {
		if on {
			flags = append(flags, name)
		}
	}
	slices.Sort(flags)
	for _, at := range o.AcceptSecrets {
		flags = append(flags, "--accept-secret", at)
	}
	return flags
}

// keepScan keeps what the scan of the copy accepted, removed and passed over.
func (f *facts) keepScan(report wire.GeneralizeReport) {
	paths := func(is func(wire.SecretFinding) bool) []string {
		var all []string
		for _, x := range report.Findings {
			if is(x) {
				all = append(all, x.Path)
			}
		}
		slices.Sort(all)
		return slices.Compact(all) // one file may hold several
	}
	f.Credentials = paths(func(x wire.SecretFinding) bool { return x.Accepted && x.Class == wire.PoolCredential })
	f.AcceptedSecrets = paths(func(x wire.SecretFinding) bool { return x.Accepted && x.Class == wire.OtherSecret })
	f.RemovedSecrets = paths(func(x wire.SecretFinding) bool { return x.Removed })
	var counts []string
	for _, c := range []struct {
		what string
		n    int
	}{{"pool", len(f.Credentials)}, {"other", len(f.AcceptedSecrets)}, {"removed", report.SecretsRemoved}} {
		if c.n > 0 {
			counts = append(counts, fmt.Sprintf("%s %d", c.what, c.n))
		}
	}
	f.Secrets = strings.Join(counts, ", ")
	f.ScanNotes = scanNotes(report)
}

// scanNotes says what the scan did not look at, and what the report does not list.
func scanNotes(report wire.GeneralizeReport) []string {
	var notes []string
	var stores []string
	var bytes int64
	for _, s := range report.Stores {
		if !s.ByForm {
			stores = append(stores, s.Path)
			bytes += s.Bytes
		}
	}
	if bytes > 0 {
		notes = append(notes, fmt.Sprintf("%.1f GiB of image layers were searched for the node's own secrets only (%s); --scan-images searches them for all kinds", float64(bytes)/(1<<30), strings.Join(stores, ", ")))
	}
	if report.More > 0 {
		notes = append(notes, fmt.Sprintf("%d more secrets were found on the disk than are listed", report.More))
	}
	return notes
}

// removalNote says what --remove-secrets is going to delete from the copy; "" for nothing.
func removalNote(report wire.GeneralizeReport) string {
	var f facts
	f.keepScan(report)
	if len(f.RemovedSecrets) == 0 {
		return ""
	}
	text := strings.Join(f.RemovedSecrets[:min(len(f.RemovedSecrets), maxNamed)], ", ")
	if more := report.SecretsRemoved - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return "--remove-secrets deletes from the copy: " + text
}

// orNothing puts a text after another where there is one.
func orNothing(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}
