package extension

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A real systemd has what waits out of the reach of whoever ends the agent's
// control groups, and begins it again when it is killed; the baked unit keeps no
// boot waiting.
func TestWaiterUnderSystemd(t *testing.T) {
	image := os.Getenv("ORTET_LAB_IMAGE")
	if image == "" || os.Getuid() != 0 {
		t.Skip("NOT TESTED under a real systemd: that needs root and the lab's disk image (make lab)")
	}
	work := t.TempDir()
	program := filepath.Join(work, "ortet-node")
	if out, err := exec.Command("go", "build", "-o", program, "../../../cmd/ortet-node").CombinedOutput(); err != nil {
		t.Fatalf("building the agent: %v: %s", err, out)
	}
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--propagation", "private", "testdata/systemd.sh", image, program, filepath.Join(work, "vm"), fmt.Sprintf("ortet-extension-%d", os.Getpid()))
	// It cleans up after itself when it is asked to end.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s%s", err, out, said.String())
	}
	const want = `multi-user.target active
baked unit active
control group /system.slice/ortet-extension-0.service
after the agent's slice was stopped active
after a kill active
status success
`
	if string(out) != want {
		t.Errorf("got\n%swant\n%s%s", out, want, said.String())
	}
}
