package donor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/test/workflowtest"
)

const (
	group    = fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute")
	pool1    = group + "/virtualMachineScaleSets/pool1"
	flexible = group + "/virtualMachines/vm1"
	snap     = group + "/snapshots/snap"
	vmID     = "5c5e9f1e-6d5b-4f0e-8a9d-000000000001"
)

// A service is a donor's Node and machine, and what a donor's rows ask of both is in its log.
type service struct {
	mu       sync.Mutex
	log      []string
	node     fleet.Node
	machine  map[string]string // annotations of the Node's Machine
	there    fleet.Instance
	copies   map[fleet.ResourceID]fleet.Disk
	refuses  map[string]error      // by verb of a change, or by call
	effects  map[string]func()     // further ones of a verb
	prints   wire.GeneralizeReport // of the flush pod
	options  cluster.DrainOptions  // of the drain
	notReady time.Duration         // after a start
	job      cluster.Job           // that was started
	recorded []workflow.StepTiming
}

func (s *service) call(what string, args ...any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, strings.TrimSpace(what+" "+fmt.Sprint(args...)))
	return s.refuses[what]
}

type azureOf struct {
	azure.Cloud
	*service
}

type kubeOf struct {
	cluster.Cluster
	*service
}

func (a azureOf) Instance(context.Context, fleet.ResourceID) (fleet.Instance, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.there, a.refuses["read instance"]
}

func (a azureOf) Disk(_ context.Context, id fleet.ResourceID) (fleet.Disk, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	x, is := a.copies[id]
	if !is {
		return x, &fleet.Error{Kind: fleet.KindNotFound}
	}
	return x, nil
}

func (a azureOf) Snapshot(ctx context.Context, id fleet.ResourceID) (fleet.Snapshot, error) {
	x, err := a.Disk(ctx, id)
	return fleet.Snapshot{Tags: x.Tags, ProvisioningState: x.ProvisioningState}, err
}

func (a azureOf) Begin(_ context.Context, change fleet.Change) (fleet.Token, error) {
	if err := a.call(change.Verb()); err != nil {
		return "", err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch c := change.(type) {
	case fleet.StopInstance:
		a.there.Power = map[bool]fleet.PowerState{true: fleet.PowerDeallocated, false: fleet.PowerStopped}[c.Deallocate]
		a.node.Ready, a.node.NotReadyWhy = false, "NodeStatusUnknown"
	case fleet.StartInstance:
		a.there.Power = fleet.PowerRunning
		time.AfterFunc(a.notReady, func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.node.Ready, a.node.BootID = true, "new boot"
		})
	case fleet.ProtectInstance:
		a.there.Protection = c.Protection
	case fleet.CreateSnapshot:
		a.copies[c.ID] = fleet.Disk{Tags: c.Tags, ProvisioningState: plan.Succeeded}
	case fleet.DeleteSnapshot:
		delete(a.copies, c.ID)
	case fleet.DeleteDisk:
		delete(a.copies, c.ID)
	}
	if then := a.effects[change.Verb()]; then != nil {
		then()
	}
	return "", nil
}

func (k kubeOf) Node(context.Context, string) (fleet.Node, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.refuses["read node"]; err != nil {
		return fleet.Node{}, err
	}
	n := k.node
	n.Annotations = maps.Clone(n.Annotations)
	return n, nil
}

func (k kubeOf) SetUnschedulable(_ context.Context, node string, is bool) error {
	err := k.call(map[bool]string{true: "cordon", false: "uncordon"}[is], node)
	if err == nil {
		k.node.Unschedulable = is
	}
	return err
}

func (k kubeOf) Drain(_ context.Context, node string, o cluster.DrainOptions, report func(cluster.DrainEvent)) error {
	k.options = o
	report(cluster.DrainEvent{Pod: "a/b", What: "blocked", Because: "a budget", Left: 2})
	report(cluster.DrainEvent{Pod: "a/b", What: "evicted", Left: 1})
	return k.call("drain", node)
}

