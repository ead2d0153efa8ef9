package azsim

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// InProcess is the base URL under which a Transport's clients know the server.
const InProcess = "https://azsim.invalid"

// ErrDropped is what a client of a Transport gets where a network's client would
// see its connection break.
var ErrDropped = errors.New("azsim: connection dropped")

// Transport calls the server without a network: policy.Transporter for the
// Azure SDK, http.RoundTripper for others.
func (s *Server) Transport() *Transport { return &Transport{s} }

// A Transport is a client's way to a Server in the same process.
type Transport struct{ s *Server }

// Do serves the request on the caller's goroutine.
func (t *Transport) Do(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	in := r.WithContext(r.Context()) // a copy, whose header the server only reads
	if in.Body == nil {
		in.Body = http.NoBody
	}
	defer func() { _ = in.Body.Close() }() // read to its end, or of no use
	if in.Host == "" {
		in.Host = in.URL.Host
	}
	in.RequestURI = in.URL.RequestURI()
	rec := &recorder{head: http.Header{}}
	if err := t.serve(rec, in); err != nil {
		if r.Context().Err() != nil {
			return nil, r.Context().Err()
		}
		return nil, fmt.Errorf("%s %s: %w", r.Method, r.URL.Path, err)
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", rec.status, http.StatusText(rec.status)), StatusCode: rec.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: rec.head, Body: io.NopCloser(&rec.body), ContentLength: int64(rec.body.Len()), Request: r,
	}, nil
}

// RoundTrip is Do.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) { return t.Do(r) }

func (t *Transport) serve(w http.ResponseWriter, r *http.Request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			if e, isErr := p.(error); !isErr || !errors.Is(e, http.ErrAbortHandler) {
				panic(p)
			}
			err = ErrDropped
		}
	}()
	t.s.ServeHTTP(w, r)
	return nil
}

type recorder struct {
	head   http.Header
	body   bytes.Buffer
	status int
}

func (w *recorder) Header() http.Header { return w.head }

func (w *recorder) WriteHeader(status int) {
	w.status = cmp.Or(w.status, status)
}

func (w *recorder) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// Cloud is the SDK's description of a server that is reached at base.
func Cloud(base string) cloud.Configuration {
	return cloud.Configuration{
		ActiveDirectoryAuthorityHost: base + "/",
		Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
			cloud.ResourceManager: {Endpoint: base, Audience: base + "/"},
		},
	}
}

// ClientOptions makes an SDK client call this server in the same process:
//
//	c, err := armcompute.NewDisksClient(azsim.DefaultSubscription, s.Credential(""), s.ClientOptions())
func (s *Server) ClientOptions() *arm.ClientOptions {
	return &arm.ClientOptions{
		ClientOptions:         policy.ClientOptions{Cloud: Cloud(InProcess), Transport: s.Transport()},
		DisableRPRegistration: true,
	}
}

// Credential is a credential of the principal with that client id, "" being the
// first one, which needs no log-in.
func (s *Server) Credential(clientID string) azcore.TokenCredential { return credential{s, clientID} }

type credential struct {
	s        *Server
	clientID string
}

func (c credential) GetToken(_ context.Context, _ policy.TokenRequestOptions) (azcore.AccessToken, error) {
	c.s.init()
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	p := c.s.principals[0]
	if c.clientID != "" {
		if p = c.s.principalOf(c.clientID); p == nil {
			return azcore.AccessToken{}, fmt.Errorf("azsim: no principal has the client id %q", c.clientID)
		}
	}
	now := time.Now()
	token, expires := c.s.issue(p, InProcess+"/", now)
	return azcore.AccessToken{Token: token, ExpiresOn: expires}, nil
}
