package lifecycle_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
)

type object = map[string]any

// A fake is ARM as far as the life cycle sees it: a deployment makes a resource at each
// observation of it.
type fake struct {
	mu       sync.Mutex
	objects  map[string]object // by id, lower case
	runs     map[string]*run
	fails    map[string]string // type to Azure's sentence
	lacks    map[string]bool   // providers that are not registered
	taken    bool              // the account's name
	invalid  string            // validate's sentence
	writes   []string          // of groups, deployments and deletions
	creating int               // observations until the server is made
	stopped  string            // the server's state when it was deallocated
	hold     bool              // deployments do not go on until a second one was refused
	onDeploy func(group string)
}

type run struct {
	id     int
	todo   []object
	state  string
	steps  []object
	values object
}

func newFake() *fake {
	return &fake{objects: map[string]object{}, runs: map[string]*run{}, fails: map[string]string{}, lacks: map[string]bool{}}
}

func missing(code string) error { return &fleet.Error{Kind: fleet.KindNotFound, Code: code} }

func (f *fake) answer(into, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

func (f *fake) Get(ctx context.Context, id fleet.ResourceID, _ string, into any, _ ...string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if r := f.runs[group(id)]; r != nil && strings.HasSuffix(string(id), "/deployments/ortet") {
		defer f.advance(group(id), r)
		return f.answer(into, object{"properties": object{"provisioningState": r.state, "correlationId": fmt.Sprint(r.id)}})
	}
	if ns, ok := strings.CutPrefix(string(id), "/subscriptions/s/providers/"); ok {
		state := "Registered"
		if f.lacks[ns] {
			state = "NotRegistered"
		}
		return f.answer(into, object{"registrationState": state})
	}
	o := f.objects[strings.ToLower(string(id))]
	if o == nil {
		return missing("ResourceNotFound")
	}
	if id.Name() == "server" && strings.Contains(string(id), "virtualMachines") {
		tags := o["tags"].(object)
		tags[recipe.TagBoot] = recipe.BootReady
		tags[recipe.TagCAHash] = "sha256:1"
		properties, ok := o["properties"].(object)
		if !ok {
			return f.answer(into, o)
		}
		if f.creating--; f.creating == 0 {
			properties["provisioningState"] = "Succeeded"
		}
		properties["instanceView"] = object{"statuses": []object{{"code": "PowerState/running"}}}
		if data, ok := properties["userData"].(string); ok {
			settings, err := base64.StdEncoding.DecodeString(data)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(settings)
			tags[recipe.TagSettings] = hex.EncodeToString(sum[:])[:16]
		}
	}
	return f.answer(into, o)
}

func (f *fake) List(_ context.Context, id fleet.ResourceID, _ string, each func(json.RawMessage) error, _ ...string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []object
	switch {
	case strings.HasSuffix(string(id), "/operations"):
		all = f.runs[group(id)].steps
	case strings.HasSuffix(string(id), "/resources"), strings.HasSuffix(string(id), "/virtualMachineScaleSets"):
		prefix := strings.ToLower(string(id) + "/")
		if strings.HasSuffix(string(id), "/resources") {
			prefix = strings.ToLower(string(id.Group()) + "/providers/")
		}
		var names []string
		for k := range f.objects {
			if strings.HasPrefix(k, prefix) {
				names = append(names, k)
			}
		}
		sort.Strings(names)
		for _, k := range names {
			all = append(all, f.objects[k])
		}
	}
	for _, o := range all {
		data, err := json.Marshal(o)
		if err != nil {
			return err
		}
		if err := each(data); err != nil {
			return err
		}
	}
	return nil
}

func (f *fake) Send(_ context.Context, _, method string, id fleet.ResourceID, _ string, body any, _ ...string) (azure.Operation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	reply := func(v any) (azure.Operation, error) {
		data, err := json.Marshal(v)
		return answered(data), err
	}
	var in object
	if data, err := json.Marshal(body); err != nil || json.Unmarshal(data, &in) != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	switch name := id.Name(); {
	case name == "checkNameAvailability":
		return reply(object{"nameAvailable": !f.taken, "message": "The storage account named x is already taken."})
	case name == "validate" && f.invalid != "":
		return nil, &fleet.Error{Kind: fleet.KindInvalid, Code: "InvalidTemplateDeployment", Err: fmt.Errorf("%s", f.invalid)}
	case name == "validate":
		return reply(object{})
	case method == http.MethodDelete && strings.EqualFold(string(id), string(id.Group())):
		f.writes = append(f.writes, "delete "+name)
		for k := range f.objects {
			if k == strings.ToLower(string(id)) || strings.HasPrefix(k, strings.ToLower(string(id))+"/") {
				delete(f.objects, k)
			}
		}
		delete(f.runs, name)
	case strings.HasSuffix(string(id), "/deployments/ortet"):
		return f.deploy(group(id), in, reply)
	case name == "deallocate":
		server := f.objects[strings.ToLower(strings.TrimSuffix(string(id), "/deallocate"))]
		f.stopped = fmt.Sprint(server["properties"].(object)["provisioningState"])
	case method == http.MethodPut:
		f.writes = append(f.writes, "put "+name)
		in["id"], in["name"] = id, name
		f.objects[strings.ToLower(string(id))] = in
	case method == http.MethodDelete:
		f.writes = append(f.writes, "delete "+name)
		delete(f.objects, strings.ToLower(string(id)))
	}
	return reply(object{})
}

func group(id fleet.ResourceID) string { return id.Segment("resourceGroups") }

func (f *fake) deploy(group string, in object, reply func(any) (azure.Operation, error)) (azure.Operation, error) {
	if r := f.runs[group]; r != nil && !r.ended() {
		f.hold = false
		return nil, &fleet.Error{Kind: fleet.KindConflict, Code: "DeploymentActive", Err: fmt.Errorf("409 DeploymentActive")}
	}
	f.writes = append(f.writes, "deploy "+group)
	p := in["properties"].(object)
	r := &run{id: len(f.writes), state: "Accepted", values: p["parameters"].(object)}
	for _, t := range p["template"].(object)["resources"].([]any) {
		o := t.(object)
		if !strings.HasPrefix(o["name"].(string), "[") {
			r.todo = append(r.todo, o)
		}
	}
	f.runs[group] = r
	if f.onDeploy != nil {
		f.onDeploy(group)
	}
	return reply(object{"properties": object{"correlationId": fmt.Sprint(r.id), "provisioningState": "Accepted"}})
}

func (r *run) ended() bool { return r.state != "Accepted" && r.state != "Running" }

// advance begins a deployment, or makes its next resource.
func (f *fake) advance(group string, r *run) {
	switch {
	case r.ended() || f.hold:
		return
	case r.state == "Accepted":
		r.state = "Running"
		return
	}
	if len(r.todo) == 0 {
		r.state = "Succeeded"
		for _, s := range r.steps {
			if s["properties"].(object)["provisioningState"] == "Failed" {
				r.state = "Failed"
			}
		}
		return
	}
	o := r.todo[0]
	r.todo = r.todo[1:]
	kind, name := o["type"].(string), o["name"].(string)
	for parameter, of := range map[string]string{"serverExists": "Microsoft.Compute/virtualMachines", "stateExists": "Microsoft.Compute/disks"} {
		if exists, _ := r.values[parameter].(object); kind == of && exists["value"] == true {
			return
		}
	}
	child := strings.Count(kind, "/") > 1 // not listed among a group's resources
	step := object{"provisioningState": "Succeeded", "targetResource": object{"resourceType": kind, "resourceName": name}}
	r.steps = append(r.steps, object{"operationId": fmt.Sprint(len(r.steps)), "properties": step})
	if why := f.fails[kind]; why != "" {
		step["provisioningState"] = "Failed"
		step["statusMessage"] = object{"error": object{"code": "ResourceDeploymentFailure", "details": []object{{"code": "SkuNotAvailable", "message": why}}}}
		return
	}
	id := "/subscriptions/s/resourceGroups/" + group + "/providers/" + kind + "/" + name
	made := object{"id": id, "name": name, "type": kind, "location": "westeurope", "tags": o["tags"], "properties": object{"provisioningState": "Succeeded"}}
	if properties, ok := o["properties"].(object); ok && kind == "Microsoft.Compute/virtualMachines" {
		made["properties"].(object)["userData"], made["properties"].(object)["hardwareProfile"] = properties["userData"], properties["hardwareProfile"]
	}
	if capacity, ok := r.values["capacity"].(object); ok && strings.HasSuffix(kind, "ScaleSets") {
		made["sku"] = object{"name": o["sku"].(object)["name"], "capacity": capacity["value"].(object)[name]}
		made["properties"] = o["properties"]
	}
	if p, _ := o["properties"].(object); strings.HasSuffix(kind, "virtualNetworks") {
		made["properties"] = p
	} else if _, ok := p["virtualMachineProfile"].(object); ok {
		made["zones"] = o["zones"]
	}
	if !child {
		f.objects[strings.ToLower(id)] = made
	}
}

// file is a cluster.yaml with two agents.
const file = `apiVersion: ortet.io/v1alpha1
kind: Cluster
metadata: {name: demo}
spec:
  location: westeurope
  artifacts:
    k3s: {url: "https://m.example/k3s", sha256: ea5647ee8642f531e768edfc9fc5c6f34b911696d7488a0ec26ac2a798f41da4}
    ortet: {url: "https://m.example/ortet", sha256: ea5647ee8642f531e768edfc9fc5c6f34b911696d7488a0ec26ac2a798f41da4}
    ortetNode: {url: "https://m.example/ortet-node", sha256: ea5647ee8642f531e768edfc9fc5c6f34b911696d7488a0ec26ac2a798f41da4}
  pools: [{name: agents, count: 2}]
  storage: {account: demo1234567}
`

func manager(t *testing.T, f azure.Resources, text string, events *[]workflow.Event) *lifecycle.Manager {
	t.Helper()
	c, err := k3s.Parse("cluster.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	return lifecycle.New(lifecycle.Config{ARM: f, Cloud: deleter{ARM: f}, Subscription: "s", Cluster: c, Render: recipe.Render, SSHPublicKey: "ssh-ed25519 AAAA", OwnAddresses: []string{"192.0.2.7"},
		Agents: lowers{f}, Poll: time.Millisecond, Ready: time.Second, Report: func(e workflow.Event) {
			mu.Lock()
			defer mu.Unlock()
			if events != nil {
				*events = append(*events, e)
			}
		}})
}

