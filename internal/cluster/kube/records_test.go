package kube_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
)

// Records go through all pages by their labels, and an error ends them.
func TestRecordsByPages(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		q := r.URL.Query()
		if r.URL.Path != "/api/v1/namespaces/own/configmaps" || q.Get("labelSelector") != "a=b" || q.Get("limit") == "" {
			t.Errorf("asked for %s", r.URL)
		}
		next := map[string]string{"": "1", "1": "2"}[q.Get("continue")]
		if next == "" {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no"}`)
			return
		}
		fmt.Fprintf(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"continue":%q},"items":[{"metadata":{"name":"r%[1]s","namespace":"own"},"data":{"k":"v"}}]}`, next)
	}))
	defer server.Close()
	c, err := kube.New(kube.Config{REST: &rest.Config{Host: server.URL}, Namespace: "own"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r, err := range c.Records(t.Context(), map[string]string{"a": "b"}) {
		if err != nil {
			if !fleet.Is(err, fleet.KindDenied) || !strings.Contains(err.Error(), "namespace own") {
				t.Errorf("a page that may not be read: %v", err)
			}
			names = append(names, "denied")
			continue
		}
		names = append(names, r.Namespace+"/"+r.Name+r.Data["k"])
	}
	if got := strings.Join(names, " "); got != "own/r1v own/r2v denied" {
		t.Error(got)
	}
}
