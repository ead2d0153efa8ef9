package azure

import (
	"context"
	"encoding/json"

	"github.com/ortet/ortet/internal/fleet"
)

// Resources is Azure Resource Manager by ids and JSON: for what is not of Compute, and
// for what ARM itself does, such as deployments. Unlike Cloud it retries and waits. Its
// errors are *fleet.Error. It is safe for concurrent use.
type Resources interface {
	// Get reads the JSON at an id. query are names and values. What is missing is
	// fleet.KindNotFound.
	Get(ctx context.Context, id fleet.ResourceID, version string, into any, query ...string) error
	// List reads all pages of a collection, an item at a time. It ends with the first
	// error of each.
	List(ctx context.Context, id fleet.ResourceID, version string, each func(json.RawMessage) error, query ...string) error
	// Send sends what changes something: PUT, PATCH, DELETE, or POST of an action, whose
	// path is ID/ACTION. A nil body sends none. The answer may be an operation that runs:
	// see Operation. op is a verb and an object for errors, "deploy".
	Send(ctx context.Context, op, method string, id fleet.ResourceID, version string, body any, query ...string) (Operation, error)
}

// An Operation is a request that Azure accepted.
type Operation interface {
	// Answer is the body of the first answer; it may be empty.
	Answer() json.RawMessage
	// Wait waits until the operation has ended, and gives its result, the resource as it
	// is then; empty where there is none. When ctx ends the operation goes on in Azure.
	Wait(ctx context.Context) (json.RawMessage, error)
}
