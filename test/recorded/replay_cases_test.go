package recorded

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

const (
	inSubscription = "/subscriptions/11111111-0000-4000-8000-00000000000a"
	inGroup        = inSubscription + "/resourceGroups/g"
	madeUpID       = "22222222-0000-4000-8000-00000000000b"
)

type object = map[string]any

// ask is a made-up interaction.
func ask(method, path, version string, request any, status int, response any, headers ...string) interaction {
	i := interaction{Method: method, URI: path + "?api-version=" + version, Request: request, Status: status, Response: response,
		Headers: map[string]string{}}
	for n := 0; n+1 < len(headers); n += 2 {
		i.Headers[headers[n]] = headers[n+1]
	}
	return i
}

// madeUp is a session in a group that it makes.
func madeUp(more ...interaction) *session {
	group := object{"id": inGroup, "name": "g", "type": "Microsoft.Resources/resourceGroups", "location": "westus",
		"properties": object{"provisioningState": "Succeeded"}}
	first := ask(http.MethodPut, inGroup, "2021-04-01", object{"location": "westus"}, http.StatusCreated, group)
	return &session{Source: "made up", Name: "test", Interactions: append([]interaction{first}, more...)}
}

// outcomes replays a session, and returns category and differences of each request but the
// first.
func outcomes(t *testing.T, s *session) (all []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		results, err := replay(s)
		if err != nil {
			t.Fatal(err)
		}
		if results[0].category != same || results[0].strict != same {
			t.Errorf("the group's PUT is %v %+v, want same", results[0].category, results[0].differences)
		}
		for _, r := range results[1:] {
			var rules []string
			for _, d := range r.differences {
				rules = append(rules, d.rule)
			}
			all = append(all, strings.TrimSpace(fmt.Sprint(r.category, " ", strings.Join(rules, "; "))))
		}
	})
	return all
}

