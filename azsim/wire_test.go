package azsim

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// send makes one request as it is, below the resource group, by the first
// principal.
func (b *bench) send(method, path, version, body string) *http.Response {
	b.Helper()
	return b.sendAbsolute(method, "/subscriptions/"+DefaultSubscription+"/resourceGroups/"+b.group+path, version, body)
}

func (b *bench) sendAbsolute(method, path, version, body string) *http.Response {
	b.Helper()
	r, err := http.NewRequestWithContext(b.ctx, method, InProcess+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	if version != "" {
		q := r.URL.Query()
		q.Set("api-version", version)
		r.URL.RawQuery = q.Encode()
	}
	token, err := b.s.Credential("").GetToken(b.ctx, policy.TokenRequestOptions{})
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token.Token)
	resp, err := b.s.Transport().Do(r)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// errorOf reads the code and message of an ARM error.
func errorOf(t *testing.T, r *http.Response) (code, message string) {
	t.Helper()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	var body struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal(data, &body); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return body.Error.Code, body.Error.Message
}

func TestErrorsOfTheWire(t *testing.T) {
	const sub = "/subscriptions/" + DefaultSubscription
	for name, c := range map[string]struct {
		method, path, version, body string
		status                      int
		code                        string
	}{
		"no api-version":    {"GET", sub + "/resourceGroups/azsim/providers/Microsoft.Compute/disks/d", "", "", 400, "MissingApiVersionParameter"},
		"bad api-version":   {"GET", sub + "/resourceGroups/azsim/providers/Microsoft.Compute/disks/d", "1", "", 400, "InvalidApiVersionParameter"},
		"old api-version":   {"GET", sub + "/resourceGroups/azsim/providers/Microsoft.Compute/disks/d", "2015-01-01", "", 400, "NoRegisteredProviderFound"},
		"no such namespace": {"GET", sub + "/providers/Microsoft.Nothing/things", "2020-01-01", "", 404, "InvalidResourceNamespace"},
		"no such type":      {"GET", sub + "/providers/Microsoft.Compute/things", "2020-01-01", "", 404, "InvalidResourceType"},
		"no such group":     {"GET", sub + "/resourceGroups/none/providers/Microsoft.Compute/disks/d", "2022-07-02", "", 404, "ResourceGroupNotFound"},
		"no such disk":      {"GET", sub + "/resourceGroups/azsim/providers/Microsoft.Compute/disks/d", "2022-07-02", "", 404, "ResourceNotFound"},
		"no subscription":   {"GET", "/subscriptions/other/resourceGroups/azsim", "2022-09-01", "", 404, "SubscriptionNotFound"},
		"no parent":         {"PUT", sub + "/resourceGroups/azsim/providers/Microsoft.Compute/galleries/g/images/i", "2022-03-03", `{"location":"westeurope"}`, 404, "ParentResourceNotFound"},
		"no body":           {"PUT", sub + "/resourceGroups/azsim/providers/Microsoft.Compute/disks/d", "2022-07-02", "", 400, "InvalidRequestContent"},
		"no JSON":           {"PUT", sub + "/resourceGroups/azsim/providers/Microsoft.Compute/disks/d", "2022-07-02", "{", 400, "InvalidRequestContent"},
		"wrong JSON type":   {"PUT", sub + "/resourceGroups/azsim/providers/Microsoft.Compute/disks/d", "2022-07-02", `{"location":7}`, 400, "InvalidRequestContent"},
		"unknown member":    {"PUT", sub + "/resourceGroups/azsim/providers/Microsoft.Compute/disks/d", "2022-07-02", `{"location":"westeurope","properties":{"sizeGB":4}}`, 400, "BadRequest"},
		"wrong method":      {"DELETE", sub, "2022-09-01", "", 404, "NotFound"},
		"group not empty":   {"PUT", sub + "/resourceGroups/x", "2022-09-01", `{}`, 400, "LocationRequired"},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, nil, func(b *bench) {
				r := b.sendAbsolute(c.method, c.path, c.version, c.body)
				if code, _ := errorOf(t, r); r.StatusCode != c.status || code != c.code {
					t.Errorf("got %d %s, want %d %s", r.StatusCode, code, c.status, c.code)
				}
				if r.Header.Get("X-Ms-Request-Id") == "" || r.Header.Get("X-Ms-Correlation-Request-Id") == "" {
					t.Error("no request ids")
				}
			})
		})
	}
}

func TestPathsInAnyCaseKeepTheFirstSpelling(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		d := b.disk("MyDisk", 4)
		r := b.sendAbsolute("GET", "/SUBSCRIPTIONS/"+strings.ToUpper(DefaultSubscription)+"/RESOURCEGROUPS/AZSIM/PROVIDERS/MICROSOFT.COMPUTE/DISKS/MYDISK", "2022-07-02", "")
		var got struct{ ID, Name, Type string }
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil || r.StatusCode != http.StatusOK {
			t.Fatal(r.StatusCode, err)
		}
		if got.ID != *d.ID || got.Name != "MyDisk" || got.Type != "Microsoft.Compute/disks" {
			t.Errorf("got %+v", got)
		}
	})
}

func TestListsComeInPages(t *testing.T) {
	inVirtualTime(t, func(s *Server) { s.PageSize = 2 }, func(b *bench) {
		for _, n := range []string{"a", "b", "c", "d", "e"} {
			b.disk(n, 4)
		}
		pages, names := 0, ""
		for p := b.f.NewDisksClient().NewListPager(nil); p.More(); pages++ {
			page, err := p.NextPage(b.ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range page.Value {
				names += *d.Name
			}
		}
		if pages != 3 || names != "abcde" {
			t.Errorf("%d pages: %s", pages, names)
		}
	})
}

func TestConditionalPut(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		d := b.disk("d", 4)
		put := func(path, header string) int {
			r, err := http.NewRequestWithContext(b.ctx, http.MethodPut, InProcess+path+"?api-version=2022-07-02",
				strings.NewReader(`{"location":"westeurope","properties":{"diskSizeGB":4,"creationData":{"createOption":"Empty"}}}`))
			if err != nil {
				t.Fatal(err)
			}
			token, err := b.s.Credential("").GetToken(b.ctx, policy.TokenRequestOptions{})
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+token.Token)
			r.Header.Set(header, "*")
			resp, err := b.s.Transport().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			return resp.StatusCode
		}
		for _, c := range []struct {
			path, header string
			want         int
		}{
			{*d.ID, "If-None-Match", http.StatusPreconditionFailed},
			{*d.ID + "2", "If-Match", http.StatusPreconditionFailed},
			{*d.ID + "2", "If-None-Match", http.StatusAccepted},
			{*d.ID, "If-Match", http.StatusAccepted},
		} {
			if got := put(c.path, c.header); got != c.want {
				t.Errorf("%s: * on %s: %d, want %d", c.header, c.path[len(c.path)-2:], got, c.want)
			}
		}
	})
}
