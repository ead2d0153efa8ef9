// Command images builds the lab's container images as tarballs that containerd
// imports, each of one static Go program and without a registry. Images with
// the same program and Go release are the same to the byte.
//
//	go run ./hack/lab/images --out DIR
package main

import (
	"archive/tar"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// The images' names. No registry has them, so that a pod which runs shows that
// its image was on the disk.
const repository = "lab.ortet.invalid/"

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := buildAll(ctx, args); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		return 1
	}
	return 0
}

func buildAll(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	out := flags.String("out", "", "folder for the tarballs")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *out == "" {
		return fmt.Errorf("--out is missing: name the folder for the tarballs")
	}
	if err := os.MkdirAll(*out, 0o750); err != nil {
		return err
	}
	for _, program := range []string{"pause", "web"} {
		if err := build(ctx, program, filepath.Join(*out, program+".tar")); err != nil {
			return fmt.Errorf("image %s: %w", program, err)
		}
	}
	return nil
}

func build(ctx context.Context, program, file string) error {
	binary := file + ".bin"
	defer os.Remove(binary)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", binary,
		"github.com/ortet/ortet/hack/lab/images/"+program)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, text)
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	image, err := oneFile(program, content)
	if err != nil {
		return err
	}
	tag, err := name.NewTag(repository + program + ":1")
	if err != nil {
		return err
	}
	return tarball.WriteToFile(file, tag, image)
}

// oneFile makes an image whose only file is the program, which it runs.
func oneFile(program string, content []byte) (v1.Image, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := w.WriteHeader(&tar.Header{Name: program, Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg}); err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{Entrypoint: []string{"/" + program}, User: "65532:65532"}
	return mutate.ConfigFile(image, config)
}
