package boot

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/wire"
)

const (
	// reports is where they are kept, below the node's root.
	reports = "/var/lib/ortet/boots"
	// keptReports is how many boots' are kept.
	keptReports = 5
)

// Encode is a report's JSON, as ParseBootReport reads it.
func Encode(r wire.BootReport) ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, fmt.Errorf("the report is not valid: %w", err)
	}
	text, err := json.Marshal(r)
	return append(text, '\n'), err
}

// Keep writes a report's JSON to its place below root, BOOTID.json of mode 0600,
// wholly or not at all, and takes away all but the newest few. It gives the
// file's path. Again for the same boot it replaces the file.
func Keep(root, bootID string, text []byte) (string, error) {
	name := bootID
	if name == "" || strings.ContainsAny(name, `/\`) || name[0] == '.' {
		name = "unknown"
	}
	dir := bootstrap.Under(root, reports)
	path := filepath.Join(dir, name+".json")
	if err := bootstrap.Keep(path, text); err != nil {
		return "", fmt.Errorf("keeping the boot's report in %s: %w", path, err)
	}
	return path, prune(dir, path)
}

// prune takes all but the newest few reports away, and never the one that was
// just written.
func prune(dir, written string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("looking for old reports: %w", err)
	}
	type old struct {
		path string
		at   int64
	}
	var all []old
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || !strings.HasSuffix(e.Name(), ".json") || path == written {
			continue
		}
		all = append(all, old{path, info.ModTime().UnixNano()})
	}
	sort.Slice(all, func(i, k int) bool { return all[i].at > all[k].at })
	var problems []error
	for _, o := range all[min(len(all), keptReports-1):] {
		if err := os.Remove(o.path); err != nil && !os.IsNotExist(err) {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}
