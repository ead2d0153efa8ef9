package prove

import (
	"cmp"
	"slices"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// Watch looks at the first nodes of a version that went live.
type Watch struct {
	Need   int           // nodes that prove the version
	Within time.Duration // from Observation.Begun on
	// Known are the Findings of the last Decide: instances come and go. What passed or failed
	// stays so, but for a twin that comes later; what gave no result can only pass.
	Known []Finding
	// Before is the last Observation: what resilient creation deleted may be seen no more.
	Before Observation
}

// clocks is how far the clocks of a server's own machines are apart at most: Nodes' times are their kubelets'.
const clocks = 2 * time.Minute

// Decide decides about the version: Failed once two of its nodes have failed, and more than a tenth
// of those that passed, or the only one within the time; Passed once Need have passed and none has failed, or if one has at the end.
// Nodes that are on their way at the end are waited for, as long as their limits allow.
//
// An instance that is older than Begun was given the version by an upgrade or a reimage, when is
// not known: it passes with a Node that is Ready since Begun, and fails only by its identity.
func (w Watch) Decide(o Observation, b Baseline) Judgement {
	findings := slices.DeleteFunc(slices.Clone(w.Known), func(f Finding) bool { return f.Result == Waits })
	o.Clones = slices.Clone(o.Clones)
	for _, c := range w.Before.Clones {
		is := func(x Clone) bool { return x.Instance.Name == c.Instance.Name }
		if o.AzureNow.Sub(w.Before.AzureNow) < clocks && o.timedOut(c) && !slices.ContainsFunc(o.Clones, is) {
			c.Instance.ProvisioningState = "Deleting"
			o.Clones = append(o.Clones, c)
		}
	}
	now := o.findings(b)
	for _, c := range o.Clones {
		i := slices.IndexFunc(now, func(f Finding) bool { return f.Clone == c.Instance.Name })
		f, k := now[i], slices.IndexFunc(findings, func(f Finding) bool { return f.Clone == c.Instance.Name })
		before := o.Begun.Add(-clocks)
		old := !c.Instance.Created.IsZero() && c.Instance.Created.Before(before)
		if old && f.Gate != "identity" && (f.Result != Passed || c.Node.ReadySince.Before(o.inCluster(before))) {
			f = Finding{Clone: f.Clone, Result: Waits, Why: f.Clone + " is older than the version, and has not come up with it"}
		}
		switch {
		case k < 0:
			findings = append(findings, f)
		case f.Gate == "identity", findings[k].Result == NoResult && f.Result == Passed:
			findings[k] = f
		}
	}
	slices.SortFunc(findings, func(a, b Finding) int { return cmp.Compare(a.Clone, b.Clone) })

	passed, failed := count(findings, Passed), count(findings, Failed)
	end := o.Begun.Add(w.Within)
	over := !o.AzureNow.Before(end)
	onTheirWay := count(findings, Waits) > 0 && o.AzureNow.Before(end.Add(2*b.Limit+o.Soak))
	proven := Finding{Result: Passed, Why: fleet.Count(passed, "node") + " passed"}
	switch {
	case failed > 1 && 10*failed > passed, failed == 1 && passed == 0 && over && !onTheirWay:
		return Judgement{first(findings, Failed), findings}
	case failed == 0 && passed >= w.Need, over && passed > 0:
		return Judgement{proven, findings}
	case !over || onTheirWay:
		proven.Result = Waits
		return Judgement{proven, findings}
	case count(findings, NoResult) > 0:
		return Judgement{first(findings, NoResult), findings}
	}
	return Judgement{Finding{Result: Unproven, Why: "no node of the version came up in " + short(w.Within)}, findings}
}
