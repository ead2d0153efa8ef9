package simulate

import (
	"errors"
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

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/prove"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/test/azsimserver"
)

const tests = "tests" // namespace of a canary's tests

// testPods are what the pod of a canary's test may do on a clone.
var testPods = map[string]struct {
	fails bool
	ends  prove.Result
	says  []string // of the command's error, or for a test that passes of its findings
}{
	"passes":       {ends: prove.Passed},
	"passes late":  {ends: prove.Passed},
	"fails":        {true, prove.Failed, []string{"is quarantined: test: pool1-canary_", " failed its test (exit code 3): line 40 token=[redacted]", "the model was not changed"}},
	"hangs":        {true, prove.Failed, []string{"failed its test (exit code 137, DeadlineExceeded", "waits for the disk"}},
	"floods":       {true, prove.Failed, []string{"failed its test (exit code 1): again again"}},
	"init fails":   {true, prove.Failed, []string{"failed its test (exit code 2); mend the donor"}},
	"never ends":   {true, prove.Failed, []string{"failed its test (it did not end within 2m0s)"}},
	"unpullable":   {false, prove.NoResult, []string{"could not run its test: ErrImagePull: not found", "run the same command again"}},
	"unscheduled":  {false, prove.NoResult, []string{"could not run its test: it did not end within 2m0s"}},
	"deletes":      {false, prove.NoResult, []string{"has no result of its test: the pod was deleted before it ended"}},
	"shut down":    {false, prove.NoResult, []string{"could not run its test: Terminated: node shutdown"}},
	"over quota":   {false, prove.NoResult, []string{"could not run its test", "exceeded quota: pods"}},
	"node evicted": {false, prove.NoResult, []string{", as by an eviction"}},
}

// testJob is the file of a test as people write it; what is none of testPods is the file.
func testJob(does string) string {
	if _, known := testPods[does]; !known {
		return does
	}
	return fmt.Sprintf(`# what new nodes have to be able to do
apiVersion: batch/v1
kind: Job
metadata: {name: can-mount, namespace: %s}
spec:
  activeDeadlineSeconds: 120
  backoffLimit: 4
  template:
    metadata: {labels: {app: can-mount}}
    spec:
      serviceAccountName: tester
      restartPolicy: OnFailure
      nodeSelector: {kubernetes.io/os: linux}
      containers: [{name: test, image: "tools:1", command: [run, %q]}]
`, tests, does)
}

// testStarts plays the kubelet of a clone.
func (w *world) testStarts(p *corev1.Pod) {
	does, name := p.Spec.Containers[0].Command[1], p.Spec.Containers[0].Name
	if does == "unscheduled" {
		return
	}
	state := func(phase corev1.PodPhase, s corev1.ContainerState) {
		w.setStatus(p, corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{Name: name, State: s}}})
	}
	if does == "unpullable" {
		state(corev1.PodPending, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}})
		return
	}
	state(corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
	switch does {
	case "passes":
		w.after(20*time.Second, func() { w.podEnded(p, 0, []byte("ok\n")) })
	case "init fails":
		w.after(20*time.Second, func() {
			s := azsimserver.Ended(p, 2)
			first := s.ContainerStatuses[0]
			first.Name = "reach"
			s.InitContainerStatuses, s.ContainerStatuses[0].State = []corev1.ContainerStatus{first}, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}
			w.setStatus(p, s)
		})
	case "passes late":
		w.after(90*time.Second, func() { w.podEnded(p, 0, []byte("ok\n")) })
	case "fails":
		var lines []string
		for i := range 40 {
			lines = append(lines, fmt.Sprintf("line %d token=AKIAIOSFODNN7EXAMPLE%d", i+1, i))
		}
		w.after(20*time.Second, func() { w.podEnded(p, 3, []byte(strings.Join(lines, "\n")+"\n")) })
	case "floods":
		w.after(20*time.Second, func() { w.podEnded(p, 1, slices.Repeat([]byte(strings.Repeat("again ", 200)+"\n"), 6000)) })
	case "deletes":
		w.after(20*time.Second, func() { w.kube.Remove("pods", p.Namespace, p.Name) })
	case "shut down", "node evicted":
		w.after(20*time.Second, func() {
			if does == "node evicted" {
				return
			}
			s := corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Terminated", Message: "node shutdown",
				Conditions: []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "TerminationByKubelet"}}}
			s.ContainerStatuses = azsimserver.Ended(p, 143).ContainerStatuses
			w.setStatus(p, s)
		})
	case "hangs":
		w.after(time.Duration(*p.Spec.ActiveDeadlineSeconds)*time.Second, func() {
			w.podEnded(p, 137, []byte("waits \x1b[31mfor\u202e the disk\n")) // a terminal's orders
			w.kube.Change("pods", p.Namespace, p.Name, func(o runtime.Object) {
				o.(*corev1.Pod).Status.Reason = "DeadlineExceeded"
			})
		})
	}
}

