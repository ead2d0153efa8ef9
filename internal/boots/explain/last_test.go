package explain

import (
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/boots/verdict"
)

// Where no line shows a cause, the last word of a program gives the reason that says only what
// ended: as it stands, and in the words of what wraps it. What was got over gives none.
func TestLastWords(t *testing.T) {
	at := strings.NewReplacer("31 a ", "31 pool1000003 ", "41 a ", "41 pool1000003 ")
	const kubelet = "Nov 21 06:58:31 a kubelet[1402]: "
	for name, c := range map[string]struct{ text, reason string }{
		"kubelet":                   {kubelet + `E1121 06:58:31.1    1402 run.go:72] "command failed" err="failed to run Kubelet: x"`, "KubeletCrashLoop"},
		"kubelet, cut":              {kubelet + `E1121 06:58:31.1    1402 run.go:72] "command f`, "KubeletCrashLoop"},
		"kubelet, older":            {kubelet + "F1121 06:58:31.1    1402 server.go:273] failed to run Kubelet: x", "KubeletCrashLoop"},
		"kubelet, in prose":         {"I found this: failed to create kubelet: get remote runtime typed version failed: rpc error", "KubeletCrashLoop"},
		"kubelet, started again":    {kubelet + "F1121 06:58:31.1    1402 server.go:273] x\nNov 21 06:58:41 a systemd[1]: Started kubelet: The Kubernetes Node Agent.", "KubeletCrashLoop"},
		"kubelet, its file":         {kubelet + `F1121 06:58:31.1    1402 server.go:273] failed to run Kubelet: unable to load bootstrap kubeconfig: stat /etc/kubernetes/bootstrap-kubelet.conf: no such file or directory`, "KubeletBootstrapKubeconfigMissing"},
		"kubelet, registered":       {kubelet + "F1121 06:58:31.1    1402 server.go:273] x\n" + kubelet + `I1121 06:59:31.1    1402 kubelet_node_status.go:73] "Successfully registered node" node="a"`, ""},
		"kubelet, joined":           {kubelet + "F1121 06:58:31.1    1402 server.go:273] x\nThis node has joined the cluster:", ""},
		"another klog":              {"F1121 06:58:31.1    1 main.go:273] x", "Unknown"},
		"k3s":                       {`time="2026-11-21T06:58:31Z" level=fatal msg="flannel exited: x"` + "\n" + `time="2026-11-21T06:58:31Z" level=info msg="Connecting to proxy" url="wss://10.1.0.4:6443/v1-k3s/connect"`, "Unknown"},
		"k3s, headed":               {`Nov 21 06:58:31 a k3s[21744]: time="2026-11-21T06:58:31Z" level=fatal msg="flannel exited: x"`, "K3sAgentFailed"},
		"k3s, cut":                  {`Nov 21 06:58:31 a rke2[21744]: time="2026-11-21T06:58:31Z" level=fatal msg`, "K3sAgentFailed"},
		"k3s, by Rancher":           {"2026/11/21 11:32:44 [FATAL] k3s exited with: exit status 1", "K3sAgentFailed"},
		"k3s, by k3d":               {"ERRO[0026] Failed to create cluster >>> Rolling Back", "K3sAgentFailed"},
		"k3s, a line by k3d":        {`WARN[0001] warning: encountered fatal log from node k3d-a-server-0 (retrying 0/10): Ptime="2026-11-21T06:58:31Z" level=fatal msg="x"` + "\nERRO[0007] Failed Cluster Start: Failed to start server k3d-a-server-0: error waiting for log line `k3s is up and running` from node 'k3d-a-server-0'", "K3sAgentFailed"},
		"k3s, up":                   {`Nov 21 06:58:31 a k3s[2]: time="2026-11-21T06:58:31Z" level=fatal msg="x"` + "\n" + `Nov 21 06:59:31 a k3s[3]: time="2026-11-21T06:59:31Z" level=info msg="k3s is up and running"`, ""},
		"k3s, by Ansible":           {`fatal: [a]: FAILED! => {"msg": "Unable to start service rke2-server.service: Job for rke2-server.service failed because the control process exited with error code."}`, "K3sAgentFailed"},
		"etcd, by k0s":              {`INFO[2026-11-21 15:44:41] {"level":"fatal","caller":"etcdmain/etcd.go:204","msg":"discovery failed"}  component=etcd`, "Unknown"},
		"kubeadm, by kind":          {`ERROR: failed to create cluster: failed to init node with kubeadm: command "docker exec kind-control-plane kubeadm init" failed with error: exit status 1`, "KubeadmFailed"},
		"kubeadm, by minikube":      {"X Error starting cluster: kubeadm init timed out in 10 minutes", "KubeadmFailed"},
		"kubeadm, its guess":        {"I1121 11:58:45.587868    8172 kubeadm.go:322] This error is likely caused by:", "KubeadmFailed"},
		"kubeadm, joined later":     {"This error is likely caused by:\n[preflight] Running pre-flight checks\nThis node has joined the cluster:", ""},
		"containerd's unit":         {"[FAILED] Failed to start containerd.service - containerd container runtime.", "UnitFailed"},
		"containerd's unit, up":     {"[FAILED] Failed to start containerd.service - containerd container runtime.\n[  OK  ] Started containerd.service - containerd container runtime.", ""},
		"cloud-init's unit":         {"[FAILED] Failed to start Initial cloud-init job (metadata service crawler).", "UnitFailed"},
		"cloud-init's module":       {"2026-11-21 06:58:05,331 - util.py[WARNING]: Running module ntp (<module 'cloudinit.config.cc_ntp'>) failed", "CloudInitModuleFailed"},
		"another unit":              {"[FAILED] Failed to start systemd-sy…nsion Images into /usr/ and /opt/.", ""},
		"a mount":                   {"[FAILED] Failed to mount /boot/efi.\nSee 'systemctl status boot-efi.mount' for details.", "MountFailed"},
		"a mount, newer":            {"[FAILED] Failed to mount boot-efi.mount - /boot/efi.", "MountFailed"},
		"an initrd":                 {"[  128.522397] dracut-initqueue[353]: Warning: dracut-initqueue: timeout, still waiting for following initqueue hooks:", "UnitHung"},
		"AKS's extension":           {`Code="VMExtensionProvisioningError" Message="VM has reported a failure when processing extension 'vmssCSE'. Error message: "Enable failed: failed to ex`, "AKSProvisioningFailed"},
		"another extension":         {`Code="VMExtensionProvisioningError" Message="VM has reported a failure when processing extension 'setup'. Error message: "Enable failed: failed to ex`, "Unknown"},
		"an extension, by waagent":  {"2026/07/19 18:13:14.496545 ERROR Event: name=Microsoft.Azure.Extensions.CustomScript, op=Install, message=[ExtensionError] Non-zero exit code: 1, bin/custom-script-shim install", "Unknown"},
		"ARM, by Terraform":         {`│ Error: waiting for creation: Code="CreateVMSSAgentPoolFailed" Message="AKS encountered an internal error"`, "Unknown"},
		"a code of ARM that is not": {`Code="Created" Message="x"`, ""},
	} {
		m := explained(t, c.text).Machines[0]
		if m.Reason != c.reason || c.reason != "" && len(m.Lines) == 0 {
			t.Errorf("%s: %s %q, want %q: %+v", name, m.Result, m.Reason, c.reason, m)
		}
		for form, of := range pasted {
			if strings.Contains(form, "journal") && strings.Count(c.text, "Nov 21") <= strings.Count(c.text, "\n") {
				continue // it is none
			}
			text := of(at.Replace(c.text))
			if r := explained(t, text); len(r.Machines) != 1 || r.Machines[0].Reason != c.reason {
				t.Errorf("%s, %s: want %q: %+v\n%s", name, form, c.reason, r.Machines, text)
			}
		}
		for _, w := range lastWords {
			if m.Reason == w.reason && (m.Owner != "" || m.Confidence != verdict.Unsure || !strings.Contains(m.Message, ", and nothing in it says why: ")) {
				t.Errorf("%s: %q of owner %q is %s: %s", name, m.Reason, m.Owner, m.Confidence, m.Message)
			}
		}
	}
}

