package azsim

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

const (
	machineVersion = "2022-11-01"
	serverPath     = "Microsoft.Compute/virtualMachines/server"
	blobURI        = "https://blobs.blob.core.windows.net/vhds/os.vhd"
)

// withNIC runs the test on a server without a Substrate, with the network of machineBody.
func withNIC(t *testing.T, test func(b *bench)) {
	t.Helper()
	inVirtualTime(t, nil, func(b *bench) {
		network(b)
		b.made("PUT", "Microsoft.Network/networkInterfaces/nic", netVersion, interfaceBody("servers", "", ""))
		test(b)
	})
}

// shows checks members of a body, by their paths; a number in a path is an index.
func (b *bench) shows(body any, want map[string]string) {
	b.Helper()
	for path, value := range want {
		v := body
		for step := range strings.SplitSeq(path, ".") {
			if list, isList := v.([]any); isList {
				var i int
				if _, err := fmt.Sscan(step, &i); err != nil || i >= len(list) {
					v = nil
					break
				}
				v = list[i]
				continue
			}
			v = at(v, step)
		}
		if got := fmt.Sprint(v); got != value {
			b.Errorf("%s is %s, want %s", path, got, value)
		}
	}
}

// blobMachine is machineBody with page blobs for disks.
func blobMachine() string {
	return strings.Replace(machineBody(""), `"osDisk":{"name":"server-os","createOption":"FromImage"}`,
		`"osDisk":{"name":"os","createOption":"fromImage","vhd":{"uri":"`+blobURI+`"}},
		"dataDisks":[{"lun":0,"name":"one","createOption":"empty","diskSizeGB":5,"vhd":{"uri":"https://blobs.blob.core.windows.net/vhds/one.vhd"}}]`, 1)
}

// The first answer and a GET show what Azure fills in.
func TestMachineShowsWhatAzureFillsIn(t *testing.T) {
	withNIC(t, func(b *bench) {
		first := b.made("PUT", serverPath, machineVersion, machineBody(""))
		b.shows(first, map[string]string{
			"properties.provisioningState": "Creating", "properties.osProfile.secrets": "[]", "properties.osProfile.allowExtensionOperations": "true",
			"properties.osProfile.requireGuestProvisionSignal": "true", "properties.osProfile.linuxConfiguration.provisionVMAgent": "true",
			"properties.osProfile.linuxConfiguration.patchSettings.patchMode": "ImageDefault", "properties.storageProfile.osDisk.osType": "Linux",
			"properties.storageProfile.osDisk.deleteOption": "Detach", "properties.storageProfile.osDisk.diskSizeGB": "30", "properties.storageProfile.dataDisks": "[]",
			"properties.osProfile.customData": "<nil>", "properties.storageProfile.imageReference.exactVersion": "<nil>",
		})
		b.shows(b.get(serverPath, machineVersion), map[string]string{
			"properties.provisioningState": "Succeeded", "properties.storageProfile.osDisk.name": "server-os",
			"properties.storageProfile.osDisk.managedDisk.storageAccountType": "Premium_LRS", "properties.storageProfile.imageReference.exactVersion": platformLatest,
		})
		// A change is in the first answer, and what it does not name stays.
		second := b.made("PATCH", serverPath, machineVersion, `{"properties":{"diagnosticsProfile":{"bootDiagnostics":{"enabled":true}},"storageProfile":{
			"dataDisks":[{"lun":2,"name":"data","createOption":"Empty","diskSizeGB":4}]}}}`)
		b.shows(second, map[string]string{
			"properties.provisioningState": "Updating", "properties.storageProfile.dataDisks.0.name": "data", "properties.storageProfile.dataDisks.0.toBeDetached": "false",
			"properties.storageProfile.dataDisks.0.caching": "None", "properties.osProfile.adminUsername": "azureuser", "properties.diagnosticsProfile.bootDiagnostics.enabled": "true",
		})
		b.shows(b.get("Microsoft.Compute/disks/data", "2022-07-02"), map[string]string{"properties.diskState": "Attached", "properties.diskSizeGB": "4"})
		for _, null := range []string{`{"properties":null}`, `{"properties":{"storageProfile":null}}`} {
			b.refused("InvalidParameter", "PATCH", serverPath, machineVersion, null)
		}
		third := b.made("PUT", serverPath, machineVersion, strings.Replace(machineBody(""), `"osDisk":`, `"dataDisks":[],"osDisk":`, 1))
		b.shows(third, map[string]string{"properties.storageProfile.dataDisks.0.toBeDetached": "true"})
		b.shows(b.get(serverPath, machineVersion), map[string]string{"properties.storageProfile.dataDisks": "[]"})
		b.shows(b.get("Microsoft.Compute/disks/data", "2022-07-02"), map[string]string{"properties.diskState": "Unattached"})
	})
}

