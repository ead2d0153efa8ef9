package play

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/test/kubesim"
	"github.com/ortet/ortet/test/scenario"
	"github.com/ortet/ortet/test/scenario/fault"
)

const (
	poolName  = "pool1"
	location  = "westeurope"
	namespace = "ortet-system" // of Ortet's own objects
	work      = "default"      // of the pool's workload
	ortetUser = "ortet"
	apiYear   = "2024-11-01"
	galleries = "2024-03-03"
	disksYear = "2025-01-02"
	region    = "Microsoft.Compute"
)

// A world is one Azure and one cluster, and what has been seen of them.
type world struct {
	story   scenario.Scenario
	azure   *azsim.Server
	kube    *kubesim.Server
	faults  fault.Faults // that requests to kube meet
	chooser *scenario.Chooser
	begin   time.Time
	over    context.Context // ends with the world
	end     context.CancelFunc

	pool  fleet.ResourceID
	names prototype.Names // of the pool; version, job and day aside

	mu         sync.Mutex
	counts     map[string]int    // requests by side and name
	operations map[string]string // operation ids, and what began them
	lines      []line
	stats      Stats
	told       string // at the end, to people
	violations []string
	timers     []*time.Timer
	calm       bool                 // nothing goes wrong any more
	down       map[string]outage    // sides that do not answer
	denied     map[string]time.Time // rights that lack, until when
	disks      map[azsim.Volume]*disk
	computers  map[string]*computer // by lower-case id
	logs       map[string][]byte    // of pods
	onNode     map[string]*content  // of OS disks, as looked at last, by their node
	lost       bool                 // the pod that is lost once was lost
	found      map[string]found     // nodes by name, as others have them
	model0     string               // what of the model no capture changes
	pointed0   pointed              // what a failure has to leave in the model
	original   pointed              // before the first capture
	theirImage string               // that others set in the model last
	returning  returning            // what was there when the record was opened
	recorded   noted                // the journal's record, as written last
	lease      leased               // as written last
	closed     time.Time            // when a record was closed last
	closers    []string             // writers that closed records
	capacity0  int64                // at the beginning
	scaledOut  int64                // nodes that others asked for
	grown      map[string]int64     // nodes that captures may add which asked for some, by their names
	processes  []*process
	rivals     []*process // that came by happenings, and are to be awaited
	came       int
	othersGone map[string]bool // lower-case ids that others deleted
	force      bool            // the ask under way allows deleting pods
	buckets    map[string]*bucket
	waits      map[string]time.Time // until when Azure wants a request of a process not to come again
	remade     map[string]bool      // nodes that others deleted
	volumes    []hung               // data disks of others, from the beginning on
	spared     map[string]string    // why nodes cannot be workbenches, from the beginning on
	touched    map[string]bool      // what others did to the donor, so that how it ends is theirs
	born       int                  // pods that controllers made
	begun      map[types.UID]bool   // pods of ours whose kubelet knows of them
}

// outage is a side that does not answer until a time.
type outage struct {
	until  time.Time
	status int // 0: connections are refused
}

// hash gives a number that the seed and the words alone decide. It is asked of
// each request twice.
func (w *world) hash(words ...any) uint64 {
	text := strconv.AppendUint(make([]byte, 0, 256), w.story.Seed, 10)
	for _, word := range words {
		text = append(text, 0)
		switch word := word.(type) {
		case string:
			text = append(text, word...)
		case time.Duration:
			text = append(text, word.String()...)
		default:
			text = fmt.Append(text, word)
		}
	}
	h := fnv.New64a()
	_, _ = h.Write(text) // never fails
	// fnv's low bits are good; mix the high ones into them.
	v := h.Sum64()
	v ^= v >> 32
	v *= 0xd6e8feb86659fd93
	return v ^ v>>32
}

// between gives a duration from the hash of the words.
func (w *world) between(least, most time.Duration, words ...any) time.Duration {
	return least + time.Duration(w.hash(words...)%uint64(most-least+1))
}

