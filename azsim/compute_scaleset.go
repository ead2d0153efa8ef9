package azsim

import (
	"cmp"
	"context"
	"maps"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// The types of this file and its neighbours.
const (
	setType         = "Microsoft.Compute/virtualMachineScaleSets"
	instanceType    = setType + "/virtualMachines"
	setExtType      = setType + "/extensions"
	instanceExtType = instanceType + "/extensions"
)

// scaleSetVersions are API versions of scale sets: those of the published
// specifications, from what cluster-autoscaler asks to what armcompute v8 asks.
func scaleSetVersions() []string {
	return []string{"2018-10-01", "2019-03-01", "2019-07-01", "2019-12-01", "2020-06-01", "2020-12-01", "2021-03-01", "2021-04-01",
		"2021-07-01", "2021-11-01", "2022-03-01", "2022-08-01", "2022-11-01", "2023-03-01", "2023-07-01", "2023-09-01",
		"2024-03-01", "2024-07-01", "2024-11-01", "2025-04-01", "2025-11-01", "2026-04-01"}
}

// setVersions are those of scale sets and their instances; older ones have the same shape.
func setVersions() []string {
	return append([]string{"2017-03-30", "2017-12-01", "2018-04-01", "2018-06-01"}, scaleSetVersions()...)
}

// scaleSetState is what the scale sets keep in a Server beside the entries.
type scaleSetState struct {
	events  map[string]*eventBoard // scheduled events, by placement group
	subnets map[string]*subnet     // by id in lower case
}

// scaleSetTypes lists the types of scale sets, their instances and extensions.
func scaleSetTypes() []*resourceType {
	types := []*resourceType{scaleSetType(), instanceResourceType(), setExtensionType(), instanceExtensionType()}
	types = append(types, networkTypes()...)
	return append(types, sizeTypes()...)
}

func scaleSetType() *resourceType {
	return &resourceType{
		name: setType, versions: setVersions(), global: true, preempts: true, preflight: true,
		put: putScaleSet, patch: patchScaleSet, remove: removeScaleSet, render: renderScaleSet,
		views: map[string]handler{
			"instanceview":     uniformOnly("instanceView.GET", scaleSetInstanceView),
			"skus":             scaleSetSKUs,
			"osupgradehistory": emptyList,
		},
		actions: map[string]handler{
			"start":                        uniformOnly("start.POST", setAction(actStart)),
			"poweroff":                     uniformOnly("powerOff.POST", setAction(actPowerOff)),
			"deallocate":                   setAction(actDeallocate),
			"restart":                      uniformOnly("restart.POST", setAction(actRestart)),
			"redeploy":                     uniformOnly("redeploy.POST", setAction(actRedeploy)),
			"reimage":                      uniformOnly("reimage.POST", setAction(actReimage)),
			"reimageall":                   uniformOnly("reimageAll.POST", setAction(actReimage)),
			"manualupgrade":                setAction(actUpgrade),
			"delete":                       deleteInstances,
			"extensionrollingupgrade":      uniformOnly("extensionRollingUpgrade.POST", upgradeExtensions),
			"setorchestrationservicestate": setOrchestrationService,
		},
	}
}

// A scaleSet is what a scale set keeps beside its model.
type scaleSet struct {
	next int // the id of the next instance
	// changed is when the model changed last: an instance has the latest one if it was made from
	// it since, whatever the model was before (recorded: test_vmss_update#27).
	changed time.Time
	// repairs is the state that automatic repairs were set to; "" is Running.
	repairs armcompute.OrchestrationServiceState
	// deletions are the operations that delete members by their ids.
	deletions []*operation
}

func setOf(e *entry) (*scaleSet, *armcompute.VirtualMachineScaleSet) {
	x, _ := e.extra.(*scaleSet)
	if x == nil {
		x = &scaleSet{}
		e.extra = x
	}
	body, _ := e.body.(*armcompute.VirtualMachineScaleSet)
	return x, body
}

// instancesOf lists a scale set's instances in the order of their creation.
func (s *Server) instancesOf(set *entry) []*entry {
	if isFlexible(set) {
		return s.membersOf(set)
	}
	return s.children(set.id, "virtualMachines")
}

func putScaleSet(c *call) (*reply, error) {
	tree, err := c.tree()
	if err != nil {
		return nil, err
	}
	if err := c.checkLinked(tree); err != nil {
		return nil, err
	}
	if e := c.s.find(c.id); e != nil {
		old, err := toTree(e.body)
		if err != nil {
			return nil, err
		}
		tree = overlayPut(old, tree)
	}
	return write(c, tree, scaleSetHooks())
}

func patchScaleSet(c *call) (*reply, error) {
	tree, err := c.tree()
	if err != nil {
		return nil, err
	}
	if c.s.find(c.id) != nil {
		if err := c.checkLinked(tree); err != nil {
			return nil, err
		}
	}
	return patch(c, scaleSetHooks())
}

func scaleSetHooks() hooks[armcompute.VirtualMachineScaleSet] {
	return hooks[armcompute.VirtualMachineScaleSet]{check: checkScaleSet, work: scaleSetWork}
}

// scaleSetWork carries out what a new model asks for: the instances that the
// capacity wants, and with upgrade policy Automatic the new model everywhere.
func scaleSetWork(c *call, e *entry, old, next *armcompute.VirtualMachineScaleSet) work {
	s := c.s
	x, _ := setOf(e)
	was, changed := x.changed, old != nil && modelKey(old) != modelKey(next)
	if changed {
		x.changed = c.now
	}
	s.supersedeDeletions(x)
	asked := capacityOf(next)
	name := "scaleset.update"
	if old == nil {
		name = "scaleset.create"
	}
	span := c.duration(name)
	if old != nil && isFlexible(e) && capacityOf(old) == asked {
		span = 0 // it only writes the model (recorded: test_vmss_update_vm_sku#15)
	}
	return work{
		span: span, yields: true,
		run: func(ctx context.Context) error {
			if err := s.reconcile(ctx, e); err != nil {
				return err
			}
			if changed {
				return s.upgradeByPolicy(ctx, e)
			}
			return nil
		},
		done: func(failure *armError) {
			switch {
			case failure == nil && len(x.deletions) > 0:
				setState(e.body, stateUpdating)
			case failure != nil && old != nil && c.opFault.is(EffectFailAtEnd):
				// What was deleted meanwhile stays so.
				if old.SKU != nil {
					old.SKU.Capacity = ptr(int64(max(0, capacityOf(old)-asked+capacityOf(next))))
				}
				s.stampEtag(old, e.key)
				e.body, x.changed = old, was
				setState(old, stateFailed)
			}
		},
		output: func() any { return showScaleSet(next, false) },
	}
}

func removeScaleSet(c *call) (*reply, error) {
	return c.remove(nil, func(e *entry) work {
		s := c.s
		x, _ := setOf(e)
		s.supersedeDeletions(x)
		list := s.instancesOf(e)
		s.doom(list...)
		return work{span: c.duration("scaleset.delete"), run: func(ctx context.Context) error {
			return each(list, func(i *entry) error { return s.destroyInstance(ctx, i) })
		}, done: func(*armError) {
			maps.DeleteFunc(s.scaleSets.events, func(k string, _ *eventBoard) bool { return strings.HasPrefix(k, boardPrefix(e)) })
		}}
	})
}

// renderScaleSet hides what Azure never reads back.
func renderScaleSet(c *call, e *entry) any {
	_, body := setOf(e)
	return showScaleSet(body, c.expandsUserData(e))
}

func emptyList(c *call) (*reply, error) {
	if _, err := c.need(); err != nil {
		return nil, err
	}
	return c.pageOf(nil), nil
}

// scaleSetSKUs lists the sizes that a scale set can change to.
func scaleSetSKUs(c *call) (*reply, error) {
	e, err := c.need()
	if err != nil {
		return nil, err
	}
	limit := maxCapacity
	if _, body := setOf(e); val(body.Properties.SinglePlacementGroup) {
		limit = groupSize
	}
	var items []any
	for _, z := range vmSizes() {
		tier, _, _ := strings.Cut(z.name, "_")
		items = append(items, map[string]any{
			"resourceType": setType,
			"sku":          map[string]any{"name": z.name, "tier": tier},
			"capacity":     map[string]any{"minimum": 0, "maximum": limit, "defaultCapacity": 1, "scaleType": "Automatic"},
		})
	}
	return c.pageOf(items), nil
}

// scaleSetInstanceView counts the states of a scale set's instances.
func scaleSetInstanceView(c *call) (*reply, error) {
	e, err := c.need()
	if err != nil {
		return nil, err
	}
	_, body := setOf(e)
	var order []string
	count := map[string]int{}
	add := func(code string) {
		if count[code] == 0 {
			order = append(order, code)
		}
		count[code]++
	}
	extOrder := []string{}
	extCount := map[string]map[string]int{}
	for _, ie := range c.s.instancesOf(e) {
		x, vm := instanceOf(ie)
		add("ProvisioningState/" + strings.ToLower(stateOf(vm)))
		for _, ext := range x.extensions {
			name := val(ext.Name)
			if extCount[name] == nil {
				extCount[name] = map[string]int{}
				extOrder = append(extOrder, name)
			}
			extCount[name]["ProvisioningState/"+strings.ToLower(val(ext.Properties.ProvisioningState))]++
		}
	}
	summary := []any{}
	for _, code := range order {
		summary = append(summary, map[string]any{"code": code, "count": count[code]})
	}
	exts := []any{}
	for _, name := range extOrder {
		codes := []any{}
		for _, code := range sortedKeys(extCount[name]) {
			codes = append(codes, map[string]any{"code": code, "count": extCount[name][code]})
		}
		exts = append(exts, map[string]any{"name": name, "statusesSummary": codes})
	}
	view := map[string]any{
		"virtualMachine": map[string]any{"statusesSummary": summary},
		"statuses":       []any{provisioningStatus(stateOf(body), nil, c.now)},
	}
	if len(exts) > 0 {
		view["extensions"] = exts
	}
	if p := body.Properties.AutomaticRepairsPolicy; p != nil && val(p.Enabled) {
		x, _ := setOf(e)
		view["orchestrationServices"] = []any{map[string]any{"serviceName": armcompute.OrchestrationServiceNamesAutomaticRepairs,
			"serviceState": cmp.Or(x.repairs, armcompute.OrchestrationServiceStateRunning)}}
	}
	return ok(view), nil
}

// setOrchestrationService suspends or resumes automatic repairs, of which azsim keeps the
// state alone. The refusals are inferred.
func setOrchestrationService(c *call) (*reply, error) {
	e, err := c.need()
	if err != nil {
		return nil, err
	}
	in, err := decode[armcompute.OrchestrationServiceStateInput](c)
	if err != nil {
		return nil, err
	}
	canon(in.ServiceName, armcompute.PossibleOrchestrationServiceNamesValues())
	if val(in.ServiceName) != armcompute.OrchestrationServiceNamesAutomaticRepairs {
		return nil, badParameter("serviceName", "azsim knows the orchestration service 'AutomaticRepairs', not '%s'.", val(in.ServiceName))
	}
	states := map[armcompute.OrchestrationServiceStateAction]armcompute.OrchestrationServiceState{
		armcompute.OrchestrationServiceStateActionResume:  armcompute.OrchestrationServiceStateRunning,
		armcompute.OrchestrationServiceStateActionSuspend: armcompute.OrchestrationServiceStateSuspended,
	}
	canon(in.Action, armcompute.PossibleOrchestrationServiceStateActionValues())
	state, known := states[val(in.Action)]
	if !known {
		return nil, badParameter("action", "The value of parameter action is invalid.")
	}
	x, body := setOf(e)
	if p := body.Properties.AutomaticRepairsPolicy; p == nil || !val(p.Enabled) {
		return nil, conflict("Automatic repairs are not enabled on Virtual Machine Scale Set '%s'.", e.id.name())
	}
	return accepted(c.begin(nil, work{span: c.duration("scaleset.update"), done: func(*armError) { x.repairs = state }})), nil
}

// upgradeExtensions is the rolling upgrade to the newest versions of extensions, of which
// azsim knows none but those that instances have.
func upgradeExtensions(c *call) (*reply, error) {
	if _, err := c.need(); err != nil {
		return nil, err
	}
	return accepted(c.begin(nil, work{span: c.duration("scaleset.update")})), nil
}

// checkLinked checks the permissions on what a request's body names, as Resource
// Manager does before a provider sees the request.
func (c *call) checkLinked(tree map[string]any) error {
	var refused error
	need := func(action, id string) {
		on, err := parseID(id)
		if err != nil || refused != nil {
			return // the provider says what is wrong with the id
		}
		refused = c.authorizeLinked(action, on)
	}
	if ids, ok := at(tree, "identity", "userAssignedIdentities").(map[string]any); ok {
		for _, id := range sortedKeys(ids) {
			if ids[id] != nil {
				need("Microsoft.ManagedIdentity/userAssignedIdentities/assign/action", id)
			}
		}
	}
	profile, isSet := at(tree, "properties", "virtualMachineProfile").(map[string]any)
	if !isSet { // a virtual machine
		profile, _ = tree["properties"].(map[string]any)
	}
	if id, ok := at(profile, "storageProfile", "imageReference", "id").(string); ok {
		lower := strings.ToLower(id)
		switch {
		case strings.Contains(lower, "/galleries/") && strings.Contains(lower, "/versions/"):
			need("Microsoft.Compute/galleries/images/versions/read", id)
		case strings.Contains(lower, "/galleries/"):
			need("Microsoft.Compute/galleries/images/read", id)
		default:
			need("Microsoft.Compute/images/read", id)
		}
	}
	walk(at(profile, "networkProfile"), func(key string, v any) {
		id, ok := v.(string)
		if !ok || !strings.EqualFold(key, "id") {
			return
		}
		lower := strings.ToLower(id)
		switch {
		case strings.Contains(lower, "/subnets/"):
			need("Microsoft.Network/virtualNetworks/subnets/join/action", id)
		case strings.Contains(lower, "/networkinterfaces/"):
			need("Microsoft.Network/networkInterfaces/join/action", id)
		case strings.Contains(lower, "/networksecuritygroups/"):
			need("Microsoft.Network/networkSecurityGroups/join/action", id)
		case strings.Contains(lower, "/applicationsecuritygroups/"):
			need("Microsoft.Network/applicationSecurityGroups/joinIpConfiguration/action", id)
		case strings.Contains(lower, "/publicipprefixes/"):
			need("Microsoft.Network/publicIPPrefixes/join/action", id)
		case strings.Contains(lower, "/backendaddresspools/") && strings.Contains(lower, "/loadbalancers/"):
			need("Microsoft.Network/loadBalancers/backendAddressPools/join/action", id)
		}
	})
	return refused
}
