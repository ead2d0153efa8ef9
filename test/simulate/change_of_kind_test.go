package simulate

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/rollback"
	"github.com/ortet/ortet/internal/workflow"
)

// ofGeneration gives the pool's model the Marketplace image, size and security type of a generation.
func (w *world) ofGeneration(t *testing.T, two bool) {
	t.Helper()
	size, sku, security := "Standard_D2s_v5", "server-gen1", object{"securityType": "Standard"}
	if two {
		size, sku = "Standard_D2s_v6", "server"
		security = object{"securityType": "TrustedLaunch", "uefiSettings": object{"secureBootEnabled": true, "vTpmEnabled": true}}
	}
	if err := w.request(http.MethodPatch, w.pool, computeAPI, object{"sku": object{"name": size, "tier": "Standard"}, "properties": object{"virtualMachineProfile": object{
		"securityProfile": security, "storageProfile": object{"imageReference": object{"id": nil, "publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": sku, "version": "latest"}}}}}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Minute)
}

// addNode returns the name of a node that is made from the model.
func (w *world) addNode(t *testing.T, size string) string {
	t.Helper()
	before := w.nodesOf(w.pool)
	if err := w.request(http.MethodPatch, w.pool, computeAPI, object{"sku": object{"name": size, "tier": "Standard", "capacity": w.modelNow().capacity + 1}}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Minute)
	for _, name := range w.nodesOf(w.pool) {
		if !slices.Contains(before, name) {
			return name
		}
	}
	t.Fatal("no node was added")
	return ""
}

// definitions are the gallery's, with publisher, offer and SKU.
func (w *world) definitions() (all []string) {
	w.azure.View(func(v *azsim.View) {
		v.Each("Microsoft.Compute/galleries/images", func(id string, body any) {
			d := body.(*armcompute.GalleryImage)
			features := []string{string(*d.Properties.HyperVGeneration)}
			for _, f := range d.Properties.Features {
				features = append(features, *f.Name+"="+*f.Value)
			}
			tag := ""
			if d.Tags[fleet.TagNamespace] != nil {
				tag = *d.Tags[fleet.TagNamespace]
			}
			all = append(all, fleet.ResourceID(id).Name()+" SKU "+*d.Properties.Identifier.SKU+" namespace "+tag+" "+strings.Join(features, " "))
		})
	})
	slices.Sort(all)
	return all
}

// generationOne is a pool of generation 1 that was never captured.
var generationOne = with(func(p *Pool) { p.Versions, p.Kind = 0, "generation 1" })

