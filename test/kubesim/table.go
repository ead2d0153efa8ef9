package kubesim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
)

// asTable reports whether a client wants tables first, as kubectl get does.
func asTable(accept string) bool {
	first, _, _ := strings.Cut(accept, ",")
	return strings.HasPrefix(first, contentJSON) && strings.Contains(first, ";as=Table") && strings.Contains(first, ";v=v1;")
}

// A column of a table. A wide one is shown by kubectl -o wide only.
type column struct {
	name string
	wide bool
}

func columns(names ...string) (all []column) {
	for _, name := range names {
		name, wide := strings.CutPrefix(name, "+")
		all = append(all, column{name, wide})
	}
	return all
}

// columnsOf names the columns of a kind: those of kubectl, the common ones. The first
// is the name, and the age comes where cells puts it.
func columnsOf(k *kind) []column {
	switch k.resource {
	case "nodes":
		return columns("Name", "Status", "Roles", "Age", "Version", "+Internal-IP", "+OS-Image", "+Kernel-Version", "+Container-Runtime")
	case "pods":
		return columns("Name", "Ready", "Status", "Restarts", "Age", "+IP", "+Node")
	case "replicasets":
		return columns("Name", "Desired", "Current", "Ready", "Age")
	case "daemonsets":
		return columns("Name", "Desired", "Current", "Ready", "Age")
	case "poddisruptionbudgets":
		return columns("Name", "Min Available", "Max Unavailable", "Allowed Disruptions", "Age")
	case "events":
		return columns("Last Seen", "Type", "Reason", "Object", "Message")
	case "leases":
		return columns("Name", "Holder", "Age")
	case "secrets":
		return columns("Name", "Type", "Data", "Age")
	case "configmaps":
		return columns("Name", "Data", "Age")
	case "namespaces":
		return columns("Name", "Status", "Age")
	case "certificatesigningrequests":
		return columns("Name", "Age", "SignerName", "Requestor", "Condition")
	}
	return columns("Name", "Age")
}

// cells are the row of an object, one for each of columnsOf.
func cells(o object) []any {
	name, age := o.GetName(), since(o.GetCreationTimestamp().Time)
	switch o := o.(type) {
	case *corev1.Node:
		return []any{name, nodeStatus(o), nodeRoles(o), age, o.Status.NodeInfo.KubeletVersion, nodeAddress(o), o.Status.NodeInfo.OSImage, o.Status.NodeInfo.KernelVersion, o.Status.NodeInfo.ContainerRuntimeVersion}
	case *corev1.Pod:
		up, restarts := 0, int32(0)
		for _, c := range o.Status.ContainerStatuses {
			restarts += c.RestartCount
			if c.Ready {
				up++
			}
		}
		return []any{name, fmt.Sprintf("%d/%d", up, len(o.Spec.Containers)), podStatus(o), strconv.Itoa(int(restarts)), age, orNone(o.Status.PodIP), orNone(o.Spec.NodeName)}
	case *appsv1.ReplicaSet:
		want := int32(1)
		if o.Spec.Replicas != nil {
			want = *o.Spec.Replicas
		}
		return []any{name, want, o.Status.Replicas, o.Status.ReadyReplicas, age}
	case *appsv1.DaemonSet:
		return []any{name, o.Status.DesiredNumberScheduled, o.Status.CurrentNumberScheduled, o.Status.NumberReady, age}
	case *policyv1.PodDisruptionBudget:
		least, most := "N/A", "N/A"
		if o.Spec.MinAvailable != nil {
			least = o.Spec.MinAvailable.String()
		}
		if o.Spec.MaxUnavailable != nil {
			most = o.Spec.MaxUnavailable.String()
		}
		return []any{name, least, most, o.Status.DisruptionsAllowed, age}
	case *corev1.Event:
		seen := o.LastTimestamp.Time
		if seen.IsZero() {
			seen = o.EventTime.Time
		}
		return []any{since(seen), o.Type, o.Reason, strings.ToLower(o.InvolvedObject.Kind) + "/" + o.InvolvedObject.Name, strings.TrimSpace(o.Message)}
	case *coordinationv1.Lease:
		holder := ""
		if o.Spec.HolderIdentity != nil {
			holder = *o.Spec.HolderIdentity
		}
		return []any{name, holder, age}
	case *corev1.Secret:
		return []any{name, string(o.Type), len(o.Data), age}
	case *corev1.ConfigMap:
		return []any{name, len(o.Data) + len(o.BinaryData), age}
	case *corev1.Namespace:
		return []any{name, string(o.Status.Phase), age}
	case *certificatesv1.CertificateSigningRequest:
		var conditions []string
		for _, c := range o.Status.Conditions {
			conditions = append(conditions, string(c.Type))
		}
		if len(conditions) == 0 {
			conditions = []string{"Pending"}
		}
		if len(o.Status.Certificate) > 0 {
			conditions = append(conditions, "Issued")
		}
		return []any{name, age, o.Spec.SignerName, o.Spec.Username, strings.Join(conditions, ",")}
	}
	return []any{name, age}
}

