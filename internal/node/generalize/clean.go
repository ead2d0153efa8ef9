package generalize

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
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
	// emptied are the files that the table empties: their content is not lost.
	emptied map[string]bool
}

// editor changes one matched path (relative to the top, without links but for
// its last component) and says how much it removed. Doing it twice is doing it
// once.
type editor func(ctx context.Context, c *cleaner, at string) (tree.Count, error)

// condition says whether a ShredIf row applies to a path.
type condition func(c *cleaner, at string) (bool, error)

// job is one row applied to one path.
type job struct {
	row Row
	at  string
}

// plan finds what the rows that are, or are not, Last apply to, before anything
// of it changes: conditions read what other rows remove.
func (c *cleaner) plan(rows []Row, last bool) ([]job, error) {
	var jobs []job
	for _, row := range rows {
		if row.Last != last || (row.When != "" && row.When != c.o.Bootstrap) {
			continue
		}
		paths, err := c.match(row.Path)
		if err != nil {
			return nil, err
		}
		for _, at := range paths {
			ok := true
			if row.Action == ShredIf {
				if ok, err = row.cond(c, at); err == nil && !ok {
					ok, err = overwritten(c.t, at) // by a run that was killed
				}
				if err != nil {
					return nil, fmt.Errorf("judging /%s: %w", at, err)
				}
			}
			if ok {
				jobs = append(jobs, job{row, at})
			}
		}
	}
	return jobs, nil
}

func (c *cleaner) match(pattern string) ([]string, error) {
	if pattern == "/" {
		return []string{"."}, nil
	}
	return c.t.Glob(pattern)
}

// clean works off the rows that are, or are not, Last.
func (c *cleaner) clean(ctx context.Context, rows []Row, last bool) error {
	jobs, err := c.plan(rows, last)
	if err != nil {
		return err
	}
	// All that is shredded is overwritten first, and written out together.
	for _, j := range jobs {
		if j.row.Action == Shred || j.row.Action == ShredIf {
			if err := c.t.Wipe(j.at); err != nil {
				return err
			}
		}
	}
	if err := c.t.Sync(); err != nil {
		return err
	}
	for _, j := range jobs {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := c.apply(ctx, j)
		if err != nil {
			return fmt.Errorf("%s /%s: %w", j.row.Action, j.at, err)
		}
		if n.Paths > 0 {
			c.log.Debug("cleaned", "path", "/"+j.at, "action", string(j.row.Action), "paths", n.Paths, "bytes", n.Bytes)
		}
		c.total.Add(n)
	}
	return nil
}

func (c *cleaner) empty(at string) (tree.Count, error) {
	if c.emptied == nil {
		c.emptied = map[string]bool{}
	}
	c.emptied[at] = true
	return c.t.Truncate(at)
}

func (c *cleaner) apply(ctx context.Context, j job) (tree.Count, error) {
	switch j.row.Action {
	case Remove, Shred, ShredIf:
		return c.t.Remove(j.at)
	case Truncate:
		return c.empty(j.at)
	case Edit:
		if j.row.lines != nil {
			return c.dropLines(j.at, j.row.lines)
		}
		return j.row.edit(ctx, c, j.at)
	default:
		return tree.Count{}, fmt.Errorf("the table has an unknown action %q", j.row.Action)
	}
}

// doom notes what rows are going to take, so that a scan that comes before them
// passes over it. What an Edit would change is not counted.
func (c *cleaner) doom(rows []Row, last, count bool) error {
	jobs, err := c.plan(rows, last)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		if j.row.Action == Edit {
			continue
		}
		c.doomed[j.at] = true
		if !count {
			continue
		}
		n, err := c.t.Measure(j.at)
		if err != nil {
			return err
		}
		c.total.Add(n)
	}
	return nil
}

// staying returns those of the files that no row takes.
func (c *cleaner) staying(files []string) []string {
	return slices.DeleteFunc(files, func(f string) bool { return c.doomed[strings.TrimPrefix(f, "/")] })
}

// left lists what Last rows were to remove and is still there.
func (c *cleaner) left(rows []Row) ([]string, error) {
	jobs, err := c.plan(rows, true)
	if err != nil {
		return nil, err
	}
	var left []string
	for _, j := range jobs {
		if info, err := c.t.Stat(j.at); j.row.Action == Truncate && err == nil && info.Size() == 0 {
			continue
		}
		left = append(left, "/"+j.at)
	}
	return left, nil
}