// change applies annotations, of which nil removes one.
func change(to map[string]string, by map[string]*string) (text string) {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(by)) {
		value := "-"
		if by[key] == nil {
			delete(to, key)
		} else {
			to[key], value = *by[key], "="+*by[key]
		}
		all = append(all, key[strings.LastIndex(key, "/")+1:]+value)
	}
	return strings.Join(all, " ")
}

func (k kubeOf) AnnotateUnchanged(_ context.Context, _ fleet.Node, by map[string]*string) error {
	if then := k.effects["mark node"]; then != nil { // others write first
		delete(k.effects, "mark node")
		then()
		return &fleet.Error{Kind: fleet.KindConflict}
	}
	return k.call("mark node", change(k.node.Annotations, by))
}

func (k kubeOf) Annotate(_ context.Context, _ string, by map[string]*string) error {
	return k.call("annotate node", change(k.node.Annotations, by))
}

func (k kubeOf) Machine(context.Context, fleet.Node) (map[string]string, bool, error) {
	return maps.Clone(k.machine), k.machine != nil, k.refuses["read machine"]
}

func (k kubeOf) AnnotateMachine(_ context.Context, n fleet.Node, by map[string]*string) (map[string]*string, bool, error) {
	return nil, true, k.call("annotate machine", n.Annotations[fleet.AnnotationCapiMachine], " ", change(k.machine, by))
}

func (k kubeOf) Event(_ context.Context, _ fleet.Node, warning bool, reason, text string) {
	_ = k.call("event", reason, map[bool]string{true: " (warning): ", false: ": "}[warning], text)
}

func (k kubeOf) StartJob(_ context.Context, job cluster.Job) error {
	k.job = job
	return k.call("start", job.Name)
}

func (k kubeOf) ForceDeleteJob(_ context.Context, name string) error { return k.call("delete", name) }

func (k kubeOf) Job(context.Context, string) (cluster.JobState, error) {
	return cluster.JobState{Exists: true, Ran: true, Output: reportLine(k.prints)}, nil
}

// inService is a donor as captures find it.
func inService() *service {
	return &service{
		node: fleet.Node{Name: "n", UID: "u", Ready: true, BootID: "boot", SystemUUID: vmID, ProviderID: "azure://" + string(donorID), Reported: time.Unix(1, 0),
			Annotations: map[string]string{fleet.AnnotationScaleDownDisabled: "false", fleet.AnnotationCapiMachine: "m", "other": "x"}},
		machine: map[string]string{fleet.AnnotationSkipRemediation: "owner's"},
		there:   fleet.Instance{ID: donorID, HostName: "n", VMID: vmID, Pool: pool1, Power: fleet.PowerRunning, OSDisk: "/disk", Protection: fleet.Protection{ScaleIn: true}},
		copies:  map[fleet.ResourceID]fleet.Disk{}, refuses: map[string]error{}, effects: map[string]func(){},
		prints: wire.GeneralizeReport{Capture: "c", Outcome: wire.Generalized, Flushed: time.Unix(100, 0).UTC()},
	}
}

// donor returns the donor of a capture that finds the service, and what its rows make of its state.
func (s *service) donor(q plan.Request) (d *Donor, machine *Machine, taken *Taken, builtAt *string) {
	var mu sync.Mutex
	q.Node, q.GracePeriod = "n", cmp.Or(q.GracePeriod, time.Minute)
	machine, taken, builtAt = &Machine{Instance: s.there.ID, VMID: vmID, UID: "u"}, &Taken{}, new(string)
	d = &Donor{Cloud: azureOf{service: s}, Cluster: kubeOf{service: s}, Now: time.Now, Note: func(format string, args ...any) { _ = s.call("note", fmt.Sprintf(format, args...)) },
		Machine: workflow.PartOf(&mu, machine), Taken: workflow.PartOf(&mu, taken), BuiltAt: workflow.PartOf(&mu, builtAt),
		Of: func() Source {
			return Source{Request: q, Capture: "c", Names: plan.Names{Snapshot: snap}, Pool: pool1, Location: "here", Tags: map[string]string{fleet.TagCapture: "c"},
				Namespace: "ns", Leave: []string{"look"}, Encryption: fleet.Encryption{Set: "/set"}}
		},
		Job: func(name, node, component, capture string, _ time.Time, flags ...string) cluster.Job {
			return cluster.Job{Name: name, Node: node, Command: append([]string{component, capture}, flags...)}
		},
		Recorded: func() ([]string, []workflow.StepTiming) { return nil, s.recorded }}
	return d, machine, taken, builtAt
}

