package arm_test

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/fleet"
)

// bodyOf begins the change, answering reads first, and gives what was sent last.
func bodyOf(t *testing.T, ch fleet.Change, reads ...answer) sent {
	t.Helper()
	last := accepted()
	switch ch.(type) {
	case fleet.PatchModel, fleet.TagVersion:
		last.status, last.body = 200, `{"properties":{"provisioningState":"Updating"}}`
	case fleet.CreateSnapshot, fleet.CreateDisk, fleet.CreateVersion, fleet.CreateDefinition:
		last.status, last.body = 202, `{"properties":{"provisioningState":"Creating"}}`
	}
	c, s := newCloud(t, append(reads, last)...)
	if _, err := c.Begin(t.Context(), ch); err != nil {
		t.Fatal(err)
	}
	return s.sent[len(s.sent)-1]
}

func wantBody(t *testing.T, got sent, method string, path fleet.ResourceID, body string) {
	t.Helper()
	var want map[string]any
	if body != "" {
		if err := json.Unmarshal([]byte(body), &want); err != nil {
			t.Fatal(err)
		}
	}
	if got.method != method || got.path != string(path) || !reflect.DeepEqual(got.body, want) {
		data, _ := json.Marshal(got.body)
		t.Errorf("sent %s %s %s\nwant %s %s %s", got.method, got.path, data, method, path, body)
	}
}

func TestPatchModelOnTheWire(t *testing.T) {
	secret := fleet.NewSecret("#cloud-config\n")
	wantBody(t, bodyOf(t, fleet.PatchModel{Pool: pool, Image: fleet.ImageReference{ID: version}, CustomData: &secret}), "PATCH", pool, `{"properties":{"virtualMachineProfile":{
		"storageProfile":{"imageReference":{"id":"`+string(version)+`","publisher":null,"offer":null,"sku":null,"version":null}},
		"osProfile":{"customData":"I2Nsb3VkLWNvbmZpZwo="}}}}`)
	wantBody(t, bodyOf(t, fleet.PatchModel{Pool: pool, Image: fleet.ImageReference{ID: version}}), "PATCH", pool, `{"properties":{"virtualMachineProfile":{
		"storageProfile":{"imageReference":{"id":"`+string(version)+`","publisher":null,"offer":null,"sku":null,"version":null}}}}}`)
	wantBody(t, bodyOf(t, fleet.PatchModel{Pool: pool, Image: fleet.ImageReference{Publisher: "P", Offer: "O", SKU: "S", Version: "V", ExactVersion: "V"}}), "PATCH", pool,
		`{"properties":{"virtualMachineProfile":{"storageProfile":{"imageReference":{"id":null,"publisher":"P","offer":"O","sku":"S","version":"V"}}}}}`)
	wantBody(t, bodyOf(t, fleet.PatchModel{Pool: pool, CustomData: &secret}), "PATCH", pool, `{"properties":{"virtualMachineProfile":{"osProfile":{"customData":"I2Nsb3VkLWNvbmZpZwo="}}}}`)
}

func TestVirtualMachineOnTheWire(t *testing.T) {
	now := answer{status: 200, body: `{"id":"` + string(virtual) + `","name":"p_1a2b3c4d","properties":{"virtualMachineScaleSet":{"id":"` + string(pool) + `"}}}`}
	wantBody(t, bodyOf(t, fleet.ProtectInstance{Instance: virtual, Protection: fleet.Protection{ScaleIn: true}}, now, answer{status: 200, body: `{}`}), "PUT",
		pool+"/virtualMachines/p_1a2b3c4d", `{"properties":{"protectionPolicy":{"protectFromScaleIn":true,"protectFromScaleSetActions":false}}}`)
	wantBody(t, bodyOf(t, fleet.AttachDisk{Instance: virtual, Disk: disk, LUN: 7}, now), "POST", virtual+"/attachDetachDataDisks",
		`{"dataDisksToAttach":[{"diskId":"`+string(disk)+`","lun":7,"caching":"None"}]}`)
	stop := bodyOf(t, fleet.StopInstance{Instance: virtual})
	wantBody(t, stop, "POST", virtual+"/powerOff", "")
	if !strings.Contains(stop.query, "skipShutdown=false") {
		t.Errorf("stopped by %s", stop.query)
	}
	wantBody(t, bodyOf(t, fleet.StopInstance{Instance: virtual, Deallocate: true}), "POST", virtual+"/deallocate", "")
	wantBody(t, bodyOf(t, fleet.StartInstance{Instance: virtual}), "POST", virtual+"/start", "")
}

