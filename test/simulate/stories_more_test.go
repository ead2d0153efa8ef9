package simulate

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing/synctest"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/fleet"
)

var (
	rolling = with(func(p *Pool) { p.Mode, p.Extensions = "Rolling", []string{"health", "cse"} })
	volumes = with(func(p *Pool) { p.Volumes = true })
	foreign = with(func(p *Pool) { p.Foreign = true })
	old     = with(func(p *Pool) { p.Old = 2 })
	blocked = with(func(p *Pool) { p.Blocked = true })
)

// moreStories are pools of other kinds, and what happens between processes.
var moreStories = []Story{
	{Name: "rolling mode", Seed: 40, Pool: rolling, Asks: []Ask{{Do: "capture", Exit: 3}}, Cannot: "RollingUpgrade"},
	{Name: "rolling mode allowed", Seed: 40, Pool: rolling, Asks: []Ask{{Do: "capture", Rolling: true}, {Do: "wait", For: day}, {Do: "rollback", Rolling: true}}},
	{Name: "provider ids in lower case", Seed: 41, Pool: with(func(p *Pool) { p.Spelling = "lower" }), Asks: []Ask{{Do: "capture"}, {Do: "rollback"}}},
	{Name: "ids in Azure's answers in upper case", Seed: 42, Pool: with(func(p *Pool) { p.Spelling = "upper" }), Asks: []Ask{{Do: "capture"}, {Do: "rollback"}}},
	{Name: "volumes of others", Seed: 43, Pool: volumes, Asks: []Ask{{Do: "capture", Deallocate: true}, {Do: "scale out", N: 1}}},
	{Name: "version of others", Seed: 44, Pool: foreign, Asks: []Ask{{Do: "capture", History: 2}, {Do: "rollback"}}},
	{Name: "instances of older versions", Seed: 45, Pool: old, Asks: []Ask{{Do: "capture", History: 2}}},
	{Name: "left by an earlier capture", Seed: 46, Pool: with(func(p *Pool) { p.Leftover = true }), Asks: []Ask{{Do: "capture"}}},
	{Name: "trusted launch", Seed: 47, Pool: with(func(p *Pool) { p.Trusted = true }), Asks: []Ask{{Do: "capture", Grow: 1}}},
	{Name: "budget that never allows an eviction", Seed: 48, Pool: blocked, Asks: []Ask{{Do: "capture", Exit: 3}}, Cannot: "BudgetAllowsNoEviction"},
	{Name: "budget that never allows an eviction, by force", Seed: 48, Pool: blocked, Asks: []Ask{{Do: "capture", Force: true}}},
	{Name: "all other nodes cordoned", Seed: 50, Pool: with(func(p *Pool) { p.Others = "cordoned" }), Asks: []Ask{{Do: "capture", Exit: 3}}, Cannot: "NoWorkbench"},
	{Name: "all other nodes protected by their owners", Seed: 51, Pool: with(func(p *Pool) { p.Others = "protected" }), Asks: []Ask{{Do: "capture"}}},
	{Name: "rollback by name, and a capture after it", Seed: 52, Pool: usual, Asks: []Ask{{Do: "rollback", To: "1999.12.18"}, {Do: "capture"}}},
	{Name: "five days, a history of two", Seed: 53, Pool: Pool{Instances: 2}, Asks: []Ask{{Do: "capture", History: 2}, {Do: "wait", For: day}, {Do: "capture", History: 2},
		{Do: "wait", For: day}, {Do: "capture", History: 2}, {Do: "wait", For: day}, {Do: "capture", Node: 1, History: 2}, {Do: "wait", For: day}, {Do: "capture", History: 2}}},
	{Name: "killed, and another donor", Seed: 54, Pool: usual, Asks: []Ask{{Do: "capture", Once: true}, {Do: "capture", Node: 1}},
		Happen: []Event{{At: "azure PUT snapshots/snapshot_pool1", What: "kill after"}}},
	{Name: "killed while the donor is stopped, and another donor", Seed: 55, Pool: usual, Asks: []Ask{{Do: "capture", Once: true}, {Do: "capture", Node: 1}},
		Happen: []Event{{At: "azure POST virtualMachineScaleSets/pool1/virtualMachines/0/powerOff", What: "kill after"}}},
	{Name: "killed, two days later", Seed: 56, Pool: usual, Asks: []Ask{{Do: "capture", Once: true}, {Do: "wait", For: 2 * day}, {Do: "capture"}},
		Happen: []Event{{At: "azure PUT snapshots/snapshot_pool1_generalized", What: "kill after"}}},
	{Name: "killed, and a rollback", Seed: 57, Pool: usual, Asks: []Ask{{Do: "capture", Once: true}, {Do: "rollback"}},
		Happen: []Event{{At: "azure PATCH virtualMachineScaleSets/pool1", What: "kill after"}}},
	{Name: "killed twice", Seed: 58, Pool: usual, Asks: []Ask{{Do: "capture"}},
		Happen: []Event{{At: "azure PUT snapshots/snapshot_pool1", What: "kill after"}, {At: "azure PUT snapshots/snapshot_pool1_generalized", What: "kill before"}}},
	{Name: "interrupted, and another donor", Seed: 59, Pool: usual, Asks: []Ask{{Do: "capture", Once: true}, {Do: "capture", Node: 1}},
		Happen: []Event{{At: "azure PUT disks/disk_pool1_work", What: "interrupt"}}},
}

