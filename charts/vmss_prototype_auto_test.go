//go:build e2e

package charts

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/internal/image/donors"
)

func cronJob(t *testing.T, args ...string) batchv1.CronJob {
	t.Helper()
	var c batchv1.CronJob
	if err := yaml.UnmarshalStrict(render(t, args...)["CronJob"][0], &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// arguments are those that the rendered Job runs Ortet with.
func arguments(t *testing.T, args ...string) []string {
	t.Helper()
	return job(t, args...).Spec.Template.Spec.Containers[0].Args
}

func TestAutoArguments(t *testing.T) {
	defaults := []string{"--min-ready=1h", "--min-candidates=1", "--max-image-age=0", "--max-parallel=4", "--history=3", "--grace-period=300s", "--grow=0",
		"--bootstrap=baked", "--accept-pool-credentials", "--extensions=all", "--keep-extension=*AKSLinuxBilling*", "--replicas=0", "--image=" + image,
		"--azure-config=/etc/kubernetes/azure.json", "--namespace=ortet-system", "--log-level=INFO"}
	with := func(first []string, changed ...string) []string {
		out := slices.Concat([]string{"capture"}, first, defaults)
		for i := 0; i < len(changed); i += 2 {
			out[slices.Index(out, changed[i])] = changed[i+1]
		}
		return out
	}
	for _, c := range []struct {
		set  string
		want []string
	}{
		{"kamino.targetVMSS=ALL", with([]string{"--all"})},
		{"kamino.targetVMSS=all", with([]string{"--pool=all"})},
		{"kamino.targetVMSS=k8s-pool1-12345678-vmss", with([]string{"--pool=k8s-pool1-12345678-vmss"})},
		{"kamino.targetVMSS=" + accountsPool, with([]string{"--pool=" + accountsPool})},
		{"kamino.targetVMSS=ALL,kamino.auto.lastPatchAnnotation=LatestOSPatch,kamino.auto.pendingRebootAnnotation=example.com/reboot", with([]string{"--all", "--patch-annotation=LatestOSPatch", "--reboot-annotation=example.com/reboot"})},
		{"kamino.targetVMSS=ALL,kamino.auto.minimumReadyTime=0", with([]string{"--all"}, "--min-ready=1h", "--min-ready=0")},
		{"kamino.targetVMSS=ALL,kamino.auto.minimumReadyTime=5000000", with([]string{"--all"}, "--min-ready=1h", "--min-ready=5000000")},
		{"kamino.targetVMSS=ALL,kamino.auto.minimumReadyTime=3d,kamino.auto.minimumCandidates=5,kamino.auto.maximumImageAge=7,ortet.auto.maxParallel=2",
			with([]string{"--all"}, "--min-ready=1h", "--min-ready=3d", "--min-candidates=1", "--min-candidates=5", "--max-image-age=0", "--max-image-age=7", "--max-parallel=4", "--max-parallel=2")},
		{"kamino.targetVMSS=ALL,kamino.auto.dryRun=true", slices.Insert(with([]string{"--all"}), 14, "--dry-run")},
		{"kamino.targetVMSS=ALL,ortet.dryRun=true", slices.Insert(with([]string{"--all"}), 14, "--dry-run")},
		{"kamino.targetVMSS=ALL,ortet.auto.ignoreNodes={a,b.c},ortet.auto.ignoreAnnotations={x.io/y},ortet.auto.skipRules={kernel,boot-time}",
			slices.Insert(with([]string{"--all"}), 5, "--ignore-node=a", "--ignore-node=b.c", "--ignore-annotation=x.io/y", "--skip-rule=kernel", "--skip-rule=boot-time")},
		{"kamino.targetVMSS=ALL,ortet.publishOnly=true,kamino.imageHistory=5,ortet.bootstrap=keep,ortet.extensions=none",
			[]string{"capture", "--all", "--min-ready=1h", "--min-candidates=1", "--max-image-age=0", "--max-parallel=4", "--publish-only", "--grace-period=300s",
				"--accept-pool-credentials", "--replicas=0", "--image=" + image, "--azure-config=/etc/kubernetes/azure.json", "--namespace=ortet-system", "--log-level=INFO"}},
		{"kamino.targetVMSS=ALL,ortet.fresh=true,kamino.auto.lastPatchAnnotation=LatestOSPatch,kamino.auto.pendingRebootAnnotation=r,kamino.auto.maximumImageAge=7,ortet.auto.skipRules={kernel}",
			slices.Concat([]string{"capture", "--all", "--patch-annotation=LatestOSPatch", "--fresh", "--max-image-age=7"}, defaults[3:])},
		// Values that are kept from a chart without auto mode.
		{"kamino.targetVMSS=ALL,kamino.auto=null,ortet.auto=null", with([]string{"--all"})},
	} {
		if got := arguments(t, "--set", c.set); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%q, want\n%q", c.set, got, c.want)
		}
	}
	for _, set := range []string{"kamino.name=n", "kamino.targetNode=" + node} {
		if args := strings.Join(arguments(t, "--set", set, "--set", "kamino.auto.lastPatchAnnotation=a,ortet.auto.ignoreNodes={b}"), " "); strings.Contains(args, "--min-ready") || strings.Contains(args, "--patch-annotation") || strings.Contains(args, "--ignore-node") {
			t.Errorf("%s: no donor is to be chosen: %s", set, args)
		}
	}
	// What is called a dry run changes nothing.
	if args := arguments(t, "--set", "kamino.auto.dryRun=true,kamino.targetNode="+node); !slices.Contains(args, "--dry-run") {
		t.Errorf("no dry run: %q", args)
	}
}

// A CronJob's Jobs are the Job, but for how long they are kept.
func TestAutoCronJob(t *testing.T) {
	const all = "kamino.targetVMSS=ALL,kamino.auto.cronjob.enabled=true"
	c := cronJob(t, "--set", all)
	alone := job(t, "--set", "kamino.targetVMSS=ALL")
	if c.Name != "kamino-gen-autoupdate" || alone.Name != c.Name || c.APIVersion != "batch/v1" || c.Labels["targetVMSS"] != "ALL" || !reflect.DeepEqual(c.Labels, c.Spec.JobTemplate.Labels) {
		t.Errorf("%s of %s, labels %v and %v; the Job is %s", c.Name, c.APIVersion, c.Labels, c.Spec.JobTemplate.Labels, alone.Name)
	}
	s := c.Spec
	if s.Schedule != "42 0 * * *" || s.TimeZone != nil || s.ConcurrencyPolicy != batchv1.ForbidConcurrent || *s.StartingDeadlineSeconds != 3600 || *s.SuccessfulJobsHistoryLimit != 3 || *s.FailedJobsHistoryLimit != 3 || s.JobTemplate.Spec.TTLSecondsAfterFinished != nil {
		t.Errorf("%+v", s)
	}
	if *alone.Spec.TTLSecondsAfterFinished != 3600 || *alone.Spec.ActiveDeadlineSeconds != 12*60*60 {
		t.Errorf("the Job is kept for %d s and ends after %d s", *alone.Spec.TTLSecondsAfterFinished, *alone.Spec.ActiveDeadlineSeconds)
	}
	if one := job(t, "--set", "kamino.targetNode="+node); one.Spec.ActiveDeadlineSeconds != nil {
		t.Error("the capture of a node has a deadline")
	}
	alone.Spec.TTLSecondsAfterFinished = nil
	if !reflect.DeepEqual(s.JobTemplate.Spec, alone.Spec) {
		t.Errorf("the CronJob's Jobs are\n%+v\nand the Job is\n%+v", s.JobTemplate.Spec, alone.Spec)
	}
	spec := alone.Spec.Template.Spec
	for _, term := range spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if len(term.MatchFields) != 0 {
			t.Errorf("a node is left out: %+v", term)
		}
	}
	if e := spec.Containers[0].Env[0]; e.Name != "NODE_NAME" || e.ValueFrom.FieldRef.FieldPath != "spec.nodeName" {
		t.Errorf("Ortet does not know its own node: %+v", e)
	}

	s = cronJob(t, "--set", all+",kamino.auto.cronjob.schedule=0 3 * * 6,ortet.auto.timeZone=Europe/Berlin,ortet.auto.startingDeadlineSeconds=60,ortet.auto.deadlineSeconds=2000000,ortet.auto.successfulJobsHistoryLimit=0,ortet.auto.failedJobsHistoryLimit=9").Spec
	if s.Schedule != "0 3 * * 6" || s.TimeZone == nil || *s.TimeZone != "Europe/Berlin" || *s.StartingDeadlineSeconds != 60 || *s.SuccessfulJobsHistoryLimit != 0 || *s.FailedJobsHistoryLimit != 9 || *s.JobTemplate.Spec.ActiveDeadlineSeconds != 2000000 {
		t.Errorf("%+v", s)
	}
}

