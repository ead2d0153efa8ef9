package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Namespaces of the documents; nothing is served there.
const (
	documents = "https://ortet.io/sbom/"
	buildType = "https://ortet.io/make-image/v1"
)

// describe writes the bill of materials and the provenance statement of an archive
// beside it, and prints the image's digest. Both come from what the Go linker wrote into
// the binaries, so they are right for binaries that were built elsewhere too. Neither is
// signed: whoever publishes the image signs them.
func describe(archive string, tag name.Tag, digest v1.Hash, images []image) error {
	if err := writeJSON(archive+".spdx.json", bill(tag, digest, images)); err != nil {
		return err
	}
	if err := writeJSON(archive+".intoto.json", provenance(tag, digest, images)); err != nil {
		return err
	}
	fmt.Printf("%s@%s\n", tag.Repository.Name(), digest)
	return nil
}

// binary is what is known of one file of the image.
type binary struct {
	name, sha256 string
	info         *debug.BuildInfo
	settings     map[string]string
}

func inspect(path string, content []byte) (binary, error) {
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		return binary{}, fmt.Errorf("read the modules of %s: %w; build it with the go command", path, err)
	}
	sum := sha256.Sum256(content)
	b := binary{name: filepath.Base(path), sha256: hex.EncodeToString(sum[:]), info: info, settings: map[string]string{}}
	for _, s := range info.Settings {
		b.settings[s.Key] = s.Value
	}
	return b, nil
}

// committed is the time of the commit that a binary was built from, which is the
// same for every build of it; 1970 where that is not recorded.
func (b binary) committed() string {
	if at := b.settings["vcs.time"]; at != "" {
		return at
	}
	return time.Unix(0, 0).UTC().Format(time.RFC3339)
}

