package arm

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/ortet/ortet/internal/fleet"
)

// pollFrequency is how often an operation is asked after whose answers have no
// Retry-After.
const pollFrequency = 2 * time.Second

// Resources is Azure Resource Manager by ids and JSON: for what is not of Compute, and
// for what ARM itself does, such as deployments. Unlike Cloud it retries, by the SDK's
// policy, and waits. Its errors are *fleet.Error. It is safe for concurrent use.
type Resources struct{ cloud *Cloud }

// NewResources makes Resources. It sends nothing.
func NewResources(o Options) (*Resources, error) {
	c, err := newCloud(o, policy.RetryOptions{MaxRetries: 4, TryTimeout: o.timeout()})
	if err != nil {
		return nil, err
	}
	return &Resources{c}, nil
}

// LogIn is Cloud.LogIn.
func (r *Resources) LogIn(ctx context.Context) error { return r.cloud.LogIn(ctx) }

// Get reads the JSON at an id. query are names and values. What is missing is
// fleet.KindNotFound.
func (r *Resources) Get(ctx context.Context, id fleet.ResourceID, version string, into any, query ...string) error {
	return failed(ctx, "read", id, r.cloud.get(ctx, r.cloud.address(id, version, query...), into))
}

// List reads all pages of a collection, an item at a time. It ends with the first
// error of each.
func (r *Resources) List(ctx context.Context, id fleet.ResourceID, version string, each func(json.RawMessage) error, query ...string) error {
	err := list(ctx, r.cloud, r.cloud.address(id, version, query...), func(item *json.RawMessage) error { return each(*item) })
	return failed(ctx, "list", id, err)
}

// Send sends what changes something: PUT, PATCH, DELETE, or POST of an action, whose
// path is ID/ACTION. A nil body sends none. The answer may be an operation that runs:
// see Operation.Wait. op is a verb and an object for errors, "deploy".
func (r *Resources) Send(ctx context.Context, op, method string, id fleet.ResourceID, version string, body any, query ...string) (*Operation, error) {
	req, err := runtime.NewRequest(ctx, method, r.cloud.address(id, version, query...))
	if err != nil {
		return nil, failed(ctx, op, id, err)
	}
	req.Raw().Header.Set("Accept", "application/json")
	if body != nil {
		if err := runtime.MarshalAsJSON(req, body); err != nil {
			return nil, failed(ctx, op, id, err)
		}
	}
	resp, err := r.cloud.raw.Pipeline().Do(req) //nolint:bodyclose // the SDK has read and closed it
	if err != nil {
		return nil, failed(ctx, op, id, err)
	}
	if !runtime.HasStatusCode(resp, http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent) {
		return nil, failed(ctx, op, id, runtime.NewResponseError(resp))
	}
	answer, err := runtime.Payload(resp)
	if err != nil {
		return nil, failed(ctx, op, id, err)
	}
	o := &Operation{op: op, id: id, Answer: answer}
	if resp.StatusCode == http.StatusNoContent {
		return o, nil
	}
	if resp.Header.Get("Azure-Asyncoperation") == "" && resp.Header.Get("Location") == "" && resp.StatusCode != http.StatusAccepted {
		return o, nil
	}
	o.poller, err = runtime.NewPoller[json.RawMessage](resp, r.cloud.raw.Pipeline(), nil)
	return o, failed(ctx, op, id, err)
}

// An Operation is a request that was taken.
type Operation struct {
	// Answer is the body of the first answer; it may be empty.
	Answer json.RawMessage

	op     string
	id     fleet.ResourceID
	poller *runtime.Poller[json.RawMessage]
}

// Wait waits until the operation has ended, and gives its result, the resource as it
// is then; empty where there is none. When ctx ends the operation goes on in Azure.
func (o *Operation) Wait(ctx context.Context) (json.RawMessage, error) {
	if o.poller == nil {
		return o.Answer, nil
	}
	result, err := o.poller.PollUntilDone(ctx, &runtime.PollUntilDoneOptions{Frequency: pollFrequency})
	return result, failed(ctx, o.op, o.id, err)
}
