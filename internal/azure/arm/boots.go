package arm

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

var _ azure.Boots = (*Cloud)(nil)

const typeMachine = "virtualMachines"

// What one instance may make us keep: far above what Azure gives.
const (
	maxExtensions = 64
	maxStatuses   = 64
	maxText       = 32 << 10
)

// Pools lists the scale sets of a resource group.
func (c *Cloud) Pools(ctx context.Context, group fleet.ResourceID) ([]fleet.Pool, error) {
	const op = "list scale sets"
	// A group has no names below it: it is read as that of a set which need not
	// be there.
	p, err := c.at(fleet.ResourceID(strings.TrimRight(string(group), "/"))+"/providers/Microsoft.Compute/virtualMachineScaleSets/any", typeScaleSet)
	if err != nil {
		return nil, failed(ctx, op, group, &fleet.Error{Kind: fleet.KindInvalid, Err: fmt.Errorf("%q is not the id of a resource group", group)})
	}
	var out []fleet.Pool
	if err := list(ctx, c, c.address(p.below+typeScaleSet, computeVersion), func(v *setAnswer) error {
		out = append(out, poolOf(v))
		return nil
	}); err != nil {
		return nil, failed(ctx, op, group, err)
	}
	return out, nil
}

// Boots lists a pool's instances with what their instance views say. The list
// below a Flexible set has no views, and refuses to give them; Azure's list of
// virtual machines gives them for the machines of one set.
func (c *Cloud) Boots(ctx context.Context, pool fleet.Pool) ([]fleet.Boot, error) {
	const op = "list boots"
	p, err := c.at(pool.ID, typeScaleSet)
	if err != nil {
		return nil, failed(ctx, op, pool.ID, err)
	}
	flexible := strings.EqualFold(pool.Orchestration, fleet.Flexible)
	var out []fleet.Boot
	if err := list(ctx, c, c.instances(p, pool.ID, flexible, true), func(vm *bootAnswer) error {
		if !flexible || vm.of(pool.ID) {
			b := bootOf(vm, pool.ID, flexible)
			b.Overprovisioned, b.Recreated = pool.Overprovision, pool.Recreates
			out = append(out, b)
		}
		return nil
	}); err != nil {
		return nil, failed(ctx, op, pool.ID, err)
	}
	return out, nil
}

// instances is the list of a scale set's instances, with their views or without.
func (c *Cloud) instances(p place, pool fleet.ResourceID, flexible, views bool) string {
	var query []string
	if views {
		query = append(query, "$expand", "instanceView")
	}
	if flexible {
		return c.address(p.below+typeMachine, computeVersion, append(query, "$filter", "'virtualMachineScaleSet/id' eq '"+string(pool)+"'")...)
	}
	return c.address(p.id+"/virtualMachines", computeVersion, query...)
}

// A moment is a time that may be missing or unreadable, which is no reason to see
// nothing of a whole pool.
type moment struct{ time.Time }

func (m *moment) UnmarshalJSON(data []byte) error {
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return nil //nolint:nilerr // no time is known then
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999"} { // without a zone it is UTC
		// .NET's zero, and what JSON cannot hold, is no time.
		if t, err := time.Parse(layout, s); err == nil && t.UTC().Year() > 1 && t.UTC().Year() < 9999 {
			m.Time = t.UTC()
			return nil
		}
	}
	return nil
}

// statusAnswer is an InstanceViewStatus.
type statusAnswer struct {
	Code          string `json:"code"`
	Level         string `json:"level"`
	DisplayStatus string `json:"displayStatus"`
	Message       string `json:"message"`
	Time          moment `json:"time"`
}

// bootAnswer is what is wanted of the start of a VirtualMachineScaleSetVM or a
// VirtualMachine.
type bootAnswer struct {
	ID         string   `json:"id"`
	Name       string   `json:"name"`
	Zones      []string `json:"zones"`
	Properties struct {
		VMID              string `json:"vmId"`
		ProvisioningState string `json:"provisioningState"`
		TimeCreated       moment `json:"timeCreated"`
		OSProfile         struct {
			ComputerName string `json:"computerName"`
		} `json:"osProfile"`
		StorageProfile struct {
			ImageReference *imageAnswer `json:"imageReference"`
		} `json:"storageProfile"`
		DiagnosticsProfile struct {
			BootDiagnostics struct {
				Enabled    bool   `json:"enabled"`
				StorageURI string `json:"storageUri"`
			} `json:"bootDiagnostics"`
		} `json:"diagnosticsProfile"`
		VirtualMachineScaleSet *diskAnswer `json:"virtualMachineScaleSet"`
		InstanceView           struct {
			ComputerName string          `json:"computerName"`
			Statuses     []*statusAnswer `json:"statuses"`
			VMAgent      struct {
				VMAgentVersion string          `json:"vmAgentVersion"`
				Statuses       []*statusAnswer `json:"statuses"`
			} `json:"vmAgent"`
			Extensions []*struct {
				Name               string          `json:"name"`
				Type               string          `json:"type"`
				TypeHandlerVersion string          `json:"typeHandlerVersion"`
				Statuses           []*statusAnswer `json:"statuses"`
				Substatuses        []*statusAnswer `json:"substatuses"`
			} `json:"extensions"`
		} `json:"instanceView"`
	} `json:"properties"`
}

