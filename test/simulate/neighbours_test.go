package simulate

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
)

// deeds are what neighbours do just before a request is served.
var deeds = []Event{
	{What: "autoscaler adds a node"},
	{What: "autoscaler deletes empty nodes"},
	{What: "kured reboots", For: 5 * time.Minute},
	{What: "instance deleted", Target: "donor"},
	{What: "instance deleted", Target: "workbench"},
	{What: "instance stopped", Target: "donor"},
	{What: "instance started", Target: "donor"},
	{What: "instance stopped", Target: "workbench"},
	{What: "instance restarted", Target: "workbench"},
	{What: "cordoned", Target: "workbench"},
	{What: "uncordoned", Target: "donor"},
	{What: "node deleted", Target: "donor"},
	{What: "node deleted", Target: "workbench"},
	{What: "snapshot deleted"},
	{What: "copy deleted"},
	{What: "version deleted"},
	{What: "another ortet"},
	{What: "laptop sleeps", For: 303 * time.Second},
	{What: "laptop sleeps", For: 2 * time.Hour},
	{What: "model changed by others"},
	{What: "laptop sleeps and another ortet begins", For: 303 * time.Second},
}

// touch notes what neighbours changed.
func (w *world) touch(names ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		w.touched[strings.ToLower(name)] = true
	}
}

// isTouched is the only excuse: a neighbour changed this very object.
func (w *world) isTouched(names ...string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		if w.touched[strings.ToLower(name)] {
			return true
		}
	}
	return false
}

// target returns the computer that an event is about, nil without one.
func (w *world) target(e Event, p *process) *computer {
	switch names := w.nodesOf(w.pool); {
	case e.Target == "donor":
		return w.computerOf(w.donorOf(p.ask))
	case e.Target == "last" && len(names) > 0:
		return w.computerOf(names[len(names)-1])
	case e.Target == "before last" && len(names) > 1:
		return w.computerOf(names[len(names)-2])
	}
	return w.workbench()
}

// persons are deeds of operators beside a watch.
var persons = []string{"another ortet", "model changed by others", "person rolls back", "person brings the version back", "version before deleted", "autoscaler adds a node", "cordoned"}

// crashes is an event that has the play itself crash, after a while if it has one.
const crashes = "the play crashes"

