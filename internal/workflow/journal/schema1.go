package journal

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// noopSHA is the SHA-256 of prototype.NoopCustomData.
const noopSHA = "88c95955b024402aa9572b663f7eeb134f01343bb92af27b50e97e72b22c565f"

// decodeSchema1 reads an ended record of schema 1. Its State has what passes from record
// to record.
func decodeSchema1(pool string, data []byte) (Record, error) {
	var old struct {
		Record
		Capture, Donor string
		Facts          struct {
			Original, Return          json.RawMessage // Return is a rollback's
			CustomData, Restore, Went string          // SHA-256
			ModelChanged              bool
		}
	}
	if err := json.Unmarshal(data, &old); err != nil {
		return Record{}, err
	}
	if old.Ended == nil {
		return Record{}, &fleet.Error{
			Op: "read journal", Resource: pool, Kind: fleet.KindUnsupported,
			Err:    fmt.Errorf("an earlier version of ortet began %s %s at %s and did not end it", old.Kind, old.Capture, old.Begun.UTC().Format(time.RFC3339)),
			Remedy: "run its command again with that version, or undo by hand what it left and delete the Secret",
		}
	}
	var state struct {
		LastCustomData string          `json:"lastCustomData,omitempty"`
		Original       json.RawMessage `json:"original,omitempty"`
	}
	f := old.Facts
	state.Original = f.Original
	// Schema 1 has the customData that the model was left with; lastCustomData is what
	// Ortet gave it: the no-op, a rollback's, or one that replaced another.
	given := f.CustomData == noopSHA || f.Return != nil || f.Went == noopSHA || f.Restore != "" && f.Restore != f.CustomData
	switch {
	case f.ModelChanged && f.CustomData != "" && given:
		state.LastCustomData = f.CustomData
	case f.Went == noopSHA:
		state.LastCustomData = f.Went
	}
	raw, err := json.Marshal(state)
	return Record{Schema: Schema, Kind: old.Kind, Name: old.Capture, Pool: old.Pool, Subject: old.Donor, Begun: old.Begun, Ended: old.Ended, State: raw}, err
}
