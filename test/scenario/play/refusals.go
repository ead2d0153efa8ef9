package play

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/test/scenario"
)

// A reason is one to refuse, by the code that the documentation gives it.
type reason struct {
	code string
	// pool: it is one of any change of the model, also by a rollback. Otherwise it is
	// one of a capture; donor: of the donor; out: only where that is taken out of service.
	pool, donor, out bool
	// disk: the pod that inspects the donor finds it, where that runs.
	disk bool
}

// refusing are the settings of pool refuses, and what they are reasons for.
var refusing = map[string]reason{
	"automatic":    {code: "AutomaticUpgrade", pool: true},
	"owned":        {code: "OwnedByClusterAPI", pool: true},
	"aks":          {code: "ManagedByAKS"},
	"controlplane": {code: "ControlPlane", donor: true},
	"reboot":       {code: "RebootPending", donor: true, out: true},
	"workbench":    {code: "IsWorkbench", donor: true, out: true},
	"duplicate":    {code: "DuplicateNode", donor: true},
	"notready":     {code: "NodeNotReady", donor: true, out: true},
	"snapshot":     {code: "ForeignSnapshot"},
	"workdisk":     {code: "ForeignDisk"},
	"version":      {code: "ForeignVersion"},
	"definition":   {code: "DefinitionMismatch", out: true},
	"rights":       {code: "AzureDenied", pool: true},
	"repairs":      {code: "AutomaticRepairs"},
	"osupgrade":    {code: "AutomaticOSUpgrade"},
	"ephemeral":    {code: "EphemeralDisk"},
	"confidential": {code: "ConfidentialDisk", out: true},
	"flexible":     {code: "NotAnInstance", donor: true},
}

// ofWorlds are the codes that a world has from its beginning on or never: no request
// that goes wrong, and nobody who changes it, is a reason for one.
var ofWorlds = []string{
	"AutomaticUpgrade", "OwnedByClusterAPI", "ManagedByAKS", "ControlPlane", "RebootPending", "IsWorkbench", "DuplicateNode", "ForeignSnapshot",
	"ForeignDisk", "ForeignVersion", "DefinitionMismatch", "RollingUpgrade", "ExtensionNeeded", "PodNotEvictable", "BudgetAllowsNoEviction",
	"DiskRefused", "PoolCredentials", "OtherSecrets", "IdentityOnDisk", "CannotJoin", "NotLinux", "NotLinuxPool", "NotUniform", "NotAnInstance",
	"AutomaticOSUpgrade", "AutomaticRepairs", "EphemeralDisk", "ConfidentialDisk", "SpotDeallocate", "OwnNode", "HistoryTooShort", "BadNumber",
	"BadPattern", "BadPath", "BadBootstrap", "NoContainerImage", "NoPool", "AzureDenied",
}

// reasons gives those that the story has for what is asked.
func (w *world) reasons(ask scenario.Ask) (all []reason) {
	p, d := w.story.Pool, w.story.Donor
	if r, ok := refusing[p.Refuses]; ok && (!r.donor || ask.Node == 0 && w.still(r)) {
		all = append(all, r)
	}
	if p.Upgrade == "Rolling" && !ask.Rolling {
		all = append(all, reason{code: "RollingUpgrade", pool: true})
	}
	if strings.HasPrefix(p.Kind, spot) && ask.Deallocate {
		all = append(all, reason{code: "SpotDeallocate", donor: true, out: true})
	}
	if cse := slices.Index(p.Extensions, "cse"); cse >= 0 && cse < len(p.Extensions)-1 {
		all = append(all, reason{code: "ExtensionNeeded"})
	}
	if d.Unmanaged > 0 && !ask.Force && w.hasPod(ask.Node, "alone") {
		all = append(all, reason{code: "PodNotEvictable", donor: true, out: true})
	}
	if d.Blocked && !ask.Force && w.hasPod(ask.Node, "stays") {
		all = append(all, reason{code: "BudgetAllowsNoEviction", donor: true, out: true})
	}
	if codes, scanned := w.diskReasons(ask); !scanned || w.seenBefore() {
		for _, code := range codes {
			all = append(all, reason{code: code, out: true, disk: true})
		}
	}
	return slices.DeleteFunc(all, func(r reason) bool {
		foreign := r.code == "ForeignVersion" && (ask.Again || w.story.Pool.Versions == 0 || prototype.VersionName(time.Now(), false) != prototype.VersionName(w.begin, false))
		return ask.Verb == scenario.Rollback && !r.pool || foreign
	})
}