// neighbour does what an event has others do; false where the event is a fault.
func (w *world) neighbour(e Event, p *process) bool {
	switch e.What {
	case "away for 20 minutes":
		side, _, _ := strings.Cut(e.At, " ")
		until := time.Now().Add(cmp.Or(e.For, 20*time.Minute))
		w.locked(func() { w.down[side], w.lastEvent = until, until })
		return true
	case "operation preempted":
		w.after(10*time.Minute, w.azure.EndHung)
		return false
	case "autoscaler adds a node":
		w.scaleOut(1)
	case "autoscaler deletes empty nodes":
		w.scaleIn(w.donorOf(p.ask))
	case "autoscaler adds a node while it deletes one":
		w.preemptDeletion()
	case "kured reboots":
		w.lockKured("pool2000000", e.For)
	case "another pool locks kured": // by a capture that began in the same second
		w.lockKured("ortet/"+w.stateOf(w.donorOf(p.ask)).annotations[fleet.AnnotationCapture]+"/pool2", e.For)
	case "another pool takes the workbench":
		name := w.nodeName(1)
		if w.computerOf(name) == nil {
			break
		}
		w.useAsWorkbench(1)
		now := w.stateOf(name)
		w.locked(func() { w.nodes[name] = now })
	case "canary deleted":
		w.make(http.MethodDelete, fleet.CanaryOf(w.pool), computeAPI, nil)
	case "own keys required":
		w.azure.RequireOwnKeys(true)
	case "set deleted":
		w.make(http.MethodDelete, w.keys(), disksAPI, nil)
	case "vault gone":
		w.loseVault()
	case "kubelets silent":
		w.locked(func() { w.silent = true })
	case "disk made by others":
		w.foreign = append(w.foreign, w.names.WorkDisk)
		w.make(http.MethodPut, w.names.WorkDisk, disksAPI, object{"location": location, "sku": object{"name": "Premium_LRS"},
			"properties": object{"creationData": object{"createOption": "Empty"}, "diskSizeGB": 4}})
	case "snapshot deleted":
		w.deleted(w.names.Snapshot, disksAPI)
	case "copy deleted":
		w.deleted(w.names.WorkDisk, disksAPI)
	case "version deleted":
		if ids := slices.Sorted(maps.Keys(w.versions())); len(ids) > 0 {
			w.touch("versions")
			w.deleted(fleet.ResourceID(ids[len(ids)-1]), galleryAPI)
		}
	case "another ortet", "laptop sleeps and another ortet begins":
		ask := p.ask
		if e.For > 0 {
			p.suspend(e.For)
		}
		if ask.Do == "rollback" && ask.To == "" {
			break // two of them go back twice
		}
		if rival, err := w.start(ask); err == nil {
			w.locked(func() { w.rivals = append(w.rivals, rival) })
		}
	case "definition chosen by others", "version chosen by others":
		w.touch("model")
		image := w.names.Definition
		if e.What == "version chosen by others" {
			image = image.Child("versions", plan.VersionName(w.begin.AddDate(0, 0, -14), false))
		}
		w.make(http.MethodPatch, w.pool, computeAPI, object{"properties": object{"virtualMachineProfile": object{"storageProfile": object{"imageReference": object{"id": image}}}}})
	case "model changed by others":
		w.changeModel()
	case "person rolls back":
		if person, err := w.start(Ask{Do: "rollback"}); err == nil {
			w.locked(func() { w.rivals = append(w.rivals, person) })
		}
	case "person brings the version back": // that was captured last, as by rollback --to
		if all := w.byDate(); len(all) > 0 && all[len(all)-1] != w.used(w.versions()) {
			w.touch("model")
			_ = w.setImage(path.Base(all[len(all)-1]), "others")
		}
	case "version before deleted":
		if all := w.byDate(); len(all) > 1 {
			w.touch("versions")
			w.deleted(fleet.ResourceID(all[len(all)-2]), galleryAPI)
		}
	case "others begin a version": // under today's name, which takes a while
		id := w.names.Definition.Child("versions", plan.VersionName(time.Now(), false))
		w.foreign = append(w.foreign, id)
		w.beginVersion(id, false, object{"team": "others"})
	case "newer version goes live": // of another laptop's ortet
		id := w.names.Definition.Child("versions", plan.VersionName(time.Now().Add(day), false))
		w.touch("model")
		w.beginVersion(id, true, object{fleet.TagCreatedBy: "ortet test", fleet.TagCapture: "another"})
		_ = w.setImage(id.Name(), "others")
	case "pods come to the clones": // whose Nodes were registered again
		for i, name := range w.nodesOf(fleet.CanaryOf(w.pool)) {
			w.kube.Change("nodes", "", name, func(o runtime.Object) { o.(*corev1.Node).Spec.Unschedulable = false })
			w.putPod(name, "web", 90+i, nil)
		}
	case "others publish a version": // under today's name
		w.beginVersion(w.names.Definition.Child("versions", plan.VersionName(time.Now(), false)), true, object{"team": "others"})
	case "extension changed by others":
		if err := w.request(http.MethodPut, w.pool.Child("extensions", "vmssCSE"), computeAPI, object{"properties": object{"publisher": kinds["cse"][1], "type": kinds["cse"][2],
			"typeHandlerVersion": "1.0", "settings": object{"commandToExecute": "join another"}}}); err != nil {
			w.broken(0, "cannot change an extension: %v", err)
		}
		changed := w.modelNow().extensions["vmssCSE"]
		w.locked(func() { w.original["vmssCSE"] = changed })
	case "another pool takes the node", "owners protect the node": // that is about to be annotated, as its workbench
		name := path.Base(w.byName(e.At))
		w.kube.Change("nodes", "", name, func(o runtime.Object) {
			n := o.(*corev1.Node)
			if e.What == "another pool takes the node" {
				n.Annotations[fleet.AnnotationWorkbench] = string(w.pool) + "2"
			}
			n.Annotations[fleet.AnnotationScaleDownDisabled] = "true"
			w.locked(func() {
				w.nodes[name] = nodeState{annotations: maps.Clone(n.Annotations), machine: w.nodes[name].machine, scaleIn: w.nodes[name].scaleIn, actions: w.nodes[name].actions}
			})
		})
	case "donor's name given to another machine", "donor's name given to a member of another scale set", "twin of the donor":
		donor := w.computerOf(w.donorOf(p.ask))
		if donor == nil { // others deleted it before
			break
		}
		switch e.What {
		case "donor's name given to another machine":
			w.giveName(donor, "")
			return true
		case "donor's name given to a member of another scale set":
			w.giveName(donor, w.otherPool)
			return true
		}
		// Its kubelet reports what it likes.
		w.kube.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "twin"}, Spec: corev1.NodeSpec{ProviderID: "k3s://twin"},
			Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{SystemUUID: donor.VMID}}})
	case "donor says that it is another machine", "donor's Node made again":
		w.kube.Change("nodes", "", w.donorOf(p.ask), func(o runtime.Object) {
			if n := o.(*corev1.Node); e.What == "donor's Node made again" {
				n.UID = "made-again"
			} else {
				n.Status.NodeInfo.SystemUUID = "5c5e9f1e-6d5b-4f0e-8a9d-0c1b2a3f4e5d"
			}
		})
	case "workbench says that it is another machine":
		for _, name := range w.nodesOf(w.pool) {
			w.kube.Change("nodes", "", name, func(o runtime.Object) {
				if n := o.(*corev1.Node); n.Annotations[fleet.AnnotationWorkbench] != "" {
					n.Status.NodeInfo.SystemUUID = noVM
				}
			})
		}
	case "instance deleted", "instance stopped", "instance started", "instance restarted", "cordoned", "uncordoned", "node deleted":
		if c := w.target(e, p); c != nil {
			w.changeNode(e.What, c)
		}
	case "capture begins":
		if rival, err := w.start(Ask{Do: "capture"}); err == nil {
			w.locked(func() { w.rivals = append(w.rivals, rival) })
		}
	case "instance upgraded", "does not come back", "kured waits", "owners protect the instance":
		if c := w.target(e, p); c != nil {
			w.rolled(e.What, c)
		}
	case crashes:
		if e.For == 0 {
			panic(crashes)
		}
		w.after(e.For, func() { panic(crashes) })
	default:
		return false
	}
	return true
}

