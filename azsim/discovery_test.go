package azsim

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// fetch returns the decoded answer to a GET of a path with its query.
func fetch(t *testing.T, b *bench, path string, into any) int {
	t.Helper()
	path, version, _ := strings.Cut(path, "?api-version=")
	r := b.sendAbsolute(http.MethodGet, path, version, "")
	defer func() { _ = r.Body.Close() }()
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	return r.StatusCode
}

// Clients of Kubernetes' cloud provider for Azure read an array, and take the
// entry whose name is their cloud's; older clients read one object.
func TestEndpointsOf2019AreAnArray(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		for _, version := range []string{"2019-05-01", "2022-09-01"} {
			var clouds []struct {
				Name, ResourceManager string
				Authentication        struct {
					Audiences     []string
					LoginEndpoint string
				}
			}
			fetch(b.T, b, "/metadata/endpoints?api-version="+version, &clouds)
			if len(clouds) != 1 || clouds[0].Name != "AzureStackCloud" || clouds[0].ResourceManager == "" || len(clouds[0].Authentication.Audiences) == 0 ||
				clouds[0].Authentication.LoginEndpoint != clouds[0].ResourceManager {
				b.Errorf("%s: %+v", version, clouds)
			}
		}
		var one struct {
			Authentication struct{ LoginEndpoint string }
		}
		fetch(b.T, b, "/metadata/endpoints?api-version=2015-01-01", &one)
		if !strings.HasSuffix(one.Authentication.LoginEndpoint, "/adfs") {
			b.Errorf("2015-01-01: %+v", one)
		}
	})
}

// On Azure Stack, cluster-autoscaler lists virtual machines in the version of its
// profile when it starts.
func TestVirtualMachinesOf2017(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		var list struct {
			Value []any
			Error *struct{ Code string }
		}
		if status := fetch(b.T, b, "/subscriptions/"+DefaultSubscription+"/resourceGroups/"+b.group+"/providers/Microsoft.Compute/virtualMachines?api-version=2017-12-01", &list); status != http.StatusOK {
			b.Errorf("status %d, %+v", status, list.Error)
		}
	})
}

func TestProviderListsZoneMappings(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		var provider struct {
			ResourceTypes []struct {
				ResourceType string
				ZoneMappings []struct {
					Location string
					Zones    []string
				}
			}
		}
		fetch(b.T, b, "/subscriptions/"+DefaultSubscription+"/providers/Microsoft.Compute?api-version=2021-04-01", &provider)
		zones := map[string]map[string][]string{}
		for _, typ := range provider.ResourceTypes {
			zones[typ.ResourceType] = map[string][]string{}
			for _, m := range typ.ZoneMappings {
				zones[typ.ResourceType][m.Location] = m.Zones
			}
		}
		want := map[string][]string{"West Europe": {"1", "2", "3"}, "North Europe": {"1", "2", "3"}}
		for _, typ := range []string{"virtualMachines", "virtualMachineScaleSets", "disks"} {
			if !reflect.DeepEqual(zones[typ], want) {
				b.Errorf("zones of %s: %v, want %v", typ, zones[typ], want)
			}
		}
		if len(zones["galleries"]) != 0 {
			b.Errorf("a gallery has zones: %v", zones["galleries"])
		}
	})
}