// A machine whose disks are page blobs shows them, has no disks, and can be converted.
func TestMachineWithBlobsIsConverted(t *testing.T) {
	withNIC(t, func(b *bench) {
		b.made("PUT", serverPath, machineVersion, blobMachine())
		b.shows(b.get(serverPath, machineVersion), map[string]string{
			"properties.storageProfile.osDisk.vhd.uri": blobURI, "properties.storageProfile.osDisk.name": "os", "properties.storageProfile.osDisk.managedDisk": "<nil>",
			"properties.storageProfile.osDisk.createOption": "FromImage", "properties.storageProfile.dataDisks.0.diskSizeGB": "5",
		})
		b.shows(b.get("Microsoft.Compute/disks", "2022-07-02"), map[string]string{"value": "[]"})
		b.refused("OperationNotAllowed", "POST", serverPath+"/convertToManagedDisks", machineVersion, "")
		b.made("POST", serverPath+"/deallocate", machineVersion, "")
		b.made("POST", serverPath+"/convertToManagedDisks", machineVersion, "")
		b.shows(b.get(serverPath, machineVersion), map[string]string{
			"properties.storageProfile.osDisk.vhd": "<nil>", "properties.storageProfile.osDisk.managedDisk.storageAccountType": "Standard_LRS",
			"properties.storageProfile.dataDisks.0.vhd": "<nil>",
		})
		if list, _ := b.get("Microsoft.Compute/disks", "2022-07-02")["value"].([]any); len(list) != 2 {
			t.Errorf("%d disks, want 2", len(list))
		}
		b.made("DELETE", serverPath, machineVersion, "")
		// A machine that attaches a blob finds the size that it was made with.
		b.refused("InvalidParameter", "PUT", serverPath, machineVersion, strings.Replace(blobMachine(), `"createOption":"fromImage"`, `"createOption":"attach","osType":"Linux"`, 1))
		b.made("PUT", serverPath, machineVersion, `{"location":"westeurope","properties":{"hardwareProfile":{"vmSize":"Standard_D2s_v5"},"storageProfile":{
			"osDisk":{"name":"os","createOption":"Attach","osType":"Linux","vhd":{"uri":"`+blobURI+`"}},
			"dataDisks":[{"lun":1,"name":"one","createOption":"Attach","vhd":{"uri":"https://blobs.blob.core.windows.net/vhds/one.vhd"}}]},
			"networkProfile":{"networkInterfaces":[{"id":"`+groupID("Microsoft.Network/networkInterfaces/nic")+`"}]}}}`)
		b.shows(b.get(serverPath, machineVersion), map[string]string{"properties.storageProfile.dataDisks.0.diskSizeGB": "5"})
	})
	withServerNIC(t, func(b *bench, _ *modelSubstrate, _ *armcompute.VirtualMachinesClient) {
		b.refused("NotImplemented", "PUT", serverPath, machineVersion, blobMachine())
	})
}

// Hibernation is refused, and the machine goes on to run.
func TestHibernationIsRefused(t *testing.T) {
	withNIC(t, func(b *bench) {
		b.made("PUT", serverPath, machineVersion, machineBody(""))
		b.refused("NotSimulated", "POST", serverPath+"/deallocate?hibernate=true", machineVersion, "")
		b.shows(b.get(serverPath+"/instanceView", machineVersion), map[string]string{"statuses.1.code": "PowerState/running"})
		b.made("POST", serverPath+"/deallocate?hibernate=false", machineVersion, "")
		b.shows(b.get(serverPath+"/instanceView", machineVersion), map[string]string{"statuses.1.code": "PowerState/deallocated"})
	})
}

