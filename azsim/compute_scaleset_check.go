package azsim

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// maxCapacity is how many instances a Uniform scale set of gallery or platform
// images may have; with a single placement group it is 100.
const maxCapacity = 1000

// checkScaleSet refuses what Azure refuses and fills in what Azure fills in.
func checkScaleSet(c *call, old, next *armcompute.VirtualMachineScaleSet) error {
	if next.Properties == nil {
		return badRequest("BadRequest", "Required parameter 'properties' is missing (null).")
	}
	p := next.Properties
	p.OrchestrationMode = orDefault(p.OrchestrationMode, armcompute.OrchestrationModeUniform)
	if !slices.Contains(armcompute.PossibleOrchestrationModeValues(), *p.OrchestrationMode) {
		return badParameter("orchestrationMode", "The value of parameter orchestrationMode is invalid.")
	}
	if hasNoProfile(next) {
		return c.checkWithoutProfile(old, next)
	}
	if next.SKU == nil || val(next.SKU.Name) == "" {
		return badParameter("sku.name", "Required parameter 'sku.name' is missing (null).")
	}
	if p.VirtualMachineProfile == nil {
		return badParameter("virtualMachineProfile", "Required parameter 'virtualMachineProfile' is missing (null).")
	}
	if old != nil {
		carrySecrets(old, next)
		if err := checkUnchanged(old, next); err != nil {
			return err
		}
	}
	for _, check := range []func(*call, *armcompute.VirtualMachineScaleSet) error{
		checkFlexible, checkMix, checkCapacity, checkZones, checkUpgradePolicy, checkOSProfile, checkSetUserData, checkExtensions, checkTerminate, checkNetworkExists, checkSetPlacement,
	} {
		if err := check(c, next); err != nil {
			return err
		}
	}
	if keys := setKeysOf(next); keys != "" && !strings.EqualFold(keys, setKeysOf(old)) {
		if _, err := c.checkKeys(keys, val(next.Location), "osDisk.managedDisk.diskEncryptionSet"); err != nil {
			return err
		}
	}
	if err := c.checkRecipe(old, next); err != nil {
		return err
	}
	missing := capacityOf(next)
	if old != nil {
		if set := c.s.findID(val(old.ID)); set != nil {
			living, _ := c.s.livingOf(set)
			missing -= len(living)
		}
	}
	if err := c.checkQuota(val(next.Location), newVCPUs(missing, next)); err != nil {
		return err
	}
	return c.fillScaleSet(old, next)
}

// checkUnchanged refuses changes of what is fixed at creation.
func checkUnchanged(old, next *armcompute.VirtualMachineScaleSet) error {
	fixed := func(name string, same bool) error {
		if same {
			return nil
		}
		e := refuse(http.StatusConflict, "PropertyChangeNotAllowed", "Changing property '%s' is not allowed.", name)
		e.target = name
		return e
	}
	if err := fixed("orchestrationMode", val(old.Properties.OrchestrationMode) == val(next.Properties.OrchestrationMode)); err != nil {
		return err
	}
	wasZones, nowZones := zonesOf(old.Zones), zonesOf(next.Zones)
	for _, z := range wasZones { // zones may be added, not taken
		if !slices.Contains(nowZones, z) {
			return fixed("zones", false)
		}
	}
	if len(wasZones) == 0 && len(nowZones) > 0 {
		return fixed("zones", false)
	}
	was, now := profileOf(old), profileOf(next)
	if err := fixed("priority", val(was.Priority) == val(now.Priority)); err != nil {
		return err
	}
	// "Managed OS disk storage account type" is among the properties that are taken at
	// creation only ("Modify an Azure Virtual Machine Scale Set").
	if before, after := osDiskTypeOf(was), osDiskTypeOf(now); before != "" && after != "" {
		if err := fixed("osDisk.managedDisk.storageAccountType", before == after); err != nil {
			return err
		}
	}
	if was.OSProfile != nil && now.OSProfile != nil {
		if err := fixed("osProfile.computerNamePrefix", val(was.OSProfile.ComputerNamePrefix) == val(now.OSProfile.ComputerNamePrefix)); err != nil {
			return err
		}
		if err := fixed("osProfile.adminUsername", val(was.OSProfile.AdminUsername) == val(now.OSProfile.AdminUsername)); err != nil {
			return err
		}
	}
	if val(old.Properties.SinglePlacementGroup) != val(next.Properties.SinglePlacementGroup) && val(next.Properties.SinglePlacementGroup) {
		return fixed("singlePlacementGroup", false)
	}
	return nil
}

