package simulate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
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
	"github.com/ortet/ortet/internal/wire"
)

// A kind is what Azure has added to scale sets, or to what a capture makes of them.
type kind struct {
	set   func(w *world, body object) // changes the body of the pool's PUT; may be nil
	setUp func(w *world)              // changes the world once its nodes are there; may be nil
	keys  string                      // type of the disk encryption set that all has
	// elsewhere are folders of the nodes that lie on another disk than the root.
	elsewhere []wire.ElsewhereFolder
}

const (
	setExtension = "Microsoft.Azure.Security"
	undeletable  = "soft delete, and today's build failed" // a Failed version stays in such a gallery
)

var poolKinds = map[string]kind{
	"disk encryption": {setUp: func(w *world) {
		w.patchDisk(object{"encryptionSettingsCollection": object{"enabled": true, "encryptionSettingsVersion": "1.1"}})
	}},
	"disk encryption's extension": {set: func(_ *world, body object) {
		list := profileIn(body)["extensionProfile"].(object)
		list["extensions"] = append(list["extensions"].([]object), object{"name": "ade", "properties": object{"publisher": setExtension,
			"type": "AzureDiskEncryptionForLinux", "typeHandlerVersion": "1.1"}})
	}},
	"store on another disk":   {elsewhere: []wire.ElsewhereFolder{{Path: "/mnt/containerd", Bytes: 3 << 30}}},
	"kubelet on another disk": {elsewhere: []wire.ElsewhereFolder{{Path: "/var/lib/kubelet", Bytes: 1 << 30, Kubelet: true}}},
	"own keys":                ownKeys(nil),
	"own keys of before":      ownKeys(func(w *world) { w.makeKeys("newer", "EncryptionAtRestWithCustomerKey"); w.patchModelKeys("newer") }),
	"own keys that are gone":  ownKeys(func(w *world) { w.make(http.MethodDelete, w.keys(), disksAPI, nil) }),
	"own keys without vault":  ownKeys((*world).loseVault),
	"own keys that may not be read": ownKeys(func(w *world) {
		if err := w.azure.AddFault(azsim.Fault{Action: "Microsoft.Compute/diskEncryptionSets/read", Effect: azsim.EffectError, Status: http.StatusForbidden,
			Code: "AuthorizationFailed", Message: "The client does not have authorization to perform action 'Microsoft.Compute/diskEncryptionSets/read'."}); err != nil {
			w.broken(0, "cannot refuse to read the set: %v", err)
		}
	}),
	"own keys for confidential VMs": ownKeys(func(w *world) {
		w.makeKeys("secret", "ConfidentialVmEncryptedWithCustomerKey")
		w.azure.View(func(v *azsim.View) {
			secret := string(w.pool.In("diskEncryptionSets", "secret"))
			v.Get(string(w.donorDisk())).(*armcompute.Disk).Properties.Encryption.DiskEncryptionSetID = &secret
		})
		w.patchModelKeys("secret")
	}),
	"own keys of another region": ownKeys(func(w *world) {
		w.azure.View(func(v *azsim.View) { v.Get(string(w.keys())).(object)["location"] = "northeurope" })
	}),
	"own and the platform's keys": ownKeysOf("EncryptionAtRestWithPlatformAndCustomerKeys", nil),
	"generation 1": {set: func(_ *world, body object) {
		if image := profileIn(body)["storageProfile"].(object)["imageReference"].(object); image["id"] == nil {
			image["sku"] = "server-gen1"
		}
	}},
	// Earlier versions are of generation 1, and the model and all machines are of generation 2 by now.
	"changed kind": {setUp: func(w *world) {
		w.azure.View(func(v *azsim.View) {
			one := armcompute.HyperVGenerationV1
			d := v.Get(string(w.names.Definition)).(*armcompute.GalleryImage)
			d.Properties.HyperVGeneration, d.Properties.Features = &one, nil
		})
	}},
	"resilient creation": {set: func(_ *world, body object) {
		body["properties"].(object)["resiliencyPolicy"] = object{"resilientVMCreationPolicy": object{"enabled": true}, "resilientVMDeletionPolicy": object{"enabled": true}}
	}},
	"hibernation": {set: func(_ *world, body object) {
		body["properties"].(object)["additionalCapabilities"] = object{"hibernationEnabled": true}
	}},
	"hibernation later": {setUp: func(w *world) {
		w.patchDisk(object{"supportsHibernation": true})
		w.azure.View(func(v *azsim.View) {
			on := true
			v.Get(string(w.pool)).(*armcompute.VirtualMachineScaleSet).Properties.AdditionalCapabilities = &armcompute.AdditionalCapabilities{HibernationEnabled: &on}
		})
	}},
	"rooms": {set: func(w *world, body object) {
		group := w.pool.In("proximityPlacementGroups", "near")
		w.make(http.MethodPut, group, computeAPI, object{"location": location, "properties": object{}})
		body["properties"].(object)["proximityPlacementGroup"] = object{"id": string(group)}
		body["properties"].(object)["hostGroup"] = object{"id": string(w.pool.In("hostGroups", "hosts"))}
		profileIn(body)["capacityReservation"] = object{"capacityReservationGroup": object{"id": string(w.pool.In("capacityReservationGroups", "room"))}}
	}},
	"soft delete": {setUp: (*world).deleteSoftly},
	"soft delete of today's": {setUp: func(w *world) {
		w.makeTodays()
		w.deleteSoftly()
		w.make(http.MethodDelete, w.todays(), galleryAPI, nil)
	}},
	undeletable: {setUp: func(w *world) {
		w.makeTodays()
		w.deleteSoftly()
		w.azure.View(func(v *azsim.View) {
			failed := armcompute.GalleryProvisioningStateFailed
			v.Get(string(w.todays())).(*armcompute.GalleryImageVersion).Properties.ProvisioningState = &failed
		})
	}},
	"standby pool": {setUp: func(w *world) {
		w.make(http.MethodPut, w.pool.Group()+"/providers/Microsoft.StandbyPool/standbyVirtualMachinePools/warm", "2025-03-01", object{"location": location,
			"properties": object{"attachedVirtualMachineScaleSetId": string(w.pool), "virtualMachineState": "Deallocated", "elasticityProfile": object{"maxReadyCapacity": 5}}})
	}},
	"mix": {set: func(_ *world, body object) { setMix(body, "Standard_D2s_v5", "Standard_D4s_v5") }},
	"mix that does not fit": {set: func(_ *world, body object) { setMix(body, "Standard_D2s_v5") }, setUp: func(w *world) {
		body := object{"properties": object{"virtualMachineProfile": object{"storageProfile": object{"imageReference": object{
			"publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": "server-gen1", "version": "latest"}}}}}
		setMix(body, "Standard_D2s_v5", "Standard_D2_v2")
		w.make(http.MethodPatch, w.pool, computeAPI, body)
	}},
}

