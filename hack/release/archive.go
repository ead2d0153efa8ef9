package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// entry is one file of an archive or a package.
type entry struct {
	name    string
	mode    fs.FileMode
	content []byte
}

// archiveOf is the name of the archive of a program for a platform.
func (r *release) archiveOf(p platform, name string) string {
	extension := ".tar.gz"
	if p.os == "windows" {
		extension = ".zip"
	}
	return r.path(name + "_%s_" + p.os + "_" + p.arch + extension)
}

func (r *release) writeArchives(ctx context.Context, platforms []platform) error {
	manual, err := writeManual(r.version.tag, r.commit)
	if err != nil {
		return err
	}
	units, err := r.agentFiles()
	if err != nil {
		return err
	}
	for _, p := range platforms {
		if err := r.writeArchive(ctx, p, "ortet", manual); err != nil {
			return err
		}
		if p.linux() {
			if err := r.writeArchive(ctx, p, "ortet-node", units); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *release) writeArchive(ctx context.Context, p platform, name string, more []entry) error {
	entries, err := r.common(ctx, p, name)
	if err != nil {
		return err
	}
	path := r.archiveOf(p, name)
	write := writeTar
	if p.os == "windows" {
		write = writeZip
	}
	if err := toFile(path, func(w io.Writer) error { return write(w, append(entries, more...), r.commit) }); err != nil {
		return err
	}
	bill := r.path(name + "_%s_" + p.os + "_" + p.arch + ".spdx.json")
	_, err = r.run(ctx, nil, "go", "run", "./hack/image", "-bill", bill, r.program(p, name))
	return err
}

// common are the program and what each copy of it comes with.
func (r *release) common(ctx context.Context, p platform, name string) ([]entry, error) {
	program, err := os.ReadFile(r.program(p, name))
	if err != nil {
		return nil, fmt.Errorf("read program: %w", err)
	}
	licence, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return nil, fmt.Errorf("read licence: %w", err)
	}
	notices, err := r.notices(ctx, p, name)
	if err != nil {
		return nil, err
	}
	return []entry{{p.file(name), 0o755, program}, {"LICENSE", 0o644, licence}, {"THIRD_PARTY_NOTICES", 0o644, notices}}, nil
}

func writeTar(out io.Writer, entries []entry, at time.Time) error {
	packed, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(packed)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Mode: int64(e.mode), Size: int64(len(e.content)), ModTime: at, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := w.Write(e.content); err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), packed.Close())
}

func writeZip(out io.Writer, entries []entry, at time.Time) error {
	w := zip.NewWriter(out)
	for _, e := range entries {
		header := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: at}
		header.SetMode(e.mode)
		part, err := w.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := part.Write(e.content); err != nil {
			return err
		}
	}
	return w.Close()
}

func toFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

const sums = "SHA256SUMS"

// writeChecksums lists all files in the form of sha256sum, sorted by name.
func writeChecksums(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("list %s: %w", folder, err)
	}
	var b strings.Builder
	for _, e := range entries {
		sum, err := checksum(filepath.Join(folder, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s  %s\n", sum, e.Name())
	}
	path := filepath.Join(folder, sums)
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	// Documents come from programs with different masks.
	for _, e := range entries {
		if err := os.Chmod(filepath.Join(folder, e.Name()), 0o644); err != nil {
			return fmt.Errorf("set mode of %s: %w", e.Name(), err)
		}
	}
	return nil
}

func checksum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read file of the release: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
