package arm_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/fleet"
)

// Resources compares and deploys a template, and shows why a deployment failed.
func TestResourcesDeploy(t *testing.T) {
	const template = `{"properties": {"mode": "Incremental", "template": {
		"$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#", "contentVersion": "1.0.0.0",
		"resources": [{"type": "Microsoft.Compute/disks", "apiVersion": "2024-03-02", "name": "d", "location": "westeurope", "properties": {"diskSizeGB": 4, "creationData": {"createOption": "Empty"}}}],
		"outputs": {"id": {"type": "string", "value": "[resourceId('Microsoft.Compute/disks', 'd')]"}}}}}`
	const version = "2021-04-01"
	synctest.Test(t, func(t *testing.T) {
		var s azsim.Server
		defer s.Close()
		r, err := arm.NewResources(arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: s.Credential(""), Transport: s.Transport(), Version: "test"})
		if err != nil {
			t.Fatal(err)
		}
		id := fleet.ResourceID("/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/" + azsim.DefaultResourceGroup + "/providers/Microsoft.Resources/deployments/ortet")
		send := func(method string, id fleet.ResourceID) (json.RawMessage, error) {
			op, err := r.Send(t.Context(), "deploy", method, id, version, json.RawMessage(template))
			if err != nil {
				return nil, err
			}
			return op.Wait(t.Context())
		}
		for what, want := range map[string]string{"POST /validate": `"validatedResources"`, "POST /whatIf": `"changeType":"Create"`} {
			method, action, _ := strings.Cut(what, " ")
			if got, err := send(method, id+fleet.ResourceID(action)); err != nil || !strings.Contains(string(got), want) {
				t.Errorf("%s: %v: %s", what, err, got)
			}
		}
		if err := s.AddFault(azsim.Fault{Path: "/disks/d$", Effect: azsim.EffectFailAtEnd, Code: "DiskBroken", Message: "The disk broke."}); err != nil {
			t.Fatal(err)
		}
		if _, err := send(http.MethodPut, id); err == nil || !strings.Contains(err.Error(), "DeploymentFailed") {
			t.Errorf("a deployment that fails: %v", err)
		}
		s.RemoveFault("")
		got, err := send(http.MethodPut, id)
		if err != nil || !strings.Contains(string(got), `"provisioningState":"Succeeded"`) || !strings.Contains(string(got), "/disks/d") {
			t.Errorf("deploy: %v: %s", err, got)
		}
		if _, err := r.Send(t.Context(), "delete", http.MethodDelete, id, version, nil); err != nil {
			t.Error(err)
		}
	})
}

// Azure's answer to the PUT of an identity, as recorded: the Location of what was created is
// no operation.
func TestResourcesCreatedAtLocation(t *testing.T) {
	const id = group + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i"
	c := &script{t: t, answers: []answer{{status: 201, header: map[string]string{"Location": id}, body: `{"id":"` + id + `"}`}}}
	r, err := arm.NewResources(arm.Options{Cloud: cloudAt(base), Credential: static{}, Transport: c})
	if err != nil {
		t.Fatal(err)
	}
	op, err := r.Send(t.Context(), "create", http.MethodPut, id, "2023-01-31", map[string]string{"location": "l"})
	if err != nil {
		t.Fatal(err)
	}
	if result, err := op.Wait(t.Context()); err != nil || !strings.Contains(string(result), id) {
		t.Errorf("the result is %s, %v", result, err)
	}
}
