package lifecycle

import (
	"cmp"
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

// snapshotName is Azure's rule ("Naming rules and restrictions for Azure resources").
var snapshotName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,78}[A-Za-z0-9_])?$`)

// keptBackups is how many backups of those that Ortet makes by itself stay.
const keptBackups = 3

// A Backup is a snapshot of the state disk. It is what the disk was at a moment, as after a loss of power, which SQLite, etcd and ext4 are made for.
type Backup struct {
	Name    string           `json:"name"`
	ID      fleet.ResourceID `json:"id"`
	Created time.Time        `json:"created"`
	K3s     string           `json:"k3s,omitempty"` // version that ran, "v1.36.3+k3s1"
	Why     string           `json:"why,omitempty"` // Ortet made it by itself; "": a person did
	SizeGB  int              `json:"sizeGB"`        // of the disk
	State   string           `json:"state"`         // provisioning state, or how far a copy is

	cluster, ranges string // tags
}

// backupID is the id of a backup: of a name in the storage group, or an ARM id itself.
func (m *Manager) backupID(name string) fleet.ResourceID {
	if strings.HasPrefix(name, "/") {
		return fleet.ResourceID(name)
	}
	return m.in(RoleStorage, "Microsoft.Compute/snapshots", name)
}

// isBackup reports whether a snapshot has the tags of this cluster's backups.
func (m *Manager) isBackup(r *resource) bool {
	return m.ours(r) && r.Tags[recipe.TagRole] == recipe.RoleBackup
}

func (m *Manager) backupOf(s resource, id fleet.ResourceID) Backup {
	return Backup{Name: s.Name, ID: id, Created: s.Properties.TimeCreated, K3s: s.Tags[recipe.TagK3s], Why: s.Tags[recipe.TagWhy],
		SizeGB: s.Properties.DiskSizeGB, State: s.state(), ranges: s.Tags[recipe.TagRanges], cluster: s.Tags[recipe.TagCluster]}
}

// Backups lists the cluster's backups in the storage group and in spec.backup.group, the
// oldest first.
func (m *Manager) Backups(ctx context.Context) ([]Backup, error) {
	groups := []fleet.ResourceID{m.group(RoleStorage)}
	if m.Cluster.Spec.Backup != nil {
		groups = append(groups, m.group(recipe.RoleBackup))
	}
	return m.backupsIn(ctx, groups...)
}

func (m *Manager) backupsIn(ctx context.Context, groups ...fleet.ResourceID) ([]Backup, error) {
	all := []Backup{}
	for _, group := range groups {
		list, err := m.list(ctx, snapshotsOf(group), diskVersion)
		if err != nil {
			return nil, err
		}
		for _, s := range list {
			if m.isBackup(&s) {
				all = append(all, m.backupOf(s, snapshotsOf(group)+fleet.ResourceID("/"+s.Name)))
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Backup) int { return a.Created.Compare(b.Created) })
	return all, nil
}

// Backup makes a backup in the storage group; "" makes up a name of the time. The server may
// run meanwhile.
func (m *Manager) Backup(ctx context.Context, name, why string) (b Backup, err error) {
	if name == "" {
		name = "state-" + m.Now().UTC().Format(stampForm)
	}
	var p problems
	if !snapshotName.MatchString(name) {
		p.add("BackupName", fleet.ResourceID(name), "Azure has no such name of a snapshot", "use 1 to 80 letters, digits, _, . and -, with a letter or digit at the beginning and none of . and - at the end")
		return b, p.err()
	}
	c := m.begin("backup", "Back up the state disk")
	defer func() { c.end(err) }()
	b, body, err := m.snapshot(ctx, m.backupID(name), why)
	if err != nil {
		return b, err
	}
	return b, m.putSnapshot(ctx, b, body)
}

func (m *Manager) putSnapshot(ctx context.Context, b Backup, body map[string]any) error {
	return m.send(ctx, "make backup "+b.Name, http.MethodPut, b.ID, diskVersion, body)
}

// snapshot is a snapshot of the state disk as it is to be made, with what a restore has to
// know in its tags. It refuses a name that is in use.
func (m *Manager) snapshot(ctx context.Context, id fleet.ResourceID, why string) (b Backup, body map[string]any, err error) {
	var p problems
	r := &reads{m: m}
	disk, there := r.get(ctx, m.stateID(), diskVersion), r.get(ctx, id, diskVersion)
	server := r.get(ctx, m.serverID(), computeVersion)
	if r.err != nil {
		return b, nil, r.err
	}
	switch {
	case disk == nil:
		p.add("NoStateDisk", m.stateID(), "cluster has no state disk", "ortet cluster up makes one")
	case !m.ours(disk):
		p.add("ResourceForeign", m.stateID(), "disk was not made by ortet cluster for "+m.name(), "correct spec.groups.storage")
	case there != nil:
		p.add("BackupExists", id, "a snapshot of that name exists", "choose another name, or ortet cluster backup --delete "+id.Name())
	}
	if err := p.err(); err != nil {
		return b, nil, err
	}
	b = Backup{Name: id.Name(), ID: id, Created: m.Now(), K3s: disk.Tags[recipe.TagK3s], Why: why, SizeGB: disk.Properties.DiskSizeGB, State: "Succeeded", ranges: disk.Tags[recipe.TagRanges], cluster: m.name()}
	if server != nil && server.Tags[recipe.TagK3s] != "" {
		b.K3s = server.Tags[recipe.TagK3s]
	}
	return b, snapshotBody(disk.Location, "Copy", m.stateID(), b.tags()), nil
}

func snapshotBody(location, option string, source fleet.ResourceID, tags map[string]string) map[string]any {
	return map[string]any{"location": location, "tags": tags, "sku": map[string]any{"name": "Standard_LRS"},
		"properties": map[string]any{"incremental": true, "creationData": map[string]any{"createOption": option, "sourceResourceId": source}}}
}

// tags are those of the backup's snapshots.
func (b Backup) tags() map[string]string {
	tags := map[string]string{recipe.TagCluster: b.cluster, recipe.TagRole: recipe.RoleBackup, recipe.TagRanges: b.ranges}
	for name, v := range map[string]string{recipe.TagK3s: b.K3s, recipe.TagWhy: b.Why} {
		if v != "" {
			tags[name] = v
		}
	}
	return tags
}

// DeleteBackup deletes a backup, and refuses a name that no backup has.
func (m *Manager) DeleteBackup(ctx context.Context, name string) error {
	all, err := m.Backups(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(b Backup) bool { return b.Name == name })
	if i < 0 {
		return m.noBackup(name, all)
	}
	if restoring, err := m.restoring(ctx); err != nil || restoring != "" && m.backupID(restoring).Equal(all[i].ID) {
		var p problems
		p.add("BackupInUse", all[i].ID, "backup is being restored", "ortet cluster restore "+name+" goes on with that")
		return cmp.Or(err, p.err())
	}
	return m.delete(ctx, "backup "+name, all[i].ID, diskVersion)
}

func (m *Manager) noBackup(name string, all []Backup) error {
	names := make([]string, 0, len(all))
	for _, b := range all {
		names = append(names, b.Name)
	}
	what := "cluster has no backup"
	if len(names) > 0 {
		what = "cluster has no such backup, only " + strings.Join(names, ", ")
	}
	var p problems
	p.add("BackupNotFound", m.backupID(name), what, "ortet cluster backup --list")
	return p.err()
}

// backUp makes a backup before something that may go wrong, and deletes the oldest of its
// kind while the server is ready, but not the backup that is being restored. It returns the
// backup's name.
func (m *Manager) backUp(ctx context.Context, name, why string) (string, error) {
	b, err := m.Backup(ctx, name, why)
	if err != nil {
		return "", err
	}
	restoring, err := m.restoring(ctx)
	if err != nil {
		return "", err
	}
	server, err := m.get(ctx, m.serverID(), computeVersion)
	if err != nil || server == nil || server.Tags[recipe.TagBoot] != recipe.BootReady {
		return b.Name, err // the oldest may be the last one of a state that serves
	}
	all, err := m.backupsIn(ctx, m.group(RoleStorage))
	if err != nil {
		return "", err
	}
	all = slices.DeleteFunc(all, func(b Backup) bool { return b.Why == "" || m.backupID(restoring).Equal(b.ID) || b.State == "Deleting" })
	for _, old := range all[:max(0, len(all)-keptBackups)] {
		if err := m.delete(ctx, "backup "+old.Name, old.ID, diskVersion); err != nil {
			return "", err
		}
	}
	return b.Name, nil
}
