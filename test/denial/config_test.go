package denial

import (
	"crypto/ed25519"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/nodeconfig/push"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/kubesim"
)

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
	options := arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: w.azure.Credential(w.client), Transport: w.azure.Transport()}
	resources, err := arm.NewResources(options)
	must(w.t, err)
	cloud, err := arm.New(options)
	must(w.t, err)
	client, err := kubernetes.NewForConfig(w.kube.Config(user))
	must(w.t, err)
	r := push.New(push.Options{ARM: resources, Cloud: cloud, Kube: client, Namespace: kube.DefaultNamespace, Now: time.Now, By: "operator@test"})
	_, err = r.Push(w.t.Context(), pool, push.Request{Key: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), MaxUnavailable: "1", Timeout: time.Minute,
		Config: nodeconfig.Config{Sysctls: map[string]string{"net.core.somaxconn": value}, Kubelet: map[string]any{"systemReserved": map[string]any{"memory": "1Mi"}}}})
	return err
}

// TestConfigurationPermissionsSuffice: with exactly what is documented two pushes succeed,
// and each permission is used.
func TestConfigurationPermissionsSuffice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		actions, rules := azure.ConfigurationActions(), kube.ConfigurationRules("")
		w, err := pushed(t, actions, rules, "1024")
		must(t, err)
		must(t, w.push("4096"))
		w.usedAll(actions, rules)
	})
}

// TestConfigurationNeedsEachPermission: without any one of them a push fails, and says
// what to grant.
func TestConfigurationNeedsEachPermission(t *testing.T) {
	for _, d := range denials(azure.ConfigurationActions(), nil, kube.ConfigurationRules("")) {
		t.Run("without "+short(d.of), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, err := pushed(t, d.onGroup, d.rules, "1024")
				if err == nil {
					err = w.push("4096") // the second changes the history
				}
				if err == nil {
					t.Fatal("not needed")
				}
				_, grant, _ := strings.Cut(err.Error(), "; grant ")
				for _, word := range strings.Fields(strings.TrimSuffix(d.of, " in "+kube.DefaultNamespace)) {
					if !strings.Contains(grant, word) {
						t.Errorf("does not say to grant %s: %v", d.of, err)
					}
				}
				reads := strings.HasPrefix(d.of, "get ") || strings.HasPrefix(d.of, "list ")
				if wrote := w.wrote(); reads && !strings.HasSuffix(d.of, " nodes") && len(wrote) > 0 {
					t.Errorf("was refused, and yet asked for changes: %q", wrote)
				}
			})
		})
	}
}
