package azsim

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

func TestActionPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, action string
		want            bool
	}{
		{"*", "Microsoft.Compute/disks/write", true},
		{"*/read", "Microsoft.Compute/disks/read", true},
		{"*/read", "Microsoft.Compute/disks/write", false},
		{"microsoft.compute/DISKS/*", "Microsoft.Compute/disks/beginGetAccess/action", true},
		{"Microsoft.Compute/*/read", "Microsoft.Compute/galleries/images/read", true},
		{"Microsoft.Compute/*/read", "Microsoft.Computer/galleries/read", false},
		{"Microsoft.Compute/disks/write", "Microsoft.Compute/disks/write", true},
		{"Microsoft.Compute/disks", "Microsoft.Compute/disks/write", false},
		{"", "Microsoft.Compute/disks/write", false},
		{"a*b*c", "aXbXbXc", true},
		{"ab*bc", "abc", false},
	} {
		if got := actionMatches(c.pattern, c.action); got != c.want {
			t.Errorf("actionMatches(%q, %q) = %v", c.pattern, c.action, got)
		}
	}
}

const helperID = "00000000-0000-4000-8000-0000000000aa"

func withHelper(grants ...Grant) func(*Server) {
	return func(s *Server) {
		s.Principals = []Principal{
			{Name: "owner", ClientID: DefaultClientID, Roles: []Grant{{Role: "Owner"}}},
			{Name: "helper", ClientID: helperID, Roles: grants},
		}
	}
}

func TestDeniedActionNamesWhoAndWhat(t *testing.T) {
	inVirtualTime(t, withHelper(Grant{Role: "Reader"}), func(b *bench) {
		d := b.disk("d", 4)
		h := newBench(t, b.s, helperID)
		if _, err := h.f.NewDisksClient().Get(h.ctx, h.group, "d", nil); err != nil {
			t.Fatal(err)
		}
		_, err := h.beginSnapshot("s", *d.ID)
		wantCode(t, err, "AuthorizationFailed")
		for _, part := range []string{"The client '" + helperID + "' with object id '", "'Microsoft.Compute/snapshots/write'", "over scope '/subscriptions/" + DefaultSubscription + "/resourceGroups/azsim/providers/Microsoft.Compute/snapshots/s'"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q is not in %v", part, err)
			}
		}
	})
}

func TestSourceOfACopyNeedsPermissionToo(t *testing.T) {
	write := Grant{Role: "snapshotter", Actions: []string{"Microsoft.Compute/snapshots/*", "Microsoft.Compute/locations/*/read"}}
	inVirtualTime(t, withHelper(write), func(b *bench) {
		_, err := newBench(t, b.s, helperID).beginSnapshot("s", *b.disk("d", 4).ID)
		wantCode(t, err, "LinkedAuthorizationFailed")
		if err != nil && !strings.Contains(err.Error(), "Microsoft.Compute/disks/beginGetAccess/action") {
			t.Error(err)
		}
	})
}

// What the permissions API says must be what is enforced.
func TestPermissionsAgreeWithEnforcement(t *testing.T) {
	custom := Grant{Role: "narrow", Actions: []string{"Microsoft.Compute/*", "Microsoft.Authorization/*/read"}, NotActions: []string{"Microsoft.Compute/*/delete"}}
	inVirtualTime(t, withHelper(custom), func(b *bench) {
		d := b.disk("d", 4)
		h := newBench(t, b.s, helperID)
		r := h.as(helperID, http.MethodGet, *d.ID+"/providers/Microsoft.Authorization/permissions", "2022-04-01", "")
		var got struct {
			Value []struct{ Actions, NotActions []string }
		}
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil || len(got.Value) != 1 {
			t.Fatal(err, got)
		}
		may := func(action string) bool {
			for _, p := range got.Value {
				yes, no := false, false
				for _, a := range p.Actions {
					yes = yes || actionMatches(a, action)
				}
				for _, a := range p.NotActions {
					no = no || actionMatches(a, action)
				}
				if yes && !no {
					return true
				}
			}
			return false
		}
		for method, action := range map[string]string{
			http.MethodGet: "Microsoft.Compute/disks/read", http.MethodPatch: "Microsoft.Compute/disks/write", http.MethodDelete: "Microsoft.Compute/disks/delete",
		} {
			r := h.as(helperID, method, *d.ID, "2022-07-02", `{"tags":{"a":"b"}}`)
			if denied := r.StatusCode == http.StatusForbidden; denied == may(action) {
				t.Errorf("%s: permissions say %v, the request got %d", action, may(action), r.StatusCode)
			}
		}
	})
}

