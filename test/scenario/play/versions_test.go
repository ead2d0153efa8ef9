package play

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/prototype"
)

// recorded changes the journal's record.
func recorded(change func(*journal.Record)) func(*world) {
	return func(w *world) {
		rec, _ := w.record()
		change(&rec)
		data, err := journal.Encode(rec)
		if err != nil {
			panic(err)
		}
		w.kube.Change("secrets", namespace, kube.JournalName(low(w.pool)), func(o runtime.Object) {
			o.(*corev1.Secret).Data["record"] = data
		})
	}
}

// the n-th version from the newest on.
func version(w *world, n int) fleet.ResourceID { return w.images()[n].id }

// makes is a request that makes a version, as a capture makes it but for the change.
func makes(again bool, change func(body, tags, profile object)) func(*world, *process) {
	return func(w *world, p *process) {
		name := prototype.VersionName(time.Now(), again)
		tags := object{
			fleet.TagCapture: "c1", fleet.TagGeneralized: "c1", fleet.TagBuiltAt: "2026-11-22 09:10", fleet.TagBuiltFrom: w.node(0),
			fleet.TagCreatedBy: "ortet test", fleet.TagReason: "x", fleet.TagCustomData: "0123",
		}
		profile := object{"excludeFromLatest": again, "storageAccountType": "Standard_ZRS", "targetRegions": []object{{"name": location, "regionalReplicaCount": 3}}}
		body := object{"location": location, "tags": tags, "properties": object{"publishingProfile": profile}}
		if change != nil {
			change(body, tags, profile)
		}
		text, err := json.Marshal(body)
		if err != nil {
			panic(err)
		}
		sent(http.MethodPut, w.names.Definition.Child("versions", name), string(text))(w, p)
	}
}

// changes is a request that changes a version as it is, but for the change.
func changes(n int, change func(tags, profile object)) func(*world, *process) {
	return func(w *world, p *process) {
		tags, profile := object{}, object{"targetRegions": []object{{"name": location, "regionalReplicaCount": 1}}, "excludeFromLatest": w.images()[n].excluded}
		for k, v := range w.images()[n].tags {
			tags[k] = v
		}
		change(tags, profile)
		text, err := json.Marshal(object{"tags": tags, "properties": object{"publishingProfile": profile}})
		if err != nil {
			panic(err)
		}
		sent(http.MethodPatch, version(w, n), string(text))(w, p)
	}
}

func rollingBack(w *world) {
	onRecord(w)
	recorded(func(r *journal.Record) { r.Kind = prototype.KindRollback })(w)
}

func again(w *world) {
	recorded(func(r *journal.Record) { r.Request = json.RawMessage(`{"again":true}`) })(w)
}

func deletes(n int) func(*world, *process) {
	return func(w *world, p *process) { sent(http.MethodDelete, version(w, n), "")(w, p) }
}

func pointsAt(n int) func(*world, *process) {
	return func(w *world, p *process) {
		sent(http.MethodPatch, w.pool, fmt.Sprintf(`{"properties":{"virtualMachineProfile":{"storageProfile":{"imageReference":{"id":%q}}}}}`, version(w, n)))(w, p)
	}
}

func TestRulesOfVersions(t *testing.T) {
	const story = "pool instances=3 versions=5\ncapture\n"
	base := func(w *world) { onRecord(w) }
	none := func(tags, profile object) {}
	judged(t, []ruling{
		{"--again is not of latest", story, all(base, again), nil, makes(true, nil), makes(true, func(_, _, p object) { p["excludeFromLatest"] = false }), "above those of the days that follow"},
		{"a day's version is of latest", story, base, nil, makes(false, nil), makes(false, func(_, _, p object) { p["excludeFromLatest"] = true }), "which nobody asked for"},
		{"--again makes another name", story, all(base, again), nil, makes(true, nil), makes(false, nil), "where --again says otherwise"},
		{"the name is the day's", story, base, recorded(func(r *journal.Record) { r.Begun = r.Begun.AddDate(0, 0, -2) }), makes(false, nil), nil, " on "},
		{"the version says whose disk it is", story, base, nil, makes(false, nil), makes(false, func(_, tags, _ object) { tags[fleet.TagBuiltFrom] = "another" }), "as built from another"},
		{"the version is tagged", story, base, nil, makes(false, nil), makes(false, func(_, tags, _ object) { delete(tags, fleet.TagCustomData) }), "without the tag"},
		{"the version is zone-redundant", story, base, nil, makes(false, nil), makes(false, func(_, _, p object) { p["storageAccountType"] = "Standard_LRS" }), "not zone-redundant"},
		{"the version has replicas", story, base, nil, makes(false, nil), makes(false, func(_, _, p object) { p["targetRegions"] = []object{{"name": location, "regionalReplicaCount": 1}} }), "without the usual replicas"},
		{"only --again is excluded later", "pool instances=3 versions=5 again\ncapture\n", rollingBack, nil,
			changes(0, func(_, p object) { p["excludeFromLatest"] = true }), changes(1, func(_, p object) { p["excludeFromLatest"] = true }), "which was not made with --again"},
		{"a version's regions stay", story, rollingBack, nil, changes(1, none), changes(1, func(_, p object) { p["targetRegions"] = nil }), "takes version"},
		{"a version's tags stay", story, rollingBack, nil, changes(1, func(tags, _ object) { tags[fleet.TagRolledBack] = "now" }), changes(1, func(tags, _ object) { tags[fleet.TagBuiltFrom] = "x" }), "changes the tag"},
		{"no tag is left out", story, rollingBack, nil, changes(1, none), changes(1, func(tags, _ object) { delete(tags, fleet.TagBuiltFrom) }), "leaves out the tag"},
		{"no capture tags versions", story, rollingBack, recorded(func(r *journal.Record) { r.Kind = prototype.KindCapture }), changes(1, none), nil, "and is no rollback"},
		{"the newest stay", story, base, nil, deletes(4), deletes(1), "one of the newest 3"},
		{"two good ones stay", story, base, leave(0, 1, 2, 3), deletes(4), nil, "that nobody rolled back from"},
		{"no capture goes back", story, all(base, func(w *world) { w.pointed0.image = "another" }), nil, pointsAt(0), pointsAt(1), "to the older"},
		{"an instance gets its version's customData", "pool instances=3 versions=2 customdata\ncapture\n", nil, nil, newInstance("#cloud-config\nruncmd: [join, '>>>>???', 0]\n"), newInstance("#cloud-config\nruncmd: [join, '----___', 0]\n"), "which that does not go with"},
		{"one version a day", "pool instances=3 versions=5\ncapture\n", guarded, today, sent(http.MethodPost, powerOff, ""), nil, "though today's version"},
	})
}

