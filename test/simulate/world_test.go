package simulate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/prove"
	"github.com/ortet/ortet/test/kubesim"
)

const (
	poolName    = "pool1"
	location    = "westeurope"
	namespace   = "ortet-system"
	workload    = "default" // namespace of the pool's pods
	ortetUser   = "ortet"
	ortetClient = "0e7e7000-0000-4000-8000-000000000001"
	computeAPI  = "2024-11-01"
	galleryAPI  = "2024-03-03"
	disksAPI    = "2025-01-02"
	versionType = "Microsoft.Compute/galleries/images/versions"
	memberType  = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines"
	setType     = "Microsoft.Compute/virtualMachineScaleSets"

	firstCustomData = "#cloud-config\nruncmd: [join, '>>>>???']\n" // its base64 has + and /
)

var tokenScope = policy.TokenRequestOptions{Scopes: []string{azsim.InProcess + "//.default"}}

type object = map[string]any

// A world is one Azure and one cluster, and what has been seen of them.
type world struct {
	applied []string                                     // tunings that ortet-node reports; nil: those that it was asked for
	bootOf  func(context.Context, fleet.Node) prove.Boot // what is seen of boots beside Nodes; nil: as commands see it
	console []byte                                       // of every machine

	story   Story
	azure   *azsim.Server
	kube    *kubesim.Server
	begin   time.Time
	earlier string          // name of the capture that left something
	ctx     context.Context // ends with the world
	end     context.CancelFunc
	pool    fleet.ResourceID
	names   plan.Names
	// otherPool is a scale set in the same cluster, "" for none.
	otherPool fleet.ResourceID
	badness   func(*disk) string // what is wrong with a version of this disk; nil: as the pool's Bad
	// oldest is the version that the first of the earlier captures made.
	oldest fleet.ResourceID

	mu            sync.Mutex
	lines         []string // trace
	requests      []request
	asked         []int
	violations    []string
	timers        []*time.Timer
	counts        map[string]int    // requests by name
	operations    map[string]string // operation id to the request that began it
	written       map[string]time.Time
	pending       []Event
	lasting       Event // a fault that meets each request of its name until then
	lastsUntil    time.Time
	happened      int
	chosenBy      string // who set the model's image last: others, or a process
	chosenAt      time.Time
	wasLive       map[string]bool      // versions, by lower-case id
	takenBack     map[string]time.Time // versions, when a watch replaced them in the model
	gone          map[string]time.Time // lower-case ids, when others deleted them
	aside         map[string]types.UID // nodes that others cordoned
	stops         map[string]string    // donor to the process that stopped it last
	lastEvent     time.Time
	down          map[string]time.Time // side to the end of its outage
	disks         map[azsim.Volume]*disk
	copies        map[string][]time.Time // of OS disks, by node
	computers     map[string]*computer   // by lower-case id
	logs          map[string][]byte      // of pods
	begun         map[types.UID]bool     // pods of ortet whose kubelet has seen them
	podLost       bool
	silent        bool // kubelets report no more that nothing has changed
	podNumber     int
	nodes         map[string]nodeState // as others have them
	touched       map[string]bool      // objects that neighbours changed, by name or lower-case id
	model         model                // as others have it
	otherModel    model                // the other pool's, as others have it
	grown         map[string]int64     // new nodes that captures added, by version
	prefixes      map[string]string    // of clones' host names, to the capture that made them
	hadThere      map[string]bool      // names of the pool's instances when the ask began
	canaries      map[string]bool      // nodes of scale sets that captures made
	fresh         []string             // nodes that were raised as donors, in this order
	ofK3s         map[string]string    // provider ids of Azure by those of k3s
	original      map[string]string    // extensions before the first capture
	beginning                          // of the ask
	unfinished    *beginning           // of a rollback or take-back that was killed; nil once a rollback or a capture has ended its record
	workbenches   map[string]bool
	members       []member           // of Flexible sets
	flushedAt     time.Time          // when a donor disk was, last
	foreign       []fleet.ResourceID // copies that others made under our names
	removed       map[string]bool    // nodes of deleted instances: whether they were Ready since a stop
	updatingSince time.Time          // since when the set has not been at rest; zero at rest
	membersRest   bool               // no instance of the pool is being made or deleted
	processes     []*process
	rivals        []*process
	rollouts
	open bool // a process was killed or ended with 4 or 5, and no later one ended with 0 or 1
}

