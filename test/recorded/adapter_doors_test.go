package recorded

import (
	"reflect"
	"testing"

	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/fleet"
)

// kinds are the structs of Ortet, where their fields come from, and the doors that return them.
var kinds = []kind{
	{"Pool", []string{setType}, reflect.TypeFor[fleet.Pool](), poolFields, map[string]door{
		"Pool": func(t *testing.T, b recordedBody) (any, error) { return cloudOf(t, b.alone()).Pool(t.Context(), b.id) },
		"Pools": func(t *testing.T, b recordedBody) (any, error) {
			return only(cloudOf(t, b.listed(b.id)).Pools(t.Context(), b.id.Group()))
		},
	}},
	{"Instance", []string{instanceType, machineType}, reflect.TypeFor[fleet.Instance](), instanceFields, map[string]door{
		"Instance": func(t *testing.T, b recordedBody) (any, error) {
			return cloudOf(t, b.alone()).Instance(t.Context(), b.id)
		},
		"Instances": func(t *testing.T, b recordedBody) (any, error) {
			c, pool := b.inPool(t)
			return only(c.Instances(t.Context(), pool.ID))
		},
	}},
	{"Boot", []string{instanceType, machineType}, reflect.TypeFor[fleet.Boot](), bootFields, map[string]door{
		"Boots": func(t *testing.T, b recordedBody) (any, error) {
			c, pool := b.inPool(t)
			return only(c.Boots(t.Context(), pool))
		},
	}},
	{"Member", []string{instanceType, machineType}, reflect.TypeFor[fleet.Member](), memberFields, map[string]door{
		"Member": func(t *testing.T, b recordedBody) (any, error) {
			c, _ := b.inPool(t)
			return c.Member(t.Context(), b.id)
		},
		"Members": func(t *testing.T, b recordedBody) (any, error) {
			c, pool := b.inPool(t)
			return only(c.Members(t.Context(), pool.ID, true))
		},
	}},
	{"Member's interface", []string{interfaceType}, nil, interfaceFields, map[string]door{
		"Member": func(t *testing.T, b recordedBody) (any, error) {
			machine := fleet.ResourceID(b.object.text("properties.virtualMachine.id"))
			if machine == "" {
				return fleet.Member{}, nil // an interface without a machine: no Member asks for it
			}
			m := recordedBody{typ: machineType, id: machine, object: tree{"id": string(machine), "properties": map[string]any{
				"networkProfile": tree{"networkInterfaces": []any{tree{"id": string(b.id)}}}}}}
			m.interfaces = []any{map[string]any(b.object)}
			c, _ := m.inPool(t)
			return c.Member(t.Context(), machine)
		},
	}},
	{"Disk", []string{diskType}, reflect.TypeFor[fleet.Disk](), diskFields, map[string]door{
		"Disk": func(t *testing.T, b recordedBody) (any, error) { return cloudOf(t, b.alone()).Disk(t.Context(), b.id) },
	}},
	{"Snapshot", []string{snapshotType}, reflect.TypeFor[fleet.Snapshot](), snapshotFields, map[string]door{
		"Snapshot": func(t *testing.T, b recordedBody) (any, error) {
			return cloudOf(t, b.alone()).Snapshot(t.Context(), b.id)
		},
	}},
	{"Gallery", []string{galleryType}, reflect.TypeFor[fleet.Gallery](), galleryFields, map[string]door{
		"Gallery": func(t *testing.T, b recordedBody) (any, error) {
			return cloudOf(t, b.alone()).Gallery(t.Context(), b.id)
		},
	}},
	{"Definition", []string{definitionType}, reflect.TypeFor[fleet.Definition](), definitionFields, map[string]door{
		"Definition": func(t *testing.T, b recordedBody) (any, error) {
			return cloudOf(t, b.alone()).Definition(t.Context(), b.id)
		},
	}},
	{"ImageVersion", []string{versionType}, reflect.TypeFor[fleet.ImageVersion](), versionFields, map[string]door{
		"Version": func(t *testing.T, b recordedBody) (any, error) {
			return cloudOf(t, b.alone()).Version(t.Context(), b.id)
		},
		"Versions": func(t *testing.T, b recordedBody) (any, error) {
			answers := b.listed(b.id)
			answers[b.id] = b.object // of an unfinished operation
			return only(cloudOf(t, answers).Versions(t.Context(), b.id.Parent()))
		},
	}},
	{"SizeInfo", nil, reflect.TypeFor[fleet.SizeInfo](), sizeFields, nil},
	{"Usage", nil, reflect.TypeFor[fleet.Usage](), usageFields, nil},
	{"Denied", nil, nil, permissionFields, nil},
}

// inPool is the adapter before a pool that has the one instance; that of a virtual machine is
// a Flexible one.
func (b recordedBody) inPool(t *testing.T) (*arm.Cloud, fleet.Pool) {
	pool, inside := fleet.Pool{ID: b.id.Parent(), Orchestration: fleet.Uniform}, b.object
	answers := map[fleet.ResourceID]any{}
	if b.typ == machineType {
		pool = fleet.Pool{ID: fleet.ResourceID(b.object.text("properties.virtualMachineScaleSet.id")), Orchestration: fleet.Flexible}
		if pool.ID == "" { // a virtual machine of its own: the same body, in a pool
			pool.ID = b.id.Group().In("virtualMachineScaleSets", "any")
			inside = b.object.with("properties", "virtualMachineScaleSet", tree{"id": string(pool.ID)})
		}
		answers[b.id.Group()+"/providers/Microsoft.Compute/virtualMachines"] = listOf(inside)
		answers[pool.ID.Group()+"/providers/Microsoft.Network/networkInterfaces"] = listOf(b.interfaces...)
		for _, nic := range b.interfaces {
			object, _ := nic.(map[string]any)
			answers[fleet.ResourceID(tree(object).text("id"))] = nic
		}
	} else {
		answers[pool.ID+"/virtualMachines"] = listOf(inside)
		answers[pool.ID+"/networkInterfaces"] = listOf()
		answers[b.id+"/networkInterfaces"] = listOf()
	}
	answers[b.id] = inside
	answers[pool.ID] = tree{"id": string(pool.ID), "properties": tree{"orchestrationMode": pool.Orchestration}}
	return cloudOf(t, answers), pool
}
