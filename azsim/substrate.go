package azsim

import (
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
)

// A Volume names stored bytes by the lower-case ARM id of the disk, snapshot or
// image version that owns them.
type Volume string

// A Source says what a new volume holds. Exactly one of Volume and Platform is
// set, or none for an empty volume.
type Source struct {
	Volume   Volume // a copy of another volume
	Platform string // a marketplace image, "publisher:offer:sku:version"
	SizeGB   int32  // size; 0 means the source's
}

// A Substrate is what stands behind the ARM resources: disks with bytes on them
// and computers that run. A Server without one is paper only: the resources
// change state, but nothing runs.
//
// Every method is safe for concurrent use, returns when the effect is complete
// or ctx ends, and is idempotent: repeating a call whose effect is there
// succeeds and changes nothing. The Server adds Azure's durations on top, so an
// implementation is as fast as it can be.
type Substrate interface {
	// CreateVolume makes v, readable as soon as it returns. A copy of the
	// volume of a running computer is crash consistent, as in Azure.
	CreateVolume(ctx context.Context, v Volume, from Source) error
	// DeleteVolume removes v. An unknown v is not an error.
	DeleteVolume(ctx context.Context, v Volume) error

	// Boot starts c, making what it needs first. It returns when the OS runs
	// and, if c.Provision is set, has reported ready, as Azure's agent does.
	Boot(ctx context.Context, c Computer) error
	// Shutdown stops the computer: in order where graceful, else at once.
	// Its volumes stay as they are then.
	Shutdown(ctx context.Context, id string, graceful bool) error
	// Remove stops the computer at once and forgets it; its volumes stay.
	Remove(ctx context.Context, id string) error

	// Attach makes v appear in the computer at the LUN, running or not.
	Attach(ctx context.Context, id string, lun int32, v Volume) error
	// Detach takes the LUN away.
	Detach(ctx context.Context, id string, lun int32) error

	// Console returns the tail of what the computer wrote to its serial
	// console since it was made, at most 1 MiB.
	Console(ctx context.Context, id string) ([]byte, error)
}

// A Grower is a Substrate whose volumes can grow while no computer runs with them.
type Grower interface {
	// GrowVolume makes v at least that large; what is added reads as zeros.
	GrowVolume(ctx context.Context, v Volume, sizeGB int32) error
}

// A NopSubstrate does nothing: embed it where only some of the methods matter.
type NopSubstrate struct{ nop }

type nop struct{}

func (nop) CreateVolume(context.Context, Volume, Source) error  { return nil }
func (nop) DeleteVolume(context.Context, Volume) error          { return nil }
func (nop) Boot(context.Context, Computer) error                { return nil }
func (nop) Shutdown(context.Context, string, bool) error        { return nil }
func (nop) Remove(context.Context, string) error                { return nil }
func (nop) Attach(context.Context, string, int32, Volume) error { return nil }
func (nop) Detach(context.Context, string, int32) error         { return nil }
func (nop) Console(context.Context, string) ([]byte, error)     { return nil, nil }

// A Computer is all that a Substrate needs to run one instance.
type Computer struct {
	ID         string // lower-case ARM id; the key
	ResourceID string // the same, as ARM spells it
	VMID       string // the UUID that the platform gives the computer

	Name          string // "pool1_3"
	HostName      string // "pool1000003"
	ScaleSet      string
	ResourceGroup string
	Subscription  string
	Location      string
	Zone          string // "" in a region or set without zones
	FaultDomain   string // "0" in a zone
	Size          string // "Standard_D2s_v5"
	Architecture  string // "x64" or "Arm64"
	Generation    string // "V1" or "V2"
	NVMe          bool   // disk controller; false means SCSI

	// Address is the private address that ARM gave the primary network interface, with
	// its subnet's prefix length; invalid where the Substrate chooses one.
	Address netip.Prefix

	OSDisk    Volume
	DataDisks map[int32]Volume // by LUN

	CustomData    []byte // decoded; nil without any
	AdminUsername string
	SSHKeys       []string
	// Extensions are those of the instance's model. The agent keeps their settings on
	// the disk, the protected ones encrypted to a certificate that lies there too.
	Extensions []ExtensionSettings
	Tags       map[string]string

	// Provision is true at the first boot of a new OS disk: the platform then
	// hands CustomData and HostName over, and waits for the ready report.
	Provision bool

	// Report takes what the computer's agent says of itself and of its
	// extensions: see Server.Report. It may be called while the computer runs.
	Report func(Report) error

	// IMDS answers what the computer asks at 169.254.169.254.
	IMDS http.Handler
}

// ExtensionSettings are what a computer's agent gets to run an extension.
type ExtensionSettings struct {
	Publisher, Type, Version string
	Public, Protected        json.RawMessage // nil without any
}
