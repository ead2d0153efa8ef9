//go:build e2e

package charts

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
)

// secretsOf are the Secrets of pools, sorted.
func secretsOf(pools ...fleet.ResourceID) (names []string) {
	for _, pool := range pools {
		names = append(names, kube.Secrets(pool)...)
	}
	slices.Sort(names)
	return names
}

// granted are the Secrets that a Role lets its account update, sorted.
func granted(role rbacv1.Role) (names []string) {
	for _, r := range role.Rules {
		if slices.Contains(r.Resources, "secrets") && slices.Contains(r.Verbs, "update") {
			names = append(names, r.ResourceNames...)
		}
	}
	slices.Sort(names)
	return names
}

// A release of auto mode is granted the pools that the cluster's Nodes are instances of at
// its installation, and at each upgrade, which changes a CronJob at any time.
func TestAutoReleaseIsGrantedThePoolsThatHelmFinds(t *testing.T) {
	const namespace = "auto-system"
	const a, sameName, c, later = "/subscriptions/auto/resourceGroups/G1/providers/Microsoft.Compute/virtualMachineScaleSets/pool-a",
		"/subscriptions/auto/resourceGroups/g2/providers/Microsoft.Compute/virtualMachineScaleSets/Pool-A",
		"/subscriptions/auto/resourceGroups/g1/providers/Microsoft.Compute/virtualMachineScaleSets/pool-c",
		"/subscriptions/auto/resourceGroups/g1/providers/Microsoft.Compute/virtualMachineScaleSets/later"
	i := emptied(t, namespace)
	join := func(name, provider string) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: provider}}
		eventually(t, "create "+name, func() error {
			_, err := i.admin.CoreV1().Nodes().Create(i.ctx, n, metav1.CreateOptions{})
			return err
		})
		t.Cleanup(func() {
			_ = i.admin.CoreV1().Nodes().Delete(context.WithoutCancel(i.ctx), name, metav1.DeleteOptions{})
		})
	}
	join("auto-1", "azure://"+a+"/virtualMachines/0")
	join("auto-2", "azure://"+strings.ToLower(a)+"/virtualMachines/1")
	join("auto-3", "azure://"+strings.ToUpper(sameName)+"/virtualMachines/0")
	join("auto-4", "azure://"+c+"/virtualMachines/7")
	join("auto-5", "azure:///subscriptions/auto/resourceGroups/g1/providers/Microsoft.Compute/virtualMachines/alone")
	join("auto-6", "aws:///eu/i-1")
	join("auto-7", "")

	release := func(verb string, settings ...string) (notes string) {
		t.Helper()
		args := []string{verb, "c", "vmss-prototype", "--namespace", namespace, "--kubeconfig", i.cp.Kubeconfig, "--values", kaminosValues, "--set", "ortet.namespace=" + namespace}
		if verb == "template" {
			args = append(args, "--dry-run=server")
		}
		for _, s := range settings {
			args = append(args, "--set", s)
		}
		out, err := helm(t, args...)
		if err != nil {
			t.Fatalf("helm %s: %v\n%s", verb, err, out)
		}
		return out
	}
	check := func(what string, pools ...fleet.ResourceID) {
		t.Helper()
		role, err := i.admin.RbacV1().Roles(namespace).Get(i.ctx, "ortet:"+namespace+":c", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := granted(*role), secretsOf(pools...); !slices.Equal(got, want) {
			t.Errorf("%s: the account may update %v, want %v", what, got, want)
		}
	}

	const nightly = "kamino.targetVMSS=ALL,kamino.auto.cronjob.enabled=true"
	notes := release("install", nightly)
	t.Cleanup(func() { i.helm("uninstall", "c", "--namespace", namespace) })
	check("installed", a, sameName, c)
	for _, want := range []string{
		"all pools when a new version is due, by the schedule \"42 0 * * *\"", "create job --from=cronjob/kamino-gen-autoupdate", "a pool\nis captured only while it has no version",
		"  " + strings.ToLower(a) + "\n", "  " + strings.ToLower(sameName) + "\n", "made later is refused (exit code 3)",
		image + " (ortet.image) runs in place of the image", "jackfrancis/kamino/vmss-prototype",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("%q is not in the notes:\n%s", want, notes)
		}
	}

	account := client(t, i.account("c-vmss-prototype"))
	eventually(t, "the account's rights", func() error {
		if _, err := i.capture().Journals().Load(i.ctx, c); !fleet.Is(err, fleet.KindNotFound) {
			return err
		}
		return nil
	})
	if _, err := i.capture().Journals().Load(i.ctx, later); !fleet.Is(err, fleet.KindDenied) {
		t.Errorf("read the journal of a pool that was not there: %v", err)
	}
	refusal(t, "the policy on records", "a capture writes its journal", func() error {
		_, err := account.CoreV1().Secrets(namespace).Create(i.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: kube.SavedName(later)}, Type: "ortet.io/saved"}, metav1.CreateOptions{DryRun: dry})
		return err
	})
	refusal(t, "the policy on Nodes", "annotates and cordons", func() error {
		return patchNode("auto-1", `{"metadata":{"labels":{"a":"b"}}}`)(i.ctx, account, namespace)
	})

	join("auto-8", "azure://"+string(later)+"/virtualMachines/0")
	notes = release("upgrade", nightly, "kamino.auto.cronjob.schedule=0 3 * * *,kamino.auto.maximumImageAge=7,ortet.auto.timeZone=Europe/Berlin")
	check("upgraded", a, sameName, c, later)
	if strings.Contains(notes, "only while it has no version") {
		t.Errorf("an age is set:\n%s", notes)
	}
	job, err := i.admin.BatchV1().CronJobs(namespace).Get(i.ctx, "kamino-gen-autoupdate", metav1.GetOptions{})
	if err != nil || job.Spec.Schedule != "0 3 * * *" || !slices.Contains(job.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Args, "--max-image-age=7") {
		t.Errorf("the CronJob was not changed: %v, %+v", err, job.Spec)
	}

	for set, pools := range map[string][]fleet.ResourceID{
		"kamino.targetVMSS=POOL-a":                      {a, sameName},
		"kamino.targetVMSS=pool-c":                      {c},
		"kamino.targetVMSS=" + sameName:                 {sameName},
		"kamino.targetVMSS=ALL,ortet.pools={" + c + "}": {c},
		"kamino.targetNode=auto-4":                      {c},
		"kamino.targetVMSS=pool":                        nil,
	} {
		out := release("template", set)
		var role rbacv1.Role
		for _, doc := range strings.Split(out, "\n---\n") {
			if strings.Contains(doc, "\nkind: Role\n") && role.Namespace != namespace {
				if err := yaml.Unmarshal([]byte(doc), &role); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got, want := granted(role), secretsOf(pools...); !slices.Equal(got, want) {
			t.Errorf("%s: the account may update %v, want %v", set, got, want)
		}
	}
}