// TestPoolThatChangesItsKind: a pool goes from generation 1 to generation 2 with Trusted Launch and
// NVMe, and back. Each kind has its definition, and a rollback names what cannot boot.
func TestPoolThatChangesItsKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Name: t.Name(), Seed: 1, Pool: generationOne})
		defer w.close()
		config, _ := w.of(t, namespace)
		captures, rollbacks := capture.New(config), rollback.New(config)
		makes := func(node, definition string, notes ...string) fleet.ResourceID {
			t.Helper()
			q := capture.Request{Node: node, Again: true}
			p, err := captures.Plan(t.Context(), q)
			if err != nil || len(p.Problems) > 0 {
				t.Fatalf("the plan for %s: %v, %v\n%s", node, err, p.Problems, strings.Join(w.lines, "\n"))
			}
			for _, note := range notes {
				if !strings.Contains(strings.Join(p.Notes, "\n"), note) {
					t.Errorf("the plan does not say %q: %q", note, p.Notes)
				}
			}
			if created := strings.Contains(strings.Join(p.Notes, "\n"), "another image definition is created"); created != (len(notes) > 0) {
				t.Errorf("the plan says: %q", p.Notes)
			}
			r, err := captures.Capture(t.Context(), q)
			if err != nil || r.Version.Parent().Name() != definition || !fleet.ResourceID(w.imageNow()).Equal(r.Version) {
				t.Fatalf("a capture of %s: %v, %s, and the model names %s", node, err, r.Version, w.imageNow())
			}
			t.Logf("capture %s: %s/%s; %q", node, definition, r.Version.Name(), p.Notes)
			for _, d := range w.definitions() {
				t.Logf("  definition %s", d)
			}
			time.Sleep(time.Hour)
			return r.Version
		}
		says := func(to string, want ...string) {
			t.Helper()
			p, err := rollbacks.Plan(t.Context(), rollback.Request{Pool: w.pool, To: to, WithoutLearned: true})
			text := cmp.Or(p.Version.Name(), "what the model was before its capture; ")
			if len(p.Problems) > 0 {
				text = ""
			}
			for _, x := range p.Problems {
				text += x.Code + ": " + x.What + "; " + x.WayOut
			}
			t.Logf("ortet rollback --to %q: %s", to, text)
			for _, s := range want {
				if err != nil || !strings.Contains(text, s) {
					t.Errorf("a rollback to %q says %q, not %q: %v", to, text, s, err)
				}
			}
		}
		const first, second = "kamino-pool1-prototype", "kamino-pool1-prototype-v2-tl-nvme-hibernate"
		one := makes(w.nodeName(0), first)
		says(plan.Previous)

		w.ofGeneration(t, true)
		t.Log("the model has generation 2, Trusted Launch and Standard_D2s_v6")
		says(plan.Previous, "OtherKind: version "+one.Name()+" of "+first+" does not boot with the model's size Standard_D2s_v6: the size does not boot generation V1")
		node := w.addNode(t, "Standard_D2s_v6")
		if _, err := captures.Capture(t.Context(), capture.Request{Node: w.nodeName(0), Again: true}); !workflow.RefusedFor(err, "MixedPool") || !workflow.RefusedFor(err, "OlderKind") {
			t.Errorf("a capture of a node of generation 1: %v", err)
		}
		two := makes(node, second, "another image definition is created, "+second, "the image definition's generation is V1, the donor needs V2",
			"security type is Standard, the donor needs TrustedLaunch", "disk controller is SCSI, the donor needs NVMe")
		says(plan.Previous, "OtherKind: version "+one.Name()+" of "+first, "size Standard_D2s_v6")
		says(plan.ToOriginal)
		three := makes(node, second)
		says(plan.Previous, two.Name())
		if r, err := rollbacks.Rollback(t.Context(), rollback.Request{Pool: w.pool, WithoutLearned: true}); err != nil || !r.To.Equal(two) || !fleet.ResourceID(w.imageNow()).Equal(two) {
			t.Errorf("a rollback within the kind: %v, to %s", err, r.To)
		}
		says(one.Name(), "OtherKind: version "+one.Name()+" of "+first)
		says(three.Name(), three.Name())

		w.ofGeneration(t, false)
		t.Log("the model has generation 1 and Standard_D2s_v5 again")
		says(plan.Previous, "OtherKind: version "+two.Name()+" of "+second+" does not boot with the model's security type Standard: the definition's is TrustedLaunch")
		says(one.Name(), one.Name())
		four := makes(w.addNode(t, "Standard_D2s_v5"), first)
		says(plan.Previous, "OtherKind: version "+two.Name()+" of "+second)
		if r, err := rollbacks.Rollback(t.Context(), rollback.Request{Pool: w.pool, To: one.Name(), WithoutLearned: true}); err != nil || !fleet.ResourceID(w.imageNow()).Equal(one) {
			t.Errorf("a rollback to the first version: %v, to %s", err, r.To)
		}
		if all := w.definitions(); len(all) != 2 || !strings.HasPrefix(all[0], first+" SKU pool1 namespace "+namespace+" V1") || !strings.HasPrefix(all[1], second+" SKU pool1.v2-tl-nvme-hibernate namespace "+namespace+" V2") {
			t.Errorf("definitions %q", all)
		}
		all, err := captures.Status(t.Context(), []fleet.ResourceID{w.pool})
		if err != nil || len(all) != 1 || len(all[0].Versions) != 4 || !all[0].Versions[0].ID.Equal(four) || !all[0].Versions[2].ID.Equal(two) {
			t.Errorf("status: %v, %+v", err, all)
		}
		// The namespace's tag of each definition counts.
		w.make(http.MethodPatch, one.Parent().Parent().Child("images", second)+"/providers/Microsoft.Resources/tags/default", "2021-04-01",
			object{"operation": "Merge", "properties": object{"tags": object{fleet.TagNamespace: "team-b"}}})
		if _, err := rollbacks.Rollback(t.Context(), rollback.Request{Pool: w.pool, To: four.Name(), WithoutLearned: true}); !workflow.RefusedFor(err, "OtherNamespace") {
			t.Errorf("a rollback of a pool of whose definitions one names another namespace: %v", err)
		}
		if all, err := captures.Status(t.Context(), []fleet.ResourceID{w.pool}); err != nil || !strings.Contains(all[0].Elsewhere, "namespace team-b") {
			t.Errorf("status of a pool of whose definitions one names another namespace: %v, %q", err, all[0].Elsewhere)
		}
	})
}

