package azsim

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// diskState is the member of disks and snapshots that access to their bytes changes.
const diskState = "Properties.DiskState"

// beginAccess answers POST disks/D/beginGetAccess and the same of snapshots: a
// link to the bytes that leads nowhere, since the simulator has no blobs. The state that
// it brings lasts until endGetAccess: it was still there when the link had expired
// (vm_managed_disk#25).
func beginAccess(c *call) (*reply, error) {
	e, err := c.need()
	if err != nil {
		return nil, err
	}
	if err := c.busy(e); err != nil {
		return nil, err
	}
	in, err := decode[armcompute.GrantAccessData](c)
	if err != nil {
		return nil, err
	}
	span := time.Hour
	if n := val(in.DurationInSeconds); n > 0 {
		span = time.Duration(n) * time.Second
	}
	query := "?se=" + c.now.Add(span).UTC().Format("2006-01-02T15:04:05Z")
	out := map[string]any{"accessSAS": c.base() + "/azsim/blobs/" + e.id.name() + query}
	if val(in.GetSecureVMGuestStateSAS) {
		out["securityDataAccessSAS"] = c.base() + "/azsim/blobs/" + e.id.name() + "_guestState" + query
	}
	op := c.begin(e, work{span: c.duration("disk.access"), output: func() any { return out }, done: func(failure *armError) {
		switch state := armcompute.DiskState(getField(e.body, diskState)); {
		case failure != nil:
		case state == armcompute.DiskStateUnattached:
			setField(e.body, diskState, string(armcompute.DiskStateActiveSAS))
		case state == armcompute.DiskStateReadyToUpload:
			setField(e.body, diskState, string(armcompute.DiskStateActiveUpload))
		}
	}})
	return accepted(op), nil
}

// endAccess ends an access; an upload is the disk's bytes then, 512 of which are the
// footer of the VHD.
func endAccess(c *call) (*reply, error) {
	e, err := c.need()
	if err != nil {
		return nil, err
	}
	if err := c.busy(e); err != nil {
		return nil, err
	}
	return accepted(c.begin(e, work{span: c.duration("disk.access"), done: func(failure *armError) {
		state := armcompute.DiskState(getField(e.body, diskState))
		if failure != nil || state != armcompute.DiskStateActiveSAS && state != armcompute.DiskStateActiveUpload {
			return
		}
		setField(e.body, diskState, string(armcompute.DiskStateUnattached))
		if d, isDisk := e.body.(*armcompute.Disk); isDisk && state == armcompute.DiskStateActiveUpload {
			n := *d.Properties.CreationData.UploadSizeBytes - 512
			d.Properties.DiskSizeBytes, d.Properties.DiskSizeGB = &n, ptr(int32((n+1<<30-1)>>30))
			settleDisk(d)
		}
	}})), nil
}

// noBlobs is the refusal to give bytes to a Substrate that only a blob has.
func noBlobs(target string) *armError {
	return refuse(http.StatusBadRequest, "NotSupported",
		"azsim has no blobs: what is imported or uploaded has no bytes, so a Substrate cannot run it.").withTarget(target)
}

// importBlob checks what a disk or snapshot is imported from, and returns the blob's size.
func (c *call) importBlob(at string, cd *armcompute.CreationData) (int32, error) {
	if val(cd.SourceURI) == "" {
		return 0, badParameter(at+".sourceUri", "Required parameter '%s.sourceUri' is missing (null).", at)
	}
	if c.s.Substrate != nil {
		return 0, noBlobs(at + ".createOption")
	}
	return c.s.blobGB(*cd.SourceURI), nil
}

// blobGB is the size of a blob: where no machine had it as a disk, that of most images of the
// marketplace, since azsim has no blobs to look at.
func (s *Server) blobGB(uri string) int32 { return cmp.Or(s.blobs[strings.ToLower(uri)], 30) }
