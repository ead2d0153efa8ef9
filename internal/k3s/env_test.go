package k3s_test

import (
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/k3s"
)

// fromEnv reads a .env, and what Init and Parse make of it.
func fromEnv(t *testing.T, env string) (*k3s.Cluster, string) {
	t.Helper()
	o, dropped, err := k3s.FromEnv([]byte(env))
	if err != nil {
		t.Fatal(err)
	}
	text, err := k3s.Init(o)
	if err != nil {
		t.Fatal(err)
	}
	c, err := k3s.Parse("cluster.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	return c, strings.Join(dropped, "\n")
}

func TestFromEnvOfNothingIsTheMakefile(t *testing.T) {
	c, dropped := fromEnv(t, "")
	s, p := c.Spec, c.Spec.Pools[0]
	for _, test := range []struct{ what, got, want string }{
		{"name", c.Metadata.Name, "k3s"},
		{"groups", s.Groups.Storage + " " + s.Groups.Compute, "k3s-storage k3s-compute"},
		{"location", s.Location, "eastus"},
		{"account", s.Storage.Account, "shared0mwjkzwziotyzyte5"},
		{"pool", p.Name + " " + p.Size + " " + p.Priority, "agents Standard_D2ds_v5 Spot"},
		{"shares", strings.Join(s.Storage.Shares, " ") + " " + s.Storage.Mount, "config data registry data"},
		{"access", s.Access.User + " " + strings.Join(append(s.Access.SSH, s.Access.Ingress...), " "), "cluster own own"},
		{"zone", s.Options.TimeZone, "Europe/Lisbon"},
	} {
		if test.got != test.want {
			t.Errorf("%s is %q, not %q", test.what, test.got, test.want)
		}
	}
	if *p.Count != 3 || s.Access.SSHPort != 2211 || !s.Storage.Existing || !s.Access.Fail2ban || s.Options.SwapGB != 2 {
		t.Errorf("spec is %+v", s)
	}
	for _, want := range []string{"MASTER_SKU: its default Standard_B1ls", "AGENT_SKU: its default Standard_B1ls", "taken as an existing account"} {
		if !strings.Contains(dropped, want) {
			t.Errorf("dropped has no %q:\n%s", want, dropped)
		}
	}
}

// The names are what make prints for STORAGE_ACCOUNT_NAME with that .env.
func TestFromEnvComputesAccountAsMakeDoes(t *testing.T) {
	for env, want := range map[string]string{
		"LOCATION=westeurope":                             "shared0ndqxowi2mtviymri",
		"COMPUTE_GROUP = prod\n":                          "shared0mzuxn2eyodlhodzl",
		"export COMPUTE_GROUP:=prod\nLOCATION=eastus # x": "shared0mzuxn2eyodlhodzl",
		"COMPUTE_GROUP='a-compute'\nLOCATION=\"eastus\"":  "shared0ztmwndy1ngm2m2my",
		"COMPUTE_GROUP=My_Group\nLOCATION=westeurope":     "shared0mwuwmti5mwy1nwuy",
		"LOCATION?=westeurope":                            "shared0mwjkzwziotyzyte5",
		"STORAGE_ACCOUNT_NAME = mine123":                  "mine123",
	} {
		if c, _ := fromEnv(t, env); c.Spec.Storage.Account != want {
			t.Errorf("%q: account is %s, not %s", env, c.Spec.Storage.Account, want)
		}
	}
}

func TestFromEnvReadsAllVariables(t *testing.T) {
	c, dropped := fromEnv(t, `# my cluster
export COMPUTE_GROUP=Swarm-Compute
STORAGE_GROUP=old-storage
STORAGE_ACCOUNT_GROUP=shared-storage
STORAGE_ACCOUNT_NAME=sharedaccount
LOCATION := northeurope
MASTER_COUNT=3
MASTER_SKU=Standard_B2s
AGENT_SKU=Standard_B2ms
AGENT_COUNT=4
MIN_AGENT_COUNT=2
MAX_AGENT_COUNT=8
ADMIN_USERNAME=me
FILE_SHARES=config data registry extra more
SHARE_NAME=home
SSH_PORT=2222
APPLY_ORIGIN_NSG=false
APPLY_CLOUDFLARE_NSG=true
USE_DOCKER=true
ENABLE_NVIDIA=true
ENABLE_TAILSCALE=true
K3S_VERSION=v1.28.1+k3s1
OWN_KEY=true
TIMEZONE=Europe/Berlin
AGENT_PRIORITY?=Regular
COLOUR=blue
`)
	s, p := c.Spec, c.Spec.Pools[0]
	for _, test := range []struct{ what, got, want string }{
		{"name", c.Metadata.Name, "swarm"},
		{"groups", s.Groups.Storage + " " + s.Groups.Compute, "shared-storage Swarm-Compute"},
		{"server", s.Server.Size, "Standard_B2s"},
		{"pool", p.Size + " " + p.Priority, "Standard_B2ms Spot"},
		{"shares", strings.Join(s.Storage.Shares, " ") + ", " + s.Storage.Mount, "config data registry extra more home, home"},
		{"access", s.Access.User + " " + strings.Join(s.Access.SSH, " ") + ", " + strings.Join(s.Access.Ingress, " "), "me any, own cloudflare"},
		{"zone", s.Options.TimeZone, "Europe/Berlin"},
	} {
		if test.got != test.want {
			t.Errorf("%s is %q, not %q", test.what, test.got, test.want)
		}
	}
	if p.Count != nil || *p.Min != 2 || *p.Max != 8 || s.Access.SSHPort != 2222 {
		t.Errorf("pool is %+v, port %d", p, s.Access.SSHPort)
	}
	for _, want := range []string{
		"MASTER_COUNT: 3 makes independent clusters",
		"AGENT_PRIORITY: ?= has no effect", "AGENT_COUNT: a pool has", "STORAGE_GROUP: STORAGE_ACCOUNT_GROUP is used",
		"USE_DOCKER: ", "ENABLE_NVIDIA: ", "ENABLE_TAILSCALE: ", "K3S_VERSION: the version is that of", "OWN_KEY: set access.sshKey",
		"COLOUR: not a variable of azure-k3s-cluster",
	} {
		if !strings.Contains(dropped, want) {
			t.Errorf("dropped has no %q:\n%s", want, dropped)
		}
	}
}

func TestFromEnvRefuses(t *testing.T) {
	for env, want := range map[string]string{
		"A=1\nifeq (a,b)\nendif":         `cannot read .env: line 2: "ifeq (a,b)" is not an assignment; use NAME=VALUE`,
		"LOCATION=$(shell cat location)": `cannot read .env: line 1: "$(shell cat location)" of LOCATION is computed; write the value`,
		"AGENT_COUNT=many":               `cannot read .env: AGENT_COUNT is "many"; use a whole number`,
		"AGENT_PRIORITY=spot":            `cannot read .env: AGENT_PRIORITY is "spot"; use Spot or Regular`,
		"FILE_SHARES += more":            `cannot read .env: line 1: "FILE_SHARES += more" is not an assignment; use NAME=VALUE`,
	} {
		if _, _, err := k3s.FromEnv([]byte(env)); err == nil || err.Error() != want {
			t.Errorf("%q: error is %v, not %s", env, err, want)
		}
	}
}
