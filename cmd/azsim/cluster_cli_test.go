//go:build e2e

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const clusterFile = `apiVersion: ortet.io/v1alpha1
kind: Cluster
metadata:
  name: demo
spec:
  location: westeurope
  artifacts:
    k3s: {url: "https://example.org/k3s", sha256: "DIGEST"}
    ortet: {url: "https://example.org/ortet", sha256: "DIGEST"}
    ortetNode: {url: "https://example.org/ortet-node", sha256: "DIGEST"}
    containerToolkit: [{url: "https://example.org/toolkit.deb", sha256: "DIGEST"}]
  pools:
  - name: agents
    count: 2
  - name: gpu
    count: 1
    size: Standard_NV6ads_A10_v5
    gpu: {driver: extension}
  options:
    devicePlugin: example.org/device-plugin@sha256:DIGEST
  storage:
    account: demo1a2b3c4d5e
`

// A deploying runs az deployment group with one template for one group.
type deploying struct {
	azureCLI
	group, template string
	parameters      []string
}

func (d deploying) args(verb string) []string {
	out := []string{"deployment", "group", verb, "-g", d.group, "-n", "ortet", "-f", d.template}
	if len(d.parameters) > 0 {
		out = append(append(out, "-p"), d.parameters...)
	}
	return out
}

// A whatIfChange is what az deployment group what-if gives of one resource.
type whatIfChange struct {
	ID    string `json:"resourceId"`
	Type  string `json:"changeType"`
	Delta []struct {
		Path string `json:"path"`
	} `json:"delta"`
}

// whatIf returns the changes of each changeType as lower-case ids, sorted, and the
// paths of all modified properties as ID-SUFFIX:PATH.
func (d deploying) whatIf() (ids map[string][]string, paths []string) {
	d.t.Helper()
	var result struct{ Changes []whatIfChange }
	out := d.run(append(d.args("what-if"), "--no-pretty-print")...)
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		d.t.Fatalf("what-if: %v: %s", err, out)
	}
	ids = map[string][]string{}
	for _, change := range result.Changes {
		ids[change.Type] = append(ids[change.Type], strings.ToLower(change.ID))
		for _, p := range change.Delta {
			paths = append(paths, change.ID[strings.LastIndexByte(change.ID, '/')+1:]+":"+p.Path)
		}
	}
	for _, list := range ids {
		slices.Sort(list)
	}
	slices.Sort(paths)
	return ids, paths
}

// resources lists the ids that az shows of the group, lower case and sorted.
func (d deploying) resources() []string {
	d.t.Helper()
	var out []string
	list, _ := d.query("[].id", "resource", "list", "-g", d.group).([]any)
	for _, id := range list {
		out = append(out, strings.ToLower(id.(string)))
	}
	slices.Sort(out)
	return out
}

// apply validates, compares, and deploys; what-if has to announce exactly the
// resources that exist afterwards and did not before.
func (d deploying) apply() {
	d.t.Helper()
	d.want([]any{"Succeeded", nil}, "[properties.provisioningState, error]", d.args("validate")...)
	announced, _ := d.whatIf()
	before := d.resources()
	d.want("Succeeded", "properties.provisioningState", d.args("create")...)
	shown := func(id string) bool { // by az resource list
		return !strings.Contains(id, "/microsoft.authorization/") && !strings.Contains(id, "/fileservices/")
	}
	for _, id := range announced["Create"] {
		if !shown(id) {
			d.want(id[strings.LastIndexByte(id, '/')+1:], "name", "resource", "show", "--ids", id, "--api-version", apiVersionOf(id))
		}
	}
	want := slices.DeleteFunc(slices.Clone(announced["Create"]), func(id string) bool { return !shown(id) })
	got := slices.DeleteFunc(d.resources(), func(id string) bool {
		osDisk := strings.Contains(id, "/disks/") && !slices.Contains(want, id) // comes with its machine
		return slices.Contains(before, id) || osDisk
	})
	if !slices.Equal(want, got) {
		d.t.Errorf("what-if announced %d resources:\n%s\nmade were %d:\n%s", len(want), strings.Join(want, "\n"), len(got), strings.Join(got, "\n"))
	}
	if len(announced) != 1 {
		d.t.Errorf("what-if of a new group: %v", announced)
	}
}

