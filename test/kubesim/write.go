package kubesim

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// received reads the object of a request, and checks that it is where the
// address says.
func (c *call) received() (object, error) {
	o := c.kind.fresh()
	if err := decode(c.header.Get("Content-Type"), c.body, o); err != nil {
		return nil, err
	}
	switch namespace := c.storedNamespace(); {
	case o.GetNamespace() == "":
		o.SetNamespace(namespace)
	case o.GetNamespace() != namespace:
		return nil, apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return o, nil
}

func (s *Server) create(c *call, t *table) (answer, error) {
	if c.Name != "" {
		return answer{}, apierrors.NewMethodNotSupported(t.kind.groupResource(), "post")
	}
	o, err := c.received()
	if err != nil {
		return answer{}, err
	}
	if err := c.restrictNewNode(o.GetName()); err != nil {
		return answer{}, err
	}
	if request, ok := o.(*certificatesv1.CertificateSigningRequest); ok {
		c.asked(request)
	}
	e, err := s.make(c, t, o)
	if err != nil {
		return answer{}, err
	}
	return c.one(http.StatusCreated, e)
}

// make stores a new object, unless that is refused.
func (s *Server) make(c *call, t *table, o object) (*entry, error) {
	if t.kind.namespaced && s.tables["namespaces"].entries[c.Namespace] == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, c.Namespace)
	}
	if o.GetResourceVersion() != "" {
		return nil, errors.New("resourceVersion should not be set on objects to be created")
	}
	if o.GetName() == "" && o.GetGenerateName() != "" {
		o.SetName(s.generatedName(t, o.GetNamespace(), o.GetGenerateName()))
	}
	o.SetUID("")
	o.SetCreationTimestamp(metav1.Time{})
	o.SetDeletionTimestamp(nil)
	o.SetDeletionGracePeriodSeconds(nil)
	o.SetGeneration(0)
	begun(o)
	complete(o)
	if errs := validate(t.kind, o, nil); len(errs) > 0 {
		return nil, apierrors.NewInvalid(t.kind.groupKind(), o.GetName(), errs)
	}
	if t.entries[keyOf(o.GetNamespace(), o.GetName())] != nil {
		return nil, apierrors.NewAlreadyExists(t.kind.groupResource(), o.GetName())
	}
	if pod, ok := o.(*corev1.Pod); ok {
		if err := s.admit(t, pod); err != nil {
			return nil, err
		}
	}
	if c.DryRun {
		return &entry{key: keyOf(o.GetNamespace(), o.GetName()), object: t.kind.of(o)}, nil
	}
	return s.insert(t, o), nil
}

// admit refuses a pod whose ServiceAccount does not exist, as the admission plugin of that name
// does; "default", which controllers make in each namespace, counts as existing. AdmitPod goes on.
func (s *Server) admit(t *table, pod *corev1.Pod) error {
	name := pod.Spec.ServiceAccountName
	if name != "" && name != "default" && s.tables["serviceaccounts"].entries[keyOf(pod.Namespace, name)] == nil {
		return apierrors.NewForbidden(t.kind.groupResource(), pod.Name,
			words("error looking up service account %s/%s: serviceaccount %q not found", pod.Namespace, name, name))
	}
	if s.AdmitPod != nil {
		if err := s.AdmitPod(pod); err != nil {
			return apierrors.NewForbidden(t.kind.groupResource(), pod.Name, err)
		}
	}
	return nil
}

// begun sets what a new object begins with. A node's status is its maker's.
func begun(o object) {
	switch o := o.(type) {
	case *corev1.Pod:
		o.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSBestEffort}
	case *corev1.Namespace:
		o.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	case *appsv1.DaemonSet:
		o.Status = appsv1.DaemonSetStatus{}
	case *appsv1.ReplicaSet:
		o.Status = appsv1.ReplicaSetStatus{}
	case *policyv1.PodDisruptionBudget:
		o.Status = policyv1.PodDisruptionBudgetStatus{}
	}
}

// complete fills in what is never absent.
func complete(o object) {
	switch o := o.(type) {
	case *corev1.Pod:
		o.Spec.RestartPolicy = cmp.Or(o.Spec.RestartPolicy, corev1.RestartPolicyAlways)
		if o.Spec.TerminationGracePeriodSeconds == nil {
			thirty := int64(corev1.DefaultTerminationGracePeriodSeconds)
			o.Spec.TerminationGracePeriodSeconds = &thirty
		}
	case *corev1.Secret:
		written(o)
		o.Type = cmp.Or(o.Type, corev1.SecretTypeOpaque)
	}
}

// written moves what can be written but not read.
func written(secret *corev1.Secret) {
	for key, value := range secret.StringData {
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		secret.Data[key] = []byte(value)
	}
	secret.StringData = nil
}

