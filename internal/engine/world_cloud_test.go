package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
)

// usual durations of the world's operations.
func lasts(c fleet.Change) time.Duration {
	switch c.(type) {
	case fleet.StopInstance:
		return 150 * time.Second
	case fleet.StartInstance:
		return 60 * time.Second
	case fleet.CreateVersion:
		return 40 * time.Minute
	case fleet.TagVersion, fleet.CreateSnapshot:
		return 6 * time.Second
	}
	return 20 * time.Second
}

const retryAfterOps = 10 * time.Second

func (p *proc) Begin(ctx context.Context, c fleet.Change) (token fleet.Token, err error) {
	verb := c.Verb()
	err = p.act(ctx, verb+" "+c.Target().Name(), func() error {
		w := p.w
		if kinds := w.beginFails[verb]; len(kinds) > 0 {
			w.beginFails[verb] = kinds[1:]
			return &fleet.Error{Op: verb, Kind: kinds[0], Err: errors.New("switched on")}
		}
		w.began = append(w.began, verb+" "+c.Target().Name())
		first, last, err := w.effect(c)
		if err != nil || last == nil {
			return err
		}
		w.nextOp++
		token = fleet.Token(fmt.Sprintf("op-%d", w.nextOp))
		o := &op{end: time.Now().Add(lasts(c)), verb: verb, never: w.hangs[verb]}
		w.ops[token] = o
		switch {
		case w.liesEmpty[verb] > 0:
			w.liesEmpty[verb]--
			return nil
		case w.opFails[verb] > 0:
			w.opFails[verb]--
			if v := w.versions[low(c.Target())]; v != nil && verb == (fleet.ExcludeVersion{}).Verb() {
				v.ProvisioningState = prototype.Failed
			}
			o.failed = &fleet.Error{Op: verb, Kind: fleet.KindUnknown, Code: "InternalError", Err: errors.New("switched on")}
			if c, ok := c.(fleet.CreateVersion); ok {
				w.halfMade(c, prototype.Failed)
			}
			return nil
		case w.liesFailed[verb] > 0:
			w.liesFailed[verb]--
			o.failed = &fleet.Error{Op: verb, Kind: fleet.KindUnknown, Err: errors.New("switched on")}
		}
		if c, ok := c.(fleet.CreateVersion); ok && w.noZRS && c.StorageType == fleet.ZRS {
			w.halfMade(c, prototype.Failed)
			o.failed = &fleet.Error{Op: verb, Kind: fleet.KindUnsupported, Err: errors.New("ZRS is not supported")}
			return nil
		}
		if first != nil {
			first()
		}
		w.in(lasts(c), last)
		return nil
	})
	if err != nil {
		return "", err
	}
	return token, nil
}

func (p *proc) Poll(ctx context.Context, token fleet.Token) (fleet.Progress, error) {
	leave, err := p.enter(ctx)
	if err != nil {
		return fleet.Progress{}, err
	}
	defer leave()
	o, ok := p.w.ops[token]
	switch {
	case !ok:
		return fleet.Progress{}, missing("poll", fleet.ResourceID(token))
	case o.never, time.Now().Before(o.end):
		return fleet.Progress{Percent: -1, Wait: retryAfterOps, Status: "InProgress"}, nil
	case o.failed != nil:
		return fleet.Progress{}, o.failed
	}
	return fleet.Progress{Done: true, Percent: 100, Status: "Succeeded"}, nil
}

func (w *world) halfMade(c fleet.CreateVersion, state string) {
	w.versions[low(c.ID)] = &image{ImageVersion: fleet.ImageVersion{
		ID: c.ID, Name: c.ID.Name(), ProvisioningState: state, Published: time.Now(), Source: c.Source, ExcludeFromLatest: c.ExcludeFromLatest, Tags: maps.Clone(c.Tags), StorageType: c.StorageType, Progress: -1,
	}}
}

// scaling reports whether others' change of the scale set is under way.
func (w *world) scaling() bool {
	for _, i := range w.instances {
		if i.ProvisioningState == prototype.Creating || i.ProvisioningState == prototype.Deleting {
			return true
		}
	}
	return w.pool.ProvisioningState != prototype.Succeeded
}

