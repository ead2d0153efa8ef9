package fleet

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// A Computer is what Azure says of a machine that a Node may be.
type Computer struct {
	ID       ResourceID
	HostName string // osProfile.computerName; "" of a specialized image
	VMID     string
}

// A Claim is what a Node says of the machine that it is. A kubelet cannot choose its Node's
// name, which its credential binds (system:node:NAME). All else is its own word.
type Claim struct{ Name, ProviderID, SystemUUID string }

// Claim is what the Node says of itself.
func (n Node) Claim() Claim { return Claim{n.Name, n.ProviderID, n.SystemUUID} }

// Computer is what Azure says of the instance.
func (i Instance) Computer() Computer { return Computer{i.ID, i.HostName, i.VMID} }

// Computer is what Azure says of the instance.
func (b Boot) Computer() Computer { return Computer{b.Instance, b.HostName, b.VMID} }

// RegisterByHostName is the way out where a Node is not the machine that it names.
const RegisterByHostName = "let its kubelet register with the host name that Azure has, and report the hardware id; delete a stale Node (docs/reference/security.md)"

// DeleteStaleNode is the way out where a machine has a rival.
const DeleteStaleNode = "delete the Node that is stale, or find out which one lies (docs/reference/security.md)"

// Is returns nil if the Node is the machine, or KindInvalid with the reason why it is not. This is
// the one place that decides it: the Node's name is the host name that Azure gave the machine, in
// any letter case; it does not say that it is another machine of Azure; and its systemUUID is the
// machine's vmId, in either byte order, so that a Node of an earlier machine of the name is not it.
func (c Claim) Is(m Computer) error {
	no := func(format string, args ...any) error {
		return &Error{Op: "find machine", Resource: "node " + c.Name, Kind: KindInvalid, Err: fmt.Errorf(format, args...)}
	}
	id, isUUID := parseUUID(c.SystemUUID)
	switch {
	case c.azures() && !c.names(m):
		return no("it reports that it is %s, and not %s", strings.TrimPrefix(c.ProviderID, azureScheme), m.ID)
	case m.HostName == "":
		return no("Azure has no host name for %s (it was made from a specialized image), which alone could show that the Node is it", m.ID)
	case !strings.EqualFold(c.Name, m.HostName):
		return no("%s has the host name %q in Azure: a Node is a machine only if its name is that", m.ID, m.HostName)
	case m.VMID == "" && c.names(m): // as while it is being created: there is nothing to compare
		return nil
	case !isUUID:
		return no("its kubelet reports the systemUUID %q, which is no machine's; %s has the vmId %s", c.SystemUUID, m.ID, m.VMID)
	case !id.is(m.VMID):
		return no("its kubelet reports the systemUUID %s, and %s has the vmId %s: the Node is an earlier machine's, or another has its name", c.SystemUUID, m.ID, m.VMID)
	}
	return nil
}

// Claims reports whether the Node says that it is the machine, by its provider id or by its vmId.
func (c Claim) Claims(m Computer) bool {
	id, ok := parseUUID(c.SystemUUID)
	return c.names(m) || ok && id.is(m.VMID)
}

// Keys are what an index of Nodes has a Node by: a Node that is a machine, or its rival, has a key that is
// also one of Computer.Keys. PoolKey is one of those of an instance of a Uniform scale set.
func (c Claim) Keys() []string {
	keys := []string{nameKey(c.Name)}
	if c.azures() {
		id := ResourceID(c.ProviderID[len(azureScheme):])
		keys = append(keys, idKey(id))
		if pool := id.UniformPool(); pool != "" {
			keys = append(keys, PoolKey(pool))
		}
	}
	return append(keys, uuidKeys(c.SystemUUID)...)
}

// Keys are those by which an index of Nodes has all that may be the machine.
func (m Computer) Keys() []string {
	return append([]string{nameKey(m.HostName), idKey(m.ID)}, uuidKeys(m.VMID)...)
}

func nameKey(name string) string { return "name:" + strings.ToLower(name) }

func idKey(id ResourceID) string { return "id:" + strings.ToLower(string(id)) }