func osDiskTypeOf(p *armcompute.VirtualMachineScaleSetVMProfile) armcompute.StorageAccountTypes {
	if p.StorageProfile == nil || p.StorageProfile.OSDisk == nil || p.StorageProfile.OSDisk.ManagedDisk == nil {
		return ""
	}
	return val(p.StorageProfile.OSDisk.ManagedDisk.StorageAccountType)
}

func checkCapacity(_ *call, next *armcompute.VirtualMachineScaleSet) error {
	next.SKU.Capacity = cmp.Or(next.SKU.Capacity, ptr(int64(0)))
	n := *next.SKU.Capacity
	if n < 0 {
		return badParameter("sku.capacity", "The value of parameter sku.capacity is invalid.")
	}
	limit := int64(maxCapacity)
	if next.Properties.SinglePlacementGroup == nil {
		next.Properties.SinglePlacementGroup = ptr(len(next.Zones) == 0 && n <= 100)
	}
	if *next.Properties.SinglePlacementGroup {
		limit = 100
	}
	if n > limit {
		return conflict("The requested capacity %d exceeds the maximum of %d instances of scale set '%s' (singlePlacementGroup is %t).",
			n, limit, val(next.Name), *next.Properties.SinglePlacementGroup)
	}
	if next.SKU.Tier == nil && !isMix(next) {
		next.SKU.Tier = ptr("Standard")
	}
	return nil
}

func checkZones(c *call, next *armcompute.VirtualMachineScaleSet) error {
	if len(next.Zones) == 0 {
		return nil
	}
	l, _ := c.s.location(val(next.Location))
	for _, z := range zonesOf(next.Zones) {
		if !slices.Contains(l.Zones, z) {
			return badRequest("InvalidAvailabilityZone",
				"The zone(s) '%s' for resource 'Microsoft.Compute/virtualMachineScaleSets/%s' is not supported. The supported zones for location '%s' are '%s'",
				z, val(next.Name), l.Name, strings.Join(l.Zones, ","))
		}
	}
	return nil
}

// checkNetworkExists refuses a subnet that its virtual network, if that is stored, does
// not have, and a part of a load balancer that is not there.
func checkNetworkExists(c *call, next *armcompute.VirtualMachineScaleSet) error {
	tree, err := toTree(profileOf(next).NetworkProfile)
	if err != nil {
		return err
	}
	var refused error
	walk(tree, func(key string, v any) {
		id, err := parseID(fmt.Sprint(v))
		if refused != nil || err != nil || key != "id" {
			return
		}
		inNetwork := strings.EqualFold(id.typeName(), subnetType) && c.s.find(id.parent()) != nil
		ofBalancer := strings.HasPrefix(strings.ToLower(id.typeName()), strings.ToLower(balancerType)+"/")
		if (inNetwork || ofBalancer) && c.s.find(id) == nil && c.s.balancerChild(id) == nil {
			refused = missingReference(id.String(), c.id) // checkLinked has asked for the permission
		}
	})
	return refused
}

func checkSetPlacement(c *call, next *armcompute.VirtualMachineScaleSet) error {
	return c.checkPlacementGroup(next)
}

// checkTerminate settles terminate notifications: 5 to 15 minutes, and not on Spot
// (documentation of terminate notifications; the messages are inferred).
func checkTerminate(_ *call, next *armcompute.VirtualMachineScaleSet) error {
	p := profileOf(next)
	if p.ScheduledEventsProfile == nil {
		return nil
	}
	t := p.ScheduledEventsProfile.TerminateNotificationProfile
	if t == nil || !val(t.Enable) {
		return nil
	}
	if isSpot(p) {
		return badRequest("BadRequest", "Terminate notifications cannot be enabled on Spot virtual machines.")
	}
	t.NotBeforeTimeout = orDefault(t.NotBeforeTimeout, "PT5M")
	if d := isoSeconds(*t.NotBeforeTimeout); d < 5*time.Minute || d > 15*time.Minute {
		return badParameter("scheduledEventsProfile.terminateNotificationProfile.notBeforeTimeout",
			"The value '%s' of parameter notBeforeTimeout is invalid: it must be between PT5M and PT15M.", *t.NotBeforeTimeout)
	}
	return nil
}