func TestInstanceOnTheWire(t *testing.T) {
	full := answer{status: 200, body: `{"id":"` + string(instance) + `","properties":{"protectionPolicy":{"protectFromScaleIn":true},
		"networkProfile":{"networkInterfaces":[{"id":"/nic"}]},
		"storageProfile":{"dataDisks":[{"lun":0,"managedDisk":{"id":"/volume"}}]}}}`}
	wantBody(t, bodyOf(t, fleet.ProtectInstance{Instance: instance, Protection: fleet.Protection{ScaleSetActions: true}}, full), "PUT", instance,
		`{"properties":{"protectionPolicy":{"protectFromScaleIn":false,"protectFromScaleSetActions":true}}}`)
	wantBody(t, bodyOf(t, fleet.ProtectInstance{Instance: instance, Protection: fleet.Protection{Off: true}}, full), "PUT", instance,
		`{"properties":{"protectionPolicy":{"protectFromScaleIn":false,"protectFromScaleSetActions":false}}}`)
	wantBody(t, bodyOf(t, fleet.ProtectInstance{Instance: instance}, full), "PUT", instance, `{"properties":{"protectionPolicy":null}}`)
	wantBody(t, bodyOf(t, fleet.AttachDisk{Instance: instance, Disk: disk, LUN: 7}, full), "POST", instance+"/attachDetachDataDisks",
		`{"dataDisksToAttach":[{"diskId":"`+string(disk)+`","lun":7,"caching":"None"}]}`)
	wantBody(t, bodyOf(t, fleet.DetachDisk{Instance: instance, Disk: "/VOLUME"}, full), "POST", instance+"/attachDetachDataDisks",
		`{"dataDisksToDetach":[{"diskId":"/volume"}]}`)
	wantBody(t, bodyOf(t, fleet.StopInstance{Instance: instance, Deallocate: true}), "POST", instance+"/deallocate", "")
	stop := bodyOf(t, fleet.StopInstance{Instance: instance})
	wantBody(t, stop, "POST", instance+"/powerOff", "")
	if !strings.Contains(stop.query, "skipShutdown=false") {
		t.Errorf("a stop must be in order: %s", stop.query)
	}

	for _, ch := range []fleet.Change{
		fleet.ProtectInstance{Instance: instance, Protection: fleet.Protection{ScaleIn: true}},
		fleet.AttachDisk{Instance: instance, Disk: "/volume", LUN: 0}, fleet.DetachDisk{Instance: instance, Disk: disk},
	} {
		c, _ := newCloud(t, full)
		if tok, err := c.Begin(t.Context(), ch); tok != "" || err != nil {
			t.Errorf("%s that is there already: %q, %v", ch.Verb(), tok, err)
		}
	}
	for _, ch := range []fleet.Change{
		fleet.AttachDisk{Instance: instance, Disk: "/volume", LUN: 1}, fleet.AttachDisk{Instance: instance, Disk: disk, LUN: 0},
	} {
		c, _ := newCloud(t, full)
		if _, err := c.Begin(t.Context(), ch); !fleet.Is(err, fleet.KindConflict) {
			t.Errorf("%+v: %v", ch, err)
		}
	}
	c, _ := newCloud(t, refusal(404, "ResourceNotFound", ""))
	if tok, err := c.Begin(t.Context(), fleet.DetachDisk{Instance: instance, Disk: disk}); tok != "" || err != nil {
		t.Errorf("detach from an instance that is gone: %q, %v", tok, err)
	}
}

