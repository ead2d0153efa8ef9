//go:build e2e

package denial

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/internal/admission"
	admissionkube "github.com/ortet/ortet/internal/admission/kube"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/controlplane"
	"github.com/ortet/ortet/test/kubesim"
)

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m)) }

// An admissionWorld is a real API server, on which the admission server does all that
// it ever does there.
type admissionWorld struct {
	t      *testing.T
	ctx    context.Context
	name   string // of the namespace, the user and the nodes
	cp     *controlplane.ControlPlane
	admin  kubernetes.Interface
	config *rest.Config

	mu      sync.Mutex
	asked   map[string]bool // "verb resource" that were granted
	refused map[string]bool
	wanted  string // a refusal that ends the run
	stop    context.CancelFunc
}

// newAdmissionWorld has the admission server be somebody who may do what the rules say.
func newAdmissionWorld(t *testing.T, name string, rules []admissionkube.Rule) *admissionWorld {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Minute)
	t.Cleanup(cancel)
	w := &admissionWorld{t: t, name: name, cp: controlplane.Shared(t), asked: map[string]bool{}, refused: map[string]bool{}}
	w.ctx, w.stop = context.WithCancel(ctx)
	t.Cleanup(w.stop)
	w.admin = w.cp.Admin(t)
	for _, b := range []string{"node-autoapprove-bootstrap", "kubelet-bootstrap"} {
		if err := w.admin.RbacV1().ClusterRoleBindings().Delete(ctx, b, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			must(t, err)
		}
	}
	_, err := w.admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "ortet-bootstrap"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-bootstrapper"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: admissionkube.TokenGroup}}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		must(t, err)
	}
	for _, n := range []string{name, admissionkube.KeysNamespace(name)} {
		_, err = w.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n}}, metav1.CreateOptions{})
		must(t, err)
	}
	policies := map[string][]rbacv1.PolicyRule{}
	for _, r := range rules {
		if len(r.Verbs) > 0 {
			policies[r.Namespace] = append(policies[r.Namespace], rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, ResourceNames: r.Names, Verbs: r.Verbs})
		}
	}
	w.config = w.cp.Grant(ctx, t, name, policies)
	return w
}

// RoundTripper that writes down what was asked and what became of it.
type noting struct {
	next http.RoundTripper
	w    *admissionWorld
}

func (n noting) RoundTrip(r *http.Request) (*http.Response, error) {
	asked := kubesim.ParseRequest(r)
	answer, err := n.next.RoundTrip(r)
	if err != nil {
		return answer, err
	}
	resource := asked.Resource
	if asked.Subresource != "" {
		resource += "/" + asked.Subresource
	}
	verb := asked.Verb
	if r.URL.Query().Get("watch") != "" {
		verb = "watch"
	}
	what := verb + " " + resource + " " + asked.Namespace
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	if answer.StatusCode != http.StatusForbidden {
		n.w.asked[what] = true
		return answer, nil
	}
	n.w.refused[what] = true
	if what == n.w.wanted {
		n.w.stop()
	}
	return answer, nil
}

