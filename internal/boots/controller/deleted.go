package controller

import (
	"bytes"
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/fleet"
)

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
func (f *Fleet) keepGone(k fleet.Key, s *instanceState) {
	switch a := s.assessment; {
	case len(f.gone) >= maxGone, a.State != assess.Booting && !a.State.Bad():
		return
	}
	s.boot.ProvisioningState = string(assess.Deleting)
	f.gone[k] = s
}

// forget is called once the boot of an instance that is gone was published.
func (f *Fleet) forget(key fleet.Key) {
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
	if !viewOf(&n).Is(b) { // another machine
		return nil, nil
	}
	return &n, nil
}
