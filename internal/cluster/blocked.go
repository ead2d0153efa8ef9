package cluster

import (
	"fmt"
	"strings"
)

// namedPods is how many pods an error's text names.
const namedPods = 10

// Error names the pods, with their budgets.
func (e *BlockedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d pods of node %s cannot be evicted", len(e.Pods), e.Node)
	if len(e.Pods) == 1 {
		b.Reset()
		fmt.Fprintf(&b, "a pod of node %s cannot be evicted", e.Node)
	}
	for i, pod := range e.Pods {
		if i == namedPods {
			fmt.Fprintf(&b, "; and %d more", len(e.Pods)-i)
			break
		}
		separator := "; "
		if i == 0 {
			separator = ": "
		}
		b.WriteString(separator + pod.Pod)
		if pod.Budget != "" {
			b.WriteString(" (PodDisruptionBudget " + pod.Budget + ")")
		}
		if pod.Why != "" {
			b.WriteString(": " + pod.Why)
		}
	}
	return b.String()
}
