package simulate

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/azsimserver"
	"github.com/ortet/ortet/test/kubesim"
)

// podCreated starts the pods of ortet, as a kubelet does.
func (w *world) podCreated(r kubesim.Request) {
	if r.Verb != "create" || r.Resource != "pods" || r.Subresource != "" || r.Status >= 300 {
		return
	}
	w.kube.Each("pods", func(o runtime.Object) bool {
		p := o.(*corev1.Pod)
		begun := p.Namespace == workload
		w.locked(func() { begun, w.begun[p.UID] = begun || w.begun[p.UID], true })
		if !begun {
			w.after(w.between(2*time.Second, 4*time.Second, "pod", p.Name, p.UID), func() { w.podStarts(p) })
		}
		return true
	})
}

// runsOn returns the computer of a pod that runs, else nil.
func (w *world) runsOn(p *corev1.Pod) *computer {
	now := w.kube.Pod(p.Namespace, p.Name)
	if now == nil || now.UID != p.UID || now.DeletionTimestamp != nil {
		return nil
	}
	if c := w.computerOf(p.Spec.NodeName); c != nil && w.isOn(c, 0) {
		return c
	}
	return nil
}

func (w *world) podStarts(p *corev1.Pod) {
	c := w.runsOn(p)
	if c == nil {
		return
	}
	w.locked(func() { delete(w.logs, p.Name) }) // of an earlier one of the name
	if p.Namespace == tests {
		w.testStarts(p)
		return
	}
	if strings.HasPrefix(p.Labels["app.kubernetes.io/component"], "prepare") {
		w.prepares(p, c)
		return
	}
	name := p.Spec.Containers[0].Name
	waits := func(why, message string) {
		w.setStatus(p, corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
			Name: name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: why, Message: message}}}}})
	}
	switch w.story.Pool.Image {
	case "unpullable":
		waits("ErrImagePull", "not found")
		w.after(10*time.Second, func() { waits("ImagePullBackOff", "Back-off pulling image") })
		return
	case "hanging":
		waits("ContainerCreating", "")
		return
	case "foreign":
		w.setStatus(p, corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{
			Name: name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "StartError", ExitCode: 128, Message: `exec: "ortet-node": executable file not found in $PATH`}}}}})
		return
	}
	w.setStatus(p, corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
		Name: name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}})
	command := p.Spec.Containers[0].Command
	if slices.Contains(command, "--inspect") {
		w.after(time.Second, func() { w.inspected(p, command) })
		return
	}
	if slices.Contains(command, "--flush") {
		w.after(time.Second, func() { w.flushed(p, command) })
		return
	}
	w.mu.Lock()
	life := c.life
	var d *disk
	for _, lun := range slices.Sorted(maps.Keys(c.copies)) {
		d = w.disks[c.copies[lun]]
	}
	broken := d != nil && d.partly && !d.generalized // by a pod that was lost
	if d != nil && !d.generalized {
		d.partly = true
	}
	w.mu.Unlock()
	w.after(w.between(5*time.Second, 20*time.Second, "generalize", p.Name, p.UID), func() { w.generalized(p, command, c, life, d, broken) })
}

// inspected is the end of ortet-node generalize --inspect.
func (w *world) inspected(p *corev1.Pod, command []string) {
	if w.runsOn(p) == nil {
		return
	}
	report := wire.GeneralizeReport{Capture: azsimserver.Flag(command, "--capture"), Donor: azsimserver.Flag(command, "--donor"), Outcome: wire.Generalized, DryRun: true,
		Elsewhere: poolKinds[w.story.Pool.Kind].elsewhere}
	for _, x := range w.saved(&report) {
		report.Unsaved = append(report.Unsaved, strings.TrimSpace(string(x.kind)+" "+x.name)+": "+wire.NoSealKey)
	}
	w.scanned(&report)
	code := int32(0)
	if w.story.Pool.Disk == "dead" && slices.Contains(command, "--flush") {
		report.Outcome, report.Message, code = wire.DiskRefused, "what the node has in memory was not on its disk within 30s", 4
	}
	if w.story.Pool.Disk == "preserve" {
		report.Outcome, report.Message, code = wire.DiskRefused, "/etc/cloud/cloud.cfg sets preserve_hostname: true", 3
	}
	w.reported(p, code, report)
}

// flushed is the end of ortet-node generalize --flush.
func (w *world) flushed(p *corev1.Pod, command []string) {
	if w.runsOn(p) == nil || w.story.Pool.Disk == "dying" { // syncfs does not return
		return
	}
	w.locked(func() { w.flushedAt = time.Now() })
	w.reported(p, 0, wire.GeneralizeReport{Capture: azsimserver.Flag(command, "--capture"), Donor: azsimserver.Flag(command, "--donor"),
		Outcome: wire.Generalized, DryRun: true, Flushed: time.Now().UTC()})
}