func TestScopeOfAnAssignment(t *testing.T) {
	inVirtualTime(t, withHelper(Grant{Role: "Contributor", Scope: "/subscriptions/" + DefaultSubscription + "/resourceGroups/AZ"}), func(b *bench) {
		r := newBench(t, b.s, helperID).as(helperID, http.MethodGet, "/subscriptions/"+DefaultSubscription+"/resourceGroups/azsim", "2022-09-01", "")
		if r.StatusCode != http.StatusForbidden {
			t.Errorf("a grant on group AZ opens group azsim: %d", r.StatusCode)
		}
	})
}

func TestRoleAssignmentTakesEffect(t *testing.T) {
	inVirtualTime(t, withHelper(), func(b *bench) {
		b.disk("d", 4)
		h := newBench(t, b.s, helperID)
		_, err := h.f.NewDisksClient().Get(h.ctx, h.group, "d", nil)
		wantCode(t, err, "AuthorizationFailed")
		path := "/providers/Microsoft.Authorization/roleAssignments/11111111-1111-4111-8111-111111111111"
		body := `{"properties":{"principalId":"` + helperID + `","roleDefinitionId":"/subscriptions/x/providers/Microsoft.Authorization/roleDefinitions/acdd72a7-3385-48ef-bd42-f606fba81ae7"}}`
		if r := b.send(http.MethodPut, path, "2022-04-01", body); r.StatusCode != http.StatusCreated {
			t.Fatal(errorOf(t, r))
		}
		if _, err = h.f.NewDisksClient().Get(h.ctx, h.group, "d", nil); err != nil {
			t.Fatal(err)
		}
		b.send(http.MethodDelete, path, "2022-04-01", "")
		_, err = h.f.NewDisksClient().Get(h.ctx, h.group, "d", nil)
		wantCode(t, err, "AuthorizationFailed")
	})
}

func TestTokens(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		token, err := b.s.Credential("").GetToken(b.ctx, policy.TokenRequestOptions{})
		if err != nil {
			t.Fatal(err)
		}
		try := func(header, want string) {
			t.Helper()
			r, err := http.NewRequestWithContext(b.ctx, http.MethodGet, InProcess+"/subscriptions?api-version=2022-12-01", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", header)
			resp, err := b.s.Transport().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if want == "" {
				if resp.StatusCode != http.StatusOK {
					t.Errorf("%d", resp.StatusCode)
				}
				return
			}
			if code, _ := errorOf(t, resp); resp.StatusCode != http.StatusUnauthorized || code != want || resp.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("%.20q: got %d %s, want %s", header, resp.StatusCode, code, want)
			}
		}
		try("Bearer "+token.Token, "")
		try("", "AuthenticationFailed")
		try("Basic eDp5", "AuthenticationFailed")
		try("Bearer nonsense", "InvalidAuthenticationToken")
		try("Bearer "+token.Token[:len(token.Token)-4]+"AAAA", "InvalidAuthenticationToken")
		time.Sleep(time.Hour)
		try("Bearer "+token.Token, "ExpiredAuthenticationToken")
	})
}

func TestUnregisteredProvider(t *testing.T) {
	inVirtualTime(t, func(s *Server) { s.Unregistered = []string{"Microsoft.Compute"} }, func(b *bench) {
		_, err := b.f.NewGalleriesClient().BeginCreateOrUpdate(b.ctx, b.group, "g", armcompute.Gallery{Location: ptr(DefaultLocation)}, nil)
		wantCode(t, err, "MissingSubscriptionRegistration")
		b.sendAbsolute(http.MethodPost, "/subscriptions/"+DefaultSubscription+"/providers/Microsoft.Compute/register", "2021-04-01", "")
		time.Sleep(time.Minute)
		b.image()
	})
}

