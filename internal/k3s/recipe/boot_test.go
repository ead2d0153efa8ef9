package recipe_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/ortet/ortet/deploy/systemd"
	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

const (
	testGroup = "/subscriptions/sub/resourceGroups/demo-compute/providers/"
	testVM    = testGroup + "Microsoft.Compute/virtualMachines/server"
	shareKey  = "c2VjcmV0LWtleS1vZi10aGUtc2hhcmU="
	caHash    = "sha256:0123456789abcdef"
)

// world is a metadata service, a resource manager and a mirror of artifacts.
type world struct {
	t        *testing.T
	url      string
	imds     string // its address; "": url
	manager  string // the resource manager's; "": url
	root     string
	log      *os.File // where boot.py writes; nil: what start's wait gives
	programs string   // PATH before the system's
	wrap     []string // what runs boot.py
	stay     bool     // publish goes on
	started  func(pid int)

	mu      sync.Mutex
	data    []byte // the machine's userData
	raw     bool   // which is no base64
	tags    map[string]string
	pools   []string       // names of the cluster's scale sets
	states  []string       // values that TagBoot had
	next    string         // nextLink of the list of scale sets; "": its own
	moved   string         // where the list of scale sets is redirected; "": nowhere
	denied  int            // listKeys answers 403 so often
	key     string         // of the account; "": shareKey
	private bool           // the server has no public address
	calls   map[string]int // by method and path
	files   map[string]string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed")
	}
	w := &world{t: t, root: t.TempDir(), programs: t.TempDir(), tags: map[string]string{}, pools: []string{"agents"}, calls: map[string]int{}, files: map[string]string{}}
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	w.url = server.URL
	for _, name := range []string{"mount.cifs", "nft", "apt-get", "useradd", "groupadd", "chgrp"} {
		w.program(filepath.Join(w.programs, name), `echo "`+name+` $*" >>"$ORTET_ROOT/commands"`)
	}
	w.program(filepath.Join(w.programs, "mount"), `echo "mount $*" >>"$ORTET_ROOT/commands"
case "$*" in *remount*) [ -e "$ORTET_ROOT/in-place" ] || exit 32 ;; "-t cifs"*) mkdir -p "$ORTET_ROOT/proc"; echo "share $ORTET_ROOT/srv cifs" >>"$ORTET_ROOT/proc/mounts" ;; esac
rm -f "$ORTET_ROOT/dead"`)
	w.program(filepath.Join(w.programs, "umount"), `echo "umount $*" >>"$ORTET_ROOT/commands"; : >"$ORTET_ROOT/proc/mounts"`)
	w.program(filepath.Join(w.programs, "stat"), `[ ! -e "$ORTET_ROOT/blocked" ] || exec sleep 1000; [ ! -e "$ORTET_ROOT/dead" ]`)
	w.program(filepath.Join(w.programs, "systemctl"), `case "$*" in show*) cat "$ORTET_ROOT/k3s-started" ;; *) echo "systemctl $*" >>"$ORTET_ROOT/commands" ;; esac`)
	w.put(w.root+"/k3s-started", "0", 0o644)
	w.program(filepath.Join(w.programs, "id"), "exit 1")
	w.put(w.root+"/var/lib/rancher/k3s/server/tls/server-ca.crt", "CA", 0o600)
	return w
}

func (w *world) program(name, script string) {
	w.t.Helper()
	w.put(name, "#!/bin/sh\n"+script+"\n", 0o755)
}