// newWorld makes the world of the scenario's beginning.
func newWorld(s scenario.Scenario) (*world, error) {
	w := &world{
		story: s, chooser: scenario.NewChooser(s), begin: time.Now(),
		counts: map[string]int{}, operations: map[string]string{}, down: map[string]outage{}, denied: map[string]time.Time{},
		disks: map[azsim.Volume]*disk{}, computers: map[string]*computer{}, logs: map[string][]byte{}, onNode: map[string]*content{},
		found: map[string]found{}, othersGone: map[string]bool{}, touched: map[string]bool{}, remade: map[string]bool{}, spared: map[string]string{},
		buckets: map[string]*bucket{}, waits: map[string]time.Time{}, begun: map[types.UID]bool{}, grown: map[string]int64{},
		pool: "/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/" + azsim.DefaultResourceGroup + "/providers/Microsoft.Compute/virtualMachineScaleSets/" + poolName,
	}
	w.names = prototype.NamesOf(w.pool, "", "")
	w.over, w.end = context.WithCancel(context.Background())
	w.kube = &kubesim.Server{Machines: s.Pool.Machines, Log: w.log, Deleting: w.podGoes, Ends: w.podEnds, OnRequest: w.kubeServed}
	w.azure = &azsim.Server{Seed: s.Seed, Principals: principals(s.Pool.Refuses), Substrate: (*machines)(w), KeepAnswers: true, PageSize: s.Pool.Pages, Profile: azsim.Profile{
		// Versions take up to six hours, in which a process asks for them each minute.
		"version.create": {Min: 2 * time.Minute, Max: 30 * time.Minute},
	}}
	if s.Pool.NoZRS {
		// A region without zone-redundant storage has no zones either.
		w.azure.Locations = []azsim.Location{{Name: location, DisplayName: "West Europe"}}
		w.story.Pool.Zones = 0
	}
	if err := w.setUp(); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// close ends all that the world runs.
func (w *world) close() {
	w.end()
	w.mu.Lock()
	for _, t := range w.timers {
		t.Stop()
	}
	w.timers = nil
	w.mu.Unlock()
	w.azure.Close()
}

// after calls f when d has passed, unless the world is over.
func (w *world) after(d time.Duration, f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timers = append(w.timers, time.AfterFunc(d, func() {
		if w.over.Err() == nil {
			f()
		}
	}))
}

// request asks Azure by the hand of whoever owns the subscription: without
// faults, and not as Ortet.
func (w *world) request(method, id, version string, body any) error {
	var in io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		in = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(w.over, method, azsim.InProcess+id+"?api-version="+version, in)
	if err != nil {
		return err
	}
	token, err := w.azure.Credential("").GetToken(w.over, tokenOptions)
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

type object = map[string]any

// setUp makes what is there at the beginning, at once.
func (w *world) setUp() error {
	w.azure.Instant(true)
	defer w.azure.Instant(false)
	settle := func(method string, id fleet.ResourceID, version string, body any) error {
		err := w.request(method, string(id), version, body)
		synctest.Wait()
		return err
	}
	p := w.story.Pool
	versions := make([]fleet.ResourceID, p.Versions)
	if p.Versions > 0 {
		if err := w.setUpGallery(versions, settle); err != nil {
			return err
		}
		w.begin = time.Now()
	}
	// Instances of older versions first, then the rest of the model's.
	var steps []setStep
	if p.Theirs && p.Versions > 1 {
		p.Old = max(p.Old, min(p.Versions, p.Instances-1)) // the oldest is among them
	}
	old := min(p.Old, p.Versions, p.Instances-1)
	for i := range old {
		steps = append(steps, setStep{versions[max(0, p.Versions-1-old)+i], i + 1})
	}
	newest := fleet.ResourceID("")
	if p.Versions > 0 && !p.Marketplace {
		newest = versions[p.Versions-1]
		if p.Latest {
			newest = w.names.Definition
		}
	}
	steps = append(steps, setStep{newest, p.Instances})
	for i, step := range steps {
		if err := settle(http.MethodPut, w.pool, apiYear, w.setBody(step.image, step.capacity)); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	w.populate()
	if d := w.story.Donor; d.Protected || d.Actions {
		err := settle(http.MethodPut, w.instance(0), apiYear, object{"location": location, "properties": object{"protectionPolicy": object{
			"protectFromScaleIn": true, "protectFromScaleSetActions": d.Actions,
		}}})
		if err != nil {
			return err
		}
	}
	if err := w.setUpVolumes(); err != nil {
		return err
	}
	if err := w.setUpBenches(); err != nil {
		return err
	}
	if err := w.setUpRefusal(settle); err != nil {
		return err
	}
	w.setUpReboot()
	synctest.Wait()
	w.remember()
	return nil
}

type setStep struct {
	image    fleet.ResourceID
	capacity int
}

// instance gives the id of the n-th instance.
func (w *world) instance(n int) fleet.ResourceID {
	return w.pool.Child("virtualMachines", fmt.Sprint(n))
}

func (w *world) setUpGallery(versions []fleet.ResourceID, settle func(method string, id fleet.ResourceID, version string, body any) error) error {
	tags := object{fleet.TagCreatedBy: "ortet test", fleet.TagReason: "earlier captures"}
	snapshot := w.pool.In("snapshots", "made-earlier")
	empty := w.pool.In("disks", "made-earlier")
	w.mu.Lock()
	w.disks[volume(empty)] = &disk{generalized: true}
	w.mu.Unlock()
	type put struct {
		id      fleet.ResourceID
		version string
		body    object
	}
	puts := []put{
		{empty, disksYear, object{"location": location, "sku": object{"name": "StandardSSD_LRS"}, "properties": object{
			"creationData": object{"createOption": "Empty"}, "diskSizeGB": 30, "osType": "Linux", "hyperVGeneration": "V2",
		}}},
		{snapshot, disksYear, object{"location": location, "properties": object{"creationData": object{"createOption": "Copy", "sourceResourceId": string(empty)}, "incremental": true}}},
		{w.names.Gallery, galleries, object{"location": location, "tags": tags, "properties": object{}}},
		{w.names.Definition, galleries, object{"location": location, "tags": tags, "properties": object{
			"osType": "Linux", "osState": "Generalized", "hyperVGeneration": "V2", "architecture": "x64", "features": features(w.story.Pool),
			"identifier": object{"publisher": "VMSS-Prototype-Pattern", "offer": azsim.DefaultResourceGroup, "sku": poolName},
		}}},
	}
	for i := range versions {
		day := w.begin.AddDate(0, 0, -7*(len(versions)-i))
		versions[i] = w.names.Definition.Child("versions", prototype.VersionName(day, w.story.Pool.Again && i == len(versions)-1))
		capture := prototype.CaptureName(day, "")
		of := object{fleet.TagCapture: capture, fleet.TagGeneralized: capture, fleet.TagCreatedBy: "ortet test",
			fleet.TagBuiltFrom: "pool1000099", fleet.TagBuiltAt: day.Format(fleet.BuiltAtLayout), "owner": oddTag}
		switch {
		case w.story.Pool.Theirs && i == 0 && len(versions) > 1:
			of = object{"owner": "others"}
		case w.story.Pool.CustomData && i < len(versions)-1:
			of[fleet.TagCustomData] = w.keep(fmt.Sprintf("#cloud-config\nruncmd: [join, '>>>>???', %d]\n", i))
		}
		puts = append(puts, put{versions[i], galleries, object{
			"location": location,
			"tags":     of,
			"properties": object{
				"publishingProfile": object{"replicationMode": "Full", "storageAccountType": "Standard_LRS", "targetRegions": []object{{"name": location, "regionalReplicaCount": 1}}},
				"storageProfile":    object{"osDiskImage": object{"source": object{"id": string(snapshot)}}},
			},
		}})
	}
	for _, p := range puts {
		time.Sleep(time.Second) // no two versions are published in the same one
		if err := settle(http.MethodPut, p.id, p.version, p.body); err != nil {
			return err
		}
	}
	if w.story.Pool.Leftover {
		// What a capture of two days ago had made when somebody deleted its journal.
		left := object{fleet.TagCapture: leftBy, fleet.TagCreatedBy: "ortet test", fleet.TagBuiltAt: w.begin.AddDate(0, 0, -2).Format(fleet.BuiltAtLayout)}
		for _, id := range []fleet.ResourceID{w.names.Snapshot, w.names.Generalized} {
			body := object{"location": location, "tags": left, "properties": object{"creationData": object{"createOption": "Copy", "sourceResourceId": string(empty)}, "incremental": true}}
			if err := settle(http.MethodPut, id, disksYear, body); err != nil {
				return err
			}
		}
		body := object{"location": location, "tags": left, "sku": object{"name": "StandardSSD_LRS"}, "properties": object{"creationData": object{"createOption": "Copy", "sourceResourceId": string(snapshot)}}}
		if err := settle(http.MethodPut, w.names.WorkDisk, disksYear, body); err != nil {
			return err
		}
	}
	for _, id := range []fleet.ResourceID{snapshot, empty} {
		if err := settle(http.MethodDelete, id, disksYear, nil); err != nil {
			return err
		}
	}
	return nil
}

// leftBy is the capture whose leftovers are there at the beginning.
const leftBy = "leftover-1"

// keep has customData kept, as earlier versions kept it, and gives its SHA-256.
func (w *world) keep(data string) string {
	digest := sha256.Sum256([]byte(data))
	sum := hex.EncodeToString(digest[:])
	w.kube.Put(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ortet-saved-customdata-" + sum[:16], Annotations: map[string]string{
			"ortet.io/kind": "customData", "ortet.io/sha256": sum,
		}},
		Data: map[string][]byte{"data": []byte(data)},
	})
	return sum
}

