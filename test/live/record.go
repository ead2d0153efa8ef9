package live

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// An interaction is a request and its answer, as test/recorded reads them.
type interaction struct {
	Method   string            `json:"method"`
	URI      string            `json:"uri"` // begins at the path
	Request  any               `json:"request"`
	Status   int               `json:"status"`
	Headers  map[string]string `json:"headers"` // names in lower case
	Response any               `json:"response"`
}

// recording is a session of test/recorded.
type recording struct {
	Source       string        `json:"source"`
	Name         string        `json:"session"`
	Interactions []interaction `json:"interactions"`
}

// recordedHeaders are those that test/recorded compares, and what orders and paces requests.
var recordedHeaders = []string{"Date", "Retry-After", "Azure-Asyncoperation", "Location", "Etag", "Content-Type",
	"X-Ms-Ratelimit-Remaining-Resource"}

// A recorder keeps the exchanges of requests to Azure Resource Manager. Log-ins do not pass it.
type recorder struct {
	next policy.Transporter

	mu  sync.Mutex
	all []interaction
}

func (r *recorder) Do(req *http.Request) (*http.Response, error) {
	var sent []byte
	if req.Body != nil {
		var err error
		if sent, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		_ = req.Body.Close()
		req.Body = io.NopCloser(bytes.NewReader(sent))
	}
	resp, err := r.next.Do(req)
	if err != nil || !strings.HasPrefix(strings.ToLower(req.URL.Path), "/subscriptions/") {
		return resp, err
	}
	got, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(got))
	i := interaction{Method: req.Method, URI: req.URL.RequestURI(), Request: decoded(sent), Status: resp.StatusCode,
		Headers: map[string]string{}, Response: decoded(got)}
	if strings.HasSuffix(strings.ToLower(req.URL.Path), "/providers/microsoft.compute/skus") {
		i.Response = nil // megabytes about every size, and nothing of the run
	}
	for _, name := range recordedHeaders {
		if v := resp.Header.Get(name); v != "" {
			i.Headers[strings.ToLower(name)] = v
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, i)
	return resp, nil
}

func (r *recorder) interactions() []interaction {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}

// decoded is a body's JSON, its text where it is none, and nil where there is no body.
func decoded(body []byte) (v any) {
	if len(body) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return string(body)
	}
	return v
}
