package azsim

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

const keysID = "/subscriptions/" + DefaultSubscription + "/resourceGroups/" + DefaultResourceGroup + "/providers/Microsoft.Compute/diskEncryptionSets/"

// A set is of one region and has a key; disks, snapshots and regions of versions name one that is
// there, which stays in a version.
func TestDiskEncryptionSet(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		const sets, version = "Microsoft.Compute/diskEncryptionSets/", "2024-03-02"
		set := func(where, kind string) string {
			return fmt.Sprintf(`{"location":%q,"identity":{"type":"SystemAssigned"},"properties":{"encryptionType":%q,"activeKey":{"keyUrl":"https://v.vault.azure.net/keys/k/1"}}}`, where, kind)
		}
		b.refused("InvalidParameter", "PUT", sets+"k", version, `{"location":"westeurope","properties":{}}`)
		b.refused("InvalidParameter", "PUT", sets+"k", version, set("westeurope", "EncryptionAtRestWithPlatformKey"))
		b.made("PUT", sets+"k", version, set("westeurope", ""))
		b.made("PUT", sets+"far", version, set("northeurope", "EncryptionAtRestWithPlatformAndCustomerKeys"))
		if out := b.get(sets+"k", version); text(out, "properties", "encryptionType") != "EncryptionAtRestWithCustomerKey" || text(out, "identity", "principalId") == "" {
			t.Errorf("the set is %v", out)
		}
		b.refused("PropertyChangeNotAllowed", "PUT", sets+"k", version, set("westeurope", "EncryptionAtRestWithPlatformAndCustomerKeys"))

		disk := func(id, kind string) string {
			return fmt.Sprintf(`{"location":"westeurope","properties":{"diskSizeGB":4,"creationData":{"createOption":"Empty"},"encryption":{"diskEncryptionSetId":%q%s}}}`, id, kind)
		}
		const disks = "Microsoft.Compute/disks/"
		b.refused("ResourceNotFound", "PUT", disks+"d", version, disk(keysID+"none", ""))
		b.refused("InvalidParameter", "PUT", disks+"d", version, disk(keysID+"far", ""))
		b.refused("InvalidParameter", "PUT", disks+"d", version, disk("keys", ""))
		b.refused("InvalidParameter", "PUT", disks+"d", version, disk(keysID+"k", `,"type":"EncryptionAtRestWithPlatformKey"`))
		b.made("PUT", disks+"d", version, disk(keysID+"k", ""))
		if out := b.get(disks+"d", version); text(out, "properties", "encryption", "type") != "EncryptionAtRestWithCustomerKey" {
			t.Errorf("the disk is %v", out)
		}

		b.image()
		source := b.snapshot("s", *b.disk("plain", 4).ID)
		v := versionOf(*source.ID, "westeurope")
		body := func(region string) string {
			var tree object
			data, _ := json.Marshal(v)
			_ = json.Unmarshal(data, &tree)
			profile := tree["properties"].(object)["publishingProfile"].(object)
			profile["targetRegions"] = []any{object{"name": "westeurope", "encryption": object{"osDiskImage": object{"diskEncryptionSetId": keysID + region}}}}
			if region == "" {
				profile["targetRegions"] = []any{object{"name": "westeurope"}}
			}
			data, _ = json.Marshal(tree)
			return string(data)
		}
		const versions, gallery = "Microsoft.Compute/galleries/g/images/i/versions/1.0.0", "2024-03-03"
		b.refused("InvalidParameter", "PUT", versions, gallery, body("far"))
		b.made("PUT", versions, gallery, body("k"))
		time.Sleep(2 * time.Hour) // until it is complete
		b.refused("PropertyChangeNotAllowed", "PUT", versions, gallery, body(""))
		b.made("PATCH", versions, gallery, `{"tags":{"a":"b"}}`)
		if out := b.get(versions, gallery); !strings.Contains(fmt.Sprint(out), keysID+"k") {
			t.Errorf("the version is %v", out)
		}
	})
}

// A policy denies what has no set, with the answer of Azure Policy; what has one is made.
func TestRequireOwnKeys(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		const version = "2024-03-02"
		b.made("PUT", "Microsoft.Compute/diskEncryptionSets/k", version, `{"location":"westeurope","properties":{"activeKey":{"keyUrl":"https://v.vault.azure.net/keys/k/1"}}}`)
		b.s.RequireOwnKeys(true)
		const plain = `{"location":"westeurope","properties":{"diskSizeGB":4,"creationData":{"createOption":"Empty"}}}`
		status, out := b.call("PUT", "Microsoft.Compute/disks/d", version, plain)
		refusal, _ := out["error"].(object)
		info, _ := refusal["additionalInfo"].([]any)
		if status != 403 || refusal["code"] != "RequestDisallowedByPolicy" || refusal["target"] != "d" || len(info) != 1 || text(info[0], "type") != "PolicyViolation" ||
			text(info[0], "info", "policyDefinitionEffect") != "Deny" || !strings.HasPrefix(text(refusal, "message"), `Resource 'd' was disallowed by policy. Policy identifiers: '[{"policyAssignment":{"name":`) {
			t.Errorf("%d %v", status, out)
		}
		b.refused("RequestDisallowedByPolicy", "PUT", "Microsoft.Compute/snapshots/s", version, plain)
		set, _ := json.Marshal(pool(0))
		b.refused("RequestDisallowedByPolicy", "PUT", "Microsoft.Compute/virtualMachineScaleSets/p", "2024-07-01", string(set))
		b.made("PUT", "Microsoft.Compute/disks/d", version, strings.Replace(plain, `"properties":{`, `"properties":{"encryption":{"diskEncryptionSetId":"`+keysID+`k"},`, 1))
		b.s.RequireOwnKeys(false)
		b.made("PUT", "Microsoft.Compute/disks/e", version, plain)
	})
}
