package azsim

import (
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

const placementGroupType = "Microsoft.Compute/proximityPlacementGroups"

// placementGroupLists are the members of a proximity placement group, by the types of what
// refers to it.
var placementGroupLists = map[string]string{
	"virtualMachines": machineType, "virtualMachineScaleSets": setType, "availabilitySets": "Microsoft.Compute/availabilitySets",
}

func placementGroupResourceType() *resourceType {
	lists := sortedKeys(placementGroupLists)
	rt := storedType(placementGroupType, scaleSetVersions(), &storedRules{
		tracked: true, derived: append(lists, "colocationStatus"),
		check: func(_ *call, d *draft) error {
			p := d.properties()
			kind := text(p, "proximityPlacementGroupType")
			for _, known := range armcompute.PossibleProximityPlacementGroupTypeValues() {
				if kind == "" || strings.EqualFold(kind, string(known)) {
					p["proximityPlacementGroupType"] = string(armcompute.ProximityPlacementGroupTypeStandard)
					if kind != "" {
						p["proximityPlacementGroupType"] = string(known)
					}
					return nil
				}
			}
			return badParameter("proximityPlacementGroupType", "The value of parameter proximityPlacementGroupType is invalid.")
		},
		inUse: func(s *Server, e *entry) error {
			for _, list := range lists {
				if len(s.placedIn(e.key, placementGroupLists[list])) > 0 {
					return conflict(
						"Proximity placement group '%s' cannot be deleted. Before deleting it please ensure that it does not contain any resource.", e.id.name())
				}
			}
			return nil
		},
		show: func(s *Server, e *entry, out object) {
			p := out["properties"].(object)
			delete(p, "provisioningState")
			for _, list := range lists {
				p[list] = append([]any{}, idList(s.placedIn(e.key, placementGroupLists[list]))...)
			}
		},
	})
	rt.get = func(c *call) (*reply, error) {
		e, err := c.need()
		if err != nil {
			return nil, err
		}
		out := c.s.showStored(e, c.version).(object)
		if strings.EqualFold(c.query("includeColocationStatus"), "true") {
			out["properties"].(object)["colocationStatus"] = object{"code": "ColocationStatus/Aligned", "level": "Info",
				"displayStatus": "Aligned", "message": "All resources in the proximity placement group are aligned."}
		}
		return ok(out), nil
	}
	return withoutMembers(rt, http.StatusCreated, lists...)
}

// withoutMembers gives a type of Microsoft.Compute the answers of its writes: they do not
// have the lists of what refers to the resource (as recorded). A new one has the status.
func withoutMembers(rt *resourceType, created int, lists ...string) *resourceType {
	answer := func(write handler) handler {
		return func(c *call) (*reply, error) {
			out, err := write(c)
			if err != nil || out.body == nil {
				return out, err
			}
			p := out.body.(object)["properties"].(object)
			for _, list := range lists {
				delete(p, list)
			}
			if out.status == http.StatusCreated {
				out.status = created
			}
			return out, nil
		}
	}
	rt.put, rt.patch = answer(rt.put), answer(rt.patch)
	return rt
}

// placedIn lists the ids of the resources of a type that name a proximity placement group.
func (s *Server) placedIn(key, typ string) []string {
	var out []string
	for _, e := range s.ofType(typ, s.Subscription, "") {
		body := e.body
		if _, isInstance := e.extra.(*instance); isInstance {
			body = s.showMachine(e, false)
		}
		if strings.EqualFold(groupOf(body), key) {
			out = append(out, e.id.String())
		}
	}
	return out
}

// groupOf is the id of the proximity placement group that a body names.
func groupOf(body any) string {
	var ref *armcompute.SubResource
	switch v := body.(type) {
	case *armcompute.VirtualMachine:
		ref = v.Properties.ProximityPlacementGroup
	case *armcompute.VirtualMachineScaleSet:
		ref = v.Properties.ProximityPlacementGroup
	default:
		return text(v, "properties", "proximityPlacementGroup", "id")
	}
	if ref == nil {
		return ""
	}
	return val(ref.ID)
}

// checkPlacementGroup refuses a proximity placement group that is not there.
func (c *call) checkPlacementGroup(body any) error {
	id := groupOf(body)
	if e := c.s.findID(id); id != "" && (e == nil || e.rt.name != placementGroupType) {
		return missingReference(id, c.id)
	}
	return nil
}
