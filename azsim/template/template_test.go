package template_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/azsim/template"
)

// fleet has the constructs of templates in the field, comments and loose commas too.
const fleet = `// A fleet
{
  "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
  "contentVersion": "1.0.0.0",
  "parameters": {
    "prefix": {"type": "string", "defaultValue": "node", "minLength": 2, "maxLength": 8,},
    "count": {"type": "int", "defaultValue": 2, "minValue": 0, "maxValue": 5, "allowedValues": [0, 2, 3]},
    "label": {"type": "string", "defaultValue": "[concat(parameters('prefix'), '-', utcNow('yyyy'))]"},
    "kind": {"type": "string", "defaultValue": "standard", "allowedValues": ["Standard", "Premium"]},
    "secret": {"type": "secureString", "defaultValue": ""},
    "gateway": {"type": "bool", "defaultValue": false},
    "sizes": {"type": "array", "defaultValue": [32, 64, 128]},
    "extra": {"type": "object", "defaultValue": {"until": "[utcNow('yyyy-MM-ddTHH:mm:ssZ')]"}} /* evaluated too */
  },
  "variables": {
    "ports": [{"port": "[add(8000, 1)]"}],
    "identity": "[parameters('prefix')]",
    "account": "[toLower(concat('diag', uniqueString(resourceGroup().id)))]",
  },
  "resources": [
    {"type": "Microsoft.ManagedIdentity/userAssignedIdentities", "apiVersion": "2023-01-31", "name": "[variables('identity')]",
     "location": "[resourceGroup().location]", "tags": null},
    {"type": "Microsoft.Storage/storageAccounts", "apiVersion": "2023-05-01", "name": "[variables('account')]", "sku": {"name": "Standard_LRS"},
     "kind": "StorageV2"},
    {"type": "Microsoft.Storage/storageAccounts/fileServices/shares", "apiVersion": "2023-05-01", "name": "[concat(variables('account'), '/default/data')]",
     "dependsOn": ["[variables('account')]"], "properties": {"shareQuota": 5}},
    {"comments": "a machine each", "type": "Microsoft.Compute/virtualMachines", "apiVersion": "2024-07-01",
     "copy": {"name": "machines", "count": "[parameters('count')]"},
     "name": "[concat(parameters('prefix'), copyIndex())]",
     "identity": {"type": "UserAssigned", "userAssignedIdentities": {"[resourceID('Microsoft.ManagedIdentity/userAssignedIdentities', variables('identity'))]": {}}},
     "zones": ["1"],
     "properties": {
       "customData": "line one
line two",
       "maxPrice": -1, "ratio": 0.50, "label": "[[not an expression]",
       "dataDisks": [{"name": "[concat('d', copyIndex(), copyIndex('machines', 10))]", "size": "[parameters('sizes')[copyIndex('machines')]]"}],
       "key": "[listKeys(variables('account'), '2023-05-01').keys[0].value]"
     },
     "resources": [],
     "dependsOn": ["[concat('Microsoft.Network/networkInterfaces/', parameters('prefix'), copyIndex())]", "gate"]},
    {"type": "Microsoft.Network/networkInterfaces", "apiVersion": "2024-05-01", "name": "[format('{0}{1}', parameters('prefix'), copyIndex())]",
     "copy": {"name": "nics", "count": "[parameters('count')]", "mode": "serial"}},
    {"condition": "[parameters('gateway')]", "type": "Microsoft.Network/natGateways", "apiVersion": "2024-05-01", "name": "gate"},
    {"type": "Microsoft.Authorization/roleAssignments", "apiVersion": "2022-04-01", "name": "[guid(resourceGroup().id, 'r')]",
     "scope": "[concat('Microsoft.Storage/storageAccounts/', variables('account'))]",
     "properties": {"principalId": "[reference(resourceId('Microsoft.ManagedIdentity/userAssignedIdentities', variables('identity')), '2023-01-31', 'Full').id]",
                    "version": "[reference(variables('identity')).version]"},
     "dependsOn": ["machines"]}
  ],
  "outputs": {
    "ports": {"type": "array", "value": "[variables('ports')]"},
    "object": {"type": "object", "value": {"a": [1]}},
    "plain": {"type": "array", "value": [1, "[string(2)]"]},
    "token": {"type": "securestring", "value": "[parameters('secret')]"},
    "gate": {"condition": "[parameters('gateway')]", "type": "string", "value": "[reference('gate').id]"},
    "identity": {"type": "string", "value": "[reference(variables('identity')).id]"}
  }
}
`

func value(v any) map[string]any { return map[string]any{"value": v} }

