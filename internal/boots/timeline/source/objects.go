package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"

	"github.com/ortet/ortet/internal/wire"
)

const (
	maxJSON    = 32 << 20 // bytes of a list of objects, which are read one by one
	maxObjects = 1 << 16
	maxFile    = 1 << 20 // bytes of a file that is one object
)

// each reads the objects of a text one by one: those of a list, or that follow each other.
// It returns how many could not be understood, and whether the text ends too early.
func each(r io.Reader, o Options, read func(raw json.RawMessage) error) (good, bad int, cut bool) {
	// What is cut out of its middle is no JSON: so the start is read, not the end.
	from := &limited{r: r, left: min(o.bytes(), maxJSON)}
	d := json.NewDecoder(from)
	list := false
	for good+bad < maxObjects {
		if list && !d.More() {
			_, err := d.Token()
			if err != nil {
				return good, bad, true
			}
			list = false
			continue
		}
		var raw json.RawMessage
		if !list {
			// A list's start has to be taken off before its objects come.
			c, err := nextByte(d)
			if err != nil {
				return good, bad, from.cut || !errors.Is(err, io.EOF)
			}
			if c == '[' {
				if _, err := d.Token(); err != nil {
					return good, bad, true
				}
				list = true
				continue
			}
		}
		if err := d.Decode(&raw); err != nil {
			return good, bad, true // what follows a broken one is not known
		}
		if read(raw) != nil {
			bad++
		} else {
			good++
		}
	}
	return good, bad, true
}

// nextByte is the first byte of what a decoder reads next.
func nextByte(d *json.Decoder) (byte, error) {
	// More skips blanks, and only reports whether something follows; what it is stands at
	// the start of what is buffered.
	if !d.More() {
		return 0, io.EOF
	}
	var one [64]byte
	b := d.Buffered()
	for {
		n, err := b.Read(one[:])
		for _, c := range one[:n] {
			if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
				return c, nil
			}
		}
		if err != nil {
			return 0, err
		}
	}
}

// whole reads a text that is one object.
func whole(r io.Reader, to any) error {
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return err
	}
	if len(text) > maxFile {
		return errors.New("more than " + strconv.Itoa(maxFile>>10) + " KiB")
	}
	if err := json.Unmarshal(bytes.TrimPrefix(text, []byte("\ufeff")), to); err != nil {
		return errors.New("broken or cut off: " + err.Error())
	}
	return nil
}

// sourceOf returns the result of reading objects.
func sourceOf(name string, o Options, good, bad, other int, cut bool) wire.BootSource {
	s := wire.BootSource{Name: name, Path: o.Path, State: wire.SourceRead}
	switch {
	case cut:
		s = nothing(s, "broken or cut off after "+strconv.Itoa(good+bad)+" entries")
	case good == 0 && other == 0:
		s = nothing(s, "nothing of use is in it")
	}
	if bad > 0 {
		s = nothing(s, strconv.Itoa(bad)+" entries could not be understood")
	}
	if other > 0 && good == other {
		s.State = wire.SourceOther
		s.Detail = join(s.Detail, "all of its entries are of other boots")
	}
	return s
}
