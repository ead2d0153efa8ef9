package generalize

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io/fs"
	"net/netip"
	"strings"

	"github.com/ortet/ortet/internal/node/tree"
	"github.com/ortet/ortet/internal/redact"
)

// facts is what tells the donor from other nodes, learnt before its traces are
// removed so that the scan can look for them.
type facts struct {
	names      []string // node name and host names, lower case
	addresses  []netip.Addr
	machineID  string              // 32 hex digits, or ""
	secrets    []redact.Secret     // what only the donor has: its kubelet's key, its SSH host keys
	nodeKeys   map[[32]byte]string // SHA-256 of a node certificate's public key → where it was
	sshPublics [][]byte            // host keys' public halves, SSH wire format
	luksKeys   map[string]bool     // key files by which crypttab opens volumes
	swapFiles  map[string]bool     // that fstab and units name
}

func (f facts) isName(name string) bool {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	for _, n := range f.names {
		if name == n || strings.HasPrefix(name, n+".") {
			return true
		}
	}
	return false
}

func (f facts) hasAddress(a netip.Addr) bool {
	for _, x := range f.addresses {
		if a.Unmap() == x.Unmap() {
			return true
		}
	}
	return false
}

// nodeCertificates are where a node's own certificates lie.
func nodeCertificates() []string {
	return []string{
		"/var/lib/kubelet/pki/*",
		"/var/lib/rancher/*/agent/client-kubelet.crt",
		"/var/lib/rancher/*/agent/client-k3s-controller.crt",
		"/var/lib/rancher/*/agent/serving-kubelet.crt",
		"/etc/kubernetes/kubelet.conf",
		"/var/lib/kubelet/kubeconfig",
	}
}

func learn(t *tree.Tree, o Options) (facts, error) {
	f := facts{names: []string{strings.ToLower(o.Donor)}, addresses: o.DonorAddresses, nodeKeys: map[[32]byte]string{}}
	host, err := readOptional(t, "/etc/hostname", 4096)
	if err != nil {
		return f, err
	}
	if h := hostName(host); h != "" && h != "localhost" && !f.isName(h) {
		f.names = append(f.names, h)
	}
	id, err := readOptional(t, "/etc/machine-id", 4096)
	if err != nil {
		return f, err
	}
	if id = bytes.TrimSpace(id); len(id) == 32 && len(bytes.Trim(id, "0123456789abcdef")) == 0 {
		f.machineID = string(id)
	}
	if err := f.learnSecrets(t); err != nil {
		return f, err
	}
	crypttab, err := readOptional(t, "/etc/crypttab", maxConfig)
	if err != nil {
		return f, err
	}
	f.luksKeys = resolved(t, luksKeyFiles(crypttab))
	swap, err := namedSwapFiles(t)
	if err != nil {
		return f, err
	}
	f.swapFiles = resolved(t, swap)
	for _, pattern := range nodeCertificates() {
		if err := f.learnCertificates(t, pattern); err != nil {
			return f, err
		}
	}
	return f, f.learnHostKeys(t)
}

func (f *facts) learnCertificates(t *tree.Tree, pattern string) error {
	paths, err := t.Glob(pattern)
	if err != nil {
		return err
	}
	for _, at := range paths {
		data, err := readOptional(t, at, maxConfig)
		if err != nil {
			return err
		}
		if kc, err := parseKubeconfig(data); err == nil {
			for _, u := range kc.Users {
				data = append(append(data, '\n'), u.certificate()...)
			}
		}
		for _, cert := range certificatesIn(data) {
			f.nodeKeys[sha256.Sum256(cert.RawSubjectPublicKeyInfo)] = "/" + at
		}
	}
	return nil
}

func (f *facts) learnHostKeys(t *tree.Tree) error {
	paths, err := t.Glob("/etc/ssh/ssh_host_*.pub")
	if err != nil {
		return err
	}
	for _, at := range paths {
		data, err := readOptional(t, at, maxConfig)
		if err != nil {
			return err
		}
		if fields := bytes.Fields(data); len(fields) >= 2 {
			if blob, err := base64.StdEncoding.DecodeString(string(fields[1])); err == nil && len(blob) >= 32 {
				f.sshPublics = append(f.sshPublics, blob)
			}
		}
	}
	return nil
}

// readOptional reads a file that need not be there, nor be a regular file. One that a
// killed run has overwritten, and not removed yet, counts as removed.
func readOptional(t *tree.Tree, name string, limit int64) ([]byte, error) {
	data, err := t.ReadFile(name, limit)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, tree.ErrNotRegular) || isOverwritten(data) {
		return nil, nil
	}
	return data, err
}

// isOverwritten reports whether a file holds nothing but the zeros of a shred.
func isOverwritten(data []byte) bool { return len(data) > 0 && len(bytes.Trim(data, "\x00")) == 0 }

// overwritten reports whether a regular file holds nothing but zeros.
func overwritten(t *tree.Tree, at string) (bool, error) {
	info, err := t.Lstat(at)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxConfig {
		return false, err
	}
	data, err := t.ReadFile(at, maxConfig)
	return isOverwritten(data), err
}

// resolved are the paths of files as the scan meets them; one that leads nowhere is
// passed over.
func resolved(t *tree.Tree, files []string) map[string]bool {
	paths := map[string]bool{}
	for _, file := range files {
		if at, err := t.Resolve(file, true); err == nil {
			paths[at] = true
		}
	}
	return paths
}

// luksKeyFiles returns the key files by which a crypttab opens volumes: its third field,
// or where systemd looks for one without it.
func luksKeyFiles(crypttab []byte) (files []string) {
	for line := range strings.Lines(string(crypttab)) {
		f := strings.Fields(line)
		switch {
		case len(f) < 2 || strings.HasPrefix(f[0], "#"):
		case len(f) == 2 || f[2] == "none" || f[2] == "-":
			files = append(files, "/etc/cryptsetup-keys.d/"+f[0]+".key")
		case strings.HasPrefix(f[2], "/") && !strings.HasPrefix(f[2], "/dev/"):
			files = append(files, f[2])
		}
	}
	return files
}

// hostName is the first word of a hostname file that is no comment, lower case.
func hostName(data []byte) string {
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			return strings.ToLower(strings.Fields(line)[0])
		}
	}
	return ""
}

// certificatesIn returns the certificates among PEM blocks; what does not parse
// is passed over.
func certificatesIn(data []byte) []*x509.Certificate {
	var certs []*x509.Certificate
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return certs
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			certs = append(certs, cert)
		}
	}
}
