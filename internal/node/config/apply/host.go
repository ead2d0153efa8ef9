package apply

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/ortet/ortet/internal/node/tree"
	"github.com/ortet/ortet/internal/nodeconfig"
)

// maxFile bounds a file of the machine that is read, in bytes.
const maxFile = 1 << 20

const (
	systemUnits = "/etc/systemd/system"
	// DefaultKubeletConfigDir is where Kubernetes' documentation has the kubelet's
	// drop-ins: kubernetes.io, "Kubelet Configuration Directory".
	DefaultKubeletConfigDir = "/etc/kubernetes/kubelet.conf.d"
)

// unitFolders are where systemd has unit files, in its order. Source: systemd.unit(5).
var unitFolders = [...]string{systemUnits, "/run/systemd/system", "/run/systemd/generator", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system", "/run/systemd/generator.late"}

// A host is what the machine's files say of its kubelet and container runtime.
type host struct {
	t *tree.Tree
	// rancher is "k3s" or "rke2", which have kubelet and containerd in one unit.
	rancher    string
	kubelet    string // the unit
	containerd string // the unit
	kubeletDir string // folder of the kubelet's drop-ins
	boot       bool   // before the kubelet's start
}

func readHost(t *tree.Tree, kubeletDir string, boot bool) (host, error) {
	h := host{t: t, kubelet: "kubelet.service", containerd: "containerd.service", kubeletDir: kubeletDir, boot: boot}
	for _, d := range [...]string{"k3s", "rke2"} {
		for _, unit := range [...]string{d + "-agent.service", d + ".service", d + "-server.service"} {
			at, err := h.unitFile(unit)
			if err != nil {
				return h, err
			}
			if at != "" {
				h.rancher, h.kubelet, h.containerd = d, unit, unit
				// Since 1.32 both read drop-ins here. Source: docs.k3s.io/installation/configuration,
				// "Kubelet Configuration Files".
				h.kubeletDir = "/var/lib/rancher/" + d + "/agent/etc/kubelet.conf.d"
				return h, nil
			}
		}
	}
	h.kubeletDir = cmp.Or(h.kubeletDir, DefaultKubeletConfigDir)
	return h, nil
}

// unitFile returns where the machine has a unit, or the template of an instance; "" for
// nowhere.
func (h host) unitFile(unit string) (string, error) {
	names := []string{unit}
	if template := templateOf(unit); template != unit {
		names = append(names, template)
	}
	for _, folder := range unitFolders {
		for _, name := range names {
			there, err := h.t.Exists(path.Join(folder, name))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return "", err
			}
			if there {
				return path.Join(folder, name), nil
			}
		}
	}
	return "", nil
}

// templateOf returns "a@.service" of "a@b.service"; others stay as they are.
func templateOf(unit string) string {
	name, instance, ok := strings.Cut(unit, "@")
	if !ok {
		return unit
	}
	return name + "@" + path.Ext(instance)
}

// read reads a file of the machine; what is not there is nil.
func (h host) read(name string) ([]byte, error) {
	text, err := h.t.ReadFile(name, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

func (h host) isDir(name string) bool {
	info, err := h.t.Stat(name)
	return err == nil && info.IsDir()
}

// owner returns the numbers of "USER:GROUP" by the machine's own files, without NSS: the
// agent is a static program.
func (h host) owner(owner string) (uid, gid int, err error) {
	if owner == "" {
		return 0, 0, nil
	}
	user, group, ok := strings.Cut(owner, ":")
	if !ok || user == "" || group == "" {
		return 0, 0, fmt.Errorf("owner %q: want USER:GROUP", owner)
	}
	if uid, err = h.number("/etc/passwd", "user", user); err == nil {
		gid, err = h.number("/etc/group", "group", group)
	}
	return uid, gid, err
}

func (h host) number(file, kind, name string) (int, error) {
	if n, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(n), nil
	}
	text, err := h.read(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Split(strings.TrimSpace(line), ":"); len(f) > 2 && f[0] == name {
			n, err := strconv.ParseUint(f[2], 10, 31)
			if err != nil {
				return 0, fmt.Errorf("read %s: %s %q: %w", file, kind, name, err)
			}
			return int(n), nil
		}
	}
	return 0, fmt.Errorf("%s has no %s %q", file, kind, name)
}

// registryDir is the first folder of containerd's config_path; "" where it has none.
// Source: containerd/docs/hosts.md.
func (h host) registryDir() (string, error) {
	text, err := h.read("/etc/containerd/config.toml")
	if err != nil {
		return "", err
	}
	registry := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			head, _, _ := strings.Cut(strings.Trim(line, "[ "), "]")
			registry = strings.HasPrefix(head, "plugins.") && strings.HasSuffix(strings.TrimSpace(head), ".registry")
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !registry || !ok || strings.TrimSpace(key) != "config_path" {
			continue
		}
		value = strings.TrimSpace(value)
		if len(value) < 2 {
			continue
		}
		value, _, _ = strings.Cut(value[1:], value[:1]) // its quote
		if first, _, _ := strings.Cut(value, ":"); path.IsAbs(first) {
			return path.Clean(first), nil
		}
	}
	return "", nil
}

// allowed refuses what no configuration may name, with all reasons.
func (h host) allowed(c nodeconfig.Config) error {
	var all []error
	for _, f := range c.Files {
		all = append(all, h.fileAllowed(f))
		for _, unit := range f.Restart {
			if cause := nodeconfig.RefuseUnitName(unit); cause != "" {
				all = append(all, fmt.Errorf("file %s: restart: %s %s", f.Path, unit, cause))
			}
		}
	}
	for _, u := range c.Units {
		for _, r := range nodeconfig.RefuseUnit(u) {
			all = append(all, fmt.Errorf("unit %s: %s: %s", u.Name, r.Field, r.Cause))
		}
	}
	for _, field := range slices.Sorted(maps.Keys(c.Kubelet)) {
		if cause := nodeconfig.RefuseKubelet(field); cause != "" {
			all = append(all, fmt.Errorf("kubelet: %s %s", field, cause))
		}
	}
	return errors.Join(all...)
}

// fileAllowed refuses a path by its name, and by where the machine's links lead it.
func (h host) fileAllowed(f nodeconfig.File) error {
	if !path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path {
		return fmt.Errorf("file %q: want an absolute path without dots", f.Path)
	}
	if cause := nodeconfig.RefusePath(f.Path); cause != "" {
		return fmt.Errorf("file %s %s", f.Path, cause)
	}
	for folder := path.Dir(f.Path); ; folder = path.Dir(folder) {
		at, err := h.t.Resolve(folder, true)
		if errors.Is(err, fs.ErrNotExist) && folder != "/" {
			continue
		}
		if err != nil {
			return fmt.Errorf("file %s: %w", f.Path, err)
		}
		target := path.Join("/", at, strings.TrimPrefix(f.Path, folder))
		if cause := nodeconfig.RefusePath(target); cause != "" {
			return fmt.Errorf("file %s: its folder leads to %s, which %s", f.Path, target, cause)
		}
		return nil
	}
}

func within(p, folder string) bool { return p == folder || strings.HasPrefix(p, folder+"/") }