// TestHistoryIsOfAllKinds: the history counts versions of both kinds, and what another kind's model or
// machine uses stays.
func TestHistoryIsOfAllKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Name: t.Name(), Seed: 1, Pool: generationOne})
		defer w.close()
		config, _ := w.of(t, namespace)
		captures := capture.New(config)
		makes := func(node string) (capture.Result, error) {
			time.Sleep(time.Hour)
			return captures.Capture(t.Context(), capture.Request{Node: node, Again: true, History: 2})
		}
		a, errA := makes(w.nodeName(0))
		b, errB := makes(w.nodeName(0))
		w.ofGeneration(t, true)
		node := w.addNode(t, "Standard_D2s_v6")
		c, errC := makes(node)
		d, errD := makes(node)
		if err := errors.Join(errA, errB, errC, errD); err != nil {
			t.Fatal(err)
		}
		var left []string
		for id := range w.versions() {
			left = append(left, fleet.ResourceID(id).Name())
		}
		slices.Sort(left)
		if want := []string{c.Version.Name(), d.Version.Name()}; !slices.Equal(left, want) || !slices.Equal(d.Pruned, []string{b.Version.Name()}) {
			t.Errorf("of %s, %s, %s and %s are left %q, the last pruned %q", a.Version.Name(), b.Version.Name(), c.Version.Name(), d.Version.Name(), left, d.Pruned)
		}
	})
}

// TestWatchPassesOverAnotherKind: a bad version is taken back to what the model was before its
// capture, since an older version does not boot on its machines.
func TestWatchPassesOverAnotherKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Name: t.Name(), Seed: 1, Pool: generationOne})
		defer w.close()
		config, _ := w.of(t, namespace)
		_, errA := capture.New(config).Capture(t.Context(), capture.Request{Node: w.nodeName(0)})
		w.ofGeneration(t, true)
		_, errB := capture.New(config).Capture(t.Context(), capture.Request{Node: w.addNode(t, "Standard_D2s_v6")})
		r, errC := rollback.New(config).Rollback(t.Context(), rollback.Request{Pool: w.pool, Unattended: true, WithoutLearned: true, Why: "its nodes fail"})
		if err := errors.Join(errA, errB, errC); err != nil || r.Original == nil || !strings.Contains(strings.Join(r.Notes, "\n"), "which the model's machines cannot boot") || w.imageNow() != "ubuntu-24_04-lts:latest" {
			t.Errorf("%v: to %s, %q, and the model names %s", err, r.To, r.Notes, w.imageNow())
		}
	})
}

