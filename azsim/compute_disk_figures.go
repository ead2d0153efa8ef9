package azsim

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// A diskTier is one row of the tables of "Azure managed disk types" in Azure's
// documentation: disks up to that size, and what Premium SSD (as of 2023-03), Standard SSD
// (2023-02) and Standard HDD (2019-03; it begins at 32 GiB) give then. P1 to P4, P15, and
// Standard HDD up to 512 GiB are recorded, too.
type diskTier struct {
	number, sizeGB         int32
	premium, ssd, standard figures
}

type figures struct{ iops, mbps int64 }

var diskTiers = []diskTier{
	{1, 4, figures{120, 25}, figures{500, 60}, figures{500, 60}},
	{2, 8, figures{120, 25}, figures{500, 60}, figures{500, 60}},
	{3, 16, figures{120, 25}, figures{500, 60}, figures{500, 60}},
	{4, 32, figures{120, 25}, figures{500, 60}, figures{500, 60}},
	{6, 64, figures{240, 50}, figures{500, 60}, figures{500, 60}},
	{10, 128, figures{500, 100}, figures{500, 60}, figures{500, 60}},
	{15, 256, figures{1100, 125}, figures{500, 60}, figures{500, 60}},
	{20, 512, figures{2300, 150}, figures{500, 60}, figures{500, 60}},
	{30, 1024, figures{5000, 200}, figures{500, 60}, figures{500, 60}},
	{40, 2048, figures{7500, 250}, figures{500, 60}, figures{500, 60}},
	{50, 4096, figures{7500, 250}, figures{500, 60}, figures{500, 60}},
	{60, 8192, figures{16000, 500}, figures{2000, 400}, figures{1300, 300}},
	{70, 16384, figures{18000, 750}, figures{4000, 600}, figures{2000, 500}},
	{80, 32767, figures{20000, 900}, figures{6000, 750}, figures{2000, 500}},
}

func (t diskTier) name() string { return "P" + strconv.Itoa(int(t.number)) }

// provisioned says whether a disk's performance is chosen by the client, not by its size.
func provisioned(d *armcompute.Disk) bool {
	return *d.SKU.Name == armcompute.DiskStorageAccountTypesUltraSSDLRS || *d.SKU.Name == armcompute.DiskStorageAccountTypesPremiumV2LRS
}

// settleDisk fills in what a disk has of its size and SKU, and the defaults. The figures
// of an Ultra disk without any are recorded (snapshot_ultra_ssd#3); those of Premium SSD
// v2 are documented.
func settleDisk(d *armcompute.Disk) {
	p := d.Properties
	settleBytes(&p.Encryption, &p.NetworkAccessPolicy, &p.PublicNetworkAccess)
	if p.DiskSizeGB != nil && p.DiskSizeBytes == nil {
		p.DiskSizeBytes = ptr(int64(*p.DiskSizeGB) << 30)
	}
	sku := string(*d.SKU.Name)
	if provisioned(d) {
		iops, mbps := int64(100), int64(13)
		if strings.HasPrefix(sku, "PremiumV2") {
			iops, mbps = 3000, 125
		}
		p.Tier, p.MaxShares = nil, cmp.Or(p.MaxShares, ptr(int32(1)))
		p.DiskIOPSReadWrite, p.DiskMBpsReadWrite = cmp.Or(p.DiskIOPSReadWrite, &iops), cmp.Or(p.DiskMBpsReadWrite, &mbps)
		p.DiskIOPSReadOnly, p.DiskMBpsReadOnly = cmp.Or(p.DiskIOPSReadOnly, &iops), cmp.Or(p.DiskMBpsReadOnly, &mbps)
		p.CreationData.LogicalSectorSize = cmp.Or(p.CreationData.LogicalSectorSize, ptr(int32(4096)))
		return
	}
	t := diskTiers[len(diskTiers)-1]
	for i := len(diskTiers) - 1; i >= 0 && val(p.DiskSizeGB) <= diskTiers[i].sizeGB; i-- {
		t = diskTiers[i]
	}
	has, tier := t.standard, (*string)(nil)
	switch {
	case strings.HasPrefix(sku, "Premium"):
		// A tier above the size's is kept ("Performance tiers for managed disks").
		for _, higher := range diskTiers {
			if val(p.Tier) == higher.name() && higher.number > t.number {
				t = higher
				break
			}
		}
		has, tier = t.premium, ptr(t.name())
	case strings.HasPrefix(sku, "StandardSSD"):
		has = t.ssd
	}
	p.Tier, p.DiskIOPSReadWrite, p.DiskMBpsReadWrite = tier, &has.iops, &has.mbps
	p.DiskIOPSReadOnly, p.DiskMBpsReadOnly = nil, nil
}

// settleBytes fills in how a disk's or snapshot's bytes are encrypted and who may read them.
func settleBytes(e **armcompute.Encryption, policy **armcompute.NetworkAccessPolicy, public **armcompute.PublicNetworkAccess) {
	*e = cmp.Or(*e, &armcompute.Encryption{})
	if (*e).Type == nil {
		(*e).Type = ptr(armcompute.EncryptionTypeEncryptionAtRestWithPlatformKey)
		if (*e).DiskEncryptionSetID != nil {
			(*e).Type = ptr(armcompute.EncryptionTypeEncryptionAtRestWithCustomerKey)
		}
	}
	*policy = cmp.Or(*policy, ptr(armcompute.NetworkAccessPolicyAllowAll))
	*public = cmp.Or(*public, ptr(armcompute.PublicNetworkAccessEnabled))
}

// renderDisk shows a disk's state by that of the machine that holds it.
func renderDisk(c *call, e *entry) any {
	shown := *e.body.(*armcompute.Disk)
	p := *shown.Properties
	shown.Properties = &p
	if holder := c.s.findID(val(shown.ManagedBy)); holder != nil {
		p.DiskState = ptr(armcompute.DiskStateAttached)
		if x, _ := instanceOf(holder); x.power == powerDeallocated {
			p.DiskState = ptr(armcompute.DiskStateReserved)
		}
	}
	if !provisioned(&shown) {
		return &shown
	}
	tree, err := toTree(&shown) // the SDK's model has no readOnly
	if err != nil {
		return &shown
	}
	return mergePatch(tree, map[string]any{"properties": map[string]any{"readOnly": false}}, false)
}

// firstDiskAnswer is the first answer to a write of a disk or snapshot: what was sent
// stands in it, also where the resource will have another value (the tier of the former SKU in
// vm_managed_disk#5, the generation of another image in vm_disk_max_shares_etc#10).
// isArmResource and faultDomain are recorded until 2021, at the same API versions as later
// answers without them.
func (c *call) firstDiskAnswer(e *entry, sent any) any {
	tree, err := toTree(c.render(e))
	if err != nil {
		return e.body
	}
	props := map[string]any{"provisioningState": stateUpdating, "isArmResource": true}
	for _, member := range []string{"tier", "hyperVGeneration"} {
		if value := text(sent, "properties", member); value != "" && c.r.Method == http.MethodPut {
			props[member] = value
		}
	}
	if holder := c.s.findID(text(tree, "managedBy")); holder != nil {
		props["faultDomain"] = json.Number("0")
	}
	return mergePatch(tree, map[string]any{"properties": props}, false)
}
