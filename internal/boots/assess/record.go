package assess

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

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
	BootPoolLabel = "ortet.io/pool"

	MachineLabel = "ortet.io/vm-id"
	ImageLabel   = "ortet.io/image" // ImageHash of the image version's id
	// StoredAt annotates when it was stored.
	StoredAt = "ortet.io/stored"
	// KeyBoot and KeyReport are the parts: the BootRecord as JSON, and the report, packed.
	KeyBoot   = "boot.json"
	KeyReport = "report.json.gz"

	bootRecords = 1 // the version of KeyBoot
	maxRecord   = 16 << 10

	// MaxPulls and MaxImageName limit a record's Pulls, so that it stays below maxRecord.
	MaxPulls     = 16
	MaxImageName = 255 // bytes
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

	Pulls []timeline.Pull `json:"pulls,omitempty"` // for its DaemonSets' pods
}

// Cloud is what a timeline is made of besides the report.
func (b BootRecord) Cloud() timeline.Cloud {
	return timeline.Cloud{Pool: b.Pool.Name(), Image: b.Image, VMID: b.VMID, Created: b.Created, Provisioned: b.Provisioned,
		NodeCreated: b.NodeCreated, NodeReady: b.NodeReady, FirstPod: b.FirstPod, Pulls: b.Pulls}
}

// ImageVersion is the name of the image version that the machine was made of:
// "2026.11.21"; of a marketplace image all that names it; "" where it is unknown.
func (b BootRecord) ImageVersion() string { return imageVersion(b.Image) }

func imageVersion(image string) string { return fleet.ResourceID(image).Name() }

// ReadBoot reads a stored boot. Anybody who may write ConfigMaps may have changed
// it, so it is checked as if it came from the node.
func ReadBoot(m fleet.Record) (BootRecord, wire.BootReport, error) {
	fail := func(err error) (BootRecord, wire.BootReport, error) {
		return BootRecord{}, wire.BootReport{}, fmt.Errorf("the stored boot %s/%s: %w", m.Namespace, m.Name, err)
	}
	record, err := readRecord(m)
	if err != nil {
		return fail(err)
	}
	report, err := wire.UnpackBootReport(m.Binary[KeyReport])
	if err != nil {
		return fail(err)
	}
	return record, report, nil
}

func readRecord(m fleet.Record) (BootRecord, error) {
	text := m.Data[KeyBoot]
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
	record.Pulls = record.Pulls[:min(len(record.Pulls), MaxPulls)]
	for i := range record.Pulls {
		p := &record.Pulls[i]
		p.Image, p.DaemonSet, p.Took, p.Bytes = flat(p.Image), flat(p.DaemonSet), max(p.Took, 0), max(p.Bytes, 0)
	}
	return record, nil
}

// Record is the form in which a boot is stored.
func (b BootRecord) Record(report wire.BootReport) (fleet.Record, error) {
	b.Version = bootRecords
	packed, err := wire.PackBootReport(report)
	if err != nil {
		return fleet.Record{}, err
	}
	text, err := json.MarshalIndent(b, "", " ")
	if err != nil {
		return fleet.Record{}, err
	}
	return fleet.Record{
		Name: BootName(b.Node, b.VMID, report),
		Labels: map[string]string{BootLabel: BootValue, BootNodeLabel: LabelText(b.Node), BootPoolLabel: LabelText(b.Pool.Name()),
			MachineLabel: labelText(b.VMID), ImageLabel: ImageHash(b.Image), "app.kubernetes.io/managed-by": "ortet"},
		Annotations: map[string]string{StoredAt: b.Stored.UTC().Format(time.RFC3339)},
		Data:        map[string]string{KeyBoot: string(text)}, Binary: map[string][]byte{KeyReport: packed},
	}, nil
}

