//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// asFound captures a donor that others have cordoned and protected, with the
// defaults of every flag that is not about secrets: all stays as it was found.
func asFound(t *testing.T, w *world) {
	p := w.pool(t, "found", 2)
	donor, bench := p.nodes[0], p.nodes[1]
	patch := `{"metadata":{"annotations":{"cluster-autoscaler.kubernetes.io/scale-down-disabled":"true","example.com/note":"mine"}},"spec":{"unschedulable":true}}`
	_, err := p.kube.CoreV1().Nodes().Patch(t.Context(), donor, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	must(t, err)
	p.protectFromScaleIn(t, donor)
	eventually(t, donor+" to have its taint", func() bool { return len(p.node(t, donor).spec.Taints) == 1 })
	before := p.node(t, donor)

	// What would be on every clone is not given away unasked.
	p.ortet(t, nil, "capture", donor, "--workbench="+bench).exits(t, exitRefused).
		says(t, "/etc/kubernetes/azure.json", "/etc/kubernetes/bootstrap-kubelet.conf", "--accept-pool-credentials", "nothing was changed")
	p.whole(t, donor, before)
	p.clean(t)
	if got := p.versions(t); len(got) > 0 {
		t.Errorf("a capture with secrets made versions %v", got)
	}

	// The model's customData stays, so that the node that is added joins by it.
	screen := p.onTerminal(t, "capture", donor, "--workbench="+bench, "--accept-pool-credentials", "--again", "--grow=1", "--history=2")
	for _, step := range []string{"✓ stop", "✓ snapshot", "✓ generalize", "✓ version", "✓ model", "✓ grow", "✓ end", "cordoned before, and still is"} {
		if !strings.Contains(flat(screen), step) {
			t.Errorf("the terminal does not show %q at the end:\n%s", step, screen)
		}
	}
	p.whole(t, donor, before)
	p.clean(t)
	p.extensionsLeft(t)
	versions := p.versions(t)
	if len(versions) != 1 {
		t.Fatalf("versions are %v, want one", versions)
	}
	first := versions[0]
	p.pinned(t, first)
	clone := p.newest(t, 3)
	p.fromVersion(t, clone, first)
	p.strangers(t, donor, bench, clone)

	// What an instance was made from is kept beyond the history, the rest is not.
	again := func() (string, string) {
		o := p.ortet(t, nil, "capture", donor, "--workbench="+bench, "--accept-pool-credentials", "--again", "--history=2").exits(t, exitDone)
		return lastOf(p.versions(t)), o.stdout
	}
	second, _ := again()
	third, said := again()
	if got := p.versions(t); !slices.Equal(got, []string{first, second, third}) || !strings.Contains(said, "Kept beyond the history") || !strings.Contains(said, first) {
		t.Errorf("versions are %v, want %s, which is in use, %s and %s\n%s", got, first, second, third, said)
	}
	fourth, said := again()
	if got := p.versions(t); !slices.Equal(got, []string{first, third, fourth}) || !strings.Contains(said, "Deleted, beyond the history: "+second) {
		t.Errorf("versions are %v, want %s, which is in use, %s and %s\n%s", got, first, third, fourth, said)
	}
	p.ortet(t, nil, "rollback", donor, "--to="+first).exits(t, exitDone).says(t, "come from "+first+" again", "no longer from "+fourth).fits(t)
	p.pinned(t, first)
	var pools []struct{ Versions []struct{ Name string } }
	status := p.ortet(t, nil, "status", string(p.id()), "-o", "yaml").exits(t, exitDone)
	must(t, yaml.Unmarshal([]byte(status.stdout), &pools))
	if len(pools) != 1 || len(pools[0].Versions) != 3 {
		t.Errorf("YAML tells of %+v, want 3 versions of a pool", pools)
	}
	p.whole(t, donor, before)
	p.clean(t)
}

func lastOf(s []string) string { return s[len(s)-1] }

// protectFromScaleIn is what an operator did before.
func (p *pool) protectFromScaleIn(t *testing.T, node string) {
	t.Helper()
	vms := p.clients(t).NewVirtualMachineScaleSetVMsClient()
	id := str(p.instances(t)[node].InstanceID)
	got, err := vms.Get(t.Context(), p.group(), p.name, id, nil)
	must(t, err)
	vm := got.VirtualMachineScaleSetVM
	vm.Properties.ProtectionPolicy = &armcompute.VirtualMachineScaleSetVMProtectionPolicy{ProtectFromScaleIn: to.Ptr(true)}
	poller, err := vms.BeginUpdate(t.Context(), p.group(), p.name, id, vm, nil)
	must(t, err)
	_, err = poller.PollUntilDone(t.Context(), nil)
	must(t, err)
}

const terminalColumns = 80

// onTerminal runs ortet on a terminal and gives what stands on its screen, and
// above it, at the end. No line may ever have reached the last column.
func (p *pool) onTerminal(t *testing.T, args ...string) string {
	t.Helper()
	ours, theirs := terminal(t)
	cmd := exec.CommandContext(t.Context(), filepath.Join(p.bin, "ortet"), append(args, p.access()...)...)
	cmd.Env = []string{"SSL_CERT_FILE=" + p.azure.Endpoint.CAFile, "HOME=" + p.home, "PATH=" + p.home, "TERM=xterm"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must(t, cmd.Start())
	must(t, theirs.Close())
	var all []byte
	for buffer := make([]byte, 4096); ; {
		n, err := ours.Read(buffer)
		all = append(all, buffer[:n]...)
		if err != nil { // EIO: nobody has it open any more
			break
		}
	}
	err := cmd.Wait()
	s := &screen{t: t}
	s.write(string(all))
	if err != nil {
		t.Fatalf("ortet %s: %v\n%s", strings.Join(args, " "), err, s)
	}
	return s.String()
}

// terminal opens a pseudo-terminal: our end of it, and the program's.
func terminal(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	t.Cleanup(func() { _ = ours.Close() })
	fd := int(ours.Fd())
	must(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	must(t, err)
	must(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: terminalColumns}))
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	return ours, theirs
}

// A screen understands as much of a terminal as ortet uses.
type screen struct {
	t     *testing.T
	lines []string
	row   int
	text  string // of the row
	home  bool   // the cursor is at its beginning
}

func (s *screen) write(out string) {
	s.t.Helper()
	for out != "" {
		switch {
		case strings.HasPrefix(out, "\x1b["):
			end := strings.IndexFunc(out[2:], func(r rune) bool { return r >= '@' && r <= '~' }) + 2
			if end < 2 {
				s.t.Fatalf("an escape sequence does not end: %q", out)
			}
			switch sequence := out[2 : end+1]; {
			case strings.HasSuffix(sequence, "A"):
				up := 0
				if _, err := fmt.Sscanf(sequence, "%dA", &up); err != nil || up > s.row {
					s.t.Fatalf("the cursor goes up by %q from row %d", sequence, s.row)
				}
				s.row -= up
			case sequence == "J":
				s.lines, s.text = s.lines[:min(s.row, len(s.lines))], ""
			default:
				s.t.Fatalf("escape sequence %q", sequence)
			}
			out = out[end+1:]
		case out[0] == '\r':
			s.home, out = true, out[1:]
		case out[0] == '\n':
			for len(s.lines) <= s.row {
				s.lines = append(s.lines, "")
			}
			if s.text != "" {
				s.lines[s.row] = s.text
			}
			s.row, s.text, s.home, out = s.row+1, "", false, out[1:]
		default:
			r, size := utf8.DecodeRuneInString(out)
			if s.home { // a line is always written anew
				s.text, s.home = "", false
			}
			s.text, out = s.text+string(r), out[size:]
			if utf8.RuneCountInString(s.text) > terminalColumns {
				s.t.Fatalf("a line wraps: %q", s.text)
			}
		}
	}
}

func (s *screen) String() string { return strings.Join(s.lines, "\n") }
