package clustertest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// What follows asks the API server itself what implementations rely on, so that
// what stands in for one is found out where it differs.

// says ends the test where the error has not the reason and the text.
func (w *world) says(err error, reason metav1.StatusReason, text string) {
	w.Helper()
	if apierrors.ReasonForError(err) != reason || !strings.Contains(err.Error(), text) {
		w.Fatalf("got %v (reason %q), want %q saying %q", err, apierrors.ReasonForError(err), reason, text)
	}
}

const modified = "the object has been modified; please apply your changes to the latest version and try again"

func (w *world) patchNode(name, patch string) (*corev1.Node, error) {
	w.Helper()
	return w.admin.CoreV1().Nodes().Patch(w.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "clustertest"})
}

// serverPatch is what a merge patch changes, what it leaves, and when it is
// refused.
func serverPatch(w *world) {
	name := w.node("", func(n *corev1.Node) {
		n.Annotations = map[string]string{"theirs": "1"}
		n.Spec.Taints = []corev1.Taint{{Key: "theirs", Effect: corev1.TaintEffectPreferNoSchedule}}
	})
	first, err := w.patchNode(name, `{"metadata":{"annotations":{"ours":"2"}},"spec":{"unschedulable":true},"status":{"nodeInfo":{"bootID":"other"}}}`)
	w.must(err, "patch")
	if first.Annotations["theirs"] != "1" || first.Annotations["ours"] != "2" || !first.Spec.Unschedulable || first.Status.NodeInfo.BootID != "boot" || len(first.Spec.Taints) == 0 {
		w.Errorf("%+v", first)
	}
	// The node lifecycle controller may write a taint, a label or a condition meanwhile.
	again, before := first, ""
	for n := 0; n < 5 && again.ResourceVersion != before; n++ {
		before = again.ResourceVersion
		again, err = w.patchNode(name, `{"metadata":{"annotations":{"ours":"2"}},"spec":{"unschedulable":true}}`)
		w.must(err, "patch again")
	}
	if again.ResourceVersion != before {
		w.Errorf("each of five patches that change nothing made a version, the last %s of %s", again.ResourceVersion, before)
	}
	second, err := w.patchNode(name, `{"metadata":{"annotations":{"ours":null,"absent":null}},"spec":{"unschedulable":null}}`)
	w.must(err, "patch with null")
	if _, there := second.Annotations["ours"]; there || second.Annotations["theirs"] != "1" || second.Spec.Unschedulable || second.ResourceVersion == first.ResourceVersion {
		w.Errorf("%+v", second)
	}
	_, err = w.patchNode(name, fmt.Sprintf(`{"metadata":{"annotations":{"x":"y"},"resourceVersion":%q}}`, first.ResourceVersion))
	w.says(err, metav1.StatusReasonConflict, fmt.Sprintf("Operation cannot be fulfilled on nodes %q: %s", name, modified))
	_, err = w.patchNode(name, `{"metadata":{"annotations":{"x":"y"},"uid":"another"}}`)
	w.says(err, metav1.StatusReasonInvalid, `metadata.uid: Invalid value: "another": field is immutable`)
	_, err = w.patchNode(name, `{"metadata":{"annotations":{"not a key":"y"}}}`)
	w.says(err, metav1.StatusReasonInvalid, "metadata.annotations")
	_, err = w.patchNode(name, `{"metadata":{"annotations":{"x":1}}}`)
	w.says(err, metav1.StatusReasonInvalid, "")
	_, err = w.patchNode(w.name+"-none", `{"metadata":{"annotations":{"x":"y"}}}`)
	w.says(err, metav1.StatusReasonNotFound, fmt.Sprintf("nodes %q not found", w.name+"-none"))

	// Finalizers are a list that a strategic merge patch adds to.
	for patch, want := range map[types.PatchType]string{types.StrategicMergePatchType: "[example.com/a example.com/b]", types.MergePatchType: "[example.com/b]"} {
		secrets := w.admin.CoreV1().Secrets(w.setup.Namespace)
		_, err = secrets.Create(w.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: w.name, Finalizers: []string{"example.com/a"}}}, metav1.CreateOptions{})
		w.must(err, "make a Secret")
		patched, err := secrets.Patch(w.ctx, w.name, patch, []byte(`{"metadata":{"finalizers":["example.com/b"]}}`), metav1.PatchOptions{})
		w.must(err, "patch a list")
		slices.Sort(patched.Finalizers)
		if got := fmt.Sprint(patched.Finalizers); got != want {
			w.Errorf("%s: %s, want %s", patch, got, want)
		}
		_, err = secrets.Patch(w.ctx, w.name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		w.must(err, "take the finalizers away")
		w.must(secrets.Delete(w.ctx, w.name, metav1.DeleteOptions{}), "delete the Secret")
	}
}

