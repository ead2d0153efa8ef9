package donor

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/test/workflowtest"
)

// act runs one act alone.
func (s *service) act(t *testing.T, d *Donor, do workflow.Act) workflowtest.Played {
	t.Helper()
	return workflowtest.Play(t, d.Cloud, workflow.Step{ID: "act", Do: do})
}

// TestEnsureCopy makes a copy under a name where what is there is not the capture's own, or failed.
func TestEnsureCopy(t *testing.T) {
	for name, c := range map[string]struct {
		there *fleet.Disk
		disk  bool
		begun string
		says  string
	}{
		"nothing there":           {begun: "create snapshot"},
		"its own":                 {there: &fleet.Disk{Tags: map[string]string{fleet.TagCapture: "c"}, ProvisioningState: plan.Succeeded}},
		"its own failed":          {there: &fleet.Disk{Tags: map[string]string{fleet.TagCapture: "c"}, ProvisioningState: plan.Failed}, begun: "delete snapshot, create snapshot"},
		"of an earlier capture":   {there: &fleet.Disk{Tags: map[string]string{fleet.TagCapture: "b"}, ProvisioningState: plan.Succeeded}, begun: "delete snapshot, create snapshot"},
		"of others":               {there: &fleet.Disk{ProvisioningState: plan.Succeeded}, says: "it exists, and is not this capture's; detach and delete it if it is not needed"},
		"another's, and attached": {disk: true, there: &fleet.Disk{Tags: map[string]string{fleet.TagCapture: "b"}, ManagedBy: "/vm", ProvisioningState: plan.Succeeded}, says: "it exists, and is not this capture's"},
		"its own, and attached":   {disk: true, there: &fleet.Disk{Tags: map[string]string{fleet.TagCapture: "c"}, ManagedBy: "/vm", ProvisioningState: plan.Succeeded}},
		"an earlier disk":         {disk: true, there: &fleet.Disk{Tags: map[string]string{fleet.TagCapture: "b"}, ProvisioningState: plan.Succeeded}, begun: "delete disk, create disk"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := inService()
				id, made := snap, fleet.Change(fleet.CreateSnapshot{ID: snap, Tags: map[string]string{fleet.TagCapture: "c"}})
				if c.disk {
					id = group + "/disks/work"
					made = fleet.CreateDisk{ID: id}
					s.effects["create disk"] = func() {
						s.copies[id] = fleet.Disk{Tags: map[string]string{fleet.TagCapture: "c"}, ProvisioningState: plan.Succeeded}
					}
				}
				if c.there != nil {
					s.copies[id] = *c.there
				}
				d, _, _, _ := s.donor(plan.Request{})
				p := s.act(t, d, func(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) { return d.EnsureCopy(ctx, p, made) })
				if got := strings.Join(s.log, ", "); got != c.begun || (p.Err != nil) != (c.says != "") || p.Err != nil && !strings.Contains(p.Err.Error(), c.says) {
					t.Errorf("%q, %v", got, p.Err)
				}
				s.log = nil
				s.act(t, d, d.DeleteCopy(id)) // others' stays
				if _, stays := s.copies[id]; stays != (name == "of others") || (len(s.log) == 0) != stays {
					t.Errorf("deleted: %t, %q", !stays, s.log)
				}
			})
		})
	}
}

