package azsim

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// An action is something that is done to instances, one by one or through the
// scale set.
type action struct {
	name string // as Azure's messages name it
	span string // its duration in the profile
	// event is the scheduled event that tells of it, where anybody hears of events:
	// it then waits for approval or the event's time. "" is none.
	event string
	// passing is the power state while it lasts; "" leaves it.
	passing string
	// check refuses it, under the lock; may be nil.
	check func(x *instance, name string) error
	// idle says, under the lock, that there is nothing to do; may be nil.
	idle func(x *instance) bool
	// run does it within about span, without the lock.
	run func(ctx context.Context, s *Server, e *entry, o actionOptions) error
}

type actionOptions struct {
	span         time.Duration
	skipShutdown bool
	reimage      *reimage
}

// options reads what a request says beside the action and its instances.
func (c *call) options(a action) (actionOptions, error) {
	o := actionOptions{skipShutdown: strings.EqualFold(c.query("skipShutdown"), "true")}
	var err error
	switch {
	case a.name == "reimage":
		o.reimage, err = decodeReimage(c)
	case strings.EqualFold(c.query("hibernate"), "true"):
		err = badRequest("NotSimulated", "azsim does not simulate hibernation: deallocate without hibernate=true.")
	}
	return o, err
}

func actStart() action {
	return action{
		name: "start", span: "instance.start", passing: powerStarting,
		check: needsAllocation("start"),
		idle:  func(x *instance) bool { return x.power == powerRunning },
		run: func(ctx context.Context, s *Server, e *entry, o actionOptions) error {
			begun := time.Now()
			if err := s.boot(ctx, e); err != nil {
				return err
			}
			return s.reach(ctx, e, powerRunning, begun.Add(o.span))
		},
	}
}

func actPowerOff() action {
	return action{
		name: "powerOff", span: "instance.poweroff", passing: powerStopping,
		check: func(x *instance, name string) error {
			if x.power == powerDeallocated {
				return conflict("Operation 'powerOff' is not allowed on VM '%s' since the VM is either deallocated or marked to be deallocated.", name)
			}
			if err := needsAllocation("powerOff")(x, name); err != nil {
				return err
			}
			return refuseEphemeral(x, "powerOff", name)
		},
		idle: func(x *instance) bool { return x.power == powerStopped },
		run:  stopTo(powerStopped),
	}
}

func actDeallocate() action {
	return action{
		name: "deallocate", span: "instance.deallocate", passing: powerDeallocating,
		check: func(x *instance, name string) error { return refuseEphemeral(x, "deallocate", name) },
		idle:  func(x *instance) bool { return x.power == powerDeallocated },
		run:   stopTo(powerDeallocated),
	}
}

func actRestart() action {
	return action{
		name: "restart", span: "instance.restart", event: EventReboot,
		check: needsRunning,
		run:   func(ctx context.Context, s *Server, e *entry, o actionOptions) error { return s.cycle(ctx, e, true, o) },
	}
}

func actRedeploy() action {
	return action{
		name: "redeploy", span: "instance.redeploy", event: EventRedeploy, passing: powerStarting,
		check: func(x *instance, name string) error {
			if isEphemeral(x.profile) { // a new host has no OS disk: Azure makes a new one
				return refuseEphemeral(x, "redeploy", name)
			}
			return needsRunning(x, name)
		},
		run: func(ctx context.Context, s *Server, e *entry, o actionOptions) error {
			return s.cycle(ctx, e, false, o)
		},
	}
}

func actReimage() action {
	return action{
		name: "reimage", span: "instance.reimage",
		check: func(x *instance, name string) error {
			if x.power == powerDeallocated {
				return needsRunning(x, name)
			}
			return nil
		},
		run: func(ctx context.Context, s *Server, e *entry, o actionOptions) error { return s.renew(ctx, e, o) },
	}
}

func actUpgrade() action {
	return action{
		name: "manualUpgrade", span: "instance.upgrade",
		run: func(ctx context.Context, s *Server, e *entry, o actionOptions) error {
			return s.renew(ctx, e, o)
		},
	}
}

func needsRunning(x *instance, _ string) error {
	if x.power != powerRunning {
		return conflict("The operation requires the VM to be running (or set to run).")
	}
	return nil
}

// needsAllocation refuses what an instance cannot do that never had a host: that
// Azure refuses a start of it is inferred from cluster-autoscaler, which deletes it.
func needsAllocation(what string) func(*instance, string) error {
	return func(x *instance, name string) error {
		if x.power == "" {
			return conflict("Operation '%s' is not allowed on VM '%s' since its allocation failed. Delete the VM.", what, name)
		}
		return nil
	}
}

