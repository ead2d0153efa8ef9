package azsim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// A nicBody is what a client reads of a network interface.
type nicBody struct {
	ID, Name   string
	Properties struct {
		Primary          bool
		MACAddress       string
		VirtualMachine   struct{ ID string }
		IPConfigurations []struct {
			Name       string
			Properties struct {
				Primary                 bool
				PrivateIPAddress        string
				PrivateIPAddressVersion string
				Subnet                  struct{ ID string }
			}
		}
	}
}

// get reads a path below the group with the first principal's token, every page.
func (l *lab) get(path, version string) (list []nicBody, status int) {
	l.t.Helper()
	url := InProcess + "/subscriptions/" + DefaultSubscription + "/resourceGroups/" + labGroup + "/providers/" + path + "?api-version=" + version
	for url != "" {
		r, err := http.NewRequestWithContext(l.t.Context(), http.MethodGet, url, nil)
		if err != nil {
			l.t.Fatal(err)
		}
		token, err := l.s.Credential("").GetToken(l.t.Context(), policy.TokenRequestOptions{})
		if err != nil {
			l.t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token.Token)
		res, err := l.s.Transport().Do(r)
		if err != nil {
			l.t.Fatal(err)
		}
		data, err := io.ReadAll(res.Body)
		if err := errors.Join(err, res.Body.Close()); err != nil {
			l.t.Fatal(err)
		}
		if res.StatusCode != http.StatusOK {
			return list, res.StatusCode
		}
		var page struct {
			Value    []nicBody
			NextLink string
			nicBody
		}
		if err := json.Unmarshal(data, &page); err != nil {
			l.t.Fatalf("%s: %v", data, err)
		}
		if list = append(list, page.Value...); page.ID != "" {
			list = append(list, page.nicBody)
		}
		url = page.NextLink
	}
	return list, http.StatusOK
}

const (
	subnetA = "/subscriptions/" + DefaultSubscription + "/resourceGroups/azsim/providers/Microsoft.Network/virtualNetworks/v/subnets/a"
	subnetB = "/subscriptions/" + DefaultSubscription + "/resourceGroups/azsim/providers/Microsoft.Network/virtualNetworks/v/subnets/b"
)

// twoNICs has a second interface first, and pods' addresses on the primary one.
func twoNICs(b *armcompute.VirtualMachineScaleSet) {
	ip := func(name, subnet string, primary bool) *armcompute.VirtualMachineScaleSetIPConfiguration {
		return &armcompute.VirtualMachineScaleSetIPConfiguration{Name: ptr(name), Properties: &armcompute.VirtualMachineScaleSetIPConfigurationProperties{
			Primary: ptr(primary), Subnet: &armcompute.APIEntityReference{ID: ptr(subnet)}}}
	}
	six := ip("six", subnetA, false)
	six.Properties.PrivateIPAddressVersion = ptr(armcompute.IPVersionIPv6)
	b.Properties.VirtualMachineProfile.NetworkProfile = &armcompute.VirtualMachineScaleSetNetworkProfile{NetworkInterfaceConfigurations: []*armcompute.VirtualMachineScaleSetNetworkConfiguration{
		{Name: ptr("storage"), Properties: &armcompute.VirtualMachineScaleSetNetworkConfigurationProperties{Primary: ptr(false), IPConfigurations: []*armcompute.VirtualMachineScaleSetIPConfiguration{ip("ip", subnetB, true)}}},
		{Name: ptr("eth0"), Properties: &armcompute.VirtualMachineScaleSetNetworkConfigurationProperties{Primary: ptr(true), IPConfigurations: []*armcompute.VirtualMachineScaleSetIPConfiguration{ip("pods", subnetA, false), six, ip("ip", subnetA, true)}}},
	}}
}

func addressesOf(n nicBody) string {
	var out []string
	for _, c := range n.Properties.IPConfigurations {
		out = append(out, c.Properties.PrivateIPAddress)
	}
	return strings.Join(out, " ")
}

