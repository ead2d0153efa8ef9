package prove

import (
	"cmp"
	"slices"

	"github.com/ortet/ortet/internal/boots/verdict"
	"github.com/ortet/ortet/internal/wire"
)

// excuse adds to a failure what is known of its reason, and makes it no result if that is not
// the image's.
func (o Observation) excuse(f Finding, c Clone, b Baseline) Finding {
	if f.Result != Failed || f.Gate == "identity" || f.Gate == gateHostKey {
		return f
	}
	name := falseVerdict(c.Node)
	reason, known := verdict.Lookup(name)
	if known {
		name += ", " + reason.Summary
	}
	if name != "" {
		f.Why += ": " + name
	}
	ill := o.ill(b)
	var why string
	switch {
	case reason.Confidence() != verdict.Unsure && (reason.Owner == wire.OwnerPlatform || reason.Owner == wire.OwnerNetwork):
		why = "the reason is the " + string(reason.Owner) + "'s"
	case o.Outage.After(o.inCluster(o.begun(c))):
		why = "the cluster did not answer meanwhile"
	case ill != "":
		why = "so does " + ill + ", of another image"
	default:
		return f
	}
	return Finding{Clone: f.Clone, Result: NoResult, Why: f.Why + "; " + why}
}

// ill names an instance of another image that fails since Begun, if enough do; "" otherwise.
func (o Observation) ill(b Baseline) (name string) {
	all, bad := 0, 0
	for _, c := range o.Others {
		n, old := c.Node, c.Instance.Created.Before(o.Begun.Add(-b.Limit))
		f := Observation{Now: o.Now, AzureNow: o.AzureNow}.judge(c, Baseline{Limit: b.Limit})
		fails := f.Result == Failed
		switch {
		case f.Result == NoResult, n != nil && n.Unschedulable, old && n == nil, old && !n.Ready && n.ReadySince.Before(o.inCluster(o.Begun)):
			continue // out of service, or failed before
		case old:
			missing := func(set string) bool { return !podOf(c.Pods, set).Ready }
			fails = !n.Ready || c.Pods != nil && slices.ContainsFunc(b.DaemonSets, missing)
		}
		if all++; fails {
			bad++
			name = cmp.Or(name, c.Instance.Name)
		}
	}
	if 10*bad < all {
		return ""
	}
	return name
}
