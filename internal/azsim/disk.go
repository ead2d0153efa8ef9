package azsim

import (
	"context"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// diskVersions are API versions of disks and snapshots: those of the published
// specifications, from what Debian's azure-cli 2.45 asks to what armcompute v8
// asks.
var diskVersions = []string{"2020-12-01", "2021-04-01", "2021-08-01", "2021-12-01", "2022-03-02", "2022-07-02",
	"2023-01-02", "2023-04-02", "2023-10-02", "2024-03-02", "2025-01-02", "2026-03-02"}

func diskType() *resourceType {
	h := hooks[armcompute.Disk]{accepted: true, check: checkDisk, work: diskWork}
	return &resourceType{
		name: "Microsoft.Compute/disks", versions: diskVersions, global: true, operations: "DiskOperations",
		put:    func(c *call) (*reply, error) { return put(c, h) },
		patch:  func(c *call) (*reply, error) { return patch(c, h) },
		remove: removeDisk,
		drop:   dropVolume,
	}
}

// volume is the bytes of an entry.
func (e *entry) volume() Volume { return Volume(e.id.key()) }

// dropVolume deletes the bytes of a resource that goes with its group.
func dropVolume(s *Server, e *entry) {
	if s.Substrate == nil || s.ctx.Err() != nil {
		return
	}
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		if err := s.Substrate.DeleteVolume(s.ctx, e.volume()); err != nil {
			s.Log.Error("volume left behind", "volume", e.volume(), "error", err)
		}
	}()
}

func checkDisk(c *call, old, next *armcompute.Disk) error {
	p := next.Properties
	if p == nil || p.CreationData == nil || p.CreationData.CreateOption == nil {
		return badParameter("disk.creationData", "Required parameter 'disk.creationData' is missing (null).")
	}
	if old == nil {
		p.DiskState = ptr(armcompute.DiskStateUnattached)
		p.UniqueID = ptr(c.s.newUUID())
	}
	return nil
}

func diskWork(c *call, e *entry, old, next *armcompute.Disk) work {
	if old != nil {
		return work{span: c.s.duration("disk.update")}
	}
	return work{span: c.s.duration("disk.create"), run: func(ctx context.Context) error {
		if c.s.Substrate == nil {
			return nil
		}
		return c.s.Substrate.CreateVolume(ctx, e.volume(), Source{SizeGB: val(next.Properties.DiskSizeGB)})
	}}
}

func removeDisk(c *call) (*reply, error) {
	return c.remove(func(e *entry) error {
		d := e.body.(*armcompute.Disk)
		if by := val(d.ManagedBy); by != "" {
			return refuse(http.StatusConflict, "OperationNotAllowed", "Disk %s is attached to VM %s.", e.id.name(), strings.TrimSpace(by))
		}
		return nil
	}, func(e *entry) work { return deleteWork(c.s, e, "disk.delete") })
}

// deleteWork deletes an entry's bytes; those of what lies below it go with it.
func deleteWork(s *Server, e *entry, name string) work {
	return work{span: s.duration(name), run: func(ctx context.Context) error {
		if s.Substrate == nil {
			return nil
		}
		return s.Substrate.DeleteVolume(ctx, e.volume())
	}}
}
