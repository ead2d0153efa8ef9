package explain

import (
	"fmt"
	"strings"
	"testing"
)

// AKS's exit codes count in all spellings, and only where the extension is AKS's.
func TestExitCodesOfAKS(t *testing.T) {
	deep := func(n int) string { return strings.Repeat(`\`, n) }
	for name, c := range map[string]struct{ text, reason string }{
		"an error":       {`(VMExtensionProvisioningError) VM has reported a failure when processing extension 'vmssCSE' (publisher 'Microsoft.Azure.Extensions' and type 'CustomScript'). Error message: 'Enable failed: failed to execute command: command terminated with exit status=50`, "OutboundBlocked"},
		"words":          {`Code: VMExtensionProvisioningError Message: VM has reported a failure when processing extension 'vmssCSE'. Error message: "Enable failed: exit code: 52"`, "APIServerNameUnknown"},
		"one backslash":  {`{"code":"VMExtensionProvisioningError","message":"extension 'vmssCSE' [stdout]\n{ \"ExitCode\": \"52\", \"Output\": \"x`, "APIServerNameUnknown"},
		"seven":          {`{"code":"VMExtensionProvisioningError","message":"extension 'vmssCSE' [stdout]` + deep(7) + `n{ ` + deep(7) + `"ExitCode` + deep(7) + `": ` + deep(7) + `"52` + deep(7) + `", `, "APIServerNameUnknown"},
		"a view":         {"\"extensions\": [\n{\n\"name\": \"vmssCSE\",\n\"statuses\": [\n{\n\"code\": \"ProvisioningState/failed/50\",\n\"message\": \"Enable failed: failed to execute command: command terminated with exit status=50\\n[stdout]\"\n}", "OutboundBlocked"},
		"another's":      {`(VMExtensionProvisioningError) VM has reported a failure when processing extension 'setup' (publisher 'Microsoft.Azure.Extensions' and type 'CustomScript'). Error message: 'Enable failed: failed to execute command: command terminated with exit status=50`, "Unknown"},
		"NVIDIA's":       {`(VMExtensionProvisioningError) VM has reported a failure when processing extension 'NvidiaGpuDriverLinux' (publisher 'Microsoft.HpcCompute' and type 'NvidiaGpuDriverLinux'). Error message: 'Installation failed. Exit code 14'. More information on troubleshooting is available at https://aka.ms/VMExtensionNvidiaGpuDriverLinuxTroubleshoot`, "GPUSetupFailed"},
		"another's view": {"\"extensions\": [\n{\n\"name\": \"vmssCSE\",\n\"statuses\": [{\"code\": \"ProvisioningState/succeeded\"}]},\n{\"name\": \"setup\",\n\"statuses\": [\n{\n\"code\": \"ProvisioningState/failed/50\",\n\"message\": \"exit status=50\"\n}", "Unknown"},
		"what it says":   {`extension 'vmssCSE' VMExtensionProvisioningError exit status=30 {\"Output\": \"x\\ncurl: (6) Could not resolve host: x\\nNov 21 06:58:31 a kubelet[1402]: E1121 06:58:30.100112    1402 run.go:72] \\\"command failed\\\" err=\\\"running with swap on is not supported\\\"`, "SwapOn"},
		"34":             {`VM has reported a failure when processing extension 'vmssCSE' (publisher 'Microsoft.Azure.Extensions' and type 'CustomScript'). Error message: 'Enable failed: failed to execute command: command terminated with exit status=34 [stdout] { "ExitCode": "34", "Output": "53403]: primaryNicIP is unset`, "KubeletCrashLoop"},
		"a bare name":    {"vmssCSE: command terminated with exit status=124", "BootScriptTimedOut"},
		"a URL's quotes": {`VM has reported a failure when processing extension %27vmssCSE%27. command terminated with exit status=50`, "OutboundBlocked"},
		"a portal's":     {"Extension Name: vmssCSE\nStatus: Provisioning failed\nMessage: Enable failed: failed to execute command: command terminated with exit status=50", "OutboundBlocked"},
		"a name after":   {"\"message\": \"Enable failed: failed to execute command: command terminated with exit status=50\",\n\"name\": \"vmssCSE\"", "OutboundBlocked"},
		"in a log":       {`E0813 17:03:31.948077 1 azure_scale_set.go:164] virtualMachineScaleSetsClient.CreateOrUpdate for scale set "x" failed: Code="VMExtensionProvisioningError" Message="VM has reported a failure when processing extension 'vmssCSE'. Error message: "Enable failed: failed to execute command: command terminated with exit status=85\n[stdout]`, "GPUSetupFailed"},
		"aks-engine's":   {`processing extension 'cse-master-0'. Error message: ` + deep(9) + `"Enable failed: failed to execute command: command terminated with exit status=124`, "BootScriptTimedOut"},
		"its report":     {`{ "ExitCode": "50", "Output": "+ x", "Error": "", "ExecDuration": "3" }`, "OutboundBlocked"},
		"a report, cut":  {`Code` + deep(3) + `": ` + deep(3) + `"50` + deep(3) + `", ` + deep(3) + `"Output` + deep(3) + `": ` + deep(3) + `"+ x`, "OutboundBlocked"},
		"a code of ARM":  {`{"code": "50", "message": "VMExtensionProvisioningError of extension 'vmssCSE'"}`, "AKSProvisioningFailed"},
		"unnamed":        {"Enable failed: failed to execute command: command terminated with exit status=50", "Unknown"},
		"Windows":        {`VM has reported a failure when processing extension 'vmssCSE'. Error message: "Command execution finished, but failed because it returned a non-zero exit code of: '5'"`, "APIServerUnreachable"},
		"Windows' own":   {`ExitCode: |13|, Output: |WINDOWS_CSE_ERROR_CONTAINERD_NOT_INSTALLED|, Error: |containerd is not installed|`, "ContainerRuntimeInstallFailed"},
		"in time":        {`{"statuses":[{"code":"ProvisioningState/failed/OSProvisioningTimedOut","level":"Error","displayStatus":"Provisioning failed"}]}`, "OSProvisioningTimedOut"},
		"all well":       {`{"extensions":[{"name":"vmssCSE","statuses":[{"code":"ProvisioningState/succeeded","message":"Enable succeeded: \n[stdout]\n{ \"ExitCode\": \"0\", \"Output\": \"\" }"}]}]}`, ""},
		"quota":          {`{"error":{"code":"OperationNotAllowed","message":"Operation could not be completed as it results in exceeding approved Total Regional Cores quota."},"status":"Failed"}`, "Unknown"},
	} {
		if got := explained(t, c.text).Machines[0]; got.Reason != c.reason {
			t.Errorf("%s: %q, want %q: %+v", name, got.Reason, c.reason, got)
		}
	}
}

func TestForms(t *testing.T) {
	const node = "Name:               %s\nRoles:              <none>\nConditions:\n  Type             Status  LastHeartbeatTime                 Reason                       Message\n  Ready            %s   Sat, 21 Nov 2026 07:20:30 +0000   Sat, 21 Nov 2026 06:58:30 +0000   %s\nEvents:\n"
	const status = "× %s - x\n     Loaded: loaded (/lib/systemd/system/x; enabled)\n     Active: %s since Sat 2026-11-21 06:58:30 UTC; 3s ago\n    Process: 911 ExecStart=/usr/bin/x (code=exited, status=%d/X)\n"
	for name, c := range map[string]struct{ text, want string }{
		"a Node that is Ready":                {fmt.Sprintf(node, "a", "True", "KubeletReady kubelet is posting ready status"), "a: NothingFailed"},
		"a Node that fell silent":             {fmt.Sprintf(node, "a", "Unknown", "NodeStatusUnknown Kubelet stopped posting node status."), "a: Failed NodeSilent"},
		"two Nodes":                           {fmt.Sprintf(node, "a", "False", "KubeletNotReady container runtime is down") + fmt.Sprintf(node, "b", "True", "KubeletReady"), "a: Failed ContainerRuntimeUnavailable, b: NothingFailed"},
		"get nodes":                           {"NAME   STATUS     ROLES    AGE   VERSION\na      Ready      <none>   5d    v1.35.0\nb      NotReady   <none>   20m   v1.35.0\n", "b: Failed NodeNotReady"},
		"get nodes, all Ready":                {"NAME   STATUS                     ROLES    AGE   VERSION\na      Ready                      <none>   5d    v1.35.0\nb      Ready,SchedulingDisabled   <none>   20m   v1.35.0\n", ": NothingFailed"},
		"get node -o yaml":                    {"apiVersion: v1\nkind: Node\nmetadata:\n  name: a\nstatus:\n  conditions:\n  - type: Ready\n    status: \"False\"\n    reason: KubeletNotReady\n    message: 'container runtime network not ready: cni plugin not initialized'\n", "a: Failed CNINotReady"},
		"get nodes -o json":                   {`{"apiVersion":"v1","kind":"List","items":[{"kind": "Node","metadata":{"name":"a"},"status":{"conditions":[{"type":"Ready","status":"True"}]}},{"kind": "Node","metadata":{"name":"b"},"status":{"conditions":[{"type":"Ready","status":"False","message":"container runtime is down"}]}}]}`, "b: Failed ContainerRuntimeUnavailable"},
		"a long list of Nodes":                {"{\"items\": [\n" + strings.Repeat("{\"kind\": \"Node\",\n\"status\":{\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}},\n", 4000) + "{\"kind\": \"Node\",\"metadata\":{\"name\":\"z\"},\"status\":{\"conditions\":[{\"type\":\"Ready\",\"status\":\"Unknown\"}]}}]}", "z: Failed NodeNotReady"},
		"a unit that loops":                   {fmt.Sprintf(status, "kubelet.service", "activating (auto-restart) (Result: exit-code)", 1), ": Failed KubeletCrashLoop"},
		"a program that is none":              {fmt.Sprintf(status, "containerd.service", "failed (Result: exit-code)", 203), ": Failed ContainerdMissing"},
		"a unit that runs":                    {fmt.Sprintf(status, "kubelet.service", "active (running)", 0), ": Unclear"},
		"another unit":                        {fmt.Sprintf(status, "fwupd-refresh.service", "failed (Result: exit-code)", 1), ": Unclear"},
		"cloud-init's status":                 {"status: error\nextended_status: error - done\nboot_status_code: enabled-by-generator\ndetail: DataSourceAzure [seed=/dev/sr0]\nerrors:\n\t- ('scripts_user', RuntimeError('Runparts: 1 failures (runcmd) in 1 attempted commands'))\n", ": Failed RuncmdFailed"},
		"an older one":                        {"status: error\ntime: Sat, 21 Nov 2026 06:58:30 +0000\ndetail:\n('package-update-upgrade-install', ProcessExecutionError(\"Unexpected error\"))\n", ": Failed PackageInstallFailed"},
		"cloud-init is done":                  {"status: done\nextended_status: done\n", ": NothingFailed"},
		"cloud-init runs":                     {"status: running\n", ": Unclear"},
		"status.json":                         {`{"v1":{"datasource":"DataSourceAzure","init":{"errors":[],"start":1.5,"finished":2.5},"modules-final":{"errors":["('scripts_user', RuntimeError('Runparts: 1 failures (runcmd) in 1 attempted commands'))"],"start":3.5,"finished":4.5}}}`, ": Failed RuncmdFailed"},
		"result.json":                         {`{"v1":{"datasource":"DataSourceAzure [seed=/dev/sr0]","errors":[]}}`, ": NothingFailed"},
		"another language's dates":            {"nov. 21 06:58:31 a kubelet[1402]: E1121 06:58:30.100112    1402 run.go:72] \"command failed\" err=\"running with swap on is not supported\"", "a: Failed SwapOn"},
		"a unit, later started":               {"Nov 21 06:58:31 a systemd[1]: kubelet.service: Failed with result 'exit-code'.\nNov 21 06:58:41 a systemd[1]: Started kubelet.service - kubelet: The Kubernetes Node Agent.\n", "a: Unclear"},
		"a unit that ended":                   {"[FAILED] Failed to start kubelet.service - kubelet: The Kubernetes Node Agent.\n", ": Failed KubeletCrashLoop"},
		"two boots of a journal":              {"Nov 21 06:58:31 a kernel: Linux version 6.8.0\nNov 21 06:58:31 a systemd[1]: kubelet.service: Failed with result 'exit-code'.\n-- Boot 0123456789abcdef0123456789abcdef --\nNov 21 06:59:31 a kernel: Linux version 6.8.0\nNov 21 06:59:31 a systemd[1]: Startup finished in 1s.", "a: Unclear"},
		"two boots, each begun in its middle": {"-- Boot 0123456789abcdef0123456789abcdee --\nNov 21 06:58:31 a systemd[1]: Dependency failed for Local File Systems.\n-- Boot 0123456789abcdef0123456789abcdef --\nNov 21 06:59:31 a systemd[1]: Startup finished in 1s.", "a: Unclear"},
		"get csr":                             {"NAME        AGE     SIGNERNAME                                    REQUESTOR                   REQUESTEDDURATION   CONDITION\ncsr-4msk5   8m      kubernetes.io/kube-apiserver-client-kubelet   system:bootstrap:abcdef     <none>              Pending\ncsr-9dbs8   9m      kubernetes.io/kube-apiserver-client-kubelet   system:bootstrap:abcdef     <none>              Approved,Issued\n", ": Failed CSRPending"},
		"get csr, denied":                     {"NAME        AGE     SIGNERNAME                                    REQUESTOR                   REQUESTEDDURATION   CONDITION\ncsr-4msk5   8m      kubernetes.io/kube-apiserver-client-kubelet   system:bootstrap:abcdef     <none>              Denied\n", ": Failed CSRNotApproved"},
		"get csr, serving":                    {"NAME        AGE     SIGNERNAME                                    REQUESTOR                   REQUESTEDDURATION   CONDITION\ncsr-4msk5   8m      kubernetes.io/kubelet-serving   system:node:a     <none>              Pending\n", ": Unclear"},
		"get csr, at once":                    {"NAME        AGE     SIGNERNAME                                    REQUESTOR                   REQUESTEDDURATION   CONDITION\ncsr-4msk5   9s      kubernetes.io/kube-apiserver-client-kubelet   system:bootstrap:abcdef     <none>              Pending\n", ": Unclear"},
		"get csr, older":                      {"NAME        AGE   REQUESTOR                 CONDITION\ncsr-4msk5   58m   system:bootstrap:abcdef   Pending\n", ": Failed CSRPending"},
		"get csr -o yaml":                     {"apiVersion: v1\nkind: List\nitems:\n- kind: CertificateSigningRequest\n  metadata:\n    name: csr-1\n  spec:\n    signerName: kubernetes.io/kube-apiserver-client-kubelet\n    username: system:bootstrap:abcdef\n  status:\n    conditions:\n    - type: Approved\n      status: \"True\"\n    - type: Failed\n      status: \"True\"\n", ": Failed CSRNotApproved"},
		"get csr -o json":                     {`{"kind":"CertificateSigningRequest","metadata":{"name":"csr-1"},"spec":{"signerName":"kubernetes.io/kube-apiserver-client-kubelet"},"status":{"certificate":"LS0t","conditions":[{"type":"Approved","status":"True"}]}}`, ": Unclear"},
		"get events":                          {"LAST SEEN   TYPE      REASON         OBJECT      MESSAGE\n4m2s        Normal    NodeReady      node/a      Node a status is now: NodeReady\n20m         Normal    NodeNotReady   node/a      Node a status is now: NodeNotReady\n3m          Normal    NodeNotReady   node/b      Node b status is now: NodeNotReady\n3m          Warning   Failed         pod/x       Failed to pull image \"registry.example.com/calico/node:v3\": unauthorized\n", "a: NothingFailed, b: Failed NodeNotReady"},
		"get events -A":                       {"NAMESPACE     LAST SEEN              TYPE      REASON         OBJECT      MESSAGE\ndefault       2m (x3 over 9m)        Normal    NodeNotReady   Node/a      Node a status is now: NodeNotReady\n", "a: Failed NodeNotReady"},
		"get events -o json":                  {`{"kind":"List","items":[{"kind":"Event","reason":"NodeReady","lastTimestamp":"2026-11-21T07:20:30Z","involvedObject":{"kind":"Node","name":"a"}},{"kind":"Event","reason":"NodeNotReady","lastTimestamp":"2026-11-21T06:20:30Z","involvedObject":{"kind":"Node","name":"a"}},{"kind":"Event","reason":"NodeNotReady","lastTimestamp":"2026-11-21T06:20:30Z","involvedObject":{"kind":"Node","name":"b"}}]}`, "a: NothingFailed, b: Failed NodeNotReady"},
		"two Nodes as yaml":                   {"kind: List\nitems:\n- kind: Node\n  metadata: {name: a}\n  status:\n    conditions: [{type: Ready, status: \"False\", message: container runtime is down}]\n- kind: Node\n  metadata: {name: b}\n  status:\n    conditions: [{type: Ready, status: \"Unknown\"}]\n", "a: Failed ContainerRuntimeUnavailable, b: Failed NodeNotReady"},
		"crictl info":                         {`{"status":{"conditions":[{"type":"RuntimeReady","status":true,"reason":"","message":""},{"type":"NetworkReady","status":false,"reason":"NetworkPluginNotReady","message":"Network plugin returns error: cni plugin not initialized"}]},"config":{"sandboxImage":"registry.k8s.io/pause:3.10"}}`, ": Failed CNINotReady"},
		"crictl info, runtime":                {`{"status":{"conditions":[{"type":"RuntimeReady","status":false,"reason":"x","message":"y"}]}}`, ": Failed ContainerRuntimeUnavailable"},
		"crictl info, all well":               {`{"status":{"conditions":[{"type":"RuntimeReady","status":true},{"type":"NetworkReady","status":true}]}}`, ": Unclear"},
		"crictl ps -a":                        {"CONTAINER           IMAGE               CREATED             STATE               NAME                      ATTEMPT             POD ID              POD\n1a2b3c4d5e6f7       c69fa2e9cbf5f       2 minutes ago       Exited              etcd                      5                   0123456789abc       etcd-a\n2a2b3c4d5e6f7       c69fa2e9cbf5f       9 minutes ago       Exited              kube-apiserver            1                   1123456789abc       kube-apiserver-a\n3a2b3c4d5e6f7       c69fa2e9cbf5f       2 minutes ago       Running             kube-apiserver            2                   1123456789abc       kube-apiserver-a\n", ": Failed ControlPlaneNotHealthy"},
		"crictl ps -a of a node":              {"CONTAINER           IMAGE               CREATED             STATE               NAME                      ATTEMPT             POD ID              POD\n1a2b3c4d5e6f7       c69fa2e9cbf5f       2 minutes ago       Exited              install-cni               0                   0123456789abc       cilium-x\n", ": Unclear"},
		"crictl ps -a, exited":                {"2a2b3c4d5e6f7       c69fa2e9cbf5f       9 minutes ago       Exited              kube-apiserver            1                   1123456789abc       kube-apiserver-a\n", ": Unclear"},
		"cloudbase-init.log":                  {"2026-11-21 06:58:01.331 1234 INFO cloudbaseinit.init [-] Cloudbase-Init version: 1.1.6\n2026-11-21 06:58:05.331 1234 ERROR cloudbaseinit.init [-] plugin 'UserDataPlugin' failed with error 'x'\n2026-11-21 06:58:06.331 1234 INFO cloudbaseinit.init [-] Plugins execution done\n", ": Failed CloudbaseInitPluginFailed"},
		"cloudbase-init.log, done":            {"2026-11-21 06:58:01.331 1234 INFO cloudbaseinit.init [-] Cloudbase-Init version: 1.1.6\n2026-11-21 06:58:06.331 1234 INFO cloudbaseinit.init [-] Plugins execution done\n", ": NothingFailed"},
		"a boot's end":                        {"[  OK  ] Reached target Multi-User System.\nlogin login: [   18.7] cloud-init[777]: Cloud-init v. 0.7.5 running 'init' at Tue, 26 Apr 2016 16:54:25 +0000. Up 18.49 seconds.\n", "login: Unclear"},
		"Ready, an old condition":             {fmt.Sprintf(node, "a", "True", "KubeletReady kubelet is posting ready status") + "  OutOfDisk        Unknown   Sat, 21 Nov 2026 07:20:30 +0000   Sat, 21 Nov 2026 06:58:30 +0000   NodeStatusUnknown Kubelet stopped posting node status.\n", "a: NothingFailed"},
		"it registered":                       {"Nov 21 06:58:31 a kubelet[1402]: E1121 06:58:30.100112    1402 x.go:1] y\nNov 21 06:58:31 a kubelet[1402]: I1121 06:58:31.100112    1402 kubelet_node_status.go:73] \"Successfully registered node\" node=\"a\"\n", "a: NothingFailed"},
		"and met an error later":              {"Nov 21 06:58:31 a kubelet[1402]: I1121 06:58:31.100112    1402 kubelet_node_status.go:73] \"Successfully registered node\" node=\"a\"\nNov 21 06:58:31 a kubelet[1402]: E1121 06:58:32.100112    1402 x.go:1] y\n", "a: Unclear"},
		"it joined":                           {"[kubelet-start] Starting the kubelet\nThis node has joined the cluster:\n", ": NothingFailed"},
		"get nodes, older":                    {"NAME   STATUS     AGE   VERSION\na      Ready      5d    v1.7.2\nb      NotReady   20m   v1.7.2\n", "b: Failed NodeNotReady"},
		"get csr, by a user":                  {"csr-4msk5   58m   kubelet-bootstrap   Pending\n", ": Failed CSRPending"},
		"get csr, another's":                  {"alice   58m   alice   Pending\n", ": Unclear"},
		"a job":                               {"module.pool.null_resource.a (remote-exec): Job for k3s.service failed because the control process exited with error code.\n", ": Failed K3sAgentFailed"},
		"a job of a list":                     {"\"msg\": \"Unable to start service x.service: Job for x.service failed because a timeout was exceeded.\"\n", ": Failed Unknown"},
		"a job that was retried":              {"Job for x.service failed because the control process exited with error code.\nCloud-init v. 25.2 finished at Sat, 21 Nov 2026 06:58:31 +0000. Datasource DataSourceAzure.  Up 31.30 seconds\n", ": NothingFailed"},
		"a task of Ansible":                   {"fatal: [10.1.0.4]: FAILED! => {\"changed\": true, \"msg\": \"non-zero return code\", \"rc\": 1}\n", ": Failed Unknown"},
		"a unit without a head":               {"k3s-agent.service: Main process exited, code=exited, status=1/FAILURE\n", ": Failed K3sAgentFailed"},
		"a state without a head":              {"Process: 25419 ExecStart=/usr/bin/kubelet (code=exited, status=1/FAILURE)\n Main PID: 25419 (code=exited, status=1/FAILURE)\n", ": Failed Unknown"},
		"an ended process":                    {"Main PID: 25419 (code=exited, status=0/SUCCESS)\n", ": Unclear"},
		"an older kubeadm":                    {"Unfortunately, an error has occurred:\n        timed out waiting for the condition\ncouldn't initialize a Kubernetes cluster\n", ": Failed KubeadmFailed"},
		"an extension, logged":                {"E0813 17:03:31.9 1 a.go:1] x\nE0813 17:03:31.9 1 a.go:1] VM has reported a failure when processing extension 'setup'.\nE0813 17:03:31.9 1 a.go:1] x\n", ": Failed Unknown"},
		"a service that is ended":             {"Nov 21 06:58:31 a systemd: Stopping Kubernetes Kubelet Server...\nNov 21 06:58:31 a systemd: Unit kubelet.service entered failed state.\n", "a: Unclear"},
		"a service that ends":                 {"Nov 21 06:58:31 a systemd: Unit kubelet.service entered failed state.\n", "a: Failed KubeletCrashLoop"},
		"a pod's sandbox":                     {"LAST SEEN   TYPE      REASON                   OBJECT   MESSAGE\n33s         Warning   FailedCreatePodSandBox   pod/x    Failed to create pod sandbox: failed to setup network for sandbox \"1\": failed to find plugin \"flannel\" in path [/opt/cni/bin]\n", ": Failed CNIPluginMissing"},
		"a condition by itself":               {"  Ready            False   Sat, 21 Nov 2026 07:20:30 +0000   Sat, 21 Nov 2026 06:58:30 +0000   KubeletNotReady   container runtime network not ready: cni config uninitialized\n", ": Failed CNINotReady"},
		"get nodes, with a kind":              {"node/b      NotReady   <none>   20m   v1.35.0\n", "b: Failed NodeNotReady"},
		"a unit that loops, why":              {fmt.Sprintf(status, "kubelet.service", "activating (auto-restart) (Result: exit-code)", 1) + "\nNov 21 06:58:31 a kubelet[1402]: E1121 06:58:30.100112    1402 run.go:74] \"command failed\" err=\"failed to load kubelet config file, path: /var/lib/kubelet/config.yaml, error: open /var/lib/kubelet/config.yaml: no such file or directory\"\n", "a: Failed KubeletConfigMissing"},
		"a name that comes late":              {"Nov 21 06:58:31 localhost kernel: x\nNov 21 06:58:31 a kernel: y\n", "a: Unclear"},
	} {
		var got []string
		r := explained(t, c.text)
		for _, m := range r.Machines {
			got = append(got, strings.TrimSpace(fmt.Sprintf("%s: %s %s", m.Name, m.Result, m.Reason)))
		}
		if s := strings.Join(got, ", "); s != c.want {
			t.Errorf("%s: %q, want %q: %+v", name, s, c.want, r)
		}
		for _, m := range r.Machines {
			if m.Result == Failed && len(m.Lines) == 0 || m.Message == "" {
				t.Errorf("%s: nothing shows %+v", name, m)
			}
		}
	}
}

// fuzzed checks what must hold of any text.
func fuzzed(t *testing.T, texts ...Text) {
	r := Explain(texts)
	if len(r.Files) != len(texts) {
		t.Fatalf("%d files of %d", len(r.Files), len(texts))
	}
	for _, m := range r.Machines {
		for _, q := range m.Lines {
			if q.Line < 1 || strings.ContainsAny(q.Text, "\x1b\n\r") {
				t.Fatalf("a line is %+v", q)
			}
		}
		if m.Message == "" || strings.ContainsAny(m.Message+m.Name, "\x1b\n\r") {
			t.Fatalf("%+v", m)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("\xff\xfea\x00b\x00"), []byte("x"))
	f.Add([]byte("a\n> b\r\n"), []byte("\x1b[0;1mc"))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		var texts []Text
		for _, b := range [][]byte{one, two} {
			if read, err := Read("f", strings.NewReader(string(b)), 2); err == nil {
				texts = append(texts, read)
			}
		}
		fuzzed(t, texts...)
	})
}

