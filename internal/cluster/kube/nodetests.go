package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	yaml3 "go.yaml.in/yaml/v3"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/cluster/apierror"
	"github.com/ortet/ortet/internal/fleet"
)

const (
	labelTest = "ortet.io/canary-test" // its value is the pool's

	testFor      = 10 * time.Minute // of a Job without activeDeadlineSeconds
	maxTestFor   = time.Hour
	testStartFor = 2 * time.Minute // a pod that cannot start, and the report of one's end
	testLines    = 200             // that are read of its log: what is redacted may span many
)

// ParseTest reads a test's file: one Job of batch/v1 that can run once on a node that others choose.
// own is Ortet's namespace, which is refused. The error says what to change.
func ParseTest(file, own string) (*batchv1.Job, error) {
	if len(file) > cluster.MaxTestFile {
		return nil, fmt.Errorf("it has more than %d KiB; leave out what is not the test", cluster.MaxTestFile>>10)
	}
	var found []byte
	for documents := yaml3.NewDecoder(strings.NewReader(file)); ; { // also those after "...", which others pass over
		var content yaml3.Node
		err := documents.Decode(&content)
		if errors.Is(err, io.EOF) {
			break
		}
		switch empty := len(content.Content) == 0 || content.Content[0].Tag == "!!null"; {
		case err != nil:
			return nil, fmt.Errorf("it cannot be read: %w", err)
		case empty:
		case found != nil:
			return nil, errors.New("it has a second object; leave the Job alone, and apply the others with kubectl")
		default:
			if found, err = yaml3.Marshal(&content); err != nil {
				return nil, fmt.Errorf("it cannot be read: %w", err)
			}
		}
	}
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(found, &kind); err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	} else if kind.APIVersion != "batch/v1" || kind.Kind != "Job" {
		return nil, fmt.Errorf("it has kind %q of %q; give one Job of batch/v1", kind.Kind, kind.APIVersion)
	}
	var job batchv1.Job
	if err := yaml.UnmarshalStrict(found, &job); err != nil {
		return nil, fmt.Errorf("it is no valid Job: %w", err)
	}
	spec, pod := job.Spec, job.Spec.Template.Spec
	within := cmp.Or(spec.ActiveDeadlineSeconds, pod.ActiveDeadlineSeconds, ptr(int64(testFor/time.Second)))
	pins := maps.Clone(pod.NodeSelector)
	maps.DeleteFunc(pins, func(key, value string) bool { return key == corev1.LabelOSStable && value == "linux" })
	many := func(n *int32) bool { return n != nil && *n != 1 }
	switch {
	case many(spec.Parallelism), many(spec.Completions):
		return nil, errors.New("its parallelism or completions is not 1; remove both: its pod runs once on each clone")
	case pod.NodeName != "", len(pins) > 0, pod.Affinity != nil, len(pod.TopologySpreadConstraints) > 0:
		return nil, errors.New("its pod chooses nodes (nodeName, nodeSelector, affinity or topologySpreadConstraints); remove these: its pod runs on each clone")
	case job.Namespace == "":
		return nil, errors.New("it has no metadata.namespace; name the namespace in which its pods run")
	case job.Namespace == own:
		return nil, fmt.Errorf("its namespace %s is Ortet's own, whose Secrets hold saved settings; give the test another namespace", own)
	case *within < 1, *within > int64(maxTestFor/time.Second):
		return nil, fmt.Errorf("its activeDeadlineSeconds is %d; give 1 to %d", *within, maxTestFor/time.Second)
	}
	job.Spec.ActiveDeadlineSeconds = within
	return &job, nil
}

func (c *Cluster) parseTest(op, file string) (*batchv1.Job, error) {
	job, err := ParseTest(file, c.namespace)
	if err != nil {
		return nil, &fleet.Error{Op: op, Resource: "the Job of the test", Kind: fleet.KindInvalid, Err: err}
	}
	return job, nil
}

