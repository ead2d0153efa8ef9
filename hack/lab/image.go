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

// Overlay makes a disk image out of another: the same disk with a folder's files
// copied over its root file system, owned by root, as whoever bakes something
// into an image does. It needs root, and the checkout at dir.
func Overlay(ctx context.Context, dir, disk, folder, out string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "hack", "lab", "overlay.sh"), disk, folder, out)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s over %s: %w: %s", folder, disk, err, bytes.TrimSpace(text))
	}
	return nil
}