// uncordon is kubectl uncordon.
func (w *world) uncordon(name string) {
	w.kube.Change("nodes", "", name, func(o runtime.Object) { o.(*corev1.Node).Spec.Unschedulable = false })
	w.locked(func() { delete(w.aside, name) })
}

// byDate returns the ids of versions that succeeded, oldest first.
func (w *world) byDate() (ids []string) {
	versions := w.versions()
	for id, v := range versions {
		if s := stateOf(v); s == plan.Succeeded || s == plan.Updating { // of a change of its tags
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return published(versions[a]).Compare(published(versions[b])) })
	return ids
}

func (w *world) deleted(id fleet.ResourceID, version string) {
	w.touch(string(id))
	if w.request(http.MethodDelete, id, version, nil) == nil {
		w.locked(func() { w.gone[low(id)] = time.Now() })
	}
}

func (w *world) changeNode(what string, c *computer) {
	name, id := c.node(), fleet.ResourceID(c.ResourceID)
	w.touch(name, c.ResourceID)
	switch what {
	case "instance deleted":
		w.deleteInstances(w.setOf(id), id.Name())
	case "instance started":
		_ = w.request(http.MethodPost, id+"/start", computeAPI, nil)
	case "instance stopped":
		w.touch("stopped " + name)
		_ = w.request(http.MethodPost, id+"/poweroff", computeAPI, nil)
	case "instance restarted":
		_ = w.request(http.MethodPost, id+"/restart", computeAPI, nil)
	case "cordoned", "uncordoned":
		before := w.kube.Node(name)
		w.kube.Change("nodes", "", name, func(o runtime.Object) { o.(*corev1.Node).Spec.Unschedulable = what == "cordoned" })
		w.locked(func() {
			// A node that a command had cordoned before shows no second cordon.
			if what != "cordoned" {
				delete(w.aside, name)
			} else if before != nil && !before.Spec.Unschedulable {
				w.aside[name] = before.UID
			}
		})
	case "node deleted":
		pods := w.podsOn(name)
		w.kube.Remove("nodes", "", name)
		for _, p := range pods {
			w.replace(p)
		}
		life := w.lifeOf(c)
		w.after(time.Minute, func() { w.report(c, life, true) })
	}
}

