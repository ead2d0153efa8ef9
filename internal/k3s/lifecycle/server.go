package lifecycle

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
)

// ready reports whether a server runs, its Node is Ready in this boot, and it runs by the
// settings of that digest. The tags are the machine's own word, which it takes back when it goes down.
func ready(vm *resource, settings string) bool {
	return vm != nil && vm.power() == "running" && vm.Tags[recipe.TagBoot] == recipe.BootReady &&
		vm.Tags[recipe.TagSettings] == settings && vm.Tags[recipe.TagCAHash] != ""
}

// awaitServer waits until the server is ready by settings of that digest. wayBack is what a person may do if it does
// not get so; "" is nothing but to look.
func (m *Manager) awaitServer(ctx context.Context, settings, wayBack string) (boot string, err error) {
	c := m.begin("boot", "Wait for the server")
	defer func() { c.end(err) }()
	deadline := m.Now().Add(m.Ready)
	err = m.poll(ctx, func() (bool, error) {
		vm, err := m.get(ctx, m.serverID(), computeVersion, "$expand", "instanceView")
		if err != nil && !fleet.Is(err, fleet.KindTransient) {
			return false, err
		}
		if vm != nil && vm.Tags[recipe.TagBoot] != "" && vm.Tags[recipe.TagBoot] != boot {
			boot = vm.Tags[recipe.TagBoot]
			c.report(workflow.EventProgress, boot)
		}
		if ready(vm, settings) {
			return true, nil
		}
		if m.Now().After(deadline) {
			left := []string{"see the boot's log: az vm boot-diagnostics get-boot-log --ids " + string(m.serverID())}
			if wayBack != "" {
				left = append(left, wayBack)
			}
			return false, &workflow.Outcome{Exit: workflow.ExitNeedsPerson, Step: "server", Left: left,
				Err: fmt.Errorf("server is not ready after %s; it reported %q", m.Ready, cmp.Or(boot, "nothing"))}
		}
		return false, nil
	})
	return boot, err
}

// A serverChange is what Up has to change of a server that exists, whose VM is left out of
// the template.
type serverChange struct {
	settings bool   // its userData
	size     string // "FROM -> TO", if they differ
	grow     bool   // the state disk
	start    bool   // it does not run
	identity bool   // cluster-autoscaler's comes or goes
	k3s      bool   // among the settings, another k3s
}

// serverChange compares the server with what it should be.
func (m *Manager) serverChange(o *observation, d *recipe.Documents) (c serverChange) {
	if o.server == nil || o.server.is("Deleting") {
		return c
	}
	if from, to := o.server.Properties.HardwareProfile.VMSize, m.Cluster.Spec.Server.Size; !strings.EqualFold(from, to) {
		c.size = from + " -> " + to
	}
	c.grow = o.state != nil && o.state.Properties.DiskSizeGB < m.Cluster.Spec.Server.StateGB
	power := o.server.power()
	c.start = power == "deallocated" || power == "stopped" || power == "deallocating" || power == "stopping"
	c.identity = m.hasAutoscaler(o.server) != (m.Cluster.Spec.Options.ClusterAutoscaler != "")
	before := o.server.settings()
	c.settings = !bytes.Equal(before, d.Settings)
	c.k3s = c.settings && k3sOf(before) != k3sOf(d.Settings)
	return c
}

// k3sOf is the digest of k3s in settings.
func k3sOf(settings []byte) string {
	var s struct {
		Artifacts []struct{ Name, SHA256 string } `json:"artifacts"`
	}
	if json.Unmarshal(settings, &s) == nil {
		for _, a := range s.Artifacts {
			if a.Name == "k3s" {
				return a.SHA256
			}
		}
	}
	return ""
}

// lines are the changes for a person, beside their fields.
func (c serverChange) lines() (all []string) {
	if c.settings {
		all = append(all, "userData")
	}
	if c.identity {
		all = append(all, "identity "+recipe.AutoscalerIdentity)
	}
	if c.size != "" || c.grow {
		all = append(all, "size of the machine or of its state disk")
	}
	if c.start && !c.grow {
		all = append(all, "power: started")
	}
	return all
}

