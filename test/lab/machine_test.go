//go:build e2e && linux

package lab

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// machines are azsim's, which run in another process: what is done in them is
// done as an operator of the host would, by runc.
type machines struct {
	dir string // azsim's folder of machines

	mu         sync.Mutex
	containers map[string]string // by host name
}

func (m *machines) runc(ctx context.Context, stdin []byte, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "runc", append([]string{"--root", filepath.Join(m.dir, "runc")}, args...)...)
	cmd.Stdin = bytes.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("runc %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// container finds the machine of that host name, in any letter case: a Node's name is in
// lower case, and members of Flexible sets have upper case in theirs. The host name is asked
// of the machine: azsim does not say which container is whose.
func (m *machines) container(ctx context.Context, host string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	host = strings.ToLower(host)
	if id := m.containers[host]; id != "" {
		return id, nil
	}
	list, err := m.runc(ctx, nil, "list", "--quiet")
	if err != nil {
		return "", err
	}
	m.containers = map[string]string{}
	for _, id := range strings.Fields(list) {
		name, err := m.runc(ctx, nil, "exec", id, "hostname")
		if err != nil {
			return "", err
		}
		m.containers[strings.ToLower(strings.TrimSpace(name))] = id
	}
	if id := m.containers[host]; id != "" {
		return id, nil
	}
	return "", fmt.Errorf("no machine has the host name %s; there are %v", host, m.containers)
}

// sh runs a script in a machine as root and gives its standard output.
func (m *machines) sh(ctx context.Context, t *testing.T, host, script string) string {
	t.Helper()
	return m.feed(ctx, t, host, nil, script)
}

// feed is sh with standard input.
func (m *machines) feed(ctx context.Context, t *testing.T, host string, stdin []byte, script string) string {
	t.Helper()
	id, err := m.container(ctx, host)
	if err != nil {
		t.Fatal(err)
	}
	out, err := m.runc(ctx, stdin, "exec", id, "sh", "-c", script)
	if err != nil {
		t.Fatalf("on %s: %v", host, err)
	}
	return strings.TrimSpace(out)
}

// feedOut is sh whose standard output is bytes.
func (m *machines) feedOut(ctx context.Context, t *testing.T, host, script string) []byte {
	t.Helper()
	id, err := m.container(ctx, host)
	if err != nil {
		t.Fatal(err)
	}
	out, err := m.runc(ctx, nil, "exec", id, "sh", "-c", script)
	if err != nil {
		t.Fatalf("on %s: %v", host, err)
	}
	return []byte(out)
}

// identity is what tells one machine from another: a name of each mark, and what
// the machine has there.
func (m *machines) identity(ctx context.Context, t *testing.T, host string) map[string]string {
	t.Helper()
	out := m.sh(ctx, t, host, `
		mark() { printf '%s\t%s\n' "$1" "$2"; }
		digest() { sha256sum <"$1" | cut -d ' ' -f 1; }
		pki=/var/lib/kubelet/pki
		mark machine-id "$(cat /etc/machine-id)"
		mark "D-Bus machine-id" "$(cat /var/lib/dbus/machine-id)"
		mark "host name" "$(hostname)"
		mark /etc/hostname "$(cat /etc/hostname)"
		for k in /etc/ssh/ssh_host_*_key /etc/ssh/ssh_host_*_key.pub; do mark "$k" "$(digest "$k")"; done
		mark "kubelet's client key" "$(openssl pkey -in $pki/kubelet-client-current.pem -pubout -outform DER | sha256sum | cut -d ' ' -f 1)"
		mark "kubelet's client certificate" "$(digest $pki/kubelet-client-current.pem)"
		mark "kubelet's name" "$(openssl x509 -in $pki/kubelet-client-current.pem -noout -subject)"
		mark "kubelet's serving certificate" "$(digest $pki/kubelet.crt)"
		mark "kubelet's serving key" "$(digest $pki/kubelet.key)"
		mark "cloud-init's instance" "$(cat /var/lib/cloud/data/instance-id)"
		mark "address" "$(ip -4 -oneline address show dev eth0 scope global | awk '{print $4; exit}')"`)
	marks := map[string]string{}
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if value == "" {
			t.Errorf("%s has no %s", host, name)
		}
		marks[name] = value
	}
	return marks
}

// failedUnits lists the units that failed, once the boot has settled.
func (m *machines) failedUnits(ctx context.Context, t *testing.T, host string) []string {
	t.Helper()
	out := m.sh(ctx, t, host, `timeout 60 systemctl is-system-running --wait >/dev/null; systemctl list-units --failed --plain --no-legend | awk '{print $1}'`)
	return strings.Fields(out)
}

// tree returns a line for each file that running does not change: its path,
// owner, mode, size, time and, of regular ones, the digest.
func (m *machines) tree(ctx context.Context, t *testing.T, host string) []string {
	t.Helper()
	out := m.sh(ctx, t, host, `set -e
		cd /
		{
			find etc usr boot root home opt srv var/lib/dpkg var/spool/cron -xdev -printf 'meta %p %U:%G %m %s %T@ %l\n'
			find etc usr boot root home opt srv var/lib/dpkg var/spool/cron -xdev -type f -print0 | xargs -0 sha256sum
			# What came once, at the first boot: credentials, the custom data,
			# cloud-init's marks that it ran. It writes the others at every boot.
			once="! -name obj.pkl ! -name boot-finished ! -name *.txt.i ! -path */sem/*.always"
			set -f
			find var/lib/kubelet/pki var/lib/cloud/instances var/lib/dbus var/lib/waagent -xdev \( -type f -o -type l \) \
				$once -printf 'meta %p %U:%G %m %s %l\n'
			find var/lib/kubelet/pki var/lib/cloud/instances var/lib/dbus var/lib/waagent -xdev -type f \
				$once -print0 | xargs -0 sha256sum
		} | sort`)
	return strings.Split(out, "\n")
}

// onlyIn returns the lines that are in a but not in b, both sorted.
func onlyIn(a, b []string) []string {
	var out []string
	for _, line := range a {
		if _, found := slices.BinarySearch(b, line); !found {
			out = append(out, line)
		}
	}
	return out
}