// ownKeys has disks with a set of their owner's, which a policy requires once they are there.
func ownKeys(then func(w *world)) kind { return ownKeysOf("EncryptionAtRestWithCustomerKey", then) }

func ownKeysOf(kindOf string, then func(w *world)) kind {
	return kind{keys: kindOf, set: func(w *world, body object) {
		profileIn(body)["storageProfile"].(object)["osDisk"] = object{"createOption": "FromImage",
			"managedDisk": object{"storageAccountType": "Premium_LRS", "diskEncryptionSet": object{"id": string(w.keys())}}}
	}, setUp: func(w *world) {
		w.azure.RequireOwnKeys(true)
		if then != nil {
			then(w)
		}
	}}
}

// keys is the disk encryption set of a pool with own keys.
func (w *world) keys() fleet.ResourceID { return w.pool.In("diskEncryptionSets", "keys") }

func (w *world) loseVault() {
	w.azure.View(func(v *azsim.View) {
		v.Get(string(w.keys())).(object)["properties"].(object)["autoKeyRotationError"] = object{"code": "KeyVaultNotFound", "message": "The vault keys was not found."}
	})
}

func (w *world) makeKeys(name, kindOf string) {
	w.make(http.MethodPut, w.pool.In("diskEncryptionSets", name), disksAPI, object{"location": location, "identity": object{"type": "SystemAssigned"},
		"properties": object{"encryptionType": kindOf, "activeKey": object{"keyUrl": "https://keys.vault.azure.net/keys/disks/1"}}})
}

func (w *world) patchModelKeys(name string) {
	w.make(http.MethodPatch, w.pool, computeAPI, object{"properties": object{"virtualMachineProfile": object{"storageProfile": object{"osDisk": object{
		"managedDisk": object{"diskEncryptionSet": object{"id": string(w.pool.In("diskEncryptionSets", name))}}}}}}})
}

