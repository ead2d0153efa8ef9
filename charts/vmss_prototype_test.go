//go:build e2e

package charts

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/internal/cli"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
)

const node = "k8s-pool1-12345678-vmss000000"

const image = "registry.example/ortet:v1"

// helm runs Helm; a chart of ours that is among the arguments gets an image.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	for chart, set := range map[string]string{"vmss-prototype": "ortet.image=" + image, "ortet": "image.repository=registry.example/ortet,image.tag=v1"} {
		if i := slices.Index(args, chart); i >= 0 {
			args = slices.Insert(slices.Clone(args), i+1, "--set", set)
		}
	}
	return bareHelm(t, args...)
}

func bareHelm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cache := os.Getenv("ORTET_CACHE")
	if cache == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		cache = filepath.Join(base, "ortet")
	}
	path := filepath.Join(cache, "helm", "helm")
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("helm is not built: run 'make helm' (%v)", err)
	}
	cmd := exec.Command(path, args...)
	// Not this user's repositories, plugins or cluster.
	cmd.Env = append(os.Environ(), "HELM_CONFIG_HOME="+t.TempDir(), "HELM_CACHE_HOME="+t.TempDir(), "HELM_DATA_HOME="+t.TempDir(), "KUBECONFIG=/dev/null")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// render returns the chart's objects by kind.
func render(t *testing.T, args ...string) map[string][][]byte {
	t.Helper()
	out, err := helm(t, append([]string{"template", "r", "vmss-prototype", "--namespace", "default"}, args...)...)
	if err != nil {
		t.Fatalf("helm template: %v\n%s", err, out)
	}
	objects := map[string][][]byte{}
	for _, doc := range strings.Split(out, "\n---\n") {
		var kind struct{ Kind string }
		if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
			t.Fatalf("not YAML: %v\n%s", err, doc)
		}
		if kind.Kind != "" {
			objects[kind.Kind] = append(objects[kind.Kind], []byte(doc))
		}
	}
	return objects
}

func job(t *testing.T, args ...string) batchv1.Job {
	t.Helper()
	var j batchv1.Job
	if err := yaml.UnmarshalStrict(render(t, args...)["Job"][0], &j); err != nil {
		t.Fatal(err)
	}
	return j
}

func TestChartIsWellFormed(t *testing.T) {
	if out, err := helm(t, "lint", "--strict", "vmss-prototype", "--set", "kamino.targetNode="+node); err != nil {
		t.Errorf("helm lint: %v\n%s", err, out)
	}
}

