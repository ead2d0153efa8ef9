package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers the format
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers the format
)

// agentUnits are the units that run ortet-node or guard what proves the machine. The
// others of deploy/systemd belong to machines that ortet cluster makes.
var agentUnits = []string{
	"ortet-config-boot.service", "ortet-config-recover.service", "ortet-config.service",
	"ortet-events.service", "ortet-join.service", "ortet-leave.service", "ortet-left.service",
	"ortet-metadata-guard-host.path", "ortet-metadata-guard-host.service", "ortet-metadata-guard.service",
	"ortet-report.service", "ortet-wait.service",
}

var (
	agentRules   = []string{"ortet-metadata-guard-host.nft", "ortet-metadata-guard.nft"}
	agentDropIns = []string{"k3s-agent.service.d/20-ortet.conf", "kubelet.service.d/20-ortet.conf", "rke2-agent.service.d/20-ortet.conf"}
	agentPages   = []string{
		"how-to/config.md", "how-to/extension.md", "how-to/join.md",
		"reference/boot.md", "reference/events.md", "reference/ortet-node-join.md", "reference/reasons.md",
	}
)

// agentFiles are the units with all that belongs to them, and the pages on them.
func (r *release) agentFiles() ([]entry, error) {
	var all []entry
	for _, group := range []struct {
		from, to string
		names    []string
	}{
		{"deploy/systemd", "systemd", agentUnits},
		{"deploy/systemd", "systemd", agentRules},
		{"deploy/systemd", "systemd", agentDropIns},
		{"docs", "docs", agentPages},
	} {
		for _, name := range group.names {
			text, err := os.ReadFile(filepath.Join(r.root, group.from, name))
			if err != nil {
				return nil, fmt.Errorf("read file of ortet-node: %w", err)
			}
			all = append(all, entry{group.to + "/" + name, 0o644, text})
		}
	}
	return all, nil
}

// placed is a file of a package.
type placed struct {
	entry
	kind   string // of nfpm; empty for a plain file
	format string // deb or rpm; empty for both
}

