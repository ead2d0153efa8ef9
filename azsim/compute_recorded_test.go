package azsim

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// A recordedFact is one answer of Azure's, from recordings of the Azure CLI's tests: NAME#n is
// the n-th exchange of NAME, counted from 0, in the recordings of 2024 where NAME begins with
// "test_", else in those of 2023.
type recordedFact struct {
	from    string
	request string // method, path below Microsoft.Compute, API version
	body    string
	status  int
	headers string   // "AL": Azure-AsyncOperation and Location
	want    []string // members: "properties.tier=P2"; "properties.x" alone is absent
	// ends is what the operation's document has at its end; "" does not wait for it.
	ends string
}

const ofCompute = "/subscriptions/" + DefaultSubscription + "/resourceGroups/" + DefaultResourceGroup + "/providers/Microsoft.Compute"

const smallDisk = `{"location":"westus","sku":{"name":"Premium_LRS"},"properties":{"hyperVGeneration":"V1",` +
	`"creationData":{"createOption":"Empty"},"diskSizeGB":5}}`

const copySnapshot = `{"location":"%s","sku":{"name":"Standard_LRS"},"properties":{"creationData":{"createOption":"%s",` +
	`"sourceResourceId":"` +
	ofCompute + `%s"},"incremental":%v}}`

const imageVersion = `{"location":"westus","properties":{"publishingProfile":{"targetRegions":[{"name":"westus"}]},"storageProfile":{%s}}}`

var diskFacts = []recordedFact{
	{"accelerated_network#1", "PUT /disks/d 2023-10-02", smallDisk, 202, "AL", []string{"properties.provisioningState=Updating"},
		"Succeeded d"},
	{"accelerated_network#3", "GET /disks/d 2023-10-02", "", 200, "", []string{
		"properties.diskState=Unattached", "properties.tier=P2", "properties.diskIOPSReadWrite=120", "properties.diskMBpsReadWrite=25",
		"properties.encryption.type=EncryptionAtRestWithPlatformKey", "sku.tier=Premium", "etag"}, ""},
	{"vm_managed_disk#5", "PUT /disks/d 2022-07-02", strings.Replace(strings.Replace(smallDisk, "Premium", "Standard", 1), `"disk`,
		`"tier":"P2","disk`, 1),
		202, "AL", []string{"properties.tier=P2"}, "Succeeded d"},
	{"vm_managed_disk#7", "GET /disks/d 2022-07-02", "", 200, "", []string{"properties.tier", "properties.diskIOPSReadWrite=500",
		"properties.diskMBpsReadWrite=60"}, ""},
	{"test_snapshot_incremental#7", "PUT /snapshots/s 2023-10-02", fmt.Sprintf(copySnapshot, "westus", "Copy", "/disks/d", true), 202, "AL",
		[]string{"properties.provisioningState=Updating"}, "Succeeded s"},
	{"test_snapshot_incremental#9", "GET /snapshots/s 2023-10-02", "", 200, "", []string{
		"properties.diskState=Unattached", "properties.encryption.type=EncryptionAtRestWithPlatformKey",
		"properties.networkAccessPolicy=AllowAll",
		"properties.publicNetworkAccess=Enabled", "properties.uniqueId=*", "properties.creationData.sourceUniqueId=*",
		"properties.diskSizeBytes=5368709120",
		"properties.incrementalSnapshotFamilyId=*", "properties.completionPercent", "etag"}, ""},
	{"test_vm_snapshot_copy_start_detection#9", "PUT /snapshots/full 2023-10-02",
		strings.Replace(fmt.Sprintf(copySnapshot, "westus", "Copy", "/disks/d", true), `,"incremental":true`, "", 1), 202, "AL",
		[]string{"properties.incremental=false"}, "Succeeded full"},
	{"test_snapshot_incremental#11", "PUT /snapshots/copy 2023-10-02", fmt.Sprintf(copySnapshot, "eastus", "CopyStart", "/snapshots/s",
		true), 202, "AL", nil, "Succeeded copy"},
	{"test_completion_percent#12", "GET /snapshots/copy 2023-10-02", "", 200, "", []string{
		"properties.provisioningState=Succeeded", "properties.completionPercent=0"}, ""},
	{"vm_snapshot_copy_start_detection#11", "PUT /snapshots/no 2022-03-02", fmt.Sprintf(copySnapshot, "eastus", "CopyStart", "/disks/d",
		false), 409, "",
		[]string{"error.code=OperationNotAllowed"}, ""},
	{"test_vm_snapshot_copy_start_detection#4", "PUT /snapshots/no 2023-10-02", fmt.Sprintf(copySnapshot, "westus", "Copy", "/disks/none",
		false), 404, "",
		[]string{"error.code=NotFound", "error.message=Resource none is not found."}, ""},
	{"test_vm_snapshot_copy_start_detection#12", "GET /snapshots/no 2023-10-02", "", 404, "", []string{"error.code=ResourceNotFound"}, ""},
	{"test_vm_trusted_launch_os_disk_secure_upload#1", "PUT /disks/up 2022-07-02", `{"location":"westus",
		"sku":{"name":"Standard_LRS"},"properties":{
		"osType":"Windows","hyperVGeneration":"V2","creationData":{"createOption":"UploadPreparedSecure","uploadSizeBytes":34359738880},
		"securityProfile":{"securityType":"TrustedLaunch"}}}`, 202, "AL", nil, "Succeeded up"},
	{"vm_trusted_launch_os_disk_secure_upload#3", "GET /disks/up 2022-07-02", "", 200, "", []string{
		"properties.diskState=ReadyToUpload", "properties.diskSizeGB", "properties.diskSizeBytes"}, ""},
	{"test_vm_trusted_launch_os_disk_secure_upload#5", "POST /disks/up/beginGetAccess 2022-07-02",
		`{"access":"Write","durationInSeconds":86400,"getSecureVMGuestStateSAS":true}`, 202, "AL", nil, "Succeeded "},
	{"snapshot_access#4", "POST /snapshots/s/beginGetAccess 2022-03-02", `{"access":"Read","durationInSeconds":600}`, 202, "AL", nil,
		"Succeeded "},
	{"snapshot_access#7", "GET /snapshots/s 2022-03-02", "", 200, "", []string{"properties.diskState=ActiveSAS"}, ""},
	{"sample.Compute-CreateVirtualMachineUsingSpecializedDiskFromSnapshotTest#58", "DELETE /snapshots/full 2023-10-02", "", 202, "AL", nil,
		"Succeeded "},
}