func TestChartGrantsExactlyWhatIsUsed(t *testing.T) {
	const set = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/"
	for _, pools := range [][]fleet.ResourceID{nil, {set + "pool1"}, {"/Subscriptions/S/resourcegroups/G/providers/microsoft.compute/virtualmachinescalesets/K8s_Pool.1-with-a-name-that-is-cut-here"}, {set + "a", set + "B-"}} {
		args := []string{"--set", "kamino.targetNode=" + node}
		if len(pools) == 2 {
			args = []string{"--set", "kamino.targetVMSS=ALL,kamino.auto.cronjob.enabled=true"}
		}
		force := len(pools) == 1
		if force {
			args = append(args, "--set", "kamino.drain.force=true")
		}
		needs := kube.Everything("")
		needs.Force = force
		if len(pools) == 2 {
			args, needs.Test = append(args, "--set", "ortet.canaryTest.configMap=t,ortet.canaryTest.namespace=tests"), "tests"
		}
		if needs.Tunes = force; needs.Tunes {
			args = append(args, "--set", "ortet.tune[0]=recommended")
		}
		for i, pool := range pools {
			args = append(args, "--set", fmt.Sprintf("ortet.pools[%d]=%s", i, pool))
			needs.Secrets = append(needs.Secrets, kube.Secrets(pool)...)
		}
		objects := render(t, args...)
		granted := map[string][]rbacv1.PolicyRule{}
		for _, doc := range objects["ClusterRole"] {
			var r rbacv1.ClusterRole
			if err := yaml.UnmarshalStrict(doc, &r); err != nil {
				t.Fatal(err)
			}
			granted[""] = append(granted[""], r.Rules...)
		}
		for _, doc := range objects["Role"] {
			var r rbacv1.Role
			if err := yaml.UnmarshalStrict(doc, &r); err != nil {
				t.Fatal(err)
			}
			granted[r.Namespace] = append(granted[r.Namespace], r.Rules...)
		}
		if got, want := spelled(granted), spelled(kube.PolicyRules(kube.Rules(needs))); !reflect.DeepEqual(got, want) {
			t.Errorf("%v: the chart grants\n%s\nand the code uses\n%s", pools, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func spelled(rules map[string][]rbacv1.PolicyRule) []string {
	var all []string
	for namespace, list := range rules {
		for _, r := range list {
			names := r.ResourceNames
			if len(names) == 0 {
				names = []string{"*"}
			}
			for _, g := range r.APIGroups {
				for _, res := range r.Resources {
					for _, n := range names {
						for _, v := range r.Verbs {
							all = append(all, strings.Join([]string{namespace, g, res, n, v}, "|"))
						}
					}
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// The Job's arguments are those of the command line, whatever the values say.
func TestJobArgumentsAreTheCommandLines(t *testing.T) {
	for name, args := range map[string][]string{
		"defaults": {"--set", "kamino.targetNode=" + node},
		"status":   nil,
		"everything": {"--set", "kamino.targetNode=" + node, "--set", "kamino.drain.force=true,kamino.drain.gracePeriod=5,kamino.imageHistory=5,kamino.newUpdatedNodes=2,kamino.logLevel=VERBOSE",
			"--set", "ortet.again=true,ortet.deallocate=true,ortet.dryRun=true,ortet.workbench=w,ortet.bootstrap=keep,ortet.extensions=default,ortet.canary=0,ortet.watch=1h30m,kamino.container.pullSecret=p",
			"--set", "ortet.online=true", "--set", "ortet.acceptSecrets={/etc/a,/opt/b/},ortet.removeSecrets=true,ortet.scanImages=true"},
		"a canary's test": {"--set", "kamino.targetNode=" + node + ",ortet.canary=2,ortet.canaryTest.configMap=t,ortet.canaryTest.namespace=tests"},
		"publish only":    {"--set", "kamino.targetNode=" + node + ",ortet.publishOnly=true,ortet.canary=2,ortet.again=true"},
		"all pools":       {"--set", "kamino.targetVMSS=ALL,kamino.auto.minimumReadyTime=3,ortet.auto.ignoreNodes={a,b},ortet.auto.ignoreAnnotations={c},ortet.auto.skipRules={kernel},ortet.auto.maxParallel=2"},
		"prepared":        {"--set", "kamino.targetVMSS=p,ortet.fresh=true,ortet.prepare.image=reg.example/p:1,ortet.prepare.timeout=5m,ortet.prepare.command={sh,-c,a: b}"},
		"patched":         {"--set", "kamino.targetVMSS=ALL,ortet.fresh=true,ortet.patch=true"},
		"a pool": {"--set", "kamino.targetVMSS=p,kamino.auto.minimumReadyTime=3d,kamino.auto.minimumCandidates=5,kamino.auto.maximumImageAge=7,kamino.auto.dryRun=true",
			"--set", "kamino.auto.lastPatchAnnotation=LatestOSPatch,kamino.auto.pendingRebootAnnotation=RebootPending"},
	} {
		t.Run(name, func(t *testing.T) {
			container := job(t, args...).Spec.Template.Spec.Containers[0]
			var out, complaint bytes.Buffer
			code := cli.Run(context.Background(), append(container.Args, "--help"), cli.Process{Out: &out, Err: &complaint, Getenv: func(string) string { return "" }, Version: "test"})
			if code != 0 {
				t.Errorf("ortet %q: exit %d: %s", container.Args, code, complaint.String())
			}
		})
	}
}

func TestKaminosValuesMeanTheSame(t *testing.T) {
	j := job(t, "--set", "kamino.targetNode="+node, "--set", "kamino.drain.gracePeriod=5,kamino.drain.force=true,kamino.imageHistory=4,kamino.newUpdatedNodes=1,kamino.jobTtl=7,kamino.name=n,kamino.labels.app=l",
		"--set", "ortet.image=,kamino.container.imageRegistry=reg,kamino.container.imageRepository=team/ortet,kamino.container.pullByHash=true,kamino.container.pullSecret=s,kamino.container.imageHash="+strings.Repeat("a", 64))
	spec := j.Spec.Template.Spec
	args := strings.Join(spec.Containers[0].Args, " ")
	for _, want := range []string{"capture " + node, "--grace-period=5s", "--force", "--history=4", "--grow=1", "--bootstrap=baked", "--accept-pool-credentials", "--extensions=all", "--keep-extension=*AKSLinuxBilling*", "--azure-config=/etc/kubernetes/azure.json"} {
		if !strings.Contains(args, want) {
			t.Errorf("%q is not in %q", want, args)
		}
	}
	if j.Name != "n-k8s-pool1-12345678-vmss" || j.Labels["app"] != "l" || *j.Spec.TTLSecondsAfterFinished != 7 {
		t.Errorf("name %q, label %q, time to live %d", j.Name, j.Labels["app"], *j.Spec.TTLSecondsAfterFinished)
	}
	if want := "reg/team/ortet@sha256:" + strings.Repeat("a", 64); spec.Containers[0].Image != want || spec.ImagePullSecrets[0].Name != "s" {
		t.Errorf("image %q, pull secrets %v", spec.Containers[0].Image, spec.ImagePullSecrets)
	}
	for _, term := range spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if len(term.MatchFields) != 1 || term.MatchFields[0].Values[0] != node || term.MatchFields[0].Operator != "NotIn" {
			t.Errorf("the Job may run on the node that it stops: %+v", term)
		}
	}
}

func TestScheduleOnControlPlane(t *testing.T) {
	spec := job(t, "--set", "kamino.targetNode="+node+",kamino.scheduleOnControlPlane=true").Spec.Template.Spec
	var keys []string
	for _, term := range spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			if e.Key != "kubernetes.io/os" {
				keys = append(keys, e.Key)
			}
		}
		if len(term.MatchFields) != 1 {
			t.Errorf("a term does not leave the target out: %+v", term)
		}
	}
	if want := []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master", "kubernetes.io/role"}; !slices.Equal(keys, want) {
		t.Errorf("terms ask for %v, want %v", keys, want)
	}
}

func TestChartRefuses(t *testing.T) {
	for name, c := range map[string]struct{ set, says string }{
		"publish and watch": {"kamino.targetVMSS=ALL,ortet.publishOnly=true,ortet.watch=2h", "ortet.watch watches nodes of the version that the model names"},
		"publish and grow":  {"kamino.targetNode=" + node + ",ortet.publishOnly=true,kamino.newUpdatedNodes=1", "kamino.newUpdatedNodes adds nodes from the model's image"},
		"two targets":       {"kamino.targetVMSS=ALL,kamino.targetNode=" + node, "kamino.targetNode and kamino.targetVMSS are both set"},
		"cron of nothing":   {"kamino.auto.cronjob.enabled=true", "kamino.auto.cronjob.enabled needs kamino.targetVMSS"},
		"cron of a node":    {"kamino.auto.cronjob.enabled=true,kamino.targetNode=" + node, "kamino.auto.cronjob.enabled needs kamino.targetVMSS"},
		"test, no place":    {"kamino.targetVMSS=ALL,ortet.canaryTest.configMap=t", "set ortet.canaryTest.namespace to the Job's namespace"},
		"test in our own":   {"kamino.targetVMSS=ALL,ortet.canaryTest.configMap=t,ortet.canaryTest.namespace=ortet-system", "ortet.canaryTest.namespace is ortet.namespace"},
		"test, no canary":   {"kamino.targetNode=" + node + ",ortet.canaryTest.configMap=t,ortet.canaryTest.namespace=tests", "set ortet.canary to 1 or more"},
		"fresh of a node":   {"kamino.targetNode=" + node + ",ortet.fresh=true", "set kamino.targetVMSS"},
		"fresh and online":  {"kamino.targetVMSS=ALL,ortet.fresh=true,ortet.online=true", "ortet.online keeps one in service"},
		"patch, not fresh":  {"kamino.targetVMSS=ALL,ortet.patch=true", "set ortet.fresh"},
		"patch and prepare": {"kamino.targetVMSS=ALL,ortet.fresh=true,ortet.patch=true,ortet.prepare.image=a", "remove one of them"},
		"again":             {"kamino.targetVMSS=p,ortet.again=true", "ortet.again"},
		"workbench":         {"kamino.targetVMSS=p,ortet.workbench=w", "ortet.workbench"},
		"ready time":        {"kamino.auto.minimumReadyTime=1w", "minimumReadyTime"},
		"negative time":     {"kamino.auto.minimumReadyTime=-1", "minimumReadyTime"},
		"no candidate":      {"kamino.auto.minimumCandidates=0", "minimumCandidates"},
		"pool name invalid": {"kamino.targetVMSS=a/b", "targetVMSS"},
		"annotation":        {"kamino.auto.lastPatchAnnotation=a: b", "lastPatchAnnotation"},
		"history":           {"kamino.imageHistory=1", "imageHistory"},
		"log level":         {"kamino.logLevel=LOUD", "logLevel"},
		"hash missing":      {"ortet.image=,kamino.container.imageRepository=ortet,kamino.container.pullByHash=true", "imageHash"},
		"tag missing":       {"ortet.image=,kamino.container.imageRepository=ortet", "imageTag"},
		"node name invalid": {"kamino.targetNode=a;b", "targetNode"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := helm(t, "template", "r", "vmss-prototype", "--set", c.set)
			if err == nil || !strings.Contains(out, c.says) {
				t.Errorf("err %v, want a refusal that names %s; got:\n%s", err, c.says, out)
			}
		})
	}
}
