package arm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/fleet"
)

// A parrot answers every request alike, up to a number of them; it is a
// policy.Transporter.
type parrot struct {
	status int
	header http.Header
	body   string
	most   int
	sent   []*http.Request
}

func (p *parrot) Do(r *http.Request) (*http.Response, error) {
	p.sent = append(p.sent, r)
	if len(p.sent) > p.most {
		return nil, io.ErrUnexpectedEOF
	}
	return &http.Response{
		StatusCode: p.status, Status: http.StatusText(p.status), Header: p.header.Clone(),
		Body: io.NopCloser(strings.NewReader(p.body)), Request: r,
	}, nil
}

func (p *parrot) cloud(t *testing.T) *arm.Cloud {
	t.Helper()
	c, err := arm.New(arm.Options{
		Cloud: cloud.Configuration{
			ActiveDirectoryAuthorityHost: base + "/",
			Services:                     map[cloud.ServiceName]cloud.ServiceConfiguration{cloud.ResourceManager: {Endpoint: base, Audience: base}},
		},
		Credential: static{}, Transport: p, MaxBody: 1 << 16,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// wantHome fails where a request left Azure Resource Manager, or a resource
// group: within is the group's id, "" for any.
func (p *parrot) wantHome(t *testing.T, within fleet.ResourceID) {
	t.Helper()
	for _, r := range p.sent {
		if host := strings.ToLower(r.URL.Host); r.URL.Scheme != "https" || host != "arm.invalid" && !strings.HasSuffix(host, ".arm.invalid") || r.URL.User != nil {
			t.Errorf("sent to %s", r.URL)
		}
		if within == "" {
			continue
		}
		escaped := strings.ToLower(r.URL.EscapedPath())
		if r.URL.Path != path.Clean(r.URL.Path) || strings.Contains(escaped, "%2f") || strings.Contains(escaped, "%25") || strings.Contains(r.URL.Path, `\`) {
			t.Errorf("an ambiguous path: %s", r.URL)
		}
		if !strings.HasPrefix(strings.ToLower(r.URL.Path)+"/", strings.ToLower(string(within))+"/") {
			t.Errorf("%s is not in %s", r.URL.Path, within)
		}
	}
}

// readers are all reads, each with what it gives.
func readers() []func(context.Context, azure.Cloud) (any, error) {
	return []func(context.Context, azure.Cloud) (any, error){
		func(ctx context.Context, c azure.Cloud) (any, error) { return c.Pool(ctx, pool) },
		func(ctx context.Context, c azure.Cloud) (any, error) { return c.Instances(ctx, pool) },
		func(ctx context.Context, c azure.Cloud) (any, error) { return c.Instance(ctx, instance) },
		func(ctx context.Context, c azure.Cloud) (any, error) { return c.Disk(ctx, disk) },
		func(ctx context.Context, c azure.Cloud) (any, error) { return c.Snapshot(ctx, snapshot) },
		func(ctx context.Context, c azure.Cloud) (any, error) { return c.Gallery(ctx, gallery) },
		func(ctx context.Context, c azure.Cloud) (any, error) { return c.Definition(ctx, image) },
		func(ctx context.Context, c azure.Cloud) (any, error) { return c.Versions(ctx, image) },
		func(ctx context.Context, c azure.Cloud) (any, error) { return c.Version(ctx, version) },
		func(ctx context.Context, c azure.Cloud) (any, error) { return c.Uses(ctx, image) },
		func(ctx context.Context, c azure.Cloud) (any, error) { return c.Usages(ctx, "s", "l") },
		func(ctx context.Context, c azure.Cloud) (any, error) { return c.Instance(ctx, virtual) },
		func(ctx context.Context, c azure.Cloud) (any, error) { return c.Machines(ctx, group) },
		func(ctx context.Context, c azure.Cloud) (any, error) { return c.Size(ctx, "s", "l", "x") },
		func(ctx context.Context, c azure.Cloud) (any, error) {
			return c.Denied(ctx, group, []string{"Microsoft.Compute/disks/write", "a/b/read"})
		},
	}
}

// changes are all changes, one of each verb, of resources with usual names.
func changes() []fleet.Change {
	secret := fleet.NewSecret("#cloud-config\n")
	return []fleet.Change{
		fleet.StopInstance{Instance: instance}, fleet.StopInstance{Instance: instance, Deallocate: true}, fleet.StartInstance{Instance: instance},
		fleet.ProtectInstance{Instance: instance, Protection: fleet.Protection{ScaleIn: true}},
		fleet.CreateSnapshot{ID: snapshot, Location: "l", Source: disk}, fleet.DeleteSnapshot{ID: snapshot},
		fleet.CreateDisk{ID: disk, Location: "l", SKU: "Premium_LRS", Source: snapshot}, fleet.DeleteDisk{ID: disk},
		fleet.AttachDisk{Instance: instance, Disk: disk, LUN: 1}, fleet.DetachDisk{Instance: instance, Disk: disk},
		fleet.CreateGallery{ID: gallery, Location: "l"}, fleet.CreateDefinition{Definition: fleet.Definition{ID: image, Location: "l"}},
		fleet.TagDefinition{ID: image, Tags: map[string]string{"a": "b"}},
		fleet.CreateVersion{ID: version, Location: "l", Source: snapshot, Replicas: 1},
		fleet.TagVersion{ID: version, Tags: map[string]string{"a": "b", "c": ""}}, fleet.DeleteVersion{ID: version},
		fleet.PatchModel{Pool: pool, Image: fleet.ImageReference{ID: version}, CustomData: &secret},
		fleet.DeleteExtension{Pool: pool, Name: "e"},
		fleet.WriteExtension{Pool: pool, Extension: fleet.Extension{Name: "e", Type: "t", Settings: fleet.NewSecret("{}")}, Protected: fleet.NewSecret(`{"k":"v"}`)}, fleet.SetCapacity{Pool: pool, Capacity: 3},
		fleet.SetModelUserData{Pool: pool, UserData: "eA=="}, fleet.SetUserData{Instance: instance, UserData: "eA=="}, fleet.SetSize{Pool: pool, Size: "Standard_D4s_v5"},
		fleet.UpgradeInstances{Pool: pool, Instances: []string{"0"}}, fleet.DeleteInstances{Pool: pool, Instances: []string{"0"}},
		fleet.PublishVersion{ID: version, Tags: map[string]string{"a": "b", "c": ""}},
		fleet.CreateCanary{ID: pool + "-canary", Pool: pool, Image: version, Instances: 2, HostPrefix: "p-c", CustomData: &secret, Without: []string{"e"},
			Protected: map[string]fleet.Secret{"f": fleet.NewSecret(`{"k":"v"}`)}},
		fleet.DeallocateScaleSet{Pool: pool}, fleet.StartScaleSet{Pool: pool}, fleet.DeleteScaleSet{Pool: pool},
		fleet.ReimageInstance{Instance: instance}, fleet.RestartInstance{Instance: instance},
	}
}

// machineChanges are those that virtual machines know, too.
func machineChanges() []fleet.Change {
	return []fleet.Change{
		fleet.StopInstance{Instance: virtual}, fleet.StopInstance{Instance: virtual, Deallocate: true}, fleet.StartInstance{Instance: virtual},
		fleet.ProtectInstance{Instance: virtual, Protection: fleet.Protection{ScaleIn: true}},
		fleet.AttachDisk{Instance: virtual, Disk: disk, LUN: 1}, fleet.DetachDisk{Instance: virtual, Disk: disk},
	}
}

// wantError fails unless err says what was tried, in words that fit on a page,
// with a wait that is believable.
func wantError(t *testing.T, err error) {
	t.Helper()
	var e *fleet.Error
	if !errors.As(err, &e) {
		t.Fatalf("not a *fleet.Error: %T %v", err, err)
	}
	if e.Op == "" {
		t.Errorf("does not say what was tried: %v", err)
	}
	if n := len(err.Error()); n > 8<<10 {
		t.Errorf("%d bytes of error: %.200s…", n, err)
	}
	if e.RetryAfter < 0 || e.RetryAfter > 15*time.Minute {
		t.Errorf("asks to wait %s", e.RetryAfter)
	}
}

// FuzzRead has every read answered by any body. What is understood is data that
// can be written to the journal and read back; what is not is a *fleet.Error.
func FuzzRead(f *testing.F) {
	add := func(which int, body string) { f.Add(uint8(which), 200, "", body) }
	for i := range readers() {
		add(i, `{}`)
		add(i, `{"value":[null],"nextLink":"`+base+`/more"}`)
		add(i, `{"value":[{}],"nextLink":"https://elsewhere.invalid/more"}`)
		add(i, `{"id":1,"properties":[]}`)
		f.Add(uint8(i), 429, "99999999999", `{"error":{"code":"TooManyRequests","message":"wait"}}`)
		f.Add(uint8(i), 404, "", `{"error":{"code":"ResourceNotFound","message":"`+strings.Repeat("x", 3000)+`"}}`)
	}
	add(0, `{"id":"`+string(pool)+`","zones":["1",null],"sku":{"capacity":9223372036854775807},"properties":{"provisioningState":"Succeeded","upgradePolicy":{"mode":"Manual"},"virtualMachineProfile":{
		"priority":"Spot","osProfile":{"linuxConfiguration":{}},"storageProfile":{"diskControllerType":"NVMe","imageReference":{"publisher":"p"},"osDisk":{"diffDiskSettings":{},"managedDisk":{}}},
		"networkProfile":{"networkInterfaceConfigurations":[null,{"properties":{"enableAcceleratedNetworking":true}}]},"extensionProfile":{"extensions":[null,{"name":"e","properties":{"provisionAfterExtensions":[null]}}]}}}}`)
	add(2, `{"id":"`+string(instance)+`","zones":[null],"properties":{"instanceView":{"statuses":[null,{"code":"PowerState/Running"},{"code":"ProvisioningState/failed/X"}]},
		"storageProfile":{"osDisk":{"managedDisk":{"id":"`+string(disk)+`"}},"dataDisks":[null,{"lun":-1,"managedDisk":{}}]}}}`)
	add(3, `{"id":"`+string(disk)+`","zones":["1"],"properties":{"timeCreated":"2026-11-21T10:00:00.1234567+00:00","creationData":{"createOption":"Copy"},"diskSizeGB":4}}`)
	add(4, `{"properties":{"timeCreated":"0001-01-01T00:00:00"}}`)
	add(6, `{"properties":{"features":[null,{"name":"IsAcceleratedNetworkSupported","value":"perhaps"}],"identifier":{},"purchasePlan":{}}}`)
	add(7, `{"value":[{"id":"`+string(version)+`","location":"West Europe","properties":{"provisioningState":"Succeeded","publishingProfile":{"targetRegions":[null,{"name":"westeurope","regionalReplicaCount":2}],"publishedDate":"2026-11-21T10:00:00Z"},
		"replicationStatus":{"summary":[null,{"state":"Failed","details":"d","progress":-5}]},"storageProfile":{"source":{}}}}]}`)
	add(8, `{"value":[{"id":"`+string(pool)+`","properties":{"virtualMachineProfile":{"storageProfile":{"imageReference":{"sharedGalleryImageId":"`+string(version)+`"}}},"storageProfile":{"imageReference":{"id":"`+string(version)+`"}}}}]}`)
	add(8, `{"value":[{"id":"/subscriptions/s/resourceGroups/../x"}]}`)
	add(9, `{"value":[{"resourceType":"virtualMachines","name":"x","locations":["l"],"capabilities":[null,{"name":"MaxDataDiskCount","value":"-3"}]}]}`)
	add(11, `{"id":"`+string(virtual)+`","tags":{"VirtualMachineProfileTimeCreated":"13/26/2024 9:42:41 AM +00:00"},"properties":{"virtualMachineScaleSet":{"id":"`+string(pool)+`"}}}`)
	add(11, `{"id":"`+string(virtual)+`","properties":{"virtualMachineScaleSet":{"id":"@elsewhere.invalid`+string(pool)+`"}}}`)
	add(11, `{"id":"`+string(virtual)+`","name":"..","properties":{"virtualMachineScaleSet":{"id":"`+string(pool)+`"}}}`)
	add(12, `{"value":[{"id":"`+strings.ToUpper(string(virtual))+`","properties":{"virtualMachineScaleSet":{"id":"`+string(pool)+`"}}},null,{"id":"/"}]}`)
	add(10, `{"value":[{"actions":["*"],"notActions":["Microsoft.Compute/*/write"]},{"actions":null}]}`)
	f.Add(uint8(10), 200, "", "<html>\n")

	f.Fuzz(func(t *testing.T, which uint8, status int, wait, body string) {
		if status < 200 || status > 599 {
			return
		}
		read := readers()[int(which)%len(readers())]
		p := &parrot{status: status, header: http.Header{"Retry-After": {wait}, "Date": {"Sat, 21 Nov 2026 10:00:00 GMT"}}, body: body, most: 8}
		got, err := read(t.Context(), p.cloud(t))
		p.wantHome(t, "")
		if err != nil {
			wantError(t, err)
			return
		}
		if status >= 400 && status != http.StatusNotFound {
			t.Errorf("%d is taken for %+v", status, got)
		}
		once, err := json.Marshal(got)
		if err != nil {
			t.Fatalf("cannot be written down: %v", err)
		}
		again := reflect.New(reflect.TypeOf(got))
		if err := json.Unmarshal(once, again.Interface()); err != nil {
			t.Fatalf("%s cannot be read back: %v", once, err)
		}
		if twice, err := json.Marshal(again.Interface()); err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%s\nbecame\n%s (%v)", once, twice, err)
		}
	})
}

// FuzzBegin has every change answered by anything, its URLs too, and polls what
// it began. Credentials go to Azure alone, and what comes is an error or a
// progress that asks again later.
func FuzzBegin(f *testing.F) {
	all := append(changes(), machineChanges()...)
	for i := range all {
		f.Add(uint8(i), 202, base+"/op", base+"/result", "5", `{"status":"InProgress","properties":{"provisioningState":"Creating"}}`)
		f.Add(uint8(i), 200, "", "", "", `{"properties":{"provisioningState":"Succeeded"}}`)
		f.Add(uint8(i), 404, "", "", "", `{"error":{"code":"ResourceNotFound"}}`)
	}
	f.Add(uint8(0), 202, "https://elsewhere.invalid/op", "", "", "")
	f.Add(uint8(0), 202, "", "//elsewhere.invalid/op", "", "")
	f.Add(uint8(0), 202, "https://arm.invalid@elsewhere.invalid/op", "http://arm.invalid/op", "", "")
	f.Add(uint8(1), 202, "https://arm.invalid.elsewhere.invalid/op", "https://westeurope.arm.invalid/op", "-1", "")
	f.Add(uint8(2), 202, base+"/op\r\nX: y", "/relative", "Sat, 21 Nov 2026 10:05:00 GMT", "")
	f.Add(uint8(15), 201, base+"/op", "", "0", `{"status":"Failed","error":{"code":"X","message":"y"}}`)
	f.Fuzz(func(t *testing.T, which uint8, status int, async, location, wait, body string) {
		if status < 200 || status > 599 {
			return
		}
		change := all[int(which)%len(all)]
		h := http.Header{}
		for name, v := range map[string]string{"Azure-Asyncoperation": async, "Location": location, "Retry-After": wait} {
			if v != "" {
				h.Set(name, v)
			}
		}
		p := &parrot{status: status, header: h, body: body, most: 8}
		c := p.cloud(t)
		token, err := c.Begin(t.Context(), change)
		if err != nil {
			wantError(t, err)
		}
		if err == nil && token != "" {
			progress, err := c.Poll(t.Context(), token)
			if err != nil {
				wantError(t, err)
			} else if progress.Done == (progress.Wait > 0) || progress.Percent < -1 || progress.Percent > 100 || progress.Wait > 15*time.Minute {
				t.Errorf("%+v", progress)
			}
		}
		p.wantHome(t, "")
	})
}

// FuzzTarget begins every change, and makes every read, of any id: either it is
// refused before anything is sent, or each request stays in the group that the
// id names.
func FuzzTarget(f *testing.F) {
	for _, id := range []fleet.ResourceID{pool, instance, virtual, disk, snapshot, gallery, image, version, pool + "/extensions/e"} {
		for _, odd := range []string{"", "/", "/..", "/../x", "?x=y", "#x", "%2f..%2f", `\..\x`, "\x00", "/../../../../g2/providers/Microsoft.Compute/disks/d"} {
			f.Add(string(id)+odd, "e")
		}
		f.Add(strings.Replace(string(id), "/g/", "/../", 1), "..")
		f.Add(strings.Replace(string(id), "/g/", "/%2e%2e/", 1), "e/../../f")
		f.Add(strings.Replace(string(id), "Microsoft.Compute", "Microsoft.Authorization", 1), "e?x")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		id := fleet.ResourceID(text)
		p := &parrot{status: 404, header: http.Header{}, body: `{"error":{"code":"ResourceNotFound"}}`, most: 1 << 10}
		c := p.cloud(t)
		secret := fleet.NewSecret("x")
		for _, change := range []fleet.Change{
			fleet.StopInstance{Instance: id}, fleet.StopInstance{Instance: id, Deallocate: true}, fleet.StartInstance{Instance: id}, fleet.ProtectInstance{Instance: id},
			fleet.CreateSnapshot{ID: id, Source: id}, fleet.DeleteSnapshot{ID: id}, fleet.CreateDisk{ID: id, Source: id}, fleet.DeleteDisk{ID: id},
			fleet.AttachDisk{Instance: id, Disk: id}, fleet.DetachDisk{Instance: id, Disk: id}, fleet.CreateGallery{ID: id},
			fleet.CreateDefinition{Definition: fleet.Definition{ID: id}}, fleet.CreateVersion{ID: id, Source: id}, fleet.TagVersion{ID: id}, fleet.DeleteVersion{ID: id},
			fleet.PatchModel{Pool: id, CustomData: &secret}, fleet.DeleteExtension{Pool: id, Name: name},
			fleet.WriteExtension{Pool: id, Extension: fleet.Extension{Name: name}}, fleet.SetCapacity{Pool: id},
			fleet.SetModelUserData{Pool: id}, fleet.SetUserData{Instance: id}, fleet.SetSize{Pool: id, Size: name}, fleet.UpgradeInstances{Pool: id}, fleet.DeleteInstances{Pool: id},
			fleet.DeallocateScaleSet{Pool: id}, fleet.StartScaleSet{Pool: id}, fleet.DeleteScaleSet{Pool: id}, fleet.ReimageInstance{Instance: id}, fleet.RestartInstance{Instance: id},
		} {
			before := len(p.sent)
			if _, err := c.Begin(t.Context(), change); err != nil {
				wantError(t, err)
				if len(p.sent) == before && !fleet.Is(err, fleet.KindInvalid) {
					t.Errorf("%T of %q: kind %q: %v", change, id, fleet.KindOf(err), err)
				}
			}
		}
		for _, read := range []func() error{
			func() error { _, err := c.Pool(t.Context(), id); return err },
			func() error { _, err := c.Instances(t.Context(), id); return err },
			func() error { _, err := c.Instance(t.Context(), id); return err },
			func() error { _, err := c.Machines(t.Context(), id.Group()); return err },
			func() error { _, err := c.Disk(t.Context(), id); return err },
			func() error { _, err := c.Snapshot(t.Context(), id); return err },
			func() error { _, err := c.Gallery(t.Context(), id); return err },
			func() error { _, err := c.Definition(t.Context(), id); return err },
			func() error { _, err := c.Versions(t.Context(), id); return err },
			func() error { _, err := c.Version(t.Context(), id); return err },
			func() error { _, err := c.Uses(t.Context(), id); return err },
		} {
			if err := read(); err != nil {
				wantError(t, err)
			}
		}
		p.wantHome(t, id.Group())
		// These two take a scope and a subscription, so that the group may be missing.
		p.sent = nil
		if _, err := c.Denied(t.Context(), id, []string{"a/b"}); err != nil {
			wantError(t, err)
		}
		p.wantHome(t, id)
		p.sent = nil
		if _, err := c.Size(t.Context(), text, name, name); err != nil {
			wantError(t, err)
		}
		p.wantHome(t, fleet.ResourceID("/subscriptions/"+text))
		for _, r := range p.sent {
			if q, err := url.ParseQuery(r.URL.RawQuery); err != nil || len(q) != 2 || strings.Count(q.Get("$filter"), "'") != 2 {
				t.Errorf("asked %s", r.URL)
			}
		}
	})
}
