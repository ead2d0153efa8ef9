package clustertest

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
)

// nodeTestLife checks, starts, reads and deletes a test in a namespace that is not Ortet's.
func nodeTestLife(w *world) {
	file := `apiVersion: batch/v1
kind: Job
metadata: {name: works, namespace: ` + w.setup.Tests + `}
spec:
  activeDeadlineSeconds: 60
  template:
    metadata: {labels: {app: works, ortet.io/canary-test: theirs, batch.kubernetes.io/controller-uid: a, job-name: works}, finalizers: [example.com/stay]}
    spec: {serviceAccountName: default, restartPolicy: OnFailure, containers: [{name: works, image: example.invalid/works}]}
`
	node, pods := w.cordoned(), w.admin.CoreV1().Pods(w.setup.Tests)
	test := cluster.NodeTest{File: file, Node: node, Pool: fleet.ResourceID("/pools/" + w.name), Capture: "c1"}
	there := func() []corev1.Pod {
		list, err := pods.List(w.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
		w.must(err, "list the tests' pods")
		return list.Items
	}

	nobody, own := test, test
	nobody.File = strings.Replace(file, "serviceAccountName: default", "serviceAccountName: nobody", 1)
	own.File = strings.Replace(file, "namespace: "+w.setup.Tests, "namespace: "+w.setup.Namespace, 1)
	err := w.under.CheckTest(w.ctx, nobody)
	if w.wantKind(err, fleet.KindDenied, "check a test whose account is missing"); !strings.Contains(err.Error(), `serviceaccount "nobody" not found`) {
		w.Errorf("the missing account is not named: %v", err)
	}
	w.wantKind(w.under.StartTest(w.ctx, own), fleet.KindInvalid, "start a test in Ortet's namespace")
	w.must(w.under.CheckTest(w.ctx, test), "check")
	if got := there(); len(got) > 0 {
		w.Errorf("checks left %d pods", len(got))
	}
	if s, err := w.under.Test(w.ctx, test); err != nil || s.Exists {
		w.Errorf("before the start: %+v, %v", s, err)
	}

	w.must(w.under.StartTest(w.ctx, test), "start")
	w.must(w.under.StartTest(w.ctx, test), "start again")
	got := there()
	if len(got) != 1 {
		w.Fatalf("%d pods, want 1", len(got))
	}
	p := got[0]
	if p.Spec.RestartPolicy != corev1.RestartPolicyNever || p.Spec.ActiveDeadlineSeconds == nil || *p.Spec.ActiveDeadlineSeconds != 60 || p.Labels["app"] != "works" || len(p.Finalizers) > 0 || p.Labels["job-name"]+p.Labels["batch.kubernetes.io/controller-uid"] != "" {
		w.Errorf("the pod is not the Job's, to be run once: %+v", p)
	}
	if s, err := w.under.Test(w.ctx, test); err != nil || !s.Exists || s.Done || s.Ran {
		w.Errorf("once started: %+v, %v", s, err)
	}
	p.Status.Phase = corev1.PodSucceeded
	_, err = pods.UpdateStatus(w.ctx, &p, metav1.UpdateOptions{})
	w.must(err, "report the pod's end")
	if s, err := w.under.Test(w.ctx, test); err != nil || !s.Done || !s.Ran || s.ExitCode != 0 {
		w.Errorf("once ended: %+v, %v", s, err)
	}

	later := test
	later.Capture = "c2"
	for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		if err = w.under.StartTest(w.ctx, later); !fleet.Is(err, fleet.KindConflict) || time.Since(begun) > time.Minute {
			break
		}
	}
	if w.must(err, "start the test of a later capture"); there()[0].UID == p.UID {
		w.Errorf("the pod of an earlier capture counts as a later one's")
	}

	w.must(w.under.DeleteTests(w.ctx, file, "/pools/another"), "delete the tests of another pool")
	if left := there(); len(left) != 1 {
		w.Errorf("%d pods after the deletion of another pool's, want 1", len(left))
	}
	w.must(w.under.DeleteTests(w.ctx, file, test.Pool), "delete")
	w.must(w.under.DeleteTests(w.ctx, file, test.Pool), "delete again")
	if left := there(); len(left) > 0 {
		w.Errorf("%d pods after the deletion", len(left))
	}
}