func (w *world) put(name, content string, mode os.FileMode) {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		w.t.Fatal(err)
	}
	// A process that another test starts now would have it open for writing: it could not be run.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(name, []byte(content), mode); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[r.Method+" "+r.URL.Path]++
	reply := func(status int, v any) {
		out.WriteHeader(status)
		_ = json.NewEncoder(out).Encode(v)
	}
	metadata := strings.HasPrefix(r.URL.Path, "/metadata/in") || strings.HasPrefix(r.URL.Path, "/metadata/identity")
	switch file, some := w.files[r.URL.Path]; {
	case some:
		_, _ = io.WriteString(out, file)
	case metadata && r.Header.Get("Metadata") != "true":
		reply(http.StatusBadRequest, nil)
	case r.URL.Path == "/metadata/instance/compute":
		userData := base64.StdEncoding.EncodeToString(w.data)
		if w.raw {
			userData = "{" + string(w.data)
		}
		reply(http.StatusOK, object{"azEnvironment": "AzureStackCloud", "subscriptionId": "sub", "resourceGroupName": "demo-compute", "location": "westeurope", "userData": userData})
	case r.URL.Path == "/metadata/endpoints":
		reply(http.StatusOK, []any{object{"resourceManager": w.url, "authentication": object{"audiences": []string{"https://management.example/"}}, "suffixes": object{"storage": "storage.example"}}})
	case r.URL.Path == "/metadata/identity/oauth2/token":
		if q := r.URL.Query(); q.Get("resource") != "https://management.example/" || !strings.HasPrefix(q.Get("msi_res_id"), "/subscriptions/sub/resourceGroups/demo-storage/providers/Microsoft.ManagedIdentity/userAssignedIdentities/ortet-") {
			reply(http.StatusBadRequest, object{"error": "invalid_request"})
			return
		}
		reply(http.StatusOK, object{"access_token": "token"})
	case r.Header.Get("Authorization") != "Bearer token":
		reply(http.StatusUnauthorized, nil)
	case strings.HasSuffix(r.URL.Path, "/storageAccounts/ortetdemo123/listKeys") && r.Method == http.MethodPost:
		if w.denied > 0 {
			w.denied--
			reply(http.StatusForbidden, object{"error": object{"code": "AuthorizationFailed", "message": "the client has no authorization"}})
			return
		}
		reply(http.StatusOK, object{"keys": []any{object{"keyName": "key1", "value": cmp.Or(w.key, shareKey)}}})
	case r.URL.Path == testGroup+"Microsoft.Network/publicIPAddresses/server" && !w.private:
		reply(http.StatusOK, object{"properties": object{"ipAddress": "192.0.2.4", "dnsSettings": object{"fqdn": "demo.westeurope.example"}}})
	case r.URL.Path == testGroup+"Microsoft.Compute/virtualMachineScaleSets":
		if w.moved != "" {
			http.Redirect(out, r, w.moved, http.StatusTemporaryRedirect)
			return
		}
		// One a page, after one of another cluster.
		n, _ := strconv.Atoi(r.URL.Query().Get("page"))
		page := object{"value": []any{object{"name": "foreign", "tags": object{recipe.TagCluster: "other"}}, object{"name": "untagged"}}}
		if n > 0 {
			page["value"] = []any{object{"name": w.pools[n-1], "tags": object{recipe.TagCluster: "demo"}}}
		}
		if n < len(w.pools) {
			page["nextLink"] = cmp.Or(w.next, fmt.Sprintf("%s%s?page=%d", w.url, r.URL.Path, n+1))
		}
		reply(http.StatusOK, page)
	case r.URL.Path == testVM:
		reply(http.StatusOK, object{"tags": w.tags})
	case r.URL.Path == testVM+"/providers/Microsoft.Resources/tags/default" && r.Method == http.MethodPatch:
		var in struct {
			Operation  string
			Properties struct{ Tags map[string]string }
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Operation != "Merge" {
			reply(http.StatusBadRequest, nil)
			return
		}
		maps.Copy(w.tags, in.Properties.Tags)
		if state, some := in.Properties.Tags[recipe.TagBoot]; some {
			w.states = append(w.states, state)
		}
		reply(http.StatusOK, nil)
	default:
		reply(http.StatusNotFound, object{"error": object{"code": "ResourceNotFound", "message": "not there"}})
	}
}

// tag is a tag of the server's VM.
func (w *world) tag(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tags[name]
}

// count is how often something was asked.
func (w *world) count(call string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[call]
}

// install puts boot.py and the settings of a machine where cloud-init puts them, with
// artifacts from here.
func (w *world) install(machine string, change func(*k3s.Cluster)) {
	w.t.Helper()
	c := minimal()
	w.mu.Lock()
	for path, a := range map[string]*k3s.Artifact{"/k3s": &c.Spec.Artifacts.K3s, "/ortet": &c.Spec.Artifacts.Ortet, "/ortet-node": &c.Spec.Artifacts.OrtetNode} {
		w.files[path] = "#!/bin/sh\n# " + path + program
		*a = k3s.Artifact{URL: w.url + path, SHA256: sha256Of(w.files[path])}
	}
	w.mu.Unlock()
	if change != nil {
		change(c)
	}
	d := render(w.t, c, facts())
	for _, f := range parse(w.t, d.CloudInit[machine]).WriteFiles {
		if strings.HasSuffix(f.Path, "/boot.json") || strings.HasSuffix(f.Path, ".py") || strings.Contains(f.Path, "/manifests/") {
			w.put(w.root+f.Path, f.Content, 0o755)
		}
	}
	if machine != "server" {
		return
	}
	w.setData(d.Settings)
	w.put(w.root+"/proc/sys/kernel/random/boot_id", "this-boot\n", 0o644)
	w.node("True", "this-boot", 0)
	w.listens("0016", "08AE")
	disk := w.root + "/dev/disk/azure/scsi1/lun0"
	if _, err := os.Stat(disk); err != nil {
		w.put(disk, "", 0o600)
		if err := os.Truncate(disk, 16<<20); err != nil {
			w.t.Fatal(err)
		}
	}
}