const kaminosValues = "testdata/kamino-values.yaml"

// kamino's own values file installs with one value more, whatever it targets.
func TestKaminosOwnValuesRender(t *testing.T) {
	for set, begins := range map[string]string{
		"kamino.scheduleOnControlPlane=true": "status",
		"kamino.targetNode=" + node:          "capture " + node,
		"kamino.targetVMSS=k8s-pool1-12345678-vmss,kamino.auto.lastPatchAnnotation=LatestOSPatch,kamino.auto.pendingRebootAnnotation=PendingReboot": "capture --pool=k8s-pool1-12345678-vmss --patch-annotation=LatestOSPatch --reboot-annotation=PendingReboot --min-ready=1h",
		"kamino.targetVMSS=ALL,kamino.auto.lastPatchAnnotation=LatestOSPatch,kamino.logLevel=DEBUG":                                                 "capture --all --patch-annotation=LatestOSPatch --min-ready=1h",
	} {
		c := job(t, "--values", kaminosValues, "--set", set).Spec.Template.Spec.Containers[0]
		if args := strings.Join(c.Args, " "); c.Image != image || !strings.HasPrefix(args+" ", begins+" ") || strings.Contains(args, "kamino/vmss-prototype") {
			t.Errorf("%s: %s of %s, want %s of %s", set, args, c.Image, begins, image)
		}
	}
	for set, want := range map[string]string{
		"kamino.container.imageRegistry=mirror.example,kamino.container.imageRepository=team/ortet,kamino.container.pullByHash=false,kamino.container.imageTag=v1": "mirror.example/team/ortet:v1",
		"kamino.container.imageRegistry=,kamino.container.imageRepository=mirror.example/ortet,kamino.container.imageHash=" + strings.Repeat("b", 64):              "mirror.example/ortet@sha256:" + strings.Repeat("b", 64),
		"ortet.image=mirror.example/any/name@sha256:" + strings.Repeat("b", 64):                                                                                    "mirror.example/any/name@sha256:" + strings.Repeat("b", 64),
	} {
		if got := job(t, "--values", kaminosValues, "--set", "ortet.image=,"+set).Spec.Template.Spec.Containers[0].Image; got != want {
			t.Errorf("%s: image %s, want %s", set, got, want)
		}
	}
}