// effect says what a change does at once and what it does at its end; both are
// nil where it is there already.
func (w *world) effect(c fleet.Change) (first, last func(), err error) {
	bad := func(why string) (func(), func(), error) { return nil, nil, invalid(c.Verb(), c.Target(), why) }
	conflict := func(why string) (func(), func(), error) {
		return nil, nil, &fleet.Error{Op: c.Verb(), Resource: string(c.Target()), Kind: fleet.KindConflict, Err: errors.New(why)}
	}
	if on := c.Target(); on.Segment("virtualMachines") != "" && w.instances[low(on)] == nil {
		if _, detaches := c.(fleet.DetachDisk); detaches {
			return nil, nil, nil // as attached to nothing
		}
		return nil, nil, missing(c.Verb(), on)
	}
	switch c.(type) {
	case fleet.PatchModel, fleet.DeleteExtension, fleet.SetCapacity:
		if w.scaling() {
			w.preempted++
		}
	}
	switch c := c.(type) {
	case fleet.StopInstance:
		i := w.instances[low(c.Instance)]
		if i.Power != fleet.PowerRunning {
			return nil, nil, nil
		}
		return func() { i.Power = fleet.PowerStopping }, func() {
			w.stops++
			i.Power = fleet.PowerStopped
			w.in(40*time.Second, func() {
				if n := w.nodes[i.HostName]; n != nil && i.Power == fleet.PowerStopped {
					n.Ready, n.NotReadyWhy = false, "kubelet stopped posting"
				}
			})
		}, nil
	case fleet.StartInstance:
		i := w.instances[low(c.Instance)]
		switch i.Power {
		case fleet.PowerRunning, fleet.PowerStarting:
			return nil, nil, nil
		case fleet.PowerStopping:
			return conflict("the instance is stopping")
		}
		booted := func() {
			if n := w.nodes[i.HostName]; n != nil {
				n.Ready, n.BootID = true, fmt.Sprintf("boot-%d", w.stops)
			}
		}
		return func() {
				i.Power = fleet.PowerStarting
				if w.bootsIn > 0 {
					w.in(w.bootsIn, booted)
				}
			}, func() {
				if w.halfStarted {
					return
				}
				i.Power = fleet.PowerRunning
				n := w.nodes[i.HostName]
				if n == nil || w.instances[low(i.ID)] == nil { // deleted meanwhile
					return
				}
				if w.neverBack {
					n.Ready, n.NotReadyWhy = false, "kubelet stopped posting"
					return
				}
				if w.bootsIn == 0 {
					w.in(30*time.Second, booted)
				}
			}, nil
	case fleet.ProtectInstance:
		i := w.instances[low(c.Instance)]
		return nil, func() {
			if c.Protection != (fleet.Protection{}) || !w.nullIgnored {
				i.Protection = c.Protection
			}
		}, nil
	case fleet.CreateSnapshot:
		d, ok := w.disks[low(c.Source)]
		if !ok {
			return bad("no such disk")
		}
		if s, ok := w.snapshots[low(c.ID)]; ok && s.ProvisioningState == prototype.Succeeded {
			return bad("it is there")
		}
		if !d.generalized && !c.Closed {
			return bad("a snapshot with a node's keys allows export")
		}
		s := &snap{generalized: d.generalized}
		s.Snapshot = fleet.Snapshot{ID: c.ID, Source: c.Source, Tags: maps.Clone(c.Tags), ProvisioningState: prototype.Creating, Created: time.Now()}
		running := func() bool {
			i := w.instances[low(d.ManagedBy)]
			return i != nil && i.Power != fleet.PowerStopped
		}
		s.torn = running()
		return func() { w.snapshots[low(c.ID)] = s }, func() {
			s.ProvisioningState = prototype.Succeeded
			s.torn = s.torn || running()
		}, nil
	case fleet.DeleteSnapshot:
		if s := w.snapshots[low(c.ID)]; s == nil {
			return nil, nil, nil
		} else if s.ProvisioningState == prototype.Creating {
			return conflict("it is being made")
		}
		return nil, func() { delete(w.snapshots, low(c.ID)) }, nil
	case fleet.CreateDisk:
		s, ok := w.snapshots[low(c.Source)]
		if !ok {
			return bad("no such snapshot")
		}
		if _, ok := w.disks[low(c.ID)]; ok {
			return nil, func() {}, nil
		}
		d := &disk{Disk: fleet.Disk{ID: c.ID, Source: c.Source, Tags: maps.Clone(c.Tags), ProvisioningState: prototype.Creating, SKU: c.SKU}, generalized: s.generalized, from: donorName}
		return func() { w.disks[low(c.ID)] = d }, func() { d.ProvisioningState = prototype.Succeeded }, nil
	case fleet.DeleteDisk:
		if d := w.disks[low(c.ID)]; d == nil {
			return nil, nil, nil
		} else if d.ManagedBy != "" {
			return conflict("it is attached")
		}
		return nil, func() { delete(w.disks, low(c.ID)) }, nil
	case fleet.AttachDisk:
		i, d := w.instances[low(c.Instance)], w.disks[low(c.Disk)]
		if d == nil || d.ProvisioningState != prototype.Succeeded {
			return bad("no such disk")
		}
		if d.ManagedBy != "" {
			return nil, func() {}, nil
		}
		return func() { d.ManagedBy = c.Instance }, func() {
			i.DataDisks = append(i.DataDisks, fleet.AttachedDisk{LUN: c.LUN, Disk: c.Disk})
		}, nil
	case fleet.DetachDisk:
		i := w.instances[low(c.Instance)]
		return nil, func() {
			i.DataDisks = slices.DeleteFunc(i.DataDisks, func(a fleet.AttachedDisk) bool { return a.Disk.Equal(c.Disk) })
			if d := w.disks[low(c.Disk)]; d != nil {
				d.ManagedBy = ""
			}
		}, nil
	case fleet.CreateGallery:
		return nil, func() { w.galleries[low(c.ID)] = fleet.Gallery(c) }, nil
	case fleet.CreateDefinition:
		d := c.Definition
		d.ProvisioningState = prototype.Succeeded
		return nil, func() { w.definitions[low(d.ID)] = d }, nil
	case fleet.CreateVersion:
		if v := w.versions[low(c.ID)]; v != nil {
			if v.ProvisioningState == prototype.Failed {
				return bad("it is Failed")
			}
			return nil, func() {}, nil
		}
		s := w.snapshots[low(c.Source)]
		if s == nil {
			return bad("no such snapshot")
		}
		return func() { w.builds++; w.halfMade(c, prototype.Creating) }, func() {
			v := w.versions[low(c.ID)]
			if v == nil {
				return
			}
			v.ProvisioningState, v.generalized, v.torn, v.Published = prototype.Succeeded, s.generalized, s.torn, time.Now()
		}, nil
	case fleet.TagVersion:
		v := w.versions[low(c.ID)]
		return nil, func() {
			for k, value := range c.Tags {
				if value == "" {
					delete(v.Tags, k)
				} else {
					v.Tags[k] = value
				}
			}
		}, nil
	case fleet.ExcludeVersion:
		v := w.versions[low(c.ID)]
		return nil, func() { v.ExcludeFromLatest, v.ProvisioningState = true, prototype.Succeeded }, nil
	case fleet.DeleteVersion:
		if v := w.versions[low(c.ID)]; v == nil {
			return nil, nil, nil
		} else if v.DeletionBlocked {
			return conflict("its deletion is blocked")
		}
		return nil, func() { delete(w.versions, low(c.ID)) }, nil
	case fleet.PatchModel:
		return nil, func() {
			w.pool.Model.Image = c.Image
			if c.CustomData != nil {
				w.customData = c.CustomData.Reveal()
			}
		}, nil
	case fleet.DeleteExtension:
		for _, e := range w.pool.Model.Extensions {
			if slices.ContainsFunc(e.After, func(a string) bool { return strings.EqualFold(a, c.Name) }) {
				return bad(e.Name + " depends on it")
			}
		}
		return nil, func() {
			w.pool.Model.Extensions = slices.DeleteFunc(w.pool.Model.Extensions, func(e fleet.Extension) bool { return strings.EqualFold(e.Name, c.Name) })
		}, nil
	case fleet.SetCapacity:
		return nil, func() { w.pool.Capacity = c.Capacity }, nil
	}
	return bad("the world does not know this change")
}