// listens has sshd listen on these ports, in hexadecimal.
func (w *world) listens(ports ...string) {
	text := "  sl  local_address rem_address   st\n   0: 0100007F:0035 00000000:0000 01\n"
	for _, port := range ports {
		text += "   1: 00000000000000000000000000000000:" + port + " 00000000000000000000000000000000:0000 0A 00000000:00000000\n"
	}
	w.put(w.root+"/proc/net/tcp6", text, 0o644)
}

// program is what k3s and ortet are here.
const program = `
case "$*" in
--version) cat "$ORTET_ROOT/version" 2>/dev/null; true ;;
*print-ca-hash*) echo ` + caHash + ` ;;
*"create token"*) date +%N ;;
*"kubectl get"*) sed "s/NOW/$(date -u +%FT%T.000000Z -d @$(($(date +%s) - $(cat "$ORTET_ROOT/lease"))))/" "$ORTET_ROOT/node.json" ;;
esac
`

// setData is what ortet cluster up does to a server that runs.
func (w *world) setData(data []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.data = data
}

// node is what the API server says of the server's Node; its Lease was renewed so many
// seconds ago.
func (w *world) node(ready, boot string, lease int) {
	w.t.Helper()
	w.put(w.root+"/lease", strconv.Itoa(lease), 0o644)
	w.put(w.root+"/node.json", `{"kind": "List", "items": [
 {"kind": "Node", "status": {"conditions": [{"type": "Ready", "status": "`+ready+`"}], "nodeInfo": {"bootID": "`+boot+`", "kubeletVersion": "v1.36.3+k3s1"}}},
 {"kind": "Lease", "spec": {"renewTime": "NOW"}}]}`, 0o644)
}

// startK3s has systemd start k3s now, by the clock since the machine's boot.
func (w *world) startK3s() {
	w.t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		w.t.Fatal(err)
	}
	w.put(w.root+"/k3s-started", strconv.FormatInt(now.Nano()/1000, 10), 0o644)
}

// start runs boot.py until it ends by itself or ctx does.
func (w *world) start(ctx context.Context, arguments ...string) (wait func() (string, error)) {
	w.t.Helper()
	command := append(slices.Concat(w.wrap, []string{"python3", w.root + "/usr/local/lib/ortet/boot.py"}), arguments...)
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	// With the programs that it runs, which would write to a folder that is being removed.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return unix.Kill(-c.Process.Pid, unix.SIGKILL) }
	c.Env = []string{
		"ORTET_ROOT=" + w.root, "ORTET_PAUSE=0.02", "ORTET_IMDS=" + cmp.Or(w.imds, w.url), "ORTET_RESOURCE_MANAGER=" + cmp.Or(w.manager, w.url),
		"PATH=" + w.programs + ":" + os.Getenv("PATH"), "PYTHONDONTWRITEBYTECODE=1",
	}
	if !w.stay {
		c.Env = append(c.Env, "ORTET_ONCE=1")
	}
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if w.log != nil {
		c.Stdout, c.Stderr = w.log, w.log
	}
	if err := c.Start(); err != nil {
		w.t.Fatal(err)
	}
	if w.started != nil {
		w.started(c.Process.Pid)
	}
	return func() (string, error) { err := c.Wait(); return out.String(), err }
}

// boot runs boot.py to its end.
func (w *world) boot(arguments ...string) string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 3*time.Minute)
	defer cancel()
	out, err := w.start(ctx, arguments...)()
	if err != nil {
		w.t.Fatalf("boot.py: %v\n%s", err, out)
	}
	return out
}

