package lifecycle

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
)

const (
	stampForm = "20060102-150405" // in names of backups, UTC
	// adoptFor is the time in which an unfinished backup is completed by another run, in
	// place of a new one.
	adoptFor = time.Hour
	// oldBackup is when Status warns: a run each day, and two hours for one that is late.
	oldBackup = 26 * time.Hour
)

// A GroupBackup is a backup in spec.backup.group: a snapshot of the state disk, and its copy
// in spec.backup.region.
type GroupBackup struct {
	Backup
	Copy    fleet.ResourceID `json:"copy,omitempty"`
	Region  string           `json:"region,omitempty"`  // of the copy
	Deleted []string         `json:"deleted,omitempty"` // snapshots over spec.backup.keep

	home     resource
	copies   []resource // to spec.backup.region of now and of earlier
	complete bool       // it can be restored in the region of the file, or in its own without one
}

func snapshotsOf(group fleet.ResourceID) fleet.ResourceID {
	return group + "/providers/Microsoft.Compute/snapshots"
}

func (m *Manager) inBackupGroup(name string) fleet.ResourceID {
	return snapshotsOf(m.group(recipe.RoleBackup)) + fleet.ResourceID("/"+name)
}

// groupBackups are those that BackupToGroup made of this cluster's state disk, by their
// names, tags and source, the newest first.
func (m *Manager) groupBackups(ctx context.Context) (all []GroupBackup, err error) {
	list, err := m.list(ctx, snapshotsOf(m.group(recipe.RoleBackup)), diskVersion)
	region := m.Cluster.Spec.Backup.Region
	for _, s := range list {
		stamp, named := strings.CutPrefix(s.Name, m.name()+"-")
		made, err := time.Parse(stampForm, stamp)
		if !named || err != nil || !m.isBackup(&s) || !s.Properties.Creation.Source.Equal(m.stateID()) {
			continue
		}
		b := GroupBackup{Backup: m.backupOf(s, m.inBackupGroup(s.Name)), home: s, complete: region == "" && s.state() == "Succeeded"}
		b.Created = made
		for _, c := range list {
			if strings.HasPrefix(c.Name, s.Name+"-") && m.isBackup(&c) && c.Properties.Creation.Source.Equal(b.ID) {
				b.copies = append(b.copies, c)
				b.complete = b.complete || c.Name == s.Name+"-"+region && c.state() == "Succeeded"
			}
		}
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b GroupBackup) int { return b.Created.Compare(a.Created) })
	return all, err
}

// BackupToGroup makes a backup in spec.backup.group, copies it to spec.backup.region, and
// then deletes those that are older than the newest spec.backup.keep complete ones. After an
// interruption, and beside another call, it completes the one that is unfinished.
func (m *Manager) BackupToGroup(ctx context.Context) (b *GroupBackup, err error) {
	spec := m.Cluster.Spec.Backup
	c := m.begin("backup", "Back up the state disk to group "+spec.Group)
	defer func() {
		c.end(err)
		err = interrupted(ctx, "backup", "Azure goes on with what it has accepted; the same command completes the backup", err)
	}()
	all, err := m.groupBackups(ctx)
	if err != nil {
		return nil, err
	}
	if len(all) > 0 && !all[0].complete && !all[0].home.is("Failed") && m.Now().Sub(all[0].Created) < adoptFor {
		b = &all[0]
		c.report(workflow.EventProgress, "completing backup "+b.Name)
	} else {
		if b, err = m.makeGroupBackup(ctx); err != nil {
			return nil, err
		}
	}
	if err = m.awaitMade(ctx, b.ID); err != nil {
		return b, err
	}
	if spec.Region != "" {
		b.Copy, b.Region = b.ID+fleet.ResourceID("-"+spec.Region), spec.Region
		if err = m.copyBackup(ctx, c, b); err != nil {
			return b, err
		}
	}
	b.State = "Succeeded"
	return b, m.deleteOver(ctx, c, b)
}

// makeGroupBackup makes a backup with a name of the time. Of two calls in one second, which
// choose the same name, one makes it and both complete it.
func (m *Manager) makeGroupBackup(ctx context.Context) (*GroupBackup, error) {
	id := m.inBackupGroup(m.name() + "-" + m.Now().UTC().Format(stampForm))
	made, body, err := m.snapshot(ctx, id, "")
	if err == nil {
		err = m.makeBackupGroup(ctx)
	}
	if err == nil {
		err = m.settled(ctx, func() error { return m.putSnapshot(ctx, made, body) })
	}
	if err == nil {
		return &GroupBackup{Backup: made}, nil
	}
	all, listErr := m.groupBackups(ctx)
	i := slices.IndexFunc(all, func(b GroupBackup) bool { return b.ID.Equal(id) && !b.home.is("Failed") })
	if listErr != nil || i < 0 {
		return nil, err
	}
	return &all[i], nil
}

