// Package report reads what ortet-node generalize printed of a disk: what speaks against an image of
// it, and what a capture keeps of it. It is pure; the pod's output and the time come in as values.
package report

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/wire"
)

// CodePoolCredentials is the problem of a disk with credentials that all nodes of the pool share.
const CodePoolCredentials = "PoolCredentials"

// ExitFlags is what ortet-node ends with if it cannot read its flags.
const ExitFlags = 64

// A Disk is what a capture knows of the disk of which a report is.
type Disk struct {
	Request        plan.Request
	LastCustomData string   // SHA-256 of what Ortet last gave the model
	ToDelete       []string // extensions
	LearnsOriginal bool     // the donor was made from the original's image
}

// Found is what a capture keeps of the report on the copy. It is saved with the capture's record.
type Found struct {
	CustomData      string   `json:"customData,omitempty"` // SHA-256 of what goes with the version
	Unsaved         []string `json:"unsaved,omitempty"`
	Credentials     []string `json:"credentials,omitempty"`
	AcceptedSecrets []string `json:"acceptedSecrets,omitempty"`
	RemovedSecrets  []string `json:"removedSecrets,omitempty"`
	Secrets         string   `json:"secrets,omitempty"`  // the version's tag
	Tuned           string   `json:"tuned,omitempty"`    // tunings of the copy; the version's tag
	Manifest        string   `json:"manifest,omitempty"` // SHA-256 of what is kept of it; the version's tag
	ScanNotes       []string `json:"scanNotes,omitempty"`
	NoCustomData    bool     `json:"noCustomData,omitempty"` // new nodes get none
}

// Read returns the last progress and the report among the lines that a pod printed. err is
// wire.ErrOtherVersion, if that is why there is no report.
func Read(output []byte) (progress string, report *wire.GeneralizeReport, err error) {
	for text := range bytes.Lines(output) {
		line, unread := wire.ParseGeneralizeLine(text)
		if unread == nil {
			progress, report = cmp.Or(line.Progress, progress), cmp.Or(line.Report, report)
		} else if errors.Is(unread, wire.ErrOtherVersion) {
			err = unread
		}
	}
	if report != nil {
		err = nil
	}
	return progress, report, err
}

// Manifest returns the last manifest among the lines that a pod printed, as it is kept; nil for none,
// and for one that cannot be read.
func Manifest(output []byte) (manifest []byte) {
	for text := range bytes.Lines(output) {
		if line, err := wire.ParseGeneralizeLine(text); err == nil && line.Manifest != nil {
			manifest = line.Manifest
		}
	}
	if _, err := wire.ReadManifest(manifest); err != nil {
		return nil
	}
	return manifest
}

// Tail returns the end of what a pod printed.
func Tail(output []byte) string {
	text := bytes.TrimSpace(output)
	return strconv.Quote(strings.ToValidUTF8(string(text[max(0, len(text)-400):]), ""))
}

// Inspected are the reasons to refuse that the report of an inspection gives. The rest of it
// becomes notes.
func (d Disk) Inspected(report wire.GeneralizeReport, note func(format string, args ...any)) plan.Problems {
	problems := d.Problems(report, plan.MaxNamed)
	if len(problems) > 0 {
		return problems
	}
	var scan Found
	scan.Keep(report)
	if len(scan.RemovedSecrets) > 0 {
		note("--remove-secrets deletes from the copy: %s", plan.UpTo(plan.MaxNamed, scan.RemovedSecrets, report.SecretsRemoved))
	}
	for _, text := range changed(report) {
		note("%s", text)
	}
	for _, f := range report.Elsewhere {
		if f.Kubelet && d.Request.Bakes() {
			return plan.Problems{{Code: "KubeletElsewhere", On: "node " + d.Request.Node, What: "the kubelet's folder " + f.Path + " lies on another disk than its root: " +
				"no image has it, and with --bootstrap baked nothing makes it again", WayOut: "capture with --bootstrap keep, or keep the folder on the OS disk"}}
		}
		note("%s lies on another disk than the root of the donor: what is there (%d MiB are used on that disk) is not in the image; new nodes make or pull it again", f.Path, f.Bytes>>20)
	}
	if report.Partial {
		note("the inspection of the donor's disk ended at its limit of time, files or bytes: the rest is scanned on the copy, later")
	}
	return nil
}

