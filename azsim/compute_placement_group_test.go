package azsim

import (
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"golang.org/x/crypto/ssh"
)

// A proximity placement group shows what names it, but not in the answer to its PUT, and
// cannot be deleted before.
func TestProximityPlacementGroup(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		const group, set, version = "Microsoft.Compute/proximityPlacementGroups/near", "Microsoft.Compute/availabilitySets/s", "2023-03-01"
		status, out := b.call("PUT", group, version, `{"location":"westeurope","properties":{"proximityPlacementGroupType":"standarD"}}`)
		p, _ := out["properties"].(object)
		if status != 201 || p["proximityPlacementGroupType"] != "Standard" || p["virtualMachines"] != nil {
			t.Errorf("PUT: %d %v", status, out)
		}
		b.refused("InvalidParameter", "PUT", group, version, `{"location":"westeurope","properties":{"proximityPlacementGroupType":"none"}}`)
		body := `{"location":"westeurope","properties":{"proximityPlacementGroup":{"id":"` + groupID(group) + `"}}}`
		b.refused("InvalidResourceReference", "PUT", set, version, strings.Replace(body, "near", "far", 1))
		if status, out := b.call("PUT", set, version, body); status != 200 || at(out, "properties", "virtualMachines") != nil {
			t.Errorf("PUT of a new availability set: %d %v", status, out)
		}
		scaleSet := pool(0)
		scaleSet.Properties.ProximityPlacementGroup = &armcompute.SubResource{ID: ptr(groupID(group))}
		poller, err := b.f.NewVirtualMachineScaleSetsClient().BeginCreateOrUpdate(b.ctx, b.group, "set", scaleSet, nil)
		if _, err := tryDone(poller, err); err != nil {
			t.Fatal(err)
		}
		out = b.get(group, version)
		for list, id := range map[string]string{"availabilitySets": set, "virtualMachineScaleSets": "Microsoft.Compute/virtualMachineScaleSets/set"} {
			if got := at(out, "properties", list).([]any); len(got) != 1 || text(got[0], "id") != groupID(id) {
				t.Errorf("%s: %v", list, got)
			}
		}
		near, err := b.f.NewProximityPlacementGroupsClient().Get(b.ctx, b.group, "near",
			&armcompute.ProximityPlacementGroupsClientGetOptions{IncludeColocationStatus: ptr("true")})
		if err != nil || near.Properties.ColocationStatus == nil || val(near.Properties.ColocationStatus.Code) != "ColocationStatus/Aligned" {
			t.Errorf("%v %v", near.Properties, err)
		}
		b.refused("OperationNotAllowed", "DELETE", group, version, "")
		b.made("DELETE", set, version, "")
		b.made("DELETE", "Microsoft.Compute/virtualMachineScaleSets/set", version, "")
		b.made("DELETE", group, version, "")
		b.refused("ResourceNotFound", "GET", group, version, "")
	})
}

func TestSSHPublicKey(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		keys := b.f.NewSSHPublicKeysClient()
		if _, err := keys.Create(b.ctx, b.group, "k", armcompute.SSHPublicKeyResource{Location: ptr(DefaultLocation)}, nil); err != nil {
			t.Fatal(err)
		}
		pair, err := keys.GenerateKeyPair(b.ctx, b.group, "k", nil)
		if err != nil {
			t.Fatal(err)
		}
		private, err := ssh.ParsePrivateKey([]byte(val(pair.PrivateKey)))
		if err != nil {
			t.Fatal(err)
		}
		public, _, _, _, err := ssh.ParseAuthorizedKey([]byte(val(pair.PublicKey)))
		if err != nil || string(public.Marshal()) != string(private.PublicKey().Marshal()) {
			t.Errorf("the halves differ: %v", err)
		}
		if got, err := keys.Get(b.ctx, b.group, "k", nil); err != nil || val(got.Properties.PublicKey) != val(pair.PublicKey) {
			t.Errorf("stored: %v %v", got.Properties, err)
		}
		b.refused("InvalidParameter", "PUT", "Microsoft.Compute/sshPublicKeys/k", "2023-03-01",
			`{"location":"westeurope","properties":{"publicKey":"ssh-rsa AAAA"}}`)
	})
}
