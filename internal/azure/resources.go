package azure

import (
	"context"
	"encoding/json"
	"net/http"

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

// SendAndWait sends what changes something, and waits for its end.
func SendAndWait(ctx context.Context, r Resources, op, method string, id fleet.ResourceID, version string, body any) error {
	o, err := r.Send(ctx, op, method, id, version, body)
	if err == nil {
		_, err = o.Wait(ctx)
	}
	return err
}

// MergeTags adds tags to those of a resource or group by the API of tags, which is no write of
// the resource.
func MergeTags(ctx context.Context, r Resources, id fleet.ResourceID, tags map[string]string) error {
	return patchTags(ctx, r, "tag ", id, "Merge", tags)
}

// DeleteTags removes tags as MergeTags adds them. The values are those that they have.
func DeleteTags(ctx context.Context, r Resources, id fleet.ResourceID, tags map[string]string) error {
	return patchTags(ctx, r, "remove tags of ", id, "Delete", tags)
}

func patchTags(ctx context.Context, r Resources, op string, id fleet.ResourceID, operation string, tags map[string]string) error {
	return SendAndWait(ctx, r, op+id.Name(), http.MethodPatch, id+"/providers/Microsoft.Resources/tags/default", "2021-04-01",
		map[string]any{"operation": operation, "properties": map[string]any{"tags": tags}})
}
