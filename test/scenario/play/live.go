package play

import (
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	corev1 "k8s.io/api/core/v1"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/test/scenario"
)

// virtualDay is how long the same command is repeated once nothing goes wrong any
// more: within it, it has to exit 0.
const virtualDay = 24 * time.Hour

// retryPause grows with the tries, so that few of them fill the virtual day.
func (w *world) retryPause(i, try int) time.Duration {
	least := min(time.Second<<min(2*try, 13), 3*time.Hour)
	return w.between(least, 2*least, "again", i, try)
}

// hopeless reports whether what is asked cannot succeed although nothing goes wrong:
// the scenario itself refuses it, or others changed what it needs for good.
func (w *world) hopeless(ask scenario.Ask) bool {
	if len(w.reasons(ask)) > 0 {
		return true
	}
	if ask.Verb == scenario.Rollback {
		return !w.returns(ask)
	}
	switch {
	case w.diskForbids(ask),
		w.drainsFor() > virtualDay/2,
		ask.Bake && !ask.Again && w.madeToKeep(),
		!ask.Again && w.rolledBack(w.names.Definition.Child("versions", prototype.VersionName(time.Now(), false))):
		return true
	}
	return w.excused(ask)
}

// madeToKeep reports whether today's version was made with --bootstrap keep: one that
// is baked needs --again then (OtherBootstrap).
func (w *world) madeToKeep() bool {
	tags, _ := w.tagsOf(w.names.Definition.Child("versions", prototype.VersionName(time.Now(), false)))
	sum := tags[fleet.TagCustomData]
	return sum != nil && *sum != "" && *sum != noopSum()
}

// drainsFor is how long budgets make a drain take, pod after pod.
func (w *world) drainsFor() time.Duration {
	const grace, replaced = 5 * time.Minute, 20 * time.Second
	d := w.story.Donor
	return time.Duration(d.Budgeted) * (min(d.Slow, grace) + replaced)
}

// excused reports whether what was asked cannot come to an end by others'
// doing: they stopped or deleted the donor, or all who could work on its copy. An
// instance that an operation left Failed cannot either: no capture begins on one.
func (w *world) excused(ask scenario.Ask) bool {
	if ask.Verb != scenario.Capture {
		return false
	}
	zones := map[string]string{} // by node
	w.mu.Lock()
	for _, c := range w.computers {
		if c.running {
			zones[strings.ToLower(c.HostName)] = c.Zone
		}
	}
	donor := w.nodeOf(ask.Node)
	gone := w.touched[donor]
	touched := map[string]bool{}
	for n := range w.touched {
		touched[n] = true
	}
	for n := range w.spared {
		touched[n] = true
	}
	w.mu.Unlock()
	zone, runs := zones[donor]
	if gone || !runs && w.computerOf(donor) == nil {
		return true
	}
	for _, name := range w.nodeNames() {
		n, ok := w.kube.Get("nodes", "", name).(*corev1.Node)
		z, running := zones[name]
		if ok && running && name != donor && !touched[name] && !n.Spec.Unschedulable && (!runs || z == zone) && !w.failed(name) {
			return false
		}
	}
	return true
}

// failed reports whether the last operation on a node's instance failed.
func (w *world) failed(node string) (failed bool) {
	c := w.computerOf(node)
	w.azure.View(func(v *azsim.View) {
		if c == nil {
			return
		}
		i, ok := v.Get(c.ResourceID).(*armcompute.VirtualMachineScaleSetVM)
		failed = ok && i.Properties != nil && i.Properties.ProvisioningState != nil && *i.Properties.ProvisioningState == prototype.Failed
	})
	return failed
}

// returns reports whether a rollback has somewhere to go: an earlier version that
// succeeded and was not rolled back, whose customData is kept, or the one named.
func (w *world) returns(ask scenario.Ask) bool {
	if ask.To == prototype.ToOriginal {
		return w.originalKnown()
	}
	current := w.model()
	there, all := false, w.images()
	w.azure.View(func(v *azsim.View) {
		v.Each("Microsoft.Compute/galleries/images/versions", func(id string, body any) {
			r, ok := body.(*armcompute.GalleryImageVersion)
			if !ok || r.Properties == nil || r.Properties.ProvisioningState == nil || string(*r.Properties.ProvisioningState) != prototype.Succeeded {
				return
			}
			name := fleet.ResourceID(id).Name()
			byName := ask.To != "" && ask.To != "previous"
			i, _ := imageAt(all, fleet.ResourceID(id))
			used, known := imageAt(all, current)
			earlier := !known || i.published.Before(used.published)
			there = there || byName && name == ask.To || !byName && earlier && r.Tags[fleet.TagRolledBack] == nil
		})
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	return there && len(w.othersGone) == 0
}

// originalKnown reports whether a rollback can go back to before the first capture: the
// model used no version of ours, and nobody replaced customData that was not recorded.
func (w *world) originalKnown() bool {
	p := w.story.Pool
	baked := slices.ContainsFunc(w.story.Asks, func(a scenario.Ask) bool { return a.Bake })
	w.mu.Lock()
	captured := w.stats.Captures > 0
	theirs := len(w.othersGone) > 0
	w.mu.Unlock()
	return captured && !theirs && (p.Versions == 0 || p.Marketplace) && !baked && !p.CustomData && len(w.happenedTo(scenario.ChangeModel)) == 0
}

func (w *world) rolledBack(id fleet.ResourceID) bool {
	tags, _ := w.tagsOf(id)
	return tags[fleet.TagRolledBack] != nil
}