func (w *world) read(name string) string {
	w.t.Helper()
	text, err := os.ReadFile(w.root + name)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

// eventually waits for a condition of another process.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.After(2 * time.Minute); !is(); {
		select {
		case <-deadline:
			t.Fatalf("timed out waiting until %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestServerBoots(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.install("server", nil)
	w.put(w.root+"/etc/ssh/ssh_host_ed25519_key.pub", "ssh-ed25519 AAAAhost root@server\n", 0o644)
	w.boot()

	commands := w.read("/commands")
	for _, want := range []string{
		"systemctl start ortet-metadata-guard.service\n",
		"mount -t cifs //ortetdemo123.file.storage.example/data " + w.root + "/srv -o vers=3.1.1,credentials=" + w.root + "/run/ortet/share-credentials,noperm,dir_mode=0777,file_mode=0666,",
	} {
		if !strings.Contains(commands, want) {
			t.Errorf("commands lack %q:\n%s", want, commands)
		}
	}
	if strings.Contains(commands, "apt-get") || strings.Contains(commands, shareKey) {
		t.Errorf("commands install packages that are there, or show the key:\n%s", commands)
	}
	if got := w.read("/run/ortet/share-credentials"); got != "username=ortetdemo123\npassword="+shareKey+"\n" {
		t.Errorf("credentials are %q", got)
	}
	for file, mode := range map[string]os.FileMode{"/run/ortet/share-credentials": 0o600, "/usr/local/bin/k3s": 0o755, "/usr/local/bin/ortet": 0o755, "/etc/rancher/k3s/config.yaml": 0o600} {
		if i, err := os.Stat(w.root + file); err != nil || i.Mode().Perm() != mode {
			t.Errorf("%s: %v, want mode %o", file, i, mode)
		}
	}
	want := `node-name: "server"
node-ip: "10.16.0.10"
tls-san: ["10.16.0.10", "192.0.2.4", "demo.westeurope.example"]
cluster-cidr: "10.42.0.0/16"
service-cidr: "10.43.0.0/16"
write-kubeconfig-mode: "0600"
`
	if got := w.read("/etc/rancher/k3s/config.yaml"); got != want {
		t.Errorf("config.yaml is\n%s\nwant\n%s", got, want)
	}
	if got := w.read("/run/ortet/admission.env"); got != "ORTET_ADMISSION_ARGS=--tls-san=10.16.0.10 --api-server=https://10.16.0.10:6443 --pool="+testGroup+"Microsoft.Compute/virtualMachineScaleSets/agents\n" {
		t.Errorf("admission.env is %s", got)
	}
	if got := w.read("/var/lib/rancher/k3s/server/manifests/ortet-admission.yaml"); !strings.Contains(got, "ValidatingAdmissionPolicy") {
		t.Errorf("the manifest of admission is %q", got)
	}
	var azure object
	if err := json.Unmarshal([]byte(w.read("/etc/ortet/azure.json")), &azure); err != nil || azure["useManagedIdentityExtension"] != true || azure["resourceManagerEndpoint"] != w.url {
		t.Errorf("azure.json is %v (%v)", azure, err)
	}
	w.read("/run/ortet/booted")
	if got := w.tag(recipe.TagBoot); got != "starting k3s" || w.tag(recipe.TagCAHash) != "" {
		t.Errorf("after the boot the tags are %v", w.tags)
	}

	w.boot("publish")
	for name, want := range map[string]string{
		recipe.TagBoot: recipe.BootReady, recipe.TagCAHash: caHash, recipe.TagSSHHostKey: "ssh-ed25519 AAAAhost",
		recipe.TagSettings: sha256Of(string(w.data))[:16], recipe.TagK3s: "v1.36.3+k3s1",
	} {
		if got := w.tag(name); got != want {
			t.Errorf("tag %s is %q, want %q", name, got, want)
		}
	}
	patch := "PATCH " + testVM + "/providers/Microsoft.Resources/tags/default"
	before := w.count(patch)
	if w.boot("publish"); w.count(patch) != before {
		t.Error("tags that are right were written again")
	}

	// A second boot keeps valid programs, and replaces what was changed.
	w.put(w.root+"/usr/local/bin/ortet", "changed", 0o755)
	w.boot()
	if got := w.count("GET /k3s"); got != 1 {
		t.Errorf("k3s was fetched %d times in two boots", got)
	}
	if got := w.read("/usr/local/bin/ortet"); got == "changed" {
		t.Error("a program that does not match its digest was kept")
	}
}

func TestAgentBootsWhenTheServerHasPublished(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.install("agents", func(c *k3s.Cluster) {
		c.Spec.Pools[0].Labels = map[string]string{"tier": "spot"}
		c.Spec.Pools[0].Taints = []string{"spot=true:NoSchedule"}
		c.Spec.Pools[0].K3s = k3s.K3s{"kubelet-arg": "max-pods=60"}
		c.Spec.Options.PrivateRegistry = true
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	wait := w.start(ctx)
	eventually(t, "the agent asks for the tag again", func() bool { return w.count("GET "+testVM) > 2 })
	if _, err := os.Stat(w.root + "/run/ortet/booted"); err == nil {
		t.Error("the agent went on without the server's CA hash")
	}
	w.mu.Lock()
	w.tags[recipe.TagCAHash] = caHash
	w.mu.Unlock()
	out, err := wait()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if n := strings.Count(out, "has no tag "+recipe.TagCAHash); n != 1 {
		t.Errorf("the reason was logged %d times:\n%s", n, out)
	}
	var join struct {
		Servers      []string
		CAHash       string
		Distribution string
		NodeLabels   map[string]string
		NodeTaints   []string
		Registries   string
	}
	d := json.NewDecoder(strings.NewReader(w.read("/etc/ortet/join.json")))
	d.DisallowUnknownFields()
	if err := d.Decode(&join); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprintf("%v %v %v %v %v", join.Servers, join.CAHash, join.Distribution, join.NodeLabels, join.NodeTaints) != "[https://10.16.0.10:8443] "+caHash+" k3s map[tier:spot] [spot=true:NoSchedule]" ||
		!strings.Contains(join.Registries, "http://10.16.0.10:5000") {
		t.Errorf("join.json is %+v", join)
	}
	if got := w.read(optionsFile); got != "kubelet-arg: max-pods=60\n" {
		t.Errorf("options of k3s are %q", got)
	}
	if len(w.states) != 0 {
		t.Errorf("an agent wrote the server's tag: %q", w.states)
	}

	// A new server has a new CA: the next boot reads it.
	w.mu.Lock()
	w.tags[recipe.TagCAHash] = "sha256:ffff"
	w.mu.Unlock()
	if w.boot(); !strings.Contains(w.read("/etc/ortet/join.json"), "sha256:ffff") {
		t.Error("join.json has the old hash after a second boot")
	}
}

// Packages of the file are installed where dpkg does not have them, also while the server runs.
func TestMissingPackagesAreInstalled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.program(filepath.Join(w.programs, "dpkg-query"), `for name; do :; done
cat "$ORTET_ROOT/dpkg/$name"`)
	w.program(filepath.Join(w.programs, "apt-get"), `echo "apt-get $*" >>"$ORTET_ROOT/commands"
for name; do [ "$1" != install ] || printf "installed " >"$ORTET_ROOT/dpkg/$name"; done`)
	w.put(w.root+"/dpkg/jq", "installed installed ", 0o644) // of two architectures
	w.put(w.root+"/dpkg/gone", "config-files ", 0o644)
	packages := func(names ...string) func(*k3s.Cluster) {
		return func(c *k3s.Cluster) { c.Spec.Packages = names }
	}
	w.install("server", packages("jq"))
	w.put(w.root+"/etc/ssh/ssh_host_ed25519_key.pub", "ssh-ed25519 AAAAhost root@server\n", 0o644)
	if w.boot(); strings.Contains(w.read("/commands"), "apt-get") {
		t.Errorf("a package that is there was installed:\n%s", w.read("/commands"))
	}
	w.put(w.root+"/commands", "", 0o644)
	w.install("server", packages("jq", "nfs-common", "gone"))
	w.boot("publish")
	w.boot()
	want := "apt-get install -q -y -o DPkg::Lock::Timeout=600 nfs-common gone\n"
	if commands := w.read("/commands"); strings.Count(commands, "apt-get install") != 1 || !strings.Contains(commands, want) || strings.Contains(commands, "try-restart") {
		t.Errorf("commands lack %q, or have more:\n%s", want, commands)
	}
}

const optionsFile = "/etc/rancher/k3s/config.yaml.d/50-cluster.yaml"

// The server takes over options of k3s while it runs, and goes back to those of before.
func TestOptionsOfK3sAreAppliedInPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.install("server", nil)
	w.put(w.root+"/etc/ssh/ssh_host_ed25519_key.pub", "ssh-ed25519 AAAAhost root@server\n", 0o644)
	w.boot()
	w.put(w.root+"/commands", "", 0o644)
	restarts := func() int {
		return strings.Count(w.read("/commands"), "systemctl try-restart --no-block k3s.service\n")
	}
	option := func(options k3s.K3s) {
		w.install("server", func(c *k3s.Cluster) { c.Spec.Server.K3s = options })
		w.boot("publish")
	}
	option(k3s.K3s{"kubelet-arg": []any{"max-pods=60"}, "debug": true})
	option(k3s.K3s{"debug": true, "kubelet-arg": []any{"max-pods=60"}})
	if got := w.read(optionsFile); got != "debug: true\nkubelet-arg:\n- max-pods=60\n" || restarts() != 1 {
		t.Errorf("%d restarts, and the file is %q", restarts(), got)
	}
	option(nil)
	if _, err := os.Stat(w.root + optionsFile); !errors.Is(err, os.ErrNotExist) || restarts() != 2 {
		t.Errorf("without options: %d restarts, %v", restarts(), err)
	}
}

func TestChecksumMismatchIsPublished(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.install("server", nil)
	right := w.files["/k3s"]
	w.mu.Lock()
	w.files["/k3s"] = "another program"
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	wait := w.start(ctx)
	want := fmt.Sprintf("fetching k3s: checksum of %s/k3s does not match: want %s, got %s", w.url, sha256Of(right), sha256Of("another program"))
	eventually(t, "the tag has the reason", func() bool { return w.tag(recipe.TagBoot) == want })
	if _, err := os.Stat(w.root + "/usr/local/bin/k3s"); err == nil {
		t.Error("a program that does not match its digest was installed")
	}
	w.mu.Lock()
	w.files["/k3s"] = right
	w.mu.Unlock()
	if out, err := wait(); err != nil || strings.Count(out, want) != 1 {
		t.Errorf("boot after the file was corrected: %v, with the reason not exactly once:\n%s", err, out)
	}
}

func TestRoleThatIsNotYetEffective(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.install("server", nil)
	w.denied = 4
	out := w.boot()
	if n := strings.Count(out, "HTTP 403 AuthorizationFailed: the client has no authorization"); n != 1 {
		t.Errorf("the reason was logged %d times:\n%s", n, out)
	}
	w.read("/run/ortet/booted")
}

func TestArtifactFromTheShare(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.install("server", func(c *k3s.Cluster) {
		c.Spec.Artifacts.Images = &k3s.Artifact{URL: "file:///srv/artifacts/images.tar.zst", SHA256: sha256Of("images")}
	})
	w.put(w.root+"/srv/artifacts/images.tar.zst", "images", 0o644)
	w.boot()
	if got := w.read("/var/lib/rancher/k3s/agent/images/ortet.tar.zst"); got != "images" {
		t.Errorf("the images are %q", got)
	}
}

const manifestFolder = "/var/lib/rancher/k3s/server/manifests/"

// withManifests has the server apply an object by URL, and one of the share that is no YAML.
func withManifests(w *world) func(*k3s.Cluster) {
	w.files["/web.yaml"] = "kind: Namespace\n"
	w.put(w.root+"/srv/manifests/broken.yaml", "kind: [", 0o644)
	return func(c *k3s.Cluster) {
		c.Spec.Manifests = []k3s.Manifest{
			{Name: "web", Artifact: k3s.Artifact{URL: w.url + "/web.yaml", SHA256: sha256Of("kind: Namespace\n")}},
			{Name: "broken", Artifact: k3s.Artifact{URL: "file:///srv/manifests/broken.yaml", SHA256: sha256Of("kind: [")}},
		}
	}
}

// wantManifests: k3s's folder holds these and nothing else.
func (w *world) wantManifests(want map[string]string) {
	w.t.Helper()
	got := map[string]string{}
	entries, err := os.ReadDir(w.root + manifestFolder)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range entries {
		content := w.read(manifestFolder + e.Name())
		if e.Name() == "ortet-admission.yaml" && strings.Contains(content, "ValidatingAdmissionPolicy") {
			content = "Ortet's"
		}
		if !strings.HasSuffix(e.Name(), ".part") { // k3s does not read these
			got[e.Name()] = content
		}
	}
	if !maps.Equal(got, want) {
		w.t.Errorf("manifests are %q, want %q", got, want)
	}
}

func TestManifestsAreApplied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.install("server", withManifests(w))
	own := map[string]string{"ortet-admission.yaml": "Ortet's", "coredns.yaml": "k3s's"}
	for name, content := range own {
		w.put(w.root+manifestFolder+name, content, 0o600)
	}
	w.put(w.root+manifestFolder+"ortet-earlier.yaml", "of an earlier cluster.yaml", 0o600)
	w.boot()
	want := map[string]string{"ortet-web.yaml": "kind: Namespace\n", "ortet-broken.yaml": "kind: ["}
	maps.Copy(want, own)
	w.wantManifests(want)
	if i, err := os.Stat(w.root + manifestFolder + "ortet-web.yaml"); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("ortet-web.yaml: %v %v", i, err)
	}
	w.install("server", nil)
	w.boot()
	w.wantManifests(own)
}

