package metadata

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

func testService() Service {
	return Service{
		Instance: func() map[string]any {
			return map[string]any{
				"compute": map[string]any{
					"name": "pool1_3", "vmId": "u", "zone": "1",
					"tagsList": []any{map[string]any{"name": "a", "value": "b"}},
				},
				"network": map[string]any{"interface": []any{}},
			}
		},
		Token: func(q url.Values) (map[string]any, *Refusal) {
			if q.Get("client_id") == "unknown" {
				return nil, &Refusal{Status: 400, Reason: "invalid_request", Description: "Identity not found"}
			}
			return map[string]any{"access_token": "t", "resource": q.Get("resource")}, nil
		},
		Attest: func(nonce string) (string, error) {
			if nonce == "fails" {
				return "", errors.New("no key")
			}
			return "signed " + nonce, nil
		},
		Ask: func() time.Duration { return 0 },
		Events: func() (int, []ScheduledEvent) {
			return 7, []ScheduledEvent{{EventID: "e1", EventType: eventTerminate, EventSource: "User", Description: "why", Resources: []string{"pool1_3"}, DurationInSeconds: -1}}
		},
		Approve: func(ids []string) bool { return !slices.Contains(ids, "unknown") },
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
		{"token by POST", "POST", "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=r", map[string]string{"Metadata": "true"}, 405, ""},
		{"events", "GET", "/metadata/scheduledevents?api-version=2020-07-01", map[string]string{"Metadata": "true"}, 200, `"DurationInSeconds":-1`},
		{"events without a duration", "GET", "/metadata/scheduledevents?api-version=2019-08-01", map[string]string{"Metadata": "true"}, 200, `"EventSource":"User"`},
		{"events before Terminate", "GET", "/metadata/scheduledevents?api-version=2017-11-01", map[string]string{"Metadata": "true"}, 200, `"Events":[]`},
		{"events of latest", "GET", "/metadata/scheduledevents?api-version=latest", map[string]string{"Metadata": "true"}, 400, "newest-versions"},
		{"events by PUT", "PUT", "/metadata/scheduledevents?api-version=2020-07-01", map[string]string{"Metadata": "true"}, 405, ""},
		{"approval of nonsense", "POST", "/metadata/scheduledevents?api-version=2020-07-01", map[string]string{"Metadata": "true"}, 400, ""},
		{"attested", "GET", "/metadata/attested/document?api-version=2025-04-07&nonce=n", map[string]string{"Metadata": "true"}, 200, `{"encoding":"pkcs7","signature":"signed n"}`},
		{"attested by POST", "POST", "/metadata/attested/document?api-version=2025-04-07", map[string]string{"Metadata": "true"}, 405, ""},
		{"attested, broken", "GET", "/metadata/attested/document?api-version=2025-04-07&nonce=fails", map[string]string{"Metadata": "true"}, 500, ""},
		{"attested, nothing", "GET", "/metadata/attested?api-version=2025-04-07", map[string]string{"Metadata": "true"}, 404, ""},
		{"versions", "GET", "/metadata/versions", map[string]string{"Metadata": "true"}, 200, `{"apiVersions":["2017-03-01","2017-04-02"`},
		{"twice", "GET", "/metadata/instance" + v + "&api-version=2021-02-01", map[string]string{"Metadata": "true"}, 400, "Duplicate"},
		{"elsewhere", "GET", "/", map[string]string{"Metadata": "true"}, 404, ""},
		{"below metadata", "GET", "/metadata", map[string]string{"Metadata": "true"}, 404, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest(c.method, c.path, strings.NewReader("nonsense"))
			for k, v := range c.header {
				r.Header.Set(k, v)
			}
			w := httptest.NewRecorder()
			testService().ServeHTTP(w, r)
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.body) {
				t.Errorf("%d %s, want %d with %q", w.Code, w.Body, c.status, c.body)
			}
		})
	}
}

func TestIMDSApproval(t *testing.T) {
	h := testService()
	for body, want := range map[string]int{
		`{"StartRequests":[{"EventId":"e1"},{"EventId":"e2"}]}`:      200,
		`{"StartRequests":[{"EventId":"e1"},{"EventId":"unknown"}]}`: 400,
		`{"StartRequests":[]}`:               400,
		`{"StartRequests":[{"EventId":""}]}`: 400,
		`{}`:                                 400,
		`{"StartRequests":[{"EventId":"` + strings.Repeat("e", maxApproval) + `"}]}`: 400,
	} {
		r := httptest.NewRequest(http.MethodPost, "/metadata/scheduledevents?api-version=2020-07-01", strings.NewReader(body))
		r.Header.Set("Metadata", "true")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%.60s: %d %s", body, w.Code, w.Body)
		}
	}
}

func FuzzReadApproval(f *testing.F) {
	f.Add(`{"StartRequests":[{"EventId":"602d9444-d2cd-49c7-8624-8643e7171297"}]}`)
	f.Add(`{"StartRequests":[{"eventid":null}],"StartRequests":7}`)
	f.Fuzz(func(t *testing.T, body string) {
		ids, ok := readApproval(strings.NewReader(body))
		if ok != (len(ids) > 0) || slices.Contains(ids, "") {
			t.Errorf("%q: %q %v", body, ids, ok)
		}
	})
}

func FuzzIMDS(f *testing.F) {
	f.Add("/metadata/instance/compute/tagsList/0/name", "api-version=2021-02-01&format=text")
	f.Add("/metadata/instance", "api-version=2021-02-01")
	f.Add("//metadata//instance/", "%zz")
	f.Fuzz(func(t *testing.T, path, query string) {
		r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: path, RawQuery: query}, Header: http.Header{"Metadata": {"true"}}}
		w := httptest.NewRecorder()
		testService().ServeHTTP(w, r)
		if w.Header().Get("Content-Type") == "application/json; charset=utf-8" && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%q: not JSON: %s", path, w.Body)
		}
	})
}
