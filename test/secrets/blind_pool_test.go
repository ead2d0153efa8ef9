package secrets

import (
	"encoding/base64"
	"fmt"
)

// blindPool are what all nodes of a pool share: credentials to join and to fetch images.
func blindPool(g *gen) []plant {
	var p plants
	add := func(kind, path, wrap, text string) { p.add(kind, pool, path, wrap, text) }
	const boot = "kubeadm token"
	add(boot, "etc/kubeadm/join.yaml", "JoinConfiguration", "apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\ndiscovery:\n  bootstrapToken:\n    apiServerEndpoint: 10.0.0.1:6443\n    token: "+g.kubeadm()+"\n    caCertHashes: [\"sha256:"+g.hex(64)+"\"]\n")
	add(boot, "opt/bootstrap/join.sh", "kubeadm join, continued", "#!/bin/bash\nexec kubeadm join 10.0.0.1:6443 \\\n  --token "+g.kubeadm()+" \\\n  --discovery-token-ca-cert-hash sha256:"+g.hex(64)+"\n")
	add(boot, "var/lib/kubelet/bootstrap-kubeconfig", "a kubeconfig", kubeconfig("kubelet-bootstrap", "token: \""+g.kubeadm()+"\""))
	add(boot, "etc/default/kubelet", "TLS_BOOTSTRAP_TOKEN", "KUBELET_IMAGE=hyperkube\nTLS_BOOTSTRAP_TOKEN=\""+g.kubeadm()+"\"\n")
	add(boot, "srv/ansible/group_vars/all.yml", "a variable of Ansible", "kubeadm_token: "+g.kubeadm()+"\nkube_version: v1.34.1\n")
	add(boot, "srv/backup/bootstrap-token.yaml", "a Secret's stringData", "apiVersion: v1\nkind: Secret\ntype: bootstrap.kubernetes.io/token\nmetadata: {name: bootstrap-token-abc}\nstringData:\n  token-id: \""+g.of(lower+digits, 6)+"\"\n  token-secret: "+g.of(lower+digits, 16)+"\n")
	add(boot, "etc/talos/worker.yaml", "the token of Talos", "version: v1alpha1\nmachine:\n  type: worker\n  token: "+g.kubeadm()+"\ncluster:\n  id: "+g.b64u(32)+"=\n  secret: "+g.b64(32)+"\n")
	add(boot, "opt/seed/ignition.json", "a data URL of Ignition", g.jsonOf(map[string]any{"storage": map[string]any{"files": []any{map[string]any{"path": "/etc/kubernetes/kubeconfig", "contents": map[string]string{"source": "data:text/plain;charset=utf-8;base64," + data([]byte(kubeconfig("kubelet", "token: "+g.kubeadm())))}}}}}))
	add(boot, "etc/k0s/k0stoken", "k0s: a kubeconfig in gzip in base64", data(g.gzip([]byte(kubeconfig("kubelet-bootstrap", "token: "+g.kubeadm())))))
	add(boot, "etc/kubernetes/bootstrap.kubeconfig", "an opaque token", kubeconfig("kubelet-bootstrap", "token: "+g.hex(32)))
	add(boot, "etc/kubernetes/token.csv", "the API server's list", g.hex(32)+",kubelet-bootstrap,10001,\"system:kubelet-bootstrap\"\n")
	add(boot, "home/azureuser/discovery.conf", "a kubeconfig in JSON", `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"","cluster":{"server":"https://10.0.0.1:6443"}}],"users":[{"name":"tls-bootstrap","user":{"token":"`+g.kubeadm()+"\"}}]}\n")

	const certs = "kubeadm's certificate key"
	add(certs, "etc/kubeadm/init.yaml", "InitConfiguration", "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\ncertificateKey: "+g.hex(64)+"\n")
	add(certs, "opt/kubespray/credentials/kubeadm_certificate_key.creds", "kubespray's file", g.hex(64)+"\n")

	const k3s = "k3s or RKE2 token"
	add(k3s, "etc/systemd/system/k3s-agent.service.env", "the installer's environment", "K3S_TOKEN='"+g.k3s()+"'\nK3S_URL='https://10.0.0.1:6443'\n")
	add(k3s, "etc/rancher/rke2/config.yaml", "a configuration", "server: https://10.0.0.1:9345\ntoken: "+g.k3s()+"\nnode-label: [a=b]\n")
	add(k3s, "etc/rancher/k3s/config.yaml", "a short agent-token", "server: https://10.0.0.1:6443\nagent-token: "+g.b62(20)+"\n")
	add(k3s, "etc/rancher/k3s/cluster-token", "a token's file", g.k3sPlain()+"\n")
	add(k3s, "etc/rancher/k3s/token", "a short token's file", g.b62(32)+"\n")
	add(k3s, "opt/bootstrap/first-boot.sh", "curl | K3S_TOKEN=", "#!/bin/sh\ncurl -sfL https://get.k3s.example.org | K3S_URL=https://10.0.0.1:6443 K3S_TOKEN="+g.phrase()+" INSTALL_K3S_CHANNEL=stable sh -s - agent\n")
	add(k3s, "etc/systemd/system/rke2-agent.service.d/override.conf", "a drop-in", "[Service]\nExecStart=\nExecStart=/usr/local/bin/rke2 agent --server https://10.0.0.1:9345 --token "+g.b62(40)+"\n")
	add(k3s, "opt/bootstrap/rancher.sh", "Rancher's system agent", "curl -fL https://rancher.example.org/system-agent-install.sh | sudo sh -s - --server https://rancher.example.org --label 'cattle.io/os=linux' --token "+g.of(lower+digits, 54)+" --ca-checksum "+g.hex(64)+" --worker\n")
	add(k3s, "var/lib/rancher/agent/rancher2_connection_info.json", "a kubeconfig in JSON", g.jsonOf(map[string]string{"kubeConfig": kubeconfig("agent", "token: "+g.of(lower+digits, 54)), "namespace": "fleet-default", "secretName": "custom-1-machine-plan"}))

	const join = "cluster's join token"
	add(join, "opt/bootstrap/swarm.sh", "docker swarm join", "docker swarm join --token SWMTKN-1-"+g.of(lower+digits, 50)+"-"+g.of(lower+digits, 25)+" 10.0.0.1:2377\n")
	add(join, "opt/bootstrap/microk8s.sh", "microk8s join", "microk8s join 10.0.0.1:25000/"+g.hex(32)+"/"+g.hex(12)+" --worker\n")

	const cloud = "cloud provider's secret"
	add(cloud, "etc/kubernetes/azure.json", "azure.json", g.jsonOf(map[string]any{"cloud": "AzurePublicCloud", "tenantId": g.uuid(), "aadClientId": g.uuid(), "aadClientSecret": g.entra(), "useManagedIdentityExtension": false}))
	add(cloud, "etc/kubernetes/cloud.conf", "OpenStack's", "[Global]\nauth-url=https://keystone.example.org/v3\nusername=k8s\npassword=\""+g.password(18)+"\"\ntenant-id="+g.hex(32)+"\n")
	add(cloud, "etc/kubernetes/vsphere.conf", "vSphere's", "[Global]\nuser = \"k8s@vsphere.local\"\npassword = \""+g.phrase()+"\"\n[VirtualCenter \"10.0.0.9\"]\n")
	add(cloud, "etc/kubernetes/credential-provider.yaml", "environment of a credential provider", "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- name: ecr-credential-provider\n  env:\n  - name: AWS_ACCESS_KEY_ID\n    value: "+g.awsID()+"\n  - name: AWS_SECRET_ACCESS_KEY\n    value: "+g.awsKey()+"\n")

	const registry = "registry credential"
	add(registry, "etc/rancher/k3s/registries.yaml", "username and password", "configs:\n  registry.example.org:\n    auth:\n      username: puller\n      password: "+g.password(20)+"\n")
	add(registry, "etc/rancher/rke2/registries.yaml", "auth", "configs:\n  \"registry.example.org:5000\":\n    auth:\n      auth: "+data([]byte("puller:"+g.password(20)))+"\n")
	add(registry, "etc/containerd/certs.d/registry.example.org/hosts.toml", "a header", "server = \"https://registry.example.org\"\n[host.\"https://mirror.example.org\"]\n  capabilities = [\"pull\"]\n  [host.\"https://mirror.example.org\".header]\n    authorization = \"Basic "+data([]byte("puller:"+g.password(20)))+"\"\n")
	add(registry, "etc/containerd/conf.d/20-auth.toml", "identitytoken", "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".registry.configs.\"registry.example.org\".auth]\n  identitytoken = \""+g.b64u(120)+"\"\n")
	add(registry, "var/lib/kubelet/config.json", "auths", g.jsonOf(map[string]any{"auths": map[string]any{"registry.example.org": map[string]string{"auth": data([]byte("puller:" + g.acr()))}}}))
	add(registry, "etc/crio/auth.json", "auths", g.jsonOf(map[string]any{"auths": map[string]any{"registry.example.org": map[string]string{"auth": data([]byte("robot$pull:" + g.b62(32)))}}}))
	add(registry, "etc/containerd/nydus/config.json", "nydus", g.jsonOf(map[string]any{"device": map[string]any{"backend": map[string]any{"type": "registry", "config": map[string]any{"auth": data([]byte("puller:" + g.b62(24))), "scheme": "https"}}}}))

	const shared = "shared client key"
	add(shared, "etc/kubernetes/pki/apiserver-etcd-client.key", "PEM", string(g.ecPEM(g.ec())))
	add(shared, "etc/calico/etcd.yaml", "etcd-key in a Secret", "apiVersion: v1\nkind: Secret\ndata:\n  etcd-key: "+data(g.pkcs8PEM(g.rsa()))+"\n")
	add(shared, "home/azureuser/admin.conf", "an admin's kubeconfig", kubeconfig("kubernetes-admin", "client-certificate-data: "+data(g.certificate("kubernetes-admin", "kubeadm:cluster-admins", g.ec()))+"\n    client-key-data: "+data(rsaPEM(g.rsa()))))
	add(shared, "etc/default/kube-env", "KUBELET_KEY of kube-env", "KUBERNETES_MASTER: \"false\"\nKUBELET_KEY: "+base64.StdEncoding.EncodeToString(rsaPEM(g.rsa()))+"\n")
	add(shared, "etc/ssl/private/node-agent.key", "Ed25519 in PKCS#8", string(g.pkcs8PEM(g.ed())))
	add(shared, "opt/agent/tls.js", "a template literal", fmt.Sprintf("module.exports = { key: `%s` }\n", g.pkcs8PEM(g.ec())))
	return p
}
