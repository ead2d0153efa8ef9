package join

import "context"

// Agent is the node's kubelet, k3s or RKE2 as a service.
type Agent interface {
	// Stop stops a unit and returns once it stands still. One that does not run, or
	// does not exist, stands still.
	Stop(ctx context.Context, unit string) error
}
