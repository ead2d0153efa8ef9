package azsim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// A deployBench sends plain requests for deployments, as a principal.
type deployBench struct {
	*testing.T
	s      *Server
	client string
}

func deployments2021(t *testing.T, set func(*Server), test func(b *deployBench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		if set != nil {
			set(s)
		}
		defer s.Close()
		test(&deployBench{T: t, s: s})
	})
}

const inGroup = "/subscriptions/" + DefaultSubscription + "/resourceGroups/" + DefaultResourceGroup

func (b *deployBench) deployment(name string) string {
	return inGroup + "/providers/Microsoft.Resources/deployments/" + name
}

// send sends a request and gives the answer's status, header and body.
func (b *deployBench) send(method, path, body string) (int, http.Header, any) {
	b.Helper()
	if !strings.Contains(path, "api-version") {
		path += "?api-version=2021-04-01"
	}
	if !strings.HasPrefix(path, "https:") {
		path = InProcess + path
	}
	req, err := http.NewRequestWithContext(b.Context(), method, path, bytes.NewReader([]byte(body)))
	if err != nil {
		b.Fatal(err)
	}
	token, err := b.s.Credential(b.client).GetToken(b.Context(), policy.TokenRequestOptions{})
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token.Token)
	resp, err := b.s.Transport().Do(req)
	if err != nil {
		b.Fatal(err)
	}
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		b.Fatal(err)
	}
	var out any
	if len(data) > 0 {
		if err := json.Unmarshal(data, &out); err != nil {
			b.Fatalf("%s %s: %v: %s", method, path, err, data)
		}
	}
	return resp.StatusCode, resp.Header, out
}

func (b *deployBench) want(status int, method, path, body string) any {
	b.Helper()
	got, _, out := b.send(method, path, body)
	if got != status {
		b.Fatalf("%s %s: %d, want %d: %v", method, path, got, status, out)
	}
	return out
}

