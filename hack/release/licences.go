package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|notice|copying|patents)([-._].*)?$`)

// notices are the licences of all that a program holds: of Go, and of each module the
// files beside the packages that are linked in, and above them. A module without any
// fails the release.
func (r *release) notices(ctx context.Context, p platform, name string) ([]byte, error) {
	packages, err := r.run(ctx, p.env(), "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}\t{{$.Dir}}{{end}}{{end}}", "./cmd/"+name)
	if err != nil {
		return nil, err
	}
	found := map[string]map[string]bool{} // a module's licence files
	for line := range strings.Lines(packages) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		if len(f) != 4 {
			continue
		}
		module, root := f[0]+" "+f[1], f[2]
		if found[module] == nil {
			found[module] = map[string]bool{}
		}
		for folder := f[3]; ; folder = filepath.Dir(folder) {
			if err := licencesIn(folder, found[module]); err != nil {
				return nil, err
			}
			if folder == root || len(folder) < len(root) {
				break
			}
		}
	}
	if err := r.addGo(ctx, found); err != nil {
		return nil, err
	}
	info, err := buildinfo.ReadFile(r.program(p, name))
	if err != nil {
		return nil, fmt.Errorf("read modules of %s: %w", name, err)
	}
	for _, m := range info.Deps {
		if len(found[m.Path+" "+m.Version]) == 0 {
			return nil, fmt.Errorf("collect licences of %s: module %s %s has no licence file; do not link it", name, m.Path, m.Version)
		}
	}
	return notice(name, found)
}

// addGo adds the licence of the standard library and the runtime.
func (r *release) addGo(ctx context.Context, found map[string]map[string]bool) error {
	root, err := r.run(ctx, nil, "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	files := map[string]bool{}
	if err := licencesIn(root, files); err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("collect the licence of Go: %s has none; use Go as go.dev distributes it", root)
	}
	found["Go's standard library"] = files
	return nil
}

func licencesIn(folder string, files map[string]bool) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("collect licences: %w", err)
	}
	for _, e := range entries {
		if e.Type().IsRegular() && licenceFile.MatchString(e.Name()) && filepath.Ext(e.Name()) != ".go" {
			files[filepath.Join(folder, e.Name())] = true
		}
	}
	return nil
}

// notice writes each distinct text once, below the modules that have it.
func notice(program string, found map[string]map[string]bool) ([]byte, error) {
	holders := map[string][]string{}
	for module, files := range found {
		for file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, fmt.Errorf("read licence: %w", err)
			}
			key := strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n"))
			if !slices.Contains(holders[key], module) {
				holders[key] = append(holders[key], module)
			}
		}
	}
	type section struct{ heading, text string }
	var sections []section
	for text, modules := range holders {
		slices.Sort(modules)
		sections = append(sections, section{strings.Join(modules, "\n"), text})
	}
	slices.SortFunc(sections, func(a, b section) int {
		return strings.Compare(a.heading+"\n"+a.text, b.heading+"\n"+b.text)
	})
	var b bytes.Buffer
	fmt.Fprintf(&b, "Software of others in %s, and its licences.\n", program)
	rule := strings.Repeat("=", 80)
	for _, s := range sections {
		fmt.Fprintf(&b, "\n%s\n%s\n%s\n\n%s\n", rule, s.heading, rule, s.text)
	}
	return b.Bytes(), nil
}
