package draw

import "fmt"

const costsTitle = "Pulls, reads and user data"

// shortUserData is not worth a line, in microseconds: cloud-init's modules take some time for nothing.
const shortUserData = 500_000

// costs are what a boot cost beside the time on its path, a line each.
func (v view) costs() (lines []string) {
	var all, held int64
	holds, atLeast := 0, ""
	for _, p := range v.Pulls {
		text, size := "imagePullPolicy Always: each node asks the registry, whatever its image holds", "size unknown"
		if p.Holds {
			holds, held, text = holds+1, held+p.Bytes, "the image can hold it"
		}
		if all += p.Bytes; p.Bytes > 0 {
			size = sizeText(p.Bytes)
		} else {
			atLeast = "at least "
		}
		lines = append(lines, fmt.Sprintf("%s: %s in %s, for %s; %s", p.Image, size, Duration(p.Took.Duration()), p.DaemonSet, text))
	}
	if n := len(v.Pulls); n > 0 {
		lines = append([]string{fmt.Sprintf("images pulled for DaemonSets' first pods: %d, %s%s, as the node reports; `ortet capture` of a node that has them saves its clones %d of them, %s%s",
			n, atLeast, sizeText(all), holds, atLeast, sizeText(held))}, lines...)
	}
	if d := v.DiskRead; d != nil {
		apart, way := d.At-v.End, "after"
		if apart < 0 {
			apart, way = -apart, "before"
		}
		lines = append(lines, fmt.Sprintf("%s were read from the OS disk %s until %s %s the end, as the node counts; what is read the first time of a disk made from an image comes slowly",
			sizeText(d.Bytes), d.Disk, Duration(apart.Duration()), way))
	}
	if v.UserData >= shortUserData {
		lines = append(lines, fmt.Sprintf("user data took %s (cloud-init's commands, packages, files and scripts): it runs again on each clone of a capture with `--bootstrap keep`, and not of one with `--bootstrap baked`",
			Duration(v.UserData.Duration())))
	}
	return lines
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