// TestProtect marks a Node that nobody else uses, and protects its machine as far as Azure can.
func TestProtect(t *testing.T) {
	refusal := func(kind fleet.Kind, code string) error {
		return &fleet.Error{Op: "protect", Kind: kind, Code: code, Err: errors.New("no")}
	}
	bench := Used{Mark: fleet.AnnotationWorkbench, Node: "n", VMID: vmID, UID: "u"}
	for name, c := range map[string]struct {
		found       func(*service)
		used        Used // as workbench
		says        string
		want        fleet.Protection
		unprotected bool
		log         string // that it has
	}{
		"donor":                          {want: fleet.Protection{ScaleIn: true, ScaleSetActions: true}},
		"workbench":                      {used: bench, want: fleet.Protection{ScaleIn: true}, log: "workbench=" + string(pool1)},
		"workbench of a protected owner": {used: bench, found: func(s *service) { s.there.Protection = fleet.Protection{ScaleSetActions: true} }, want: fleet.Protection{ScaleIn: true, ScaleSetActions: true}},
		"workbench in no scale set": {used: bench, found: func(s *service) {
			s.there.ID, s.there.Pool, s.there.Protection = flexible, "", fleet.Protection{}
			s.node.ProviderID = "azure://" + string(flexible)
		}},
		"a workbench of another pool's":    {found: func(s *service) { s.node.Annotations[fleet.AnnotationWorkbench] = string(pool1) + "2" }, says: "a capture of " + string(pool1) + "2 uses it as its workbench"},
		"workbench that is being captured": {used: Used{Mark: fleet.AnnotationWorkbench, Node: "m"}, found: func(s *service) { s.node.Name, s.node.Annotations[fleet.AnnotationCapture] = "m", "x" }, says: "it is being captured"},
		"another Node by now":              {found: func(s *service) { s.node.UID = "v" }, says: "it, or its machine, was deleted and made again"},
		"the Machine cannot be read":       {found: func(s *service) { s.refuses["read machine"] = refusal(fleet.KindDenied, "") }, says: "protect: no"},
		"no Machine":                       {found: func(s *service) { s.machine = map[string]string{} }, want: fleet.Protection{ScaleIn: true, ScaleSetActions: true}, log: "capture=c"},
		"Azure protects no instance of it": {found: func(s *service) { s.flexible(); s.refuses["protect instance"] = refusal(fleet.KindUnsupported, "x") }, unprotected: true, want: fleet.Protection{ScaleIn: true}, log: "note Azure does not protect instances of this scale set from scale-in: protect: no; the Nodes' annotations keep cluster-autoscaler off them"},
		"Azure finds it invalid":           {found: func(s *service) { s.flexible(); s.refuses["protect instance"] = refusal(fleet.KindInvalid, "x") }, unprotected: true, want: fleet.Protection{ScaleIn: true}},
		"not allowed for a minute": {found: func(s *service) {
			s.flexible()
			s.refuses["protect instance"] = refusal(fleet.KindConflict, "OperationNotAllowed")
		}, unprotected: true, want: fleet.Protection{ScaleIn: true}},
		"it may not":                {found: func(s *service) { s.flexible(); s.refuses["protect instance"] = refusal(fleet.KindDenied, "x") }, says: "protect: no"},
		"refused for a Uniform one": {found: func(s *service) { s.refuses["protect instance"] = refusal(fleet.KindUnsupported, "x") }, says: "protect: no"},
		"it is being deleted": {found: func(s *service) {
			s.flexible()
			s.there.ProvisioningState = "deleting"
			s.refuses["protect instance"] = refusal(fleet.KindInvalid, "x")
		}, says: "protect: no"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := inService()
				s.there.Protection = fleet.Protection{ScaleIn: true}
				if c.found != nil {
					c.found(s)
				}
				before, skip := maps.Clone(s.node.Annotations), s.machine[fleet.AnnotationSkipRemediation]
				was := s.there.Protection
				d, _, taken, _ := s.donor(plan.Request{})
				u, value := d.used(), "c"
				if c.used.Mark != "" {
					u, value = c.used, string(pool1)
					u.Instance = s.there.ID
				}
				var p workflowtest.Played
				protect := workflow.Step{ID: "protect", Do: func(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) { return d.Protect(ctx, p, u, value) },
					Undo: &workflow.Undo{ID: "unprotect", When: []string{"use"}, Do: func(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) { return d.Unprotect(ctx, p, u) }}}
				use := workflow.Step{ID: "use", After: []string{"protect"}, Do: func(context.Context, *workflow.Pass) (workflow.Wait, error) {
					if s.there.Protection.ScaleIn != c.want.ScaleIn || s.there.Protection.ScaleSetActions != c.want.ScaleSetActions {
						t.Errorf("%+v, want %+v", s.there.Protection, c.want)
					}
					if s.node.Annotations[fleet.AnnotationScaleDownDisabled] != "true" || s.node.Annotations[u.Mark] != value || s.machine[fleet.AnnotationSkipRemediation] != "true" || s.machine[u.Mark] != value {
						t.Errorf("annotations %v, %v", s.node.Annotations, s.machine)
					}
					return done, nil
				}}
				p = workflowtest.Play(t, d.Cloud, protect, use)
				if (p.Err != nil) != (c.says != "") || p.Err != nil && !strings.Contains(p.Err.Error(), c.says) || taken.Unprotected != c.unprotected || !strings.Contains(strings.Join(s.log, "\n"), c.log) {
					t.Errorf("%v, %+v\n%s", p.Err, taken, strings.Join(s.log, "\n"))
				}
				if n := strings.Count(strings.Join(s.log, "\n"), "note "); n != map[bool]int{true: 1}[c.unprotected] {
					t.Errorf("%d notes", n)
				}
				if s.there.Protection.Off = false; !maps.Equal(s.node.Annotations, before) || s.machine[fleet.AnnotationSkipRemediation] != skip || s.machine[u.Mark] != "" || s.there.Protection != was {
					t.Errorf("not as before: %v, %v, %+v", s.node.Annotations, s.machine, s.there.Protection)
				}
				if n := len(p.Changes); c.unprotected && name != "not allowed for a minute" && n != 1 {
					t.Errorf("Azure was asked %d times", n)
				}
				if events := strings.Count(strings.Join(s.log, "\n"), "event "); c.used.Mark != "" && events > 0 {
					t.Errorf("%d events of a workbench", events)
				}
			})
		})
	}
}