// changeServer brings a server that exists to its settings, size and disk, and waits while
// somebody else changes it. A server that is not changed wholly runs again. It returns the
// backup that it made before another k3s, or "".
func (m *Manager) changeServer(ctx context.Context, before *observation, d *recipe.Documents) (backup string, err error) {
	var c *clock
	deadline := m.Now().Add(azure.RestFor)
	err = m.poll(ctx, func() (bool, error) {
		o, err := m.observe(ctx)
		if err != nil {
			return false, err
		}
		if err := m.otherChange(before, o, d); err != nil {
			return false, err
		}
		change := m.serverChange(o, d)
		if change == (serverChange{}) {
			return true, nil
		}
		if c == nil {
			c = m.begin("server", "Change the server")
		}
		if azure.Busy(o.server.Properties.ProvisioningState) && m.Now().Before(deadline) {
			return false, nil
		}
		if change.k3s && backup == "" {
			if backup, err = m.backUp(ctx, "", "before another k3s"); err != nil {
				return false, err
			}
		}
		err = m.applyChange(ctx, before, d, c, change)
		if codeOf(err) == preconditionFailed {
			return false, nil
		}
		if err == nil {
			err = m.untag(ctx, o.server, recipe.TagStopped)
		}
		if err == nil || ctx.Err() != nil {
			return true, err
		}
		vm, unread := m.get(ctx, m.serverID(), computeVersion, "$expand", "instanceView")
		switch {
		case unread != nil || vm == nil:
			return false, errors.Join(err, unread)
		case azure.Busy(vm.Properties.ProvisioningState) && m.Now().Before(deadline):
			return false, nil // another up's change is what was in the way
		case vm.power() != "running":
			err = errors.Join(err, m.power(ctx, "start"))
		}
		return false, err
	})
	if c != nil {
		c.end(err)
	}
	return backup, err
}

func (m *Manager) applyChange(ctx context.Context, before *observation, d *recipe.Documents, c *clock, change serverChange) error {
	// What it said of itself before is not waited for.
	if err := m.tag(ctx, m.serverID(), map[string]string{recipe.TagBoot: "waiting for the server"}); err != nil {
		return err
	}
	if change.identity {
		if err := m.assignAutoscaler(ctx); err != nil {
			return err
		}
	}
	if change.settings {
		c.report(workflow.EventProgress, "writing its settings")
		vm, err := m.get(ctx, m.serverID(), computeVersion, "$expand", "userData")
		if err != nil || vm == nil {
			return cmp.Or(err, errors.New("cannot write the server's settings: the server was deleted; run the same command again"))
		}
		// The tag and a backup took a while, and the ETag is that of what is compared here.
		if err := m.otherChange(before, &observation{server: vm}, d); err != nil {
			return err
		}
		if err := m.send(azure.IfMatch(ctx, vm.ETag), "write the server's settings", http.MethodPatch, m.serverID(), computeVersion,
			map[string]any{"properties": map[string]any{"userData": base64.StdEncoding.EncodeToString(d.Settings)}}); err != nil {
			return err
		}
	}
	if change.grow { // Azure: the disk's machine has to be deallocated
		if err := m.power(ctx, "deallocate"); err != nil {
			return err
		}
		if err := m.send(ctx, "grow the state disk", http.MethodPatch, m.stateID(), diskVersion,
			map[string]any{"properties": map[string]any{"diskSizeGB": m.Cluster.Spec.Server.StateGB}}); err != nil {
			return err
		}
	}
	if change.size != "" {
		c.report(workflow.EventProgress, "changing its size: "+change.size)
		if err := m.resizeServer(ctx); err != nil {
			return err
		}
	}
	if change.start || change.grow {
		return m.power(ctx, "start")
	}
	return nil
}

// resizeServer gives the server its size. Where its host has no room for it, Azure takes
// another host for a machine that is deallocated.
func (m *Manager) resizeServer(ctx context.Context) error {
	resize := func() error {
		return m.send(ctx, "change the server's size", http.MethodPatch, m.serverID(), computeVersion,
			map[string]any{"properties": map[string]any{"hardwareProfile": map[string]any{"vmSize": m.Cluster.Spec.Server.Size}}})
	}
	err := resize()
	switch codeOf(err) {
	case "AllocationFailed", "OverconstrainedAllocationRequest", "ZonalAllocationFailed", "OperationNotAllowed":
	default:
		return err
	}
	if err := m.power(ctx, "deallocate"); err != nil {
		return err
	}
	if err := resize(); err != nil {
		return err
	}
	return m.power(ctx, "start")
}

// power has the server's VM do start, powerOff or deallocate, and waits.
func (m *Manager) power(ctx context.Context, do string) error {
	return m.send(ctx, do+" the server", http.MethodPost, m.serverID()+fleet.ResourceID("/"+do), computeVersion, nil)
}

