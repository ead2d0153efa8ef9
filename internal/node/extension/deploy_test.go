package extension

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

// The template of an own type passes settings that are taken, for each of its
// parameters that has a default.
func TestSettingsOfTheTemplate(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/arm/own-extension.json")
	if err != nil {
		t.Fatal(err)
	}
	var template struct {
		Parameters map[string]struct{ DefaultValue string }
		Resources  []struct {
			Properties struct{ Settings map[string]any }
		}
	}
	if err := json.Unmarshal(text, &template); err != nil || len(template.Resources) != 1 {
		t.Fatal(err)
	}
	settings := template.Resources[0].Properties.Settings
	for name, value := range settings {
		if parameter, ok := strings.CutPrefix(toText(value), "[parameters('"); ok {
			settings[name] = template.Parameters[strings.TrimSuffix(parameter, "')]")].DefaultValue
		}
	}
	public, err := json.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	s, err := parseSettings([]byte(`{"runtimeSettings":[{"handlerSettings":{"publicSettings":` + string(public) + `}}]}`))
	if err != nil || s.Deadline != 20*time.Minute || s.Settle != 10*time.Second || s.Grace != 2*time.Minute || len(s.Units) != 1 {
		t.Errorf("%s: %+v, %v", public, s, err)
	}
}

func toText(value any) string {
	text, _ := value.(string)
	return text
}
