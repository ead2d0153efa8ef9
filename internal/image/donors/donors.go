package donors

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// A Member is a node of the pool, with what Azure says of its instance.
type Member struct {
	Node fleet.Node
	// Created is when Azure made the instance; zero where that is not known. From then
	// to Node.Created is what its boot took.
	Created time.Time
	Power   fleet.PowerState // of the instance; "" where it is not known
}

// A Pool is what is known of one.
type Pool struct {
	ID      fleet.ResourceID
	Members []Member
	// Newest is when the newest version was made, in UTC; zero without one. A version
	// that was rolled back counts, so that a rollback is not undone the next night.
	Newest time.Time
	// NewestName is its name, "2026.11.20"; "" without one.
	NewestName string
	// RolledBack is true where the newest version was rolled back, which texts name.
	RolledBack bool
}

// A Policy says which nodes qualify, and when an image is due. Its zero value wants one
// node, Ready for any time, and a new image only for a pool without a version.
type Policy struct {
	// PatchAnnotation names the annotation with the time of a node's last patch: RFC
	// 3339, or anything with a date YYYY-MM-DD in it. "" switches the rule off.
	PatchAnnotation string
	// RebootAnnotation names the annotation of a node that is going to reboot; kured's
	// fleet.AnnotationKuredReboot counts beside it.
	RebootAnnotation string
	MinReady         time.Duration // since a node became Ready
	MinCandidates    int           // less than 1 means 1
	MaxImageAge      int           // days; 0 means that age does not count
	// IgnoreNodes are names, IgnoreAnnotations keys of annotations with any value.
	IgnoreNodes, IgnoreAnnotations []string
	// Off are names of rules, of ours, that are switched off.
	Off []string
	// Self is the node that this process runs on; "" outside the cluster.
	Self string
}

// A Rule is one row of the table.
type Rule struct {
	Name string // "schedulable", as Policy.Off has it
	Text string // what it asks of a node, for help and docs
	Ours bool   // may be switched off
}

// A Reason is why a node does not qualify, or is not judged.
type Reason struct {
	Rule string `json:"rule"`
	Text string `json:"text"`
}

// A Candidate is one node of the pool, judged.
type Candidate struct {
	Node     string         `json:"node"`
	Eligible bool           `json:"eligible"`
	Reasons  []Reason       `json:"reasons,omitempty"` // all of them, in the table's order
	Unknown  []Reason       `json:"unknown,omitempty"` // why rules could not be judged
	Patched  string         `json:"patched,omitempty"` // "2026-11-25", the annotation's date
	Ready    fleet.Duration `json:"ready"`             // since it became Ready; 0 where it is not
	Boot     fleet.Duration `json:"boot,omitzero"`     // from the instance's creation to the Node's; 0 unknown
}

// A Choice is what to do about a pool.
type Choice struct {
	Pool fleet.ResourceID `json:"pool"`
	// Due is true where a new image is due and enough nodes qualify.
	Due bool `json:"due"`
	// Because says in one line why it is due, or why it is not.
	Because string `json:"because"`
	// Donor is the best node where Due; "" otherwise.
	Donor string `json:"donor,omitempty"`
	// Candidates are all nodes of the pool: those that qualify first, the longest Ready
	// first, then the others by name.
	Candidates []Candidate `json:"candidates"`
}

// Notes name what somebody wrote for auto mode and what has no effect: annotations of the
// pool's nodes, and ignored names that no node of the cluster has.
func (p Policy) Notes(nodes, cluster []fleet.Node) (notes []string) {
	named := append([]string{p.PatchAnnotation, p.RebootAnnotation}, p.IgnoreAnnotations...)
	for _, n := range nodes {
		for _, key := range slices.Sorted(maps.Keys(n.Annotations)) {
			domain, _, _ := strings.Cut(key, "/")
			switch value := n.Annotations[key]; {
			case !strings.EqualFold(domain, fleet.AnnotationDomain) || slices.Contains(named, key):
			case !fleet.OwnAnnotation(key):
				notes = append(notes, fmt.Sprintf("annotation %s of node %s has no effect: Ortet has none of that name; remove it, or give it by --ignore-annotation", key, n.Name))
			case key == fleet.AnnotationCapture && value == "", key == fleet.AnnotationWorkbench && fleet.ResourceID(value).Segment("virtualMachineScaleSets") == "":
				notes = append(notes, fmt.Sprintf("annotation %s of node %s has the value %.80q, which no capture writes; if none runs, remove it", key, n.Name, value))
			}
		}
	}
	for _, name := range p.IgnoreNodes {
		if !slices.ContainsFunc(cluster, func(n fleet.Node) bool { return n.Name == name }) {
			notes = append(notes, "--ignore-node "+name+" has no effect: the cluster has no node of that name")
		}
	}
	return notes
}
