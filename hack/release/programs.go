package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// platform is one of GOOS and GOARCH.
type platform struct{ os, arch string }

func parsePlatforms(names []string) ([]platform, error) {
	var all []platform
	for _, name := range names {
		if !slices.Contains(allPlatforms, name) {
			return nil, fmt.Errorf("build for platform %q: not supported; choose from %s", name, strings.Join(allPlatforms, " "))
		}
		os, arch, _ := strings.Cut(name, "/")
		all = append(all, platform{os, arch})
	}
	if !slices.ContainsFunc(all, platform.linux) {
		return nil, fmt.Errorf("build the image: PLATFORMS has no linux/amd64 and no linux/arm64")
	}
	return all, nil
}

func (p platform) linux() bool    { return p.os == "linux" }
func (p platform) String() string { return p.os + "/" + p.arch }
func (p platform) env() []string  { return []string{"GOOS=" + p.os, "GOARCH=" + p.arch} }

// file is a program's file name.
func (p platform) file(program string) string {
	if p.os == "windows" {
		return program + ".exe"
	}
	return program
}

// programs are those that are released for a platform; the agent runs in Azure's VMs.
func (p platform) programs() []string {
	if p.os == "darwin" {
		return []string{"ortet"}
	}
	return []string{"ortet", "ortet-node"}
}

// program is the path of a program that build made.
func (r *release) program(p platform, name string) string {
	return filepath.Join(r.work, p.os+"_"+p.arch, p.file(name))
}

// imagePrograms is the folder of those that go into the image: its own digest cannot
// be in them.
func (r *release) imagePrograms(p platform) string {
	return filepath.Join(r.work, "image", p.os+"_"+p.arch)
}

func (r *release) buildForImage(ctx context.Context, platforms []platform) error {
	for _, p := range platforms {
		if p.linux() {
			if err := r.goBuild(ctx, p, r.imagePrograms(p), ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// build makes all programs. Only ortet's link differs by the image, so the agent in
// the packages is the one in the image.
func (r *release) build(ctx context.Context, platforms []platform) error {
	for _, p := range platforms {
		if err := r.goBuild(ctx, p, filepath.Dir(r.program(p, "ortet")), r.image); err != nil {
			return err
		}
		if p.os != "darwin" {
			if _, err := r.run(ctx, nil, "hack/agent.sh", "--check", r.program(p, "ortet-node")); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *release) goBuild(ctx context.Context, p platform, folder, image string) error {
	r.note("  %s", p)
	flags := "-s -w -X main.version=" + r.version.tag
	// The commit is part of every program: a checkout without it, as an unpacked
	// archive, is refused by the go command.
	args := []string{"build", "-buildvcs=true", "-o", folder + "/", "-ldflags", flags}
	if image != "" {
		args = append(args, "-ldflags", modulePath+"/cmd/ortet="+flags+" -X main.image="+image)
	}
	for _, name := range p.programs() {
		args = append(args, "./cmd/"+name)
	}
	_, err := r.run(ctx, p.env(), "go", args...)
	return err
}

const modulePath = "github.com/ortet/ortet"

func (r *release) writeImage(ctx context.Context, platforms []platform) error {
	repository := "localhost/ortet"
	if r.registry != "" {
		repository = r.registry + "/ortet"
	}
	args := []string{"run", "./hack/image", "-layout", r.path("ortet-image_%s.tar"), "-name", repository, "-version", r.version.number}
	for _, p := range platforms {
		if p.linux() {
			args = append(args, p.String()+"="+r.imagePrograms(p))
		}
	}
	image, err := r.run(ctx, nil, "go", args...)
	if err != nil {
		return err
	}
	if !strings.Contains(image, "/ortet@sha256:") { // docker.io is written index.docker.io
		return fmt.Errorf("write image: hack/image printed %q, want %s by its digest", image, repository)
	}
	if r.registry != "" {
		r.image = image
	}
	return nil
}

func (r *release) writeCharts(ctx context.Context, _ []platform) error {
	args := []string{"run", "./hack/charts", "-out", r.dist, "-version", r.version.number}
	if r.image != "" {
		args = append(args, "-image", r.image)
	}
	_, err := r.run(ctx, nil, "go", append(args, "charts/ortet", "charts/vmss-prototype")...)
	return err
}

func (r *release) writeExtensions(ctx context.Context, platforms []platform) error {
	for _, p := range platforms {
		if p.os == "darwin" {
			continue
		}
		out := r.path("ortet-extension_%s_" + p.os + "-" + p.arch + ".zip")
		if _, err := r.run(ctx, nil, "go", "run", "./hack/extension", "-out", out, "-manifest", "deploy/extension/"+p.os+"/HandlerManifest.json", "-program", r.program(p, "ortet-node")); err != nil {
			return err
		}
	}
	return nil
}

// path is that of a file of the release; %s in its name is the version.
func (r *release) path(name string) string {
	return filepath.Join(r.dist, fmt.Sprintf(name, r.version.number))
}
