package nodeconfig

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// A Config is the spec of nodeconfig.yaml.
type Config struct {
	Files           []File            `json:"files,omitempty"`
	Units           []Unit            `json:"units,omitempty"`
	Sysctls         map[string]string `json:"sysctls,omitempty"` // "net.core.somaxconn": "4096"
	Kubelet         map[string]any    `json:"kubelet,omitempty"` // members of KubeletConfiguration, v1beta1
	RegistryMirrors []RegistryMirror  `json:"registryMirrors,omitempty"`
	CACertificates  []CACertificate   `json:"caCertificates,omitempty"`
}

// A File is one file on each node.
type File struct {
	Path    string `json:"path"`            // absolute
	Mode    string `json:"mode,omitempty"`  // octal, "0644" where empty
	Owner   string `json:"owner,omitempty"` // "USER:GROUP", names or numbers; "root:root" where empty
	Content string `json:"content"`
	// Restart names units that are restarted when the file changed.
	Restart []string `json:"restart,omitempty"`
}

// A Unit is a systemd unit: of its own (Content), or drop-ins of a unit in the image.
type Unit struct {
	Name    string   `json:"name"`              // "backup.timer"
	Content string   `json:"content,omitempty"` // of /etc/systemd/system/NAME
	DropIns []DropIn `json:"dropIns,omitempty"`
	Enabled *bool    `json:"enabled,omitempty"` // the links of its [Install]; nil leaves them
	Started *bool    `json:"started,omitempty"` // running, restarted when it changed; nil leaves it
}

// A DropIn is a file of /etc/systemd/system/UNIT.d.
type DropIn struct {
	Name    string `json:"name"` // "10-memory.conf"
	Content string `json:"content"`
}

// A RegistryMirror has containerd pull a registry's images from other servers first.
type RegistryMirror struct {
	Registry  string   `json:"registry"`  // "docker.io"; "_default" for all that have none
	Endpoints []string `json:"endpoints"` // "https://mirror.example", tried in this order, then the registry
}

// A CACertificate is trusted by the machine's programs.
type CACertificate struct {
	Name string `json:"name"` // "corp"
	PEM  string `json:"pem"`  // certificates of CAs, and nothing else
}

// Digest is "sha256:" and the hex digest of the configuration as JSON: two are the same
// configuration where their digests are.
func (c Config) Digest() (string, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("encode configuration: %w", err)
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}
