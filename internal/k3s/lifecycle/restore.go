package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
)

// Restore makes the state disk again of a backup, and the server on it: of a name in the
// storage group or in spec.backup.group, or of an ARM id. What was there is backed up before.
// A backup of another cluster makes a new cluster alone. The storage group has a tag from then
// on, by which Up goes on after an interruption; nothing makes a blank disk while it is there.
// Errors are those of Up.
func (m *Manager) Restore(ctx context.Context, name string) (*Result, error) {
	r := m.result()
	if err := m.beginRestore(ctx, name); err != nil {
		return r, interrupted(ctx, "restore", "the state disk was not changed", err)
	}
	r, err := m.Up(ctx, UpOptions{})
	if err != nil {
		return r, err
	}
	disk, err := m.get(ctx, m.stateID(), diskVersion)
	if err == nil && disk != nil && !disk.Properties.Creation.Source.Equal(m.from) {
		err = &workflow.Outcome{Exit: workflow.ExitNeedsPerson, Step: "restore", Left: []string{"the same command begins this restore again"},
			Err: fmt.Errorf("backup %s is not restored: another restore went on meanwhile, and the state is of backup %s", m.from.Name(), disk.Properties.Creation.Source.Name())}
	}
	return r, interrupted(ctx, "restore", "the server is ready", err)
}

// CheckRestore refuses what Restore refuses, and changes nothing.
func (m *Manager) CheckRestore(ctx context.Context, name string) error {
	_, _, err := m.planRestore(ctx, name)
	return err
}

// planRestore observes the cluster as a restore of the backup begins it. begun is a restore
// that an earlier call began, and that goes on.
func (m *Manager) planRestore(ctx context.Context, name string) (o *observation, begun bool, err error) {
	if o, err = m.observe(ctx); err != nil {
		return nil, false, err
	}
	ids := []fleet.ResourceID{m.backupID(name)}
	if m.Cluster.Spec.Backup != nil && ids[0].Name() == name { // a copy in the cluster's region is what it can use
		ids = append(ids, m.inBackupGroup(name+"-"+m.Cluster.Spec.Location), m.inBackupGroup(name))
	}
	var backup *resource
	for i := 0; i < len(ids) && backup == nil && ids[i].Segment("snapshots") != ""; i++ {
		m.from = ids[i]
		if backup, err = m.get(ctx, m.from, diskVersion); err != nil {
			return nil, false, err
		}
	}
	if backup == nil || backup.Tags[recipe.TagRole] != recipe.RoleBackup {
		all, err := m.Backups(ctx)
		if err != nil {
			return nil, false, err
		}
		return nil, false, m.noBackup(name, all)
	}
	if !m.from.Equal(m.backupID(m.from.Name())) {
		name = string(m.from) // not in the storage group
	}
	again := false // a disk that another k3s than the file's has written meanwhile is not gone on with
	if o.restore == name && o.restored() {
		d, err := m.render(o)
		if err != nil {
			return nil, false, err
		}
		again = m.serverChange(o, d).k3s
	}
	if o.restore == name && !again {
		return o, true, nil
	}
	o.restore, o.backup, o.before = name, backup, "before-restore-"+m.Now().UTC().Format("20060102-150405")
	_, err = m.check(ctx, o)
	return o, false, err
}

// beginRestore tags the storage group, unless an earlier call did.
func (m *Manager) beginRestore(ctx context.Context, name string) error {
	o, begun, err := m.planRestore(ctx, name)
	if err != nil || begun {
		return err
	}
	group := m.group(RoleStorage)
	tags := map[string]string{recipe.TagRestore: o.restore, recipe.TagRestoreBefore: o.before}
	if o.groups[RoleStorage] == nil {
		tags[recipe.TagCluster], tags[recipe.TagRole] = m.name(), RoleStorage
		err = m.makeGroup(ctx, group, m.Cluster.Spec.Location, tags)
	} else {
		err = m.tag(ctx, group, tags)
	}
	if err != nil {
		return err
	}
	return m.poll(ctx, func() (bool, error) { // ARM's reads may be older than its writes
		g, err := m.get(ctx, group, resourcesVersion)
		return g != nil && g.Tags[recipe.TagRestoreBefore] == o.before, err
	})
}

