package extension

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/node/bootstrap"
)

// maxTime is more than any of Azure's: an operation on a scale set with extensions
// ends after at most 2 hours (extensionsTimeBudget).
const maxTime = 24 * time.Hour

// Settings are what the operator configured.
type Settings struct {
	Deadline time.Duration // more than 0
	Settle   time.Duration // as bootstrap.Options has them
	Grace    time.Duration
	Units    []string
	Sentinel string
	Kubelet  bootstrap.Kubelet
	Node     bootstrap.Node
	// Protected says that there are protected settings, which we have no use for
	// and do not decrypt.
	Protected bool
}

// parseSettings reads N.settings. Of the public settings each field has to be
// known: a misspelt one would be waited for in vain. An empty file is how the
// agent says that there are none. Source: WALinuxAgent, update_settings.
func parseSettings(text []byte) (Settings, error) {
	usual := bootstrap.Defaults()
	s := Settings{Deadline: usual.Deadline, Settle: usual.Settle, Grace: usual.Grace}
	text = bytes.TrimSpace(withoutMark(text))
	if len(text) == 0 {
		return s, nil
	}
	var file struct {
		Runtime []struct {
			Handler struct {
				Public    json.RawMessage `json:"publicSettings"`
				Protected json.RawMessage `json:"protectedSettings"`
			} `json:"handlerSettings"`
		} `json:"runtimeSettings"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return s, fmt.Errorf("reading JSON: %w", err)
	}
	if len(file.Runtime) == 0 {
		return s, errors.New("it has no runtimeSettings")
	}
	h := file.Runtime[0].Handler
	switch string(h.Protected) {
	case "", "null", `""`, "{}":
	default:
		s.Protected = true
	}
	if len(h.Public) == 0 || string(h.Public) == "null" {
		return s, nil
	}
	var public struct {
		Deadline *string `json:"deadline"`
		Settle   *string `json:"settle"`
		Grace    *string `json:"grace"`
		Units    list    `json:"units"`
		Sentinel string  `json:"sentinel"`
		Kubelet  string  `json:"kubelet"`
		Node     string  `json:"node"`
	}
	d := json.NewDecoder(bytes.NewReader(h.Public))
	d.DisallowUnknownFields()
	if err := d.Decode(&public); err != nil {
		if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) && wrong.Field == "" {
			return s, fmt.Errorf("the public settings are a JSON %s, not an object", wrong.Value)
		} else if wrong != nil {
			return s, fmt.Errorf("the public settings: %s is a JSON %s; want a text, for units also a list of texts", wrong.Field, wrong.Value)
		}
		return s, fmt.Errorf("the public settings: %w; known are deadline, settle, grace, units, sentinel, kubelet and node", err)
	}
	for _, t := range []struct {
		name  string
		text  *string
		time  *time.Duration
		least time.Duration
		want  string
	}{{"deadline", public.Deadline, &s.Deadline, 1, "more than 0"}, {"settle", public.Settle, &s.Settle, 0, "0s"}, {"grace", public.Grace, &s.Grace, 0, "0s"}} {
		if t.text == nil {
			continue
		}
		var err error
		if *t.time, err = time.ParseDuration(*t.text); err != nil || *t.time < t.least || *t.time > maxTime {
			return s, fmt.Errorf(`the public settings: %s %.100q: want a time such as "20m", %s to %s`, t.name, *t.text, t.want, maxTime)
		}
	}
	s.Units, s.Sentinel, s.Kubelet, s.Node = public.Units, public.Sentinel, bootstrap.Kubelet(public.Kubelet), bootstrap.Node(public.Node)
	if err := s.options("", 0).Validate(); err != nil {
		// Here they are no flags.
		return s, fmt.Errorf("the public settings: %s", strings.NewReplacer("--unit ", "units ", "--", "").Replace(err.Error()))
	}
	return s, nil
}

// list is names in an array, or in one text with commas between them: Cluster API's
// provider for Azure lets settings be texts only.
type list []string

// UnmarshalJSON reads either.
func (l *list) UnmarshalJSON(text []byte) error {
	if len(text) == 0 || text[0] != '"' {
		return json.Unmarshal(text, (*[]string)(l))
	}
	var all string
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	*l = nil
	for name := range strings.SplitSeq(all, ",") {
		if name = strings.TrimSpace(name); name != "" {
			*l = append(*l, name)
		}
	}
	return nil
}

// options are what is waited for; root is the node's, "" for this system's. Of the
// deadline, spent has gone.
func (s Settings) options(root string, spent time.Duration) bootstrap.Options {
	o := bootstrap.Defaults()
	o.Root, o.Units, o.Sentinel, o.Settle, o.Grace = root, s.Units, s.Sentinel, s.Settle, s.Grace
	if root != "" {
		o.Console = "" // not the host's
	}
	if s.Kubelet != "" {
		o.Kubelet = s.Kubelet
	}
	if s.Node != "" {
		o.Node = s.Node
	}
	// A clock that was set may say anything.
	o.Deadline = s.Deadline
	if spent > 0 {
		o.Deadline = max(s.Deadline-spent, time.Second)
	}
	return o
}

// readSettings reads the settings of one number.
func (h *Handler) readSettings(c Call) (Settings, error) {
	path := filepath.Join(h.env.Config, c.file("settings"))
	text, err := readBounded(path)
	if err != nil {
		return Settings{}, fmt.Errorf("reading the settings: %w", err)
	}
	s, err := parseSettings(text)
	if err != nil {
		return Settings{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}