func low[T ~string](id T) string { return strings.ToLower(string(id)) }

// hash returns a number that the seed and the words decide.
func (w *world) hash(words ...any) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintln(h, append(words, w.story.Seed)...) // never fails
	v := h.Sum64()
	v ^= v >> 32
	v *= 0xd6e8feb86659fd93
	return v ^ v>>32
}

func (w *world) between(least, most time.Duration, words ...any) time.Duration {
	return least + time.Duration(w.hash(words...)%uint64(most-least+1))
}

func newWorld(s Story) *world {
	w := &world{
		story: s, begin: time.Now(), pending: slices.Clone(s.Happen),
		counts: map[string]int{}, operations: map[string]string{}, written: map[string]time.Time{}, down: map[string]time.Time{},
		disks: map[azsim.Volume]*disk{}, copies: map[string][]time.Time{}, wasLive: map[string]bool{}, takenBack: map[string]time.Time{}, gone: map[string]time.Time{}, aside: map[string]types.UID{}, stops: map[string]string{}, computers: map[string]*computer{}, logs: map[string][]byte{}, begun: map[types.UID]bool{},
		nodes: map[string]nodeState{}, touched: map[string]bool{}, canaries: map[string]bool{}, prefixes: map[string]string{}, grown: map[string]int64{}, ofK3s: map[string]string{},
		workbenches: map[string]bool{}, removed: map[string]bool{},
		pool: "/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/" + azsim.DefaultResourceGroup + "/providers/" + setType + "/" + poolName,
	}
	w.names = plan.NamesOf(w.pool, "")
	w.ctx, w.end = context.WithCancel(context.Background())
	w.kube = &kubesim.Server{Machines: s.Pool.Machines, Log: w.log, Deleting: w.podDeleted, Ends: w.podEnds, OnRequest: w.podCreated}
	stale := slices.ContainsFunc(s.Happen, func(e Event) bool { return e.What == "list still has it" })
	w.azure = &azsim.Server{Seed: s.Seed, Substrate: (*machines)(w), KeepAnswers: stale, PageSize: s.Pool.PageSize, Budgets: s.Pool.Budgets,
		Principals: []azsim.Principal{
			{Name: "owner", ClientID: azsim.DefaultClientID, Roles: []azsim.Grant{{Role: "Owner"}}},
			{Name: ortetUser, ClientID: ortetClient, Roles: []azsim.Grant{{Role: "Ortet", Actions: []string{"*"}}}},
		},
		Profile: azsim.Profile{"version.create": {Min: 2 * time.Minute, Max: 10 * time.Minute}},
	}
	if s.Pool.NoZRS {
		w.azure.Locations = []azsim.Location{{Name: location, DisplayName: "West Europe"}}
	}
	w.setUp()
	return w
}

func (w *world) close() {
	w.end()
	w.mu.Lock()
	for _, t := range w.timers {
		t.Stop()
	}
	w.mu.Unlock()
	w.azure.Close()
}

// locked runs f alone.
func (w *world) locked(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// after calls f when d has passed, unless the world has ended.
func (w *world) after(d time.Duration, f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timers = append(w.timers, time.AfterFunc(d, func() {
		defer w.recovered("a timer")
		if w.ctx.Err() == nil {
			f()
		}
	}))
}

func (w *world) trace(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, fmt.Sprintf("%10.3f ", time.Since(w.begin).Seconds())+fmt.Sprintf(format, args...))
}

// broken notes a violation of an invariant, by its number.
func (w *world) broken(invariant int, format string, args ...any) {
	text := fmt.Sprintf("invariant %d: ", invariant) + fmt.Sprintf(format, args...)
	w.trace("VIOLATION %s", text)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.violations, text) {
		w.violations = append(w.violations, text)
	}
}