// as sends a request by the principal with that client id.
func (b *bench) as(clientID, method, path, version, body string) *http.Response {
	b.Helper()
	r, err := http.NewRequestWithContext(b.ctx, method, InProcess+path+"?api-version="+version, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	token, err := b.s.Credential(clientID).GetToken(b.ctx, policy.TokenRequestOptions{})
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token.Token)
	resp, err := b.s.Transport().Do(r)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// The SDK's own way with an unregistered provider: it registers it and goes on.
func TestSDKRegistersTheProvider(t *testing.T) {
	inVirtualTime(t, func(s *Server) { s.Unregistered = []string{"Microsoft.Compute"} }, func(b *bench) {
		o := b.s.ClientOptions()
		o.DisableRPRegistration = false
		c, err := armcompute.NewGalleriesClient(DefaultSubscription, b.s.Credential(""), o)
		if err != nil {
			t.Fatal(err)
		}
		p, err := c.BeginCreateOrUpdate(b.ctx, b.group, "g", armcompute.Gallery{Location: ptr(DefaultLocation)}, nil)
		await(b, p, err)
	})
}

// A PUT of a scale set needs an action on each resource that its body names.
func TestScaleSetNeedsLinkedActions(t *testing.T) {
	const groupID = "/subscriptions/" + DefaultSubscription + "/resourceGroups/" + labGroup
	const network = groupID + "/providers/Microsoft.Network"
	const identity = groupID + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/pool"
	linked := []string{
		"Microsoft.ManagedIdentity/userAssignedIdentities/assign/action",
		"Microsoft.Network/applicationSecurityGroups/joinIpConfiguration/action",
		"Microsoft.Network/loadBalancers/backendAddressPools/join/action",
		"Microsoft.Network/networkSecurityGroups/join/action",
		"Microsoft.Network/publicIPPrefixes/join/action",
		"Microsoft.Network/virtualNetworks/subnets/join/action",
	}
	body := pool(0)
	body.Identity = &armcompute.VirtualMachineScaleSetIdentity{Type: ptr(armcompute.ResourceIdentityTypeUserAssigned),
		UserAssignedIdentities: map[string]*armcompute.UserAssignedIdentitiesValue{identity: {}}}
	sub := func(id string) *armcompute.SubResource { return &armcompute.SubResource{ID: ptr(network + id)} }
	ip := &armcompute.VirtualMachineScaleSetIPConfigurationProperties{
		Subnet:                          &armcompute.APIEntityReference{ID: ptr(network + "/virtualNetworks/v/subnets/s")},
		ApplicationSecurityGroups:       []*armcompute.SubResource{sub("/applicationSecurityGroups/a")},
		LoadBalancerBackendAddressPools: []*armcompute.SubResource{sub("/loadBalancers/l/backendAddressPools/b")},
		PublicIPAddressConfiguration: &armcompute.VirtualMachineScaleSetPublicIPAddressConfiguration{Name: ptr("public"),
			Properties: &armcompute.VirtualMachineScaleSetPublicIPAddressConfigurationProperties{PublicIPPrefix: sub("/publicIPPrefixes/p")}},
	}
	nic := &armcompute.VirtualMachineScaleSetNetworkConfigurationProperties{
		Primary: ptr(true), NetworkSecurityGroup: sub("/networkSecurityGroups/g"),
		IPConfigurations: []*armcompute.VirtualMachineScaleSetIPConfiguration{{Name: ptr("ip"), Properties: ip}},
	}
	body.Properties.VirtualMachineProfile.NetworkProfile = &armcompute.VirtualMachineScaleSetNetworkProfile{
		NetworkInterfaceConfigurations: []*armcompute.VirtualMachineScaleSetNetworkConfiguration{{Name: ptr("nic"), Properties: nic}},
	}
	own := []string{setType + "/write", setType + "/read"}
	for i := range len(linked) + 1 { // the last lacks nothing
		lacks, actions := "", append(slices.Clone(own), linked...)
		if i < len(linked) {
			lacks = linked[i]
			actions = slices.Delete(actions, len(own)+i, len(own)+i+1)
		}
		configure := withHelper(Grant{Role: "pools", Scope: groupID, Actions: actions})
		inVirtualTime(t, func(s *Server) {
			configure(s)
			s.Principals = append(s.Principals, Principal{Name: "pool", ClientID: "60000000-0000-4000-8000-000000000000", ResourceID: identity})
		}, func(b *bench) {
			b.made("PUT", "Microsoft.Network/loadBalancers/l", netVersion, `{"location":"westeurope","sku":{"name":"Standard"},"properties":{"backendAddressPools":[{"name":"b"}]}}`)
			h := newBench(b.T, b.s, helperID)
			p, err := h.f.NewVirtualMachineScaleSetsClient().BeginCreateOrUpdate(h.ctx, h.group, "pool1", body, nil)
			if _, err = tryDone(p, err); lacks == "" && err != nil {
				b.Errorf("with all of the actions: %v", err)
			} else if lacks != "" {
				wantRefusal(b.T, err, "LinkedAuthorizationFailed", lacks)
			}
		})
	}
}