// generalized is the end of ortet-node generalize on a copy.
func (w *world) generalized(p *corev1.Pod, command []string, c *computer, life int, d *disk, half bool) {
	if w.runsOn(p) == nil || !w.isOn(c, life) {
		w.podTerminated(p, 0)
		return
	}
	if !slices.Contains(command, "--tune") { // an ortet-node from before tunings has to refuse: it leaves those of the donor
		w.broken(0, "the copy of %s is generalised without --tune: %q", c.ResourceID, command)
	}
	report := wire.GeneralizeReport{Capture: azsimserver.Flag(command, "--capture"), Donor: azsimserver.Flag(command, "--donor"), Outcome: wire.Generalized, Removed: 10, OS: "Debian",
		Tuned: wire.SplitTunings(azsimserver.Flag(command, "--tune"))}
	if w.applied != nil {
		report.Tuned = w.applied
	}
	disk := w.story.Pool.Disk
	secrets := disk == "secrets" && !slices.Contains(command, "--accept-pool-credentials=true")
	w.mu.Lock()
	lost := disk == "lost" && !w.podLost
	w.podLost = w.podLost || lost
	attached := false
	for _, v := range c.copies {
		attached = attached || d != nil && w.disks[v] == d
	}
	again := attached && d.generalized
	preserves := disk == "preserve"
	if attached && !lost && !again && !secrets && !preserves {
		d.generalized, d.partly = true, half
	}
	w.mu.Unlock()
	switch {
	case lost:
		w.podEnded(p, 137, []byte("killed\n"))
		return
	case !attached:
		report.Outcome, report.Message = wire.DiskRefused, "there is no disk at the LUN"
	case preserves:
		report.Outcome, report.Message = wire.DiskRefused, "/etc/cloud/cloud.cfg sets preserve_hostname: true"
	case again:
		report.Outcome, report.Message = wire.DiskRefused, "it is generalised already"
	case secrets:
		report.Outcome, report.Findings = wire.SecretsFound, []wire.SecretFinding{{Path: "/etc/kubernetes/azure.json", Class: wire.PoolCredential, Rule: "azure-json"}}
	default:
		if disk == "secrets" {
			report.Findings = []wire.SecretFinding{{Path: "/etc/kubernetes/azure.json", Class: wire.PoolCredential, Rule: "azure-json", Accepted: true}}
		}
		if disk != "nojoin" {
			report.Joins = []string{"/etc/kubernetes/bootstrap-kubelet.conf"}
		}
		for _, x := range w.saved(&report) {
			item, err := azsimserver.Seal(command, x.kind, x.name, x.text)
			if err != nil {
				w.broken(0, "seal %s: %v", x.kind, err)
			}
			report.Saved = append(report.Saved, item)
		}
		w.scanned(&report)
		w.reported(p, 0, report, listed(report.Capture)...)
		return
	}
	w.reported(p, 3, report)
}

// podTerminated has a kubelet that is back report a pod that did not survive its reboot.
func (w *world) podTerminated(p *corev1.Pod, tries int) {
	if now := w.kube.Pod(p.Namespace, p.Name); now == nil || now.UID != p.UID || tries > 100 {
		return
	}
	if w.runsOn(p) == nil {
		w.after(30*time.Second, func() { w.podTerminated(p, tries+1) })
		return
	}
	w.setStatus(p, corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Terminated", Message: "Pod was terminated in response to imminent node shutdown."})
}

func (w *world) setStatus(p *corev1.Pod, s corev1.PodStatus) {
	w.kube.Change("pods", p.Namespace, p.Name, func(o runtime.Object) { o.(*corev1.Pod).Status = s })
}

// listed is the line of what is in the image that a capture makes.
func listed(capture string) []byte {
	m := wire.Manifest{OS: wire.OperatingSystem{ID: "debian"}, Packages: []wire.Package{{Type: wire.Deb, Name: "capture", Version: capture}}}
	packed, _ := m.Pack()                                          // it is short
	text, _ := json.Marshal(wire.GeneralizeLine{Manifest: packed}) // of bytes
	return append(text, '\n')
}

func (w *world) reported(p *corev1.Pod, code int32, report wire.GeneralizeReport, before ...byte) {
	text, _ := json.Marshal(wire.GeneralizeLine{Report: &report}) // of strings and numbers
	if w.story.Pool.Image == "newer" {
		text = bytes.Replace(text, []byte(`{"report":{`), []byte(`{"report":{"newer":true,`), 1)
	}
	w.podEnded(p, code, slices.Concat(before, text, []byte{'\n'}))
}

func (w *world) podEnded(p *corev1.Pod, code int32, log []byte) {
	w.locked(func() { w.logs[p.Name] = log })
	w.setStatus(p, azsimserver.Ended(p, code))
}

func (w *world) log(_, pod string) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.logs[pod]
}

// donorsCommand is what root on the second instance put where its node keeps what Azure gave it.
const donorsCommand = "curl http://203.0.113.9/x"

type toSave struct {
	kind       wire.SealedKind
	name, text string
}

// saved returns what is on the disk, and reports the handlers without protected settings.
func (w *world) saved(report *wire.GeneralizeReport) []toSave {
	custom, script := firstCustomData, `{"script":"secret"}`
	if w.story.Pool.Forged && report.Donor == w.nodeName(1) {
		custom, script = custom+donorsCommand, `{"script":"`+donorsCommand+`"}`
	}
	all := []toSave{{wire.CustomData, "", custom}}
	if w.story.Pool.Disk == "unread" {
		all, report.Unsaved = nil, []string{"customData: ovf-env.xml is no XML"}
	}
	for _, e := range w.story.Pool.Extensions {
		handler := kinds[e][1] + "." + kinds[e][2]
		switch {
		case e != "cse" || w.story.Pool.Settings == "":
			report.NoProtected = append(report.NoProtected, handler)
		case w.story.Pool.Settings == "sealed":
			all = append(all, toSave{wire.ProtectedSettings, handler, script})
		}
	}
	return all
}
