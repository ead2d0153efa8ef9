package denial

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/kubesim"
)

// TestTuningsRightReadsKeptBoots: with exactly what is documented of tunings a boot that a controller keeps
// is read, in Ortet's namespace alone; without it the error names the right.
func TestTuningsRightReadsKeptBoots(t *testing.T) {
	report := wire.BootReport{Version: wire.BootReportVersion, Node: "n", VMID: "v", BootID: "b"}
	kept, err := assess.BootRecord{Node: "n", VMID: "v", BootID: "b"}.Record(report)
	must(t, err)
	needs := kube.Everything(kube.DefaultNamespace)
	for _, needs.Tunes = range []bool{true, false} {
		rules := kube.Rules(needs)
		if n := len(slices.DeleteFunc(slices.Clone(rules), func(r kube.Rule) bool { return r.Resource != "configmaps" })); (n == 1) != needs.Tunes {
			t.Fatalf("%d rules of configmaps", n)
		}
		api := &kubesim.Server{Users: map[string][]kubesim.Grant{user: kubesim.Grants(kube.PolicyRules(rules))}}
		for _, namespace := range []string{kube.DefaultNamespace, "elsewhere"} {
			api.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: kept.Name, Labels: kept.Labels, Annotations: kept.Annotations}, Data: kept.Data, BinaryData: kept.Binary})
			c, err := kube.New(kube.Config{REST: api.Config(user), Namespace: namespace})
			must(t, err)
			var nodes []string
			var failed error
			for r, err := range c.Records(t.Context(), map[string]string{assess.BootLabel: assess.BootValue}) {
				boot, _, unread := assess.ReadBoot(r)
				if failed = err; err == nil {
					failed, nodes = unread, append(nodes, boot.Node)
				}
			}
			switch may := needs.Tunes && namespace == kube.DefaultNamespace; {
			case may && (failed != nil || !slices.Equal(nodes, []string{"n"})):
				t.Errorf("with the right: %v, %v", nodes, failed)
			case !may && (!fleet.Is(failed, fleet.KindDenied) || !strings.Contains(failed.Error(), "list configmaps") || len(nodes) > 0):
				t.Errorf("in %s, with the right of tunings %v: %v, %v", namespace, needs.Tunes, nodes, errors.Unwrap(failed))
			}
		}
	}
}