// flexible makes the donor a virtual machine of a Flexible scale set.
func (s *service) flexible() {
	s.there.ID, s.node.ProviderID = flexible, "azure://"+string(flexible)
}

// TestUnprotect leaves alone what is not this capture's any more, and restores all that is.
func TestUnprotect(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(*service)
		log       string
	}{
		"as it was": {log: "annotate machine m skip-remediation=owner's capture-, annotate node scale-down-disabled=false capture-, event CaptureGaveBack: returned to service (c), protect instance"},
		"never set scale-down": {func(s *service) { delete(s.node.Annotations, fleet.AnnotationScaleDownDisabled) },
			"annotate machine m skip-remediation=owner's capture-, annotate node scale-down-disabled- capture-, event CaptureGaveBack: returned to service (c), protect instance"},
		"its owner changed it as it was marked": {func(s *service) {
			s.effects["mark node"] = func() { s.node.Annotations[fleet.AnnotationScaleDownDisabled] = "later" }
		},
			"annotate machine m skip-remediation=owner's capture-, annotate node scale-down-disabled=later capture-, event CaptureGaveBack: returned to service (c), protect instance"},
		"registered again":         {func(s *service) { s.effects["used"] = func() { s.node.Annotations = map[string]string{} } }, "annotate machine m skip-remediation=owner's capture-, protect instance"},
		"the Machine is another's": {func(s *service) { s.effects["used"] = func() { s.machine[fleet.AnnotationCapture] = "d" } }, "annotate node scale-down-disabled=false capture-, event CaptureGaveBack: returned to service (c), protect instance"},
		"used by another capture": {func(s *service) {
			s.effects["used"] = func() { s.node.Annotations[fleet.AnnotationWorkbench] = "/other" }
		}, ""},
		"its Node is gone": {func(s *service) {
			s.effects["used"] = func() { s.refuses["read node"] = &fleet.Error{Kind: fleet.KindNotFound} }
		},
			"annotate machine m skip-remediation=owner's capture-, protect instance"},
		"its machine is gone": {func(s *service) {
			s.effects["used"] = func() { s.refuses["read instance"] = &fleet.Error{Kind: fleet.KindNotFound} }
		},
			"annotate machine m skip-remediation=owner's capture-, annotate node scale-down-disabled=false capture-, event CaptureGaveBack: returned to service (c)"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := inService()
				if c.meanwhile != nil {
					c.meanwhile(s)
				}
				d, _, _, _ := s.donor(plan.Request{})
				row := d.ProtectRow("")
				copied := workflow.Step{ID: StepSnapshot, After: []string{StepProtect}, Do: func(context.Context, *workflow.Pass) (workflow.Wait, error) {
					if s.log = nil; s.effects["used"] != nil {
						s.effects["used"]()
					}
					return done, nil
				}}
				if p := workflowtest.Play(t, d.Cloud, row, copied); p.Err != nil || strings.Join(s.log, ", ") != c.log {
					t.Errorf("%v, %q", p.Err, s.log)
				}
			})
		})
	}
}

