package generalize

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/node/tree"
)

// maxConfig bounds every configuration file that is read whole.
const maxConfig = 1 << 20

var macAddress = regexp.MustCompile(`(?i)\b[0-9a-f]{2}(:[0-9a-f]{2}){5}\b`)

// rewrite replaces a file by what change makes of it, where that differs.
func (c *cleaner) rewrite(at string, change func(lines []string) []string) (tree.Count, error) {
	data, err := c.t.ReadFile(at, maxConfig)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, tree.ErrNotRegular) {
			return tree.Count{}, nil
		}
		return tree.Count{}, err
	}
	changed := []byte(strings.Join(change(strings.Split(string(data), "\n")), "\n"))
	if bytes.Equal(changed, data) {
		return tree.Count{}, nil
	}
	if err := c.t.WriteFile(at, changed, 0o644); err != nil {
		return tree.Count{}, err
	}
	return tree.Count{Paths: 1, Bytes: int64(max(0, len(data)-len(changed)))}, nil
}

func isRegular(c *cleaner, at string) (bool, error) {
	info, err := c.t.Lstat(at)
	return err == nil && info.Mode().IsRegular(), err
}

func holdsMAC(c *cleaner, at string) (bool, error) {
	data, err := readOptional(c.t, at, maxConfig)
	return macAddress.Match(data), err
}

func joinedByKubeadm(c *cleaner, _ string) (bool, error) { return c.kubeadm, nil }

var hwaddrLine = regexp.MustCompile(`^\s*(HWADDR|MACADDR|UUID)\s*=`)

func dropHWAddr(_ context.Context, c *cleaner, at string) (tree.Count, error) {
	return c.rewrite(at, func(lines []string) []string {
		var kept []string
		for _, l := range lines {
			if !hwaddrLine.MatchString(l) {
				kept = append(kept, l)
			}
		}
		return kept
	})
}

func dropDonorFromHosts(_ context.Context, c *cleaner, at string) (tree.Count, error) {
	return c.rewrite(at, func(lines []string) []string {
		var kept []string
		for _, l := range lines {
			if l, ok := hostsLine(l, c.donor); ok {
				kept = append(kept, l)
			}
		}
		return kept
	})
}

