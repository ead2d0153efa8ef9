package azsim

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// bodyTargets are the resources that FuzzBody sends bodies to: of each type one
// that is there and one that is not, and the actions that take a body.
func bodyTargets() []bodyTarget {
	const comp = "/providers/Microsoft.Compute"
	set := comp + "/virtualMachineScaleSets/p"
	into := func(model any) any { return model }
	return []bodyTarget{
		{comp + "/disks/d", into(new(armcompute.Disk))},
		{comp + "/disks/new", into(new(armcompute.Disk))},
		{comp + "/snapshots/s", into(new(armcompute.Snapshot))},
		{comp + "/snapshots/new", into(new(armcompute.Snapshot))},
		{comp + "/galleries/g", into(new(armcompute.Gallery))},
		{comp + "/galleries/new", into(new(armcompute.Gallery))},
		{comp + "/galleries/g/images/i", into(new(armcompute.GalleryImage))},
		{comp + "/galleries/g/images/new", into(new(armcompute.GalleryImage))},
		{comp + "/galleries/g/images/i/versions/1.0.0", into(new(armcompute.GalleryImageVersion))},
		{comp + "/galleries/g/images/i/versions/2.0.0", into(new(armcompute.GalleryImageVersion))},
		{set, into(new(armcompute.VirtualMachineScaleSet))},
		{comp + "/virtualMachineScaleSets/new", into(new(armcompute.VirtualMachineScaleSet))},
		{set + "/virtualMachines/0", into(new(armcompute.VirtualMachineScaleSetVM))},
		{set + "/extensions/e", into(new(armcompute.VirtualMachineScaleSetExtension))},
		{set + "/extensions/new", into(new(armcompute.VirtualMachineScaleSetExtension))},
		{set + "/virtualMachines/0/extensions/e", into(new(armcompute.VirtualMachineExtension))},
		{set + "/virtualMachines/0/extensions/new", into(new(armcompute.VirtualMachineExtension))},
		{"", into(new(map[string]any))}, // the resource group
		{set + "/virtualMachines/0/attachDetachDataDisks", nil},
		{set + "/virtualMachines/0/powerOff", nil},
		{set + "/virtualMachines/0/reimage", nil},
		{set + "/manualUpgrade", nil},
		{set + "/deallocate", nil},
		{set + "/delete", nil},
		{comp + "/disks/d/beginGetAccess", nil},
		{"/providers/Microsoft.Authorization/roleAssignments/00000000-0000-4000-8000-000000000009", into(new(map[string]any))},
	}
}

// A bodyTarget is a path below the resource group, and what a GET of it decodes
// into; nil for an action.
type bodyTarget struct {
	path  string
	model any
}

const bodySecret = "aHVudGVyMi1odW50ZXIy" // base64

// bodyWorld is a server with one of each: scale set p with an instance and an
// extension, disks d and other, snapshot s, gallery g, definition i, version 1.0.0.
func bodyWorld(t *testing.T) *bench {
	t.Helper()
	s := &Server{Substrate: newModelSubstrate(), Seed: 1}
	b := newBench(t, s, "")
	d := b.disk("d", 4)
	b.disk("other", 4)
	b.snapshot("s", *d.ID)
	b.image()
	v := versionOf("/subscriptions/" + DefaultSubscription + "/resourceGroups/" + b.group + "/providers/Microsoft.Compute/snapshots/s")
	p, err := b.beginVersion("1.0.0", v)
	await(b, p, err)
	set := pool(1)
	set.Properties.VirtualMachineProfile.OSProfile.CustomData = ptr(bodySecret)
	set.Properties.VirtualMachineProfile.ExtensionProfile = &armcompute.VirtualMachineScaleSetExtensionProfile{
		Extensions: []*armcompute.VirtualMachineScaleSetExtension{{Name: ptr("e"), Properties: &armcompute.VirtualMachineScaleSetExtensionProperties{
			Publisher: ptr("Microsoft.Azure.Extensions"), Type: ptr("CustomScript"), TypeHandlerVersion: ptr("2.1"),
			ProtectedSettings: map[string]any{"commandToExecute": bodySecret},
		}}},
	}
	q, err := b.f.NewVirtualMachineScaleSetsClient().BeginCreateOrUpdate(b.ctx, b.group, "p", set, nil)
	await(b, q, err)
	return b
}

