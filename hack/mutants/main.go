package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

func main() {
	only := flag.String("only", "", "planted bug to run, by its `NAME`; empty: all")
	seeds := flag.Int("seeds", 1000, "seeds to play with each planted bug")
	tests := flag.Bool("tests", true, "run the tests where no seed finds the bug")
	patience := flag.Duration("patience", 10*time.Minute, "limit of one run of seeds or of a suite: a run that takes longer counts as found; raise it on a busy machine")
	cache := flag.String("cache", "", "folder that results are kept in")
	flag.Parse()
	if err := run(*only, tester{cache: *cache, seeds: *seeds, tests: *tests, patience: *patience}); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(only string, t tester) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	root, err := filepath.Abs(".")
	if err != nil {
		return fmt.Errorf("find the project's root: %w", err)
	}
	all, err := load(filepath.Join(root, "hack/mutants/planted"))
	if err != nil {
		return err
	}
	if t.cache == "" {
		return fmt.Errorf("-cache is required: run `make mutants`")
	}
	if err := os.MkdirAll(t.cache, 0o700); err != nil {
		return fmt.Errorf("make the cache: %w", err)
	}
	t.root = root
	if t.base, err = sources(root); err != nil {
		return err
	}
	counts := map[string]*count{}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	ran := 0
	for _, m := range all {
		if only != "" && m.name != only {
			continue
		}
		ran++
		r, err := t.try(ctx, m)
		if err != nil {
			return err
		}
		if counts[m.set] == nil {
			counts[m.set] = &count{}
		}
		counts[m.set].add(r)
		fmt.Fprintf(table, "%s\t%s\t%s\n", m.set, m.name, r)
		_ = table.Flush() // a line as soon as it is known; standard output only
	}
	if ran == 0 {
		return fmt.Errorf("no planted bug is named %q; see hack/mutants/planted", only)
	}
	for _, set := range slices.Sorted(maps.Keys(counts)) {
		c := counts[set]
		fmt.Printf("%s: %d planted, %d found by seeds, %d by other tests, %d by nothing\n", set, c.all, c.seeds, c.tests, c.all-c.seeds-c.tests)
	}
	return nil
}

// count adds results of one set up.
type count struct{ all, seeds, tests int }

func (c *count) add(r result) {
	c.all++
	switch {
	case r.Seeds != "":
		c.seeds++
	case r.Test != "":
		c.tests++
	}
}

// String is a result as a cell of the table.
func (r result) String() string {
	switch {
	case r.Seeds != "":
		return shorten(r.Seeds)
	case r.Test != "":
		return r.Test
	case !r.Tried:
		return "no seed; tests not run"
	}
	return "NOTHING"
}

// shorten cuts a line to what fits beside a name.
func shorten(s string) string {
	const width = 90
	s, _, _ = strings.Cut(s, "\n")
	if len(s) > width {
		return s[:width] + "…"
	}
	return s
}
