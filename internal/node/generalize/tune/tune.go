// Package tune adds files to the copy of a donor's disk by which clones are Ready sooner, and
// takes them away again.
//
// A tuning adds one file and edits none. [List] names what was added, with digests: each capture
// first takes that away, since the next donor is a clone of a tuned image. The list is the donor's
// word, so that it may name nothing but what a tuning adds, and what somebody changed stays.
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

// A tuning adds content at a path.
type tuning struct {
	name, at, content string
	check             func(*checker)
}

func tunings() []tuning {
	return []tuning{
		{wire.TuneRuntimeEarly, "etc/systemd/system/containerd.service.d/90-ortet-runtime-early.conf", `# ortet capture --tune runtime-early
[Unit]
DefaultDependencies=no
After=systemd-tmpfiles-setup.service systemd-sysctl.service systemd-modules-load.service apparmor.service
RequiresMountsFor=/var/lib/containerd
Conflicts=shutdown.target
Before=shutdown.target
`, (*checker).runtimeEarly},
		{wire.TuneSSHHostKey, "etc/cloud/cloud.cfg.d/zz-ortet-ssh-host-key.cfg",
			"# ortet capture --tune ssh-host-key\nssh_genkeytypes: [ed25519]\n", (*checker).sshHostKey},
	}
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
		known := func(x tuning) bool { return x.name == f.Tuning && x.at == f.Path }
		again := func(x File) bool { return x.Path == f.Path }
		if !slices.ContainsFunc(tunings(), known) || slices.ContainsFunc(l.Files[:i], again) {
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
	t     *tree.Tree
	ours  []File // of an earlier capture, as they were added
	adds  []tuning
	Kept  []string // of an earlier capture, and changed since: they stay
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
	p = &Plan{t: t, Names: names}
	for _, f := range files {
		switch state, err := f.State(t); {
		case err != nil:
			return nil, nil, err
		case state == wire.SourceRead:
			p.ours = append(p.ours, f)
		case state == wire.SourcePartial:
			p.Kept = append(p.Kept, "/"+f.Path)
		}
	}
	slices.Sort(p.Kept)
	c := &checker{t: t, keeps: keeps, plan: p}
	for _, x := range tunings() {
		if !slices.Contains(names, x.name) {
			continue
		}
		if c.name = x.name; !p.isOurs(x.at) && c.exists(x.at) {
			c.refuse(x.at, 0, "is there, and is not what a capture added: delete it, or leave the tuning out")
		}
		x.check(c)
		p.adds = append(p.adds, x)
	}
	return p, c.problems, c.err
}

func (p *Plan) isOurs(at string) bool {
	return slices.ContainsFunc(p.ours, func(f File) bool { return f.Path == at })
}

// Apply takes away and adds. Doing it again does nothing else: the list is written before what it
// names, and deleted after it.
func (p *Plan) Apply(capture string) error {
	gone := append(pathsOf(p.ours), List)
	for _, at := range gone {
		if _, err := p.t.Remove(at); err != nil {
			return err
		}
	}
	for _, at := range gone {
		if left, err := p.t.ReadDir(path.Dir(at)); err == nil && len(left) == 0 {
			if _, err := p.t.Remove(path.Dir(at)); err != nil {
				return err
			}
		}
	}
	if len(p.adds) == 0 {
		return nil
	}
	l := list{Version: version, Capture: capture}
	for _, x := range p.adds {
		l.Files = append(l.Files, File{x.name, x.at, digest([]byte(x.content))})
	}
	text, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return fmt.Errorf("encode /%s: %w", List, err)
	}
	for _, x := range append([]tuning{{at: List, content: string(text) + "\n"}}, p.adds...) {
		if err := p.t.MkdirAll(path.Dir(x.at), 0o755); err != nil {
			return err
		}
		if err := p.t.WriteFile(x.at, []byte(x.content), 0o644); err != nil {
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