func checkUpgradePolicy(_ *call, next *armcompute.VirtualMachineScaleSet) error {
	p := next.Properties
	if p.UpgradePolicy == nil || p.UpgradePolicy.Mode == nil {
		return badParameter("upgradePolicy.mode", "Required parameter 'upgradePolicy.mode' is missing (null).")
	}
	u := p.UpgradePolicy
	if !canon(u.Mode, armcompute.PossibleUpgradeModeValues()) {
		return badParameter("upgradePolicy.mode", "The value of parameter upgradePolicy.mode is invalid.")
	}
	automaticOS := u.AutomaticOSUpgradePolicy != nil && val(u.AutomaticOSUpgradePolicy.EnableAutomaticOSUpgrade)
	if (automaticOS || *u.Mode == armcompute.UpgradeModeRolling) && !hasHealthSignal(profileOf(next)) {
		what := "Rolling Upgrade mode"
		if automaticOS {
			what = "Automatic OS Upgrade"
		}
		return badRequest("BadRequest", "%s is not supported for this Virtual Machine Scale Set because a health probe or health extension was not specified.", what)
	}
	if u.RollingUpgradePolicy == nil && *u.Mode == armcompute.UpgradeModeRolling {
		u.RollingUpgradePolicy = &armcompute.RollingUpgradePolicy{}
	}
	return nil
}

// hasHealthSignal tells whether the platform can learn of an instance's health.
func hasHealthSignal(p *armcompute.VirtualMachineScaleSetVMProfile) bool {
	if p.NetworkProfile != nil && p.NetworkProfile.HealthProbe != nil {
		return true
	}
	for _, x := range extensionsOf(p) {
		if x.Properties != nil && strings.HasPrefix(val(x.Properties.Type), "ApplicationHealth") {
			return true
		}
	}
	return false
}

func checkOSProfile(_ *call, next *armcompute.VirtualMachineScaleSet) error {
	o := profileOf(next).OSProfile
	if o == nil {
		return nil // right for a specialized image only; see checkBootImage
	}
	if prefix := val(o.ComputerNamePrefix); prefix == "" {
		o.ComputerNamePrefix = ptr(strings.ToLower(val(next.Name)))
	} else if len(prefix) > 58 {
		return badParameter("computerNamePrefix", "Computer name prefix '%s' is too long. The maximum length is 58 characters for Linux.", prefix)
	}
	if err := checkCustomData(o.CustomData); err != nil {
		return err
	}
	if val(o.AdminUsername) == "" {
		return badParameter("adminUsername", "Required parameter 'adminUsername' is missing (null).")
	}
	if o.AdminPassword == nil && (o.LinuxConfiguration == nil || o.LinuxConfiguration.SSH == nil || len(o.LinuxConfiguration.SSH.PublicKeys) == 0) {
		return badParameter("linuxConfiguration.ssh.publicKeys", "Authentication using either SSH or by user name and password must be enabled in Linux profile.")
	}
	return nil
}

func checkCustomData(data *string) error {
	if _, err := base64.StdEncoding.DecodeString(val(data)); err != nil || len(val(data)) > 87380 {
		return badParameter("customData", "Custom data in OSProfile must be in Base64 encoding and with a maximum length of 87380 characters.")
	}
	return nil
}

