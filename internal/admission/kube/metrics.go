package kube

import (
	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/prometheus/client_golang/prometheus"
)

// newDecisions makes the count of the approver's decisions. Its labels have few
// values: never what a stranger sends.
func newDecisions(registry prometheus.Registerer) (*prometheus.CounterVec, error) {
	counts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ortet_admission_certificates_total",
		Help: "Certificate requests that the approver decided on: by what it did (Approve, Deny, Leave), why, and whose signer was asked (client, serving, other).",
	}, []string{"decision", "reason", "signer"})
	if registry == nil {
		return counts, nil
	}
	return counts, registry.Register(counts)
}

// count counts a decision once it stands.
func (c *Cluster) count(d decision, signer string) {
	c.decisions.WithLabelValues(string(d.verb), d.reason, signerLabel(signer)).Inc()
}

func signerLabel(signer string) string {
	switch signer {
	case certificatesv1.KubeAPIServerClientKubeletSignerName:
		return "client"
	case certificatesv1.KubeletServingSignerName:
		return "serving"
	}
	return "other"
}