// encrypts gives what others made before the pool's set, where it has own keys.
func (w *world) encrypts(properties object) {
	kindOf := poolKinds[w.story.Pool.Kind].keys
	if kindOf == "" {
		return
	}
	if profile, isVersion := properties["publishingProfile"].(object); isVersion {
		profile["targetRegions"] = []object{{"name": location, "regionalReplicaCount": 1, "encryption": object{"osDiskImage": object{"diskEncryptionSetId": string(w.keys())}}}}
	} else if properties["creationData"] != nil {
		properties["encryption"] = object{"diskEncryptionSetId": string(w.keys()), "type": kindOf}
	}
}

// watchKeys looks every second at all that holds bytes of a disk, and returns what was not
// encrypted with the set, and the names of all.
func (w *world) watchKeys() (seen func() (foreign, of []string)) {
	lacks, had := map[string]bool{}, map[string]bool{}
	for n := range 3600 {
		w.after(time.Duration(n)*time.Second, func() {
			w.azure.View(func(v *azsim.View) {
				for _, typ := range []string{"disks", "snapshots", "galleries/images/versions"} {
					v.Each("Microsoft.Compute/"+typ, func(id string, body any) {
						text, _ := json.Marshal(body)
						if had[fleet.ResourceID(id).Name()] = true; !strings.Contains(string(text), `"diskEncryptionSetId":"`+string(w.keys())) {
							lacks[id+": "+string(text)] = true
						}
					})
				}
			})
		})
	}
	return func() ([]string, []string) { return slices.Sorted(maps.Keys(lacks)), slices.Sorted(maps.Keys(had)) }
}

// setMix gives a Flexible set an instance mix whose sizes take turns.
func setMix(body object, sizes ...string) {
	var all []object
	for _, size := range sizes {
		all = append(all, object{"name": size})
	}
	sku, _ := body["sku"].(object)
	body["sku"] = object{"name": "Mix"}
	if n, given := sku["capacity"]; given {
		body["sku"].(object)["capacity"] = n
	}
	body["properties"].(object)["skuProfile"] = object{"vmSizes": all, "allocationStrategy": "CapacityOptimized"}
}

func profileIn(body object) object {
	return body["properties"].(object)["virtualMachineProfile"].(object)
}

// counted returns how many requests to Azure there were whose names have the text.
func (w *world) counted(text string) (n int) {
	w.locked(func() {
		for name, times := range w.counts {
			if strings.HasPrefix(name, "azure ") && strings.Contains(name, text) {
				n += times
			}
		}
	})
	return n
}

// stored is what azsim has of an id, as JSON.
func (w *world) stored(id fleet.ResourceID) (body string) {
	w.azure.View(func(v *azsim.View) {
		if text, err := json.Marshal(v.Get(string(id))); err == nil && string(text) != "null" {
			body = string(text)
		}
	})
	return body
}

func (w *world) deleteSoftly() {
	w.make(http.MethodPatch, w.names.Gallery, galleryAPI, object{"properties": object{"softDeletePolicy": object{"isSoftDeleteEnabled": true}}})
}

// todays is the version that a capture of today makes first, and makeTodays what another made of that name.
func (w *world) todays() fleet.ResourceID {
	return w.names.Definition.Child("versions", plan.VersionName(time.Now(), false))
}

func (w *world) makeTodays() {
	w.make(http.MethodPut, w.todays(), galleryAPI, object{"location": location, "tags": object{fleet.TagCapture: "earlier"},
		"properties": object{"storageProfile": object{"source": object{"id": string(w.names.Definition.Child("versions", "1999.12.25"))}}}})
}

// anotherName reports what is wrong where the version of today should have another name than the day's.
func anotherName(w *world) string {
	name := w.processes[0].capture.Version.Name()
	if w.versions()[low(w.names.Definition.Child("versions", name))] == nil || !plan.AgainNamed(name) {
		return fmt.Sprintf("the version is %s, of %v", name, slices.Sorted(maps.Keys(w.versions())))
	}
	return ""
}

// donorDisk is the id of the donor's OS disk.
func (w *world) donorDisk() fleet.ResourceID {
	return fleet.ResourceID(w.computerOf(w.nodeName(0)).OSDisk)
}

