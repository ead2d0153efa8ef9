package azsim

import (
	"context"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// withExtension gives a set's model one extension.
func withExtension(set armcompute.VirtualMachineScaleSet, name string) armcompute.VirtualMachineScaleSet {
	set.Properties.VirtualMachineProfile.ExtensionProfile = &armcompute.VirtualMachineScaleSetExtensionProfile{
		ExtensionsTimeBudget: ptr("PT1H30M"),
		Extensions: []*armcompute.VirtualMachineScaleSetExtension{{Name: ptr(name), Properties: &armcompute.VirtualMachineScaleSetExtensionProperties{
			Publisher: ptr("Ortet"), Type: ptr("NodeBootstrap"), TypeHandlerVersion: ptr("1.0"),
		}}},
	}
	return set
}

func boot(status string, code int, stages ...Substatus) ExtensionReport {
	return ExtensionReport{Name: "boot", Operation: "Enable", Status: status, Code: code, Message: "said " + status, Substatus: stages}
}

// What a handler says on the machine is what the instance view shows.
func TestReportsReachTheInstanceView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		defer s.Close()
		l := newLab(t, s)
		s.Instant(true)
		l.create("u", withExtension(pool(1), "boot"))
		l.create("f", withExtension(flexPool(1), "boot"))
		s.Instant(false)
		c := machinesClient(t, s)
		uniform, flex := val(l.vm("u", "0").ID), val(members(t, c)[0].ID)
		views := func() []*armcompute.VirtualMachineInstanceView {
			return []*armcompute.VirtualMachineInstanceView{machineView(l.vm("u", "0").Properties.InstanceView), members(t, c)[0].Properties.InstanceView}
		}
		for _, v := range views() {
			if h := v.VMAgent.ExtensionHandlers; len(h) != 1 || val(h[0].Type) != "Ortet.NodeBootstrap" || val(h[0].Status.DisplayStatus) != "Ready" {
				t.Errorf("handlers %+v", h)
			}
		}
		at := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
		for _, id := range []string{uniform, strings.ToUpper(flex)} {
			r := boot(StatusError, 7, Substatus{Name: "kubelet", Status: StatusError, Code: 3, Message: "no"}, Substatus{Name: "cloud-init", Status: StatusSuccess})
			r.Time = at
			if err := s.Report(id, Report{Agent: &AgentReport{Version: "2.15.0.1", Message: "stuck", Time: at}, Extensions: []ExtensionReport{r}}); err != nil {
				t.Fatal(err)
			}
		}
		for _, v := range views() {
			if a := v.VMAgent; val(a.VMAgentVersion) != "2.15.0.1" || val(a.Statuses[0].DisplayStatus) != "Not Ready" || val(a.Statuses[0].Message) != "stuck" || !val(a.Statuses[0].Time).Equal(at) {
				t.Errorf("agent %+v", a.Statuses[0])
			}
			ext := v.Extensions[0]
			if val(ext.Name) != "boot" || val(ext.Type) != "Ortet.NodeBootstrap" {
				t.Errorf("extension %+v", ext)
			}
			got := []string{}
			for _, st := range append(ext.Statuses, ext.Substatuses...) {
				got = append(got, val(st.Code)+" "+string(val(st.Level))+" "+val(st.Message))
				if !val(st.Time).Equal(at) {
					t.Errorf("%s at %v", val(st.Code), val(st.Time))
				}
			}
			wantList(t, "statuses", got, "ProvisioningState/failed/7 Error said error", "ComponentStatus/kubelet/failed/3 Error no", "ComponentStatus/cloud-init/succeeded Info ")
		}
		for what, err := range map[string]error{
			"nobody":    s.Report(uniform+"9", Report{}),
			"a set":     s.Report(flexID, Report{}),
			"extension": s.Report(uniform, Report{Extensions: []ExtensionReport{{Name: "other", Status: StatusSuccess}}}),
			"status":    s.Report(uniform, Report{Extensions: []ExtensionReport{boot("done", 0)}}),
			"substatus": s.Report(uniform, Report{Extensions: []ExtensionReport{boot(StatusSuccess, 0, Substatus{Name: "x"})}}),
		} {
			if err == nil {
				t.Errorf("a report of no %s was taken", what)
			}
		}
		// A new disk knows nothing of what was told before.
		p, err := l.vms.BeginReimage(context.Background(), labGroup, "u", "0", nil)
		done(t, p, err)
		if v := l.vm("u", "0").Properties.InstanceView; val(v.VMAgent.Statuses[0].DisplayStatus) != "Ready" || val(v.Extensions[0].Statuses[0].Code) != "ProvisioningState/succeeded" {
			t.Errorf("after a reimage: %+v", v.VMAgent.Statuses[0])
		}
	})
}