// refuseEphemeral refuses what would lose an OS disk that lies on the host.
func refuseEphemeral(x *instance, what, name string) error {
	if !isEphemeral(x.profile) {
		return nil
	}
	return conflict("Operation '%s' is not supported on VM '%s' since it has an ephemeral OS disk.", what, name)
}

// stopTo shuts the computer down, in order unless the request says otherwise.
func stopTo(power string) func(context.Context, *Server, *entry, actionOptions) error {
	return func(ctx context.Context, s *Server, e *entry, o actionOptions) error {
		begun := time.Now()
		x, _ := instanceOf(e)
		err := s.onSubstrate(ctx, x, func(sub Substrate) error { return sub.Shutdown(ctx, e.id.key(), !o.skipShutdown) })
		if err != nil {
			return err
		}
		span := o.span
		if o.skipShutdown {
			span /= 4
		}
		return s.reach(ctx, e, power, begun.Add(span))
	}
}

// cycle stops the computer and starts it again.
func (s *Server) cycle(ctx context.Context, e *entry, graceful bool, o actionOptions) error {
	begun := time.Now()
	x, _ := instanceOf(e)
	err := s.onSubstrate(ctx, x, func(sub Substrate) error { return sub.Shutdown(ctx, e.id.key(), graceful) })
	if err != nil {
		return err
	}
	if err := s.boot(ctx, e); err != nil {
		return err
	}
	return s.reach(ctx, e, powerRunning, begun.Add(o.span))
}

// reach waits for the time given, then notes the power state.
func (s *Server) reach(ctx context.Context, e *entry, power string, when time.Time) error {
	if err := pause(ctx, time.Until(when)); err != nil {
		return err
	}
	s.locked(func() {
		x, _ := instanceOf(e)
		x.setPower(power)
	})
	return nil
}

// instanceAction is POST of an action on one instance.
func instanceAction(get func() action) handler {
	return func(c *call) (*reply, error) {
		var list []*entry
		if set := c.s.find(c.id.parent()); set != nil && c.id.name() == "*" { // all (recorded: test_vmss_vms)
			list = c.s.instancesOf(set)
		} else if e, err := c.need(); err == nil {
			list = []*entry{e}
		} else {
			return nil, err
		}
		a := get()
		o, err := c.options(a)
		if err != nil {
			return nil, err
		}
		return c.act(a, list, o)
	}
}

// setAction is POST of an action on a scale set: on the instances that the body
// names, or on all.
func setAction(get func() action) handler {
	return func(c *call) (*reply, error) {
		set, err := c.need()
		if err != nil {
			return nil, err
		}
		a := get()
		list, named, err := c.chosen(set)
		if err != nil {
			return nil, err
		}
		if !named && a.name == "manualUpgrade" {
			return nil, badParameter("instanceIds", "Required parameter 'instanceIds' is missing (null).")
		}
		var free []*entry
		var refused error
		for _, e := range list {
			x, body := instanceOf(e)
			if !named && a.check != nil {
				// An action on the whole set passes over what cannot take it.
				if err := a.check(x, val(body.Name)); err != nil {
					refused = err
					continue
				}
			}
			switch {
			case !protectedFromActions(body):
				free = append(free, e)
			case named:
				return nil, conflict("Operation '%s' is not allowed on VM '%s' since it is protected from scale set actions. Clear 'protectFromScaleSetActions' in the instance's protection policy, or act on the instance itself.",
					a.name, val(body.Name))
			}
		}
		if len(free) == 0 && refused != nil {
			return nil, refused
		}
		o, err := c.options(a)
		if err != nil {
			return nil, err
		}
		return c.act(a, free, o)
	}
}

func protectedFromActions(body *armcompute.VirtualMachineScaleSetVM) bool {
	p := body.Properties.ProtectionPolicy
	return p != nil && val(p.ProtectFromScaleSetActions)
}

func protectedFromScaleIn(body *armcompute.VirtualMachineScaleSetVM) bool {
	p := body.Properties.ProtectionPolicy
	return p != nil && (val(p.ProtectFromScaleIn) || val(p.ProtectFromScaleSetActions))
}