// TestStart: a donor is back once its Node is Ready with another boot, or is known not to have stopped.
func TestStart(t *testing.T) {
	for name, c := range map[string]struct {
		found   func(*service)
		stop    func(*service) error // what the stop comes to
		takes   [2]time.Duration
		starts  int
		deleted bool
	}{
		"was stopped":          {stop: func(s *service) error { s.off(); return nil }, starts: 1, takes: [2]time.Duration{time.Minute, 2 * time.Minute}},
		"the stop was refused": {stop: func(*service) error { return &fleet.Error{Kind: fleet.KindDenied, Code: "No"} }},
		"the answer was lost":  {stop: func(*service) error { return &fleet.Error{Kind: fleet.KindInvalid} }, takes: [2]time.Duration{time.Minute, 90 * time.Second}},
		"lost, and it takes effect": {stop: func(s *service) error {
			time.AfterFunc(10*time.Second, s.off)
			return &fleet.Error{Kind: fleet.KindInvalid}
		}, starts: 1, takes: [2]time.Duration{time.Minute, 3 * time.Minute}},
		"lost, after a boot of its own": {stop: func(s *service) error {
			s.node.BootID = "b2"
			time.AfterFunc(10*time.Second, s.off)
			return &fleet.Error{Kind: fleet.KindInvalid}
		}, starts: 1, takes: [2]time.Duration{time.Minute, 3 * time.Minute}},
		"preempted as it stopped": {stop: func(s *service) error {
			s.there.Power, s.notReady = fleet.PowerStopping, time.Hour
			time.AfterFunc(20*time.Second, func() { s.node.Reported = time.Unix(20, 0) })
			return &fleet.Error{Kind: fleet.KindInvalid}
		}, starts: 1, takes: [2]time.Duration{20 * time.Second, 50 * time.Second}},
		"accepted, without effect": {stop: func(*service) error { return nil }, takes: [2]time.Duration{50 * time.Second, 70 * time.Second}},
		"started by somebody":      {stop: func(s *service) error { s.off(); time.AfterFunc(time.Second, s.on); return nil }, takes: [2]time.Duration{0, 10 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := inService()
				s.notReady = time.Minute
				d, _, taken, _ := s.donor(plan.Request{})
				azureStop := &stopper{azureOf: azureOf{service: s}, stop: c.stop}
				d.Cloud = azureStop
				rows := d.Rows("", false, "version")
				at := slices.IndexFunc(rows, func(s workflow.Step) bool { return s.ID == StepStop })
				row := rows[at]
				row.Undo.When = nil
				var begun time.Time
				fails := workflow.Step{ID: "fails", After: []string{StepStop}, Do: func(context.Context, *workflow.Pass) (workflow.Wait, error) {
					begun = time.Now()
					if name == "started by somebody" {
						time.Sleep(5 * time.Second)
					}
					return done, errors.New("no")
				}}
				begun = time.Now()
				p := workflowtest.Play(t, d.Cloud, row, fails)
				took, n := time.Since(begun), strings.Count(strings.Join(s.log, "\n"), "start instance")
				if workflow.ExitCode(p.Err) != workflow.ExitFailed || n != c.starts || took < c.takes[0] || took > max(c.takes[1], time.Second) || taken.DonorGone != c.deleted || !s.node.Ready {
					t.Errorf("%v; started %d times in %s, %+v, %q", p.Err, n, took, taken, s.log)
				}
			})
		})
	}
}

// A stopper decides what a stop comes to.
type stopper struct {
	azureOf
	stop func(*service) error
}

func (x *stopper) Begin(ctx context.Context, c fleet.Change) (fleet.Token, error) {
	if _, is := c.(fleet.StopInstance); is {
		return "", x.stop(x.service)
	}
	return x.azureOf.Begin(ctx, c)
}

func (s *service) off() {
	s.there.Power, s.node.Ready = fleet.PowerStopped, false
}

func (s *service) on() {
	s.there.Power, s.node.Ready, s.node.BootID = fleet.PowerRunning, true, "new boot"
}
