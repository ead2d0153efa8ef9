package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/elastic"
	"github.com/ortet/ortet/internal/elastic/recipe"
	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/internal/fleet"
)

// API versions of what is read and written besides the templates.
const (
	resourcesVersion = "2021-04-01"
	computeVersion   = "2024-07-01"
	autoscaleVersion = "2022-10-01"
	diskVersion      = "2023-10-02"
	galleryVersion   = "2023-07-03"
	networkVersion   = "2024-05-01"
	storageVersion   = "2023-05-01"
	roleVersion      = "2022-04-01"
)

// The two groups' roles, the values of recipe.TagRole.
const (
	RoleStorage = "storage"
	RoleCompute = "compute"
)

// A Config says which cluster, and where.
type Config struct {
	ARM          azure.Resources
	Subscription string
	Cluster      *elastic.Cluster // with its defaults
	// Render makes the templates: recipe.Render.
	Render func(*elastic.Cluster, recipe.Facts) (*recipe.Documents, error)
	// SSHPublicKey and OwnAddresses are those of recipe.Facts.
	SSHPublicKey string
	OwnAddresses []string
	// Reporter shows what goes on; it may be nil.
	Reporter engine.Reporter
	// Poll is the interval between observations of Azure (default 5s); Ready is the
	// limit for the server's boot (default 30m).
	Poll, Ready time.Duration
	Now         func() time.Time // default time.Now
}

// A Manager is the life cycle of one cluster.
type Manager struct{ Config }

// New makes a Manager. It sends nothing.
func New(c Config) *Manager {
	if c.Poll <= 0 {
		c.Poll = 5 * time.Second
	}
	if c.Ready <= 0 {
		c.Ready = 30 * time.Minute
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Reporter == nil {
		c.Reporter = engine.ReporterFunc(func(engine.Event) {})
	}
	return &Manager{c}
}

func (m *Manager) name() string { return m.Cluster.Metadata.Name }

func (m *Manager) subscription() fleet.ResourceID {
	return fleet.ResourceID("/subscriptions/" + m.Subscription)
}

// group gives the id of the group of a role.
func (m *Manager) group(role string) fleet.ResourceID {
	name := m.Cluster.Spec.Groups.Compute
	if role == RoleStorage {
		name = m.Cluster.Spec.Groups.Storage
	}
	return m.subscription().Child("resourceGroups", name)
}

// in gives the id of a resource in the group of a role: in(RoleCompute,
// "Microsoft.Network/publicIPAddresses", "server").
func (m *Manager) in(role, kind, name string) fleet.ResourceID {
	return m.group(role) + fleet.ResourceID("/providers/"+kind+"/"+name)
}

func (m *Manager) serverID() fleet.ResourceID {
	return m.in(RoleCompute, "Microsoft.Compute/virtualMachines", recipe.ServerName)
}

func (m *Manager) accountID() fleet.ResourceID {
	return m.in(RoleStorage, "Microsoft.Storage/storageAccounts", m.Cluster.Spec.Storage.Account)
}

// get is Get that takes a missing resource for an answer.
func (m *Manager) get(ctx context.Context, id fleet.ResourceID, version string, into any, query ...string) (found bool, err error) {
	err = m.ARM.Get(ctx, id, version, into, query...)
	if fleet.Is(err, fleet.KindNotFound) {
		return false, nil
	}
	return err == nil, err
}

// list decodes the items of a collection; a missing one is empty.
func list[T any](ctx context.Context, m *Manager, id fleet.ResourceID, version string, query ...string) ([]T, error) {
	var all []T
	err := m.ARM.List(ctx, id, version, func(raw json.RawMessage) error {
		var item T
		if err := json.Unmarshal(raw, &item); err != nil {
			return fmt.Errorf("decode an item: %w", err)
		}
		all = append(all, item)
		return nil
	}, query...)
	if fleet.Is(err, fleet.KindNotFound) {
		return nil, nil
	}
	return all, err
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// settled repeats what does not find the group: ARM answers 404 for some seconds about
// a group that it has just made.
func (m *Manager) settled(ctx context.Context, do func() error) error {
	deadline := m.Now().Add(time.Minute)
	for {
		err := do()
		if codeOf(err) != "ResourceGroupNotFound" || m.Now().After(deadline) {
			return err
		}
		if err := pause(ctx, m.Poll); err != nil {
			return err
		}
	}
}

// interrupted turns the end of ctx into what the operator has to know.
func interrupted(ctx context.Context, step, state string, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return &engine.Interrupted{Step: step, Donor: state, Err: ctx.Err()}
}

func codeOf(err error) string {
	var e *fleet.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// kindName is the last segment of a resource's type in words.
func kindName(kind string) string {
	names := map[string]string{
		"virtualmachines": "vm", "virtualmachinescalesets": "scale set", "networkinterfaces": "nic",
		"publicipaddresses": "address", "networksecuritygroups": "nsg", "virtualnetworks": "vnet", "natgateways": "nat",
		"storageaccounts": "account", "shares": "share", "userassignedidentities": "identity", "fileservices": "files",
		"roledefinitions": "role", "roleassignments": "grant", "autoscalesettings": "autoscale",
	}
	last := strings.ToLower(kind[strings.LastIndexByte(kind, '/')+1:])
	if n, ok := names[last]; ok {
		return n
	}
	return last
}
