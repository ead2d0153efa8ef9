package join

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/ortet/ortet/internal/node/tree"
)

const (
	// standardCertDir is a kubelet's certificate folder without its flag --cert-dir, the
	// only setting of it.
	standardCertDir = "/var/lib/kubelet/pki"
	// rotated is its present client certificate there, which it takes rather than what
	// its kubeconfig has. Source: kubernetes pkg/kubelet/certificate/kubelet.go,
	// client-go/util/certificate/certificate_store.go.
	rotated = "kubelet-client-current.pem"

	maxFlags     = 256 << 10 // of a file with flags
	maxFlagFiles = 256
)

// kubeletFlags are where an upstream kubelet's flags are set: its unit, and what that
// of kubeadm's package reads. Other environment files are named by the unit.
func kubeletFlags() []string {
	all := []string{"/etc/default/kubelet", "/etc/sysconfig/kubelet", "/var/lib/kubelet/kubeadm-flags.env"}
	// Source: systemd.unit(5), "Unit File Load Path".
	for _, dir := range []string{"/etc/systemd/system/", "/run/systemd/system/", "/usr/local/lib/systemd/system/", "/usr/lib/systemd/system/", "/lib/systemd/system/"} {
		for _, name := range []string{"kubelet.service", "kubelet.service.d/*.conf", "service.d/*.conf"} {
			all = append(all, dir+name)
		}
	}
	return all
}

var (
	certDirFlag     = regexp.MustCompile(`--cert-dir[=\s\\]+["']?(/[^\s"'\\]*)`)
	environmentFile = regexp.MustCompile(`(?m)^\s*EnvironmentFile\s*=\s*["']?-?(/[^\s"']+)`)
	comment         = regexp.MustCompile(`(?m)^\s*[#;].*$`)
)

// certDirsIn are the folders of certificates, and the files with more flags, that a
// file with flags or a unit names.
func certDirsIn(text []byte) (dirs, files []string) {
	text = comment.ReplaceAll(text, nil)
	for _, m := range certDirFlag.FindAllSubmatch(text, -1) {
		dirs = append(dirs, path.Clean(string(m[1])))
	}
	for _, m := range environmentFile.FindAllSubmatch(text, -1) {
		files = append(files, path.Clean(string(m[1])))
	}
	return dirs, files
}

// certDirs are the folders in which this machine's kubelet may keep its certificates,
// the standard one first. What a program makes up when it starts the kubelet is not
// known.
func certDirs(t *tree.Tree) ([]string, error) {
	dirs, files := []string{standardCertDir}, kubeletFlags()
	seen := map[string]bool{}
	for i := 0; i < len(files) && len(seen) < maxFlagFiles; i++ {
		found, err := t.Glob(files[i])
		if errors.Is(err, path.ErrBadPattern) {
			continue // nor does systemd find it
		}
		if absent(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("looking for the kubelet's flags: %w", err)
		}
		for _, at := range found {
			if seen[at] {
				continue
			}
			seen[at] = true
			text, err := t.ReadFile(at, maxFlags)
			if absent(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("reading the kubelet's flags: %w", err)
			}
			d, f := certDirsIn(text)
			dirs, files = append(dirs, d...), append(files, f...)
		}
	}
	for i := len(dirs) - 1; i > 0; i-- {
		if slices.Contains(dirs[:i], dirs[i]) {
			dirs = slices.Delete(dirs, i, i+1)
		}
	}
	return dirs, nil
}

// absent reports that no process could read the file: a path with a loop of links, or too
// long, works for a kubelet and systemd neither.
func absent(err error) bool {
	for _, none := range []error{fs.ErrNotExist, tree.ErrNotRegular, tree.ErrTooLarge, tree.ErrNotDirectory, syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG} {
		if errors.Is(err, none) {
			return true
		}
	}
	return false
}

// certificatesElsewhere are the files of a kubelet's in folders of certificates that
// are not the standard one; others' files there are not ours to remove.
func certificatesElsewhere(t *tree.Tree) ([]string, error) {
	dirs, err := certDirs(t)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, dir := range dirs[1:] {
		entries, err := t.ReadDir(dir)
		if absent(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("looking for the kubelet's certificates: %w", err)
		}
		for _, e := range entries {
			name := e.Name()
			if strings.HasPrefix(name, "kubelet-client") || strings.HasPrefix(name, "kubelet-server") || name == "kubelet.crt" || name == "kubelet.key" {
				all = append(all, path.Join(dir, name))
			}
		}
	}
	return all, nil
}

// strayName is the Node's name in a certificate that the kubelet would take, where
// that is another.
func strayName(t *tree.Tree, node string) (string, error) {
	dirs, err := certDirs(t)
	if err != nil {
		return "", err
	}
	for _, dir := range dirs {
		text, err := t.ReadFile(path.Join(dir, rotated), maxRecord)
		if absent(err) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("reading the kubelet's certificate: %w", err)
		}
		if name, ok := nameIn(text); ok && name != node {
			return name, nil
		}
	}
	return "", nil
}

// nameIn is the Node's name in the first certificate of a PEM text: only that counts.
func nameIn(text []byte) (string, bool) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return "", false
		}
		if block.Type == "CERTIFICATE" {
			cert, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return "", false // the kubelet cannot use it either
			}
			return strings.CutPrefix(cert.Subject.CommonName, "system:node:")
		}
	}
}
