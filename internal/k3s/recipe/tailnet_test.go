package recipe_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

// tailscale is Tailscale's program here: its state is a file, and up wants the key "tskey-good".
const tailscale = `#!/bin/sh
shift # --socket
echo "tailscale $*" >>"$ORTET_ROOT/commands"
case "$1" in
status) cat "$ORTET_ROOT/tailnet"; [ ! -e "$ORTET_ROOT/tailnet.next" ] || mv "$ORTET_ROOT/tailnet.next" "$ORTET_ROOT/tailnet" ;;
up) key=$(cat /dev/stdin)
  [ "$key" = tskey-good ] || { echo "backend error: invalid key: $key is unknown" >&2; exit 1; }
  echo '{"BackendState": "Running", "Self": {"HostName": "Former", "DNSName": "demo.tail1.ts.net.", "TailscaleIPs": ["fd7a::7", "100.64.0.7"], "KeyExpiry": "2027-05-28T09:00:00Z"}}' >"$ORTET_ROOT/tailnet" ;;
esac
`

// archiveOf is Tailscale's archive with these programs.
func archiveOf(t *testing.T, programs map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, content := range programs {
		if err := w.WriteHeader(&tar.Header{Name: "tailscale_1.102.5_amd64/" + name, Mode: 0o755, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// inTailnet has the settings name an archive with these programs.
func (w *world) inTailnet(programs map[string]string) func(*k3s.Cluster) {
	w.files["/tailscale.tgz"] = archiveOf(w.t, programs)
	return func(c *k3s.Cluster) {
		c.Spec.Artifacts.Tailscale = &k3s.Artifact{URL: w.url + "/tailscale.tgz", SHA256: sha256Of(w.files["/tailscale.tgz"])}
		c.Spec.Access.Tailscale = &k3s.Tailscale{Hostname: "demo", Tags: []string{"tag:k3s", "tag:eu"}, LoginServer: "https://headscale.example"}
	}
}

// login is what ortet cluster up --tailscale-key has the server do.
func (w *world) login(key string) (string, error) {
	w.t.Helper()
	c := exec.CommandContext(w.t.Context(), "python3", w.root+"/usr/local/lib/ortet/boot.py", "login")
	c.Env = []string{"ORTET_ROOT=" + w.root, "ORTET_PAUSE=0.02", "ORTET_IMDS=" + w.url, "ORTET_RESOURCE_MANAGER=" + w.url,
		"PATH=" + w.programs + ":" + os.Getenv("PATH"), "PYTHONDONTWRITEBYTECODE=1"}
	c.Stdin = strings.NewReader(key)
	out, err := c.CombinedOutput()
	return string(out), err
}

// wantTailnet compares the tags that the server publishes of itself in the tailnet.
func (w *world) wantTailnet(state, name, address, expiry string) {
	w.t.Helper()
	got := []string{w.tag(recipe.TagTailnet), w.tag(recipe.TagTailnetName), w.tag(recipe.TagTailnetAddress), w.tag(recipe.TagTailnetExpiry)}
	if !strings.HasPrefix(got[0], state) || state == "" && got[0] != "" || got[1] != name || got[2] != address || got[3] != expiry {
		w.t.Errorf("tags of the tailnet are %q, want %q", got, []string{state, name, address, expiry})
	}
}

// newTailnetWorld is a server that is ready, with a tailscaled that nobody logged in.
func newTailnetWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.put(w.root+"/tailnet", `{"BackendState": "NeedsLogin", "Self": {"DNSName": "", "TailscaleIPs": null}}`, 0o644)
	w.install("server", w.inTailnet(map[string]string{"tailscale": tailscale, "tailscaled": "d"}))
	w.put(w.root+"/etc/ssh/ssh_host_ed25519_key.pub", "ssh-ed25519 AAAAhost root@server\n", 0o644)
	w.boot()
	w.boot("publish")
	if got := w.tag(recipe.TagBoot); got != recipe.BootReady {
		t.Fatalf("boot tag is %q", got)
	}
	return w
}

// The key of a login is in no file, argument or tag, and is used once.
func TestServerLogsInToATailnet(t *testing.T) {
	t.Parallel()
	w := newTailnetWorld(t)
	w.wantTailnet("NeedsLogin", "", "", "")
	if got := w.read("/etc/rancher/k3s/config.yaml"); !strings.Contains(got, `tls-san: ["10.16.0.10", "192.0.2.4", "demo.westeurope.example", "demo"]`) {
		t.Errorf("k3s's certificate lacks the name in the tailnet:\n%s", got)
	}
	if got := w.read("/commands"); !strings.Contains(got, "systemctl restart --no-block ortet-tailscaled.service\n") {
		t.Errorf("tailscaled is not started:\n%s", got)
	}
	rules := w.read("/usr/local/lib/ortet/tailscale/rules.nft")
	if before, _, started := strings.Cut(w.read("/commands"), "systemctl restart --no-block ortet-tailscaled.service\n"); !started ||
		!strings.Contains(before, "groupadd --force --system ortet-tailscale\nnft -f "+w.root) || !strings.Contains(rules, ` skgid "ortet-tailscale" ip daddr 127.0.0.1 tcp dport != { 22, 6443 } `) {
		t.Errorf("tailscaled is not kept from the ports of 127.0.0.1 before it starts:\n%s\n%s", before, rules)
	}
	if out, err := w.login("tskey-bad\n"); err == nil || !strings.Contains(out, "invalid key: (key) is unknown") || strings.Contains(out, "tskey") {
		t.Errorf("a key that is refused is to be shown in the server's words: %v: %s", err, out)
	}
	w.wantTailnet("NeedsLogin", "", "", "")
	if out, err := w.login("tskey-good\n"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.wantTailnet("Running", "demo.tail1.ts.net", "100.64.0.7", "2027-05-28T09:00:00Z")
	commands := w.read("/commands")
	for _, want := range []string{"up --auth-key=file:/dev/stdin ", " --hostname=demo --advertise-tags=tag:k3s,tag:eu --login-server=https://headscale.example\n", "tailscale set --hostname=demo\n"} {
		if !strings.Contains(commands, want) {
			t.Errorf("commands lack %q:\n%s", want, commands)
		}
	}
	if out, err := w.login("tskey-used\n"); err != nil {
		t.Errorf("a server that is logged in does not need the key again: %v: %s", err, out)
	}
	logins := strings.Count(w.read("/commands"), " up --auth-key")
	w.put(w.root+"/tailnet", `{"BackendState": "NoState", "Self": {"DNSName": "", "TailscaleIPs": null}}`, 0o644)
	if out, err := w.login("tskey-good\n"); err == nil || !strings.Contains(out, "needs no key") || strings.Count(w.read("/commands"), " up --auth-key") != logins {
		t.Errorf("a login whose coordination server is away is not to be lost: %v: %s", err, out)
	}
	if err := filepath.WalkDir(w.root, func(name string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			content, unread := os.ReadFile(name)
			if rest := bytes.ReplaceAll(content, []byte(tailscale), nil); unread == nil && bytes.Contains(rest, []byte("tskey")) {
				t.Errorf("%s has a key", name)
			}
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// A server that an admin removed from the tailnet takes a key again, but not while the coordination
// server is away: the login may still be good.
func TestServerThatAnAdminRemovedLogsInAgain(t *testing.T) {
	t.Parallel()
	w := newTailnetWorld(t)
	archive := w.inTailnet(map[string]string{"tailscale": tailscale, "tailscaled": "d"})
	w.install("server", func(c *k3s.Cluster) { archive(c); c.Spec.Access.Tailscale.LoginServer = w.url + "/" })
	w.boot("publish")
	if out, err := w.login("tskey-good\n"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const known = `{"BackendState": "Running", "Self": {"HostName": "demo", "DNSName": "demo.tail1.ts.net.", "TailscaleIPs": ["100.64.0.7"], "KeyExpiry": "2027-05-28T09:00:00Z", "Online": true}}`
	w.put(w.root+"/tailnet", strings.Replace(known, "true", "false", 1), 0o644)
	w.boot("publish")
	w.wantTailnet(recipe.TailnetOutOfSync, "demo.tail1.ts.net", "100.64.0.7", "2027-05-28T09:00:00Z")
	logins := func() int { return strings.Count(w.read("/commands"), " up --auth-key") }
	before := logins()
	if out, err := w.login("tskey-good\n"); err == nil || !strings.Contains(out, "its coordination server does not answer: ") || logins() != before {
		t.Errorf("login while the coordination server is away: %v: %s", err, out)
	}
	w.files["/key"] = "{}"
	reconnect := func() {
		w.put(w.root+"/tailnet", strings.Replace(known, "true", "false", 1), 0o644)
		w.put(w.root+"/tailnet.next", known, 0o644)
	}
	reconnect()
	if w.boot("publish"); w.tag(recipe.TagTailnet) != recipe.TailnetRunning {
		t.Errorf("a server that connects again has state %s", w.tag(recipe.TagTailnet))
	}
	reconnect()
	if out, err := w.login("tskey-bad\n"); err != nil || logins() != before {
		t.Errorf("login of a server that connects again: %v: %s", err, out)
	}
	w.put(w.root+"/tailnet", strings.Replace(known, "true", "false", 1), 0o644)
	if out, err := w.login("tskey-good\n"); err != nil || logins() != before+1 {
		t.Errorf("login of a server that an admin removed: %v: %s", err, out)
	}
	w.put(w.root+"/tailnet", known, 0o644)
	w.boot("publish")
	w.wantTailnet(recipe.TailnetRunning, "demo.tail1.ts.net", "100.64.0.7", "2027-05-28T09:00:00Z")
}

// The login stays where the machine is made again, and a backup of another cluster drops it.
func TestLoginIsOfOneCluster(t *testing.T) {
	t.Parallel()
	w := newTailnetWorld(t)
	const kept = "/var/lib/ortet/state/tailscale/tailscaled.state"
	w.put(w.root+kept, "login", 0o600)
	w.boot()
	if got := w.read(kept); got != "login" {
		t.Errorf("state of tailscaled is %q", got)
	}
	w.put(w.root+"/var/lib/ortet/state/tailscale/cluster", "other", 0o600)
	w.forget()
	w.boot()
	if _, err := os.Stat(w.root + kept); !os.IsNotExist(err) {
		t.Errorf("the login of another cluster is there: %v", err)
	}
	if commands := w.read("/commands"); !strings.Contains(commands, "systemctl stop ortet-tailscaled.service\n") {
		t.Errorf("tailscaled is not stopped:\n%s", commands)
	}
}

// Without tailscaled, or with an archive that has none, the server is ready, and says why.
func TestServerIsReadyWithoutTailscaled(t *testing.T) {
	t.Parallel()
	w := newTailnetWorld(t)
	w.put(w.root+"/usr/local/lib/ortet/tailscale/tailscale", "#!/bin/sh\necho 'failed to connect to local tailscaled' >&2; exit 1\n", 0o755)
	w.boot("publish")
	if w.tag(recipe.TagBoot) != recipe.BootReady {
		t.Errorf("boot is at %q", w.tag(recipe.TagBoot))
	}
	w.wantTailnet("tailscaled does not answer: ", "", "", "")
	w.install("server", w.inTailnet(map[string]string{"README": "none"}))
	w.boot("publish")
	w.wantSettings()
	w.wantTailnet("tailscaled is not set up: artifact tailscale has no program tailscale", "", "", "")
	w.install("server", nil)
	w.boot("publish")
	w.wantSettings()
	w.wantTailnet("", "", "", "")
	if _, err := os.Stat(w.root + "/usr/local/lib/ortet/tailscale"); !os.IsNotExist(err) {
		t.Errorf("programs of a server that left the tailnet: %v", err)
	}
}

// A server whose public address was given up starts without it, and k3s does not restart.
func TestServerBootsWithoutItsPublicAddress(t *testing.T) {
	t.Parallel()
	w := newReadyServer(t, nil)
	before := w.read("/etc/rancher/k3s/config.yaml")
	w.mu.Lock()
	w.private = true
	w.mu.Unlock()
	w.boot()
	w.boot("publish")
	if got := w.read("/etc/rancher/k3s/config.yaml"); got != before {
		t.Errorf("k3s's settings changed from\n%s\nto\n%s", before, got)
	}
	w.wantRestarts()
}
