package play

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/test/scenario"
)

// undisturbed reports whether nothing ever happened, so that what takes long has no excuse.
func (w *world) undisturbed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.chooser.Happened()) == 0 && len(w.processes) == 1
}

// judgeIntent: what is about to be changed in Azure is written down before.
func (w *world) judgeIntent(p *process, rec open, id fleet.ResourceID) {
	for _, i := range rec.Intents {
		target := strings.ToLower(i.Target)
		ofPool := target == low(w.pool) && !id.Equal(w.pool) && !strings.Contains(low(id), "/extensions/")
		if i.Tries > 0 && target != "" && !ofPool && (low(id) == target || strings.HasPrefix(low(id), target+"/")) {
			return
		}
	}
	w.broken("%s changes %s in Azure, and has not written down that it is about to", p.name, id.Name())
}

// judgeTemporary: what is made for a time says whose it is, is made of what the step
// before it left, and stays until the step after it has it.
func (w *world) judgeTemporary(p *process, rec open, id fleet.ResourceID, r *http.Request) {
	if r.Method == http.MethodDelete {
		now, there := imageAt(w.images(), rec.facts.Names.Version)
		// One whose making never ends cannot be deleted, and what it is made of goes all the same.
		if len(w.happenedTo(scenario.NeverEnds)) == 0 && there && now.state == prototype.Creating && now.tags[fleet.TagCapture] == rec.Capture && strings.Contains(low(id), "/snapshots/") {
			w.broken("%s deletes %s while version %s is made of it", p.name, id.Name(), now.id.Name())
		}
		return
	}
	var body struct {
		Tags       map[string]string
		Zones      []string
		Properties struct {
			CreationData struct{ SourceResourceID string }
		}
	}
	if r.Method != http.MethodPut || json.Unmarshal(bodyOf(r), &body) != nil {
		return
	}
	for _, k := range []string{fleet.TagCreatedBy, fleet.TagReason} {
		if body.Tags[k] == "" {
			w.broken("%s makes %s without the tag %s", p.name, id.Name(), k)
		}
	}
	source := fleet.ResourceID(body.Properties.CreationData.SourceResourceID)
	if source == "" {
		return // gallery or definition
	}
	if body.Tags[fleet.TagCapture] != rec.Capture || !strings.EqualFold(body.Tags[fleet.TagBuiltFrom], rec.Donor) {
		w.broken("%s makes %s, and does not say that it is of %s and %s", p.name, id.Name(), rec.Capture, rec.Donor)
	}
	w.mu.Lock()
	donor, bench, from := w.computers[low(rec.facts.Instance)], w.computers[low(rec.facts.Bench.Instance)], w.disks[volume(source)]
	running := donor != nil && donor.running && len(w.happenedTo(scenario.StartInstance)) == 0
	var isDonors, whole bool
	zone := ""
	if donor != nil {
		isDonors = from != nil && from.user == donor.ID
	}
	if from != nil {
		whole = from.generalized && !from.partly
	}
	if bench != nil {
		zone = bench.Zone
	}
	w.mu.Unlock()
	switch {
	case id.Equal(w.names.Snapshot) && running && !w.byOthers(rec.Donor):
		w.broken("%s takes a snapshot of %s while that runs", p.name, rec.Donor)
	case id.Equal(w.names.Snapshot) && donor != nil && !isDonors:
		w.broken("%s takes a snapshot of %s, which is not the disk of %s", p.name, source.Name(), rec.Donor)
	case id.Equal(w.names.WorkDisk) && !source.Equal(w.names.Snapshot):
		w.broken("%s makes a copy of %s, which is not the donor's snapshot", p.name, source.Name())
	case id.Equal(w.names.WorkDisk) && bench != nil && strings.Join(body.Zones, "") != zone:
		w.broken("%s makes a copy in zones %v, and its workbench is in %q", p.name, body.Zones, zone)
	case id.Equal(w.names.Generalized) && (!source.Equal(w.names.WorkDisk) || from != nil && !whole):
		w.broken("%s takes the snapshot of the generalised copy of %s, which is not that", p.name, source.Name())
	case id.Equal(w.names.Generalized) && body.Tags[fleet.TagGeneralized] == "":
		w.broken("%s makes %s without the tag %s", p.name, id.Name(), fleet.TagGeneralized)
	}
}

