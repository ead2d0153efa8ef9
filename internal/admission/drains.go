package admission

import "sync"

// maxDrains is how many requests to leave of one node are worked on at once: its
// watcher's, an operator's and the shutdown's. Each may go on for a quarter of an hour,
// and places are for all nodes.
const maxDrains = 4

// drains counts the requests to leave that are worked on, by node.
type drains struct {
	mu sync.Mutex
	by map[string]int
}

// begin takes one until what it gives is called; false where the node has too many.
func (d *drains) begin(node string) (end func(), ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.by[node] >= maxDrains {
		return nil, false
	}
	d.by[node]++
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.by[node]--; d.by[node] == 0 {
			delete(d.by, node)
		}
	}, true
}