func (w *world) patchDisk(properties object) {
	w.make(http.MethodPatch, w.donorDisk(), disksAPI, object{"properties": properties})
}

// A poolOfToday is a capture of a pool of a kind, from its plan to its result.
type poolOfToday struct {
	name, kind string
	flexible   bool
	change     func(*Pool)
	ask        Ask
	plan       []string // what the plan says, as -o json shows it
	silent     []string // what it does not say
	ends       string   // code of the refusal; "" ends well
	keys       bool     // each disk, snapshot and version is encrypted with the pool's set
	canary     string   // what is wrong with the scale set of the canary, as a pattern of its JSON
	after      func(w *world) string
}

var poolsOfToday = []poolOfToday{
	{name: "Azure Disk Encryption", kind: "disk encryption", plan: []string{`"code":"DiskEncrypted"`}, ends: "DiskEncrypted"},
	{name: "Azure Disk Encryption by extension", kind: "disk encryption's extension", plan: []string{`"code":"DiskEncrypted"`, "ade (AzureDiskEncryptionForLinux)"}, ends: "DiskEncrypted"},
	{name: "own keys", kind: "own keys", keys: true},
	{name: "own keys and the platform's", kind: "own and the platform's keys", keys: true},
	{name: "own keys of a Flexible pool, with a canary", kind: "own keys", flexible: true, change: func(p *Pool) { p.Extensions = nil }, ask: Ask{Canary: 1}, keys: true},
	{name: "own keys while the node stays in service", kind: "own keys", ask: Ask{Online: true, Grow: 1}, keys: true},
	{name: "own keys, and back", kind: "own keys", keys: true, after: func(w *world) string {
		w.pursue(1, Ask{Do: "rollback"})
		if p := w.processes[len(w.processes)-1]; p.err != nil {
			return fmt.Sprintf("the rollback ended with %v", p.err)
		}
		return ""
	}},
	{name: "own keys that the model has no more", kind: "own keys of before", ends: "OwnKeys",
		plan: []string{`"code":"OwnKeys"`, "its model makes disks with the disk encryption set newer, and the image of this disk would need the set keys"}},
	{name: "own keys that the model has no more, and the version is only published", kind: "own keys of before", ask: Ask{PublishOnly: true}, keys: true},
	{name: "own keys, and their set is deleted", kind: "own keys that are gone", ends: "OwnKeys", plan: []string{`"code":"OwnKeys"`, "the disk encryption set does not exist"}},
	{name: "own keys, and their vault is gone", kind: "own keys without vault", ends: "OwnKeys",
		plan: []string{`"code":"OwnKeys"`, "Azure cannot use the key of the disk encryption set: KeyVaultNotFound: The vault keys was not found."}},
	{name: "own keys, and no right to read the set", kind: "own keys that may not be read", ends: "Unreadable",
		plan: []string{`"code":"Unreadable"`, "diskEncryptionSets/read", "grant these credentials the right to read it"}},
	{name: "own keys of confidential VMs", kind: "own keys for confidential VMs", ends: "OwnKeys", plan: []string{"the disks of confidential VMs alone"}},
	{name: "own keys of another region", kind: "own keys of another region", ends: "OwnKeys", plan: []string{"the disk encryption set is in northeurope"}},
	{name: "the platform's keys, and the set is never asked for", after: func(w *world) string {
		return strings.Repeat("a set was read", w.counted("diskEncryptionSets"))
	}},
	{name: "image store on another disk", kind: "store on another disk", ask: Ask{Baked: true},
		plan: []string{"/mnt/containerd lies on another disk than the root of the donor: what is there (3072 MiB are used on that disk) is not in the image"}},
	{name: "kubelet's folder on another disk", kind: "kubelet on another disk", plan: []string{"/var/lib/kubelet lies on another disk"}},
	{name: "kubelet's folder on another disk, and nothing makes it again", kind: "kubelet on another disk", ask: Ask{Baked: true},
		plan: []string{`"code":"KubeletElsewhere"`, "with --bootstrap baked nothing makes it again"}, ends: "KubeletElsewhere"},
	{name: "instance mix", kind: "mix", flexible: true, ask: Ask{Grow: 2, Canary: 1},
		plan: []string{"1 × Standard_D2s_v5 or Standard_D4s_v5", "2 or 4 vCPUs", "standardDSv5Family and"}, after: func(w *world) string {
			if n := w.counted("skus"); n != 1 {
				return fmt.Sprintf("the catalogue of sizes was read %d times", n)
			}
			return ""
		}},
	{name: "resilient creation", kind: "resilient creation", ask: Ask{Canary: 1}, canary: `"resilientVMCreationPolicy"`},
	{name: "hibernation", kind: "hibernation", change: func(p *Pool) { p.Versions = 0 }, ask: Ask{Grow: 1}, after: func(w *world) string {
		if text := w.stored(w.names.Definition); !strings.Contains(text, `{"name":"IsHibernateSupported","value":"True"}`) {
			return "the definition is " + text
		}
		return ""
	}},
	{name: "hibernation with an older definition", kind: "hibernation later", plan: []string{"another image definition is created, kamino-pool1-prototype-v2-hibernate", "support of hibernation is missing"}, after: func(w *world) string {
		if text := w.stored(w.names.Definition + "-v2-hibernate"); !strings.Contains(text, `{"name":"IsHibernateSupported","value":"True"}`) {
			return "the definition is " + text
		}
		return ""
	}},
	{name: "rooms that a canary and new nodes take", kind: "rooms", ask: Ask{Canary: 1, Grow: 1},
		plan: []string{"the canary's clones and the new nodes take room in the pool's capacity reservation group room, dedicated host group hosts, proximity placement group near"}},
	{name: "rooms that a plain capture leaves alone", kind: "rooms", silent: []string{"take room"}},
	{name: "soft delete of the gallery", kind: "soft delete", change: func(p *Pool) { p.Versions = 4 }, ask: Ask{History: 3},
		plan: []string{"gallery SIG_azsim deletes softly: what is pruned (1999.12.11, 1999.12.04) can be recovered"}},
	{name: "soft delete, and the name is taken by a deleted version", kind: "soft delete of today's", after: anotherName},
	{name: "soft delete, and the failed version of today stays", kind: undeletable, after: anotherName},
	{name: "soft delete, and nothing is pruned", kind: "soft delete", silent: []string{"deletes softly"}},
	{name: "replicas of a large pool", change: func(p *Pool) { p.Instances, p.Versions = 151, 0 }, plan: []string{"the version gets 4 replicas"}, after: func(w *world) string {
		for id := range w.versions() {
			if text := w.stored(fleet.ResourceID(id)); !strings.Contains(text, `"regionalReplicaCount":4`) {
				return "the version is " + text
			}
		}
		return ""
	}},
	{name: "standby pool", kind: "standby pool", flexible: true, change: func(p *Pool) { p.Extensions = nil },
		plan: []string{"standby pool warm holds up to 5 machines (Deallocated)", "az standby-vm-pool update --name warm"}, after: func(w *world) string {
			if n := w.counted("standbyVirtualMachinePools"); n != 1 {
				return fmt.Sprintf("standby pools were listed %d times", n)
			}
			w.pursue(1, Ask{Do: "rollback"})
			w.pursue(2, Ask{Do: "watch", For: time.Minute, Once: true})
			back, seen := w.processes[len(w.processes)-2], w.processes[len(w.processes)-1]
			for _, notes := range [][]string{back.rollback.Notes, seen.watch.Notes} {
				if !strings.Contains(strings.Join(notes, "\n"), "standby pool warm") {
					return fmt.Sprintf("rollback and watch note %q and %q (%v)", back.rollback.Notes, seen.watch.Notes, seen.err)
				}
			}
			return ""
		}},
	{name: "no standby pool", flexible: true, silent: []string{"standby"}},
	{name: "a Uniform pool has no standby pool", silent: []string{"standby"}, after: func(w *world) string {
		return strings.Repeat("standby pools were listed", w.counted("standbyVirtualMachinePools"))
	}},
	{name: "instance mix with a size that cannot boot the disk", kind: "mix that does not fit", flexible: true, change: func(p *Pool) { p.Versions = 0 },
		plan: []string{`"code":"MixedPool"`, "new nodes may have size Standard_D2_v2", "take that size out of the instance mix"}, ends: "MixedPool"},
}