// serverUpdate is when a whole object may be written.
func serverUpdate(w *world) {
	name := w.node("", nil)
	old := w.readNode(name)
	_, err := w.patchNode(name, `{"metadata":{"annotations":{"x":"y"}}}`)
	w.must(err, "patch")
	_, err = w.admin.CoreV1().Nodes().Update(w.ctx, old, metav1.UpdateOptions{})
	w.says(err, metav1.StatusReasonConflict, fmt.Sprintf("Operation cannot be fulfilled on nodes %q: %s", name, modified))
	newest := w.readNode(name)
	newest.UID = "another"
	_, err = w.admin.CoreV1().Nodes().Update(w.ctx, newest, metav1.UpdateOptions{})
	w.says(err, metav1.StatusReasonConflict, "Precondition failed: UID in precondition: another, UID in object meta: "+string(old.UID))
	newest.UID = old.UID
	newest.ResourceVersion, newest.Status.NodeInfo.BootID = "", "other"
	written, err := w.admin.CoreV1().Nodes().Update(w.ctx, newest, metav1.UpdateOptions{})
	w.must(err, "update without a version")
	if written.Status.NodeInfo.BootID != "boot" {
		w.Error("an update of a node wrote its status")
	}

	leases := w.admin.CoordinationV1().Leases(w.setup.Namespace)
	lease, err := leases.Create(w.ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: w.name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr("a"), LeaseDurationSeconds: ptr(int32(60)), RenewTime: ptr(metav1.NewMicroTime(time.Now()))},
	}, metav1.CreateOptions{})
	w.must(err, "make a Lease")
	_, err = leases.Create(w.ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: w.name}}, metav1.CreateOptions{})
	w.says(err, metav1.StatusReasonAlreadyExists, fmt.Sprintf("leases.coordination.k8s.io %q already exists", w.name))
	renewed := lease.DeepCopy()
	renewed.Spec.HolderIdentity = ptr("b")
	renewed, err = leases.Update(w.ctx, renewed, metav1.UpdateOptions{})
	w.must(err, "update the Lease")
	_, err = leases.Update(w.ctx, lease, metav1.UpdateOptions{})
	w.says(err, metav1.StatusReasonConflict, fmt.Sprintf("Operation cannot be fulfilled on leases.coordination.k8s.io %q: %s", w.name, modified))
	unversioned := renewed.DeepCopy()
	unversioned.ResourceVersion = ""
	_, err = leases.Update(w.ctx, unversioned, metav1.UpdateOptions{})
	w.says(err, metav1.StatusReasonInvalid, "metadata.resourceVersion: Invalid value: 0: must be specified for an update")
	wrong := renewed.DeepCopy()
	wrong.Spec.LeaseDurationSeconds = ptr(int32(0))
	_, err = leases.Update(w.ctx, wrong, metav1.UpdateOptions{})
	w.says(err, metav1.StatusReasonInvalid, "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0")

	err = leases.Delete(w.ctx, w.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion}})
	w.says(err, metav1.StatusReasonConflict, fmt.Sprintf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s)", lease.ResourceVersion, renewed.ResourceVersion))
	err = leases.Delete(w.ctx, w.name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("another")})
	w.says(err, metav1.StatusReasonConflict, fmt.Sprintf("the UID in the precondition (another) does not match the UID in record (%s)", lease.UID))
	w.must(leases.Delete(w.ctx, w.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &renewed.UID, ResourceVersion: &renewed.ResourceVersion}}), "delete the Lease")
	_, err = leases.Update(w.ctx, renewed, metav1.UpdateOptions{})
	w.says(err, metav1.StatusReasonConflict, "UID in precondition: "+string(renewed.UID))
	err = leases.Delete(w.ctx, w.name, metav1.DeleteOptions{})
	w.says(err, metav1.StatusReasonNotFound, fmt.Sprintf("leases.coordination.k8s.io %q not found", w.name))
}

