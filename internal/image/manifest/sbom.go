package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/ortet/ortet/internal/wire"
)

// A BOM is what a bill of materials is about.
type BOM struct {
	Manifest wire.Manifest
	Version  string    // the image version's ARM id
	Name     string    // of the document
	Created  time.Time // when the version was made, so that the same version has the same bill
	Ortet    string    // its version
}

// A component is a thing in the image, as both forms have it.
type component struct {
	kind, name, version, purl string
	source, sourceVersion     string
}

// Kinds of a component, as CycloneDX spells them.
const (
	operatingSystem = "operating-system"
	application     = "application"
	container       = "container"
	library         = "library"
)

// id is the same for the same version.
func (b BOM) id() string { return uuid.NewSHA1(uuid.NameSpaceURL, []byte(b.Version)).URN() }

func (b BOM) components() (all []component) {
	m := b.Manifest
	vendor := vendorOf(m.OS.ID)
	if m.OS.ID != "" {
		all = append(all, component{kind: operatingSystem, name: vendor, version: m.OS.Version})
	}
	for _, x := range []struct{ name, version, module string }{
		{"kubelet", m.Kubelet, "k8s.io/kubernetes"}, {"containerd", m.Containerd, "github.com/containerd/containerd"},
	} {
		if x.version != "" && !slices.ContainsFunc(m.Packages, func(p wire.Package) bool { return p.Version == x.version }) {
			all = append(all, component{kind: application, name: x.name, version: x.version,
				purl: purl("golang", x.module, x.version)})
		}
	}
	for _, p := range m.Packages {
		all = append(all, packageOf(p, m.OS, vendor))
	}
	for _, i := range m.Images {
		name, tag := split(i)
		all = append(all, component{kind: container, name: name, version: cmp.Or(tag, i.Digest),
			purl: purl("oci", name[strings.LastIndexByte(name, '/')+1:], i.Digest, "repository_url", name, "tag", tag)})
	}
	return all
}

// vendorOf is how Trivy names a distribution, by its ID in os-release.
func vendorOf(id string) string {
	names := map[string]string{"rhel": "redhat", "ol": "oracle", "almalinux": "alma", "mariner": "cbl-mariner",
		"sles_sap": "sles", "sle-micro": "slem", "sl-micro": "slem"}
	return cmp.Or(names[id], id, "unknown")
}

// namespaceOf is how package URLs name who makes a distribution.
func namespaceOf(vendor string) string {
	switch {
	case vendor == "sles" || vendor == "slem":
		return "suse"
	case strings.HasPrefix(vendor, "opensuse-"):
		return "opensuse"
	}
	return vendor
}

func packageOf(p wire.Package, system wire.OperatingSystem, vendor string) component {
	distro := strings.TrimSuffix(system.ID+"-"+system.Version, "-")
	c := component{kind: library, name: p.Name, version: p.Version,
		source: cmp.Or(p.Source, p.Name), sourceVersion: cmp.Or(p.SourceVersion, p.Version)}
	if p.Type == wire.Deb {
		upstream := p.Source
		if p.SourceVersion != "" {
			upstream += "@" + p.SourceVersion
		}
		c.purl = purl(wire.Deb, vendor+"/"+p.Name, p.Version, "arch", p.Arch, "distro", distro, "upstream", upstream)
		return c
	}
	epoch, version, found := strings.Cut(p.Version, ":")
	if !found {
		epoch, version = "", p.Version
	}
	c.purl = purl(wire.RPM, namespaceOf(vendor)+"/"+p.Name, version, "arch", p.Arch, "distro", distro, "epoch", epoch, "upstream", p.Source)
	// NAME-VERSION-RELEASE.src.rpm
	if parts := strings.Split(strings.TrimSuffix(p.Source, ".src.rpm"), "-"); len(parts) > 2 {
		n := len(parts) - 2
		c.source, c.sourceVersion = strings.Join(parts[:n], "-"), strings.Join(parts[n:], "-")
	}
	return c
}

// purl returns a package URL. Qualifiers are in the order of their names, without those that are
// empty. Source: package-url/purl-spec.
func purl(kind, path, version string, qualifiers ...string) string {
	url, sign := "pkg:"+kind+"/"+escape(path, "/"), "?"
	if version != "" {
		url += "@" + escape(version, ":")
	}
	for q := range slices.Chunk(qualifiers, 2) {
		if q[1] != "" {
			url, sign = url+sign+q[0]+"="+escape(q[1], ":"), "&"
		}
	}
	return url
}

