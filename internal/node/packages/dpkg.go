package packages

import (
	"bufio"
	"errors"
	"io"
	"strings"

	"github.com/ortet/ortet/internal/wire"
)

// maxField is how many bytes of a line count; the fields that are read are shorter.
const maxField = 4 << 10

// dpkg reads paragraphs of "Field: value", as deb822(5) and dpkg-query(1) describe them. A package
// of which only the configuration is left is none.
func (l *list) dpkg(r io.Reader, from string) {
	in := bufio.NewReaderSize(r, maxField)
	fields := map[string]string{}
	broken := 0
	end := func() {
		switch p, ok := debOf(fields); {
		case ok:
			l.add(p)
		case len(fields) > 0 && isThere(fields["status"]):
			broken++
		}
		clear(fields)
	}
	for {
		line, long, err := in.ReadLine()
		text := string(line)
		for rest := long; rest && err == nil; {
			_, rest, err = in.ReadLine()
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				l.note("incomplete: reading %s: %v", from, err)
			}
			break
		}
		if strings.TrimSpace(text) == "" {
			end()
			continue
		}
		if name, value, ok := strings.Cut(text, ":"); ok && text[0] != ' ' && text[0] != '\t' {
			switch name = strings.ToLower(name); name {
			case "package", "version", "architecture", "source", "status":
				fields[name] = strings.TrimSpace(value)
			}
		}
	}
	_, complete := debOf(fields)
	cut := len(fields) > 0 && !complete && isThere(fields["status"])
	if end(); cut {
		broken--
		l.note("incomplete: %s ends in the middle of a package", from)
	}
	if broken > 0 {
		l.note("incomplete: %d entries of %s have no name or no version", broken, from)
	}
}

// isThere says whether a package with this Status has files. Without a Status it has: that is of
// an image without dpkg.
func isThere(status string) bool {
	words := strings.Fields(status)
	if len(words) == 0 {
		return true
	}
	state := words[len(words)-1]
	return state != "not-installed" && state != "config-files"
}

func debOf(fields map[string]string) (wire.Package, bool) {
	p := wire.Package{Type: wire.Deb, Name: fields["package"], Version: fields["version"], Arch: fields["architecture"]}
	if p.Name == "" || p.Version == "" || !isThere(fields["status"]) {
		return p, false
	}
	source, version, _ := strings.Cut(fields["source"], " ")
	if version = strings.Trim(version, "() "); version != p.Version {
		p.SourceVersion = version
	}
	if source != p.Name || p.SourceVersion != "" {
		p.Source = source
	}
	return p, true
}
