package prove

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// A Clone is an instance of the image under judgement, with what the cluster has of it.
// Instances of other images, which clones are compared with, have the same form.
type Clone struct {
	Instance fleet.Instance
	Node     *fleet.Node // nil: none is it
	Rivals   []string    // Nodes that claim the instance and are not it: see fleet.Roster
	Pods     []fleet.Pod // on the Node; nil: not read. Read them for each clone that is Ready
	Boot     Boot        // of a tuned version's clone that was Ready for as long as it has to be
}

// Pair finds each instance's Node among all of the cluster.
func Pair(instances []fleet.Instance, nodes []fleet.Node) (clones []Clone) {
	all := fleet.NewRoster(nodes)
	for _, i := range instances {
		n, rivals := all.Of(i.Computer())
		clones = append(clones, Clone{Instance: i, Node: n, Rivals: rivals})
	}
	return clones
}

// An Observation is what is seen of clones at one time.
type Observation struct {
	Clones []Clone
	// Others are the pool's instances of other images. They only turn failures into no result,
	// so they may be read after a clone failed; with Pods for some, for the gate daemonset.
	Others []Clone
	Begun  time.Time     // when the clones were requested, or the version went live; by Azure's clock
	Soak   time.Duration // how long a clone has to stay Ready
	// Recreates is Pool.Recreates of the clones' pool.
	Recreates bool
	Outage    time.Time // when the cluster last answered again after a minute or more; zero: it always did
	// Now and AzureNow are one instant by the API server's clock, as Nodes' and pods' times and
	// Outage are, and by Azure's, as instances' times and Begun are.
	Now, AzureNow time.Time
}

// inCluster returns a time of Azure's by the API server's clock.
func (o Observation) inCluster(azure time.Time) time.Time { return o.Now.Add(-o.AzureNow.Sub(azure)) }

// A Result is what is known of a clone, of a canary, or of a version that is watched.
type Result string

// The results.
const (
	Waits    Result = "waits"
	Passed   Result = "passed"    // by Watch: the version is proven
	Failed   Result = "failed"    // for a reason that is the image's; by Watch: take the version back
	NoResult Result = "no result" // nothing is known of the image
	Unproven Result = "unproven"  // by Watch only: the time is over, and no node came up
)

// A Finding is what is known of one clone.
type Finding struct {
	Clone  string   `json:"clone,omitempty"` // the instance's name; "" for a missing instance
	Result Result   `json:"result"`
	Gate   string   `json:"gate,omitempty"`  // that it failed, "boot"; only with Failed
	Why    string   `json:"why,omitempty"`   // what it waits for, how it failed, why there is no result
	Lines  []string `json:"lines,omitempty"` // the last of a test that failed, redacted
}

// A Judgement is the Finding that decides, and all of them in the order of clones' names.
type Judgement struct {
	Finding
	Findings []Finding
}

// Judge decides about a canary that shall have want instances: Failed if one has failed,
// NoResult if one gives none or does not exist after Baseline.Limit, Passed if all have passed.
func Judge(o Observation, b Baseline, want int) Judgement {
	findings := o.findings(b)
	if missing := want - len(o.Clones); missing > 0 {
		f := Finding{Result: Waits, Why: fleet.Count(missing, "instance") + " to be made"}
		if age := o.AzureNow.Sub(o.Begun); age >= b.Limit {
			f.Result, f.Why = NoResult, fmt.Sprintf("%d of %d instances exist after %s", len(o.Clones), want, short(age))
		}
		findings = append(findings, f)
	}
	return Decide(findings)
}

// Decide returns the Judgement of a canary's findings.
func Decide(findings []Finding) Judgement {
	return Judgement{first(findings, Failed, NoResult, Waits), findings}
}

// first returns the first Finding of the first result that there is; Passed without any.
func first(findings []Finding, results ...Result) Finding {
	for _, r := range results {
		if i := slices.IndexFunc(findings, func(f Finding) bool { return f.Result == r }); i >= 0 {
			return findings[i]
		}
	}
	return Finding{Result: Passed, Why: fleet.Count(count(findings, Passed), "clone") + " passed"}
}

func count(findings []Finding, r Result) (n int) {
	for _, f := range findings {
		if f.Result == r {
			n++
		}
	}
	return n
}

// findings judges each clone.
func (o Observation) findings(b Baseline) (all []Finding) {
	for _, c := range o.Clones {
		all = append(all, o.excuse(o.judge(c, b), c, b))
	}
	slices.SortFunc(all, func(a, b Finding) int { return cmp.Compare(a.Clone, b.Clone) })
	return all
}

// short rounds a duration for people: "3m10s".
func short(d time.Duration) string { return d.Round(time.Second).String() }
