package source

import (
	"encoding/json"
	"errors"
	"io"

	"github.com/ortet/ortet/internal/wire"
)

// Plot reads what `systemd-analyze plot --json=short` (or pretty) prints, of
// systemd 253 or later. Its times are exact, but systemd limits them to the
// boot's finish: what is given as the last of all times may be later, or may not
// have come, and is not kept, except where a unit became active just then. It
// has no After.
func Plot(r io.Reader, o Options) []wire.BootReport {
	type unit struct {
		Name         string `json:"name"`
		Activated    *int64 `json:"activated"`
		Activating   *int64 `json:"activating"`
		Time         *int64 `json:"time"`
		Deactivated  *int64 `json:"deactivated"`
		Deactivating *int64 `json:"deactivating"`
	}
	b := newBoot()
	took := []wire.Micros{}
	var finish wire.Micros
	good, bad, cut := each(r, o, func(raw json.RawMessage) error {
		var u unit
		if err := json.Unmarshal(raw, &u); err != nil {
			return err
		}
		_, again := b.units[u.Name]
		to := b.unit(u.Name)
		if to == nil || again {
			return errors.New("no unit")
		}
		to.Activating, to.Activated = known64(u.Activating), known64(u.Activated)
		to.Deactivating, to.Deactivated = known64(u.Deactivating), known64(u.Deactivated)
		took = append(took, known64(u.Time))
		finish = max(finish, to.Activated, to.Deactivating, to.Deactivated)
		return nil
	})
	if finish > 0 && !cut {
		b.report.System.Finish = finish
	}
	for i := range b.report.Units {
		u := &b.report.Units[i]
		if u.Deactivated == finish {
			u.Deactivated = 0
		}
		if u.Deactivating == finish {
			u.Deactivating = 0
		}
		if u.Activated == finish && u.Activating+took[i] != finish {
			u.Activated = 0
		}
	}
	return []wire.BootReport{b.done(sourceOf(sourcePlot, o, good, bad, 0, cut))}
}

func known64(v *int64) wire.Micros {
	if v == nil {
		return 0
	}
	at := wire.Micros(*v)
	clamp(&at)
	return at
}
