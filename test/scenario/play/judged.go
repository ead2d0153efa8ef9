package play

import (
	"encoding/json"
	"net/http"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/prototype"
)

// open is the journal's record that has not ended, as the rules read it.
type open struct {
	journal.Record
	facts openFacts
}

type openFacts struct {
	Names    prototype.Names
	Instance fleet.ResourceID // of the donor
	Bench    struct {
		Node     string
		Instance fleet.ResourceID
		LUN      int32
		Lost     []string
	}
}

// openRecord gives the record that is being worked on.
func (w *world) openRecord() (o open, ok bool) {
	rec, there := w.record()
	if !there || rec.Ended != nil || json.Unmarshal(rec.Facts, &o.facts) != nil {
		return o, false
	}
	o.Record = rec
	return o, true
}

// undoes reports whether something is written down to be undone.
func (o open) undoes(name string) bool {
	return slices.ContainsFunc(o.Undo, func(u journal.Undo) bool { return u.Name == name })
}

// judgeAzure looks at a change in Azure just before it is served, after judgeRequest.
func (w *world) judgeAzure(p *process, r *http.Request) {
	id := fleet.ResourceID(r.URL.Path)
	rec, ok := w.openRecord()
	if !ok {
		w.broken("%s changes %s in Azure, and has no open record in the journal", p.name, id.Name())
		return
	}
	w.judgeReasons(p, "")
	w.judgeIntent(p, rec, id)
	action := strings.ToLower(path.Base(r.URL.Path))
	instance := fleet.ResourceID("")
	if parts := strings.Split(r.URL.Path, "/"); len(parts) > 2 && strings.EqualFold(parts[len(parts)-2], "virtualMachines") {
		instance = id
	} else if len(parts) > 3 && strings.EqualFold(parts[len(parts)-3], "virtualMachines") {
		instance = fleet.ResourceID(path.Dir(r.URL.Path))
	}
	switch {
	case strings.Contains(low(id), "/versions/") && r.Method == http.MethodDelete:
		w.judgeGone(p, rec, id)
	case strings.Contains(low(id), "/versions/"):
		w.judgeVersion(p, rec, id, r)
	case id.Equal(w.pool) && r.Method == http.MethodPatch:
		w.judgeOlder(p, rec, string(bodyOf(r)))
		w.judgeSaved(p, rec, string(bodyOf(r)))
		w.judgeRest(p, "changes the model", r)
	case strings.Contains(low(id), "/extensions/"):
		w.judgeExtension(p, rec)
		w.judgeRest(p, "deletes extension "+id.Name(), r)
	case strings.Contains(low(id), "/snapshots/"), strings.Contains(low(id), "/disks/"), strings.Contains(low(id), "/galleries/"):
		w.judgeTemporary(p, rec, id, r)
	case instance == "":
	case action == "attachdetachdatadisks":
		w.judgeDataDisks(p, rec, instance, r)
	case action == "poweroff" || action == "deallocate":
		w.judgeOutOfService(p, rec, rec.Donor)
		w.judgeNeeded(p, rec)
		w.judgePower(p, rec, action)
	case r.Method == http.MethodPatch || r.Method == http.MethodPut:
		w.judgeProtection(p, rec, instance, r)
	}
}

// judgedChange serves a change in Kubernetes, and judges it by what it made of nodes.
func (p *process) judgedChange(r *http.Request, serve func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	w := p.w
	switch {
	case strings.Contains(r.URL.Path, "/daemonsets/"):
		return p.rebootsChange(r, serve)
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/"+namespace+"/pods"):
		before := w.podNames()
		answer, err := p.kubeChange(r, serve)
		w.judgePod(p)
		for name := range w.podNames() {
			if pod, ok := w.kube.Get("pods", namespace, name).(*corev1.Pod); ok && !before[name] {
				w.judgeCommand(p, pod)
			}
		}
		return answer, err
	case !strings.HasPrefix(r.URL.Path, "/api/v1/nodes/"):
		return p.kubeChange(r, serve)
	}
	name := path.Base(r.URL.Path)
	w.judgeHold(p, "node "+name)
	before, _ := w.kube.Get("nodes", "", name).(*corev1.Node)
	answer, err := p.kubeChange(r, serve)
	if after, _ := w.kube.Get("nodes", "", name).(*corev1.Node); before != nil && after != nil && before.UID == after.UID {
		w.judgeNode(p, before, after)
	}
	return answer, err
}

// podNames gives those of Ortet's pods.
func (w *world) podNames() map[string]bool {
	names := map[string]bool{}
	w.kube.Each("pods", func(o runtime.Object) bool {
		if p := o.(*corev1.Pod); p.Namespace == namespace {
			names[p.Name] = true
		}
		return true
	})
	return names
}
