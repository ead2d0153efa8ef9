package cli

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/boots/survey"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/workflow"
)

// -o name writes what the next command of a pipe takes, and nothing else.
func TestNames(t *testing.T) {
	node := func(n string) string { return "k8s-pool1-12345678-vmss00000" + n }
	instance := func(n string) string { return string(pool1.Child("virtualMachines", n)) }
	read := capture.PoolStatus{Pool: fleet.Pool{ID: pool1, Name: pool1.Name()},
		Versions: []capture.VersionStatus{version("2026.11.21", donor, noon, nil), version("2026.11.20", donor, noon.Add(-24*time.Hour), nil)}}
	gone := capture.PoolStatus{Pool: fleet.Pool{ID: pool1.Parent()}, Gone: true, Unread: true}
	both := []capture.PoolStatus{read, gone}
	for name, c := range map[string]struct {
		show func(o *options) error
		want []string
	}{
		"nodes": {func(o *options) error { return o.printNodes(survey.Survey{Stories: stories(), Now: noon}, false) },
			[]string{"control-plane-0", node("0"), node("1"), instance("2"), instance("3"), instance("4")}},
		"nodes --failed": {func(o *options) error {
			err := o.printNodes(survey.Survey{Stories: stories(), Now: noon}, true)
			if !errors.Is(err, exitError(workflow.ExitNeedsPerson)) {
				t.Errorf("nodes --failed: %v", err)
			}
			return nil
		}, []string{node("1"), instance("2"), instance("4")}},
		"nodes NAME": {func(o *options) error { return o.printNode(survey.Survey{Stories: stories(), Now: noon}, node("2")) }, []string{instance("2")}},
		"status":     {func(o *options) error { return o.printStatus(both, statusOf, noon, writeStatus) }, []string{string(pool1)}},
		"versions": {func(o *options) error { return o.printStatus(both, versionsOf, noon, writeStatus) },
			[]string{string(read.Versions[0].ID), string(read.Versions[1].ID)}},
		"versions of none": {func(o *options) error { return o.printStatus(nil, versionsOf, noon, writeStatus) }, nil},
	} {
		var out strings.Builder
		o := &options{output: nameForm, process: Process{Out: &out, Err: io.Discard}}
		if err := c.show(o); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := strings.FieldsFunc(out.String(), func(r rune) bool { return r == '\n' }); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q\nwant %q", name, got, c.want)
		}
	}

	code, out, err := newPooled().run(t, "donors "+pools12+" -o name")
	if want := []string{"k8s-agentpool1-12345678-vmss000000"}; code != 0 || len(strings.Fields(out)) == 0 || strings.Fields(out)[0] != want[0] || strings.Contains(out, "RANK") {
		t.Errorf("donors: code %d, %s%s", code, out, err)
	}
	code, out, err = newPooled().run(t, "capture --image i --pool k8s-agentpool1-12345678-vmss -o name")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != 0 || len(lines) != 1 || !strings.HasSuffix(lines[0], "/versions/2026.11.21") || !strings.HasPrefix(lines[0], "/subscriptions/") || !strings.Contains(err, "the node was cordoned before") {
		t.Errorf("capture: code %d\n%s\n%s", code, out, err)
	}
}

// A capture that failed has no version: its name is not printed, and the error is.
func TestNoNameOfAFailure(t *testing.T) {
	var out, stderr strings.Builder
	o := &options{output: nameForm, process: Process{Out: &out, Err: &stderr}}
	failed := &workflow.Outcome{Exit: workflow.ExitFailed, Err: errors.New("the pod died")}
	err := o.printFailure(capture.Result{Version: plan.DefinitionOf(pool1).Child("versions", "1")}, []string{"pod p is left"}, failed)
	if !errors.Is(err, failed) || out.Len() > 0 || !strings.Contains(stderr.String(), "pod p is left") {
		t.Errorf("%v\n%s%s", err, out.String(), stderr.String())
	}
}

// What has no names refuses the form, and lists the forms that it has.
func TestNameIsRefused(t *testing.T) {
	takes := []string{"ortet capture", "ortet cluster agents", "ortet cluster backup", "ortet donors", "ortet nodes", "ortet status", "ortet versions"}
	var commands func(c *cobra.Command)
	commands = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			commands(sub)
		}
		path := c.CommandPath()
		if !c.Runnable() || isCommandGroup(c) || strings.HasPrefix(path, "ortet completion") || path == "ortet help" {
			return
		}
		usage := c.Flag("output").Usage
		if has := strings.HasSuffix(usage, " or name"); has != slices.Contains(takes, path) {
			t.Errorf("%s: -o is an %s", path, usage)
		}
	}
	commands(Command(Process{}))
	for args, want := range map[string]string{
		"rollback n -o name":          "-o name: want table, json or yaml",
		"config status p -o name":     "-o name: want table, json or yaml",
		"boot show n -o name":         "-o name: want table, json, yaml, html or svg",
		"capture n --dry-run -o name": "-o name: not with --dry-run, which makes no version; want table, json or yaml",
	} {
		if code, out, err := run(t, strings.Fields(args)...); code != ExitUsage || out != "" || !strings.Contains(err, want) {
			t.Errorf("ortet %s: code %d, %s%s", args, code, out, err)
		}
	}
}
