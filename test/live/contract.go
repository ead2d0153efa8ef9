package live

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/azuretest"
	"github.com/ortet/ortet/internal/fleet"
)

const (
	networkVersion = "2024-05-01"
	computeVersion = "2024-07-01"
	machineSize    = "Standard_D2s_v5"
	// addressSpace is the network of every run, so that addresses in it say nothing of whose it is.
	addressSpace = "10.83.0.0/16"
)

// A trial is one check on one kind of pool, and azuretest.T of it.
type trial struct {
	check   azuretest.Check
	kind    string // fleet.Uniform or fleet.Flexible
	reached map[azuretest.Claim]bool
	wrong   []finding
	ended   bool // the check ran to its end, or to a finding
	refused bool // it ended by what says nothing of Azure

	ctx   context.Context
	claim azuretest.Claim
}

// A finding is what Azure answered and what was expected.
type finding struct {
	claim azuretest.Claim // "" where it is about none
	text  string
}

func (t *trial) Helper() {}

// Context is that of the run.
func (t *trial) Context() context.Context { return t.ctx }

// Errorf notes a finding. What fails since the run is ended says nothing of Azure.
func (t *trial) Errorf(format string, args ...any) {
	if t.ctx.Err() == nil {
		t.wrong = append(t.wrong, finding{t.claim, fmt.Sprintf(format, args...)})
	}
}

func (t *trial) Error(args ...any) { t.Errorf("%s", fmt.Sprint(args...)) }

func (t *trial) Fatal(args ...any) { t.Fatalf("%s", fmt.Sprint(args...)) }

// Fatalf ends the check's goroutine, as that of testing.T.
func (t *trial) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

// contract runs the suite. It ends early where ctx ends; what was not begun is not reached.
func (s *session) contract(ctx context.Context) (all []*trial) {
	subnet, err := s.network(ctx)
	for _, check := range azuretest.Checks() {
		for _, kind := range []string{fleet.Uniform, fleet.Flexible} {
			t := &trial{check: check, kind: kind, reached: map[azuretest.Claim]bool{}, ctx: ctx}
			all = append(all, t)
			if err != nil || ctx.Err() != nil || s.check != "" && s.check != check.Name {
				continue
			}
			s.try(t, subnet)
			s.say("%-10s %-8s %s", check.Name, kind, t.result())
		}
	}
	if err != nil {
		s.say("cannot begin: %v", err)
	}
	return all
}

func (s *session) network(ctx context.Context) (subnet fleet.ResourceID, err error) {
	id := s.group(s.name) + "/providers/Microsoft.Network/virtualNetworks/net"
	prefixes := map[string]any{"addressPrefixes": []string{addressSpace}}
	body := map[string]any{"location": s.region, "properties": map[string]any{"addressSpace": prefixes,
		"subnets": []any{map[string]any{"name": "nodes", "properties": map[string]any{"addressPrefix": addressSpace}}}}}
	return id + "/subnets/nodes", azure.SendAndWait(ctx, s.resources, "create network", http.MethodPut, id, networkVersion, body)
}

// try makes a pool, runs the check, and deletes the pool.
func (s *session) try(t *trial, subnet fleet.ResourceID) {
	name := strings.ToLower(t.check.Name + t.kind[:4])
	pool := s.group(s.name) + "/providers/Microsoft.Compute/virtualMachineScaleSets/" + fleet.ResourceID(name)
	if err := azure.SendAndWait(t.ctx, s.resources, "create scale set", http.MethodPut, pool, computeVersion, s.scaleSet(t.kind, name,
		subnet)); err != nil {
		t.Errorf("%v; expected a scale set", err)
		return
	}
	t.run(azuretest.Fixture{Cloud: s.cloud, Another: s.another, Pool: pool, Location: s.region, Size: machineSize,
		Flexible: t.kind == fleet.Flexible})
	if err := azure.SendAndWait(t.ctx, s.resources, "delete scale set", http.MethodDelete, pool, computeVersion, nil); err != nil {
		t.Errorf("%v; expected the scale set to be deleted", err)
	}
}

// run carries out the check, in a goroutine of its own, which it may end.
func (t *trial) run(f azuretest.Fixture) {
	f.T, f.Wait = t, func(d time.Duration) { _ = azure.Sleep(t.ctx, d) }
	f.Claim = func(c azuretest.Claim) {
		if t.claim = c; c != "" && t.ctx.Err() == nil {
			t.reached[c] = true
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { t.ended = t.ctx.Err() == nil && !t.refused }()
		t.check.Do(f)
	}()
	<-done
	if !t.ended {
		delete(t.reached, t.claim)
	}
	t.claim = ""
}

// scaleSet is the pool of azuretest.Fixture. Its extensions need no network.
func (s *session) scaleSet(kind, name string, subnet fleet.ResourceID) map[string]any {
	type object = map[string]any
	extension := func(name string, after ...string) object {
		return object{"name": name, "properties": object{"publisher": "Microsoft.Azure.Extensions", "type": "CustomScript",
			"typeHandlerVersion":      "2.1",
			"autoUpgradeMinorVersion": true, "settings": object{"commandToExecute": "true"}, "provisionAfterExtensions": after}}
	}
	nic := object{"name": "nic", "properties": object{"primary": true, "ipConfigurations": []any{object{"name": "ip",
		"properties": object{"subnet": object{"id": subnet}}}}}}
	network := object{"networkInterfaceConfigurations": []any{nic}}
	properties := object{"orchestrationMode": kind, "virtualMachineProfile": object{
		"osProfile": object{"computerNamePrefix": name[:min(len(name), 9)], "adminUsername": "ortet",
			"adminPassword": "Aa1-" + rand.Text()},
		"storageProfile": object{"imageReference": object{"publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": "server",
			"version": "latest"}},
		"networkProfile":   network,
		"extensionProfile": object{"extensions": []any{extension("first"), extension("second", "first")}},
	}}
	if kind == fleet.Flexible {
		properties["platformFaultDomainCount"] = 1
		network["networkApiVersion"] = "2020-11-01"
	} else {
		properties["overprovision"] = false
	}
	properties["upgradePolicy"] = object{"mode": fleet.Manual}
	return object{"location": s.region, "zones": []string{"1", "2"}, "sku": object{"name": machineSize, "capacity": 2},
		"properties": properties}
}