// TestStrangersDefinition: what has the name of the pool's next definition, or its publisher, offer
// and SKU, and is not Ortet's, is named before anything changes.
func TestStrangersDefinition(t *testing.T) {
	for name, sku := range map[string]string{"kamino-pool1-prototype-v2-tl-nvme-hibernate": "ours", "ours": "pool1.v2-tl-nvme-hibernate"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(Story{Name: t.Name(), Seed: 1, Pool: generationOne})
			defer w.close()
			config, changes := w.of(t, namespace)
			captures := capture.New(config)
			if _, err := captures.Capture(t.Context(), capture.Request{Node: w.nodeName(0)}); err != nil {
				t.Fatal(err)
			}
			w.ofGeneration(t, true)
			q := capture.Request{Node: w.addNode(t, "Standard_D2s_v6")}
			id := w.names.Gallery.Child("images", name)
			w.make(http.MethodPut, id, galleryAPI, object{"location": location, "properties": object{"osType": "Linux", "osState": "Generalized", "hyperVGeneration": "V2",
				"identifier": object{"publisher": "VMSS-Prototype-Pattern", "offer": azsim.DefaultResourceGroup, "sku": sku}}})
			before := changes()
			_, err := captures.Capture(t.Context(), q)
			if !workflow.RefusedFor(err, "ForeignDefinition") || !strings.Contains(err.Error(), "az sig image-definition delete --ids "+string(id)) || changes() != before {
				t.Errorf("a stranger's definition %s with SKU %s: %v, %d changes", name, sku, err, changes()-before)
			}
			w.make(http.MethodDelete, id, galleryAPI, nil)
			time.Sleep(10 * time.Minute)
			if r, err := captures.Capture(t.Context(), q); err != nil || !strings.HasSuffix(string(r.Version.Parent()), "/kamino-pool1-prototype-v2-tl-nvme-hibernate") {
				t.Errorf("once it is deleted: %v, %s", err, r.Version)
			}
		})
	}
}

// TestChangeOfKindIsResumed: a capture that makes another definition, and is killed once that is
// there, goes on with it.
func TestChangeOfKindIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Name: t.Name(), Seed: 1, Pool: generationOne})
		defer w.close()
		config, _ := w.of(t, namespace)
		if _, err := capture.New(config).Capture(t.Context(), capture.Request{Node: w.nodeName(0)}); err != nil {
			t.Fatal(err)
		}
		w.ofGeneration(t, true)
		q := capture.Request{Node: w.addNode(t, "Standard_D2s_v6")}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stopped := config
		stopped.Report = func(e workflow.Event) {
			if e.Step == "snapshot" {
				cancel()
			}
		}
		_, interrupted := capture.New(stopped).Capture(ctx, q)
		r, err := capture.New(config).Capture(t.Context(), q)
		if interrupted == nil || err != nil || !r.Resumed || r.Version.Parent().Name() != "kamino-pool1-prototype-v2-tl-nvme-hibernate" || len(w.definitions()) != 2 {
			t.Errorf("interrupted: %v; then %v, resumed %t, %s, of %q", interrupted, err, r.Resumed, r.Version, w.definitions())
		}
	})
}

// TestSoftDeleteOfAnotherKind: where the day's name is that of a deleted version of the pool's second
// kind, the version is made under another name of that kind.
func TestSoftDeleteOfAnotherKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Story{Name: t.Name(), Seed: 1, Pool: with(func(p *Pool) { p.Kind = "changed kind" })})
		defer w.close()
		config, _ := w.of(t, namespace)
		image, q := w.imageNow(), capture.Request{Node: w.nodeName(0)}
		day, errA := capture.New(config).Capture(t.Context(), q)
		w.deleteSoftly()
		w.make(http.MethodPatch, w.pool, computeAPI, object{"properties": object{"virtualMachineProfile": object{"storageProfile": object{"imageReference": object{"id": image}}}}})
		w.make(http.MethodDelete, day.Version, galleryAPI, nil)
		time.Sleep(10 * time.Minute)
		other, errB := capture.New(config).Capture(t.Context(), q)
		if err := errors.Join(errA, errB); err != nil || !other.Version.Parent().Equal(day.Version.Parent()) || other.Version.Parent().Equal(w.names.Definition) || !plan.AgainNamed(other.Version.Name()) {
			t.Errorf("%v: first %s, then %s", err, day.Version, other.Version)
		}
	})
}
