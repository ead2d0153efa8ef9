package controller

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/internal/fleet"
)

var (
	oursTaint   = corev1.Taint{Key: fleet.TaintUnproven, Effect: corev1.TaintEffectNoSchedule}
	theirsTaint = corev1.Taint{Key: "theirs", Value: "v", Effect: corev1.TaintEffectNoExecute}
)

// unprovenNode became Ready at noon; a condition without a status is none.
func unprovenNode(ready, verdict corev1.ConditionStatus, taints ...corev1.Taint) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "pool1000003", UID: "u"}, Spec: corev1.NodeSpec{Taints: taints}}
	n.Status.NodeInfo.SystemUUID = someVM
	for kind, status := range map[corev1.NodeConditionType]corev1.ConditionStatus{corev1.NodeReady: ready, fleet.ConditionBootSucceeded: verdict} {
		if status != "" {
			c := corev1.NodeCondition{Type: kind, Status: status, LastTransitionTime: metav1.NewTime(noon)}
			n.Status.Conditions = append(n.Status.Conditions, c)
		}
	}
	return n
}

func lifterAt(now time.Time, c client.Client) lifter {
	config := Config{Now: func() time.Time { return now }, LiftAfter: 15 * time.Minute, Log: slog.New(slog.DiscardHandler)}
	return lifter{&reconciler{config: config, client: c, nodes: trimming{c}}}
}

func taintsNow(t *testing.T, c client.Client) []corev1.Taint {
	t.Helper()
	var n corev1.Node
	if err := c.Get(t.Context(), client.ObjectKey{Name: "pool1000003"}, &n); err != nil {
		t.Fatal(err)
	}
	return n.Spec.Taints
}

func TestTaintIsLiftedWithTheVerdict(t *testing.T) {
	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse
	weaker := corev1.Taint{Key: fleet.TaintUnproven, Effect: corev1.TaintEffectPreferNoSchedule}
	for name, c := range map[string]struct {
		node *corev1.Node
		age  time.Duration // since it became Ready
		left []corev1.Taint
		wait time.Duration
	}{
		"it came up":                       {unprovenNode(yes, yes, theirsTaint, oursTaint), time.Minute, []corev1.Taint{theirsTaint}, 0},
		"of all its taints it was one":     {unprovenNode(yes, yes, oursTaint), time.Minute, nil, 0},
		"it came up, and stopped":          {unprovenNode(no, yes, oursTaint), time.Minute, nil, 0},
		"the effect is another":            {unprovenNode(yes, yes, weaker), time.Hour, []corev1.Taint{weaker}, 0},
		"it failed":                        {unprovenNode(no, no, oursTaint), time.Hour, []corev1.Taint{oursTaint}, 0},
		"it failed, and is Ready":          {unprovenNode(yes, no, oursTaint), time.Hour, []corev1.Taint{oursTaint}, 0},
		"no verdict, not Ready":            {unprovenNode(no, "", oursTaint), time.Hour, []corev1.Taint{oursTaint}, 0},
		"no verdict, no kubelet yet":       {unprovenNode("", "", oursTaint), time.Hour, []corev1.Taint{oursTaint}, 0},
		"no verdict, Ready":                {unprovenNode(yes, "", oursTaint), 5 * time.Minute, []corev1.Taint{oursTaint}, 10 * time.Minute},
		"no verdict, Ready for 15 minutes": {unprovenNode(yes, "", theirsTaint, oursTaint), 15 * time.Minute, []corev1.Taint{theirsTaint}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			api := fake.NewClientBuilder().WithObjects(c.node).Build()
			result, err := lifterAt(noon.Add(c.age), api).Reconcile(t.Context(), request("pool1000003"))
			if err != nil || result.RequeueAfter != c.wait {
				t.Errorf("%v, and again in %s", err, result.RequeueAfter)
			}
			if left := taintsNow(t, api); !slices.Equal(left, c.left) {
				t.Errorf("its taints are %v, want %v", left, c.left)
			}
		})
	}
}

// Between the read and the write somebody else taints the Node: its taint stays, and ours is
// removed the next time. Where the right is missing, that is an error and not silence.
func TestTaintOfOthersIsKept(t *testing.T) {
	var meanwhile func(client.WithWatch) error
	node := unprovenNode(corev1.ConditionTrue, corev1.ConditionTrue, oursTaint)
	api := fake.NewClientBuilder().WithObjects(node).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			if err := meanwhile(c); err != nil {
				return err
			}
			return c.Patch(ctx, o, patch, options...)
		}}).Build()
	l := lifterAt(noon, api)
	meanwhile = func(c client.WithWatch) error {
		var n corev1.Node
		err := c.Get(t.Context(), client.ObjectKey{Name: "pool1000003"}, &n)
		n.Spec.Taints = append(n.Spec.Taints, theirsTaint)
		return errors.Join(err, c.Update(t.Context(), &n))
	}
	result, err := l.Reconcile(t.Context(), request("pool1000003"))
	if left := taintsNow(t, api); err != nil || result.RequeueAfter <= 0 || !slices.Equal(left, []corev1.Taint{oursTaint, theirsTaint}) {
		t.Errorf("after somebody's taint: %v, %v, again in %s", left, err, result.RequeueAfter)
	}
	meanwhile = func(client.WithWatch) error { return errors.New("nodes is forbidden") }
	if _, err := l.Reconcile(t.Context(), request("pool1000003")); err == nil {
		t.Error("without the right it is silent")
	}
	meanwhile = func(client.WithWatch) error { return nil }
	_, err = l.Reconcile(t.Context(), request("pool1000003"))
	if left := taintsNow(t, api); err != nil || !slices.Equal(left, []corev1.Taint{theirsTaint}) {
		t.Errorf("the next time: %v, %v", left, err)
	}
}

// The files for users name the taints and the condition that the code has.
func TestReadinessFilesNameTheTaints(t *testing.T) {
	const folder = "../../../deploy/readiness/"
	read := func(file string, into any) {
		t.Helper()
		text, err := os.ReadFile(folder + file)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(text, into); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	for file, key := range map[string]string{"kubelet-lift.conf": fleet.TaintUnproven, "kubelet-rule.conf": fleet.TaintReadiness} {
		var k kubelet.KubeletConfiguration
		read(file, &k)
		want := []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}}
		if !slices.Equal(k.RegisterWithTaints, want) || k.Kind != "KubeletConfiguration" || k.APIVersion != kubelet.SchemeGroupVersion.String() {
			t.Errorf("%s: %s %s registers with %v", file, k.APIVersion, k.Kind, k.RegisterWithTaints)
		}
	}
	var rule struct {
		Spec struct {
			Conditions []struct{ Type, RequiredStatus string }
			Taint      corev1.Taint
		}
	}
	text, err := os.ReadFile(folder + "rule.yaml")
	if err == nil {
		text, err = yaml.YAMLToJSON(text)
	}
	if err := errors.Join(err, json.Unmarshal(text, &rule)); err != nil {
		t.Fatal(err)
	}
	if s := rule.Spec; s.Taint.Key != fleet.TaintReadiness || s.Taint.Effect != corev1.TaintEffectNoSchedule ||
		len(s.Conditions) != 1 || s.Conditions[0].Type != fleet.ConditionBootSucceeded || s.Conditions[0].RequiredStatus != "True" {
		t.Errorf("the rule: %+v", s)
	}
}