func (d *Donor) all() workflow.Table {
	return append(workflow.Table{d.ProtectRow("")}, d.Rows("", false, "version", StepProtect)...)
}

// TestRowsText: which rows there are, what they wait for, and what undoes them when.
func TestRowsText(t *testing.T) {
	for name, c := range map[string]struct {
		request plan.Request
		want    string
	}{
		"out of service": {plan.Request{}, `
protect: Protect n from autoscalers and repairs; undo unprotect: Restore n's protection; when snapshot; after start uncordon; or node n may still be protected; remove what its owners did not set: az vmss update -g g -n pool1 --instance-id 1 --protect-from-scale-in false --protect-from-scale-set-actions false; kubectl annotate node n ortet.io/capture- ortet.io/workbench- cluster-autoscaler.kubernetes.io/scale-down-disabled-
cordon: Cordon n; after protect; undo uncordon: Uncordon n; when snapshot; needs start; or kubectl uncordon n
drain: Drain n; after cordon
stop: Power off n; after drain; undo start: Start n, and wait until it is Ready; when snapshot; or node n did not come back: it is left cordoned. Check instance 1 (az vmss get-instance-view), start or replace it; then run the same command again, or kubectl uncordon n
snapshot: Take a snapshot of n's OS disk; after stop; undo delete-snapshot: Delete the snapshot of the donor's disk; when version; keep done; or az snapshot delete --ids snap`},
		"online": {plan.Request{Online: true}, `
protect: Protect n from autoscalers and repairs; undo unprotect: Restore n's protection; when snapshot; after start uncordon; or node n may still be protected; remove what its owners did not set: az vmss update -g g -n pool1 --instance-id 1 --protect-from-scale-in false --protect-from-scale-set-actions false; kubectl annotate node n ortet.io/capture- ortet.io/workbench- cluster-autoscaler.kubernetes.io/scale-down-disabled-
cordon: Cordon n; after protect; skip: --online: the node stays in service; undo uncordon: Uncordon n; when snapshot; needs start; or kubectl uncordon n
drain: Drain n; after cordon; skip: --online: the node stays in service
stop: Power off n; after drain; skip: --online: the node stays in service; undo start: Start n, and wait until it is Ready; when snapshot; or node n did not come back: it is left cordoned. Check instance 1 (az vmss get-instance-view), start or replace it; then run the same command again, or kubectl uncordon n
flush: Flush n's file systems to their disks; after protect; undo delete-flush: Delete the flush pod; when snapshot; or kubectl delete pod -n ns ortet-generalize-pool1-flush
snapshot: Take a snapshot of n's OS disk; after flush; undo delete-snapshot: Delete the snapshot of the donor's disk; when version; keep done; or az snapshot delete --ids snap
confirm-boot: Confirm that n did not boot while its disk was copied; after snapshot`},
	} {
		d, _, _, _ := inService().donor(c.request)
		if got := workflowtest.Text(d.all()...); got != strings.TrimSpace(c.want) {
			t.Errorf("%s:\n%s", name, got)
		}
	}
	fresh, _, _, _ := inService().donor(plan.Request{Fresh: "pool1"})
	if text := workflowtest.Text(fresh.all()...); !strings.Contains(text, "undo uncordon: Leave n cordoned; when snapshot; needs start\n") {
		t.Error(text)
	}
	s := inService()
	s.there.ID = flexible
	d, _, _, _ := s.donor(plan.Request{Deallocate: true, ForceDrain: true})
	rows := d.Rows("there", true, "version")
	if text := workflowtest.Text(rows...); !strings.Contains(text, "stop: Deallocate n") || !strings.Contains(text, "(az vm get-instance-view)") || !strings.Contains(text, "skip: there; exists already; undo delete-snapshot") {
		t.Error(text)
	}
	if drain := rows[slices.IndexFunc(rows, func(s workflow.Step) bool { return s.ID == stepDrain })]; drain.Deadline != 6*time.Minute {
		t.Errorf("a drain by force may take %s", drain.Deadline)
	}
}

