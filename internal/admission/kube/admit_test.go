//go:build e2e

package kube_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/admission/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// A machine that was admitted gets the certificate of its own name with its token,
// and its token ends once its Node is Ready.
func TestAdmittedMachineJoins(t *testing.T) {
	w := newWorld(t, "ortet-joins")
	c := w.open()
	w.run(c)
	join, err := c.Admit(w.ctx, w.member("JOINS00001", "1", machineA), wire.Kubelet, admission.NodeState{Exists: true})
	must(t, err)
	if join.NodeName != "joins00001" || join.ProviderID != "azure://"+pool+"/virtualMachines/1" || join.Server != w.cp.Server || string(join.CA) != string(w.cp.CA()) {
		t.Errorf("%+v", join)
	}
	name := w.ask(w.as(join.Token), certificatesv1.KubeAPIServerClientKubeletSignerName, request(t, newKey(t), nodeSubject(join.NodeName)))
	if d := w.decision(name); d.Verb != kube.Approve || d.Reason != kube.TokenProven || d.Node != join.NodeName {
		t.Errorf("%+v", d)
	}
	w.eventually("the certificate", func() bool {
		r, err := w.admin.CertificatesV1().CertificateSigningRequests().Get(w.ctx, name, metav1.GetOptions{})
		must(t, err)
		return len(r.Status.Certificate) > 0
	})
	w.nodeReady(join.NodeName, join.ProviderID)
	id, _, _ := strings.Cut(join.Token, ".")
	w.eventually("the token's end", func() bool {
		_, err := w.admin.CoreV1().Secrets("kube-system").Get(w.ctx, "bootstrap-token-"+id, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	w.eventually("the token to count no more", func() bool {
		_, err := w.as(join.Token).CertificatesV1().CertificateSigningRequests().List(w.ctx, metav1.ListOptions{})
		return apierrors.IsUnauthorized(err)
	})
	w.nodeReady(join.NodeName, join.ProviderID) // tokens are remembered for 10 s, and silent nodes are not Ready after 16 s
	if _, err := c.Admit(w.ctx, w.member("joins00001", "1", machineA), wire.Kubelet, admission.NodeState{Exists: true}); !errors.Is(err, admission.ErrReady) || !fleet.Is(err, fleet.KindConflict) {
		t.Errorf("a Node that is Ready was admitted again: %v", err)
	}
}

// nodeReady registers a Node, or changes it, so that it is Ready.
func (w *world) nodeReady(name, providerID string) *corev1.Node {
	w.Helper()
	n, err := w.admin.CoreV1().Nodes().Get(w.ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		n, err = w.admin.CoreV1().Nodes().Create(w.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: providerID}}, metav1.CreateOptions{})
		w.Cleanup(func() { _ = w.admin.CoreV1().Nodes().Delete(w.ctx, name, metav1.DeleteOptions{}) })
	}
	must(w, err)
	return w.report(n.Name, corev1.ConditionTrue, "boot-1")
}

// report is a kubelet's.
func (w *world) report(name string, ready corev1.ConditionStatus, boot string) *corev1.Node {
	w.Helper()
	for {
		n, err := w.admin.CoreV1().Nodes().Get(w.ctx, name, metav1.GetOptions{})
		must(w, err)
		n.Status.NodeInfo.BootID = boot
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.Now(), LastHeartbeatTime: metav1.Now()}}
		n, err = w.admin.CoreV1().Nodes().UpdateStatus(w.ctx, n, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			continue
		}
		must(w, err)
		return n
	}
}

// The token of k3s and RKE2 pins the authority as k3s does.
func TestTokenOfK3s(t *testing.T) {
	w := newWorld(t, "ortet-k3s")
	c := w.open()
	m := w.member("k3s000001", "1", machineA)
	_, err := w.admin.CoreV1().Secrets("kube-system").Create(w.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "k3s000001.node-password.k3s"}}, metav1.CreateOptions{})
	must(t, err)
	join, err := c.Admit(w.ctx, m, wire.K3s, admission.NodeState{Exists: true})
	must(t, err)
	sum := sha256.Sum256(w.cp.CA())
	if prefix := "K10" + hex.EncodeToString(sum[:]) + "::"; !strings.HasPrefix(join.Token, prefix) || len(join.Token) != len(prefix)+23 {
		t.Errorf("token %s", join.Token)
	}
	if _, err := w.admin.CoreV1().Secrets("kube-system").Get(w.ctx, "k3s000001.node-password.k3s", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the earlier machine's node password: %v", err)
	}
}

