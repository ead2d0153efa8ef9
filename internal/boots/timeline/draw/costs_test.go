package draw

import (
	"bytes"
	"html"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/boots/timeline"
)

// What a boot cost beside its path is a section of the text and of the page, and in the JSON.
func TestCostsAreShown(t *testing.T) {
	of := k3s(t)
	for _, out := range []string{text(t, of, Terminal{}), pageOf(t, of)} {
		if strings.Contains(out, costsTitle) {
			t.Error("the section is there without anything to say")
		}
	}
	of.Pulls = []timeline.Pull{{Image: "r.io/proxy:v1", DaemonSet: "kube-system/kube-proxy", Took: 1.5e6, Bytes: 31.4e6, Holds: true},
		{Image: "r.io/agent", DaemonSet: "monitoring/\x1b[2Jagent", Took: 400e3}}
	of.UserData, of.Tuned = 12.345e6, []string{"runtime-early", "ssh-host-key"}
	of.DiskRead = timeline.DiskRead{Disk: "/dev/sda", Bytes: 412.34e6, At: of.End + 2.1e6}
	of.Restart = timeline.Restart{Boot: 2, After: 634e6}
	if err := valid(t, schema(t, "timeline.json"), jsonOf(t, of)); err != nil {
		t.Error(err)
	}
	for name, out := range map[string]string{"text": text(t, of, Terminal{Width: 400}), "page": html.UnescapeString(pageOf(t, of))} {
		out = strings.Join(strings.Fields(out), " ")
		for _, want := range []string{costsTitle,
			"first pods: 2 (at least 31.4 MB), as the node reports; clones of a node that has them need not pull 1 of them (31.4 MB)",
			"r.io/proxy:v1: 31.4 MB in 1.500s, for kube-system/kube-proxy; the image can hold it",
			"runtime-early, ssh-host-key",
			"machine restarted 10m34.000s after its first boot began; times below are of boot 2, with all before it as one span",
			"r.io/agent: size unknown in 400ms, for monitoring/�[2Jagent; imagePullPolicy Always: each node asks the registry",
			"412.3 MB were read from the OS disk /dev/sda until 2.100s after the end, as the node counts",
			"user data took 12.345s (cloud-init's commands, packages, files and scripts): it runs again on each clone of a capture with `--bootstrap keep`"} {
			if !strings.Contains(out, want) {
				t.Errorf("the %s lacks %q:\n%s", name, want, out[:min(len(out), 3000)])
			}
		}
	}
	for _, width := range []int{40, 80} {
		checkText(t, "costs", of, Terminal{Width: width, ASCII: true})
	}
}

func pageOf(t *testing.T, of timeline.Timeline) string {
	t.Helper()
	var b bytes.Buffer
	if err := HTML(&b, of); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
