package controller

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// A stored boot is a ConfigMap, without an owner, so that it outlives the machine.
const (
	// BootLabel selects them.
	BootLabel = "ortet.io/boot"
	BootValue = "report"
	// BootNodeLabel and BootPoolLabel select those of a node, and of a scale set, by
	// LabelText of their names.
	BootNodeLabel = "ortet.io/node"
	BootPoolLabel = labelPool

	labelImage  = "ortet.io/image" // a hash of the image version's id
	storedAt    = "ortet.io/stored"
	keyBoot     = "boot.json"
	keyReport   = "report.json.gz"
	bootRecords = 1 // the version of keyBoot
	maxRecord   = 16 << 10
)

// A BootRecord is what the cloud and the cluster know of a boot whose report a
// node has given, as it is stored beside the report. Zero times are unknown.
type BootRecord struct {
	Version  int              `json:"version"`
	Node     string           `json:"node"`
	Pool     fleet.ResourceID `json:"pool,omitempty"`
	Instance fleet.ResourceID `json:"instance,omitempty"`
	VMID     string           `json:"vmId,omitempty"`
	BootID   string           `json:"bootId,omitempty"`
	Image    string           `json:"image,omitempty"` // as fleet.Boot has it
	Stored   time.Time        `json:"stored,omitzero"`

	Created     time.Time `json:"created,omitzero"`     // by Azure's clock
	Provisioned time.Time `json:"provisioned,omitzero"` // by Azure's clock
	NodeCreated time.Time `json:"nodeCreated,omitzero"` // by the API server's clock, as those below
	NodeReady   time.Time `json:"nodeReady,omitzero"`
	FirstPod    time.Time `json:"firstPod,omitzero"`
}

// Cloud is what a timeline is made of besides the report.
func (b BootRecord) Cloud() timeline.Cloud {
	return timeline.Cloud{Pool: b.Pool.Name(), Image: b.Image, VMID: b.VMID, Created: b.Created, Provisioned: b.Provisioned,
		NodeCreated: b.NodeCreated, NodeReady: b.NodeReady, FirstPod: b.FirstPod}
}

// ImageVersion is the name of the image version that the machine was made of:
// "2026.11.21"; of a marketplace image all that names it; "" where it is unknown.
func (b BootRecord) ImageVersion() string { return imageVersion(b.Image) }

func imageVersion(image string) string { return fleet.ResourceID(image).Name() }

// ReadBoot reads a stored boot. Anybody who may write ConfigMaps may have changed
// it, so it is checked as if it came from the node.
func ReadBoot(m *corev1.ConfigMap) (BootRecord, wire.BootReport, error) {
	fail := func(err error) (BootRecord, wire.BootReport, error) {
		return BootRecord{}, wire.BootReport{}, fmt.Errorf("the stored boot %s/%s: %w", m.Namespace, m.Name, err)
	}
	record, err := readRecord(m)
	if err != nil {
		return fail(err)
	}
	report, err := wire.UnpackBootReport(m.BinaryData[keyReport])
	if err != nil {
		return fail(err)
	}
	return record, report, nil
}

func readRecord(m *corev1.ConfigMap) (BootRecord, error) {
	text := m.Data[keyBoot]
	if len(text) > maxRecord {
		return BootRecord{}, errors.New("it is too large")
	}
	var record BootRecord
	if err := json.Unmarshal([]byte(text), &record); err != nil {
		return BootRecord{}, err
	}
	if record.Version != bootRecords {
		return BootRecord{}, fmt.Errorf("version %d, and only %d is known", record.Version, bootRecords)
	}
	pool, instance := (*string)(&record.Pool), (*string)(&record.Instance)
	for _, s := range []*string{&record.Node, pool, instance, &record.VMID, &record.BootID, &record.Image} {
		*s = flat(*s)
	}
	return record, nil
}

// ConfigMap is the form in which a boot is stored.
func (b BootRecord) ConfigMap(namespace string, report wire.BootReport) (*corev1.ConfigMap, error) {
	b.Version = bootRecords
	packed, err := wire.PackBootReport(report)
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(b, "", " ")
	if err != nil {
		return nil, err
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: bootName(b.Node, b.VMID, report), Namespace: namespace,
			Labels: map[string]string{BootLabel: BootValue, BootNodeLabel: LabelText(b.Node), BootPoolLabel: LabelText(b.Pool.Name()),
				labelVM: labelText(b.VMID), labelImage: imageHash(b.Image), "app.kubernetes.io/managed-by": "ortet"},
			Annotations: map[string]string{storedAt: b.Stored.UTC().Format(time.RFC3339)},
		},
		Data: map[string]string{keyBoot: string(text)}, BinaryData: map[string][]byte{keyReport: packed},
	}, nil
}

// bootName is a name for one boot of one machine: the same whoever stores it.
func bootName(node, vmID string, report wire.BootReport) string {
	h := fnv.New64a()
	boot := strings.ToLower(report.BootID)
	if boot == "" { // of Windows
		boot = report.At.UTC().Format(time.RFC3339Nano)
	}
	fmt.Fprintf(h, "%s|%s", strings.ToLower(vmID), boot)
	return fmt.Sprintf("timeline-%s-%016x", strings.Trim(nameText(node, 60), "-"), h.Sum64())
}

func imageHash(image string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(strings.ToLower(image))) // never fails
	return fmt.Sprintf("%016x", h.Sum64())
}

// LabelText returns a name as these labels have it, in lower case: Azure ignores case.
func LabelText(name string) string { return labelText(strings.ToLower(name)) }

// BootOf returns the boot that a node has left on its Node and that is not kept yet, with
// what the Node itself has of it; false if none. What Azure knows is not in it.
func BootOf(n *corev1.Node) (record BootRecord, report wire.BootReport, has bool, err error) {
	text, has := n.Annotations[wire.BootAnnotation]
	if !has {
		return record, report, false, nil
	}
	if report, err = wire.DecodeBootAnnotation(text); err != nil {
		return record, report, true, fmt.Errorf("the annotation %s of Node %s: %w", wire.BootAnnotation, n.Name, err)
	}
	b := fleet.Boot{VMID: report.VMID, Image: report.Image}
	if id, ok := InstanceOf(n.Spec.ProviderID); ok {
		b.Instance = id
		if id.Segment("virtualMachineScaleSets") != "" {
			b.Pool = id.Parent()
		}
	}
	record = recordOf(b, ViewOf(n), report)
	return record, report, true, nil
}
