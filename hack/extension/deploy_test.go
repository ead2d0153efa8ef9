package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// commandsIn finds, in what is to be deployed, the commands that nodes run.
func commandsIn(node any, found *[]string) {
	switch n := node.(type) {
	case map[string]any:
		for key, value := range n {
			if text, ok := value.(string); ok && (key == "commandToExecute" || key == "script") {
				*found = append(*found, text)
			}
			commandsIn(value, found)
		}
	case []any:
		for _, value := range n {
			commandsIn(value, found)
		}
	}
}

// deployed reads everything below deploy/ that is data.
func deployed(t *testing.T) map[string][]any {
	t.Helper()
	all := map[string][]any{}
	for _, pattern := range []string{"arm/*.json", "capz/*.yaml", "extension/*/*.json"} {
		paths, err := filepath.Glob("../../deploy/" + pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("nothing in %s: %v", pattern, err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(path, ".json") && !json.Valid(text) {
				t.Errorf("%s is not JSON", path)
			}
			for d := yaml.NewDecoder(strings.NewReader(string(text))); ; {
				var doc any
				if err := d.Decode(&doc); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatalf("%s: %v", path, err)
				}
				all[path] = append(all[path], doc)
			}
		}
	}
	return all
}

// CustomScript and Run Command show the last 4 KiB of what a command prints. The
// commands print what matters within it, and end with the program's own code.
func TestCommandsShowTheVerdictWithinFourKiB(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "ortet-node")
	t.Setenv("PATH", dir+":"+os.Getenv("PATH")) // a package has it in another folder than an administrator
	const script = "#!/bin/sh\nprintf 'outcome  Failed\\nreason   TokenExpired\\n'\ni=0\nwhile [ $i -lt 500 ]; do echo \"  a line of evidence, of which there are many\"; i=$((i+1)); done\nexit 7\n"
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	count := 0
	for path, docs := range deployed(t) {
		var commands []string
		commandsIn(docs, &commands)
		for _, command := range commands {
			count++
			if !strings.HasPrefix(command, "ortet-node wait ") {
				t.Errorf("%s runs %q", path, command)
				continue
			}
			command = strings.ReplaceAll(command, "/run/ortet-wait.txt", filepath.Join(dir, "said"))
			out, err := exec.Command("/bin/sh", "-c", command).Output()
			if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 7 {
				t.Errorf("%s: %v, want exit code 7", path, err)
			}
			if len(out) > 4096 || !strings.HasPrefix(string(out), "outcome  Failed\nreason   TokenExpired\n") || len(out) < 2048 {
				t.Errorf("%s: of 4 KiB at most, with the verdict first, it prints %d bytes: %.200s", path, len(out), out)
			}
		}
	}
	if count < 4 {
		t.Errorf("%d commands in deploy/, want those of CustomScript, Run Command and both of Cluster API", count)
	}
}

// CAPZ's settings are texts, and it needs these three of each extension.
func TestClusterAPIExtensions(t *testing.T) {
	count := 0
	var look func(path string, node any)
	look = func(path string, node any) {
		switch n := node.(type) {
		case map[string]any:
			list, _ := n["vmExtensions"].([]any)
			for _, item := range list {
				count++
				e, _ := item.(map[string]any)
				for _, field := range []string{"name", "publisher", "version"} {
					if text, ok := e[field].(string); !ok || text == "" {
						t.Errorf("%s: the %s of %v", path, field, e)
					}
				}
				settings, _ := e["settings"].(map[string]any)
				for name, value := range settings {
					if _, ok := value.(string); !ok {
						t.Errorf("%s: the setting %s is no text: %v", path, name, value)
					}
				}
			}
			for _, value := range n {
				look(path, value)
			}
		case []any:
			for _, value := range n {
				look(path, value)
			}
		}
	}
	for path, docs := range deployed(t) {
		if strings.Contains(path, "capz") {
			look(path, docs)
		}
	}
	if count != 3 {
		t.Errorf("%d extensions, want 3", count)
	}
}

// The unit keeps nothing waiting.
func TestUnitHoldsNothingUp(t *testing.T) {
	text, err := os.ReadFile("../../deploy/systemd/ortet-wait.service")
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
			set[name] += value
		}
	}
	for name, want := range map[string]string{"Type": "exec", "DefaultDependencies": "no", "Before": "shutdown.target", "After": "local-fs.target systemd-journald.socket"} {
		if set[name] != want {
			t.Errorf("%s=%s, want %s", name, set[name], want)
		}
	}
	if tool, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Log("NOT TESTED with systemd-analyze verify: it is not installed")
	} else if out, err := exec.Command(tool, "verify", "--man=no", "../../deploy/systemd/ortet-wait.service").CombinedOutput(); err != nil && !strings.Contains(string(out), "/usr/local/bin/ortet-node is not executable") {
		t.Errorf("systemd-analyze verify: %v: %s", err, out)
	}
}
