package k3s

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// Config holds the values of flags by name; a switch has "true" or "false".
type Config map[string][]string

// LoadConfig merges, each over the one before: config.yaml, the files of
// config.yaml.d in the order of their names, the command line. A list replaces what
// is there; "key+" in a file appends. Unknown flags are refused, but those in a
// server's files, which k3s skips with a warning (pkg/configfilearg).
func LoadConfig(command string, args []string) (Config, error) {
	flags, effective, err := documentedFlags(command)
	if err != nil {
		return nil, err
	}
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	file := "/etc/rancher/k3s/config.yaml"
	if flags.Changed("config") {
		file = flags.Lookup("config").Value.String()
	}
	dropIns, err := filepath.Glob(file + ".d/*.y*ml")
	if err != nil {
		return nil, err
	}
	merged := Config{}
	for _, f := range append([]string{file}, dropIns...) {
		text, err := os.ReadFile(f)
		if errors.Is(err, fs.ErrNotExist) && !flags.Changed("config") {
			continue
		}
		if err == nil {
			err = merged.addFile(command, flags, text)
		}
		if err != nil {
			return nil, fmt.Errorf("failed to parse config file %s: %w", f, err)
		}
	}
	flags.Visit(func(f *pflag.Flag) {
		if list, ok := f.Value.(pflag.SliceValue); ok {
			merged[f.Name] = list.GetSlice()
		} else {
			merged[f.Name] = []string{f.Value.String()}
		}
	})
	for key := range merged {
		if !slices.Contains(effective, key) {
			logrus.Infof("Flag --%s is accepted and ignored: the lab's k3s does not have what it sets", key)
		}
	}
	return merged, nil
}

func (c Config) addFile(command string, flags *pflag.FlagSet, text []byte) error {
	var content map[string]any
	if err := yaml.Unmarshal(text, &content); err != nil {
		return err
	}
	for _, written := range slices.Sorted(maps.Keys(content)) {
		key, appends := strings.CutSuffix(written, "+")
		if flags.Lookup(key) == nil {
			if command == "server" {
				logrus.Warnf("Unknown flag --%s found in config.yaml, skipping", key)
				continue
			}
			return fmt.Errorf("flag provided but not defined: -%s", key)
		}
		items, ok := content[written].([]any)
		if !ok && content[written] != nil {
			items = []any{content[written]}
		}
		if !appends {
			c[key] = nil
		}
		for _, item := range items {
			c[key] = append(c[key], fmt.Sprint(item))
		}
	}
	return nil
}

// One returns a flag's last value, or "".
func (c Config) One(key string) string { return c.Or(key, "") }

// Or returns a flag's last value, or another where it has none.
func (c Config) Or(key, otherwise string) string {
	if v := c[key]; len(v) > 0 && v[len(v)-1] != "" {
		return v[len(v)-1]
	}
	return otherwise
}

// List returns a list's values, separated by commas.
func (c Config) List(key string) string { return strings.Join(c[key], ",") }

// Dir is a path beneath the data folder.
func (c Config) Dir(elements ...string) string {
	return filepath.Join(append([]string{c.Or("data-dir", "/var/lib/rancher/k3s")}, elements...)...)
}