// recovered has a crash of what is played be a violation of this play, and no end of the others;
// err is what the caller returns then.
func (w *world) recovered(in string, err ...*error) {
	if cause := recover(); cause != nil {
		w.broken(0, "%s crashes: %v\n%s", in, cause, debug.Stack())
		for _, e := range err {
			*e = fmt.Errorf("%s crashes: %v", in, cause)
		}
	}
}

// request asks Azure as the owner of the subscription, without faults.
func (w *world) request(method string, id fleet.ResourceID, version string, body any) error {
	var in io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		in = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(w.ctx, method, azsim.InProcess+string(id)+"?api-version="+version, in)
	if err != nil {
		return err
	}
	token, err := w.azure.Credential("").GetToken(w.ctx, tokenScope)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+token.Token)
	r.Header.Set("Content-Type", "application/json")
	answer, err := w.azure.Transport().Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode >= http.StatusBadRequest {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 2000))
		return fmt.Errorf("%s %s: %s: %s", method, id, answer.Status, text)
	}
	return nil
}

// make has the owner make or change what there is at the beginning.
func (w *world) make(method string, id fleet.ResourceID, version string, body any) {
	if err := w.request(method, id, version, body); err != nil {
		w.broken(0, "cannot set up the world: %v", err)
	}
	synctest.Wait()
}

// setUp makes what there is at the beginning, at once.
func (w *world) setUp() {
	w.azure.Instant(true)
	defer w.azure.Instant(false)
	p := w.story.Pool
	if kindOf := poolKinds[p.Kind].keys; kindOf != "" {
		w.makeKeys(w.keys().Name(), kindOf)
	}
	image := object{"publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": "server", "version": "latest"}
	if p.Versions > 0 {
		image = object{"id": w.spelled(w.setUpGallery())}
		if p.Latest {
			image = object{"id": w.spelled(w.names.Definition)}
		}
		w.begin = time.Now()
	}
	if p.Old > 0 {
		w.make(http.MethodPut, w.pool, computeAPI, w.setBody(object{"id": w.oldest}, p.Old))
	}
	w.make(http.MethodPut, w.pool, computeAPI, w.setBody(image, p.Instances))
	if p.Neighbour > 0 {
		w.otherPool = w.pool.In("virtualMachineScaleSets", "pool2")
		w.makeSet(w.otherPool, p.Neighbour, p.Flexible != p.Mixed, object{"owner": "others"})
	}
	w.populate()
	w.fillStore()
	for i, name := range w.nodesOf(w.pool) {
		w.setUpNode(i, name)
	}
	if p.Unprotectable {
		refuse := azsim.Fault{Action: memberType + "/write", Effect: azsim.EffectError, Status: http.StatusBadRequest, Code: "InvalidParameter"}
		if err := w.azure.AddFault(refuse); err != nil {
			w.broken(0, "cannot refuse protection: %v", err)
		}
	}
	if p.Bench != "" {
		w.useAsWorkbench(map[string]int{"donor": 0, "other": 1}[p.Bench])
	}
	w.putLiar()
	if setUp := poolKinds[p.Kind].setUp; setUp != nil {
		setUp(w)
	}
	synctest.Wait()
	for _, name := range slices.Concat(w.nodesOf(w.pool), w.nodesOf(w.otherPool)) {
		w.nodes[name] = w.stateOf(name)
	}
	w.model, w.otherModel = w.modelNow(), w.modelOf(w.otherPool)
	w.original = w.model.extensions
	for id := range w.versions() { // of earlier captures, each of which went live
		w.wasLive[id] = true
	}
}

