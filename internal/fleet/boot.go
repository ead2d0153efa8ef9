package fleet

import (
	"strings"
	"time"
)

// Flexible is the orchestration mode of a pool whose instances are virtual
// machines of their own.
const Flexible = "Flexible"

// RecreatedAfter is what a machine's creation takes at least when resilient creation deletes it:
// Linux has 8 minutes to be provisioned (azure-compute-docs, resilient-vm-create-delete), less
// one for clocks and for when that begins.
const RecreatedAfter = 7 * time.Minute

// A Boot is what the cloud itself knows of an instance's start, whether or not it
// ever became a node: the instance view of a Uniform pool's instance, or of a
// virtual machine of a Flexible one. Times are zero where the cloud gives none.
type Boot struct {
	Instance ResourceID `json:"instance"`
	Pool     ResourceID `json:"pool"`
	// Flexible tells that Instance is the id of a virtual machine, not of an
	// instance below the pool.
	Flexible bool `json:"flexible"`
	// Overprovisioned is that its pool makes more instances than its capacity, and
	// deletes those that are left once so many are provisioned.
	Overprovisioned bool `json:"overprovisioned,omitempty"`
	// Recreated is that its pool deletes it if its creation times out (Pool.Recreates).
	Recreated bool `json:"recreated,omitempty"`

	Name     string `json:"name"`               // "pool1_3"; "pool1_1c0ffee0" in a Flexible pool
	HostName string `json:"hostName,omitempty"` // "pool1000003"; Node names are lower case
	VMID     string `json:"vmId,omitempty"`     // UUID; a new one for every machine that ever was
	Zone     string `json:"zone,omitempty"`
	// Image is what it was made of: the id of an image version, or
	// "publisher:offer:sku:version"; "" where the cloud does not say.
	Image string `json:"image,omitempty"`

	Created           time.Time  `json:"created,omitzero"`
	ProvisioningState string     `json:"provisioningState,omitempty"` // "Creating", "Succeeded", "Failed", "Deleting"…
	Provisioning      BootStatus `json:"provisioning"`                // why, where it failed
	Power             PowerState `json:"power,omitempty"`

	Agent      Agent             `json:"agent"`
	Extensions []ExtensionStatus `json:"extensions,omitempty"`

	// Console tells that a serial log is kept in the cloud's own storage, from
	// where it can be read. ConsoleStorage is the user's storage account that it
	// is kept in instead.
	Console        bool   `json:"console"`
	ConsoleStorage string `json:"consoleStorage,omitempty"`
}

// Became reports whether a Node is this instance, by the Node's spec.providerID,
// in any letter case. Node names are reused, provider ids of Uniform pools too:
// of machines with the same id, the vmId tells which.
func (b Boot) Became(providerID string) bool {
	return b.Instance != "" && strings.EqualFold(providerID, "azure://"+string(b.Instance))
}

// An Agent is the Azure agent on an instance, as the platform last heard of it.
// It is zero where the platform says nothing: before the start, and of a machine
// that does not run.
type Agent struct {
	Ready   bool      `json:"ready"`
	Version string    `json:"version,omitempty"` // "Unknown" before the agent has reported
	Message string    `json:"message,omitempty"`
	Time    time.Time `json:"time,omitzero"`
}

// An ExtensionStatus is what an extension on an instance last reported.
type ExtensionStatus struct {
	Name        string       `json:"name"`
	Type        string       `json:"type,omitempty"`    // "Microsoft.Azure.Extensions.CustomScript"
	Version     string       `json:"version,omitempty"` // of the handler
	Statuses    []BootStatus `json:"statuses,omitempty"`
	Substatuses []BootStatus `json:"substatuses,omitempty"`
}

// A BootStatus is one status of an instance view. Unknown words are kept as they
// are.
type BootStatus struct {
	Code    string    `json:"code,omitempty"`   // whole, as the cloud gives it
	Name    string    `json:"name,omitempty"`   // of a substatus: "StdOut"
	State   string    `json:"state,omitempty"`  // "succeeded", "failed", "transitioning", "creating"…; lower case
	Reason  string    `json:"reason,omitempty"` // what follows: a number, or "OSProvisioningTimedOut"
	Level   string    `json:"level,omitempty"`  // Info, Warning, Error
	Display string    `json:"display,omitempty"`
	Message string    `json:"message,omitempty"`
	Time    time.Time `json:"time,omitzero"`
}

// Failed reports a status that says so, by its state or by its level.
func (s BootStatus) Failed() bool { return s.State == "failed" || strings.EqualFold(s.Level, "Error") }

// Final reports a status that is not expected to change by itself.
func (s BootStatus) Final() bool { return s.State == "succeeded" || s.State == "failed" }

// ParseStatusCode reads the code of a status:
//
//	ProvisioningState/succeeded                      state succeeded
//	ProvisioningState/failed/OSProvisioningTimedOut  state failed, reason
//	ComponentStatus/StdOut/succeeded                 name StdOut, state succeeded
//	ComponentStatus/kubelet/failed/7                 and reason 7
//
// A name may hold slashes: the state is the last of what is no number. A code of
// another form has its second part as state, and what has no second part has none.
func ParseStatusCode(code string) (name, state, reason string) {
	kind, rest, ok := strings.Cut(code, "/")
	if !ok {
		return "", "", ""
	}
	if !strings.EqualFold(kind, "ComponentStatus") {
		state, reason, _ = strings.Cut(rest, "/")
		return "", strings.ToLower(state), reason
	}
	parts := strings.Split(rest, "/")
	if n := len(parts); n > 2 && isNumber(parts[n-1]) {
		reason, parts = parts[n-1], parts[:n-1]
	}
	n := len(parts) - 1
	return strings.Join(parts[:n], "/"), strings.ToLower(parts[n]), reason
}

func isNumber(s string) bool {
	s = strings.TrimPrefix(s, "-")
	return s != "" && strings.Trim(s, "0123456789") == ""
}