// serverCreate is what is refused of what is new.
func serverCreate(w *world) {
	secrets := w.admin.CoreV1().Secrets(w.setup.Namespace)
	_, err := w.admin.CoreV1().Secrets(w.name+"-none").Create(w.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{})
	w.says(err, metav1.StatusReasonNotFound, fmt.Sprintf("namespaces %q not found", w.name+"-none"))
	for name, want := range map[string]string{"": "name or generateName is required", "Upper": "metadata.name: Invalid value: \"Upper\"", strings.Repeat("x", 254): "must be no more than 253"} {
		_, err = secrets.Create(w.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		w.says(err, metav1.StatusReasonInvalid, want)
	}
	_, err = secrets.Create(w.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: w.name, Labels: map[string]string{"a": strings.Repeat("x", 64)}}}, metav1.CreateOptions{})
	w.says(err, metav1.StatusReasonInvalid, "metadata.labels: Invalid value")
	_, err = secrets.Create(w.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: w.name}, Data: map[string][]byte{"a": make([]byte, corev1.MaxSecretSize+1)}}, metav1.CreateOptions{})
	w.says(err, metav1.StatusReasonInvalid, "may not be more than 1048576 bytes")
	_, err = secrets.Create(w.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: w.name}, Data: map[string][]byte{"a": make([]byte, 4<<20)}}, metav1.CreateOptions{})
	w.says(err, metav1.StatusReasonRequestEntityTooLarge, "limit is 3145728")

	_, err = secrets.Create(w.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: w.name, ResourceVersion: "1"}}, metav1.CreateOptions{})
	w.says(err, metav1.StatusReasonUnknown, "resourceVersion should not be set on objects to be created")

	made, err := secrets.Create(w.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{GenerateName: w.name + "-", UID: "ours"}, Data: map[string][]byte{"a": []byte("b")}, Immutable: ptr(true),
	}, metav1.CreateOptions{})
	w.must(err, "make a Secret")
	if made.UID == "ours" || made.Type != corev1.SecretTypeOpaque || len(made.Name) != len(w.name)+6 || made.CreationTimestamp.IsZero() {
		w.Errorf("%+v", made)
	}
	changed := made.DeepCopy()
	changed.Data["a"] = []byte("c")
	_, err = secrets.Update(w.ctx, changed, metav1.UpdateOptions{})
	w.says(err, metav1.StatusReasonInvalid, "data: Forbidden: field is immutable when `immutable` is set")
	changed = made.DeepCopy()
	changed.Labels = map[string]string{"may": "change"}
	_, err = secrets.Update(w.ctx, changed, metav1.UpdateOptions{})
	w.must(err, "label what is immutable")
	w.must(secrets.Delete(w.ctx, made.Name, metav1.DeleteOptions{}), "delete the Secret")
}

