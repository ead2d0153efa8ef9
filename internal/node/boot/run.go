package boot

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// maxComplaint is how much is kept of what a program prints of its errors, in bytes.
const maxComplaint = 256

// find is where one of systemd's programs is.
func find(name string) (string, error) {
	for _, dir := range []string{"/usr/bin/", "/bin/"} {
		if info, err := os.Stat(dir + name); err == nil && info.Mode().IsRegular() {
			return dir + name, nil
		}
	}
	return "", fmt.Errorf("find %s: it is in neither /usr/bin nor /bin", name)
}

// run has a program's output read, and the program end within that time. Output that
// read leaves is not waited for.
func run(ctx context.Context, within time.Duration, program string, args []string, read func(out io.Reader)) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"LC_ALL=C.UTF-8", "SYSTEMD_COLORS=0"}
	cmd.WaitDelay = time.Second
	var complaint firstBytes
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", program, err)
	}
	read(out)
	_ = out.Close() // ends a program that would print on
	if err = cmd.Wait(); ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("run %s: %w: %s", program, err, strings.TrimSpace(string(complaint)))
	}
	return nil
}

// firstBytes keeps the beginning of what is written.
type firstBytes []byte

func (b *firstBytes) Write(p []byte) (int, error) {
	*b = append(*b, p[:min(len(p), maxComplaint-len(*b))]...)
	return len(p), nil
}
