package azsim

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

func instanceExtensionType() *resourceType {
	return &resourceType{
		name: instanceExtType, versions: setVersions(),
		get: getInstanceExtension, list: listInstanceExtensions, put: putInstanceExtension, patch: patchInstanceExtension, remove: removeInstanceExtension,
	}
}

// instanceExtension is what an extension of the recipe becomes on an instance.
// The id that Azure shows there is that of a machine outside a scale set (kamino
// issue 83).
func instanceExtension(e *entry, want *armcompute.VirtualMachineScaleSetExtension) *armcompute.VirtualMachineExtension {
	_, body := instanceOf(e)
	p := want.Properties
	return &armcompute.VirtualMachineExtension{
		Name: want.Name, Location: body.Location, Type: ptr("Microsoft.Compute/virtualMachines/extensions"),
		ID: ptr(e.id.root() + "/providers/Microsoft.Compute/virtualMachines/" + val(body.Name) + "/extensions/" + val(want.Name)),
		Properties: &armcompute.VirtualMachineExtensionProperties{
			AutoUpgradeMinorVersion: p.AutoUpgradeMinorVersion, EnableAutomaticUpgrade: p.EnableAutomaticUpgrade, ForceUpdateTag: p.ForceUpdateTag,
			ProtectedSettings: p.ProtectedSettings, ProvisionAfterExtensions: p.ProvisionAfterExtensions, Publisher: p.Publisher, Settings: p.Settings,
			SuppressFailures: p.SuppressFailures, Type: p.Type, TypeHandlerVersion: p.TypeHandlerVersion,
		},
	}
}

func (x *instance) findExtension(name string) *armcompute.VirtualMachineExtension {
	for _, ext := range x.extensions {
		if strings.EqualFold(val(ext.Name), name) {
			return ext
		}
	}
	return nil
}

func (x *instance) dropExtension(name string) {
	delete(x.reports, strings.ToLower(name))
	x.extensions = slices.DeleteFunc(x.extensions, func(ext *armcompute.VirtualMachineExtension) bool { return strings.EqualFold(val(ext.Name), name) })
}

// provisionExtension runs one extension on an instance: it takes its time, and
// fails if it meets a fault.
func (s *Server) provisionExtension(ctx context.Context, e *entry, ext *armcompute.VirtualMachineExtension) error {
	x, body := instanceOf(e)
	name := val(ext.Name)
	s.locked(func() {
		delete(x.reports, strings.ToLower(name)) // of the settings before
		ext.Properties.ProvisioningState = ptr(stateCreating)
		if i := slices.IndexFunc(x.extensions, func(o *armcompute.VirtualMachineExtension) bool { return strings.EqualFold(val(o.Name), name) }); i >= 0 {
			x.extensions[i] = ext
			return
		}
		x.extensions = append(x.extensions, ext)
	})
	driver := strings.EqualFold(handlerName(ext), "Microsoft.HpcCompute.NvidiaGpuDriverLinux")
	span := "extension.create"
	if driver {
		span = "extension.driver"
	}
	if err := pause(ctx, s.takes(span, e)); err != nil {
		return err
	}
	told, err := s.outcome(x, ext)
	if size, _ := findSize(x.size); driver && size.gpus() == 0 {
		// Azure, "NVIDIA GPU Driver Extension for Linux", exit codes.
		told = ExtensionReport{Status: StatusError, Message: "Enable failed with exit code 13: VM size not supported"}
	}
	if err != nil {
		s.locked(func() { ext.Properties.ProvisioningState = ptr(stateFailed) })
		return err
	}
	var failure *armError
	s.locked(func() {
		f := s.innerFault(e.rt.name+"/extensions/provision", e.id.child("extensions", name))
		state, message := stateSucceeded, "Enable succeeded: \n[stdout]\n\n[stderr]\n"
		if f != nil || told.Status == StatusError {
			state, message = stateFailed, told.Message
			if f != nil {
				message = f.Message
			}
			message = cmp.Or(message, "Enable failed: failed to execute command: command terminated with exit status=1")
			failure = refuse(http.StatusConflict, "VMExtensionProvisioningError",
				"VM has reported a failure when processing extension '%s' (publisher '%s' and type '%s'). Error message: '%s'. More information on troubleshooting is available at https://aka.ms/VMExtensionCSELinuxTroubleshoot.",
				name, val(ext.Properties.Publisher), val(ext.Properties.Type), message)
			failure.target = val(body.Name)
		}
		st := provisioningStatus(state, nil, time.Now())
		st.Message = ptr(message)
		ext.Properties.ProvisioningState = ptr(state)
		if f == nil && told.Status != "" { // the view is what it told
			return
		}
		ext.Properties.InstanceView = &armcompute.VirtualMachineExtensionInstanceView{
			Name: ext.Name, Type: ptr(handlerName(ext)),
			TypeHandlerVersion: ext.Properties.TypeHandlerVersion, Statuses: []*armcompute.InstanceViewStatus{st},
		}
	})
	if failure != nil {
		return failure
	}
	return nil
}

func sameJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// showInstanceExtension is an extension as its own path shows it.
func (c *call) showInstanceExtension(e *entry, ext *armcompute.VirtualMachineExtension) *armcompute.VirtualMachineScaleSetVMExtension {
	props := *ext.Properties
	props.ProtectedSettings = nil
	if !c.expands("instanceView") {
		props.InstanceView = nil
	} else {
		props.InstanceView = extensionView(ext)
	}
	return &armcompute.VirtualMachineScaleSetVMExtension{
		ID: ptr(e.id.child("extensions", val(ext.Name)).String()), Name: ext.Name, Type: ptr(e.rt.name + "/extensions"), Location: ext.Location, Properties: &props,
	}
}