// An image can be made of a machine whose disks are page blobs. What is made of the image has
// the image's kind of disk, and disks have Azure's spelling.
func TestImageOfBlobsSaysTheKindOfDisk(t *testing.T) {
	withNIC(t, func(b *bench) {
		b.made("PUT", serverPath, machineVersion, blobMachine())
		b.made("POST", serverPath+"/deallocate", machineVersion, "")
		b.made("POST", serverPath+"/generalize", machineVersion, "")
		const imagePath = "Microsoft.Compute/images/blobs"
		b.made("PUT", imagePath, machineVersion, `{"location":"westeurope","properties":{"sourceVirtualMachine":{"id":"`+groupID(serverPath)+`"}}}`)
		b.shows(b.get(imagePath, machineVersion), map[string]string{
			"properties.storageProfile.osDisk.blobUri": blobURI, "properties.storageProfile.osDisk.managedDisk": "<nil>",
			"properties.storageProfile.osDisk.storageAccountType": "Standard_LRS", "properties.storageProfile.dataDisks.0.diskSizeGB": "5",
		})
		b.made("DELETE", serverPath, machineVersion, "")
		before, after, _ := strings.Cut(machineBody(""), `"publisher":"Debian","offer":"debian-12","sku":"12-gen2","version":"latest"},`)
		body := before + `"id":"` + groupID(imagePath) + `"},"dataDisks":[{"lun":7,"createOption":"empty","diskSizeGB":1,
			"managedDisk":{"storageAccountType":"standardssd_lrs"}}],` + after
		b.made("PUT", serverPath, machineVersion, body)
		b.shows(b.get(serverPath, machineVersion), map[string]string{
			"properties.storageProfile.osDisk.managedDisk.storageAccountType":      "Standard_LRS",
			"properties.storageProfile.dataDisks.0.managedDisk.storageAccountType": "StandardSSD_LRS",
			"properties.storageProfile.dataDisks.1.managedDisk.storageAccountType": "Standard_LRS",
		})
		b.shows(b.get("Microsoft.Compute/disks/server-os", "2022-07-02"), map[string]string{"sku.name": "Standard_LRS"})
		set := `{"location":"westeurope","sku":{"name":"Standard_D2s_v5","capacity":1},"properties":{"upgradePolicy":{"mode":"Manual"},
			"virtualMachineProfile":{"storageProfile":{"imageReference":{"id":"` + groupID(imagePath) + `"},
				"dataDisks":[{"lun":0,"createOption":"fromImage"}]},
			"osProfile":{"computerNamePrefix":"s","adminUsername":"azureuser","adminPassword":"Secret-of-a-test1"},
			"networkProfile":{"networkInterfaceConfigurations":[{"name":"nic","properties":{"primary":true,"ipConfigurations":[
				{"name":"ip","properties":{"subnet":{"id":"` + groupID("Microsoft.Network/virtualNetworks/v/subnets/servers") + `"}}}]}}]}}}}`
		b.made("PUT", "Microsoft.Compute/virtualMachineScaleSets/s", machineVersion, set)
		const profile = "properties.virtualMachineProfile.storageProfile."
		b.shows(b.get("Microsoft.Compute/virtualMachineScaleSets/s", machineVersion), map[string]string{
			profile + "osDisk.managedDisk.storageAccountType":      "Standard_LRS",
			profile + "dataDisks.0.managedDisk.storageAccountType": "Standard_LRS", profile + "dataDisks.0.diskSizeGB": "5",
		})
		b.shows(b.get("Microsoft.Compute/virtualMachineScaleSets/s/virtualMachines", machineVersion), map[string]string{
			"value.0.properties.storageProfile.dataDisks.0.createOption": "FromImage",
		})
	})
}

// A machine that boots from a disk is not provisioned again, and can change it for another
// while it does not run.
func TestMachineBootsFromADisk(t *testing.T) {
	withServerNIC(t, func(b *bench, sub *modelSubstrate, _ *armcompute.VirtualMachinesClient) {
		b.putVM("server", b.plainVM("nic"))
		got, err := b.f.NewVirtualMachinesClient().Get(b.ctx, b.group, "server", nil)
		if err != nil {
			t.Fatal(err)
		}
		disk := val(got.Properties.StorageProfile.OSDisk.ManagedDisk.ID)
		b.deleteVM("server")
		vm := b.plainVM("nic")
		vm.Properties.StorageProfile = &armcompute.StorageProfile{OSDisk: &armcompute.OSDisk{CreateOption: ptr(armcompute.DiskCreateOptionTypesAttach),
			OSType: ptr(armcompute.OperatingSystemTypesLinux), ManagedDisk: &armcompute.ManagedDiskParameters{ID: &disk}}}
		vms := b.f.NewVirtualMachinesClient()
		p, err := vms.BeginCreateOrUpdate(b.ctx, b.group, "server", vm, nil)
		awaitRefusal(b, "InvalidParameter", p, err) // it has an osProfile
		vm.Properties.OSProfile = nil
		b.putVM("server", vm)
		if c := sub.computer(t, "server"); c.Provision || !strings.EqualFold(string(c.OSDisk), disk) {
			t.Errorf("boots %s, provision %v", c.OSDisk, c.Provision)
		}
		other := b.plainVM("nic2")
		other.Properties.StorageProfile.OSDisk.DeleteOption = ptr(armcompute.DiskDeleteOptionTypesDetach)
		b.putVM("other", other)
		swap := vm
		next := val(b.putVM("other", other).Properties.StorageProfile.OSDisk.ManagedDisk.ID)
		swap.Properties.StorageProfile.OSDisk.ManagedDisk.ID = &next
		p, err = vms.BeginCreateOrUpdate(b.ctx, b.group, "server", swap, nil)
		awaitRefusal(b, "ConflictingUserInput", p, err)
		b.deleteVM("other")
		p, err = vms.BeginCreateOrUpdate(b.ctx, b.group, "server", swap, nil)
		awaitRefusal(b, "OperationNotAllowed", p, err) // it runs
		stop, err := vms.BeginDeallocate(b.ctx, b.group, "server", nil)
		await(b, stop, err)
		b.putVM("server", swap)
		start, err := vms.BeginStart(b.ctx, b.group, "server", nil)
		await(b, start, err)
		if c := sub.computer(t, "server"); !strings.EqualFold(string(c.OSDisk), next) {
			t.Errorf("boots %s, want %s", c.OSDisk, next)
		}
	})
}

