package secrets

import "strings"

// readable is what has to stay as it is: it says why a node does not come up.
func readable(g *gen) []line {
	var all []line
	for l := range strings.Lines(`error execution phase preflight: [preflight] Some fatal errors occurred:
	[ERROR FileAvailable--etc-kubernetes-kubelet.conf]: /etc/kubernetes/kubelet.conf already exists
	[ERROR Port-10250]: Port 10250 is in use
	[ERROR FileContent--proc-sys-net-bridge-bridge-nf-call-iptables]: /proc/sys/net/bridge/bridge-nf-call-iptables does not exist
[preflight] Running pre-flight checks
error execution phase kubelet-start: error uploading crisocket: nodes "pool1-vmss000003" not found
couldn't validate the identity of the API Server: Get "https://10.0.0.1:6443/api/v1/namespaces/kube-public/configmaps/cluster-info?timeout=10s": dial tcp 10.0.0.1:6443: connect: connection refused
timed out waiting for the condition
E1120 07:01:02.123456    1234 kubelet.go:2855] "Container runtime network not ready" networkReady="NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized"
E1120 07:01:02.123456    1234 run.go:74] "command failed" err="failed to load kubelet config file, path: /var/lib/kubelet/config.yaml, error: open /var/lib/kubelet/config.yaml: no such file or directory"
E1120 07:01:02.123456    1234 run.go:74] "command failed" err="failed to run Kubelet: validate service connection: validate CRI v1 runtime API for endpoint \"unix:///run/containerd/containerd.sock\": rpc error: code = Unimplemented desc = unknown service runtime.v1.RuntimeService"
E1120 07:01:02.123456    1234 kubelet_node_status.go:107] "Unable to register node with API server" err="Post \"https://10.0.0.1:6443/api/v1/nodes\": tls: failed to verify certificate: x509: certificate signed by unknown authority" node="pool1-vmss000003"
E1120 07:01:02.123456    1234 eviction_manager.go:292] "Eviction manager: failed to get summary stats" err="failed to get node info: node \"pool1-vmss000003\" not found"
I1120 07:01:02.123456    1234 server.go:467] "Kubelet version" kubeletVersion="v1.33.2"
W1120 07:01:02.123456    1234 reflector.go:561] k8s.io/client-go/informers/factory.go:160: failed to list *v1.Node: Unauthorized
E1120 07:01:02.123456    1234 kuberuntime_manager.go:1256] container etcd start failed in pod kube-system/etcd: CrashLoopBackOff: back-off 5m0s restarting failed container
E1120 07:01:02.123456    1234 remote_runtime.go:193] "RunPodSandbox from runtime service failed" err="rpc error: code = DeadlineExceeded desc = context deadline exceeded"
E1120 07:01:02.123456    1234 bootstrap.go:266] part of the existing bootstrap client certificate in /etc/kubernetes/kubelet.conf is expired: 2026-11-19 07:00:00 +0000 UTC
F1120 07:01:02.123456    1234 server.go:158] unknown flag: --container-runtime
failed to run Kubelet: running with swap on is not supported, please disable swap or set --fail-swap-on flag to false
failed to create kubelet: misconfiguration: kubelet cgroup driver: "systemd" is different from docker cgroup driver: "cgroupfs"
time="2026-11-20T07:01:02Z" level=error msg="failed to load cni during init, please check CRI plugin status before setting up network for pods" error="cni config load failed: no network config found in /etc/cni/net.d: cni plugin not initialized: failed to load cni config"
time="2026-11-20T07:01:02.123456789Z" level=fatal msg="Failed to run CRI service" error="failed to recover state: failed to get metadata for stored sandbox"
failed to pull image "registry.k8s.io/pause:3.10": failed to resolve reference "registry.k8s.io/pause:3.10": dial tcp: lookup registry.k8s.io on 168.63.129.16:53: no such host
failed to pull and unpack image "mcr.microsoft.com/oss/kubernetes/pause:3.9": failed to copy: httpReadSeeker: failed open: unexpected status code 429 Too Many Requests
containerd.service: Main process exited, code=exited, status=203/EXEC
kubelet.service: Scheduled restart job, restart counter is at 17.
kubelet.service: Failed with result 'exit-code'.
Failed to start kubelet.service - kubelet: The Kubernetes Node Agent.
systemd[1]: Dependency failed for remote-fs.target - Remote File Systems.
systemd[1]: systemd-networkd-wait-online.service: Main process exited, code=exited, status=1/FAILURE
systemd[1]: Startup finished in 2.104s (kernel) + 41.220s (userspace) = 43.325s.
systemd[1]: Timed out waiting for device dev-disk-azure-resource\x2dpart1.device - /dev/disk/azure/resource-part1.
Cloud-init v. 24.4-0ubuntu1~24.04.2 running 'modules:final' at Thu, 20 Nov 2026 07:01:02 +0000. Up 23.41 seconds.
Cloud-init v. 24.4 finished at Thu, 20 Nov 2026 07:01:02 +0000. Datasource DataSourceAzure [seed=/dev/sr0].  Up 31.20 seconds
2026-11-20 07:01:02,123 - cc_scripts_user.py[WARNING]: Failed to run module scripts_user (scripts in /var/lib/cloud/instance/scripts)
2026-11-20 07:01:02,123 - util.py[WARNING]: Running module scripts_user (<module 'cloudinit.config.cc_scripts_user'>) failed
cloudinit.subp.ProcessExecutionError: Unexpected error while running command.
Command: ['/var/lib/cloud/instance/scripts/runcmd']
Exit code: 1
Reason: -
Failed to shellify [{'a': 1}] into file /var/lib/cloud/instance/scripts/runcmd
E: Unable to locate package kubelet=1.33.2-1.1
E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 1204 (unattended-upgr)
W: GPG error: https://pkgs.k8s.io/core:/stable:/v1.33/deb InRelease: The following signatures couldn't be verified because the public key is not available: NO_PUBKEY 234654DA9A296436
E: The repository 'https://pkgs.k8s.io/core:/stable:/v1.33/deb InRelease' is not signed.
curl: (6) Could not resolve host: mcr.microsoft.com
curl: (28) Failed to connect to acs-mirror.azureedge.net port 443 after 130113 ms: Couldn't connect to server
curl: (60) SSL certificate problem: unable to get local issuer certificate
bash: line 1: kubeadm: command not found
/opt/azure/containers/provision.sh: line 214: /opt/bin/kubelet: Permission denied
tar: /opt/cni.tgz: Cannot open: No such file or directory
No space left on device
mkdir: cannot create directory '/var/lib/etcd': Read-only file system
Out of memory: Killed process 2211 (kubelet) total-vm:1893420kB, anon-rss:91244kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:480kB oom_score_adj:-999
EXT4-fs error (device sda1): ext4_lookup:1855: inode #131074: comm kubelet: deleted inode referenced: 131099
hv_netvsc 000d3a12-3456-000d-3a12-3456000d3a12 eth0: VF slot 1 added
DHCPDISCOVER on eth0 to 255.255.255.255 port 67 interval 3 (xid=0x2a8e5f4c)
+ kubeadm join --config /run/kubeadm/kubeadm-join-config.yaml --ignore-preflight-errors=all
+ for i in $(seq 1 100)
+ timeout 60 apt-get update
+ systemctl enable --now containerd kubelet
+ '[' 1 -ne 0 ']'
+ retrycmd_if_failure 120 5 25 apt-get install -y nfs-common
+ modprobe br_netfilter
+ sysctl --system
++ curl -s -H Metadata:true --noproxy '*' 'http://169.254.169.254/metadata/instance?api-version=2021-02-01'
+ echo 'net.ipv4.ip_forward = 1'
The token in the kubeconfig is expired; create another by kubeadm token create
password authentication is disabled
pam_unix(sshd:auth): authentication failure; logname= uid=0 euid=0 tty=ssh ruser= rhost=10.0.0.9  user=root
Secret "bootstrap-token-abcdef" not found in namespace "kube-system"
serviceaccounts "default" not found; token controller did not create a token
no token found in /var/run/secrets/kubernetes.io/serviceaccount/token
failed to get token from IMDS: 400 Bad Request: Identity not found
error: key file /etc/kubernetes/pki/ca.key does not exist
`) {
		all = append(all, line{strings.TrimSuffix(l, "\n"), []string{strings.TrimSpace(l)}}) // tabs may become blanks
	}
	keep := func(text string, words ...string) { all = append(all, line{text, words}) }
	keep("failed to pull image \"mcr.microsoft.com/oss/x@sha256:"+g.hex(64)+"\": not found", "failed to pull image \"mcr.microsoft.com/oss/x@sha256:", "not found")
	keep("error: discovery-token-ca-cert-hash sha256:"+g.hex(64)+" does not match: cluster CA found in cluster-info ConfigMap is invalid", "does not match: cluster CA found in cluster-info ConfigMap is invalid")
	keep("StatusCode=404 -- Original Error: resource /subscriptions/"+g.uuid()+"/resourceGroups/rg/providers/Microsoft.Compute/virtualMachineScaleSets/pool1 not found", "StatusCode=404", "resourceGroups/rg/providers/Microsoft.Compute/virtualMachineScaleSets/pool1 not found")
	keep("pod \"kube-proxy-x7lpn_kube-system("+g.uuid()+")\" failed: CreateContainerConfigError", "kube-proxy-x7lpn_kube-system", "failed: CreateContainerConfigError")
	keep("StopPodSandbox \""+g.hex(64)+"\" failed: sandbox not found", "StopPodSandbox", "failed: sandbox not found")
	keep("mount: /dev/disk/by-uuid/"+g.uuid()+": can't find in /etc/fstab.", "mount: /dev/disk/by-uuid/", "can't find in /etc/fstab.")
	keep("tar.gz: FAILED sha256sum: WARNING: 1 computed checksum did NOT match (got "+g.hex(64)+")", "WARNING: 1 computed checksum did NOT match")
	keep("curl: (22) The requested URL returned error: 403 for https://svc:"+g.b62(16)+"@artifacts.example/agent.tgz", "curl: (22) The requested URL returned error: 403", "artifacts.example/agent.tgz")
	keep("+ kubeadm join 10.0.0.1:6443 --token "+g.kubeadm()+" --discovery-token-unsafe-skip-ca-verification", "+ kubeadm join 10.0.0.1:6443 --token ", "--discovery-token-unsafe-skip-ca-verification")
	keep("level=error msg=\"login failed\" password="+g.password(16)+" user=svc status=401", "level=error msg=\"login failed\"", "user=svc status=401")
	keep("Unauthorized: AADSTS7000215: Invalid client secret provided. Trace ID: "+g.uuid()+" Timestamp: 2026-11-20 07:01:02Z", "AADSTS7000215: Invalid client secret provided.")
	keep("Server=tcp:s.database.windows.net;User ID=app;Password="+g.password(16)+";Encrypt=True: Login failed for user 'app'.", "s.database.windows.net", "Login failed for user 'app'.")
	return all
}