// Problems are the reasons why a disk must not become an image, at most so many
// paths of each.
func (d Disk) Problems(report wire.GeneralizeReport, most int) (p plan.Problems) {
	on, customData := "node "+d.Request.Node, ""
	mend, from := "mend it on the node", "from the node"
	if d.Request.Fresh != "" { // which is deleted by the time that somebody reads this
		mend = "mend it with --prepare, or in the pool's image, customData or extensions"
		from = "with --prepare, or from the pool's image, customData or extensions"
	}
	switch report.Outcome {
	case wire.DiskRefused:
		return plan.Problems{{Code: "DiskRefused", On: on, What: cmp.Or(report.Message, "its disk cannot be captured"),
			WayOut: mend}}
	case wire.GeneralizeFailed:
		return plan.Problems{{On: on, What: cmp.Or(report.Message, "it failed without a reason")}}
	}
	found := map[wire.SecretClass][]string{}
	for _, f := range report.Findings {
		if !f.Accepted && !f.Removed {
			found[f.Class] = append(found[f.Class], fmt.Sprintf("%s (%s)", f.Path, strings.TrimSuffix(f.Rule+", "+f.Detail, ", ")))
		}
	}
	if report.Outcome == wire.SecretsFound && len(found) == 0 { // it fails for more than it lists
		found[wire.OtherSecret] = []string{report.Message}
	}
	refuse := func(class wire.SecretClass, code, what, wayOut string) {
		p.Refuse(len(found[class]) > 0, code, on, what+plan.UpTo(most, found[class], len(found[class])), wayOut)
	}
	refuse(wire.NodeIdentity, "IdentityOnDisk", "its disk holds its identity where generalising does not remove it: ",
		"remove it "+from+"; no flag accepts it")
	refuse(wire.PoolCredential, CodePoolCredentials, "its disk holds credentials, which every new node would hold: ",
		"accept them with --accept-pool-credentials, or remove them "+from)
	refuse(wire.OtherSecret, "OtherSecrets", "its disk holds secrets that no node needs to join: ",
		"delete their files from the copy with --remove-secrets, accept them with --accept-secret PATH, or remove them "+from)

	// If nothing on the disk and no customData lets a new node join, the extensions that are
	// to be deleted are what does. What --bootstrap baked needs, ortet-node checks.
	for _, item := range report.Saved {
		if item.Kind == wire.CustomData {
			customData = item.SHA256
		}
	}
	noop := customData == plan.NoopSHA256
	if len(report.Joins) > 0 || d.Request.Bakes() || d.Request.PublishOnly || CustomDataUnread(report) || customData != "" && !noop {
		return p
	}
	noop = noop || d.LastCustomData == plan.NoopSHA256
	p.Refuse(noop, "CannotJoin", on, "nothing that generalising leaves on its disk lets a new node join, and the model's customData does nothing since a capture with --bootstrap baked",
		"capture with --bootstrap baked")
	p.Refuse(!noop && len(d.ToDelete) > 0, "CannotJoin", on,
		"nothing on its disk lets a new node join, and it came with no customData: the extensions that go may be all that does",
		"leave the extensions alone (--extensions none), or let the disk hold a bootstrap kubeconfig")
	return p
}

// CustomDataUnread reports whether there may be customData that could not be read.
func CustomDataUnread(report wire.GeneralizeReport) bool {
	return slices.ContainsFunc(report.Lacks(), func(i wire.UnsavedItem) bool { return i.Kind == wire.CustomData })
}
