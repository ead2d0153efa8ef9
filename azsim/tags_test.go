package azsim

import (
	"strings"
	"testing"
)

func TestTagsAsAzureAllowsThem(t *testing.T) {
	for name, c := range map[string]struct {
		tags map[string]any
		code string
	}{
		"plain":        {map[string]any{"BuiltFrom": "n", "ortet.io_capture": "c"}, ""},
		"slash":        {map[string]any{"ortet.io/capture": "c"}, "InvalidTagNameCharacters"},
		"question":     {map[string]any{"why?": "c"}, "InvalidTagNameCharacters"},
		"long value":   {map[string]any{"a": strings.Repeat("x", 257)}, "InvalidTagValueLength"},
		"slashes okay": {map[string]any{"a": "b/c?"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkTags(map[string]any{"tags": c.tags})
			if (err == nil) != (c.code == "") || (err != nil && !strings.Contains(err.Error(), c.code)) {
				t.Errorf("got %v, want %q", err, c.code)
			}
		})
	}
}