// TestPoolsOfToday plans and captures a pool of each kind. A refused capture changes nothing,
// which the world's judge sees to.
func TestPoolsOfToday(t *testing.T) {
	for _, row := range poolsOfToday {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				row.ask.Do = "capture"
				if row.ends != "" {
					row.ask.Exit = 3
				}
				pool := Pool{Instances: 3, Versions: 2, Pods: 1, Extensions: []string{"monitor"}, Kind: row.kind, Flexible: row.flexible}
				if row.change != nil {
					row.change(&pool)
				}
				w := newWorld(Story{Seed: 1, Pool: pool, Asks: []Ask{row.ask}, Cannot: row.ends})
				defer w.close()
				planned := w.planOf(t, row.ask)
				for _, text := range row.plan {
					if !strings.Contains(planned, text) {
						t.Errorf("the plan does not say %q: %s", text, planned)
					}
				}
				for _, text := range row.silent {
					if strings.Contains(planned, text) {
						t.Errorf("the plan says %q: %s", text, planned)
					}
				}
				canary := w.watchCanary()
				keys := func() (foreign, of []string) { return nil, nil }
				if row.keys {
					keys = w.watchKeys()
				}
				w.act()
				// Three disks, two snapshots, the copy on the workbench and three versions at least.
				if foreign, of := keys(); row.keys && (len(foreign) > 0 || len(of) < 9) {
					t.Errorf("of %q, without the set: %s", of, strings.Join(foreign, "\n"))
				} else if row.keys {
					t.Logf("with the set %s: %s", w.keys(), strings.Join(of, ", "))
				}
				if body := canary(); row.ask.Canary > 0 && body == "" || row.canary != "" && strings.Contains(body, row.canary) {
					t.Errorf("the canary was %s", body)
				}
				if row.after != nil && len(w.violations) == 0 {
					if wrong := row.after(w); wrong != "" {
						t.Error(wrong)
					}
				}
				if len(w.violations) > 0 {
					t.Error(strings.Join(slices.Concat(w.violations, w.lines), "\n"))
				}
			})
		})
	}
}

