package draw

import (
	"fmt"

	"github.com/ortet/ortet/internal/boots/timeline"
)

const costsTitle = "Pulls, reads and user data"

// costs are what a boot cost beside the time on its path, a line each.
func (v view) costs() (lines []string) {
	var kept []timeline.Pull
	for _, p := range v.Pulls {
		text := "imagePullPolicy Always: each node asks the registry, whatever its image holds"
		if p.Holds {
			kept, text = append(kept, p), "the image can hold it"
		}
		lines = append(lines, fmt.Sprintf("%s: %s in %s, for %s; %s", p.Image, sizeOf(p), Duration(p.Took.Duration()), p.DaemonSet, text))
	}
	if n := len(v.Pulls); n > 0 {
		lines = append([]string{fmt.Sprintf("images pulled for DaemonSets' first pods: %d (%s), as the node reports; clones of a node that has them need not pull %d of them (%s)",
			n, sizeOf(v.Pulls...), len(kept), sizeOf(kept...))}, lines...)
	}
	if d := v.DiskRead; d.Disk != "" {
		apart, way := d.At-v.End, "after"
		if apart < 0 {
			apart, way = -apart, "before"
		}
		lines = append(lines, fmt.Sprintf("%s were read from the OS disk %s until %s %s the end, as the node counts; "+
			"what is read the first time of a disk made from an image comes slowly",
			sizeText(d.Bytes), d.Disk, Duration(apart.Duration()), way))
	}
	if v.UserData >= timeline.ShortUserData {
		lines = append(lines, fmt.Sprintf("user data took %s (cloud-init's commands, packages, files and scripts): "+
			"it runs again on each clone of a capture with `--bootstrap keep`, and not of one with `--bootstrap baked`",
			Duration(v.UserData.Duration())))
	}
	return lines
}

// sizeOf is the size of all of these, as far as it is known.
func sizeOf(pulls ...timeline.Pull) string {
	var sum int64
	word := ""
	for _, p := range pulls {
		if sum += p.Bytes; p.Bytes == 0 {
			word = "at least "
		}
	}
	if sum == 0 && word != "" {
		return "size unknown"
	}
	return word + sizeText(sum)
}

// sizeText is a number of bytes for people.
func sizeText(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.2f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%d kB", (n+999)/1000)
}