// TestPlayed runs a donor's rows: all that its Node, its machine and its disk go through, in order, and what
// the capture's record has of it.
func TestPlayed(t *testing.T) {
	marked := []string{"mark node scale-down-disabled=true capture=c", "event CaptureBegun: its OS disk becomes a prototype of its pool (c)", "annotate machine m skip-remediation=true capture=c", "protect instance"}
	back := []string{"annotate machine m skip-remediation=owner's capture-", "annotate node scale-down-disabled=false capture-", "event CaptureGaveBack: returned to service (c)", "protect instance"}
	failed := &fleet.Error{Op: "x", Kind: fleet.KindInvalid, Code: "No", Err: errors.New("no")}
	for name, c := range map[string]struct {
		request plan.Request
		found   func(*service)
		log     []string // between protection and its end
		says    string   // of the error
		note    string
		event   string // at the end of its protection, "" for a good one
		taken   Taken
	}{
		"out of service": {log: []string{"cordon n", "drain n", "stop instance", "create snapshot", "start instance", "uncordon n"}, taken: Taken{Stopped: true}},
		"cordoned before": {found: func(s *service) { s.node.Unschedulable = true }, note: "node n was cordoned before, and stays cordoned",
			log: []string{"cordon n", "drain n", "stop instance", "create snapshot", "start instance"}, taken: Taken{Stopped: true}},
		"deallocated": {request: plan.Request{Deallocate: true}, log: []string{"cordon n", "drain n", "deallocate instance", "create snapshot", "start instance", "uncordon n"}, taken: Taken{Stopped: true}},
		"off already, and to be deallocated": {request: plan.Request{Deallocate: true}, found: func(s *service) { s.there.Power = fleet.PowerStopped },
			log: []string{"cordon n", "drain n", "deallocate instance", "create snapshot", "start instance", "uncordon n"}, taken: Taken{Stopped: true}},
		"off already": {found: func(s *service) { s.there.Power = fleet.PowerDeallocated }, log: []string{"cordon n", "drain n", "create snapshot", "start instance", "uncordon n"}, taken: Taken{Stopped: true}},
		"by force":    {request: plan.Request{ForceDrain: true}, log: []string{"cordon n", "drain n", "stop instance", "create snapshot", "start instance", "uncordon n"}, taken: Taken{Stopped: true}},
		"the drain is blocked": {event: "event CaptureFailed (warning): its disk was not captured; step drain: a budget", found: func(s *service) {
			s.refuses["drain"], s.recorded = failed, []workflow.StepTiming{{Step: "drain", Failure: "a budget"}}
		}, log: []string{"cordon n", "drain n", "uncordon n"}, says: "step drain: x: no; all changes were undone"},
		"the stop is refused": {found: func(s *service) { s.refuses["stop instance"] = failed }, log: []string{"cordon n", "drain n", "stop instance", "uncordon n"}, says: "step stop: x: no; all changes were undone"},
		"another Node by then": {found: func(s *service) { s.effects["protect instance"] = func() { s.node.UID = "v" } }, says: "it, or its machine, was deleted and made again since it was chosen",
			log: []string{"cordon n", "drain n", "uncordon n"}},
		"the copy is refused": {found: func(s *service) { s.refuses["create snapshot"] = failed }, taken: Taken{Stopped: true}, says: "step snapshot: x: no; all changes were undone",
			log: []string{"cordon n", "drain n", "stop instance", "create snapshot", "start instance", "uncordon n"}},
		"started during the copy": {found: func(s *service) {
			s.effects["create snapshot"] = func() { s.there.Power = fleet.PowerRunning; s.node.Ready, s.node.BootID = true, "b2" }
		}, taken: Taken{Stopped: true},
			says: "the donor is running: it was started while its disk was copied", log: []string{"cordon n", "drain n", "stop instance", "create snapshot", "uncordon n", "delete snapshot"}},
		"deleted meanwhile": {found: func(s *service) {
			s.effects["create snapshot"] = func() { s.refuses["start instance"] = &fleet.Error{Kind: fleet.KindNotFound, Code: "NotFound"} }
		},
			note: "node n was deleted during the capture", taken: Taken{Stopped: true, DonorGone: true}, log: []string{"cordon n", "drain n", "stop instance", "create snapshot", "start instance", "uncordon n"}},
		"online": {request: plan.Request{Online: true}, log: []string{"delete ortet-generalize-pool1-flush", "start ortet-generalize-pool1-flush", "create snapshot", "delete ortet-generalize-pool1-flush"},
			found: func(s *service) { time.AfterFunc(time.Minute, func() { s.node.Reported = time.Unix(2, 0) }) },
			taken: Taken{Online: "1970-01-01T00:01:40Z", Reported: time.Unix(1, 0)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := inService()
				s.notReady = time.Minute
				if c.found != nil {
					c.found(s)
				}
				d, machine, taken, builtAt := s.donor(c.request)
				begun := time.Now().UTC()
				if name == "by force" { // a snapshot of before counts from then
					*builtAt = "earlier"
				}
				built := workflow.Step{ID: "version", After: []string{StepSnapshot, UndoStart, UndoUncordon, UndoUnprotect}, Do: func(context.Context, *workflow.Pass) (workflow.Wait, error) {
					return done, s.call("build")
				}}
				p := workflowtest.Play(t, d.Cloud, append(d.all(), built)...)
				want, got := slices.Concat(marked, c.log, back), slices.Clone(s.log)
				if want[len(want)-2] = cmp.Or(c.event, want[len(want)-2]); c.says == "" {
					want = append(want, "build", "delete snapshot")
				}
				order := func(l []string) []string { return slices.Sorted(slices.Values(l)) } // undos run at the same time
				if c.says == "" && c.request.Online || c.says != "" || c.note == "node n was deleted during the capture" {
					want, got = order(want), order(got)
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
				if (p.Err != nil) != (c.says != "") || p.Err != nil && !strings.Contains(p.Err.Error(), c.says) {
					t.Errorf("%s: %v", name, p.Err)
				}
				if strings.Join(p.Notes, "; ") != c.note || *taken != c.taken {
					t.Errorf("%s: notes %q, %+v", name, p.Notes, *taken)
				}
				if _, copied := s.copies[snap]; copied {
					t.Errorf("%s: the copy stays", name)
				}
				if n := s.node; n.Annotations["other"] != "x" || n.Unschedulable != (name == "cordoned before") || s.there.Protection.ScaleSetActions || !s.there.Protection.ScaleIn {
					t.Errorf("%s: left: %+v, %+v", name, n, s.there.Protection)
				}
				if c.says == "" && (machine.Disk != "/disk" || *builtAt == "" || name != "by force" && *builtAt > begun.Add(10*time.Minute).Format(fleet.BuiltAtLayout) || name == "by force" && *builtAt != "earlier") {
					t.Errorf("%s: %+v, built at %q", name, machine, *builtAt)
				}
				if c.request.Online && (!s.job.ReadOnly || s.job.Deadline != PodFor || strings.Join(s.job.Command, " ") != "flush c --root /host --flush" || s.job.Node != "n") {
					t.Errorf("%s: %+v", name, s.job)
				}
				for _, x := range p.Changes {
					if x, is := x.(fleet.CreateSnapshot); is && workflowtest.Short(x) != "{ID:snap Location:here Source:/disk Tags:map[ortet.io_capture:c] Closed:true Encryption:{Set:/set Type:}}" {
						t.Errorf("%s: %s", name, workflowtest.Short(x))
					}
				}
				if o := s.options; !c.request.Online && (o.GracePeriod != time.Minute || o.Deadline > 3*time.Minute || o.Deadline < 2*time.Minute || o.Force != c.request.ForceDrain || o.UID != "u" || !slices.Equal(o.Leave, []string{"look"})) {
					t.Errorf("%s: %+v", name, o)
				}
			})
		})
	}
}
