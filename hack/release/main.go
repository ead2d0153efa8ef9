// Command release makes all files of a release of the commit that is checked out:
// archives, packages, the container image, charts, the VM extension's packages, bills
// of materials, manifests for krew and Homebrew, and their checksums. It needs neither
// Docker nor a registry, pushes nothing, and makes the same bytes from each clone.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r := release{say: os.Stderr}
	var platforms string
	flag.StringVar(&r.root, "root", "../..", "checkout of the commit to release")
	flag.StringVar(&r.registry, "registry", "", "registry and path that the image and the charts will be published to, reg.example/org")
	flag.StringVar(&platforms, "platforms", strings.Join(allPlatforms, " "), "platforms to build for, separated by spaces")
	flag.StringVar(&r.download, "download", "", "URL below which the archives will be served; default the project's release page of the tag")
	flag.Parse()
	err := r.make(ctx, strings.Fields(platforms))
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// project is where the commit comes from, and its releases are.
const project = "https://github.com/ortet/ortet"

var allPlatforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

type release struct {
	root, registry, download string
	say                      io.Writer

	version versions
	commit  time.Time // the one time in all files
	work    string    // intermediate files, below bin/
	dist    string    // the folder dist/ to be, until it is complete
	image   string    // by digest; empty without a registry
}

// make writes dist/, or nothing: an earlier one is replaced when all is done.
func (r *release) make(ctx context.Context, names []string) error {
	platforms, err := parsePlatforms(names)
	if err != nil {
		return err
	}
	if r.root, err = filepath.Abs(r.root); err != nil {
		return fmt.Errorf("find checkout: %w", err)
	}
	if err := r.readCommit(ctx); err != nil {
		return err
	}
	r.work = filepath.Join(r.root, "bin", "release")
	r.dist = filepath.Join(r.work, "dist")
	if err := os.RemoveAll(r.work); err != nil {
		return fmt.Errorf("clear %s: %w", r.work, err)
	}
	if err := os.MkdirAll(r.dist, 0o755); err != nil {
		return fmt.Errorf("create %s: %w", r.dist, err)
	}
	if len(platforms) < len(allPlatforms) {
		r.note("for %s only: not a complete release", strings.Join(names, ", "))
	}
	for _, step := range []struct {
		title string
		run   func(context.Context, []platform) error
	}{
		{"Build programs for the image", r.buildForImage},
		{"Write image", r.writeImage},
		{"Write charts", r.writeCharts},
		{"Build programs", r.build},
		{"Write archives and bills of materials", r.writeArchives},
		{"Write deb and rpm packages", r.writePackages},
		{"Write VM extension packages", r.writeExtensions},
		{"Write manifests for krew and Homebrew", r.writeManifests},
	} {
		began := time.Now()
		r.note("%s …", step.title)
		if err := step.run(ctx, platforms); err != nil {
			return err
		}
		r.note("%s: %.0f s", step.title, time.Since(began).Seconds())
	}
	if err := writeChecksums(r.dist); err != nil {
		return err
	}
	out := filepath.Join(r.root, "dist")
	if err := os.RemoveAll(out); err != nil {
		return fmt.Errorf("clear %s: %w", out, err)
	}
	if err := os.Rename(r.dist, out); err != nil {
		return fmt.Errorf("put dist/ in place: %w", err)
	}
	return os.RemoveAll(r.work)
}

func (r *release) note(format string, values ...any) {
	_, _ = fmt.Fprintf(r.say, "release: "+format+"\n", values...)
}

// run runs a program in the checkout, and returns what it printed.
func (r *release) run(ctx context.Context, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stderr = r.root, r.say
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath", "GOWORK=off"), env...)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("run %s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