// still reports whether a donor is as it was at the beginning: its kubelet may have made
// its Node again, or reported that it is Ready.
func (w *world) still(r reason) bool {
	n, ok := w.kube.Get("nodes", "", w.nodeOf(0)).(*corev1.Node)
	if !ok {
		return false
	}
	switch r.code {
	case "ControlPlane":
		_, ok = n.Labels[controlPlane]
	case "RebootPending":
		ok = n.Annotations[fleet.AnnotationKuredReboot] != ""
	case "IsWorkbench":
		ok = n.Annotations[fleet.AnnotationWorkbench] != ""
	case "DuplicateNode":
		_, ok = w.kube.Get("nodes", "", stale).(*corev1.Node)
	case "NotAnInstance":
		ok = strings.HasSuffix(n.Spec.ProviderID, flexible)
	case "NodeNotReady":
		ok = !isReady(n)
	}
	return ok
}

const (
	controlPlane = "node-role.kubernetes.io/control-plane"
	notReadyYet  = "it is not Ready"
	flexible     = "pool1_1c0ffee0" // a machine of a Flexible scale set
	stale        = "stale"          // a Node of an instance that has another
)

// hasPod reports whether a pod of that app is on an instance: a capture with --force may
// have deleted it, and its controller made another elsewhere.
func (w *world) hasPod(instance int, app string) (there bool) {
	w.kube.Each("pods", func(o runtime.Object) bool {
		p := o.(*corev1.Pod)
		there = p.Namespace == work && p.Labels["app"] == app && p.Spec.NodeName == w.nodeOf(instance)
		return !there
	})
	return there
}

// seenBefore reports whether the pod that inspects a donor with secrets comes to its end.
func (w *world) seenBefore() bool { return w.hash("inspection")%3 > 0 }

// today gives the version of the day, of which a capture without --again goes on: the
// newest that nobody rolled back from, or the one of the day's own name.
func (w *world) today() (of image, there bool) {
	day, further := prototype.VersionName(time.Now(), false), time.Now().UTC().Format("2006.0102.")
	all := w.images()
	for _, i := range all {
		if (i.id.Name() == day || strings.HasPrefix(i.id.Name(), further)) && i.made() && !i.left() {
			return i, true
		}
	}
	return imageAt(all, w.names.Definition.Child("versions", day))
}

// expected gives the codes of the refusal that what is asked has to come to, where
// nothing goes wrong.
func (w *world) expected(ask scenario.Ask) (codes []string) {
	version, there := w.today()
	fromDonor := ask.Again || !there
	disk := []string{}
	for _, r := range w.reasons(ask) {
		switch {
		case r.out && !fromDonor:
		case r.disk:
			disk = append(disk, r.code)
		default:
			codes = append(codes, r.code)
		}
	}
	if !fromDonor && version.tags[fleet.TagCapture] != "" {
		used, known := imageAt(w.images(), w.model())
		custom := version.tags[fleet.TagCustomData]
		switch {
		case version.left():
			codes = append(codes, "RolledBack")
		case known && used.made() && used.published.After(version.published):
			codes = append(codes, "OlderVersion")
		case ask.Bake && custom != "" && custom != noopSum():
			codes = append(codes, "OtherBootstrap")
		}
	}
	if slices.Contains(codes, "NotAnInstance") { // of which pool, nobody can know
		return []string{"NotAnInstance"}
	}
	if fromDonor && w.excused(ask) {
		codes = append(codes, "NoWorkbench")
	}
	if len(codes) == 0 {
		codes = disk
	}
	return codes
}

