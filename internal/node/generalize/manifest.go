package generalize

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	bolt "go.etcd.io/bbolt"

	"github.com/ortet/ortet/internal/node/packages"
	"github.com/ortet/ortet/internal/node/tree"
	"github.com/ortet/ortet/internal/wire"
)

const (
	// maxNames bounds each list of a manifest but that of packages.
	maxNames = 5000
	// maxProgram bounds a program that is searched for its version.
	maxProgram = 512 << 20
	// maxBuildInfo is how much of a program's build information is read.
	maxBuildInfo = 64 << 10
)

// manifest is read of a disk whose owner may have put anything on it. What cannot be read is
// named in it: it fails no capture.
type manifest struct {
	wire.Manifest
	t *tree.Tree
}

// Manifest returns what is on a generalised disk, as it is kept: at most wire.MaxManifest bytes.
func Manifest(t *tree.Tree) []byte {
	m := manifest{t: t}
	m.Packages, m.NotRead = packages.Read(t)
	m.system()
	m.kernels()
	m.Kubelet = m.program("kubelet", kubeletVersion, "kubelet", "kubernetes-kubelet", "kubernetes-node")
	m.Containerd = m.program("containerd", containerdVersion, "containerd.io", "moby-containerd", "containerd", "containerd2")
	m.images()
	m.units()
	m.sizes()
	return m.pack()
}

func (m *manifest) miss(format string, args ...any) {
	m.NotRead = append(m.NotRead, wire.Word(fmt.Sprintf(format, args...)))
}

// pack drops of the longest list what does not fit. Only a disk that was made for it gets there.
func (m *manifest) pack() []byte {
	slices.Sort(m.NotRead)
	m.NotRead = m.NotRead[:min(len(m.NotRead), maxListed)]
	cut := false
	for {
		packed, ok := m.Pack()
		if ok {
			return packed
		}
		if !cut {
			cut = true
			m.miss("incomplete: all of it is longer than %d KiB", wire.MaxManifest>>10)
		}
		switch p, i, u := len(m.Packages), len(m.Images), len(m.Units); max(p, i, u) {
		case p:
			m.Packages = m.Packages[:p*3/4]
		case i:
			m.Images = m.Images[:i*3/4]
		default:
			m.Units = m.Units[:u*3/4]
		}
		if len(m.Packages)+len(m.Images)+len(m.Units) == 0 {
			m.Manifest = wire.Manifest{OS: m.OS, NotRead: m.NotRead}
		}
	}
}

var osReleaseLine = regexp.MustCompile(`(?m)^(ID|VERSION_ID|PRETTY_NAME)=(.*)$`)

func (m *manifest) system() {
	for _, file := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		data, err := readOptional(m.t, file, 64<<10)
		if err != nil {
			m.miss("system: %s cannot be read: %v", file, err)
		}
		for _, line := range osReleaseLine.FindAllSubmatch(data, -1) {
			value := wire.Word(strings.Trim(string(line[2]), "\"' \r"))
			switch string(line[1]) {
			case "ID":
				m.OS.ID = value
			case "VERSION_ID":
				m.OS.Version = value
			default:
				m.OS.Name = value
			}
		}
		if m.OS != (wire.OperatingSystem{}) {
			return
		}
	}
	m.miss("system: no os-release is on the disk")
}

