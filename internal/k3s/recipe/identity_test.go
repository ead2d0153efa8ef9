package recipe_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

const (
	azsimCompute = fleet.ResourceID("/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/demo-compute")
	azsimStorage = fleet.ResourceID("/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/demo-storage")
	azsimPool    = azsimCompute + "/providers/Microsoft.Compute/virtualMachineScaleSets/agents"
	azsimServer  = azsimCompute + "/providers/Microsoft.Compute/virtualMachines/server"
)

// A deployed cluster is one in azsim, served by HTTP, whose machines run nothing.
type deployed struct {
	t     *testing.T
	azure *azsim.Server
	url   string
	arm   *arm.Resources
}

func deploy(t *testing.T, cluster *k3s.Cluster) *deployed {
	t.Helper()
	d := &deployed{t: t}
	web := httptest.NewUnstartedServer(nil)
	d.url = "http://" + web.Listener.Addr().String()
	d.azure = &azsim.Server{Seed: 1, Base: d.url}
	web.Config.Handler = d.azure
	web.Start()
	t.Cleanup(func() { web.Close(); d.azure.Close() })
	d.azure.Instant(true)
	options := arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: d.azure.Credential(""), Transport: d.azure.Transport(), Version: "test"}
	var err error
	if d.arm, err = arm.NewResources(options); err != nil {
		t.Fatal(err)
	}
	cloud, err := arm.New(options)
	if err != nil {
		t.Fatal(err)
	}
	m := lifecycle.New(lifecycle.Config{ARM: d.arm, Cloud: cloud, Subscription: azsim.DefaultSubscription, Cluster: cluster, Render: recipe.Render,
		SSHPublicKey: facts().SSHPublicKey, OwnAddresses: facts().OwnAddresses, Poll: 10 * time.Millisecond})
	if _, err := m.Up(t.Context(), lifecycle.UpOptions{NoWait: true}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the group is deployed", func() bool {
		var state struct {
			Properties struct{ ProvisioningState string }
		}
		err := d.arm.Get(t.Context(), azsimCompute+"/providers/Microsoft.Resources/deployments/ortet", "2021-04-01", &state)
		return err == nil && state.Properties.ProvisioningState == "Succeeded"
	})
	return d
}

// on has boot.py of a machine run with this cluster's Azure.
func (d *deployed) on(machine string, id fleet.ResourceID) *world {
	d.t.Helper()
	w := newWorld(d.t)
	w.imds, w.manager = d.url+"/azsim/imds"+string(id), d.url
	w.install(machine, nil)
	w.put(w.root+"/etc/ssh/ssh_host_ed25519_key.pub", "ssh-ed25519 AAAAhost root@server\n", 0o644)
	if machine == "server" { // the artifacts that are here
		_, err := d.arm.Send(d.t.Context(), "write userData", http.MethodPatch, id, "2024-07-01", object{"properties": object{"userData": w.data}})
		if err != nil {
			d.t.Fatal(err)
		}
	}
	return w
}

// assignment returns where a grant's assignment is.
func (d *deployed) assignment(g recipe.Grant) fleet.ResourceID {
	d.t.Helper()
	storage, compute := recipe.Assignments(string(azsimStorage), "ortetdemo123"), recipe.Assignments(string(azsimCompute), "")
	for _, other := range recipe.Grants() {
		list := &compute
		if other.Scope == "account" {
			list = &storage
		}
		if other == g {
			return fleet.ResourceID((*list)[0])
		}
		*list = (*list)[1:]
	}
	d.t.Fatalf("no grant %s", g.Name)
	return ""
}

// identity returns the client and object id of an identity.
func (d *deployed) identity(name string) (client, object string) {
	d.t.Helper()
	var v struct {
		Properties struct{ ClientID, PrincipalID string }
	}
	if err := d.arm.Get(d.t.Context(), azsimStorage+"/providers/Microsoft.ManagedIdentity/userAssignedIdentities/"+fleet.ResourceID(name), "2023-01-31", &v); err != nil {
		d.t.Fatal(err)
	}
	return v.Properties.ClientID, v.Properties.PrincipalID
}

// admits does in Azure what the server's admission does: it reads one machine that asks
// to join, and lists those of the pool.
func (d *deployed) admits() error {
	d.t.Helper()
	client, _ := d.identity(recipe.ServerIdentity)
	c, err := arm.New(arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: d.azure.Credential(client), Transport: d.azure.Transport()})
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := c.Member(d.t.Context(), azsimPool+"/virtualMachines/0"); err != nil {
		return err
	}
	_, err = c.Members(d.t.Context(), azsimPool, true)
	return err
}

// lives runs the machines until one cannot go on because an action is denied, which it
// gives with the message, or until all of them have done all that they do.
func (d *deployed) lives(denied string) string {
	d.t.Helper()
	for _, step := range []struct {
		machine, argument string
		id                fleet.ResourceID
		w                 *world
	}{{machine: "server", id: azsimServer}, {machine: "agents", id: azsimPool + "/virtualMachines/0"}} {
		w := d.on(step.machine, step.id)
		arguments := [][]string{nil}
		if step.machine == "server" {
			arguments = append(arguments, []string{"publish"})
		}
		for _, a := range arguments {
			if message := w.until(denied, a...); message != "" {
				return message
			}
		}
	}
	if err := d.admits(); err != nil {
		return err.Error()
	}
	return ""
}

