package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

// shared is the test process's control plane. It is a package variable because
// a Go test binary offers its tests nothing else to share; no other code may
// use it.
var shared struct {
	sync.Mutex
	main    bool // Main runs the tests, so it will be cleaned up
	started *ControlPlane
	failed  error
	dir     string
}

// NodeMonitorGracePeriod of the shared control plane: four renewals of a kubelet's, as
// in a cluster, since fewer may be late where the machine is slow.
const NodeMonitorGracePeriod = 40 * time.Second

// Main is what TestMain of a package that uses Shared calls:
//
//	func TestMain(m *testing.M) { os.Exit(controlplane.Main(m)) }
func Main(m *testing.M) int {
	shared.Lock()
	shared.main = true
	shared.Unlock()
	code := m.Run()
	shared.Lock()
	defer shared.Unlock()
	var errs []error
	if shared.started != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		errs = append(errs, shared.started.Failed(), shared.started.Stop(ctx))
	}
	if shared.dir != "" {
		errs = append(errs, os.RemoveAll(shared.dir))
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, "shared control plane:", err)
		return max(code, 1)
	}
	return code
}

// Shared returns the one control plane of this test process, started at the
// first call. Tests share its cluster: each uses names of its own and deletes
// what it made outside a namespace.
func Shared(t testing.TB) *ControlPlane {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if !shared.main {
		t.Fatal("controlplane.Shared needs TestMain to call controlplane.Main")
	}
	if shared.started == nil && shared.failed == nil {
		shared.started, shared.failed = startShared()
	}
	if shared.failed != nil {
		t.Fatalf("no control plane to test against (build it by: make controlplane): %v", shared.failed)
	}
	return shared.started
}

func startShared() (*ControlPlane, error) {
	ctx := context.Background()
	binary, err := Binary(ctx)
	if err != nil {
		return nil, err
	}
	if shared.dir, err = os.MkdirTemp("", "ortet-controlplane-"); err != nil {
		return nil, err
	}
	return Start(ctx, Config{Dir: shared.dir, Binary: binary, NodeMonitorGracePeriod: NodeMonitorGracePeriod})
}
