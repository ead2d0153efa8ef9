package extension

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ortet/ortet/internal/node/bootstrap"
)

// The states of a status. Only success and error are final.
const (
	transitioning = "transitioning"
	warning       = "warning"
	failure       = "error"
	success       = "success"
)

// maxStatus is more than a status file of ours ever has; the agent cuts those of
// more than 128 KiB.
const maxStatus = 120 << 10

// status is one status file's content, for a person and for the agent.
type status struct {
	State    string    `json:"status"`
	Code     int       `json:"code"`
	Message  message   `json:"formattedMessage"`
	Name     string    `json:"name"`
	Verb     string    `json:"operation"`
	Applied  string    `json:"configurationAppliedTime"`
	Subparts []subpart `json:"substatus,omitempty"`
}

// subpart is the state of a part of the work.
type subpart struct {
	Name    string  `json:"name"`
	State   string  `json:"status"`
	Code    int     `json:"code"`
	Message message `json:"formattedMessage"`
}

type message struct {
	Language string `json:"lang"`
	Text     string `json:"message"`
}

func say(text string) message { return message{"en-US", text} }

type statusFile []statusEntry

type statusEntry struct {
	Version float64 `json:"version"`
	Time    string  `json:"timestampUTC"`
	Status  status  `json:"status"`
}

// agentTime is how the agent writes times.
func agentTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// encodeStatus is the file. What does not fit loses its parts, then its message's
// end.
func encodeStatus(s status, now time.Time) ([]byte, error) {
	for {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(statusFile{{1, agentTime(now), s}}); err != nil {
			return nil, err
		}
		switch {
		case b.Len() <= maxStatus:
			return b.Bytes(), nil
		case len(s.Subparts) > 0:
			s.Subparts = s.Subparts[:len(s.Subparts)-1]
		case len(s.Message.Text) > 0:
			s.Message.Text = head(s.Message.Text, len(s.Message.Text)/2)
		default:
			return nil, errors.New("a status that fits no file")
		}
	}
}

func (h *Handler) statusPath(c Call) string { return filepath.Join(h.env.Status, c.file("status")) }

// state is what a call's status file says; "" where there is none that says
// anything.
func (h *Handler) state(c Call) string {
	text, err := readBounded(h.statusPath(c))
	if err != nil {
		return ""
	}
	return stateIn(text)
}

// stateIn is what a status file's text says.
func stateIn(text []byte) string {
	var file statusFile
	if err := json.Unmarshal(withoutMark(text), &file); err != nil || len(file) == 0 {
		return ""
	}
	return file[0].Status.State
}

// tell writes a call's status. Where there is no room for a new file, the one that
// is there is written over with what fits a block: the agent reads a file again
// that it found half written.
func (h *Handler) tell(c Call, s status) error {
	now := h.now()
	s.Name, s.Verb, s.Applied = h.env.Name, "Enable", agentTime(now)
	text, err := encodeStatus(s, now)
	if err != nil {
		return fmt.Errorf("writing the status as JSON: %w", err)
	}
	path := h.statusPath(c)
	err = bootstrap.Replace(path, text, 0o600)
	if err == nil {
		return nil
	}
	s.Subparts, s.Message.Text = nil, head(s.Message.Text, 1<<10)
	text, short := encodeStatus(s, now)
	if short == nil {
		short = overwrite(path, text)
	}
	if short != nil {
		return fmt.Errorf("writing %s: %w", path, errors.Join(err, short))
	}
	h.log.Warn("there was no room for the whole status", "path", path, "error", err)
	return nil
}

// overwrite puts text in a file that is there.
func overwrite(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Truncate(int64(len(text)))
	}
	return errors.Join(err, f.Close())
}

// beat renews the heartbeat.
func (h *Handler) beat(text string) error {
	type heartbeat struct {
		State   string  `json:"status"`
		Code    int     `json:"code"`
		Message message `json:"formattedMessage"`
	}
	body, err := json.Marshal([]map[string]heartbeat{{"heartbeat": {"Ready", 0, say(text)}}})
	if err == nil {
		err = bootstrap.Replace(h.env.Heartbeat, body, 0o600)
	}
	if err != nil {
		return fmt.Errorf("renewing the heartbeat: %w", err)
	}
	return nil
}