func TestCreationsOnTheWire(t *testing.T) {
	missing := refusal(404, "ResourceNotFound", "")
	tags := map[string]string{"a": "b"}
	wantBody(t, bodyOf(t, fleet.CreateSnapshot{ID: snapshot, Location: "l", Source: disk, Tags: tags}, missing), "PUT", snapshot,
		`{"location":"l","tags":{"a":"b"},"properties":{"incremental":false,"creationData":{"createOption":"Copy","sourceResourceId":"`+string(disk)+`"}}}`)
	// A snapshot with a node's keys, and every disk, has export by SAS disabled.
	const closed = `"networkAccessPolicy":"DenyAll","publicNetworkAccess":"Disabled"`
	wantBody(t, bodyOf(t, fleet.CreateSnapshot{ID: snapshot, Location: "l", Source: disk, Closed: true}, missing), "PUT", snapshot,
		`{"location":"l","properties":{`+closed+`,"incremental":false,"creationData":{"createOption":"Copy","sourceResourceId":"`+string(disk)+`"}}}`)
	wantBody(t, bodyOf(t, fleet.CreateDisk{ID: disk, Location: "l", Zone: "2", SKU: "Premium_LRS", Source: snapshot, Tags: tags}, missing), "PUT", disk,
		`{"location":"l","zones":["2"],"sku":{"name":"Premium_LRS"},"tags":{"a":"b"},"properties":{`+closed+`,"creationData":{"createOption":"Copy","sourceResourceId":"`+string(snapshot)+`"}}}`)
	wantBody(t, bodyOf(t, fleet.CreateVersion{ID: version, Location: "l", Source: snapshot, Replicas: 3, StorageType: fleet.ZRS, ReplicationMode: fleet.ReplicationFull, ExcludeFromLatest: true, Tags: tags}, missing), "PUT", version,
		`{"location":"l","tags":{"a":"b"},"properties":{"storageProfile":{"osDiskImage":{"source":{"id":"`+string(snapshot)+`"}}},
		"publishingProfile":{"excludeFromLatest":true,"replicaCount":3,"replicationMode":"Full","storageAccountType":"Standard_ZRS",
		"targetRegions":[{"name":"l","regionalReplicaCount":3,"storageAccountType":"Standard_ZRS"}]}}}`)
	def := fleet.Definition{ID: image, Location: "l", Publisher: "p", Offer: "o", SKU: "s", OSState: "Generalized", Linux: true, Generation: "V2", Architecture: "x64"}
	wantBody(t, bodyOf(t, fleet.CreateDefinition{Definition: def}, missing), "PUT", image,
		`{"location":"l","properties":{"osType":"Linux","osState":"Generalized","hyperVGeneration":"V2","architecture":"x64",
		"identifier":{"publisher":"p","offer":"o","sku":"s"},"features":[{"name":"SecurityType","value":"Standard"}]}}`)
	def.Generation, def.Architecture, def.Controllers, def.Accelerated, def.PlanName = "V1", "Arm64", "SCSI, NVMe", true, "plan"
	wantBody(t, bodyOf(t, fleet.CreateDefinition{Definition: def}, missing), "PUT", image,
		`{"location":"l","properties":{"osType":"Linux","osState":"Generalized","hyperVGeneration":"V1","architecture":"Arm64",
		"identifier":{"publisher":"p","offer":"o","sku":"s"},"purchasePlan":{"name":"plan"},
		"features":[{"name":"DiskControllerTypes","value":"SCSI, NVMe"},{"name":"IsAcceleratedNetworkSupported","value":"True"}]}}`)
}

func TestTagsAreMerged(t *testing.T) {
	have := answer{status: 200, body: `{"tags":{"keep":"1","old":"2","drop":"3"}}`}
	wantBody(t, bodyOf(t, fleet.TagVersion{ID: version, Tags: map[string]string{"old": "4", "new": "5", "drop": "", "absent": ""}}, have), "PATCH", version,
		`{"tags":{"keep":"1","old":"4","new":"5","drop":null}}`)
	c, _ := newCloud(t, have)
	if tok, err := c.Begin(t.Context(), fleet.TagVersion{ID: version, Tags: map[string]string{"keep": "1", "absent": ""}}); tok != "" || err != nil {
		t.Errorf("%q, %v", tok, err)
	}
}

func TestCapacityOnTheWire(t *testing.T) {
	have := answer{status: 200, body: `{"sku":{"name":"Standard_D2s_v5","tier":"Standard","capacity":3}}`}
	updating := answer{status: 200, header: accepted().header, body: `{"properties":{"provisioningState":"Updating"}}`}
	c, s := newCloud(t, have, updating)
	if tok, err := c.Begin(t.Context(), fleet.SetCapacity{Pool: pool, Capacity: 5}); tok == "" || err != nil {
		t.Fatal(tok, err)
	}
	wantBody(t, s.sent[1], "PATCH", pool, `{"sku":{"name":"Standard_D2s_v5","tier":"Standard","capacity":5}}`)
	c, _ = newCloud(t, have)
	if tok, err := c.Begin(t.Context(), fleet.SetCapacity{Pool: pool, Capacity: 3}); tok != "" || err != nil {
		t.Errorf("%q, %v", tok, err)
	}
}

