package join

import (
	"errors"
	"fmt"
	"os"
	"path"

	"github.com/ortet/ortet/internal/node/tree"
)

// lockFile is locked by a join. A second one would take the first one's new identity for
// one that does not serve, and remove it.
const lockFile = "/run/ortet/join.lock"

// errNotAlone means that another process joins.
var errNotAlone = errors.New("another ortet-node join is at it")

// alone takes the lock, which is given back when the file is closed, or its process
// ends in whatever way.
func alone(t *tree.Tree) (*os.File, error) {
	if err := t.MkdirAll(path.Dir(lockFile), 0o755); err != nil {
		return nil, err
	}
	at, err := t.Resolve(lockFile, true)
	if err != nil {
		return nil, err
	}
	f, err := t.Root().OpenFile(at, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking %s: %w", lockFile, err)
	}
	if err := lock(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
