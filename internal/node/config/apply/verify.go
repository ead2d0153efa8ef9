package apply

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var (
	// at is what a complaint begins with where it has a file: "/etc/systemd/system/a.service:3: ".
	at            = regexp.MustCompile(`^/\S*/([^/\s]+):\d+: `)
	notExecutable = regexp.MustCompile(`Command (/\S+) is not executable`)
)

// verify has systemd-analyze judge the units that change, staged in a folder before the
// machine's own. Complaints that it has of the units as they are do not count.
func (r *session) verify(ctx context.Context, to *plan, changed []string) error {
	var units []string
	for _, name := range to.order {
		if slices.ContainsFunc(changed, func(c string) bool {
			return unitOf(c) == name && !to.entries[c].Absent && to.entries[c].Link == "" && to.entries[c].Content != nil
		}) && !strings.HasSuffix(name, "@"+filepath.Ext(name)) { // a template alone cannot be loaded
			units = append(units, name)
		}
	}
	if len(units) == 0 {
		return nil
	}
	stage, err := os.MkdirTemp("", "ortet-units-")
	if err != nil {
		return fmt.Errorf("verify units: %w", err)
	}
	defer func() { _ = os.RemoveAll(stage) }() // a folder of the temporary ones
	for name, e := range to.entries {
		if !within(name, systemUnits) || e.Absent || e.Link != "" {
			continue
		}
		file := filepath.Join(stage, filepath.FromSlash(strings.TrimPrefix(name, systemUnits)))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, e.Content, 0o600)); err != nil {
			return fmt.Errorf("verify units: %w", err)
		}
	}
	after, err := r.a.o.System.Verify(ctx, stage, units)
	if err != nil {
		return fmt.Errorf("verify units: %w", err)
	}
	if len(after) == 0 {
		return nil
	}
	before, err := r.a.o.System.Verify(ctx, "", units)
	if err != nil {
		return fmt.Errorf("verify units: %w", err)
	}
	known := map[string]bool{"": true}
	for _, line := range before {
		known[at.ReplaceAllString(line, "$1: ")] = true
	}
	var found []string
	for _, line := range after {
		line = at.ReplaceAllString(line, "$1: ")
		if m := notExecutable.FindStringSubmatch(line); m != nil && to.entries[m[1]].Mode&0o111 != 0 {
			continue // the document brings the program
		}
		if !known[line] {
			found = append(found, line)
		}
	}
	if len(found) > 0 {
		return fmt.Errorf("systemd refuses units: %s", strings.Join(found, " | "))
	}
	return nil
}
