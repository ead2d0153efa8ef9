package play

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
)

// puts is a request that makes a snapshot or a disk as a capture does, but for the change.
func puts(id func(w *world) fleet.ResourceID, source func(w *world) string, change func(body, tags object)) func(*world, *process) {
	return func(w *world, p *process) {
		tags := object{fleet.TagCapture: "c1", fleet.TagBuiltFrom: w.node(0), fleet.TagCreatedBy: "ortet", fleet.TagReason: "x", fleet.TagGeneralized: "c1"}
		body := object{"tags": tags, "properties": object{"creationData": object{"sourceResourceId": source(w)}}}
		if change != nil {
			change(body, tags)
		}
		text, err := json.Marshal(body)
		if err != nil {
			panic(err)
		}
		sent(http.MethodPut, id(w), string(text))(w, p)
	}
}

func snapshotOf(w *world) fleet.ResourceID   { return w.names.Snapshot }
func copyOf(w *world) fleet.ResourceID       { return w.names.WorkDisk }
func generalOf(w *world) fleet.ResourceID    { return w.names.Generalized }
func fromSnapshot(w *world) string           { return string(w.names.Snapshot) }
func fromCopy(w *world) string               { return string(w.names.WorkDisk) }
func donorsDisk(w *world) string             { return string(w.computers[low(w.instance(0))].OSDisk) }
func othersDisk(w *world) string             { return string(w.computers[low(w.instance(1))].OSDisk) }
func donorStopped(w *world)                  { w.computers[low(w.instance(0))].running = false }
func theCopy(d disk) func(*world)            { return func(w *world) { w.disks[volume(w.names.WorkDisk)] = &d } }
func untagged(k string) func(_, tags object) { return func(_, tags object) { delete(tags, k) } }

// commanded is a pod of ours that was just made.
func commanded(change func(w *world, p *corev1.Pod)) func(*world, *process) {
	return func(w *world, p *process) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ortet-generalize"}, Spec: corev1.PodSpec{NodeName: w.node(1), Containers: []corev1.Container{{
			Name: "c", Command: []string{"ortet-node", "generalize", "--lun", fmt.Sprint(maxLUN), "--capture", "c1", "--donor", w.node(0), "--bootstrap", "keep"},
		}}}}
		if change != nil {
			change(w, pod)
		}
		w.judgeCommand(p, pod)
	}
}