// testsRun lists the pods of tests that are there.
func (w *world) testsRun() (all []*corev1.Pod) {
	w.kube.Each("pods", func(o runtime.Object) bool {
		if p := o.(*corev1.Pod); p.Namespace == tests {
			all = append(all, p)
		}
		return true
	})
	return all
}

// TestCanaryTest has clones run a user's test after they passed the gates: only a test that passes
// lets the version go live, and only one that fails quarantines it. The judge sees to the rest, and
// that no pod is left.
func TestCanaryTest(t *testing.T) {
	for does, want := range testPods {
		t.Run(does, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := provenFirst("")
				s.Pool.Spot = does == "node evicted"
				w := newWorld(s)
				defer w.close()
				image := w.imageNow()
				if does == "over quota" {
					w.kube.AdmitPod = func(p *corev1.Pod) error { // the dry run is for the donor
						if p.Namespace == tests && strings.Contains(p.Spec.NodeName, "-c") {
							return errors.New("exceeded quota: pods, requested: 1, used: 2, limited: 2")
						}
						return nil
					}
				}
				if does == "node evicted" {
					go func() {
						w.until(t, "a test runs", func() bool { return len(w.testsRun()) > 0 })
						w.make(http.MethodPost, fleet.CanaryOf(w.pool).Child("virtualMachines", "0")+"/deallocate", computeAPI, nil)
					}()
				}
				w.pursue(0, Ask{Do: "capture", Canary: 2, Auto: true, Test: does, Once: true})
				p := w.processes[0]
				text := fmt.Sprint(p.err)
				for _, says := range want.says {
					if !strings.Contains(text, says) {
						t.Errorf("it ends with %q, want %q", text, says)
					}
				}
				results := map[prove.Result]int{}
				for _, f := range p.capture.Canary {
					results[f.Result]++
					if len(f.Lines) > 20 || does == "fails" && f.Result == prove.Failed && (len(f.Lines) != 20 || strings.Contains(strings.Join(f.Lines, ""), "AKIA")) {
						t.Errorf("%s has %d lines: %q", f.Clone, len(f.Lines), f.Lines)
					}
				}
				if live := w.imageNow() != image; results[want.ends] == 0 || live != (want.ends == prove.Passed) || live && results[prove.Passed] != 2 {
					t.Errorf("the clones are %v, and the version is live: %t; want %s", results, live, want.ends)
				}
				if len(w.violations) > 0 || t.Failed() {
					t.Errorf("%s\n%s", strings.Join(w.violations, "\n"), strings.Join(w.lines, "\n"))
				}
			})
		})
	}
}

// TestCanaryTestIsGoneOnWith interrupts and kills a capture while the test runs: the same command
// runs the test again, of its own record's file, and leaves no pod.
func TestCanaryTestIsGoneOnWith(t *testing.T) {
	for name, end := range map[string]func(p *process){"Ctrl-C": (*process).interrupt, "killed": (*process).die} {
		for _, does := range []string{"passes late", "fails"} {
			t.Run(name+", "+does, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(provenFirst(""))
					defer w.finish()
					image := w.imageNow()
					p := w.beginCommand(t, Ask{Do: "capture", Canary: 2, Test: does})
					w.until(t, "both tests run", func() bool { return len(w.testsRun()) == 2 })
					end(p)
					if name == "Ctrl-C" {
						w.await(p)
						if left := w.testsRun(); p.code() != workflow.ExitInterrupted || len(left) > 0 {
							t.Errorf("Ctrl-C: exit %d, %d pods left: %v", p.code(), len(left), p.err)
						}
					}
					again := w.do(t, Ask{Do: "capture", Canary: 2}) // the record has the file
					live := w.imageNow() != image
					if passes := does != "fails"; live != passes || (again.code() == workflow.ExitDone) != passes || len(w.testsRun()) > 0 || !again.capture.Resumed {
						t.Errorf("exit %d, live %t, resumed %t, %d pods left: %v\n%s", again.code(), live, again.capture.Resumed, len(w.testsRun()), again.err, strings.Join(w.lines, "\n"))
					}
				})
			})
		}
	}
}

