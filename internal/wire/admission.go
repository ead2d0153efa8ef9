package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Paths of the admission server. All take POST with JSON and answer with JSON: of the
// path's types, or a Refusal with a status of 4xx or 5xx.
const (
	NoncePath   = "/v1/nonce"   // {} → Nonce; needs no proof
	JoinPath    = "/v1/join"    // JoinRequest → Join; needs a Proof
	LeavePath   = "/v1/leave"   // LeaveRequest → Leave; answered when the node is drained or its time is up
	LeftPath    = "/v1/left"    // LeftRequest → {}; the node's agent stands still, its Node may go
	BackPath    = "/v1/back"    // {} → {}; what a leave was for is over, or did not come: the Node takes pods again
	VerdictPath = "/v1/verdict" // Verdict → {}
	BootPath    = "/v1/boot"    // BootReport → {}
)

// ProofScheme is the scheme of the Authorization header that carries a Proof: a
// request is proven by it, or by the kubelet's client certificate. Nonce and join
// take no certificate.
const ProofScheme = "Ortet"

// Bounds of what crosses in an admission.
const (
	MaxAdmission    = 64 << 10 // bytes of a request's or an answer's JSON
	MaxProof        = 24 << 10 // bytes of a Proof's header
	maxNonce        = 128
	maxDocument     = 16 << 10 // bytes, in base64
	maxKey          = 512      // bytes of a public key or a signature
	maxResourceID   = 1 << 10
	maxReason       = 64
	maxLeave        = 15 * 60 // seconds; Azure's longest notice before a Terminate
	attestedNonce   = 32      // characters; Azure takes no more
	maxCause        = 64
	maxDistribution = 16
)

// Nonce is what the server wants to see in the document that Azure signs. It is
// used once.
type Nonce struct {
	Nonce   string    `json:"nonce"`
	Expires time.Time `json:"expires"`
}

// Proof proves the client, and that this request is its own: Azure's document names the
// machine and, by its nonce, the key; the key signs the request.
type Proof struct {
	ResourceID string `json:"resourceId"` // ARM id of the instance, as the metadata service spells it
	Nonce      string `json:"nonce"`      // the server's
	PublicKey  []byte `json:"publicKey"`  // PKIX, ASN.1 DER: ECDSA on P-256
	Document   string `json:"document"`   // base64 PKCS7, "signature" of /metadata/attested/document
	Signature  []byte `json:"signature"`  // ASN.1 DER, over SHA-256 of SignedText
}

// AttestedNonce is the nonce that Azure is asked to sign: hex(SHA-256(nonce ‖ public
// key ‖ resource id)), cut to the 32 characters that it takes.
func AttestedNonce(nonce string, publicKey []byte, resourceID string) string {
	sum := sha256.Sum256([]byte(nonce + string(publicKey) + resourceID))
	return hex.EncodeToString(sum[:])[:attestedNonce]
}

// SignedText is what the key signs of a POST: its path, its body and its nonce, so that
// neither a proof nor a body can be used for another.
func SignedText(path string, body []byte, nonce string) []byte {
	sum := sha256.Sum256(body)
	return []byte("ortet admission 1\n" + path + "\n" + hex.EncodeToString(sum[:]) + "\n" + nonce + "\n")
}

// Bytes of a callback: the server connects and sends a challenge of ChallengeSize
// random bytes; the node sends the length of its signature in one byte, the signature
// (ASN.1 DER, over SHA-256 of CallbackText), and ends the connection. Nothing in it is
// secret, so there is no TLS about it, whose server's half is a hundred kilobytes of
// the agent.
const (
	ChallengeSize        = 32
	MaxCallbackSignature = 72 // of ECDSA on P-256
)

// CallbackText is what the key signs of a challenge.
func CallbackText(challenge []byte) []byte {
	return []byte("ortet callback 1\n" + hex.EncodeToString(challenge) + "\n")
}