// setUpNode sets what owners set on a node and its instance.
func (w *world) setUpNode(i int, name string) {
	p := w.story.Pool
	othersProtect, kept := i > 0 && p.Others == "protected", i == 0 && p.Kept
	w.kube.Change("nodes", "", name, func(o runtime.Object) {
		n := o.(*corev1.Node)
		n.Spec.Unschedulable = i == 0 && p.Cordoned || i > 0 && p.Others == "cordoned"
		n.Annotations = maps.Clone(n.Annotations)
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		switch {
		case i == 0:
			n.Annotations["example.com/owner"] = "others"
			if p.ScaleDown != "" {
				n.Annotations[fleet.AnnotationScaleDownDisabled] = p.ScaleDown
			}
		case othersProtect:
			n.Annotations[fleet.AnnotationScaleDownDisabled] = "true"
		}
		if p.Spelling == "lower" {
			n.Spec.ProviderID = "azure://" + strings.ToLower(n.Spec.ProviderID[len("azure://"):])
		}
	})
	if othersProtect || kept {
		w.kube.Change("machines", workload, name, func(o runtime.Object) {
			o.(*unstructured.Unstructured).SetAnnotations(map[string]string{"cluster.x-k8s.io/skip-remediation": ""})
		})
	}
	if othersProtect || kept || i == 0 && p.Protected {
		w.setProtection(i, othersProtect || kept)
	}
	if p.Volumes {
		disk := w.pool.In("disks", fmt.Sprintf("%s%d", volumePrefix, i))
		w.make(http.MethodPut, disk, disksAPI, object{"location": location, "sku": object{"name": "Premium_LRS"},
			"properties": object{"creationData": object{"createOption": "Empty"}, "diskSizeGB": 4}})
		w.make(http.MethodPost, w.instance(i)+"/attachDetachDataDisks", computeAPI, object{"dataDisksToAttach": []object{{"diskId": string(disk), "lun": 0}}})
	}
}

func (w *world) setProtection(i int, actions bool) { w.setProtectionOf(w.instance(i), actions) }

func (w *world) setProtectionOf(id fleet.ResourceID, actions bool) {
	w.make(http.MethodPut, w.belowSet(id), computeAPI, object{"location": location,
		"properties": object{"protectionPolicy": object{"protectFromScaleIn": true, "protectFromScaleSetActions": actions}}})
}

// spelled is an image's id as others write it into the model.
func (w *world) spelled(id fleet.ResourceID) string {
	if w.story.Pool.Spelling == "model" {
		return strings.ToUpper(string(id))
	}
	return string(id)
}

// volumePrefix begins the names of disks that others attach.
const volumePrefix = "pvc-"

func ofOthers(v azsim.Volume) bool { return strings.Contains(string(v), "/disks/"+volumePrefix) }

