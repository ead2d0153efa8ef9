package wire

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const (
	// MaxManifest is how many bytes a manifest has at most as it is kept: compressed.
	MaxManifest = 64 << 10
	// maxManifestText is how many bytes of JSON it has at most: a process that reads it holds a
	// hundred times as many where its lists have no words.
	maxManifestText = 1 << 20
	maxWord         = 256
)

// Manifest says what is in an image: names and versions, no content of files. Every text in it
// is a Word. Lists are sorted, and hold each thing once.
type Manifest struct {
	OS         OperatingSystem  `json:"os,omitzero"`
	Kernels    []string         `json:"kernels,omitempty"`    // versions with modules or a program on the disk
	Kubelet    string           `json:"kubelet,omitempty"`    // version; "" where it is not known
	Containerd string           `json:"containerd,omitempty"` // version; "" where it is not known
	Packages   []Package        `json:"packages,omitempty"`
	Images     []ContainerImage `json:"images,omitempty"`
	Units      []string         `json:"units,omitempty"` // that a link in a folder *.wants or *.requires enables
	Bytes      map[string]int64 `json:"bytes,omitempty"` // of files, by top folder ("/usr")
	NotRead    []string         `json:"notRead,omitempty"`
}

// OperatingSystem is what os-release says.
type OperatingSystem struct {
	ID      string `json:"id,omitempty"`      // "debian"
	Version string `json:"version,omitempty"` // VERSION_ID, "12"
	Name    string `json:"name,omitempty"`    // PRETTY_NAME
}

// Types of a Package.
const (
	Deb = "deb"
	RPM = "rpm"
)

// Package is an installed package.
type Package struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version"` // as its package manager shows it, an epoch and ":" before it
	Arch    string `json:"arch,omitempty"`
	// Source is the source package, of RPM its file; "" where name and version are the package's own.
	Source        string `json:"source,omitempty"`
	SourceVersion string `json:"sourceVersion,omitempty"` // of dpkg; "" where it is the package's own
}

// ContainerImage is an image in containerd's store.
type ContainerImage struct {
	Name   string `json:"name"`
	Digest string `json:"digest,omitempty"`
}

// Word returns a text of a disk as a manifest may hold it: printable ASCII, at most 256 bytes.
func Word(s string) string {
	word := []byte(s[:min(len(s), maxWord)])
	for i, c := range word {
		if c < ' ' || c > '~' {
			word[i] = '?'
		}
	}
	return string(word)
}

// Pack returns the manifest as it is kept, and false where it is longer than MaxManifest.
func (m Manifest) Pack() ([]byte, bool) {
	text, err := json.Marshal(m)
	if err != nil || len(text) > maxManifestText {
		return nil, false
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = z.Write(text)
	}
	if err = errors.Join(err, z.Close()); err != nil || b.Len() > MaxManifest {
		return nil, false
	}
	return b.Bytes(), true
}

// ReadManifest reads a manifest as it is kept. It was written on a disk that is not trusted: what
// is longer than it may be, or has a text that is no Word, is an error. Members that are not
// known are those of a later release, and left out.
func ReadManifest(packed []byte) (m Manifest, err error) {
	if len(packed) > MaxManifest {
		return m, fmt.Errorf("a manifest of %d bytes, more than %d", len(packed), MaxManifest)
	}
	var text []byte
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(z, maxManifestText+1))
	}
	if err != nil {
		return m, fmt.Errorf("a manifest that is cut, or no gzip: %w", err)
	}
	if len(text) > maxManifestText {
		return m, fmt.Errorf("a manifest of more than %d bytes of JSON", maxManifestText)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("a manifest that is none: %w", err)
	}
	return m, m.validate()
}

func (m Manifest) validate() error {
	words := []string{m.OS.ID, m.OS.Version, m.OS.Name, m.Kubelet, m.Containerd}
	for _, list := range [][]string{m.Kernels, m.Units, m.NotRead} {
		words = append(words, list...)
	}
	for _, p := range m.Packages {
		if p.Type != Deb && p.Type != RPM || p.Name == "" || p.Version == "" {
			return errors.New("a manifest with a package without a known type, a name or a version")
		}
		words = append(words, p.Name, p.Version, p.Arch, p.Source, p.SourceVersion)
	}
	for _, i := range m.Images {
		words = append(words, i.Name, i.Digest)
	}
	for folder, n := range m.Bytes {
		if words = append(words, folder); n < 0 {
			return errors.New("a manifest with a folder of negative size")
		}
	}
	for _, w := range words {
		if w != Word(w) {
			return fmt.Errorf("a manifest with a text that is no printable ASCII of at most %d bytes", maxWord)
		}
	}
	return nil
}
