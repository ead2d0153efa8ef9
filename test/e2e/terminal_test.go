//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// onTerminal captures a donor that others have cordoned, on a terminal and with the
// defaults of every flag that is not about secrets: the donor stays as it was found,
// and the node that is added joins by the model's customData.
func onTerminal(t *testing.T, w *world) {
	p := w.pool(t, "terminal", 2)
	donor, bench := p.nodes[0], p.nodes[1]
	patch := `{"metadata":{"annotations":{"cluster-autoscaler.kubernetes.io/scale-down-disabled":"true","example.com/note":"mine"}},"spec":{"unschedulable":true}}`
	_, err := p.kube.CoreV1().Nodes().Patch(t.Context(), donor, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	must(t, err)
	eventually(t, donor+" to have its taint", func() bool { return len(p.node(t, donor).spec.Taints) == 1 })
	before := p.node(t, donor)

	shown := p.terminal(t, "capture", donor, "--workbench="+bench, "--accept-pool-credentials", "--again", "--grow=1")
	for _, step := range []string{"✓ stop", "✓ snapshot", "✓ generalize", "✓ version", "✓ model", "✓ grow", "cordoned before, and stays"} {
		if !strings.Contains(flat(shown), step) {
			t.Errorf("the terminal does not show %q:\n%s", step, shown)
		}
	}
	p.whole(t, donor, before)
	p.clean(t)
	p.extensionsLeft(t)
	versions := p.versions(t)
	if len(versions) != 1 {
		t.Fatalf("versions are %v, want one", versions)
	}
	version := versions[0]
	p.pinned(t, version)
	clone := p.newest(t, 3)
	p.fromVersion(t, clone, version)
	p.strangers(t, donor, bench, clone)
}

const terminalColumns = 80

var escapes = regexp.MustCompile(`\x1b\[[0-9]*[AJ]`)

// terminal runs ortet on a pseudo-terminal and gives all that it wrote there, without
// escape sequences. No line may have passed the last column.
func (p *pool) terminal(t *testing.T, args ...string) string {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	defer ours.Close()
	fd := int(ours.Fd())
	must(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	must(t, err)
	must(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: terminalColumns}))
	theirs, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)

	cmd := exec.CommandContext(t.Context(), filepath.Join(p.bin, "ortet"), append(args, p.access(args)...)...)
	cmd.Env = []string{"SSL_CERT_FILE=" + p.azure.Endpoint.CAFile, "HOME=" + p.home, "PATH=" + p.home, "TERM=xterm"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must(t, cmd.Start())
	must(t, theirs.Close())
	var all []byte
	for buffer := make([]byte, 4096); err == nil; {
		n, err = ours.Read(buffer) // EIO once the program has closed its end
		all = append(all, buffer[:n]...)
	}
	if !escapes.Match(all) {
		t.Error("progress is not drawn as on a terminal")
	}
	shown := escapes.ReplaceAllString(string(all), "")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("ortet %s: %v\n%s", strings.Join(args, " "), err, shown)
	}
	for _, l := range strings.FieldsFunc(shown, func(r rune) bool { return r == '\n' || r == '\r' }) {
		if utf8.RuneCountInString(l) > terminalColumns {
			t.Errorf("a line wraps: %q", l)
		}
	}
	return shown
}