// until runs boot.py to its end, or until it says that an action is denied.
func (w *world) until(denied string, arguments ...string) string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 3*time.Minute)
	defer cancel()
	log, err := os.Create(w.root + "/log")
	if err != nil {
		w.t.Fatal(err)
	}
	defer log.Close()
	w.log = log
	wait := w.start(ctx, arguments...)
	ended := make(chan error, 1)
	go func() { _, err := wait(); ended <- err }()
	for {
		select {
		case err := <-ended:
			if err != nil {
				w.t.Fatalf("boot.py: %v\n%s", err, w.read("/log"))
			}
			return ""
		case <-time.After(10 * time.Millisecond):
		}
		if said := w.read("/log"); denied != "" && strings.Contains(strings.ToLower(said), strings.ToLower("'"+denied+"'")) {
			cancel()
			<-ended //nolint:errcheck // it was killed
			return said
		}
	}
}

// Without any one of their roles a machine cannot go on, and names what it lacks.
func TestMachineLacksARole(t *testing.T) {
	t.Parallel()
	lacks := map[string]string{ // the first action of a grant that a machine uses
		"server-share": "Microsoft.Storage/storageAccounts/listKeys/action",
		"agent-share":  "Microsoft.Storage/storageAccounts/listKeys/action",
		"server-group": "Microsoft.Network/publicIPAddresses/read",
		"server-tags":  "Microsoft.Resources/tags/write",
		"agent-server": "Microsoft.Compute/virtualMachines/read",
	}
	d := deploy(t, minimal())
	if message := d.lives(""); message != "" {
		t.Fatal(message)
	}
	for _, g := range recipe.Grants() {
		t.Run(g.Name, func(t *testing.T) {
			d.t = t
			id, action := d.assignment(g), lacks[g.Name]
			was := object{}
			if err := d.arm.Get(t.Context(), id, "2022-04-01", &was); err != nil {
				t.Fatal(err)
			}
			d.send(http.MethodDelete, id, "2022-04-01", nil)
			if message := d.lives(action); !strings.Contains(strings.ToLower(message), strings.ToLower(action)) {
				t.Errorf("without %s: %q", g.Role.Name, message)
			}
			d.send(http.MethodPut, id, "2022-04-01", object{"properties": was["properties"]})
		})
	}
}

func (d *deployed) send(method string, id fleet.ResourceID, version string, body any) {
	d.t.Helper()
	if _, err := d.arm.Send(d.t.Context(), "change the world", method, id, version, body); err != nil {
		d.t.Fatal(err)
	}
}