// Header is the value of the Authorization header.
func (p Proof) Header() (string, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return "", err
	}
	return ProofScheme + " " + base64.RawURLEncoding.EncodeToString(text), nil
}

// ParseProof reads an Authorization header of ProofScheme strictly.
func ParseProof(header string) (Proof, error) {
	var p Proof
	if len(header) > MaxProof {
		return p, fmt.Errorf("a proof of %d bytes, more than %d", len(header), MaxProof)
	}
	scheme, text, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, ProofScheme) {
		return p, fmt.Errorf("no proof of the scheme %s", ProofScheme)
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return p, fmt.Errorf("a proof: %w", err)
	}
	if err := decodeStrictly("a proof", raw, MaxProof, &p); err != nil {
		return Proof{}, err
	}
	if err := p.Validate(); err != nil {
		return Proof{}, fmt.Errorf("a proof: %w", err)
	}
	return p, nil
}

// Validate returns what is wrong with a proof's form; nil when nothing is.
func (p Proof) Validate() error {
	if p.Nonce == "" || p.ResourceID == "" || p.Document == "" || len(p.PublicKey) == 0 || len(p.Signature) == 0 {
		return errors.New("want resourceId, nonce, publicKey, document and signature")
	}
	if len(p.PublicKey) > maxKey || len(p.Signature) > maxKey {
		return fmt.Errorf("a public key of %d and a signature of %d bytes, want at most %d", len(p.PublicKey), len(p.Signature), maxKey)
	}
	if strings.Trim(p.Nonce, base64URL) != "" {
		return errors.New("a nonce that is no base64url")
	}
	return errors.Join(checkText("nonce", p.Nonce, maxNonce), checkText("resourceId", p.ResourceID, maxResourceID), checkText("document", p.Document, maxDocument))
}

const base64URL = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// Distributions: whose agent it is that joins.
const (
	Kubelet = "kubelet" // an upstream kubelet that bootstraps by TLS, also kubeadm's
	K3s     = "k3s"
	RKE2    = "rke2"
)

// JoinRequest asks for credentials to join with.
type JoinRequest struct {
	// Distribution is Kubelet, K3s or RKE2.
	Distribution string `json:"distribution"`
	// CallbackPort is where the node answers challenges with its key until it is answered
	// itself: the server connects there, at the address that Azure assigned to the
	// instance. See CallbackText.
	CallbackPort int `json:"callbackPort"`
}

// Validate returns what is wrong with a request; nil when nothing is.
func (r JoinRequest) Validate() error {
	switch r.Distribution {
	case Kubelet, K3s, RKE2:
	default:
		return fmt.Errorf("unknown distribution %q, want %s, %s or %s", clip(r.Distribution), Kubelet, K3s, RKE2)
	}
	if r.CallbackPort < 1 || r.CallbackPort > 65535 {
		return fmt.Errorf("a callbackPort of %d, want 1 to 65535", r.CallbackPort)
	}
	return nil
}

// Join is what a node joins with. It is a secret: the token is good for its
// Node's name until it expires or the Node is Ready.
type Join struct {
	NodeName   string `json:"nodeName"`   // computer name in lower case; no other is admitted
	ProviderID string `json:"providerId"` // "azure:///subscriptions/…"
	Pool       string `json:"pool"`       // ARM id of the scale set
	VMID       string `json:"vmId"`       // in lower case
	// Server is the API server's address, or that of k3s's or RKE2's supervisor.
	Server string `json:"server"`
	CA     []byte `json:"ca"` // PEM, of who signs the API server's certificate
	// Token is "id.secret"; for k3s and RKE2 "K10<SHA-256 of CA>::id.secret", which
	// pins the CA.
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
}

