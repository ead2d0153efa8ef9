package arm

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/internal/fleet"
)

// createCanary creates a scale set from another one's model, as Azure shows it. What the pinned
// API version does not know it does not show, and no canary gets it.
func (c *Cloud) createCanary(ctx context.Context, ch fleet.CreateCanary) (fleet.Token, error) {
	fail := func(err error) (fleet.Token, error) { return "", failed(ctx, ch.Verb(), ch.ID, err) }
	p, err := c.at(ch.ID, typeScaleSet)
	if err != nil {
		return fail(err)
	}
	have, err := c.Pool(ctx, ch.ID)
	clash := sameSource(have.Model.Image.ID, ch.Image)
	if err == nil && have.Tags[fleet.TagCapture] != ch.Tags[fleet.TagCapture] {
		clash = errors.New("one of that name exists, which this capture did not make")
	}
	return creating(ch, have.ProvisioningState, clash, err, func() (fleet.Token, error) {
		of, err := c.at(ch.Pool, typeScaleSet)
		if err != nil {
			return fail(err)
		}
		var raw tree
		if err := c.get(ctx, c.address(of.id, computeVersion, "$expand", "userData"), &raw); err != nil {
			return fail(err)
		}
		raw.toCanary(ch)
		text, err := json.Marshal(raw)
		var set armcompute.VirtualMachineScaleSet
		if err == nil {
			err = json.Unmarshal(text, &set)
		}
		if err != nil {
			return fail(err)
		}
		op, err := p.NewVirtualMachineScaleSetsClient().BeginCreateOrUpdate(ctx, p.group, p.names[0], set, nil)
		return begun(ctx, ch, op, err)
	})
}

// A tree is an object of JSON.
type tree map[string]any

// in gives the object at a key, which it makes if that is missing.
func (t tree) in(key string) tree {
	v, ok := t[key].(map[string]any)
	if !ok && t != nil {
		v = map[string]any{}
		t[key] = v
	}
	return v
}

// each gives the objects of the array at a key.
func (t tree) each(key string) (all []tree) {
	items, _ := t[key].([]any)
	for _, item := range items {
		if object, ok := item.(map[string]any); ok {
			all = append(all, object)
		}
	}
	return all
}

func (t tree) without(keys ...string) {
	for _, key := range keys {
		delete(t, key)
	}
}

// toCanary turns a scale set as Azure shows it into the body of its canary's PUT. Tags go, since
// autoscalers and Cluster API find their pools by them.
func (t tree) toCanary(ch fleet.CreateCanary) {
	t.without("id", "name", "type", "etag")
	t["tags"] = ch.Tags
	t.in("sku")["capacity"] = ch.Instances
	assigned := t.in("identity").in("userAssignedIdentities")
	for id := range assigned {
		assigned[id] = tree{}
	}
	if t["identity"] = (tree{"type": "UserAssigned", "userAssignedIdentities": assigned}); len(assigned) == 0 {
		delete(t, "identity")
	}
	p := t.in("properties")
	p.without("provisioningState", "uniqueId", "timeCreated", "automaticRepairsPolicy", "scaleInPolicy", "spotRestorePolicy",
		"scheduledEventsPolicy", "doNotRunExtensionsOnOverprovisionedVMs")
	resiliency, _ := p["resiliencyPolicy"].(map[string]any)
	// Azure wants health monitoring with the first. By the second it replaces a machine that does not
	// report by one of another name, before it is judged ("Resilient create and delete").
	tree(resiliency).without("automaticZoneRebalancingPolicy", "resilientVMCreationPolicy")
	p["upgradePolicy"] = tree{"mode": fleet.Manual}
	if mode, _ := p["orchestrationMode"].(string); !strings.EqualFold(mode, fleet.Flexible) { // which has no such property
		p["overprovision"] = false
	}
	vm := p.in("virtualMachineProfile")
	vm.without("timeCreated", "scheduledEventsProfile") // a notice of termination delays each deletion by minutes
	vm.in("storageProfile")["imageReference"] = tree{"id": string(ch.Image)}
	vm.in("networkProfile").without("healthProbe")
	for _, nic := range vm.in("networkProfile").each("networkInterfaceConfigurations") {
		for _, ip := range nic.in("properties").each("ipConfigurations") {
			q := ip.in("properties")
			q.without("loadBalancerInboundNatPools", "applicationGatewayBackendAddressPools")
			public, _ := q["publicIPAddressConfiguration"].(map[string]any)
			tree(public).in("properties").without("dnsSettings") // two scale sets cannot have the same names
		}
	}
	os := vm.in("osProfile")
	os.without("requireGuestProvisionSignal")
	os["computerNamePrefix"] = ch.HostPrefix
	if ch.CustomData != nil {
		os["customData"] = base64.StdEncoding.EncodeToString([]byte(ch.CustomData.Reveal()))
	}
	if off, _ := os.in("linuxConfiguration")["disablePasswordAuthentication"].(bool); !off {
		os["adminPassword"] = "Aa1-" + rand.Text() // Azure requires a password, and it is not kept
	}
	vm.setExtensions(ch)
}

// setExtensions leaves out what the canary does not get, and what an extension that stays waits
// for of that.
func (t tree) setExtensions(ch fleet.CreateCanary) {
	goes := func(name any) bool {
		n, _ := name.(string)
		return slices.ContainsFunc(ch.Without, func(w string) bool { return strings.EqualFold(w, n) })
	}
	kept := []any{}
	for _, e := range t.in("extensionProfile").each("extensions") {
		if goes(e["name"]) {
			continue
		}
		q := e.in("properties")
		e.without("id", "type")
		q.without("provisioningState")
		if after, _ := q["provisionAfterExtensions"].([]any); after != nil {
			q["provisionAfterExtensions"] = slices.DeleteFunc(after, goes)
		}
		name, _ := e["name"].(string)
		if protected, ok := ch.Protected[name]; ok {
			q["protectedSettings"] = json.RawMessage(protected.Reveal())
		}
		kept = append(kept, e)
	}
	if t.in("extensionProfile")["extensions"] = kept; len(kept) == 0 {
		delete(t, "extensionProfile")
	}
}
