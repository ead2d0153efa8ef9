package metadata

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// maxApproval bounds the body of an approval.
const maxApproval = 64 << 10

// eventVersions are the API versions of scheduled events, oldest first
// ("Version and region availability").
func eventVersions() []string {
	return []string{"2017-03-01", "2017-08-01", "2017-11-01", "2019-01-01", "2019-04-01", "2019-08-01", "2020-07-01"}
}

// The types of events that older versions of the API do not show.
const (
	eventPreempt   = "Preempt"
	eventTerminate = "Terminate"
)

// A ScheduledEvent is what the platform is about to do to instances, as the newest
// API version has it.
type ScheduledEvent struct {
	EventID           string   `json:"EventId"`
	EventStatus       string   `json:"EventStatus"`
	EventType         string   `json:"EventType"`
	ResourceType      string   `json:"ResourceType"`
	Resources         []string `json:"Resources"`
	NotBefore         string   `json:"NotBefore"` // RFC 1123; "" once started
	Description       string   `json:"Description"`
	EventSource       string   `json:"EventSource"` // "Platform", "User"
	DurationInSeconds int      `json:"DurationInSeconds"`
}

// asOf returns an event as an API version has it; false where it tells none of it.
func (v ScheduledEvent) asOf(version string) (map[string]any, bool) {
	if v.EventType == eventPreempt && version < "2017-11-01" || v.EventType == eventTerminate && version < "2019-01-01" {
		return nil, false
	}
	resources := v.Resources
	if version < "2017-08-01" {
		resources = nil
		for _, r := range v.Resources {
			resources = append(resources, "_"+r)
		}
	}
	out := map[string]any{"EventId": v.EventID, "EventStatus": v.EventStatus, "EventType": v.EventType,
		"ResourceType": v.ResourceType, "Resources": resources, "NotBefore": v.NotBefore}
	if version >= "2019-04-01" {
		out["Description"] = v.Description
	}
	if version >= "2019-08-01" {
		out["EventSource"] = v.EventSource
	}
	if version >= "2020-07-01" {
		out["DurationInSeconds"] = v.DurationInSeconds
	}
	return out, true
}

func (h Service) serveEvents(w http.ResponseWriter, r *http.Request) {
	version := r.URL.Query().Get("api-version")
	if !slices.Contains(eventVersions(), version) {
		refuseVersion(w)
		return
	}
	if h.Instance() == nil {
		refuseGone(w)
		return
	}
	switch r.Method {
	case http.MethodGet:
		if err := pause(r.Context(), h.Ask()); err != nil {
			return // nobody waits any more
		}
		incarnation, events := h.Events()
		list := []any{}
		for _, v := range events {
			if shown, known := v.asOf(version); known {
				list = append(list, shown)
			}
		}
		write(w, http.StatusOK, map[string]any{"DocumentIncarnation": incarnation, "Events": list})
	case http.MethodPost:
		ids, ok := readApproval(http.MaxBytesReader(w, r.Body, maxApproval))
		if !ok {
			Refuse(w, http.StatusBadRequest, "Bad request. The body is not an approval of events")
			return
		}
		if !h.Approve(ids) {
			Refuse(w, http.StatusBadRequest, "Bad request. There is no event of that EventId")
			return
		}
		w.WriteHeader(http.StatusOK)
	default:
		refuseMethod(w)
	}
}

// readApproval reads the ids of {"StartRequests":[{"EventId":…}]}: at least one.
func readApproval(body io.Reader) (ids []string, ok bool) {
	var v struct {
		StartRequests []struct {
			EventID string `json:"EventId"`
		}
	}
	data, err := io.ReadAll(body)
	if err != nil || json.Unmarshal(data, &v) != nil {
		return nil, false
	}
	for _, s := range v.StartRequests {
		if strings.TrimSpace(s.EventID) == "" {
			return nil, false
		}
		ids = append(ids, s.EventID)
	}
	return ids, len(ids) > 0
}

// pause waits, or returns the context's error.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
