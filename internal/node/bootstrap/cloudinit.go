package bootstrap

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/ortet/ortet/internal/boots/verdict"
)

// stageOrder is the order in which cloud-init runs its stages.
// Source: canonical/cloud-init cloudinit/cmd/main.py, status_wrapper.
var stageOrder = [...]string{"init-local", "init", "modules-init", "modules-config", "modules-final"}

// Bounds of what is kept of cloud-init's files.
const (
	maxErrors    = 64
	maxErrorText = 4 << 10
	// epochBegins separates the two layouts: until 24.1 cloud-init wrote seconds since
	// 1970, since then seconds since the kernel's start. No node is up for three years
	// before its boot is over, and none has a clock before 1973.
	epochBegins = 1e8
)

type statusFile struct {
	V1 map[string]json.RawMessage `json:"v1"`
}

type statusStage struct {
	Errors      json.RawMessage `json:"errors"`
	Recoverable json.RawMessage `json:"recoverable_errors"`
	Start       json.RawMessage `json:"start"`
	Finished    json.RawMessage `json:"finished"`
	End         json.RawMessage `json:"end"`
}

// parseStatus reads a status.json of any version since 20. booted is the
// kernel's start by the node's clock; it matters to times since 1970 only, and
// uptime bounds them, since the clock may have been set meanwhile. What has
// another shape than expected is left out.
func parseStatus(text []byte, booted time.Time, uptime time.Duration) (verdict.CloudInit, error) {
	var c verdict.CloudInit
	var file statusFile
	if err := json.Unmarshal(text, &file); err != nil {
		return c, fmt.Errorf("not the JSON of a status: %w", err)
	}
	if file.V1 == nil {
		return c, errors.New("a status without v1")
	}
	c.Datasource = textOf(file.V1["datasource"])
	for _, name := range stageOrder {
		var s statusStage
		if json.Unmarshal(file.V1[name], &s) != nil {
			continue
		}
		stage := verdict.Stage{Name: name, Errors: textsOf(s.Errors), Recoverable: levelsOf(s.Recoverable)}
		begin, ok := sinceBoot(s.Start, booted, uptime)
		if !ok && len(stage.Errors) == 0 && len(stage.Recoverable) == 0 {
			continue // not begun
		}
		stage.Begin = begin
		stage.End, ok = sinceBoot(s.Finished, booted, uptime)
		if !ok {
			stage.End, ok = sinceBoot(s.End, booted, uptime)
		}
		if ok {
			stage.End = max(stage.End, stage.Begin, 1) // 0 means that it runs
		}
		c.Stages = append(c.Stages, stage)
	}
	return c, nil
}

// parseResult reads a result.json.
func parseResult(text []byte) (datasource string, errs []string, err error) {
	var file statusFile
	if err := json.Unmarshal(text, &file); err != nil {
		return "", nil, fmt.Errorf("not the JSON of a result: %w", err)
	}
	if file.V1 == nil {
		return "", nil, errors.New("a result without v1")
	}
	return textOf(file.V1["datasource"]), textsOf(file.V1["errors"]), nil
}

// sinceBoot is a time of either layout in milliseconds after the kernel's start.
func sinceBoot(raw json.RawMessage, booted time.Time, uptime time.Duration) (int64, bool) {
	var seconds *float64
	if json.Unmarshal(raw, &seconds) != nil || seconds == nil || math.IsNaN(*seconds) || *seconds < 0 || *seconds > 1e11 {
		return 0, false
	}
	if *seconds >= epochBegins {
		*seconds -= float64(booted.UnixMilli()) / 1000
	}
	ms := int64(math.Round(*seconds * 1000))
	return min(max(ms, 0), max(uptime.Milliseconds(), 0)), true
}

func textOf(raw json.RawMessage) string {
	var s *string
	if json.Unmarshal(raw, &s) != nil || s == nil {
		return ""
	}
	return clip(*s)
}

