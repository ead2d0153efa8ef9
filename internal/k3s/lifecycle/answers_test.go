package lifecycle_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
)

// told answers reads of one resource in other words, and one kind of request with what it says.
type told struct {
	azure.Resources
	id            string // of the resource that is read
	former, words string
	request       string // the last segment of its id
	answer        string
	err           error
	asked         *int
}

func (a told) Get(ctx context.Context, id fleet.ResourceID, version string, into any, query ...string) error {
	var answer json.RawMessage
	if err := a.Resources.Get(ctx, id, version, &answer, query...); err != nil {
		return err
	}
	if id.Equal(fleet.ResourceID(a.id)) {
		answer = json.RawMessage(strings.ReplaceAll(string(answer), a.former, a.words))
	}
	return json.Unmarshal(answer, into)
}

func (a told) Send(ctx context.Context, what, method string, id fleet.ResourceID, version string, body any, query ...string) (azure.Operation, error) {
	if a.request == "" || id.Name() != a.request {
		return a.Resources.Send(ctx, what, method, id, version, body, query...)
	}
	if *a.asked++; a.err != nil {
		return nil, a.err
	}
	return answered(a.answer), nil
}

// What only Azure's answers say is refused with what to do: a state disk at another machine, and a
// network with more ranges than the file has.
func TestOutcomeWhatAzureAnswersIsRefused(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		up := func(a told) error {
			m := x.manager(file)
			a.Resources = m.ARM
			m.ARM = a
			_, err := m.Up(x.ctx, lifecycle.UpOptions{})
			return err
		}
		other := strings.Replace(serverVM, "/server", "/rescue", 1)
		x.isRefused("disk of another machine", up(told{id: stateDisk, former: "virtualMachines/server", words: "virtualMachines/rescue"}),
			"state disk is attached to "+other, "detach it there: az vm disk detach")
		x.isRefused("two ranges", up(told{id: networkID, former: `"10.16.0.0/16"`, words: `"10.16.0.0/16", "10.17.0.0/16"`}),
			"spec.network.addressSpace is 10.16.0.0/16, but the network has 10.16.0.0/16, 10.17.0.0/16", "delete the others from the network")
		x.isRefused("subnet with two ranges", up(told{id: networkID, former: `"addressPrefix":"10.16.0.0/24"`, words: `"addressPrefixes":["10.16.0.0/24","10.18.0.0/24"]`}),
			"but the network has 10.16.0.0/24, 10.18.0.0/24", "delete the others from the network")
	})
}

// Azure's validation answers in several ways: an error in a body refuses up, and no answer, or a
// deployment that is running, is no reason to.
func TestOutcomeAnswersOfTheValidation(t *testing.T) {
	active := &fleet.Error{Op: "validate", Kind: fleet.KindConflict, Code: "DeploymentActive", Err: errors.New("409")}
	for _, c := range []struct {
		answer string
		err    error
		wants  []string // of the refusal; none is well
	}{
		{answer: `{"error": {"code": "InvalidTemplate", "message": "see details", "details": [{"code": "QuotaExceeded", "message": "no cores left"}]}}`, wants: []string{"QuotaExceeded: no cores left", "correct cluster.yaml, or raise the quota"}},
		{answer: `{"error": {"code": "AuthorizationFailed", "message": "may not"}}`, wants: []string{"AuthorizationFailed: may not", "Role Based Access Control Administrator"}},
		{answer: ""}, {answer: `{}`}, {err: active},
	} {
		play(t, nil, func(x *site) {
			go x.boot()
			asked, m := 0, x.manager(file)
			m.ARM = told{Resources: m.ARM, request: "validate", answer: c.answer, err: c.err, asked: &asked}
			r, err := m.Up(x.ctx, lifecycle.UpOptions{})
			if x.isRefused(c.answer, err, c.wants...); len(c.wants) == 0 && (err != nil || !r.Ready) || asked != 2 {
				x.Errorf("%q %v: %v, asked %d times", c.answer, c.err, err, asked)
			}
		})
	}
	play(t, nil, func(x *site) {
		asked, m := 0, x.manager(file)
		m.ARM = told{Resources: m.ARM, request: "validate", err: &fleet.Error{Op: "validate", Kind: fleet.KindTransient, Err: errors.New("503")}, asked: &asked}
		if _, err := m.Up(x.ctx, lifecycle.UpOptions{}); err == nil || workflow.ExitCode(err) == workflow.ExitRefused || !fleet.Is(err, fleet.KindTransient) {
			x.Errorf("a validation that fails for a passing reason: %v", err)
		}
	})
	// The name is taken since this cluster's other up took it just now.
	play(t, nil, func(x *site) {
		go x.boot()
		m, asked := x.manager(file), 0
		m.ARM = told{Resources: meanwhile{m.ARM, func() { x.up(file) }}, request: "checkNameAvailability", answer: `{"nameAvailable": false, "message": "taken"}`, asked: &asked}
		if r, err := m.Up(x.ctx, lifecycle.UpOptions{}); err != nil || !r.Ready || asked != 1 {
			x.Errorf("the account of another up of the cluster: %v, asked %d times", err, asked)
		}
	})
}

