package apply

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/ortet/ortet/internal/node/tree"
)

// memoryFile is beside the store of package files.
const memoryFile = "/var/lib/ortet/config/machine.json"

// A memory is what has to survive the agent, beside the files: baselines of what is none,
// and how far the store's pending set is.
type memory struct {
	Sysctls map[string]string `json:"sysctls,omitempty"` // values before the first document with them
	Running map[string]bool   `json:"running,omitempty"` // units, likewise
	// Activated says that all was changed and activated: health alone is missing.
	Activated bool     `json:"activated,omitempty"`
	Judge     []string `json:"judge,omitempty"` // units whose health counts
}

func newMemory() memory { return memory{Sysctls: map[string]string{}, Running: map[string]bool{}} }

// readMemory returns the memory as it was saved. With an error it is empty: then sysctls and
// units stay as they are.
func readMemory(t *tree.Tree) (memory, error) {
	m := newMemory()
	text, err := t.ReadFile(memoryFile, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return newMemory(), fmt.Errorf("read %s: %w", memoryFile, err)
	}
	return m, nil
}

func (m memory) save(t *tree.Tree) error {
	text, err := json.Marshal(m)
	if err == nil {
		err = t.WriteFile(memoryFile, append(text, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", memoryFile, err)
	}
	return nil
}

// forget drops the baselines of what the document does not touch.
func (m *memory) forget(p *plan) {
	m.Activated, m.Judge = false, nil
	for key := range m.Sysctls {
		if _, ok := p.doc.Config.Sysctls[key]; !ok {
			delete(m.Sysctls, key)
		}
	}
	for name := range m.Running {
		if p.units[name].Started == nil {
			delete(m.Running, name)
		}
	}
}