// powerOff powers the server off, after what else goes on at it.
func (m *Manager) powerOff(ctx context.Context, c *clock) error {
	for again := false; ; again = true {
		vm, err := m.restingServer(ctx)
		if err != nil || vm == nil || slices.Contains([]string{"stopped", "deallocated", "deallocating"}, vm.power()) {
			return err
		}
		c.report(workflow.EventProgress, "powering the server off")
		if err = m.power(ctx, "powerOff"); err == nil || again { // it may have become busy since it was read
			return err
		}
	}
}

// send sends a request and waits for its end.
func (m *Manager) send(ctx context.Context, what, method string, id fleet.ResourceID, version string, body any) error {
	return azure.SendAndWait(ctx, m.ARM, what, method, id, version, body)
}

// tag merges tags of a resource or group.
func (m *Manager) tag(ctx context.Context, id fleet.ResourceID, tags map[string]string) error {
	return azure.MergeTags(ctx, m.ARM, id, tags)
}

// untag removes tags of a resource or group, of which it has some: those of names.
func (m *Manager) untag(ctx context.Context, r *resource, names ...string) error {
	tags := maps.Clone(r.Tags)
	maps.DeleteFunc(tags, func(name, _ string) bool { return !slices.Contains(names, name) })
	if len(tags) == 0 {
		return nil
	}
	return azure.DeleteTags(ctx, m.ARM, r.ID, tags)
}

func (m *Manager) stateID() fleet.ResourceID {
	return m.in(RoleStorage, "Microsoft.Compute/disks", recipe.StateDisk)
}

// ReplaceServer is Up that makes the server's VM again, on the same state disk: for what
// only another VM changes. Agents and their pods go on meanwhile. After an interruption the
// same call goes on.
func (m *Manager) ReplaceServer(ctx context.Context, options UpOptions) (*Result, error) {
	options.replace = true
	return m.Up(ctx, options)
}

// anotherCluster is the way out where the server cannot be made again.
const anotherCluster = "ortet cluster down, then ortet cluster up make another cluster"

// stateStays reports whether the server's state outlives its VM: an earlier version kept it
// on the VM's own disk.
func (m *Manager) stateStays(o *observation) bool {
	return o.state != nil && o.state.ManagedBy.Equal(m.serverID())
}

// replaceable reports whether the server's VM can be made again now: a deployment or a
// restore of an earlier call, which Up follows, makes it already.
func (m *Manager) replaceable(ctx context.Context, o *observation) (bool, error) {
	deployment, err := m.get(ctx, m.deploymentID(RoleCompute), resourcesVersion)
	return o.server != nil && !deployment.underWay() && (o.restore == "" || o.restored()), err
}

// restingServer waits until no operation changes or deletes the server's VM, such as what an
// interrupted call began, and returns it; nil is missing.
func (m *Manager) restingServer(ctx context.Context) (vm *resource, err error) {
	deadline := m.Now().Add(azure.RestFor)
	err = m.poll(ctx, func() (bool, error) {
		vm, err = m.get(ctx, m.serverID(), computeVersion, "$expand", "instanceView")
		return vm == nil || !azure.Busy(vm.Properties.ProvisioningState) || m.Now().After(deadline), err
	})
	return vm, err
}

// renewAgents reimages all agents of pools that were there when the cluster lost its state
// disk: their certificates are of a cluster that is gone. A tag of the new disk says so
// until it is done.
func (m *Manager) renewAgents(ctx context.Context) (note string, err error) {
	o, err := m.observe(ctx)
	if err != nil || o.state == nil || o.state.Tags[recipe.TagRenew] == "" {
		return "", err
	}
	pools := slices.DeleteFunc(strings.Split(o.state.Tags[recipe.TagRenew], ","), func(name string) bool { return o.sets[name].ID == "" })
	c := m.begin("agents", "Reimage agents of the cluster that is gone")
	defer func() { c.end(err) }()
	g, parallel := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for _, name := range pools {
		instances, err := m.Cloud.Instances(ctx, o.sets[name].ID)
		if err != nil {
			return "", errors.Join(err, g.Wait())
		}
		c.report(workflow.EventProgress, fmt.Sprintf("reimaging pool %s: %s", name, fleet.Count(len(instances), "agent")))
		for _, i := range instances {
			g.Go(func() error {
				return azure.Writer{Cloud: m.Cloud, Now: m.Now, Within: m.Ready}.Do(parallel, fleet.ReimageInstance{Instance: i.ID})
			})
		}
	}
	if err = g.Wait(); err != nil {
		return "", err
	}
	err = m.untag(ctx, o.state, recipe.TagRenew)
	return "the state disk was lost, so this is a new cluster; agents of the old one were reimaged: pool " + strings.Join(pools, ", "), err
}