// testPod makes the pod of a test on its node.
func (c *Cluster) testPod(op string, test cluster.NodeTest) (*corev1.Pod, error) {
	job, err := c.parseTest(op, test.File)
	if err != nil {
		return nil, err
	}
	of := job.Spec.Template // of its metadata no finalizer or owner, which would keep the pod or end it
	pod := &corev1.Pod{ObjectMeta: c.ours("canary-test-"+test.Node, "canary-test"), Spec: of.Spec}
	pod.Namespace, pod.Labels[labelTest], pod.Labels[fleet.AnnotationCapture] = job.Namespace, testsOf(test.Pool), test.Capture
	pod.Labels, pod.Annotations = merged(of.Labels, pod.Labels), merged(of.Annotations, pod.Annotations)
	for _, selects := range []string{batchv1.ControllerUidLabel, batchv1.JobNameLabel, "controller-uid", "job-name"} {
		delete(pod.Labels, selects) // as kubectl get shows them: that Job would adopt the pod, and may delete it
	}
	pod.Spec.NodeName, pod.Spec.RestartPolicy, pod.Spec.ActiveDeadlineSeconds = test.Node, corev1.RestartPolicyNever, job.Spec.ActiveDeadlineSeconds
	return pod, nil
}

func testsOf(pool fleet.ResourceID) string { return objectName("of", string(pool)) }

func merged(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	return out
}

func onTest(op, verb, subresource string, pod *corev1.Pod) act {
	return act{op: op, on: "pod " + pod.Namespace + "/" + pod.Name,
		access: cluster.Access{Verb: verb, Resource: "pods", Subresource: subresource, Namespace: pod.Namespace}}
}

// CheckTest creates the pod in a dry run.
func (c *Cluster) CheckTest(ctx context.Context, test cluster.NodeTest) error {
	return c.createTest(ctx, "check test", test, metav1.DryRunAll)
}

// StartTest creates the pod, unless it exists.
func (c *Cluster) StartTest(ctx context.Context, test cluster.NodeTest) error {
	return c.createTest(ctx, "start test", test)
}

func (c *Cluster) createTest(ctx context.Context, op string, test cluster.NodeTest, dry ...string) error {
	pod, err := c.testPod(op, test)
	if err != nil {
		return err
	}
	a, pods := onTest(op, "create", "", pod), c.client.CoreV1().Pods(pod.Namespace)
	_, err = pods.Create(ctx, pod, metav1.CreateOptions{FieldManager: fieldManager, DryRun: dry})
	if !apierrors.IsAlreadyExists(err) {
		err = a.fail(ctx, err)
		if failed := new(fleet.Error); errors.As(err, &failed) && failed.Code == apierror.NamespaceNotFound { // it needs no label for Ortet's own pods
			failed.Remedy = "create it: kubectl create namespace " + pod.Namespace
		}
		return err
	}
	there, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return onTest("read test", "get", "", pod).fail(ctx, err)
	case there.Labels[labelTest] != pod.Labels[labelTest]:
		return &fleet.Error{Op: a.op, Resource: a.on, Kind: fleet.KindInvalid,
			Err: errors.New("a pod of that name exists that Ortet did not make"), Remedy: "delete it if it is not needed"}
	case there.DeletionTimestamp == nil && there.Labels[fleet.AnnotationCapture] == test.Capture:
		return nil
	case there.DeletionTimestamp == nil: // what it found is of a clone of an earlier capture
		if err := c.deleteTest(ctx, there); err != nil {
			return err
		}
	}
	return &fleet.Error{Op: a.op, Resource: a.on, Kind: fleet.KindConflict,
		Err: errors.New("a pod of that name is still being deleted"), RetryAfter: time.Second}
}