// BootName is a name for one boot of one machine: the same whoever stores it.
func BootName(node, vmID string, report wire.BootReport) string {
	h := fnv.New64a()
	boot := strings.ToLower(report.BootID)
	if boot == "" { // of Windows
		boot = report.At.UTC().Format(time.RFC3339Nano)
	}
	fmt.Fprintf(h, "%s|%s", strings.ToLower(vmID), boot)
	return fmt.Sprintf("timeline-%s-%016x", strings.Trim(nameText(node, 60), "-"), h.Sum64())
}

// ImageHash is an image as a label has it.
func ImageHash(image string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(strings.ToLower(image))) // never fails
	return fmt.Sprintf("%016x", h.Sum64())
}

// LabelText returns a name as these labels have it, in lower case: Azure ignores case.
func LabelText(name string) string { return labelText(strings.ToLower(name)) }

// BootOf returns the boot that a node has left on its Node and that is not kept yet, with
// what the Node itself has of it; false if none. What Azure knows is not in it.
func BootOf(n fleet.Node) (record BootRecord, report wire.BootReport, has bool, err error) {
	text, has := n.Annotations[wire.BootAnnotation]
	if !has {
		return record, report, false, nil
	}
	if report, err = wire.DecodeBootAnnotation(text); err != nil {
		return record, report, true, fmt.Errorf("the annotation %s of Node %s: %w", wire.BootAnnotation, n.Name, err)
	}
	b := fleet.Boot{VMID: report.VMID, Image: report.Image}
	if id, ok := InstanceOf(n.ProviderID); ok {
		b.Instance = id
		if id.Segment("virtualMachineScaleSets") != "" {
			b.Pool = id.Parent()
		}
	}
	record = RecordOf(b, ViewOf(n), report)
	return record, report, true, nil
}

// clocksDiffer is how far a node's clock, Azure's and the API server's are trusted
// to agree when only the order of events is asked.
const clocksDiffer = 30 * time.Second

// BootStart is when the boot of a report began, with the kernel's start but after a
// soft reboot, by the node's clock as it was set last; zero if no reading has it.
func BootStart(r wire.BootReport) time.Time {
	if len(r.Clocks) == 0 {
		return time.Time{}
	}
	last := r.Clocks[len(r.Clocks)-1]
	if last.Wall == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(last.Wall - last.Monotonic + r.System.Began())).UTC()
}

// RecordOf returns what the cloud and the cluster know of the boot that a report is of.
// What belongs to another boot of the machine, or to an earlier machine of the name,
// is left out: a machine that was restarted was not created then.
func RecordOf(b fleet.Boot, node *NodeView, report wire.BootReport) BootRecord {
	r := BootRecord{Node: node.Name, Pool: b.Pool, Instance: b.Instance, VMID: strings.ToLower(b.VMID), BootID: report.BootID, Image: b.Image}
	began := BootStart(report)
	// The kubelet reports of one boot, which may be a later one.
	current := report.BootID == "" || node.BootID == "" || strings.EqualFold(report.BootID, node.BootID)
	ours := !node.Created.Before(b.Created.Add(-clocksDiffer)) // not of an earlier machine
	restarted := !began.IsZero() &&
		(ours && node.Created.Before(began.Add(-clocksDiffer)) || !b.Created.IsZero() && began.Sub(b.Created) > maxBoot)
	if !restarted {
		r.Created = b.Created
		if p := b.Provisioning; p.State == "succeeded" && within(p.Time, b.Created) {
			r.Provisioned = p.Time
		}
		if current && ours && (began.IsZero() || within(node.Created, began)) {
			r.NodeCreated = node.Created
		}
	}
	if current && node.Ready && (began.IsZero() || within(node.ReadySince, began)) {
		r.NodeReady = node.ReadySince
	}
	return r
}

// within reports whether something happened in the time that a boot takes at most.
func within(at, from time.Time) bool {
	return !at.IsZero() && !from.IsZero() && !at.Before(from.Add(-clocksDiffer)) && at.Sub(from) <= maxBoot
}