// A rule that cannot be skipped is refused at installation, not by the Job at night.
func TestRulesToSkip(t *testing.T) {
	for _, r := range donors.Rules() {
		out, err := helm(t, "template", "r", "vmss-prototype", "--set", "kamino.targetVMSS=ALL,ortet.auto.skipRules={"+r.Name+"}")
		if (err == nil) != r.Ours {
			t.Errorf("skipping %s: %v\n%s", r.Name, err, out)
		}
	}
	if out, err := helm(t, "template", "r", "vmss-prototype", "--set", "ortet.auto.skipRules={kernal}"); err == nil || !strings.Contains(out, "'kernel'") {
		t.Errorf("a misspelled rule: %v\n%s", err, out)
	}
}

// A misspelled key is refused at every level, with the keys that the schema has there.
func TestUnknownKeysAreRefused(t *testing.T) {
	data, err := os.ReadFile("vmss-prototype/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	type object struct {
		Properties map[string]json.RawMessage
		Additional json.RawMessage `json:"additionalProperties"`
	}
	levels := 0
	var walk func(level string, raw json.RawMessage)
	walk = func(level string, raw json.RawMessage) {
		var o object
		if err := json.Unmarshal(raw, &o); err != nil {
			t.Fatal(err)
		}
		if len(o.Properties) == 0 {
			return
		}
		levels++
		if o.Additional != nil {
			t.Errorf("the schema refuses unknown keys of %q, without naming the known ones", level)
		}
		var known []string
		for key, p := range o.Properties {
			known = append(known, key)
			walk(level+key+".", p)
		}
		slices.Sort(known)
		out, err := helm(t, "template", "r", "vmss-prototype", "--set", level+"misspelled=x")
		if want := level + "misspelled is not known; known are: " + strings.Join(known, ", ") + "\n"; err == nil || !strings.Contains(out, want) {
			t.Errorf("err %v, want %s; got:\n%s", err, want, out)
		}
	}
	walk("", data)
	if levels != 10 {
		t.Errorf("%d levels have known keys", levels)
	}
	if j := job(t, "--set", "kamino.labels.team=a,ortet.resources.limits.cpu=1"); j.Labels["team"] != "a" {
		t.Errorf("labels are %v", j.Labels)
	}
}
