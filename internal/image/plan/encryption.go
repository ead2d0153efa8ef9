package plan

import (
	"cmp"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
)

// ofEncryption refuses disks whose copies the workbench could not read, or that Azure would
// encrypt with another key than the owner's.
func (p *Problems) ofEncryption(o Observed) {
	disk := cmp.Or(o.Disk, &fleet.Disk{})
	const wayOut = "use a pool without Azure Disk Encryption; encryption at host needs nothing inside the machine"
	p.Refuse(disk.Encrypted, "DiskEncrypted", string(disk.ID), "Azure Disk Encryption encrypts it inside the machine: a copy cannot be read elsewhere", wayOut)
	for _, e := range o.Pool.Model.Extensions {
		p.Refuse(!disk.Encrypted && encrypts(e), "DiskEncrypted", string(o.Pool.ID),
			"its extension "+e.Name+" ("+e.Type+") encrypts the disks of its machines: a copy cannot be read elsewhere", wayOut)
	}
	set := cmp.Or(disk.Encryption, o.Pool.Model.Encryption)
	p.Refuse(set != "", "OwnKeys", string(cmp.Or(disk.ID, o.Pool.ID)), "the disk encryption set "+set.Name()+" encrypts it with a key of its owner's: the copies would have the platform's key",
		"use a pool whose disks have the platform's key, or encryption at host")
}

// encrypts reports whether an extension of a model is Azure Disk Encryption. Source: "Azure Disk
// Encryption for Linux".
func encrypts(e fleet.Extension) bool {
	return strings.EqualFold(e.Publisher, "Microsoft.Azure.Security") && strings.EqualFold(e.Type, "AzureDiskEncryptionForLinux")
}
