package admission

import (
	"net/http"

	"github.com/ortet/ortet/internal/admission/attest"
)

// A Reason is why a request was not granted, or Granted. It stands in the answer,
// in the audit log and in the metrics.
type Reason string

// Granted is the reason of what is not refused.
const Granted Reason = "Granted"

// Reasons of refusals, in the order of the checks.
const (
	NotFound              Reason = "NotFound"
	MethodNotAllowed      Reason = "MethodNotAllowed"
	RateLimited           Reason = "RateLimited"
	Overloaded            Reason = "Overloaded"
	NotJSON               Reason = "NotJSON"
	TooLarge              Reason = "TooLarge"
	TooSlow               Reason = "TooSlow"
	BadRequest            Reason = "BadRequest"
	NoProof               Reason = "NoProof"
	BadProof              Reason = "BadProof"
	NonceForged           Reason = "NonceForged"
	NonceExpired          Reason = "NonceExpired"
	BadResourceID         Reason = "BadResourceID"
	PoolNotAllowed        Reason = "PoolNotAllowed"
	SignatureInvalid      Reason = "SignatureInvalid"
	ForeignDocument       Reason = "DocumentForeignSubscription"
	InstanceGone          Reason = "InstanceGone"
	CloudUnavailable      Reason = "CloudUnavailable"
	VMIDMismatch          Reason = "VMIDMismatch"
	BadHostName           Reason = "BadHostName"
	CanaryNotAdmitted     Reason = "CanaryNotAdmitted"
	NodeReady             Reason = "NodeReady"
	KubeletHeard          Reason = "KubeletHeard"
	NameTaken             Reason = "NameTaken"
	NonceSpent            Reason = "NonceSpent"
	CallbackPortForbidden Reason = "CallbackPortForbidden"
	CallbackFailed        Reason = "CallbackFailed"
	CallbackWrongKey      Reason = "CallbackWrongKey"
	Revoked               Reason = "Revoked"
	ClusterChanged        Reason = "ClusterChanged"
	ClusterUnavailable    Reason = "ClusterUnavailable"
	BadCertificate        Reason = "BadCertificate"
	NotANode              Reason = "NotANode"
	NodeUnknown           Reason = "NodeUnknown"
	CertificateTooOld     Reason = "CertificateTooOld"
	CertificateNeeded     Reason = "CertificateNeeded"
	DocumentInsufficient  Reason = "DocumentInsufficient"
	ForeignReport         Reason = "ForeignReport"
	Canceled              Reason = "Canceled"
	Internal              Reason = "Internal"
)

// A Meaning explains a reason, to the audit log's reader and to the node.
type Meaning struct {
	Reason Reason
	Status int
	// Final: asking again cannot help until somebody changes something.
	Final bool
	// Told is the message of the answer. It is the same for everybody.
	Told string
	// Remedy is what an operator can do.
	Remedy string
}