// A meanwhile has another up make all after the first look.
type meanwhile struct {
	azure.Resources
	do func()
}

func (m meanwhile) Get(ctx context.Context, id fleet.ResourceID, version string, into any, query ...string) error {
	err := m.Resources.Get(ctx, id, version, into, query...)
	if strings.HasSuffix(string(id), "/providers/Microsoft.Insights") { // the last provider, before the account's name
		m.do()
	}
	return err
}

// uncounted cannot list machines.
type uncounted struct{ azure.Cloud }

func (uncounted) Instances(context.Context, fleet.ResourceID) ([]fleet.Instance, error) {
	return nil, &fleet.Error{Op: "list instances", Kind: fleet.KindDenied, Err: errors.New("403 Forbidden")}
}

// An up that may not list agents says so, and is an up all the same; it closes no port that they
// may listen on.
func TestOutcomeAgentsThatAreNotCounted(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		m := x.manager(edited(t, file, map[string]string{"spec.access.sshPort": "2222"}))
		m.Cloud = uncounted{m.Cloud}
		r, err := m.Up(x.ctx, lifecycle.UpOptions{})
		if err != nil || !r.Ready || !strings.Contains(strings.Join(r.Notes, "\n"), "cannot count agents behind their pool's model: list instances") {
			x.Errorf("%v, notes %q", err, r.Notes)
		}
		if open := x.sshOpen("agents"); !slices.Contains(open, "22") {
			x.Errorf("%q are open to agents", open)
		}
	})
}

// A server that is deleted while up changes it is said, and the next up makes it.
func TestOutcomeServerDeletedWhileItIsChanged(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		w, deleted := &world{site: x, happens: nothing, met: map[string]bool{}}, false
		w.guard = func(_ *world, _ *process, r *http.Request, _ []byte) {
			if !deleted && r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/snapshots/") { // the backup before the change
				deleted = true
				x.send(http.MethodPost, serverVM+"/powerOff", "2024-07-01", nil)
				x.send(http.MethodDelete, serverVM, "2024-07-01", nil)
			}
		}
		p, newer := w.process(), strings.ReplaceAll(file, "ea5647", "0b5647")
		_, err := p.manager(newer).Up(p.ctx, lifecycle.UpOptions{})
		if err == nil || !deleted || workflow.ExitCode(err) == workflow.ExitRefused {
			x.Errorf("deleted %t: %v", deleted, err)
		}
		if r := x.up(newer); !r.Ready {
			x.Errorf("up again: %+v", r)
		}
	})
}

// What goes on to serve is left alone: the rights on the storage after down --state, and Azure's autoscale
// setting of a pool that the file has, after up --prune.
func TestOutcomeWhatStaysIsLeft(t *testing.T) {
	auto := strings.Replace(file, "count: 2}", "count: 2}, {name: more, min: 1, max: 2}", 1)
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(auto)
		if _, err := x.manager(auto).Up(x.ctx, lifecycle.UpOptions{Prune: true}); err != nil {
			x.Error(err)
		}
		if _, there := x.thing(computeGroup + "/providers/Microsoft.Insights/autoscaleSettings/more"); !there {
			x.Error("up --prune deleted the autoscale setting of a pool that stays")
		}
		there := func() (n int) {
			for _, id := range slices.Concat(recipe.Assignments(storageGroup, "demo1234567"), recipe.Assignments(storageGroup, "")) {
				if x.read(id, &object{}) {
					n++
				}
			}
			return n
		}
		before := there()
		r, err := x.manager(auto).Down(x.ctx, []string{lifecycle.RoleCompute, lifecycle.RoleState})
		time.Sleep(time.Minute)
		if err != nil || before == 0 || there() != before || !slices.Contains(r.Deleted, "disk state") {
			x.Errorf("down --state: %v %+v; %d of %d rights on the storage stay", err, r, there(), before)
		}
	})
}
