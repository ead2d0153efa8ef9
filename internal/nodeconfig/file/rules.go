package file

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/yamlfile"
)

// What Ortet writes from other fields.
const (
	unitFolder   = "/etc/systemd/system/"
	sysctlFile   = "/etc/sysctl.d/90-ortet.conf"
	kubeletFile  = "/etc/kubernetes/kubelet.conf.d/90-ortet.conf"
	mirrorFolder = "/etc/containerd/certs.d/"
)

func (p parser) files(files []nodeconfig.File) {
	seen := map[string]bool{}
	for i, f := range files {
		at := fmt.Sprintf("spec.files[%d]", i)
		p.path(at+".path", f.Path)
		if seen[f.Path] {
			p.At(at+".path", yamlfile.Quote(f.Path)+" is the path of another file already; delete one of them")
		}
		seen[f.Path] = true
		for j, unit := range f.Restart {
			p.unitName(fmt.Sprintf("%s.restart[%d]", at, j), unit, true)
		}
	}
	for i, f := range files {
		for folder := path.Dir(f.Path); len(folder) > 1; folder = path.Dir(folder) {
			if seen[folder] {
				p.At(fmt.Sprintf("spec.files[%d].path", i), fmt.Sprintf("%s lies in %s, which is a file here; use another path", yamlfile.Quote(f.Path), yamlfile.Quote(folder)))
			}
		}
	}
}

func (p parser) path(at, text string) {
	if clean := path.Clean(text); clean != text {
		p.At(at, yamlfile.Quote(text)+" is not a clean path; use "+yamlfile.Quote(clean))
		return
	}
	if cause := nodeconfig.RefusePath(text); cause != "" {
		p.At(at, text+" "+cause)
	}
}

// unitName is by systemd's rules, systemd.unit(5); devices and scopes have no files.
var unitName = regexp.MustCompile(`^([A-Za-z0-9:_.\\-]+)(@[A-Za-z0-9:_.\\@-]*)?\.(service|socket|mount|automount|swap|target|path|timer|slice)$`)

func (p parser) unitName(at, name string, runs bool) {
	m := unitName.FindStringSubmatch(name)
	switch {
	case m == nil:
		p.At(at, yamlfile.Quote(name)+" is not a unit's name; use one such as backup.service, which ends in service, socket, mount, automount, swap, target, path, timer or slice")
	case nodeconfig.RefuseUnitName(name) != "":
		p.At(at, name+" "+nodeconfig.RefuseUnitName(name))
	case runs && m[2] == "@":
		p.At(at, name+" is a template, which cannot be started; use an instance, such as "+m[1]+"@1."+m[3])
	}
}

var install = regexp.MustCompile(`(?m)^\[Install\]\s*$`)

func (p parser) units(units []nodeconfig.Unit) {
	seen := map[string]bool{}
	for i, u := range units {
		at := fmt.Sprintf("spec.units[%d]", i)
		p.unitName(at+".name", u.Name, u.Started != nil && *u.Started)
		if seen[u.Name] {
			p.At(at+".name", yamlfile.Quote(u.Name)+" is the name of another unit already; put both into one")
		}
		seen[u.Name] = true
		for _, r := range nodeconfig.RefuseUnit(u) {
			p.At(at+"."+r.Field, r.Cause)
		}
		if u.Content == "" && len(u.DropIns) == 0 && u.Enabled == nil && u.Started == nil {
			p.At(at, "sets nothing; give content, dropIns, enabled or started")
		}
		if u.Content != "" && u.Enabled != nil && *u.Enabled && !install.MatchString(u.Content) {
			p.At(at+".enabled", "is true, but content has no [Install] section; add one, or delete enabled")
		}
		names := map[string]bool{}
		for j, d := range u.DropIns {
			if names[d.Name] {
				p.At(fmt.Sprintf("%s.dropIns[%d].name", at, j), yamlfile.Quote(d.Name)+" is the name of another drop-in already; put both into one")
			}
			names[d.Name] = true
		}
	}
}

// sysctlName is as in sysctl.d(5): parts separated by dots or slashes.
var sysctlName = regexp.MustCompile(`^[a-z0-9_-]+([./][A-Za-z0-9_-]+)+$`)

func (p parser) sysctls(values map[string]string) {
	seen := map[string]string{}
	for name := range values {
		at, dotted := yamlfile.Join("spec.sysctls", name), strings.ReplaceAll(name, "/", ".")
		if !sysctlName.MatchString(name) {
			p.At(at, yamlfile.Quote(name)+" is not a sysctl's name; use one such as net.core.somaxconn")
		} else if other := seen[dotted]; other != "" {
			p.At(yamlfile.Join("spec.sysctls", max(name, other)), fmt.Sprintf("%q is the same as %q; delete one of them", max(name, other), min(name, other)))
		}
		seen[dotted] = name
	}
}

func (p parser) mirrors(mirrors []nodeconfig.RegistryMirror) {
	var seen []string
	for i, m := range mirrors {
		at, registry := fmt.Sprintf("spec.registryMirrors[%d]", i), strings.ToLower(m.Registry)
		if slices.Contains(seen, registry) {
			p.At(at+".registry", yamlfile.Quote(m.Registry)+" has mirrors already; put all endpoints into one")
		}
		seen = append(seen, registry)
		for j, text := range m.Endpoints {
			at := fmt.Sprintf("%s.endpoints[%d]", at, j)
			switch u, err := url.Parse(text); {
			case err == nil && u.User != nil:
				p.At(at, "has credentials in it, and every process of a machine can read userData; delete them")
			case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "":
				p.At(at, "is not a URL of a mirror; use https://HOST, or http://HOST:PORT")
			}
		}
	}
}