// sets are the scale sets of the story; "" is the other pool that is not there.
func (w *world) sets() []fleet.ResourceID { return []fleet.ResourceID{w.pool, w.otherPool} }

// ofStory reports whether a scale set is none that a capture made.
func (w *world) ofStory(set fleet.ResourceID) bool { return slices.ContainsFunc(w.sets(), set.Equal) }

// beginVersion has others build a version, from a snapshot of theirs.
func (w *world) beginVersion(id fleet.ResourceID, atOnce bool, tags object) {
	from, snapshot := w.pool.In("disks", "others"), w.pool.In("snapshots", "others")
	w.locked(func() {
		for _, made := range []fleet.ResourceID{from, snapshot, id} {
			w.disks[azsim.Volume(low(made))] = &disk{generalized: true, of: "others"}
		}
	})
	w.azure.Instant(true)
	w.make(http.MethodPut, from, disksAPI, object{"location": location, "sku": object{"name": "StandardSSD_LRS"},
		"properties": object{"creationData": object{"createOption": "Empty"}, "diskSizeGB": 30, "osType": "Linux", "hyperVGeneration": "V2"}})
	w.make(http.MethodPut, snapshot, disksAPI, object{"location": location, "properties": object{"creationData": object{"createOption": "Copy", "sourceResourceId": string(from)}, "incremental": true}})
	w.azure.Instant(atOnce)
	w.make(http.MethodPut, id, galleryAPI, object{"location": location, "tags": tags, "properties": object{
		"publishingProfile": object{"targetRegions": []object{{"name": location}}},
		"storageProfile":    object{"osDiskImage": object{"source": object{"id": string(snapshot)}}}}})
	w.azure.Instant(false)
}

// makeSet makes a scale set like the pool, of the first image.
func (w *world) makeSet(id fleet.ResourceID, instances int, flexible bool, tags object) {
	body := w.setBody(object{"publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": "server", "version": "latest"}, instances)
	body["tags"] = tags
	body["properties"].(object)["orchestrationMode"] = modes[flexible]
	if delete(body["properties"].(object), "platformFaultDomainCount"); flexible {
		body["properties"].(object)["platformFaultDomainCount"] = 1
	}
	body["properties"].(object)["virtualMachineProfile"].(object)["osProfile"].(object)["computerNamePrefix"] = id.Name()
	w.make(http.MethodPut, id, computeAPI, body)
}

// scaleIn is cluster-autoscaler, which deletes empty nodes that nothing protects; it leaves two
// of the pool. A scale set that a capture made is no node group.
func (w *world) scaleIn(donor string) {
	for _, set := range w.sets() {
		names := w.nodesOf(set)
		var ids []string
		for _, name := range names {
			n, c := w.kube.Node(name), w.computerOf(name)
			if set == w.pool && len(names)-len(ids) <= 2 || n == nil || c == nil ||
				n.Annotations[fleet.AnnotationScaleDownDisabled] == "true" || len(w.evictable(name)) > 0 {
				continue
			}
			emptied := name == donor && n.Annotations[fleet.AnnotationRollout] == "" && n.Spec.Unschedulable && !w.nodes[name].unschedulable
			if bench := w.workbench() == c; (bench || emptied) && !w.isTouched(name) {
				w.broken(12, "an autoscaler deletes %s: a copy is attached: %t, a capture emptied it: %t", name, bench, emptied)
			}
			ids = append(ids, path.Base(c.ID))
			w.touch(name, c.ResourceID)
		}
		if len(ids) > 0 {
			w.deleteInstances(set, ids...)
		}
	}
	w.observeRest()
}