func (w *admissionWorld) open(now func() time.Time) (*admissionkube.Cluster, error) {
	config := rest.CopyConfig(w.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return noting{next, w} })
	drainer, err := kube.New(kube.Config{REST: config, Namespace: w.name})
	if err != nil {
		return nil, err
	}
	return admissionkube.New(admissionkube.Config{REST: config, Namespace: w.name, Server: w.cp.Server, CA: w.cp.CA(), Drainer: drainer, Leases: drainer, Now: now, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
}

// nowhere is a directory of nobody.
type nowhere struct{}

func (nowhere) Member(context.Context, fleet.ResourceID) (fleet.Member, error) {
	return fleet.Member{}, &fleet.Error{Op: "read instance", Kind: fleet.KindNotFound}
}

// live does all that the admission server ever does in a cluster, until something is
// refused.
func (w *admissionWorld) live() error {
	ctx := w.ctx
	c, err := w.open(time.Now)
	if err != nil {
		return err
	}
	later, err := w.open(func() time.Time { return time.Now().Add(2 * time.Hour) })
	if err != nil {
		return err
	}
	member := func(n int) fleet.Member {
		set := fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/p")
		return fleet.Member{Pool: set, Instance: set + fleet.ResourceID(fmt.Sprintf("/virtualMachines/%d", n)), HostName: fmt.Sprintf("%s-%d", w.name, n), VMID: fmt.Sprintf("vm-%d", n)}
	}
	for _, do := range []func() error{
		func() error { // an earlier version's
			_, err := w.admin.CoreV1().Secrets(w.name).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "ortet-admission-authority"},
				Data: map[string][]byte{"tls.crt": []byte("c"), "tls.key": []byte("k")}}, metav1.CreateOptions{})
			return err
		},
		func() error { _, err := c.NonceKey(ctx); return err },
		func() error {
			_, _, err := c.Authority(ctx, func() ([]byte, []byte, error) { return []byte("c"), []byte("k"), nil })
			return err
		},
		func() error { _, _, err := c.Authority(ctx, nil); return err },
		func() error { _, err := c.ClientCAs(ctx); return err },
		func() error { return c.Spend(ctx, "aa", time.Now().Add(-time.Hour)) },
		func() error { return c.Prepare(ctx) },
		func() error { return c.Tell(ctx, member(1), &wire.Verdict{}, nil) },
		func() error { return c.Sweep(ctx) },
		func() error { return later.Sweep(ctx) },
		func() error { return w.lead(ctx, c) },
		func() error { return w.approve(ctx, c, member(1)) },
		func() error { return w.depart(ctx, c, member(2)) },
	} {
		if err := do(); err != nil {
			return err
		}
	}
	nodes, err := c.Admitted(ctx)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if n.Name == member(1).NodeName() {
			if _, err := c.Reap(ctx, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// lead leads twice, so that a Lease that is there is taken.
func (w *admissionWorld) lead(ctx context.Context, c *admissionkube.Cluster) error {
	for _, who := range []string{"a", "b"} {
		within, end := context.WithCancel(ctx)
		led := false
		err := c.Lead(within, who, func(context.Context) { led = true; end() })
		end()
		if !led {
			return fmt.Errorf("never led: %w", err)
		}
	}
	return nil
}

// approve runs the watch until a certificate was approved by it.
func (w *admissionWorld) approve(ctx context.Context, c *admissionkube.Cluster, m fleet.Member) error {
	within, end := context.WithCancel(ctx)
	decided := make(chan admissionkube.Decided, 16)
	ended := make(chan error, 1)
	go func() {
		ended <- c.Run(within, nowhere{}, func(d admissionkube.Decided) {
			select {
			case decided <- d:
			case <-within.Done():
			}
		})
	}()
	defer func() {
		end()
		if err := <-ended; err != nil && ctx.Err() == nil {
			w.t.Errorf("the watch: %v", err)
		}
	}()
	for !c.Synced() && ctx.Err() == nil {
		<-time.After(20 * time.Millisecond)
	}
	join, err := c.Admit(ctx, m, wire.Kubelet, admission.NodeState{Exists: true})
	if err != nil {
		return err
	}
	config, err := w.cp.RESTConfigFor(controlplane.Client{Token: join.Token})
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + join.NodeName, Organization: []string{"system:nodes"}}}, key)
	if err != nil {
		return err
	}
	for {
		_, err = client.CertificatesV1().CertificateSigningRequests().Create(ctx, &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"}, Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName, Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		}}, metav1.CreateOptions{})
		if !apierrors.IsUnauthorized(err) || ctx.Err() != nil {
			break
		}
		<-time.After(20 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	for {
		select {
		case d := <-decided:
			if d.Node == join.NodeName {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// depart has a node with a pod that a budget guards leave, return, and be forgotten.
func (w *admissionWorld) depart(ctx context.Context, c *admissionkube.Cluster, m fleet.Member) error {
	name := m.NodeName()
	if _, err := c.Admit(ctx, m, wire.K3s, admission.NodeState{Exists: true}); err != nil {
		return err
	}
	if _, err := w.admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: m.ProviderID()}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	defer func() {
		_ = w.admin.CoreV1().Nodes().Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}) // where the run did not get so far
	}()
	for {
		if _, err := w.admin.CoreV1().ServiceAccounts(w.name).Get(ctx, "default", metav1.GetOptions{}); err == nil || ctx.Err() != nil {
			break
		}
		<-time.After(20 * time.Millisecond)
	}
	labels := map[string]string{"app": "db"}
	none := intstr.FromInt32(0)
	if _, err := w.admin.PolicyV1().PodDisruptionBudgets(w.name).Create(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &none, Selector: &metav1.LabelSelector{MatchLabels: labels}}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := w.admin.CoreV1().Pods(w.name).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db", Labels: labels}, Spec: corev1.PodSpec{
		NodeName: name, Containers: []corev1.Container{{Name: "c", Image: "example.invalid/c"}}, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
	}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	pod, err := w.admin.CoreV1().Pods(w.name).Get(ctx, "db", metav1.GetOptions{})
	if err != nil {
		return err
	}
	// A pod that runs: who never was ready may be evicted over any budget.
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	pod.ResourceVersion = ""
	if _, err := w.admin.CoreV1().Pods(w.name).UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if _, err := c.Leave(ctx, name, wire.LeaveRequest{Cause: "Preempt", Within: 2}); err != nil {
		return err
	}
	now := int64(0)
	if err := w.admin.CoreV1().Pods(w.name).Delete(ctx, "db", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err := c.Return(ctx, name); err != nil {
		return err
	}
	if _, err := c.HeldUntil(ctx, m.Pool); err != nil {
		return err
	}
	return c.Forget(ctx, name, m.ProviderID())
}

// TestAdmissionNeedsItsRules: with exactly what is documented all that the admission
// server does succeeds, and uses each verb.
func TestAdmissionNeedsItsRules(t *testing.T) {
	rules := admissionkube.Rules("ortet-admission-all")
	w := newAdmissionWorld(t, "ortet-admission-all", rules)
	must(t, w.live())
	for what := range w.refused {
		t.Errorf("%s was refused", what)
	}
	for _, r := range rules {
		for _, v := range r.Verbs {
			if !slices.ContainsFunc(sorted(w.asked), func(asked string) bool { return meets(r, v, asked) }) {
				t.Errorf("%s %s in %q is documented, and nothing needed it", v, r.Resource, r.Namespace)
			}
		}
	}
}

// meets says that what was asked is what a rule allows. Approving is asked of the
// approval.
func meets(r admissionkube.Rule, verb, asked string) bool {
	if r.Resource == "signers" {
		return asked == "update certificatesigningrequests/approval "
	}
	if r.Namespace != "" {
		return asked == verb+" "+r.Resource+" "+r.Namespace
	}
	return strings.HasPrefix(asked, verb+" "+r.Resource+" ")
}

func sorted(m map[string]bool) []string {
	var all []string
	for k := range m {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

// TestAdmissionDenied takes each verb away: it is then refused.
func TestAdmissionDenied(t *testing.T) {
	n := 0
	for i, r := range admissionkube.Rules("") {
		for _, v := range r.Verbs {
			n++
			name := fmt.Sprintf("ortet-admission-%d", n)
			t.Run(strings.ReplaceAll(v+" "+r.Resource+" "+r.Namespace+" "+strings.Join(r.Names, ","), "/", "."), func(t *testing.T) {
				t.Parallel()
				rules := admissionkube.Rules(name)
				rules[i].Verbs = slices.DeleteFunc(slices.Clone(rules[i].Verbs), func(o string) bool { return o == v })
				w := newAdmissionWorld(t, name, rules)
				denied := rules[i]
				w.wanted = v + " " + denied.Resource + " " + denied.Namespace
				switch denied.Resource {
				case "signers":
					w.wanted = "update certificatesigningrequests/approval "
				case "pods":
					if v == "delete" {
						w.wanted += name
					}
				case "pods/eviction":
					w.wanted += name
				}
				err := w.live()
				if !w.refused[w.wanted] {
					t.Errorf("%s was not refused: %v; refused was %q", w.wanted, err, sorted(w.refused))
				}
			})
		}
	}
}
