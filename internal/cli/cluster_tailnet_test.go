package cli

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/internal/workflow"
)

// sshServer answers at an address of this computer, by a host key of its own.
func sshServer(t *testing.T) (port int, hostKey string) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	config := &ssh.ServerConfig{NoClientAuth: true}
	config.AddHostKey(signer)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _, _, _ = ssh.NewServerConn(c, config) // the client ends it
				_ = c.Close()
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))
}

// tailnetLaptop is a laptop of a cluster in a tailnet, whose server is there at 127.0.0.1.
func tailnetLaptop(t *testing.T, port int, hostKey string, tags map[string]string) *laptop {
	t.Helper()
	l := newLaptop(t)
	l.env = fakeAzure(t, func(path string) (int, any) {
		switch {
		case strings.HasSuffix(path, "/virtualMachines/server"):
			all := map[string]string{"ortet.io_ssh-host-key": hostKey, "ortet.io_tailnet": "Running", "ortet.io_tailnet-address": "127.0.0.1"}
			for name, value := range tags {
				all[name] = value
			}
			return 200, map[string]any{"tags": all}
		case strings.HasSuffix(path, "/demo-compute"):
			return 200, map[string]any{"tags": map[string]string{"ortet.io_cluster": "demo"}, "properties": map[string]string{"provisioningState": "Succeeded"}}
		case strings.HasSuffix(path, "/publicIPAddresses/server"):
			return 200, map[string]any{"properties": map[string]any{"ipAddress": "203.0.113.7", "dnsSettings": map[string]string{"fqdn": "demo.westeurope.example"}}}
		}
		return 404, nil
	})
	file := filepath.Join(l.dir, "cluster.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := yaml.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	spec := all["spec"].(map[string]any)
	spec["access"].(map[string]any)["sshPort"] = port
	spec["access"].(map[string]any)["tailscale"] = map[string]any{"hostname": "demo"}
	artifacts := spec["artifacts"].(map[string]any)
	artifacts["tailscale"] = artifacts["k3s"]
	if text, err = yaml.Marshal(all); err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err == nil { // what ssh was called with, and what it got
		err = os.WriteFile(filepath.Join(l.dir, "ssh"), []byte("#!/bin/sh\necho \"$*\" >"+l.dir+"/arguments\ncase \"$*\" in *login*) cat >"+l.dir+"/stdin; cat "+l.dir+"/answer >&2; [ ! -s "+l.dir+"/answer ] ;; *) exec cat "+l.dir+"/answer ;; esac\n"), 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The host key decides whether the tailnet's address is taken; the other one is named.
func TestServerIsReachedByTheTailnetOrElseByItsPublicAddress(t *testing.T) {
	port, hostKey := sshServer(t)
	_, another := sshServer(t)
	for name, c := range map[string]struct {
		port    int
		hostKey string
		tags    map[string]string
		address string
		says    string
	}{
		"tailnet":         {port, hostKey, nil, "127.0.0.1", "Server by tailnet 127.0.0.1"},
		"another machine": {port, another, nil, "203.0.113.7", "Server does not answer by tailnet 127.0.0.1: ssh: handshake failed: the host key is not the one that the server published"},
		"not reached":     {1, hostKey, nil, "203.0.113.7", "Server does not answer by tailnet 127.0.0.1: dial tcp"},
		"logged out":      {port, hostKey, map[string]string{"ortet.io_tailnet": "NeedsLogin"}, "203.0.113.7", "Server by public address 203.0.113.7"},
		"no address":      {port, hostKey, map[string]string{"ortet.io_tailnet-address": "-oProxyCommand=x"}, "203.0.113.7", "Server by public address 203.0.113.7"},
	} {
		t.Run(name, func(t *testing.T) {
			l := tailnetLaptop(t, c.port, c.hostKey, c.tags)
			code, _, said := l.run(t, k3sYAML(t, nil), "kubeconfig")
			mine, err := clientcmd.LoadFromFile(l.kubeconfig)
			if code != 0 || err != nil {
				t.Fatalf("code %d, %v: %s", code, err, said)
			}
			if got := mine.Clusters["demo"]; got.Server != "https://"+c.address+":6443" || got.TLSServerName != "demo" || !strings.Contains(said, c.says) {
				t.Errorf("server %s, name %s, want %s; said: %s", got.Server, got.TLSServerName, c.address, said)
			}
			arguments, err := os.ReadFile(filepath.Join(l.dir, "arguments"))
			if err != nil || !strings.Contains(string(arguments), "@"+c.address+" ") {
				t.Errorf("ssh was called with %s, %v", arguments, err)
			}
			// Later by the other address: it is the same cluster.
			if code, _, said := again(t, l); code != 0 {
				t.Errorf("kubeconfig again: code %d: %s", code, said)
			}
		})
	}
}

// A name that another machine of the tailnet has is said to be taken.
func TestStatusNamesATakenName(t *testing.T) {
	port, hostKey := sshServer(t)
	for name, taken := range map[string]bool{"demo.tail1.example": false, "demo-1.tail1.example": true} {
		l := tailnetLaptop(t, port, hostKey, map[string]string{"ortet.io_tailnet-name": name})
		code, out, said := l.run(t, "", "status")
		if got := strings.Contains(strings.Join(strings.Fields(out), " "), "another machine of the tailnet has the name demo"); code != 0 || got != taken {
			t.Errorf("status of a server with the name %s: code %d: %s%s", name, code, out, said)
		}
	}
}

// again gets the kubeconfig after its entry had another name and address of the server.
func again(t *testing.T, l *laptop) (code int, out, said string) {
	t.Helper()
	mine, err := clientcmd.LoadFromFile(l.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	mine.Clusters["demo"].TLSServerName, mine.Clusters["demo"].Server = "demo.westeurope.example", "https://198.51.100.1:6443"
	authority := mine.Clusters["demo"].CertificateAuthorityData
	if err := clientcmd.WriteToFile(*mine, l.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return l.run(t, k3sYAML(t, func(c, _, _ map[string]any) {
		c["certificate-authority-data"] = base64.StdEncoding.EncodeToString(authority)
	}), "kubeconfig")
}

// The key of a login reaches the server on ssh's stdin alone, and what the server says of it is shown.
func TestKeyOfATailnetIsInNoArgument(t *testing.T) {
	port, hostKey := sshServer(t)
	l := tailnetLaptop(t, port, hostKey, nil)
	key := filepath.Join(l.dir, "key")
	if err := os.WriteFile(key, []byte("tskey-auth-1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &clusterOptions{options: &options{output: "table", log: slog.New(slog.DiscardHandler), waits: newWaitLog(time.Minute, func(string) {}), process: Process{Err: &strings.Builder{}, Getenv: func(name string) string { return l.env[name] }}}, file: filepath.Join(l.dir, "cluster.yaml")}
	t.Setenv("PATH", l.dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	secret, err := readTailscaleKey(key, nil)
	if err == nil {
		err = os.WriteFile(filepath.Join(l.dir, "answer"), nil, 0o600)
	}
	if err == nil {
		err = c.logIn(t.Context(), secret)
	}
	stdin, _ := os.ReadFile(filepath.Join(l.dir, "stdin"))
	arguments, _ := os.ReadFile(filepath.Join(l.dir, "arguments"))
	if err != nil || string(stdin) != "tskey-auth-1\n" || strings.Contains(string(arguments), "tskey") || !strings.Contains(string(arguments), "boot.py login") {
		t.Errorf("%v; ssh had stdin %q and arguments %s", err, stdin, arguments)
	}
	if err := os.WriteFile(filepath.Join(l.dir, "answer"), []byte("backend error: invalid key: tskey-auth-1\x1b[2J"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.logIn(t.Context(), secret); err == nil || !strings.Contains(err.Error(), "backend error: invalid key: (key)") || strings.ContainsAny(err.Error(), "\x1b") {
		t.Errorf("a key that is refused: %v", err)
	}
}

func TestKeyOfATailnetIsRefused(t *testing.T) {
	l := newLaptop(t)
	for _, text := range []string{"", "two words", "line\nline\n"} {
		key := filepath.Join(l.dir, "key")
		if err := os.WriteFile(key, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, _, said := l.run(t, "", "up", "--tailscale-key", key); code != ExitUsage || !strings.Contains(said, "want one key") {
			t.Errorf("key %q: code %d: %s", text, code, said)
		}
	}
	key := filepath.Join(l.dir, "key")
	if err := os.WriteFile(key, []byte("tskey"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"up --tailscale-key " + key:                {workflow.ExitRefused, "spec.access.tailscale is not set"},
		"up --no-wait --tailscale-key " + key:      {ExitUsage, "the server takes the key when it is ready"},
		"up --tailscale-key " + key + "-not-there": {workflow.ExitFailed, "name its file with --tailscale-key"},
	} {
		if err := os.WriteFile(filepath.Join(l.dir, "demo.pub"), []byte("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPj3ovIt1MnNtgPmsu2Aj1CqPYbS7ZCMPHUFw7h6qXEb"), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, _, said := l.run(t, "", strings.Fields(args)...); code != want.code || !strings.Contains(strings.Join(strings.Fields(said), " "), want.says) {
			t.Errorf("ortet cluster %s: code %d, want %d: %s", args, code, want.code, said)
		}
	}
}
