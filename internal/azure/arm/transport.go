package arm

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/ortet/ortet/internal/fleet"
)

// errTooLarge ends the reading of an answer that is larger than any real one.
var errTooLarge = errors.New("the answer is larger than allowed")

// A boundedTransport bounds what an answer may make us keep, and reads Azure's clock.
type boundedTransport struct {
	next  policy.Transporter
	max   int64
	clock *fleet.Clock
}

func (t *boundedTransport) Do(r *http.Request) (*http.Response, error) {
	resp, err := t.next.Do(r)
	if err != nil || resp == nil || resp.Body == nil {
		return resp, err
	}
	t.clock.Observe(resp, time.Now())
	resp.Body = &boundedBody{ReadCloser: resp.Body, left: t.max, max: t.max}
	return resp, nil
}

type boundedBody struct {
	io.ReadCloser
	left, max int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, fmt.Errorf("%w (%d bytes)", errTooLarge, b.max)
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1] // one more than allowed, to tell the end from too much
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if b.left < 0 {
		return 0, fmt.Errorf("%w (%d bytes)", errTooLarge, b.max)
	}
	return n, err
}

// foreignError keeps the bearer token at home.
type foreignError struct{ host, home string }

func (e foreignError) Error() string {
	return fmt.Sprintf("refused to send credentials to %s, which is not Azure Resource Manager at %s", e.host, e.home)
}

// NonRetriable tells the SDK's retry policy.
func (foreignError) NonRetriable() {}

// A homePolicy lets requests go to Azure Resource Manager alone. The URLs of
// operations and next pages come from answers and from resume tokens that were
// stored elsewhere; whoever can write one must not get our token.
type homePolicy struct{ endpoint *url.URL }

func (p *homePolicy) Do(r *policy.Request) (*http.Response, error) {
	if u := r.Raw().URL; !p.atHome(u) {
		return nil, foreignError{u.Scheme + "://" + u.Host, p.endpoint.Host}
	}
	return r.Next()
}

// atHome accepts the endpoint and, as Azure has regional endpoints
// (westeurope.management.azure.com), the hosts below it.
func (p *homePolicy) atHome(u *url.URL) bool {
	host, home := strings.ToLower(u.Host), strings.ToLower(p.endpoint.Host)
	return u.Scheme == p.endpoint.Scheme && u.User == nil && (host == home || strings.HasSuffix(host, "."+home))
}
