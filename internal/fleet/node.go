package fleet

import (
	"cmp"
	"time"
)

// A Node is a Kubernetes node, as far as Ortet cares.
type Node struct {
	Name          string
	UID           string
	ProviderID    string
	OS            string // kubernetes.io/os, or nodeInfo
	Architecture  string // "amd64", "arm64"
	Zone          string // topology.kubernetes.io/zone, as it is
	Ready         bool
	ReadySince    time.Time // last transition of the Ready condition
	Reported      time.Time // heartbeat of the Ready condition, by the node's clock: another one shows that the kubelet reported since; zero if the condition is Unknown
	NotReadyWhy   string    // reason and message where not Ready
	Unschedulable bool
	ControlPlane  bool
	Annotations   map[string]string
	Labels        map[string]string
	Addresses     []string // IP addresses
	Revision      string   // of the object, opaque
	BootID        string
	MachineID     string
	SystemUUID    string // status.nodeInfo.systemUUID, as it is
	OSImage       string
	Kernel        string    // "5.15.0-1057-azure"
	Runtime       string    // "containerd://1.7.12"
	Kubelet       string    // version
	Created       time.Time // when the Node was registered
	Taints        []Taint
	Conditions    []Condition      // all but Ready
	Devices       map[string]int64 // extended resources that are allocatable, by name: "nvidia.com/gpu"
	Unmatched     error            // why its provider id is not Azure's, and no instance was found to be the Node
}

// Instance returns the ARM id of the machine that the Node is, or KindInvalid.
func (n Node) Instance() (ResourceID, error) {
	if n.Unmatched != nil {
		return "", n.Unmatched
	}
	return ParseMachine(n.ProviderID)
}

// NotBack says why the Node is not Ready in another boot than that one; "" if it is. Of "" any boot counts.
func (n Node) NotBack(boot string) string {
	switch {
	case n.Name == "":
		return "machine has no Node"
	case !n.Ready:
		return cmp.Or(n.NotReadyWhy, "not Ready")
	case boot != "" && n.BootID == boot:
		return "its kubelet has not reported another boot"
	}
	return ""
}

// A Place is where a Node runs.
type Place struct {
	Instance ResourceID // an instance of a Uniform pool, or a virtual machine of a Flexible one
	Pool     ResourceID // the scale set
}

// A Taint of a node.
type Taint struct{ Key, Value, Effect string }

// A Condition of a node. Status is "True", "False" or "Unknown".
type Condition struct {
	Type, Status, Reason, Message string
	Since                         time.Time // its last transition
	Written                       time.Time // its last heartbeat
}

// ConditionBootSucceeded is the type of the controller's condition on Nodes. Its reason is
// the catalogue's (internal/boots/verdict), or the state of a boot without one.
const ConditionBootSucceeded = "ortet.io/BootSucceeded"

// Taints that keep workloads off a Node until its verdict, each NoSchedule; its kubelet
// registers with one of them. The controller removes TaintUnproven, whose prefix
// cluster-autoscaler knows; a NodeReadinessRule (deploy/readiness) manages TaintReadiness.
const (
	TaintUnproven  = "startup-taint.cluster-autoscaler.kubernetes.io/ortet-unproven"
	TaintReadiness = "readiness.k8s.io/ortet-boot"
)

// A Record is a ConfigMap of Ortet's namespace, as far as Ortet cares.
type Record struct {
	Namespace, Name     string
	Labels, Annotations map[string]string
	Data                map[string]string
	Binary              map[string][]byte
}

// A Pod on a node.
type Pod struct {
	Name        string // "namespace/name"
	DaemonSet   string // "namespace/name" of its owner; "" if that is another or none
	Mirror      bool   // of a static pod
	Ready       bool
	ReadySince  time.Time // since when it is Ready and no container of it was started; zero if not Ready
	NotReadyWhy string    // "container: reason", or the pod's; "" if Ready
	Restarts    int32     // of its containers
	Volumes     string    // that may lie on the node's disk: "emptyDir cache, hostPath /srv, claim data"
	Stays       bool      // annotated karpenter.sh/do-not-disrupt: "true"
}

// A BlockedPod is a pod that a drain could not evict, or would not without force.
type BlockedPod struct {
	Pod    string // "namespace/name"
	Budget string // "namespace/name", several joined by ", "; "" where no budget is the reason
	Why    string // in the API server's words
}

// Annotations of other projects that matter.
const (
	AnnotationScaleDownDisabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	AnnotationSkipRemediation   = "cluster.x-k8s.io/skip-remediation" // on CAPI Machines
	AnnotationKuredReboot       = "weave.works/kured-reboot-in-progress"
	AnnotationKuredNeeded       = "weave.works/kured-most-recent-reboot-needed"
	AnnotationDoNotDisrupt      = "karpenter.sh/do-not-disrupt"        // on pods: "true"
	AnnotationCapiMachine       = "cluster.x-k8s.io/machine"           // on Nodes: the Machine's name
	AnnotationCapiNamespace     = "cluster.x-k8s.io/cluster-namespace" // on Nodes
)

// AnnotationCapture marks a donor while it is captured: the capture's name. It
// tells what we did apart from what others did.
const AnnotationCapture = "ortet.io/capture"

// AnnotationWorkbench marks a workbench while a capture uses it: the ARM id of the
// capture's pool. Two captures never share a node.
const AnnotationWorkbench = "ortet.io/workbench"

// AnnotationCordoned marks a node that a watch cordoned as it took a version back: the version's
// name.
const AnnotationCordoned = "ortet.io/bad-image"

// AnnotationRollout marks a node that a rollout renews, and keeps cordoned until it has passed: the
// image version, and the boot in which the node was then.
const AnnotationRollout = "ortet.io/rollout"

// AnnotationFresh marks a node that a capture raised to be its donor: the capture's name. The capture
// deletes it.
const AnnotationFresh = "ortet.io/fresh"

// AnnotationDomain is that of Ortet's annotations.
const AnnotationDomain = "ortet.io"

// OwnAnnotation reports whether a program of Ortet writes an annotation to Nodes.
func OwnAnnotation(key string) bool {
	switch key {
	case AnnotationCapture, AnnotationWorkbench, AnnotationCordoned, AnnotationRollout, AnnotationFresh,
		"ortet.io/boot-report", "ortet.io/configuration", "ortet.io/configuration-wanted", "ortet.io/leaving", // of the agent and rollout
		"ortet.io/cluster-cordon": // of ortet cluster
		return true
	}
	return false
}
