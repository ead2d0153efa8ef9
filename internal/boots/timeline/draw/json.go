package draw

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/ortet/ortet/internal/boots/timeline"
)

// JSON writes a Timeline by docs/schema/timeline.json: indented, and nothing changed.
func JSON(w io.Writer, t timeline.Timeline) error {
	// null is no list: who reads it would have to ask first.
	if t.Spans == nil {
		t.Spans = []timeline.Span{}
	}
	if t.Path == nil {
		t.Path = []timeline.Step{}
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(t); err != nil {
		return fmt.Errorf("write the timeline of %s as JSON: %w", newView(t).title(), err)
	}
	return nil
}
