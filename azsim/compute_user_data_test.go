package azsim

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// userDataOf is the userData of an instance of "pool1", as a GET with $expand gives it.
func (l *lab) userDataOf(id string) string {
	l.t.Helper()
	r, err := l.vms.Get(context.Background(), labGroup, "pool1", id, &armcompute.VirtualMachineScaleSetVMsClientGetOptions{Expand: ptr(armcompute.InstanceViewTypesUserData)})
	if err != nil {
		l.t.Fatal(err)
	}
	return val(r.Properties.UserData)
}

func (l *lab) modelUserData() string {
	l.t.Helper()
	r, err := l.sets.Get(context.Background(), labGroup, "pool1", &armcompute.VirtualMachineScaleSetsClientGetOptions{Expand: ptr(armcompute.ExpandTypesForGetVMScaleSetsUserData)})
	if err != nil {
		l.t.Fatal(err)
	}
	return val(r.Properties.VirtualMachineProfile.UserData)
}

func (l *lab) putUserData(id string, data *string) error {
	l.t.Helper()
	p, err := l.vms.BeginUpdate(context.Background(), labGroup, "pool1", id, armcompute.VirtualMachineScaleSetVM{
		Properties: &armcompute.VirtualMachineScaleSetVMProperties{UserData: data}}, nil)
	if err == nil {
		_, err = p.PollUntilDone(context.Background(), &runtime.PollUntilDoneOptions{Frequency: time.Second})
	}
	return err
}

func (l *lab) patchUserData(data string) error {
	l.t.Helper()
	return l.patch("pool1", armcompute.VirtualMachineScaleSetUpdate{Properties: &armcompute.VirtualMachineScaleSetUpdateProperties{
		VirtualMachineProfile: &armcompute.VirtualMachineScaleSetUpdateVMProfile{UserData: ptr(data)}}})
}

// imdsUserData is the userData that the machine of that name reads.
func (l *lab) imdsUserData(host string) string {
	l.t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/metadata/instance/compute/userData?api-version=2025-04-07&format=text", nil)
	r.Header.Set("Metadata", "true")
	w := httptest.NewRecorder()
	l.sub.computer(l.t, host).IMDS.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		l.t.Fatalf("metadata service: %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func (l *lab) latest(id string) bool {
	l.t.Helper()
	return val(l.vm("pool1", id).Properties.LatestModelApplied)
}

func wantText(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestUserDataOfOneInstance(t *testing.T) {
	first, second := base64.StdEncoding.EncodeToString([]byte("first")), base64.StdEncoding.EncodeToString([]byte("second"))
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Substrate: newModelSubstrate(), Profile: Profile{"imds.userData": {time.Minute, time.Minute}}}
		defer s.Close()
		l := newLab(t, s)
		body := pool(2)
		body.Properties.VirtualMachineProfile.UserData = &first
		l.create("pool1", body)
		wantText(t, "at boot", l.imdsUserData("pool1000000"), first)

		if err := l.putUserData("0", &second); err != nil {
			t.Fatal(err)
		}
		wantText(t, "GET", l.userDataOf("0"), second)
		wantText(t, "GET of another instance", l.userDataOf("1"), first)
		wantText(t, "GET of the model", l.modelUserData(), first)
		wantText(t, "GET without $expand", val(l.vm("pool1", "0").Properties.UserData), "")
		for _, vm := range l.list("pool1", &armcompute.VirtualMachineScaleSetVMsClientListOptions{Expand: ptr("userData")}) {
			wantText(t, "list with $expand=userData", val(vm.Properties.UserData), "")
		}
		if !l.latest("0") {
			t.Error("latestModelApplied is false after a PUT of userData")
		}
		wantText(t, "metadata service after the PUT", l.imdsUserData("pool1000000"), first)
		time.Sleep(time.Minute)
		wantText(t, "metadata service after the delay", l.imdsUserData("pool1000000"), second)
		wantText(t, "metadata service of another instance", l.imdsUserData("pool1000001"), first)

		if err := l.putUserData("0", nil); err != nil {
			t.Fatal(err)
		}
		wantText(t, "GET after a PUT without userData", l.userDataOf("0"), second)
		if err := l.putUserData("0", ptr("")); err != nil {
			t.Fatal(err)
		}
		wantText(t, "GET after a deletion", l.userDataOf("0"), "")

		// A reboot has no delay.
		if err := l.putUserData("1", &second); err != nil {
			t.Fatal(err)
		}
		p, err := l.vms.BeginRestart(context.Background(), labGroup, "pool1", "1", nil)
		done(t, p, err)
		wantText(t, "metadata service after a restart", l.imdsUserData("pool1000001"), second)
	})
}