// restoring returns the backup that an unfinished restore names, or "".
func (m *Manager) restoring(ctx context.Context) (string, error) {
	g, err := m.get(ctx, m.group(RoleStorage), resourcesVersion)
	if g == nil || err != nil {
		return "", err
	}
	return g.Tags[recipe.TagRestore], nil
}

// checkRestore refuses to go on with a restore whose backup was deleted or is not complete.
func (m *Manager) checkRestore(o *observation, p *problems) {
	const others = "restore another backup (ortet cluster backup --list), or for a new cluster: ortet cluster down --state"
	switch {
	case o.restore == "" || o.restored():
	case o.backup == nil || o.backup.Tags[recipe.TagRole] != recipe.RoleBackup:
		p.add("BackupNotFound", m.backupID(o.restore), "backup of the unfinished restore does not exist, or is no backup", others)
	case !m.ours(o.backup) && o.state != nil && o.state.Tags[recipe.TagRestoreBefore] != o.before:
		what := "backup is of cluster " + o.backup.Tags[recipe.TagCluster] + ", and cluster " + m.name() + " has a state of its own"
		if o.state.Properties.Creation.Source.Equal(o.backup.ID) { // interrupted after its end
			what = "the state of cluster " + m.name() + " was made of this backup already; ortet cluster up goes on"
		}
		p.add("BackupForeign", o.backup.ID, what, "to make it of this backup: ortet cluster down --state first; otherwise "+others)
	case !m.restorable(o):
		p.add("BackupElsewhere", m.backupID(o.restore), "unfinished restore is of a backup in another group than spec.groups.storage and spec.backup.group", "ortet cluster restore "+o.restore+" goes on with it; otherwise "+others)
	case o.backup.state() != "Succeeded":
		p.add("BackupNotReady", o.backup.ID, "backup is in state "+o.backup.state(), "wait until it is Succeeded, or "+others)
	}
}

// restorable reports whether a backup may make the state: that of an ARM id elsewhere by
// command alone, since who writes tags of the storage group could name any snapshot.
func (m *Manager) restorable(o *observation) bool {
	id := m.backupID(o.restore)
	return id.Equal(m.from) || id.Equal(m.backupID(id.Name())) || m.Cluster.Spec.Backup != nil && id.Equal(m.inBackupGroup(id.Name()))
}

// remake prepares that a deployment makes the server again: it backs up the state, deletes the
// VM, and for an unfinished restore makes the state disk of its backup, unless an earlier call
// did. It leaves a VM that another call makes again meanwhile, and returns the backup's name.
func (m *Manager) remake(ctx context.Context, o *observation) (saved string, err error) {
	c := m.begin("server", "Delete the server's VM")
	defer func() { c.end(err) }()
	replace := o.replace
	if o.restore != "" {
		err = m.awaitDeployments(ctx)
	}
	if err == nil {
		o, err = m.observe(ctx)
	}
	if err == nil && replace {
		o.replace, err = m.replaceable(ctx, o)
	}
	restore := err == nil && o.restore != "" && !o.restored()
	if err == nil && o.restore != "" {
		saved, err = m.saveState(ctx, o, c)
	}
	if err == nil && o.replace && !o.server.is("Deleting") {
		saved, err = m.backUp(ctx, "", "before replace server")
	}
	if err == nil && (restore || o.replace) {
		if err = m.powerOff(ctx, c); err == nil { // a clean end for the datastore
			c.report(workflow.EventProgress, "deleting the server")
			err = m.delete(ctx, "the server", m.serverID(), computeVersion)
		}
	}
	if err == nil && restore {
		err = m.remakeDisk(ctx, o, c)
	}
	if err == nil && o.restore != "" {
		err = m.awaitMade(ctx, m.stateID())
	}
	return saved, err
}

