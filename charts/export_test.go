//go:build e2e

package charts

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/cli"
)

// The lists of arguments by which TestExportedObjectsAskAsTheJob compares are those of the Job.
func TestArgumentsOfExportedValues(t *testing.T) {
	files, err := filepath.Glob("testdata/export/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(strings.TrimSuffix(file, ".yaml") + ".args")
		if err != nil {
			t.Fatal(err)
		}
		got := cronJob(t, "--values", file).Spec.JobTemplate.Spec.Template.Spec.Containers[0].Args
		if want := strings.Split(strings.TrimSpace(string(text)), "\n"); !slices.Equal(got, want) {
			t.Errorf("%s: the Job's arguments are\n%s", file, strings.Join(got, "\n"))
		}
	}
}

// The API server takes what is exported, with all its rules.
func TestExportedObjectsAreAccepted(t *testing.T) {
	scaleSetPoolsOn(t)
	files, err := filepath.Glob("testdata/export/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		var out, complaint strings.Builder
		if code := cli.Run(t.Context(), []string{"operator", "export", file}, cli.Process{Out: &out, Err: &complaint, Getenv: func(string) string { return "" }}); code != 0 {
			t.Fatalf("%s: exit code %d: %s", file, code, complaint.String())
		}
		if answer, err := kubectlOn(t, out.String(), "create", "--dry-run=server", "--filename", "-"); err != nil || strings.Contains(answer, "Warning") {
			t.Errorf("%s: %v\n%s\n%s", file, err, answer, out.String())
		}
	}
}
