package azsim

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// A reply is what a handler answers.
type reply struct {
	status int
	body   any        // JSON; nil: none
	op     *operation // announced in the headers
	head   http.Header
	raw    []byte // a body that is no JSON; with it, head has its Content-Type
	// later gives the reply instead, without the lock held: for what has to ask
	// the Substrate and changes nothing.
	later func(ctx context.Context) (*reply, error)
}

func ok(body any) *reply { return &reply{status: http.StatusOK, body: body} }

// accepted is the answer to a POST that began op.
func accepted(op *operation) *reply { return &reply{status: http.StatusAccepted, op: op} }

func (r *reply) header() http.Header {
	if r.head == nil {
		r.head = http.Header{}
	}
	return r.head
}

// encode fixes the reply's body and headers; it is called under the lock, since
// the body may be a stored model.
func (r *reply) encode(c *call) error {
	if r.op != nil {
		r.op.announce(c.s, c.base(), r.header())
	}
	if r.raw != nil || r.body == nil {
		return nil
	}
	data, err := json.Marshal(r.body)
	if err != nil {
		return err
	}
	r.raw = data
	if etag := getField(r.body, "Etag"); etag != "" {
		r.header().Set("ETag", etag)
	}
	r.header().Set("Content-Type", "application/json; charset=utf-8")
	return nil
}

func (r *reply) send(w http.ResponseWriter) {
	h := w.Header()
	for k, v := range r.head {
		h[k] = v
	}
	h.Set("Content-Length", strconv.Itoa(len(r.raw)))
	w.WriteHeader(r.status)
	if len(r.raw) > 0 {
		_, _ = w.Write(r.raw) // the client has gone: nothing to do
	}
}

// errorReply puts an error on the wire.
func errorReply(err error) *reply {
	e := asARM(err)
	r := &reply{status: e.status, body: map[string]any{"error": e}}
	if e.retryAfter > 0 {
		setRetryAfter(r.header(), e.retryAfter)
	}
	if e.status == http.StatusUnauthorized {
		r.header().Set("WWW-Authenticate", `Bearer authorization_uri="", error="invalid_token", error_description="`+e.message+`"`)
	}
	return r
}

// setRetryAfter sets Retry-After to d in whole seconds, rounded up, at least 1:
// clients take 0 for "no advice" and wait for half a minute. What a second is
// too coarse for is said in milliseconds too, in the header that the SDKs know.
func setRetryAfter(h http.Header, d time.Duration) {
	n := max(1, int64((d+time.Second-1)/time.Second))
	h.Set("Retry-After", strconv.FormatInt(n, 10))
	if d%time.Second != 0 {
		h.Set("Retry-After-Ms", strconv.FormatInt(max(1, d.Milliseconds()), 10))
	}
}