func apiVersionOf(id string) string {
	if strings.Contains(id, "/microsoft.authorization/") {
		return "2022-04-01"
	}
	return "2023-05-01"
}

// What ortet cluster up deployed is in Azure: the Azure CLI exports, validates, compares and deploys it.
func TestAzureCLIDeploysWhatUpDeployed(t *testing.T) {
	if _, err := exec.LookPath("az"); err != nil {
		t.Skip("the Azure CLI is not installed, so it is not tried: on Debian, apt-get install azure-cli")
	}
	dir := t.TempDir()
	ortet := filepath.Join(dir, "ortet")
	if out, err := exec.Command("go", "build", "-o", ortet, "../ortet").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	file := filepath.Join(dir, "cluster.yaml")
	e := start(t, "", "--speed", "1000")
	ortetCluster := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(ortet, append([]string{"cluster", "-f", file}, args...)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+e.CAFile, "AZURE_ENVIRONMENT_FILEPATH="+filepath.Join(filepath.Dir(e.AzureConfig), "azurestackcloud.json"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", strings.Join(cmd.Args, " "), err, out)
		}
		return string(out)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "DIGEST", strings.Repeat("1a", 32))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(clusterFile)
	ortetCluster("keys")
	up := func(args ...string) {
		t.Helper()
		ortetCluster(append([]string{"up", "--no-wait", "--azure-config", e.AzureConfig, "--own-address", "203.0.113.7"}, args...)...)
	}
	up()

	c := logIn(t, e, "latest")
	wait := func() {
		t.Helper()
		c.run("deployment", "group", "wait", "-g", "demo-compute", "-n", "ortet", "--created", "--interval", "1")
	}
	wait()
	parts := []string{"storage", "compute"}
	deployed := map[string]deploying{}
	for _, part := range parts {
		d := deploying{azureCLI: c, group: "demo-" + part, template: filepath.Join(dir, part+".json")}
		parameters := filepath.Join(dir, part+".parameters.json")
		for file, args := range map[string][]string{
			d.template: {"export"},
			parameters: {"show", "--query", "{contentVersion: '1.0.0.0', parameters: properties.parameters}"},
		} {
			out := c.run(append(append([]string{"deployment", "group"}, args...), "-g", d.group, "-n", "ortet", "-o", "json")...)
			if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		d.parameters = []string{"@" + parameters}
		deployed[part] = d
	}
	e = start(t, "", "--speed", "1000") // an Azure that has none of it
	c = logIn(t, e, "latest")
	for _, part := range parts {
		d := deployed[part]
		d.azureCLI = c
		c.run("group", "create", "-n", d.group, "-l", "westeurope", "--tags", "ortet.io_cluster=demo", "ortet.io_role="+part)
		d.apply()
		d.parameters = append(d.parameters, map[string]string{"storage": "stateExists=true", "compute": "serverExists=true"}[part])
		deployed[part] = d
		resources := d.resources()
		changes, _ := d.whatIf()
		delete(changes, "Ignore") // OS disks, and the server that exists
		if len(changes) != 1 || len(changes["NoChange"]) == 0 {
			t.Errorf("what-if of what %s deployed: %v", part, changes)
		}
		d.want("Succeeded", "properties.provisioningState", d.args("create")...)
		if got := d.resources(); !slices.Equal(got, resources) {
			t.Errorf("a second create of %s changed the resources from\n%v to\n%v", part, resources, got)
		}
	}

	c.want([]any{"ortet-nvidia-driver", "NvidiaGpuDriverLinux"}, "properties.virtualMachineProfile.extensionProfile.extensions[0].[name, properties.type]", "resource", "show", "-g", "demo-compute", "-n", "gpu",
		"--resource-type", "Microsoft.Compute/virtualMachineScaleSets", "--api-version", "2024-07-01")
	if out := ortetCluster("plan", "--own-address", "203.0.113.7", "--azure-config", e.AzureConfig); !strings.Contains(out, "20 unchanged") {
		t.Errorf("ortet cluster plan: %s", out)
	}

	write(strings.Replace(clusterFile, "count: 2", "count: 3\n    labels: {tier: web}\n    scaleInPolicy: NewestVM", 1))
	up("--own-address", "203.0.113.8")
	wait()
	d := deployed["compute"] // what was there before
	changes, paths := d.whatIf()
	want := []string{
		"agents:properties.scaleInPolicy.rules", "agents:sku.capacity", "agents:tags.ortet.io_applied",
		"servers:properties.securityRules",
	}
	if !slices.Equal(paths, want) || len(changes["Modify"]) != 2 || len(changes["Create"]) != 0 {
		t.Errorf("what-if of the former templates: %v, want %v; %v", paths, want, changes)
	}
	d.want("Succeeded", "properties.provisioningState", d.args("create")...)
	d.want([]any{2, true}, "[sku.capacity, starts_with(tags.\"ortet.io_applied\", 'count=2 ')]", "resource", "show", "-g", d.group, "-n", "agents",
		"--resource-type", "Microsoft.Compute/virtualMachineScaleSets", "--api-version", "2024-07-01")
	if changes, _ := d.whatIf(); len(changes["Modify"])+len(changes["Create"]) != 0 {
		t.Errorf("what-if after the change: %v", changes)
	}
}

// A template of azure-k3s-cluster's time is valid; Azure refuses to create what has
// been retired since, and makes the rest.
func TestAzureCLIDeploysOldTemplates(t *testing.T) {
	if _, err := exec.LookPath("az"); err != nil {
		t.Skip("the Azure CLI is not installed, so it is not tried: on Debian, apt-get install azure-cli")
	}
	t.Run("constructs", func(t *testing.T) { deployOldTemplate(t, filepath.Join("testdata", "old-template.json")) })
	t.Run("azure-k3s-cluster", func(t *testing.T) {
		checkout := os.Getenv("ORTET_AZURE_K3S_CLUSTER")
		if checkout == "" {
			t.Skip("azure-k3s-cluster's template is not tried: set ORTET_AZURE_K3S_CLUSTER to a checkout of github.com/rcarmo/azure-k3s-cluster")
		}
		deployOldTemplate(t, filepath.Join(checkout, "templates", "cluster.json"))
	})
}

func deployOldTemplate(t *testing.T, template string) {
	const key = "adminPublicKey=ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPDXqscp77p0Ik9mPFlpanrwMeVjHsQjeehD7XUSGLrC a"
	deploy := func(spec string, parameters ...string) deploying {
		c := logIn(t, start(t, spec, "--speed", "1000"), "latest")
		c.run("group", "create", "-n", "k3s", "-l", "westeurope")
		return deploying{c, "k3s", template, append([]string{key}, parameters...)}
	}
	refused := func(d deploying, want string) {
		t.Helper()
		out, err := d.try(d.args("create")...)
		if err == nil || !strings.Contains(out, want) || strings.Contains(out, "Traceback") {
			t.Errorf("create: %v: %s, want %s", err, out, want)
		}
		t.Logf("create: %s", out)
	}

	today := deploy("")
	today.want([]any{"Succeeded", nil}, "[properties.provisioningState, error]", today.args("validate")...)
	changes, _ := today.whatIf()
	if len(changes) != 1 || len(changes["Create"]) != 11 {
		t.Errorf("what-if: %v", changes)
	}
	t.Logf("what-if: %d to create", len(changes["Create"]))
	refused(today, "IPv4BasicSkuPublicIpCountLimitReached")
	today.want("IPv4BasicSkuPublicIpCountLimitReached", "[?properties.provisioningState=='Failed'].properties.statusMessage.error.code | [0]",
		"deployment", "operation", "group", "list", "-g", today.group, "-n", "ortet")

	refused(deploy("retiredOffers: true"), "Azure Spot Virtual Machine is not supported for this VM size Standard_B1ls")

	before := deploy("retiredOffers: true", "agentSize=Standard_F2s_v2")
	before.apply()
	changes, paths := before.whatIf()
	delete(changes, "Ignore")
	// Azure drops displayName, which an assignment has not.
	if len(changes["Create"]) != 0 || len(paths) != 1 || !strings.HasSuffix(paths[0], ":properties.displayName") {
		t.Errorf("what-if of what is there: %v: %v", changes, paths)
	}
	before.want("Succeeded", "properties.provisioningState", before.args("create")...)
}