// checkExtensions refuses an extension list that cannot be provisioned.
func checkExtensions(_ *call, next *armcompute.VirtualMachineScaleSet) error {
	p := profileOf(next)
	seen := map[string]bool{}
	for _, x := range extensionsOf(p) {
		name := val(x.Name)
		if name == "" || x.Properties == nil {
			return badParameter("extension.name", "Required parameter 'extension.name' is missing (null).")
		}
		for _, m := range []struct {
			name string
			v    *string
		}{{"publisher", x.Properties.Publisher}, {"type", x.Properties.Type}, {"typeHandlerVersion", x.Properties.TypeHandlerVersion}} {
			if val(m.v) == "" {
				return badParameter("extension."+m.name, "Required parameter 'extension.%s' is missing (null).", m.name)
			}
		}
		if seen[strings.ToLower(name)] {
			return badParameter("extensions", "Extension name '%s' is used more than once.", name)
		}
		seen[strings.ToLower(name)] = true
		x.Properties.ProvisioningState = nil
		x.ID = nil // shown of the extension alone
	}
	_, missing, cycle := extensionOrder(extensionNeeds(p))
	for _, name := range sortedKeys(missing) {
		return missingDependency(val(next.Name), name, missing[name])
	}
	if len(cycle) > 0 {
		return badRequest("BadRequest", "The provisionAfterExtensions properties of the extensions '%s' form a cycle.", strings.Join(cycle, "', '"))
	}
	return nil
}

// missingDependency is what Azure says of an extension that is not there, or
// would be no more (WALinuxAgent, pull request 2933).
func missingDependency(set, name, gone string) *armError {
	return badRequest("BadRequest",
		"On resource '%s', extension '%s' specifies '%s' in its provisionAfterExtensions property, but the extension '%s' will no longer exist. First, remove the extension '%s' or remove '%s' from the provisionAfterExtensions property of '%s'.",
		set, name, gone, gone, name, gone, name)
}

// fillScaleSet sets what Azure decides.
func (c *call) fillScaleSet(old, next *armcompute.VirtualMachineScaleSet) error {
	p := next.Properties
	c.fillUniqueID(old, next)
	fillPolicies(p, next.Zones)
	c.fillProfile(next)
	v := p.VirtualMachineProfile
	if v.Priority != nil && isSpot(v) {
		v.EvictionPolicy = orDefault(v.EvictionPolicy, armcompute.VirtualMachineEvictionPolicyTypesDeallocate)
	}
	c.fillFlexible(old, next)
	return c.fillIdentity(old, next)
}

func (c *call) fillUniqueID(old, next *armcompute.VirtualMachineScaleSet) {
	p := next.Properties
	p.UniqueID = nil
	if old != nil {
		p.UniqueID = old.Properties.UniqueID
	}
	if p.UniqueID == nil {
		p.UniqueID = ptr(c.s.newUUID("scale set", c.id.key()))
	}
}

// fillIdentity makes the principal of a system-assigned identity, and names
// those of user-assigned ones.
func (c *call) fillIdentity(old, next *armcompute.VirtualMachineScaleSet) error {
	id := next.Identity
	if id == nil || val(id.Type) == armcompute.ResourceIdentityTypeNone {
		return nil
	}
	kind := string(val(id.Type))
	id.PrincipalID, id.TenantID = nil, nil
	if strings.Contains(kind, "SystemAssigned") {
		id.TenantID = ptr(c.s.Tenant)
		if old != nil && old.Identity != nil && old.Identity.PrincipalID != nil {
			id.PrincipalID = old.Identity.PrincipalID
		} else {
			sp := &principal{Principal: Principal{Name: val(next.Name), ClientID: c.s.newUUID("client", c.id.key()), ObjectID: c.s.newUUID("object", c.id.key())}}
			c.s.principals = append(c.s.principals, sp)
			id.PrincipalID = ptr(sp.ObjectID)
		}
	}
	for _, rid := range sortedKeys(id.UserAssignedIdentities) {
		v := id.UserAssignedIdentities[rid]
		p := c.s.identityAt(rid)
		if p == nil {
			return badRequest("FailedIdentityOperation",
				"Identity operation for resource '%s' failed with error 'Failed to perform resource identity operation. Status: 'BadRequest'. Response: '{\"error\":{\"code\":\"BadRequest\",\"message\":\"Resource '%s' was not found.\"}}'.'.",
				val(next.ID), rid)
		}
		if v == nil {
			v = &armcompute.UserAssignedIdentitiesValue{}
			id.UserAssignedIdentities[rid] = v
		}
		v.ClientID, v.PrincipalID = ptr(p.ClientID), ptr(p.ObjectID)
	}
	return nil
}

// orDefault gives an optional member a value where it has none.
func orDefault[T any](p *T, v T) *T {
	if p == nil {
		return &v
	}
	return p
}
