package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/ortet/ortet/internal/fleet"
)

// Schema is the version of Record that this build writes. It rises when a
// reader of the old one would misunderstand the new one.
const Schema = 1

// MaxSize is the most bytes that a record may take, encoded. A Kubernetes Secret
// holds 1 MiB of data; the rest is left for the object around it.
const MaxSize = 1<<20 - 16<<10

// Encode gives the bytes that a store keeps. It is fleet.KindInvalid where the
// record names no pool or capture, is of another schema, or is over MaxSize. A
// Schema of 0 is written as the current one.
func Encode(r Record) ([]byte, error) {
	fail := func(err error, remedy string) ([]byte, error) {
		return nil, &fleet.Error{Op: "write journal", Resource: r.Pool, Kind: fleet.KindInvalid, Remedy: remedy, Err: err}
	}
	if r.Schema == 0 {
		r.Schema = Schema
	}
	switch {
	case r.Schema != Schema:
		return fail(fmt.Errorf("schema %d is not %d, which this build writes", r.Schema, Schema), "")
	case r.Pool == "":
		return fail(errors.New("the record names no pool"), "")
	case r.Capture == "":
		return fail(errors.New("the record names no capture"), "")
	}
	data, err := json.Marshal(r)
	if err != nil {
		return fail(err, "")
	}
	if len(data) > MaxSize {
		return fail(fmt.Errorf("the record has %d bytes, and a Secret takes %d", len(data), MaxSize),
			"this is a defect: facts and notes have to stay small; the capture can be undone, not gone on with")
	}
	return data, nil
}

// Decode reads what Encode wrote, strictly: unknown fields, trailing data and
// oversize are fleet.KindInvalid, a newer schema is fleet.KindUnsupported. pool
// is who asks; a record of another pool is refused.
func Decode(pool string, data []byte) (Record, error) {
	fail := func(kind fleet.Kind, err error, remedy string) (Record, error) {
		return Record{}, &fleet.Error{Op: "read journal", Resource: pool, Kind: kind, Remedy: remedy, Err: err}
	}
	const byHand = "somebody else wrote it: look at it, and delete it once nothing is left to undo"
	if len(data) > MaxSize {
		return fail(fleet.KindInvalid, fmt.Errorf("the record has %d bytes, more than the %d that Ortet writes", len(data), MaxSize), byHand)
	}
	var r Record
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&r)
	if err == nil {
		if _, end := decoder.Token(); !errors.Is(end, io.EOF) {
			err = errors.New("something follows it")
		}
	}
	if err != nil || r.Schema != Schema {
		// A newer schema may have fields that are not known here: its number comes
		// before what is wrong with the rest.
		var version struct {
			Schema int `json:"schema"`
		}
		if err := json.Unmarshal(data, &version); err != nil {
			return fail(fleet.KindInvalid, fmt.Errorf("not a record: %w", err), byHand)
		}
		if version.Schema > Schema {
			return fail(fleet.KindUnsupported, fmt.Errorf("it has schema %d, and this build knows %d", version.Schema, Schema),
				"use the version of ortet that began the capture, or a newer one")
		}
		if version.Schema < 1 {
			return fail(fleet.KindInvalid, fmt.Errorf("it has schema %d", version.Schema), byHand)
		}
	}
	if err != nil {
		return fail(fleet.KindInvalid, fmt.Errorf("not a record: %w", err), byHand)
	}
	if r.Capture == "" {
		return fail(fleet.KindInvalid, errors.New("the record names no capture"), byHand)
	}
	if !fleet.ResourceID(r.Pool).Equal(fleet.ResourceID(pool)) {
		return fail(fleet.KindInvalid, fmt.Errorf("the record is of %q", r.Pool), byHand)
	}
	return r, nil
}