// TestCanaryTestIsRefused has each wrong file be refused before the donor is touched, in auto mode too.
func TestCanaryTestIsRefused(t *testing.T) {
	job := testJob("passes")
	with := func(from, to string) string { return strings.Replace(job, from, to, 1) }
	for what, c := range map[string]struct{ file, says string }{
		"second object":      {job + "---\napiVersion: v1\nkind: Secret\n", "it has a second object"},
		"second by its end":  {job + "...\napiVersion: v1\nkind: Secret\n", "it cannot be read"},
		"second of JSON":     {`{"apiVersion": "batch/v1", "kind": "Job"} {"kind": "Secret"}`, "it cannot be read"},
		"bomb":               {"a: &a [x,x,x,x,x,x,x,x,x]\n" + strings.Join(aliases("abcdefghij"), "\n") + "\n" + job, "excessive aliasing"},
		"other kind":         {with("kind: Job", "kind: CronJob"), `it has kind "CronJob" of "batch/v1"; give one Job of batch/v1`},
		"misspelled":         {with("backoffLimit", "backofLimit"), `it is no valid Job`},
		"parallelism":        {with("backoffLimit: 4", "parallelism: 2"), "its parallelism or completions is not 1"},
		"completions":        {with("backoffLimit: 4", "completions: 3"), "its parallelism or completions is not 1"},
		"nodeName":           {with("restartPolicy:", "nodeName: n\n      restartPolicy:"), "its pod chooses nodes"},
		"nodeSelector":       {with("os: linux", "hostname: n"), "its pod chooses nodes"},
		"affinity":           {with("restartPolicy:", "affinity: {nodeAffinity: {}}\n      restartPolicy:"), "its pod chooses nodes"},
		"no namespace":       {with(", namespace: tests", ""), "it has no metadata.namespace"},
		"Ortet's namespace":  {with("namespace: tests", "namespace: "+namespace), "is Ortet's own"},
		"missing namespace":  {with("namespace: tests", "namespace: nowhere"), `namespaces "nowhere" not found; create it: kubectl create namespace nowhere`},
		"missing account":    {with("tester", "nobody"), `serviceaccount "nobody" not found`},
		"too large":          {job + strings.Repeat("#", 64<<10), "more than 64 KiB"},
		"deadline of a day":  {with("120", "86400"), "its activeDeadlineSeconds is 86400; give 1 to 3600"},
		"what is not a file": {"\x00\x01", "it cannot be read"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(Story{Seed: 1, Pool: usual})
				defer w.close()
				w.pursue(0, Ask{Do: "capture", Canary: 2, Auto: true, Test: c.file, Once: true})
				p := w.processes[0]
				if !workflow.RefusedFor(p.err, "CanaryTest") || !strings.Contains(fmt.Sprint(p.err), c.says) || w.counts[powerOff] > 0 {
					t.Errorf("exit %d, %d stops: %v; want %q", p.code(), w.counts[powerOff], p.err, c.says)
				}
			})
		})
	}
}

// aliases are lines of YAML of which each repeats the one before nine times.
func aliases(names string) (lines []string) {
	for i := range names[1:] {
		lines = append(lines, fmt.Sprintf("%[2]c: &%[2]c [%[1]s]", strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", names[i]), 9), ","), names[i+1]))
	}
	return lines
}

// TestCanaryTestFindsLeftovers has a pod of an earlier capture's test be there: its label finds it.
func TestCanaryTestFindsLeftovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(provenFirst(""))
		defer w.finish()
		p := w.beginCommand(t, Ask{Do: "capture", Canary: 2, Test: "passes late"})
		w.until(t, "a test runs", func() bool { return len(w.testsRun()) > 0 })
		left := w.testsRun()[0].DeepCopy()
		left.Name, left.UID, left.ResourceVersion = "canary-test-earlier", "", ""
		w.kube.Put(left)
		w.kube.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: tests, Name: "another-teams"}, Spec: corev1.PodSpec{NodeName: "n"}})
		w.await(p)
		if got := w.testsRun(); p.code() != workflow.ExitDone || len(got) != 1 || got[0].Name != "another-teams" {
			t.Errorf("exit %d, %d pods are left, want another team's alone: %v", p.code(), len(got), p.err)
		}
	})
}
