package play

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/test/scenario"
)

// asked gives what a process is answered to a GET.
func asked(t *testing.T, w *world, path, version string) string {
	t.Helper()
	_, body := sends(t, w, http.MethodGet, path, version)
	return body
}

// sends has a process send a request without a body.
func sends(t *testing.T, w *world, method, path, version string) (*http.Response, string) {
	t.Helper()
	p := &process{w: w, name: "p1", ask: w.story.Asks[0]}
	r, err := http.NewRequestWithContext(context.Background(), method, azsim.InProcess+path+"?api-version="+version, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	token, err := w.azure.Credential("").GetToken(r.Context(), tokenOptions)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token.Token)
	answer, err := azureWire{p}.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(text)
}

// in makes the world of a story.
func in(t *testing.T, story string, do func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, err := scenario.Parse("seed 1\n" + story)
		if err != nil {
			t.Fatal(err)
		}
		w, err := newWorld(s)
		if err != nil {
			t.Fatal(err)
		}
		defer w.close()
		do(w)
	})
}

func TestIDsAreSpelled(t *testing.T) {
	const rest = "/virtualMachineScaleSets/pool1/virtualMachines/1"
	for spelling, want := range map[string]string{
		"sent":  "/resourceGroups/azsim/providers/Microsoft.Compute" + rest,
		"lower": "/resourcegroups/azsim/providers/microsoft.compute" + strings.ToLower(rest),
		"upper": "/resourcegroups/AZSIM/providers/Microsoft.Compute/virtualMachineScaleSets/POOL1/virtualMachines/1",
	} {
		in(t, "pool instances=3 versions=1 spelling="+spelling+"\ncapture\n", func(w *world) {
			if got := asked(t, w, string(w.instance(1)), apiYear); !strings.Contains(got, want+`"`) {
				t.Errorf("spelling=%s: no %s in %s", spelling, want, got)
			}
			if node := w.kube.Get("nodes", "", w.node(1)).(*corev1.Node); !strings.HasSuffix(node.Spec.ProviderID, want) {
				t.Errorf("spelling=%s: the node has another provider id than %s", spelling, want)
			}
		})
	}
	in(t, "pool instances=8 spelling=mixed\ncapture\n", func(w *world) {
		got := asked(t, w, string(w.pool)+"/virtualMachines", apiYear)
		for _, style := range []string{"/resourceGroups/azsim/", "/resourcegroups/azsim/", "/resourcegroups/AZSIM/"} {
			if !strings.Contains(got, style) {
				t.Errorf("spelling=mixed: no %s in %s", style, got)
			}
		}
	})
}

func TestListsHavePages(t *testing.T) {
	for story, want := range map[string]bool{"pool instances=3 pages=1\ncapture\n": true, "pool instances=3\ncapture\n": false} {
		in(t, story, func(w *world) {
			if got := asked(t, w, string(w.pool)+"/virtualMachines", apiYear); strings.Contains(got, "nextLink") != want {
				t.Errorf("%q: another page: want %t", story, want)
			}
		})
	}
}