// firstCustomData is base64 with + and /, which other alphabets do not have.
const firstCustomData = "#cloud-config\nruncmd: [join, '>>>>???']\n"

// oddTag is what others tag with: it needs quoting in JSON and in URLs.
const oddTag = `Zoë & "co" <a+b/c=%20\>`

func (w *world) setBody(image fleet.ResourceID, capacity int) object {
	p := w.story.Pool
	reference := object{"publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": "server", "version": "latest"}
	if image != "" {
		reference = object{"id": string(image)}
	}
	kinds := map[string][2]string{
		"cse": {"Microsoft.Azure.Extensions", "CustomScript"}, "billing": {"Microsoft.AKS", "Compute.AKS-Engine.Linux.Billing"},
		"monitor": {"Microsoft.Azure.Monitor", "AzureMonitorLinuxAgent"},
	}
	names := map[string]string{"cse": "vmssCSE", "billing": poolName + "-computeAKSLinuxBilling", "monitor": "monitor"}
	var extensions []object
	before := ""
	for _, e := range p.Extensions {
		properties := object{"publisher": kinds[e][0], "type": kinds[e][1], "typeHandlerVersion": "1.0", "settings": object{}}
		if before != "" {
			properties["provisionAfterExtensions"] = []string{names[before]}
		}
		extensions = append(extensions, object{"name": names[e], "properties": properties})
		before = e
	}
	upgrade := object{"mode": p.Upgrade}
	if reportsHealth(p) { // Azure wants to know how instances are
		extensions = append(extensions, object{"name": "health", "properties": object{
			"publisher": "Microsoft.ManagedServices", "type": "ApplicationHealthLinux", "typeHandlerVersion": "1.0",
			"settings": object{"protocol": "tcp", "port": 10250},
		}})
	}
	body := object{
		"location": location, "sku": object{"name": "Standard_D2s_v5", "tier": "Standard", "capacity": capacity},
		"tags": object{"owner": oddTag},
		"properties": object{
			"orchestrationMode": "Uniform", "overprovision": false, "singlePlacementGroup": false, "upgradePolicy": upgrade,
			"virtualMachineProfile": object{
				"osProfile": object{
					"computerNamePrefix": poolName, "adminUsername": "azureuser", "adminPassword": "Corr3ct-horse",
					"customData": base64.StdEncoding.EncodeToString([]byte(firstCustomData)),
				},
				"storageProfile":   object{"imageReference": reference},
				"extensionProfile": object{"extensions": extensions},
			},
		},
	}
	if p.Zones > 0 {
		zones := []string{"1", "2", "3"}
		body["zones"] = zones[:min(p.Zones, 3)]
	}
	ofKind(p, body)
	return body
}

// volume is the azsim volume of a resource.
func volume(id fleet.ResourceID) azsim.Volume { return azsim.Volume(strings.ToLower(string(id))) }

func low(id fleet.ResourceID) string { return strings.ToLower(string(id)) }

// broken notes that what has to hold does not.
func (w *world) broken(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.violations, text) {
		w.violations = append(w.violations, text)
		w.lines = append(w.lines, line{at: time.Since(w.begin), text: "VIOLATION " + text})
	}
}