// dropRepeated keeps the last of equal lines: of sudo's rules the last one counts.
func dropRepeated(_ context.Context, c *cleaner, at string) (tree.Count, error) {
	return c.rewrite(at, func(lines []string) []string {
		var kept []string
		for i, l := range lines {
			if strings.HasSuffix(l, `\`) { // a rule goes on in the next line
				return lines
			}
			blank := l == "" && (len(kept) == 0 || kept[len(kept)-1] != "")
			if blank || l != "" && !slices.Contains(lines[i+1:], l) {
				kept = append(kept, l)
			}
		}
		return kept
	})
}

// hostsLine is a line of hosts(5) without the donor's names; false when nothing
// worth keeping is left of it. Lines that do not name the donor stay as they are.
func hostsLine(line string, donor facts) (string, bool) {
	text, comment, _ := strings.Cut(line, "#")
	fields := strings.Fields(text)
	if len(fields) < 2 {
		return line, true
	}
	addr, err := netip.ParseAddr(fields[0])
	if err == nil && donor.hasAddress(addr) {
		return "", false
	}
	kept := fields[:1:1]
	for _, name := range fields[1:] {
		if !donor.isName(name) {
			kept = append(kept, name)
		}
	}
	switch {
	case len(kept) == len(fields):
		return line, true
	case len(kept) == 1:
		return "", false
	case comment != "":
		return strings.Join(kept, " ") + " #" + comment, true
	default:
		return strings.Join(kept, " "), true
	}
}

// regenerateInitiator leaves what the distribution's own start-up turns into a
// new name: Debian's open-iscsi looks for GenerateName=yes, others' iscsi-init
// for a missing file.
func regenerateInitiator(_ context.Context, c *cleaner, at string) (tree.Count, error) {
	debian, err := c.t.Exists("/var/lib/dpkg/status")
	if err != nil {
		return tree.Count{}, err
	}
	if !debian {
		return c.t.Remove(at)
	}
	return c.rewrite(at, func([]string) []string { return []string{"GenerateName=yes", ""} })
}

// rotated matches what logrotate and its like leave: a number, a date, or a
// compressed file.
var rotated = regexp.MustCompile(`(\.[0-9]+|-[0-9]{8}([.-][0-9]+)?|\.old|\.(gz|xz|bz2|zst))$`)

func emptyLogs(ctx context.Context, c *cleaner, at string) (tree.Count, error) {
	return c.emptyLogsIn(ctx, at, 0)
}

func (c *cleaner) emptyLogsIn(ctx context.Context, dir string, depth int) (tree.Count, error) {
	var total tree.Count
	if err := ctx.Err(); err != nil {
		return total, err
	}
	entries, err := c.t.ReadDir(dir)
	if err != nil {
		if errors.Is(err, tree.ErrNotDirectory) {
			return total, nil
		}
		return total, err
	}
	for _, e := range entries {
		at := path.Join(dir, e.Name())
		var n tree.Count
		switch {
		case at == ancestryFile:
		case e.IsDir() && depth < 16:
			n, err = c.emptyLogsIn(ctx, at, depth+1)
		case !e.Type().IsRegular():
		case rotated.MatchString(e.Name()):
			n, err = c.t.Remove(at)
		default:
			n, err = c.empty(at)
		}
		if err != nil {
			return total, err
		}
		total.Add(n)
	}
	return total, nil
}

// wipesSwap is what the rows of wipeSwapFiles do. They change no file that they match.
const wipesSwap = "overwrite the content of swap files that it names"

// wipeSwapFiles overwrites the swap files that fstab or a unit names, but for the page
// that holds the header, so that swapon still takes them.
func wipeSwapFiles(_ context.Context, c *cleaner, at string) (tree.Count, error) {
	var total tree.Count
	data, err := readOptional(c.t, at, maxConfig)
	if err != nil {
		return total, err
	}
	for _, file := range swapFiles(data) {
		info, err := c.t.Stat(file)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if err := c.t.ZeroFrom(file, swapHeader); err != nil {
			return total, err
		}
		total.Add(tree.Count{Paths: 1, Bytes: max(0, info.Size()-swapHeader)})
	}
	return total, nil
}

// swapHeader is how long the header of a swap file is: a page, which its mark ends.
const swapHeader = 4096

// isSwap reports whether a file begins as a swap file, also one that a hibernated
// machine left.
func isSwap(data []byte) bool {
	if len(data) < swapHeader {
		return false
	}
	mark := data[swapHeader-10 : swapHeader]
	return bytes.Equal(mark, []byte("SWAPSPACE2")) || bytes.HasPrefix(mark, []byte("S1SUSPEND")) || bytes.HasPrefix(mark, []byte("LINHIB0001"))
}

// swapFiles returns the files, and not the devices, that an fstab or a .swap unit names
// as swap.
func swapFiles(data []byte) (files []string) {
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		var file string
		if len(f) >= 3 && f[2] == "swap" {
			file = f[0]
		} else if key, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(key) == "What" {
			file = strings.Trim(strings.TrimSpace(value), `"'`)
		}
		if strings.HasPrefix(file, "/") && !strings.HasPrefix(file, "/dev/") {
			files = append(files, file)
		}
	}
	return files
}

// namedSwapFiles returns the swap files that the table's rows overwrite.
func namedSwapFiles(t *tree.Tree) ([]string, error) {
	var named, files []string
	for _, row := range Table() {
		if row.What == wipesSwap {
			named = append(named, row.Path)
		}
	}
	err := eachFile(t, named, func(_ string, data []byte) { files = append(files, swapFiles(data)...) })
	return files, err
}