// An agent's root has the account's key, so everything on the share is as it wants: the
// server applies nothing of it, and does not hang.
func TestServerAppliesNothingOfTheShare(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.install("server", withManifests(w))
	const evil = "kind: ClusterRoleBinding\n"
	at := func(name string) string { return w.root + "/srv/" + name }
	errs := []error{}
	for _, folder := range []string{"autostart", "manifests", "server/manifests"} {
		w.put(at(folder+"/evil.yaml"), evil, 0o777)
		w.put(at(folder+"/ortet-admission.yaml"), evil, 0o777)
		w.put(at(folder+"/\xff\xfe.yaml"), evil, 0o777)
		w.put(at(folder+"/folder.yaml/evil.yaml"), evil, 0o777)
		errs = append(errs, unix.Mkfifo(at(folder+"/pipe.yaml"), 0o777), os.Symlink("/dev/zero", at(folder+"/zero.yaml")),
			os.Symlink(folder, at(folder+"/loop.yaml")), os.Symlink(w.root+manifestFolder, at(folder+"/manifests.yaml")))
	}
	broken := at("manifests/broken.yaml")
	for name, replace := range map[string]func() error{
		"other content":      func() error { return os.WriteFile(broken, []byte(evil), 0o777) },
		"a pipe":             func() error { return unix.Mkfifo(broken, 0o777) },
		"a folder":           func() error { return os.Mkdir(broken, 0o777) },
		"a link to a device": func() error { return os.Symlink("/dev/zero", broken) },
		"nothing":            func() error { return nil },
	} {
		if err := errors.Join(append(errs, os.RemoveAll(broken), os.RemoveAll(w.root+manifestFolder), replace())...); err != nil {
			t.Fatal(err)
		}
		errs = nil
		w.mu.Lock()
		w.states = nil
		w.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		wait := w.start(ctx)
		eventually(t, name+" is reported", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return slices.ContainsFunc(w.states, func(s string) bool { return strings.HasPrefix(s, "fetching manifest broken: ") })
		})
		w.wantManifests(map[string]string{})
		if err := errors.Join(os.RemoveAll(broken), os.WriteFile(broken, []byte("kind: ["), 0o644)); err != nil {
			t.Fatal(err)
		}
		if out, err := wait(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		cancel()
		w.wantManifests(map[string]string{"ortet-web.yaml": "kind: Namespace\n", "ortet-broken.yaml": "kind: [", "ortet-admission.yaml": "Ortet's"})
	}
}

