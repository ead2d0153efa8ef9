package azsim

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// The extensions of a scale set are part of its model: the nested resource and
// the model's extensionProfile are two views of the same list.

func setExtensionType() *resourceType {
	return &resourceType{
		name: setExtType, versions: setVersions(),
		get: getSetExtension, list: listSetExtensions, put: putSetExtension, patch: patchSetExtension, remove: removeSetExtension,
	}
}

// showSetExtension is an extension as clients may see it.
func showSetExtension(set *entry, ext *armcompute.VirtualMachineScaleSetExtension) any {
	out := *ext
	props := *ext.Properties
	props.ProtectedSettings = nil
	props.ProvisioningState = ptr(stateSucceeded)
	if set.op != nil && set.op.running() {
		props.ProvisioningState = ptr(stateUpdating)
	} else if stateOf(set.body) == stateFailed {
		props.ProvisioningState = ptr(stateFailed)
	}
	out.Properties, out.Type = &props, ptr(setExtType)
	out.ID = ptr(set.id.child("extensions", val(ext.Name)).String())
	return &out
}

func getSetExtension(c *call) (*reply, error) {
	set := c.s.find(c.id.parent())
	if set == nil {
		return nil, notFound(c.id.parent())
	}
	_, body := setOf(set)
	ext := findSetExtension(profileOf(body), c.id.name())
	if ext == nil {
		return nil, notFound(c.id)
	}
	return ok(showSetExtension(set, ext)), nil
}

func listSetExtensions(c *call) (*reply, error) {
	set := c.s.find(c.id)
	if set == nil {
		return nil, notFound(c.id)
	}
	_, body := setOf(set)
	var items []any
	for _, ext := range extensionsOf(profileOf(body)) {
		items = append(items, showSetExtension(set, ext))
	}
	return c.pageOf(items), nil
}

func putSetExtension(c *call) (*reply, error) {
	ext, err := decode[armcompute.VirtualMachineScaleSetExtension](c)
	if err != nil {
		return nil, err
	}
	return c.changeSetExtension(ext)
}

// patchSetExtension merges into the extension as it is stored, secrets and all.
func patchSetExtension(c *call) (*reply, error) {
	set := c.s.find(c.id.parent())
	if set == nil {
		return nil, parentNotFound(c.id)
	}
	_, body := setOf(set)
	old := findSetExtension(profileOf(body), c.id.name())
	if old == nil {
		return nil, notFound(c.id)
	}
	was, err := toTree(old)
	if err != nil {
		return nil, err
	}
	tree, err := c.tree()
	if err != nil {
		return nil, err
	}
	ext, err := fromTree[armcompute.VirtualMachineScaleSetExtension](mergePatch(was, tree, c.ignoreNull))
	if err != nil {
		return nil, err
	}
	return c.changeSetExtension(ext)
}

// changeSetExtension puts one extension into the model.
func (c *call) changeSetExtension(ext *armcompute.VirtualMachineScaleSetExtension) (*reply, error) {
	name := c.id.name()
	ext.Name = ptr(name)
	if ext.Properties == nil {
		return nil, badParameter("extension.properties", "Required parameter 'extension.properties' is missing (null).")
	}
	created := true
	r, err := c.changeModel(func(p *armcompute.VirtualMachineScaleSetExtensionProfile) {
		i := slices.IndexFunc(p.Extensions, func(x *armcompute.VirtualMachineScaleSetExtension) bool { return strings.EqualFold(val(x.Name), name) })
		if i < 0 {
			p.Extensions = append(p.Extensions, ext)
			return
		}
		p.Extensions[i], created = ext, false
	})
	if err != nil {
		return nil, err
	}
	set := c.s.find(c.id.parent())
	shown := func() any {
		_, body := setOf(set)
		if now := findSetExtension(profileOf(body), name); now != nil {
			return showSetExtension(set, now)
		}
		return nil
	}
	r.status, r.body, r.op.output = http.StatusOK, shown(), shown
	if created {
		r.status = http.StatusCreated
	}
	return r, nil
}

// removeSetExtension refuses while another extension waits for this one.
func removeSetExtension(c *call) (*reply, error) {
	set := c.s.find(c.id.parent())
	if set == nil {
		return &reply{status: http.StatusNoContent}, nil
	}
	_, body := setOf(set)
	name := c.id.name()
	ext := findSetExtension(profileOf(body), name)
	if ext == nil {
		return &reply{status: http.StatusNoContent}, nil
	}
	if waiting := dependents(extensionNeeds(profileOf(body)), name); len(waiting) > 0 {
		return nil, missingDependency(set.id.name(), waiting[0], val(ext.Name))
	}
	r, err := c.changeModel(func(p *armcompute.VirtualMachineScaleSetExtensionProfile) {
		p.Extensions = slices.DeleteFunc(p.Extensions, func(x *armcompute.VirtualMachineScaleSetExtension) bool { return strings.EqualFold(val(x.Name), name) })
	})
	if err != nil {
		return nil, err
	}
	r.status, r.body, r.op.output = http.StatusAccepted, nil, nil
	return r, nil
}

// changeModel changes the extension list of the scale set above the extension
// that the path names, as a PATCH of the scale set would.
func (c *call) changeModel(change func(*armcompute.VirtualMachineScaleSetExtensionProfile)) (*reply, error) {
	set := c.s.find(c.id.parent())
	if set == nil {
		return nil, parentNotFound(c.id)
	}
	_, body := setOf(set)
	next := clone(body)
	p := profileOf(next)
	p.ExtensionProfile = cmp.Or(p.ExtensionProfile, &armcompute.VirtualMachineScaleSetExtensionProfile{})
	change(p.ExtensionProfile)
	tree, err := toTree(next)
	if err != nil {
		return nil, err
	}
	upper := *c
	upper.id, upper.rt = set.id, set.rt
	return write(&upper, tree, scaleSetHooks())
}

// provisionExtensions runs all extensions of a new disk in the order of their
// dependencies.
func (s *Server) provisionExtensions(ctx context.Context, e *entry) error {
	return s.syncExtensions(ctx, e, &armcompute.VirtualMachineScaleSetVMProfile{})
}

// syncExtensions brings an instance's extensions from one recipe to its present
// one: what is gone is removed, what is new or changed is run. An instance that
// does not run is left as it is, since nothing could be done in it.
func (s *Server) syncExtensions(ctx context.Context, e *entry, before *armcompute.VirtualMachineScaleSetVMProfile) error {
	x, _ := instanceOf(e)
	var order []string
	var gone []string
	s.locked(func() {
		if x.power != powerRunning {
			return
		}
		order, _, _ = extensionOrder(extensionNeeds(x.profile))
		for _, old := range extensionsOf(before) {
			if findSetExtension(x.profile, val(old.Name)) == nil {
				gone = append(gone, val(old.Name))
			}
		}
	})
	for _, name := range gone {
		if err := pause(ctx, s.takes("extension.delete", e)); err != nil {
			return err
		}
		s.locked(func() { x.dropExtension(name) })
	}
	for _, name := range order {
		want := findSetExtension(x.profile, name)
		if old := findSetExtension(before, name); old != nil && sameJSON(old.Properties, want.Properties) {
			continue
		}
		if err := s.provisionExtension(ctx, e, instanceExtension(e, want)); err != nil && !val(want.Properties.SuppressFailures) {
			return err
		}
	}
	return nil
}