// The platform waits for a handler that is at work, and believes it.
func TestProvisioningFollowsTheReport(t *testing.T) {
	for _, tc := range []struct {
		name  string
		end   string // "" is never
		after time.Duration
		code  string
		text  string
	}{
		{"success", StatusSuccess, 20 * time.Minute, "", ""},
		{"failure", StatusError, 20 * time.Minute, "VMExtensionProvisioningError", "Error message: 'said error'"},
		{"never", "", 91 * time.Minute, "VMExtensionProvisioningTimeout", "said transitioning"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sub := newModelSubstrate()
				s := &Server{Substrate: sub}
				defer s.Close()
				l := newLab(t, s)
				p, err := l.sets.BeginCreateOrUpdate(context.Background(), labGroup, "u", withExtension(pool(1), "boot"), nil)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				for {
					list := l.list("u", &armcompute.VirtualMachineScaleSetVMsClientListOptions{Expand: ptr("instanceView")})
					if len(list) > 0 && len(list[0].Properties.InstanceView.Extensions) > 0 {
						break
					}
					time.Sleep(time.Second)
				}
				c := sub.computer(t, "pool1000000")
				if err := c.Report(Report{Extensions: []ExtensionReport{boot(StatusTransitioning, 0)}}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(tc.after)
				if vm := l.vm("u", "0"); tc.end != "" && (val(vm.Properties.ProvisioningState) != "Creating" || val(vm.Properties.InstanceView.Extensions[0].Statuses[0].Code) != "ProvisioningState/transitioning") {
					t.Errorf("after %v: %s", time.Since(began), val(vm.Properties.ProvisioningState))
				}
				if tc.end != "" {
					if err := c.Report(Report{Extensions: []ExtensionReport{boot(tc.end, 0)}}); err != nil {
						t.Fatal(err)
					}
				}
				_, err = tryDone(p, nil)
				if tc.code == "" && err != nil {
					t.Error(err)
				} else if tc.code != "" {
					wantRefusal(t, err, tc.code, tc.text)
				}
			})
		})
	}
}

func TestBootDiagnosticsOfAUsersStorage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		defer s.Close()
		l := newLab(t, s)
		s.Instant(true)
		own := flexPool(1)
		own.Properties.VirtualMachineProfile.DiagnosticsProfile.BootDiagnostics.StorageURI = ptr("https://mine.blob.example.com/")
		l.create("f", own)
		c := machinesClient(t, s)
		vm := members(t, c)[0]
		b := vm.Properties.InstanceView.BootDiagnostics
		if u := val(b.SerialConsoleLogBlobURI); !strings.HasPrefix(u, "https://mine.blob.example.com/bootdiagnostics-f") || !strings.HasSuffix(u, val(vm.Name)+"."+val(vm.Properties.VMID)+".serialconsole.log") {
			t.Errorf("log at %s", u)
		}
		_, err := c.RetrieveBootDiagnosticsData(context.Background(), labGroup, val(vm.Name), nil)
		wantRefusal(t, err, "OperationNotAllowed", "https://mine.blob.example.com")

		if err := l.patch("f", armcompute.VirtualMachineScaleSetUpdate{Properties: &armcompute.VirtualMachineScaleSetUpdateProperties{
			VirtualMachineProfile: &armcompute.VirtualMachineScaleSetUpdateVMProfile{DiagnosticsProfile: &armcompute.DiagnosticsProfile{BootDiagnostics: &armcompute.BootDiagnostics{Enabled: ptr(false)}}},
		}}); err != nil {
			t.Fatal(err)
		}
		if err := l.scale("f", 2); err != nil {
			t.Fatal(err)
		}
		for _, vm := range members(t, c) {
			if val(vm.Properties.DiagnosticsProfile.BootDiagnostics.Enabled) {
				continue
			}
			_, err := c.RetrieveBootDiagnosticsData(context.Background(), labGroup, val(vm.Name), nil)
			wantRefusal(t, err, "OperationNotAllowed", "Boot diagnostics is not enabled")
		}
	})
}