func TestGeneralizedMachineIsNotStarted(t *testing.T) {
	withNIC(t, func(b *bench) {
		b.made("PUT", serverPath, machineVersion, machineBody(""))
		b.refused("OperationNotAllowed", "POST", serverPath+"/generalize", machineVersion, "")
		b.made("POST", serverPath+"/deallocate", machineVersion, "")
		r := b.send("POST", "/providers/"+serverPath+"/generalize", machineVersion, "")
		if r.StatusCode != http.StatusOK || r.Header.Get("Azure-AsyncOperation") != "" {
			t.Errorf("generalize: %s %v", r.Status, r.Header)
		}
		b.shows(b.get(serverPath+"/instanceView", machineVersion), map[string]string{"statuses.0.code": "OSState/generalized", "statuses.2.code": "PowerState/deallocated"})
		b.refused("OperationNotAllowed", "POST", serverPath+"/start", machineVersion, "")
		b.made("DELETE", serverPath, machineVersion, "")
	})
}

func TestCommandRunsOnAMachine(t *testing.T) {
	const script = `{"commandId":"RunShellScript","script":["true"]}`
	withNIC(t, func(b *bench) {
		b.made("PUT", serverPath, machineVersion, machineBody(""))
		r := b.send("POST", "/providers/"+serverPath+"/runCommand", machineVersion, script)
		time.Sleep(10 * time.Minute)
		done := b.sendAbsolute("GET", strings.TrimPrefix(r.Header.Get("Location"), InProcess), "", "")
		if r.StatusCode != http.StatusAccepted || done.StatusCode != http.StatusOK {
			t.Errorf("begin %s, end %s", r.Status, done.Status)
		}
		b.refused("NotImplemented", "POST", serverPath+"/runCommand", machineVersion, `{"commandId":"EnableRemotePS"}`)
		b.refused("InvalidParameter", "POST", serverPath+"/runCommand", machineVersion, `{}`)
		b.made("POST", serverPath+"/deallocate", machineVersion, "")
		b.refused("OperationNotAllowed", "POST", serverPath+"/runCommand", machineVersion, script)
	})
	withServerNIC(t, func(b *bench, _ *modelSubstrate, _ *armcompute.VirtualMachinesClient) {
		b.putVM("server", b.plainVM("nic"))
		b.refused("NotImplemented", "POST", serverPath+"/runCommand", machineVersion, script)
	})
}

// The marketplace's names tell the system, and the size of its disk.
func TestPlatformImagesSystem(t *testing.T) {
	for _, want := range []struct {
		publisher, offer, sku, os string
		sizeGB                    int32
		name                      string
	}{
		{"Canonical", "UbuntuServer", "18.04-LTS", "Linux", 30, "ubuntu"},
		{"Canonical", "0001-com-ubuntu-server-jammy", "22_04-lts-gen2", "Linux", 30, "ubuntu"},
		{"OpenLogic", "CentOS", "7.5", "Linux", 30, "centos"},
		{"Debian", "debian-10", "10", "Linux", 30, "debian"},
		{"RedHat", "RHEL", "7-LVM", "Linux", 64, "redhat"},
		{"MicrosoftWindowsServer", "WindowsServer", "2012-R2-Datacenter", "Windows", 127, "Windows Server 2012 R2 Datacenter"},
		{"MicrosoftWindowsServer", "WindowsServer", "2019-Datacenter-smalldisk", "Windows", 30, "Windows Server 2019 Datacenter smalldisk"},
		{"MicrosoftSQLServer", "sql2019-ws2019", "standard", "Windows", 127, "Windows Server 2022 Datacenter"},
	} {
		img, err := (&Server{}).platformImage(&armcompute.ImageReference{Publisher: &want.publisher, Offer: &want.offer, SKU: &want.sku, Version: ptr("latest")})
		if err != nil {
			t.Fatal(err)
		}
		if name, _ := img.system(); string(img.os()) != want.os || img.sizeGB != want.sizeGB || name != want.name {
			t.Errorf("%s:%s:%s is %s %q with %d GB", want.publisher, want.offer, want.sku, img.os(), name, img.sizeGB)
		}
	}
}
