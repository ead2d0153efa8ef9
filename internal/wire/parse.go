package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a GeneralizeLine. What exceeds one is refused, not cut.
const (
	MaxLine         = 4 << 20   // bytes of one line
	maxText         = 2 << 10   // bytes of a message or progress line
	maxPath         = 4 << 10   // bytes of a path
	maxName         = 512       // bytes of a name
	maxFindings     = 1000      //
	maxList         = 1000      // entries of any other list
	maxSaved        = 64        //
	maxSealedBytes  = 512 << 10 // bytes of one sealed item
	minSealedBytes  = 32 + 16   // an encapsulated key and a tag
	hexSHA256Length = 64
)

// ErrOtherVersion is of a report with a member that this version does not know.
var ErrOtherVersion = errors.New("of another version of ortet-node")

// ParseGeneralizeLine reads one line of `ortet-node generalize` strictly: no
// unknown field, nothing after the object, every bound and value checked, but
// for what is in a manifest, which ReadManifest checks. The line comes from a pod on a node and may be anything; what is returned can be
// printed and stored.
func ParseGeneralizeLine(line []byte) (GeneralizeLine, error) {
	if len(line) > MaxLine {
		return GeneralizeLine{}, fmt.Errorf("a line of %d bytes, more than %d", len(line), MaxLine)
	}
	var l GeneralizeLine
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		if known := (GeneralizeLine{}); json.Unmarshal(line, &known) == nil && known.Report != nil {
			err = fmt.Errorf("%w: %w", ErrOtherVersion, err)
		}
		return GeneralizeLine{}, fmt.Errorf("reading a line of the generalizer: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return GeneralizeLine{}, errors.New("reading a line of the generalizer: more than one object")
	}
	if err := l.Validate(); err != nil {
		return GeneralizeLine{}, fmt.Errorf("a line of the generalizer: %w", err)
	}
	return l, nil
}

// Validate returns what is wrong with a line; nil when nothing is.
func (l GeneralizeLine) Validate() error {
	switch {
	case l.Progress != "" && l.Manifest == nil && l.Report == nil:
		return checkText("progress", l.Progress, maxText)
	case l.Progress == "" && l.Manifest != nil && l.Report == nil:
		if len(l.Manifest) <= MaxManifest { // ReadManifest is for the one that is kept: it takes memory
			return nil
		}
		return fmt.Errorf("a manifest of %d bytes, more than %d", len(l.Manifest), MaxManifest)
	case l.Progress == "" && l.Manifest == nil && l.Report != nil:
		return l.Report.Validate()
	}
	return errors.New("want one of progress, a manifest and a report")
}

// Validate returns what is wrong with a report; nil when nothing is.
func (r GeneralizeReport) Validate() error {
	switch r.Outcome {
	case Generalized, SecretsFound, DiskRefused, GeneralizeFailed:
	default:
		return fmt.Errorf("unknown outcome %q", clip(string(r.Outcome)))
	}
	if r.Removed < 0 || r.Bytes < 0 || r.More < 0 || r.SecretsRemoved < 0 {
		return errors.New("negative counts")
	}
	if len(r.Findings) > maxFindings || len(r.Saved) > maxSaved {
		return fmt.Errorf("%d findings and %d saved items, want at most %d and %d", len(r.Findings), len(r.Saved), maxFindings, maxSaved)
	}
	errs := []error{
		checkText("capture", r.Capture, maxName), checkText("donor", r.Donor, maxName),
		checkText("message", r.Message, maxText), checkText("os", r.OS, maxName), checkText("ancestry", r.Ancestry, maxText),
		checkList("joins", r.Joins), checkList("unsaved", r.Unsaved), checkList("hooksNotRun", r.HooksNotRun),
		checkList("unscanned", r.Unscanned), checkList("mentions", r.Mentions),
		checkList("tunedKept", r.TunedKept),
	}
	if _, err := ParseTunings(r.Tuned); err != nil {
		errs = append(errs, err)
	}
	for _, f := range r.Findings {
		errs = append(errs, f.validate())
	}
	if len(r.Missing) > maxList {
		return fmt.Errorf("%d missing items, want at most %d", len(r.Missing), maxList)
	}
	for _, i := range r.Missing {
		if i.Kind != CustomData && i.Kind != ProtectedSettings {
			errs = append(errs, fmt.Errorf("unknown kind %q of a missing item", clip(string(i.Kind))))
		}
		errs = append(errs, checkText("missing item", i.Name, maxName))
	}
	if len(r.Stores) > maxList {
		return fmt.Errorf("%d image stores, want at most %d", len(r.Stores), maxList)
	}
	for _, s := range r.Stores {
		if !strings.HasPrefix(s.Path, "/") || s.Bytes < 0 {
			errs = append(errs, errors.New("an image store without an absolute path, or of negative size"))
		}
		errs = append(errs, checkText("image store", s.Path, maxPath))
	}
	for _, s := range r.Saved {
		errs = append(errs, s.validate())
	}
	errs = append(errs, r.validateOutcome())
	return errors.Join(errs...)
}

