//go:build e2e

package charts

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	admissionkube "github.com/ortet/ortet/internal/admission/kube"
	"github.com/ortet/ortet/test/controlplane"
)

// tokens is the group of all bootstrap tokens.
const tokens = "system:bootstrappers"

// asked creates and returns a request for a node's client certificate, as a bootstrap
// token of a group. The controller manager ignores requests with more usages.
func asked(t *testing.T, name, node, group string, more ...certificatesv1.KeyUsage) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	requests := client(t, controlplane.Client{User: "system:bootstrap:abcdef", Groups: []string{tokens, group, "system:authenticated"}}).CertificatesV1().CertificateSigningRequests()
	var made *certificatesv1.CertificateSigningRequest
	eventually(t, "to ask for "+name, func() (err error) { // the role is bound just now
		made, err = requests.Create(t.Context(), &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName, Usages: append(more, certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth),
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
		}}, metav1.CreateOptions{})
		return err
	})
	t.Cleanup(func() {
		_ = client(t, controlplane.Client{}).CertificatesV1().CertificateSigningRequests().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
	})
	return made
}

// Kubernetes' documentation binds all bootstrap tokens to nodeclient, so the controller
// manager approves a certificate for any Node name. The policy prevents that for tokens of
// the admission server.
func TestNobodyElseApprovesForTokens(t *testing.T) {
	ctx := t.Context()
	admin := client(t, controlplane.Client{})
	namespaced(t, admin)
	install(t, admin, "--set", "admission.policy.enabled=false")
	for role, group := range map[string]string{"system:certificates.k8s.io:certificatesigningrequests:nodeclient": tokens, "system:node-bootstrapper": tokens} {
		name := "attack:" + role
		_, err := admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = admin.RbacV1().ClusterRoleBindings().Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{})
		})
	}
	approve := func(r *certificatesv1.CertificateSigningRequest, who controlplane.Client) error {
		yes := r.DeepCopy()
		yes.Status.Conditions = append(yes.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"})
		_, err := client(t, who).CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, r.Name, yes, metav1.UpdateOptions{DryRun: dry})
		return err
	}
	// system:masters passes RBAC and may read the keys, so only the user names decide.
	masters := []string{"system:masters"}
	manager := controlplane.Client{User: "system:serviceaccount:kube-system:certificate-controller", Groups: masters}
	ours := asked(t, "attack-ours", "attack-control-plane", admissionkube.TokenGroup, certificatesv1.UsageServerAuth)
	refusal(t, "an approval by the controller manager", "is approved by the admission server alone", func() error { return approve(ours, manager) })
	refusal(t, "an approval by the controller manager", "is approved by the admission server alone", func() error {
		return approve(ours, controlplane.Client{User: "system:kube-controller-manager", Groups: masters})
	})
	for _, who := range []controlplane.Client{{}, {User: "system:serviceaccount:ortet-system:r-admission", Groups: masters}} {
		if err := approve(ours, who); err != nil {
			t.Errorf("an approval by %q: %v", who.User, err)
		}
	}
	// The controller manager itself has processed both once it approved the other request.
	ours = asked(t, "attack-ours-2", "attack-control-plane", admissionkube.TokenGroup)
	asked(t, "attack-theirs", "attack-theirs", "system:bootstrappers:kubeadm:default-node-token")
	eventually(t, "the controller manager to approve another token's", func() error {
		r, err := admin.CertificatesV1().CertificateSigningRequests().Get(ctx, "attack-theirs", metav1.GetOptions{})
		if err == nil && len(r.Status.Conditions) == 0 {
			err = errors.New("it has no conditions")
		}
		return err
	})
	r, err := admin.CertificatesV1().CertificateSigningRequests().Get(ctx, ours.Name, metav1.GetOptions{})
	if err != nil || len(r.Status.Conditions) != 0 || len(r.Status.Certificate) != 0 {
		t.Errorf("a certificate for a Node that the token is not for: %+v %v", r.Status, err)
	}
}

