package architecture

import (
	"bytes"
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/cli"
)

// section is what stands in a page between "<!-- NAME -->" and "<!-- end -->".
func section(t *testing.T, page, name string) string {
	t.Helper()
	_, rest, found := strings.Cut(read(t, page), "<!-- "+name+" -->")
	text, _, ended := strings.Cut(rest, "<!-- end -->")
	if !found || !ended {
		t.Fatalf("%s has no section %s", page, name)
	}
	return text
}

// makeTargets are those of azure-k3s-cluster's Makefile, without those that only other
// targets use.
var makeTargets = strings.Fields(`list-resources list-images list-locations list-sizes keys params clean deploy-storage
	deploy-compute redeploy create-shares destroy-cluster destroy-compute destroy-storage proxy tail-helper view-deployment
	watch-deployment list-agents scale-agents-N stop-agents start-agents show-agents resize-agents-up resize-agents-down
	reimage-agents-parallel reimage-agents-serial chaos-monkey list-endpoints`)

func TestClusterPageHasEveryMakeTarget(t *testing.T) {
	table := section(t, "docs/how-to/run-cluster.md", "makefile")
	for _, target := range makeTargets {
		if !strings.Contains(table, "`"+target+"`") {
			t.Errorf("docs/how-to/run-cluster.md does not say what becomes of make %s", target)
		}
	}
}

func TestClusterPageHasEveryCommand(t *testing.T) {
	var out bytes.Buffer
	if code := cli.Run(context.Background(), []string{"cluster", "--help"}, cli.Process{Out: &out, Err: &out, Getenv: func(string) string { return "" }}); code != 0 {
		t.Fatalf("ortet cluster --help: exit %d\n%s", code, out.String())
	}
	_, list, _ := strings.Cut(out.String(), "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	page := read(t, "docs/reference/cluster.md")
	n := 0
	for line := range strings.Lines(list) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		n++
		if !regexp.MustCompile("`" + name + "[` ]").MatchString(page) {
			t.Errorf("docs/reference/cluster.md does not name ortet cluster %s", name)
		}
	}
	if n < 20 {
		t.Errorf("ortet cluster --help lists %d commands only:\n%s", n, out.String())
	}
}

// The tests that docs/how-to/run-cluster.md names have to exist.
func TestDefectsHaveTests(t *testing.T) {
	named := regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	var all []string
	for _, file := range tracked(t, "*_test.go") {
		for _, m := range regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`).FindAllStringSubmatch(read(t, file), -1) {
			all = append(all, m[1])
		}
	}
	rows := 0
	for line := range strings.Lines(section(t, "docs/how-to/run-cluster.md", "defects")) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| in ") {
			continue
		}
		rows++
		tests := named.FindAllStringSubmatch(line, -1)
		if len(tests) == 0 {
			t.Errorf("no test is named in %s", line)
		}
		for _, m := range tests {
			if !slices.Contains(all, m[1]) {
				t.Errorf("docs/how-to/run-cluster.md names %s, which does not exist", m[1])
			}
		}
	}
	if rows < 15 {
		t.Errorf("docs/how-to/run-cluster.md has %d defects only", rows)
	}
}
