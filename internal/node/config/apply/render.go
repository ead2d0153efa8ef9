package apply

import (
	"cmp"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ortet/ortet/internal/node/config/files"
	"github.com/ortet/ortet/internal/nodeconfig"
)

// Files that are written beside those of the document and units.
const (
	sysctlDropIn   = "/etc/sysctl.d/90-ortet.conf"
	kubeletDropIn  = "90-ortet.conf" // the kubelet ignores other endings than .conf
	certificateDir = "/usr/local/share/ca-certificates"
	updateCA       = "/usr/sbin/update-ca-certificates"
	header         = "# Written by ortet-node config.\n"
)

// errNotPrepared says that the image lacks something that a kind needs.
var errNotPrepared = errors.New("machine is not prepared")

func notPrepared(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errNotPrepared}, args...)...)
}

var unitName = regexp.MustCompile(`^[A-Za-z0-9:_.\\@-]{1,245}\.(service|socket|timer|path|target|mount|automount|slice|swap)$`)

// A plan is what a document means for this machine.
type plan struct {
	doc     nodeconfig.Document
	entries map[string]files.Entry
	units   map[string]nodeconfig.Unit
	order   []string            // of units, as the document has them
	restart map[string][]string // units of a file's restart, by path
}

// render makes the files of a document. Errors are errNotPrepared, or of a document that
// does not fit this machine, or names what none may; what else ortet checks before it
// signs is not checked again.
// current are the entries of the document before.
func render(h host, d nodeconfig.Document, current files.Set, kubeletArgs []string) (*plan, error) {
	p := effects(d)
	for _, step := range [...]func() error{
		func() error { return h.allowed(d.Config) },
		func() error { return p.files(h) },
		func() error { return p.unitFiles(h) },
		func() error { return p.links(h) },
		func() error { return p.sysctls() },
		func() error { return p.kubelet(h, kubeletArgs) },
		func() error { return p.mirrors(h, current) },
		func() error { return p.certificates(h) },
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// effects is a plan without files: which units and which restarts a document has.
func effects(d nodeconfig.Document) *plan {
	p := &plan{doc: d, entries: map[string]files.Entry{}, units: map[string]nodeconfig.Unit{}, restart: map[string][]string{}}
	for _, u := range d.Config.Units {
		p.units[u.Name], p.order = u, append(p.order, u.Name)
	}
	for _, f := range d.Config.Files {
		for _, unit := range f.Restart {
			if !strings.Contains(unit, ".") {
				unit += ".service"
			}
			p.restart[f.Path] = append(p.restart[f.Path], unit)
		}
	}
	return p
}

func (p *plan) started(unit string) bool {
	s := p.units[unit].Started
	return s != nil && *s
}

func (p *plan) set() files.Set {
	return slices.SortedFunc(maps.Values(p.entries), func(a, b files.Entry) int { return strings.Compare(a.Path, b.Path) })
}

func (p *plan) add(e files.Entry) error {
	if had, ok := p.entries[e.Path]; ok && (e.Link == "" || had.Link != e.Link) {
		return fmt.Errorf("%s is set twice", e.Path)
	}
	p.entries[e.Path] = e
	return nil
}

// write adds a file of root's that all may read.
func (p *plan) write(name, content string) error {
	return p.add(files.Entry{Path: name, Content: []byte(content), Mode: 0o644})
}

func (p *plan) files(h host) error {
	for _, f := range p.doc.Config.Files {
		mode, err := strconv.ParseUint(cmp.Or(f.Mode, "0644"), 8, 9)
		if err != nil {
			return fmt.Errorf("file %s: mode: %w", f.Path, err)
		}
		uid, gid, err := h.owner(f.Owner)
		if err != nil {
			return fmt.Errorf("file %s: %w", f.Path, err)
		}
		if err := p.add(files.Entry{Path: f.Path, Content: []byte(f.Content), Mode: fs.FileMode(mode), UID: uid, GID: gid}); err != nil {
			return err
		}
	}
	return nil
}

func (p *plan) unitFiles(h host) error {
	for _, u := range p.doc.Config.Units {
		if u.Content != "" {
			if err := p.write(path.Join(systemUnits, u.Name), u.Content); err != nil {
				return err
			}
		}
		for _, d := range u.DropIns {
			if err := p.write(path.Join(systemUnits, u.Name+".d", d.Name), d.Content); err != nil {
				return err
			}
		}
	}
	for _, u := range p.order {
		if err := p.known(h, u); err != nil {
			return err
		}
	}
	for name, units := range p.restart {
		for _, u := range units {
			if err := p.known(h, u); err != nil {
				return fmt.Errorf("file %s: restart: %w", name, err)
			}
		}
	}
	return nil
}

// known is an error for a unit that neither the document nor the machine has.
func (p *plan) known(h host, unit string) error {
	_, at, err := p.unit(h, unit)
	if err == nil && at == "" {
		err = fmt.Errorf("unit %s does not exist; give its content", unit)
	}
	return err
}

// unit returns the content of a unit and where it lies, by the document or on the machine.
func (p *plan) unit(h host, unit string) (content []byte, at string, err error) {
	for _, name := range [...]string{unit, templateOf(unit)} {
		if u := p.units[name]; u.Content != "" {
			return []byte(u.Content), path.Join(systemUnits, name), nil
		}
	}
	if at, err = h.unitFile(unit); err != nil || at == "" {
		return nil, "", err
	}
	content, err = h.read(at)
	return content, at, err
}

// links makes what `systemctl enable` would, or removes it. Source: systemd.unit(5),
// "[Install] Section Options".
func (p *plan) links(h host) error {
	for _, name := range p.order {
		enabled := p.units[name].Enabled
		if enabled == nil {
			continue
		}
		links := map[string]string{}
		if err := p.install(h, name, links, map[string]bool{}); err != nil {
			return err
		}
		if len(links) == 0 && *enabled {
			return fmt.Errorf("unit %s: cannot be enabled: no [Install] section with WantedBy=, RequiredBy=, Alias= or Also=", name)
		}
		for at, target := range links {
			e := files.Entry{Path: at, Link: target}
			if !*enabled {
				e = files.Entry{Path: at, Absent: true}
			}
			if err := p.add(e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *plan) install(h host, unit string, links map[string]string, seen map[string]bool) error {
	if seen[unit] {
		return nil
	}
	seen[unit] = true
	content, target, err := p.unit(h, unit)
	if err != nil {
		return fmt.Errorf("unit %s: %w", unit, err)
	}
	section := ""
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = line
		}
		key, value, ok := strings.Cut(line, "=")
		if section != "[Install]" || !ok {
			continue
		}
		for _, other := range strings.Fields(value) {
			if !unitName.MatchString(other) {
				return fmt.Errorf("unit %s: [Install] %s: %q is no unit's name", unit, strings.TrimSpace(key), other)
			}
			switch strings.TrimSpace(key) {
			case "WantedBy":
				links[path.Join(systemUnits, other+".wants", unit)] = target
			case "RequiredBy":
				links[path.Join(systemUnits, other+".requires", unit)] = target
			case "Alias":
				links[path.Join(systemUnits, other)] = target
			case "Also":
				if err := p.install(h, other, links, seen); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (p *plan) sysctls() error {
	values := p.doc.Config.Sysctls
	if len(values) == 0 {
		return nil
	}
	text := header
	for _, key := range slices.Sorted(maps.Keys(values)) {
		text += key + " = " + values[key] + "\n"
	}
	return p.write(sysctlDropIn, text)
}

// kubelet writes the fields as JSON, which is YAML too. args is the running kubelet's
// command line; nil where none runs.
func (p *plan) kubelet(h host, args []string) error {
	fields := p.doc.Config.Kubelet
	if len(fields) == 0 {
		return nil
	}
	folder := h.kubeletDir
	// At a first boot k3s and RKE2 have yet to make the folder, and leave files in it.
	if !h.isDir(folder) && (h.rancher == "" || !h.boot) {
		if h.rancher != "" {
			return notPrepared("the folder %s is missing: %s reads kubelet drop-ins since 1.32, and makes the folder at its first start", folder, h.rancher)
		}
		return notPrepared("the folder %s is missing: make it, here and in the image, and start the kubelet with --config-dir=%s", folder, folder)
	}
	if h.rancher == "" && args != nil && configDir(args) != path.Clean(folder) {
		return notPrepared("the kubelet runs without --config-dir=%s: add it to the command in its unit", folder)
	}
	all := maps.Clone(fields)
	all["apiVersion"], all["kind"] = "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("kubelet: %w", err)
	}
	return p.write(path.Join(folder, kubeletDropIn), string(text)+"\n")
}

// configDir is the value of --config-dir in a command line; "" for none.
func configDir(args []string) (dir string) {
	for i, a := range args {
		if value, ok := strings.CutPrefix(a, "--config-dir="); ok {
			dir = path.Clean(value)
		} else if a == "--config-dir" && i+1 < len(args) {
			dir = path.Clean(args[i+1])
		}
	}
	return dir
}

func (p *plan) mirrors(h host, current files.Set) error {
	mirrors := p.doc.Config.RegistryMirrors
	if len(mirrors) == 0 {
		return nil
	}
	if h.rancher != "" {
		return p.rancherMirrors(h, current)
	}
	folder, err := h.registryDir()
	if err != nil {
		return err
	}
	if folder == "" {
		return notPrepared(`containerd has no config_path: set config_path = "/etc/containerd/certs.d" for its registry in /etc/containerd/config.toml, here and in the image, and restart containerd`)
	}
	for _, m := range mirrors {
		if err := p.write(path.Join(folder, m.Registry, "hosts.toml"), hostsFile(m)); err != nil {
			return err
		}
	}
	return nil
}

// hostsFile is containerd's hosts.toml. Source: containerd/docs/hosts.md.
func hostsFile(m nodeconfig.RegistryMirror) string {
	text := header
	switch m.Registry {
	case "_default":
	case "docker.io":
		text += "server = \"https://registry-1.docker.io\"\n"
	default:
		text += "server = \"https://" + m.Registry + "\"\n"
	}
	for _, e := range m.Endpoints {
		text += "\n[host.\"" + e + "\"]\n  capabilities = [\"pull\", \"resolve\"]\n"
		// A path with /v2 is the whole API's; otherwise containerd appends /v2.
		if u, err := url.Parse(e); err == nil && slices.Contains(strings.Split(u.Path, "/"), "v2") {
			text += "  override_path = true\n"
		}
	}
	return text
}

// rancherMirrors writes registries.yaml, as JSON. Source: docs.k3s.io/installation/private-registry.
func (p *plan) rancherMirrors(h host, current files.Set) error {
	at := path.Join("/etc/rancher", h.rancher, "registries.yaml")
	there, err := h.t.Exists(at)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if ours := slices.ContainsFunc(current, func(e files.Entry) bool { return e.Path == at }); there && !ours {
		return notPrepared("%s exists already, written by the image or by registries in join.json; remove it there first", at)
	}
	type mirror struct {
		Endpoint []string `json:"endpoint"`
	}
	all := map[string]mirror{}
	for _, m := range p.doc.Config.RegistryMirrors {
		name := m.Registry
		if name == "_default" {
			name = "*"
		}
		all[name] = mirror{m.Endpoints}
	}
	text, err := json.MarshalIndent(map[string]any{"mirrors": all}, "", "  ")
	if err != nil {
		return fmt.Errorf("registry mirrors: %w", err)
	}
	return p.write(at, header+string(text)+"\n")
}

// certificates writes each certificate to a file of its own: update-ca-certificates makes
// no hash link for a file with several.
func (p *plan) certificates(h host) error {
	all := p.doc.Config.CACertificates
	for _, c := range all {
		rest, name := []byte(c.PEM), "ortet-"+c.Name
		for i := 1; ; i++ {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			// Not its dates: an expired certificate must not keep new machines from all else.
			if x, err := x509.ParseCertificate(block.Bytes); err != nil || !x.IsCA {
				return fmt.Errorf("CA certificate %s: certificate %d is not a CA's: give its issuer's", c.Name, i)
			}
			if i > 1 {
				name = "ortet-" + c.Name + "-" + strconv.Itoa(i)
			}
			if err := p.write(path.Join(certificateDir, name+".crt"), string(pem.EncodeToMemory(block))); err != nil {
				return err
			}
		}
	}
	if there, err := h.t.Exists(updateCA); len(all) > 0 && (err != nil || !there) {
		return notPrepared("%s is missing: CA certificates need the package ca-certificates of Debian or Ubuntu", updateCA)
	}
	return nil
}
