package lifecycle

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
)

// API versions of what is read and written besides the templates.
const (
	resourcesVersion = "2021-04-01"
	computeVersion   = "2024-07-01"
	autoscaleVersion = "2022-10-01"
	diskVersion      = "2023-10-02"
	identityVersion  = "2023-01-31"
	networkVersion   = "2024-05-01"
	storageVersion   = "2023-05-01"
	roleVersion      = "2022-04-01"
)

// The two groups' roles, the values of recipe.TagRole, and what Down can delete of the
// storage group alone.
const (
	RoleStorage = "storage"
	RoleCompute = "compute"
	RoleState   = "state" // the state disk
)

// A Config says which cluster, and where.
type Config struct {
	ARM          azure.Resources
	Cloud        azure.Cloud // looks up VM sizes, lists instances, deletes scale sets
	Subscription string
	Cluster      *k3s.Cluster // with its defaults
	// Render makes the templates: recipe.Render.
	Render func(*k3s.Cluster, recipe.Facts) (*recipe.Documents, error)
	// SSHPublicKey and OwnAddresses are those of recipe.Facts.
	SSHPublicKey string
	OwnAddresses []string
	// Agents drains agents that are to be deleted.
	Agents Agents
	// Dial connects to "ADDRESS:PORT", and closes the connection. With a host key, a line of an
	// authorized_keys file, the SSH server there has to have that key. nil checks nothing.
	Dial func(ctx context.Context, address, hostKey string) error
	// Report shows what goes on; it may be nil.
	Report func(workflow.Event)
	// Poll is the interval between observations of Azure (default 5s); Ready is the
	// limit for the server's boot (default 30m).
	Poll, Ready time.Duration
	Now         func() time.Time // default time.Now
}

// Agents reaches the cluster's API server.
type Agents interface {
	// Reach fails if the API server cannot be reached.
	Reach(context.Context) error
	// Lower drains and deletes agents of a pool until it has n; a pool with fewer stays.
	// Interrupted, the same call goes on with the same agents.
	Lower(ctx context.Context, pool string, n int64, report func(string)) error
}

// A Manager is the life cycle of one cluster.
type Manager struct {
	Config
	from fleet.ResourceID // the backup that Restore was given
}

// New makes a Manager. It sends nothing.
func New(c Config) *Manager {
	c.Poll, c.Ready = cmp.Or(c.Poll, 5*time.Second), cmp.Or(c.Ready, 30*time.Minute)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Report == nil {
		c.Report = func(workflow.Event) {}
	}
	return &Manager{Config: c}
}

func (m *Manager) name() string { return m.Cluster.Metadata.Name }

// roles are both groups, in the order in which they are made.
func roles() []string { return []string{RoleStorage, RoleCompute} }

// document is the deployment of a role's group.
func document(d *recipe.Documents, role string) recipe.Deployment {
	if role == RoleStorage {
		return d.Storage
	}
	return d.Compute
}

func (m *Manager) subscription() fleet.ResourceID {
	return fleet.ResourceID("/subscriptions/" + m.Subscription)
}

// group returns the id of the group of a role.
func (m *Manager) group(role string) fleet.ResourceID {
	name := m.Cluster.Spec.Groups.Compute
	switch role {
	case RoleStorage, RoleState:
		name = m.Cluster.Spec.Groups.Storage
	case recipe.RoleBackup:
		name = m.Cluster.Spec.Backup.Group
	}
	return m.subscription().Child("resourceGroups", name)
}

// in returns the id of a resource in the group of a role: in(RoleCompute,
// "Microsoft.Network/publicIPAddresses", "server").
func (m *Manager) in(role, kind, name string) fleet.ResourceID {
	return m.group(role) + fleet.ResourceID("/providers/"+kind+"/"+name)
}

func (m *Manager) serverID() fleet.ResourceID {
	return m.in(RoleCompute, "Microsoft.Compute/virtualMachines", recipe.ServerName)
}

func (m *Manager) securityGroup(to string) fleet.ResourceID {
	return m.in(RoleCompute, securityGroups, to)
}

func (m *Manager) accountID() fleet.ResourceID {
	return m.in(RoleStorage, "Microsoft.Storage/storageAccounts", m.Cluster.Spec.Storage.Account)
}

// get reads a resource; nil is missing.
func (m *Manager) get(ctx context.Context, id fleet.ResourceID, version string, query ...string) (*resource, error) {
	r := &resource{}
	err := m.ARM.Get(ctx, id, version, r, query...)
	if err != nil {
		return nil, fleet.IgnoreNotFound(err)
	}
	return r, nil
}

// list reads the items of a collection; a missing one is empty.
func (m *Manager) list(ctx context.Context, id fleet.ResourceID, version string) ([]resource, error) {
	var all []resource
	err := m.ARM.List(ctx, id, version, func(raw json.RawMessage) error {
		var r resource
		err := json.Unmarshal(raw, &r)
		all = append(all, r)
		return err
	})
	return all, fleet.IgnoreNotFound(err)
}

// reads are readings of which the first that fails ends the rest: err is to be checked
// after the last one.
type reads struct {
	m   *Manager
	err error
}

func (r *reads) get(ctx context.Context, id fleet.ResourceID, version string, query ...string) (found *resource) {
	if r.err == nil {
		found, r.err = r.m.get(ctx, id, version, query...)
	}
	return found
}

func (r *reads) list(ctx context.Context, id fleet.ResourceID, version string) (all []resource) {
	if r.err == nil {
		all, r.err = r.m.list(ctx, id, version)
	}
	return all
}

// delete deletes a resource and waits; a missing one is done.
func (m *Manager) delete(ctx context.Context, what string, id fleet.ResourceID, version string) error {
	return fleet.IgnoreNotFound(m.send(ctx, "delete "+what, http.MethodDelete, id, version, nil))
}

// poll repeats do, at the interval Poll, until it is done, fails, or ctx ends.
func (m *Manager) poll(ctx context.Context, do func() (done bool, err error)) error {
	for {
		if done, err := do(); done || err != nil {
			return err
		}
		if err := azure.Sleep(ctx, m.Poll); err != nil {
			return err
		}
	}
}

// settled repeats what does not find the group: ARM answers 404 for some seconds about
// a group that it has just made.
func (m *Manager) settled(ctx context.Context, do func() error) error {
	deadline := m.Now().Add(time.Minute)
	return m.poll(ctx, func() (bool, error) {
		err := do()
		if codeOf(err) == "ResourceGroupNotFound" && m.Now().Before(deadline) {
			return false, nil
		}
		return true, err
	})
}

// interrupted is err, or what the operator has to know at the end of ctx.
func interrupted(ctx context.Context, step, state string, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return &workflow.Outcome{Exit: workflow.ExitInterrupted, Step: step, Left: []string{state}, Err: ctx.Err()}
}

func codeOf(err error) string {
	var e *fleet.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// kindName is the last segment of a resource's type, short.
func kindName(kind string) string {
	last := strings.ToLower(kind[strings.LastIndexByte(kind, '/')+1:])
	return cmp.Or(map[string]string{
		"virtualmachines": "vm", "virtualmachinescalesets": "scale set", "networkinterfaces": "nic", "publicipaddresses": "address",
		"networksecuritygroups": "nsg", "virtualnetworks": "vnet", "natgateways": "nat", "storageaccounts": "account", "shares": "share",
		"userassignedidentities": "identity", "roledefinitions": "role", "roleassignments": "grant", "autoscalesettings": "autoscale",
		"disks": "disk", "snapshots": "snapshot",
	}[last], last)
}
