package nodeconfig

import (
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

const (
	// MaxUserData bounds userData, in characters of base64. Azure takes 64 KiB before
	// base64, which are 87,384 characters (azure-powershell #16597).
	MaxUserData = 64 << 10
	// maxDocument bounds a document that was unpacked, in bytes.
	maxDocument = 1 << 20
	// MaxKeys is how many public keys nodes accept at once: the present one, and that
	// which takes over.
	MaxKeys = 2
	// MaxGeneration is the highest generation that counts: every reader of JSON holds it
	// exactly, and no pool reaches it. A document beyond it is refused by every node.
	MaxGeneration = 1<<53 - 1
)

// Counted is a generation, or 0 for one beyond MaxGeneration.
func Counted(generation int64) int64 {
	if generation > MaxGeneration {
		return 0
	}
	return generation
}

// A document in userData is a comment of a cloud-config that sets nothing: cloud-init's
// Azure datasource reads userData where there is no customData, and warns of what is not
// a cloud-config. Source: canonical/cloud-init, DataSourceAzure.
const (
	header = "#cloud-config\n" +
		"# Configuration of this pool's nodes, signed; written by ortet config push.\n"
	prefix = "# ortet.io/v1alpha1 "
	footer = "\n{}\n"
)

// Errors of Read and Verify.
var (
	// ErrNotOurs says that userData is not a document of this package.
	ErrNotOurs = errors.New("the userData is not a configuration of Ortet's")
	// ErrSignature says that no accepted key signed the document.
	ErrSignature = errors.New("no accepted key signed the document")
	// ErrTooLarge says that a document does not fit into userData.
	ErrTooLarge = errors.New("configuration is too large for userData")
)

// A Document is a configuration as it is signed for one pool.
type Document struct {
	Pool       string `json:"pool"`       // ARM id of the scale set, in lower case
	Generation int64  `json:"generation"` // 1 or more; a node never goes back to a lower one
	// Keys, where there are some, are the public keys that nodes accept from then on; the
	// signer's has to be among them.
	Keys []PublicKey `json:"keys,omitempty"`
	// ResetGeneration has a node accept the document that knows a generation beyond
	// MaxGeneration. Another node ignores it, so that it makes no document replayable.
	ResetGeneration bool   `json:"resetGeneration,omitempty"`
	Config          Config `json:"config"`
}

// A PublicKey is "ed25519:" and the key in base64.
type PublicKey string

const algorithm = "ed25519:"

// PublicKeyOf spells a key.
func PublicKeyOf(key ed25519.PublicKey) PublicKey {
	return PublicKey(algorithm + base64.StdEncoding.EncodeToString(key))
}

// Parse reads a key.
func (k PublicKey) Parse() (ed25519.PublicKey, error) {
	text, ok := strings.CutPrefix(string(k), algorithm)
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	if !ok || err != nil || len(raw) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("read public key %.80q: want %s and 32 bytes in base64", k, algorithm)
	}
	return ed25519.PublicKey(raw), nil
}

// An envelope is what userData carries, gzipped and in base64. The signature is of the
// document's bytes as they are, with the package's name before them.
type envelope struct {
	Document  []byte    `json:"document"`
	Key       PublicKey `json:"key"`
	Signature []byte    `json:"signature"`
}

const domain = "ortet.io/v1alpha1 node configuration\n"