// The admission server has a token of its ServiceAccount, and no way to k3s's kubeconfig.
func TestAdmissionHasATokenOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.install("server", nil)
	w.put(w.root+"/etc/ssh/ssh_host_ed25519_key.pub", "ssh-ed25519 AAAAhost root@server\n", 0o644)
	const folder = "/run/ortet/admission"
	for range 2 {
		w.boot()
		w.boot("publish")
	}
	if commands := w.read("/commands"); !strings.Contains(commands, "useradd --system ") || !strings.Contains(commands, "chgrp ortet-admission "+w.root+folder) ||
		strings.Count(commands, "systemctl restart ortet-admission.service\n") != 1 {
		t.Errorf("commands are\n%s", commands)
	}
	for file, mode := range map[string]os.FileMode{"": os.ModeDir | os.ModeSetgid | 0o750, "/token": 0o640, "/kubeconfig": 0o640} {
		if i, err := os.Stat(w.root + folder + file); err != nil || i.Mode() != mode {
			t.Errorf("%s: %v, want mode %v", folder+file, i.Mode(), mode)
		}
	}
	config, err := clientcmd.LoadFromFile(w.root + folder + "/kubeconfig")
	if user := config.AuthInfos["default"]; err != nil || len(config.AuthInfos) != 1 || user.TokenFile != w.root+folder+"/token" || user.ClientKeyData != nil {
		t.Errorf("kubeconfig: %v %+v", err, config)
	}
	first := w.read(folder + "/token")
	if err := os.Chtimes(w.root+folder+"/token", time.Time{}, time.Now().Add(-21*time.Minute)); err != nil {
		t.Fatal(err)
	}
	if w.boot("publish"); w.read(folder+"/token") == first || strings.Count(w.read("/commands"), "systemctl restart ortet-admission.service\n") != 1 {
		t.Errorf("the token was not renewed, or the admission server restarted:\n%s", w.read("/commands"))
	}
	unit, err := systemd.Files.ReadFile("ortet-admission.service")
	if err != nil || !strings.Contains(string(unit), "\nUser=ortet-admission\nCapabilityBoundingSet=\n") || strings.Contains(string(unit), "k3s.yaml") {
		t.Errorf("%v: the unit runs as root, has capabilities or names k3s's kubeconfig:\n%s", err, unit)
	}
}

