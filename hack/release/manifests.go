package main

import (
	"context"
	_ "embed"
	"io"
	"path/filepath"
	"text/template"
)

//go:embed ortet.yaml.tmpl
var krewManifest string

//go:embed ortet.rb.tmpl
var homebrewFormula string

// download is an archive of ortet with where it will be served.
type download struct {
	OS, Arch, Program, URL, SHA256 string
}

// writeManifests writes what krew and Homebrew install ortet from: both name archives
// by URL and digest.
func (r *release) writeManifests(_ context.Context, platforms []platform) error {
	data := struct {
		Version, Tag, Project string
		All, Darwin, Linux    []download
	}{Version: r.version.number, Tag: "v" + r.version.number, Project: project}
	for _, p := range platforms {
		archive := r.archiveOf(p, "ortet")
		sum, err := checksum(archive)
		if err != nil {
			return err
		}
		d := download{p.os, p.arch, p.file("ortet"), r.download + "/" + filepath.Base(archive), sum}
		data.All = append(data.All, d)
		switch p.os {
		case "darwin":
			data.Darwin = append(data.Darwin, d)
		case "linux":
			data.Linux = append(data.Linux, d)
		}
	}
	for name, text := range map[string]string{"ortet.yaml": krewManifest, "ortet.rb": homebrewFormula} {
		parsed, err := template.New(name).Parse(text)
		if err != nil {
			return err
		}
		if err := toFile(filepath.Join(r.dist, name), func(w io.Writer) error { return parsed.Execute(w, data) }); err != nil {
			return err
		}
	}
	return nil
}
