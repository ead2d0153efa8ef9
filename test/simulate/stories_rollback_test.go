package simulate

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

const (
	patchModel = "azure PATCH virtualMachineScaleSets/pool1"
	firstImage = "ubuntu-24_04-lts:latest"
	otherImage = "ubuntu-24_04-lts:24.04.202510010"
)

// afterBaked is a pool that was captured on the first day, and baked on the second; the
// model's customData does nothing since. Then others set an image.
func afterBaked(image string, then ...Ask) []Ask {
	return append([]Ask{{Do: "capture"}, {Do: "wait", For: day}, {Do: "capture", Baked: true}, {Do: "wait", For: day}, {Do: "set image", To: image}}, then...)
}

// rollbacks are stories of rollbacks, and of captures around them.
var rollbacks = []Story{
	{Name: "the first rollback, and forward", Seed: 60, Pool: Pool{Instances: 3, Extensions: []string{"monitor"}}, Asks: []Ask{
		{Do: "capture"}, {Do: "rollback"}, {Do: "rollback", To: "original"}, {Do: "rollback", To: "2000.01.01"}, {Do: "scale out", N: 1}}},
	{Name: "capture after the first rollback is refused", Seed: 61, Pool: Pool{Instances: 3}, Asks: []Ask{
		{Do: "capture"}, {Do: "rollback"}, {Do: "capture", Exit: 3}}, Cannot: "RolledBack"},
	{Name: "the original after captures and rollbacks that died", Seed: 62, Pool: Pool{Instances: 3}, Asks: []Ask{
		{Do: "capture"}, {Do: "wait", For: day}, {Do: "capture", Baked: true}, {Do: "wait", For: day}, {Do: "capture"}, {Do: "rollback", To: "original"}, {Do: "scale out", N: 1}},
		Happen: []Event{{At: patchModel, N: 1, What: "kill after"}, {At: patchModel, N: 3, What: "kill before"}, {At: patchModel, N: 4, What: "kill after"}}},
	{Name: "nothing to go back to", Seed: 63, Pool: Pool{Instances: 2}, Asks: []Ask{{Do: "rollback", Exit: 3}}, Cannot: "NoPrevious"},
	{Name: "original that is not recorded", Seed: 64, Pool: usual, Asks: []Ask{{Do: "rollback", To: "original", Exit: 3}}, Cannot: "NoOriginal"},
	{Name: "a second capture of the day, and a rollback to the first", Seed: 65, Pool: usual, Asks: []Ask{
		{Do: "capture"}, {Do: "capture", Again: true}, {Do: "capture"}, {Do: "rollback"}, {Do: "capture"}}},
	{Name: "rollback of a baked version to itself and back", Seed: 66, Pool: Pool{Instances: 3}, Asks: []Ask{
		{Do: "capture", Baked: true}, {Do: "wait", For: day}, {Do: "capture"}, {Do: "rollback"}, {Do: "rollback", To: "2000.01.02"}, {Do: "rollback", To: "original"}}},
	{Name: "baked capture killed at the model, and a rollback", Seed: 67, Pool: Pool{Instances: 3}, Asks: []Ask{
		{Do: "capture"}, {Do: "wait", For: day}, {Do: "capture", Baked: true, Once: true}, {Do: "rollback", To: "2000.01.01"}, {Do: "scale out", N: 1}},
		Happen: []Event{{At: patchModel, N: 2, What: "kill after"}}},
	{Name: "rollback killed at the model, and resumed", Seed: 77, Pool: usual, Asks: []Ask{{Do: "rollback"}}, Happen: []Event{{At: patchModel, N: 1, What: "kill after"}}},
	{Name: "rollback killed at the model, and another one", Seed: 68, Pool: usual, Asks: []Ask{
		{Do: "rollback", Once: true}, {Do: "rollback", To: "1999.12.11"}}, Happen: []Event{{At: patchModel, N: 1, What: "kill after"}}},
	{Name: "rollback killed at the model, and a capture", Seed: 69, Pool: usual, Asks: []Ask{
		{Do: "rollback", Once: true}, {Do: "capture"}}, Happen: []Event{{At: patchModel, N: 1, What: "kill after"}}},
	{Name: "version set by others after a baked capture, and a capture", Seed: 70, Pool: Pool{Instances: 3}, Asks: afterBaked("2000.01.01", Ask{Do: "capture"}, Ask{Do: "scale out", N: 1})},
	{Name: "version set by others after a baked capture, and a rollback", Seed: 71, Pool: Pool{Instances: 3}, Asks: afterBaked("2000.01.01", Ask{Do: "rollback", To: "2000.01.01"}, Ask{Do: "scale out", N: 1})},
	{Name: "original set by others after a baked capture, and a capture", Seed: 72, Pool: Pool{Instances: 3}, Asks: afterBaked(firstImage, Ask{Do: "capture"}, Ask{Do: "scale out", N: 1})},
	{Name: "original set by others after a baked capture, and a rollback", Seed: 73, Pool: Pool{Instances: 3}, Asks: afterBaked(firstImage, Ask{Do: "rollback", To: "original"}, Ask{Do: "rollback", To: "original"})},
	{Name: "original set by others after a baked capture, and a rollback that is throttled", Seed: 74, Pool: Pool{Instances: 3}, Asks: afterBaked(firstImage, Ask{Do: "rollback", To: "original"}),
		Happen: []Event{{At: patchModel, N: 3, What: "throttled"}}},
	{Name: "other image set by others after a baked capture, and a capture", Seed: 75, Pool: Pool{Instances: 3}, Asks: afterBaked(otherImage, Ask{Do: "capture"}, Ask{Do: "scale out", N: 1})},
	{Name: "other image set by others after a baked capture, and no way back", Seed: 76, Pool: Pool{Instances: 3}, Asks: afterBaked(otherImage, Ask{Do: "capture"}, Ask{Do: "rollback", To: "original", Exit: 3}), Cannot: "CustomDataLost"},
}

