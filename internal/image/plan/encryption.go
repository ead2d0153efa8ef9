package plan

import (
	"cmp"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
)

// ofEncryption refuses disks whose copies the workbench could not read.
func (p *Problems) ofEncryption(o Observed) {
	disk := cmp.Or(o.Disk, &fleet.Disk{})
	const wayOut = "use a pool without Azure Disk Encryption; encryption at host needs nothing inside the machine"
	p.Refuse(disk.Encrypted, "DiskEncrypted", string(disk.ID), "Azure Disk Encryption encrypts it inside the machine: a copy cannot be read elsewhere", wayOut)
	for _, e := range o.Pool.Model.Extensions {
		p.Refuse(!disk.Encrypted && encrypts(e), "DiskEncrypted", string(o.Pool.ID),
			"its extension "+e.Name+" ("+e.Type+") encrypts the disks of its machines: a copy cannot be read elsewhere", wayOut)
	}
}

// encrypts reports whether an extension of a model is Azure Disk Encryption. Source: "Azure Disk
// Encryption for Linux".
func encrypts(e fleet.Extension) bool {
	return strings.EqualFold(e.Publisher, "Microsoft.Azure.Security") && strings.EqualFold(e.Type, "AzureDiskEncryptionForLinux")
}

// EncryptionSet is the disk encryption set that the copies get: the one of the donor's disk or,
// where that has none, of the model. It is "" for the platform's key.
func EncryptionSet(o Observed) fleet.ResourceID {
	return cmp.Or(cmp.Or(o.Disk, &fleet.Disk{}).Encryption, o.Pool.Model.Encryption)
}

// ofKeys refuses a disk encryption set that the copies cannot have, or new nodes not. Source: "Create
// an encrypted image version with customer-managed keys" and the restrictions of such keys.
func (p *Problems) ofKeys(o Observed, q Request) {
	const code, another = "OwnKeys", "name a node whose disk has another set"
	set, model := EncryptionSet(o), o.Pool.Model.Encryption
	if set == "" {
		return
	}
	on := string(set)
	if o.NoKeys != nil {
		p.Refuse(fleet.Is(o.NoKeys, fleet.KindNotFound), code, on, "the disk encryption set does not exist: no copy of the disk can be encrypted with it",
			"create it again with the same key, or "+another)
		p.Unreadable(on, o.NoKeys)
		return
	}
	p.Refuse(!fleet.SameRegion(o.Keys.Location, o.Pool.Location) || !strings.EqualFold(set.Segment("subscriptions"), o.Pool.ID.Segment("subscriptions")), code, on,
		"the disk encryption set is in "+o.Keys.Location+" of subscription "+set.Segment("subscriptions")+": copies and the gallery's version need one of their own subscription and region", another)
	p.Refuse(strings.HasPrefix(strings.ToLower(o.Keys.Type), "confidential"), code, on, "the disk encryption set is for the disks of confidential VMs alone", another)
	p.Refuse(o.Keys.Problem != "", code, on, "Azure cannot use the key of the disk encryption set: "+o.Keys.Problem,
		"let the set's identity get, wrap and unwrap with a key that exists (az disk-encryption-set show --ids "+on+"), then run this again")
	p.Refuse(!set.Equal(model) && !q.PublishOnly, code, string(o.Pool.ID),
		"its model makes disks with "+cmp.Or(when(model != "", "the disk encryption set "+model.Name()), "the platform's key")+", and the image of this disk would need the set "+set.Name(),
		"name a node whose disk has the model's set, or give the model that set"+OrPublishOnly)
}
