//go:build e2e && linux

package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/azsim/machine"
	rootfs "github.com/ortet/ortet/hack/lab"
	"github.com/ortet/ortet/test/controlplane"
)

const imageK3s = "k3s"

// k3sUnit is what k3s's installer writes for a server or an agent.
// Source: get.k3s.io, create_systemd_service_file.
const k3sUnit = `[Unit]
Wants=network-online.target
After=network-online.target
[Service]
Type=notify
KillMode=process
Delegate=yes
LimitNOFILE=infinity
TasksMax=infinity
TimeoutStartSec=0
Restart=always
RestartSec=5s
ExecStart=/usr/local/bin/k3s %s
[Install]
WantedBy=multi-user.target
`

// Pods and services lie where no machine's network does.
const k3sServerConfig = `cluster-cidr: 10.200.0.0/16
service-cidr: 10.201.0.0/16
disable: [traefik, servicelb]
pause-image: ` + rootfs.PauseImage + `
node-label: [ortet.io/test=server]
`

const k3sManifest = `apiVersion: v1
kind: Namespace
metadata: {name: fromfile}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: one, namespace: fromfile}
data: {value: %q}
`

// k3sWeb has a pod on each of two nodes and a Service for each: a pod asks for what
// is on the other node.
const k3sWeb = `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: ` + rootfs.WebImage + `, imagePullPolicy: Never, ports: [{containerPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
`

