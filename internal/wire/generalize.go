package wire

import (
	"strings"
	"time"
)

// GeneralizeLine is one line of what `ortet-node generalize` prints on standard
// output: progress for the person who watches, what is in the image, or, last, the report.
// Exactly one of them is set.
type GeneralizeLine struct {
	Progress string            `json:"progress,omitempty"`
	Manifest []byte            `json:"manifest,omitempty"` // as Manifest.Pack returns it
	Report   *GeneralizeReport `json:"report,omitempty"`
}

// GeneralizeOutcome is how generalising a disk ended.
type GeneralizeOutcome string

const (
	// Generalized means: identity is removed and the scan found nothing that may not ship.
	Generalized GeneralizeOutcome = "Generalized"
	// SecretsFound means: the scan refused the disk; Findings has what it found.
	SecretsFound GeneralizeOutcome = "SecretsFound"
	// DiskRefused means: the disk is not what was expected, or cannot be worked on safely;
	// nothing on it was changed. Message has the cause.
	DiskRefused GeneralizeOutcome = "DiskRefused"
	// GeneralizeFailed means: something else went wrong. Message has the cause.
	GeneralizeFailed GeneralizeOutcome = "Failed"
)

// GeneralizeReport is what became of one disk. It never holds a secret in the
// clear: what had to be saved is sealed to the key that the caller gave.
type GeneralizeReport struct {
	Capture string            `json:"capture"`           // the capture's name, as given
	Donor   string            `json:"donor"`             // the donor's node name, as given
	At      time.Time         `json:"at"`                // when the capture was begun, as given
	Outcome GeneralizeOutcome `json:"outcome"`           //
	Message string            `json:"message,omitempty"` // for a person; up to 2 KiB
	OS      string            `json:"os,omitempty"`      // PRETTY_NAME of os-release
	Removed int               `json:"removed"`           // paths removed or emptied
	Bytes   int64             `json:"bytes"`             // their size
	// Findings are bounded; of each rule at least one is among them. More counts those
	// that are not, SecretsRemoved the files that --remove-secrets deletes.
	Findings       []SecretFinding `json:"findings,omitempty"`
	More           int             `json:"more,omitempty"`
	SecretsRemoved int             `json:"secretsRemoved,omitempty"`
	// Joins lists the paths on the disk by which a clone can join by itself,
	// without customData or extensions: a bootstrap kubeconfig, shared
	// certificates, or a unit that asks for admission.
	Joins []string `json:"joins,omitempty"`
	// Saved is what cannot be read back from Azure once the model changes.
	Saved []SealedItem `json:"saved,omitempty"`
	// Unsaved names what should have been saved and could not, with the reason.
	Unsaved []string `json:"unsaved,omitempty"`
	// Missing is Unsaved as data. A report of an earlier release has the sentences only: see Lacks.
	Missing []UnsavedItem `json:"missing,omitempty"`
	// NoProtected names the extension handlers whose settings on the disk have no
	// protected ones.
	NoProtected []string `json:"noProtected,omitempty"`
	// Ancestry is the line that was added to /var/log/ancestry.log.
	Ancestry string `json:"ancestry,omitempty"`
	// Resumed means that an earlier run of this capture had begun on this disk. If Unsaved
	// then shows that it got to its end and its report is lost, the disk has to be made
	// from the donor's snapshot again.
	Resumed bool `json:"resumed,omitempty"`
	// Tuned names the tunings that the copy has. TunedKept lists files that an earlier capture
	// added and that somebody changed since: they stay.
	Tuned     []string `json:"tuned,omitempty"`
	TunedKept []string `json:"tunedKept,omitempty"`
	// DryRun means that nothing was changed; the rest is what would be.
	DryRun bool `json:"dryRun,omitempty"`
	// Partial means that an inspection of a running node ended at one of its limits:
	// Findings are what it found until then.
	Partial bool `json:"partial,omitempty"`
	// Elsewhere lists folders of a running node that lie on another disk than its root, of
	// which no copy has them: the kubelet's, and those of container runtimes.
	Elsewhere []ElsewhereFolder `json:"elsewhere,omitempty"`
	// Flushed is when the flush of a running node's disk began, by its own clock; zero
	// where none was asked for.
	Flushed time.Time `json:"flushed,omitzero"`
	// Emptied names files of a copy that was taken online which are empty, and were
	// written in the minute before the flush: what was in them may be lost.
	Emptied []string `json:"emptied,omitempty"`
	// HooksNotRun names cloud-init's clean.d hooks on the disk: they are programs
	// of the donor's, and are not run beside the workbench's devices.
	HooksNotRun []string `json:"hooksNotRun,omitempty"`
	// Unscanned names parts of the disk that were not looked at.
	Unscanned []string `json:"unscanned,omitempty"`
	// Stores are where container runtimes keep image layers.
	Stores []ImageStore `json:"stores,omitempty"`
	// Mentions names files outside configuration and state that name the donor. They are
	// harmless and listed for completeness.
	Mentions []string `json:"mentions,omitempty"`
}