// setUpMore changes what there is by the pool's less usual settings.
func (w *world) setUpMore(settle func(string, fleet.ResourceID, string, any) error) error {
	p := w.story.Pool
	if p.Blocked {
		none := intstr.FromInt32(0)
		w.kube.Change("poddisruptionbudgets", workload, "db", func(o runtime.Object) { o.(*policyv1.PodDisruptionBudget).Spec.MaxUnavailable = &none })
	}
	for i, name := range w.nodeNames() {
		w.kube.Change("nodes", "", name, func(o runtime.Object) {
			n := o.(*corev1.Node)
			n.Spec.Unschedulable = n.Spec.Unschedulable || i > 0 && p.Others == "cordoned"
			if p.Spelling == "lower" {
				n.Spec.ProviderID = "azure://" + strings.ToLower(n.Spec.ProviderID[len("azure://"):])
			}
			if i > 0 && p.Others == "protected" {
				n.Annotations = maps.Clone(n.Annotations)
				n.Annotations[fleet.AnnotationScaleDownDisabled] = "true"
			}
		})
		if p.Others == "protected" {
			w.kube.Change("machines", workload, name, func(o runtime.Object) {
				o.(*unstructured.Unstructured).SetAnnotations(map[string]string{"cluster.x-k8s.io/skip-remediation": ""})
			})
			protect := object{"location": location, "properties": object{"protectionPolicy": object{"protectFromScaleIn": true, "protectFromScaleSetActions": true}}}
			if err := settle(http.MethodPut, w.instance(i), computeAPI, protect); err != nil {
				return err
			}
		}
		if p.Volumes {
			disk := w.pool.In("disks", fmt.Sprintf("%s%d", volumePrefix, i))
			err := settle(http.MethodPut, disk, disksAPI, object{"location": location, "sku": object{"name": "Premium_LRS"},
				"properties": object{"creationData": object{"createOption": "Empty"}, "diskSizeGB": 4}})
			if err == nil {
				err = settle(http.MethodPost, w.instance(i)+"/attachDetachDataDisks", computeAPI, object{"dataDisksToAttach": []object{{"diskId": string(disk), "lun": 0}}})
			}
			if err != nil {
				return err
			}
		}
	}
	synctest.Wait()
	return nil
}

// volumePrefix begins the names of disks that others attach.
const volumePrefix = "pvc-"

func ofOthers(v azsim.Volume) bool { return strings.Contains(string(v), "/disks/"+volumePrefix) }

// checkOthers: what others made is there at the end.
func (w *world) checkOthers() {
	p := w.story.Pool
	if p.Foreign && w.versions()[low(w.oldest)] == nil && !w.isTouched(string(w.oldest)) {
		w.broken(6, "the version %s of others is gone", w.oldest)
	}
	if !p.Volumes {
		return
	}
	touched := make([]bool, p.Instances)
	for i := range touched {
		touched[i] = w.isTouched(string(w.instance(i)))
	}
	w.azure.View(func(v *azsim.View) {
		for i := range touched {
			vm, ok := v.Get(string(w.instance(i))).(*armcompute.VirtualMachineScaleSetVM)
			if touched[i] || ok && slices.ContainsFunc(vm.Properties.StorageProfile.DataDisks, func(d *armcompute.DataDisk) bool {
				return *d.Lun == 0 && d.ManagedDisk != nil && ofOthers(azsim.Volume(low(*d.ManagedDisk.ID)))
			}) {
				continue
			}
			w.violations = append(w.violations, fmt.Sprintf("invariant 3: the disk of others is not attached to %s", w.instance(i)))
		}
	})
}
