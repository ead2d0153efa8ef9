// Package workflowtest checks tables of workflows, and runs the rows of one part alone.
package workflowtest

import (
	"fmt"
	"slices"

	"github.com/ortet/ortet/internal/workflow"
)

// Check reports what is wrong with a table, which is a test's concern since tables are
// constants: unknown or repeated ids, cycles, a step or an undo that can never run.
func Check(t workflow.Table) error {
	waits := map[string][]string{} // what each id waits for in the good case
	undos := map[string]*workflow.Undo{}
	add := func(id string, do workflow.Act, after ...string) error {
		if _, again := waits[id]; again || id == "" || do == nil {
			return fmt.Errorf("id %q is empty, used twice or without a Do", id)
		}
		waits[id] = after
		return nil
	}
	for _, s := range t {
		if err := add(s.ID, s.Do, s.After...); err != nil {
			return err
		}
		if u := s.Undo; u != nil {
			if err := add(u.ID, u.Do, slices.Concat([]string{s.ID}, u.When, u.After, u.Needs)...); err != nil {
				return err
			}
			undos[u.ID] = u
		}
	}
	for id, after := range waits {
		u := undos[id]
		for _, other := range after {
			switch o := undos[other]; {
			case o == nil && u != nil && (slices.Contains(u.After, other) || slices.Contains(u.Needs, other)):
				return fmt.Errorf("undo %s waits for %q, which is no undo", id, other)
			case o == nil:
			case u != nil && slices.Contains(u.When, other):
				return fmt.Errorf("undo %s: When names undo %s, not a step", id, other)
			case len(o.When) == 0 && (u == nil || len(u.When) > 0):
				return fmt.Errorf("%s waits for undo %s, which runs only after a failure", id, other)
			case u == nil && slices.ContainsFunc(o.Needs, func(need string) bool { return !slices.Contains(after, need) }):
				return fmt.Errorf("%s waits for undo %s, and not for all that this needs", id, other)
			case o.Keep != "" && u != nil && u.Keep == "":
				return fmt.Errorf("undo %s waits for undo %s, which an interruption leaves out", id, other)
			}
		}
	}
	visited := map[string]bool{} // false while its own waits are being visited
	var visit func(id, from string) error
	visit = func(id, from string) error {
		after, known := waits[id]
		switch finished, met := visited[id]; {
		case !known:
			return fmt.Errorf("%s waits for the unknown id %q", from, id)
		case finished:
			return nil
		case met:
			return fmt.Errorf("%s and %s wait for each other", from, id)
		}
		visited[id] = false
		for _, next := range after {
			if err := visit(next, id); err != nil {
				return err
			}
		}
		visited[id] = true
		return nil
	}
	for id := range waits {
		if err := visit(id, ""); err != nil {
			return err
		}
	}
	return nil
}
