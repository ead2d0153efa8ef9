package denial

import (
	"crypto/ed25519"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/rollout"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/kubesim"
)

// configurationPermissions are those that the two pages list for ortet config.
func configurationPermissions(t *testing.T) (actions []string, rules []kube.Rule) {
	t.Helper()
	for _, row := range strings.Split(strings.TrimSpace(part(t, "kubernetes-permissions.md", "configuration")), "\n")[2:] {
		cells := strings.Split(strings.Trim(row, "|"), "|")
		r := kube.Rule{Resource: strings.TrimSpace(cells[1]), Verbs: strings.Split(strings.TrimSpace(cells[2]), ", ")}
		if where := strings.TrimSpace(cells[0]); where != "whole cluster" {
			r.Namespace = strings.Trim(where, "`")
		}
		rules = append(rules, r)
	}
	actions = ticked(part(t, "azure-permissions.md", "configuration"))
	if len(actions) < 4 || len(rules) < 3 {
		t.Fatalf("the documentation lists %q and %v", actions, rules)
	}
	return actions, rules
}

// pushed is a world whose nodes apply what they are asked to, after a first push as
// Ortet may; the next one changes the history, too.
func pushed(t *testing.T, actions []string, rules []kube.Rule, value string) (*world, error) {
	w := newWorld(t, actions, nil, rules)
	w.kube.OnRequest = func(r kubesim.Request) {
		w.kubelet(r)
		if r.User != user || r.Verb != "patch" || r.Resource != "nodes" || r.Status != http.StatusOK {
			return
		}
		w.kube.Change("nodes", "", r.Name, func(o runtime.Object) {
			n := o.(*corev1.Node)
			var wanted int64
			must(t, json.Unmarshal([]byte(n.Annotations[wire.ConfigurationWanted]), &wanted))
			text, err := json.Marshal(wire.ConfigurationAnswer{Generation: wanted, Wanted: wanted, State: wire.ConfigurationApplied, At: time.Now()})
			must(t, err)
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, wire.ConfigurationAnnotation, string(text))
		})
	}
	return w, w.push(value)
}

// push pushes as ortet config does.
func (w *world) push(value string) error {
	resources, err := arm.NewResources(arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: w.azure.Credential(w.client), Transport: w.azure.Transport()})
	must(w.t, err)
	client, err := kubernetes.NewForConfig(w.kube.Config(user))
	must(w.t, err)
	r := rollout.New(rollout.Options{ARM: resources, Kube: client, Namespace: kube.DefaultNamespace, Now: time.Now, By: "operator@test"})
	_, err = r.Push(w.t.Context(), pool, rollout.PushOptions{Key: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), MaxUnavailable: "1", Timeout: time.Minute,
		Config: nodeconfig.Config{Sysctls: map[string]string{"net.core.somaxconn": value}, Kubelet: map[string]any{"systemReserved": map[string]any{"memory": "1Mi"}}}})
	return err
}

// TestConfigurationPermissionsSuffice: with exactly what is documented two pushes succeed,
// and each permission is used.
func TestConfigurationPermissionsSuffice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		actions, rules := configurationPermissions(t)
		w, err := pushed(t, actions, rules, "1024")
		must(t, err)
		must(t, w.push("4096"))
		used := map[string]bool{}
		for _, r := range w.actions {
			if r.Status == http.StatusForbidden {
				t.Errorf("%s %s was refused", r.Method, r.Path)
			}
			used[strings.ToLower(r.Action)] = true
		}
		for _, r := range w.asks {
			if r.Status == http.StatusForbidden {
				t.Errorf("%+v was refused", r)
			}
			used[r.Verb+" "+r.Resource] = true
		}
		for _, a := range actions {
			if !used[strings.ToLower(a)] {
				t.Errorf("%s is documented, and nothing needed it", a)
			}
		}
		for _, v := range verbsOf(rules) {
			if !used[v.verb+" "+v.rule.Resource] {
				t.Errorf("%s is documented, and nothing needed it", v)
			}
		}
	})
}

// TestConfigurationNeedsEachPermission: without any one of them a push fails, and says
// what to grant.
func TestConfigurationNeedsEachPermission(t *testing.T) {
	actions, rules := configurationPermissions(t)
	for _, a := range actions {
		t.Run("without "+short(a), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if _, err := pushed(t, less(actions, a), rules, "1024"); err == nil || !strings.Contains(err.Error(), a) {
					t.Errorf("does not name %s: %v", a, err)
				}
			})
		})
	}
	for _, v := range verbsOf(rules) {
		t.Run("without "+v.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, err := pushed(t, actions, without(rules, v), "1024")
				if err == nil {
					err = w.push("4096") // the second changes the history
				}
				if err == nil {
					t.Fatal("not needed")
				}
				if _, grant, _ := strings.Cut(err.Error(), "; grant "); !strings.Contains(grant, v.verb) || !strings.Contains(grant, v.rule.Resource) {
					t.Errorf("does not say to grant %s: %v", v, err)
				}
				if wrote := w.wrote(); slices.Contains([]string{"get", "list"}, v.verb) && v.rule.Resource != "nodes" && len(wrote) > 0 {
					t.Errorf("was refused, and yet asked for changes: %q", wrote)
				}
			})
		})
	}
}
