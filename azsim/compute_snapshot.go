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
				for _, p := range c.s.copiesOf(e.body.(*armcompute.Snapshot), c.now) {
					if c.s.findID(p.source) == e {
						p.failed = c.now
					}
				}
				return work{span: c.duration("snapshot.delete"), run: c.s.dropVolumes(e.volume())}
			})
		},
		actions: map[string]handler{"begingetaccess": beginAccess, "endgetaccess": endAccess},
		drop:    dropVolume,
		render:  renderSnapshot,
	}
}

// A copyProgress is the extra of a snapshot whose bytes are copied after its operation has
// ended: completionPercent shows how far. failed is when its source was deleted before the
// end, zero otherwise.
type copyProgress struct {
	begin, end, failed time.Time
	source             string
}

// usable reports whether the bytes are there.
func (p *copyProgress) usable(now time.Time) bool { return p.failed.IsZero() && !now.Before(p.end) }

// copiesOf are the copies under way of snapshots of one disk.
func (s *Server) copiesOf(from *armcompute.Snapshot, now time.Time) (all []*copyProgress) {
	for _, e := range s.ofType("Microsoft.Compute/snapshots", s.Subscription, "") {
		family := val(e.body.(*armcompute.Snapshot).Properties.IncrementalSnapshotFamilyID)
		p, _ := e.extra.(*copyProgress)
		if p != nil && p.failed.IsZero() && !p.usable(now) && stateOf(e.body) != stateDeleting && family != "" && family == val(from.Properties.IncrementalSnapshotFamilyID) {
			all = append(all, p)
		}
	}
	return all
}

// percent is in whole percents, as seconds after the operation 0 was recorded.
func (p *copyProgress) percent(now time.Time) float32 {
	if !p.failed.IsZero() {
		now = p.failed
	}
	if !now.Before(p.end) {
		return 100
	}
	return float32(max(0, 100*now.Sub(p.begin)/(p.end.Sub(p.begin)+1)))
}

func renderSnapshot(c *call, e *entry) any {
	body := e.body.(*armcompute.Snapshot)
	progress, _ := e.extra.(*copyProgress)
	if progress == nil {
		return body
	}
	shown, p := *body, *body.Properties
	shown.Properties = &p
	p.CompletionPercent = ptr(progress.percent(c.now))
	if !progress.failed.IsZero() {
		p.CopyCompletionError = &armcompute.CopyCompletionError{ErrorCode: ptr(armcompute.CopyCompletionErrorReasonCopySourceNotFound),
			ErrorMessage: ptr("The source snapshot was deleted while the background copy was in progress.")}
	}
	return &shown
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
	var was *armcompute.Encryption
	if old != nil {
		was = old.Properties.Encryption
	}
	if err := c.checkEncryption(was, p.Encryption, location, "snapshot"); err != nil {
		return err
	}
	if old != nil {
		return changeSnapshot(old, next)
	}
	p.UniqueID = ptr(c.s.newUUID("snapshot", c.id.key()))
	p.DiskState, p.DiskSizeBytes, p.CompletionPercent, p.CopyCompletionError = ptr(armcompute.DiskStateUnattached), nil, nil, nil
	if err := c.originateSnapshot(next); err != nil {
		return err
	}
	p.Incremental = cmp.Or(p.Incremental, ptr(false))
	if p.DiskSizeBytes == nil {
		p.DiskSizeBytes = ptr(int64(*p.DiskSizeGB) << 30)
	}
	settleBytes(&p.Encryption, &p.NetworkAccessPolicy, &p.PublicNetworkAccess)
	return nil
}

