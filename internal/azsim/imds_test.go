package azsim

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
)

func testIMDS() imds {
	return imds{
		instance: func() map[string]any {
			return map[string]any{
				"compute": map[string]any{
					"name": "pool1_3", "vmId": "u", "zone": "1",
					"tagsList": []any{map[string]any{"name": "a", "value": "b"}},
				},
				"network": map[string]any{"interface": []any{}},
			}
		},
		token: func(q url.Values) (map[string]any, *imdsError) {
			if q.Get("client_id") == "unknown" {
				return nil, &imdsError{status: 400, reason: "invalid_request", description: "Identity not found"}
			}
			return map[string]any{"access_token": "t", "resource": q.Get("resource")}, nil
		},
		events:  func() (int, []scheduledEvent) { return 7, nil },
		approve: func([]string) {},
	}
}

func TestIMDS(t *testing.T) {
	const v = "?api-version=2021-02-01"
	for _, c := range []struct {
		name, method, path string
		header             map[string]string
		status             int
		body               string // what it holds
	}{
		{"no header", "GET", "/metadata/instance" + v, nil, 400, "Required metadata header"},
		{"forwarded", "GET", "/metadata/instance" + v, map[string]string{"Metadata": "true", "X-Forwarded-For": "1.2.3.4"}, 400, "X-Forwarded-For"},
		{"no version", "GET", "/metadata/instance", map[string]string{"Metadata": "true"}, 400, "newest-versions"},
		{"odd version", "GET", "/metadata/instance?api-version=2031-01-01", map[string]string{"Metadata": "true"}, 400, "newest-versions"},
		{"whole", "GET", "/metadata/instance" + v, map[string]string{"Metadata": "True"}, 200, `"name":"pool1_3"`},
		{"part", "GET", "/metadata/instance/compute" + v, map[string]string{"Metadata": "true"}, 200, `"zone":"1"`},
		{"leaf as text", "GET", "/metadata/instance/compute/VMID" + v + "&format=text", map[string]string{"Metadata": "true"}, 200, "u"},
		{"leaf as json", "GET", "/metadata/instance/compute/vmId" + v, map[string]string{"Metadata": "true"}, 400, "format=text"},
		{"in an array", "GET", "/metadata/instance/compute/tagsList/0/value" + v + "&format=text", map[string]string{"Metadata": "true"}, 200, "b"},
		{"out of an array", "GET", "/metadata/instance/compute/tagsList/1" + v, map[string]string{"Metadata": "true"}, 404, ""},
		{"names as text", "GET", "/metadata/instance" + v + "&format=text", map[string]string{"Metadata": "true"}, 200, "compute/\nnetwork/"},
		{"no such part", "GET", "/metadata/instance/nothing" + v, map[string]string{"Metadata": "true"}, 404, ""},
		{"write", "PUT", "/metadata/instance" + v, map[string]string{"Metadata": "true"}, 405, ""},
		{"token", "GET", "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https://r/", map[string]string{"Metadata": "true"}, 200, `"access_token":"t"`},
		{"token for nothing", "GET", "/metadata/identity/oauth2/token?api-version=2018-02-01", map[string]string{"Metadata": "true"}, 400, "resource"},
		{"token of another", "GET", "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=r&client_id=unknown", map[string]string{"Metadata": "true"}, 400, "Identity not found"},
		{"events", "GET", "/metadata/scheduledevents?api-version=2020-07-01", map[string]string{"Metadata": "true"}, 200, `"Events":[]`},
		{"approval of nonsense", "POST", "/metadata/scheduledevents?api-version=2020-07-01", map[string]string{"Metadata": "true"}, 400, ""},
		{"elsewhere", "GET", "/", map[string]string{"Metadata": "true"}, 404, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest(c.method, c.path, strings.NewReader("nonsense"))
			for k, v := range c.header {
				r.Header.Set(k, v)
			}
			w := httptest.NewRecorder()
			testIMDS().ServeHTTP(w, r)
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.body) {
				t.Errorf("%d %s, want %d with %q", w.Code, w.Body, c.status, c.body)
			}
		})
	}
}

func TestIMDSApproval(t *testing.T) {
	h := testIMDS()
	var got []string
	h.approve = func(ids []string) { got = ids }
	r := httptest.NewRequest(http.MethodPost, "/metadata/scheduledevents?api-version=2020-07-01",
		strings.NewReader(`{"StartRequests":[{"EventId":"e1"},{"EventId":"e2"}]}`))
	r.Header.Set("Metadata", "true")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK || !reflect.DeepEqual(got, []string{"e1", "e2"}) {
		t.Errorf("%d, approved %v", w.Code, got)
	}
}

func FuzzIMDS(f *testing.F) {
	f.Add("/metadata/instance/compute/tagsList/0/name", "api-version=2021-02-01&format=text")
	f.Add("/metadata/instance", "api-version=2021-02-01")
	f.Add("//metadata//instance/", "%zz")
	f.Fuzz(func(t *testing.T, path, query string) {
		r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: path, RawQuery: query}, Header: http.Header{"Metadata": {"true"}}}
		w := httptest.NewRecorder()
		testIMDS().ServeHTTP(w, r)
		if w.Header().Get("Content-Type") == "application/json; charset=utf-8" && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%q: not JSON: %s", path, w.Body)
		}
	})
}
