package wire

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// BootAnnotation is the annotation of its own Node in which a node leaves its
// BootReport, and from which whoever keeps it takes it away: a Node is sent to
// each kubelet and controller that watches Nodes, so it has to stay small.
const BootAnnotation = "ortet.io/boot-report"

// MaxBootAnnotation is how long its value may be, in bytes. An object may have
// 256 KiB of annotations, of everybody's (apimachinery, validation of ObjectMeta).
const MaxBootAnnotation = 48 << 10

// bootMark begins the value: gzip in base64 (RFC 4648, padded) of the JSON.
const bootMark = "v1:"

var (
	// ErrBootTooLarge means that a report does not fit the annotation: less detail would.
	ErrBootTooLarge = errors.New("the report does not fit the annotation")
	// ErrBootEncoding means that the value has a mark that is not known, as a newer program
	// would write it.
	ErrBootEncoding = errors.New("the value does not begin with the mark " + bootMark + " of this version")
)

// EncodeBootAnnotation is the value for BootAnnotation. It is ErrBootTooLarge
// where it would be too long, and an error where the report is not valid. Of one
// report it is always the same.
func EncodeBootAnnotation(r BootReport) (string, error) {
	packed, err := PackBootReport(r)
	if err != nil {
		return "", err
	}
	if n := len(bootMark) + base64.StdEncoding.EncodedLen(len(packed)); n > MaxBootAnnotation {
		return "", fmt.Errorf("%w: %d bytes, and there may be %d", ErrBootTooLarge, n, MaxBootAnnotation)
	}
	return bootMark + base64.StdEncoding.EncodeToString(packed), nil
}

// DecodeBootAnnotation reads what EncodeBootAnnotation made, as strictly as
// ParseBootReport. The value may come from anybody who is root on a node: no more
// than MaxBootReport is unpacked, whatever it promises.
func DecodeBootAnnotation(value string) (BootReport, error) {
	if len(value) > MaxBootAnnotation {
		return BootReport{}, fmt.Errorf("a boot report's annotation of %d bytes, more than %d", len(value), MaxBootAnnotation)
	}
	text, ok := strings.CutPrefix(value, bootMark)
	if !ok {
		return BootReport{}, ErrBootEncoding
	}
	packed, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		return BootReport{}, fmt.Errorf("a boot report's annotation: %w", err)
	}
	return UnpackBootReport(packed)
}

// PackBootReport is a report's JSON in gzip, as it is stored.
func PackBootReport(r BootReport) ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, fmt.Errorf("a boot report: %w", err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("write a boot report: %w", err)
	}
	if len(text) > MaxBootReport {
		return nil, fmt.Errorf("a boot report of %d bytes, more than %d", len(text), MaxBootReport)
	}
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(text)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("compress a boot report: %w", err)
	}
	return b.Bytes(), nil
}

// UnpackBootReport reads what PackBootReport made, strictly, and unpacks no more
// than MaxBootReport.
func UnpackBootReport(packed []byte) (BootReport, error) {
	from := bytes.NewReader(packed)
	z, err := gzip.NewReader(from)
	if err != nil {
		return BootReport{}, fmt.Errorf("unpack a boot report: %w", err)
	}
	z.Multistream(false)
	text, err := io.ReadAll(io.LimitReader(z, MaxBootReport+1))
	switch {
	case err != nil:
		return BootReport{}, fmt.Errorf("unpack a boot report: %w", err)
	case len(text) > MaxBootReport:
		return BootReport{}, fmt.Errorf("unpack a boot report: more than %d bytes come out", MaxBootReport)
	case from.Len() > 0:
		return BootReport{}, errors.New("unpack a boot report: something follows it")
	}
	return ParseBootReport(text)
}

// maxBootObjects is the maximum number of JSON objects in a valid report.
const maxBootObjects = 2 + MaxBootClocks + MaxBootUnits + MaxBootSpans + MaxBootSources

// objects counts the objects in JSON. An empty one is three bytes of text and a
// hundred times as much when it is read, so that they are counted before.
func objects(text []byte) int {
	n, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == '{' && !quoted:
			n++
		}
	}
	return n
}
