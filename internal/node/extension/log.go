package extension

import (
	"fmt"
	"os"
	"path/filepath"
)

const (
	logName = "ortet-node.log"
	// maxLog is how long a log may get before the next command begins a new one and
	// keeps it as the one before; a command writes a few lines.
	maxLog = 512 << 10
)

// OpenLog opens the handler's log for adding to it.
func (h *Handler) OpenLog() (*os.File, error) {
	path := filepath.Join(h.env.Log, logName)
	if info, err := os.Stat(path); err == nil && info.Size() > maxLog {
		// Where it cannot be set aside it grows by the few lines of a command.
		_ = os.Rename(path, path+".1")
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the handler's log: %w", err)
	}
	return f, nil
}
