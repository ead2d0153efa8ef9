package extension

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

const (
	environmentFile = "HandlerEnvironment.json"
	manifestFile    = "HandlerManifest.json"
	maxFile         = 1 << 20 // bytes of a file that the agent writes
)

// Environment is where the agent wants what, from HandlerEnvironment.json.
type Environment struct {
	Name      string // the handler's
	Log       string // folders
	Config    string
	Status    string
	Heartbeat string // a file; "" for none
}

// FindFolder finds the handler's folder from where its program lies: the folder
// itself, or the one that holds it.
func FindFolder(program string) (string, error) {
	if target, err := filepath.EvalSymlinks(program); err == nil {
		program = target
	}
	dir := filepath.Dir(program)
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if _, err := os.Stat(filepath.Join(d, environmentFile)); err == nil {
			return d, nil
		}
	}
	return "", fmt.Errorf("no %s in %s nor above it: the Azure agent writes it before it runs a handler; name its folder with --dir", environmentFile, dir)
}

// readEnvironment reads the environment of the handler in dir.
func readEnvironment(dir string) (Environment, error) {
	path := filepath.Join(dir, environmentFile)
	text, err := readBounded(path)
	if err != nil {
		return Environment{}, err
	}
	e, err := parseEnvironment(text)
	if err != nil {
		return Environment{}, fmt.Errorf("%s: %w", path, err)
	}
	return e, nil
}

// parseEnvironment reads HandlerEnvironment.json. What we do not know in it is the
// agent's business.
func parseEnvironment(text []byte) (Environment, error) {
	var all []struct {
		Name    string `json:"name"`
		Handler struct {
			Log       string `json:"logFolder"`
			Config    string `json:"configFolder"`
			Status    string `json:"statusFolder"`
			Heartbeat string `json:"heartbeatFile"`
		} `json:"handlerEnvironment"`
	}
	if err := json.Unmarshal(withoutMark(text), &all); err != nil {
		return Environment{}, fmt.Errorf("reading JSON: %w", err)
	}
	if len(all) == 0 {
		return Environment{}, errors.New("an empty list")
	}
	h := all[0].Handler
	e := Environment{Name: all[0].Name, Log: h.Log, Config: h.Config, Status: h.Status, Heartbeat: h.Heartbeat}
	for name, path := range map[string]string{"logFolder": e.Log, "configFolder": e.Config, "statusFolder": e.Status} {
		if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
			return Environment{}, fmt.Errorf("%s is %.200q, not an absolute path", name, path)
		}
	}
	if e.Heartbeat != "" && !filepath.IsAbs(e.Heartbeat) {
		return Environment{}, fmt.Errorf("heartbeatFile is %.200q, not an absolute path", e.Heartbeat)
	}
	return e, nil
}

// reportsHeartbeat says whether the manifest beside us promises a heartbeat. One
// that cannot be read promises nothing.
func reportsHeartbeat(dir string) bool {
	text, err := readBounded(filepath.Join(dir, manifestFile))
	if err != nil {
		return false
	}
	return promisesHeartbeat(text)
}

func promisesHeartbeat(manifest []byte) bool {
	var all []struct {
		Manifest struct {
			Heartbeat bool `json:"reportHeartbeat"`
		} `json:"handlerManifest"`
	}
	return json.Unmarshal(withoutMark(manifest), &all) == nil && len(all) > 0 && all[0].Manifest.Heartbeat
}

// readBounded reads a file of the agent's or our own.
func readBounded(path string) ([]byte, error) {
	// A FIFO would hold whoever opens it.
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return text, err
}

// withoutMark takes the byte order mark away with which files may begin on
// Windows.
func withoutMark(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")) }