// chosen returns the instances that a request's body names by instanceIds; all of
// them, with named false, where it names none.
func (c *call) chosen(set *entry) (list []*entry, named bool, err error) {
	all := c.s.instancesOf(set)
	if len(bytes.TrimSpace(c.body)) == 0 {
		return all, false, nil
	}
	tree, err := c.tree()
	if err != nil {
		return nil, false, err
	}
	ids, ok := tree["instanceIds"].([]any)
	if !ok {
		return all, false, nil
	}
	for _, raw := range ids {
		id, _ := raw.(string)
		if id == "*" {
			return all, true, nil
		}
		e := c.s.instanceNamed(set, id)
		if e == nil {
			return nil, true, notActive(id)
		}
		list = append(list, e)
	}
	return list, true, nil
}

// notActive is the refusal of an instance id that does not exist.
func notActive(id string) *armError {
	return badParameter("instanceIds", "The provided instanceId %s is not an active Virtual Machine Scale Set VM instanceId.", id)
}

// act begins an action on instances as one operation. Each instance takes its own
// time; the operation fails with the first instance that does.
func (c *call) act(a action, list []*entry, o actionOptions) (*reply, error) {
	s := c.s
	for _, e := range list {
		x, body := instanceOf(e)
		if x.leaves() {
			return nil, markedForDeletion(a.name, val(body.Name))
		}
		if err := c.busy(e); err != nil {
			return nil, err
		}
		if x.isGeneralized() && slices.Contains(boots, a.name) {
			return nil, conflict("Operation '%s' is not allowed on VM '%s' since the VM is generalized.", a.name, val(body.Name))
		}
		if a.check != nil {
			if err := a.check(x, val(body.Name)); err != nil {
				return nil, err
			}
		}
	}
	if a.name == "start" && len(list) > 0 {
		more := vCPUs{}
		for _, e := range list {
			if x, _ := instanceOf(e); x.power == powerDeallocated {
				more.add(1, x.size, isSpot(x.profile))
			}
		}
		if err := c.checkQuota(s.locationOf(list[0]), more); err != nil {
			return nil, err
		}
	}
	type turn struct {
		e     *entry
		was   string
		span  time.Duration
		event *postedEvent
	}
	var turns []turn
	longest := time.Duration(0)
	for _, e := range list {
		x, body := instanceOf(e)
		if a.idle != nil && a.idle(x) {
			continue
		}
		t := turn{e, x.power, s.duration(a.span, e.key), nil}
		if a.event != "" && s.boardOf(x).enabled(c.now) {
			notice, _ := minimumNotice(a.event)
			t.event = s.post(Event{Type: a.event, Notice: notice, User: true}, []*entry{e}, c.now)
		}
		longest = max(longest, t.span)
		turns = append(turns, t)
		setState(body, stateUpdating)
		if a.passing != "" && t.event == nil {
			x.setPower(a.passing)
		}
	}
	var op *operation
	free := func(t turn) {
		if t.e.op == op {
			t.e.op = nil
		}
	}
	op = c.begin(nil, work{
		span: longest,
		run: func(context.Context) error {
			entries := make([]*entry, len(turns))
			spans := make(map[*entry]turn, len(turns))
			for i, t := range turns {
				entries[i], spans[t.e] = t.e, t
			}
			return each(entries, func(e *entry) error {
				x, _ := instanceOf(e)
				mine := o
				mine.span = spans[e].span
				err := s.settle(e, s.afterNotice(x.alive, spans[e].event, func() error {
					if a.passing != "" {
						s.locked(func() { x.setPower(a.passing) })
					}
					return a.run(x.alive, s, e, mine)
				}))
				s.locked(func() { free(spans[e]) })
				return err
			})
		},
		done: func(failure *armError) {
			for _, t := range turns {
				x, body := instanceOf(t.e)
				free(t)
				if failure == nil || x.gone {
					continue
				}
				if x.power == a.passing && a.passing != "" {
					x.setPower(t.was)
				}
				if stateOf(body) == stateUpdating {
					setState(body, stateFailed)
				}
			}
		},
	})
	for _, t := range turns {
		t.e.op = op
	}
	return accepted(op), nil
}

// deleteInstances is POST of delete on a scale set. Protection does not stop it.
func deleteInstances(c *call) (*reply, error) {
	set, err := c.need()
	if err != nil {
		return nil, err
	}
	list, named, err := c.chosen(set)
	if err != nil {
		return nil, err
	}
	if !named {
		return nil, badParameter("instanceIds", "Required parameter 'instanceIds' is missing (null).")
	}
	return c.deleteMembers(set, list)
}