func TestUserDataOfTheModel(t *testing.T) {
	first, second := base64.StdEncoding.EncodeToString([]byte("first")), base64.StdEncoding.EncodeToString([]byte("second"))
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Substrate: newModelSubstrate()}
		defer s.Close()
		l := newLab(t, s)
		l.create("pool1", pool(1))
		if err := l.patchUserData(first); err != nil {
			t.Fatal(err)
		}
		wantText(t, "GET of the model", l.modelUserData(), first)
		wantText(t, "instance after the PATCH", l.userDataOf("0"), "")
		if l.latest("0") {
			t.Error("latestModelApplied is true after a change of the model")
		}
		for pager := l.sets.NewListPager(labGroup, nil); pager.More(); {
			page, err := pager.NextPage(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			wantText(t, "list of scale sets", val(page.Value[0].Properties.VirtualMachineProfile.UserData), "")
		}
		if err := l.scale("pool1", 2); err != nil {
			t.Fatal(err)
		}
		wantText(t, "new instance", l.userDataOf("1"), first)
		wantText(t, "metadata service of the new instance", l.imdsUserData("pool1000001"), first)

		// A PUT of what a GET gave keeps it, as it lacks it.
		l.create("pool1", l.set("pool1"))
		wantText(t, "model after a PUT without userData", l.modelUserData(), first)
		body := l.set("pool1")
		body.Properties.VirtualMachineProfile.UserData = &second
		l.create("pool1", body)
		wantText(t, "model after a PUT", l.modelUserData(), second)
		wantText(t, "instance after the model's PUT", l.userDataOf("1"), first)
		if err := l.patchUserData(""); err != nil {
			t.Fatal(err)
		}
		wantText(t, "model after a deletion", l.modelUserData(), "")
	})
}

func TestUserDataIsChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		defer s.Close()
		l := newLab(t, s)
		l.create("pool1", pool(1))
		most := base64.StdEncoding.EncodeToString(make([]byte, 65538))
		for _, bad := range []string{"#cloud-config", most + "AAAA"} {
			for _, err := range []error{l.putUserData("0", &bad), l.patchUserData(bad)} {
				wantRefusal(t, err, "InvalidParameter", "UserData must be in Base64 encoding and with a maximum length of 87384 characters.")
			}
		}
		if err := l.putUserData("0", &most); err != nil {
			t.Error(err)
		}
		if got := l.userDataOf("0"); !strings.HasPrefix(got, "AAAA") || len(got) != 87384 {
			t.Errorf("%d characters", len(got))
		}
		if err := l.patchUserData(most); err != nil {
			t.Error(err)
		}
	})
}

func TestUserDataMakesCustom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec, err := ParseSpec([]byte("userDataMakesCustom: true"))
		if err != nil {
			t.Fatal(err)
		}
		s := &Server{}
		defer s.Close()
		if err := spec.Apply(s); err != nil {
			t.Fatal(err)
		}
		l := newLab(t, s)
		l.create("pool1", pool(1))
		if err := l.putUserData("0", ptr("")); err != nil || !l.latest("0") {
			t.Errorf("nothing changed, latestModelApplied %t (%v)", l.latest("0"), err)
		}
		if err := l.putUserData("0", ptr("QQ==")); err != nil || l.latest("0") {
			t.Errorf("userData changed, latestModelApplied %t (%v)", l.latest("0"), err)
		}
	})
}

func TestUserDataOfAFlexibleMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		defer s.Close()
		l := newLab(t, s)
		l.create("f", flexPool(1))
		c := machinesClient(t, s)
		name := val(members(t, c)[0].Name)
		update := func(data string) error {
			p, err := c.BeginUpdate(context.Background(), labGroup, name, armcompute.VirtualMachineUpdate{Properties: &armcompute.VirtualMachineProperties{UserData: &data}}, nil)
			_, err = tryDone(p, err)
			return err
		}
		if err := update("QQ=="); err != nil {
			t.Fatal(err)
		}
		r, err := c.Get(context.Background(), labGroup, name, &armcompute.VirtualMachinesClientGetOptions{Expand: ptr(armcompute.InstanceViewTypesUserData)})
		if err != nil || val(r.Properties.UserData) != "QQ==" {
			t.Errorf("GET: %q (%v)", val(r.Properties.UserData), err)
		}
		wantRefusal(t, update("~"), "InvalidParameter", "UserData must be in Base64")
	})
}