func TestNetworkInterfaces(t *testing.T) {
	withPool(t, 2, twoNICs, func(t *testing.T, l *lab) {
		const set = "Microsoft.Compute/virtualMachineScaleSets/pool1"
		list, status := l.get(set+"/networkInterfaces", "2018-10-01")
		if status != http.StatusOK || len(list) != 4 {
			t.Fatalf("%d %+v", status, list)
		}
		first := list[0]
		vm := val(l.vm("pool1", "0").ID)
		if first.ID != vm+"/networkInterfaces/eth0" || first.Name != "eth0" || !first.Properties.Primary || first.Properties.VirtualMachine.ID != vm ||
			addressesOf(first) != "10.0.0.4 10.0.0.5 fd00::6" {
			t.Errorf("%+v", first)
		}
		if c := first.Properties.IPConfigurations[0]; c.Name != "ip" || !c.Properties.Primary || c.Properties.Subnet.ID != subnetA || c.Properties.PrivateIPAddressVersion != "IPv4" {
			t.Errorf("%+v", c)
		}
		if other := list[1]; other.Properties.Primary || addressesOf(other) != "10.1.0.4" || other.Properties.MACAddress == first.Properties.MACAddress || len(first.Properties.MACAddress) != 17 {
			t.Errorf("%+v", other)
		}
		own, status := l.get(set+"/virtualMachines/1/networkInterfaces", "2018-10-01")
		if status != http.StatusOK || len(own) != 2 || own[0].ID != list[2].ID || addressesOf(own[0]) == addressesOf(first) {
			t.Errorf("%d %+v", status, own)
		}
		if one, status := l.get(set+"/virtualMachines/1/networkInterfaces/ETH0", "2018-10-01"); status != http.StatusOK || len(one) != 1 || one[0].ID != own[0].ID {
			t.Errorf("%d %+v", status, one)
		}
		for path, want := range map[string]int{
			set + "/virtualMachines/1/networkInterfaces/none": 404, set + "/virtualMachines/7/networkInterfaces": 404,
			"Microsoft.Compute/virtualMachineScaleSets/none/networkInterfaces": 404,
		} {
			if _, status := l.get(path, "2018-10-01"); status != want {
				t.Errorf("%s: %d", path, status)
			}
		}
		if _, status := l.get(set+"/networkInterfaces", "2024-05-01"); status != 400 {
			t.Errorf("a version of another type: %d", status)
		}
		if list, status := l.get(nicType, "2024-05-01"); status != 200 || len(list) != 0 {
			t.Errorf("interfaces of a Uniform set are resources: %d %v", status, list)
		}

		// The metadata service shows the same.
		r := httptest.NewRequest(http.MethodGet, "/metadata/instance/network/interface/0/ipv4?api-version=2021-02-01", nil)
		r.Header.Set("Metadata", "true")
		w := httptest.NewRecorder()
		l.sub.computer(t, "pool1000000").IMDS.ServeHTTP(w, r)
		want := fmt.Sprintf(`{"ipAddress":[{"privateIpAddress":%q,"publicIpAddress":""},{"privateIpAddress":"10.0.0.5","publicIpAddress":""}],"subnet":[{"address":"10.0.0.0","prefix":"16"}]}`,
			first.Properties.IPConfigurations[0].Properties.PrivateIPAddress)
		if got := strings.TrimSpace(w.Body.String()); got != want {
			t.Errorf("%s, want %s", got, want)
		}

		// A deleted instance's addresses are free again.
		was := addressesOf(first)
		del, err := l.vms.BeginDelete(t.Context(), labGroup, "pool1", "0", nil)
		done(t, del, err)
		if err := l.scale("pool1", 2); err != nil {
			t.Fatal(err)
		}
		next, _ := l.get(set+"/virtualMachines/2/networkInterfaces", "2018-10-01")
		if len(next) != 2 || addressesOf(next[0]) != was {
			t.Errorf("%+v, want %s", next, was)
		}
	})
}

