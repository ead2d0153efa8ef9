package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/node/tree"
)

// location is where a LUN's disk is: a device of the host's, or, on simulated
// nodes, a directory that is the disk's tree itself.
type location struct {
	device string // name, "sdc"
	number uint64 // device number, where the name is a node's and need not be the kernel's
	dir    string // absolute, for this process
	by     string // what told so
}

// errAbsent says that no disk is at the LUN (yet).
var errAbsent = errors.New("no disk is there")

// lookEvery is how often the host is looked at while a disk is awaited. Its
// links are made by udev, in another mount namespace at times, where inotify
// does not reach.
const lookEvery = 250 * time.Millisecond

// await looks for the disk until it is there or the wait is over.
func await(ctx context.Context, r Request) (location, error) {
	ctx, cancel := context.WithTimeout(ctx, max(r.Wait, 0))
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for told := false; ; told = true {
		found, err := find(r)
		if !errors.Is(err, errAbsent) {
			return found, err
		}
		if !told && r.Wait > 0 {
			r.Progress(fmt.Sprintf("waiting for the disk at LUN %d", r.LUN))
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return location{}, ctx.Err()
			}
			return location{}, refuse("no disk showed up at LUN %d within %s: looked for %s below %s, and in sysfs; is it attached to this node?",
				r.LUN, r.Wait, strings.Join(links(r), ", "), r.Host)
		case <-tick.C:
		}
	}
}

// links are the names that udev's rules give a data disk: those of waagent and
// azure-vm-utils for SCSI, those of azure-vm-utils for NVMe.
func links(r Request) []string {
	n := strconv.Itoa(r.LUN)
	var l []string
	if r.Controller != NVMe {
		l = append(l, "/dev/disk/azure/scsi1/lun"+n)
	}
	return append(l, "/dev/disk/azure/data/by-lun/"+n)
}

// find looks once.
func find(r Request) (location, error) {
	host, err := tree.Open(r.Host)
	if err != nil {
		return location{}, refuse("the host's root: %v", err)
	}
	defer func() { _ = host.Close() }() // only looked at
	for _, link := range links(r) {
		at, err := host.Resolve(link, true)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return location{}, fmt.Errorf("following %s: %w", link, err)
		}
		info, err := host.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // a link that udev has not taken away yet
		case err != nil:
			return location{}, fmt.Errorf("following %s: %w", link, err)
		case info.IsDir():
			return location{dir: filepath.Join(r.Host, filepath.FromSlash(at)), by: link}, nil
		case info.Mode()&fs.ModeDevice != 0 && info.Mode()&fs.ModeCharDevice == 0:
			return location{device: path.Base(at), number: deviceNumber(info), by: link}, nil
		default:
			return location{}, refuse("%s leads to /%s, which is neither a block device nor a directory", link, at)
		}
	}
	return findInSysfs(host, r)
}

func findInSysfs(host *tree.Tree, r Request) (location, error) {
	disks, err := host.Glob("/sys/block/*")
	if err != nil {
		return location{}, err
	}
	var found []string
	for _, d := range disks {
		name := path.Base(d)
		ok, err := false, error(nil)
		switch {
		case strings.HasPrefix(name, "sd") && r.Controller != NVMe:
			ok, err = isSCSI(host, d, r.LUN)
		case nvmeNamespace.MatchString(name) && r.Controller != SCSI:
			ok, err = isNVMe(host, d, r.LUN)
		}
		if err != nil {
			return location{}, err
		}
		if ok {
			found = append(found, name)
		}
	}
	switch len(found) {
	case 0:
		return location{}, errAbsent
	case 1:
		return location{device: found[0], by: "sysfs"}, nil
	default:
		return location{}, refuse("LUN %d is ambiguous on this host: %s; say which with --controller", r.LUN, strings.Join(found, " and "))
	}
}

var (
	scsiAddress   = regexp.MustCompile(`^[0-9]+:[0-9]+:[0-9]+:([0-9]+)$`)
	nvmeNamespace = regexp.MustCompile(`^nvme[0-9]+n[0-9]+$`)
	// dataController matches the VMBus ids of the controllers that data disks
	// are on; f8b3781a… and 00000000-… are the OS disk's and the temporary
	// disk's (azure-vm-utils, udev/80-azure-disk.rules).
	dataController = regexp.MustCompile(`^\{f8b3781[bcd]-1e82-4818-a1c3-63d806ec15bb\}$`)
)

// isSCSI says whether a disk of sysfs is a data disk of Azure's at the LUN.
func isSCSI(host *tree.Tree, block string, lun int) (bool, error) {
	device, err := host.Resolve(block+"/device", true)
	if err != nil {
		return false, ignoreAbsent(err)
	}
	m := scsiAddress.FindStringSubmatch(path.Base(device))
	if m == nil || m[1] != strconv.Itoa(lun) {
		return false, nil
	}
	vendor, err := attribute(host, device+"/vendor")
	if err != nil || vendor != "Msft" {
		return false, err
	}
	// The controller is some directories up: target, host, VMBus device.
	for dir := path.Dir(device); dir != "." && dir != "/"; dir = path.Dir(dir) {
		id, err := attribute(host, dir+"/device_id")
		if err != nil {
			return false, err
		}
		if id != "" {
			return dataController.MatchString(strings.ToLower(id)), nil
		}
	}
	return false, nil
}

// remoteNVMe is the model of the controller that remote disks are on: namespace
// 1 is the OS disk, and a data disk's LUN is its namespace less 2
// (azure-vm-utils, doc/disk-identification.md).
const remoteNVMe = "MSFT NVMe Accelerator v1.0"

func isNVMe(host *tree.Tree, block string, lun int) (bool, error) {
	model, err := attribute(host, block+"/device/model")
	if err != nil || model != remoteNVMe {
		return false, err
	}
	nsid, err := attribute(host, block+"/nsid")
	return err == nil && nsid == strconv.Itoa(lun+2), err
}

// attribute reads a file of sysfs; a missing one is "".
func attribute(host *tree.Tree, name string) (string, error) {
	data, err := host.ReadFile(name, 64<<10)
	if err != nil {
		return "", ignoreAbsent(err)
	}
	return strings.TrimSpace(string(data)), nil
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, tree.ErrNotRegular) {
		return nil
	}
	return err
}

// partitions lists the kernel names of a disk's partitions, by number.
func partitions(host *tree.Tree, device string) ([]string, error) {
	paths, err := host.Glob("/sys/class/block/" + device + "/" + device + "*/partition")
	if err != nil {
		return nil, err
	}
	number := map[string]int{}
	var names []string
	for _, p := range paths {
		name := path.Base(path.Dir(p))
		s, err := attribute(host, p)
		if err != nil {
			return nil, err
		}
		n, err := strconv.Atoi(s)
		if err != nil {
			return nil, fmt.Errorf("/%s says %q, not a number", p, s)
		}
		number[name] = n
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return number[a] - number[b] })
	return names, nil
}
