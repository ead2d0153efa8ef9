package source

import (
	"strings"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

// DefaultBytes is how much of a file is read without Options.Bytes.
const DefaultBytes = 256 << 20

// Options select what is read of a file. The zero value selects all boots in it.
type Options struct {
	// Path is where the text was found, for the BootSource.
	Path string
	// BootID, with or without dashes, leaves out what is said of other boots by
	// sources that know boots by their ids.
	BootID string
	// Since and Until are the boot's window by the node's clock: from the kernel's start to
	// the end of what is wanted. Entries with a time of day outside are left out. Zero: no
	// bound. A second's slack is allowed on either side, since some sources round.
	Since, Until time.Time
	// Bytes is how much is read; 0: DefaultBytes. Of a longer file that can be sought, a
	// quarter of that is read from its start, where its first boot is, and the rest from
	// its end, where the last is; of a stream, its start.
	Bytes int64
}

const slack = wire.Micros(1e6)

// covers reports whether a time of day is in the window.
func (o Options) covers(wall wire.Micros) bool {
	if !o.Since.IsZero() && wall < wire.Micros(o.Since.UnixMicro())-slack {
		return false
	}
	return o.Until.IsZero() || wall <= wire.Micros(o.Until.UnixMicro())+slack
}

// windowed reports whether a window is set.
func (o Options) windowed() bool { return !o.Since.IsZero() || !o.Until.IsZero() }

// wants reports whether a boot is wanted, by its id.
func (o Options) wants(bootID string) bool {
	return o.BootID == "" || bootID == "" || SameBoot(o.BootID, bootID)
}

func (o Options) bytes() int64 {
	if o.Bytes > 0 {
		return o.Bytes
	}
	return DefaultBytes
}

// SameBoot reports whether two boot ids are the same: the kernel writes them with dashes,
// the journal without.
func SameBoot(a, b string) bool {
	return strings.EqualFold(strings.ReplaceAll(a, "-", ""), strings.ReplaceAll(b, "-", ""))
}

// dashed is a boot id as the kernel writes it, which is how a BootReport has it;
// what is none is left as it is.
func dashed(id string) string {
	id = strings.ToLower(id)
	if len(id) != 32 || strings.Contains(id, "-") {
		return id
	}
	return id[:8] + "-" + id[8:12] + "-" + id[12:16] + "-" + id[16:20] + "-" + id[20:]
}
