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

// A Backup is a snapshot of the state disk, in the storage group. It is what the disk was
// at a moment, as after a loss of power, which SQLite, etcd and ext4 are made for.
type Backup struct {
	Name    string           `json:"name"`
	ID      fleet.ResourceID `json:"id"`
	Created time.Time        `json:"created"`
	K3s     string           `json:"k3s,omitempty"` // version that ran, "v1.36.3+k3s1"
	Why     string           `json:"why,omitempty"` // Ortet made it by itself; "": a person did
	SizeGB  int              `json:"sizeGB"`        // of the disk
	State   string           `json:"state"`         // provisioning state
}

func (m *Manager) backupID(name string) fleet.ResourceID {
	return m.in(RoleStorage, "Microsoft.Compute/snapshots", name)
}

// Backups lists the cluster's backups, the oldest first.
func (m *Manager) Backups(ctx context.Context) ([]Backup, error) {
	all := []Backup{}
	list, err := m.list(ctx, m.group(RoleStorage)+"/providers/Microsoft.Compute/snapshots", diskVersion)
	for _, s := range list {
		if s.Tags[recipe.TagCluster] == m.name() && s.Tags[recipe.TagRole] == recipe.RoleBackup {
			all = append(all, Backup{Name: s.Name, ID: m.backupID(s.Name), Created: s.Properties.TimeCreated, K3s: s.Tags[recipe.TagK3s], Why: s.Tags[recipe.TagWhy],
				SizeGB: s.Properties.DiskSizeGB, State: s.Properties.ProvisioningState})
		}
	}
	slices.SortStableFunc(all, func(a, b Backup) int { return a.Created.Compare(b.Created) })
	return all, err
}

// Backup makes a backup; "" makes up a name of the time. The server may run meanwhile.
func (m *Manager) Backup(ctx context.Context, name, why string) (b Backup, err error) {
	if name == "" {
		name = "state-" + m.Now().UTC().Format("20060102-150405")
	}
	var p problems
	if !snapshotName.MatchString(name) {
		p.add("BackupName", fleet.ResourceID(name), "Azure has no such name of a snapshot", "use 1 to 80 letters, digits, _, . and -, with a letter or digit at the beginning and none of . and - at the end")
		return b, p.err()
	}
	c := m.begin("backup", "Back up the state disk")
	defer func() { c.end(err) }()
	r := &reads{m: m}
	disk, there := r.get(ctx, m.stateID(), diskVersion), r.get(ctx, m.backupID(name), diskVersion)
	server := r.get(ctx, m.serverID(), computeVersion)
	if r.err != nil {
		return b, r.err
	}
	switch {
	case disk == nil:
		p.add("NoStateDisk", m.stateID(), "cluster has no state disk", "ortet cluster up makes one")
	case disk.Tags[recipe.TagCluster] != m.name():
		p.add("ResourceForeign", m.stateID(), "disk was not made by ortet cluster for "+m.name(), "correct spec.groups.storage")
	case there != nil:
		p.add("BackupExists", m.backupID(name), "a snapshot of that name exists", "choose another name, or ortet cluster backup --delete "+name)
	}
	if err := p.err(); err != nil {
		return b, err
	}
	tags := map[string]string{recipe.TagCluster: m.name(), recipe.TagRole: recipe.RoleBackup, recipe.TagRanges: disk.Tags[recipe.TagRanges]}
	b = Backup{Name: name, ID: m.backupID(name), Created: m.Now(), K3s: disk.Tags[recipe.TagK3s], Why: why, SizeGB: disk.Properties.DiskSizeGB, State: "Succeeded"}
	if server != nil && server.Tags[recipe.TagK3s] != "" {
		b.K3s = server.Tags[recipe.TagK3s]
	}
	if b.K3s != "" {
		tags[recipe.TagK3s] = b.K3s
	}
	if why != "" {
		tags[recipe.TagWhy] = why
	}
	return b, m.send(ctx, "make backup "+name, http.MethodPut, b.ID, diskVersion, map[string]any{
		"location": disk.Location, "tags": tags, "sku": map[string]any{"name": "Standard_LRS"},
		"properties": map[string]any{"incremental": true, "creationData": map[string]any{"createOption": "Copy", "sourceResourceId": m.stateID()}},
	})
}

// DeleteBackup deletes a backup, and refuses a name that no backup has.
func (m *Manager) DeleteBackup(ctx context.Context, name string) error {
	all, err := m.Backups(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all, func(b Backup) bool { return b.Name == name }) {
		return m.noBackup(name, all)
	}
	if restoring, err := m.restoring(ctx); err != nil || restoring == name {
		var p problems
		p.add("BackupInUse", m.backupID(name), "backup is being restored", "ortet cluster restore "+name+" goes on with that")
		return cmp.Or(err, p.err())
	}
	return m.delete(ctx, "backup "+name, m.backupID(name), diskVersion)
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
	all, err := m.Backups(ctx)
	if err != nil {
		return "", err
	}
	all = slices.DeleteFunc(all, func(b Backup) bool { return b.Why == "" || b.Name == restoring })
	for _, old := range all[:max(0, len(all)-keptBackups)] {
		if err := m.delete(ctx, "backup "+old.Name, old.ID, diskVersion); err != nil {
			return "", err
		}
	}
	return b.Name, nil
}
