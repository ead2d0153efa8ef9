//go:build linux

package machine

import (
	"bytes"
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/hack/lab"
)

// elasticLab boots from an image as the elastic cluster's machines have it, in a subnet
// of ARM's choice: neither that of test/elastic nor one that a lab chooses, which may run
// beside it.
func elasticLab(t *testing.T) *Substrate {
	t.Helper()
	base, work := labImage(t), t.TempDir()
	trusted := filepath.Join(work, "ca.pem")
	must(t, os.WriteFile(trusted, []byte("a certificate\n"), 0o600))
	must(t, lab.ElasticOverlay(filepath.Join(work, "overlay"), lab.Elastic{ResourceManager: "https://10.96.0.2", AttestationProxy: "http://10.96.0.2:80", StorageSuffix: "azsim.invalid"}))
	image := filepath.Join(work, "elastic.img")
	must(t, lab.Overlay(t.Context(), "../..", base, filepath.Join(work, "overlay"), image))
	return newLabOf(t, Config{
		Images: map[string]string{"*": image}, Subnet: netip.MustParsePrefix("10.84.7.0/24"),
		Trust: map[string]string{"arm.pem": trusted},
	})
}

// A key pair of OpenSSH's: its file, and the line for authorized_keys.
func keyPair(t *testing.T) (file, public string) {
	t.Helper()
	if _, err := exec.LookPath("ssh"); err != nil {
		t.Skip("NOT RUN: needs OpenSSH's client (Debian: openssh-client)")
	}
	file = filepath.Join(t.TempDir(), "key")
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(file + ".pub")
	must(t, err)
	return file, strings.TrimSpace(string(text))
}

