package arm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/fleet"
)

const (
	base  = "https://arm.invalid"
	group = "/subscriptions/5ca1ab1e-0000-4000-8000-000000000002/resourceGroups/g"
	comp  = group + "/providers/Microsoft.Compute"
)

const (
	pool     = fleet.ResourceID(comp + "/virtualMachineScaleSets/p")
	instance = pool + "/virtualMachines/3"
	virtual  = fleet.ResourceID(comp + "/virtualMachines/p_1a2b3c4d")
	disk     = fleet.ResourceID(comp + "/disks/d")
	snapshot = fleet.ResourceID(comp + "/snapshots/s")
	gallery  = fleet.ResourceID(comp + "/galleries/gal")
	image    = gallery + "/images/img"
	version  = image + "/versions/2026.11.21"
)

// A sent is one request that the script saw.
type sent struct {
	method, path, query, agent string
	header                     http.Header
	body                       map[string]any
}

// A script answers requests one after the other; it is a policy.Transporter.
type script struct {
	t       *testing.T
	answers []answer
	sent    []sent
}

type answer struct {
	status int
	header map[string]string
	body   string
	err    error
	hang   bool
	stream io.ReadCloser
}

func (s *script) Do(r *http.Request) (*http.Response, error) {
	x := sent{method: r.Method, path: r.URL.Path, query: r.URL.RawQuery, agent: r.UserAgent(), header: r.Header}
	if r.Body != nil {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		if len(data) > 0 {
			if err := json.Unmarshal(data, &x.body); err != nil {
				s.t.Errorf("%s %s: the body is no JSON object: %s", r.Method, r.URL, data)
			}
		}
	}
	s.sent = append(s.sent, x)
	if len(s.answers) == 0 {
		s.t.Errorf("unexpected request: %s %s", r.Method, r.URL)
		return nil, io.ErrUnexpectedEOF
	}
	a := s.answers[0]
	s.answers = s.answers[1:]
	if a.hang {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if a.err != nil {
		return nil, a.err
	}
	h := http.Header{}
	for k, v := range a.header {
		h.Set(k, v)
	}
	body := a.stream
	if body == nil {
		body = io.NopCloser(bytes.NewBufferString(a.body))
	}
	return &http.Response{StatusCode: a.status, Status: http.StatusText(a.status), Header: h, Body: body, Request: r}, nil
}

type static struct{}

func (static) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "the-bearer", ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func cloudAt(home string) cloud.Configuration {
	return cloud.Configuration{ActiveDirectoryAuthorityHost: home + "/",
		Services: map[cloud.ServiceName]cloud.ServiceConfiguration{cloud.ResourceManager: {Endpoint: home, Audience: home}}}
}

func newCloud(t *testing.T, answers ...answer) (*arm.Cloud, *script) {
	t.Helper()
	s := &script{t: t, answers: answers}
	c, err := arm.New(arm.Options{
		Cloud:      cloudAt(base),
		Credential: static{}, Transport: s, Version: "1.2.3", MaxBody: 1 << 16,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if len(s.answers) > 0 {
			t.Errorf("%d answers were not asked for", len(s.answers))
		}
	})
	return c, s
}

func refusal(status int, code, message string) answer {
	body, _ := json.Marshal(map[string]any{"error": map[string]any{"code": code, "message": message}})
	return answer{status: status, body: string(body)}
}