// codesOf gives the codes of a refusal, each once.
func codesOf(err error) (codes []string) {
	refused := new(engine.Refused)
	if errors.As(err, &refused) {
		for _, p := range refused.Problems {
			codes = append(codes, p.Code)
		}
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// expect keeps what a process has to be refused for: what the world is when it begins.
func (w *world) expectRefusal(p *process) {
	if p.ask.Verb == scenario.Capture && len(w.chooser.Happened()) == 0 && !w.busy(p) && !w.unfinished(p) {
		p.toRefuse, p.judgeRefusal = w.expected(p.ask), true
	}
}

// checkRefusal: a capture is refused for all that the world is a reason for and for
// nothing else, where nothing went wrong. Whatever did, no reason is named that the
// world does not have.
func (w *world) checkRefusal(p *process) {
	got := codesOf(p.err)
	w.mu.Lock()
	alone := len(w.processes) == 1
	w.mu.Unlock()
	quiet := len(w.chooser.Happened()) == 0
	if want := slices.Compact(slices.Sorted(slices.Values(p.toRefuse))); p.judgeRefusal && quiet && w.aloneSince(p) && !slices.Equal(got, want) {
		w.broken("%s is refused for %q, and the world is a reason for %q: exit %d, %v", p.name, got, want, engine.ExitCode(p.err), p.err)
	}
	for _, code := range got {
		has := slices.ContainsFunc(w.reasons(p.ask), func(r reason) bool { return r.code == code })
		// A pod may be gone by now, or seen by a read of before; so may what is on a Node.
		if r, ok := refusing[w.story.Pool.Refuses]; ok && r.donor && r.code == code && p.ask.Node == 0 {
			continue
		}
		pod := code == "PodNotEvictable" && w.story.Donor.Unmanaged > 0 || code == "BudgetAllowsNoEviction" && w.story.Donor.Blocked
		switch {
		case slices.Contains(ofWorlds, code) && !has && !pod:
			w.broken("%s is refused for %s, which is not so: %v", p.name, code, p.err)
		case code == "Held" && alone, code == "Unreadable" && quiet:
			w.broken("%s is refused for %s, and nothing is in its way: %v", p.name, code, p.err)
		}
	}
}

// aloneSince reports whether no other process was there since this one began.
func (w *world) aloneSince(p *process) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !slices.ContainsFunc(w.processes, func(o *process) bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o != p && (!o.ended || o.returned.After(p.began))
	})
}

// judgeReasons: nothing is changed where a reason to refuse forbids it, whatever goes
// wrong: nothing at all for one of the pool, and no donor taken out for one of its own.
func (w *world) judgeReasons(p *process, donor string) {
	for _, r := range w.reasons(p.ask) {
		foreign := strings.HasPrefix(r.code, "Foreign") // nothing is lost by looking again later
		w.mu.Lock()
		gone := r.code == "DefinitionMismatch" && w.othersGone[low(w.names.Definition)]
		w.mu.Unlock()
		if gone || r.disk || foreign || (r.donor || !r.pool) && donor == "" || r.donor && donor != w.nodeOf(p.ask.Node) {
			continue
		}
		w.broken("%s goes on where it has to be refused: %s", p.name, r.code)
	}
}

