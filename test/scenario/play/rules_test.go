package play

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/test/scenario"
)

// A ruling is a rule, a world that it has nothing to say about, and what breaks it.
type ruling struct {
	name  string
	story string
	// good puts the world into a state that is allowed, bad makes it one that is not;
	// act is what is judged then.
	good, bad func(w *world)
	act       func(w *world, p *process)
	wrong     func(w *world, p *process) // instead of act, where it is what is not allowed
	want      string                     // a part of the violation
}

// judged shows of each rule that it can fail, and that it does not where nothing is wrong.
func judged(t *testing.T, rulings []ruling) {
	t.Helper()
	for _, r := range rulings {
		t.Run(r.name, func(t *testing.T) {
			for _, bad := range []bool{false, true} {
				var got []string
				synctest.Test(t, func(t *testing.T) {
					s, err := scenario.Parse("seed 1\n" + r.story)
					if err != nil {
						t.Fatal(err)
					}
					w, err := newWorld(s)
					if err != nil {
						t.Fatal(err)
					}
					defer w.close()
					p := &process{w: w, name: "p1", ask: s.Asks[0], began: time.Now(), looked: looked{at: time.Now()}}
					w.processes = append(w.processes, p)
					for _, step := range []func(*world){r.good, r.bad} {
						if step != nil {
							step(w)
						}
						if !bad {
							break
						}
					}
					if bad && r.wrong != nil {
						r.act = r.wrong
					}
					r.act(w, p)
					got = w.violations
				})
				found := slices.ContainsFunc(got, func(v string) bool { return strings.Contains(v, r.want) })
				if found != bad || !bad && len(got) > 0 {
					t.Errorf("broken=%t, and the rules say %q; want %q", bad, got, r.want)
				}
			}
		})
	}
}

// onRecord writes a capture's record into the journal: its donor is instance 0, its
// workbench instance 1.
func onRecord(w *world, undo ...string) {
	facts := map[string]any{
		"pool": w.pool, "names": w.names, "instance": w.instance(0),
		"bench": map[string]any{"node": w.node(1), "instance": w.instance(1), "lun": maxLUN},
	}
	text, err := json.Marshal(facts)
	if err != nil {
		panic(err)
	}
	rec := journal.Record{Capture: "c1", Kind: "capture", Pool: low(w.pool), Donor: w.node(0), Begun: time.Now(), Facts: text, Request: json.RawMessage(`{}`)}
	rec.Intents = map[string]journal.Intent{}
	for i, id := range []fleet.ResourceID{
		w.pool, w.pool.Child("extensions", "vmssCSE"), w.instance(0), w.instance(1), w.instance(2), w.names.Snapshot, w.names.WorkDisk, w.names.Generalized, w.names.Definition,
	} {
		rec.Intents[fmt.Sprint(i)] = journal.Intent{Target: string(id), Tries: 1}
	}
	for _, u := range undo {
		rec.Undo = append(rec.Undo, journal.Undo{Name: u})
	}
	data, err := journal.Encode(rec)
	if err != nil {
		panic(err)
	}
	w.kube.Put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: kube.JournalName(low(w.pool))}, Data: map[string][]byte{"record": data}})
}

// annotate sets a node's annotation, "" for none.
func annotate(w *world, node, key, value string) {
	w.kube.Change("nodes", "", node, func(o runtime.Object) {
		n := o.(*corev1.Node)
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		if n.Annotations[key] = value; value == "" {
			delete(n.Annotations, key)
		}
	})
}

// protect has others set an instance's protection.
func protect(w *world, n int, scaleIn, actions bool) {
	w.azure.Instant(true)
	err := w.request(http.MethodPut, string(w.instance(n)), apiYear, object{"location": location, "properties": object{"protectionPolicy": object{
		"protectFromScaleIn": scaleIn, "protectFromScaleSetActions": actions,
	}}})
	if err != nil {
		panic(err)
	}
	synctest.Wait()
}

// guarded is a donor and a workbench that are protected, and written down.
func guarded(w *world) {
	onRecord(w, "cordon", "stop", "attach")
	annotate(w, w.node(0), fleet.AnnotationCapture, "c1")
	for n := range 2 {
		annotate(w, w.node(n), fleet.AnnotationScaleDownDisabled, "true")
		protect(w, n, true, true)
	}
}

// sent is a request of a process to Azure, just before it is served.
func sent(method string, id fleet.ResourceID, body string) func(*world, *process) {
	return func(w *world, p *process) {
		r, err := http.NewRequest(method, azsim.InProcess+strings.ReplaceAll(string(id), "POOL", string(w.pool)), strings.NewReader(strings.ReplaceAll(body, "DISK", string(w.names.WorkDisk))))
		if err != nil {
			panic(err)
		}
		w.judgeAzure(p, r)
	}
}

// nodeChanged is a change of a node, as it was just served.
func nodeChanged(n int, change func(*corev1.Node)) func(*world, *process) {
	return func(w *world, p *process) {
		before := w.kube.Get("nodes", "", w.node(n)).(*corev1.Node)
		w.kube.Change("nodes", "", w.node(n), func(o runtime.Object) { change(o.(*corev1.Node)) })
		w.judgeNode(p, before, w.kube.Get("nodes", "", w.node(n)).(*corev1.Node))
	}
}

// attached has the copy hang on the n-th instance.
func attached(n int) func(*world) {
	return func(w *world) {
		w.computers[low(w.instance(n))].luns[maxLUN] = volume(w.names.WorkDisk)
	}
}

// all does one after the other.
func all(of ...func(*world)) func(*world) {
	return func(w *world) {
		for _, f := range of {
			f(w)
		}
	}
}
