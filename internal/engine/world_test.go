package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
)

// A world is a tiny Azure and a tiny cluster, in whatever time the test has.
// Processes see it through a proc, which can be killed at any boundary.
type world struct {
	mu sync.Mutex

	pool        fleet.Pool
	customData  string
	cameWith    string // the customData that the donor came with, where not the model's
	instances   map[string]*fleet.Instance
	disks       map[string]*disk
	snapshots   map[string]*snap
	galleries   map[string]fleet.Gallery
	definitions map[string]fleet.Definition
	versions    map[string]*image
	ops         map[fleet.Token]*op
	due         []event
	nextOp      int

	nodes    map[string]*fleet.Node
	machine  map[string]string // annotations of the donor's Machine; nil: none
	pods     map[string]*pod
	vault    map[string]string
	lease    map[string]*leaseState
	kured    string
	journals *journal.Memory
	secret   string // pool whose journal may not be read

	// Switches.
	noZRS       bool
	deniedAzure []string
	blocked     bool                    // the drain
	obstacles   []cluster.BlockedPod    // of a drain, seen before it
	neverBack   bool                    // the donor never becomes Ready again
	bootsIn     time.Duration           // from a start's begin, where not 0; else 30 s after its end
	nullIgnored bool                    // null does not remove a protection policy
	halfStarted bool                    // an instance that was started is never seen running
	liesEmpty   map[string]int          // verb → answers of success without effect
	liesFailed  map[string]int          // verb → answers of failure with effect
	opFails     map[string]int          // verb → operations that fail, without effect
	beginFails  map[string][]fleet.Kind // verb → errors of Begin, in order
	outcome     string                  // of the pod: "", "secrets", "lost", "nojoin"; "visible" to the inspection, too
	hangs       map[string]bool         // verb → an operation that never ends, with effect

	// Where Azure is another: OS disks by instance, what is attached, and what a
	// pod does to it.
	osDisks  map[string]string
	attached string
	onWork   func(node string) error

	// preempted counts changes of the scale set that others' were under way on.
	preempted int
	// calls counts requests, by what is asked for.
	calls map[string]int

	drained, stops, builds, jobs int
	began                        []string
}

type disk struct {
	fleet.Disk
	generalized bool
	from        string // what it is a copy of: the donor's disk, or ""
}

type snap struct {
	fleet.Snapshot
	generalized, torn bool
}

type image struct {
	fleet.ImageVersion
	generalized, torn bool
}

type op struct {
	end    time.Time
	verb   string
	failed error
	never  bool
}

type event struct {
	at time.Time
	do func()
}

type pod struct {
	command []string
	output  []byte
	exit    int32
	done    bool
	why     string
}

type leaseState struct {
	holder         string
	since, renewed time.Time
	lasts          time.Duration
}

const (
	poolID     = fleet.ResourceID("/subscriptions/s/resourceGroups/my-group/providers/Microsoft.Compute/virtualMachineScaleSets/pool1")
	donorName  = "pool1000000"
	donorGrace = 10 * time.Second
)

func low(id fleet.ResourceID) string { return strings.ToLower(string(id)) }

func instanceID(n int) fleet.ResourceID {
	return poolID.Child("virtualMachines", fmt.Sprint(n))
}

// newWorld has a pool of three nodes that came from a marketplace image.
func newWorld() *world {
	w := &world{
		instances: map[string]*fleet.Instance{}, disks: map[string]*disk{}, snapshots: map[string]*snap{},
		galleries: map[string]fleet.Gallery{}, definitions: map[string]fleet.Definition{}, versions: map[string]*image{},
		ops: map[fleet.Token]*op{}, nodes: map[string]*fleet.Node{}, pods: map[string]*pod{}, vault: map[string]string{},
		lease: map[string]*leaseState{}, journals: &journal.Memory{},
		liesEmpty: map[string]int{}, liesFailed: map[string]int{}, opFails: map[string]int{}, beginFails: map[string][]fleet.Kind{}, hangs: map[string]bool{},
		customData: "#cloud-config\nruncmd: [join]\n", calls: map[string]int{},
	}
	w.pool = fleet.Pool{
		ID: poolID, Name: "pool1", Location: "eastus", Size: "Standard_D2s_v5", Capacity: 3, Orchestration: fleet.Uniform,
		UpgradeMode: fleet.Manual, ProvisioningState: "Succeeded",
		Model: fleet.Model{
			Linux: true, Image: fleet.ImageReference{Publisher: "Canonical", Offer: "ubuntu", SKU: "24_04", Version: "latest"},
			Extensions: []fleet.Extension{
				{Name: "cse", Type: "CustomScript", Publisher: "Microsoft.Azure.Extensions"},
				{Name: "after", Type: "CustomScript", After: []string{"cse"}},
				{Name: "billing", Type: "Compute.AKS-Engine.Linux.Billing"},
			},
		},
	}
	for n := range 3 {
		w.add(n)
	}
	return w
}

