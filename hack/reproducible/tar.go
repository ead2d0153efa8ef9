// Package reproducible writes archives that are the same, bit for bit, for the same
// content: entries sorted by name, with fixed times and owner.
package reproducible

import (
	"archive/tar"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// File is an entry of an archive.
type File struct {
	Name    string
	Mode    int64
	Content []byte
}

// Tar writes the files as a tar archive.
func Tar(w io.Writer, files []File) error {
	archive := tar.NewWriter(w)
	for _, f := range slices.SortedFunc(slices.Values(files), func(a, b File) int { return cmp.Compare(a.Name, b.Name) }) {
		header := &tar.Header{Name: f.Name, Mode: f.Mode, Size: int64(len(f.Content)), ModTime: time.Unix(0, 0), Typeflag: tar.TypeReg}
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("pack %s: %w", f.Name, err)
		}
		if _, err := archive.Write(f.Content); err != nil {
			return fmt.Errorf("pack %s: %w", f.Name, err)
		}
	}
	return archive.Close()
}

// Save puts what write writes at path, whole or not at all.
func Save(path string, write func(io.Writer) error) error {
	temporary := path + ".new"
	f, err := os.Create(temporary)
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Close())
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, errors.Join(err, os.Remove(temporary)))
	}
	return nil
}