// of tells a virtual machine of the set from others, should the filter have been
// ignored.
func (vm *bootAnswer) of(set fleet.ResourceID) bool {
	s := vm.Properties.VirtualMachineScaleSet
	return s == nil || set.Equal(fleet.ResourceID(s.ID))
}

func bootOf(vm *bootAnswer, pool fleet.ResourceID, flexible bool) fleet.Boot {
	p, v := &vm.Properties, &vm.Properties.InstanceView
	b := fleet.Boot{
		Instance: fleet.ResourceID(vm.ID), Pool: pool, Flexible: flexible, Name: short(vm.Name), VMID: short(p.VMID), HostName: short(p.OSProfile.ComputerName),
		Created: p.TimeCreated.Time, ProvisioningState: short(p.ProvisioningState), Image: madeOf(p.StorageProfile.ImageReference),
	}
	if b.HostName == "" { // of a specialized image
		b.HostName = short(v.ComputerName)
	}
	if len(vm.Zones) > 0 {
		b.Zone = short(vm.Zones[0])
	}
	if d := &p.DiagnosticsProfile.BootDiagnostics; d.Enabled {
		b.ConsoleStorage = short(d.StorageURI)
		b.Console = b.ConsoleStorage == ""
	}
	for _, st := range v.Statuses {
		if st == nil {
			continue
		}
		switch kind, rest, _ := strings.Cut(st.Code, "/"); {
		case strings.EqualFold(kind, "PowerState"):
			b.Power = fleet.PowerState(strings.ToLower(short(rest)))
		case strings.EqualFold(kind, "ProvisioningState") && !b.Provisioning.Failed():
			b.Provisioning = statusOf(st)
		}
	}
	b.Agent.Version = short(v.VMAgent.VMAgentVersion)
	if st := statusesOf(v.VMAgent.Statuses); len(st) > 0 {
		b.Agent.Ready = strings.EqualFold(st[0].Display, "Ready") || st[0].Display == "" && st[0].State == "succeeded"
		b.Agent.Message, b.Agent.Time = st[0].Message, st[0].Time
	}
	for _, e := range v.Extensions {
		if e == nil || len(b.Extensions) == maxExtensions {
			continue
		}
		b.Extensions = append(b.Extensions, fleet.ExtensionStatus{
			Name: short(e.Name), Type: short(e.Type), Version: short(e.TypeHandlerVersion),
			Statuses: statusesOf(e.Statuses), Substatuses: statusesOf(e.Substatuses),
		})
	}
	return b
}

// madeOf names the version that a machine was made of, exactly where Azure does:
// a reference to an image definition, or to "latest", is another next month.
func madeOf(r *imageAnswer) string {
	image := imageOf(r)
	version := cmp.Or(image.ExactVersion, image.Version)
	switch {
	case image.ID == "" && image.Publisher == "":
		return ""
	case image.ID == "":
		return short(image.Publisher + ":" + image.Offer + ":" + image.SKU + ":" + version)
	case version != "" && ofGallery(image.ID) && image.ID.Segment("versions") == "":
		return short(string(image.ID.Child("versions", version)))
	}
	return short(string(image.ID))
}

// ofGallery tells ids of galleries' images, also of shared ones, from those of
// images that have no versions.
func ofGallery(id fleet.ResourceID) bool {
	return cmp.Or(id.Segment("galleries"), id.Segment("sharedGalleries"), id.Segment("communityGalleries")) != ""
}

func statusesOf(list []*statusAnswer) []fleet.BootStatus {
	var out []fleet.BootStatus
	for _, st := range list {
		if st != nil && len(out) < maxStatuses {
			out = append(out, statusOf(st))
		}
	}
	return slices.Clip(out)
}

func statusOf(st *statusAnswer) fleet.BootStatus {
	out := fleet.BootStatus{Code: short(st.Code), Level: short(st.Level), Display: short(st.DisplayStatus), Message: cut(st.Message, maxText), Time: st.Time.Time}
	out.Name, out.State, out.Reason = fleet.ParseStatusCode(out.Code)
	return out
}

// short bounds a text that is a name or a word.
func short(s string) string { return cut(s, 1024) }

// cut returns the first n bytes of a text, or fewer where a character would be cut.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.Clone(strings.ToValidUTF8(s[:n], "")) // the rest is not kept
}
