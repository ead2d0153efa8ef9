package denial

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/image/capture"
)

// unneeded reads the actions that the documentation says --publish-only needs not.
func unneeded(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/reference/azure-permissions.md")
	must(t, err)
	list := regexp.MustCompile(`(?s)<!-- not for publish-only -->\n(.*?)<!-- end -->`).FindSubmatch(page)
	if list == nil {
		t.Fatal("the documentation lists no actions that --publish-only does not need")
	}
	var all []string
	for _, item := range regexp.MustCompile("(?m)^- `(.*)`").FindAllSubmatch(list[1], -1) {
		all = append(all, string(item[1]))
	}
	return all
}

// publishActions are those of the role on the resource group, without these.
func publishActions(t *testing.T) []string {
	onGroup, _ := documentedActions()
	not := unneeded(t)
	less := slices.DeleteFunc(slices.Clone(onGroup), func(a string) bool { return slices.Contains(not, a) })
	if len(not) == 0 || len(less) != len(onGroup)-len(not) {
		t.Fatalf("the role lacks one of %q", not)
	}
	return less
}

// publishWorld has a pool whose model Cluster API owns, and kured.
func publishWorld(t *testing.T, onGroup, onSubscription []string) *world {
	t.Helper()
	w := newWorldOf(t, azsim.Spec{}, func(body map[string]any) {
		body["tags"] = map[string]any{"sigs.k8s.io_cluster-api-provider-azure_cluster_prod": "owned"}
	}, documentedRules(true), principal(clientID, onGroup, onSubscription))
	w.putDaemonSet("kured")
	return w
}

func publishRequest(deallocate bool) capture.Request {
	q := fullRequest(deallocate)
	q.NewNodes, q.PublishOnly = 0, true
	return q
}

// model is what Azure answers of the scale set and its extensions.
func (w *world) model() string {
	w.t.Helper()
	p, err := w.open(nil).Cloud.Pool(w.t.Context(), pool)
	must(w.t, err)
	text, err := json.Marshal(p)
	must(w.t, err)
	return string(text)
}

// TestPublishOnlyPermissionsSuffice: without what is documented as not needed a pool of Cluster
// API's is captured and its scale set stays as it was, and no capture uses anything else.
func TestPublishOnlyPermissionsSuffice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, onSubscription := documentedActions()
		onGroup := publishActions(t)
		w := publishWorld(t, onGroup, onSubscription)
		before := w.model()
		if !strings.Contains(before, "CustomScript") {
			t.Fatalf("the pool has no extension that a capture deletes: %s", before)
		}
		p, err := w.open(documentedRules(true)).Plan(t.Context(), publishRequest(false))
		must(t, err)
		if notes := strings.Join(p.Notes, "\n"); !strings.Contains(notes, "draining "+donor) || strings.Contains(notes, "model") {
			t.Errorf("the plan's notes: %s", notes)
		}
		for _, deallocate := range []bool{false, true} {
			result := mustCapture(w, publishRequest(deallocate))
			if p := result.Published; p == nil || p.Version != result.Version.Name() || len(p.Regions) == 0 {
				t.Errorf("published is %+v", p)
			}
			time.Sleep(25 * time.Hour)
			w.fill()
		}
		if after := w.model(); after != before {
			t.Errorf("the scale set was\n%s\nand is\n%s", before, after)
		}
		const undo = "Microsoft.Compute/galleries/images/versions/delete" // of a version that failed
		w.usedAll(slices.DeleteFunc(append(onGroup, onSubscription...), func(a string) bool { return a == undo }), nil)
	})
}

// TestPublishOnlyDenied takes away each remaining action: it is needed, and the refusal names it.
func TestPublishOnlyDenied(t *testing.T) {
	for _, d := range denials(publishActions(t), nil, nil) {
		t.Run("without "+short(d.of), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, onSubscription := documentedActions()
				w := publishWorld(t, d.onGroup, onSubscription)
				deallocate := strings.HasSuffix(d.of, "/deallocate/action")
				_, err := w.open(documentedRules(true)).Capture(t.Context(), publishRequest(deallocate))
				w.refused(err, d.said...)
			})
		})
	}
}
