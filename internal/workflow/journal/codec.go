package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ortet/ortet/internal/fleet"
)

// Schema is the version of Record that this build writes. It rises when a reader of
// the old one would misunderstand the new one.
const Schema = 2

// MaxSize is the limit of an encoded record in bytes: a Kubernetes Secret holds 1 MiB,
// with the object around it.
const MaxSize = 1<<20 - 16<<10

// Encode gives the bytes that a store keeps. A record over MaxSize is fleet.KindInvalid.
func Encode(r Record) ([]byte, error) {
	r.Schema = Schema
	data, err := json.Marshal(r)
	if err == nil && len(data) > MaxSize {
		err = fmt.Errorf("record has %d bytes, limit %d", len(data), MaxSize)
	}
	if err != nil {
		return nil, &fleet.Error{Op: "write journal", Resource: r.Pool, Kind: fleet.KindInvalid, Err: err}
	}
	return data, nil
}

// Decode reads what Encode wrote, strictly: unknown fields and the record of another pool
// are fleet.KindInvalid, another schema is fleet.KindUnsupported. An ended record of
// schema 1 becomes one of this schema.
func Decode(pool string, data []byte) (r Record, err error) {
	kind, remedy := fleet.KindInvalid, "inspect the Secret; delete it once nothing in it has to be undone"
	var version struct{ Schema int }
	err = json.Unmarshal(data, &version)
	switch { // before unknown fields: another schema has others
	case err != nil:
	case version.Schema == 1:
		if r, err = decodeSchema1(pool, data); fleet.Is(err, fleet.KindUnsupported) {
			return r, err
		}
	case version.Schema != Schema:
		kind, remedy = fleet.KindUnsupported, "use the version of ortet that wrote it"
		err = fmt.Errorf("schema %d is not %d", version.Schema, Schema)
	default:
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.DisallowUnknownFields()
		err = decoder.Decode(&r)
	}
	switch {
	case err != nil:
	case r.Name == "" || r.Kind == "":
		err = errors.New("name or kind is missing")
	case !fleet.ResourceID(r.Pool).Equal(fleet.ResourceID(pool)):
		err = fmt.Errorf("record belongs to %q", r.Pool)
	}
	if err != nil {
		return Record{}, &fleet.Error{Op: "read journal", Resource: pool, Kind: kind, Remedy: remedy, Err: err}
	}
	return r, nil
}