// newInstance boots one that a scale-out made of the older of two versions.
func newInstance(customData string) func(*world, *process) {
	return func(w *world, _ *process) {
		time.Sleep(time.Second)
		w.disks["new"] = &disk{of: volume(version(w, 1))}
		if err := (*machines)(w).Boot(w.over, azsim.Computer{ID: "new", Name: "new", OSDisk: "new", CustomData: []byte(customData), Provision: true}); err != nil {
			panic(err)
		}
	}
}

// leave tags versions as a rollback does.
func leave(which ...int) func(*world) {
	return func(w *world) {
		w.azure.Instant(true)
		for _, n := range which {
			tags := object{fleet.TagRolledBack: "2026-11-22T09:10:00Z"}
			for k, v := range w.images()[n].tags {
				tags[k] = v
			}
			if err := w.request(http.MethodPatch, string(version(w, n)), galleries, object{"tags": tags}); err != nil {
				panic(err)
			}
		}
	}
}

// today has the newest version be one of the day.
func today(w *world) {
	recorded(func(r *journal.Record) {
		day, err := time.Parse("2006.01.02", version(w, 0).Name())
		if err != nil {
			panic(err)
		}
		r.Begun = day.Add(23 * time.Hour)
	})(w)
}

func TestRulesOfWhatIsLeft(t *testing.T) {
	done := func(w *world, p *process) {
		p.capture.Version, p.capture.Capture = version(w, 0), "c1"
		w.checkVersions(p)
	}
	base := func(w *world) {
		onRecord(w)
		recorded(func(r *journal.Record) { r.Request = json.RawMessage(`{"history":5}`) })(w)
	}
	judged(t, []ruling{
		{"the model is pinned", "pool instances=3 versions=3\ncapture\n", base, nil, done,
			func(w *world, p *process) {
				p.capture.Version = version(w, 1)
				p.capture.Capture = "c1"
				w.checkVersions(p)
			}, "and its image is"},
		{"versions beyond the history are said", "pool instances=3 versions=5\ncapture\n", base,
			recorded(func(r *journal.Record) { r.Request = json.RawMessage(`{"history":3}`) }), done, nil, "beyond the newest 3"},
		{"--again is excluded in the end", "pool instances=3 versions=3 again\ncapture\n", func(w *world) { base(w); exclude(w, 0) }, include0, done, nil, "is one of latest"},
	})
	back := func(n int) func(*world, *process) {
		return func(w *world, p *process) {
			w.opened()
			leave(0)(w)
			time.Sleep(time.Hour)
			p.rollback.From, p.rollback.To = version(w, 0), version(w, n)
			w.checkReturn(p)
		}
	}
	judged(t, []ruling{
		{"a rollback goes to the one before", "pool instances=3 versions=4\nrollback\n", nil, nil, back(1), back(2), "and the version to go back to is"},
		{"a rollback tags what it left", "pool instances=3 versions=4\nrollback\n", nil, nil, back(1), func(w *world, p *process) {
			w.opened()
			p.rollback.From, p.rollback.To = version(w, 0), version(w, 1)
			w.checkReturn(p)
		}, "which is not tagged"},
		{"a rollback tags nothing else", "pool instances=3 versions=4\nrollback\n", nil, nil, back(1), func(w *world, p *process) {
			w.opened()
			leave(0, 2)(w)
			time.Sleep(time.Hour)
			p.rollback.From, p.rollback.To = version(w, 0), version(w, 1)
			w.checkReturn(p)
		}, "changed whether"},
	})
}

// exclude takes the n-th version out of latest.
func exclude(w *world, n int) { excluding(w, n, true) }

func include0(w *world) { excluding(w, 0, false) }

func excluding(w *world, n int, yes bool) {
	w.azure.Instant(true)
	err := w.request(http.MethodPatch, string(version(w, n)), galleries, object{"properties": object{"publishingProfile": object{
		"excludeFromLatest": yes, "replicationMode": "Full", "storageAccountType": "Standard_LRS", "targetRegions": []object{{"name": location, "regionalReplicaCount": 1}},
	}}})
	if err != nil && !strings.Contains(err.Error(), "409") {
		panic(err)
	}
	time.Sleep(time.Minute)
}