// What only says that something is not there yet, or not at all where another is, is no cause.
func TestNoCause(t *testing.T) {
	for name, text := range map[string]string{
		"crictl's endpoints":      "WARN[0000] runtime connect using default endpoints: [unix:///var/run/dockershim.sock unix:///run/containerd/containerd.sock]. As the default settings are now deprecated, you should set the endpoint instead. \nERRO[0000] unable to determine runtime API version: rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing dial unix /var/run/dockershim.sock: connect: no such file or directory\" ",
		"crictl's default of old": `FATA[0000] listing containers: rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing dial unix /var/run/dockershim.sock: connect: no such file or directory"`,
		"crictl's, by klog":       `E0209 07:33:47.702320  159566 remote_runtime.go:390] "ListContainers with filter from runtime service failed" err="rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing dial unix /var/run/dockershim.sock: connect: no such file or directory\""`,
		"a socket unit":           `E1121 22:24:44.354161   84281 docker.go:131] "Failed to enable" err="sudo systemctl enable docker.socket: exit status 1 Failed to execute operation: No such file or directory" service="docker.socket"`,
		"a server that waits":     "INFO[0406] Waiting to retrieve kube-proxy configuration; server is not ready: https://127.0.0.1:6443/v1-k3s/readyz: 500 Internal Server Error",
		"a request, logged":       "I1121 06:58:30.100112    1402 round_trippers.go:553] GET https://10.1.0.4:6443/api/v1/nodes/a?timeout=10s 500 Internal Server Error in 1 milliseconds",
	} {
		if m := explained(t, text).Machines[0]; m.Reason != "" && m.Reason != "Unknown" {
			t.Errorf("%s: %s: %s", name, m.Reason, m.Message)
		}
	}
}
