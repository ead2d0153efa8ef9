package template_test

import (
	"strings"
	"testing"

	"github.com/ortet/ortet/azsim/template"
)

// The hashes are Azure's: recorded by the Azure CLI's tests (MIT licence)
// test_group_on_error_deployment_lastsuccessful and test_group_deployment.
func TestTemplateHash(t *testing.T) {
	for _, c := range []struct {
		source string
		want   uint64
	}{
		{`{"resources": [] /* none */, "$schema": "https://schema.management.azure.com/schemas/2015-01-01/deploymentParameters.json#",
			"contentVersion": "1.0.0.0"}`, 3965660584125802942},
		{`{"$schema": "http://schema.management.azure.com/schemas/2015-01-01/deploymentTemplate.json#", "contentVersion": "1.0.0.0",
			"parameters": {"name": {"type": "string"}, "location": {"type": "string"}, "subnetId": {"type": "string"},
				"privateIPAllocationMethod": {"type": "string"}, "backendAddressPools": {"type": "array"}, "tags": {"type": "object"}},
			"resources": [{"apiVersion": "2016-03-30", "dependsOn": [], "location": "[parameters('location')]", "name": "[parameters('name')]",
				"properties": {"frontendIPConfigurations": [{"name": "LoadBalancerFrontEnd", "properties": {
					"privateIPAllocationMethod": "[parameters('privateIPAllocationMethod')]", "subnet": {"id": "[parameters('subnetId')]"}}}],
					"backendAddressPools": "[parameters('backendAddressPools')]"},
				"tags": "[parameters('tags')]", "type": "Microsoft.Network/loadBalancers"}]}`, 11236209354464700424},
	} {
		parsed, err := template.Parse([]byte(c.source))
		if err != nil {
			t.Fatal(err)
		}
		if got := parsed.Hash(); got != c.want {
			t.Errorf("hash %d, want %d of %s", got, c.want, parsed.Export())
		}
	}
}

func TestExportHasAzuresOrderAndSpelling(t *testing.T) {
	parsed, err := template.Parse([]byte(`{"outputs": {"o": {"value": "<&>", "type": "STRING"}}, // kept in no export
		"resources": [{"properties": {"b": 1, "a": 2.50}, "name": "n", "type": "A.B/c", "apiVersion": "1"}],
		"parameters": {"p": {"type": "securestring", "defaultValue": ""}}, "contentVersion": "1.0.0.0", "$schema": "s"}`))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"$schema":"s","contentVersion":"1.0.0.0","parameters":{"p":{"defaultValue":"","type":"SecureString"}},` +
		`"resources":[{"type":"A.B/c","apiVersion":"1","name":"n","properties":{"b":1,"a":2.50}}],"outputs":{"o":{"type":"String","value":"<&>"}}}`
	if got := strings.TrimSpace(string(parsed.Export())); got != want {
		t.Errorf("export\n%s, want\n%s", got, want)
	}
}