// What the machines' identities may do in Azure, and what not.
func TestIdentitiesMayDoNoMore(t *testing.T) {
	t.Parallel()
	const (
		may, never = recipe.ServerIdentity + recipe.AgentIdentity, ""
		read       = recipe.ServerIdentity + recipe.AutoscalerIdentity
		account    = azsimStorage + "/providers/Microsoft.Storage/storageAccounts/ortetdemo123"
		identities = azsimStorage + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/"
		machine    = azsimPool + "/virtualMachines/0"
		burst      = azsimCompute + "/providers/Microsoft.Compute/virtualMachineScaleSets/burst"
	)
	tags := object{"operation": "Merge", "properties": object{"tags": object{"a": "b"}}}
	assignment := object{"properties": object{"roleDefinitionId": "/subscriptions/" + azsim.DefaultSubscription +
		"/providers/Microsoft.Authorization/roleDefinitions/8e3af657-a8ff-443c-a75c-2fe8c4bcb635", "principalId": "PRINCIPAL"}}
	cluster := minimal()
	cluster.Spec.Options.ClusterAutoscaler = "registry.example/cluster-autoscaler@sha256:" + digest('6')
	cluster.Spec.Pools = append(cluster.Spec.Pools, k3s.Pool{Name: "burst", Min: number(1), Max: number(3), ScaleBy: k3s.Pods})
	cluster.SetDefaults()
	d := deploy(t, cluster)
	// The backup group and a backup in it: root on the server cannot read or delete it.
	const backups = fleet.ResourceID("/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/backups")
	const backup = backups + "/providers/Microsoft.Compute/snapshots/demo-20261129-020000"
	snapshot := object{"location": "westeurope", "properties": object{"creationData": object{"createOption": "Copy", "sourceResourceId": azsimStorage + "/providers/Microsoft.Compute/disks/" + recipe.StateDisk}}}
	d.send(http.MethodPut, backups, "2021-04-01", object{"location": "westeurope"})
	d.send(http.MethodPut, backup, "2023-10-02", snapshot)
	for _, ask := range []struct {
		who, method string
		id          fleet.ResourceID
		version     string
		body        object
	}{
		{may, http.MethodPost, account + "/listKeys", "2023-05-01", object{}},
		{may, http.MethodGet, account, "2023-05-01", nil},
		{may + read, http.MethodGet, azsimServer, "2024-07-01", nil},
		{recipe.ServerIdentity, http.MethodPatch, azsimServer + "/providers/Microsoft.Resources/tags/default", "2021-04-01", tags},
		{read, http.MethodGet, azsimPool, "2024-07-01", nil},
		{read, http.MethodGet, machine, "2024-07-01", nil},
		{read, http.MethodGet, azsimCompute + "/providers/Microsoft.Network/publicIPAddresses/server", "2024-05-01", nil},
		{read, http.MethodGet, azsimCompute, "2021-04-01", nil},
		{recipe.AutoscalerIdentity, http.MethodPut, burst, "2024-07-01", object{"location": "westeurope", "sku": object{"name": "Standard_D2s_v5", "capacity": 3}}},
		{recipe.AutoscalerIdentity, http.MethodPost, burst + "/delete", "2024-07-01", object{"instanceIds": []string{"0"}}},
		{never, http.MethodPost, azsimPool + "/delete", "2024-07-01", object{"instanceIds": []string{"0"}}},
		{never, http.MethodPatch, burst, "2024-07-01", object{"identity": object{"type": "UserAssigned", "userAssignedIdentities": object{string(identities + recipe.ServerIdentity): object{}}}}},
		{never, http.MethodPost, account + "/regenerateKey", "2023-05-01", object{"keyName": "key1"}},
		{never, http.MethodPatch, account, "2023-05-01", object{"properties": object{"allowBlobPublicAccess": true}}},
		{never, http.MethodDelete, account, "2023-05-01", nil},
		{never, http.MethodGet, azsimStorage, "2021-04-01", nil},
		{never, http.MethodGet, azsimStorage + "/resources", "2021-04-01", nil},
		{never, http.MethodGet, azsimStorage + "/providers/Microsoft.Compute/disks", "2023-10-02", nil},
		{never, http.MethodGet, azsimStorage + "/providers/Microsoft.Compute/snapshots", "2023-10-02", nil},
		{never, http.MethodGet, identities + recipe.ServerIdentity, "2023-01-31", nil},
		{never, http.MethodPatch, azsimServer, "2024-07-01", object{"properties": object{"userData": "e30="}}},
		{never, http.MethodDelete, azsimServer, "2024-07-01", nil},
		{never, http.MethodPost, azsimServer + "/restart", "2024-07-01", nil},
		{never, http.MethodPost, azsimServer + "/retrieveBootDiagnosticsData", "2024-07-01", nil},
		{never, http.MethodPatch, azsimPool, "2024-07-01", object{"sku": object{"capacity": 5}}},
		{never, http.MethodPatch, azsimPool + "/providers/Microsoft.Resources/tags/default", "2021-04-01", tags},
		{never, http.MethodDelete, machine, "2024-07-01", nil},
		{never, http.MethodPost, machine + "/reimage", "2024-07-01", object{}},
		{never, http.MethodDelete, azsimCompute, "2021-04-01", nil},
		{never, http.MethodPut, azsimServer + "/providers/Microsoft.Authorization/roleAssignments/00000000-0000-4000-8000-000000000001", "2022-04-01", assignment},
		{never, http.MethodPut, account + "/providers/Microsoft.Authorization/roleAssignments/00000000-0000-4000-8000-000000000002", "2022-04-01", assignment},
		{never, http.MethodGet, "/subscriptions/" + azsim.DefaultSubscription + "/resourcegroups", "2021-04-01", nil},
		{never, http.MethodGet, backups, "2021-04-01", nil},
		{never, http.MethodGet, backups + "/providers/Microsoft.Compute/snapshots", "2023-10-02", nil},
		{never, http.MethodGet, backup, "2023-10-02", nil},
		{never, http.MethodPost, backup + "/beginGetAccess", "2023-10-02", object{"access": "Read", "durationInSeconds": 60}},
		{never, http.MethodPut, backup + "x", "2023-10-02", snapshot},
		{never, http.MethodPatch, backup + "/providers/Microsoft.Resources/tags/default", "2021-04-01", tags},
		{never, http.MethodDelete, backup, "2023-10-02", nil},
		{never, http.MethodDelete, backups, "2021-04-01", nil},
	} {
		for _, name := range []string{recipe.ServerIdentity, recipe.AgentIdentity, recipe.AutoscalerIdentity} {
			client, _ := d.identity(name)
			c, err := arm.NewResources(arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: d.azure.Credential(client), Transport: d.azure.Transport(), Version: "test"})
			if err != nil {
				t.Fatal(err)
			}
			if ask.method == http.MethodGet {
				err = c.Get(t.Context(), ask.id, ask.version, &object{})
			} else {
				_, err = c.Send(t.Context(), "try", ask.method, ask.id, ask.version, ask.body)
			}
			allowed := strings.Contains(ask.who, name)
			if denied := fleet.Is(err, fleet.KindDenied); allowed && err != nil || !allowed && !denied {
				t.Errorf("%s, %s %s: %v", name, ask.method, ask.id, err)
			}
		}
	}
}