func wantOutcomes(t *testing.T, s *session, want ...string) {
	t.Helper()
	if got := outcomes(t, s); !slices.Equal(got, want) {
		t.Errorf("outcomes are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestReplayCategories(t *testing.T) {
	const network, version = inGroup + "/providers/Microsoft.Network/virtualNetworks/v", "2022-01-01"
	missing := func(code string) object { return object{"error": object{"code": code, "message": "any"}} }
	template := object{"$schema": "https://schema.management.azure.com/schemas/2015-01-01/deploymentTemplate.json#",
		"contentVersion": "1.0.0.0",
		"resources":      []any{object{"type": "Microsoft.Network/applicationGateways", "apiVersion": version, "name": "a", "location": "westus"}}}
	const deployment = inGroup + "/providers/Microsoft.Resources/deployments/d"
	deployed := object{"name": "d", "properties": object{"outputResources": []any{object{"id": network}}}}
	wantOutcomes(t, madeUp(
		ask(http.MethodGet, inGroup, "2021-04-01", nil, http.StatusOK, object{"name": "g", "managedBy": "x", "properties": object{}}),
		ask(http.MethodGet, network, version, nil, http.StatusNotFound, missing("ResourceNotFound")),
		ask(http.MethodGet, network, version, nil, http.StatusNotFound, missing("Other")),
		ask(http.MethodPut, inGroup+"/providers/Microsoft.Compute/virtualMachines/m", "2022-11-01",
			object{"location": "westus"}, http.StatusCreated, object{}),
		ask(http.MethodGet, network, version, nil, http.StatusOK, object{"name": "v"}),
		ask(http.MethodPut, deployment, "2021-04-01", object{"properties": object{"mode": "Incremental", "template": template}},
			http.StatusCreated, object{}),
		ask(http.MethodGet, deployment, "2021-04-01", nil, http.StatusOK, deployed),
		ask(http.MethodGet, network, version, nil, http.StatusOK, object{"name": "v"}),
		ask(http.MethodPut, network+"/subnets/s", version, object{}, http.StatusBadRequest, missing("Any")),
	),
		"body managedBy missing",
		"same",
		"status error.code Other, azsim's ResourceNotFound",
		"refused refused with 400 InvalidParameter",
		"refused refused with 404 ResourceNotFound",
		"consequence refused with 400 InvalidTemplateDeployment",
		"consequence refused with 404 DeploymentNotFound",
		"consequence refused with 404 ResourceNotFound",
		"consequence status 400, azsim's 404",
	)
}

// A recorded poll is not sent: azsim's operation is followed in its place, and its end is
// compared. A request before it meets the operation under way.
func TestReplayOperation(t *testing.T) {
	const disk, version = inGroup + "/providers/Microsoft.Compute/disks/d", "2023-04-02"
	const work = inSubscription + "/providers/Microsoft.Compute/locations/westus/DiskOperations/" + madeUpID
	request := object{"location": "westus", "properties": object{"diskSizeGB": 4, "creationData": object{"createOption": "Empty"}}}
	put := ask(http.MethodPut, disk, version, request, http.StatusAccepted, object{"name": "d"},
		"azure-asyncoperation", "https://management.azure.com"+work, "location", "https://management.azure.com"+work)
	state := func(s string) interaction {
		return ask(http.MethodGet, disk, version, nil, http.StatusOK, object{"properties": object{"provisioningState": s}})
	}
	poll := func(s object) interaction { return ask(http.MethodGet, work, version, nil, http.StatusOK, s) }
	running, succeeded := poll(object{"status": "InProgress"}), poll(object{"status": "Succeeded"})
	wantOutcomes(t, madeUp(put, state("Updating"), running, succeeded, state("Succeeded")), "same", "same", "same")
	failed := poll(object{"status": "Failed", "error": object{"code": "Boom"}})
	wantOutcomes(t, madeUp(put, failed), "status operation Failed Boom, azsim's Succeeded")
	without := put
	without.Headers = map[string]string{}
	wantOutcomes(t, madeUp(without, state("Succeeded")),
		"body header Azure-AsyncOperation one too many; header Location one too many", "same")
}

// What Azure made up and azsim makes up otherwise is mapped in later requests.
func TestReplayMapsMadeUpValues(t *testing.T) {
	const identity = inGroup + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i"
	assignment := inGroup + "/providers/Microsoft.Authorization/roleAssignments/33333333-0000-4000-8000-00000000000c"
	reader := inSubscription + "/providers/Microsoft.Authorization/roleDefinitions/acdd72a7-3385-48ef-bd42-f606fba81ae7"
	s := madeUp(
		ask(http.MethodPut, identity, "2023-01-31", object{"location": "westus"},
			http.StatusCreated, object{"properties": object{"principalId": madeUpID}}, "location", identity),
		ask(http.MethodPut, assignment, "2022-04-01", object{"properties": object{"principalId": madeUpID, "roleDefinitionId": reader}},
			http.StatusCreated, object{"properties": object{"principalId": madeUpID}}),
	)
	wantOutcomes(t, s, "same", "same")
}

// The latest version of a marketplace image is the one of the recording's day, in both forms
// in which Azure shows it.
func TestReplayLearnsImageVersions(t *testing.T) {
	image := object{"publisher": "Canonical", "offer": "UbuntuServer", "sku": "18.04-LTS", "version": "latest"}
	for _, c := range []struct{ member, want string }{{"exactVersion", "18.04.202305220"}, {"version", "16.04.201912110"}} {
		shown := object{"publisher": "Canonical", "offer": "UbuntuServer", "sku": "18.04-LTS", "version": "latest"}
		shown[c.member] = c.want
		azure := prepare(madeUp(
			ask(http.MethodPut, inGroup+"/providers/Microsoft.Compute/virtualMachines/v", "2022-11-01", nil, http.StatusOK,
				object{"properties": object{"storageProfile": object{"imageReference": image}}}),
			ask(http.MethodGet, inGroup+"/providers/Microsoft.Compute/virtualMachines/v", "2022-11-01", nil, http.StatusOK,
				object{"properties": object{"storageProfile": object{"imageReference": shown}}}),
		))
		if got := azure.ImageVersions["canonical:ubuntuserver:18.04-lts"]; got != c.want {
			t.Errorf("latest is %q, want %q, which %s says", got, c.want, c.member)
		}
		azure.Close()
	}
}

// A deployment that the next request cancels is not followed to its end before.
func TestReplayCancelsWhatRuns(t *testing.T) {
	path := inGroup + "/providers/Microsoft.Resources/deployments/d"
	answer := func(state string) object { return object{"properties": object{"provisioningState": state}} }
	template := object{"$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
		"contentVersion": "1.0.0.0", "resources": []any{object{"type": "Microsoft.Network/networkSecurityGroups", "apiVersion": "2023-09-01",
			"name": "n", "location": "westus"}}}
	got := outcomes(t, madeUp(
		ask(http.MethodPut, path, "2021-04-01", object{"properties": object{"mode": "Incremental", "template": template}},
			http.StatusCreated, answer("Accepted"), "azure-asyncoperation", "https://management.azure.com"+path+"/operationStatuses/1"),
		ask(http.MethodPost, path+"/cancel", "2021-04-01", nil, http.StatusNoContent, nil),
		ask(http.MethodGet, path, "2021-04-01", nil, http.StatusOK, answer("Canceled")),
	))
	if want := []string{"same", "same", "same"}; !slices.Equal(got, want) {
		t.Errorf("outcomes %q, want %q", got, want)
	}
	disk := object{"$schema": template["$schema"], "contentVersion": "1.0.0.0", "resources": []any{object{"type": "Microsoft.Compute/disks",
		"apiVersion": "2023-04-02", "name": "made", "location": "westus", "dependsOn": []any{"[resourceId('Microsoft.Network/networkSecurityGroups', 'n')]"},
		"properties": object{"diskSizeGB": 4, "creationData": object{"createOption": "Empty"}}}, template["resources"].([]any)[0]}}
	wantOutcomes(t, madeUp(
		ask(http.MethodPut, path, "2021-04-01", object{"properties": object{"mode": "Incremental", "template": disk}},
			http.StatusCreated, answer("Accepted"), "azure-asyncoperation", "https://management.azure.com"+path+"/operationStatuses/1"),
		ask(http.MethodGet, inGroup+"/providers/Microsoft.Compute/disks/made", "2023-04-02", nil, http.StatusNotFound, object{"error": object{"code": "ResourceNotFound"}}),
	), "same", "same")
}
