package fleet

import (
	"net/netip"
	"strings"
	"time"
)

// A Member is an instance of a pool as far as its membership in the cluster goes:
// who it is, and where it can be reached.
type Member struct {
	Instance ResourceID // of a virtual machine in a Flexible pool
	Pool     ResourceID
	Flexible bool
	Name     string // "pool1_3"
	HostName string // computer name: "pool1000003", "pool100000A"
	VMID     string // UUID in lower case; a new one for every machine that ever was
	// Addresses are the private addresses of its network interfaces, the primary
	// one's first; OfPrimary is the number of the primary one's.
	Addresses []netip.Addr
	OfPrimary int
	// Power is "" where it was not asked for: see azure.Members.
	Power             PowerState
	ProvisioningState string // "Creating", "Succeeded", "Failed", "Deleting"…
	Created           time.Time
}

// NodeName is the name of the instance's Node: computer names of Uniform pools count
// in base 36 with capital letters, Nodes have none.
func (m Member) NodeName() string { return strings.ToLower(m.HostName) }

// ProviderID is a Node's spec.providerID.
func (m Member) ProviderID() string { return "azure://" + string(m.Instance) }
