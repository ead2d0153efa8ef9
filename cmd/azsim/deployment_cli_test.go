//go:build e2e

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// deploymentTemplate is a file as the Azure CLI takes it, with a comment.
const deploymentTemplate = `{
  "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
  "contentVersion": "1.0.0.0",
  // Disks, and a gallery with an image definition.
  "parameters": {
    "size": {"type": "int", "metadata": {"description": "Size in GiB"}},
    "secret": {"type": "securestring", "defaultValue": "none"}
  },
  "variables": {"gallery": "[concat('gallery_', uniqueString(resourceGroup().id))]"},
  "resources": [
    {"type": "Microsoft.Compute/disks", "apiVersion": "2024-03-02", "name": "[format('disk{0}', copyIndex())]", "location": "[resourceGroup().location]",
     "copy": {"name": "disks", "count": 2}, "tags": {"made": "by template"},
     "properties": {"diskSizeGB": "[parameters('size')]", "creationData": {"createOption": "Empty"}}},
    {"type": "Microsoft.Compute/galleries", "apiVersion": "2022-03-03", "name": "[variables('gallery')]", "location": "[resourceGroup().location]",
     "dependsOn": ["disks"], "properties": {}},
    {"type": "Microsoft.Compute/galleries/images", "apiVersion": "2022-03-03", "name": "[concat(variables('gallery'), '/image')]", "location": "[resourceGroup().location]",
     "dependsOn": ["[resourceId('Microsoft.Compute/galleries', variables('gallery'))]"],
     "properties": {"osType": "Linux", "osState": "Generalized", "hyperVGeneration": "V2", "identifier": {"publisher": "p", "offer": "o", "sku": "s"}}}
  ],
  "outputs": {"size": {"type": "int", "value": "[reference('disk0').diskSizeGB]"}}
}
`

// The Azure CLI deploys a template, as its users do.
func TestAzureCLIDeployments(t *testing.T) {
	if _, err := exec.LookPath("az"); err != nil {
		t.Skip("the Azure CLI is not installed, so it is not tried: on Debian, apt-get install azure-cli")
	}
	e := start(t, "", "--speed", "1000")
	c := logIn(t, e, "latest")
	file := filepath.Join(t.TempDir(), "template.json")
	if err := os.WriteFile(file, []byte(deploymentTemplate), 0o600); err != nil {
		t.Fatal(err)
	}
	group := func(args ...string) []string {
		return append(append([]string{"deployment"}, args...), "-g", e.ResourceGroup)
	}
	with := func(verb, size string) []string {
		return group("group", verb, "-f", file, "-p", "size="+size, "-n", "d")
	}

	c.want([]any{"Succeeded", nil}, "[properties.provisioningState, error]", with("validate", "8")...)
	if out := c.run(append(with("what-if", "8"), "--no-pretty-print")...); strings.Count(out, `"changeType": "Create"`) != 4 {
		t.Errorf("what-if: %s", out)
	}
	if out := c.run(with("what-if", "8")...); !strings.Contains(out, "4 to create") {
		t.Errorf("what-if: %s", out)
	}
	c.want([]any{"Succeeded", 8, nil}, "[properties.provisioningState, properties.outputs.size.value, properties.parameters.secret.value]", with("create", "8")...)
	c.want([]string{"disk0", "disk1"}, "sort([?tags.made=='by template'].name)", "disk", "list", "-g", e.ResourceGroup)

	if out := c.run(with("what-if", "8")...); !strings.Contains(out, "4 no change") {
		t.Errorf("what-if of what is there: %s", out)
	}
	out := c.run(with("what-if", "16")...)
	if !strings.Contains(out, "2 to modify") || !strings.Contains(out, "properties.diskSizeGB: 8 => 16") {
		t.Errorf("what-if of another size: %s", out)
	}
	c.want([]any{"Succeeded", 16}, "[properties.provisioningState, properties.outputs.size.value]", with("create", "16")...)

	c.want("Succeeded", "properties.provisioningState", group("group", "show", "-n", "d")...)
	c.want([]string{"d"}, "[].name", group("group", "list")...)
	c.want([]string{}, "[].name", group("group", "list", "--filter", "provisioningState eq 'Failed'")...)
	c.want(4, "length([?properties.provisioningOperation=='Create' && properties.provisioningState=='Succeeded'])", group("operation", "group", "list", "-n", "d")...)
	if out := c.run(group("group", "export", "-n", "d")...); !strings.Contains(out, `"contentVersion": "1.0.0.0"`) { // export prints by itself
		t.Errorf("export: %s", out)
	}

	for name, args := range map[string][]string{
		"cannot be cancelled":       group("group", "cancel", "-n", "d"),
		"could not be found":        group("group", "show", "-n", "none"),
		"NotSimulated":              append(with("create", "8"), "--mode", "Complete"),
		"InvalidTemplateDeployment": with("validate", "-1"),
	} {
		out, err := c.try(args...)
		if err == nil || !strings.Contains(out, name) || strings.Contains(out, "Traceback") {
			t.Errorf("az %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	c.run(group("group", "delete", "-n", "d")...)
	c.want([]string{}, "[].name", group("group", "list")...)
}

// The Azure CLI shows why a deployment failed, and cancels one that runs.
func TestAzureCLIDeploymentFailsAndCancels(t *testing.T) {
	if _, err := exec.LookPath("az"); err != nil {
		t.Skip("the Azure CLI is not installed, so it is not tried: on Debian, apt-get install azure-cli")
	}
	e := start(t, `faults:
  - {method: PUT, path: "/disks/disk1$", effect: failAtEnd, code: DiskBroken, message: The disk broke., count: 1}
  - {method: PUT, path: "/disks/disk1$", effect: neverEnds}
`, "--speed", "1000")
	c := logIn(t, e, "latest")
	file := filepath.Join(t.TempDir(), "template.json")
	if err := os.WriteFile(file, []byte(deploymentTemplate), 0o600); err != nil {
		t.Fatal(err)
	}
	create := []string{"deployment", "group", "create", "-g", e.ResourceGroup, "-n", "d", "-f", file, "-p", "size=8"}
	out, err := c.try(create...)
	if err == nil || !strings.Contains(out, "DeploymentFailed") || !strings.Contains(out, "DiskBroken") || strings.Contains(out, "Traceback") {
		t.Errorf("a deployment that fails: %v: %s", err, out)
	}
	c.want("The disk broke.", "[?properties.provisioningState=='Failed'].properties.statusMessage.error.details[0].message | [0]", "deployment", "operation", "group", "list", "-g", e.ResourceGroup, "-n", "d")

	c.run(append(create, "--no-wait")...)
	if out, err := c.try(create...); err == nil || !strings.Contains(out, "DeploymentActive") {
		t.Errorf("a second deployment of the name: %v: %s", err, out)
	}
	c.run("deployment", "group", "cancel", "-g", e.ResourceGroup, "-n", "d")
	c.want("Canceled", "properties.provisioningState", "deployment", "group", "show", "-g", e.ResourceGroup, "-n", "d")
}