// textsOf reads a list of texts; what is no text in it is kept as its JSON,
// since it is an error all the same.
func textsOf(raw json.RawMessage) []string {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil
	}
	var texts []string
	for _, item := range list[:min(len(list), maxErrors)] {
		s := textOf(item)
		if s == "" {
			s = clip(string(item))
		}
		texts = append(texts, s)
	}
	return texts
}

func levelsOf(raw json.RawMessage) map[string][]string {
	var levels map[string]json.RawMessage
	if json.Unmarshal(raw, &levels) != nil || len(levels) > maxErrors {
		return nil
	}
	var found map[string][]string
	for level, list := range levels {
		if texts := textsOf(list); len(texts) > 0 {
			if found == nil {
				found = map[string][]string{}
			}
			found[clip(level)] = texts
		}
	}
	return found
}

func clip(s string) string {
	return s[:min(len(s), maxErrorText)]
}

// cloudInitFiles finds those of cloud-init's files that are of this boot. They
// lie in /var/lib/cloud/data, where those of an earlier boot may still lie too;
// in /run/cloud-init, which does not outlive one, cloud-init links to them.
type cloudInitFiles struct {
	run, data string
	// old are the contents of an earlier boot: what was there before the link.
	old map[string]identity
}

func newCloudInitFiles(o Options) cloudInitFiles {
	f := cloudInitFiles{run: o.under("/run/cloud-init"), data: o.under("/var/lib/cloud/data"), old: map[string]identity{}}
	for _, name := range []string{"status.json", "result.json"} {
		if id, err := identify(filepath.Join(f.data, name)); err == nil {
			f.old[name] = id
		}
	}
	return f
}

// path is where the content of a file of this boot lies.
func (f cloudInitFiles) path(name string) (string, bool) {
	link, data := filepath.Join(f.run, name), filepath.Join(f.data, name)
	info, err := os.Lstat(link)
	if err != nil {
		// Where cloud-init was kept from linking: it counts once it changes.
		id, err := identify(data)
		old, was := f.old[name]
		return data, err == nil && (!was || id != old)
	}
	if info.Mode()&fs.ModeSymlink == 0 {
		return link, true
	}
	target, err := os.Readlink(link)
	if err != nil {
		return link, true
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(f.run, target)
	}
	if filepath.Clean(target) == data || filepath.Clean(target) == filepath.Join("/var/lib/cloud/data", name) {
		_, err := os.Lstat(data)
		return data, err == nil
	}
	return link, true // read only where it stays in its folder
}

// look returns what cloud-init recorded of this boot; nil where nothing yet.
func (f cloudInitFiles) look(booted time.Time, uptime time.Duration) *verdict.CloudInit {
	var c verdict.CloudInit
	// The result first: it is written after the status that belongs to it.
	result, done := f.path("result.json")
	status, begun := f.path("status.json")
	if !done && !begun {
		return nil
	}
	var unreadable []error
	if begun {
		text, err := readWhole(status)
		if err == nil {
			c, err = parseStatus(text, booted, uptime)
		}
		if err != nil {
			unreadable = append(unreadable, fmt.Errorf("status.json: %w", err))
		}
	}
	if done {
		c.Done = true
		text, err := readWhole(result)
		var datasource string
		var errs []string
		if err == nil {
			datasource, errs, err = parseResult(text)
		}
		if err != nil {
			unreadable = append(unreadable, fmt.Errorf("result.json: %w", err))
		}
		c.Datasource = cmp.Or(c.Datasource, datasource)
		if !begun || len(c.Stages) == 0 {
			// Whose errors they are is not known; the last stage wrote them down.
			c.Stages = append(c.Stages, verdict.Stage{Name: "modules-final", Errors: errs})
		}
	}
	if err := errors.Join(unreadable...); err != nil {
		c.Unreadable = harmlessText(err.Error())
	}
	return &c
}
