package azsim

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// ask asks the metadata service.
func ask(h http.Handler, method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Metadata", "true")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestIMDSLimits(t *testing.T) {
	withPool(t, 2, nil, func(t *testing.T, l *lab) {
		const instance, token = "/metadata/instance?api-version=2025-04-07", "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=r"
		h, other := l.sub.computer(t, "pool1000000").IMDS, l.sub.computer(t, "pool1000001").IMDS
		for i := range imdsRate {
			if w := ask(h, "GET", instance, ""); w.Code != 200 {
				t.Fatalf("request %d: %d", i, w.Code)
			}
			time.Sleep(100 * time.Millisecond)
		}
		for _, path := range []string{instance, "/metadata/attested/document?api-version=2025-04-07", "/metadata/scheduledevents?api-version=2020-07-01"} {
			if w := ask(h, "GET", path, ""); w.Code != 429 || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "error") {
				t.Errorf("%s: %d %v %s", path, w.Code, w.Header(), w.Body)
			}
		}
		if w := ask(other, "GET", instance, ""); w.Code != 200 {
			t.Errorf("another instance: %d", w.Code)
		}
		for i := range identityRate {
			if w := ask(h, "GET", token, ""); w.Code != 400 {
				t.Errorf("token %d: %d", i, w.Code)
			}
		}
		if w := ask(h, "GET", token, ""); w.Code != 429 {
			t.Errorf("one token more: %d", w.Code)
		}
		// What was refused does not count, and a second later all is free.
		time.Sleep(500 * time.Millisecond)
		if w := ask(h, "GET", instance, ""); w.Code != 200 {
			t.Errorf("a second after the first: %d", w.Code)
		}
		if w := ask(h, "GET", instance, ""); w.Code != 429 {
			t.Errorf("and one more: %d", w.Code)
		}
		time.Sleep(time.Second)
		if w := ask(h, "GET", instance, ""); w.Code != 200 {
			t.Errorf("afterwards: %d", w.Code)
		}
	})
}

func TestIMDSFaults(t *testing.T) {
	withPool(t, 2, nil, func(t *testing.T, l *lab) {
		for _, f := range []Fault{
			{Action: "imds/attested", Effect: EffectError, Status: 410, Count: 2},
			{Action: "imds/*", Path: "/virtualMachines/1/", Effect: EffectError},
			{Action: "imds/scheduledevents", Method: "POST", Effect: EffectThrottle},
			{Path: ".*", Effect: EffectError}, // concerns Resource Manager alone
		} {
			if err := l.s.AddFault(f); err != nil {
				t.Fatal(err)
			}
		}
		h, other := l.sub.computer(t, "pool1000000").IMDS, l.sub.computer(t, "pool1000001").IMDS
		const attested = "/metadata/attested/document?api-version=2025-04-07"
		var got []int
		for range 3 {
			got = append(got, ask(h, "GET", attested, "").Code)
		}
		got = append(got, ask(other, "GET", "/metadata/instance?api-version=2025-04-07", "").Code, ask(h, "POST", "/metadata/scheduledevents?api-version=2020-07-01", "{}").Code)
		if want := []int{410, 410, 200, 500, 429}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}
