package azsim

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// usage is a quota of the region as a client of principal reads it.
func (l *lab) usage(principal, name string) (used int32, limit int64, err error) {
	l.t.Helper()
	client, err := armcompute.NewUsageClient(DefaultSubscription, l.s.Credential(principal), l.s.ClientOptions())
	if err != nil {
		l.t.Fatal(err)
	}
	page, err := client.NewListPager("westeurope", nil).NextPage(context.Background())
	for _, u := range page.Value {
		if val(u.Name.Value) == name {
			return val(u.CurrentValue), val(u.Limit), err
		}
	}
	return 0, 0, err
}

func TestQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec, err := ParseSpec([]byte(`quota: {standardDSv5Family: 7, cores: 100, lowPriorityCores: 2}
principals:
- {clientId: ` + DefaultClientID + `, roles: [{role: Owner}]}
- {clientId: ` + helperID + `, roles: [{role: usages, actions: [Microsoft.Compute/locations/usages/read]}]}
- {clientId: 00000000-0000-4000-8000-0000000000ab, roles: [{role: sizes, actions: [Microsoft.Compute/locations/vmSizes/read]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		s := &Server{}
		defer s.Close()
		if err := spec.Apply(s); err != nil {
			t.Fatal(err)
		}
		l := newLab(t, s)
		want := func(when, name string, used int32, limit int64) {
			t.Helper()
			if u, n, err := l.usage(helperID, name); u != used || n != limit || err != nil {
				t.Errorf("%s: %d of %d of %s, %v; want %d of %d", when, u, n, name, err, used, limit)
			}
		}
		_, _, err = l.usage("00000000-0000-4000-8000-0000000000ab", "cores")
		wantRefusal(t, err, "AuthorizationFailed", "Microsoft.Compute/locations/usages/read")

		const exceeds = "exceeding approved standardDSv5Family Cores quota. Additional details - " +
			"Deployment Model: Resource Manager, Location: westeurope, " +
			"Current Limit: 7, Current Usage: 0, Additional Required: 8, (Minimum) New Limit Required: 8."
		p, err := l.sets.BeginCreateOrUpdate(context.Background(), labGroup, "pool1", pool(4), nil)
		_, err = tryDone(p, err)
		wantRefusal(t, err, "OperationNotAllowed", exceeds)
		l.create("pool1", pool(3))
		want("three instances of two", "standardDSv5Family", 6, 7)
		want("three instances of two", "cores", 6, 100)
		wantRefusal(t, l.scale("pool1", 4), "OperationNotAllowed", "Current Usage: 6, Additional Required: 2, (Minimum) New Limit Required: 8.")
		l.wantSet("after the refusal", stateSucceeded, 3)

		off, err := l.vms.BeginDeallocate(context.Background(), labGroup, "pool1", "0", nil)
		done(t, off, err)
		want("one deallocated", "standardDSv5Family", 4, 7)
		other := pool(1)
		l.create("pool2", other)
		want("another scale set", "standardDSv5Family", 6, 7)
		on, err := l.vms.BeginStart(context.Background(), labGroup, "pool1", "0", nil)
		_, err = tryDone(on, err)
		wantRefusal(t, err, "OperationNotAllowed", "Additional Required: 2")
		del, err := l.sets.BeginDelete(context.Background(), labGroup, "pool2", nil)
		done(t, del, err)
		on, err = l.vms.BeginStart(context.Background(), labGroup, "pool1", "0", nil)
		done(t, on, err)
		want("started again", "standardDSv5Family", 6, 7)

		spot := pool(2)
		spot.Properties.VirtualMachineProfile.Priority = ptr(armcompute.VirtualMachinePriorityTypesSpot)
		p, err = l.sets.BeginCreateOrUpdate(context.Background(), labGroup, "spot", spot, nil)
		_, err = tryDone(p, err)
		wantRefusal(t, err, "OperationNotAllowed", "exceeding approved LowPriorityCores quota")
		spot.SKU.Capacity = ptr(int64(1))
		l.create("spot", spot)
		want("a Spot instance", "lowPriorityCores", 2, 2)
		want("a Spot instance", "cores", 6, 100)
		want("not limited", "standardDDSv5Family", 0, defaultQuota)
	})
	for _, bad := range []string{"quota: {cores: -1}", "quota: {standardXFamily: 4}"} {
		if _, err := ParseSpec([]byte(bad)); err == nil || !strings.Contains(err.Error(), "quota: ") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestQuotaOfADeployment(t *testing.T) {
	deployments2021(t, func(s *Server) { s.Quota = map[string]int{"cores": 3} }, func(b *deployBench) {
		tree, err := toTree(pool(2))
		if err != nil {
			b.Fatal(err)
		}
		body, _ := tree.(map[string]any)
		body["type"], body["apiVersion"], body["name"] = setType, "2024-07-01", "pool1"
		data, err := json.Marshal(body)
		if err != nil {
			b.Fatal(err)
		}
		template := `{"$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#", ` +
			`"contentVersion": "1.0.0.0", "resources": [` + string(data) + `]}`
		got := b.want(400, "POST", b.deployment("d")+"/validate", deploying(template, "{}"))
		if dig(got, "error.code") != "InvalidTemplateDeployment" || dig(got, "error.details.0.code") != "QuotaExceeded" {
			b.Errorf("refused with %v", got)
		}
	})
}
