// Package tune adds files to the copy of a donor's disk by which clones are Ready sooner, and
// takes them away again.
//
// A tuning adds files and edits none. [List] names what was added, with digests: each capture
// first takes that away, since the next donor is a clone of a tuned image. The list is the donor's
// word, so that it may name nothing but what a tuning adds, and what somebody changed stays.
//
// kubelet-early has a kubelet start before cloud-init's network stage ends. It rests on these facts:
//   - The local stage sets the host name, and writes data/set-hostname after that; the network stage
//     tries again if that failed (cloud-init 22.4, main_init and cc_set_hostname). It finds
//     Azure's data source (DataSourceAzure, DEP_FILESYSTEM). A generalised disk has neither that
//     file nor /etc/hostname, so no clone has its donor's name.
//   - mounts, disk_setup, growpart, bootcmd, write_files, ca_certs and update_etc_hosts run in the
//     network stage (cloud.cfg, cloud_init_modules), which prepares Azure's temporary disk, too.
//   - The kubelet measures ephemeral-storage once, and asks D-Bus once about shutdowns (Kubernetes
//     1.36, containerManagerImpl.Start and nodeshutdown). A runtime makes a folder of a socket that a
//     pod mounts and that is not there. So the kubelet keeps its default dependencies; on Debian and
//     Ubuntu the network stage is before these, and on RHEL and Azure Linux it is not.
//
// What a disk shows against it refuses the tuning; early.sh decides the rest on each clone.
package tune

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/node/tree"
	"github.com/ortet/ortet/internal/wire"
)

// List is the file that lists what was added.
const List = "etc/ortet/tuned.json"

const (
	version   = 1
	maxList   = 64 << 10
	maxConfig = 1 << 20 // as of every configuration file
)

// A row is a file of a tuning.
type row struct {
	name, at string
	make     func(*checker) (content string) // checks as well; "" if this disk needs no such file
}

func rows() []row {
	all := []row{{wire.TuneKubeletEarly, gateFile, (*checker).kubeletEarly}}
	for _, unit := range earlyUnits() {
		all = append(all, row{wire.TuneKubeletEarly, unitsHere + unit, earlyCopy(unit)})
	}
	for _, unit := range stages() {
		all = append(all, row{wire.TuneKubeletEarly, unitsHere + unit, stageCopy(unit)})
	}
	return append(all, []row{
		{wire.TuneRuntimeEarly, "etc/systemd/system/containerd.service.d/90-ortet-runtime-early.conf", (*checker).runtimeEarly},
		{wire.TuneSSHHostKey, "etc/cloud/cloud.cfg.d/zz-ortet-ssh-host-key.cfg", (*checker).sshHostKey},
	}...)
}

// A File was added by a tuning.
type File struct {
	Tuning string `json:"tuning"`
	Path   string `json:"path"` // on the disk, without a slash at its beginning
	SHA256 string `json:"sha256"`
}

type list struct {
	Version int    `json:"version"`
	Capture string `json:"capture"`
	Files   []File `json:"files"`
}

// Read returns what the list of a disk names; nothing if there is no list. An error means that the
// list is not to be believed, and what to do.
func Read(t *tree.Tree) ([]File, error) {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("/%s, which lists what an earlier capture's --tune added, %s; delete it and the files of --tune on the node",
			List, fmt.Sprintf(format, args...))
	}
	there, err := plain(t, List)
	if err != nil || !there {
		if err != nil {
			err = wrong("%v", err)
		}
		return nil, err
	}
	text, err := t.ReadFile(List, maxList)
	if err != nil {
		return nil, wrong("cannot be read: %v", err)
	}
	var version1 struct{ Version int }
	if json.Unmarshal(text, &version1) == nil && version1.Version != version {
		return nil, wrong("has version %d, and only %d is known", version1.Version, version)
	}
	var l list
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil || len(bytes.TrimSpace(text[d.InputOffset():])) > 0 {
		return nil, wrong("is cut or no list: %v", err)
	}
	for i, f := range l.Files {
		known := func(x row) bool { return x.name == f.Tuning && x.at == f.Path }
		again := func(x File) bool { return x.Path == f.Path }
		if !slices.ContainsFunc(rows(), known) || slices.ContainsFunc(l.Files[:i], again) {
			return nil, wrong("names %q of %q, which no tuning adds", f.Path, f.Tuning)
		}
		if _, err := plain(t, f.Path); err != nil {
			return nil, wrong("names /%s, which %v", f.Path, err)
		}
	}
	return l.Files, nil
}

