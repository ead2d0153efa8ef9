//go:build e2e

package kube_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/admission/kube"
	"github.com/ortet/ortet/internal/wire"
)

// anHourLater deletes the certificate requests for a node, as Kubernetes does an hour
// after they were approved.
func (w *world) anHourLater(c *kube.Cluster, node string) {
	w.Helper()
	list, err := w.admin.CertificatesV1().CertificateSigningRequests().List(w.ctx, metav1.ListOptions{})
	must(w, err)
	for i := range list.Items {
		if bootstrapped(w, &list.Items[i], node) {
			must(w, w.admin.CertificatesV1().CertificateSigningRequests().Delete(w.ctx, list.Items[i].Name, metav1.DeleteOptions{}))
		}
	}
	w.eventually("the requests to be gone", func() bool { return len(c.RequestsSeen(node)) == 0 })
}

// A machine that left, and whose certificate somebody kept, has it renewed no more once
// the next machine has its name: not before that one has a certificate, nor while its
// requests are there, nor when they are gone. The next machine renews all the time, with
// the certificate that it asks for next to last too.
func TestEarlierMachineRenewsNothing(t *testing.T) {
	w := newWorld(t, "ortet-earlier")
	var later atomic.Int64
	w.now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	c := w.open()
	w.run(c)
	join, err := c.Admit(w.ctx, w.member("earlier01", "1", machineA), wire.Kubelet, admission.NodeState{Exists: true})
	must(t, err)
	first := w.bootstrap(join)
	first.renew(kube.NodeProven)
	// The instance is made anew, under its id and its name.
	join, err = c.Admit(w.ctx, w.member("earlier01", "1", machineB), wire.Kubelet, admission.NodeState{Exists: true})
	must(t, err)
	refused := func() {
		t.Helper()
		first.renew(kube.OtherCertificate)
		first.serves("10.1.0.4", kube.OtherCertificate)
	}
	refused()
	second := w.bootstrap(join)
	refused()
	second.serves("10.1.0.4", kube.NodeProven)
	// Once: requests tell their time by the second.
	third := second.renew(kube.NodeProven)
	// Written down, and the requests gone.
	must(t, c.Sweep(w.ctx))
	w.anHourLater(c, "earlier01")
	refused()
	third.serves("10.1.0.4", kube.NodeProven)
	second.serves("10.1.0.4", kube.NodeProven) // which it has until the third is written down
	fourth := third.renew(kube.NodeProven)
	must(t, c.Sweep(w.ctx))
	w.anHourLater(c, "earlier01")
	refused()
	second.renew(kube.OtherCertificate)
	fourth.renew(kube.NodeProven)
	// The same machine, made anew on its disk and admitted once more: what lay there does
	// not count any more.
	later.Store(int64(2 * time.Hour))
	_, err = w.open().Admit(w.ctx, w.member("earlier01", "1", machineB), wire.Kubelet, admission.NodeState{Exists: true})
	must(t, err)
	fourth.renew(kube.OtherCertificate)
	refused()
	// Revoked by hand, nothing of it counts, and its name is admitted no more.
	must(t, c.Forget(w.ctx, "earlier01", ""))
	fourth.renew(kube.NotAdmitted)
}

// A replica that dies between the approval and the writing down loses nothing: the next
// one finds the request.
func TestCertificatesAreWrittenDownByTheNextReplica(t *testing.T) {
	w := newWorld(t, "ortet-dies")
	dead := w.open()
	ctx, kill := context.WithCancel(w.ctx)
	ended := make(chan error, 1)
	go func() { ended <- dead.Run(ctx, w.directory, w.heard) }()
	w.eventually("the watch to begin", dead.Synced)
	join, err := dead.Admit(w.ctx, w.member("dies00001", "1", machineA), wire.Kubelet, admission.NodeState{Exists: true})
	must(t, err)
	node := w.bootstrap(join)
	kill()
	must(t, <-ended)
	next := w.open()
	w.run(next)
	node.serves("10.1.0.4", kube.NodeProven)
	must(t, next.Sweep(w.ctx))
	w.anHourLater(next, "dies00001")
	node.renew(kube.NodeProven)
	// Two replicas write the same down.
	other := w.open()
	w.run(other)
	must(t, other.Sweep(w.ctx))
	must(t, next.Sweep(w.ctx))
	node.renew(kube.NodeProven)
}

// What the controller manager approves for a node counts where it was asked for with a
// certificate that counts, and not where an earlier machine asked.
func TestRenewalsThatOthersApprove(t *testing.T) {
	w := newWorld(t, "ortet-others")
	c := w.open()
	w.run(c)
	join, err := c.Admit(w.ctx, w.member("others001", "1", machineA), wire.Kubelet, admission.NodeState{Exists: true})
	must(t, err)
	first := w.bootstrap(join)
	join, err = c.Admit(w.ctx, w.member("others001", "1", machineB), wire.Kubelet, admission.NodeState{Exists: true})
	must(t, err)
	second := w.bootstrap(join)
	_, err = w.admin.RbacV1().ClusterRoleBindings().Create(w.ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "ortet-others-rotate"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "system:node:others001"}},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		_ = w.admin.RbacV1().ClusterRoleBindings().Delete(context.WithoutCancel(w.ctx), "ortet-others-rotate", metav1.DeleteOptions{})
	})
	// rotated has one approved by whoever is first, the controller manager by and by.
	rotated := func(k kubelet) kubelet {
		t.Helper()
		key := newKey(t)
		name := w.ask(k, certificatesv1.KubeAPIServerClientKubeletSignerName, request(t, key, nodeSubject(k.name)))
		return w.kubelet(k.name, key, w.signed(name))
	}
	stolen, renewed := rotated(first), rotated(second)
	stolen.serves("10.1.0.4", kube.OtherCertificate)
	renewed.serves("10.1.0.4", kube.NodeProven)
	must(t, c.Sweep(w.ctx))
	w.anHourLater(c, "others001")
	stolen.serves("10.1.0.4", kube.OtherCertificate)
	renewed.serves("10.1.0.4", kube.NodeProven)
}

// The approver's decisions are counted by what was done, why, and for which signer.
func TestDecisionsAreCounted(t *testing.T) {
	w := newWorld(t, "ortet-counted")
	registry := prometheus.NewRegistry()
	w.figures = registry
	c := w.open()
	w.run(c)
	join, err := c.Admit(w.ctx, w.member("counted01", "1", machineA), wire.Kubelet, admission.NodeState{Exists: true})
	must(t, err)
	node := w.bootstrap(join)
	node.serves("10.1.0.4", kube.NodeProven)
	node.serves("10.1.0.5", kube.NotItsAddress)
	if d := w.decision(w.ask(w.as(join.Token), certificatesv1.KubeAPIServerClientKubeletSignerName, request(t, newKey(t), nodeSubject("counted01")))); d.Reason != kube.TokenUsedTwice {
		t.Errorf("%+v", d)
	}
	families, err := registry.Gather()
	must(t, err)
	counted := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			counted[f.GetName()+" "+strings.Join(labels, " ")] = m.GetCounter().GetValue()
		}
	}
	// Other tests' requests are seen too, and left.
	for _, want := range []string{
		"decision=Approve reason=TokenProven signer=client", "decision=Approve reason=NodeProven signer=serving",
		"decision=Leave reason=NotItsAddress signer=serving", "decision=Deny reason=TokenUsedTwice signer=client",
	} {
		if n := counted["ortet_admission_certificates_total "+want]; n != 1 {
			t.Errorf("%s: %v, of %v", want, n, counted)
		}
	}
}