// TestK3sOnRealMachines boots two machines, of which one is k3s's server and the
// other an agent that joins with a bootstrap token: the lab's k3s, as far as Ortet
// and its users meet it.
func TestK3sOnRealMachines(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	line := newTimeline(t)
	line.begin("disk image")
	k := newK3sSite(ctx, t)
	server, agent := computer("k3sserver", 1, ""), computer("k3sagent", 2, "")

	line.begin("server")
	k.bootK3s(ctx, t, server, agent)
	k.put(ctx, t, server, "/etc/rancher/k3s/config.yaml", k3sServerConfig)
	k.put(ctx, t, server, "/var/lib/rancher/k3s/server/manifests/one.yaml", fmt.Sprintf(k3sManifest, "first"))
	k.start(ctx, t, server, "k3s")
	k.awaitReady(ctx, t, "k3sserver")
	k.await(ctx, t, "the manifest", "get configmap -n fromfile one -o jsonpath={.data.value}", "first")
	k.put(ctx, t, server, "/var/lib/rancher/k3s/server/manifests/one.yaml", fmt.Sprintf(k3sManifest, "second"))
	k.await(ctx, t, "the changed manifest", "get configmap -n fromfile one -o jsonpath={.data.value}", "second")
	k.await(ctx, t, "the server's labels", "get node k3sserver -o jsonpath={.metadata.labels.ortet\\.io/test}{.metadata.labels.node-role\\.kubernetes\\.io/control-plane}", "servertrue")

	line.begin("agent")
	token := k.bootstrapToken(ctx, t)
	k.put(ctx, t, agent, "/run/token", token)
	k.put(ctx, t, agent, "/etc/rancher/k3s/config.yaml", "pause-image: "+rootfs.PauseImage+"\nkubelet-arg: [v=2]\n")
	k.put(ctx, t, agent, "/etc/rancher/k3s/config.yaml.d/50-ortet.yaml", fmt.Sprintf(`server: https://%s:6443
token-file: /run/token
node-name: k3sagent
kubelet-arg+: ["provider-id=azure:///lab/k3sagent"]
node-label+: ["ortet.io/test=agent"]
`, k.address(t, server)))
	_, secret, _ := strings.Cut(token, "::")
	wrong := "K10" + strings.Repeat("0", 64) + "::" + secret
	if out := k.sh(ctx, t, agent, fmt.Sprintf("timeout 3 k3s agent --config /dev/null --data-dir /tmp/k3s --server https://%s:6443 --token %s 2>&1 || true", k.address(t, server), wrong)); !strings.Contains(out, "token CA hash does not match the Cluster CA certificate hash") {
		t.Errorf("with another CA's token: %s", out)
	}
	k.start(ctx, t, agent, "k3s-agent")
	k.awaitReady(ctx, t, "k3sagent")
	k.await(ctx, t, "the agent's provider id and label", "get node k3sagent -o jsonpath={.spec.providerID}{.metadata.labels.ortet\\.io/test}", "azure:///lab/k3sagentagent")

	line.begin("pods")
	k.server.apply(ctx, t, k3sWeb)
	k.await(ctx, t, "a pod on each node", "get daemonset web -o jsonpath={.status.numberReady}", "2")
	k.checkNetwork(ctx, t)
	k.checkLogsAndExec(ctx, t)

	line.begin("the server restarts")
	before := k.sh(ctx, t, server, "cat /var/lib/rancher/k3s/server/node-token /var/lib/rancher/k3s/server/tls/*-ca.crt")
	k.sh(ctx, t, server, "systemctl restart k3s")
	if after := k.sh(ctx, t, server, "cat /var/lib/rancher/k3s/server/node-token /var/lib/rancher/k3s/server/tls/*-ca.crt"); after != before {
		t.Errorf("token or CAs are others after a restart:\n%s\nbefore:\n%s", after, before)
	}
	k.await(ctx, t, "the ConfigMap of before", "get configmap -n fromfile one -o jsonpath={.data.value}", "second")

	line.begin("the agent restarts after its token's end")
	k.server.kubectl(ctx, t, `patch secret -n kube-system bootstrap-token-abcde1 -p '{"stringData":{"expiration":"2000-01-01T00:00:00Z"}}'`)
	k.await(ctx, t, "the token's end", "get secret -n kube-system bootstrap-token-abcde1 --ignore-not-found -o name", "")
	began := time.Now()
	k.sh(ctx, t, agent, "systemctl restart k3s-agent")
	poll(ctx, t, "a heartbeat of the agent's", 30*time.Second, func(ctx context.Context) (bool, error) {
		at, err := time.Parse(time.RFC3339, k.server.kubectl(ctx, t, "get lease -n kube-node-lease k3sagent -o jsonpath={.spec.renewTime}"))
		return at.After(began), err
	})

	line.begin("another machine of that name")
	password := k.sh(ctx, t, agent, "cat /etc/rancher/node/password")
	k.put(ctx, t, agent, "/etc/rancher/node/password", "another")
	k.sh(ctx, t, agent, "systemctl restart --no-block k3s-agent")
	poll(ctx, t, "the refusal of its password", 30*time.Second, func(ctx context.Context) (bool, error) {
		return strings.Contains(k.sh(ctx, t, agent, "journalctl -u k3s-agent -o cat"), "Node password rejected, duplicate hostname"), nil
	})
	k.put(ctx, t, agent, "/etc/rancher/node/password", password)

	line.begin("the Node is deleted")
	k.server.kubectl(ctx, t, "delete node k3sagent")
	k.await(ctx, t, "its password to be forgotten", "get secret -n kube-system k3sagent.node-password.k3s --ignore-not-found -o name", "")
}

// A k3sSite is machines on which k3s is installed, and nothing else configured.
type k3sSite struct {
	site
	server k3sServer
}

// k3sServer is the machine with kubectl.
type k3sServer struct {
	s *site
	c azsim.Computer
}

