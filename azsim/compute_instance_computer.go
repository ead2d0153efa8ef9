package azsim

import (
	"encoding/base64"
	"encoding/json"
	"strconv"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// computerOf is an instance as the Substrate takes it. The caller holds the lock.
func (s *Server) computerOf(e *entry) Computer {
	x, body := instanceOf(e)
	size, _ := findSize(x.size)
	c := Computer{
		ID: e.id.key(), ResourceID: e.id.String(), VMID: x.vmID, Name: val(body.Name), HostName: x.hostName,
		ResourceGroup: e.id.group, Subscription: e.id.subscription,
		Location: normLocation(val(body.Location)), Zone: x.zone, FaultDomain: strconv.Itoa(x.faultDomain()), Size: x.size,
		Architecture: x.image.arch, Generation: x.image.generation, NVMe: wantsNVMe(size, x.profile),
		DataDisks: map[int32]Volume{}, Tags: map[string]string{}, Provision: !x.provisioned,
		IMDS: s.imdsOf(e),
		Report: func(r Report) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.report(e, r)
		},
	}
	if x.plain != nil {
		s.plugIn(x)
	}
	if set := x.scaleSet(); set != nil {
		c.ScaleSet = set.id.name()
	}
	if len(x.nics) > 0 && x.nics[0].configs[0].subnet.stored.IsValid() {
		c.Address = x.nics[0].configs[0].address()
	}
	if x.osDisk != nil {
		c.OSDisk = x.osDisk.volume()
	}
	for _, d := range dataDisksOf(body) {
		if de := s.findID(diskIDOf(d)); de != nil {
			c.DataDisks[val(d.Lun)] = de.volume()
		}
	}
	for k, v := range body.Tags {
		c.Tags[k] = val(v)
	}
	for _, e := range extensionsOf(x.profile) {
		if q := e.Properties; q != nil {
			c.Extensions = append(c.Extensions, ExtensionSettings{val(q.Publisher), val(q.Type), val(q.TypeHandlerVersion), rawSettings(q.Settings), rawSettings(q.ProtectedSettings)})
		}
	}
	if o := x.profile.OSProfile; o != nil {
		c.AdminUsername = val(o.AdminUsername)
		if o.CustomData != nil {
			if data, err := base64.StdEncoding.DecodeString(*o.CustomData); err == nil { // checked when the model came
				c.CustomData = data
			}
		}
		for _, k := range sshKeys(o) {
			c.SSHKeys = append(c.SSHKeys, val(k.KeyData))
		}
	}
	return c
}

func rawSettings(settings any) json.RawMessage {
	if settings == nil {
		return nil
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return nil // it came as JSON
	}
	return text
}

func sshKeys(o *armcompute.VirtualMachineScaleSetOSProfile) []*armcompute.SSHPublicKey {
	if o.LinuxConfiguration == nil || o.LinuxConfiguration.SSH == nil {
		return nil
	}
	return o.LinuxConfiguration.SSH.PublicKeys
}