// A capacity or a size that the scale set has already is asked for again if Azure failed to bring it
// about, whether the change has an ETag or not: --grow would add nothing.
func TestOutcomeCapacityThatAzureFailedIsAskedForAgain(t *testing.T) {
	for _, state := range []string{"Failed", "Canceled", "Succeeded"} {
		for _, etag := range []string{"", `"1"`} {
			for _, change := range []fleet.Change{fleet.SetCapacity{Pool: pool, Capacity: 5, Etag: etag}, fleet.SetSize{Pool: pool, Size: "Standard_D2s_v5", Etag: etag}} {
				have := answer{status: 200, body: `{"etag":"\"1\"","sku":{"name":"Standard_D2s_v5","capacity":5},"properties":{"provisioningState":"` + state + `"}}`}
				answers := []answer{have, {status: 200, header: accepted().header, body: `{"properties":{"provisioningState":"Updating"}}`}}
				if state == "Succeeded" {
					answers = answers[:1]
				}
				c, s := newCloud(t, answers...)
				token, err := c.Begin(t.Context(), change)
				if err != nil || (token != "") != (state != "Succeeded") || len(s.answers) > 0 {
					t.Errorf("%s of a scale set that is %s, ETag %q: token %q, %v", change.Verb(), state, etag, token, err)
					continue
				}
				if got := s.sent[len(s.sent)-1]; state != "Succeeded" && got.header.Get("If-Match") != etag {
					t.Errorf("%s: If-Match %q, want %q", change.Verb(), got.header.Get("If-Match"), etag)
				}
			}
		}
	}
}

func TestDenied(t *testing.T) {
	c, s := newCloud(t,
		answer{status: 200, body: `{"value":[{"actions":["Microsoft.Compute/*/read"],"notActions":["microsoft.compute/DISKS/*"]}],"nextLink":"` + base + `/more?api-version=2022-04-01"}`},
		answer{status: 200, body: `{"value":[{"actions":["Microsoft.Compute/snapshots/*","*/poweroff/action"],"notActions":[]}]}`})
	got, err := c.Denied(t.Context(), fleet.ResourceID(group), []string{
		"Microsoft.Compute/disks/read", "Microsoft.Compute/galleries/read", "Microsoft.Compute/galleries/images/versions/read",
		"Microsoft.Compute/snapshots/write", "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/PowerOff/action", "Microsoft.Compute/disks/write"})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"Microsoft.Compute/disks/read", "Microsoft.Compute/disks/write"}; !slices.Equal(got, want) {
		t.Errorf("denied %v, want %v", got, want)
	}
	if len(s.sent) != 2 || !strings.HasSuffix(s.sent[0].path, "/resourceGroups/g/providers/Microsoft.Authorization/permissions") || s.sent[0].method != "GET" {
		t.Errorf("sent %+v", s.sent)
	}
	c, _ = newCloud(t)
	if _, err := c.Denied(t.Context(), "elsewhere", nil); !fleet.Is(err, fleet.KindInvalid) {
		t.Errorf("%v", err)
	}
}

// endlessSKUs is a catalogue that goes on for ever after the size.
type endlessSKUs struct {
	n      int
	read   int
	closed bool
	left   string
}

func (e *endlessSKUs) Read(p []byte) (int, error) {
	if e.left == "" {
		sku := `{"resourceType":"virtualMachines","name":"Standard_%d","locations":["westeurope"],"capabilities":[{"name":"CpuArchitectureType","value":"x64"},{"name":"HyperVGenerations","value":"V1,V2"},{"name":"MaxDataDiskCount","value":"8"}]}`
		e.left = fmt.Sprintf(`,`+sku, e.n)
		if e.n == 0 {
			e.left = `{"value":[` + e.left[1:]
		}
		e.n++
	}
	n := copy(p, e.left)
	e.left = e.left[n:]
	e.read += n
	return n, nil
}