// judgeSaved: before the model changes, what the copy had of customData is kept.
func (w *world) judgeSaved(p *process, rec open, profile string) {
	now, there := imageAt(w.images(), rec.facts.Names.Version)
	if rec.Kind != prototype.KindCapture || !there || now.tags[fleet.TagCapture] != rec.Capture || !strings.Contains(strings.ToLower(profile), low(now.id)) {
		return
	}
	had := firstCustomData // what a made-up report says
	if c := w.computerOf(rec.Donor); w.story.Donor.Kind != "none" && c != nil {
		had = string(c.CustomData) // a rolling upgrade may have made the donor of another version
	}
	digest := sha256.Sum256([]byte(had))
	sum := hex.EncodeToString(digest[:])[:16]
	secret, kept := w.kube.Get("secrets", namespace, kube.SavedName(string(w.pool))).(*corev1.Secret)
	_, before := w.kube.Get("secrets", namespace, "ortet-saved-customdata-"+sum).(*corev1.Secret)
	if had != prototype.NoopCustomData && !before && (!kept || string(secret.Data["customData-"+sum]) != had) {
		w.broken("%s changes the model, and the customData that %s came with is not kept", p.name, rec.Donor)
	}
}

// judgePower: a donor is stopped as it was asked for.
func (w *world) judgePower(p *process, rec open, action string) {
	if deallocates := action == "deallocate"; deallocates != rec.asked().Deallocate {
		w.broken("%s asks for %s of %s, and --deallocate was %t", p.name, action, rec.Donor, rec.asked().Deallocate)
	}
}

// judgeExtension: extensions go once the model uses the version that needs none.
func (w *world) judgeExtension(p *process, rec open) {
	if !strings.Contains(w.pointedAt().image, low(rec.facts.Names.Version)) && len(w.happenedTo(scenario.ChangeModel)) == 0 {
		w.broken("%s deletes extensions while the model has the image %s", p.name, w.pointedAt().image)
	}
}

// judgeServed: a donor starts while its copy is worked on, where nothing goes wrong.
func (w *world) judgeServed(p *process, rec open) {
	w.mu.Lock()
	donor := w.computers[low(rec.facts.Instance)]
	stopped := donor != nil && !donor.running
	started := donor != nil && w.counts["azure POST virtualMachineScaleSets/"+poolName+"/virtualMachines/"+path.Base(string(rec.facts.Instance))+"/start"] > 0
	w.mu.Unlock()
	if stopped && !started && w.undisturbed() {
		w.broken("%s works on the copy while %s waits to be started", p.name, rec.Donor)
	}
}

// soon is how long a donor that is Ready waits to be uncordoned, at most.
const soon = 30 * time.Second

// judgeSoon: a donor is uncordoned when it is Ready, where nothing goes wrong.
func (w *world) judgeSoon(p *process, node string, c *computer) {
	w.mu.Lock()
	since := time.Since(c.readied)
	w.mu.Unlock()
	rec, ok := w.record()
	if booted := ok && c.readied.After(rec.Begun); booted && since > soon && w.undisturbed() {
		w.broken("%s uncordons %s %s after it was Ready", p.name, node, since)
	}
}

