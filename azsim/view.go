package azsim

import (
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// A View looks at what the server stores, while View runs.
type View struct{ s *Server }

// View calls look under the server's lock: a look at the stored resources that is
// no request, needs no permission and costs no copy. look neither changes nor
// keeps what it is shown, and sends the server no requests.
func (s *Server) View(look func(v *View)) {
	s.init()
	s.mu.Lock()
	defer s.mu.Unlock()
	look(&View{s})
}

// Get returns the stored model of a resource, nil if there is none: a
// *armcompute.VirtualMachineScaleSet, VirtualMachineScaleSetVM, Disk, Snapshot,
// Gallery, GalleryImage, GalleryImageVersion…, or a map[string]any of a stored type
// (stored.go). Models are as they are stored:
// secrets are in them, and of an instance there is only what is its own (data
// disks, tags, protection); Instance gives the rest.
func (v *View) Get(id string) any {
	if e := v.s.findID(id); e != nil {
		return e.body
	}
	return nil
}

// Each yields the stored resources of a type ("Microsoft.Compute/disks", in any
// letter case) with their models in the order of their creation, those of one
// instant by id.
func (v *View) Each(typ string, yield func(id string, body any)) {
	for _, e := range v.s.order {
		if e.rt != nil && strings.EqualFold(e.rt.name, typ) {
			yield(e.id.String(), e.body)
		}
	}
}

// Running says whether an operation on the resource is under way: whether a
// change would be refused with 409, or on a scale set preempt it. An instance that
// is being deleted counts.
func (v *View) Running(id string) bool {
	e := v.s.findID(id)
	if e == nil {
		return false
	}
	if x, isInstance := e.extra.(*instance); isInstance && x.leaves() {
		return true
	}
	return e.underWay()
}

// An InstanceState is what the server knows of an instance beside its model.
type InstanceState struct {
	Image    string // id of the image version on its OS disk, or "publisher:offer:sku:version"
	ScaleSet string // its id, "" for a virtual machine of its own
	HostName string
	Deleting bool
}

// Instance returns the state of an instance of a scale set, false if there is none.
func (v *View) Instance(id string) (InstanceState, bool) {
	e, body := load[armcompute.VirtualMachineScaleSetVM](v.s, id)
	if body == nil {
		return InstanceState{}, false
	}
	x, _ := instanceOf(e)
	out := InstanceState{HostName: x.hostName, Deleting: x.leaves()}
	if x.plain == nil {
		out.ScaleSet = x.set.id.String()
	}
	if x.osDisk != nil {
		out.Image = x.image.source.Platform
		if out.Image == "" {
			out.Image = val(x.image.ref.ID)
			if e := v.s.findID(string(x.image.source.Volume)); e != nil {
				out.Image = e.id.String()
			}
		}
	}
	return out, true
}