func fuzzForm(f *testing.F, seeds ...string) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text := Text{Name: "f"}
		for i, l := range strings.Split(s, "\n") {
			text.Lines = append(text.Lines, Line{i + 1, l})
		}
		fuzzed(t, text)
	})
}

func FuzzARM(f *testing.F) {
	fuzzForm(f, `{"code":"VMExtensionProvisioningError","message":"extension 'vmssCSE' exit status=50\\n{ \\\"ExitCode\\\": \\\"50`, "ExitCode: |13|, Output: |WINDOWS_CSE_ERROR_UNKNOWN|, Error: |x|", "Code\\\": \\\"50\\\", \\\"Output")
}

func FuzzState(f *testing.F) {
	fuzzForm(f, "● kubelet.service - x\n Loaded: loaded\n Active: failed (Result: exit-code)\n Process: 1 (code=exited, status=203/EXEC)", "Name:  a\nRoles: b\nConditions:\n Ready False x", "status: error\n('runcmd', E(x", "NAME STATUS ROLES AGE VERSION\na NotReady x 5d v1.35")
}

func FuzzTables(f *testing.F) {
	fuzzForm(f, "csr-4msk5 8m kubernetes.io/kube-apiserver-client-kubelet system:bootstrap:abcdef <none> Pending", "csr-1 2d3h system:bootstrap:a Denied\ncsr-2 99999999999999999999y system:bootstrap:a Pending",
		"default 2m (x3 over 9m) Normal NodeNotReady Node/a x\n3m Normal NodeReady node/b x\n3m Warning Failed pod/x y", "1a2b3c4d5e6f7 c69fa2e9cbf5f 2 minutes ago Exited etcd 5 0123456789abc etcd-a")
}

