//go:build e2e && linux

package lab

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	rootfs "github.com/ortet/ortet/hack/lab"
)

// kubeadmCluster is what a machine has to be told to join by kubeadm.
type kubeadmCluster struct {
	token  string // "id.secret"
	caHash string // "sha256:…", of the CA's public key
	join   string // the JoinConfiguration of docs/how-to/kubeadm.md, with its words
}

// kubeletConfig is what kubeadm gives all kubelets; see hack/lab's custom data.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
failSwapOn: false
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: [none] # kubeadm leaves an empty list out
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 50Mi, nodefs.available: 1%}
nodeStatusUpdateFrequency: 5s
`

// prepareKubeadm has kubeadm itself put into the cluster what its join looks for.
func (l *lab) prepareKubeadm(ctx context.Context, t *testing.T, binary string) kubeadmCluster {
	t.Helper()
	block, _ := pem.Decode(l.cp.CA())
	if block == nil {
		t.Fatal("the cluster's CA is no PEM")
	}
	ca, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.Sum256(ca.RawSubjectPublicKeyInfo)
	text := strings.ToLower(rand.Text())
	c := kubeadmCluster{token: text[:6] + "." + text[6:22], caHash: "sha256:" + hex.EncodeToString(hash[:])}

	config := filepath.Join(l.dir, "kubeadm-init.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
bootstrapTokens: [{token: %s, ttl: 1h0m0s}]
nodeRegistration: {name: operator, criSocket: unix:///run/containerd/containerd.sock}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
controlPlaneEndpoint: %s
---
%s`, c.token, rootfs.APIServerFrontend, kubeletConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	c.join = joinConfiguration(t, l.checkout)
	kubeadm := filepath.Join(filepath.Dir(binary), "kubeadm")
	for _, phase := range [][]string{{"upload-config", "all"}, {"bootstrap-token", "--skip-token-print"}} {
		l.run(ctx, t, append(append([]string{kubeadm, "init", "phase"}, phase...), "--config", config, "--kubeconfig", l.cp.Kubeconfig)...)
	}

	// What a machine finds there leads to the API server as the host sees it.
	info, err := l.client.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(ctx, "cluster-info", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := clientcmd.Load([]byte(info.Data["kubeconfig"]))
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range kubeconfig.Clusters {
		cluster.Server = rootfs.APIServer
	}
	content, err := clientcmd.Write(*kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	info.Data["kubeconfig"] = string(content)
	if _, err := l.client.CoreV1().ConfigMaps(metav1.NamespacePublic).Update(ctx, info, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	poll(ctx, t, "the signed cluster-info", time.Minute, func(ctx context.Context) (bool, error) {
		got, err := l.client.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(ctx, "cluster-info", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return got.Data["kubeconfig"] == string(content) && got.Data["jws-kubeconfig-"+c.token[:6]] != "", nil
	})
	return c
}

// joinConfiguration returns what docs/how-to/kubeadm.md has a machine join by, as it stands there.
func joinConfiguration(t *testing.T, checkout string) string {
	t.Helper()
	const page = "docs/how-to/kubeadm.md"
	text, err := os.ReadFile(filepath.Join(checkout, page))
	if err != nil {
		t.Fatal(err)
	}
	var data struct {
		WriteFiles []struct{ Path, Content string } `json:"write_files"`
	}
	if err := yaml.Unmarshal([]byte(example(t, page, string(text), "yaml", "kind: JoinConfiguration")), &data); err != nil {
		t.Fatalf("%s: %v", page, err)
	}
	for _, f := range data.WriteFiles {
		if f.Path == "/run/kubeadm/join.yaml" {
			return f.Content
		}
	}
	t.Fatalf("%s writes no /run/kubeadm/join.yaml", page)
	return ""
}