func (r *release) writePackages(ctx context.Context, platforms []platform) error {
	for _, p := range platforms {
		if !p.linux() {
			continue
		}
		for _, of := range []func(context.Context, platform) (*nfpm.Info, []placed, error){r.ortetPackage, r.agentPackage} {
			info, content, err := of(ctx, p)
			if err != nil {
				return err
			}
			for _, format := range []string{"deb", "rpm"} {
				if err := r.writePackage(p, format, *info, content); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// ortetPackage is the operator's command line. `kubectl ortet` finds it by its second
// name.
func (r *release) ortetPackage(ctx context.Context, p platform) (*nfpm.Info, []placed, error) {
	common, err := r.common(ctx, p, "ortet")
	if err != nil {
		return nil, nil, err
	}
	content := append(legal("ortet", common[1:]),
		file("/usr/bin/ortet", 0o755, common[0].content),
		placed{entry: entry{name: "/usr/bin/kubectl-ortet", content: []byte("ortet")}, kind: files.TypeSymlink},
		placed{entry: entry{name: "/usr/bin/kubectl_complete-ortet", content: []byte("ortet")}, kind: files.TypeSymlink})
	manual, err := writeManual(r.version.tag, r.commit)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range manual {
		switch e.name {
		case "completions/ortet.bash":
			content = append(content, file("/usr/share/bash-completion/completions/ortet", 0o644, e.content))
		case "completions/_ortet":
			deb, rpm := file("/usr/share/zsh/vendor-completions/_ortet", 0o644, e.content), file("/usr/share/zsh/site-functions/_ortet", 0o644, e.content)
			deb.format, rpm.format = "deb", "rpm"
			content = append(content, deb, rpm)
		case "completions/ortet.fish":
			content = append(content, file("/usr/share/fish/vendor_completions.d/ortet.fish", 0o644, e.content))
		case "completions/ortet.ps1": // PowerShell has no folder for it
		default:
			packed, err := gzipped(e.content)
			if err != nil {
				return nil, nil, err
			}
			content = append(content, file("/usr/share/man/man1/"+path.Base(e.name)+".gz", 0o644, packed))
		}
	}
	return r.info(p, "ortet", "Node images for Azure VM Scale Sets\n"+
		"ortet captures the OS disk of a healthy Kubernetes node as the image of its\n"+
		"pool's new nodes, and shows why nodes did not come up."), content, nil
}

// agentPackage is the agent with its units, of which none is enabled: which a node
// needs depends on how it joins. The drop-ins act without being enabled, so they lie
// where the operator copies them from.
func (r *release) agentPackage(ctx context.Context, p platform) (*nfpm.Info, []placed, error) {
	common, err := r.common(ctx, p, "ortet-node")
	if err != nil {
		return nil, nil, err
	}
	more, err := r.agentFiles()
	if err != nil {
		return nil, nil, err
	}
	info, content := r.agentLayout(p, append(legal("ortet-node", common[1:]), file(packedPath, 0o755, common[0].content)), more)
	return info, content, nil
}

// The units of the repository run it at agentPath, where an administrator installs it by hand. A
// package leaves /usr/local to them: its units and pages name packedPath.
const (
	agentPath  = "/usr/local/bin/ortet-node"
	packedPath = "/usr/bin/ortet-node"
)

// agentLayout adds the files of agentFiles where the package has them.
func (r *release) agentLayout(p platform, content []placed, more []entry) (*nfpm.Info, []placed) {
	for _, e := range more {
		base := path.Base(e.name)
		e.content = bytes.ReplaceAll(e.content, []byte(agentPath), []byte(packedPath))
		switch {
		case strings.HasPrefix(e.name, "docs/"):
			content = append(content, file("/usr/share/doc/ortet-node/"+strings.TrimPrefix(e.name, "docs/"), 0o644, e.content))
		case strings.HasSuffix(e.name, ".nft"):
			rules := file("/etc/ortet/"+base, 0o644, e.content)
			rules.kind = files.TypeConfigNoReplace
			content = append(content, rules)
		case strings.HasSuffix(e.name, ".conf"):
			content = append(content, file("/usr/share/ortet-node/"+e.name, 0o644, e.content))
		default:
			content = append(content, file("/usr/lib/systemd/system/"+base, 0o644, e.content))
		}
	}
	info := r.info(p, "ortet-node", "Agent of Ortet on a Kubernetes node in Azure\n"+
		"ortet-node reports whether the node came up and where the time of its boot went,\n"+
		"joins the machine to the cluster, applies live configuration and reacts to Azure's\n"+
		"scheduled events. Installing it enables no unit.")
	info.Recommends = []string{"nftables"} // of ortet-metadata-guard
	scripts := filepath.Join(r.root, "deploy/packages")
	info.Scripts = nfpm.Scripts{
		PostInstall: filepath.Join(scripts, "ortet-node-postinstall.sh"),
		PreRemove:   filepath.Join(scripts, "ortet-node-preremove.sh"),
		PostRemove:  filepath.Join(scripts, "ortet-node-postremove.sh"),
	}
	return info, content
}

func file(name string, mode os.FileMode, content []byte) placed {
	return placed{entry: entry{name, mode, content}}
}

// legal are the licences, where each format has them.
func legal(name string, texts []entry) []placed {
	var all []placed
	for _, e := range texts {
		deb := file("/usr/share/doc/"+name+"/"+e.name, 0o644, e.content)
		if e.name == "LICENSE" {
			deb.name = "/usr/share/doc/" + name + "/copyright"
		}
		rpm := file("/usr/share/licenses/"+name+"/"+e.name, 0o644, e.content)
		deb.format, rpm.format, rpm.kind = "deb", "rpm", files.TypeRPMLicense
		all = append(all, deb, rpm)
	}
	return all
}

func gzipped(content []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	err = w.Close()
	return b.Bytes(), err
}

func (r *release) info(p platform, name, description string) *nfpm.Info {
	return &nfpm.Info{
		Name: name, Arch: p.arch, Platform: "linux", Version: r.version.number, Release: "",
		Section: "admin", Priority: "optional", Maintainer: "Ortet <" + project + "/issues>",
		Description: description, Vendor: "Ortet", Homepage: project, License: "Apache-2.0",
		MTime: r.commit, DisableGlobbing: true,
		// The default is the name of the machine that builds.
		Overridables: nfpm.Overridables{RPM: nfpm.RPM{BuildHost: "localhost", Packager: "Ortet"}},
	}
}

// writePackage puts the files below a folder first: nfpm reads them from there.
func (r *release) writePackage(p platform, format string, info nfpm.Info, content []placed) error {
	folder, err := os.MkdirTemp(r.work, "package")
	if err != nil {
		return fmt.Errorf("write package: %w", err)
	}
	defer os.RemoveAll(folder)
	for _, c := range content {
		if c.format != "" && c.format != format {
			continue
		}
		source := filepath.Join(folder, c.name)
		if c.kind == files.TypeSymlink {
			source = string(c.content)
		} else if err := writeBelow(source, c.entry); err != nil {
			return err
		}
		info.Contents = append(info.Contents, &files.Content{
			Source: source, Destination: c.name, Type: c.kind,
			FileInfo: &files.ContentFileInfo{Mode: c.mode, MTime: r.commit},
		})
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return fmt.Errorf("write package: %w", err)
	}
	// The name has the version as the archives have it: some hosts of files change ~.
	name := info.Name + "_%s_" + p.arch + ".deb"
	if format == "rpm" {
		name = info.Name + "-%s-1." + map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[p.arch] + ".rpm"
	}
	return toFile(r.path(name), func(w io.Writer) error { return packager.Package(nfpm.WithDefaults(&info), w) })
}

func writeBelow(path string, e entry) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write file of package: %w", err)
	}
	if err := os.WriteFile(path, e.content, e.mode); err != nil {
		return fmt.Errorf("write file of package: %w", err)
	}
	return nil
}