// Pools come and go while the server runs.
func TestServerAdmitsPoolsThatAreAddedLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.install("server", nil)
	w.put(w.root+"/etc/ssh/ssh_host_ed25519_key.pub", "ssh-ed25519 AAAAhost root@server\n", 0o644)
	pools := func(names ...string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.pools = names
	}
	restarts := func() int { return strings.Count(w.read("/commands"), "systemctl restart ortet-admission.service\n") }
	pools()
	w.boot()
	if _, err := os.Stat(w.root + "/run/ortet/admission.env"); err == nil {
		t.Error("the admission server has settings without a pool")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	wait := w.start(ctx, "publish")
	eventually(t, "the tag has the reason", func() bool {
		return strings.HasSuffix(w.tag(recipe.TagBoot), "no scale set has tag "+recipe.TagCluster+"=demo yet")
	})
	pools("agents")
	if out, err := wait(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if restarts() != 1 || w.tag(recipe.TagBoot) != "ready" {
		t.Errorf("with the first pool: %d restarts, tags %v", restarts(), w.tags)
	}
	w.boot("publish")
	if restarts() != 1 {
		t.Errorf("%d restarts, though the list is the same", restarts())
	}
	pools("agents", "more")
	w.boot("publish")
	if got := w.read("/run/ortet/admission.env"); restarts() != 2 || !strings.HasSuffix(got, "/virtualMachineScaleSets/agents --pool="+testGroup+"Microsoft.Compute/virtualMachineScaleSets/more\n") {
		t.Errorf("with a second pool: %d restarts, %s", restarts(), got)
	}
	pools("more")
	w.boot("publish")
	if got := w.read("/run/ortet/admission.env"); restarts() != 3 || strings.Contains(got, "/agents") {
		t.Errorf("without the first pool: %d restarts, %s", restarts(), got)
	}
	pools() // the last one was deleted: nothing to change
	w.boot("publish")
	if restarts() != 3 {
		t.Error("restarted without a pool")
	}
}

// An agent's root may write a file to the share that no disk holds.
func TestHugeFileOnTheShare(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.install("server", func(c *k3s.Cluster) {
		c.Spec.Artifacts.Images = &k3s.Artifact{URL: "file:///srv/images.tar", SHA256: sha256Of("images")}
	})
	w.put(w.root+"/srv/images.tar", "", 0o644)
	if err := os.Truncate(w.root+"/srv/images.tar", 8<<40); err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	wait := w.start(ctx)
	eventually(t, "the reason is published", func() bool {
		return strings.HasSuffix(w.tag(recipe.TagBoot), "larger than half of the disk's free space")
	})
	w.put(w.root+"/srv/images.tar", "images", 0o644)
	if out, err := wait(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// The resource manager's answer names no other host that gets the machine's token.
func TestHoleNextLinkLeaksToken(t *testing.T) {
	var tokens atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			tokens.Add(1)
		}
		_, _ = io.WriteString(out, `{"value": []}`)
	}))
	defer other.Close()
	for _, c := range []struct {
		name string
		set  func(w *world)
	}{
		{"another host", func(w *world) { w.next = other.URL + "/page" }},
		{"the same host as a user", func(w *world) {
			w.next = strings.Replace(w.url, "://", "://user@", 1) + "@" + strings.TrimPrefix(other.URL, "http://") + "/page"
		}},
		{"another scheme", func(w *world) { w.next = strings.Replace(w.url, "http:", "https:", 1) + "/page" }},
		{"a redirect to another host", func(w *world) { w.moved = other.URL + "/page" }},
	} {
		w := newWorld(t)
		w.install("server", nil)
		c.set(w)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		wait := w.start(ctx)
		eventually(t, c.name+" is refused", func() bool {
			state := w.tag(recipe.TagBoot)
			return strings.Contains(state, "nextLink "+strings.Split(w.next, "?")[0]+" is not of "+w.url) || w.moved != "" && strings.Contains(state, "HTTP 307") || tokens.Load() > 0
		})
		w.mu.Lock()
		w.next, w.moved = "", ""
		w.mu.Unlock()
		if out, err := wait(); err != nil {
			t.Fatalf("%s: %v: %s", c.name, err, out)
		}
		if n := tokens.Swap(0); n > 0 {
			t.Fatalf("%s: the token was sent to another host", c.name)
		}
	}
}