// originateSnapshot fills in what a new snapshot has of what it is made of.
func (c *call) originateSnapshot(next *armcompute.Snapshot) error {
	const at = "snapshot.creationData"
	p, location := next.Properties, val(next.Location)
	cd := p.CreationData
	switch *cd.CreateOption {
	case armcompute.DiskCreateOptionEmpty:
		if val(p.DiskSizeGB) <= 0 {
			return badParameter("snapshot.diskSizeGB", "Required parameter 'snapshot.diskSizeGB' is missing (null).")
		}
		return nil
	case armcompute.DiskCreateOptionImport:
		size, err := c.importBlob(at, cd)
		p.DiskSizeGB = cmp.Or(p.DiskSizeGB, &size)
		return err
	case armcompute.DiskCreateOptionCopy, armcompute.DiskCreateOptionCopyStart:
	default:
		return badParameter(at+".createOption", "The creation option '%s' is not simulated: use Copy, CopyStart, Empty or Import.", *cd.CreateOption)
	}
	o, err := c.originOf(val(cd.SourceResourceID), at+".sourceResourceId")
	if err != nil {
		return err
	}
	from, _ := o.entry.body.(*armcompute.Snapshot)
	switch {
	case *cd.CreateOption == armcompute.DiskCreateOptionCopyStart:
		// Only incremental snapshots are copied so, also to another region ("Copy an
		// incremental snapshot to a new region" in Azure's documentation).
		if from == nil || !val(from.Properties.Incremental) || !val(p.Incremental) {
			return conflict("CopyStart creation is supported only for incremental snapshots of incremental snapshots.")
		}
		if len(c.s.copiesOf(from, c.now)) > 0 {
			return conflict("Another incremental snapshot of the disk of '%s' is being copied.", o.entry.id.name())
		}
	case normLocation(o.location) != normLocation(location):
		return badParameter("snapshot.location", "The snapshot's location '%s' is not that of its source '%s', '%s'.", location, o.entry.id.String(), o.location)
	}
	if val(p.Incremental) {
		p.IncrementalSnapshotFamilyID = ptr(val(o.uniqueID))
		if from != nil {
			p.IncrementalSnapshotFamilyID = from.Properties.IncrementalSnapshotFamilyID
		} else if err := c.limitIncremental(o.entry); err != nil {
			return err
		}
	}
	if d, isDisk := o.entry.body.(*armcompute.Disk); isDisk {
		cd.LogicalSectorSize = d.Properties.CreationData.LogicalSectorSize
	}
	cd.SourceUniqueID = o.uniqueID
	p.OSType, p.HyperVGeneration, p.SupportedCapabilities = cmp.Or(p.OSType, o.osType), cmp.Or(p.HyperVGeneration, o.generation), cmp.Or(p.SupportedCapabilities, o.capabilities)
	p.SecurityProfile, p.SupportsHibernation = cmp.Or(p.SecurityProfile, o.security), cmp.Or(p.SupportsHibernation, o.hibernation)
	p.EncryptionSettingsCollection = cmp.Or(p.EncryptionSettingsCollection, o.settings)
	p.DiskSizeGB = ptr(max(o.sizeGB, val(p.DiskSizeGB)))
	p.DiskSizeBytes = o.bytesFor(*p.DiskSizeGB)
	return nil
}

// copiesLater says whether a snapshot's bytes come after its operation has ended: those of
// CopyStart, and of disks whose performance is provisioned (completion_percent#10 and
// snapshot_ultra_ssd#9; other snapshots have no completionPercent).
func (s *Server) copiesLater(p *armcompute.SnapshotProperties) bool {
	_, d := load[armcompute.Disk](s, val(p.CreationData.SourceResourceID))
	return *p.CreationData.CreateOption == armcompute.DiskCreateOptionCopyStart || d != nil && provisioned(d)
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
// tags, its SKU, what it supports and who may read it.
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
	keep.OSType, keep.SupportedCapabilities = cmp.Or(p.OSType, was.OSType), cmp.Or(p.SupportedCapabilities, was.SupportedCapabilities)
	keep.Encryption, keep.DiskAccessID = cmp.Or(p.Encryption, was.Encryption), cmp.Or(p.DiskAccessID, was.DiskAccessID)
	*p = keep
	return nil
}

func snapshotWork(c *call, e *entry, old, next *armcompute.Snapshot) work {
	p := next.Properties
	src := c.s.findID(val(p.CreationData.SourceResourceID))
	// A snapshot whose making failed is made again, while its source is there.
	if old != nil && (stateOf(old) != stateFailed || src == nil && p.CreationData.SourceResourceID != nil) {
		return work{span: c.duration("snapshot.update")}
	}
	from := Source{SizeGB: *p.DiskSizeGB}
	if src != nil {
		from = Source{Volume: src.volume()}
	}
	w := work{span: c.duration("snapshot.create"), run: c.s.makeVolumes(copying{e.volume(), from})}
	if c.s.copiesLater(p) {
		begin := c.now.Add(w.span)
		e.extra = &copyProgress{begin: begin, end: begin.Add(c.duration("snapshot.copy")), source: val(p.CreationData.SourceResourceID)}
	}
	return w
}
