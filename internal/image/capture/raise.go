package capture

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture/canary"
	"github.com/ortet/ortet/internal/image/capture/donor"
	"github.com/ortet/ortet/internal/image/capture/model"
	"github.com/ortet/ortet/internal/image/capture/version"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/workflow"
)

// freshDonor is what a plan calls a donor that is not raised yet.
const freshDonor = "the fresh donor"

const (
	replanEvery = 15 * time.Second // while something cannot be read
	replanFor   = 5 * time.Minute
)

// freshRows are the rows that raise a donor, where the request asks for one. It stays until the last
// step that a resumed run plans from it.
func (c *capture) freshRows(v view) workflow.Table {
	if c.req.Fresh == "" {
		return nil
	}
	node := c.get().Fresh.Node
	up := cmp.Or(workflow.SkipIf(node != "", node+" is up"), workflow.SkipIf(v.resume.From == plan.AtVersion, "today's version exists"))
	return c.fresh.Rows(up, node != "", []string{version.StepVersion, canary.StepJudge, model.StepModel, model.StepExtensions},
		[]string{donor.UndoStart, donor.UndoUncordon, donor.UndoUnprotect})
}

// decideFresh is decide for the donor that is up by now. One read that fails would cost a donor that is up.
func (c *capture) decideFresh(ctx context.Context, r journal.Record) (t workflow.Table, p plan.Plan, err error) {
	if r.Open() && c.req.Fresh != "" {
		c.req.Node = c.get().Fresh.Node
		c.result.Donor = c.req.Node
	}
	for begun := c.Now(); ; {
		t, p, err = c.decide(ctx, r)
		p.Notes = slices.DeleteFunc(p.Notes, func(note string) bool { return note == "" })
		unread := slices.ContainsFunc(p.Problems, func(p fleet.Problem) bool { return p.Code == "Unreadable" })
		if err != nil || !unread || !r.Open() || c.req.Fresh == "" || c.Now().Sub(begun) >= replanFor {
			return t, p, err
		}
		if err = azure.Sleep(ctx, replanEvery); err != nil {
			return nil, p, err
		}
	}
}

// planRaise plans a capture that has no donor yet: the rows that raise it. The plan shows the others, too.
func (c *capture) planRaise(ctx context.Context, v view, p plan.Plan) (workflow.Table, plan.Plan, error) {
	c.req.Node = freshDonor // in titles
	p.Steps = Steps(c.table(view{Observed: v.Observed}), c.target().Irreversible(v.Pool.Model.Extensions))
	c.req.Node = ""
	p.Donor = freshDonor
	var d plan.Problems
	c.quotaOfDonor(ctx, *v.Pool, &p, &d)
	if len(p.Problems) == 0 {
		c.benchesOfZones(ctx, v.Observed, &p, &d)
	}
	p.Problems = append(p.Problems, d...)
	return c.fresh.Rows("", false, nil, nil), p, nil // undone with the rows of the next plan
}

// quotaOfDonor says what the donor takes, beside a canary that is asked for. One that a pool's capture
// adds by itself is left out where it has no room.
func (c *capture) quotaOfDonor(ctx context.Context, pool fleet.Pool, p *plan.Plan, d *plan.Problems) {
	machines, beside, names := int64(1), "", pool.NewSizes()
	if c.req.Canary > 0 && !c.req.CanaryIfPossible {
		machines, beside = 1+c.req.Canary, " with the canary"
	}
	usages, err := c.Cloud.Usages(ctx, pool.ID.Segment("subscriptions"), pool.Location)
	sizes := c.lookUp(ctx, pool, names...)
	text, _ := plan.Quota(pool, 1, sizes, usages, err)
	usual := time.Duration(0)
	for _, s := range p.Steps {
		if s.Skip == "" {
			usual += time.Duration(s.Usual)
		}
	}
	cost := fmt.Sprintf("the fresh donor takes 1 × %s for about %.0f minutes", strings.Join(names, " or "), usual.Minutes()) + text
	p.Notes = append(p.Notes, cost)
	text, fits := plan.Quota(pool, machines, sizes, usages, err)
	what := fmt.Sprintf("a fresh donor%s has no room in the quota: %d × %s", beside, machines, strings.Join(names, " or ")) + text
	wayOut := "raise the subscription's quota" + workflow.SkipIf(beside != "", ", capture "+c.req.WithoutCanary())
	d.Refuse(!fits, "FreshQuota", string(pool.ID), what, wayOut+", or capture a node of the pool by its name")
}

// benchesOfZones looks for a workbench in each zone in which Azure may put the donor.
func (c *capture) benchesOfZones(ctx context.Context, o plan.Observed, p *plan.Plan, d *plan.Problems) {
	zones, without, why := o.Pool.Zones, []string(nil), ""
	if len(zones) == 0 {
		zones = []string{""}
	}
	id := o.Pool.ID.Child("virtualMachines", "fresh")
	if o.Pool.Flexible() {
		id = o.Pool.ID.In("virtualMachines", "fresh")
	}
	for _, zone := range zones {
		at := plan.Observed{Pool: o.Pool, InstanceID: id, Instance: &fleet.Instance{Zone: zone},
			Donor: &fleet.Node{Zone: o.Pool.Location + "-" + zone, ProviderID: "azure://" + string(id)}}
		if c.findWorkbench(ctx, &at); at.Workbench == nil {
			without, why = append(without, zone), cmp.Or(at.NoWorkbench, "the cluster has no other")
		} else if p.Workbench == "" {
			p.Workbench = at.Workbench.Node.Name
		}
		*d = append(*d, at.Unreadable...)
	}
	wayOut := cmp.Or(workflow.SkipIf(c.req.Workbench != "", "name another by --workbench, or leave it out"), plan.NeedsWorkbench)
	d.Refuse(len(without) == len(zones), plan.CodeNoWorkbench, string(o.Pool.ID),
		"no node can work on a copy of a fresh donor's disk: "+why, wayOut)
	if len(without) > 0 && len(without) < len(zones) {
		p.Notes = append(p.Notes, "zone "+strings.Join(without, ", ")+" has no workbench ("+why+
			"): if Azure puts the fresh donor there, the capture ends with exit code 1, and all is undone")
	}
}

// findFresh reports in c.gone that the donor of an open record was deleted, or its Node.
func (c *capture) findFresh(ctx context.Context) error {
	rec, err := c.Journal.Load(ctx, string(c.asked.Fresh))
	var s state
	if err != nil || !rec.Open() || json.Unmarshal(rec.State, &s) != nil || s.Fresh.Node == "" {
		if fleet.Is(err, fleet.KindDenied) { // preflight says so
			err = nil
		}
		return fleet.IgnoreNotFound(err)
	}
	_, err = donor.Used{Instance: s.Fresh.Instance, VMID: s.VMID, Pool: s.Pool}.Read(ctx, c.Cloud)
	if err == nil {
		_, err = c.Cluster.Node(ctx, s.Fresh.Node)
	}
	c.gone = fleet.Is(err, fleet.KindNotFound)
	return nil // preflight reports what cannot be read
}
