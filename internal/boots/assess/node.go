package assess

import (
	"strings"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// azureScheme begins the provider ids of Azure's cloud provider, in upper or lower case.
const azureScheme = "azure://"

// InstanceOf reads a provider id of an instance of a Uniform scale set or of a
// virtual machine, as Nodes, Machines and Azure's machines have them.
func InstanceOf(providerID string) (fleet.ResourceID, bool) {
	if len(providerID) < len(azureScheme) || !strings.EqualFold(providerID[:len(azureScheme)], azureScheme) {
		return "", false
	}
	id, err := fleet.ParseMachine(azureScheme + providerID[len(azureScheme):])
	return id, err == nil
}

// NodeFor finds the Node that an instance is, by fleet.Claim; nil if no Node is.
func NodeFor(nodes []NodeView, b fleet.Boot) *NodeView {
	for i := range nodes {
		if nodes[i].Is(b) {
			return &nodes[i]
		}
	}
	return nil
}

// Claim is what the Node says of itself.
func (n *NodeView) Claim() fleet.Claim {
	return fleet.Claim{Name: n.Name, ProviderID: n.ProviderID, SystemUUID: n.SystemUUID}
}

// Is reports whether the Node is an instance.
func (n *NodeView) Is(b fleet.Boot) bool { return n.Claim().Is(b.Computer()) == nil }

// ViewOf returns as much of a Node as is used.
func ViewOf(n fleet.Node) *NodeView {
	v := &NodeView{
		Name: n.Name, UID: n.UID, ProviderID: n.ProviderID, SystemUUID: n.SystemUUID, BootID: n.BootID, Created: n.Created,
		Ready: n.Ready, ReadySince: n.ReadySince, Why: n.NotReadyWhy, Captured: n.Annotations[fleet.AnnotationCapture] != "",
	}
	for _, c := range n.Conditions {
		switch c.Type {
		case wire.ConfigurationCondition:
			if c.Status != "True" {
				v.Configuration = strings.Trim(c.Reason+": "+c.Message, ": ")
			}
		case fleet.ConditionBootSucceeded:
			if v.CameUp = c.Status == "True"; v.CameUp {
				v.CameUpSince, v.CameUpReason, v.CameUpWritten = c.Since, c.Reason, latest(c.Since, c.Written)
			}
		}
	}
	return v
}