// add adds the n-th instance, with its disk and its Node.
func (w *world) add(n int) {
	id := instanceID(n)
	os := poolID.In("disks", fmt.Sprintf("os%d", n))
	name := fmt.Sprintf("pool100000%d", n)
	w.instances[low(id)] = &fleet.Instance{
		ID: id, InstanceID: fmt.Sprint(n), Name: "pool1_" + fmt.Sprint(n), HostName: name, Size: w.pool.Size, Power: fleet.PowerRunning,
		ProvisioningState: "Succeeded", Generation: "V2", OSDisk: os, Image: w.pool.Model.Image,
	}
	w.disks[low(os)] = &disk{Disk: fleet.Disk{ID: os, Location: "eastus", Generation: "V2", Architecture: "x64", ManagedBy: id, ProvisioningState: "Succeeded"}, from: name}
	w.nodes[name] = &fleet.Node{
		Name: name, ProviderID: "azure://" + string(id), OS: "linux", Architecture: "amd64", Ready: true, BootID: "boot-0",
		Annotations: map[string]string{}, Labels: map[string]string{}, Addresses: []string{"10.0.0." + fmt.Sprint(n+4), name},
	}
}

func (w *world) donor() *fleet.Node             { return w.nodes[donorName] }
func (w *world) donorInstance() *fleet.Instance { return w.instances[low(instanceID(0))] }

// catchUp lets everything happen that was due by now; the caller holds mu.
func (w *world) catchUp() {
	for {
		sort.SliceStable(w.due, func(i, j int) bool { return w.due[i].at.Before(w.due[j].at) })
		if len(w.due) == 0 || w.due[0].at.After(time.Now()) {
			return
		}
		e := w.due[0]
		w.due = w.due[1:]
		e.do()
	}
}

func (w *world) in(d time.Duration, do func()) {
	w.due = append(w.due, event{time.Now().Add(d), do})
}

// A proc is one process: it sees the world until it is killed.
type proc struct {
	w      *world
	holder string
	// killAt is the boundary at which it dies; 0: never. killWhen names it instead.
	killAt, boundaries int
	killWhen           string
	dead               bool
	kill               context.CancelFunc
	trace              []string
}

var errDead = errors.New("this process is dead")

// enter takes the world's lock for a call; leave has to be called.
func (p *proc) enter(ctx context.Context) (leave func(), err error) {
	p.w.mu.Lock()
	switch {
	case p.dead:
		err = errDead
	case ctx.Err() != nil:
		err = &fleet.Error{Op: "call", Kind: fleet.KindTimedOut, Err: context.Cause(ctx)}
	}
	if err != nil {
		p.w.mu.Unlock()
		return nil, err
	}
	p.w.catchUp()
	return p.w.mu.Unlock, nil
}

// boundary is a place to die; the caller holds the world's lock.
func (p *proc) boundary(what string) bool {
	p.boundaries++
	p.trace = append(p.trace, what)
	if p.boundaries == p.killAt || what == p.killWhen {
		p.dead = true
		p.kill()
	}
	return p.dead
}

// act is a change with a boundary before it and one after it.
func (p *proc) act(ctx context.Context, what string, effect func() error) error {
	leave, err := p.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if p.boundary("before " + what) {
		return errDead
	}
	if err := effect(); err != nil {
		return err
	}
	if p.boundary("after " + what) {
		return errDead
	}
	return nil
}

func missing(op string, id fleet.ResourceID) error {
	return &fleet.Error{Op: op, Resource: string(id), Kind: fleet.KindNotFound, Err: errors.New("not there")}
}

func invalid(op string, id fleet.ResourceID, why string) error {
	return &fleet.Error{Op: op, Resource: string(id), Kind: fleet.KindInvalid, Err: errors.New(why)}
}

// read gives a copy of what get finds.
func read[T any](ctx context.Context, p *proc, id fleet.ResourceID, get func() (T, bool)) (v T, err error) {
	leave, err := p.enter(ctx)
	if err != nil {
		return v, err
	}
	defer leave()
	v, ok := get()
	if !ok {
		return v, missing("get", id)
	}
	return v, nil
}

