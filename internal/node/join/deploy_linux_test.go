package join

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

const (
	deployed = "../../../deploy/systemd"
	asAzure  = "ORTET_TEST_ANSWER"
)

func TestMain(m *testing.M) {
	if os.Getenv(asAzure) != "" {
		answerAsAzure()
		return
	}
	os.Exit(m.Run())
}

// answerAsAzure says hello on the ports of the metadata service and the wire server.
func answerAsAzure() {
	for _, address := range []string{"169.254.169.254:80", "168.63.129.16:80", "168.63.129.16:32526", "168.63.129.16:53"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			os.Exit(1)
		}
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Write([]byte("hello\n"))
				_ = conn.Close()
			}
		}()
	}
	time.Sleep(10 * time.Minute) // whoever started it ends it
}

// The shipped rule, in the kernel.
func TestPodsDoNotReachTheMetadataService(t *testing.T) {
	for _, tool := range []string{"nft", "ip", "unshare", "nsenter", "bash"} {
		if _, err := exec.LookPath(tool); err != nil || os.Getuid() != 0 {
			t.Skip("NOT RUN: the rule that keeps pods from the metadata service needs root and " + tool)
		}
	}
	rules, err := filepath.Abs(deployed)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "testdata/guard.sh", os.Args[0], rules)
	cmd.Env = append(os.Environ(), asAzure+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, line := range []string{
		"without: host 169.254.169.254 80: yes; pod 169.254.169.254 80: yes",
		"without: host 168.63.129.16 80: yes; pod 168.63.129.16 80: yes",
		"with: host 169.254.169.254 80: yes; pod 169.254.169.254 80: no",
		"with: host 168.63.129.16 80: yes; pod 168.63.129.16 80: no",
		"with: host 168.63.129.16 32526: yes; pod 168.63.129.16 32526: no",
		"with: host 168.63.129.16 53: yes; pod 168.63.129.16 53: yes",
		"removed: host 169.254.169.254 80: yes; pod 169.254.169.254 80: yes",
	} {
		if !strings.Contains(string(out), line+"\n") {
			t.Errorf("not found: %s\n%s", line, out)
		}
	}
}

// platform are units as distributions order them: Debian and Ubuntu have cloud-init's
// network stage before sysinit.target, and some have its last one after
// multi-user.target.
func platform() map[string]string {
	const oneshot = "\n[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n"
	wanted := func(by string) string { return oneshot + "[Install]\nWantedBy=" + by + "\n" }
	return map[string]string{
		"cloud-init-local.service": "[Unit]\nDefaultDependencies=no\nWants=network-pre.target\nBefore=network-pre.target sysinit.target\n" + wanted("sysinit.target"),
		"systemd-networkd.service": "[Unit]\nDefaultDependencies=no\nAfter=network-pre.target\nBefore=network.target\n" + wanted("sysinit.target"),
		"cloud-init.service":       "[Unit]\nDefaultDependencies=no\nAfter=cloud-init-local.service systemd-networkd.service\nBefore=network-online.target sysinit.target\n" + wanted("sysinit.target"),
		"cloud-config.service":     "[Unit]\nAfter=network-online.target\nWants=network-online.target\n" + wanted("multi-user.target"),
		"cloud-final.service":      "[Unit]\nAfter=network-online.target cloud-config.service multi-user.target\n" + oneshot,
		"cloud-init.target":        "[Unit]\nAfter=multi-user.target\nWants=cloud-final.service\n",
		"walinuxagent.service":     "[Unit]\nAfter=network-online.target cloud-init.service\nWants=network-online.target\n" + wanted("multi-user.target"),
		"nftables.service":         "[Unit]\nDefaultDependencies=no\nWants=network-pre.target\nBefore=network-pre.target shutdown.target\nConflicts=shutdown.target\n" + wanted("sysinit.target"),
		"containerd.service":       "[Unit]\nAfter=network.target\n" + wanted("multi-user.target"),
		"kubelet.service":          "[Unit]\nWants=network-online.target\nAfter=network-online.target\n[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n",
		"k3s-agent.service":        "[Unit]\nWants=network-online.target\nAfter=network-online.target\n[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n",
		"rke2-agent.service":       "[Unit]\nWants=network-online.target\nAfter=network-online.target\n[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n",
	}
}

var installed = regexp.MustCompile(`(?m)^WantedBy=(.*)$`)

// The units fit together with those of distributions: no ordering goes in a circle.
func TestUnitsFitTogether(t *testing.T) {
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("NOT RUN: there is no systemd-analyze")
	}
	dir := t.TempDir()
	units := platform()
	for _, pattern := range []string{"ortet-*.service", "ortet-*.path", "*.service.d/20-ortet.conf"} {
		found, err := filepath.Glob(filepath.Join(deployed, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %q, %v", pattern, found, err)
		}
		for _, path := range found {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			rel, _ := filepath.Rel(deployed, path)
			// The programs are not here.
			units[rel] = strings.NewReplacer("/usr/local/bin/ortet-node", "/bin/true", "/usr/sbin/nft", "/bin/true", "/usr/bin/kubelet", "/bin/true").Replace(string(text))
		}
	}
	for name, text := range units {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if m := installed.FindStringSubmatch(text); m != nil {
			for by := range strings.FieldsSeq(m[1]) {
				wants := filepath.Join(dir, by+".wants")
				if err := os.MkdirAll(wants, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(path, filepath.Join(wants, name)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	cmd := exec.Command(tool, "verify", "--man=no", "--recursive-errors=yes", "multi-user.target", "cloud-init.target", "poweroff.target", filepath.Join(dir, "ortet-metadata-guard-host.service"))
	cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":/lib/systemd/system:/usr/lib/systemd/system")
	out, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "cycle") || strings.Contains(line, "ortet") || strings.Contains(line, "20-ortet.conf") {
			t.Errorf("%s", line)
		}
	}
	t.Logf("%v\n%s", err, out)
	// What join may wait for, and what may not wait for it.
	text := units["ortet-join.service"]
	for _, never := range []string{"cloud-config", "cloud-final", "walinuxagent", "waagent", "multi-user.target cloud"} {
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "After=") && strings.Contains(line, never) {
				t.Errorf("it waits for %s", never)
			}
		}
	}
	if !strings.Contains(text, "\nDefaultDependencies=no\n") {
		t.Error("multi-user.target waits for it")
	}
}
