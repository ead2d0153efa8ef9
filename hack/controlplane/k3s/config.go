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
	flags := flagsOf(command)
	merged := Config{}
	for name, key := range environment {
		if v := getenv(name); v != "" && flags[key] != 0 {
			merged[key] = []string{v}
		}
	}
	line, err := parseArgs(flags, args)
	if err != nil {
		return nil, err
	}
	file, required := "/etc/rancher/k3s/config.yaml", false
	for _, from := range []Config{merged, line} {
		if v := from.one("config"); v != "" {
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
		if !slices.Contains(strings.Fields(honoured), key) {
			logrus.Infof("Flag --%s is accepted and ignored: the lab's k3s does not have what it sets", key)
		}
	}
	return merged, nil
}

func (c Config) addFile(command string, flags map[string]kind, text []byte) error {
	var content map[string]any
	if err := yaml.Unmarshal(text, &content); err != nil {
		return err
	}
	for _, written := range slices.Sorted(maps.Keys(content)) {
		key, appends := strings.CutSuffix(written, "+")
		if long := aliases[key]; long != "" {
			key = long
		}
		if flags[key] == 0 {
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
		if appends && flags[key] == list {
			values = append(slices.Clone(c[key]), values...)
		}
		c[key] = values
	}
	return nil
}

func parseArgs(flags map[string]kind, args []string) (Config, error) {
	parsed := Config{}
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		name, v, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if long := aliases[name]; long != "" {
			name = long
		}
		k := flags[name]
		switch {
		case !strings.HasPrefix(arg, "-"):
			return nil, fmt.Errorf("unexpected argument %q", arg)
		case k == 0:
			return nil, fmt.Errorf("flag provided but not defined: -%s", name)
		case k == toggle && !hasValue:
			v = "true"
		case !hasValue && len(args) == 0:
			return nil, fmt.Errorf("flag needs an argument: -%s", name)
		case !hasValue:
			v, args = args[0], args[1:]
		}
		if k == list {
			parsed[name] = append(parsed[name], v)
		} else {
			parsed[name] = []string{v}
		}
	}
	return parsed, nil
}

// one returns a flag's last value, or "".
func (c Config) one(key string) string {
	if v := c[key]; len(v) > 0 {
		return v[len(v)-1]
	}
	return ""
}

func (c Config) or(key, otherwise string) string {
	if v := c.one(key); v != "" {
		return v
	}
	return otherwise
}

func (c Config) on(key string) bool { return c.one(key) == "true" }

// split returns a list whose values may themselves be separated by commas.
func (c Config) split(key string) []string {
	return strings.FieldsFunc(strings.Join(c[key], ","), func(r rune) bool { return r == ',' || r == ' ' })
}

// dir is a path beneath the data folder.
func (c Config) dir(elements ...string) string {
	return filepath.Join(append([]string{c.or("data-dir", "/var/lib/rancher/k3s")}, elements...)...)
}

// override has an operator's "name=value" words replace the flags of those names.
func override(flags, words []string) []string {
	given := map[string]bool{}
	for _, w := range words {
		name, _, _ := strings.Cut(strings.TrimLeft(w, "-"), "=")
		given[name] = true
	}
	flags = slices.DeleteFunc(slices.Clone(flags), func(f string) bool {
		name, _, _ := strings.Cut(strings.TrimLeft(f, "-"), "=")
		return given[name]
	})
	for _, w := range words {
		flags = append(flags, "--"+strings.TrimLeft(w, "-"))
	}
	return flags
}