func TestRulesOfSteps(t *testing.T) {
	out := all(guarded, donorStopped)
	asked := all(guarded, attached(1), recorded(func(r *journal.Record) {
		r.Request = json.RawMessage(`{"bootstrap":"keep"}`)
		r.Undo = append(r.Undo, journal.Undo{Name: "job"})
	}))
	command := func(was, is string) func(*world, *corev1.Pod) {
		return func(_ *world, p *corev1.Pod) {
			text := strings.Join(p.Spec.Containers[0].Command, "\x00")
			p.Spec.Containers[0].Command = strings.Split(strings.Replace(text, strings.ReplaceAll(was, " ", "\x00"), strings.ReplaceAll(is, " ", "\x00"), 1), "\x00")
		}
	}
	inspects := func(readOnly bool) func(*world, *process) {
		return commanded(func(w *world, p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "host", MountPath: "/host", ReadOnly: readOnly}}
			p.Spec.Containers[0].Command = []string{"ortet-node", "generalize", "--inspect", "--donor", p.Spec.NodeName}
		})
	}
	// The record is of the capture that made the newest version.
	made := func(w *world) {
		onRecord(w)
		factual(func(f object) { f["names"] = object{"Version": version(w, 0)} })(w)
		recorded(func(r *journal.Record) { r.Capture = w.images()[0].tags[fleet.TagCapture] })(w)
		w.pointed0.image = "another"
	}
	lost := func(w *world, p *process) {
		p.capture.Capture, p.capture.Notes = "c1", []string{"workbench pool1000002 was lost: went on with pool1000001"}
		w.checkLostBench(p)
	}
	saved := func(w *world) {
		sum := sha256.Sum256([]byte(firstCustomData))
		w.kube.Put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: kube.SavedName(string(w.pool))},
			Data: map[string][]byte{fmt.Sprintf("customData-%x", sum[:8]): []byte(firstCustomData)}})
	}
	judged(t, []ruling{
		{"customData is kept before the model changes", "pool instances=3 versions=1\ncapture\n", all(made, saved),
			func(w *world) { w.kube.Remove("secrets", namespace, kube.SavedName(string(w.pool))) }, pointsAt(0), nil, "is not kept"},
		{"no snapshot goes that a version is made of", "pool instances=3 versions=1\ncapture\n", made, func(w *world) { making(w) }, func(w *world, p *process) {
			w.judgeTemporary(p, must(w.openRecord()), w.names.Generalized, &http.Request{Method: http.MethodDelete})
		}, nil, "is made of it"},
		{"a lost workbench is said", pool3, all(guarded, factual(func(f object) { f["bench"] = object{"node": "pool1000001", "lost": []string{"pool1000002"}} })), nil, lost, func(w *world, p *process) {
			p.capture.Capture = "c1"
			w.checkLostBench(p)
		}, "does not say so"},
		{"written down before", pool3, guarded, recorded(func(r *journal.Record) { r.Intents = nil }), sent(http.MethodPost, powerOff, ""), nil, "has not written down that it is about to"},
		{"a running donor is not copied", pool3, out, func(w *world) { w.computers[low(w.instance(0))].running = true }, puts(snapshotOf, donorsDisk, nil), nil, "while that runs"},
		{"the donor's disk is copied", pool3, out, nil, puts(snapshotOf, donorsDisk, nil), puts(snapshotOf, othersDisk, nil), "which is not the disk of"},
		{"temporaries say whose they are", pool3, out, nil, puts(snapshotOf, donorsDisk, nil), puts(snapshotOf, donorsDisk, untagged(fleet.TagCapture)), "does not say that it is of"},
		{"temporaries say who made them", pool3, out, nil, puts(snapshotOf, donorsDisk, nil), puts(snapshotOf, donorsDisk, untagged(fleet.TagCreatedBy)), "without the tag"},
		{"the copy is of the snapshot", pool3, out, nil, puts(copyOf, fromSnapshot, nil), puts(copyOf, donorsDisk, nil), "which is not the donor's snapshot"},
		{"the copy is in the workbench's zone", pool3, out, nil, puts(copyOf, fromSnapshot, nil), puts(copyOf, fromSnapshot, func(b, _ object) { b["zones"] = []string{"2"} }), "its workbench is in"},
		{"the generalised copy is that", pool3, all(out, theCopy(disk{generalized: true})), theCopy(disk{partly: true}), puts(generalOf, fromCopy, nil), nil, "which is not that"},
		{"the generalised copy says so", pool3, all(out, theCopy(disk{generalized: true})), nil, puts(generalOf, fromCopy, nil), puts(generalOf, fromCopy, untagged(fleet.TagGeneralized)), "without the tag"},
		{"powered off as asked", pool3, guarded, recorded(func(r *journal.Record) { r.Request = json.RawMessage(`{"deallocate":true}`) }), sent(http.MethodPost, powerOff, ""), nil, "--deallocate was true"},
		{"extensions go after the model", pool3, all(guarded, func(w *world) { w.names.Version = "" }), nil, sent(http.MethodPatch, "POOL/virtualMachines/1", "{}"),
			sent(http.MethodDelete, "POOL/extensions/vmssCSE", ""), "deletes extensions while the model"},
		{"the donor starts first", pool3, all(guarded), donorStopped, attach(1, maxLUN), nil, "waits to be started"},
		{"the pod has the copy's LUN", pool3, asked, nil, commanded(nil), commanded(command("--lun 3", "--lun 0")), "--lun 0, and not with the copy's"},
		{"the pod has the donor's name", pool3, asked, nil, commanded(nil), commanded(command("--donor pool1000000", "--donor x")), "--donor x"},
		{"the pod accepts nothing by itself", pool3, asked, nil, commanded(nil), commanded(command("--capture", "--accept-pool-credentials --capture")), "not with what was asked for"},
		{"the pod is on the workbench", pool3, asked, nil, commanded(nil), commanded(func(w *world, p *corev1.Pod) { p.Spec.NodeName = w.node(2) }), "run with node pool1000002"},
		{"the inspection writes nothing", pool3, asked, nil, inspects(true), inspects(false), "on which it can write"},
		{"uncordoned soon", pool3, all(guarded, func(w *world) { w.computers[low(w.instance(0))].readied = time.Now().Add(time.Second) }), func(*world) { time.Sleep(time.Hour) }, func(w *world, p *process) {
			w.judgeUncordon(p, w.kube.Get("nodes", "", w.node(0)).(*corev1.Node))
		}, nil, "after it was Ready"},
		{"events", pool3, events("CaptureBegun", "CaptureGaveBack"), nil, func(w *world, p *process) { w.checkEvents(p) }, func(w *world, p *process) {
			w.kube.Remove("events", "default", "CaptureGaveBack")
			w.checkEvents(p)
		}, "no event CaptureGaveBack"},
	})
}

// events are those of the donor.
func events(reasons ...string) func(*world) {
	return func(w *world) {
		for _, r := range reasons {
			w.kube.Put(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: r}, Reason: r, InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: w.node(0)}})
		}
	}
}

// factual changes the facts of the record.
func factual(change func(object)) func(*world) {
	return recorded(func(r *journal.Record) {
		facts := object{}
		if err := json.Unmarshal(r.Facts, &facts); err != nil {
			panic(err)
		}
		change(facts)
		text, err := json.Marshal(facts)
		if err != nil {
			panic(err)
		}
		r.Facts = text
	})
}

func must(o open, ok bool) open {
	if !ok {
		panic("no open record")
	}
	return o
}

// making has a version of the record be in the making.
func making(w *world) {
	w.azure.Instant(false)
	w.disks[volume(w.pool.In("disks", "source"))] = &disk{generalized: true}
	for _, r := range []struct {
		id      fleet.ResourceID
		version string
		body    object
	}{
		{w.pool.In("disks", "source"), disksYear, object{"location": location, "sku": object{"name": "StandardSSD_LRS"}, "properties": object{
			"creationData": object{"createOption": "Empty"}, "diskSizeGB": 30, "osType": "Linux", "hyperVGeneration": "V2",
		}}},
		{w.names.Definition.Child("versions", "2026.11.22"), galleries, object{
			"location": location, "tags": object{fleet.TagCapture: "c9"}, "properties": object{
				"publishingProfile": object{"replicationMode": "Full", "storageAccountType": "Standard_LRS", "targetRegions": []object{{"name": location, "regionalReplicaCount": 1}}},
				"storageProfile":    object{"osDiskImage": object{"source": object{"id": string(w.pool.In("disks", "source"))}}},
			},
		}},
	} {
		if err := w.request(http.MethodPut, string(r.id), r.version, r.body); err != nil {
			panic(err)
		}
		if strings.Contains(string(r.id), "/disks/") {
			time.Sleep(time.Minute)
		}
	}
	factual(func(f object) { f["names"] = object{"Version": w.names.Definition.Child("versions", "2026.11.22")} })(w)
	recorded(func(r *journal.Record) { r.Capture = "c9" })(w)
}
