package config_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// unit returns a shipped unit's settings, several of one name joined by a blank.
func unit(t *testing.T, name string) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/systemd/" + name)
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
			set[name] = strings.TrimSpace(set[name] + " " + value)
		}
	}
	return set
}

// The units of the boot are ordered before the agents, and nothing needs them or waits
// for long.
func TestUnitsAreOrderedOnly(t *testing.T) {
	early, boot, run := unit(t, "ortet-config-recover.service"), unit(t, "ortet-config-boot.service"), unit(t, "ortet-config.service")
	for name, u := range map[string]map[string]string{"recover": early, "boot": boot} {
		before := strings.Fields(u["Before"])
		for _, agent := range []string{"kubelet.service", "k3s-agent.service", "rke2-agent.service", "shutdown.target"} {
			if !slices.Contains(before, agent) {
				t.Errorf("%s is not ordered before %s", name, agent)
			}
		}
		if u["DefaultDependencies"] != "no" || u["Type"] != "oneshot" {
			t.Errorf("%s: DefaultDependencies=%s Type=%s", name, u["DefaultDependencies"], u["Type"])
		}
	}
	if early["ConditionPathExists"] != "/var/lib/ortet/config/journal.json" || strings.Contains(early["After"]+early["Wants"], "network") || !strings.Contains(early["Before"], "systemd-sysctl.service containerd.service") {
		t.Errorf("recover: %v", early)
	}
	if boot["TimeoutStartSec"] != "20" || boot["RemainAfterExit"] != "yes" || !strings.Contains(boot["After"], "ortet-join.service") {
		t.Errorf("boot: %v", boot)
	}
	if run["Type"] != "notify" || run["Restart"] != "always" || run["Before"] != "" || !strings.Contains(run["After"], "ortet-config-boot.service") {
		t.Errorf("run: %v", run)
	}
	for _, u := range []map[string]string{early, boot, run} {
		if u["ProtectSystem"]+u["ProtectKernelTunables"] != "" {
			t.Errorf("%s cannot write what a configuration names", u["ExecStart"])
		}
	}
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("NOT RUN with systemd-analyze verify: it is not installed")
	}
	out, err := exec.Command(tool, "verify", "--man=no", "../../../deploy/systemd/ortet-config-recover.service", "../../../deploy/systemd/ortet-config-boot.service", "../../../deploy/systemd/ortet-config.service").CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "ortet-config") && !strings.Contains(line, "is not executable") {
			t.Errorf("systemd-analyze verify: %v: %s", err, line)
		}
	}
}
