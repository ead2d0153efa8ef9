package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// describeProgram writes the bill of materials of one binary, of any platform, to out.
func describeProgram(out string, paths []string) error {
	if len(paths) != 1 {
		return fmt.Errorf("describe a binary: %d named, want one", len(paths))
	}
	content, err := os.ReadFile(paths[0])
	if err != nil {
		return fmt.Errorf("read binary: %w", err)
	}
	info, err := buildinfo.ReadFile(paths[0])
	if err != nil {
		return fmt.Errorf("read the modules of %s: %w; build it with the go command", paths[0], err)
	}
	sum := sha256.Sum256(content)
	b := binary{name: filepath.Base(paths[0]), sha256: hex.EncodeToString(sum[:]), info: info, settings: map[string]string{}}
	for _, s := range info.Settings {
		b.settings[s.Key] = s.Value
	}
	return writeJSON(out, billOfProgram(b))
}

func billOfProgram(b binary) spdxDocument {
	const root = "SPDXRef-DOCUMENT"
	id := "SPDXRef-binary-" + notInID.ReplaceAllString(b.name, "-")
	d := spdxDocument{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: root, Name: b.name, Namespace: documents + b.sha256,
		Creation: spdxCreation{Created: b.committed(), Creators: []string{"Tool: ortet-image"}},
		Packages: []spdxPackage{{
			ID: id, Name: b.name, Version: b.info.Main.Version, Location: noAssertion,
			Checksums: []spdxChecksum{{"SHA256", b.sha256}},
			Comment:   "built for " + b.settings["GOOS"] + "/" + b.settings["GOARCH"],
		}},
		Relationships: []spdxRelationship{{root, "DESCRIBES", id}},
	}
	var modules []spdxPackage
	for _, m := range append([]*debug.Module{{Path: "stdlib", Version: b.info.GoVersion}}, b.info.Deps...) {
		if m.Replace != nil {
			m = m.Replace
		}
		p := modulePackage(m)
		modules = append(modules, p)
		d.Relationships = append(d.Relationships, spdxRelationship{id, "DEPENDS_ON", p.ID})
	}
	slices.SortFunc(modules, func(a, b spdxPackage) int { return strings.Compare(a.ID, b.ID) })
	d.Packages = append(d.Packages, modules...)
	return d
}