func text(t *testing.T, v any) string {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestExpand(t *testing.T) {
	d, err := expand(fleet, map[string]any{"COUNT": value(int64(3)), "secret": value("hidden")})
	if err != nil {
		t.Fatal(err)
	}
	const providers = group + "/providers/"
	identity := providers + "Microsoft.ManagedIdentity/userAssignedIdentities/node"
	account := d.Resources[1].ID
	machine := func(i int) string { return fmt.Sprint(providers, "Microsoft.Compute/virtualMachines/node", i) }
	nic := func(i int) string { return fmt.Sprint(providers, "Microsoft.Network/networkInterfaces/node", i) }
	role := account + "/providers/Microsoft.Authorization/roleAssignments/" + d.Resources[9].Name
	want := []struct {
		id        string
		dependsOn []string
	}{
		{identity, nil}, {account, nil}, {account + "/fileServices/default/shares/data", []string{account}},
		{machine(0), []string{nic(0), account}}, {machine(1), []string{nic(1), account}}, {machine(2), []string{nic(2), account}},
		{nic(0), nil}, {nic(1), nil}, {nic(2), nil},
		{role, []string{machine(0), machine(1), machine(2), identity}},
	}
	if len(d.Resources) != len(want) {
		t.Fatalf("%d resources, want %d", len(d.Resources), len(want))
	}
	for i, w := range want {
		if got := d.Resources[i]; got.ID != w.id || !slices.Equal(got.DependsOn, w.dependsOn) {
			t.Errorf("resource %d: %s depends on %q; want %s, %q", i, got.ID, got.DependsOn, w.id, w.dependsOn)
		}
	}
	if child := d.Resources[2]; child.Type != "Microsoft.Storage/storageAccounts/fileServices/shares" || !strings.HasSuffix(child.Name, "/default/data") {
		t.Errorf("child is %s %s", child.Type, child.Name)
	}
	for i, body := range map[int]string{
		0: `{"location":"westeurope"}`,
		4: `{"identity":{"type":"UserAssigned","userAssignedIdentities":{"` + identity + `":{}}},"properties":{"customData":"line one\nline two","dataDisks":[` +
			`{"name":"d111","size":64}],"key":"listKeys ` + account + ` 2023-05-01","label":"[not an expression]","maxPrice":-1,"ratio":0.50},"zones":["1"]}`,
		9: `{"properties":{"principalId":"` + identity + `","version":"2023-01-31"}}`,
	} {
		if got, err := d.Resources[i].Body(world{}); err != nil || text(t, got) != body {
			t.Errorf("body %d: %s, %v; want %s", i, text(t, got), err, body)
		}
	}
	if got, err := d.Resources[9].Body(nil); err != nil || got["properties"].(map[string]any)["version"] != "[reference(variables('identity')).version]" {
		t.Errorf("without a World: %v, %v", got, err)
	}
	outputs, err := d.Outputs(world{})
	wantOutputs := `{"identity":{"type":"String","value":"` + identity + `"},` +
		`"object":{"type":"Object","value":{"a":[1]}},"plain":{"type":"Array","value":[1,"2"]},"ports":{"type":"Array","value":[{"port":8001}]},"token":{"type":"SecureString"}}`
	if err != nil || text(t, outputs) != wantOutputs {
		t.Errorf("outputs %s, %v; want %s", text(t, outputs), err, wantOutputs)
	}
	wantParameters := `{"count":{"type":"Int","value":3},"extra":{"type":"Object","value":{"until":"2026-02-03T04:05:06Z"}},"gateway":{"type":"Bool","value":false},"kind":{"type":"String","value":"standard"},` +
		`"label":{"type":"String","value":"node-2026"},"prefix":{"type":"String","value":"node"},"secret":{"type":"SecureString"},"sizes":{"type":"Array","value":[32,64,128]}}`
	if got := text(t, d.Parameters); got != wantParameters {
		t.Errorf("parameters %s; want %s", got, wantParameters)
	}
}

func TestNoIterations(t *testing.T) {
	d, err := expand(fleet, map[string]any{"count": value(int64(0)), "gateway": value(true)})
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, r := range d.Resources {
		types = append(types, r.Type[strings.LastIndex(r.Type, "/")+1:])
	}
	if want := []string{"userAssignedIdentities", "storageAccounts", "shares", "natGateways", "roleAssignments"}; !reflect.DeepEqual(types, want) {
		t.Errorf("resources %q; want %q", types, want)
	}
}

// failing is a World whose resources are missing.
type failing struct{ world }

var errMissing = errors.New("resource not found")

func (failing) Reference(string, string, bool) (any, error) { return nil, errMissing }

func TestRuntimeErrors(t *testing.T) {
	d, err := expand(fleet, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Resources[len(d.Resources)-1].Body(failing{}); !errors.Is(err, errMissing) {
		t.Errorf("error of the World: %v", err)
	}
	d, err = expand(document(`"resources": [{"type": "A.B/c", "apiVersion": "1", "name": "x"}], "outputs": {"o": {"type": "string", "value": "[reference('x').missing]"}}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	var refused *template.Error
	if _, err := d.Outputs(world{}); !errors.As(err, &refused) || refused.Code != "DeploymentOutputEvaluationFailed" || !strings.Contains(refused.Message, "'missing' doesn't exist") {
		t.Errorf("output without its property: %v", err)
	}
}

func TestRefusedParameters(t *testing.T) {
	for _, test := range []struct {
		parameters map[string]any
		want       string
	}{
		{map[string]any{"nodes": value(int64(1))}, "The template parameters 'nodes' in the parameters file are not valid"},
		{map[string]any{"count": value("2")}, "Expected a value of type 'Integer', but received a value of type 'String'"},
		{map[string]any{"prefix": value(nil)}, "received a value of type 'Null'"},
		{map[string]any{"count": value(int64(4))}, "The value '4' is not part of the allowed value(s): '0,2,3'"},
		{map[string]any{"kind": value("basic")}, "The value 'basic' is not part of the allowed value(s): 'Standard,Premium'"},
		{map[string]any{"prefix": value("x")}, "Length of the value should be greater than or equal to '2'"},
		{map[string]any{"prefix": value("much too long")}, "Length of the value should be less than or equal to '8'"},
		{map[string]any{"prefix": "bare"}, "is not provided"},
	} {
		_, err := expand(fleet, test.parameters)
		var refused *template.Error
		if !errors.As(err, &refused) || refused.Code != "InvalidTemplate" || !strings.Contains(refused.Message, test.want) {
			t.Errorf("%v: %v; want %q", test.parameters, err, test.want)
		}
	}
}

func TestRefusedTemplates(t *testing.T) {
	resource := func(members string) string {
		return `{"type": "A.B/c", "apiVersion": "1", ` + members + `}`
	}
	for _, test := range []struct{ members, code, want string }{
		{`"resources": [], "resource": 1`, "InvalidRequestContent", "Could not find member 'resource' on object of type 'Template'"},
		{`"resources": {}`, "InvalidRequestContent", "'TemplateResource[]'"},
		{`"outputs": {}`, "InvalidRequestContent", "Required property 'resources' not found"},
		{`"resources": [], "languageVersion": "2.0"`, "InvalidTemplate", "Language version '2.0' is not supported"},
		{`"resources": [], "parameters": {"a": {"type": "string"}}`, "InvalidTemplate", "The value for the template parameter 'a' is not provided"},
		{`"resources": [], "parameters": {"a": {"type": "text"}}`, "InvalidTemplate", "has no valid type"},
		{`"resources": [], "parameters": {"a": {"type": "string", "defaultValue": "[variables('b')]"}}, "variables": {"b": ""}`, "InvalidTemplate", "'variables' is not expected at this location"},
		{`"resources": [], "variables": {"a": "[variables('b')]", "b": "[variables('a')]"}`, "InvalidTemplate", "Circular dependency detected in template language expression"},
		{`"resources": [], "variables": {"a": "[reference('x')]"}`, "InvalidTemplate", "'reference' is not expected at this location"},
		{`"resources": [], "outputs": {"a": {"type": "int", "value": "one"}}`, "InvalidTemplate", "the value is of type 'String', but 'Integer' is expected"},
		{`"resources": [` + resource(`"name": "x", "propertys": {}`) + `]`, "InvalidRequestContent", "Could not find member 'propertys' on object of type 'TemplateResource'. Path 'properties.template.resources[0].propertys'"},
		{`"resources": [` + resource(`"name": "x/y"`) + `]`, "InvalidTemplate", "incorrect segment lengths"},
		{`"resources": [` + resource(`"name": ""`) + `]`, "InvalidTemplate", "'name' property is required"},
		{`"resources": [{"type": "A.B/c", "name": "x"}]`, "InvalidTemplate", "'apiVersion' property is required"},
		{`"resources": [` + resource(`"name": "x"`) + `,` + resource(`"name": "X"`) + `]`, "InvalidTemplate", "is defined multiple times in a template"},
		{`"resources": [` + resource(`"name": "x", "dependsOn": ["[resourceId('A.B/c', 'y')]"]`) + `]`, "InvalidTemplate", "A.B/c/y' is not defined in the template"},
		{`"resources": [` + resource(`"name": "x", "dependsOn": ["y"]`) + `,` + resource(`"name": "y", "properties": {"z": "[reference('x').z]"}`) + `]`, "InvalidTemplate", "Circular dependency detected on resource: '" + group + "/providers/A.B/c/x'"},
		{`"resources": [` + resource(`"name": "x", "condition": "yes"`) + `]`, "InvalidTemplate", "must be a boolean"},
		{`"resources": [` + resource(`"name": "[string(copyIndex())]", "copy": {"name": "all", "count": 801}`) + `]`, "InvalidTemplate", "must be an integer value between 0 and 800"},
		{`"resources": [` + resource(`"name": "[string(copyIndex())]", "copy": {"name": "all", "count": 800}`) + `,` + resource(`"name": "x"`) + `]`, "InvalidTemplate", "The number of template resources limit exceeded. Limit: 800 and actual: 801"},
		{`"resources": [` + resource(`"name": "x", "resources": [{}]`) + `]`, "InvalidTemplate", "no resources inside of resources"},
		{`"resources": [` + resource(`"name": "x", "properties": {"copy": [{"name": "a", "count": 1, "input": 1}]}`) + `]`, "InvalidTemplate", "copy loops of resources only"},
		{`"resources": [], "variables": {"copy": [{"name": "a", "count": 1, "input": 1}]}`, "InvalidTemplate", "copy loops of resources only"},
	} {
		_, err := expand(document(test.members), nil)
		var refused *template.Error
		if !errors.As(err, &refused) || refused.Code != test.code || !strings.Contains(refused.Message, test.want) {
			t.Errorf("%.90s: %v; want %s with %q", test.members, err, test.code, test.want)
		}
	}
}

func TestClean(t *testing.T) {
	for dirty, want := range map[string]string{
		`{"properties": {"mode": "Incremental", template:` + "\ufeff// head\n{\"a\": 1,}}}": `{"properties":{"mode":"Incremental","template":{"a":1}}}`,
		`{"u": "http://x/*y*/", /* c , */ "l": [1, 2 , /* d */ ], }`:                        `{"u":"http://x/*y*/","l":[1,2]}`,
		"{\"s\": \"a\n\tb\\\"\\\\\"}":                                                       `{"s":"a\n\tb\"\\"}`,
		`[true, null, -1.5e3]`:                                                              `[true,null,-1.5e3]`,
	} {
		out, err := template.Clean([]byte(dirty))
		var got, expected any
		if err == nil {
			err = json.Unmarshal(out, &got)
		}
		if json.Unmarshal([]byte(want), &expected) != nil || err != nil || !reflect.DeepEqual(got, expected) {
			t.Errorf("%q: %q, %v; want %s", dirty, out, err, want)
		}
	}
	for _, dirty := range []string{`{"a": "b}`, `{"a": 1} x`, `{/* }`, `{"a": b}`, ``, `[,]x`} {
		if out, err := template.Clean([]byte(dirty)); err == nil {
			t.Errorf("%q is accepted as %q", dirty, out)
		}
	}
}

func TestIDs(t *testing.T) {
	for members, want := range map[string]string{
		`"type": "A.B/c", "name": "x"`:                                                   group + "/providers/A.B/c/x",
		`"type": "A.B/c/d", "name": "[concat('x', '/', 'y')]"`:                           group + "/providers/A.B/c/x/d/y",
		`"type": "A.B/c/providers/locks", "name": "x/Microsoft.Authorization/l"`:         group + "/providers/A.B/c/x/providers/Microsoft.Authorization/locks/l",
		`"type": "Microsoft.Authorization/locks", "name": "l", "scope": "A.B/c/x"`:       group + "/providers/A.B/c/x/providers/Microsoft.Authorization/locks/l",
		`"type": "Microsoft.Authorization/locks", "name": "l", "scope": "/other/scope/"`: "/other/scope/providers/Microsoft.Authorization/locks/l",
	} {
		d, err := expand(document(`"resources": [{"apiVersion": "1", `+members+`}]`), nil)
		if err != nil || d.Resources[0].ID != want {
			t.Errorf("%s: %v, %v; want %s", members, d, err, want)
		}
	}
}

// dependsOn in all forms that ARM accepts.
func TestDependsOn(t *testing.T) {
	for _, name := range []string{"x/y", "a.b/C/d/x/y", "A.B/c/x/d/y", "/A.B/c/x/d/y", "[resourceId('A.B/c/d', 'x', 'y')]", "all"} {
		d, err := expand(document(`"resources": [{"type": "A.B/z", "apiVersion": "1", "name": "last", "dependsOn": ["`+name+`"]},
			{"type": "A.B/c/d", "apiVersion": "1", "name": "x/y", "copy": {"name": "all", "count": 1}}]`), nil)
		if err != nil || !slices.Equal(d.Resources[0].DependsOn, []string{group + "/providers/A.B/c/x/d/y"}) {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
}