// dig walks a decoded JSON value by names and numbers: "properties.changes.0".
func dig(v any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[name]
		case []any:
			var i int
			if _, err := fmt.Sscan(name, &i); err != nil || i >= len(x) {
				return nil
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

func (b *deployBench) equal(v any, path string, want any) {
	b.Helper()
	if got := dig(v, path); !jsonEqual(got, want) {
		b.Errorf("%s = %v, want %v", path, got, want)
	}
}

func jsonEqual(a, b any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

// deploy puts a deployment and waits for its end.
func (b *deployBench) deploy(name, body string) any {
	b.Helper()
	status, head, out := b.send("PUT", b.deployment(name), body)
	if status != http.StatusCreated && status != http.StatusOK {
		b.Fatalf("PUT %s: %d: %v", name, status, out)
	}
	for {
		_, _, state := b.send("GET", head.Get("Azure-Asyncoperation"), "")
		if dig(state, "status") != "Running" {
			return b.want(200, "GET", b.deployment(name), "")
		}
		time.Sleep(5 * time.Second)
	}
}

const twoDisks = `{"$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#", "contentVersion": "1.0.0.0",
	// a comment, as files for the Azure CLI have them
	"parameters": {"size": {"type": "int", "defaultValue": 4}},
	"resources": [
		{"type": "Microsoft.Compute/disks", "apiVersion": "2024-03-02", "name": "copy", "location": "[resourceGroup().location]",
		 "dependsOn": ["[resourceId('Microsoft.Compute/disks', 'first')]"],
		 "properties": {"creationData": {"createOption": "Copy", "sourceResourceId": "[resourceId('Microsoft.Compute/disks', 'first')]"}}},
		{"type": "Microsoft.Compute/disks", "apiVersion": "2024-03-02", "name": "first", "location": "[resourceGroup().location]", "tags": {"a": "1"},
		 "properties": {"diskSizeGB": "[parameters('size')]", "creationData": {"createOption": "Empty"}}},
		{"type": "Microsoft.Compute/disks", "apiVersion": "2024-03-02", "name": "beside", "location": "[resourceGroup().location]",
		 "properties": {"diskSizeGB": 8, "creationData": {"createOption": "Empty"}}}
	],
	"outputs": {"size": {"type": "int", "value": "[reference('first').diskSizeGB]"}}
}`

func deploying(template, parameters string) string {
	return `{"properties": {"mode": "Incremental", "parameters": ` + parameters + `, template:` + template + `}}`
}

func TestDeploymentMakesResourcesInOrder(t *testing.T) {
	deployments2021(t, nil, func(b *deployBench) {
		got := b.deploy("d", deploying(twoDisks, `{"size": {"value": 16}}`))
		b.equal(got, "properties.provisioningState", "Succeeded")
		b.equal(got, "properties.error", nil)
		b.equal(got, "properties.outputs.size.value", 16)
		b.equal(got, "properties.parameters.size.value", 16)
		if n := len(dig(got, "properties.outputResources").([]any)); n != 3 {
			b.Errorf("%d output resources", n)
		}
		b.equal(b.want(200, "GET", inGroup+"/providers/Microsoft.Compute/disks/copy?api-version=2024-03-02", ""), "properties.diskSizeGB", 16)

		for _, form := range []string{b.deployment("d"), inGroup + "/deployments/d"} {
			list := b.want(200, "GET", form+"/operations", "")
			b.equal(list, "value.0.properties.provisioningOperation", "EvaluateDeploymentOutput")
			b.equal(list, "value.1.properties.targetResource.resourceName", "copy") // the last to begin
			b.equal(list, "value.1.properties.provisioningState", "Succeeded")
			id, _ := dig(list, "value.1.operationId").(string)
			b.equal(b.want(200, "GET", form+"/operations/"+id, ""), "properties.targetResource.resourceType", "Microsoft.Compute/disks")
		}
		b.want(204, "HEAD", b.deployment("d"), "")
		b.want(404, "HEAD", b.deployment("e"), "")
		b.equal(b.want(200, "POST", b.deployment("d")+"/exportTemplate", ""), "template.contentVersion", "1.0.0.0")
		b.equal(b.want(200, "GET", inGroup+"/providers/Microsoft.Resources/deployments", ""), "value.0.name", "d")
		b.equal(b.want(200, "GET", b.deployment("")+"?api-version=2021-04-01&$filter=provisioningState+eq+'Failed'", ""), "value", []any{})

		// Again: nothing changes, and the deployment of that name is replaced.
		again := b.deploy("d", deploying(twoDisks, `{"size": {"value": 16}}`))
		b.equal(again, "properties.provisioningState", "Succeeded")
		if dig(again, "properties.correlationId") == dig(got, "properties.correlationId") {
			b.Error("a second deployment has the first one's correlation id")
		}
		b.want(202, "DELETE", b.deployment("d"), "")
		time.Sleep(time.Minute)
		b.equal(b.want(404, "GET", b.deployment("d"), ""), "error.code", "DeploymentNotFound")
		b.want(200, "GET", inGroup+"/providers/Microsoft.Compute/disks/copy?api-version=2024-03-02", "")
	})
}

func TestDeploymentFails(t *testing.T) {
	fail := func(s *Server) {
		s.Faults = []Fault{{Method: "PUT", Path: "/disks/first$", Effect: EffectFailAtEnd, Code: "DiskBroken", Message: "The disk broke."}}
	}
	deployments2021(t, fail, func(b *deployBench) {
		got := b.deploy("d", deploying(twoDisks, "{}"))
		b.equal(got, "properties.provisioningState", "Failed")
		b.equal(got, "properties.error.code", "DeploymentFailed")
		b.equal(got, "properties.error.details.0.code", "ResourceDeploymentFailure")
		b.equal(got, "properties.error.details.0.details.0.code", "DiskBroken")
		// What does not depend on it has been made, what does has not begun.
		b.want(200, "GET", inGroup+"/providers/Microsoft.Compute/disks/beside?api-version=2024-03-02", "")
		b.want(404, "GET", inGroup+"/providers/Microsoft.Compute/disks/copy?api-version=2024-03-02", "")
		list := b.want(200, "GET", b.deployment("d")+"/operations", "")
		failed := 0
		for _, op := range dig(list, "value").([]any) {
			if dig(op, "properties.provisioningState") == "Failed" {
				failed++
				b.equal(op, "properties.statusMessage.error.details.0.code", "DiskBroken")
			}
		}
		if failed != 1 || len(dig(list, "value").([]any)) != 2 {
			b.Errorf("operations: %v", list)
		}
		// The next one repairs.
		b.s.RemoveFault("")
		b.equal(b.deploy("d", deploying(twoDisks, "{}")), "properties.provisioningState", "Succeeded")
	})
}

func TestOneDeploymentOfAName(t *testing.T) {
	deployments2021(t, nil, func(b *deployBench) {
		b.want(201, "PUT", b.deployment("d"), deploying(twoDisks, "{}"))
		b.equal(b.want(409, "PUT", b.deployment("D"), deploying(twoDisks, "{}")), "error.code", "DeploymentActive")
		b.equal(b.want(409, "DELETE", b.deployment("d"), ""), "error.code", "DeploymentActive")
		b.want(201, "PUT", b.deployment("other"), deploying(`{"$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#", "contentVersion": "1.0.0.0", "resources": []}`, "{}"))

		time.Sleep(time.Second)
		b.want(204, "POST", b.deployment("d")+"/cancel", "")
		time.Sleep(time.Minute)
		b.equal(b.want(200, "GET", b.deployment("d"), ""), "properties.provisioningState", "Canceled")
		// What had begun goes on, what had not does not begin.
		b.equal(b.want(200, "GET", inGroup+"/providers/Microsoft.Compute/disks/first?api-version=2024-03-02", ""), "properties.provisioningState", "Succeeded")
		b.want(404, "GET", inGroup+"/providers/Microsoft.Compute/disks/copy?api-version=2024-03-02", "")
		b.equal(b.want(409, "POST", b.deployment("d")+"/cancel", ""), "error.code", "DeploymentCannotBeCancelled")
		b.equal(b.deploy("d", deploying(twoDisks, "{}")), "properties.provisioningState", "Succeeded")
	})
}

func TestDeploymentGoesWithItsGroup(t *testing.T) {
	deployments2021(t, nil, func(b *deployBench) {
		b.want(201, "PUT", b.deployment("d"), deploying(twoDisks, "{}"))
		b.want(202, "DELETE", inGroup, "")
		time.Sleep(20 * time.Minute)
		b.want(201, "PUT", inGroup, `{"location": "westeurope"}`)
		b.equal(b.want(200, "GET", inGroup+"/providers/Microsoft.Resources/deployments", ""), "value", []any{})
	})
}

func TestDeploymentRefusals(t *testing.T) {
	set := func(s *Server) {
		s.Unregistered = []string{"Microsoft.Storage"}
		s.Principals = []Principal{
			{ClientID: DefaultClientID, Roles: []Grant{{Role: "Owner"}}},
			{ClientID: "c11e9700-0000-4000-8000-000000000009", Roles: []Grant{{Role: "deployer", Actions: []string{"Microsoft.Resources/*"}}}},
		}
	}
	deployments2021(t, set, func(b *deployBench) {
		for name, c := range map[string]struct{ body, client, code, inner string }{
			"no template":     {body: `{"properties": {"mode": "Incremental"}}`, code: "InvalidRequestContent"},
			"complete":        {body: `{"properties": {"mode": "Complete", "template": {}}}`, code: "NotSimulated"},
			"a link":          {body: `{"properties": {"mode": "Incremental", "templateLink": {"uri": "https://example.com"}}}`, code: "NotSimulated"},
			"unknown type":    {body: deploying(strings.ReplaceAll(twoDisks, "/disks", "/floppies"), "{}"), code: "InvalidTemplateDeployment", inner: "InvalidResourceType"},
			"unknown version": {body: deploying(strings.ReplaceAll(twoDisks, "2024-03-02", "2010-01-01"), "{}"), code: "InvalidTemplateDeployment", inner: "NoRegisteredProviderFound"},
			"a bad body":      {body: deploying(strings.ReplaceAll(twoDisks, `"diskSizeGB": 8`, `"diskSizeGB": -8`), "{}"), code: "InvalidTemplateDeployment", inner: "InvalidParameter"},
			"no permission":   {body: deploying(twoDisks, "{}"), client: "c11e9700-0000-4000-8000-000000000009", code: "InvalidTemplateDeployment", inner: "AuthorizationFailed"},
		} {
			b.client = c.client
			for _, ask := range []struct{ method, path string }{{"POST", b.deployment("d") + "/validate"}, {"PUT", b.deployment("d")}} {
				got := b.want(400, ask.method, ask.path, c.body)
				if dig(got, "error.code") != c.code || c.inner != "" && dig(got, "error.details.0.code") != c.inner {
					b.Errorf("%s: %s: %v", name, ask.method, got)
				}
			}
		}
		b.client = ""
		b.equal(b.want(200, "POST", b.deployment("d")+"/validate", deploying(twoDisks, "{}")), "properties.provisioningState", "Succeeded")
		b.equal(b.want(404, "GET", b.deployment("d"), ""), "error.code", "DeploymentNotFound")
		b.equal(b.want(200, "GET", inGroup+"/providers/Microsoft.Compute/disks?api-version=2024-03-02", ""), "value", []any{})
	})
}

func (b *deployBench) whatIf(body string) map[string]any {
	b.Helper()
	status, head, out := b.send("POST", b.deployment("d")+"/whatIf", body)
	if status != http.StatusAccepted {
		b.Fatalf("whatIf: %d: %v", status, out)
	}
	for status == http.StatusAccepted {
		time.Sleep(5 * time.Second)
		status, _, out = b.send("GET", head.Get("Location"), "")
	}
	changes := map[string]any{}
	list, ok := dig(out, "properties.changes").([]any)
	if !ok {
		b.Fatalf("whatIf: %d: %v", status, out)
	}
	for _, c := range list {
		id, _ := dig(c, "resourceId").(string)
		changes[id[strings.LastIndexByte(id, '/')+1:]] = c
	}
	return changes
}

func TestWhatIf(t *testing.T) {
	deployments2021(t, nil, func(b *deployBench) {
		c := b.whatIf(deploying(twoDisks, "{}"))
		b.equal(c["first"], "changeType", "Create")
		b.equal(c["copy"], "changeType", "Create")
		b.equal(c["first"], "after.properties.diskSizeGB", 4)

		b.deploy("d", deploying(twoDisks, "{}"))
		b.want(202, "PUT", inGroup+"/providers/Microsoft.Compute/disks/foreign?api-version=2024-03-02", `{"location":"westeurope","properties":{"diskSizeGB":4,"creationData":{"createOption":"Empty"}}}`)
		c = b.whatIf(deploying(twoDisks, "{}"))
		for name, want := range map[string]string{"first": "NoChange", "copy": "NoChange", "beside": "NoChange", "foreign": "Ignore"} {
			b.equal(c[name], "changeType", want)
		}
		changed := strings.ReplaceAll(twoDisks, `"tags": {"a": "1"}`, `"tags": {"b": "2"}`)
		c = b.whatIf(deploying(changed, `{"size": {"value": 32}}`))
		b.equal(c["first"], "changeType", "Modify")
		b.equal(c["first"], "before.properties.diskSizeGB", 4)
		b.equal(c["first"], "after.properties.diskSizeGB", 32)
		b.equal(c["first"], "delta", []any{
			map[string]any{"path": "properties.diskSizeGB", "propertyChangeType": "Modify", "before": 4, "after": 32},
			map[string]any{"path": "tags.a", "propertyChangeType": "Delete", "before": "1", "after": nil},
			map[string]any{"path": "tags.b", "propertyChangeType": "Create", "before": nil, "after": "2"},
		})
		b.equal(b.want(200, "GET", inGroup+"/providers/Microsoft.Compute/disks/first?api-version=2024-03-02", ""), "properties.diskSizeGB", 4)
	})
}

// What-if of a scale set shows what changes in its lists, and no customData.
func TestWhatIfOfAScaleSet(t *testing.T) {
	deployments2021(t, nil, func(b *deployBench) {
		template := func(change func(body map[string]any)) string {
			tree, err := toTree(pool(1))
			if err != nil {
				b.Fatal(err)
			}
			body, _ := tree.(map[string]any)
			body["type"], body["apiVersion"], body["name"] = setType, "2024-07-01", "pool1"
			change(body)
			data, err := json.Marshal(body)
			if err != nil {
				b.Fatal(err)
			}
			return deploying(`{"$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#", "contentVersion": "1.0.0.0", "resources": [`+string(data)+`]}`, "{}")
		}
		b.equal(b.deploy("d", template(func(map[string]any) {})), "properties.provisioningState", "Succeeded")
		b.equal(b.whatIf(template(func(map[string]any) {}))["pool1"], "changeType", "NoChange")
		b.equal(b.whatIf(template(func(body map[string]any) {
			profile, _ := dig(body, "properties.virtualMachineProfile.osProfile").(map[string]any)
			profile["customData"] = "b3RoZXI="
		}))["pool1"], "changeType", "NoChange")

		got := b.whatIf(template(func(body map[string]any) {
			ssh, _ := dig(body, "properties.virtualMachineProfile.osProfile.linuxConfiguration.ssh").(map[string]any)
			keys, _ := ssh["publicKeys"].([]any)
			ssh["publicKeys"] = append(keys, map[string]any{"path": "/home/azureuser/.ssh/authorized_keys", "keyData": "ssh-ed25519 BBBB"})
			key, _ := keys[0].(map[string]any)
			key["keyData"] = "ssh-ed25519 CCCC"
		}))["pool1"]
		b.equal(got, "changeType", "Modify")
		if n := len(dig(got, "delta").([]any)); n != 1 {
			b.Errorf("%d changes: %v", n, dig(got, "delta"))
		}
		b.equal(got, "delta.0.path", "properties.virtualMachineProfile.osProfile.linuxConfiguration.ssh.publicKeys")
		b.equal(got, "delta.0.propertyChangeType", "Array")
		b.equal(got, "delta.0.children.0.children.0.after", "ssh-ed25519 CCCC")
		b.equal(got, "delta.0.children.1.propertyChangeType", "Create")
	})
}

// Who may not assign roles meets that before anything is made; who may, deploys
// an assignment as often as another resource.
func TestDeploymentAssignsARole(t *testing.T) {
	const limited = "c11e9700-0000-4000-8000-000000000009"
	set := func(s *Server) {
		s.Principals = []Principal{
			{ClientID: DefaultClientID, Roles: []Grant{{Role: "Owner"}}},
			{ClientID: limited, ObjectID: "0b1ec700-0000-4000-8000-000000000009", Roles: []Grant{{Role: "Contributor"}}},
		}
	}
	const template = `{"$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#", "contentVersion": "1.0.0.0", "resources": [
		{"type": "Microsoft.Compute/disks", "apiVersion": "2024-03-02", "name": "d", "location": "westeurope", "properties": {"diskSizeGB": 4, "creationData": {"createOption": "Empty"}}},
		{"type": "Microsoft.Authorization/roleAssignments", "apiVersion": "2022-04-01", "name": "[guid(resourceGroup().id, 'reader')]", "dependsOn": ["d"],
		 "scope": "[resourceId('Microsoft.Compute/disks', 'd')]",
		 "properties": {"roleDefinitionId": "[subscriptionResourceId('Microsoft.Authorization/roleDefinitions', 'acdd72a7-3385-48ef-bd42-f606fba81ae7')]", "principalId": "0b1ec700-0000-4000-8000-000000000009"}}],
		"outputs": {"type": {"type": "string", "value": "[reference('d', '2024-03-02', 'Full').type]"}}}`
	deployments2021(t, set, func(b *deployBench) {
		b.client = limited
		got := b.want(400, "PUT", b.deployment("d"), deploying(template, "{}"))
		b.equal(got, "error.details.0.code", "AuthorizationFailed")
		if m, _ := dig(got, "error.details.0.message").(string); !strings.Contains(m, "Microsoft.Authorization/roleAssignments/write") {
			b.Errorf("message %q", m)
		}
		b.want(404, "GET", inGroup+"/providers/Microsoft.Compute/disks/d?api-version=2024-03-02", "")
		b.client = ""
		got = b.deploy("d", deploying(template, "{}"))
		b.equal(got, "properties.provisioningState", "Succeeded")
		b.equal(got, "properties.outputs.type.value", "Microsoft.Compute/disks")
		b.equal(b.want(200, "GET", inGroup+"/providers/Microsoft.Compute/disks/d/providers/Microsoft.Authorization/roleAssignments?api-version=2022-04-01&$filter=principalId+eq+'0b1ec700-0000-4000-8000-000000000009'", ""),
			"value.1.properties.principalId", "0b1ec700-0000-4000-8000-000000000009")
	})
}

func TestDeploymentOfAnUnregisteredProvider(t *testing.T) {
	deployments2021(t, func(s *Server) { s.Unregistered = []string{"Microsoft.Compute"} }, func(b *deployBench) {
		got := b.want(400, "POST", b.deployment("d")+"/validate", deploying(twoDisks, "{}"))
		b.equal(got, "error.details.0.code", "MissingSubscriptionRegistration")
		b.equal(got, "error.details.0.details.0.target", "Microsoft.Compute")
	})
}

// A test that sets its world up at once does so with deployments too.
func TestDeploymentAtOnce(t *testing.T) {
	deployments2021(t, nil, func(b *deployBench) {
		b.s.Instant(true)
		began := time.Now()
		b.want(201, "PUT", b.deployment("d"), deploying(twoDisks, "{}"))
		time.Sleep(time.Second)
		got := b.want(200, "GET", b.deployment("d"), "")
		b.equal(got, "properties.provisioningState", "Succeeded")
		if took := time.Since(began); took > time.Second {
			b.Errorf("it took %v", took)
		}
	})
}

// What refers to a resource that does not exist yet is compared by its expression,
// and made after that resource.
func TestDeploymentRefersToItsResources(t *testing.T) {
	const template = `{"$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#", "contentVersion": "1.0.0.0", "resources": [
		{"type": "Microsoft.Compute/disks", "apiVersion": "2024-03-02", "name": "second", "location": "westeurope", "tags": {"size": "[string(reference('first').diskSizeGB)]"},
		 "properties": {"diskSizeGB": 4, "creationData": {"createOption": "Empty"}}},
		{"type": "Microsoft.Compute/disks", "apiVersion": "2024-03-02", "name": "first", "location": "westeurope", "properties": {"diskSizeGB": 8, "creationData": {"createOption": "Empty"}}}],
		"outputs": {"arm": {"type": "string", "value": "[environment().resourceManager]"}, "group": {"type": "string", "value": "[resourceGroup().id]"}}}`
	deployments2021(t, nil, func(b *deployBench) {
		b.equal(b.whatIf(deploying(template, "{}"))["second"], "after.tags.size", "[string(reference('first').diskSizeGB)]")
		got := b.deploy("d", deploying(template, "{}"))
		b.equal(got, "properties.provisioningState", "Succeeded")
		b.equal(got, "properties.outputs.arm.value", InProcess+"/")
		b.equal(got, "properties.outputs.group.value", inGroup)
		b.equal(b.want(200, "GET", inGroup+"/providers/Microsoft.Compute/disks/second?api-version=2024-03-02", ""), "tags.size", "8")
		b.equal(b.whatIf(deploying(template, "{}"))["second"], "changeType", "NoChange")
	})
}

// A throttled request of a deployment is sent again, and outputs that cannot be
// evaluated fail it.
func TestDeploymentMeetsFaults(t *testing.T) {
	deployments2021(t, func(s *Server) {
		s.Faults = []Fault{{Name: "busy", Method: "PUT", Path: "/disks/first$", Count: 2, Effect: EffectThrottle}}
	}, func(b *deployBench) {
		b.equal(b.deploy("d", deploying(twoDisks, "{}")), "properties.provisioningState", "Succeeded")
		if f := b.s.FaultsNow(); f[0].Met != 2 {
			b.Errorf("faults %+v", f)
		}
		got := b.deploy("d", deploying(strings.ReplaceAll(twoDisks, "').diskSizeGB", "').nothing"), "{}"))
		b.equal(got, "properties.provisioningState", "Failed")
		b.equal(got, "properties.error.details.0.code", "DeploymentOutputEvaluationFailed")
	})
}

// The end of a server ends a deployment that waits for a resource for ever: the
// bubble of the test would not end otherwise.
func TestCloseEndsADeployment(t *testing.T) {
	deployments2021(t, func(s *Server) {
		s.Faults = []Fault{{Method: "PUT", Path: "/disks/first$", Effect: EffectNeverEnds}}
	}, func(b *deployBench) {
		b.want(201, "PUT", b.deployment("d"), deploying(twoDisks, "{}"))
		time.Sleep(time.Hour)
		b.equal(b.want(200, "GET", b.deployment("d"), ""), "properties.provisioningState", "Running")
	})
}
