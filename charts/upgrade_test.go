//go:build e2e

package charts

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/admission"
	admissionkube "github.com/ortet/ortet/internal/admission/kube"
	"github.com/ortet/ortet/test/controlplane"
)

// earlier is what the charts rendered before the keys had a namespace of their own.
func earlier(t *testing.T) string {
	t.Helper()
	var all []string
	for _, chart := range []string{"ortet", "vmss-prototype"} {
		text, err := os.ReadFile(filepath.Join("testdata", "earlier", chart+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	return strings.Join(all, "\n---\n")
}

// earlierKeys are as an earlier version makes them.
func earlierKeys() map[string]map[string][]byte {
	return map[string]map[string][]byte{
		"ortet-admission-authority": {corev1.TLSCertKey: []byte("theirs"), corev1.TLSPrivateKeyKey: []byte("key")},
		"ortet-admission-nonce":     {"key": bytes.Repeat([]byte("n"), 32)},
		"ortet-admission-records":   {"key": bytes.Repeat([]byte("r"), 32)},
	}
}

// keysIn counts the server's keys in a namespace that are an earlier version's.
func (i *installation) keysIn(namespace string) (n int) {
	i.Helper()
	list, err := i.admin.CoreV1().Secrets(namespace).List(i.ctx, metav1.ListOptions{})
	if err != nil {
		i.Fatal(err)
	}
	for _, s := range list.Items {
		if want := earlierKeys()[s.Name]; want != nil {
			n++
			for field := range want {
				if !bytes.Equal(s.Data[field], want[field]) {
					i.Errorf("%s of %s/%s is another one", field, namespace, s.Name)
				}
			}
		}
	}
	return n
}

// leads has a replica lead once.
func (i *installation) leads(c *admissionkube.Cluster, identity string) {
	i.Helper()
	ctx, cancel := context.WithTimeout(i.ctx, time.Minute)
	defer cancel()
	led := false
	err := c.Lead(ctx, identity, func(context.Context) { led = true; cancel() })
	if !led {
		i.Errorf("%s never led: %v", identity, err)
	}
}

// earlierCharts are charts, by their releases' names, of what those before rendered. The
// Job of a capture is not in them: nothing changes a Job's template (see the README).
func earlierCharts(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for release, chart := range map[string]string{"r": "ortet", "c": "vmss-prototype"} {
		text, err := os.ReadFile(filepath.Join("testdata", "earlier", chart+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), chart)
		if err := os.MkdirAll(filepath.Join(dir, "templates"), 0o700); err != nil {
			t.Fatal(err)
		}
		for name, data := range map[string][]byte{"templates/all.yaml": text, "Chart.yaml": []byte("apiVersion: v2\nname: " + chart + "\nversion: 0.0.1\n")} {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		all[release] = dir
	}
	return all
}

// An upgrade by Helm from the charts before, in the middle of a capture: the server goes by the
// same authority, records, nonces and Lease, and the capture goes on. The keys stay where
// an earlier version finds them for an hour, and no longer.
func TestUpgradeKeepsRecordsWithACaptureOpen(t *testing.T) {
	const namespace, on = "upgrade-system", "upgrade-worker"
	apart := admissionkube.KeysNamespace(namespace)
	i := emptied(t, namespace)
	for release, chart := range earlierCharts(t) {
		i.helm("install", release, chart, "--namespace", namespace)
		t.Cleanup(func() { i.helm("uninstall", release, "--namespace", namespace) })
	}
	i.surroundings(on, "upgrade-control")
	for name, data := range earlierKeys() {
		if _, err := i.admin.CoreV1().Secrets(namespace).Create(i.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// The server of before had its keys there, and no others.
	if _, err := i.admin.CoreV1().Namespaces().Create(i.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: apart}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	before := i.admission(controlplane.Client{User: "kubernetes-admin", Groups: []string{"system:masters"}}, time.Now)
	member := machine("upgrade-member")
	i.starts(before, member)
	if err := before.Spend(i.ctx, "a1", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	i.leads(before, "before")
	for name := range earlierKeys() {
		if err := i.admin.CoreV1().Secrets(apart).Delete(i.ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the capture to be allowed", func() error {
		_, err := i.capture().Hold(i.ctx, accountsPool, captureHolder, time.Minute)
		return err
	})
	i.captures(t, i.capture(), on)

	for _, args := range releases(namespace, "upgrade-control") {
		i.helm(append([]string{"upgrade"}, args...)...)
	}
	capture := client(t, i.account("c-vmss-prototype"))
	refusal(t, "the policies of today", "annotates and cordons", func() error {
		return patchNode(on, `{"metadata":{"labels":{"a":"b"}}}`)(i.ctx, capture, namespace)
	})

	after := i.server()
	if authority := i.starts(after, machine("upgrade-next")); string(authority) != "theirs" {
		t.Errorf("the authority is %s", authority)
	}
	if at, err := after.AdmittedAt(i.ctx, member.NodeName()); err != nil || at.IsZero() {
		t.Errorf("what was admitted before is not: %v, %v", at, err)
	}
	if err := after.Spend(i.ctx, "a1", time.Now().Add(time.Hour)); !errors.Is(err, admission.ErrSpent) {
		t.Errorf("a nonce that was spent before: %v", err)
	}
	i.leads(after, "after")
	if n := i.keysIn(apart); n != len(earlierKeys()) {
		t.Errorf("%d keys were copied", n)
	}

	c := i.capture()
	if r, err := c.Journals().Load(i.ctx, accountsPool); err != nil || r.Subject != on {
		t.Errorf("the capture's journal: %v, of %s", err, r.Subject)
	}
	if held, _, err := c.Holding(i.ctx, accountsPool); err != nil || held.Holder != captureHolder {
		t.Errorf("the pool is held by %q, %v", held.Holder, err)
	}
	i.captures(t, c, on)
	for what, err := range map[string]error{
		"end the pod": c.ForceDeleteJob(i.ctx, captureJob), "release kured": c.ReleaseReboots(i.ctx, captureHolder), "release the pool": c.Release(i.ctx, accountsPool, captureHolder),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}

	if err := after.Sweep(i.ctx); err != nil {
		t.Error(err)
	}
	if n := i.keysIn(namespace); n != len(earlierKeys()) {
		t.Errorf("%d keys are left to roll back with", n)
	}
	later := i.admission(i.account("r-admission"), func() time.Time { return time.Now().Add(61 * time.Minute) })
	if err := later.Sweep(i.ctx); err != nil {
		t.Error(err)
	}
	if n := i.keysIn(namespace); n != 0 {
		t.Errorf("an hour later %d keys are left where captures read them", n)
	}
	if n := i.keysIn(apart); n != len(earlierKeys()) {
		t.Errorf("an hour later %d keys are left", n)
	}
}
