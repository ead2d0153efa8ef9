//go:build e2e

package controller

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/cluster/conversion"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// relay makes what the admission server keeps of a report that a node sent to it.
func (s *site) relay(t *testing.T, b fleet.Boot, vmID, kind string, what any) string {
	t.Helper()
	text, err := json.Marshal(what)
	if err != nil {
		t.Fatal(err)
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "told-" + kind + "-" + vmID, Namespace: s.space, Labels: map[string]string{RelayedLabel: kind},
		Annotations: map[string]string{RelayedInstance: string(b.Instance), relayedVM: vmID}}, Data: map[string]string{kind: string(text)}}
	if _, err := s.admin.CoreV1().ConfigMaps(s.space).Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return m.Name
}

func (s *site) taken(t *testing.T, name string) {
	t.Helper()
	until(t, name+" is taken", func() (bool, error) {
		_, err := s.admin.CoreV1().ConfigMaps(s.space).Get(t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}

// What nodes report to the admission server counts as what they report elsewhere, and is
// believed of the machine that the server found them to be.
func TestRelayedReportsInACluster(t *testing.T) {
	s := newSite(t)
	lost := s.machine(t, 1, nil)
	metrics, stop := s.start(t, "first")
	defer stop()
	v := aVerdict(wire.Failed, time.Minute, func(v *wire.Verdict) {
		v.Node, v.VMID, v.Reason, v.At = "", "", "CNINotReady", time.Now().UTC()
	})
	s.taken(t, s.relay(t, lost, lost.VMID, RelayedKindVerdict, v))
	list, err := s.admin.CoreV1().ConfigMaps(s.space).List(t.Context(), metav1.ListOptions{LabelSelector: assess.EvidenceLabel + "=" + assess.EvidenceValue})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%d pieces of evidence: %v", len(list.Items), err)
	}
	if a := assess.ParseAssessment([]byte(list.Items[0].Data[assess.KeyAssessment])); a.State != assess.Failed || a.Source != assess.FromAdmission || a.Reason() != "CNINotReady" || a.VMID != lost.VMID {
		t.Errorf("%+v", a)
	}
	if text := scrape(t, metrics); !strings.Contains(text, `ortet_boot_verdicts_total{outcome="Failed",pool="pool1",source="admission"} 1`) {
		t.Error(grep(text, "ortet_boot_verdicts_total"))
	}

	r := bootOf(lost)
	r.VMID = ""
	s.taken(t, s.relay(t, lost, lost.VMID, RelayedKindBoot, r))
	boots, err := s.admin.CoreV1().ConfigMaps(s.space).List(t.Context(), metav1.ListOptions{LabelSelector: assess.BootLabel + "=" + assess.BootValue})
	if err != nil || len(boots.Items) != 1 {
		t.Fatalf("%d boots: %v", len(boots.Items), err)
	}
	record, report, err := assess.ReadBoot(conversion.Record(&boots.Items[0]))
	if err != nil || record.VMID != lost.VMID || record.Node != strings.ToLower(lost.HostName) || report.VMID != lost.VMID || len(report.Units) != len(r.Units) {
		t.Errorf("%+v %v", record, err)
	}

	// A report of the machine that had the instance's id before, and one that cannot
	// be read, are taken and count for nothing.
	other := "99999999-2222-4333-8444-555555555555"
	s.taken(t, s.relay(t, lost, other, RelayedKindVerdict, v))
	s.taken(t, s.relay(t, lost, lost.VMID, RelayedKindVerdict, map[string]string{"outcome": "Fine"}))
	s.taken(t, s.relay(t, lost, lost.VMID, "poem", "…"))
	if text := scrape(t, metrics); !strings.Contains(text, `ortet_boot_verdicts_total{outcome="Failed",pool="pool1",source="admission"} 1`) {
		t.Error(grep(text, "ortet_boot_verdicts_total"))
	}
}