func (s *Server) update(c *call, t *table) (answer, error) {
	o, err := c.received()
	if err != nil {
		return answer{}, err
	}
	switch o.GetName() {
	case c.Name:
	case "":
		o.SetName(c.Name)
	default:
		return answer{}, apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", o.GetName(), c.Name))
	}
	old := t.entries[c.key()]
	if old == nil {
		if !t.kind.createOnUpdate || c.Subresource != "" {
			return answer{}, apierrors.NewNotFound(t.kind.groupResource(), c.Name)
		}
		if uid := o.GetUID(); uid != "" {
			return answer{}, conflict(t.kind, c.Name, words("Precondition failed: UID in precondition: %s, UID in object meta: ", uid))
		}
		o.SetResourceVersion("")
		e, err := s.make(c, t, o)
		if err != nil {
			return answer{}, err
		}
		return c.one(http.StatusCreated, e)
	}
	if t.kind.conditional && o.GetResourceVersion() == "" {
		return answer{}, apierrors.NewInvalid(schema.GroupKind{Group: t.kind.group, Kind: t.kind.resource}, c.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update")})
	}
	e, err := s.change(t, old, o, c.Subresource)
	if err != nil {
		return answer{}, err
	}
	return c.one(http.StatusOK, e)
}

// errModified is what the API server says of a resourceVersion that is not the
// newest.
var errModified = errors.New("the object has been modified; please apply your changes to the latest version and try again")

func conflict(k *kind, name string, err error) error {
	return apierrors.NewConflict(k.groupResource(), name, err)
}

// change stores a new state of an object, unless that is refused. o becomes the
// server's own.
func (s *Server) change(t *table, old *entry, o object, subresource string) (*entry, error) {
	was := old.object
	if uid := o.GetUID(); uid != "" && uid != was.GetUID() {
		return nil, conflict(t.kind, was.GetName(), words("Precondition failed: UID in precondition: %s, UID in object meta: %s", uid, was.GetUID()))
	}
	if revision := o.GetResourceVersion(); revision != "" && revision != was.GetResourceVersion() {
		return nil, conflict(t.kind, was.GetName(), errModified)
	}
	o = kept(o, was, subresource)
	o.SetUID(was.GetUID())
	o.SetCreationTimestamp(was.GetCreationTimestamp())
	o.SetDeletionTimestamp(was.GetDeletionTimestamp())
	o.SetDeletionGracePeriodSeconds(was.GetDeletionGracePeriodSeconds())
	o.SetGeneration(was.GetGeneration())
	o.SetResourceVersion(was.GetResourceVersion())
	o = t.kind.of(o)
	if errs := validate(t.kind, o, was); len(errs) > 0 {
		return nil, apierrors.NewInvalid(t.kind.groupKind(), o.GetName(), errs)
	}
	if t.kind.generation && !sameSpec(o, was) {
		o.SetGeneration(was.GetGeneration() + 1)
	}
	// What changes nothing is no write.
	e := &entry{key: old.key, object: o}
	if t.kind.custom {
		if reflect.DeepEqual(o, was) {
			return old, nil
		}
	} else {
		before, err := old.encoded(contentProto)
		if err != nil {
			return nil, err
		}
		after, err := e.encoded(contentProto)
		if err != nil {
			return nil, err
		}
		if bytes.Equal(before, after) {
			return old, nil
		}
	}
	// The last finalizer that goes takes with it what was to be deleted.
	if grace := was.GetDeletionGracePeriodSeconds(); was.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 && (grace == nil || *grace == 0) {
		s.remove(t, old)
		return e, nil
	}
	return s.replace(t, old, o), nil
}

// kept returns the new state with what this request may not change: the status,
// or for a request to the status the rest.
func kept(o, was object, subresource string) object {
	if subresource != "" {
		now, ok := was.DeepCopyObject().(object)
		if !ok {
			return o // every kind's copy is of its type
		}
		now.SetLabels(o.GetLabels())
		now.SetAnnotations(o.GetAnnotations())
		swapStatus(now, o)
		return now
	}
	swapStatus(o, was)
	if secret, ok := o.(*corev1.Secret); ok {
		written(secret)
	}
	return o
}

// swapStatus gives an object the status of another.
func swapStatus(to, from object) {
	switch to := to.(type) {
	case *corev1.Node:
		to.Status = from.(*corev1.Node).Status
	case *corev1.Pod:
		to.Status = from.(*corev1.Pod).Status
	case *corev1.Namespace:
		to.Status = from.(*corev1.Namespace).Status
	case *appsv1.DaemonSet:
		to.Status = from.(*appsv1.DaemonSet).Status
	case *appsv1.ReplicaSet:
		to.Status = from.(*appsv1.ReplicaSet).Status
	case *policyv1.PodDisruptionBudget:
		to.Status = from.(*policyv1.PodDisruptionBudget).Status
	case *certificatesv1.CertificateSigningRequest:
		to.Status = from.(*certificatesv1.CertificateSigningRequest).Status
	}
}

func sameSpec(a, b object) bool {
	switch a := a.(type) {
	case *corev1.Pod:
		return equality.Semantic.DeepEqual(&a.Spec, &b.(*corev1.Pod).Spec)
	case *appsv1.DaemonSet:
		return equality.Semantic.DeepEqual(&a.Spec, &b.(*appsv1.DaemonSet).Spec)
	case *appsv1.ReplicaSet:
		return equality.Semantic.DeepEqual(&a.Spec, &b.(*appsv1.ReplicaSet).Spec)
	case *policyv1.PodDisruptionBudget:
		return equality.Semantic.DeepEqual(&a.Spec, &b.(*policyv1.PodDisruptionBudget).Spec)
	case *unstructured.Unstructured:
		// All but the metadata counts where there is no status of its own.
		return sameBut(a.Object, b.(*unstructured.Unstructured).Object)
	}
	return true
}

func sameBut(a, b map[string]any) bool {
	for key, value := range a {
		if key != "metadata" && !reflect.DeepEqual(value, b[key]) {
			return false
		}
	}
	for key := range b {
		if _, ok := a[key]; !ok {
			return false
		}
	}
	return true
}
