package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/node/generalize/program"
	"github.com/ortet/ortet/internal/wire"
)

// invoke runs the command line and returns its exit code, its report and what
// it said on standard error.
func invoke(t *testing.T, args ...string) (int, *wire.GeneralizeReport, string) {
	t.Helper()
	var out, errOut bytes.Buffer
	code := run(t.Context(), args, stdio{out: &out, err: &errOut})
	var report *wire.GeneralizeReport
	for line := range bytes.Lines(out.Bytes()) {
		if len(args) < 2 {
			break // help
		}
		l, err := wire.ParseGeneralizeLine(line)
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if report != nil {
			t.Errorf("a line after the report: %s", line)
		}
		report = l.Report
	}
	return code, report, errOut.String()
}

func smallTree(t *testing.T, dir string) {
	t.Helper()
	for name, content := range map[string]string{
		"etc/os-release": "PRETTY_NAME=Test\n", "etc/hostname": "donor\n", "etc/machine-id": strings.Repeat("a", 32) + "\n", "etc/ssh/ssh_host_rsa_key": "x",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func flags(more ...string) []string {
	return append([]string{"generalize", "--capture", "c", "--donor", "donor", "--at", "2026-11-21T00:00:00Z"}, more...)
}

func TestGeneralizeByRootAndByLUN(t *testing.T) {
	for _, way := range []string{"root", "lun", "lun by link"} {
		t.Run(way, func(t *testing.T) {
			host := t.TempDir()
			dir := filepath.Join(host, "dev/disk/azure/scsi1/lun2")
			args := flags("--lun", "2", "--host", host, "--wait", "1s")
			switch way {
			case "root":
				args = flags("--root", dir)
			case "lun by link":
				dir = filepath.Join(host, "disks/copy")
				if err := os.MkdirAll(filepath.Join(host, "dev/disk/azure/scsi1"), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink("/disks/copy", filepath.Join(host, "dev/disk/azure/scsi1/lun2")); err != nil {
					t.Fatal(err)
				}
			}
			smallTree(t, dir)
			code, report, said := invoke(t, args...)
			if code != exitOK || report == nil || report.Outcome != wire.Generalized {
				t.Fatalf("exit %d, report %+v, %s", code, report, said)
			}
			if _, err := os.Stat(filepath.Join(dir, "etc/ssh/ssh_host_rsa_key")); !os.IsNotExist(err) {
				t.Errorf("the host key: %v, want it gone", err)
			}
		})
	}
}

func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	smallTree(t, dir)
	secret := filepath.Join(dir, "etc/azure.json")
	if err := os.WriteFile(secret, []byte(`{"aadClientSecret":"x"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		code int
	}{
		{"no command", nil, exitUsage},
		{"unknown command", []string{"generalise"}, exitUsage},
		{"help", []string{"help"}, exitOK},
		{"help of the command", []string{"generalize", "--help"}, exitOK},
		{"no disk", flags(), exitUsage},
		{"two disks", flags("--root", dir, "--lun", "1"), exitUsage},
		{"no donor", []string{"generalize", "--root", dir}, exitUsage},
		{"bad key", flags("--root", dir, "--seal-to", "AAAA"), exitUsage},
		{"bad address", flags("--root", dir, "--donor-address", "x"), exitUsage},
		{"an argument too many", flags("--root", dir, "x"), exitUsage},
		{"no such folder", flags("--root", dir+"/none"), program.ExitDiskRefused},
		{"no such LUN", flags("--lun", "5", "--host", dir, "--wait", "1ms"), program.ExitDiskRefused},
		{"another node", append(flags("--root", dir), "--donor", "other"), program.ExitDiskRefused},
		{"dry run finds the secret", flags("--root", dir, "--dry-run"), program.ExitSecretsFound},
		{"secret", flags("--root", dir), program.ExitSecretsFound},
		{"another secret's path accepted", flags("--root", dir, "--accept-secret", "/etc/", "--scan-images"), program.ExitSecretsFound},
		{"a pool's credential is not removed", flags("--root", dir, "--remove-secrets"), program.ExitSecretsFound},
		{"a path that is none", flags("--root", dir, "--accept-pool-credentials", "--accept-secret", "etc/"), exitUsage},
		{"accepted", flags("--root", dir, "--accept-pool-credentials"), exitOK},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, _, said := invoke(t, c.args...)
			if code != c.code {
				t.Errorf("exit %d, want %d: %s", code, c.code, said)
			}
			if code == exitUsage && !strings.Contains(said, "sage") && !strings.Contains(said, "ortet-node") {
				t.Errorf("wrong usage is not explained: %q", said)
			}
		})
	}
}

// What crosses to the operator's side is the wire's JSON, nothing else.
func TestOutputIsJSONLines(t *testing.T) {
	dir := t.TempDir()
	smallTree(t, dir)
	var out, errOut bytes.Buffer
	run(t.Context(), flags("--root", dir), stdio{out: &out, err: &errOut})
	var manifest []byte
	for line := range bytes.Lines(out.Bytes()) {
		if !json.Valid(line) {
			t.Errorf("not JSON: %s", line)
		}
		if l, err := wire.ParseGeneralizeLine(line); err == nil && l.Manifest != nil {
			manifest = l.Manifest
		}
	}
	if m, err := wire.ReadManifest(manifest); err != nil || m.OS.Name != "Test" {
		t.Errorf("what is in the image: %v, %+v", err, m)
	}
	out.Reset()
	run(t.Context(), flags("--root", dir, "--dry-run"), stdio{out: &out, err: &errOut})
	if bytes.Contains(out.Bytes(), []byte(`"manifest"`)) {
		t.Error("a dry run has a manifest")
	}
}
