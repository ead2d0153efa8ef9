package azsim

import (
	"encoding/base64"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// maxUserData is the limit of userData as base64: 64 KiB and the padding
// (azure-powershell issue 16597).
const maxUserData = 87384

// checkUserData refuses what Azure refuses as userData (azure-powershell issue
// 16597). An empty one deletes what there is (azure-cli issue 17223).
func checkUserData(data *string) error {
	if _, err := base64.StdEncoding.DecodeString(val(data)); err != nil || len(val(data)) > maxUserData {
		return badParameter("userData", "UserData must be in Base64 encoding and with a maximum length of %d characters.", maxUserData)
	}
	return nil
}

// checkSetUserData checks the userData of a scale set's model.
func checkSetUserData(_ *call, next *armcompute.VirtualMachineScaleSet) error {
	p := profileOf(next)
	if err := checkUserData(p.UserData); err != nil {
		return err
	}
	if val(p.UserData) == "" {
		p.UserData = nil
	}
	return nil
}

// A userDataDelay is userData that the metadata service still shows, after a change.
type userDataDelay struct {
	data  string
	until time.Time
}

// setUserData changes the userData of one instance, and leaves the model's alone:
// nil keeps it, "" deletes it. The metadata service shows it once the update and
// imds.userData have passed. The caller holds the lock.
func (c *call) setUserData(x *instance, data *string, update time.Duration) {
	if data == nil || val(data) == val(x.profile.UserData) {
		return
	}
	x.oldUserData = userDataDelay{x.userData(c.now), c.now.Add(update + c.duration("imds.userData"))}
	p := *x.profile
	if p.UserData = data; *data == "" {
		p.UserData = nil
	}
	x.profile = &p
	x.custom = x.custom || c.s.UserDataMakesCustom
}

// userData is what the metadata service shows.
func (x *instance) userData(now time.Time) string {
	if now.Before(x.oldUserData.until) {
		return x.oldUserData.data
	}
	return val(x.profile.UserData)
}

// expandsUserData reports whether the answer holds the userData of e. Lists never
// do: it is documented for a GET of one resource only.
func (c *call) expandsUserData(e *entry) bool {
	return c.expands("userData") && c.id.key() == e.key
}