func getInstanceExtension(c *call) (*reply, error) {
	e := c.s.find(c.id.parent())
	if e == nil {
		return nil, notFound(c.id.parent())
	}
	x, _ := instanceOf(e)
	ext := x.findExtension(c.id.name())
	if ext == nil {
		return nil, notFound(c.id)
	}
	return ok(c.showInstanceExtension(e, ext)), nil
}

func listInstanceExtensions(c *call) (*reply, error) {
	e := c.s.find(c.id)
	if e == nil {
		return nil, notFound(c.id)
	}
	x, _ := instanceOf(e)
	items := []any{}
	for _, ext := range x.extensions {
		items = append(items, c.showInstanceExtension(e, ext))
	}
	return ok(map[string]any{"value": items}), nil
}

func putInstanceExtension(c *call) (*reply, error) {
	if c.rt.name == machineExtType {
		in, err := decode[armcompute.VirtualMachineExtension](c)
		if err != nil {
			return nil, err
		}
		return c.changeInstanceExtension(in.Properties)
	}
	in, err := decode[armcompute.VirtualMachineScaleSetVMExtension](c)
	if err != nil {
		return nil, err
	}
	return c.changeInstanceExtension(in.Properties)
}

func patchInstanceExtension(c *call) (*reply, error) {
	e := c.s.find(c.id.parent())
	if e == nil {
		return nil, parentNotFound(c.id)
	}
	x, _ := instanceOf(e)
	old := x.findExtension(c.id.name())
	if old == nil {
		return nil, notFound(c.id)
	}
	was, err := toTree(map[string]any{"properties": old.Properties})
	if err != nil {
		return nil, err
	}
	tree, err := c.tree()
	if err != nil {
		return nil, err
	}
	in, err := fromTree[armcompute.VirtualMachineScaleSetVMExtension](mergePatch(was, tree, c.ignoreNull))
	if err != nil {
		return nil, err
	}
	return c.changeInstanceExtension(in.Properties)
}

func (c *call) changeInstanceExtension(props *armcompute.VirtualMachineExtensionProperties) (*reply, error) {
	s := c.s
	e, err := c.extensionHost()
	if err != nil {
		return nil, err
	}
	x, body := instanceOf(e)
	if props == nil || val(props.Publisher) == "" || val(props.Type) == "" {
		return nil, badParameter("extension.properties", "Required parameter 'extension.publisher' is missing (null).")
	}
	status, state := http.StatusCreated, stateCreating
	if old := x.findExtension(c.id.name()); old != nil {
		status, state = http.StatusOK, stateUpdating
		props.TypeHandlerVersion = firstOf(props.TypeHandlerVersion, old.Properties.TypeHandlerVersion)
	}
	props.AutoUpgradeMinorVersion = orDefault(props.AutoUpgradeMinorVersion, false)
	props.InstanceView, props.ProvisioningState = nil, ptr(state)
	ext := &armcompute.VirtualMachineExtension{Name: ptr(c.id.name()), Location: body.Location, Properties: props,
		Type: ptr("Microsoft.Compute/virtualMachines/extensions"), ID: ptr(c.id.String())}
	setState(body, stateUpdating)
	op := c.begin(e, work{
		run:    func(context.Context) error { return s.settle(e, s.provisionExtension(x.alive, e, ext)) },
		output: func() any { return c.showInstanceExtension(e, ext) },
		done: func(failure *armError) {
			if failure != nil && !x.gone && stateOf(body) == stateUpdating {
				setState(body, stateFailed)
			}
		},
	})
	return &reply{status: status, body: c.showInstanceExtension(e, ext), op: op}, nil
}

// extensionHost finds the instance under the extension that the path names, if it
// can take a change.
func (c *call) extensionHost() (*entry, error) {
	e := c.s.find(c.id.parent())
	if e == nil {
		return nil, parentNotFound(c.id)
	}
	if err := c.busy(e); err != nil {
		return nil, err
	}
	if x, _ := instanceOf(e); x.power != powerRunning {
		return nil, conflict("Cannot modify extensions in the VM when the VM is not running.")
	}
	return e, nil
}

func removeInstanceExtension(c *call) (*reply, error) {
	s := c.s
	if p := s.find(c.id.parent()); p == nil {
		return &reply{status: http.StatusNoContent}, nil
	} else if x, _ := instanceOf(p); x.findExtension(c.id.name()) == nil {
		return &reply{status: http.StatusNoContent}, nil
	}
	e, err := c.extensionHost()
	if err != nil {
		return nil, err
	}
	x, _ := instanceOf(e)
	name := c.id.name()
	var needs []extensionNeed
	for _, ext := range x.extensions {
		n := extensionNeed{name: val(ext.Name)}
		for _, a := range ext.Properties.ProvisionAfterExtensions {
			n.after = append(n.after, val(a))
		}
		needs = append(needs, n)
	}
	if waiting := dependents(needs, name); len(waiting) > 0 {
		return nil, missingDependency(x.set.id.name(), waiting[0], name)
	}
	return accepted(c.begin(e, work{span: c.duration("extension.delete"), done: func(failure *armError) {
		if failure == nil {
			x.dropExtension(name)
		}
	}})), nil
}