func (w *world) deleteInstances(set fleet.ResourceID, ids ...string) {
	deleted := w.request(http.MethodPost, set+"/delete", computeAPI, object{"instanceIds": ids}) == nil
	switch {
	case deleted && set.Equal(w.pool):
		w.touch("capacity")
		w.locked(func() { w.model.capacity -= int64(len(ids)) })
	case deleted && set.Equal(w.otherPool):
		w.locked(func() { w.otherModel.capacity -= int64(len(ids)) })
	}
}

// preemptDeletion leaves an instance Deleting in a set that is Succeeded, for ten minutes.
func (w *world) preemptDeletion() {
	names := w.nodesOf(w.pool)
	if len(names) == 0 {
		return
	}
	name := names[len(names)-1]
	c := w.computerOf(name)
	if c == nil { // only its Node is left
		return
	}
	w.touch(name, c.ResourceID, "capacity")
	ids := object{"instanceIds": []string{path.Base(c.ID)}}
	err := w.azure.AddFault(azsim.Fault{Action: setType + "/delete/action", Effect: azsim.EffectNeverEnds, Count: 1})
	if err == nil {
		err = w.request(http.MethodPost, w.pool+"/delete", computeAPI, ids)
	}
	if err != nil {
		w.broken(0, "cannot begin a deletion: %v", err)
	}
	w.scaleOut(1)
	settle := func() {
		now := w.modelNow().capacity
		w.locked(func() { w.model.capacity = now })
	}
	settle()
	w.after(10*time.Minute, func() {
		if w.request(http.MethodPost, w.pool+"/delete", computeAPI, ids) == nil {
			settle()
		}
	})
}

// useAsWorkbench has a capture of another pool protect a node as its workbench.
func (w *world) useAsWorkbench(i int) {
	w.kube.Change("nodes", "", w.nodeName(i), func(o runtime.Object) {
		n := o.(*corev1.Node)
		n.Annotations = maps.Clone(n.Annotations)
		n.Annotations[fleet.AnnotationWorkbench], n.Annotations[fleet.AnnotationScaleDownDisabled] = string(w.pool)+"2", "true"
	})
	w.setProtection(i, false)
}

// lockKured has another take kured's lock for a while, where the lock is free.
func (w *world) lockKured(other string, d time.Duration) {
	w.kube.Change("daemonsets", "kube-system", "kured", func(o runtime.Object) {
		if a := o.(*appsv1.DaemonSet); a.Annotations[kuredLock] == "" {
			text, _ := json.Marshal(object{"nodeID": other, "metadata": object{"unschedulable": false}, "created": time.Now().UTC(), "TTL": 0}) // of strings and numbers
			a.Annotations = map[string]string{kuredLock: string(text)}
		}
	})
	w.after(d, func() {
		w.kube.Change("daemonsets", "kube-system", "kured", func(o runtime.Object) {
			if a := o.(*appsv1.DaemonSet); strings.Contains(a.Annotations[kuredLock], other) {
				delete(a.Annotations, kuredLock)
			}
		})
	})
}

// changeModel has others set the pool's image and a tag.
func (w *world) changeModel() {
	w.touch("model")
	if w.story.Pool.Mode == "Rolling" { // Azure replaces what runs
		w.touch(w.nodesOf(w.pool)...)
	}
	_ = w.setImage(otherImage, "others")
}

// setImage has others set the model's image and a tag, and leave its customData, as
// az vmss update does.
func (w *world) setImage(to, team string) error {
	image := object{"id": w.spelled(w.names.Definition.Child("versions", to))}
	if of, version, others := strings.Cut(to, ":"); others {
		image = object{"id": nil, "publisher": "Canonical", "offer": of, "sku": "server", "version": version}
	}
	err := w.request(http.MethodPatch, w.pool, computeAPI, object{"tags": object{"team": team},
		"properties": object{"virtualMachineProfile": object{"storageProfile": object{"imageReference": image}}}})
	now := w.modelNow()
	w.locked(func() {
		w.model.image, w.model.rest = now.image, now.rest
		w.chosenBy, w.chosenAt, w.wasLive[low(now.image)] = "others", time.Now(), true
	})
	return err
}