var galleryFacts = []recordedFact{
	{"gallery_e2e#1", "PUT /galleries/g 2023-07-03", `{"location":"westus"}`, 201, "A", []string{"properties.provisioningState=Creating"},
		"Succeeded "},
	{"update_gallery_permissions#9", "PUT /galleries/g 2021-10-01", `{"location":"westus"}`, 200, "A",
		[]string{"properties.provisioningState=Succeeded"}, "Succeeded "},
	{"test_create_image_version_with_region_cvm_encryption#5", "PUT /galleries/g/images/i 2021-10-01", `{"location":"westus","properties":{
		"osType":"Windows","osState":"Specialized","hyperVGeneration":"V2","identifier":{"publisher":"p","offer":"o","sku":"s"},
		"features":[{"name":"SecurityType","value":"ConfidentialVm"}]}}`, 201, "A",
		[]string{"properties.provisioningState=Creating", "properties.architecture=x64", "properties.features.0.value=ConfidentialVM"},
		"Succeeded "},
	{"accelerated_network#1", "PUT /disks/d 2023-10-02", smallDisk, 202, "AL", nil, "Succeeded d"},
	{"test_snapshot_incremental#7", "PUT /snapshots/s 2023-10-02", fmt.Sprintf(copySnapshot, "westus", "Copy", "/disks/d", false), 202,
		"AL", nil, "Succeeded s"},
	{"test_gallery_specialized#41", "PUT /galleries/g/images/i/versions/1.0.0 2023-07-03",
		fmt.Sprintf(imageVersion, `"osDiskImage":{"source":{"id":"`+ofCompute+`/snapshots/s"}}`), 201, "A", []string{
			"properties.provisioningState=Creating", "properties.publishingProfile.targetRegions.0.name=West US",
			"properties.publishingProfile.targetRegions.0.regionalReplicaCount=1",
			"properties.publishingProfile.targetRegions.0.storageAccountType=Standard_LRS",
			"properties.publishingProfile.publishedDate=*", "properties.publishingProfile.excludeFromLatest=false",
			"properties.safetyProfile.reportedForPolicyViolation=false", "properties.safetyProfile.allowDeletionOfReplicatedLocations=false",
			"properties.storageProfile.osDiskImage.hostCaching=ReadWrite", "properties.storageProfile.osDiskImage.sizeInGB"}, "Succeeded "},
	{"test_gallery_specialized#52", "GET /galleries/g/images/i/versions/1.0.0 2023-07-03", "", 200, "", []string{
		"properties.storageProfile.osDiskImage.sizeInGB=5", "properties.replicationStatus"}, ""},
	{"test_gallery_e2e#57", "PUT /galleries/g/images/i/versions/1.0.0 2023-07-03", strings.Replace(
		fmt.Sprintf(imageVersion, ""), `{"name":"westus"}`, `{"name":"eastus"},{"name":"westus"}`, 1), 200, "A",
		[]string{"properties.provisioningState=Updating", "properties.storageProfile.osDiskImage.source.id=*"}, "Succeeded "},
	{"test_gallery_e2e#105", "DELETE /galleries/g/images/i/versions/1.0.0 2023-07-03", "", 202, "AL", nil, "Succeeded "},
	{"vm_managed_disk#35", "PUT /images/m 2022-11-01",
		`{"location":"westus","properties":{"storageProfile":{"osDisk":{"snapshot":{"id":"` + ofCompute +
			`/snapshots/s"},"osType":"Linux","osState":"Generalized"},"dataDisks":[{"lun":1,"managedDisk":{"id":"` + ofCompute +
			`/disks/d"}}]}}}`, 201, "A",
		[]string{"properties.provisioningState=Creating", "properties.hyperVGeneration=V1", "properties.storageProfile.osDisk.caching=None",
			"properties.storageProfile.osDisk.storageAccountType=Standard_LRS",
			"properties.storageProfile.dataDisks.0.storageAccountType=Standard_LRS"}, "Succeeded "},
	{"vm_managed_disk#37", "GET /images/m 2022-11-01", "", 200, "", []string{
		"properties.storageProfile.osDisk.diskSizeGB=5", "properties.storageProfile.dataDisks.0.diskSizeGB=5"}, ""},
}

