package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/workflow"
)

// TestCanaryTestFlag has wrong uses of --canary-test end before anything is connected to.
func TestCanaryTestFlag(t *testing.T) {
	const job = `{apiVersion: batch/v1, kind: Job, metadata: {name: t, namespace: tests}, spec: {template: {spec: {containers: [{name: t, image: i}]}}}}`
	for name, c := range map[string]struct {
		file, flags string
		exit        int
		says        string
	}{
		"no canary":         {job, "n", ExitUsage, "--canary-test: only with --canary, whose clones run the test"},
		"publish only":      {job, "--pool=p --publish-only", ExitUsage, "--canary-test: only with --canary"},
		"Ortet's namespace": {strings.Replace(job, "tests", "mine", 1), "n --canary=2 --namespace=mine", workflow.ExitRefused, "its namespace mine is Ortet's own"},
		"second object":     {job + "\n---\n" + job, "n --canary=2", workflow.ExitRefused, "it has a second object"},
		"large":             {job + strings.Repeat(" ", 64<<10), "--all", workflow.ExitRefused, "it has more than 64 KiB"},
		"missing":           {"", "n --canary=2", workflow.ExitRefused, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "job.yaml")
			if c.file != "" {
				if err := os.WriteFile(file, []byte(c.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out, errs bytes.Buffer
			exit := Run(context.Background(), append([]string{"capture", "--image=reg.example/ortet:1", "--canary-test=" + file}, strings.Fields(c.flags)...),
				Process{Out: &out, Err: &errs, Getenv: func(string) string { return "" }, Version: "test"})
			if text := strings.Join(strings.Fields(errs.String()), " "); exit != c.exit || !strings.Contains(text, c.says) {
				t.Errorf("exit %d, want %d: %s; want %q", exit, c.exit, text, c.says)
			}
		})
	}
}