// Test reads the pod. Of several containers the first that failed has the log that counts.
func (c *Cluster) Test(ctx context.Context, test cluster.NodeTest) (cluster.JobState, error) {
	want, err := c.testPod("read test", test)
	if err != nil {
		return cluster.JobState{}, err
	}
	pod, err := c.client.CoreV1().Pods(want.Namespace).Get(ctx, want.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return cluster.JobState{}, nil
	}
	if err != nil {
		return cluster.JobState{}, onTest("read test", "get", "", want).fail(ctx, err)
	}
	state, container := judgeTest(pod, c.Now().Sub(pod.CreationTimestamp.Time), time.Duration(*want.Spec.ActiveDeadlineSeconds)*time.Second)
	if state.Done && state.Ran && state.ExitCode != 0 {
		output, err := c.output(ctx, onTest("read the log of test", "get", "log", want), pod.Name, container, testLines)
		if fleet.Is(err, fleet.KindTransient, fleet.KindThrottled, fleet.KindTimedOut) || ctx.Err() != nil {
			return state, err
		} else if err != nil { // the result counts without its lines
			c.log.DebugContext(ctx, "cannot read the log of a test", "pod", pod.Name, "error", err)
		}
		state.Output = output
	}
	return state, nil
}

// judgeTest returns how far the pod is, and the container whose end decides. A pod that was
// evicted, as by its node's shutdown, did not run.
func judgeTest(pod *corev1.Pod, age, within time.Duration) (s cluster.JobState, decides string) {
	s = cluster.JobState{Exists: true, ExitCode: -1}
	phase, main := pod.Status.Phase, len(pod.Status.ContainerStatuses)
	for i, status := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
		end, waits := status.State.Terminated, status.State.Waiting
		begun := end != nil && end.Reason != "StartError" && end.Reason != "ContainerCannotRun" && end.Reason != "ContainerStatusUnknown"
		failed := begun && end.ExitCode != 0
		s.Ran = s.Ran || failed || i < main && (begun || status.State.Running != nil)
		switch {
		case failed && s.ExitCode <= 0:
			s.ExitCode, decides = end.ExitCode, status.Name
			if end.Reason != "Error" {
				s.Why = end.Reason // OOMKilled
			}
		case end != nil && !begun && s.Why == "":
			s.Why = joined(end.Reason, end.Message)
		case waits != nil && s.Why == "" && waits.Reason != "ContainerCreating" && waits.Reason != "PodInitializing":
			s.Why = joined(waits.Reason, waits.Message)
		}
	}
	if main > 0 {
		decides = cmp.Or(decides, pod.Status.ContainerStatuses[0].Name)
	}
	if phase == corev1.PodSucceeded {
		s.Done, s.Ran, s.ExitCode = true, true, 0
		return s, decides
	}
	s.Done = phase == corev1.PodFailed
	s.Why = cmp.Or(joined(pod.Status.Reason, pod.Status.Message), s.Why)
	switch {
	case slices.ContainsFunc(pod.Status.Conditions, func(x corev1.PodCondition) bool {
		return x.Type == corev1.DisruptionTarget && x.Status == corev1.ConditionTrue
	}):
		s.Ran, s.Why = false, cmp.Or(s.Why, "the pod was evicted")
	case !s.Done && age > within+testStartFor:
		s.Done, s.Why = true, cmp.Or(s.Why, "it did not end within "+within.String())
	case !s.Done && !s.Ran && s.Why != "" && age > testStartFor:
		s.Done = true
	}
	return s, decides
}

// DeleteTests finds the pods by their label.
func (c *Cluster) DeleteTests(ctx context.Context, file string, pool fleet.ResourceID) error {
	job, err := c.parseTest("delete tests", file)
	if err != nil {
		return err
	}
	pods := c.client.CoreV1().Pods(job.Namespace)
	a := act{op: "list pods", on: "namespace " + job.Namespace, access: cluster.Access{Verb: "list", Resource: "pods"}}
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: labelTest + "=" + testsOf(pool)})
	if err != nil {
		return a.fail(ctx, err)
	}
	for i := range list.Items {
		if err := c.deleteTest(ctx, &list.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) deleteTest(ctx context.Context, pod *corev1.Pod) error {
	err := c.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return onTest("delete test", "delete", "", pod).fail(ctx, err)
	}
	return nil
}
