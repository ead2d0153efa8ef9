package k3s

import (
	"bufio"
	"bytes"
	"embed"
	"fmt"
	"strings"
	"text/template"
)

//go:embed files
var files embed.FS

// render fills in an embedded file.
func render(name string, data any) ([]byte, error) {
	t, err := template.ParseFS(files, "files/"+name)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, data); err != nil {
		return nil, fmt.Errorf("fill in %s: %w", name, err)
	}
	return out.Bytes(), nil
}

// componentFlags are a component's flags from its file, where an operator's
// "name=value" words replace those of their names.
func componentFlags(component string, data any, words []string) ([]string, error) {
	text, err := render(component+".flags", data)
	if err != nil {
		return nil, err
	}
	given := map[string]bool{}
	for i, w := range words {
		words[i] = "--" + strings.TrimLeft(w, "-")
		name, _, _ := strings.Cut(words[i], "=")
		given[name] = true
	}
	var flags []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if name, _, _ := strings.Cut(line, "="); strings.HasPrefix(line, "--") && !given[name] {
			flags = append(flags, line)
		}
	}
	return append(flags, words...), nil
}

// documented are k3s's flags by files/flags.txt.
type documented struct {
	kinds                map[string]string // "value", "list" or "switch"
	here                 map[string]bool   // do something in the lab
	aliases, environment map[string]string
}

func documentedFlags(command string) (documented, error) {
	d := documented{map[string]string{}, map[string]bool{}, map[string]string{}, map[string]string{}}
	text, err := files.ReadFile("files/flags.txt")
	if err != nil {
		return d, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		words := strings.Fields(lines.Text())
		switch words[0] {
		case "agent", command:
			for _, name := range words[2:] {
				d.kinds[name] = words[1]
			}
		case "here":
			for _, name := range words[2:] {
				d.here[name] = true
			}
		case "alias":
			d.aliases[words[1]] = words[2]
		case "environment":
			d.environment[words[1]] = words[2]
		}
	}
	return d, nil
}