// The extensions of a virtual machine are resources of their own.
func TestExtensionsOfAMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		defer s.Close()
		l := newLab(t, s)
		s.Instant(true)
		l.create("f", withExtension(flexPool(1), "boot"))
		s.Instant(false)
		c, err := armcompute.NewVirtualMachineExtensionsClient(DefaultSubscription, s.Credential(""), s.ClientOptions())
		if err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		name := val(members(t, machinesClient(t, s))[0].Name)
		p, err := c.BeginCreateOrUpdate(ctx, labGroup, name, "more", armcompute.VirtualMachineExtension{Location: ptr("westeurope"), Tags: map[string]*string{"a": ptr("b")},
			Properties: &armcompute.VirtualMachineExtensionProperties{Publisher: ptr("P"), Type: ptr("T"), TypeHandlerVersion: ptr("1.0"), ProtectedSettings: map[string]any{"x": "secret"}}}, nil)
		done(t, p, err)
		got, err := c.Get(ctx, labGroup, name, "more", &armcompute.VirtualMachineExtensionsClientGetOptions{Expand: ptr("instanceView")})
		if err != nil || val(got.Type) != machineExtType || val(got.Properties.ProvisioningState) != "Succeeded" || got.Properties.ProtectedSettings != nil ||
			val(got.Properties.InstanceView.Statuses[0].Code) != "ProvisioningState/succeeded" || !strings.HasSuffix(val(got.ID), "/virtualMachines/"+name+"/extensions/more") {
			t.Errorf("%+v, %v", got, err)
		}
		del, err := c.BeginDelete(ctx, labGroup, name, "boot", nil)
		done(t, del, err)
		list, err := c.List(ctx, labGroup, name, nil)
		if err != nil || len(list.Value) != 1 || val(list.Value[0].Name) != "more" {
			t.Errorf("%+v, %v", list, err)
		}
	})
}

const statusFile = `[{"version":1,"timestampUTC":"2026-11-21T08:00:00Z","status":{"name":"boot","operation":"Enable","configurationAppliedTime":"2026-11-21T07:59:00Z",
	"status":"error","code":7,"formattedMessage":{"lang":"en-US","message":"no"},
	"substatus":[{"name":"kubelet","status":"transitioning","code":"3","formattedMessage":{"lang":"en-US","message":"starts"}}]}},{"status":{"status":"success"}}]`

// A status file can be reported over the network, too.
func TestStatusFilesAreTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		defer s.Close()
		l := newLab(t, s)
		s.Instant(true)
		l.create("u", withExtension(pool(1), "boot"))
		post := func(query, body string) int {
			r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, InProcess+"/azsim/status?"+query, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := s.Transport().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			if err := resp.Body.Close(); err != nil {
				t.Error(err)
			}
			return resp.StatusCode
		}
		where := url.Values{"instance": {val(l.vm("u", "0").ID)}, "extension": {"Ortet.NodeBootstrap"}}.Encode()
		if n := post(where, statusFile); n != http.StatusNoContent {
			t.Errorf("status %d", n)
		}
		ext := l.vm("u", "0").Properties.InstanceView.Extensions[0]
		if val(ext.Statuses[0].Code) != "ProvisioningState/failed/7" || val(ext.Substatuses[0].Code) != "ComponentStatus/kubelet/transitioning/3" {
			t.Errorf("%s, %s", val(ext.Statuses[0].Code), val(ext.Substatuses[0].Code))
		}
		for query, body := range map[string]string{where: "{}", where + "x": statusFile, "extension=boot": statusFile} {
			if n := post(query, body); n != http.StatusBadRequest {
				t.Errorf("%s with %.10s: status %d", query, body, n)
			}
		}
	})
}

func TestParseStatusFile(t *testing.T) {
	got, err := ParseStatusFile([]byte(statusFile))
	want := ExtensionReport{Operation: "Enable", Status: StatusError, Code: 7, Message: "no", Time: time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC),
		Substatus: []Substatus{{Name: "kubelet", Status: StatusTransitioning, Code: 3, Message: "starts"}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "[]", "{}", `[{}]`, `[{"status":{"status":"done"}}]`, `[{"status":{"status":"success","substatus":[{}]}}]`, strings.Repeat(" ", 1<<20)} {
		if r, err := ParseStatusFile([]byte(bad)); err == nil {
			t.Errorf("%.40q: %+v", bad, r)
		}
	}
}

func FuzzParseStatusFile(f *testing.F) {
	f.Add([]byte(statusFile))
	f.Add([]byte(`[{"status":{"status":"Success"}}]`))
	f.Add([]byte(`[{"status":{"status":"warning","code":-1e9}}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseStatusFile(data)
		if err != nil && !reflect.DeepEqual(r, ExtensionReport{}) {
			t.Errorf("%v with %+v", err, r)
		}
		if err == nil && r.check() != nil {
			t.Errorf("%+v: %v", r, r.check())
		}
	})
}