// The parts of SPDX 2.3 (https://spdx.github.io/spdx-spec/v2.3/) that are used.
type (
	spdxDocument struct {
		Version       string             `json:"spdxVersion"`
		License       string             `json:"dataLicense"`
		ID            string             `json:"SPDXID"`
		Name          string             `json:"name"`
		Namespace     string             `json:"documentNamespace"`
		Creation      spdxCreation       `json:"creationInfo"`
		Packages      []spdxPackage      `json:"packages"`
		Relationships []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		ID        string          `json:"SPDXID"`
		Name      string          `json:"name"`
		Version   string          `json:"versionInfo"`
		Location  string          `json:"downloadLocation"`
		Analyzed  bool            `json:"filesAnalyzed"`
		Checksums []spdxChecksum  `json:"checksums,omitempty"`
		Comment   string          `json:"comment,omitempty"`
		Refs      []spdxReference `json:"externalRefs,omitempty"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxReference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelationship struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

const noAssertion = "NOASSERTION"

// bill lists the image, below an index the image of each architecture, its binaries, and
// of each binary the Go modules and the Go release whose standard library it holds.
func bill(tag name.Tag, digest v1.Hash, images []image) spdxDocument {
	const root, whole = "SPDXRef-DOCUMENT", "SPDXRef-image"
	d := spdxDocument{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: root, Name: tag.String(), Namespace: documents + digest.Hex,
		Creation:      spdxCreation{Created: images[0].built[0].committed(), Creators: []string{"Tool: ortet-image"}},
		Relationships: []spdxRelationship{{root, "DESCRIBES", whole}},
	}
	addImage := func(id string, digest v1.Hash) {
		d.Packages = append(d.Packages, spdxPackage{ID: id, Name: tag.Repository.Name(), Version: tag.TagStr(), Location: noAssertion, Comment: "manifest digest " + digest.String()})
	}
	addImage(whole, digest)
	modules := map[string]spdxPackage{}
	for _, i := range images {
		parent := whole
		if i.digest != digest {
			parent += "-" + i.arch
			addImage(parent, i.digest)
			d.Relationships = append(d.Relationships, spdxRelationship{whole, "CONTAINS", parent})
		}
		for _, b := range i.built {
			id := "SPDXRef-binary-" + notInID.ReplaceAllString(b.name, "-")
			d.Packages = append(d.Packages, spdxPackage{
				ID: id, Name: b.name, Version: b.info.Main.Version, Location: noAssertion,
				Checksums: []spdxChecksum{{"SHA256", b.sha256}},
			})
			d.Relationships = append(d.Relationships, spdxRelationship{parent, "CONTAINS", id})
			parts := append([]*debug.Module{{Path: "stdlib", Version: b.info.GoVersion}}, b.info.Deps...)
			for _, m := range parts {
				if m.Replace != nil {
					m = m.Replace
				}
				p := modulePackage(m)
				modules[p.ID] = p
				d.Relationships = append(d.Relationships, spdxRelationship{id, "DEPENDS_ON", p.ID})
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(modules)) {
		d.Packages = append(d.Packages, modules[id])
	}
	return d
}

// An SPDX identifier has letters, digits, dots and hyphens alone.
var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func modulePackage(m *debug.Module) spdxPackage {
	p := spdxPackage{
		ID: "SPDXRef-" + notInID.ReplaceAllString("module-"+m.Path+"-"+m.Version, "-"), Name: m.Path, Version: m.Version, Location: noAssertion,
		Refs: []spdxReference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + m.Path + "@" + m.Version}},
	}
	if m.Sum != "" {
		p.Comment = "go.sum " + m.Sum
	}
	return p
}

// The parts of in-toto's Statement v1 with SLSA's provenance v1
// (https://slsa.dev/spec/v1.0/provenance) that are used.
type (
	statement struct {
		Type          string     `json:"_type"`
		Subject       []resource `json:"subject"`
		PredicateType string     `json:"predicateType"`
		Predicate     predicate  `json:"predicate"`
	}
	resource struct {
		Name   string            `json:"name,omitempty"`
		URI    string            `json:"uri,omitempty"`
		Digest map[string]string `json:"digest,omitempty"`
	}
	predicate struct {
		Definition buildDefinition `json:"buildDefinition"`
		Run        runDetails      `json:"runDetails"`
	}
	buildDefinition struct {
		BuildType    string                       `json:"buildType"`
		External     map[string]string            `json:"externalParameters"`
		Internal     map[string]map[string]string `json:"internalParameters"`
		Dependencies []resource                   `json:"resolvedDependencies"`
	}
	runDetails struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
		Byproducts []resource `json:"byproducts"`
	}
)

// provenance states from which commit and with which Go and flags the binaries
// in the image were built.
func provenance(tag name.Tag, digest v1.Hash, images []image) statement {
	subject := func(name string, digest v1.Hash) resource {
		return resource{Name: name, Digest: map[string]string{digest.Algorithm: digest.Hex}}
	}
	s := statement{
		Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1",
		Subject: []resource{subject(tag.Repository.Name(), digest)},
	}
	d := &s.Predicate.Definition
	d.BuildType = buildType
	d.Internal = map[string]map[string]string{}
	s.Predicate.Run.Builder.ID = buildType
	var archs []string
	commits := map[string]bool{}
	for _, i := range images {
		archs = append(archs, i.arch)
		if i.digest != digest {
			s.Subject = append(s.Subject, subject(tag.Repository.Name()+" linux/"+i.arch, i.digest))
		}
		for _, b := range i.built {
			settings := maps.Clone(b.settings)
			settings["go"] = b.info.GoVersion
			d.Internal[b.name] = settings
			s.Predicate.Run.Byproducts = append(s.Predicate.Run.Byproducts, resource{Name: b.name, Digest: map[string]string{"sha256": b.sha256}})
			if commit := b.settings["vcs.revision"]; commit != "" && !commits[commit] {
				commits[commit] = true
				d.Dependencies = append(d.Dependencies, resource{URI: "git+https://" + b.info.Main.Path, Digest: map[string]string{"gitCommit": commit}})
			}
		}
	}
	d.External = map[string]string{"image": tag.String(), "architecture": strings.Join(archs, ",")}
	return s
}

func writeJSON(path string, document any) error {
	text, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
