package play

import (
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/test/scenario"
)

// looked is what a process last read of whether the scale set is at rest.
type looked struct {
	pool, instances string    // what goes on, "" for nothing
	at              time.Time // of the instances
	since           time.Time // since when it has seen that something goes on
	spoilt          bool      // something happened to an answer: it says nothing
}

// restLimit is for how long a change of the scale set waits until that is at rest.
const restLimit = 20 * time.Minute

// freshLook is how old a look at the instances may be, retries of the change included.
const freshLook = 10 * time.Minute

// looks remembers what a process reads of the scale set, as it is answered now.
func (w *world) looks(p *process, r *http.Request, fault *scenario.Event) {
	path := strings.ToLower(r.URL.Path)
	if r.Method != http.MethodGet || !strings.HasPrefix(path, low(w.pool)) {
		return
	}
	if fault != nil {
		p.look(func(l *looked) { l.spoilt = true })
		return
	}
	switch {
	case path == low(w.pool):
		at := ""
		w.azure.View(func(v *azsim.View) {
			set, ok := v.Get(string(w.pool)).(*armcompute.VirtualMachineScaleSet)
			if ok && set.Properties != nil && set.Properties.ProvisioningState != nil && *set.Properties.ProvisioningState == prototype.Updating {
				at = "it is Updating"
			}
		})
		p.look(func(l *looked) { l.pool = at })
	case path == low(w.pool)+"/virtualmachines":
		at := ""
		w.azure.View(func(v *azsim.View) {
			v.Each("Microsoft.Compute/virtualMachineScaleSets/virtualMachines", func(id string, body any) {
				i, ok := body.(*armcompute.VirtualMachineScaleSetVM)
				if !ok || !strings.HasPrefix(strings.ToLower(id), path) || i.Properties == nil || i.Properties.ProvisioningState == nil {
					return
				}
				if s := *i.Properties.ProvisioningState; s == prototype.Creating || s == prototype.Deleting {
					at = id[strings.LastIndex(id, "/")+1:] + " is " + s
				}
			})
		})
		p.look(func(l *looked) { l.instances, l.at = at, time.Now() })
	}
}

func (p *process) look(change func(l *looked)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.looked)
	switch busy := p.looked.pool+p.looked.instances != ""; {
	case !busy:
		p.looked.since = time.Time{}
	case p.looked.since.IsZero():
		p.looked.since = time.Now()
	}
}

// judgeRest: who changes the scale set has seen that it is at rest, or has waited for
// that: a newer write ends a scale-up that is under way. What is put back does not wait.
func (w *world) judgeRest(p *process, what string, r *http.Request) {
	p.mu.Lock()
	l, excused := p.looked, p.jumped || p.interrupted
	p.mu.Unlock()
	busy := strings.TrimSpace(l.pool + " " + l.instances)
	outage := len(w.happenedTo(scenario.AzureOutage))+len(w.happenedTo(scenario.ExpireLogin)) > 0
	switch {
	case excused || l.spoilt || outage || w.outdated(r):
	case l.pool == "" && time.Since(l.at) > freshLook: // the instances are not read of one that is Updating
		w.broken("%s %s, and has not looked whether the scale set is at rest", p.name, what)
	case busy != "" && time.Since(l.since) < restLimit:
		w.broken("%s %s while the scale set is not at rest: %s", p.name, what, busy)
	}
}

// outdated reports whether a change of the scale set is refused, since that was changed
// after it was read: asking again after an answer was lost does no harm then.
func (w *world) outdated(r *http.Request) (is bool) {
	match := r.Header.Get("If-Match")
	w.azure.View(func(v *azsim.View) {
		set, ok := v.Get(string(w.pool)).(*armcompute.VirtualMachineScaleSet)
		is = ok && set.Etag != nil && match != "" && match != "*" && match != *set.Etag
	})
	return is
}