// validateOutcome refuses a report whose outcome its findings belie.
func (r GeneralizeReport) validateOutcome() error {
	for _, f := range r.Findings {
		if r.Outcome == Generalized && !f.Accepted && !f.Removed {
			return fmt.Errorf("the outcome is %s, yet %s at %s is neither accepted nor removed", r.Outcome, clip(f.Rule), clip(f.Path))
		}
	}
	return nil
}

func (f SecretFinding) validate() error {
	if f.Class != NodeIdentity && f.Class != PoolCredential && f.Class != OtherSecret {
		return fmt.Errorf("unknown class %q of a finding", clip(string(f.Class)))
	}
	if f.Accepted && f.Class == NodeIdentity {
		return errors.New("a node's identity is never accepted")
	}
	if f.Removed && (f.Accepted || f.Class != OtherSecret) {
		return errors.New("only a secret of class OtherSecret is removed, and not one that is accepted")
	}
	if !strings.HasPrefix(f.Path, "/") || f.Rule == "" {
		return errors.New("a finding without an absolute path or a rule")
	}
	return errors.Join(checkText("path", f.Path, maxPath), checkText("rule", f.Rule, maxName), checkText("detail", f.Detail, maxName))
}

func (s SealedItem) validate() error {
	if s.Kind != CustomData && s.Kind != ProtectedSettings {
		return fmt.Errorf("unknown kind %q of a saved item", clip(string(s.Kind)))
	}
	if (s.Kind == CustomData) != (s.Name == "") {
		return fmt.Errorf("a saved item of kind %s with the name %q", s.Kind, clip(s.Name))
	}
	if _, err := hex.DecodeString(s.SHA256); err != nil || len(s.SHA256) != hexSHA256Length || strings.ToLower(s.SHA256) != s.SHA256 {
		return errors.New("a saved item's sha256 is not 64 lower-case hex digits")
	}
	if len(s.Sealed) < minSealedBytes || len(s.Sealed) > maxSealedBytes {
		return fmt.Errorf("a saved item of %d sealed bytes, want %d to %d", len(s.Sealed), minSealedBytes, maxSealedBytes)
	}
	return checkText("name", s.Name, maxName)
}

func checkList(what string, list []string) error {
	if len(list) > maxList {
		return fmt.Errorf("%s: %d entries, more than %d", what, len(list), maxList)
	}
	for _, s := range list {
		if err := checkText(what, s, maxPath); err != nil {
			return err
		}
	}
	return nil
}

// checkText refuses what cannot be shown on a terminal as it is.
func checkText(what, s string, most int) error {
	if len(s) > most {
		return fmt.Errorf("%s: %d bytes, more than %d", what, len(s), most)
	}
	if !utf8.ValidString(s) {
		return fmt.Errorf("%s: not UTF-8", what)
	}
	if i := strings.IndexFunc(s, func(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' }); i >= 0 {
		return fmt.Errorf("%s: a control character at byte %d", what, i)
	}
	return nil
}

func clip(s string) string {
	if len(s) > 60 {
		s = s[:60]
	}
	return strings.ToValidUTF8(s, "?")
}