// serverList is which objects a list gives, in which order and in which parts.
func serverList(w *world) {
	ns, owner := w.namespace()
	node := w.cordoned()
	for _, name := range []string{"c", "a", "e", "b", "d"} {
		w.pod(ns, node, name, owner, func(p *corev1.Pod) {
			p.Labels["half"] = map[bool]string{true: "first", false: "second"}[name < "c"]
			if name == "e" {
				p.Spec.NodeName = ""
				p.Spec.NodeSelector = map[string]string{"clustertest/never": "true"}
			}
		})
	}
	pods := w.admin.CoreV1().Pods(ns)
	names := func(list *corev1.PodList) string {
		var out []string
		for _, pod := range list.Items {
			out = append(out, pod.Name)
		}
		return strings.Join(out, " ")
	}
	for want, options := range map[string]metav1.ListOptions{
		"a b c d e": {},
		"a b c d":   {FieldSelector: "spec.nodeName=" + node},
		"e":         {FieldSelector: "spec.nodeName!=" + node},
		"c":         {FieldSelector: "metadata.name=c,status.phase=Running"},
		"a b":       {LabelSelector: "half=first"},
		"d e":       {LabelSelector: "half in (second),app!=c"},
		"":          {LabelSelector: "!half"},
		"b":         {LabelSelector: "half=first", FieldSelector: "metadata.name!=a"},
	} {
		list, err := pods.List(w.ctx, options)
		w.must(err, "list")
		if got := names(list); got != want {
			w.Errorf("%+v: %q, want %q", options, got, want)
		}
	}
	_, err := pods.List(w.ctx, metav1.ListOptions{FieldSelector: "spec.hostname=x"})
	w.says(err, metav1.StatusReasonBadRequest, "field label not supported: spec.hostname")

	first, err := pods.List(w.ctx, metav1.ListOptions{Limit: 2})
	w.must(err, "list a part")
	if names(first) != "a b" || first.Continue == "" || first.RemainingItemCount == nil || *first.RemainingItemCount != 3 {
		w.Errorf("%q, %+v", names(first), first.ListMeta)
	}
	// What happens meanwhile is not seen in the parts that follow.
	w.must(pods.Delete(w.ctx, "c", metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(0))}), "delete")
	w.pod(ns, node, "bb", owner, nil)
	rest, err := pods.List(w.ctx, metav1.ListOptions{Limit: 2, Continue: first.Continue})
	w.must(err, "list the next part")
	if names(rest) != "c d" || rest.ResourceVersion != first.ResourceVersion {
		w.Errorf("%q at %s, first part at %s", names(rest), rest.ResourceVersion, first.ResourceVersion)
	}
	rest, err = pods.List(w.ctx, metav1.ListOptions{Limit: 2, Continue: rest.Continue})
	w.must(err, "list the last part")
	if names(rest) != "e" || rest.Continue != "" {
		w.Errorf("%q, %+v", names(rest), rest.ListMeta)
	}
	_, err = pods.List(w.ctx, metav1.ListOptions{Continue: "no token"})
	w.says(err, metav1.StatusReasonBadRequest, "continue key is not valid")
}

// serverMachines is how custom resources differ.
func serverMachines(w *world) {
	w.setup.ServeMachines(w.T)
	ns, _ := w.namespace()
	machines := w.dynamic.Resource(schema.GroupVersionResource{Group: "cluster.x-k8s.io", Version: "v1beta1", Resource: "machines"}).Namespace(ns)
	var made *unstructured.Unstructured
	w.eventually("serving of Machines", func() (_ string, ok bool) {
		var err error
		made, err = machines.Create(w.ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine", "metadata": map[string]any{"name": "m1"}, "spec": map[string]any{"a": int64(1)},
		}}, metav1.CreateOptions{})
		return fmt.Sprint(err), err == nil
	})
	changed, err := machines.Patch(w.ctx, "m1", types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`), metav1.PatchOptions{})
	w.must(err, "patch")
	if changed.GetGeneration() != 1 || changed.GetResourceVersion() == made.GetResourceVersion() {
		w.Errorf("%+v", changed)
	}
	_, err = machines.Patch(w.ctx, "m1", types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"a":"c"},"resourceVersion":%q}}`, made.GetResourceVersion()), metav1.PatchOptions{})
	w.says(err, metav1.StatusReasonConflict, fmt.Sprintf("Operation cannot be fulfilled on machines.cluster.x-k8s.io %q: %s", "m1", modified))
	changed, err = machines.Patch(w.ctx, "m1", types.MergePatchType, []byte(`{"spec":{"a":null,"b":{"c":2}}}`), metav1.PatchOptions{})
	w.must(err, "patch the spec")
	if got := fmt.Sprint(changed.Object["spec"]); changed.GetGeneration() != 2 || got != "map[b:map[c:2]]" {
		w.Errorf("generation %d, spec %s", changed.GetGeneration(), got)
	}
	changed.SetResourceVersion("")
	_, err = machines.Update(w.ctx, changed, metav1.UpdateOptions{})
	w.says(err, metav1.StatusReasonInvalid, "metadata.resourceVersion: Invalid value: 0: must be specified for an update")
}
