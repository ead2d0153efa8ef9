// Package prototype decides and does nothing: from what was observed it says what is
// wrong, which steps a capture or rollback has, which of them are done, which
// versions to prune. Every function is pure; time comes in as a value.
package prototype

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// A Step is one line of a plan: a step, or an undo of the good case.
type Step struct {
	ID           string        `json:"id"`
	Title        string        `json:"title"`
	After        []string      `json:"after,omitempty"`        // ids that have to be done, or skipped, before
	Usual        time.Duration `json:"usual,omitempty"`        // 0: a moment
	Deadline     time.Duration `json:"deadline"`               // counts from its begin
	Skip         string        `json:"skip,omitempty"`         // why it will not run; "" runs it
	Irreversible []string      `json:"irreversible,omitempty"` // what cannot be recovered once it is done
}

// A Plan is what a capture or rollback would do, and why it may not.
type Plan struct {
	Kind        string           `json:"kind"` // "capture" or "rollback"
	Capture     string           `json:"capture,omitempty"`
	Pool        fleet.ResourceID `json:"pool"`
	Donor       string           `json:"donor,omitempty"`     // node name
	Workbench   string           `json:"workbench,omitempty"` // node name
	Version     fleet.ResourceID `json:"version,omitempty"`   // what the model will use
	Steps       []Step           `json:"steps"`               // in an order in which they could run one after another
	Problems    []fleet.Problem  `json:"problems,omitempty"`  // all reasons to refuse
	Notes       []string         `json:"notes,omitempty"`     // no reasons to refuse
	Resumes     bool             `json:"resumes,omitempty"`   // an earlier run was interrupted and this one goes on
	NothingToDo bool             `json:"nothingToDo,omitempty"`
}

// How new nodes come to join the cluster.
const (
	BootstrapKeep  = "keep"  // the model's customData stays
	BootstrapBaked = "baked" // all that a node needs is on its disk: customData becomes a no-op
)

// A Request says which node to capture, and how. It is part of the record, so that a
// resumed run does the same.
type Request struct {
	Node                  string        `json:"node"`                            // the donor
	Again                 bool          `json:"again,omitempty"`                 // a second version on the same day
	Deallocate            bool          `json:"deallocate,omitempty"`            // instead of powering off
	GracePeriod           time.Duration `json:"gracePeriod,omitempty"`           // of each pod; 0 is 300 s
	ForceDrain            bool          `json:"forceDrain,omitempty"`            // delete what is left at the drain's deadline
	History               int           `json:"history,omitempty"`               // versions to keep; 0 is 3
	Replicas              int32         `json:"replicas,omitempty"`              // of the version; 0 is 3
	Shallow               bool          `json:"shallow,omitempty"`               // a version without copies, for development
	Bootstrap             string        `json:"bootstrap,omitempty"`             // "" is BootstrapKeep
	AcceptPoolCredentials bool          `json:"acceptPoolCredentials,omitempty"` // in the image
	AcceptSecrets         []string      `json:"acceptSecrets,omitempty"`         // paths of files, or of folders that end in "/"
	RemoveSecrets         bool          `json:"removeSecrets,omitempty"`         // from the copy of the disk
	ScanImages            bool          `json:"scanImages,omitempty"`            // image layers, for all kinds of secrets
	Extensions            ExtensionRule `json:"extensions"`                      // which of the model's go
	NewNodes              int64         `json:"newNodes,omitempty"`              // to add once the model is changed
	Workbench             string        `json:"workbench,omitempty"`             // node; "" is any that fits
	AllowRolling          bool          `json:"allowRolling,omitempty"`
	ExcludeFromLatest     bool          `json:"excludeFromLatest,omitempty"`
	AllowOwned            bool          `json:"allowOwned,omitempty"`
	// Check, if not nil, is called under the pool lock before anything is changed. Its
	// error ends the capture. A resumed capture is not checked.
	Check func(ctx context.Context) error `json:"-"`
}

// WithDefaults sets what is 0.
func (q Request) WithDefaults() Request {
	q.GracePeriod, q.History, q.Replicas = cmp.Or(q.GracePeriod, 300*time.Second), cmp.Or(q.History, 3), cmp.Or(q.Replicas, 3)
	q.Bootstrap = cmp.Or(q.Bootstrap, BootstrapKeep)
	return q
}

// Bakes reports whether customData becomes a no-op.
func (q Request) Bakes() bool { return q.Bootstrap == BootstrapBaked }

// An ExtensionRule says which of a model's extensions go when a prototype goes
// live. Its zero value deletes those that bootstrap a node once: CustomScript and
// Cluster API's bootstrapping.
type ExtensionRule struct {
	None bool     `json:"none,omitempty"` // leave all alone
	All  bool     `json:"all,omitempty"`  // delete all but Keep, as kamino does
	Keep []string `json:"keep,omitempty"` // under any rule: patterns of path.Match in any letter case
}

// Check gives an error where a pattern cannot be read.
func (r ExtensionRule) Check() error {
	for _, p := range r.Keep {
		if _, err := path.Match(strings.ToLower(p), ""); err != nil {
			return fmt.Errorf("extension pattern %q: %w", p, err)
		}
	}
	return nil
}

// goes reports whether the rule deletes the extension.
func (r ExtensionRule) goes(e fleet.Extension) bool {
	once := slices.Contains([]string{"customscript", "customscriptforlinux", "capz.linux.bootstrapping"}, strings.ToLower(e.Type))
	keeps := slices.ContainsFunc(r.Keep, func(pattern string) bool {
		ok, _ := path.Match(strings.ToLower(pattern), strings.ToLower(e.Name))
		return ok
	})
	return !r.None && !keeps && (r.All || once)
}

// Doomed gives the extensions that the rule deletes, dependents first, since
// Azure refuses to delete what another names in provisionAfterExtensions. kept
// names those that stay and depend on one that goes, which cannot be done:
// "kept depends on doomed".
func (r ExtensionRule) Doomed(extensions []fleet.Extension) (doomed []fleet.Extension, kept []string) {
	for _, d := range DependentsFirst(extensions) {
		if !r.goes(d) {
			continue
		}
		doomed = append(doomed, d)
		for _, e := range extensions {
			if !r.goes(e) && dependsOn(e, d) {
				kept = append(kept, fmt.Sprintf("%s depends on %s", e.Name, d.Name))
			}
		}
	}
	return doomed, kept
}

// DependentsFirst sorts extensions so.
func DependentsFirst(extensions []fleet.Extension) (sorted []fleet.Extension) {
	left := slices.Clone(extensions)
	for len(left) > 0 {
		i := slices.IndexFunc(left, func(d fleet.Extension) bool {
			return !slices.ContainsFunc(left, func(e fleet.Extension) bool { return dependsOn(e, d) })
		})
		i = max(i, 0) // Azure does not allow a circle
		sorted, left = append(sorted, left[i]), slices.Delete(left, i, i+1)
	}
	return sorted
}

func dependsOn(e, other fleet.Extension) bool {
	return slices.ContainsFunc(e.After, func(name string) bool { return strings.EqualFold(name, other.Name) })
}