// setUpGallery makes the versions of earlier captures, a week apart, and gives the newest.
func (w *world) setUpGallery() (newest fleet.ResourceID) {
	p := w.story.Pool
	made := func(capture string, at time.Time) object {
		return object{fleet.TagCapture: capture, fleet.TagCreatedBy: "ortet test", fleet.TagBuiltFrom: "pool1000099", fleet.TagBuiltAt: at.UTC().Format(fleet.BuiltAtLayout)}
	}
	snapshot, empty, left := w.pool.In("snapshots", "earlier"), w.pool.In("disks", "earlier"), object{}
	if p.Leftover {
		w.earlier = plan.CaptureName(w.begin)
		snapshot, empty, left = w.names.Snapshot, w.names.WorkDisk, made(w.earlier, w.begin)
	}
	switch p.Copies {
	case "snapshot":
		snapshot = w.names.Snapshot
	case "disk":
		empty = w.names.WorkDisk
	}
	w.disks[azsim.Volume(low(empty))] = &disk{generalized: true}
	var features []object
	switch {
	case p.NVMe:
		features = []object{{"name": "SecurityType", "value": "Standard"}, {"name": "DiskControllerTypes", "value": "SCSI, NVMe"}}
	case p.Trusted:
		features = []object{{"name": "SecurityType", "value": "TrustedLaunch"}}
	}
	put := func(id fleet.ResourceID, version string, tags, properties object) {
		time.Sleep(time.Second) // no two versions are published in the same one
		w.encrypts(properties)
		body := object{"location": location, "tags": tags, "properties": properties}
		if id == empty {
			body["sku"] = object{"name": "StandardSSD_LRS"}
		}
		w.make(http.MethodPut, id, version, body)
	}
	put(empty, disksAPI, left, object{"creationData": object{"createOption": "Empty"}, "diskSizeGB": 30, "osType": "Linux", "hyperVGeneration": "V2"})
	put(snapshot, disksAPI, left, object{"creationData": object{"createOption": "Copy", "sourceResourceId": string(empty)}, "incremental": true})
	tags := object{fleet.TagCreatedBy: "ortet test", fleet.TagReason: "earlier captures"}
	put(w.names.Gallery, galleryAPI, tags, object{})
	put(w.names.Definition, galleryAPI, tags, object{"osType": "Linux", "osState": "Generalized", "hyperVGeneration": "V2", "architecture": "x64", "features": features,
		"identifier": object{"publisher": "VMSS-Prototype-Pattern", "offer": azsim.DefaultResourceGroup, "sku": poolName}})
	for i := range p.Versions {
		at := w.begin.AddDate(0, 0, -7*(p.Versions-i))
		newest = w.names.Definition.Child("versions", plan.VersionName(at, false))
		tags := made(plan.CaptureName(at), at)
		tags[fleet.TagGeneralized] = tags[fleet.TagCapture]
		if i == 0 {
			w.oldest = newest
			if p.Foreign {
				tags = object{"team": "others"}
			}
			if p.Store != "" {
				text, _ := w.storedItem(0)
				tags[fleet.TagCustomData] = plan.SHA256(text)
			}
		}
		put(newest, galleryAPI, tags, object{
			"publishingProfile": object{"replicationMode": "Full", "storageAccountType": "Standard_LRS", "targetRegions": []object{{"name": location, "regionalReplicaCount": 1}}},
			"storageProfile":    object{"osDiskImage": object{"source": object{"id": string(snapshot)}}},
		})
	}
	switch {
	case p.Copies != "":
		w.foreign = []fleet.ResourceID{snapshot, empty}
	case !p.Leftover:
		w.make(http.MethodDelete, snapshot, disksAPI, nil)
		w.make(http.MethodDelete, empty, disksAPI, nil)
	}
	return newest
}

// kinds are extensions: name, publisher and type.
var kinds = map[string][3]string{
	"cse":       {"vmssCSE", "Microsoft.Azure.Extensions", "CustomScript"},
	"bootstrap": {"bootstrap", "Microsoft.Azure.ContainerUpstream", "CAPZ.Linux.Bootstrapping"},
	"billing":   {poolName + "-computeAKSLinuxBilling", "Microsoft.AKS", "Compute.AKS-Engine.Linux.Billing"},
	"health":    {"health", "Microsoft.ManagedServices", "ApplicationHealthLinux"},
	"monitor":   {"monitor", "Microsoft.Azure.Monitor", "AzureMonitorLinuxAgent"},
}

var modes = map[bool]string{false: "Uniform", true: "Flexible"}