// Sign returns the userData, in base64 as Azure takes it. The same document and key give
// the same bytes. What does not fit is ErrTooLarge.
func (d Document) Sign(key ed25519.PrivateKey) (userData string, err error) {
	if err := d.check(PublicKeyOf(key.Public().(ed25519.PublicKey))); err != nil {
		return "", fmt.Errorf("sign configuration: %w", err)
	}
	text, err := json.Marshal(d)
	if err != nil {
		return "", fmt.Errorf("sign configuration: %w", err)
	}
	if len(text) > maxDocument {
		return "", fmt.Errorf("sign configuration: %w: %d bytes, at most %d", ErrTooLarge, len(text), maxDocument)
	}
	e := envelope{text, PublicKeyOf(key.Public().(ed25519.PublicKey)), ed25519.Sign(key, append([]byte(domain), text...))}
	if text, err = json.Marshal(e); err != nil {
		return "", fmt.Errorf("sign configuration: %w", err)
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err == nil {
		_, err = z.Write(text)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		return "", fmt.Errorf("sign configuration: %w", err)
	}
	userData = base64.StdEncoding.EncodeToString([]byte(header + prefix + base64.StdEncoding.EncodeToString(packed.Bytes()) + footer))
	if len(userData) > MaxUserData {
		return "", fmt.Errorf("sign configuration: %w: %d bytes, at most %d", ErrTooLarge, len(userData), MaxUserData)
	}
	return userData, nil
}

// check is of what every document has to be.
func (d Document) check(signer PublicKey) error {
	switch {
	case d.Pool == "" || d.Pool != strings.ToLower(d.Pool):
		return fmt.Errorf("pool %.200q is not an ARM id in lower case", d.Pool)
	case d.Generation < 1:
		return fmt.Errorf("generation %d, want 1 or more", d.Generation)
	case len(d.Keys) > MaxKeys:
		return fmt.Errorf("%d accepted keys, want at most %d", len(d.Keys), MaxKeys)
	case len(d.Keys) > 0 && !slices.Contains(d.Keys, signer):
		return errors.New("the accepted keys lack the signer's own")
	}
	for _, k := range append([]PublicKey{signer}, d.Keys...) {
		if _, err := k.Parse(); err != nil {
			return err
		}
	}
	return nil
}

// A Signed is a document whose signature was not checked yet.
type Signed struct {
	e envelope
}

// Read reads userData, in base64 as Azure gives it. What is not a document is ErrNotOurs.
func Read(userData string) (Signed, error) {
	var s Signed
	if len(userData) > MaxUserData {
		return s, fmt.Errorf("read userData: %w: %d bytes, at most %d", ErrTooLarge, len(userData), MaxUserData)
	}
	text, err := base64.StdEncoding.DecodeString(strings.TrimSpace(userData))
	if err != nil {
		return s, fmt.Errorf("read userData: %w: it is no base64", ErrNotOurs)
	}
	packed, found := "", false
	for line := range strings.Lines(string(text)) {
		if packed, found = strings.CutPrefix(strings.TrimSpace(line), prefix); found {
			break
		}
	}
	if !found {
		return s, fmt.Errorf("read userData: %w", ErrNotOurs)
	}
	raw, err := base64.StdEncoding.DecodeString(packed)
	if err != nil {
		return s, fmt.Errorf("read userData: document is no base64: %w", err)
	}
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return s, fmt.Errorf("read userData: unpack document: %w", err)
	}
	// The document is base64 within the envelope.
	const most = maxDocument*4/3 + 4<<10
	unpacked, err := io.ReadAll(io.LimitReader(z, most+1))
	if err != nil {
		return s, fmt.Errorf("read userData: unpack document: %w", err)
	}
	if len(unpacked) > most {
		return s, fmt.Errorf("read userData: %w: unpacked it has more than %d bytes", ErrTooLarge, most)
	}
	if err := strict(unpacked, &s.e); err != nil {
		return s, fmt.Errorf("read userData: read envelope: %w", err)
	}
	return s, nil
}

// Key is who says to have signed it.
func (s Signed) Key() PublicKey { return s.e.Key }

// Verify returns the document where one of the accepted keys signed it; otherwise the error
// is ErrSignature.
func (s Signed) Verify(accepted []PublicKey) (Document, error) {
	if !slices.Contains(accepted, s.e.Key) {
		return Document{}, fmt.Errorf("verify document: %w: it is signed by %.80q", ErrSignature, s.e.Key)
	}
	key, err := s.e.Key.Parse()
	if err != nil {
		return Document{}, fmt.Errorf("verify document: %w: %w", ErrSignature, err)
	}
	if !ed25519.Verify(key, append([]byte(domain), s.e.Document...), s.e.Signature) {
		return Document{}, fmt.Errorf("verify document: %w: the signature is not of this document", ErrSignature)
	}
	return s.document()
}

// Unverified returns the document without a check of its signature: for who shows what is
// there, never for who applies it.
func (s Signed) Unverified() (Document, error) { return s.document() }

// ReadUnverified is Read and Unverified: of userData that was verified before it was kept.
func ReadUnverified(userData string) (Document, error) {
	s, err := Read(userData)
	if err != nil {
		return Document{}, err
	}
	return s.Unverified()
}

func (s Signed) document() (d Document, err error) {
	if err = strict(s.e.Document, &d); err == nil {
		err = d.check(s.e.Key)
	}
	if err != nil {
		return Document{}, fmt.Errorf("read document: %w", err)
	}
	return d, nil
}

// strict decodes one JSON value without unknown fields.
func strict(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the value")
	}
	return nil
}
