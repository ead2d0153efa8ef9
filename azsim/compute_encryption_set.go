package azsim

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

const encryptionSetType = "Microsoft.Compute/diskEncryptionSets"

// encryptionSetResourceType is stored: azsim has no vaults, so that no key is read. Azure shows a
// key that it cannot use as autoKeyRotationError, where the set follows the key's versions.
func encryptionSetResourceType() *resourceType {
	return withoutMembers(storedType(encryptionSetType, diskVersions(), &storedRules{
		tracked: true, derived: []string{"previousKeys", "lastKeyRotationTimestamp", "autoKeyRotationError"},
		check: func(c *call, d *draft) error {
			p := d.properties()
			if text(p, "activeKey", "keyUrl") == "" {
				return badParameter("diskEncryptionSet.activeKey.keyUrl", "Required parameter 'diskEncryptionSet.activeKey.keyUrl' is missing (null).")
			}
			kind := cmp.Or(armcompute.DiskEncryptionSetType(text(p, "encryptionType")),
				armcompute.DiskEncryptionSetTypeEncryptionAtRestWithCustomerKey)
			if !canon(&kind, armcompute.PossibleDiskEncryptionSetTypeValues()) {
				return badParameter("diskEncryptionSet.encryptionType", "The value '%s' of parameter 'diskEncryptionSet.encryptionType' is not allowed. Allowed values are: %v.",
					kind, armcompute.PossibleDiskEncryptionSetTypeValues())
			}
			if was := text(d.old, "properties", "encryptionType"); was != "" && was != string(kind) {
				return notChangeable("diskEncryptionSet.encryptionType")
			}
			p["encryptionType"] = string(kind)
			return c.checkIdentity(d)
		},
		show: func(s *Server, _ *entry, out object) { s.showIdentity(out) },
	}), http.StatusOK) // as the SDK wants it of a new one
}

// checkKeys refuses a disk encryption set that a resource of that region cannot have, and returns
// its type. Codes and texts but that of a key which cannot be used are inferred.
func (c *call) checkKeys(id, location, target string) (string, error) {
	parsed, err := parseID(id)
	if err != nil || !strings.EqualFold(parsed.typeName(), encryptionSetType) {
		return "", badParameter(target, "The value '%s' of parameter '%s' is not the id of a disk encryption set.", id, target)
	}
	if err := c.authorizeLinked(encryptionSetType+"/read", parsed); err != nil {
		return "", err
	}
	e := c.s.find(parsed)
	if e == nil {
		return "", notFound(parsed)
	}
	p, _ := e.body.(object)["properties"].(object)
	if there := c.s.locationOf(e); there != normLocation(location) || !strings.EqualFold(parsed.subscription, c.id.subscription) {
		return "", badParameter(target, "The disk encryption set '%s' is in location '%s': it must be in the subscription and location of the resource, '%s'.", parsed.String(), there, location)
	}
	if p["autoKeyRotationError"] != nil {
		return "", badRequest("KeyVaultAccessForbidden", "Unable to access key vault resource '%s' to enable encryption at rest. Please grant get, wrap and unwrap key permissions to "+
			"disk encryption set '%s'. Please visit https://aka.ms/keyvaultaccessssecmk for more information.", text(p, "activeKey", "keyUrl"), e.id.name())
	}
	return text(p, "encryptionType"), nil
}

// checkEncryption checks the set of a disk or snapshot, unless it was there before, and fills in
// the type.
func (c *call) checkEncryption(was, next *armcompute.Encryption, location, at string) error {
	if next == nil || val(next.DiskEncryptionSetID) == "" || was != nil && strings.EqualFold(val(was.DiskEncryptionSetID), *next.DiskEncryptionSetID) {
		return nil
	}
	kind, err := c.checkKeys(*next.DiskEncryptionSetID, location, at+".encryption.diskEncryptionSetId")
	if err != nil {
		return err
	}
	if next.Type != nil && !strings.EqualFold(string(*next.Type), kind) {
		return badParameter(at+".encryption.type", "The value '%s' of parameter '%s.encryption.type' is not that of the disk encryption set, '%s'.", *next.Type, at, kind)
	}
	next.Type = ptr(armcompute.EncryptionType(kind))
	return nil
}

// setKeysOf is the disk encryption set of a scale set's OS disks, "" for the platform's key.
func setKeysOf(set *armcompute.VirtualMachineScaleSet) string {
	if set == nil {
		return ""
	}
	p := profileOf(set).StorageProfile
	if p == nil || p.OSDisk == nil || p.OSDisk.ManagedDisk == nil || p.OSDisk.ManagedDisk.DiskEncryptionSet == nil {
		return ""
	}
	return val(p.OSDisk.ManagedDisk.DiskEncryptionSet.ID)
}

