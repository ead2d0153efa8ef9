package generalize

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/ortet/ortet/internal/node/tree"
)

// cleaner works the table off on one tree.
type cleaner struct {
	t       *tree.Tree
	o       Options
	donor   facts
	log     *slog.Logger
	kubeadm bool // kubeadm joined this node; learnt before anything changed
	total   tree.Count
	// doomed are the paths that a dry run would have removed, or that Last
	// rows are going to remove; the scan passes over them.
	doomed map[string]bool
}

// editor changes one matched path (relative to the top, without links but for
// its last component) and says how much it removed. Doing it twice is doing it
// once.
type editor func(ctx context.Context, c *cleaner, at string) (tree.Count, error)

// clean works off the rows that are, or are not, Last. Where dry is set it only
// notes what it would do.
func (c *cleaner) clean(ctx context.Context, rows []Row, last, dry bool) error {
	for _, row := range rows {
		if row.Last != last || (row.When != "" && row.When != c.o.Bootstrap) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		paths, err := c.match(row.Path)
		if err != nil {
			return err
		}
		for _, at := range paths {
			n, err := c.apply(ctx, row, at, dry)
			if err != nil {
				return fmt.Errorf("%s /%s: %w", row.Action, at, err)
			}
			if n.Paths > 0 {
				c.log.Debug("cleaned", "path", "/"+at, "action", string(row.Action), "paths", n.Paths, "bytes", n.Bytes, "dryRun", dry)
			}
			c.total.Add(n)
		}
	}
	return nil
}

func (c *cleaner) match(pattern string) ([]string, error) {
	if pattern == "/" {
		return []string{"."}, nil
	}
	return c.t.Glob(pattern)
}

func (c *cleaner) apply(ctx context.Context, row Row, at string, dry bool) (tree.Count, error) {
	if dry {
		if row.Action == Edit {
			return tree.Count{}, nil // what an edit would change is not counted
		}
		c.doomed[at] = true
		return c.t.Measure(at)
	}
	switch row.Action {
	case Remove:
		return c.t.Remove(at)
	case Shred:
		return c.t.Shred(at)
	case Truncate:
		return c.t.Truncate(at)
	case Edit:
		return row.edit(ctx, c, at)
	default:
		return tree.Count{}, fmt.Errorf("the table has an unknown action %q", row.Action)
	}
}

// doom notes what the Last rows are going to take, so that the scan, which
// comes before them, does not report it.
func (c *cleaner) doom(rows []Row) error {
	for _, row := range rows {
		if !row.Last {
			continue
		}
		paths, err := c.match(row.Path)
		if err != nil {
			return err
		}
		for _, at := range paths {
			c.doomed[at] = true
		}
	}
	return nil
}

// left lists what Last rows were to remove and is still there.
func (c *cleaner) left(rows []Row) ([]string, error) {
	var left []string
	for _, row := range rows {
		if !row.Last || row.Action == Edit {
			continue
		}
		paths, err := c.match(row.Path)
		if err != nil {
			return nil, err
		}
		for _, at := range paths {
			if info, err := c.t.Stat(at); row.Action == Truncate && err == nil && info.Size() == 0 {
				continue
			}
			left = append(left, "/"+strings.TrimPrefix(at, "/"))
		}
	}
	return left, nil
}
