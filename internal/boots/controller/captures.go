package controller

import (
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ortet/ortet/internal/fleet"
)

// captures knows which boots are restarts of donors by captures: those are counted
// nowhere, since they do not show how machines boot. The report of such a boot may
// come after the capture has taken its mark (fleet.AnnotationCapture) off the Node, so
// the boot is remembered for as long as the Node is in it.
type captures struct {
	mu sync.Mutex
	of map[types.UID]captured
}

type captured struct {
	before string // the boot in which the capture began, "" where that was not seen
	boot   string // the last one under the mark
}

func marked(n *corev1.Node) bool { return n.Annotations[fleet.AnnotationCapture] != "" || raised(n) }

// raised reports whether a capture raised the Node as its donor: none of its boots counts.
func raised(n *corev1.Node) bool { return n.Annotations[fleet.AnnotationFresh] != "" }

// see takes a Node as it is now; old is nil where it was not seen before.
func (c *captures) see(old, n *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, known := c.of[n.UID]
	boot := n.Status.NodeInfo.BootID
	switch {
	case marked(n):
		if old != nil && old.UID == n.UID && !marked(old) {
			e.before = boot
		}
		if boot != e.before || raised(n) {
			e.boot = boot
		}
	case !known || boot == e.boot || boot == e.before:
		return
	default: // it rebooted since
		delete(c.of, n.UID)
		return
	}
	if c.of == nil {
		c.of = map[types.UID]captured{}
	}
	c.of[n.UID] = e
}

func (c *captures) forget(n *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.of, n.UID)
}

// caused reports whether a boot of a Node was a capture's doing. The id is "" where
// the boot is not known.
func (c *captures) caused(n *corev1.Node, boot string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, known := c.of[n.UID]
	if known && boot != "" && strings.EqualFold(boot, e.boot) {
		return true
	}
	return raised(n) || marked(n) && (e.before == "" || !strings.EqualFold(boot, e.before))
}
