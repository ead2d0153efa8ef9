package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra/doc"

	"github.com/ortet/ortet/internal/cli"
)

// writeManual returns ortet's man pages (man/man1) and completions (completions). The
// command gets no environment, so that nothing in them is of the machine that builds.
func writeManual(version string, at time.Time) ([]entry, error) {
	root := cli.Command(cli.Process{Out: io.Discard, Err: io.Discard, Getenv: func(string) string { return "" }, Version: version})
	root.DisableAutoGenTag = true
	folder, err := os.MkdirTemp("", "ortet-man")
	if err != nil {
		return nil, fmt.Errorf("write man pages: %w", err)
	}
	defer os.RemoveAll(folder)
	header := &doc.GenManHeader{Title: "ORTET", Section: "1", Date: &at, Source: "Ortet " + version, Manual: "Ortet"}
	if err := doc.GenManTreeFromOpts(root, doc.GenManTreeOptions{Header: header, Path: folder, CommandSeparator: "-"}); err != nil {
		return nil, fmt.Errorf("write man pages: %w", err)
	}
	pages, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("write man pages: %w", err)
	}
	var all []entry
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(folder, page.Name()))
		if err != nil {
			return nil, fmt.Errorf("write man pages: %w", err)
		}
		all = append(all, entry{"man/man1/" + page.Name(), 0o644, text})
	}
	for _, shell := range []struct {
		file  string
		write func(io.Writer) error
	}{
		{"ortet.bash", func(w io.Writer) error { return root.GenBashCompletionV2(w, true) }},
		{"_ortet", root.GenZshCompletion},
		{"ortet.fish", func(w io.Writer) error { return root.GenFishCompletion(w, true) }},
		{"ortet.ps1", root.GenPowerShellCompletionWithDesc},
	} {
		var text bytes.Buffer
		if err := shell.write(&text); err != nil {
			return nil, fmt.Errorf("write completion %s: %w", shell.file, err)
		}
		all = append(all, entry{"completions/" + shell.file, 0o644, text.Bytes()})
	}
	return all, nil
}
