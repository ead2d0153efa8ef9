package secrets

import "strings"

// heldOutPool is what the nodes of a pool share in order to join.
func heldOutPool(g *gen) []plant {
	var a plants
	add := func(kind, path, wrap, text string) { a.add(kind, pool, path, wrap, text) }
	const kubeadm, distribution, cloud = "join: kubeadm, kubelet", "join: other distributions", "join: cloud providers"
	join := g.kubeadm()
	add(kubeadm, "etc/kubernetes/kubeadm-join.yaml", "JoinConfiguration",
		"apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\ndiscovery:\n  bootstrapToken:\n    token: "+join+"\n    apiServerEndpoint: 10.0.0.1:6443\n    caCertHashes:\n    - sha256:"+g.hex(64)+"\n  tlsBootstrapToken: "+join+"\nnodeRegistration:\n  criSocket: unix:///run/containerd/containerd.sock\n")
	add(kubeadm, "usr/local/sbin/join.sh", "kubeadm join over several lines",
		"#!/bin/bash\nset -euo pipefail\nkubeadm join 10.0.0.1:6443 \\\n    --token "+g.kubeadm()+" \\\n    --discovery-token-ca-cert-hash sha256:"+g.hex(64)+" \\\n    --node-name \"$(hostname)\"\n")
	add(kubeadm, "opt/node/cloud-init.yaml", "runcmd as a list",
		"#cloud-config\nruncmd:\n- [kubeadm, join, '10.0.0.1:6443', --token, "+g.kubeadm()+", --discovery-token-unsafe-skip-ca-verification]\n")
	add(kubeadm, "etc/kubernetes/bootstrap-kubelet.conf", "token in a kubeconfig of JSON",
		`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"k","cluster":{"server":"https://10.0.0.1:6443"}}],"users":[{"name":"tls-bootstrap-token-user","user":{"token":"`+g.kubeadm()+`"}}],"contexts":[{"name":"c","context":{"cluster":"k","user":"tls-bootstrap-token-user"}}],"current-context":"c"}`+"\n")
	add(kubeadm, "root/kubeadm-init.yaml", "key of the certificates",
		"apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\ncertificateKey: "+g.hex(64)+"\n")
	add(distribution, "etc/rancher/k3s/config.yaml.d/20-join.yaml", "secure token", "server: https://10.0.0.1:6443\ntoken: "+g.k3s()+"\nnode-label:\n- pool=1\n")
	add(distribution, "etc/systemd/system/k3s-agent.service.env", "K3S_TOKEN", "K3S_URL='https://10.0.0.1:6443'\nK3S_TOKEN='"+g.k3sPlain()+"'\n")
	add(distribution, "etc/rancher/rke2/config.yaml", "a word as a token", "server: https://10.0.0.1:9345\ntoken: "+g.phrase()+"\nprofile: cis\n")
	add(distribution, "etc/systemd/system/k3s-agent.service", "flag in a unit",
		"[Unit]\nDescription=Lightweight Kubernetes\n[Service]\nType=notify\nExecStart=/usr/local/bin/k3s agent --server https://10.0.0.1:6443 --token="+g.b62(48)+"\nRestart=always\n[Install]\nWantedBy=multi-user.target\n")
	add(distribution, "opt/node/microk8s.sh", "microk8s join", "#!/bin/sh\nsnap install microk8s --classic\nmicrok8s join 10.0.0.1:25000/"+g.hex(32)+"/"+g.hex(12)+" --worker\n")
	conf := kubeconfig("kubelet-bootstrap", "token: "+g.kubeadm())
	add(distribution, "etc/k0s/k0stoken", "gzip and base64 of a kubeconfig", data(g.gzip([]byte(conf))))
	add(distribution, "opt/node/swarm.sh", "docker swarm join", "#!/bin/sh\ndocker swarm join --token SWMTKN-1-"+g.of(digits+lower, 50)+"-"+g.of(digits+lower, 25)+" 10.0.0.1:2377\n")
	add(cloud, "etc/kubernetes/azure.json", "service principal",
		g.jsonOf(map[string]any{"cloud": "AzurePublicCloud", "tenantId": g.uuid(), "subscriptionId": g.uuid(), "aadClientId": g.uuid(), "aadClientSecret": g.entra(), "resourceGroup": "rg", "location": "westeurope", "vmType": "vmss", "useManagedIdentityExtension": false}))
	add(cloud, "opt/azure/containers/provision_env.sh", "TLS_BOOTSTRAP_TOKEN of AKS",
		"PROVISION_OUTPUT=\"/var/log/azure/cluster-provision-cse-output.log\"; KUBELET_NODE_LABELS=\"agentpool=pool1\" TLS_BOOTSTRAP_TOKEN=\""+g.kubeadm()+"\" API_SERVER_NAME=k.hcp.westeurope.azmk8s.io /usr/bin/nohup /bin/bash -c \"/bin/bash /opt/azure/containers/provision_start.sh\"\n")
	add(cloud, "etc/eks/nodeConfig.yaml", "activation of a hybrid node",
		"apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  cluster:\n    name: prod\n    region: eu-west-1\n  hybrid:\n    ssm:\n      activationCode: "+g.b62(20)+"\n      activationId: "+g.uuid()+"\n")
	add(cloud, "home/kubernetes/kube-env", "key for the vTPM's certificate",
		"KUBERNETES_MASTER_NAME: 10.0.0.2\nTPM_BOOTSTRAP_CERT: "+data(g.certificate("kubelet", "system:nodes", g.ec()))+"\nTPM_BOOTSTRAP_KEY: "+data(g.ecPEM(g.ec()))+"\nKUBELET_ARGS: "+strings.Repeat("--v=2 ", 2)+"\n")
	return a
}