func since(at time.Time) string {
	if at.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(at))
}

func orNone(text string) string {
	if text == "" {
		return "<none>"
	}
	return text
}

func nodeStatus(node *corev1.Node) string {
	status := "Unknown"
	if c := readiness(node); c != nil {
		status = map[corev1.ConditionStatus]string{corev1.ConditionTrue: "Ready"}[c.Status]
		status = cmp.Or(status, "NotReady")
	}
	if node.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

func nodeRoles(node *corev1.Node) string {
	var roles []string
	for label := range node.Labels {
		if role, ok := strings.CutPrefix(label, "node-role.kubernetes.io/"); ok && role != "" {
			roles = append(roles, role)
		}
	}
	slices.Sort(roles)
	return orNone(strings.Join(roles, ","))
}

func nodeAddress(node *corev1.Node) string {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return "<none>"
}

// podStatus is kubectl's short form of a pod's state.
func podStatus(pod *corev1.Pod) string {
	status := string(pod.Status.Phase)
	if pod.Status.Reason != "" {
		status = pod.Status.Reason
	}
	for _, c := range pod.Status.ContainerStatuses {
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			status = c.State.Waiting.Reason
		case c.State.Terminated != nil && c.State.Terminated.Reason != "":
			status = c.State.Terminated.Reason
		}
	}
	if pod.DeletionTimestamp != nil {
		return "Terminating"
	}
	return status
}

// tabled is an answer with a table of objects.
func (c *call) tabled(code int, meta metav1.ListMeta, items []*entry) (answer, error) {
	table := metav1.Table{TypeMeta: metav1.TypeMeta{Kind: "Table", APIVersion: "meta.k8s.io/v1"}, ListMeta: meta, Rows: []metav1.TableRow{}}
	for i, column := range columnsOf(c.kind) {
		definition := metav1.TableColumnDefinition{Name: column.name, Type: "string"}
		if i == 0 && column.name == "Name" {
			definition.Format = "name"
		}
		if column.wide {
			definition.Priority = 1
		}
		table.ColumnDefinitions = append(table.ColumnDefinitions, definition)
	}
	for _, e := range items {
		row := metav1.TableRow{Cells: cells(e.object)}
		switch c.parameter("includeObject") {
		case string(metav1.IncludeNone):
		case string(metav1.IncludeObject):
			data, err := e.encoded(contentJSON)
			if err != nil {
				return answer{}, err
			}
			row.Object = runtime.RawExtension{Raw: data}
		default:
			data, err := json.Marshal(metav1.PartialObjectMetadata{
				TypeMeta:   metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"},
				ObjectMeta: metadataOf(e.object),
			})
			if err != nil {
				return answer{}, err
			}
			row.Object = runtime.RawExtension{Raw: data}
		}
		table.Rows = append(table.Rows, row)
	}
	data, err := json.Marshal(table)
	return answer{code: code, contentType: contentJSON, body: data}, err
}

func metadataOf(o object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: o.GetName(), Namespace: o.GetNamespace(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(), Generation: o.GetGeneration(),
		CreationTimestamp: o.GetCreationTimestamp(), DeletionTimestamp: o.GetDeletionTimestamp(), Labels: o.GetLabels(), Annotations: o.GetAnnotations(),
		OwnerReferences: o.GetOwnerReferences(), Finalizers: o.GetFinalizers(),
	}
}
