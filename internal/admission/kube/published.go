package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Published is the address of kube-public/cluster-info, which everybody may read; ""
// where there is none.
func Published(ctx context.Context, config *rest.Config) string {
	client, err := kubernetes.NewForConfig(rest.AnonymousClientConfig(config))
	if err != nil {
		return ""
	}
	info, err := client.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(ctx, "cluster-info", metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return serverIn(info)
}

// serverIn reads the address of a cluster-info.
func serverIn(info *corev1.ConfigMap) string {
	config, err := clientcmd.Load([]byte(info.Data["kubeconfig"]))
	if err != nil {
		return ""
	}
	for _, c := range config.Clusters {
		return c.Server
	}
	return ""
}

// RootCA returns who signs the API server's certificate, as Kubernetes publishes it in each
// namespace; none where the ConfigMap is empty.
func RootCA(ctx context.Context, config *rest.Config, namespace string) ([]byte, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	root, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return []byte(root.Data["ca.crt"]), nil
}
