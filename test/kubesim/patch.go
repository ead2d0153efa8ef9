package kubesim

import (
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	sigsjson "sigs.k8s.io/json"
)

// patch serves merge patches (RFC 7386) and strategic merge patches.
func (s *Server) patch(c *call, t *table) (answer, error) {
	old := t.entries[c.key()]
	if old == nil {
		return answer{}, apierrors.NewNotFound(t.kind.groupResource(), c.Name)
	}
	var patch map[string]any
	if err := sigsjson.UnmarshalCaseSensitivePreserveInts(c.body, &patch); err != nil {
		return answer{}, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	// Where the patch names no resourceVersion, that of what is patched remains.
	o, err := patched(c, t.kind, old.object, patch)
	if err != nil {
		return answer{}, err
	}
	if o.GetName() != c.Name || o.GetNamespace() != c.storedNamespace() {
		return answer{}, apierrors.NewBadRequest("the name or namespace of the object does not match the URL")
	}
	if uid := o.GetUID(); uid != old.object.GetUID() {
		return answer{}, apierrors.NewInvalid(t.kind.groupKind(), c.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "uid"), string(uid), "field is immutable")})
	}
	e, err := s.change(t, old, o, c.Subresource)
	if err != nil {
		return answer{}, err
	}
	return c.one(http.StatusOK, e)
}

func patched(c *call, k *kind, was object, patch map[string]any) (object, error) {
	kind := types.PatchType(c.header.Get("Content-Type"))
	if kind != types.MergePatchType && (kind != types.StrategicMergePatchType || k.custom) {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "", schema.GroupResource{}, "",
			fmt.Sprintf("the body of the request was in an unknown format - accepted media types include: %s, %s", types.MergePatchType, types.StrategicMergePatchType), 0, false)
	}
	if o, ok := quickly(was, patch); ok {
		return o, nil
	}
	before, err := runtime.DefaultUnstructuredConverter.ToUnstructured(was)
	if err != nil {
		return nil, err
	}
	if k.custom {
		before = runtime.DeepCopyJSON(before) // it is the object's own map
	}
	after := before
	if kind == types.MergePatchType {
		merge(after, patch)
	} else if after, err = strategicpatch.StrategicMergeMapPatch(before, patch, k.fresh()); err != nil {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
	}
	o := k.fresh()
	if u, ok := o.(*unstructured.Unstructured); ok {
		u.Object = after
		return u, nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(after, o); err != nil {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
	}
	return o, nil
}

// merge is a merge patch: null takes away, objects are merged, and all else is
// replaced.
func merge(to, patch map[string]any) {
	for key, value := range patch {
		switch value := value.(type) {
		case nil:
			delete(to, key)
		case map[string]any:
			inner, ok := to[key].(map[string]any)
			if !ok {
				inner = map[string]any{}
			}
			merge(inner, value)
			to[key] = inner
		default:
			to[key] = value
		}
	}
}

// quickly applies what nearly every patch is, in either form: labels,
// annotations, a resourceVersion, and whether a node is unschedulable. It
// reports false for all else.
func quickly(was object, patch map[string]any) (object, bool) {
	var labels, annotations map[string]any
	var revision string
	unschedulable, cordons := false, false
	for part, value := range patch {
		inner, ok := value.(map[string]any)
		if !ok {
			return nil, false
		}
		switch part {
		case "metadata":
			for key, value := range inner {
				switch key {
				case "labels":
					labels, ok = ofStrings(value)
				case "annotations":
					annotations, ok = ofStrings(value)
				case "resourceVersion":
					revision, ok = value.(string)
				default:
					ok = false
				}
				if !ok {
					return nil, false
				}
			}
		case "spec":
			value, has := inner["unschedulable"]
			if _, node := was.(*corev1.Node); !node || !has || len(inner) != 1 {
				return nil, false
			}
			unschedulable, ok = value.(bool)
			if !ok && value != nil {
				return nil, false
			}
			cordons = true
		default:
			return nil, false
		}
	}
	o, ok := was.DeepCopyObject().(object)
	if !ok {
		return nil, false
	}
	if labels != nil {
		o.SetLabels(mergedStrings(o.GetLabels(), labels))
	}
	if annotations != nil {
		o.SetAnnotations(mergedStrings(o.GetAnnotations(), annotations))
	}
	if revision != "" {
		o.SetResourceVersion(revision)
	}
	if node, ok := o.(*corev1.Node); ok && cordons {
		node.Spec.Unschedulable = unschedulable
	}
	return o, true
}

// ofStrings returns a map whose values are strings or nil.
func ofStrings(value any) (map[string]any, bool) {
	all, ok := value.(map[string]any)
	if !ok {
		return nil, false
	}
	for _, value := range all {
		if _, isString := value.(string); !isString && value != nil {
			return nil, false
		}
	}
	return all, true
}

// mergedStrings changes the map, which is a copy already.
func mergedStrings(to map[string]string, patch map[string]any) map[string]string {
	for key, value := range patch {
		text, ok := value.(string)
		if !ok {
			delete(to, key)
			continue
		}
		if to == nil {
			to = map[string]string{}
		}
		to[key] = text
	}
	return to
}
