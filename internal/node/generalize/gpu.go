package generalize

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/ortet/ortet/internal/node/tree"
)

// whatCDI is the condition of the rows of madeByToolkit.
const whatCDI = "NVIDIA's toolkit made it, and nvidia-cdi-refresh.service makes it at each boot"

// madeByToolkit reports whether a CDI spec is one of nvidia-ctk, whose hooks it names, and the disk
// has the unit that makes it again. What people wrote, or made by hand, stays.
func madeByToolkit(c *cleaner, at string) (bool, error) {
	data, err := readOptional(c.t, at, maxConfig)
	if err != nil || !bytes.Contains(data, []byte("cdiVersion")) || !bytes.Contains(data, []byte("nvidia.com/gpu")) ||
		!bytes.Contains(data, []byte("nvidia-cdi-hook")) && !bytes.Contains(data, []byte("nvidia-ctk")) {
		return false, err
	}
	units, err := c.t.Glob("/etc/systemd/system/*.wants/nvidia-cdi-refresh.service")
	return len(units) > 0, err
}

// kernelWithoutDriver says that the newest kernel in /boot, which clones boot, has no NVIDIA driver
// while another kernel has one, and what to do; "" otherwise. A module counts wherever it lies: DKMS,
// the distribution's packages and NVIDIA's installer use different folders, and depmod knows them all.
func kernelWithoutDriver(t *tree.Tree) (string, error) {
	images, err := t.Glob("/boot/vmlinuz-*")
	if err != nil {
		return "", err
	}
	newest, other := "", ""
	for _, at := range images {
		kernel := strings.TrimPrefix(path.Base(at), "vmlinuz-")
		if ok, err := t.Exists("/lib/modules/" + kernel + "/modules.dep"); err != nil {
			return "", err
		} else if ok && (newest == "" || newerKernel(kernel, newest)) {
			newest = kernel
		}
	}
	lists, err := t.Glob("/lib/modules/*/modules.dep")
	if err != nil {
		return "", err
	}
	for _, at := range lists {
		kernel := path.Base(path.Dir(at))
		has, err := listsDriver(t, at)
		switch {
		case err != nil:
			return "", err
		case has && kernel == newest:
			return "", nil
		case has && (other == "" || newerKernel(kernel, other)):
			other = kernel
		}
	}
	if newest == "" || other == "" {
		return "", nil
	}
	command, err := buildsDriver(t, newest, other)
	return fmt.Sprintf("kernel %s, the newest in /boot, has no NVIDIA driver, and kernel %s has one: "+
		"clones would boot without their GPUs; on the donor run '%s', or remove kernel %s",
		newest, other, command, newest), err
}

// listsDriver reports whether a modules.dep names NVIDIA's module, which Debian calls nvidia-current.
func listsDriver(t *tree.Tree, at string) (has bool, err error) {
	f, _, err := t.OpenRegular(at, os.O_RDONLY)
	if err != nil {
		return false, fmt.Errorf("reading /%s: %w", at, err)
	}
	err = records(f, '\n', func(line []byte) {
		module, _, _ := bytes.Cut(line, []byte(":"))
		name, ok := bytes.CutPrefix(module[bytes.LastIndexByte(module, '/')+1:], []byte("nvidia"))
		has = has || ok && (bytes.HasPrefix(name, []byte(".ko")) || bytes.HasPrefix(name, []byte("-current.ko")))
	})
	return has, errors.Join(err, f.Close())
}

// buildsDriver returns the command that gives a kernel the driver that another one has.
func buildsDriver(t *tree.Tree, kernel, other string) (string, error) {
	// Ubuntu's signed modules, a package for each kernel: linux-modules-nvidia-535-server-6.8.0-1021-azure.
	packages, err := t.Glob("/var/lib/dpkg/info/linux-modules-nvidia-*.list")
	if err != nil {
		return "", err
	}
	for _, at := range packages {
		if name, ok := strings.CutSuffix(path.Base(at), "-"+other+".list"); ok {
			return "apt-get install " + name + "-" + kernel, nil
		}
	}
	if sources, err := t.Glob("/var/lib/dkms/nvidia*"); err != nil || len(sources) > 0 {
		return "dkms autoinstall -k " + kernel, err // with the headers of that kernel, which it asks for
	}
	return "NVIDIA-Linux-*.run --kernel-name=" + kernel, nil
}

// newerKernel compares two versions as sort -V does: numbers by their value.
func newerKernel(a, b string) bool {
	for a != "" && b != "" {
		x, y := digits(a), digits(b)
		if x > 0 && y > 0 {
			m, _ := strconv.ParseUint(a[:x], 10, 64) // what is too large is the largest
			n, _ := strconv.ParseUint(b[:y], 10, 64)
			if m != n {
				return m > n
			}
			a, b = a[x:], b[y:]
			continue
		}
		if a[0] != b[0] {
			return a[0] > b[0]
		}
		a, b = a[1:], b[1:]
	}
	return len(a) > len(b)
}

// digits is how many digits a text begins with.
func digits(s string) int { return len(s) - len(strings.TrimLeft(s, "0123456789")) }