func FuzzObject(f *testing.F) {
	fuzzForm(f, "kind: Node\nstatus:\n  conditions:\n  - type: Ready\n", "kind: List\nitems:\n- kind: CertificateSigningRequest\n  spec: {signerName: a/b}\n- kind: Event\n  involvedObject: {kind: Node}", `{"status":{"conditions":[{"type":"RuntimeReady","status":false}]}}`, `{"items":7,"status":"x"}`, `{"v1":{"errors":["('runcmd', x)"],"init":{"start":1}}}`)
}

func FuzzJournal(f *testing.F) {
	fuzzForm(f, "__CURSOR=s\nMESSAGE=x\n_BOOT_ID=1\n\n", `{"MESSAGE":[1,2],"_PID":"1"}`, `{"log":"a\nb","stream":"stderr"}`, "Nov 21 06:58:31 a kubelet[1]: x\nlast wrapped word")
}

// Machines that a log names are as many as are shown of a list.
func TestMachinesAreBounded(t *testing.T) {
	var log strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&log, "Nov 21 06:58:31 h%d kubelet[12]: x\n", i)
	}
	r := explained(t, log.String())
	if len(r.Machines) != maxParts || !strings.Contains(strings.Join(r.Files[0].Skipped, "\n"), "19900 other machines than the first 100") {
		t.Errorf("%d machines, left out: %q", len(r.Machines), r.Files[0].Skipped)
	}
}