// LeaveRequest reports that a node leaves.
type LeaveRequest struct {
	// Cause is an event's type, as "Preempt", or "Shutdown", "Asked".
	Cause string `json:"cause"`
	// Within is how much time is left, in seconds: grace periods are cut to fit.
	Within int `json:"withinSeconds"`
	// Stay keeps the Node and what belongs to it: the machine comes back, as after a
	// Reboot. The node is cordoned and drained only.
	Stay bool `json:"stay,omitempty"`
}

// Validate returns what is wrong with a request; nil when nothing is.
func (r LeaveRequest) Validate() error {
	if !camelCase(r.Cause) || r.Cause == "" || len(r.Cause) > maxCause {
		return fmt.Errorf("a cause %q, want a word such as Preempt", clip(r.Cause))
	}
	if r.Within < 1 || r.Within > maxLeave {
		return fmt.Errorf("withinSeconds of %d, want 1 to %d", r.Within, maxLeave)
	}
	return nil
}

// Leave is how far a node was drained.
type Leave struct {
	Drained bool     `json:"drained"`
	Left    []string `json:"left,omitempty"` // pods that are there still, "namespace/name"
}

// LeftRequest reports that a node's agent is stopped for good.
type LeftRequest struct {
	Cause string `json:"cause"`
}

// Validate returns what is wrong with a request; nil when nothing is.
func (r LeftRequest) Validate() error {
	if !camelCase(r.Cause) || r.Cause == "" || len(r.Cause) > maxCause {
		return fmt.Errorf("a cause %q, want a word such as Preempt", clip(r.Cause))
	}
	return nil
}

// Refusal is why a request was not granted.
type Refusal struct {
	Reason  string `json:"reason"`  // CamelCase, as in the audit log: docs/reference/admission.md lists all
	Message string `json:"message"` // for a person; has nothing that a stranger does not know
	// Final means that a retry cannot help: the machine gets the same answer until
	// something is changed.
	Final bool `json:"final,omitempty"`
	// After is how long to wait before a retry, in seconds; 0 where the server sets none.
	After int `json:"retryAfterSeconds,omitempty"`
}

// ParseRefusal reads the answer of a server that did not grant; anything else than a
// Refusal returns false.
func ParseRefusal(text []byte) (Refusal, bool) {
	var r Refusal
	if err := decodeStrictly("a refusal", text, MaxAdmission, &r); err != nil || !camelCase(r.Reason) || r.Reason == "" || len(r.Reason) > maxReason {
		return Refusal{}, false
	}
	if checkText("message", r.Message, maxMessage) != nil || r.After < 0 || r.After > 3600 {
		return Refusal{}, false
	}
	return r, true
}

// ParseAnswer reads what the server grants, within MaxAdmission. The node knows its
// server, which may be newer than it: fields that it does not know are left out.
func ParseAnswer[T any](text []byte) (T, error) {
	var v T
	if len(text) > MaxAdmission {
		return v, fmt.Errorf("an answer of %d bytes, more than %d", len(text), MaxAdmission)
	}
	if err := json.Unmarshal(text, &v); err != nil {
		var none T
		return none, fmt.Errorf("reading the admission server's answer: %w", err)
	}
	return v, nil
}

// ParseAdmission reads what a node asks of the admission server strictly: no unknown
// field, nothing after the object, within MaxAdmission.
func ParseAdmission[T any](text []byte) (T, error) {
	var v T
	err := decodeStrictly("a request of a node", text, MaxAdmission, &v)
	if c, ok := any(v).(interface{ Validate() error }); ok && err == nil {
		err = c.Validate()
	}
	if err != nil {
		var none T
		return none, err
	}
	return v, nil
}

// decodeStrictly takes one object, of up to most bytes.
func decodeStrictly(what string, text []byte, most int, v any) error {
	if len(text) > most {
		return fmt.Errorf("%s: %d bytes, more than %d", what, len(text), most)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if rest := bytes.TrimSpace(text[d.InputOffset():]); len(rest) > 0 {
		return fmt.Errorf("%s: something follows the object", what)
	}
	return nil
}
