package arm

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

// pollFrequency is how often an operation is asked after whose answers have no
// Retry-After.
const pollFrequency = 2 * time.Second

// Resources is azure.Resources; it retries by the SDK's policy.
type Resources struct{ cloud *Cloud }

var _ azure.Resources = (*Resources)(nil)

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

// Get implements azure.Resources.
func (r *Resources) Get(ctx context.Context, id fleet.ResourceID, version string, into any, query ...string) error {
	return failed(ctx, "read", id, r.cloud.get(ctx, r.cloud.address(id, version, query...), into))
}

// List implements azure.Resources.
func (r *Resources) List(ctx context.Context, id fleet.ResourceID, version string, each func(json.RawMessage) error, query ...string) error {
	err := list(ctx, r.cloud, r.cloud.address(id, version, query...), func(item *json.RawMessage) error { return each(*item) })
	return failed(ctx, "list", id, err)
}

// Send implements azure.Resources.
func (r *Resources) Send(ctx context.Context, op, method string, id fleet.ResourceID, version string, body any, query ...string) (azure.Operation, error) {
	req, err := runtime.NewRequest(ctx, method, r.cloud.address(id, version, query...))
	if err != nil {
		return nil, failed(ctx, op, id, err)
	}
	req.Raw().Header.Set("Accept", "application/json")
	if etag := azure.MatchOf(ctx); etag != "" {
		req.Raw().Header.Set("If-Match", etag)
	}
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
	o := &sent{op: op, id: id, answer: answer}
	if resp.StatusCode == http.StatusNoContent {
		return o, nil
	}
	// The Location of a 201 is what was created (identities: a path), not an operation.
	if resp.Header.Get("Azure-Asyncoperation") == "" && resp.StatusCode != http.StatusAccepted {
		return o, nil
	}
	o.poller, err = runtime.NewPoller[json.RawMessage](resp, r.cloud.raw.Pipeline(), nil)
	return o, failed(ctx, op, id, err)
}

// A sent is azure.Operation.
type sent struct {
	answer json.RawMessage

	op     string
	id     fleet.ResourceID
	poller *runtime.Poller[json.RawMessage]
}

func (o *sent) Answer() json.RawMessage { return o.answer }

func (o *sent) Wait(ctx context.Context) (json.RawMessage, error) {
	if o.poller == nil {
		return o.answer, nil
	}
	result, err := o.poller.PollUntilDone(ctx, &runtime.PollUntilDoneOptions{Frequency: pollFrequency})
	return result, failed(ctx, o.op, o.id, err)
}