// An ElsewhereFolder lies on another disk than the node's root.
type ElsewhereFolder struct {
	Path    string `json:"path"`
	Bytes   int64  `json:"bytes"` // used on that file system; 0 where unknown
	Kubelet bool   `json:"kubelet,omitempty"`
}

// SecretClass is what may be done about a secret on the disk.
type SecretClass string

const (
	// NodeIdentity would let a clone act as the donor. It always fails the scan.
	NodeIdentity SecretClass = "NodeIdentity"
	// PoolCredential is shared by the pool's nodes, and clones need it to join
	// until there is attested admission. It fails the scan unless accepted.
	PoolCredential SecretClass = "PoolCredential" //nolint:gosec // a class's name
	// OtherSecret is a secret of the node's users that no node needs to join. It fails
	// the scan unless its path is accepted or it is removed.
	OtherSecret SecretClass = "OtherSecret"
)

// SecretFinding is one secret that the scan found, by where it lies, never by
// its value.
type SecretFinding struct {
	Path     string      `json:"path"` // on the disk, absolute
	Class    SecretClass `json:"class"`
	Rule     string      `json:"rule"`     // stable name of the rule, "kubelet-client-key"
	Accepted bool        `json:"accepted"` // by --accept-pool-credentials or --accept-secret
	// Removed means that --remove-secrets deletes the file from the copy; in a dry run,
	// that it would.
	Removed bool   `json:"removed,omitempty"`
	Detail  string `json:"detail,omitempty"` // "line 12", why the file is not removed; never the value
}

// ImageStore is a folder of image layers. They are searched for the node's own secrets by
// value, and for other kinds only where ByForm allows it.
type ImageStore struct {
	Path   string `json:"path"` // on the disk, absolute
	Bytes  int64  `json:"bytes"`
	ByForm bool   `json:"byForm,omitempty"`
}

// NoSealKey ends an entry of GeneralizeReport.Unsaved, "KIND NAME: …", for what could be read, as
// at an inspection.
const NoSealKey = "there is no key to seal it to (--seal-to)"

// An UnsavedItem is what should have been saved and could not.
type UnsavedItem struct {
	Kind     SealedKind `json:"kind"`
	Name     string     `json:"name,omitempty"`     // as that of a SealedItem
	Readable bool       `json:"readable,omitempty"` // there was no key to seal it to, as at an inspection
}

// Lacks returns Missing, for a report of an earlier release by the sentences of Unsaved.
func (r GeneralizeReport) Lacks() []UnsavedItem {
	if len(r.Missing) > 0 {
		return r.Missing
	}
	var all []UnsavedItem
	for _, text := range r.Unsaved {
		what, why, _ := strings.Cut(text, ": ")
		kind, name, _ := strings.Cut(what, " ")
		if handler, is := strings.CutPrefix(what, "protected settings of "); is {
			kind, name = string(ProtectedSettings), handler
		}
		if k := SealedKind(kind); k == CustomData || k == ProtectedSettings {
			all = append(all, UnsavedItem{k, name, why == NoSealKey})
		}
	}
	return all
}

// SealedKind is what a SealedItem holds.
type SealedKind string

// The kinds of what is saved.
const (
	CustomData        SealedKind = "customData"        // as the platform handed it over, decoded
	ProtectedSettings SealedKind = "protectedSettings" // JSON of one extension's protected settings
)

// SealedItem is data for the caller's eyes only, sealed with crypto/hpke's Seal
// (RFC 9180: DHKEM(X25519), HKDF-SHA256, AES-256-GCM; info
// "ortet.io/saved/<kind>/<name>"), so that logs may carry it.
type SealedItem struct {
	Kind   SealedKind `json:"kind"`
	Name   string     `json:"name"`   // "" for customData, else the extension handler's name
	SHA256 string     `json:"sha256"` // of the plaintext, lower-case hex
	Sealed []byte     `json:"sealed"` // encapsulated key followed by the ciphertext
}
