package azsim

import (
	"cmp"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// The documented limits of incremental snapshots of one disk.
const (
	incrementalPerDisk  = 500
	incrementalPerSpell = 7
	incrementalSpell    = 5 * time.Minute
)

func snapshotType() *resourceType {
	h := hooks[armcompute.Snapshot]{accepted: true, check: checkSnapshot, work: snapshotWork}
	return &resourceType{
		name: "Microsoft.Compute/snapshots", versions: diskVersions(), global: true, operations: diskOperations,
		put: func(c *call) (*reply, error) { return put(c, h) }, preflight: true,
		patch: func(c *call) (*reply, error) { return patch(c, h) },
		remove: func(c *call) (*reply, error) {
			return c.remove(nil, func(e *entry) work {
				return work{span: c.duration("snapshot.delete"), run: c.s.dropVolumes(e.volume())}
			})
		},
		actions: map[string]handler{"begingetaccess": beginAccess, "endgetaccess": endAccess},
		drop:    dropVolume,
	}
}

func checkSnapshot(c *call, old, next *armcompute.Snapshot) error {
	if !diskName.MatchString(c.id.name()) {
		return badParameter("snapshot.name", "The entity name 'snapshot.name' is invalid according to its validation rule: ^[^_\\W][\\w-._]{0,79}(?<![-.])$.")
	}
	p := next.Properties
	if p == nil || p.CreationData == nil || p.CreationData.CreateOption == nil {
		return badParameter("snapshot.creationData", "Required parameter 'snapshot.creationData' is missing (null).")
	}
	canon(p.CreationData.CreateOption, armcompute.PossibleDiskCreateOptionValues()) // an unknown one is refused below
	canon(p.OSType, armcompute.PossibleOperatingSystemTypesValues())
	if !canon(p.HyperVGeneration, armcompute.PossibleHyperVGenerationValues()) {
		return badParameter("snapshot.hyperVGeneration", "The value '%s' of parameter 'snapshot.hyperVGeneration' is not allowed. Allowed values are: V1,V2.", *p.HyperVGeneration)
	}
	location := val(next.Location)
	if next.SKU == nil || next.SKU.Name == nil {
		name := armcompute.SnapshotStorageAccountTypesStandardLRS
		// Incremental snapshots are zone redundant by default where that exists.
		if l, _ := c.s.location(location); val(p.Incremental) && len(l.Zones) > 0 {
			name = armcompute.SnapshotStorageAccountTypesStandardZRS
		}
		next.SKU = &armcompute.SnapshotSKU{Name: &name}
		if old != nil {
			next.SKU = old.SKU
		}
	}
	if !canon(next.SKU.Name, armcompute.PossibleSnapshotStorageAccountTypesValues()) {
		return badParameter("snapshot.sku", "The value '%s' of parameter 'snapshot.sku' is not allowed. Allowed values are: %v.", *next.SKU.Name, armcompute.PossibleSnapshotStorageAccountTypesValues())
	}
	next.SKU.Tier = ptr(skuTier(string(*next.SKU.Name)))
	if err := c.checkZRS(string(*next.SKU.Name), location); err != nil {
		return err
	}
	if old != nil {
		return changeSnapshot(old, next)
	}
	if *p.CreationData.CreateOption != armcompute.DiskCreateOptionCopy {
		return badParameter("snapshot.creationData.createOption", "The creation option '%s' is not simulated: use Copy.", *p.CreationData.CreateOption)
	}
	o, err := c.originOf(val(p.CreationData.SourceResourceID), "snapshot.creationData.sourceResourceId")
	if err != nil {
		return err
	}
	if normLocation(o.location) != normLocation(location) {
		return badParameter("snapshot.location", "The snapshot's location '%s' is not that of its source '%s', '%s'.", location, o.entry.id.String(), o.location)
	}
	if val(p.Incremental) {
		if err := c.limitIncremental(o.entry); err != nil {
			return err
		}
		p.IncrementalSnapshotFamilyID = ptr(val(o.uniqueID))
	}
	p.CreationData.SourceUniqueID = o.uniqueID
	p.UniqueID = ptr(c.s.newUUID("snapshot", c.id.key()))
	p.DiskState = ptr(armcompute.DiskStateUnattached)
	p.OSType, p.HyperVGeneration, p.SupportedCapabilities = cmp.Or(p.OSType, o.osType), cmp.Or(p.HyperVGeneration, o.generation), cmp.Or(p.SupportedCapabilities, o.capabilities)
	p.DiskSizeGB = ptr(max(o.sizeGB, val(p.DiskSizeGB)))
	p.DiskSizeBytes = ptr(int64(*p.DiskSizeGB) << 30)
	if p.Incremental == nil {
		p.Incremental = ptr(false)
	}
	p.CompletionPercent = ptr(float32(100)) // of a copy in one region: usable at once
	return nil
}

// limitIncremental keeps the limits of incremental snapshots.
func (c *call) limitIncremental(disk *entry) error {
	all, lately := 0, 0
	for _, e := range c.s.ofType("Microsoft.Compute/snapshots", c.id.subscription, "") {
		p := e.body.(*armcompute.Snapshot).Properties
		if val(p.Incremental) && c.s.findID(val(p.CreationData.SourceResourceID)) == disk {
			all++
			if c.now.Sub(e.since) < incrementalSpell {
				lately++
			}
		}
	}
	if all >= incrementalPerDisk || lately >= incrementalPerSpell {
		return refuse(http.StatusConflict, "OperationNotAllowed",
			"Disk '%s' has %d incremental snapshots, %d of them made within %v: at most %d, and %d in that time, are allowed.",
			disk.id.name(), all, lately, incrementalSpell, incrementalPerDisk, incrementalPerSpell)
	}
	return nil
}

// changeSnapshot refuses changes that a snapshot does not allow: all but of its
// tags, its SKU and who may read it.
func changeSnapshot(old, next *armcompute.Snapshot) error {
	was, p := old.Properties, next.Properties
	if val(was.CreationData.CreateOption) != val(p.CreationData.CreateOption) ||
		val(was.CreationData.SourceResourceID) != val(p.CreationData.SourceResourceID) {
		return notChangeable("snapshot.creationData")
	}
	if p.Incremental != nil && *p.Incremental != val(was.Incremental) {
		return notChangeable("snapshot.incremental")
	}
	if p.HyperVGeneration != nil && was.HyperVGeneration != nil && *p.HyperVGeneration != *was.HyperVGeneration {
		return notChangeable("snapshot.hyperVGeneration")
	}
	keep := *was
	keep.NetworkAccessPolicy, keep.PublicNetworkAccess = cmp.Or(p.NetworkAccessPolicy, was.NetworkAccessPolicy), cmp.Or(p.PublicNetworkAccess, was.PublicNetworkAccess)
	*p = keep
	return nil
}

func snapshotWork(c *call, e *entry, old, next *armcompute.Snapshot) work {
	// A snapshot whose making failed is made anew, while its source is there.
	src := c.s.findID(val(next.Properties.CreationData.SourceResourceID))
	if old != nil && stateOf(old) != stateFailed || src == nil {
		return work{span: c.duration("snapshot.update")}
	}
	return work{span: c.duration("snapshot.create"), run: c.s.makeVolumes(copying{e.volume(), Source{Volume: src.volume()}})}
}
