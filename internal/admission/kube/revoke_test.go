//go:build e2e

package kube_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/admission/kube"
	"github.com/ortet/ortet/internal/wire"
)

// Revoked by hand, nothing is left of a machine, and what was signed for it is renewed no
// more; nor is it once the machine was admitted again.
func TestRevoke(t *testing.T) {
	w := newWorld(t, "ortet-revoke")
	c := w.open()
	w.run(c)
	m := w.member("revoke0001", "1", machineA)
	join, err := c.Admit(w.ctx, m, wire.Kubelet, admission.NodeState{})
	must(t, err)
	stolen := w.bootstrap(join)
	w.nodeReady("revoke0001", m.ProviderID())
	must(t, c.Forget(w.ctx, "revoke0001", ""))
	if got := w.remains("revoke0001"); got != "" {
		t.Errorf("there is %q", got)
	}
	stolen.renew(kube.NotAdmitted)
	if at, err := c.AdmittedAt(w.ctx, "revoke0001"); err != nil || !at.IsZero() {
		t.Errorf("admitted %s, %v", at, err)
	}
	join, err = c.Admit(w.ctx, m, wire.Kubelet, admission.NodeState{})
	must(t, err)
	stolen.renew(kube.OtherCertificate)
	w.bootstrap(join).renew(kube.NodeProven)
	stolen.renew(kube.OtherCertificate)
	must(t, c.Forget(w.ctx, "revoke0001", ""))
}

// Azure still signs documents for a revoked machine. No replica admits it again, under any
// name, until Azure no longer has it. Its successor is admitted, and the revoked key admits
// no Node.
func TestRevokedMachineIsNotAdmittedAgain(t *testing.T) {
	w := newWorld(t, "ortet-revoked")
	c := w.open()
	m := w.member("revoked001", "1", machineA)
	_, err := c.Admit(w.ctx, m, wire.Kubelet, admission.NodeState{})
	must(t, err)
	w.nodeReady("revoked001", m.ProviderID())
	must(t, w.open().Revoke(w.ctx, "revoked001"))
	if got := w.remains("revoked001"); got != "" {
		t.Errorf("there is %q", got)
	}
	for what, c := range map[string]*kube.Cluster{"the replica that admitted it": c, "another replica": w.open()} {
		for _, host := range []string{"revoked001", "revoked002"} {
			again := m
			again.HostName = host
			if _, err := c.Admit(w.ctx, again, wire.Kubelet, admission.NodeState{}); !errors.Is(err, admission.ErrRevoked) {
				t.Errorf("%s, as %s: %v", what, host, err)
			}
			if got := w.remains(host); got != "" {
				t.Errorf("%s, as %s, left %q", what, host, got)
			}
		}
	}
	all, err := c.Admitted(w.ctx)
	must(t, err)
	kept := slices.IndexFunc(all, func(n admission.AdmittedNode) bool { return n.VMID == machineA })
	if kept < 0 || len(all) != 1 && all[kept].Exists || len(validation.IsDNS1123Subdomain(all[kept].Name)) == 0 {
		t.Fatalf("what is kept of it: %+v", all)
	}
	_, err = c.Admit(w.ctx, w.member("revoked001", "1", machineB), wire.Kubelet, admission.NodeState{})
	must(t, err) // the instance was deleted and its id reused
	if reaped, err := c.Reap(w.ctx, all[kept]); err != nil || !reaped {
		t.Errorf("it is not forgotten once Azure has it no more: %v %v", reaped, err)
	}
	if all, err = c.Admitted(w.ctx); err != nil || slices.ContainsFunc(all, func(n admission.AdmittedNode) bool { return n.VMID == machineA }) {
		t.Errorf("%+v %v", all, err)
	}
	must(t, c.Forget(w.ctx, "revoked001", ""))
	if err := c.Revoke(w.ctx, "revoked009"); err != nil {
		t.Errorf("a Node that was never there: %v", err)
	}
}

// Whoever may write ConfigMaps and has a bootstrap token of whatever group becomes no
// node by a record of his own, nor by one of ours that he changed.
func TestForgedRecordsGrantNothing(t *testing.T) {
	w := newWorld(t, "ortet-forge")
	c := w.open()
	w.run(c)
	maps := w.admin.CoreV1().ConfigMaps(w.namespace)
	join, err := c.Admit(w.ctx, w.member("forge00001", "1", machineA), wire.Kubelet, admission.NodeState{})
	must(t, err)
	id, _, _ := strings.Cut(join.Token, ".")
	own, err := maps.Get(w.ctx, "ortet-token-"+id, metav1.GetOptions{})
	must(t, err)
	forged := own.DeepCopy()
	forged.ResourceVersion, forged.Name, forged.Data["node"] = "", "ortet-token-forged", "control-plane-0"
	_, err = maps.Create(w.ctx, forged, metav1.CreateOptions{})
	must(t, err)
	// A kubeadm token, as an administrator makes it.
	_, err = w.admin.CoreV1().Secrets("kube-system").Create(w.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-forged"}, Type: corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{"token-id": "forged", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true", "auth-extra-groups": kube.TokenGroup}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		_ = w.admin.CoreV1().Secrets("kube-system").Delete(context.WithoutCancel(w.ctx), "bootstrap-token-forged", metav1.DeleteOptions{})
	})
	own.Data["node"] = "control-plane-0"
	_, err = maps.Update(w.ctx, own, metav1.UpdateOptions{})
	must(t, err)
	for what, token := range map[string]string{"a forged record": "forged.0123456789abcdef", "a changed record": join.Token} {
		name := w.ask(w.as(token), certificatesv1.KubeAPIServerClientKubeletSignerName, request(t, newKey(t), nodeSubject("control-plane-0")))
		if d := w.decision(name); d.Verb != kube.Leave || d.Reason != kube.TokenUnknown {
			t.Errorf("%s: %+v", what, d)
		}
	}
	must(t, c.Forget(w.ctx, "forge00001", ""))
}
