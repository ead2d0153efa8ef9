package donor

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

const donorID = fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/pool1/virtualMachines/1")

// A kube has one Node and one pod, and keeps the reasons of Events.
type kube struct {
	cluster.Cluster
	node   fleet.Node
	fails  error // to read the Node
	job    cluster.JobState
	events []string
}

func (k *kube) Node(context.Context, string) (fleet.Node, error) { return k.node, k.fails }

func (k *kube) Job(context.Context, string) (cluster.JobState, error) { return k.job, nil }

func (k *kube) Event(_ context.Context, _ fleet.Node, warning bool, reason, text string) {
	k.events = append(k.events, map[bool]string{true: "warning ", false: ""}[warning]+reason+": "+text)
}

type machines struct {
	azure.Cloud
	there fleet.Instance
	fails error
}

func (m machines) Instance(context.Context, fleet.ResourceID) (fleet.Instance, error) {
	return m.there, m.fails
}

// TestIs: a Node and its machine are those that were chosen, by the ids that a record has of them.
func TestIs(t *testing.T) {
	const vm = "5c5e9f1e-6d5b-4f0e-8a9d-000000000001"
	i := fleet.Instance{ID: donorID, HostName: "pool1000001", VMID: vm}
	n := fleet.Node{Name: "pool1000001", UID: "u", SystemUUID: vm, ProviderID: "azure://" + string(donorID)}
	for name, c := range map[string]struct {
		used  Used
		other string // systemUUID of the Node
		is    bool
	}{
		"as it was chosen":             {used: Used{UID: "u", VMID: strings.ToUpper(vm)}, is: true},
		"by an earlier release":        {is: true},
		"the Node was made again":      {used: Used{UID: "old", VMID: vm}},
		"the machine was made again":   {used: Used{UID: "u", VMID: "old"}},
		"the Node is not that machine": {used: Used{UID: "u", VMID: vm}, other: "5c5e9f1e-6d5b-4f0e-8a9d-000000000002"},
	} {
		node := n
		if c.other != "" {
			node.SystemUUID = c.other
		}
		if err := c.used.Is(node, i); (err == nil) != c.is {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReleased tells users of the donor's node how its capture ended for it, as docs/reference/capture.md lists.
func TestReleased(t *testing.T) {
	failed := func(steps ...string) (all []workflow.StepTiming) {
		for _, s := range steps {
			step, failure, _ := strings.Cut(s, "=")
			all = append(all, workflow.StepTiming{Step: step, Failure: failure})
		}
		return all
	}
	for name, c := range map[string]struct {
		steps  []workflow.StepTiming
		copied bool
		want   string
	}{
		"went well":                       {failed("drain", "start"), true, "CaptureGaveBack: returned to service (c)"},
		"failed before the copy":          {failed("drain=a budget", "start"), false, "warning CaptureFailed: its disk was not captured; step drain: a budget"},
		"the first failure is the reason": {failed("drain=a budget", "uncordon=no"), false, "warning CaptureFailed: its disk was not captured; step drain: a budget"},
		"failed after the copy":           {failed("generalize=secrets"), true, "CaptureGaveBack: returned to service (c)"},
		"lost":                            {failed("snapshot", "start=not Ready"), true, "warning CaptureDonorLost: did not come back after its disk was captured: start: not Ready"},
		"lost, and another failure":       {failed("snapshot=no", "start=not Ready", "uncordon=no"), false, "warning CaptureDonorLost: did not come back after its disk was captured: start: not Ready"},
	} {
		k := &kube{}
		d := Donor{Cluster: k, Of: func() Source { return Source{Capture: "c"} }, Recorded: func() ([]string, []workflow.StepTiming) { return nil, c.steps }}
		if d.released(t.Context(), fleet.Node{}, c.copied); !slices.Equal(k.events, []string{c.want}) {
			t.Errorf("%s: %q", name, k.events)
		}
	}
}

// TestConfirmBoot: a copy of a disk in use counts only if the donor's kubelet has reported since, in the
// boot of before.
func TestConfirmBoot(t *testing.T) {
	before := time.Unix(1, 0)
	for name, c := range map[string]struct {
		kube  *kube
		says  string // of the error
		waits bool
	}{
		"reported since":     {kube: &kube{node: fleet.Node{BootID: "b", Reported: time.Unix(2, 0)}}},
		"not since":          {kube: &kube{node: fleet.Node{BootID: "b", Reported: before}}, waits: true},
		"no report at all":   {kube: &kube{node: fleet.Node{BootID: "b"}}, waits: true},
		"booted":             {kube: &kube{node: fleet.Node{BootID: "c", Reported: time.Unix(2, 0)}}, says: "the donor was stopped, booted or given another disk while its disk was copied"},
		"deleted":            {kube: &kube{fails: &fleet.Error{Kind: fleet.KindNotFound}}, says: "its Node was deleted before it showed"},
		"API server is away": {kube: &kube{fails: &fleet.Error{Op: "get node", Kind: fleet.KindTransient}}, says: "get node"},
	} {
		var mu sync.Mutex
		taken := Taken{BootID: "b", Reported: before}
		d := Donor{Cluster: c.kube, Machine: workflow.PartOf(&mu, &Machine{Instance: donorID}), Taken: workflow.PartOf(&mu, &taken), Of: func() Source { return Source{} }}
		w, err := d.confirmBoot(t.Context(), nil)
		if (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) || (w.RequeueAfter > 0) != c.waits || (taken.BootID == "") != (c.says == "" && !c.waits) {
			t.Errorf("%s: %v, %v, %+v", name, w, err, taken)
		}
	}
}

// TestStayed: a snapshot of a disk in use is none of a donor that is seen to have stopped, booted or got
// another disk.
func TestStayed(t *testing.T) {
	runs := fleet.Instance{Power: fleet.PowerRunning, OSDisk: "/d"}
	for name, c := range map[string]struct {
		there fleet.Instance
		boot  string
		fails error
		is    bool
	}{
		"runs":          {there: runs, boot: "b", is: true},
		"stopped":       {there: fleet.Instance{Power: fleet.PowerStopped, OSDisk: "/d"}, boot: "b"},
		"booted":        {there: runs, boot: "c"},
		"another disk":  {there: fleet.Instance{Power: fleet.PowerRunning, OSDisk: "/e"}, boot: "b"},
		"was deleted":   {fails: &fleet.Error{Kind: fleet.KindNotFound}, boot: "b"},
		"spelling only": {there: fleet.Instance{Power: fleet.PowerRunning, OSDisk: "/D"}, boot: "b", is: true},
	} {
		var mu sync.Mutex
		taken, at := Taken{BootID: "b"}, time.Unix(3, 0)
		d := Donor{Cloud: machines{there: c.there, fails: c.fails}, Cluster: &kube{node: fleet.Node{BootID: c.boot, Reported: at}}, Of: func() Source { return Source{} },
			Machine: workflow.PartOf(&mu, &Machine{Instance: donorID, Disk: "/d"}), Taken: workflow.PartOf(&mu, &taken)}
		if err := d.stayed(t.Context()); (err == nil) != c.is || c.is && !taken.Reported.Equal(at) {
			t.Errorf("%s: %v, %+v", name, err, taken)
		}
	}
}

// reportLine is what ortet-node prints.
func reportLine(r wire.GeneralizeReport) []byte {
	data, err := json.Marshal(wire.GeneralizeLine{Report: &r})
	if err != nil {
		panic(err)
	}
	return append(data, '\n')
}

// TestFlush says why a donor's disk was not flushed, as its pod shows it.
func TestFlush(t *testing.T) {
	at := time.Unix(100, 0).UTC()
	for name, c := range map[string]struct {
		job   cluster.JobState
		since time.Duration
		says  string
		waits string
		done  bool
	}{
		"flushed":                 {job: cluster.JobState{Exists: true, Ran: true, Output: reportLine(wire.GeneralizeReport{Capture: "c", Outcome: wire.Generalized, Flushed: at})}, done: true},
		"of another capture":      {job: cluster.JobState{Exists: true, Ran: true, Output: reportLine(wire.GeneralizeReport{Capture: "x", Flushed: at, Outcome: wire.GeneralizeFailed})}, says: "it failed without a reason"},
		"refused":                 {job: cluster.JobState{Exists: true, Ran: true, Output: reportLine(wire.GeneralizeReport{Capture: "c", Outcome: wire.DiskRefused, Message: "a dead disk"})}, says: "a dead disk"},
		"starts":                  {job: cluster.JobState{Exists: true}, waits: "flushing"},
		"its image is pulled":     {job: cluster.JobState{Exists: true, Why: "ContainerCreating"}, waits: "ContainerCreating"},
		"another ortet-node":      {job: cluster.JobState{Exists: true, Ran: true, Done: true, ExitCode: 64, Output: []byte("unknown flag")}, says: `the flush pod did not run: "unknown flag"; give this version's own image`},
		"never started":           {job: cluster.JobState{Exists: true, Why: "ImagePullBackOff"}, since: PodFor, says: "the flush pod did not run: ImagePullBackOff; give this version's own image"},
		"hangs":                   {job: cluster.JobState{Exists: true, Ran: true}, since: PodFor, says: "the flush pod gave no report within 2m0s; look for dead disks"},
		"ended without a report":  {job: cluster.JobState{Exists: true, Ran: true, Done: true, ExitCode: 1}, says: "the flush pod gave no report within 2m0s; look for dead disks"},
		"lost":                    {job: cluster.JobState{Done: true, Why: "NodeLost"}, says: "the flush pod gave no report within 2m0s: NodeLost; look for dead disks"},
		"gone, and not yet ended": {job: cluster.JobState{}, since: time.Minute, waits: "flushing"},
	} {
		var mu sync.Mutex
		begun, taken := time.Unix(1000, 0), Taken{}
		d := Donor{Cluster: &kube{job: c.job}, Now: func() time.Time { return begun.Add(c.since) }, Taken: workflow.PartOf(&mu, &taken), flushing: begun,
			Of: func() Source { return Source{Capture: "c", Request: plan.Request{Node: "n"}} }}
		w, err := d.flush(t.Context(), nil)
		if (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) || w.Status != c.waits || c.done != (taken.Online != "") || c.done != d.flushed.Equal(begun) {
			t.Errorf("%s: %v, %v, %+v", name, w, err, taken)
		}
		if d.flushing.IsZero() == (c.waits != "") {
			t.Errorf("%s: the next pass starts a pod: %t", name, d.flushing.IsZero())
		}
	}
}
