package disk

import (
	"path"
	"slices"
	"strings"
)

// entry is one line of fstab(5) that mounts something below the root.
type entry struct {
	spec, dir, kind, options string
}

// maxEntries bounds how many lines of a disk's fstab are followed.
const maxEntries = 64

// parseFstab returns what a disk mounts below its root, outer ones first.
func parseFstab(data []byte) []entry {
	var found []entry
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 3 || strings.HasPrefix(f[0], "#") || !strings.HasPrefix(f[1], "/") || f[2] == "swap" {
			continue
		}
		dir := path.Clean(Unescape(f[1]))
		if dir == "/" || len(found) == maxEntries {
			continue
		}
		found = append(found, entry{spec: Unescape(f[0]), dir: dir, kind: f[2], options: strings.Join(f[3:min(len(f), 4)], "")})
	}
	slices.SortStableFunc(found, func(a, b entry) int { return strings.Count(a.dir, "/") - strings.Count(b.dir, "/") })
	return found
}

// Needed returns where a disk's fstab mounts devices that the system does not boot without:
// other partitions and volumes of the disk, and not what another disk may hold (nofail).
func Needed(fstab []byte) (dirs []string) {
	for _, e := range parseFstab(fstab) {
		tag, _, _ := strings.Cut(e.spec, "=")
		device := strings.HasPrefix(tag, "/dev/") || slices.Contains([]string{"UUID", "LABEL", "PARTUUID", "PARTLABEL"}, tag)
		options := strings.Split(e.options, ",")
		if device && !slices.Contains(options, "nofail") && !slices.Contains(options, "noauto") {
			dirs = append(dirs, e.dir)
		}
	}
	return dirs
}

// Unescape undoes the octal escapes of blanks and backslashes in fstab and mountinfo.
func Unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// names says whether an entry's device is the partition with this superblock.
func (e entry) names(sb Superblock) bool {
	spec := e.spec
	for _, p := range [][2]string{{"/dev/disk/by-uuid/", "UUID="}, {"/dev/disk/by-label/", "LABEL="}} {
		if v, ok := strings.CutPrefix(spec, p[0]); ok {
			spec = p[1] + v
		}
	}
	if v, ok := strings.CutPrefix(spec, "UUID="); ok {
		return sb.UUID != "" && strings.EqualFold(strings.Trim(v, `"`), sb.UUID)
	}
	if v, ok := strings.CutPrefix(spec, "LABEL="); ok {
		return sb.Label != "" && strings.Trim(v, `"`) == sb.Label
	}
	return false
}

// holdsState says whether a directory on another disk would keep a node's
// identity out of reach: then the copy cannot be generalised.
func holdsState(dir string) bool {
	switch dir {
	case "/etc", "/var", "/var/lib", "/var/log", "/var/lib/kubelet", "/var/lib/cloud", "/var/lib/waagent", "/var/lib/rancher", "/root", "/home":
		return true
	}
	return false
}
