package hollow

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const (
	kubeletVersion   = "v1.36.3"
	containerRuntime = "containerd://2.1.4"
	leaseSeconds     = 40 // the kubelet's
	podsPerNode      = 110
	joinRetryFirst   = time.Second
	joinRetryMost    = 10 * time.Second
)

// live is the kubelet's part of a running computer: join, then renew the lease
// and report, until ctx ends.
func (r *running) live(ctx context.Context) {
	retry := joinRetryFirst
	for last := ""; ; {
		err := r.join(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		if err.Error() != last { // said once, not at each attempt
			last = err.Error()
			r.say("cannot join the cluster as %s: %s", r.nodeName, err)
		}
		timer := time.NewTimer(retry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		retry = min(2*retry, joinRetryMost)
	}
	r.substrate.adoptNode(r)
	r.beat(ctx)
}

// join registers the node by its own credentials, so that the API server's
// NodeRestriction judges them, and begins its lease.
func (r *running) join(ctx context.Context) error {
	config, err := r.credentials(ctx)
	if err != nil {
		return err
	}
	client, closeIdle, err := ownClient(config)
	if err != nil {
		return err
	}
	defer closeIdle()
	node := r.node(true, "")
	created, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		// As the kubelet does: the Node is taken over, by whoever has the right.
		patch, marshalErr := json.Marshal(map[string]any{"metadata": map[string]any{"labels": node.Labels}, "status": node.Status})
		if marshalErr != nil {
			return marshalErr
		}
		if _, err := client.CoreV1().Nodes().Patch(ctx, r.nodeName, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("update node %s: %w", r.nodeName, err)
		}
		created, err = client.CoreV1().Nodes().Patch(ctx, r.nodeName, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if err != nil {
		return fmt.Errorf("register node %s: %w", r.nodeName, err)
	}
	if created.Spec.ProviderID != node.Spec.ProviderID {
		r.say("node %s is registered already for %s", r.nodeName, created.Spec.ProviderID)
	}
	r.mu.Lock()
	r.joined, r.nodeUID = true, created.UID
	r.mu.Unlock()
	r.say("Successfully registered node %s", r.nodeName)
	return nil
}

// beat renews the lease and reports the status until ctx ends.
func (r *running) beat(ctx context.Context) {
	s := r.substrate
	lease, problem := r.renew(ctx, nil)
	if problem != nil && ctx.Err() == nil {
		s.log.Warn("lease of a hollow node", "node", r.nodeName, "error", problem)
	}
	// Nodes that booted together must not beat together.
	offset := fnv.New32a()
	_, _ = offset.Write([]byte(r.computer.ID)) // never fails
	first := time.NewTimer(time.Duration(offset.Sum32()%1000) * s.config.LeaseInterval / 1000)
	defer first.Stop()
	select {
	case <-first.C:
	case <-ctx.Done():
		return
	}
	ticker := time.NewTicker(s.config.LeaseInterval)
	defer ticker.Stop()
	reported := time.Now()
	for {
		lease, problem = r.renew(ctx, lease)
		if problem != nil && ctx.Err() == nil {
			s.log.Warn("lease of a hollow node", "node", r.nodeName, "error", problem)
		}
		if now := time.Now(); r.takeImagesChanged() || now.Sub(reported) >= s.config.StatusInterval {
			reported = now
			if err := r.report(ctx, true, ""); err != nil && ctx.Err() == nil {
				s.log.Warn("status of a hollow node", "node", r.nodeName, "error", err)
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// takeImagesChanged reports, once, that images came.
func (r *running) takeImagesChanged() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := r.imagesChanged
	r.imagesChanged = false
	return changed
}

// owner is the Node as it is registered now: a Lease that a Node of the same name
// left behind would else be collected as garbage while it is renewed.
func (r *running) owner() []metav1.OwnerReference {
	r.mu.Lock()
	defer r.mu.Unlock()
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: r.nodeName, UID: r.nodeUID}}
}

// renew renews the lease that was returned last; nil gets or makes it.
func (r *running) renew(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	leases := r.substrate.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NewMicroTime(time.Now())
	if lease == nil {
		got, err := leases.Get(ctx, r.nodeName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return leases.Create(ctx, &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: r.nodeName, OwnerReferences: r.owner()},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To(r.nodeName), LeaseDurationSeconds: ptr.To[int32](leaseSeconds), RenewTime: &now},
			}, metav1.CreateOptions{})
		}
		if err != nil {
			return nil, err
		}
		lease = got
	}
	next := lease.DeepCopy()
	next.Spec.HolderIdentity, next.Spec.RenewTime, next.OwnerReferences = ptr.To(r.nodeName), &now, r.owner()
	renewed, err := leases.Update(ctx, next, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("renew lease %s: %w", r.nodeName, err)
	}
	return renewed, nil
}

// report writes the node's status. An error leaves it as it was.
func (r *running) report(ctx context.Context, ready bool, message string) error {
	patch, err := json.Marshal(map[string]any{"status": r.node(ready, message).Status})
	if err != nil {
		return err
	}
	_, err = r.substrate.client.CoreV1().Nodes().Patch(ctx, r.nodeName, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("status of node %s: %w", r.nodeName, err)
	}
	return nil
}

// node is what the kubelet says of its node.
func (r *running) node(ready bool, message string) *corev1.Node {
	c := r.computer
	arch := "amd64"
	if strings.EqualFold(c.Architecture, "Arm64") {
		arch = "arm64"
	}
	region := strings.ToLower(c.Location)
	zone := c.FaultDomain // what Azure's cloud provider says of an instance without a zone
	if c.Zone != "" {
		zone = region + "-" + c.Zone
	}
	cpus := processors(c.Size)
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(cpus, resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(cpus*4<<30, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(30<<30, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(podsPerNode, resource.DecimalSI),
	}
	now := metav1.NewTime(time.Now())
	since := metav1.NewTime(r.bootedAt)
	condition := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status", LastHeartbeatTime: now, LastTransitionTime: since}
	if !ready {
		condition.Status, condition.Reason, condition.Message, condition.LastTransitionTime = corev1.ConditionFalse, "KubeletNotReady", message, now
	}
	conditions := []corev1.NodeCondition{condition}
	for _, pressure := range []struct {
		of     corev1.NodeConditionType
		reason string
	}{
		{corev1.NodeMemoryPressure, "KubeletHasSufficientMemory"},
		{corev1.NodeDiskPressure, "KubeletHasNoDiskPressure"},
		{corev1.NodePIDPressure, "KubeletHasSufficientPID"},
	} {
		conditions = append(conditions, corev1.NodeCondition{Type: pressure.of, Status: corev1.ConditionFalse, Reason: pressure.reason, Message: "kubelet has no pressure", LastHeartbeatTime: now, LastTransitionTime: since})
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: r.nodeName,
			Labels: map[string]string{
				corev1.LabelOSStable:           "linux",
				corev1.LabelArchStable:         arch,
				corev1.LabelHostname:           r.nodeName,
				corev1.LabelInstanceTypeStable: c.Size,
				corev1.LabelTopologyRegion:     region,
				corev1.LabelTopologyZone:       zone,
			},
		},
		Spec: corev1.NodeSpec{ProviderID: providerID(c.ResourceID)},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity,
			Conditions: conditions,
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: r.address()},
				{Type: corev1.NodeHostName, Address: r.nodeName},
			},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: r.port()}},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: r.machineID, SystemUUID: c.VMID, BootID: r.bootID,
				KernelVersion: "6.8.0-1021-azure", OSImage: r.tree.prettyName(),
				ContainerRuntimeVersion: containerRuntime, KubeletVersion: kubeletVersion,
				OperatingSystem: "linux", Architecture: arch,
			},
			Images: r.tree.images(),
		},
	}
}