// plain reports whether a file is there. It is an error if a link is, or lies on the way.
func plain(t *tree.Tree, at string) (bool, error) {
	resolved, err := t.Resolve(at, false)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	info, err := t.Lstat(at)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case resolved != at || !info.Mode().IsRegular():
		return false, errors.New("is no regular file, or is reached by a link")
	}
	return true, nil
}

// State is what became of a file, as wire.SourceTuning says.
func (f File) State(t *tree.Tree) (wire.SourceState, error) {
	there, err := plain(t, f.Path)
	if err != nil || !there {
		return wire.SourceMissing, err
	}
	text, err := t.ReadFile(f.Path, maxConfig)
	if errors.Is(err, tree.ErrTooLarge) || err == nil && digest(text) != f.SHA256 {
		return wire.SourcePartial, nil
	}
	return wire.SourceRead, err
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// A Plan is what a capture takes away from a disk, and adds to it.
type Plan struct {
	c     *checker
	ours  []File // of an earlier capture, as they were added
	adds  []row
	Kept  []string // of an earlier capture, of tunings of which a file was changed since: they stay
	Names []string // of what is added
}

// Check plans the tunings that are named, and changes nothing. keeps means that clones get the
// donor's user data again. problems is all that stands against them, by file and line; with one
// there is no plan.
func Check(t *tree.Tree, names []string, keeps bool) (p *Plan, problems []string, err error) {
	files, err := Read(t)
	if err != nil {
		return nil, []string{err.Error()}, nil //nolint:nilerr // a list that is not believed is a reason to refuse
	}
	p = &Plan{Names: names}
	var changed []string // tunings
	for _, f := range files {
		switch state, err := f.State(t); {
		case err != nil:
			return nil, nil, err
		case state == wire.SourceRead:
			p.ours = append(p.ours, f)
		case state == wire.SourcePartial:
			p.Kept = append(p.Kept, "/"+f.Path)
			changed = append(changed, f.Tuning)
		}
	}
	// Files of a tuning need each other: a changed copy of the kubelet's unit starts the gate.
	p.ours = slices.DeleteFunc(p.ours, func(f File) bool {
		stays := slices.Contains(changed, f.Tuning)
		if stays {
			p.Kept = append(p.Kept, "/"+f.Path)
		}
		return stays
	})
	slices.Sort(p.Kept)
	c := &checker{t: t, keeps: keeps, plan: p}
	p.c = c
	for _, x := range rows() {
		if !slices.Contains(names, x.name) {
			continue
		}
		do := "delete it"
		if strings.HasPrefix(x.at, unitsHere) && path.Ext(x.at) == ".service" && !slices.Contains(p.Kept, "/"+x.at) {
			do = "move it to /usr/local/lib/systemd/system (a copy is made here)"
		}
		if c.name = x.name; !p.isOurs(x.at) && c.exists(x.at) {
			c.refuse(x.at, 0, "is there, and is not what a capture added: %s, or leave the tuning out", do)
		}
		if x.make(c) != "" {
			p.adds = append(p.adds, x)
		}
	}
	return p, c.problems, c.err
}

func (p *Plan) isOurs(at string) bool {
	return slices.ContainsFunc(p.ours, func(f File) bool { return f.Path == at })
}

// Apply takes away and adds. Doing it again does nothing else: the list is written before what it
// names, and deleted after it.
func (p *Plan) Apply(capture string) error {
	t := p.c.t
	// What is copied may have been cleaned since the check.
	files := []struct{ at, content string }{{at: List}}
	l := list{Version: version, Capture: capture}
	for _, x := range p.adds {
		content := x.make(p.c)
		files = append(files, struct{ at, content string }{x.at, content})
		l.Files = append(l.Files, File{x.name, x.at, digest([]byte(content))})
	}
	if p.c.err != nil {
		return p.c.err
	}
	gone := append(pathsOf(p.ours), List)
	for _, at := range gone {
		if _, err := t.Remove(at); err != nil {
			return err
		}
	}
	for _, at := range gone {
		if left, err := t.ReadDir(path.Dir(at)); err == nil && len(left) == 0 {
			if _, err := t.Remove(path.Dir(at)); err != nil {
				return err
			}
		}
	}
	if len(p.adds) == 0 {
		return nil
	}
	text, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return fmt.Errorf("encode /%s: %w", List, err)
	}
	files[0].content = string(text) + "\n"
	for _, x := range files {
		if err := t.MkdirAll(path.Dir(x.at), 0o755); err != nil {
			return err
		}
		if err := t.WriteFile(x.at, []byte(x.content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func pathsOf(files []File) (paths []string) {
	for _, f := range files {
		paths = append(paths, f.Path)
	}
	return paths
}