// Reasons returns every reason of a refusal, in the order of the checks. A certificate
// that proves nothing is 401: the node then proves by a document. docs/reference/admission.md lists them.
func Reasons() []Meaning {
	return []Meaning{
		{NotFound, http.StatusNotFound, true, "there is nothing at this path", "compare the agent's and the server's versions"},
		{MethodNotAllowed, http.StatusMethodNotAllowed, true, "only POST is answered", "compare the agent's and the server's versions"},
		{RateLimited, http.StatusTooManyRequests, false, "too many requests", "see who asks so often in the audit log: an address, or one machine, whose vmId or node it names; where all nodes come from one address, keep it with externalTrafficPolicy: Local or raise --rate-per-address"},
		{Overloaded, http.StatusServiceUnavailable, false, "too many requests are being worked on", "none where it passes; add a replica or raise --max-in-flight"},
		{NotJSON, http.StatusUnsupportedMediaType, true, "the request's content type is not application/json", "compare the agent's and the server's versions"},
		{TooLarge, http.StatusRequestEntityTooLarge, true, "the request is too large", "compare the agent's and the server's versions"},
		{TooSlow, http.StatusRequestTimeout, false, "the request did not arrive in time", "look at the network between the node and the server"},
		{BadRequest, http.StatusBadRequest, true, "the request cannot be read", "the audit log says why; compare the agent's and the server's versions"},
		{NoProof, http.StatusUnauthorized, true, "the request needs a proof", "compare the agent's and the server's versions"},
		{BadProof, http.StatusUnauthorized, true, "the proof cannot be read", "the audit log says why; compare the agent's and the server's versions"},
		{NonceForged, http.StatusUnauthorized, false, "the nonce is not of this server", "none: the node asks for a new nonce. If it stays, replicas have different keys: see the Secret of the nonces' key"},
		{NonceExpired, http.StatusUnauthorized, false, "the nonce has expired", "none: the node asks for a new nonce. If it stays, the metadata service answers slower than in a minute, or replicas' clocks differ"},
		{BadResourceID, http.StatusForbidden, true, "the resource id is not that of a scale set's instance", "the machine is in no scale set, or the request is not from our agent"},
		{PoolNotAllowed, http.StatusForbidden, true, "the scale set is not admitted here", "name the scale set by --pool, if its machines are to join"},
		{SignatureInvalid, http.StatusUnauthorized, true, "the request is not signed by its key", "somebody changed the request on its way, or made it up"},

		{Reason(attest.Malformed), http.StatusUnauthorized, false, "the attested document cannot be read", "the audit log says why"},
		{Reason(attest.NotOneSigner), http.StatusUnauthorized, true, "the attested document has not one signer", "somebody made it up"},
		{Reason(attest.Forged), http.StatusUnauthorized, true, "the attested document's signature is wrong", "somebody changed it"},
		{Reason(attest.ForeignSigner), http.StatusUnauthorized, true, "the attested document is not signed by the metadata service", "somebody made it up, or --attestation-domain names another cloud"},
		{Reason(attest.WrongNonce), http.StatusUnauthorized, false, "the attested document was made for another nonce", "none: the metadata service may give a document that it had kept, and the node asks again; if it stays, somebody replays documents"},
		{Reason(attest.NotYet), http.StatusUnauthorized, false, "the attested document is from the future", "set the clock of the server's machine"},
		{Reason(attest.TooOld), http.StatusUnauthorized, false, "the attested document is too old", "none: the node asks again; if it stays, set the clock of the server's machine"},
		{Reason(attest.Expired), http.StatusUnauthorized, false, "the attested document has expired", "none: the node asks again; if it stays, set the clock of the server's machine"},
		{Reason(attest.Untrusted), http.StatusUnauthorized, false, "the attested document's certificate is not trusted", "the audit log names the issuer: if it is one of Microsoft's, give its root with --attestation-roots"},
		{Reason(attest.Unreachable), http.StatusServiceUnavailable, false, "an intermediate certificate cannot be had", "let the server reach " + attest.Publication + " and caissuers.microsoft.com, or give the intermediate certificates with --attestation-intermediates"},

		{ForeignDocument, http.StatusForbidden, true, "the attested document is of another subscription", "somebody uses another subscription's machine"},
		{InstanceGone, http.StatusForbidden, false, "Azure has no such instance", "none for an instance that was deleted; one that is new is found a little later"},
		{CloudUnavailable, http.StatusServiceUnavailable, false, "Azure cannot be asked", "the audit log says why: permissions, throttling or the network"},
		{VMIDMismatch, http.StatusForbidden, true, "the instance is another machine", "somebody uses another machine's document; or the instance was made anew under the same id, and the node's agent has the old one's"},
		{CanaryNotAdmitted, http.StatusForbidden, false, "the scale set is a canary, which is not admitted now", "run its capture again if that was killed; else somebody made a scale set of a canary's name, and the audit log says what it lacks"},
		{BadHostName, http.StatusForbidden, true, "the instance's computer name is no name of a Node", "change the scale set's computer name prefix"},
		{NodeReady, http.StatusConflict, false, "a Node of this name is Ready", "none where the machine was just made or reimaged: it is admitted once the old machine's Lease is a minute old; else somebody uses a running node's identity"},
		{KubeletHeard, http.StatusConflict, false, "the kubelet of a Node of this name was heard of in the last minute", "none where the machine was just made anew or restarted, or its Node was deleted: it is admitted within minutes; else a pod asks in its node's name: keep pods from the metadata service"},
		{NameTaken, http.StatusConflict, false, "the node name belongs to another instance", "none where the other machine is gone: the reaper frees its name; else give each scale set a computer name prefix of its own"},
		{NonceSpent, http.StatusConflict, false, "the nonce was used before", "none where the node asks with a new nonce; else somebody replays requests"},
		{CallbackPortForbidden, http.StatusForbidden, true, "nodes are not called back at this port", "set --callback-port to what the nodes have in their settings; else a pod asks in its node's name"},
		{CallbackFailed, http.StatusForbidden, false, "nobody answered at the instance's address", "let the server reach the nodes' callback port; a pod that asks in its node's name has another address"},
		{CallbackWrongKey, http.StatusForbidden, false, "who answered at the instance's address has another key", "another process of the machine listens at that port, or somebody asks in its name"},
		{Revoked, http.StatusForbidden, true, "the machine was revoked", "delete the instance: an operator ran ortet admission revoke. If that was a mistake, remove the key revoked_VMID from the ConfigMap ortet-admitted"},
		{ClusterChanged, http.StatusConflict, false, "what the cluster holds of the node changed meanwhile", "none: the node asks again; if it stays, the audit log names what goes on changing"},
		{ClusterUnavailable, http.StatusServiceUnavailable, false, "the cluster cannot be asked", "the audit log says why: permissions, or the API server is away"},

		{BadCertificate, http.StatusUnauthorized, true, "the client certificate is not of this cluster, or not valid now", "the node proves by an attested document instead"},
		{NotANode, http.StatusForbidden, true, "the client certificate is not a node's", "somebody uses another certificate of the cluster"},
		{NodeUnknown, http.StatusUnauthorized, true, "the certificate's Node has no instance in an admitted scale set", "the node proves by an attested document instead"},
		{CertificateTooOld, http.StatusUnauthorized, true, "the client certificate is older than the instance or its admission", "it is of an earlier machine of the same name, or of this one before it was made anew; the node proves by an attested document instead"},
		{CertificateNeeded, http.StatusForbidden, false, "a Node that is Ready, or whose kubelet was heard of in the last minute, leaves by its kubelet's certificate", "none for a machine whose kubelet stopped just now: its agent asks again; else the agent cannot read the kubelet's certificate; or a pod asks in its node's name: keep pods from the metadata service"},
		{DocumentInsufficient, http.StatusForbidden, true, "an attested document deletes no Node", "none: the reaper deletes the Node once Azure has no such machine; else the agent cannot read the kubelet's certificate, or a pod asks in its node's name"},
		{ForeignReport, http.StatusForbidden, true, "the report is of another machine", "somebody reports in another's name"},
		{Canceled, http.StatusServiceUnavailable, false, "the request was given up", "none: the node went away, or gave up waiting, or this server ends, and the node asks again, or drains itself"},
		{Internal, http.StatusInternalServerError, false, "the server failed", "report it, with the line of the audit log"},
	}
}

// meanings is Reasons by reason.
func meanings() map[Reason]Meaning {
	all := map[Reason]Meaning{}
	for _, m := range Reasons() {
		all[m.Reason] = m
	}
	return all
}