// A token is good for one key and one name; everything else that it asks for is denied
// with the reason, and nothing of it is signed.
func TestTokenIsGoodForOneKeyAndName(t *testing.T) {
	w := newWorld(t, "ortet-one")
	c := w.open()
	w.run(c)
	join, err := c.Admit(w.ctx, w.member("one000001", "1", machineA), wire.Kubelet, admission.NodeState{Exists: true})
	must(t, err)
	as, key := w.as(join.Token), newKey(t)
	for _, q := range []struct {
		name, reason string
		verb         kube.Verb
		pem          []byte
		signer       string
	}{
		{"another name", kube.TokenOtherName, kube.Deny, request(t, key, nodeSubject("one000002")), certificatesv1.KubeAPIServerClientKubeletSignerName},
		{"its own", kube.TokenProven, kube.Approve, request(t, key, nodeSubject("one000001")), certificatesv1.KubeAPIServerClientKubeletSignerName},
		{"again", kube.TokenProven, kube.Approve, request(t, key, nodeSubject("one000001")), certificatesv1.KubeAPIServerClientKubeletSignerName},
		{"another key", kube.TokenUsedTwice, kube.Deny, request(t, newKey(t), nodeSubject("one000001")), certificatesv1.KubeAPIServerClientKubeletSignerName},
		{"to serve", kube.TokenMisused, kube.Deny, request(t, key, serving("one000001", []string{"one000001"})), certificatesv1.KubeletServingSignerName},
	} {
		name := w.ask(as, q.signer, q.pem)
		if d := w.decision(name); d.Verb != q.verb || d.Reason != q.reason {
			t.Errorf("%s: %+v, want %s", q.name, d, q.reason)
		}
		r, err := w.admin.CertificatesV1().CertificateSigningRequests().Get(w.ctx, name, metav1.GetOptions{})
		must(t, err)
		if q.verb == kube.Deny && (len(r.Status.Certificate) > 0 || len(r.Status.Conditions) != 1 || r.Status.Conditions[0].Reason != "Ortet"+q.reason) {
			t.Errorf("%s: %+v", q.name, r.Status)
		}
	}
	// It may do nothing else.
	if _, err := as.CoreV1().Nodes().List(w.ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing nodes with the token: %v", err)
	}
	// Admitted anew, the old token counts no more, and the new one for a new key.
	again, err := c.Admit(w.ctx, w.member("one000001", "1", machineB), wire.Kubelet, admission.NodeState{Exists: true})
	must(t, err)
	if again.Token == join.Token {
		t.Error("it got the same token")
	}
	w.eventually("the old token's end", func() bool {
		_, err := as.CoreV1().Nodes().List(w.ctx, metav1.ListOptions{})
		return apierrors.IsUnauthorized(err)
	})
	name := w.ask(w.as(again.Token), certificatesv1.KubeAPIServerClientKubeletSignerName, request(t, newKey(t), nodeSubject("one000001")))
	if d := w.decision(name); d.Verb != kube.Approve {
		t.Errorf("%+v", d)
	}
}

// What a node asks for itself is granted while Azure has its machine, and with its own
// addresses only.
func TestNodeAsksForItself(t *testing.T) {
	w := newWorld(t, "ortet-itself")
	c := w.open()
	w.run(c)
	m := w.member("itself001", "1", machineA)
	join, err := c.Admit(w.ctx, m, wire.Kubelet, admission.NodeState{Exists: true})
	must(t, err)
	node := w.bootstrap(join)
	node = node.renew(kube.NodeProven)
	node.serves("10.1.0.4", kube.NodeProven)
	node.serves("10.1.0.5", kube.NotItsAddress)
	w.member("itself001", "1", machineB)
	node.renew(kube.OtherMachine)
	w.directory.remove(m.Instance)
	node.renew(kube.InstanceGone)
	if d := w.decision(w.ask(w.asNode("unknown01"), certificatesv1.KubeAPIServerClientKubeletSignerName, request(t, newKey(t), nodeSubject("unknown01")))); d.Reason != kube.NotAdmitted || d.Verb != kube.Leave {
		t.Errorf("%+v", d)
	}
}