// PoolKey is that of Nodes which say that they are of a Uniform scale set.
func PoolKey(id ResourceID) string { return "pool:" + strings.ToLower(string(id)) }

func uuidKeys(text string) (keys []string) {
	if id, ok := parseUUID(text); ok {
		either := id.either()
		keys = append(keys, "uuid:"+hex.EncodeToString(either[:]))
	}
	return keys
}

// A Roster is a cluster's Nodes, to find those of machines.
type Roster struct{ by map[string][]*Node }

// NewRoster indexes Nodes: all of a cluster, or those that have a key of the machines which are asked for.
func NewRoster(nodes []Node) Roster {
	r := Roster{map[string][]*Node{}}
	for i := range nodes {
		n := &nodes[i]
		for _, key := range n.Claim().Keys() {
			r.by[key] = append(r.by[key], n)
		}
	}
	return r
}

// Of returns the Node that a machine is, nil for none, and its rivals: the names of other Nodes that may be
// its own all the same, sorted. They report its vmId, or no hardware id and its id or name. What stops the
// machine, attaches to it or deletes it waits until they are gone. A Node that names the machine and
// reports another one's systemUUID is stale or lies: it is no rival.
func (r Roster) Of(m Computer) (n *Node, rivals []string) {
	claims := slices.Clone(r.by[idKey(m.ID)])
	for _, x := range r.by[nameKey(m.HostName)] {
		if n = x; x.Claim().Is(m) != nil {
			claims, n = append(claims, x), nil
		}
	}
	claims = slices.DeleteFunc(claims, (*Node).hasHardwareID)
	for _, key := range uuidKeys(m.VMID) {
		claims = append(claims, r.by[key]...)
	}
	for _, x := range claims {
		if x != n && !slices.Contains(rivals, x.Name) {
			rivals = append(rivals, x.Name)
		}
	}
	slices.Sort(rivals)
	return n, rivals
}

// hasHardwareID reports whether the kubelet read one: without DMI it reports the machine id.
func (n *Node) hasHardwareID() bool {
	return IsUUID(n.SystemUUID) && !strings.EqualFold(strings.ReplaceAll(n.SystemUUID, "-", ""), n.MachineID)
}

// azureScheme begins the provider ids of Azure's cloud provider. Those of others (k3s://NAME) name
// no machine of Azure.
const azureScheme = "azure://"

func (c Claim) azures() bool {
	return len(c.ProviderID) >= len(azureScheme) && strings.EqualFold(c.ProviderID[:len(azureScheme)], azureScheme)
}

func (c Claim) names(m Computer) bool {
	return c.azures() && m.ID != "" && m.ID.Equal(ResourceID(c.ProviderID[len(azureScheme):]))
}

// A uuid is a machine's id, in the byte order in which it is written.
type uuid [16]byte

// parseUUID reads one; zeros or ones alone, which firmware without an id reports, are none.
func parseUUID(text string) (u uuid, ok bool) {
	const digits = 2 * len(u)
	plain := strings.ReplaceAll(text, "-", "")
	if len(plain) != digits || strings.Trim(plain, "0") == "" || strings.Trim(plain, "fF") == "" {
		return uuid{}, false
	}
	_, err := hex.Decode(u[:], []byte(plain))
	return u, err == nil
}

// swapped has the first three groups' bytes the other way around: SMBIOS before 2.6 wrote
// them so, and what reads them may take one for the other.
func (u uuid) swapped() uuid {
	slices.Reverse(u[:4])
	slices.Reverse(u[4:6])
	slices.Reverse(u[6:8])
	return u
}

// either is the same for both byte orders of an id.
func (u uuid) either() uuid {
	if other := u.swapped(); bytes.Compare(other[:], u[:]) < 0 {
		return other
	}
	return u
}

// is reports whether a text is this id, in either byte order.
func (u uuid) is(text string) bool {
	other, ok := parseUUID(text)
	return ok && (other == u || other == u.swapped())
}

// IsUUID reports whether a Node's systemUUID can be a machine's.
func IsUUID(text string) bool { _, ok := parseUUID(text); return ok }
