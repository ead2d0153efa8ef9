package k3s

import (
	"bytes"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/spf13/pflag"
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

// writeRendered fills in an embedded file and writes it to path.
func writeRendered(path, name string, data any) error {
	text, err := render(name, data)
	if err != nil {
		return err
	}
	return writeFile(path, text)
}

// writeFile writes a file for root alone, and makes its folder.
func writeFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}

// componentFlags are a component's flags from its file, and after them an operator's
// "name=value" words: a flag's last value counts.
func componentFlags(component string, data any, words []string) (flags []string, err error) {
	text, err := render(component+".flags", data)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "--") {
			flags = append(flags, strings.TrimSpace(line))
		}
	}
	for _, w := range words {
		flags = append(flags, "--"+strings.TrimLeft(w, "-"))
	}
	return flags, err
}

// documentedFlags are k3s's flags by files/flags.txt, and those that do something in
// the lab.
func documentedFlags(command string) (flags *pflag.FlagSet, effective []string, err error) {
	flags = pflag.NewFlagSet(command, pflag.ContinueOnError)
	text, err := files.ReadFile("files/flags.txt")
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		switch words[0] {
		case "here":
			effective = append(effective, words[1:]...)
		case "agent", command:
			for _, name := range words[2:] {
				switch words[1] {
				case "value":
					flags.String(name, "", "")
				case "list":
					flags.StringArray(name, nil, "")
				case "switch":
					flags.Bool(name, false, "")
				}
			}
		}
	}
	return flags, effective, err
}
