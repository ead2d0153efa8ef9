package kube_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/cluster/clustertest"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/journal/journaltest"
	"github.com/ortet/ortet/test/kubesim"
)

// printed is what the containers printed, by "namespace/pod".
type printed struct{ sync.Map }

func (p *printed) log(namespace, pod string) []byte {
	output, ok := p.Load(namespace + "/" + pod)
	if !ok {
		return nil
	}
	return []byte(output.(string))
}

// TestContractInMemory runs the suites on kubesim, as TestContract does on a
// real API server: what passes both cannot tell them apart.
func TestContractInMemory(t *testing.T) {
	const namespace, tests = "ortet-contract", "ortet-tests"
	var prints printed
	s := &kubesim.Server{Log: prints.log}
	s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tests}})
	needs := kube.Everything(namespace)
	needs.Test = tests
	s.Users = map[string][]kubesim.Grant{
		"admin": {kubesim.Administrator()},
		"least": kubesim.Grants(kube.PolicyRules(kube.Rules(needs))),
	}
	least := s.Config("least")

	clustertest.Run(t, clustertest.Setup{
		Admin: s.Config("admin"), Namespace: namespace, Tests: tests,
		Open:  func(t *testing.T, now func() time.Time) cluster.Cluster { return open(t, least, namespace, now) },
		Print: func(_ *testing.T, namespace, pod, output string) { prints.Store(namespace+"/"+pod, output) },
		ServeMachines: func(t *testing.T) {
			s.Machines = true
			t.Cleanup(func() { s.Machines = false })
		},
		Within: synctest.Test,
	})
	t.Run("Journals", func(t *testing.T) {
		journaltest.Run(t, journaltest.Setup{
			Open: func(t *testing.T) journal.Store { return open(t, least, namespace, nil).Journals() },
			Put: func(_ *testing.T, pool string, data []byte) {
				s.Remove("secrets", namespace, kube.JournalName(pool))
				if data != nil {
					s.Put(journalSecret(namespace, pool, data))
				}
			},
		})
	})
}

// journalSecret has a journal's data as Ortet stores it.
func journalSecret(namespace, pool string, data []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: kube.JournalName(pool), Namespace: namespace},
		Type:       "ortet.io/journal", Data: map[string][]byte{"record": data},
	}
}
