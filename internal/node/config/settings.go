package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/nodeconfig"
)

// Files of the agent.
const (
	SettingsFile = "/etc/ortet/config.json"
	StateFile    = "/var/lib/ortet/config/state.json"
)

// Settings are those of the image or of customData.
type Settings struct {
	// Keys are the public keys whose documents are accepted.
	Keys []nodeconfig.PublicKey `json:"keys"`
	// KubeletConfigDir is the kubelet's --config-dir, absolute.
	KubeletConfigDir string `json:"kubeletConfigDir,omitempty"`
}

// LoadSettings reads the settings of the node with this root; without a file they name no
// key.
func LoadSettings(root string) (Settings, error) {
	s := Settings{}
	text, err := readFile(bootstrap.Under(root, SettingsFile))
	if err == nil && text != nil {
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err = d.Decode(&s); err == nil && d.More() {
			err = errors.New("something follows the value")
		}
	}
	if err == nil {
		err = s.check()
	}
	if err != nil {
		return Settings{}, fmt.Errorf("read %s: %w", SettingsFile, err)
	}
	return s, nil
}

func (s Settings) check() error {
	if len(s.Keys) > nodeconfig.MaxKeys {
		return fmt.Errorf("keys: %d, want at most %d", len(s.Keys), nodeconfig.MaxKeys)
	}
	for _, k := range s.Keys {
		if _, err := k.Parse(); err != nil {
			return fmt.Errorf("keys: %w", err)
		}
	}
	if s.KubeletConfigDir != "" && !strings.HasPrefix(s.KubeletConfigDir, "/") {
		return fmt.Errorf("kubeletConfigDir: %.200q is not an absolute path", s.KubeletConfigDir)
	}
	return nil
}

// readFile reads a file; nil for a missing file.
func readFile(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}
