// Package arm is the adapter of azure.Cloud to Azure Resource Manager, on the
// Azure SDK's clients and at their API versions.
//
// It does not retry and does not wait: each read is as many requests as Azure
// needs to answer it, each Begin at most a GET and the change, each Poll one
// request. Retrying is the azure package's decorator, waiting the engine's.
// Nothing outlives a call: no goroutines, no answers, and no connections but
// those of the transport that it is given.
package arm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	azarm "github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

// Defaults of Options.
const (
	DefaultRequestTimeout = time.Minute
	DefaultMaxBody        = 64 << 20
)

// maxPages ends a list whose pages never do. Azure's longest lists here, a
// subscription's VMs, have some hundred pages.
const maxPages = 5000

// Options are what a Cloud needs.
type Options struct {
	// Cloud says where Azure is; its ResourceManager service must be set.
	Cloud      cloud.Configuration
	Credential azcore.TokenCredential
	// Transport carries the requests. nil is the SDK's own client, which trusts
	// the system's authorities only.
	Transport policy.Transporter
	// Version is Ortet's, for the user agent "ortet/<version>".
	Version string
	// RequestTimeout bounds one request with its answer; 0 is
	// DefaultRequestTimeout.
	RequestTimeout time.Duration
	// MaxBody bounds one answer's body in bytes; 0 is DefaultMaxBody.
	MaxBody int64
}

// Cloud is azure.Cloud by Azure Resource Manager. It is safe for concurrent use.
type Cloud struct {
	credential azcore.TokenCredential
	options    *azarm.ClientOptions
	raw        *azarm.Client
	endpoint   *url.URL
	audience   string // of tokens

	// For storage, which is not asked through the pipeline with our token.
	transport policy.Transporter
	agent     string
	timeout   time.Duration
	maxBody   int64

	clock    fleet.Clock
	flexible sync.Map // bool, of scale sets by their ids in lower case: it changes only with another set of the name

	mu        sync.Mutex
	factories map[string]*armcompute.ClientFactory // by subscription, lower case
	pollers   map[fleet.Token]*poller              // of operations that run
}

var _ azure.Cloud = (*Cloud)(nil)

func (o Options) timeout() time.Duration {
	if o.RequestTimeout <= 0 {
		return DefaultRequestTimeout
	}
	return o.RequestTimeout
}

// New makes a Cloud. It sends nothing.
func New(o Options) (*Cloud, error) {
	return newCloud(o, policy.RetryOptions{MaxRetries: -1, TryTimeout: o.timeout()})
}

func newCloud(o Options, retry policy.RetryOptions) (*Cloud, error) {
	fail := func(err error) (*Cloud, error) {
		return nil, &fleet.Error{Op: "set up the Azure client", Kind: fleet.KindInvalid, Err: err}
	}
	if o.Credential == nil {
		return fail(errors.New("no credential"))
	}
	endpoint, err := url.Parse(o.Cloud.Services[cloud.ResourceManager].Endpoint)
	if err != nil {
		return fail(fmt.Errorf("resource manager endpoint: %w", err))
	}
	if endpoint.Scheme != "https" || endpoint.Host == "" {
		return fail(fmt.Errorf("resource manager endpoint %q is no https URL", endpoint))
	}
	if o.MaxBody <= 0 {
		o.MaxBody = DefaultMaxBody
	}
	if o.Transport == nil {
		o.Transport = http.DefaultClient
	}
	version := cmp.Or(o.Version, "dev")
	c := &Cloud{credential: o.Credential, endpoint: endpoint, audience: o.Cloud.Services[cloud.ResourceManager].Audience, factories: map[string]*armcompute.ClientFactory{}, pollers: map[fleet.Token]*poller{},
		transport: o.Transport, agent: "ortet/" + version, timeout: o.timeout(), maxBody: o.MaxBody}
	c.options = &azarm.ClientOptions{
		// Registering a provider changes the subscription: that is the
		// operator's to do.
		DisableRPRegistration: true,
		ClientOptions: policy.ClientOptions{
			Cloud:            o.Cloud,
			Transport:        &boundedTransport{o.Transport, o.MaxBody, &c.clock},
			Retry:            retry,
			Telemetry:        policy.TelemetryOptions{ApplicationID: "ortet/" + version},
			PerCallPolicies:  []policy.Policy{&homePolicy{endpoint}},
			PerRetryPolicies: nil,
		},
	}
	c.raw, err = azarm.NewClient("ortet", "v0.0.0", o.Credential, c.options)
	if err != nil {
		return fail(err)
	}
	return c, nil
}