// An agent's root may put links on the share: they lead to no file of the server, whose hash
// a tag would show.
func TestHoleLinkOnTheShare(t *testing.T) {
	const secret = "a short secret that its hash gives away"
	for name, link := range map[string]func(w *world) error{
		"of the file": func(w *world) error { return os.Symlink(w.root+"/etc/secret", w.root+"/srv/images/secret") },
		"of a folder": func(w *world) error {
			return errors.Join(os.Remove(w.root+"/srv/images"), os.Symlink(w.root+"/etc", w.root+"/srv/images"))
		},
		"out of /srv": func(w *world) error { return os.Symlink("../../etc/secret", w.root+"/srv/images/secret") },
	} {
		w := newWorld(t)
		w.install("server", func(c *k3s.Cluster) {
			c.Spec.Artifacts.Images = &k3s.Artifact{URL: "file:///srv/images/secret", SHA256: sha256Of("images")}
		})
		w.put(w.root+"/etc/secret", secret, 0o600)
		if err := errors.Join(os.MkdirAll(w.root+"/srv/images", 0o755), link(w)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		wait := w.start(ctx)
		eventually(t, "the reason is published", func() bool { return strings.HasPrefix(w.tag(recipe.TagBoot), "fetching images: ") })
		if state := w.tag(recipe.TagBoot); strings.Contains(state, sha256Of(secret)) || !strings.HasSuffix(state, " is a link; links on the share are not followed") {
			t.Errorf("a link %s: %s", name, state)
		}
		if err := errors.Join(os.RemoveAll(w.root+"/srv/images"), os.MkdirAll(w.root+"/srv/images", 0o755), os.WriteFile(w.root+"/srv/images/secret", []byte("images"), 0o644)); err != nil {
			t.Fatal(err)
		}
		if out, err := wait(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
	}
}
