package arm

import (
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// maxThrottled is when requests whose time has come are forgotten.
const maxThrottled = 1024

// A throttlePolicy does not send a read that Azure answered with 429 again before the time
// that Azure asked for: two callers at once may ask for the same, and each knows only
// of its own answer. Who asks too early gets the answer, with the time that is left.
type throttlePolicy struct {
	mu    sync.Mutex
	until map[string]time.Time // by path
}

func (p *throttlePolicy) Do(r *policy.Request) (*http.Response, error) {
	request := r.Raw()
	if request.Method != http.MethodGet { // nobody changes a thing twice at once
		return r.Next()
	}
	name := strings.ToLower(request.URL.Path)
	if left := p.left(name, time.Now()); left > 0 {
		seconds := int((left + time.Second - 1) / time.Second)
		return &http.Response{
			Status: "429 Too Many Requests", StatusCode: http.StatusTooManyRequests, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header:  http.Header{"Retry-After": {strconv.Itoa(seconds)}, "Content-Type": {"application/json"}},
			Body:    io.NopCloser(strings.NewReader(`{"error":{"code":"TooManyRequests","message":"Azure asked to wait; the request was not sent"}}`)),
			Request: request,
		}, nil
	}
	answer, err := r.Next()
	if err == nil && answer.StatusCode == http.StatusTooManyRequests {
		if wait, asked := retryAfter(answer.Header); asked && wait > 0 {
			p.wait(name, time.Now(), wait)
		}
	}
	return answer, err
}

// left is how long a request has to wait.
func (p *throttlePolicy) left(name string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.until[name].Sub(now)
}

func (p *throttlePolicy) wait(name string, now time.Time, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until == nil {
		p.until = map[string]time.Time{}
	}
	if len(p.until) >= maxThrottled {
		maps.DeleteFunc(p.until, func(_ string, until time.Time) bool { return !until.After(now) })
	}
	p.until[name] = now.Add(wait)
}
