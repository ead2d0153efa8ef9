//go:build e2e && linux

package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/ortet/ortet/azsim/machine"
	"github.com/ortet/ortet/test/controlplane"
)

// clearGround returns the checkout, and a folder of that name in which nothing of a
// former run is left; machines will live in a folder of it. It skips the test, and
// says so, where real machines are not asked for.
func clearGround(t *testing.T, name, machines string) (checkout, dir string) {
	t.Helper()
	if os.Getenv("ORTET_LAB") != "1" {
		t.Skip("NOT RUN: real machines need root on Debian and ORTET_LAB=1; see make lab")
	}
	if os.Geteuid() != 0 {
		t.Fatal("ORTET_LAB=1 asks for real machines, which need root")
	}
	checkout, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(os.TempDir(), "ortet-lab-"+name)
	machines = filepath.Join(dir, machines)
	// Refused while another run uses the folder. What is mounted beneath it has
	// to be gone before it is deleted.
	if err := machine.Clean(machines); err != nil {
		t.Fatalf("take away what a former run left: %v", err)
	}
	assertNothingLeft(t, machines)
	if t.Failed() {
		t.FailNow()
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	return checkout, dir
}

// startCluster starts a control plane, which ends with the test.
func startCluster(ctx context.Context, t *testing.T, dir, binary string) (*controlplane.ControlPlane, kubernetes.Interface) {
	t.Helper()
	cp, err := controlplane.Start(ctx, controlplane.Config{Dir: filepath.Join(dir, "cp"), Binary: binary})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, cp.Stop) })
	return cp, cp.Admin(t)
}
