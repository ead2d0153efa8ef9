package push

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster/apierror"
	"github.com/ortet/ortet/internal/nodeconfig"
)

// Options of a Rollout. ARM, Cloud, Kube, Namespace and Now are required.
type Options struct {
	ARM       azure.Resources // reads userData; limited: see azure.LimitResources
	Cloud     azure.Cloud     // changes it
	Kube      kubernetes.Interface
	Namespace string // of the histories
	Now       func() time.Time
	By        string            // "user@host", for the history
	Report    func(line string) // what a person who watches sees; called from one goroutine at a time
	// CheckKubelet checks a configuration against the kubelet versions of a pool's Nodes
	// ("v1.34.1"). nil checks nothing.
	CheckKubelet func(c nodeconfig.Config, versions []string) error
}

// A Rollout changes and shows the configuration of pools.
type Rollout struct {
	Options
	reporting sync.Mutex
}

// New makes a Rollout. It sends nothing.
func New(o Options) *Rollout { return &Rollout{Options: o} }

func (r *Rollout) report(format string, args ...any) {
	if r.Report != nil {
		r.reporting.Lock()
		defer r.reporting.Unlock()
		r.Report(fmt.Sprintf(format, args...))
	}
}

// kubeError says what was tried in the cluster, and what to grant where it is forbidden.
func kubeError(ctx context.Context, op, resource string, err error, grant string) error {
	return apierror.Request{Op: op, On: resource, Grant: "grant " + grant}.Error(ctx, err)
}

// assumedTime is how long one node is taken to need before one has shown it: Azure's
// change, the metadata service's delay, restarts and 10 s of health. The lab's need 31 s.
const assumedTime = 35 * time.Second

// Expected is about how long a push takes to change nodes, some at once, if each takes
// that long. The limits of requests are in it: they space the changes within a wave.
func Expected(nodes, atOnce int, each time.Duration) time.Duration {
	waves := (nodes + max(atOnce, 1) - 1) / max(atOnce, 1)
	return azure.Limits{}.Expected(nodes+1) + time.Duration(waves)*each
}
