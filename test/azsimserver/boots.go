package azsimserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/ortet/ortet/internal/boots/timeline/source"
	"github.com/ortet/ortet/internal/wire"
)

// recordings are files of one machine of AKS, which the readers' tests read too.
const recordings = "internal/boots/timeline/source/testdata"

// RecordedBoot returns the boot that they show, with the repository as the working folder.
func RecordedBoot() (wire.BootReport, error) {
	var reports []wire.BootReport
	for _, name := range []string{"journal.json", "cloud-init.log", "waagent.log", "containerd.log", "metrics.txt"} {
		file, err := os.Open(filepath.Join(recordings, name))
		if err != nil {
			return wire.BootReport{}, fmt.Errorf("read a recorded boot in the repository's folder: %w", err)
		}
		read, err := source.Read(name, file, source.Options{})
		if err = errors.Join(err, file.Close()); err != nil {
			return wire.BootReport{}, err
		}
		reports = append(reports, read...)
	}
	for _, boot := range source.Join(reports...) {
		if boot.BootID != "" && len(boot.Clocks) > 0 {
			return boot, nil
		}
	}
	return wire.BootReport{}, fmt.Errorf("%s has no boot with an id", recordings)
}

// ReportBoots gives each Node without a report the recorded one, as of the Node's own boot,
// until ctx ends. A Node that cannot be changed is tried again.
func ReportBoots(ctx context.Context, client kubernetes.Interface, boot wire.BootReport) {
	_ = wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, nil //nolint:nilerr // asked again
		}
		for _, n := range nodes.Items {
			if n.Annotations[wire.BootAnnotation] != "" {
				continue
			}
			report := boot
			report.Node, report.VMID = n.Name, strings.ToLower(n.Status.NodeInfo.SystemUUID)
			value, err := wire.EncodeBootAnnotation(began(report, n.CreationTimestamp.Time))
			if err != nil {
				return false, nil //nolint:nilerr // a test shows a report
			}
			patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, wire.BootAnnotation, value)
			_, _ = client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}) // again in a second
		}
		return false, nil
	})
}

// began returns a boot's report with its times of day moved, so that its machine is Ready
// when the Node is there.
func began(boot wire.BootReport, ready time.Time) wire.BootReport {
	last := boot.Clocks[len(boot.Clocks)-1]
	by := wire.Micros(ready.UnixMicro()) - last.Wall
	boot.At = ready
	boot.Clocks, boot.Spans = append([]wire.ClockReading(nil), boot.Clocks...), append([]wire.BootSpan(nil), boot.Spans...)
	for i := range boot.Clocks {
		boot.Clocks[i].Wall += by
	}
	for i, s := range boot.Spans {
		if s.Clock == wire.ClockMonotonic {
			continue
		}
		if s.Start != 0 {
			boot.Spans[i].Start += by
		}
		if s.End != 0 {
			boot.Spans[i].End += by
		}
	}
	return boot
}
