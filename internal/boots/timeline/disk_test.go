package timeline_test

import (
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/wire"
)

// What a node counted of its OS disk is in the timeline, and no missing evidence; what is no count is left out.
func TestDiskRead(t *testing.T) {
	for detail, want := range map[string]int64{
		wire.DiskRead(412e6, 9.5e6): 412e6, "": -1, "412 MB": -1, wire.DiskRead(-1, 5): -1, wire.DiskRead(1, -5): -1, wire.DiskRead(1, 1<<62): -1,
		"99999999999999999999 bytes read by microsecond 5": -1,
	} {
		tl := tunable(t, wire.BootSource{Name: wire.SourceDiskRead, Path: "/dev/sda", State: wire.SourceRead, Detail: detail})
		if d := tl.DiskRead; (d == nil) != (want < 0) || d != nil && (d.Bytes != want || d.Disk != "/dev/sda" || d.At != 9.5e6) {
			t.Errorf("%q: %+v, want %d", detail, d, want)
		}
		if strings.Contains(strings.Join(tl.Missing, "\n"), "disk-read") {
			t.Errorf("%q is called missing evidence: %q", detail, tl.Missing)
		}
	}
}
