//go:build e2e && linux

package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/boots/explain"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/test/azsimserver"
	"github.com/ortet/ortet/test/controlplane"
)

// journalForms are the forms of journalctl that ortet explain reads.
var journalForms = [...]string{"short", "short-iso", "short-monotonic", "with-unit", "json", "export"}

// explainBreaks are machines whose boot is broken in one place.
func explainBreaks() []boot {
	return []boot{
		// What stops a boot with such an fstab, without a reboot. In a container systemd passes over
		// devices, so it names a file, which mount takes for a device.
		{pool: "fstab", want: want{reason: "DeviceMissing"}, pre: []string{
			"echo '/srv/data.img /data ext4 defaults 0 0' >>/etc/fstab",
			"systemctl daemon-reload", "systemctl restart --no-block local-fs.target", "sleep infinity"}},
		{pool: "token", want: want{reason: "BootstrapTokenUnknown"}, token: "abcdef.0123456789abcdef"},
		{pool: "containerd", want: want{reason: "ContainerdConfigInvalid"}, files: map[string]string{"/etc/containerd/config.toml": "version = 2\n[plugins\n"}},
		{pool: "dns", pre: impatient, want: want{reason: "DNSFailed"}, endpoint: "api.mine.example:6443"},
	}
}

// TestExplainOnRealMachines breaks machines' boots, and has ortet explain read the journal of
// each in every form: one verdict.
func TestExplainOnRealMachines(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	line := newTimeline(t)
	l := newLab(ctx, t, line, "explain", silent(bakeAgent(ctx, t)))
	line.begin("kubeadm prepares the cluster")
	binary, err := controlplane.Binary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cluster := l.prepareKubeadm(ctx, t, binary)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	for _, b := range explainBreaks() {
		line.begin("a machine's " + b.pool + " is broken")
		group.Go(func() { // which of some never ends: Azure waits for all that starts on them
			if err := l.azure.Create(ctx, azsimserver.Pool{Name: b.pool, Capacity: 1, CustomData: b.customData(cluster)}); err != nil && ctx.Err() == nil {
				t.Errorf("create the pool %s: %v", b.pool, err)
			}
		})
		t.Run(b.pool, func(t *testing.T) { l.explainBoot(ctx, t, b) })
	}
	line.print()
}

// explainBoot waits until the journal of a machine shows why its boot broke, and compares the
// verdicts on its forms.
func (l *lab) explainBoot(ctx context.Context, t *testing.T, b boot) {
	journal := func(ctx context.Context, form string) (string, error) {
		id, err := l.machines.container(ctx, b.host())
		if err != nil {
			return "", err
		}
		return l.machines.runc(ctx, nil, "exec", id, "journalctl", "-b", "--no-pager", "-o", form)
	}
	var last string
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the journal of %s:\n%s", b.host(), last)
		}
	})
	poll(ctx, t, b.want.reason+" in the journal of "+b.host(), 3*time.Minute, func(ctx context.Context) (bool, error) {
		text, err := journal(ctx, "short")
		if err != nil {
			return false, nil //nolint:nilerr // it has not started
		}
		last = text
		if text == "" {
			return false, nil
		}
		m, _ := l.explained(ctx, t, text)
		return m.Reason == b.want.reason, nil
	})
	for _, form := range journalForms {
		text, err := journal(ctx, form)
		if err != nil {
			t.Fatal(err)
		}
		m, code := l.explained(ctx, t, text)
		if m.Result != explain.Failed || m.Reason != b.want.reason || code != workflow.ExitNeedsPerson {
			t.Errorf("journalctl -b -o %s: %s, %q, exit code %d; want %s, %q, %d: %s", form, m.Result, m.Reason, code, explain.Failed, b.want.reason, workflow.ExitNeedsPerson, m.Message)
		}
		t.Logf("journalctl -b -o %s | ortet explain -: %s, %s", form, m.Reason, m.Message)
	}
}

// explained is the verdict on a journal of one machine, and ortet's exit code.
func (l *lab) explained(ctx context.Context, t *testing.T, journal string) (explain.Machine, int) {
	t.Helper()
	cmd := exec.CommandContext(ctx, filepath.Join(l.bin, "ortet"), "explain", "-", "-o", "json")
	cmd.Stdin = strings.NewReader(journal)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	var r explain.Report
	if err := json.Unmarshal(out, &r); err != nil || len(r.Machines) != 1 {
		t.Fatalf("%d machines (%v): %s%s", len(r.Machines), err, errs.Bytes(), out)
	}
	return r.Machines[0], cmd.ProcessState.ExitCode()
}
