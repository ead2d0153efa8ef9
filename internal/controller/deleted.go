package controller

import (
	"bytes"
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ortet/ortet/internal/fleet"
)

// basisDeleted is the basis of a verdict on a machine that was deleted before its
// Node was Ready.
const basisDeleted = "deleted"

// deleting is for an instance that is being deleted, or is gone. That its boot failed
// is given only where it was watched before, and its Node may not have been Ready.
func (a *Assessment) deleting(boot fleet.Boot, node *NodeView, serial []byte, previous Assessment, now time.Time, d Deadlines) {
	a.State = Deleting
	if a.missed || held(node, previous) || node != nil && (node.Ready || node.CameUp || wasReady(node, a.Began, previous, d)) {
		return
	}
	switch {
	case previous.State == Booting, previous.Basis == basisDeleted && len(serial) > 0:
		if t := newest(boot, node, serial, previous, now); t.verdict == nil {
			a.outside(boot, node, serial, previous, now, d)
		} else if a.told(t, node, previous, now, d); !a.State.Bad() {
			a.State, a.Source, a.Verdict, a.Told, a.Note = Deleting, "", nil, "", ""
		}
	case previous.State.Bad():
		a.State, a.Source, a.Verdict, a.Note = previous.State, previous.Source, previous.Verdict, previous.Note
		a.Basis, a.Told, a.Seen = previous.Basis, previous.Told, previous.Seen
	}
}

const (
	// maxGone is how many machines that are gone are kept until their boots are
	// published.
	maxGone = 1000
	// maxLastLog is how many bytes of a serial log that was judged are kept of a boot
	// that goes on.
	maxLastLog = 32 << 10
)

// keepGone keeps what is known of an instance that is no more, where its boot was not
// known to have ended well: the reconciler publishes it, and forgets it then. The
// Fleet is locked.
func (f *Fleet) keepGone(k Key, s *instanceState) {
	switch a := s.assessment; {
	case len(f.gone) >= maxGone, a.State != Booting && !a.State.Bad():
		return
	}
	s.boot.ProvisioningState = string(Deleting)
	f.gone[k] = s
}

// forget is called once the boot of an instance that is gone was published.
func (f *Fleet) forget(key Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.gone, key)
}

// lastLog is the end of a serial log, in whole lines.
func lastLog(serial []byte) []byte {
	if n := len(serial) - maxLastLog; n > 0 {
		serial = serial[n:]
		serial = serial[bytes.IndexByte(serial, '\n')+1:]
	}
	return bytes.Clone(serial) // not to keep the whole of it
}

// freshNode is the Node of an instance as the API server has it now. The cache may be
// behind by as long as the API server was away.
func (r *reconciler) freshNode(ctx context.Context, cached *corev1.Node, b fleet.Boot) (*corev1.Node, error) {
	name := strings.ToLower(b.HostName)
	if cached != nil {
		name = cached.Name
	}
	if name == "" {
		return nil, nil
	}
	var n corev1.Node
	if err := r.client.Get(ctx, types.NamespacedName{Name: name}, &n); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if NodeFor([]NodeView{*ViewOf(&n)}, b) == nil { // another machine
		return nil, nil
	}
	return &n, nil
}
