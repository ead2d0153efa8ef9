package simulate

import (
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/rollback"
	"github.com/ortet/ortet/internal/image/watch"
	"github.com/ortet/ortet/internal/workflow"
)

// of returns what a process in a namespace works with, and how many changes it sent to Azure.
func (w *world) of(t *testing.T, in string) (capture.Config, func() int) {
	t.Helper()
	p := &process{w: w, name: "p-" + in, done: make(chan struct{}), dead: make(chan struct{}), ctx: w.ctx, cancel: func() {}}
	config, err := w.config(p.name, azureWire{p}, kubeWire{p}, p)
	if err != nil {
		t.Fatal(err)
	}
	api, err := kube.New(kube.Config{REST: &rest.Config{Host: "http://kubesim.invalid", Transport: kubeWire{p}, BearerToken: ortetUser}, Namespace: in, Identity: p.name, Now: p.now})
	if err != nil {
		t.Fatal(err)
	}
	config.Cluster, config.Journal, config.Namespace = api, api.Journals(), in
	return config, func() int { return int(p.changes.Load()) }
}

// TestOutcomePoolHasOneNamespace: captures, rollbacks and watches in another namespace are refused,
// and change nothing, until the pool is moved as the refusal says; status there says where the record is.
func TestOutcomePoolHasOneNamespace(t *testing.T) {
	for name, pool := range map[string]Pool{"with a definition": usual, "without one": with(func(p *Pool) { p.Versions = 0 })} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(Story{Name: name, Seed: 1, Pool: pool})
				defer w.close()
				ours, _ := w.of(t, namespace)
				for range 2 { // so that there is a way back
					if _, err := capture.New(ours).Capture(t.Context(), capture.Request{Node: w.nodeName(0), Again: true}); err != nil {
						t.Fatal(err)
					}
				}
				theirs, changes := w.of(t, "team-b")
				captures, rollbacks := capture.New(theirs), rollback.New(theirs)
				again := capture.Request{Node: w.nodeName(1), Again: true}
				_, captured := captures.Capture(t.Context(), again)
				_, back := rollbacks.Rollback(t.Context(), rollback.Request{Pool: w.pool, WithoutLearned: true})
				watches := watch.Service{Config: theirs, Rollback: rollbacks}
				_, watched := watches.Watch(t.Context(), watch.Request{Pool: w.pool, For: time.Hour, Nodes: 1})
				for what, err := range map[string]error{"capture": captured, "rollback": back, "watch": watched} {
					if !workflow.RefusedFor(err, "OtherNamespace") || !strings.Contains(err.Error(), "give --namespace "+namespace) ||
						!strings.Contains(err.Error(), "az tag update --operation delete --resource-id /subscriptions/") || !strings.Contains(err.Error(), " --tags ortet.io_namespace="+namespace) {
						t.Errorf("a %s in another namespace: %v", what, err)
					}
					for _, named := range regexp.MustCompile(`--namespace ([a-z-]+)`).FindAllStringSubmatch(err.Error(), -1) {
						if named[1] != namespace {
							t.Errorf("the way out of a %s names %s, where nothing of the pool is: %v", what, named[1], err)
						}
					}
				}
				if plan, err := captures.Plan(t.Context(), again); err != nil || len(plan.Problems) != 1 || plan.Problems[0].Code != "OtherNamespace" {
					t.Errorf("the dry run: %v, %v", plan.Problems, err)
				}
				for _, config := range []capture.Config{ours, theirs} {
					status, err := capture.New(config).Status(t.Context(), []fleet.ResourceID{w.pool})
					if err != nil || status[0].Problem != "" || (status[0].Elsewhere == "") != (config.Namespace == namespace) {
						t.Errorf("status in namespace %s: %v, %q %q", config.Namespace, err, status[0].Problem, status[0].Elsewhere)
					} else if config.Namespace != namespace && !strings.Contains(status[0].Elsewhere, "the record of its pool are in namespace "+namespace+", not in team-b: give --namespace "+namespace) {
						t.Errorf("status in another namespace says %q", status[0].Elsewhere)
					}
				}
				if n := changes(); n > 0 {
					t.Errorf("commands in another namespace sent %d changes", n)
				}
				if err := w.request(http.MethodPatch, w.names.Definition+"/providers/Microsoft.Resources/tags/default", "2021-04-01",
					object{"operation": "Delete", "properties": object{"tags": object{fleet.TagNamespace: namespace}}}); err != nil {
					t.Fatal(err)
				}
				if _, err := captures.Capture(t.Context(), again); err != nil {
					t.Errorf("a capture in another namespace, after the pool was moved there: %v", err)
				}
			})
		})
	}
}

// TestOutcomeTwoNamespacesAtOnce: of two that begin on an untagged pool at once, one works.
func TestOutcomeTwoNamespacesAtOnce(t *testing.T) {
	for name, pool := range map[string]Pool{"with a definition": usual, "without one": fresh} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(Story{Name: name, Seed: 1, Pool: pool})
				defer w.close()
				var errs [2]error
				var group sync.WaitGroup
				for i, in := range []string{namespace, "team-b"} {
					config, _ := w.of(t, in)
					group.Go(func() {
						_, errs[i] = capture.New(config).Capture(t.Context(), capture.Request{Node: w.nodeName(i)})
					})
				}
				group.Wait()
				if a, b := workflow.RefusedFor(errs[0], "OtherNamespace"), workflow.RefusedFor(errs[1], "OtherNamespace"); a == b || errs[0] != nil && errs[1] != nil {
					t.Errorf("of two namespaces: %v\nand: %v", errs[0], errs[1])
				}
			})
		})
	}
}

// TestOutcomeRollbackWithoutRightToTag: where the tag is refused a rollback goes on, and says so.
func TestOutcomeRollbackWithoutRightToTag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Seed: 1, Pool: usual, Happen: at("azure PATCH "+definition, 1, "refused")})
		defer w.close()
		config, _ := w.of(t, namespace)
		result, err := rollback.New(config).Rollback(t.Context(), rollback.Request{Pool: w.pool, To: "1999.12.18"})
		if notes := strings.Join(result.Notes, "\n"); workflow.ExitCode(err) != workflow.ExitDone || !strings.Contains(notes, "commands in other namespaces are not kept off this pool") {
			t.Errorf("%v\n%s", err, notes)
		}
		if len(w.pending) > 0 {
			t.Error("no tag was written")
		}
	})
}

// A process whose machine slept claims the pool once its lock is valid again, and not at all where
// another process has that.
func TestOutcomePoolIsClaimedUnderTheLock(t *testing.T) {
	r := play(t, Story{Seed: 1, Pool: usual, Asks: aCapture, Happen: []Event{
		{At: "kube GET ortet-system/secrets/ortet-journal-pool1-fd34c415d62c", N: 1, What: "laptop sleeps and another ortet begins", For: leaseFor + 3*time.Second},
		{At: "azure PATCH " + definition, N: 1, What: "kill before"}}})
	if len(r.violations)+len(r.missed) > 0 {
		t.Errorf("%v\n%s", r.missed, strings.Join(r.violations, "\n"))
	}
}
