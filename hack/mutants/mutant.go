package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// change replaces one text, which stands once in a file, by another.
type change struct {
	file     string // relative to the project's root
	old, now string
}

// mutant is one planted bug.
type mutant struct {
	set, name string
	why       string // what a user would suffer
	changes   []change
}

// load reads all planted bugs below a folder, ordered by set and name.
func load(folder string) ([]mutant, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*", "*.txt"))
	if err != nil {
		return nil, fmt.Errorf("list planted bugs in %s: %w", folder, err)
	}
	slices.Sort(paths)
	var all []mutant
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read planted bug: %w", err)
		}
		m, err := parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", path, err)
		}
		m.set = filepath.Base(filepath.Dir(path))
		m.name = strings.TrimSuffix(filepath.Base(path), ".txt")
		all = append(all, m)
	}
	return all, nil
}

// The lines that divide a planted bug's text.
const (
	markOld  = "<<<<"
	markNew  = "===="
	markDone = ">>>>"
)

// parse reads the text of one planted bug; set and name are left empty.
func parse(text string) (mutant, error) {
	var (
		m        mutant
		file     string
		part     *[]string // where lines go: nil outside of a change
		old, now []string
	)
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		bad := func(what string) (mutant, error) { return mutant{}, fmt.Errorf("line %d: %s", i+1, what) }
		switch {
		case line == markOld:
			if part != nil || file == "" {
				return bad("a change begins inside another, or before a line `file PATH`")
			}
			old, now = nil, nil
			part = &old
		case line == markNew:
			if part != &old {
				return bad(markNew + " without " + markOld)
			}
			part = &now
		case line == markDone:
			if part != &now {
				return bad(markDone + " without " + markNew)
			}
			m.changes = append(m.changes, change{file, strings.Join(old, "\n"), strings.Join(now, "\n")})
			part = nil
		case part != nil:
			*part = append(*part, line)
		case strings.HasPrefix(line, "# "):
			m.why = strings.TrimSpace(m.why + " " + line[2:])
		case strings.HasPrefix(line, "file "):
			file = strings.TrimSpace(line[5:])
			if !filepath.IsLocal(file) {
				return bad("the file is outside of the project")
			}
		case line != "":
			return bad("neither a comment, a file, nor part of a change")
		}
	}
	switch {
	case part != nil:
		return mutant{}, fmt.Errorf("the last change has no %s", markDone)
	case m.why == "" || len(m.changes) == 0:
		return mutant{}, fmt.Errorf("a comment that says why, and at least one change, are required")
	}
	return m, nil
}

// apply gives the changed files by their path relative to root.
func (m mutant) apply(root string) (map[string]string, error) {
	files := map[string]string{}
	for _, c := range m.changes {
		text, ok := files[c.file]
		if !ok {
			read, err := os.ReadFile(filepath.Join(root, c.file))
			if err != nil {
				return nil, fmt.Errorf("plant %s: %w", m.name, err)
			}
			text = string(read)
		}
		if n := strings.Count(text, c.old); n != 1 || c.old == "" {
			return nil, fmt.Errorf("plant %s: the text to replace stands %d times in %s, not once; carry the bug over to today's code:\n%s", m.name, n, c.file, c.old)
		}
		files[c.file] = strings.Replace(text, c.old, c.now, 1)
	}
	return files, nil
}

// overlay writes the changed files into folder, and gives the path of the file
// that the go command's -overlay takes.
func (m mutant) overlay(root, folder string) (string, error) {
	files, err := m.apply(root)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file, text := range files {
		target := filepath.Join(folder, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(target, []byte(text), 0o600); err != nil {
			return "", fmt.Errorf("plant %s: %w", m.name, err)
		}
		replace[filepath.Join(root, file)] = target
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("plant %s: %w", m.name, err)
	}
	path := filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return "", fmt.Errorf("plant %s: %w", m.name, err)
	}
	return path, nil
}