// remakeDisk makes the state disk again of the backup of a restore.
func (m *Manager) remakeDisk(ctx context.Context, o *observation, c *clock) error {
	if err := m.delete(ctx, "the state disk", m.stateID(), diskVersion); err != nil {
		return err
	}
	c.report(workflow.EventProgress, "making the state disk of "+backupOr("", o))
	tags := map[string]string{recipe.TagCluster: m.name(), recipe.TagRole: RoleState, recipe.TagRestoreBefore: o.before}
	for _, name := range []string{recipe.TagRanges, recipe.TagK3s} {
		if v := o.backup.Tags[name]; v != "" {
			tags[name] = v
		}
	}
	return m.send(ctx, "make the state disk", http.MethodPut, m.stateID(), diskVersion, map[string]any{
		"location": o.backup.Location, "tags": tags, "sku": map[string]any{"name": "StandardSSD_LRS"},
		"properties": map[string]any{"diskSizeGB": max(o.backup.Properties.DiskSizeGB, m.Cluster.Spec.Server.StateGB),
			"creationData": map[string]any{"createOption": "Copy", "sourceResourceId": o.backup.ID}},
	})
}

// awaitDeployments waits until deployments of an earlier up have ended, which make machines
// and the state disk.
func (m *Manager) awaitDeployments(ctx context.Context) error {
	for _, role := range roles() {
		d, err := m.get(ctx, m.deploymentID(role), resourcesVersion)
		if err == nil && d.underWay() {
			c := m.begin(role, "Wait for the "+role+" group's deployment")
			err = m.follow(ctx, role, "", c)
			c.end(err)
		}
		var ended *deploymentError
		if err != nil && !errors.As(err, &ended) {
			return err
		}
	}
	return nil
}

// saveState backs up what a restore replaces, under the name that its tag has. It returns
// that name, or "" where nothing was there.
func (m *Manager) saveState(ctx context.Context, o *observation, c *clock) (string, error) {
	before, err := m.get(ctx, m.backupID(o.before), diskVersion)
	if err != nil {
		return "", err
	}
	replaced := o.state != nil && o.state.Tags[recipe.TagRestoreBefore] != o.before
	if before != nil && before.is("Failed") && replaced {
		if err := m.delete(ctx, "backup "+o.before, before.ID, diskVersion); err != nil {
			return "", err
		}
		before = nil
	}
	switch {
	case before == nil && !replaced:
		return "", nil
	case before == nil:
		c.report(workflow.EventProgress, "backing up what the disk has now")
		if _, err := m.backUp(ctx, o.before, "before restore"); err != nil {
			return "", err
		}
	}
	return o.before, m.awaitMade(ctx, m.backupID(o.before))
}

// awaitMade waits until a disk or snapshot is complete, which an interrupted call began. One that is
// missing after a minute was deleted: ARM's reads are not older than that.
func (m *Manager) awaitMade(ctx context.Context, id fleet.ResourceID) error {
	deadline := m.Now().Add(time.Minute)
	return m.poll(ctx, func() (bool, error) {
		r, err := m.get(ctx, id, diskVersion)
		if err == nil && r != nil && r.is("Failed") {
			err = fmt.Errorf("cannot make %s: it is in state Failed; run the same command again", id.Name())
		} else if err == nil && r == nil && m.Now().After(deadline) {
			err = fmt.Errorf("cannot make %s: it was deleted; run the same command again", id.Name())
		}
		return r != nil && r.is("Succeeded"), err
	})
}

// endRestore removes the tag of a restore, when the server is ready or the disk is to be
// deleted.
func (m *Manager) endRestore(ctx context.Context) error {
	g, err := m.get(ctx, m.group(RoleStorage), resourcesVersion)
	if g == nil || err != nil {
		return err
	}
	return m.untag(ctx, g, recipe.TagRestore, recipe.TagRestoreBefore)
}

// unfinished notes a restore that was interrupted, and that the cluster is stopped.
func (m *Manager) unfinished(o *observation, agents map[string][]fleet.Instance) (notes []string) {
	if o.restore != "" {
		notes = append(notes, "restore of "+backupOr("", o)+" is unfinished; ortet cluster up goes on with it")
	}
	if stoppedServer(o) {
		notes = append(notes, "cluster is stopped; ortet cluster start starts it")
	}
	return append(notes, stoppedNotes(o, agents)...)
}
