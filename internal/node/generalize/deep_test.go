package generalize

import (
	"bytes"
	"runtime"
	"strings"
	"testing"
)

// A deeply nested CMS message on a donor's disk is rejected before parsing: the parser
// copies the content once per level.
func TestDeepMessageIsNotParsed(t *testing.T) {
	const depth = 3000
	deep := append(bytes.Repeat([]byte{0x30, 0x80}, depth), 0x04, 0x82, 0x40, 0x00)
	deep = append(append(deep, make([]byte, 0x4000)...), make([]byte, 2*depth)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := openCMS(deep, nil, nil)
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "no CMS message") {
		t.Error(err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
		t.Errorf("%d KiB were allocated for a message of %d KiB", took>>10, len(deep)>>10)
	}
}