// names are what follows the prefix in the names of paths, sorted, each once.
func (m *manifest) names(what, prefix string, name func(at string) string, patterns ...string) (names []string) {
	for _, pattern := range patterns {
		paths, err := m.t.Glob(pattern)
		if err != nil {
			m.miss("%s: %s cannot be read: %v", what, pattern, err)
		}
		for _, at := range paths {
			names = append(names, wire.Word(strings.TrimPrefix(name(at), prefix)))
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > maxNames {
		m.miss("%s: only the first %d are listed", what, maxNames)
		names = names[:maxNames]
	}
	return names
}

// kernels are those with a program in /boot, or with modules. A folder that a removed kernel left
// has no modules.dep.
func (m *manifest) kernels() {
	m.Kernels = m.names("kernels", "vmlinuz-", path.Base, "/boot/vmlinuz-*")
	modules := m.names("kernels", "", func(at string) string { return path.Base(path.Dir(at)) }, "/lib/modules/*/modules.dep")
	m.Kernels = append(m.Kernels, modules...)
	slices.Sort(m.Kernels)
	m.Kernels = slices.Compact(m.Kernels)
}

// units are those that links in /etc enable.
func (m *manifest) units() {
	m.Units = m.names("units", "", path.Base, "/etc/systemd/system/*.wants/*", "/etc/systemd/system/*.requires/*")
}

// program returns a program's version: that of the package that brings it, else what Go built
// into it. k3s and RKE2 bring both programs.
func (m *manifest) program(name string, linked *regexp.Regexp, of ...string) string {
	for _, p := range m.Packages {
		if slices.Contains(of, p.Name) {
			return p.Version
		}
	}
	for _, file := range []string{name, "k3s", "rke2"} {
		for _, dir := range []string{"/usr/local/bin/", "/usr/bin/", "/opt/bin/", "/opt/rke2/bin/"} {
			version, err := goVersion(m.t, dir+file, linked)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if version == "" {
				m.miss("%s: %s does not say its version", name, dir+file)
			}
			return wire.Word(version)
		}
	}
	m.miss("%s: neither a package nor a program of it is on the disk", name)
	return ""
}

// Versions that "go build -ldflags -X" gives to Kubernetes, k3s and containerd, and those of a module.
var (
	kubeletVersion    = regexp.MustCompile(`[vV]ersion\.(?:gitVersion|Version)=["']?(v?[0-9][0-9A-Za-z.+~_-]*)`)
	containerdVersion = regexp.MustCompile(`/containerd(?:/v[0-9]+)?/version\.Version=["']?(v?[0-9][0-9A-Za-z.+~_-]*)`)
	moduleVersion     = regexp.MustCompile(`(?m)^mod\t\S+\t(v[0-9][0-9A-Za-z.+~_-]*)`)
)

// goVersion returns the version in a Go program's build information, "" without one. The
// information follows a sign: Go's debug/buildinfo, without what it takes to read all formats of
// programs.
func goVersion(t *tree.Tree, at string, linked *regexp.Regexp) (string, error) {
	f, info, err := t.OpenRegular(at, os.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer f.Close() // nothing was written
	const sign = "\xff Go buildinf:"
	buf := make([]byte, 1<<20+maxBuildInfo)
	for from := int64(0); from < min(info.Size(), maxProgram); from += 1 << 20 {
		n, err := f.ReadAt(buf, from)
		if err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		i := bytes.Index(buf[:n], []byte(sign))
		if i < 0 || i >= 1<<20 {
			continue
		}
		data := buf[i:min(n, i+maxBuildInfo)]
		for _, form := range []*regexp.Regexp{linked, moduleVersion} {
			if found := form.FindSubmatch(data); found != nil {
				return string(found[1]), nil
			}
		}
	}
	return "", nil
}

// images reads the images' names of containerd's metadata. An image that has a name with a tag is
// not listed by its digest, too.
func (m *manifest) images() {
	for _, other := range []string{"/var/lib/docker/image", "/var/lib/containers/storage/overlay-images"} {
		if ok, err := m.t.Exists(other); ok || err != nil {
			m.miss("images: those in %s are not read", other)
		}
	}
	roots, err := containerdRoots(m.t)
	if err != nil {
		m.miss("images: containerd's folders cannot be read: %v", err)
	}
	for _, root := range roots {
		db := root + "/io.containerd.metadata.v1.bolt/meta.db"
		if err := m.imagesOf(db); err != nil && !errors.Is(err, fs.ErrNotExist) {
			m.miss("images: /%s cannot be read: %v", db, err)
		}
	}
	slices.SortFunc(m.Images, func(a, b wire.ContainerImage) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Digest, b.Digest))
	})
	if m.Images = slices.Compact(m.Images); len(m.Images) > maxNames {
		m.miss("images: only the first %d are listed", maxNames)
		m.Images = m.Images[:maxNames]
	}
	tagged := map[string]bool{}
	for _, i := range m.Images {
		tagged[i.Digest] = tagged[i.Digest] || !strings.Contains(i.Name, "sha256:")
	}
	m.Images = slices.DeleteFunc(m.Images, func(i wire.ContainerImage) bool {
		return tagged[i.Digest] && strings.Contains(i.Name, "sha256:")
	})
}

func (m *manifest) imagesOf(db string) (err error) {
	at, err := m.t.Resolve(db, true)
	if err != nil {
		return err
	}
	if info, err := m.t.Lstat(at); err != nil || !info.Mode().IsRegular() || info.Size() > maxDatabase {
		return cmp.Or(err, tree.ErrNotRegular)
	}
	// As in updateBolt: a damaged database is an error, whatever bolt makes of it.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it is damaged: %v", p)
		}
	}()
	open := func(name string, flag int, _ fs.FileMode) (*os.File, error) {
		f, _, err := m.t.OpenRegular(name, flag&^os.O_CREATE)
		return f, err
	}
	b, err := bolt.Open(at, 0, &bolt.Options{ReadOnly: true, Timeout: boltWait, OpenFile: open})
	if err != nil {
		return err
	}
	err = b.View(func(tx *bolt.Tx) error {
		v1 := tx.Bucket([]byte("v1"))
		if v1 == nil {
			return nil
		}
		for _, ns := range subBuckets(v1) {
			images := v1.Bucket([]byte(ns)).Bucket([]byte("images"))
			if images == nil {
				continue
			}
			cursor := images.Cursor()
			for name, value := cursor.First(); name != nil && len(m.Images) <= maxNames; name, value = cursor.Next() {
				if value != nil {
					continue
				}
				i := wire.ContainerImage{Name: wire.Word(string(name))}
				if target := images.Bucket(name).Bucket([]byte("target")); target != nil {
					i.Digest = wire.Word(string(target.Get([]byte("digest"))))
				}
				m.Images = append(m.Images, i)
			}
		}
		return nil
	})
	return errors.Join(err, b.Close())
}

// sizes are those of the top folders.
func (m *manifest) sizes() {
	entries, err := m.t.ReadDir("/")
	if err != nil || len(entries) > maxListed {
		m.miss("bytes: the top folder cannot be read, or has more than %d entries", maxListed)
		return
	}
	m.Bytes = map[string]int64{}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		n, err := m.t.Measure(e.Name())
		if err != nil {
			m.miss("bytes: incomplete: /%s: %v", e.Name(), err)
		}
		m.Bytes[wire.Word("/"+e.Name())] += n.Bytes
	}
}
