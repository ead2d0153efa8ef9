package secrets

import (
	"fmt"
	"strings"
)

// poolCredentials plants what the nodes of a pool share. Of class pool is what the kubelet,
// the container runtime and the cloud provider read, which clones need to join and to fetch
// images; of class other what people, scripts and other programs of the node have, though
// every node has it: whoever accepts the first has not accepted the second.
func poolCredentials(g *gen) []plant {
	var p plants
	add := func(kind, path, wrap, text string) { p.add(kind, pool, path, wrap, text) }
	beside := func(kind, path, wrap, text string) { p.add(kind, other, path, wrap, text) }

	const join = "kubeadm token"
	hash := func() string { return "sha256:" + g.hex(64) }
	add(join, "opt/join.sh", "kubeadm join in a script", "#!/bin/bash\nset -e\nkubeadm join 10.0.0.1:6443 --token "+g.kubeadm()+" --discovery-token-ca-cert-hash "+hash()+"\n")
	add(join, "usr/local/bin/join-node", "kubeadm join over lines", "kubeadm join 10.0.0.1:6443 \\\n  --token="+g.kubeadm()+" \\\n  --discovery-token-ca-cert-hash "+hash()+"\n")
	add(join, "root/kubeadm-join.yaml", "JoinConfiguration", "apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\ndiscovery:\n  bootstrapToken:\n    apiServerEndpoint: 10.0.0.1:6443\n    token: "+g.kubeadm()+"\n    caCertHashes: ["+hash()+"]\n")
	add(join, "etc/kubeadm/tls.json", "JSON", `{"discovery":{"tlsBootstrapToken":"`+g.kubeadm()+`"}}`)
	add(join, "etc/systemd/system/join.service", "ExecStart of a unit", "[Unit]\nDescription=Join\n[Service]\nType=oneshot\nExecStart=/usr/bin/kubeadm join --token "+g.kubeadm()+" 10.0.0.1:6443\n")
	add(join, "etc/default/join", "environment file", "BOOTSTRAP_TOKEN="+g.kubeadm()+"\n")
	add(join, "etc/cloud/cloud.cfg.d/99-join.cfg", "runcmd as a list", "#cloud-config\nruncmd:\n- [kubeadm, join, --token, "+g.kubeadm()+", '10.0.0.1:6443']\n")
	add(join, "opt/kubelet/bootstrap.kubeconfig", "bootstrap kubeconfig", kubeconfig("tls-bootstrap-token-user", "token: "+g.kubeadm()))
	add(join, "opt/ansible/group_vars/all.yml", "Ansible's variables", "kube_version: v1.33.2\nkubeadm_token: \""+g.kubeadm()+"\"\n")
	add(join, "opt/ansible/join.b64", "base64 of a script", data([]byte("#!/bin/sh\nkubeadm join 10.0.0.1:6443 --token "+g.kubeadm()+"\n"))+"\n")
	add(join, "etc/kubernetes/secret-dump.yaml", "bootstrap Secret", "apiVersion: v1\nkind: Secret\ntype: bootstrap.kubernetes.io/token\nstringData:\n  token-id: "+g.of(lower+digits, 6)+"\n  token-secret: "+g.of(lower+digits, 16)+"\n")
	add(join, "opt/azure/containers/provision.env", "AKS's provisioning variables", "TLS_BOOTSTRAP_TOKEN="+g.kubeadm()+"\nKUBE_CA_CRT=LS0t\n")

	const k3s = "k3s or RKE2 token"
	add(k3s, "etc/rancher/k3s/config.yaml", "configuration", "server: https://10.0.0.1:6443\ntoken: "+g.k3s()+"\n")
	add(k3s, "etc/rancher/rke2/config.yaml", "configuration, RKE2", "server: https://10.0.0.1:9345\ntoken: "+g.k3s()+"\nnode-label:\n- a=b\n")
	add(k3s, "etc/systemd/system/k3s-agent.service.env", "environment of the unit", "K3S_TOKEN='"+g.k3s()+"'\nK3S_URL='https://10.0.0.1:6443'\n")
	add(k3s, "opt/k3s-install.sh", "argument of the installer", "curl -sfL https://get.k3s.io | K3S_URL=https://10.0.0.1:6443 K3S_TOKEN="+g.k3s()+" sh -\n")
	add(k3s, "opt/k3s-short.sh", "a token without the CA's hash", "curl -sfL https://get.k3s.io | K3S_URL=https://10.0.0.1:6443 K3S_TOKEN="+g.password(20)+" sh -\n")
	add(k3s, "opt/k3s-args.txt", "bootstrap token", "k3s agent --server https://10.0.0.1:6443 --token "+g.k3sPlain()+"\n")
	add(k3s, "var/lib/rancher/k3s/server/node-token", "the server's file", g.k3s()+"\n")

	const principal = "Azure client secret"
	add(principal, "etc/kubernetes/azure.json", "azure.json", g.jsonOf(map[string]any{"cloud": "AzurePublicCloud", "tenantId": g.uuid(), "aadClientId": g.uuid(), "aadClientSecret": g.entra(), "useManagedIdentityExtension": false}))
	add(principal, "etc/kubernetes/cloud.conf", "azure.json as YAML", "tenantId: "+g.uuid()+"\naadClientId: "+g.uuid()+"\naadClientSecret: "+g.entra()+"\n")
	beside(principal, "opt/sp.json", "az ad sp create-for-rbac", g.jsonOf(map[string]string{"appId": g.uuid(), "displayName": "azure-cli-2026", "password": g.entra(), "tenant": g.uuid()}))
	beside(principal, "etc/systemd/system/sync.service", "Environment= of a unit", "[Service]\nEnvironment=AZURE_CLIENT_ID="+g.uuid()+"\nEnvironment=AZURE_CLIENT_SECRET="+g.entra()+"\nExecStart=/usr/bin/sync-blobs\n")
	beside(principal, "etc/default/blobfuse", "environment file", "export AZURE_STORAGE_SPN_CLIENT_SECRET=\""+g.entra()+"\"\n")
	beside(principal, "opt/login.sh", "az login", "#!/bin/sh\naz login --service-principal -u "+g.uuid()+" -p '"+g.entra()+"' --tenant "+g.uuid()+"\n")
	beside(principal, "opt/terraform/terraform.tfvars", "Terraform's variables", "client_id     = \""+g.uuid()+"\"\nclient_secret = \""+g.entra()+"\"\n")
	beside(principal, "root/.azure/accessTokens.json", "the CLI's old cache", `[{"accessToken":"`+g.entraToken()+`","servicePrincipalId":"`+g.uuid()+`"}]`)

	const registry = "registry credential"
	auth := func(user, pass string) string { return data([]byte(user + ":" + pass)) }
	beside(registry, "root/.docker/config.json", "docker's auths", g.jsonOf(map[string]any{"auths": map[string]any{"reg.azurecr.io": map[string]string{"auth": auth("reg", g.acr())}}}))
	add(registry, "var/lib/kubelet/config.json", "the kubelet's auths", `{"auths":{"https://index.docker.io/v1/":{"auth":"`+auth("ci", "dckr_pat_"+g.of(urlSafe, 27))+`"}}}`)
	beside(registry, "home/azureuser/.docker/config.json", "docker, identity token", g.jsonOf(map[string]any{"auths": map[string]any{"reg.azurecr.io": map[string]string{"auth": auth("00000000-0000-0000-0000-000000000000", ""), "identitytoken": g.entraToken()}}}))
	beside(registry, "root/.dockercfg", "docker's old file", `{"https://reg.example":{"username":"ci","password":"`+g.password(18)+`","email":"a@b.example"}}`)
	add(registry, "etc/containerd/conf.d/auth.toml", "containerd's auth", "[plugins.\"io.containerd.grpc.v1.cri\".registry.configs.\"reg.example\".auth]\n  username = \"ci\"\n  password = \""+g.password(20)+"\"\n")
	add(registry, "etc/containerd/certs.d/reg.example/hosts.toml", "containerd's header", "server = \"https://reg.example\"\n[host.\"https://reg.example\"]\n  [host.\"https://reg.example\".header]\n    Authorization = [\"Basic "+auth("ci", g.password(16))+"\"]\n")
	add(registry, "etc/rancher/k3s/registries.yaml", "k3s's registries", "configs:\n  reg.example:\n    auth:\n      username: ci\n      password: "+g.password(18)+"\n")
	add(registry, "etc/rancher/rke2/registries.yaml", "RKE2's registries, auth", "configs:\n  \"reg.example:5000\":\n    auth:\n      auth: "+auth("ci", g.password(18))+"\n")
	add(registry, "etc/crio/auth.json", "podman's and CRI-O's", `{"auths":{"quay.io":{"auth":"`+auth("org+robot", g.of(base32, 64))+`"}}}`)
	beside(registry, "opt/pull.sh", "docker login -p", "docker login reg.azurecr.io -u reg -p "+g.acr()+"\n")
	beside(registry, "opt/pull-pipe.sh", "docker login --password-stdin", "echo \""+g.acr()+"\" | docker login reg.azurecr.io --username reg --password-stdin\n")
	beside(registry, "opt/pull-ctr.sh", "ctr --user", "ctr -n k8s.io images pull --user ci:"+g.password(16)+" reg.example/app:1\n")
	beside(registry, "opt/pull-crictl.sh", "crictl --creds", "crictl pull --creds 'ci:"+g.password(16)+"' reg.example/app:1\n")
	beside(registry, "opt/secret/pull.yaml", "pull Secret", "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/dockerconfigjson\ndata:\n  .dockerconfigjson: "+data([]byte(`{"auths":{"reg.example":{"username":"ci","password":"`+g.password(18)+`"}}}`))+"\n")
	beside(registry, "etc/helm/registry.json", "Helm's file", `{"auths":{"ghcr.io":{"auth":"`+auth("bot", g.github())+`"}}}`)

	const shared = "shared client key"
	key := g.ec()
	cert := g.certificate("kubelet-shared", "system:nodes", key)
	add(shared, "etc/kubernetes/certs/client.key", "PEM", string(g.ecPEM(key)))
	add(shared, "opt/shared/kubeconfig", "client-key-data", kubeconfig("client", "client-certificate-data: "+data(cert)+"\n    client-key-data: "+data(g.ecPEM(g.ec()))))
	add(shared, "opt/shared/token.kubeconfig", "a service account's token", kubeconfig("sa", "token: "+g.saToken()))
	add(shared, "opt/shared/basic.kubeconfig", "user and password", kubeconfig("admin", "username: admin\n    password: "+g.password(16)))
	add(shared, "etc/kubernetes/admin.conf.bak", "an administrator's", kubeconfig("kubernetes-admin", "client-certificate-data: "+data(g.certificate("kubernetes-admin", "system:masters", key))+"\n    client-key-data: "+data(g.pkcs8PEM(g.ec()))))

	const storage = "Azure storage key or signature"
	account := func(key string) string {
		return "DefaultEndpointsProtocol=https;AccountName=nodelogs;AccountKey=" + key + ";EndpointSuffix=core.windows.net"
	}
	beside(storage, "etc/fluent-bit/fluent-bit.conf", "output of a log shipper", "[OUTPUT]\n    Name        azure_blob\n    account_name nodelogs\n    shared_key  "+g.storage()+"\n    container_name logs\n")
	beside(storage, "etc/blobfuse2.yaml", "blobfuse2", "azstorage:\n  type: block\n  account-name: nodelogs\n  account-key: "+g.storage()+"\n  mode: key\n")
	beside(storage, "etc/smbcredentials/nodelogs.cred", "credentials of an SMB mount", "username=nodelogs\npassword="+g.storage()+"\n")
	beside(storage, "etc/fstab.d-old", "options of a mount", "//nodelogs.file.core.windows.net/s /mnt cifs nofail,username=nodelogs,password="+g.storage()+",serverino 0 0\n")
	beside(storage, "etc/default/uploader", "connection string", "AZURE_STORAGE_CONNECTION_STRING=\""+account(g.storage())+"\"\n")
	beside(storage, "opt/uploader/appsettings.json", "connection string in JSON", g.jsonOf(map[string]any{"ConnectionStrings": map[string]string{"Storage": account(g.storage())}}))
	beside(storage, "opt/fetch.sh", "signature in an address", "curl -fsSL 'https://nodelogs.blob.core.windows.net/tools/agent.tar.gz?"+g.sas()+"' | tar xz\n")
	beside(storage, "etc/azcopy.yaml", "signature by itself", "sasToken: \"?"+g.sas()+"\"\n")
	beside(storage, "opt/signature.json", "signature, & escaped", `{"fileUris":["https://nodelogs.blob.core.windows.net/s/i.sh?`+strings.ReplaceAll(g.sas(), "&", `\u0026`)+`"]}`)

	const vault = "secret of an extension"
	beside(vault, "opt/azure/settings.json", "protected settings in the clear", `{"protectedSettings":{"storageAccountName":"nodelogs","storageAccountKey":"`+g.storage()+`","commandToExecute":"bash i.sh"}}`)
	beside(vault, "etc/opt/omi/workspace.conf", "Log Analytics' key", "WORKSPACE_ID="+g.uuid()+"\nSHARED_KEY="+g.b64(64)+"\n")
	beside(vault, "opt/onboard.sh", "Log Analytics' installer", fmt.Sprintf("sh onboard_agent.sh -w %s -s %s -d opinsights.azure.com\n", g.uuid(), g.b64(64)))
	return p
}
