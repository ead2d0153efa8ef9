package lab

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// BaseImage builds the disk image, or finds it in the cache, and returns its
// path. The first time takes minutes, later ones a second; progress goes to
// progress, line by line. It needs root on Debian, and the checkout at dir.
func BaseImage(ctx context.Context, dir, controlplane string, progress io.Writer) (string, error) {
	work, err := os.MkdirTemp("", "images")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	images := exec.CommandContext(ctx, "go", "run", "./hack/lab/images", "--out", work)
	images.Dir, images.Stderr = dir, progress
	if err := images.Run(); err != nil {
		return "", fmt.Errorf("build the lab's container images: %w", err)
	}
	var out bytes.Buffer
	rootfs := exec.CommandContext(ctx, filepath.Join(dir, "hack", "lab", "rootfs.sh"), "--controlplane", controlplane, "--images", work)
	rootfs.Stdout, rootfs.Stderr = &out, progress
	// An interrupt lets the script unmount what it mounted; killing would not.
	rootfs.Cancel = func() error { return rootfs.Process.Signal(os.Interrupt) }
	if err := rootfs.Run(); err != nil {
		return "", fmt.Errorf("build the machines' disk image: %w", err)
	}
	return strings.TrimSpace(out.String()), nil
}