func TestRecordedFacts(t *testing.T) {
	for name, facts := range map[string][]recordedFact{"disks": diskFacts, "galleries": galleryFacts} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(s *Server) { s.Locations = []Location{{Name: "westus"}, {Name: "eastus"}} }, func(b *bench) {
				for _, f := range facts {
					b.holds(f)
				}
			})
		})
	}
}

func (b *bench) holds(f recordedFact) {
	b.Helper()
	parts := strings.Fields(f.request)
	r := b.sendAbsolute(parts[0], ofCompute+parts[1], parts[2], f.body)
	got := b.bodyOf(r)
	wrong := func(what string, have any) { b.Errorf("%s (%s): want %s, got %v", f.from, f.request, what, have) }
	if r.StatusCode != f.status {
		wrong(fmt.Sprint(f.status), fmt.Sprint(r.StatusCode, got))
	}
	headers := ""
	for _, h := range []string{"Azure-AsyncOperation", "Location"} {
		if r.Header.Get(h) != "" {
			headers += h[:1]
		}
	}
	if headers != f.headers {
		wrong("headers "+f.headers, headers)
	}
	for _, want := range f.want {
		path, value, there := strings.Cut(want, "=")
		have := memberAt(got, path)
		if there && (value == "*" && have == nil || value != "*" && fmt.Sprint(have) != value) || !there && have != nil {
			wrong(want, have)
		}
	}
	for f.ends != "" {
		time.Sleep(time.Second)
		status := b.bodyOf(b.follow(r.Header.Get("Azure-AsyncOperation")))
		if status["status"] == "InProgress" {
			continue
		}
		if ends := fmt.Sprint(status["status"], " ", text(status, "properties", "output", "name")); ends != f.ends {
			wrong("the end "+f.ends, status)
		}
		return
	}
}

func (b *bench) bodyOf(r *http.Response) object {
	b.Helper()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		b.Fatal(err)
	}
	if len(data) == 0 {
		return object{}
	}
	tree, err := decodeJSON(data)
	if err != nil {
		b.Fatal(err)
	}
	return tree.(map[string]any)
}

// follow asks at the URL of an operation as it is.
func (b *bench) follow(operation string) *http.Response {
	b.Helper()
	at, err := url.Parse(operation)
	if err != nil {
		b.Fatal(err)
	}
	return b.sendAbsolute("GET", at.RequestURI(), "", "")
}
