package generalize

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/node/tree"
)

// ancestryFile tells on each clone from which nodes it descends: a line per
// generation, oldest first, "date donor capture", the date in RFC 3339 UTC.
const ancestryFile = "var/log/ancestry.log"

const maxAncestry = 4 << 20

func ancestryLine(o Options) string {
	return fmt.Sprintf("%s %s %s", o.At.UTC().Format(time.RFC3339), o.Donor, o.Capture)
}

// readAncestry returns the log's lines; a missing log has none.
func readAncestry(t *tree.Tree) ([]string, error) {
	data, err := t.ReadFile(ancestryFile, maxAncestry)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading /%s: %w", ancestryFile, err)
	}
	var lines []string
	for l := range strings.Lines(string(data)) {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, l)
		}
	}
	return lines, nil
}

// begun says whether the newest line is this capture's, which an earlier run on
// this disk wrote.
func begun(lines []string, o Options) bool {
	if len(lines) == 0 {
		return false
	}
	f := strings.Fields(lines[len(lines)-1])
	return len(f) == 3 && f[1] == o.Donor && f[2] == o.Capture
}

// appendAncestry adds this capture's line, once. It returns the line that is on
// the disk.
func appendAncestry(t *tree.Tree, o Options) (string, error) {
	lines, err := readAncestry(t)
	if err != nil {
		return "", err
	}
	if begun(lines, o) {
		return lines[len(lines)-1], nil
	}
	line := ancestryLine(o)
	if err := t.MkdirAll("/var/log", 0o755); err != nil {
		return "", fmt.Errorf("making /var/log: %w", err)
	}
	text := strings.Join(append(lines, line), "\n") + "\n"
	if err := t.WriteFile(ancestryFile, []byte(text), 0o644); err != nil {
		return "", err
	}
	return line, nil
}
