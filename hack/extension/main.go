// Command extension makes the package of the Azure VM extension: a zip archive of
// the agent's binary and the manifest by which the Azure agent runs it. The same
// binary gives the same archive, bit for bit.
package main

import (
	"archive/zip"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"
)

func main() {
	out := flag.String("out", "bin/ortet-extension-linux-amd64.zip", "the archive to write")
	manifest := flag.String("manifest", "deploy/extension/linux/HandlerManifest.json", "the manifest to put at its root")
	program := flag.String("program", "bin/ortet-node", "the program to put into its bin/")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "extension: unexpected argument %q\n", flag.Arg(0))
		os.Exit(64)
	}
	if err := write(*out, *manifest, *program); err != nil {
		fmt.Fprintln(os.Stderr, "extension:", err)
		os.Exit(1)
	}
}

// write makes the archive beside out and then puts it in its place.
func write(out, manifest, program string) error {
	temporary := out + ".new"
	f, err := os.Create(temporary)
	if err != nil {
		return err
	}
	err = pack(f, manifest, program)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(temporary, out)
	}
	if err != nil {
		return fmt.Errorf("packing %s: %w", out, errors.Join(err, os.Remove(temporary)))
	}
	return nil
}

func pack(w io.Writer, manifest, program string) error {
	archive := zip.NewWriter(w)
	for _, entry := range []struct {
		source, name string
		mode         os.FileMode
	}{
		{manifest, "HandlerManifest.json", 0o644},
		{program, path.Join("bin", filepath.Base(program)), 0o755},
	} {
		content, err := os.ReadFile(entry.source)
		if err != nil {
			return err
		}
		// The earliest time that the format knows: what is packed does not depend on
		// when.
		header := zip.FileHeader{Name: entry.name, Method: zip.Deflate, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}
		header.SetMode(entry.mode)
		e, err := archive.CreateHeader(&header)
		if err != nil {
			return err
		}
		if _, err := e.Write(content); err != nil {
			return err
		}
	}
	return archive.Close()
}
