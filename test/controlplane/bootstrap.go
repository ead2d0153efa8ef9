package controlplane

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ortet/ortet/test/access"
)

// permitTLSBootstrap lets holders of such a bootstrap token ask for a kubelet's
// client certificate, has the controller manager approve that and its renewal,
// and publishes cluster-info, by which kubeadm's discovery works.
// Source: kubernetes.io, "TLS bootstrapping".
func permitTLSBootstrap(ctx context.Context, client kubernetes.Interface, cp *ControlPlane) error {
	for _, b := range []struct{ name, role, group string }{
		{"kubelet-bootstrap", "system:node-bootstrapper", access.TokenGroup},
		{"node-autoapprove-bootstrap", "system:certificates.k8s.io:certificatesigningrequests:nodeclient", access.TokenGroup},
		{"node-autoapprove-certificate-rotation", "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes"},
	} {
		_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: b.name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: b.role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: b.group}},
		}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("bind %s to %s: %w", b.role, b.group, err)
		}
	}
	return publishClusterInfo(ctx, client, cp)
}

func publishClusterInfo(ctx context.Context, client kubernetes.Interface, cp *ControlPlane) error {
	text, err := cp.ca.Kubeconfig(cp.Server, Client{Token: "none"})
	if err != nil {
		return err
	}
	info, err := clientcmd.Load(text)
	if err != nil {
		return err
	}
	info.AuthInfos, info.Contexts, info.CurrentContext = nil, nil, ""
	content, err := clientcmd.Write(*info)
	if err != nil {
		return err
	}
	const name, namespace = "cluster-info", metav1.NamespacePublic
	// The API server makes kube-public by itself, a little after it is ready.
	if err := cp.await(ctx, "the namespace "+namespace, func(ctx context.Context) error {
		_, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Data:       map[string]string{"kubeconfig": string(content)},
		}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}); err != nil {
		return err
	}
	_, err = client.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{name}, Verbs: []string{"get"}}},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	_, err = client.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "system:anonymous"}},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// BootstrapToken makes a bootstrap token with which kubelets join until expiry,
// and returns it as "id.secret".
func (cp *ControlPlane) BootstrapToken(ctx context.Context, expiry time.Time) (string, error) {
	config, err := cp.RESTConfig()
	if err != nil {
		return "", err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	return access.BootstrapToken(ctx, client, expiry)
}

// BootstrapKubeconfig returns a kubeconfig with a new bootstrap token, for a
// kubelet that reaches the API server by server; "" means by loopback.
func (cp *ControlPlane) BootstrapKubeconfig(ctx context.Context, server string, expiry time.Time) ([]byte, error) {
	token, err := cp.BootstrapToken(ctx, expiry)
	if err != nil {
		return nil, err
	}
	return cp.KubeconfigFor(Client{Token: token, Server: server})
}
