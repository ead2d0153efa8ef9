package disk

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// fakeHost builds a host's root with links and a sysfs as Azure shows them.
// Keys ending in "/" are directories, values beginning with "->" links.
func fakeHost(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		at := filepath.Join(dir, name)
		parent := filepath.Dir(at)
		if name[len(name)-1] == '/' {
			parent = at
		}
		if err := os.MkdirAll(parent, 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch {
		case name[len(name)-1] == '/':
		case len(content) > 2 && content[:2] == "->":
			err = os.Symlink(content[2:], at)
		default:
			err = os.WriteFile(at, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func request(host string, lun int, c Controller) Request {
	return Request{Host: host, LUN: lun, Controller: c, Progress: func(string) {}, Unseen: func(string) {}, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

const (
	vmbus = "sys/devices/LNXSYSTM:00/VMBUS:00/"
	data  = vmbus + "f8b3781b-1e82-4818-a1c3-63d806ec15bb/"
	osCtl = vmbus + "f8b3781a-1e82-4818-a1c3-63d806ec15bb/"
)

// scsi adds a SCSI disk to a fake sysfs.
func scsi(files map[string]string, controller, id, name, address, vendor string) {
	device := controller + "host1/target1:0:0/" + address + "/"
	files[controller+"device_id"] = "{" + id + "}\n"
	files[device+"vendor"] = vendor + "\n"
	files[device+"block/"+name+"/device"] = "->../../../" + address
	files["sys/block/"+name] = "->../" + device[len("sys/"):] + "block/" + name
}

func nvme(files map[string]string, name, model, nsid string) {
	files["sys/devices/pci/"+name+"/nsid"] = nsid + "\n"
	files["sys/devices/pci/"+name+"/device/model"] = model + "   \n"
	files["sys/block/"+name] = "->../devices/pci/" + name
}

func TestFind(t *testing.T) {
	sysfs := map[string]string{}
	scsi(sysfs, osCtl, "f8b3781a-1e82-4818-a1c3-63d806ec15bb", "sda", "0:0:0:0", "Msft")
	scsi(sysfs, data, "f8b3781b-1e82-4818-a1c3-63d806ec15bb", "sdc", "1:0:0:0", "Msft")
	scsi(sysfs, data, "f8b3781b-1e82-4818-a1c3-63d806ec15bb", "sdd", "1:0:0:7", "Msft")
	scsi(sysfs, data, "f8b3781b-1e82-4818-a1c3-63d806ec15bb", "sde", "1:0:0:9", "Other")
	nvme(sysfs, "nvme0n1", remoteNVMe, "1")
	nvme(sysfs, "nvme0n2", remoteNVMe, "2")
	nvme(sysfs, "nvme0n5", remoteNVMe, "5")
	nvme(sysfs, "nvme1n1", "Microsoft NVMe Direct Disk v2", "6")

	for _, c := range []struct {
		name       string
		files      map[string]string
		lun        int
		controller Controller
		device     string
		dir        bool
		want       error // nil, errAbsent, or any RefusedError
	}{
		{name: "SCSI by the controller's id, not the OS disk at the same LUN", files: sysfs, lun: 0, controller: SCSI, device: "sdc"},
		{name: "SCSI at LUN 7", files: sysfs, lun: 7, controller: Auto, device: "sdd"},
		{name: "not Azure's disk", files: sysfs, lun: 9, controller: Auto, want: errAbsent},
		{name: "NVMe by its namespace", files: sysfs, lun: 3, controller: Auto, device: "nvme0n5"},
		{name: "a local NVMe disk is none", files: sysfs, lun: 4, controller: Auto, want: errAbsent},
		{name: "both kinds at one LUN", files: sysfs, lun: 0, controller: Auto, want: &RefusedError{}},
		{name: "both kinds, one asked for", files: sysfs, lun: 0, controller: NVMe, device: "nvme0n2"},
		{name: "a directory is the disk's tree", lun: 4, controller: Auto, dir: true,
			files: map[string]string{"disks/copy/etc/": "", "dev/disk/azure/scsi1/lun4": "->/disks/copy"}},
		{name: "a directory itself", lun: 4, controller: Auto, dir: true,
			files: map[string]string{"dev/disk/azure/data/by-lun/4/etc/": ""}},
		{name: "a dangling link is no disk yet", lun: 4, controller: Auto, want: errAbsent,
			files: map[string]string{"dev/disk/azure/scsi1/lun4": "->../../../sdx"}},
		{name: "SCSI links do not count for NVMe", lun: 4, controller: NVMe, want: errAbsent,
			files: map[string]string{"disks/copy/etc/": "", "dev/disk/azure/scsi1/lun4": "->/disks/copy"}},
		{name: "a file is refused", lun: 4, controller: Auto, want: &RefusedError{},
			files: map[string]string{"dev/disk/azure/scsi1/lun4": "x"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			found, err := find(request(fakeHost(t, c.files), c.lun, c.controller))
			refusal := (*RefusedError)(nil)
			switch {
			case c.want == nil && err != nil, errors.Is(c.want, errAbsent) && !errors.Is(err, errAbsent):
				t.Fatalf("error %v, want %v", err, c.want)
			case errors.As(c.want, &refusal) && !errors.As(err, &refusal):
				t.Fatalf("error %v, want a refusal", err)
			}
			if found.device != c.device || (found.dir != "") != c.dir {
				t.Errorf("found device %q, directory %q; want device %q, a directory %v", found.device, found.dir, c.device, c.dir)
			}
		})
	}
}

func TestAwaitGivesUp(t *testing.T) {
	r := request(t.TempDir(), 3, Auto)
	r.Wait = time.Millisecond
	refusal := (*RefusedError)(nil)
	if err := With(t.Context(), r); !errors.As(err, &refusal) {
		t.Fatalf("error %v, want a refusal that says where it looked", err)
	}
}