// FuzzBody sends any body to any resource. The server answers, never with a 5xx
// and never by ending; what it began ends; and whatever it stored can be read
// back into the SDK's model, without what no answer of Azure ever shows, and be
// put back as it was read.
func FuzzBody(f *testing.F) {
	seed := func(target int, method, body string) { f.Add(uint8(target), method, body) }
	const where = `"location":"westeurope"`
	for i := range bodyTargets() {
		for _, method := range []string{"PUT", "PATCH", "POST"} {
			seed(i, method, `{}`)
			seed(i, method, `{`+where+`,"tags":{"a":"b"},"properties":{}}`)
		}
	}
	source := `"/subscriptions/` + DefaultSubscription + `/resourceGroups/azsim/providers/Microsoft.Compute/`
	for _, body := range []string{
		`{` + where + `,"sku":{"name":"Premium_LRS"},"zones":["1"],"properties":{"diskSizeGB":8,"creationData":{"createOption":"Empty"}}}`,
		`{` + where + `,"zones":[null],"properties":{"diskSizeGB":8,"creationData":{"createOption":"Empty"}}}`,
		`{` + where + `,"properties":{"creationData":{"createOption":"Copy","sourceResourceId":` + source + `snapshots/s"}}}`,
		`{` + where + `,"properties":{"creationData":{"createOption":"FromImage","galleryImageReference":{"id":` + source + `galleries/g/images/i/versions/1.0.0"}}}}`,
	} {
		seed(0, "PUT", body)
		seed(1, "PUT", body)
		seed(3, "PUT", body)
	}
	seed(3, "PUT", `{`+where+`,"properties":{"incremental":true,"creationData":{"createOption":"Copy","sourceResourceId":`+source+`disks/d"}}}`)
	seed(5, "PUT", `{`+where+`,"properties":{"sharingProfile":{"permissions":"Groups"}}}`)
	seed(7, "PUT", `{`+where+`,"properties":{"osType":"Linux","osState":"Specialized","hyperVGeneration":"V2","features":[null,{"name":"SecurityType","value":"TrustedLaunch"}],"identifier":{"publisher":"a","offer":"b","sku":"c"}}}`)
	version := `{` + where + `,"properties":{"safetyProfile":{"blockDeletionBeforeEndOfLife":true},"publishingProfile":{"endOfLifeDate":"2030-01-01T00:00:00Z","targetRegions":[{"name":"northeurope","regionalReplicaCount":2,"storageAccountType":"Standard_ZRS"}],"replicaCount":1},
		"storageProfile":{"osDiskImage":{"source":{"id":` + source + `snapshots/s"}}}}}`
	seed(9, "PUT", version)
	seed(9, "PUT", strings.Replace(version, `[{"name"`, `[null,{"name"`, 1))
	seed(8, "PATCH", `{"tags":null,"properties":{"publishingProfile":{"targetRegions":null}}}`)
	full, err := json.Marshal(pool(2))
	if err != nil {
		f.Fatal(err)
	}
	seed(11, "PUT", string(full))
	seed(11, "PUT", strings.Replace(string(full), `"virtualMachineProfile":{`, `"virtualMachineProfile":{"extensionProfile":{"extensions":[null]},"networkProfile":{"networkInterfaceConfigurations":[null]},`, 1))
	seed(10, "PATCH", `{"sku":{"capacity":3}}`)
	seed(10, "PATCH", `{"sku":{"capacity":1e300}}`)
	seed(10, "PATCH", `{"properties":{"virtualMachineProfile":{"storageProfile":{"imageReference":{"id":`+source+`galleries/g/images/i/versions/1.0.0","publisher":null,"offer":null,"sku":null,"version":null}},"osProfile":{"customData":"eA=="}}}}`)
	seed(10, "PATCH", `{"properties":{"virtualMachineProfile":{"extensionProfile":{"extensions":[{"name":"x","properties":{"publisher":"p","type":"t","typeHandlerVersion":"1","provisionAfterExtensions":["x"]}}]}}}}`)
	seed(10, "PATCH", `{"properties":{"virtualMachineProfile":{"storageProfile":{"dataDisks":[{"lun":0,"createOption":"Empty","diskSizeGB":4}],"osDisk":{"createOption":"FromImage","diffDiskSettings":{"option":"Local"},"caching":"ReadOnly"}}}}}`)
	seed(12, "PUT", `{`+where+`,"properties":{"protectionPolicy":{"protectFromScaleIn":true},"storageProfile":{"dataDisks":[{"lun":0,"createOption":"Attach","managedDisk":{"id":`+source+`disks/other"}}]}}}`)
	seed(12, "PATCH", `{"properties":{"storageProfile":{"dataDisks":[null]}}}`)
	seed(13, "PUT", `{"properties":{"publisher":"p","type":"t","typeHandlerVersion":"1.0","protectedSettings":{"a":"b"},"provisionAfterExtensions":[null,"e"]}}`)
	seed(16, "PUT", `{`+where+`,"properties":{"publisher":"p","type":"t","typeHandlerVersion":"1.0","settings":[1]}}`)
	seed(18, "POST", `{"dataDisksToAttach":[{"diskId":`+source+`disks/other","lun":1}]}`)
	seed(18, "POST", `{"dataDisksToAttach":[null],"dataDisksToDetach":[{"detachOption":"ForceDetach"},null]}`)
	seed(18, "POST", `{"dataDisksToAttach":[{"diskId":`+source+`disks/other","lun":-1},{"diskId":`+source+`disks/d","lun":2147483647}]}`)
	seed(21, "POST", `{"instanceIds":["0",null,"*"]}`)
	seed(23, "POST", `{"instanceIds":["0"]}`)
	seed(24, "POST", `{"access":"Read","durationInSeconds":-1}`)
	seed(25, "PUT", `{"properties":{"roleDefinitionId":"x","principalId":"y"}}`)

	f.Fuzz(func(t *testing.T, target uint8, method, body string) {
		targets := bodyTargets()
		at := targets[int(target)%len(targets)]
		switch method {
		case "PUT", "PATCH", "POST", "DELETE":
		default:
			return
		}
		synctest.Test(t, func(t *testing.T) {
			b := bodyWorld(t)
			defer b.s.Close()
			if status, answer := b.exchange(method, at.path, body); status >= 500 {
				t.Fatalf("%s %s: %d %s", method, at.path, status, answer)
			}
			time.Sleep(72 * time.Hour)
			synctest.Wait()
			b.readLists()
			for _, x := range targets {
				if x.model != nil && b.readBack(x) {
					time.Sleep(72 * time.Hour) // what one puts back changes the others
					synctest.Wait()
				}
			}
		})
	})
}