// The policies list the fields of Nodes that must not change. A field that Kubernetes adds
// would be writable until it is listed.
func TestPoliciesNameAllFieldsOfNodes(t *testing.T) {
	of := func(docs [][]byte, begins string) string {
		for _, doc := range docs {
			var p admissionv1.ValidatingAdmissionPolicy
			if err := yaml.UnmarshalStrict(doc, &p); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(p.Name, begins) {
				return string(doc)
			}
		}
		t.Fatalf("no policy %s…", begins)
		return ""
	}
	out, err := helm(t, "template", "c", "vmss-prototype", "--set", "kamino.targetNode="+node)
	if err != nil {
		t.Fatal(err)
	}
	var captures [][]byte
	for _, doc := range strings.Split(out, "\n---\n") {
		if strings.Contains(doc, "kind: ValidatingAdmissionPolicy\n") {
			captures = append(captures, []byte(doc))
		}
	}
	lifting := renderOrtet(t, "--set", "controller.liftTaint=true")
	for _, c := range []struct {
		what, policy string
		fields       reflect.Type
		free         []string
	}{
		{"status", of(renderOrtet(t)["ValidatingAdmissionPolicy"], "status."), reflect.TypeFor[corev1.NodeStatus](), nil},
		{"spec", of(lifting["ValidatingAdmissionPolicy"], "taint."), reflect.TypeFor[corev1.NodeSpec](), nil},
		{"spec", of(captures, "capture-nodes."), reflect.TypeFor[corev1.NodeSpec](), []string{"unschedulable"}},
	} {
		for f := range c.fields.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			for _, object := range []string{"object", "oldObject"} {
				if !slices.Contains(c.free, name) && !strings.Contains(c.policy, object+"."+c.what+".?"+name) {
					t.Errorf("%s.%s.%s is missing in the policy", object, c.what, name)
				}
			}
		}
	}
}

// Nobody else answers at a machine's address on a callback port: neither a pod with a host
// port nor a Service with external addresses, in any namespace. Other ports are free.
func TestPolicyReservesTheCallbackPort(t *testing.T) {
	ctx := t.Context()
	admin := client(t, controlplane.Client{})
	namespaced(t, admin)
	install(t, admin, "--set", "admission.policy.enabled=false", "--set-string", `admission.callbackPort=340\,9440-9442`)
	const namespace = "default"
	_, err := admin.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "attack-edit"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "attack-tenant"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = admin.RbacV1().RoleBindings(namespace).Delete(context.WithoutCancel(ctx), "attack-edit", metav1.DeleteOptions{})
	})
	tenant := client(t, controlplane.Client{User: "attack-tenant", Groups: []string{"system:authenticated"}})
	pod := func(port int32) error {
		_, err := tenant.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "attack"}, Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "a", Image: "example.invalid/a"}, {Name: "b", Image: "example.invalid/b", Ports: []corev1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 81, HostPort: port}}},
		}}}, metav1.CreateOptions{DryRun: dry})
		return err
	}
	service := func(port int32, external ...string) error {
		_, err := tenant.CoreV1().Services(namespace).Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "attack"}, Spec: corev1.ServiceSpec{
			ExternalIPs: external, Ports: []corev1.ServicePort{{Name: "a", Port: 80}, {Name: "b", Port: port}}, Selector: map[string]string{"a": "b"}}}, metav1.CreateOptions{DryRun: dry})
		return err
	}
	eventually(t, "the tenant's rights", func() error { return service(340) })
	for _, port := range []int32{340, 9440, 9442} {
		refusal(t, "a pod", "reserved for the callback", func() error { return pod(port) })
		refusal(t, "a Service", "reserved for the callback", func() error { return service(port, "10.1.0.4") })
	}
	for what, do := range map[string]func() error{
		"a pod at another port": func() error { return pod(341) }, "a Service at another port": func() error { return service(443, "10.1.0.4") },
		"a Service without external addresses": func() error { return service(340) },
	} {
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
