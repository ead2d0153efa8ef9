package kube

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/internal/fleet"
)

// Another certificate than the cluster's, and a balancer's page, are read as the command line
// reads them: waiting ends only the second.
func TestErrorsAreThoseOfTheCommandLine(t *testing.T) {
	page := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html>")
	}))
	page.Config.ErrorLog = log.New(io.Discard, "", 0)
	page.StartTLS()
	defer page.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: page.Certificate().Raw})
	for name, c := range map[string]struct {
		tls  rest.TLSClientConfig
		want fleet.Kind
	}{
		"another certificate": {rest.TLSClientConfig{}, fleet.KindInvalid},
		"a balancer's page":   {rest.TLSClientConfig{CAData: ca}, fleet.KindTransient},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, err := New(Config{REST: &rest.Config{Host: page.URL, TLSClientConfig: c.tls}, Server: page.URL, CA: ca})
			if err != nil {
				t.Fatal(err)
			}
			if _, err = cluster.Node(t.Context(), "n"); !fleet.Is(err, c.want) {
				t.Errorf("kind %q, want %q: %v", fleet.KindOf(err), c.want, err)
			}
		})
	}
}
