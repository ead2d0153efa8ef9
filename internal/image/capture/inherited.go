package capture

import (
	"cmp"
	"encoding/json"

	"github.com/ortet/ortet/internal/image/capture/model"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/workflow"
)

// Inherit reads what goes on from a pool's last record, which has ended. What cannot be read has none.
func Inherit(last journal.Record) (i plan.Inherited) {
	_ = json.Unmarshal(last.State, &i)
	changed := last.Steps[model.StepModel]
	if last.Kind == Kind || last.Ended == nil {
		return i
	}
	if last.Ended.Exit == workflow.ExitDone {
		i.Unfinished = nil
	} else if changed.State == journal.Done || changed.Change != "" {
		var asked struct {
			To string `json:"to"`
		}
		u := plan.Unfinished{Name: last.Name, Patched: changed.State == journal.Done}
		if cmp.Or(json.Unmarshal(last.Request, &asked), json.Unmarshal(last.State, &u)) == nil {
			u.Asked, i.Unfinished = asked.To, &u
		}
	}
	return i
}