// setImage has others set the model's image between two commands, and leave its
// customData, as az vmss update does.
func (w *world) setImage(to string) {
	image := object{"id": string(w.names.Definition.Child("versions", to))}
	if of, version, others := strings.Cut(to, ":"); others {
		image = object{"id": nil, "publisher": "Canonical", "offer": of, "sku": "server", "version": version}
	}
	if err := w.request(http.MethodPatch, w.pool, computeAPI, object{"properties": object{"virtualMachineProfile": object{"storageProfile": object{"imageReference": image}}}}); err != nil {
		w.broken(0, "set the model's image: %v", err)
	}
	time.Sleep(10 * time.Minute)
	now := w.modelNow()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.model.image, w.model.rest = now.image, now.rest
}

// checkRollback: a rollback to before the first capture leaves what was there, and one to
// the version before tags the version that the model used, and no other.
func (w *world) checkRollback(p *process, now model) {
	w.mu.Lock()
	was := w.imageBefore
	w.mu.Unlock()
	if p.ask.Do != "rollback" || p.err != nil || w.isTouched("model") {
		return
	}
	if p.rollback.Original != nil && (now.image != firstImage || now.customData != firstCustomData) {
		w.broken(4, "%s reports the original model, which has %s and customData %q", p.name, now.image, now.customData)
	}
	killed := slices.ContainsFunc(w.processes, (*process).isDead)
	if p.ask.To != "" || killed && !p.rollback.Resumed {
		return // what was killed may have been undone first, or had ended
	}
	for id, v := range w.versions() {
		before := w.before[id]
		tagged := v.Tags[fleet.TagRolledBack] != nil
		if before != nil && before.Tags[fleet.TagRolledBack] == nil && tagged != (id == was && !p.rollback.NothingToDo) && !w.isTouched(id) {
			w.broken(6, "%s went back from %s, and %s is tagged as rolled back: %t", p.name, was, id, tagged)
		}
	}
}
