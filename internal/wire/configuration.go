package wire

import "time"

// A node's configuration in place is asked for and answered at its own Node.
const (
	// ConfigurationWanted is the annotation that names the wanted generation, in decimal.
	// It is a doorbell: the agent reads what to do from its userData alone.
	ConfigurationWanted = "ortet.io/configuration-wanted"
	// ConfigurationAnnotation is the annotation with a ConfigurationAnswer as JSON.
	ConfigurationAnnotation = "ortet.io/configuration"
	// ConfigurationCondition is the type of the Node's condition: True for Applied, False
	// for Failed and Refused, Unknown for Applying and Waiting. Its reason and message
	// are the answer's.
	ConfigurationCondition = "ConfigurationApplied"
)

// MaxConfigurationAnswer bounds the annotation, in bytes.
const MaxConfigurationAnswer = 4 << 10

// A ConfigurationState is how far a node is with a generation.
type ConfigurationState string

// The states of a ConfigurationAnswer.
const (
	ConfigurationApplying ConfigurationState = "Applying" // files change, or health is awaited
	ConfigurationApplied  ConfigurationState = "Applied"
	ConfigurationFailed   ConfigurationState = "Failed"  // tried, and the node has what it had before
	ConfigurationRefused  ConfigurationState = "Refused" // not tried: the node is as it was
	ConfigurationWaiting  ConfigurationState = "Waiting" // for the cause in Reason; retried by itself
)

// Reasons of a ConfigurationAnswer, beside "" for Applied and Applying.
const (
	ReasonUserDataOld    = "UserDataOld"        // Waiting: the metadata service has an older generation
	ReasonNodeNotReady   = "NodeNotReady"       // Waiting: the Node was not Ready before
	ReasonSignature      = "SignatureInvalid"   // Refused
	ReasonOtherPool      = "OtherPool"          // Refused: signed for another pool
	ReasonOlder          = "GenerationOlder"    // Refused: the node knows a newer one
	ReasonDocument       = "DocumentInvalid"    // Refused
	ReasonNoDocument     = "NoDocument"         // Refused: the userData is empty, or is not Ortet's
	ReasonNotPrepared    = "NotPrepared"        // Refused: this kubelet or containerd is not set up for it
	ReasonInvalid        = "ConfigurationBad"   // Failed before anything changed: a unit, a path, an owner
	ReasonApply          = "ApplyFailed"        // Failed: a file or a unit could not be changed
	ReasonUnhealthy      = "Unhealthy"          // Failed: units, kubelet or Node were not well in time
	ReasonFailedEarlier  = "FailedEarlier"      // Failed: this generation failed before and is not tried again
	ReasonInterrupted    = "Interrupted"        // Failed: the machine or the agent stopped in the middle
	ReasonRestoreFailed  = "RestoreFailed"      // Failed: the node's earlier configuration could not be restored either
	ReasonNoTrustedKeys  = "NoTrustedKeys"      // Refused: /etc/ortet/config.json names no key
	ReasonMachineUnknown = "MetadataUnreadable" // Waiting: the metadata service does not answer
)

// ConfigurationLog separates the cause in an answer's message from the log of the unit.
const ConfigurationLog = "; its log: "

// A ConfigurationAnswer is a node's report of its configuration.
type ConfigurationAnswer struct {
	Generation int64              `json:"generation"` // that the node has; 0 for none
	Digest     string             `json:"digest,omitempty"`
	Wanted     int64              `json:"wanted,omitempty"` // that State is about
	State      ConfigurationState `json:"state"`
	Reason     string             `json:"reason,omitempty"`
	Message    string             `json:"message,omitempty"` // up to 1 KiB, without secrets
	At         time.Time          `json:"at"`                // when State began
	// Drift are paths of the configuration that another program or person changed since, up
	// to 20.
	Drift []string `json:"drift,omitempty"`
}