// TestPolicyInTheMiddle begins to require own keys at each write of a capture of a pool without, and
// takes the key from one with them: it says why, undoes what it did, and leaves the model alone.
func TestPolicyInTheMiddle(t *testing.T) {
	playBoth := func(s Story) {
		for _, s := range []Story{s, onFlexible(s)} {
			if r := play(t, s); len(r.violations)+len(r.missed) > 0 {
				t.Error(explain(s, r))
			}
		}
	}
	for _, request := range []string{putSnapshot, "azure PUT disks/disk_pool1_work", "azure PUT snapshots/snapshot_pool1_generalized", putVersion, patchModel} {
		for _, ask := range []Ask{{}, {Online: true}} {
			ask.Do, ask.Once, ask.Exit = "capture", true, 1
			s := Story{Name: "policy at " + request, Seed: 1, Pool: usual, Asks: []Ask{ask}, Happen: at(request, 1, "own keys required"),
				Cannot: "an Azure Policy forbids this: ask its owner for an exemption"}
			playBoth(s)
		}
	}
	for what, says := range map[string]string{"set deleted": "diskEncryptionSets/keys", "vault gone": "KeyVaultAccessForbidden: Unable to access key vault resource"} {
		playBoth(Story{Name: what, Seed: 1, Pool: with(func(p *Pool) { p.Kind = "own keys" }), Asks: []Ask{{Do: "capture", Once: true, Exit: 1}},
			Happen: at(putSnapshot, 1, what), Cannot: says})
	}
}

// watchCanary looks for the canary's scale set, and returns what shows how that was.
func (w *world) watchCanary() (seen func() string) {
	body := ""
	for n := range 400 {
		w.after(time.Duration(n)*5*time.Second, func() {
			body = cmp.Or(w.stored(fleet.CanaryOf(w.pool)), body)
		})
	}
	return func() string { return body }
}

// planOf is a dry run's plan as JSON.
func (w *world) planOf(t *testing.T, ask Ask) string {
	t.Helper()
	config, err := w.config("plan", w.azure.Transport(), w.kube, nil)
	if err != nil {
		t.Fatal(err)
	}
	q := capture.Request{Node: w.nodeName(0), NewNodes: ask.Grow, Canary: ask.Canary, History: ask.History, Online: ask.Online, PublishOnly: ask.PublishOnly}
	if ask.Baked {
		q.Bootstrap = plan.BootstrapBaked
	}
	p, err := capture.New(config).Plan(w.ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