func (b *bench) exchange(method, path, body string) (status int, answer []byte) {
	b.Helper()
	version := "2021-04-01"
	id, err := parsePath("/subscriptions/" + DefaultSubscription + "/resourceGroups/" + b.group + path)
	if err != nil {
		b.Fatal(err)
	}
	if rt := b.s.types[strings.ToLower(id.typeName())]; rt != nil {
		version = rt.versions[len(rt.versions)-1]
	}
	resp := b.send(method, path, version, body)
	answer, err = io.ReadAll(resp.Body)
	if err != nil {
		b.Fatal(err)
	}
	return resp.StatusCode, answer
}

// readBack reads a resource, if it is there, and puts back what it read. It
// says whether that was taken.
func (b *bench) readBack(x bodyTarget) bool {
	b.Helper()
	status, got := b.exchange("GET", x.path, "")
	if status == http.StatusNotFound {
		return false
	}
	if status != http.StatusOK {
		b.Fatalf("%s cannot be read: %d %s", x.path, status, got)
	}
	if bytes.Contains(got, []byte(bodySecret)) {
		b.Errorf("%s shows a secret: %s", x.path, got)
	}
	if err := json.Unmarshal(got, x.model); err != nil {
		b.Fatalf("%s does not decode: %v\n%s", x.path, err, got)
	}
	if state := stateIn(got); state != "" && state != stateSucceeded && state != stateFailed {
		b.Errorf("%s is still %s after three days", x.path, state)
	}
	status, answer := b.exchange("PUT", x.path, string(got))
	if status >= 500 {
		b.Fatalf("%s cannot be put back: %d %s", x.path, status, answer)
	}
	return status < 300
}

func stateIn(body []byte) string {
	var x struct {
		Properties struct {
			ProvisioningState string `json:"provisioningState"`
		} `json:"properties"`
	}
	if json.Unmarshal(body, &x) != nil {
		return ""
	}
	return x.Properties.ProvisioningState
}

// readLists reads what lists render of every stored body.
func (b *bench) readLists() {
	b.Helper()
	const comp = "/providers/Microsoft.Compute"
	for _, path := range []string{
		comp + "/disks", comp + "/snapshots", comp + "/galleries", comp + "/galleries/g/images", comp + "/galleries/g/images/i/versions",
		comp + "/virtualMachineScaleSets", comp + "/virtualMachineScaleSets/p/virtualMachines", comp + "/virtualMachineScaleSets/p/extensions",
		comp + "/virtualMachineScaleSets/p/virtualMachines/0/instanceView", comp + "/virtualMachineScaleSets/p/instanceView", "/resources",
	} {
		if status, got := b.exchange("GET", path, ""); status >= 500 {
			b.Errorf("%s: %d %s", path, status, got)
		} else if bytes.Contains(got, []byte(bodySecret)) {
			b.Errorf("%s shows a secret: %s", path, got)
		}
	}
}