func TestNetworkInterfacesOfMembers(t *testing.T) {
	withPool(t, 2, func(b *armcompute.VirtualMachineScaleSet) {
		twoNICs(b)
		b.Properties.OrchestrationMode, b.Properties.PlatformFaultDomainCount = ptr(armcompute.OrchestrationModeFlexible), ptr(int32(1))
		b.Properties.VirtualMachineProfile.NetworkProfile.NetworkAPIVersion = ptr(armcompute.NetworkAPIVersionTwoThousandTwenty1101)
	}, func(t *testing.T, l *lab) {
		list, status := l.get(nicType, "2024-05-01")
		if status != http.StatusOK || len(list) != 4 {
			t.Fatalf("%d %+v", status, list)
		}
		_, name, _ := strings.Cut(list[0].ID, "/providers/")
		one, status := l.get(name, "2024-05-01")
		if status != http.StatusOK || len(one) != 1 || one[0].ID != list[0].ID || one[0].Name != list[0].Name || !strings.Contains(one[0].Properties.VirtualMachine.ID, "/virtualMachines/pool1_") {
			t.Errorf("%d %+v", status, one)
		}
		if _, status := l.get(nicType+"/none", "2024-05-01"); status != 404 {
			t.Errorf("none: %d", status)
		}
		if _, status := l.get("Microsoft.Compute/virtualMachineScaleSets/pool1/networkInterfaces", "2018-10-01"); status != 400 {
			t.Errorf("the list of a Flexible set: %d", status)
		}
	})
}

func TestAddressesAreUnique(t *testing.T) {
	n := &subnet{used: map[int]bool{}, low: firstHost}
	seen := map[netip.Addr]bool{}
	for h := n.take(); h != 0; h = n.take() {
		a := n.address(h, false)
		if seen[a] || !n.prefix(false).Contains(a) {
			t.Fatalf("%v twice, or outside", a)
		}
		seen[a] = true
	}
	if len(seen) != 65531 { // Azure keeps five of 65536
		t.Errorf("%d addresses", len(seen))
	}
	n.free(300)
	n.free(20)
	if got := []int{n.take(), n.take(), n.take()}; !slices.Equal(got, []int{20, 300, 0}) {
		t.Errorf("%v", got)
	}
}

// An addressedSubstrate has addresses of its own for what runs.
type addressedSubstrate struct{ *modelSubstrate }

func (a addressedSubstrate) PrivateAddress(id string) (netip.Prefix, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if strings.HasSuffix(id, "/1") {
		return netip.Prefix{}, false
	}
	if _, on := a.running[id]; !on {
		return netip.Prefix{}, true
	}
	return netip.MustParsePrefix("10.130.0.9/24"), true
}

func TestSubstrateHasAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Substrate: addressedSubstrate{newModelSubstrate()}}
		defer s.Close()
		l := newLab(t, s)
		p, err := l.sets.BeginCreateOrUpdate(t.Context(), labGroup, "pool1", pool(2), nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(16 * time.Second)
		synctest.Wait()
		const path = "Microsoft.Compute/virtualMachineScaleSets/pool1/networkInterfaces"
		before, _ := l.get(path, "2018-10-01")
		done(t, p, nil)
		after, _ := l.get(path, "2018-10-01")
		if len(before) != 2 || len(after) != 2 || addressesOf(before[0]) != "" || addressesOf(after[0]) != "10.130.0.9" || addressesOf(after[1]) != "10.0.0.5" {
			t.Errorf("%+v\n%+v", before, after)
		}
	})
}

func TestMayNotReadNetworkInterfaces(t *testing.T) { synctest.Test(t, mayNotReadNetworkInterfaces) }

func mayNotReadNetworkInterfaces(t *testing.T) {
	s := &Server{Principals: []Principal{{ClientID: "c", Roles: []Grant{{Actions: []string{
		"Microsoft.Compute/virtualMachineScaleSets/read", "Microsoft.Compute/virtualMachineScaleSets/write", "Microsoft.Compute/virtualMachineScaleSets/networkInterfaces/read"}}}}}}
	defer s.Close()
	s.Instant(true)
	l := newLab(t, s)
	l.create("pool1", pool(1))
	if list, status := l.get("Microsoft.Compute/virtualMachineScaleSets/pool1/networkInterfaces", "2018-10-01"); status != 200 || len(list) != 1 {
		t.Errorf("%d %v", status, list)
	}
	for path, version := range map[string]string{"Microsoft.Compute/virtualMachineScaleSets/pool1/virtualMachines/0/networkInterfaces": "2018-10-01", nicType: "2024-05-01"} {
		if _, status := l.get(path, version); status != 403 {
			t.Errorf("%s: %d", path, status)
		}
	}
	var met []string
	for _, r := range s.Requests() {
		met = append(met, r.Action)
	}
	for _, want := range []string{setNICType + "/read", instanceNICType + "/read", nicType + "/read"} {
		if !slices.Contains(met, want) {
			t.Errorf("%s was not asked: %v", want, met)
		}
	}
}