func newK3sSite(ctx context.Context, t *testing.T) *k3sSite {
	t.Helper()
	k := &k3sSite{}
	k.checkout, k.dir = clearGround(t, "k3s", "machine")
	folder := filepath.Join(k.dir, "machine")
	t.Cleanup(func() {
		assertNothingLeft(t, folder)
		if !t.Failed() {
			if err := os.RemoveAll(k.dir); err != nil {
				t.Error(err)
			}
		}
	})
	binary, err := controlplane.Binary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	disk, err := rootfs.BaseImage(ctx, k.checkout, binary, testWriter{t})
	if err != nil {
		t.Fatal(err)
	}
	if other := os.Getenv("ORTET_LAB_K3S"); other != "" { // another build, while k3s is worked on
		binary = other
	}
	baked := bakeK3s(ctx, t, &lab{checkout: k.checkout, dir: k.dir}, binary, disk, nil)
	k.machines, err = machine.New(machine.Config{
		Dir: folder, Images: map[string]string{imageK3s: baked},
		Log: slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.machines.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

// bakeK3s makes an image on which k3s is installed as its installer does it, with the lab's
// container images and others of those files.
func bakeK3s(ctx context.Context, t *testing.T, l *lab, binary, disk string, others map[string]string) string {
	t.Helper()
	images := filepath.Join(l.dir, "images")
	l.run(ctx, t, "go", "run", "./hack/lab/images", "--out", images)
	tree, baked := filepath.Join(l.dir, "tree"), filepath.Join(l.dir, "k3s.raw")
	files := map[string]string{
		"usr/local/bin/k3s": binary,
		"var/lib/rancher/k3s/agent/images/lab-pause.tar": filepath.Join(images, "pause.tar"),
		"var/lib/rancher/k3s/agent/images/lab-web.tar":   filepath.Join(images, "web.tar"),
	}
	maps.Copy(files, others)
	plant(t, tree, files, nil)
	for name, command := range map[string]string{"k3s": "server", "k3s-agent": "agent"} {
		file := filepath.Join(tree, "etc", "systemd", "system", name+".service")
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, fmt.Appendf(nil, k3sUnit, command), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := rootfs.Overlay(ctx, l.checkout, disk, tree, baked); err != nil {
		t.Fatal(err)
	}
	return baked
}

// bootK3s boots machines; the first is where kubectl is asked.
func (k *k3sSite) bootK3s(ctx context.Context, t *testing.T, computers ...azsim.Computer) {
	t.Helper()
	k.server = k3sServer{&k.site, computers[0]}
	for _, c := range computers {
		if err := k.machines.CreateVolume(ctx, c.OSDisk, azsim.Source{Platform: imageK3s}); err != nil {
			t.Fatal(err)
		}
		if err := k.machines.Boot(ctx, c); err != nil {
			t.Fatalf("boot %s: %v", c.HostName, err)
		}
		t.Cleanup(func() {
			if !t.Failed() {
				return
			}
			out, err := k.machines.Exec(context.WithoutCancel(ctx), c.ID, nil, "sh", "-c", "journalctl -b --no-pager -o short-precise -u k3s -u k3s-agent | grep -v 'Running\\|Flag --' | tail -80; tail -5 /var/lib/rancher/k3s/agent/containerd/containerd.log")
			t.Logf("on %s: %v\n%s", c.HostName, err, out)
		})
	}
	for _, c := range computers {
		poll(ctx, t, "a disk to write to", time.Minute, func(ctx context.Context) (bool, error) {
			_, err := k.machines.Exec(ctx, c.ID, nil, "test", "-w", "/etc")
			return err == nil, nil
		})
	}
}

func (k *k3sSite) address(t *testing.T, c azsim.Computer) string {
	t.Helper()
	address, err := k.machines.Address(c.ID)
	if err != nil {
		t.Fatal(err)
	}
	return address.String()
}

func (k *k3sSite) put(ctx context.Context, t *testing.T, c azsim.Computer, path, content string) {
	t.Helper()
	if _, err := k.machines.Exec(ctx, c.ID, []byte(content), "sh", "-c", "mkdir -p \"$(dirname "+path+")\" && cat >"+path); err != nil {
		t.Fatal(err)
	}
}

// start starts a unit and waits until it says that it has.
func (k *k3sSite) start(ctx context.Context, t *testing.T, c azsim.Computer, unit string) {
	t.Helper()
	limited, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	k.sh(limited, t, c, "systemctl start "+unit)
}

func (s k3sServer) kubectl(ctx context.Context, t *testing.T, args string) string {
	t.Helper()
	return s.s.sh(ctx, t, s.c, "k3s kubectl "+args)
}

func (s k3sServer) apply(ctx context.Context, t *testing.T, text string) {
	t.Helper()
	if _, err := s.s.machines.Exec(ctx, s.c.ID, []byte(text), "k3s", "kubectl", "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// await asks kubectl until it prints what is wanted.
func (k *k3sSite) await(ctx context.Context, t *testing.T, what, args, want string) {
	t.Helper()
	var got string
	defer func() {
		if t.Failed() {
			t.Logf("kubectl %s printed %q, want %q", args, got, want)
		}
	}()
	poll(ctx, t, what, time.Minute, func(ctx context.Context) (bool, error) {
		out, err := k.machines.Exec(ctx, k.server.c.ID, nil, append([]string{"k3s", "kubectl"}, strings.Fields(args)...)...)
		if got = string(out); err != nil {
			got += err.Error()
		}
		return err == nil && got == want, nil
	})
}

func (k *k3sSite) awaitReady(ctx context.Context, t *testing.T, node string) {
	t.Helper()
	k.await(ctx, t, node+" to be Ready", "get node "+node+` -o jsonpath={.status.conditions[?(@.type=="Ready")].status}`, "True")
}

// bootstrapToken makes one and returns it as k3s takes it.
func (k *k3sSite) bootstrapToken(ctx context.Context, t *testing.T) string {
	t.Helper()
	id, secret := "abcde1", "0123456789abcdef"
	k.server.apply(ctx, t, fmt.Sprintf(`apiVersion: v1
kind: Secret
type: bootstrap.kubernetes.io/token
metadata: {name: bootstrap-token-%[1]s, namespace: kube-system}
stringData:
  token-id: %[1]s
  token-secret: %[2]q
  expiration: %[3]q
  usage-bootstrap-authentication: "true"
`, id, secret, time.Now().Add(time.Hour).UTC().Format(time.RFC3339)))
	hash, _, ok := strings.Cut(k.sh(ctx, t, k.server.c, "cat /var/lib/rancher/k3s/server/node-token"), "::")
	if !ok {
		t.Fatal("node-token is no full token")
	}
	return hash + "::" + id + "." + secret
}

// checkNetwork has each pod's node ask the Service until both pods have answered,
// and a pod's network reach both.
func (k *k3sSite) checkNetwork(ctx context.Context, t *testing.T) {
	t.Helper()
	service := k.server.kubectl(ctx, t, "get service web -o jsonpath={.spec.clusterIP}")
	pods := strings.Fields(k.server.kubectl(ctx, t, "get pods -l app=web -o jsonpath='{.items[*].metadata.name}'"))
	// The web image has nothing but its server: what a pod would do is done in its
	// network namespace.
	ask := "curl --silent --show-error --max-time 5 http://" + service
	for _, from := range []string{ask, "nsenter --net=/proc/$(pgrep -x web | head -1)/ns/net " + ask} {
		poll(ctx, t, from+" to be answered by "+strings.Join(pods, " and "), 30*time.Second, func(ctx context.Context) (bool, error) {
			seen := k.sh(ctx, t, k.server.c, "for i in $(seq 12); do "+from+" || true; done")
			return strings.Contains(seen, pods[0]) && strings.Contains(seen, pods[1]), nil
		})
	}
}

func (k *k3sSite) checkLogsAndExec(ctx context.Context, t *testing.T) {
	t.Helper()
	pod := k.server.kubectl(ctx, t, "get pods -l app=web --field-selector spec.nodeName=k3sagent -o jsonpath='{.items[0].metadata.name}'")
	k.server.kubectl(ctx, t, "logs "+pod)
	// The image has one program; a second one of it finds its port taken.
	if out, err := k.machines.Exec(ctx, k.server.c.ID, nil, "k3s", "kubectl", "exec", pod, "--", "/web"); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("kubectl exec in %s: %v: %s", pod, err, out)
	}
}
