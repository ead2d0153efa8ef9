package play

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/internal/node/generalize/program"
	"github.com/ortet/ortet/test/kubesim"
)

// kubeServed plays the kubelet of a pod of Ortet's that was made.
func (w *world) kubeServed(r kubesim.Request) {
	if r.Verb != "create" || r.Resource != "pods" || r.Subresource != "" || r.Status >= 300 {
		return
	}
	var begun []*corev1.Pod
	w.kube.Each("pods", func(o runtime.Object) bool {
		p := o.(*corev1.Pod)
		w.mu.Lock()
		defer w.mu.Unlock()
		if p.Namespace == namespace && !w.begun[p.UID] {
			w.begun[p.UID] = true
			begun = append(begun, p)
		}
		return true
	})
	for _, p := range begun {
		w.after(w.between(podStarts, 2*podStarts, "pod", p.Name, p.UID), func() { w.podStarts(p) })
	}
}

// runs reports whether the very pod is there, on a computer that runs.
func (w *world) runs(p *corev1.Pod) (*computer, bool) {
	now, ok := w.kube.Get("pods", p.Namespace, p.Name).(*corev1.Pod)
	if !ok || now.UID != p.UID || now.DeletionTimestamp != nil {
		return nil, false
	}
	c := w.computerOf(p.Spec.NodeName)
	if c == nil {
		return nil, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return c, c.running
}

func (w *world) podStarts(p *corev1.Pod) {
	c, ok := w.runs(p)
	if !ok {
		return
	}
	if d := p.Spec.ActiveDeadlineSeconds; d != nil {
		w.after(time.Duration(*d)*time.Second, func() { w.overdue(p) })
	}
	w.status(p, corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
		Name: p.Spec.Containers[0].Name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}})
	command := p.Spec.Containers[0].Command
	if slices.Contains(command, "--inspect") {
		w.after(time.Second, func() {
			if _, ok := w.runs(p); ok {
				if w.hasFiles() {
					w.inspect(p, command)
				} else {
					w.inspectMadeUp(p, command)
				}
			}
		})
		return
	}
	w.mu.Lock()
	life := c.life
	d := w.attachedDisk(c)
	if d != nil {
		if d.user != "" {
			defer w.broken("the pod %s was let loose on an OS disk in use", p.Name)
		}
		d.writes++
		if !d.generalized {
			// Nobody knows what a pod that was lost has done.
			d.half = d.half || d.partly
			d.partly = true
		}
	}
	w.mu.Unlock()
	w.after(w.between(generalizing/4, generalizing, "generalize", p.Name, p.UID), func() {
		if w.hasFiles() {
			w.generalized(p, c, life, d, command)
		} else {
			w.generalizeMadeUp(p, c, life, d, command)
		}
	})
}

// overdue ends a pod that has reached its activeDeadlineSeconds.
func (w *world) overdue(p *corev1.Pod) {
	if _, ok := w.runs(p); !ok {
		return
	}
	w.kube.Change("pods", p.Namespace, p.Name, func(o runtime.Object) {
		if now := o.(*corev1.Pod); now.Status.Phase == corev1.PodRunning {
			now.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "DeadlineExceeded", Message: "Pod was active on the node longer than the specified deadline"}
		}
	})
}

// attachedDisk is the one disk that hangs on the computer.
func (w *world) attachedDisk(c *computer) *disk {
	for _, lun := range slices.Sorted(maps.Keys(c.luns)) {
		return w.disks[c.luns[lun]]
	}
	return nil
}

func (w *world) status(p *corev1.Pod, s corev1.PodStatus) {
	w.kube.Change("pods", p.Namespace, p.Name, func(o runtime.Object) { o.(*corev1.Pod).Status = s })
}

// ended is a pod whose container ended.
func (w *world) ended(p *corev1.Pod, code int32, reason string, said []byte) {
	w.mu.Lock()
	w.logs[p.Namespace+"/"+p.Name] = said
	w.mu.Unlock()
	phase := corev1.PodSucceeded
	if code != 0 {
		phase = corev1.PodFailed
	}
	w.status(p, corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{
		Name: p.Spec.Containers[0].Name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason}},
	}}})
}

func (w *world) log(namespace, pod string) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.logs[namespace+"/"+pod]
}

func flagOf(command []string, name string) string {
	if i := slices.Index(command, name); i >= 0 && i+1 < len(command) {
		return command[i+1]
	}
	return ""
}

// flagsOf gives the values of a flag that may be repeated.
func flagsOf(command []string, name string) (all []string) {
	for i, word := range command[:max(0, len(command)-1)] {
		if word == name {
			all = append(all, command[i+1])
		}
	}
	return all
}

// inspect is the end of ortet-node generalize --inspect, which runs on the donor's disk.
func (w *world) inspect(p *corev1.Pod, command []string) {
	before := w.contentOfNode(p.Spec.NodeName)
	if before == nil || w.losesInspection(p.Spec.NodeName) {
		w.ended(p, 137, "OOMKilled", []byte("killed\n"))
		return
	}
	run := w.agent(p, command, before, 0)
	w.judgeInspected(p.Name, before, run.left)
	w.ended(p, run.code, "", run.said)
}

// generalized is the end of ortet-node generalize.
func (w *world) generalized(p *corev1.Pod, c *computer, life int, d *disk, command []string) {
	w.mu.Lock()
	there := d != nil && w.attachedDisk(c) == d
	kill := w.story.Donor.Disk == "lost" && !w.lost
	w.lost = w.lost || kill
	var before *content
	if there {
		before = w.contentOf(d)
	}
	w.mu.Unlock()
	_, runs := w.runs(p)
	dies := !runs || !w.lives(c, life)
	point := 0
	if kill || dies {
		point = 1 + int(w.hash("what the agent had done", p.Name, p.UID)%mostWritten)
	}
	run := w.agent(p, command, before, point)
	if before != nil {
		w.mu.Lock()
		d.content = before.with(run.left)
		if point == 0 && run.code == program.ExitGeneralized {
			d.generalized, d.partly, d.host = true, d.half, ""
		}
		w.mu.Unlock()
	}
	switch {
	case dies:
		w.podLost(p, 0)
		return
	case kill:
		w.ended(p, 137, "OOMKilled", run.said)
		return
	case run.code == program.ExitGeneralized && slices.Contains(command, "--accept-pool-credentials") && !w.accepts():
		w.broken("the pod %s accepts the pool's credentials, and nobody who asked does", p.Name)
	}
	w.ended(p, run.code, "", run.said)
}

// accepts reports whether anybody asked for the pool's credentials in the image.
func (w *world) accepts() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.processes, func(p *process) bool { return p.ask.Accept })
}

// podLost has a kubelet that comes back say that the pod is no more.
func (w *world) podLost(p *corev1.Pod, tries int) {
	now, ok := w.kube.Get("pods", p.Namespace, p.Name).(*corev1.Pod)
	if !ok || now.UID != p.UID || tries > 100 {
		return
	}
	if _, ok := w.runs(p); !ok {
		w.after(30*time.Second, func() { w.podLost(p, tries+1) })
		return
	}
	w.status(p, corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Terminated", Message: "Pod was terminated in response to imminent node shutdown."})
}
