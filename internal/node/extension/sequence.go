package extension

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ortet/ortet/internal/node/bootstrap"
)

// A Call is which configuration a command is about.
type Call struct {
	Name     string // of the instance; "" where the handler has but one
	Sequence uint64
}

// file is what the agent calls a call's file: "3.status", "NAME.3.status".
func (c Call) file(kind string) string {
	return named(c.Name, strconv.FormatUint(c.Sequence, 10)+"."+kind)
}

// named is a file of an instance's.
func named(instance, file string) string {
	if instance == "" {
		return file
	}
	return instance + "." + file
}

// checkName lets through what names an instance and is safe in a file's name.
func checkName(name string) error {
	if strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-' && r != '.'
	}) || len(name) > 100 || strings.HasPrefix(name, ".") {
		return fmt.Errorf("the instance's name %.150q: want letters, digits, and _-. between them", name)
	}
	return nil
}

// call is the call of a command; sequence is ConfigSequenceNumber, "" where the
// agent does not say.
func (h *Handler) call(name, sequence string) (Call, error) {
	c := Call{Name: name}
	if err := checkName(name); err != nil {
		return c, err
	}
	if sequence != "" {
		n, err := strconv.ParseUint(sequence, 10, 63)
		if err != nil {
			return c, fmt.Errorf("ConfigSequenceNumber is %.100q, not a number", sequence)
		}
		c.Sequence = n
		return c, nil
	}
	entries, err := os.ReadDir(h.env.Config)
	if err != nil {
		return c, fmt.Errorf("looking for the newest settings: %w", err)
	}
	found := false
	for _, e := range entries {
		if n, ok := sequenceOf(e.Name(), name); ok && (!found || n > c.Sequence) {
			c.Sequence, found = n, true
		}
	}
	if !found {
		return c, fmt.Errorf("no settings in %s, and no ConfigSequenceNumber", h.env.Config)
	}
	return c, nil
}

// sequenceOf reads the number in the name of a settings file of an instance's.
func sequenceOf(file, instance string) (uint64, bool) {
	rest, ok := strings.CutPrefix(file, named(instance, ""))
	if !ok {
		return 0, false
	}
	if rest, ok = strings.CutSuffix(rest, ".settings"); !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(rest, 10, 63)
	return n, err == nil
}

const mrseq = "mrseq"

// last is the number of an instance's that was taken up last; false where none was.
func (h *Handler) last(name string) (uint64, bool, error) {
	text, err := readBounded(filepath.Join(h.dir, named(name, mrseq)))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("reading the number taken up last: %w", err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 63)
	return n, err == nil, nil // damaged is as good as missing
}

// take records a call's number as taken up.
func (h *Handler) take(c Call) error {
	if err := bootstrap.Replace(filepath.Join(h.dir, named(c.Name, mrseq)), []byte(strconv.FormatUint(c.Sequence, 10)), 0o600); err != nil {
		return fmt.Errorf("recording the number taken up: %w", err)
	}
	return nil
}

// inherit copies the numbers of named instances from the folder of the version
// that is updated from, those that are not here yet; the agent copies only the
// nameless one's.
func (h *Handler) inherit(from string) error {
	base := filepath.Base(h.dir)
	if from == "" || strings.ContainsAny(from, `/\`) {
		return nil
	}
	// NAME-VERSION on Linux, NAME\VERSION on Windows.
	old := filepath.Join(filepath.Dir(h.dir), base[:strings.LastIndexByte(base, '-')+1]+from)
	if old == h.dir {
		return nil
	}
	entries, err := os.ReadDir(old)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for the numbers of version %s: %w", from, err)
	}
	for _, e := range entries {
		here := filepath.Join(h.dir, e.Name())
		if _, err := os.Lstat(here); err == nil || e.Name() != mrseq && !strings.HasSuffix(e.Name(), "."+mrseq) {
			continue
		}
		text, err := readBounded(filepath.Join(old, e.Name()))
		if err == nil {
			err = bootstrap.Replace(here, text, 0o600)
		}
		if err != nil {
			return fmt.Errorf("taking over %s of version %s: %w", e.Name(), from, err)
		}
	}
	return nil
}