// regionKeysOf is the disk encryption set of an image version's OS disk in a region.
func regionKeysOf(r *armcompute.TargetRegion) string {
	if r.Encryption == nil || r.Encryption.OSDiskImage == nil {
		return ""
	}
	return val(r.Encryption.OSDiskImage.DiskEncryptionSetID)
}

// checkRegionKeys checks the set of each region of a version, which stays: there is no way back to
// the platform's keys ("Create an encrypted image version with customer-managed keys").
func (c *call) checkRegionKeys(old, next *armcompute.GalleryImageVersion) error {
	const at = versionAt + "publishingProfile.targetRegions.encryption"
	had := map[string]string{}
	if old != nil {
		for _, r := range old.Properties.PublishingProfile.TargetRegions {
			had[normLocation(val(r.Name))] = regionKeysOf(r)
		}
	}
	for _, r := range next.Properties.PublishingProfile.TargetRegions {
		keys, was := regionKeysOf(r), had[normLocation(val(r.Name))]
		switch {
		case was != "" && !strings.EqualFold(keys, was):
			return notChangeable(at)
		case keys != "" && was == "":
			if _, err := c.checkKeys(keys, val(r.Name), at); err != nil {
				return err
			}
		}
	}
	return nil
}

// The built-in policy "OS and data disks should be encrypted with a customer-managed key".
const ownKeysPolicy = "702dd420-7fcc-42c5-afe8-4026edd20fe0"

// RequireOwnKeys denies from now on, or no longer, what has no disk encryption set: disks, image
// versions in each region and scale sets, as Azure's built-in policy of that effect, and also
// snapshots, as many own ones do. What is there stays. It may be called at any time.
func (s *Server) RequireOwnKeys(on bool) {
	s.init()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.OwnKeys = on
}

// policy refuses what a policy denies. Source of the answer's shape: "Use Azure Policy to
// enforce job execution on Hybrid Runbook Worker".
func (c *call) policy(next any) error {
	if !c.s.OwnKeys {
		return nil
	}
	lacks := false
	switch r := next.(type) {
	case *armcompute.Disk:
		lacks = r.Properties == nil || r.Properties.Encryption == nil || r.Properties.Encryption.DiskEncryptionSetID == nil
	case *armcompute.Snapshot:
		lacks = r.Properties == nil || r.Properties.Encryption == nil || r.Properties.Encryption.DiskEncryptionSetID == nil
	case *armcompute.VirtualMachineScaleSet:
		lacks = setKeysOf(r) == ""
	case *armcompute.GalleryImageVersion:
		lacks = r.Properties == nil || r.Properties.PublishingProfile == nil || len(r.Properties.PublishingProfile.TargetRegions) == 0
		if !lacks {
			for _, region := range r.Properties.PublishingProfile.TargetRegions {
				lacks = lacks || regionKeysOf(region) == ""
			}
		}
	}
	if !lacks {
		return nil
	}
	const name = "OS and data disks should be encrypted with a customer-managed key"
	definition, assignment := "/providers/Microsoft.Authorization/policyDefinitions/"+ownKeysPolicy, "/subscriptions/"+c.s.Subscription+"/providers/Microsoft.Authorization/policyAssignments/own-keys"
	e := refuse(http.StatusForbidden, "RequestDisallowedByPolicy", "Resource '%s' was disallowed by policy. Policy identifiers: '%s'.", c.id.name(),
		fmt.Sprintf(`[{"policyAssignment":{"name":%q,"id":%q},"policyDefinition":{"name":%q,"id":%q}}]`, name, assignment, name, definition)).withTarget(c.id.name())
	e.info = []any{object{"type": "PolicyViolation", "info": object{
		"policyDefinitionDisplayName": name, "policyDefinitionId": definition, "policyDefinitionName": ownKeysPolicy, "policyDefinitionEffect": "Deny",
		"policyAssignmentDisplayName": name, "policyAssignmentId": assignment, "policyAssignmentName": "own-keys", "policyAssignmentScope": "/subscriptions/" + c.s.Subscription,
		"evaluationDetails": object{"evaluatedExpressions": []any{object{"result": "True", "expressionKind": "Field", "expression": "type", "path": "type",
			"expressionValue": c.rt.name, "targetValue": c.rt.name, "operator": "Equals"}}}}}}
	return e
}
