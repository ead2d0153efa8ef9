package play

import (
	"net/http"
	"net/url"
	"testing"
	"time"
)

// TestRest: a change of the scale set follows a look that found it at rest.
func TestRest(t *testing.T) {
	read := func(w *world, p *process) {
		for _, id := range []string{string(w.pool), string(w.pool) + "/virtualMachines"} {
			w.looks(p, &http.Request{Method: http.MethodGet, URL: &url.URL{Path: id}}, nil)
		}
	}
	changes := func(w *world, p *process) { w.judgeRest(p, "changes the model", &http.Request{Header: http.Header{}}) }
	goes := func(w *world) {
		_ = w.request(http.MethodPost, string(w.pool)+"/delete", apiYear, object{"instanceIds": []string{"2"}}) // what follows says so
	}
	judged(t, []ruling{
		{"no instance is being deleted", pool3, nil, goes, func(w *world, p *process) {
			read(w, p)
			changes(w, p)
		}, nil, "while the scale set is not at rest"},
		{"it was looked at", pool3, nil, nil, changes, func(w *world, p *process) {
			time.Sleep(freshLook + time.Second)
			changes(w, p)
		}, "has not looked"},
	})
}