func (w *world) setBody(image object, instances int) object {
	p := w.story.Pool
	var extensions []object
	for i, e := range p.Extensions {
		properties := object{"publisher": kinds[e][1], "type": kinds[e][2], "typeHandlerVersion": "1.0", "settings": object{"of": e, "commandToExecute": "join <here>"}}
		if e == "cse" && p.Settings != "" {
			properties["protectedSettings"] = object{"script": "secret"}
		}
		if i > 0 {
			properties["provisionAfterExtensions"] = []string{kinds[p.Extensions[i-1]][0]}
		}
		extensions = append(extensions, object{"name": kinds[e][0], "properties": properties})
	}
	profile := object{
		"osProfile": object{"computerNamePrefix": poolName, "adminUsername": "azureuser", "adminPassword": "Corr3ct-horse",
			"customData": base64.StdEncoding.EncodeToString([]byte(firstCustomData))},
		"storageProfile":   object{"imageReference": image},
		"extensionProfile": object{"extensions": extensions},
	}
	if p.Trusted {
		profile["securityProfile"] = object{"securityType": "TrustedLaunch", "uefiSettings": object{"secureBootEnabled": true, "vTpmEnabled": true}}
	}
	if p.Spot {
		profile["priority"], profile["evictionPolicy"] = "Spot", "Deallocate"
	}
	body := object{
		"location": location, "sku": object{"name": w.size(), "tier": "Standard", "capacity": instances}, "tags": object{"owner": `Zoë & "co" <a+b/c=%20\>`},
		"properties": object{"orchestrationMode": modes[p.Flexible], "overprovision": p.Surplus, "singlePlacementGroup": false,
			"upgradePolicy": object{"mode": cmp.Or(p.Mode, "Manual")}, "virtualMachineProfile": profile},
	}
	if p.Flexible {
		body["properties"].(object)["platformFaultDomainCount"] = 1
	}
	if p.Owned {
		body["tags"].(object)["sigs.k8s.io_cluster-api-provider-azure_cluster_prod"] = "owned"
	}
	if p.Zones > 0 {
		body["zones"] = []string{"1", "2", "3"}[:p.Zones]
	}
	if set := poolKinds[p.Kind].set; set != nil {
		set(w, body)
	}
	return body
}

// A model is what of a scale set captures may change, and the rest of it.
type model struct {
	image, customData string
	extensions        map[string]string // what they are, with protected settings, by name
	capacity          int64
	rest              string
}

func (w *world) modelNow() model { return w.modelOf(w.pool) }

// imageNow is modelNow's image, without the cost of the rest: it is asked for after each request.
func (w *world) imageNow() (image string) {
	w.azure.View(func(v *azsim.View) {
		if set, _ := v.Get(string(w.pool)).(*armcompute.VirtualMachineScaleSet); set != nil && set.Properties != nil {
			image = imageOf(set.Properties.VirtualMachineProfile.StorageProfile.ImageReference)
		}
	})
	return image
}

func imageOf(r *armcompute.ImageReference) string {
	switch {
	case r != nil && r.ID != nil:
		return *r.ID
	case r != nil && r.Offer != nil && r.Version != nil:
		return *r.Offer + ":" + *r.Version
	}
	return ""
}

func (w *world) modelOf(set fleet.ResourceID) (m model) {
	w.azure.View(func(v *azsim.View) {
		text, err := json.Marshal(v.Get(string(set)))
		var own armcompute.VirtualMachineScaleSet
		if err == nil {
			err = json.Unmarshal(text, &own)
		}
		if err != nil || own.Properties == nil {
			return
		}
		profile := own.Properties.VirtualMachineProfile
		m.image = imageOf(profile.StorageProfile.ImageReference)
		if profile.OSProfile.CustomData != nil {
			data, _ := base64.StdEncoding.DecodeString(*profile.OSProfile.CustomData)
			m.customData = string(data)
		}
		profile.TimeCreated = nil // Azure's own
		m.extensions = map[string]string{}
		if profile.ExtensionProfile != nil {
			for _, e := range profile.ExtensionProfile.Extensions {
				e.Properties.ProvisioningState = nil
				text, _ = json.Marshal(e.Properties) // what was read from JSON just now
				m.extensions[*e.Name] = string(text)
			}
		}
		m.capacity = *own.SKU.Capacity
		own.Etag, own.Properties.ProvisioningState, own.SKU.Capacity = nil, nil, nil
		profile.StorageProfile.ImageReference, profile.OSProfile.CustomData, profile.ExtensionProfile = nil, nil, nil
		text, _ = json.Marshal(own)
		m.rest = string(text)
	})
	return m
}

// versions returns the states of all image versions by lower-case id.
func (w *world) versions() map[string]*armcompute.GalleryImageVersion {
	all := map[string]*armcompute.GalleryImageVersion{}
	w.azure.View(func(v *azsim.View) {
		v.Each(versionType, func(id string, body any) {
			if version, ok := body.(*armcompute.GalleryImageVersion); ok {
				all[low(id)] = version
			}
		})
	})
	return all
}