func (p *proc) Pool(ctx context.Context, id fleet.ResourceID) (fleet.Pool, error) {
	return read(ctx, p, id, func() (fleet.Pool, bool) {
		pool := p.w.pool
		pool.Model.Extensions = slices.Clone(pool.Model.Extensions)
		return pool, low(id) == low(poolID)
	})
}

func (p *proc) Instances(ctx context.Context, pool fleet.ResourceID) ([]fleet.Instance, error) {
	return read(ctx, p, pool, func() (all []fleet.Instance, ok bool) {
		for _, k := range slices.Sorted(maps.Keys(p.w.instances)) {
			all = append(all, *p.w.instances[k])
		}
		return all, true
	})
}

func (p *proc) Instance(ctx context.Context, id fleet.ResourceID) (fleet.Instance, error) {
	return read(ctx, p, id, func() (fleet.Instance, bool) {
		i, ok := p.w.instances[low(id)]
		if !ok {
			return fleet.Instance{}, false
		}
		c := *i
		c.DataDisks = slices.Clone(c.DataDisks)
		return c, true
	})
}

func (p *proc) Disk(ctx context.Context, id fleet.ResourceID) (fleet.Disk, error) {
	return read(ctx, p, id, func() (fleet.Disk, bool) {
		d, ok := p.w.disks[low(id)]
		if !ok {
			return fleet.Disk{}, false
		}
		return d.Disk, true
	})
}

func (p *proc) Snapshot(ctx context.Context, id fleet.ResourceID) (fleet.Snapshot, error) {
	return read(ctx, p, id, func() (fleet.Snapshot, bool) {
		s, ok := p.w.snapshots[low(id)]
		if !ok {
			return fleet.Snapshot{}, false
		}
		return s.Snapshot, true
	})
}

func (p *proc) Gallery(ctx context.Context, id fleet.ResourceID) (fleet.Gallery, error) {
	return read(ctx, p, id, func() (fleet.Gallery, bool) { g, ok := p.w.galleries[low(id)]; return g, ok })
}

func (p *proc) Definition(ctx context.Context, id fleet.ResourceID) (fleet.Definition, error) {
	return read(ctx, p, id, func() (fleet.Definition, bool) { d, ok := p.w.definitions[low(id)]; return d, ok })
}

func (p *proc) Versions(ctx context.Context, definition fleet.ResourceID) ([]fleet.ImageVersion, error) {
	return read(ctx, p, definition, func() (all []fleet.ImageVersion, ok bool) {
		for _, k := range slices.Sorted(maps.Keys(p.w.versions)) {
			v := p.w.versions[k].ImageVersion
			v.Tags = maps.Clone(v.Tags)
			all = append(all, v)
		}
		return all, true
	})
}

func (p *proc) Version(ctx context.Context, id fleet.ResourceID) (fleet.ImageVersion, error) {
	return read(ctx, p, id, func() (fleet.ImageVersion, bool) {
		p.w.calls["version"]++
		kept, ok := p.w.versions[low(id)]
		if !ok {
			return fleet.ImageVersion{}, false
		}
		v := kept.ImageVersion
		v.Tags = maps.Clone(v.Tags)
		return v, true
	})
}

func (p *proc) Uses(ctx context.Context, definition fleet.ResourceID) ([]fleet.ImageUse, error) {
	return read(ctx, p, definition, func() (all []fleet.ImageUse, ok bool) {
		if id := p.w.pool.Model.Image.ID; id != "" {
			all = append(all, fleet.ImageUse{Image: id, By: poolID})
		}
		for _, k := range slices.Sorted(maps.Keys(p.w.instances)) {
			if i := p.w.instances[k]; i.Image.ID != "" {
				all = append(all, fleet.ImageUse{Image: i.Image.ID, By: i.ID})
				if exact := i.Image.Exact(); exact != "" && exact != i.Image.ID {
					all = append(all, fleet.ImageUse{Image: exact, By: i.ID})
				}
			}
		}
		return all, true
	})
}

func (p *proc) Size(ctx context.Context, _, _, size string) (fleet.SizeInfo, error) {
	return read(ctx, p, "", func() (fleet.SizeInfo, bool) {
		return fleet.SizeInfo{Name: size, Architecture: "x64", Generations: []string{"V1", "V2"}, MaxDataDisks: 4}, true
	})
}

// Cloud and Cluster both ask for Denied, so each is its own type.
type cloudProc struct{ *proc }

func (p cloudProc) Denied(ctx context.Context, _ fleet.ResourceID, actions []string) ([]string, error) {
	return read(ctx, p.proc, "", func() (denied []string, ok bool) {
		for _, a := range actions {
			if slices.Contains(p.w.deniedAzure, a) {
				denied = append(denied, a)
			}
		}
		return denied, true
	})
}