// escape encodes in percent what is neither unreserved nor among others.
func escape(text, others string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~"+others, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

type object = map[string]any

// CycloneDX returns the bill of materials as CycloneDX 1.5, to be written as JSON.
func (b BOM) CycloneDX() any {
	properties := []object{{"name": "ortet.io:version", "value": b.Version}}
	for _, text := range b.Manifest.NotRead {
		properties = append(properties, object{"name": "ortet.io:not-read", "value": text})
	}
	for _, k := range b.Manifest.Kernels {
		properties = append(properties, object{"name": "ortet.io:kernel", "value": k})
	}
	components, installed := []object{}, []string{}
	for n, c := range b.components() {
		id := fmt.Sprintf("component-%d", n+1)
		o := object{"type": c.kind, "bom-ref": id, "name": c.name, "version": c.version}
		if c.kind == library {
			installed = append(installed, id)
		}
		if c.purl != "" {
			o["purl"] = c.purl
		}
		if c.source != "" { // as Trivy reads it
			o["properties"] = []object{{"name": "aquasecurity:trivy:SrcName", "value": c.source},
				{"name": "aquasecurity:trivy:SrcVersion", "value": c.sourceVersion}}
		}
		components = append(components, o)
	}
	bill := object{
		"$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json", "bomFormat": "CycloneDX", "specVersion": "1.5",
		"serialNumber": b.id(), "version": 1, "components": components,
		"metadata": object{
			"timestamp":  b.Created.UTC().Format(time.RFC3339),
			"tools":      object{"components": []object{{"type": application, "name": "ortet", "version": b.Ortet}}},
			"component":  object{"type": "device", "bom-ref": "image", "name": b.Name},
			"properties": properties,
		},
	}
	if b.Manifest.OS.ID != "" { // the first; packages belong to it, as Trivy reads it
		bill["dependencies"] = []object{{"ref": "component-1", "dependsOn": installed}}
	}
	return bill
}

// SPDX returns the bill of materials as SPDX 2.3, to be written as JSON.
func (b BOM) SPDX() any {
	const image = "SPDXRef-Image"
	packages := []object{{"SPDXID": image, "name": b.Name, "downloadLocation": "NOASSERTION", "filesAnalyzed": false,
		"primaryPackagePurpose": "DEVICE"}}
	relations := []object{{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": image}}
	for n, c := range b.components() {
		// Trivy knows the system by its id, and takes what it contains for its packages.
		id := fmt.Sprintf("SPDXRef-Package-%d", n+1)
		if c.kind == operatingSystem {
			id = "SPDXRef-OperatingSystem"
		}
		purpose := strings.ReplaceAll(strings.ToUpper(c.kind), "-", "_")
		o := object{"SPDXID": id, "name": c.name, "versionInfo": c.version, "downloadLocation": "NOASSERTION", "filesAnalyzed": false,
			"primaryPackagePurpose": purpose}
		if c.purl != "" {
			o["externalRefs"] = []object{{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": c.purl}}
		}
		if c.source != "" { // as Trivy reads it
			o["sourceInfo"] = "built package from: " + c.source + " " + c.sourceVersion
		}
		packages = append(packages, o)
		owner := image
		if c.kind == library && b.Manifest.OS.ID != "" {
			owner = "SPDXRef-OperatingSystem"
		}
		relations = append(relations, object{"spdxElementId": owner, "relationshipType": "CONTAINS", "relatedSpdxElement": id})
	}
	d := object{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": b.Name, "documentNamespace": b.id(),
		"creationInfo": object{"created": b.Created.UTC().Format(time.RFC3339), "creators": []string{"Tool: ortet-" + b.Ortet}},
		"packages":     packages, "relationships": relations,
	}
	notes := []string{"image version " + b.Version}
	for _, k := range b.Manifest.Kernels {
		notes = append(notes, "kernel "+k)
	}
	for _, text := range b.Manifest.NotRead {
		notes = append(notes, "not read: "+text)
	}
	d["comment"] = strings.Join(notes, "\n")
	return d
}