// stopping is a fake whose client is interrupted after some observations.
type stopping struct {
	*fake
	after int
	stop  func()
}

func (s *stopping) Get(ctx context.Context, id fleet.ResourceID, version string, into any, query ...string) error {
	if s.after--; s.after < 0 {
		s.stop()
	}
	return s.fake.Get(ctx, id, version, into, query...)
}

// answered is an azure.Operation that has ended.
type answered json.RawMessage

func (a answered) Answer() json.RawMessage                       { return json.RawMessage(a) }
func (a answered) Wait(context.Context) (json.RawMessage, error) { return json.RawMessage(a), nil }

// A deleter is an azure.Cloud that knows all sizes and deletes scale sets, which have no
// instances.
type deleter struct {
	azure.Cloud
	ARM azure.Resources
}

func (deleter) Sizes(_ context.Context, _, _ string, sizes ...string) (map[string]fleet.SizeInfo, error) {
	all := map[string]fleet.SizeInfo{}
	for _, size := range sizes {
		all[strings.ToLower(size)] = fleet.SizeInfo{Name: size}
	}
	return all, nil
}

func (d deleter) Begin(ctx context.Context, change fleet.Change) (fleet.Token, error) {
	_, err := d.ARM.Send(ctx, change.Verb(), http.MethodDelete, change.Target(), "2024-07-01", nil)
	return "", err
}

// lowers lowers pools of a fake, which have no agents.
type lowers struct{ azure.Resources }

func (lowers) Reach(context.Context) error { return nil }
func (l lowers) Lower(_ context.Context, pool string, n int64, _ func(string)) error {
	if f, is := l.Resources.(*fake); is {
		f.mu.Lock()
		defer f.mu.Unlock()
		for id, o := range f.objects {
			if sku, is := o["sku"].(object); is && strings.HasSuffix(id, "/"+pool) {
				sku["capacity"] = float64(n)
			}
		}
	}
	return nil
}

func (deleter) Instances(context.Context, fleet.ResourceID) ([]fleet.Instance, error) {
	return nil, nil
}