// Now is Azure's time.
func (c *Cloud) Now() time.Time { return c.clock.At(time.Now()) }

// LogIn gets a token, which the credential keeps for the requests that follow,
// so that credentials which are wrong are known before anything else is asked.
// Its error is fleet.KindUnauthenticated where they are refused.
func (c *Cloud) LogIn(ctx context.Context) error {
	_, err := c.credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{c.audience + "/.default"}})
	return failed(ctx, opLogIn, "", err)
}

// compute returns the clients of the id's subscription.
func (c *Cloud) compute(id fleet.ResourceID) (*armcompute.ClientFactory, error) {
	key := strings.ToLower(id.Segment("subscriptions"))
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.factories[key]; f != nil {
		return f, nil
	}
	f, err := armcompute.NewClientFactory(id.Segment("subscriptions"), c.credential, c.options)
	if err != nil {
		return nil, err
	}
	c.factories[key] = f
	return f, nil
}

// A place is a parsed id: the clients of its subscription, its resource group,
// and its own names from the outside in.
type place struct {
	*armcompute.ClientFactory
	group string
	names []string
	below fleet.ResourceID // what Compute has in the resource group
	id    fleet.ResourceID // as Azure writes it
}

// at parses the id of a compute resource of the type, "galleries/images", or
// refuses it.
func (c *Cloud) at(id fleet.ResourceID, typ string) (place, error) {
	kinds := strings.Split(typ, "/")
	parts := strings.Split(strings.TrimPrefix(string(id), "/"), "/")
	wrong := &fleet.Error{Kind: fleet.KindInvalid, Err: fmt.Errorf("%q is not the id of a Microsoft.Compute/%s", id, typ)}
	if len(parts) != 6+2*len(kinds) || !strings.HasPrefix(string(id), "/") ||
		!strings.EqualFold(parts[0], "subscriptions") || !strings.EqualFold(parts[2], "resourceGroups") ||
		!strings.EqualFold(parts[4], "providers") || !strings.EqualFold(parts[5], "Microsoft.Compute") {
		return place{}, wrong
	}
	p := place{group: parts[3], below: fleet.ResourceID("/subscriptions/" + parts[1] + "/resourceGroups/" + parts[3] + "/providers/Microsoft.Compute/")}
	p.id = p.below[:len(p.below)-1]
	for i, kind := range kinds {
		if !strings.EqualFold(parts[6+2*i], kind) {
			return place{}, wrong
		}
		p.names = append(p.names, parts[7+2*i])
		p.id = p.id.Child(kind, parts[7+2*i])
	}
	for _, s := range append([]string{parts[1], parts[3]}, p.names...) {
		if !fleet.ValidName(s) {
			return place{}, wrong
		}
	}
	f, err := c.compute(id)
	if err != nil {
		return place{}, &fleet.Error{Kind: fleet.KindInvalid, Err: err}
	}
	p.ClientFactory = f
	return p, nil
}

func text[T ~string](p *T) string {
	if p == nil {
		return ""
	}
	return string(*p)
}

func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

func ptr[T any](v T) *T { return &v }

// orNil is a pointer to v, nil where v is zero: such members are left out.
func orNil[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func tagsOf(tags map[string]*string) map[string]string {
	if len(tags) == 0 {
		return nil
	}
	out := make(map[string]string, len(tags))
	for k, v := range tags {
		out[k] = value(v)
	}
	return out
}

func toTags(tags map[string]string) map[string]*string {
	if len(tags) == 0 {
		return nil
	}
	out := make(map[string]*string, len(tags))
	for k, v := range tags {
		out[k] = ptr(v)
	}
	return out
}