// setUpRefusal has the world be a reason to refuse.
func (w *world) setUpRefusal(settle func(method string, id fleet.ResourceID, version string, body any) error) error {
	onDonor := func(change func(n *corev1.Node)) {
		w.kube.Change("nodes", "", w.node(0), func(o runtime.Object) {
			n := o.(*corev1.Node)
			if n.Annotations == nil {
				n.Annotations = map[string]string{}
			}
			change(n)
		})
	}
	foreign := func(kind string, id fleet.ResourceID) error {
		creation := object{"createOption": "Empty"}
		body := object{"location": location, "properties": object{"creationData": creation, "diskSizeGB": 30, "osType": "Linux"}}
		if kind == "snapshots" {
			disk := w.pool.In("disks", "theirs")
			if err := settle(http.MethodPut, disk, disksYear, body); err != nil {
				return err
			}
			body = object{"location": location, "properties": object{"creationData": object{"createOption": "Copy", "sourceResourceId": string(disk)}, "incremental": true}}
		}
		return settle(http.MethodPut, id, disksYear, body)
	}
	switch w.story.Pool.Refuses {
	case "automatic":
		return settle(http.MethodPatch, w.pool, apiYear, object{"properties": object{"upgradePolicy": object{"mode": "Automatic"}}})
	case "owned":
		return settle(http.MethodPatch, w.pool, apiYear, object{"tags": object{"sigs.k8s.io_cluster-api-provider-azure_cluster_c1": "owned"}})
	case "aks":
		return settle(http.MethodPatch, w.pool, apiYear, object{"tags": object{"aks-managed-poolName": poolName}})
	case "flexible":
		w.spared[w.node(0)] = "it is not an instance of a Uniform scale set"
		onDonor(func(n *corev1.Node) { n.Spec.ProviderID = "azure://" + string(w.pool.In("virtualMachines", flexible)) })
	case "controlplane":
		onDonor(func(n *corev1.Node) { n.Labels[controlPlane] = "" })
	case "reboot":
		w.spared[w.node(0)] = "kured is about to reboot it"
		onDonor(func(n *corev1.Node) { n.Annotations[fleet.AnnotationKuredReboot] = "2026-11-22T09:10:00Z" })
	case "workbench":
		w.spared[w.node(0)] = "it is another's workbench"
		onDonor(func(n *corev1.Node) { n.Annotations[fleet.AnnotationWorkbench] = string(w.pool) + "-of-others" })
	case "duplicate":
		n := w.kube.Get("nodes", "", w.node(0)).(*corev1.Node).DeepCopy()
		n.ObjectMeta = metav1.ObjectMeta{Name: stale, Labels: n.Labels}
		w.kube.Put(n)
	case "notready":
		w.spared[w.node(0)] = notReadyYet
		onDonor(func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: "PLEG is not healthy", LastTransitionTime: metav1.Now()}}
		})
	case "snapshot":
		return foreign("snapshots", w.names.Snapshot)
	case "workdisk":
		return foreign("disks", w.names.WorkDisk)
	case "version", "definition":
		return w.setUpForeign(settle)
	}
	return nil
}

// setUpForeign makes a version of today's name that is others', where there are
// versions, or a definition that does not fit.
func (w *world) setUpForeign(settle func(method string, id fleet.ResourceID, version string, body any) error) error {
	if w.story.Pool.Refuses == "definition" {
		if err := settle(http.MethodPut, w.names.Gallery, galleries, object{"location": location, "properties": object{}}); err != nil {
			return err
		}
		return settle(http.MethodPut, w.names.Definition, galleries, object{"location": location, "properties": object{
			"osType": "Linux", "osState": "Generalized", "hyperVGeneration": "V1", "architecture": "x64",
			"identifier": object{"publisher": "p", "offer": "o", "sku": "s"},
		}})
	}
	if w.story.Pool.Versions == 0 {
		return nil
	}
	time.Sleep(time.Second) // no two versions are published in the same one
	w.begin = time.Now()
	source := w.pool.In("disks", "theirs")
	w.mu.Lock()
	w.disks[volume(source)] = &disk{generalized: true}
	w.mu.Unlock()
	if err := settle(http.MethodPut, source, disksYear, object{"location": location, "sku": object{"name": "StandardSSD_LRS"}, "properties": object{
		"creationData": object{"createOption": "Empty"}, "diskSizeGB": 30, "osType": "Linux", "hyperVGeneration": "V2",
	}}); err != nil {
		return err
	}
	return settle(http.MethodPut, w.names.Definition.Child("versions", prototype.VersionName(w.begin, false)), galleries, object{
		"location": location,
		"properties": object{
			"publishingProfile": object{"replicationMode": "Full", "storageAccountType": "Standard_LRS", "targetRegions": []object{{"name": location, "regionalReplicaCount": 1}}},
			"storageProfile":    object{"osDiskImage": object{"source": object{"id": string(source)}}},
		},
	})
}

func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
