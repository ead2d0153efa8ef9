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
	"sigs.k8s.io/yaml"
)

// Config holds the values of flags by name; a switch has "true" or "false".
type Config map[string][]string

// LoadConfig merges, each over the one before: the environment, config.yaml, the
// files of config.yaml.d in the order of their names, the command line. A list
// replaces what is there; "key+" in a file appends. Unknown flags are refused, but
// those in a server's files, which k3s skips with a warning (pkg/configfilearg).
func LoadConfig(command string, args []string, getenv func(string) string) (Config, error) {
	flags, err := documentedFlags(command)
	if err != nil {
		return nil, err
	}
	merged := Config{}
	for name, key := range flags.environment {
		if v := getenv(name); v != "" && flags.kinds[key] != "" {
			merged[key] = []string{v}
		}
	}
	line, err := parseArgs(flags, args)
	if err != nil {
		return nil, err
	}
	file, required := "/etc/rancher/k3s/config.yaml", false
	for _, from := range []Config{merged, line} {
		if v := from.One("config"); v != "" {
			file, required = v, true
		}
	}
	files := []string{file}
	for _, pattern := range []string{"*.yaml", "*.yml"} {
		dropins, err := filepath.Glob(filepath.Join(file+".d", pattern))
		if err != nil {
			return nil, err
		}
		files = append(files, dropins...)
	}
	slices.Sort(files[1:])
	for i, f := range files {
		text, err := os.ReadFile(f)
		if errors.Is(err, fs.ErrNotExist) && i == 0 && !required {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := merged.addFile(command, flags, text); err != nil {
			return nil, fmt.Errorf("failed to parse config file %s: %w", f, err)
		}
	}
	maps.Copy(merged, line)
	for key := range merged {
		if !flags.here[key] {
			logrus.Infof("Flag --%s is accepted and ignored: the lab's k3s does not have what it sets", key)
		}
	}
	return merged, nil
}

func (c Config) addFile(command string, flags documented, text []byte) error {
	var content map[string]any
	if err := yaml.Unmarshal(text, &content); err != nil {
		return err
	}
	for _, written := range slices.Sorted(maps.Keys(content)) {
		key, appends := strings.CutSuffix(written, "+")
		if long := flags.aliases[key]; long != "" {
			key = long
		}
		if flags.kinds[key] == "" {
			if command == "server" {
				logrus.Warnf("Unknown flag --%s found in config.yaml, skipping", key)
				continue
			}
			return fmt.Errorf("flag provided but not defined: -%s", key)
		}
		values := []string{}
		if items, ok := content[written].([]any); ok {
			for _, item := range items {
				values = append(values, fmt.Sprint(item))
			}
		} else if content[written] != nil {
			values = []string{fmt.Sprint(content[written])}
		}
		if appends && flags.kinds[key] == "list" {
			values = append(slices.Clone(c[key]), values...)
		}
		c[key] = values
	}
	return nil
}

func parseArgs(flags documented, args []string) (Config, error) {
	parsed := Config{}
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		name, v, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if long := flags.aliases[name]; long != "" {
			name = long
		}
		k := flags.kinds[name]
		switch {
		case !strings.HasPrefix(arg, "-"):
			return nil, fmt.Errorf("unexpected argument %q", arg)
		case k == "":
			return nil, fmt.Errorf("flag provided but not defined: -%s", name)
		case k == "switch" && !hasValue:
			v = "true"
		case !hasValue && len(args) == 0:
			return nil, fmt.Errorf("flag needs an argument: -%s", name)
		case !hasValue:
			v, args = args[0], args[1:]
		}
		if k == "list" {
			parsed[name] = append(parsed[name], v)
		} else {
			parsed[name] = []string{v}
		}
	}
	return parsed, nil
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

// On says whether a switch is on.
func (c Config) On(key string) bool { return c.One(key) == "true" }

// List returns a list's values, separated by commas.
func (c Config) List(key string) string { return strings.Join(c[key], ",") }

func (c Config) split(key string) []string {
	return strings.FieldsFunc(c.List(key), func(r rune) bool { return r == ',' || r == ' ' })
}

// Dir is a path beneath the data folder.
func (c Config) Dir(elements ...string) string {
	return filepath.Join(append([]string{c.Or("data-dir", "/var/lib/rancher/k3s")}, elements...)...)
}