// providerID is how Azure's cloud provider spells an instance: the resource
// group in lower case, the rest as ARM has it.
func providerID(resourceID string) string {
	parts := strings.Split(resourceID, "/")
	for i, part := range parts {
		if strings.EqualFold(part, "resourceGroups") && i+1 < len(parts) {
			parts[i+1] = strings.ToLower(parts[i+1])
		}
	}
	return "azure://" + strings.Join(parts, "/")
}

// processors reads the number out of a size's name, Standard_D2s_v5 → 2.
func processors(size string) int64 {
	_, name, _ := strings.Cut(size, "_")
	digits := strings.TrimLeftFunc(name, func(c rune) bool { return c < '0' || c > '9' })
	end := strings.IndexFunc(digits, func(c rune) bool { return c < '0' || c > '9' })
	if end >= 0 {
		digits = digits[:end]
	}
	n, err := strconv.ParseInt(digits, 10, 16)
	if err != nil || n < 1 {
		return 2
	}
	return n
}

func (t tree) prettyName() string {
	text, err := t.readTrimmed("/etc/os-release")
	if err != nil {
		return "Linux"
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			return strings.Trim(value, `"'`)
		}
	}
	return "Linux"
}

// imageList is where the tree's image store is: a list of what was pulled.
const imageList = "/var/lib/containerd/images.json"

// images lists what is in the tree's image store, at most the kubelet's 50.
func (t tree) images() []corev1.ContainerImage {
	content, err := t.readFile(imageList)
	if err != nil {
		return nil
	}
	var images []corev1.ContainerImage
	if err := json.Unmarshal(content, &images); err != nil {
		return nil
	}
	return images[:min(len(images), 50)]
}

// deleteNode deletes the Node of a computer that is gone, if it is that one's; r
// is its last boot.
func (s *Substrate) deleteNode(ctx context.Context, c *computer, r *running) error {
	if s.client == nil || r == nil {
		return nil
	}
	node, err := s.client.CoreV1().Nodes().Get(ctx, r.nodeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("node of %s: %w", c.id, err)
	}
	if node.Spec.ProviderID != providerID(r.computer.ResourceID) {
		return nil
	}
	err = s.client.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &node.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete node %s: %w", node.Name, err)
	}
	return nil
}