// judgeCommand: a pod is told what its capture was asked for, and of the disk that
// hangs on its node; one that inspects a donor cannot write on it.
func (w *world) judgeCommand(p *process, pod *corev1.Pod) {
	command := pod.Spec.Containers[0].Command
	if slices.Contains(command, "--inspect") {
		w.judgeInspection(p, pod, command)
		return
	}
	rec, ok := w.openRecord()
	if !ok {
		w.broken("%s makes pod %s, and has no open record in the journal", p.name, pod.Name)
		return
	}
	var q allowed
	if json.Unmarshal(rec.Request, &q) != nil {
		return
	}
	wrong := func(what, want string) {
		w.broken("%s has pod %s run with %s, and not with %s", p.name, pod.Name, what, want)
	}
	for flag, want := range map[string]string{"--capture": rec.Capture, "--donor": rec.Donor, "--bootstrap": q.Bootstrap} {
		if got := flagOf(command, flag); got != want && want != "" {
			wrong(flag+" "+got, want)
		}
	}
	if slices.Contains(command, "--accept-pool-credentials") != q.AcceptPoolCredentials || slices.Contains(command, "--remove-secrets") != q.RemoveSecrets || !slices.Equal(flagsOf(command, "--accept-secret"), q.AcceptSecrets) {
		wrong(strings.Join(command, " "), "what was asked for")
	}
	if !rec.undoes("job") {
		w.broken("%s makes pod %s, and has not written down that it is to go", p.name, pod.Name)
	}
	c := w.computerOf(pod.Spec.NodeName)
	if pod.Spec.NodeName != rec.facts.Bench.Node {
		wrong("node "+pod.Spec.NodeName, rec.facts.Bench.Node)
	}
	if c == nil || w.byOthers(pod.Spec.NodeName) {
		return
	}
	lun, err := strconv.ParseInt(flagOf(command, "--lun"), 10, 32)
	w.mu.Lock()
	_, there := c.luns[int32(lun)]
	w.mu.Unlock()
	if err != nil || !there {
		wrong("--lun "+flagOf(command, "--lun"), "the copy's")
	}
}

func (w *world) judgeInspection(p *process, pod *corev1.Pod, command []string) {
	if flagOf(command, "--donor") != pod.Spec.NodeName {
		w.broken("%s has pod %s inspect %s on %s", p.name, pod.Name, flagOf(command, "--donor"), pod.Spec.NodeName)
	}
	for _, c := range pod.Spec.Containers {
		writes := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return !m.ReadOnly && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name && v.HostPath != nil })
		})
		if s := c.SecurityContext; writes || s != nil && s.Privileged != nil && *s.Privileged {
			w.broken("%s has pod %s inspect %s, on which it can write", p.name, pod.Name, pod.Spec.NodeName)
		}
	}
}

// checkEvents: the users of a node that was taken out of service can read so, where
// nothing goes wrong.
func (w *world) checkEvents(p *process) {
	if p.ask.Verb != scenario.Capture || p.capture.NothingToDo || p.capture.Resumed || !w.undisturbed() {
		return
	}
	seen := map[string]bool{}
	w.kube.Each("events", func(o runtime.Object) bool {
		if e, ok := o.(*corev1.Event); ok && e.InvolvedObject.Name == w.nodeOf(p.ask.Node) {
			seen[e.Reason] = true
		}
		return true
	})
	for _, reason := range []string{"CaptureBegun", "CaptureGaveBack"} {
		if !seen[reason] {
			w.broken("%s is done, and no event %s is on node %s", p.name, reason, w.nodeOf(p.ask.Node))
		}
	}
}

// checkLostBench: where a workbench was lost, the result names it and the next.
func (w *world) checkLostBench(p *process) {
	rec, ok := w.record()
	o := open{Record: rec}
	if !ok || p.ask.Verb != scenario.Capture || rec.Capture != p.capture.Capture || p.capture.Resumed || json.Unmarshal(rec.Facts, &o.facts) != nil {
		return
	}
	notes := strings.Join(p.capture.Notes, "\n")
	for _, node := range o.facts.Bench.Lost {
		if !strings.Contains(notes, node) || !strings.Contains(notes, o.facts.Bench.Node) {
			w.broken("%s lost its workbench %s, went on with %s, and does not say so: %q", p.name, node, o.facts.Bench.Node, notes)
		}
	}
}