func (e *endlessSKUs) Close() error { e.closed = true; return nil }

func TestSizeIsStreamed(t *testing.T) {
	body := &endlessSKUs{}
	c, s := newCloud(t, answer{status: 200, stream: body})
	got, err := c.Size(t.Context(), "5ca1ab1e-0000-4000-8000-000000000002", "West Europe", "standard_20")
	if err != nil {
		t.Fatal(err)
	}
	want := fleet.SizeInfo{Name: "Standard_20", Architecture: "x64", Generations: []string{"V1", "V2"}, Controllers: []string{"SCSI"}, MaxDataDisks: 8}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if body.read > 1<<15 || !body.closed {
		t.Errorf("%d bytes read, closed %v", body.read, body.closed)
	}
	if !strings.Contains(s.sent[0].query, "location%20eq%20%27West%20Europe%27") {
		t.Errorf("asked for all regions: %s", s.sent[0].query)
	}

	c, _ = newCloud(t, answer{status: 200, stream: &endlessSKUs{}})
	if _, err := c.Size(t.Context(), "s", "westeurope", "Standard_none"); !fleet.Is(err, fleet.KindInvalid) {
		t.Errorf("an endless catalogue: %v", err)
	}
	c, _ = newCloud(t, answer{status: 200, body: `{"x":1,"value":[],"nextLink":"` + base + `/skus2"}`}, answer{status: 200, body: `{"value":[
		{"resourceType":"disks","name":"Standard_A","locations":["l"]},{"resourceType":"virtualMachines","name":"Standard_A","locations":["other"]}]}`})
	if _, err := c.Size(t.Context(), "s", "l", "Standard_A"); !fleet.Is(err, fleet.KindNotFound) {
		t.Errorf("a size that is not there: %v", err)
	}
}

func TestSizesInOneRequest(t *testing.T) {
	c, s := newCloud(t, answer{status: 200, body: `{"value":[
		{"resourceType":"virtualMachines","name":"Standard_A","locations":["l"],"locationInfo":[{"location":"L","zones":["1","2","3"]}],
			"capabilities":[{"name":"LowPriorityCapable","value":"False"},{"name":"MaxResourceVolumeMB","value":"0"}],"restrictions":[
			{"type":"Zone","reasonCode":"NotAvailableForSubscription","restrictionInfo":{"locations":["l"],"zones":["2"]}},
			{"type":"Location","reasonCode":"QuotaId","restrictionInfo":{"locations":["other"]}}]},
		{"resourceType":"virtualMachines","name":"Standard_B","locations":["l"],
			"capabilities":[{"name":"LowPriorityCapable","value":"True"},{"name":"MaxResourceVolumeMB","value":"4096"}],
			"restrictions":[{"type":"Location","reasonCode":"QuotaId","restrictionInfo":{"locations":["l"]}}]},
		{"resourceType":"virtualMachines","name":"Standard_C","locations":["l"]}]}`})
	got, err := c.Sizes(t.Context(), "s", "l", "standard_a", "Standard_B", "Standard_B", "Standard_none")
	want := map[string]fleet.SizeInfo{
		"standard_a": {Name: "Standard_A", Controllers: []string{"SCSI"}, Zones: []string{"1", "3"}, NoSpot: true, NoTempDisk: true},
		"standard_b": {Name: "Standard_B", Controllers: []string{"SCSI"}, Restricted: "QuotaId"},
	}
	if err != nil || !reflect.DeepEqual(got, want) || len(s.sent) != 1 {
		t.Errorf("%+v, %v, %d requests", got, err, len(s.sent))
	}
}

func FuzzSizes(f *testing.F) {
	f.Add(`{"value":[{"name":"x","resourceType":"virtualMachines"}]}`)
	f.Add(`{"value":null}`)
	f.Add(`[]`)
	f.Add(`{"nextLink":null,"value":[]}`)
	f.Fuzz(func(t *testing.T, body string) {
		c, s := newCloud(t, answer{status: 200, stream: io.NopCloser(strings.NewReader(body))})
		s.answers = append(s.answers, answer{status: 404})
		got, err := c.Size(t.Context(), "s", "l", "x")
		s.answers = nil
		if err == nil && !strings.EqualFold(got.Name, "x") {
			t.Errorf("%q: %+v", body, got)
		}
	})
}