// ssh runs a command by OpenSSH's client at a public address.
func ssh(ctx context.Context, key, public, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ssh", "-F", "none", "-i", key, "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no",
		"-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=5", "azureuser@"+public, command).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func TestElasticMachine(t *testing.T) {
	s, ctx := elasticLab(t), t.Context()
	key, authorized := keyPair(t)
	const public, share = "127.78.0.5", "//labstore1.file.azsim.invalid/data"
	published := netip.MustParseAddr(public)
	must(t, s.SetKeys("labstore1", []string{"b2xk+/==", "bmV3+/=="}))
	must(t, s.PutShare("labstore1", "data"))

	server := instance(1)
	server.Address, server.SSHKeys = netip.MustParsePrefix("10.84.7.10/26"), []string{authorized}
	must(t, s.Publish(published, server.ID, []int{22}))
	boot(ctx, t, s, server, platform)
	if a, _ := s.PrivateAddress(server.ID); a != server.Address {
		t.Errorf("address %s, ARM gave %s", a, server.Address)
	}
	sh := func(c azsim.Computer, script string) string { return command(ctx, t, s, c.ID, "sh", "-c", script) }
	want := func(c azsim.Computer, script, want string) {
		t.Helper()
		if got := sh(c, script); got != want {
			t.Errorf("%s: got %q, want %q", script, got, want)
		}
	}
	want(server, "ip -4 -o addr show dev eth0 | awk '{print $4}'", "10.84.7.10/24")
	want(server, ". /etc/default/ortet-boot; echo $ORTET_RESOURCE_MANAGER $ORTET_STORAGE_SUFFIX; cat $SSL_CERT_FILE", "https://10.96.0.2 azsim.invalid\na certificate")
	want(server, `. /etc/default/ortet-admission; python3 -c 'import json,sys;print(json.load(open(sys.argv[1]))["tokenAudience"])' $AZURE_ENVIRONMENT_FILEPATH`, "https://10.96.0.2/")

	// The share, mounted as on Azure.
	credentials := func(c azsim.Computer, key string) {
		t.Helper()
		if _, err := s.Exec(ctx, c.ID, []byte("username=labstore1\npassword="+key+"\n"), "sh", "-c", "umask 077; cat >/run/share-credentials"); err != nil {
			t.Fatal(err)
		}
	}
	const options = "vers=3.1.1,credentials=/run/share-credentials,serverino,dir_mode=0770,file_mode=0660,uid=1000,gid=1000"
	mount := func(share string) string { return "mount -t cifs " + share + " /srv -o " + options + " 2>&1" }
	const manual = "\nRefer to the mount.cifs(8) manual page (e.g. man mount.cifs) and kernel log messages (dmesg)\n"
	credentials(server, "d3Jvbmc=")
	want(server, mount(share)+"; echo $?", "mount error(13): Permission denied"+manual+"32")
	credentials(server, "bmV3+/==")
	want(server, mount("//labstore1.file.azsim.invalid/none")+"; echo $?", "mount error(2): No such file or directory"+manual+"32")
	want(server, mount(share)+"; echo $?", "0")
	want(server, "umount /srv && ! mountpoint /srv", "/srv is not a mountpoint")
	want(server, mount(share)+"; echo '#!/bin/sh\necho kept' >/srv/run; chmod 755 /srv/run; /srv/run", "kept")

	// Its SSH server, by the public address.
	if out, err := ssh(ctx, key, public, "hostname; tail -1 /srv/run; touch /srv/mine; stat -c %a /srv"); err != nil || out != server.HostName+"\necho kept\n770" {
		t.Errorf("ssh: %v: %s", err, out)
	}
	must(t, s.Publish(published, server.ID, nil))
	if out, err := ssh(ctx, key, public, "true"); err == nil || !strings.Contains(out, "refused") {
		t.Errorf("ssh to a closed port: %v: %s", err, out)
	}
	must(t, s.Publish(published, server.ID, []int{22, 6443}))
	if err := s.Publish(netip.MustParseAddr("10.84.7.2"), server.ID, []int{22}); err == nil {
		t.Error("an address that is not on loopback was published")
	}

	// An agent gets the next address. No two can have one, nor one of another network.
	agent := instance(2)
	agent.Address = netip.MustParsePrefix("10.84.7.70/26")
	boot(ctx, t, s, agent, platform)
	credentials(agent, "b2xk+/==")
	want(agent, mount(share)+"; /srv/run", "kept")
	for address, reason := range map[string]string{"10.84.7.10/26": server.ID, "10.84.7.2/26": "10.84.7.0/24", "10.1.0.4/24": "10.84.7.0/24"} {
		third := instance(3)
		third.Address = netip.MustParsePrefix(address)
		if err := s.Boot(ctx, third); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("boot at %s: %v, want it to name %s", address, err, reason)
		}
	}

	// A restart from within keeps all of it.
	hostKey := sh(server, "cat /etc/ssh/ssh_host_ed25519_key.pub")
	bootID := sh(server, "cat /proc/sys/kernel/random/boot_id")
	_, _ = ssh(ctx, key, public, "sudo systemctl reboot")
	deadline := time.Now().Add(5 * time.Minute)
	for {
		out, err := ssh(ctx, key, public, "cat /proc/sys/kernel/random/boot_id")
		if err == nil && out != bootID {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after the restart: %v: %s", err, out)
		}
		time.Sleep(200 * time.Millisecond)
	}
	want(server, "cat /etc/ssh/ssh_host_ed25519_key.pub", hostKey)
	const greet = "exec 3<>/dev/tcp/10.84.7.10/22; head -c 4 <&3"
	if got := command(ctx, t, s, agent.ID, "timeout", "5", "bash", "-c", greet); got != "SSH-" {
		t.Errorf("the agent reached the server with %q", got)
	}

	// The next server has the address of the first, whose neighbours know it already.
	must(t, s.Remove(ctx, server.ID))
	if out, err := ssh(ctx, key, public, "true"); err == nil || !strings.Contains(out, "refused") {
		t.Errorf("ssh to a removed machine: %v: %s", err, out)
	}
	next := instance(4)
	next.Address, next.SSHKeys = server.Address, []string{authorized}
	must(t, s.Publish(published, next.ID, []int{22}))
	boot(ctx, t, s, next, platform)
	if got := command(ctx, t, s, agent.ID, "timeout", "5", "bash", "-c", greet); got != "SSH-" {
		t.Errorf("the agent reached the next server with %q", got)
	}
	if out, err := ssh(ctx, key, public, "hostname; cat /etc/ssh/ssh_host_ed25519_key.pub"); err != nil || !strings.HasPrefix(out, next.HostName+"\n") || strings.Contains(out, hostKey) {
		t.Errorf("ssh to the next server: %v: %s", err, out)
	}
	credentials(next, "bmV3+/==")
	want(next, mount(share)+"; /srv/run", "kept")

	must(t, s.DeleteAccount("labstore1"))
	if text, err := os.ReadFile(filepath.Join(s.dir, "shares", "labstore1", "keys.sha256")); err == nil || bytes.Contains(text, []byte("bmV3")) {
		t.Errorf("the account is still there: %s", text)
	}
}
