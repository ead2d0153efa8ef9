//go:build e2e

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// An azureCLI is the unmodified Azure CLI with a folder of its own.
type azureCLI struct {
	t   *testing.T
	env []string
}

// run runs az and gives what it prints.
func (c azureCLI) run(args ...string) string {
	c.t.Helper()
	out, err := c.try(args...)
	if err != nil {
		c.t.Fatalf("az %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// try is run for a command that may fail; it then gives what it complains of.
func (c azureCLI) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "az", args...)
	cmd.Env = append(os.Environ(), c.env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil {
		return strings.TrimSpace(errs.String()), err
	}
	return strings.TrimSpace(out.String()), nil
}

// query runs az with a JMESPath query and gives its JSON result.
func (c azureCLI) query(query string, args ...string) any {
	c.t.Helper()
	out := c.run(append(args, "--query", query, "--output", "json")...)
	if out == "" {
		return nil
	}
	var v any
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		c.t.Fatalf("az %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return v
}

func (c azureCLI) want(want any, query string, args ...string) {
	c.t.Helper()
	if got := c.query(query, args...); !same(got, want) {
		c.t.Errorf("az %s: %s = %v, want %v", strings.Join(args, " "), query, got, want)
	}
}

func same(a, b any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

// logIn returns a CLI that has logged in to the server, as the documents of Azure
// Stack Hub say it.
func logIn(t *testing.T, e endpoint, profile string) azureCLI {
	t.Helper()
	c := azureCLI{t, []string{
		"REQUESTS_CA_BUNDLE=" + e.CAFile, "AZURE_CONFIG_DIR=" + t.TempDir(),
		"AZURE_CORE_COLLECT_TELEMETRY=0", "AZURE_CORE_INSTANCE_DISCOVERY=false", "AZURE_CORE_NO_COLOR=1",
	}}
	c.run("cloud", "register", "-n", "sim", "--profile", profile, "--endpoint-resource-manager", e.ResourceManager, "--suffix-storage-endpoint", "sim", "--suffix-keyvault-dns", "sim")
	c.run("cloud", "set", "-n", "sim")
	c.run("login", "--service-principal", "-u", e.ClientID, "-p", e.ClientSecret, "--tenant", e.Tenant)
	return c
}

func TestAzureCLI(t *testing.T) {
	if _, err := exec.LookPath("az"); err != nil {
		t.Skip("the Azure CLI is not installed, so it is not tried: on Debian, apt-get install azure-cli")
	}
	e := start(t, cliSpec, "--speed", "1000")
	c := logIn(t, e, "latest")
	v, latest := c, true
	// Debian 12's azure-cli 2.45 comes with Python libraries that lack its own
	// API version of scale sets, so there its commands work in a profile only.
	if out, err := v.try("vmss", "list"); err != nil && strings.Contains(out, "does not have operation group") {
		t.Log("this Azure CLI cannot list scale sets in its profile 'latest' at all: taking 2020-09-01-hybrid for them")
		v, latest = logIn(t, e, "2020-09-01-hybrid"), false
	} else if err != nil {
		t.Fatalf("az vmss list: %v\n%s", err, out)
	}
	g := []string{"-g", e.ResourceGroup}
	with := func(args ...string) []string { return append(args, g...) }

	c.want([]string{"azsim"}, "[].name", "group", "list")

	// Scale sets and instances.
	v.want([]string{"pool1"}, "[].name", with("vmss", "list")...)
	v.want([]any{"Manual", 2, nil}, "[upgradePolicy.mode, sku.capacity, virtualMachineProfile.osProfile.customData]", with("vmss", "show", "-n", "pool1")...)
	v.want([]string{"pool1_0", "pool1_1"}, "[].name", with("vmss", "list-instances", "-n", "pool1")...)
	v.want("VM running", "statuses[?starts_with(code,'PowerState')].displayStatus | [0]", with("vmss", "get-instance-view", "-n", "pool1", "--instance-id", "0")...)
	v.run(with("vmss", "update", "-n", "pool1", "--instance-id", "1", "--protect-from-scale-in", "true", "--protect-from-scale-set-actions", "true")...)
	v.want([]bool{true, true}, "[protectionPolicy.protectFromScaleIn, protectionPolicy.protectFromScaleSetActions]", with("vmss", "show", "-n", "pool1", "--instance-id", "1")...)
	v.run(with("vmss", "stop", "-n", "pool1", "--instance-ids", "0")...)
	v.want("VM stopped", "statuses[?starts_with(code,'PowerState')].displayStatus | [0]", with("vmss", "get-instance-view", "-n", "pool1", "--instance-id", "0")...)

	// The stopped instance's disk, as a capture takes it.
	disk, _ := v.query("storageProfile.osDisk.managedDisk.id", with("vmss", "show", "-n", "pool1", "--instance-id", "0")...).(string)
	if disk == "" {
		t.Fatal("the instance has no OS disk")
	}
	c.run(with("snapshot", "create", "-n", "snapshot_pool1", "--source", disk, "--hyper-v-generation", "V2", "--tags", "BuiltFrom=pool1000000")...)
	c.want("pool1000000", "[0].tags.BuiltFrom", with("snapshot", "list")...)
	c.run(with("snapshot", "update", "-n", "snapshot_pool1", "--set", "tags.more=1")...)
	c.want(map[string]string{"BuiltFrom": "pool1000000", "more": "1"}, "tags", with("snapshot", "show", "-n", "snapshot_pool1")...)
	v.run(with("vmss", "start", "-n", "pool1", "--instance-ids", "0", "--no-wait")...)

	// Gallery, image definition, version.
	c.run(with("sig", "create", "-r", "SIG_azsim")...)
	c.run(with("sig", "image-definition", "create", "-r", "SIG_azsim", "-i", "kamino-pool1-prototype", "--publisher", "VMSS-Prototype-Pattern", "--offer", "azsim", "--sku", "pool1",
		"--os-type", "Linux", "--os-state", "generalized", "--hyper-v-generation", "V2")...)
	image := with("-r", "SIG_azsim", "-i", "kamino-pool1-prototype")
	sig := func(verb string, args ...string) []string {
		return append(append([]string{"sig", "image-version", verb}, image...), args...)
	}
	c.run(sig("create", "-e", "2026.11.21", "--os-snapshot", "snapshot_pool1", "--replica-count", "3", "--storage-account-type", "Standard_ZRS", "--tags", "BuiltFrom=pool1000000")...)
	c.want([]string{"2026.11.21"}, "[].name", sig("list")...)
	c.want("Completed", "replicationStatus.aggregatedState", sig("show", "-e", "2026.11.21", "--expand", "ReplicationStatus")...)
	c.run(sig("update", "-e", "2026.11.21", "--set", "publishingProfile.excludeFromLatest=true")...)
	c.want(true, "publishingProfile.excludeFromLatest", sig("show", "-e", "2026.11.21")...)
	c.want([]string{"SIG_azsim"}, "[].name", "sig", "list")

	// The model gets the version, and a new instance comes from it.
	version, _ := c.query("id", sig("show", "-e", "2026.11.21")...).(string)
	v.run(with("vmss", "update", "-n", "pool1", "--set", "virtualMachineProfile.storageProfile.imageReference.id="+version)...)
	v.want(version, "virtualMachineProfile.storageProfile.imageReference.id", with("vmss", "show", "-n", "pool1")...)
	v.run(with("vmss", "scale", "-n", "pool1", "--new-capacity", "3")...)
	v.want([]any{[]any{"0", false}, []any{"1", false}, []any{"2", true}}, "[].[instanceId, latestModelApplied]", with("vmss", "list-instances", "-n", "pool1")...)
	v.want(version, "storageProfile.imageReference.id", with("vmss", "show", "-n", "pool1", "--instance-id", "2")...)

	// userData of the model, and of one instance.
	set, _ := v.query("id", with("vmss", "show", "-n", "pool1")...).(string)
	const expand = "?api-version=2024-11-01&$expand=userData"
	if latest {
		v.run(with("vmss", "update", "-n", "pool1", "--user-data", "A")...)
	} else {
		c.run("resource", "update", "--ids", set, "--api-version", "2024-11-01", "--set", "properties.virtualMachineProfile.userData=QQ==")
	}
	c.want("QQ==", "properties.virtualMachineProfile.userData", "rest", "--url", set+expand)
	c.run("rest", "--method", "put", "--url", set+"/virtualMachines/0?api-version=2024-11-01", "--body", `{"properties":{"userData":"Qg=="}}`)
	c.want("Qg==", "properties.userData", "rest", "--url", set+"/virtualMachines/0"+expand)
	c.want(nil, "properties.userData", "rest", "--url", set+"/virtualMachines/1"+expand)

	// Errors arrive as Azure's.
	if out, err := v.try(with("vmss", "show", "-n", "none")...); err == nil || !strings.Contains(out, "ResourceNotFound") {
		t.Errorf("a scale set that does not exist: %s", out)
	}
	c.run(sig("delete", "-e", "2026.11.21")...)
	if out, err := v.try(with("vmss", "scale", "-n", "pool1", "--new-capacity", "4")...); err == nil || !strings.Contains(out, "GalleryImageNotFound") {
		t.Errorf("a scale-out from a deleted image: %s", out)
	}
}