// makeBackupGroup makes the group where it does not exist. One that others made is used too:
// its owner may have given it locks and rights of its own.
func (m *Manager) makeBackupGroup(ctx context.Context) error {
	id, spec := m.group(recipe.RoleBackup), m.Cluster.Spec
	g, err := m.get(ctx, id, resourcesVersion)
	if err != nil {
		return err
	}
	var p problems
	switch {
	case g == nil: // in the region that is to be there when the other is not
		return m.makeGroup(ctx, id, cmp.Or(spec.Backup.Region, spec.Location), map[string]string{recipe.TagRole: recipe.RoleBackup})
	case g.Tags[recipe.TagRole] == RoleStorage || g.Tags[recipe.TagRole] == RoleCompute:
		p.add("BackupGroupInUse", id, fmt.Sprintf("group is the %s group of cluster %s, and ortet cluster down deletes it", g.Tags[recipe.TagRole], g.Tags[recipe.TagCluster]), "choose another name in spec.backup.group")
	case g.is("Deleting"):
		p.add("GroupDeleting", id, "group is being deleted", "wait for that, or choose another name in spec.backup.group")
	}
	return p.err()
}

// copyBackup has Azure copy a snapshot to spec.backup.region, and waits until all bytes are
// there. Azure copies one snapshot of a disk at a time, and needs the source until the end
// ("Copy an incremental snapshot to a new region").
func (m *Manager) copyBackup(ctx context.Context, c *clock, b *GroupBackup) error {
	began, last := false, ""
	return m.poll(ctx, func() (bool, error) {
		s, err := m.get(ctx, b.Copy, diskVersion)
		if err != nil {
			return false, err
		}
		if s != nil && !(m.isBackup(s) && s.Properties.Creation.Source.Equal(b.ID) && strings.EqualFold(s.Location, b.Region)) {
			return false, fmt.Errorf("cannot copy backup %s to %s: snapshot %s exists and is no copy of it; delete that snapshot, then run the same command again", b.Name, b.Region, s.Name)
		}
		failed := s != nil && (s.is("Failed") || s.Properties.CopyError.Code != "")
		if failed && !began { // of an earlier run
			if err := m.delete(ctx, "failed copy "+s.Name, b.Copy, diskVersion); err != nil {
				return false, err
			}
			s = nil
		}
		state := "waiting until the copy before is done"
		switch {
		case failed && began:
			return false, fmt.Errorf("cannot copy backup %s to %s: %s %s; the snapshot in the cluster's region is complete; run the same command again", b.Name, b.Region, s.state(), s.Properties.CopyError.Message)
		case s != nil:
			if state = s.state(); state == "Succeeded" {
				return true, nil
			}
		case began: // ARM's reads may be older than its writes
			return false, nil
		default:
			all, err := m.groupBackups(ctx)
			if err != nil {
				return false, err
			}
			if !slices.ContainsFunc(all, func(o GroupBackup) bool { return slices.ContainsFunc(o.copies, copying) }) {
				began, state = true, "copying to "+b.Region
				if err := m.putSnapshot(ctx, Backup{Name: b.Copy.Name(), ID: b.Copy}, snapshotBody(b.Region, "CopyStart", b.ID, b.tags())); err != nil {
					return false, err
				}
			}
		}
		if state != last {
			last = state
			c.report(workflow.EventProgress, state)
		}
		return false, nil
	})
}

// deleteOver deletes what spec.backup.keep does not keep: never b, what is newer, or what is
// being restored. Copies go first, since a copy without its source is nobody's.
func (m *Manager) deleteOver(ctx context.Context, c *clock, b *GroupBackup) error {
	all, err := m.groupBackups(ctx)
	if err != nil {
		return err
	}
	restoring, err := m.restoring(ctx)
	if err != nil {
		return err
	}
	complete := 0
	for _, old := range all {
		if complete >= m.Cluster.Spec.Backup.Keep && old.Created.Before(b.Created) {
			for _, s := range append(old.copies, old.home) {
				id := m.inBackupGroup(s.Name)
				if id.Equal(fleet.ResourceID(restoring)) {
					continue
				}
				c.report(workflow.EventProgress, "deleting "+s.Name)
				if err := m.delete(ctx, "backup "+s.Name, id, diskVersion); err != nil {
					return err
				}
				b.Deleted = append(b.Deleted, s.Name)
			}
		}
		if old.complete {
			complete++
		}
	}
	return nil
}

// lastBackup is when the newest complete backup in spec.backup.group was made, nil for none,
// and the warning where that is long ago.
func (m *Manager) lastBackup(ctx context.Context) (last *time.Time, warning string, err error) {
	if m.Cluster.Spec.Backup == nil {
		return nil, "", nil
	}
	all, err := m.groupBackups(ctx)
	if i := slices.IndexFunc(all, func(b GroupBackup) bool { return b.complete }); i >= 0 {
		if last = &all[i].Created; m.Now().Sub(*last) < oldBackup {
			return last, "", err
		}
		return last, "last backup in group " + m.Cluster.Spec.Backup.Group + " is older than a day; ortet cluster backup makes one", err
	}
	return nil, "group " + m.Cluster.Spec.Backup.Group + " has no complete backup of the cluster; ortet cluster backup makes one", err
}
